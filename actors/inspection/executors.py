"""One executor, as its pod shows it. Pure.

The same functions judge it as in the driver: `classify`, `why_stuck`, `explain`. What only the driver knows is unknown
here: whether the executor registered, and whether the driver requested its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from actors.inspection.fields import items, text, time
from actors.pods.loss import explain
from actors.pods.pod import (
    INACTIVE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
    executor_id,
    held_since,
    restarts,
)
from actors.pods.repair import pod_from
from actors.pods.state import (
    PodPending,
    PodRules,
    PodRunning,
    PodTerminating,
    classify,
    executor_container,
    executor_end,
    malformed,
)
from actors.pods.stuck import crashes_in_place, does_not_start, why_gated, why_stuck
from actors.text import LONGEST_LINE, one_line

if TYPE_CHECKING:
    from datetime import datetime

    from actors.kube.api import Manifest
    from actors.pods.loss import LossReason
    from actors.pods.pod import OwnerReference, Pod
    from actors.pods.state import PodState
    from actors.pods.stuck import Stuck

__all__ = ["ObservedExecutor", "ObservedState", "is_executor", "observe"]

SLOW: Final = timedelta(minutes=5)
"""`executor.stuck_timeout` by default: a pod that has a node and does not start for so long is shown as stuck."""


class ObservedState(StrEnum):
    """What an executor does, as its pod shows it."""

    PENDING = "pending"
    STUCK = "stuck"
    """Pending, and its pod says why it does not start, or it takes longer than `SLOW`."""
    RUNNING = "running"
    TERMINATING = "terminating"
    UNKNOWN = "unknown"
    """Its node does not report, or its pod cannot be read: it counts as alive."""
    ENDED = "ended"
    """It has ended, and its pod is still there."""


@dataclass(frozen=True, slots=True)
class ObservedExecutor:
    """One executor's pod."""

    id: int | None
    """None if its label or its name is not of an executor."""
    profile: str
    state: ObservedState
    since: datetime | None
    """When it entered this state, None if the pod does not say."""
    pod: Pod
    namespace: str
    created_at: datetime | None
    running_at: datetime | None
    """When its container began to run, None before."""
    ended_at: datetime | None
    restarts: int
    why: str | None
    """Why it does not run, is terminating or has ended; None if there is nothing to say."""
    loss: LossReason | None
    """How its end is classified; None while it is alive."""
    registered: bool | None = None
    """It is connected to its driver; None unless the driver was asked."""
    retiring: bool | None = None
    """Its driver lets it drain; None unless the driver was asked."""

    @property
    def alive(self) -> bool:
        """It has not ended: it uses its node, or is going to."""
        return self.state is not ObservedState.ENDED

    @property
    def inactive(self) -> bool:
        """The driver set it aside: it has ended, and its pod is kept."""
        return self.pod.labels.get(INACTIVE_LABEL) == "true"

    @property
    def owners(self) -> tuple[OwnerReference, ...]:
        """The pods that own it: its driver's."""
        return tuple(owner for owner in self.pod.metadata.owner_references or () if owner.kind == "Pod")


def is_executor(manifest: Manifest) -> bool:
    """Whether a pod has the labels of an executor: not every server evaluates a selector."""
    return text(manifest, "metadata", "labels", ROLE_LABEL) == ROLE_EXECUTOR


def observe(manifest: Manifest, now: datetime) -> ObservedExecutor | None:
    """Return what a pod, as JSON, says of its executor. None if it has no usable name or UID."""
    try:
        pod = pod_from(manifest).pod()
    except msgspec.ValidationError:
        return None
    rules = PodRules()
    state, found, problem = classify(pod, rules), executor_id(pod), malformed(pod)
    end = executor_end(pod, rules)
    created_at = time(manifest, "metadata", "creationTimestamp")
    running_at = _started_at(manifest, executor_container(pod, rules)) or (end.started_at if end is not None else None)
    ended_at, loss = None, None
    if state.final:
        kind, since = ObservedState.ENDED, end.finished_at if end is not None else None
        loss, ended_at = explain(found or 0, state, rules), since
        held = _held(pod, now)
        why: str | None = loss.message if held is None else f"{loss.message}; its pod is {held}"
    else:
        kind, since, why = _alive(state, created_at, running_at, now)
    return ObservedExecutor(
        id=found,
        profile=pod.profile,
        state=kind,
        since=since,
        pod=pod,
        namespace=text(manifest, "metadata", "namespace") or "",
        created_at=created_at,
        running_at=running_at,
        ended_at=ended_at,
        restarts=restarts(pod),
        why=one_line(problem, LONGEST_LINE) if problem is not None else why,
        loss=loss,
    )


def _alive(
    state: PodState, created_at: datetime | None, running_at: datetime | None, now: datetime
) -> tuple[ObservedState, datetime | None, str | None]:
    """Return the state of a live executor, since when, and why."""
    pod = state.pod
    match state:
        case PodRunning():
            crash = why_stuck(pod) if crashes_in_place(pod) else None
            return ObservedState.RUNNING, running_at, None if crash is None else _words(crash)
        case PodTerminating():
            return ObservedState.TERMINATING, _deletion_began(pod), _why_terminating(pod, now)
        case PodPending():
            waited = now - created_at if created_at is not None else timedelta(0)
            stuck = why_stuck(pod) or (does_not_start(pod, waited) if waited >= SLOW else None)
            if stuck is None:
                return ObservedState.PENDING, created_at, why_gated(pod)
            return ObservedState.STUCK, stuck.since or created_at, _words(stuck)
        case _:
            phase = pod.status.phase if pod.status is not None else None
            return ObservedState.UNKNOWN, None, one_line(f"the phase of its pod is {phase!r}: its node may be lost")


def _words(stuck: Stuck) -> str:
    words = f"{stuck.reason}: {stuck.message}" if stuck.message else stuck.reason
    return one_line(words if stuck.heals else f"{words}; only a new pod can start", LONGEST_LINE)


def _deletion_began(pod: Pod) -> datetime | None:
    ends = pod.metadata.deletion_timestamp
    try:
        return ends - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0) if ends is not None else None
    except OverflowError:
        return ends


def _why_terminating(pod: Pod, now: datetime) -> str | None:
    """Return what holds a pod whose grace period is over, else which disruption ends it."""
    if (held := _held(pod, now)) is not None:
        return held
    ends = pod.metadata.deletion_timestamp
    if ends is not None and now - ends > SLOW:
        return "its grace period is long over: its node may be lost"
    for condition in (pod.status.conditions if pod.status else None) or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            words = ": ".join(part for part in (condition.reason, condition.message) if part)
            return one_line(words, LONGEST_LINE) or None
    return None


def _held(pod: Pod, now: datetime) -> str | None:
    """Return which finalizers hold a pod whose grace period is over, None if none do."""
    if held_since(pod, now) is None:
        return None
    return one_line(f"held by its finalizers: {', '.join(pod.metadata.finalizers or ())}", LONGEST_LINE)


def _started_at(manifest: Manifest, container: str | None) -> datetime | None:
    """Return since when the executor's container runs, which `Pod` does not have."""
    for status in items(manifest, "status", "containerStatuses"):
        if text(status, "name") == container:
            return time(status, "state", "running", "startedAt")
    return None
