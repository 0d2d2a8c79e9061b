"""The states a pod can be in, and `classify`: the only place where phases become a `PodState`. Pure."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from actors.pods.pod import EXECUTOR_ID_LABEL, Pod, TerminatedState, container_statuses, ends, executor_id

__all__ = [
    "PodDeleted",
    "PodFailed",
    "PodPending",
    "PodRules",
    "PodRunning",
    "PodState",
    "PodSucceeded",
    "PodTerminating",
    "PodUnknown",
    "classify",
    "executor_container",
    "executor_end",
    "malformed",
]


class PodState(msgspec.Struct, frozen=True, gc=False):
    """Where a pod stands. Sealed: its seven subclasses are all there are (Spark's six and `PodTerminating`)."""

    final: ClassVar[bool] = False
    """Nothing more will happen to it but its removal from the API."""
    pod: Pod


class PodPending(PodState, frozen=True):
    """Accepted by the API, its containers not started yet."""


class PodRunning(PodState, frozen=True):
    """Bound to a node, its containers started."""


class PodTerminating(PodState, frozen=True):
    """Alive, and about to go: its deletion has begun."""


class PodUnknown(PodState, frozen=True):
    """A phase that nobody knows, or `Unknown`: counted as alive, never reported removed."""


class PodSucceeded(PodState, frozen=True):
    """The executor ended with exit code 0."""

    final: ClassVar[bool] = True


class PodFailed(PodState, frozen=True):
    """The executor (or, with `check_all_containers`, a sidecar) ended with another exit code."""

    final: ClassVar[bool] = True


class PodDeleted(PodState, frozen=True):
    """Gone from the API; `pod` is what was last known of it."""

    final: ClassVar[bool] = True


class PodRules(msgspec.Struct, frozen=True):
    """The two settings that `classify` depends on."""

    executor_container: str = "executor"
    check_all_containers: bool = True


def malformed(pod: Pod) -> str | None:
    """Why this pod cannot be counted (words for a log line), or None if it can.

    A pod with neither status nor deletion timestamp, without an id label, or with an id that is no number. One without
    a UID cannot be told from a later one of its name.
    """
    if not pod.uid:
        return "it has no UID"
    if executor_id(pod) is None:
        return f"label {EXECUTOR_ID_LABEL} is {pod.labels.get(EXECUTOR_ID_LABEL)!r}, not a number from 1"
    if pod.status is None and pod.metadata.deletion_timestamp is None:
        return "it has neither a status nor a deletion timestamp"
    return None


def executor_container(pod: Pod, rules: PodRules) -> str | None:
    """The name of the executor's container: the one that `rules` names, else the first; None if none is listed."""
    containers = (pod.spec.containers if pod.spec else None) or ()
    names = [container.name for container in containers]
    return rules.executor_container if rules.executor_container in names else next(iter(names), None)


def executor_end(pod: Pod, rules: PodRules) -> TerminatedState | None:
    """How the executor's own container ended, None while it lives or if it is not known."""
    name = executor_container(pod, rules)
    return next(iter(ends(status for status in container_statuses(pod) if status.name == name)), None)


def classify(pod: Pod, rules: PodRules) -> PodState:
    """The state of a pod that a list or an ADDED or MODIFIED event shows. The first rule that fits decides.

    1. The phase is final, or the executor's container of several ended: succeeded or failed, also while terminating.
    2. A deletion timestamp without any status: deleted. 3. A deletion timestamp: terminating. 4. By phase, compared
    without case. 5. Anything else: unknown.
    """
    status = pod.status
    if status is None:
        return PodDeleted(pod) if pod.terminating else PodUnknown(pod)
    phase = (status.phase or "").lower()
    if phase == "succeeded":
        return PodSucceeded(pod)
    if phase == "failed":
        return PodFailed(pod)
    ended = _ended_containers(pod, rules) if status.container_statuses and len(status.container_statuses) > 1 else None
    if ended is not None:
        return PodFailed(pod) if ended != 0 else PodSucceeded(pod)
    if pod.terminating:
        return PodTerminating(pod)
    if phase == "pending":
        return PodPending(pod)
    if phase == "running":
        return PodRunning(pod)
    return PodUnknown(pod)


def _ended_containers(pod: Pod, rules: PodRules) -> int | None:
    """Exit code that ends a pod of several containers before its phase says so, or None while it lives.

    A failed sidecar comes first: the executor's end after it does not turn a failed pod into one that succeeded.
    """
    end = executor_end(pod, rules)
    own = end.exit_code if end is not None else None
    if rules.check_all_containers:
        return next((end.exit_code for end in ends(container_statuses(pod)) if end.exit_code != 0), own)
    return own
