"""Pod states, and `classify`: the only place where a phase becomes a `PodState`. Pure; it never raises."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from actors.pods.pod import (
    EXECUTOR_ID_LABEL,
    Pod,
    PodStatus,
    TerminatedState,
    claims_of,
    container_statuses,
    ends,
    executor_id,
    is_selected,
)
from actors.pods.stuck import crashes_in_place

__all__ = [
    "STRANGE",
    "PodDeleted",
    "PodFailed",
    "PodPending",
    "PodRules",
    "PodRunning",
    "PodState",
    "PodSucceeded",
    "PodTerminating",
    "PodUnknown",
    "begins",
    "classify",
    "executor_container",
    "executor_end",
    "is_urgent",
    "malformed",
    "runs_on",
    "surely_runs_on",
]


_RESTARTING: Final = frozenset({"Always", "OnFailure"})
"""Restart policies of a container that outlives its own end."""

_FINAL_PHASES: Final = frozenset({"succeeded", "failed"})

STRANGE: Final = "it is not of this fleet, and the API server ignores our label selector"
"""Why a pod is set aside that our selector does not match."""


class PodState(msgspec.Struct, frozen=True, gc=False):
    """The state of a pod. Sealed: there are seven subclasses, Spark's six and `PodTerminating`."""

    final: ClassVar[bool] = False
    """Nothing will change any more, except that the pod is removed from the API."""
    pod: Pod


class PodPending(PodState, frozen=True):
    """Accepted by the API; its containers have not started."""


class PodRunning(PodState, frozen=True):
    """Bound to a node; its containers have started."""


class PodTerminating(PodState, frozen=True):
    """Alive, but its deletion has begun."""


class PodUnknown(PodState, frozen=True):
    """`Unknown` or an unknown phase. Counted as alive, never reported as removed."""


class PodSucceeded(PodState, frozen=True):
    """The executor ended with exit code 0."""

    final: ClassVar[bool] = True
    ended_first: bool = False
    """It was observed before a deletion of the pod began, which the timestamps, of whole seconds, may not tell."""
    last_alive: Pod | None = None
    """Its last observation in which it had not ended, None if there was none. The final status may say less: the
    kubelet overwrites what a container waited for, and a rejected pod has no containers any more."""


class PodFailed(PodState, frozen=True):
    """The executor (or, with `check_all_containers`, a sidecar) ended with another exit code."""

    final: ClassVar[bool] = True
    ended_first: bool = False
    """As of `PodSucceeded`."""
    last_alive: Pod | None = None
    """As of `PodSucceeded`."""


class PodDeleted(PodState, frozen=True):
    """Gone from the API. `pod` is the last observed one."""

    final: ClassVar[bool] = True


class PodRules(msgspec.Struct, frozen=True):
    """The settings that decide whether a pod is an executor's, and its state."""

    executor_container: str = "executor"
    check_all_containers: bool = True
    app_id: str | None = None
    """Whose pods they are. None: the API server's selection is trusted."""


def malformed(pod: Pod, app_id: str | None = None) -> str | None:
    """Return why this pod is set aside, for a log line; None if it is not.

    Malformed is a pod with neither status nor deletion timestamp, without a valid executor id in its label and name, or
    without a UID, which could not be distinguished from a later pod of its name. With `app_id`, so is a pod that our
    selector does not match.
    """
    if app_id is not None and not is_selected(pod.labels, app_id):
        return STRANGE
    if not pod.uid:
        return "it has no UID"
    if executor_id(pod) is None:
        found = pod.labels.get(EXECUTOR_ID_LABEL)
        return f"label {EXECUTOR_ID_LABEL} is {found!r}, not the number from 1 that its name ends with"
    if pod.status is None and pod.metadata.deletion_timestamp is None:
        return "it has neither a status nor a deletion timestamp"
    return None


def executor_container(pod: Pod, rules: PodRules) -> str | None:
    """Return the name of the executor's container, None if the pod has none.

    It is the container that the fleet made, wherever a webhook puts others. In a pod that does not say which that is,
    it is the one in `rules`, else the first.
    """
    containers = (pod.spec.containers if pod.spec else None) or ()
    names = [container.name for container in containers]
    known = [name for name in (pod.made_container, rules.executor_container) if name in names]
    return next(iter((*known, *names)), None)


def executor_end(pod: Pod, rules: PodRules) -> TerminatedState | None:
    """Return how the executor's container ended, None if it has not or is unknown."""
    name = executor_container(pod, rules)
    return next(iter(ends(status for status in container_statuses(pod) if status.name == name)), None)


def classify(pod: Pod, rules: PodRules) -> PodState:
    """Return the state of a pod from a LIST or from an ADDED or MODIFIED event. The first matching rule decides.

    1. A final phase, or one of several containers that ends the pod: succeeded or failed, also while terminating.
    2. A deletion timestamp without a status: deleted. 3. A deletion timestamp: terminating. 4. The phase, without
    regard to case. 5. Anything else: unknown.
    """
    status = pod.status
    if status is None:
        return PodDeleted(pod) if pod.terminating else PodUnknown(pod)
    phase = (status.phase or "").lower()
    if phase == "succeeded":
        return PodSucceeded(pod)
    if phase == "failed":
        return PodFailed(pod)
    ended = _ended_containers(pod, rules) if _has_neighbours(status) else None
    if ended is not None:
        return PodFailed(pod) if ended != 0 else PodSucceeded(pod)
    if pod.terminating:
        return PodTerminating(pod)
    if phase == "pending":
        return PodPending(pod)
    if phase == "running":
        return PodRunning(pod)
    return PodUnknown(pod)


def runs_on(before: PodState | None, state: PodState) -> bool:
    """Whether a running pod still runs and its metadata and spec are the same: a container was restarted.

    Nobody decides anything by the status of a pod while it runs, except that it is stuck in a crash loop. Whoever shows
    it reads it in the newest snapshot.
    """
    if not isinstance(before, PodRunning) or not isinstance(state, PodRunning):
        return False
    last, pod = before.pod, state.pod
    old, new = last.metadata, pod.metadata
    return (
        (new.labels is old.labels or new.labels == old.labels)
        and new.owner_references == old.owner_references
        and new.finalizers == old.finalizers
        and (pod.spec is last.spec or pod.spec == last.spec)
        and (not crashes_in_place(pod) or crashes_in_place(last))
    )


def surely_runs_on(before: PodState, pod: Pod) -> bool:
    """Whether `classify` and `runs_on` would say that a pod runs on, if it has the very parts of its last observation.

    Nearly every change is such a one, of a pod with one container, and to ask for no more takes half as long.
    """
    last, status = before.pod, pod.status
    return (
        type(before) is PodRunning
        and status is not None
        and status.phase == "Running"
        and pod.metadata is last.metadata
        and pod.spec is last.spec
        and not status.init_container_statuses
        and (
            not (statuses := status.container_statuses)
            or (len(statuses) == 1 and ((state := statuses[0].state) is None or state.waiting is None))
        )
    )


def is_urgent(before: Pod | None, pod: Pod, *, deleted: bool) -> bool:
    """Whether a pod, last observed as `before`, ends or begins to: a report or a replacement may be due.

    The decoder asks this to deliver such an event at once, and the store to start a round. Each container that ends
    beside others is urgent: the phase does not say so while another one runs. Once the phase is final, only the DELETED
    event of a pod that leaves a claim is urgent.
    """
    last, status = None if before is None else before.status, pod.status
    if before is not None and _has_final_phase(last):
        return deleted and any(claims_of(before))
    return (
        deleted
        or pod.terminating
        or _has_final_phase(status)
        or (status is not last and not _ended_beside(status) <= _ended_beside(last))
    )


def begins(before: PodState | None, state: PodState) -> bool:
    """Whether a pod begins to run: it was pending, or not observed before."""
    return isinstance(state, PodRunning) and (before is None or isinstance(before, PodPending))


def _has_final_phase(status: PodStatus | None) -> bool:
    return status is not None and (status.phase or "").lower() in _FINAL_PHASES


def _ended_beside(status: PodStatus | None) -> frozenset[str]:
    """Return the containers that ended, if the pod has several."""
    if status is None or not _has_neighbours(status):
        return frozenset()
    return frozenset(each.name for each in status.container_statuses or () if ends((each,)))


def _has_neighbours(status: PodStatus) -> bool:
    """Whether other containers may run on after the executor's: further ones, or sidecars among the init containers."""
    statuses = status.container_statuses
    return statuses is not None and (len(statuses) > 1 or (len(statuses) == 1 and bool(status.init_container_statuses)))


def _ended_containers(pod: Pod, rules: PodRules) -> int | None:
    """Return the exit code that ends a pod of several containers before its phase changes, None while it is alive.

    A failed sidecar decides first: an executor that ends after it does not make the pod a success. A container that the
    kubelet restarts does not end the pod, nor does a sidecar among the init containers.
    """
    own = executor_end(pod, rules)
    decisive = [own] if own is not None and not _may_restart(pod, executor_container(pod, rules)) else []
    if rules.check_all_containers:
        failed = (
            end
            for status in container_statuses(pod)
            for end in ends((status,))
            if end.exit_code != 0 and not _may_restart(pod, status.name)
        )
        decisive = [*failed, *decisive]
    return decisive[0].exit_code if decisive else None


def _may_restart(pod: Pod, name: str | None) -> bool:
    """Whether the kubelet may restart this container in its pod, by a policy of the container's own (KEP-5307)."""
    return any(
        container.name == name and (container.restart_policy in _RESTARTING or bool(container.restart_policy_rules))
        for container in (pod.spec.containers if pod.spec else None) or ()
    )
