"""Loss reasons: why an executor is gone, as a kind, an exit code and a message for people. Pure.

A reason follows from the pod alone and from what we did to it. Nothing here guesses from timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from actors.pods.pod import Condition, ContainerStatus, Pod, TerminatedState, container_statuses, ends
from actors.pods.state import PodDeleted, PodFailed, PodRules, PodState, PodSucceeded, executor_end
from actors.pods.stuck import never_heals
from actors.text import LONGEST_LINE, LONGEST_TEXT, JsonReady, one_line, rfc3339

__all__ = [
    "ENDED_BY_DRIVER",
    "LossKind",
    "LossReason",
    "RequestedEnd",
    "disconnected",
    "explain",
    "missing",
    "never_started",
    "stopped_with_fleet",
]


class LossKind(StrEnum):
    """What became of an executor. Metrics, JSON and the command spell it like this, too."""

    EXITED = "EXITED"
    """It ended by itself and failed: with an exit code other than 0, or with 0 while another container failed."""
    FINISHED = "FINISHED"
    """It ended by itself with exit code 0, and nobody had requested that."""
    OOM_KILLED = "OOM_KILLED"
    """The kernel killed it for using more memory than its limit."""
    EVICTED = "EVICTED"
    """Its node or an eviction ended it: pressure, drain, taint."""
    PREEMPTED = "PREEMPTED"
    """The scheduler, or a queue such as Kueue, made room for others."""
    NODE_LOST = "NODE_LOST"
    """Its node is gone or no longer responds."""
    DELETED = "DELETED"
    """Somebody else deleted its pod."""
    KILLED_BY_DRIVER = "KILLED_BY_DRIVER"
    """The driver requested its end."""
    NEVER_STARTED = "NEVER_STARTED"
    """It was requested and never ran."""
    MISSING = "MISSING"
    """The cluster has no pod of it and reported no end."""
    DISCONNECTED = "DISCONNECTED"
    """It was disconnected from the driver for too long while its pod was alive."""
    RELEASED = "RELEASED"
    """Somebody changed its labels: the pod is alive, but no longer part of the fleet."""


CAUSED_BY_APP: Final = frozenset({LossKind.EXITED, LossKind.OOM_KILLED})
"""The kinds that the application caused. Only these should count against retries of its work."""

NO_EXIT_CODE: Final = -1

EXIT_CODES: Final = {
    126: "the command cannot be executed",
    127: "the command was not found",
    128: "the container could not be started",
    137: "SIGKILL: out of memory, killed by hand, or still running after the grace period",
    139: "SIGSEGV: it crashed",
    143: "SIGTERM: it was told to end",
    255: "an exit code out of range, or a failure to start",
}
"""Exit codes of POSIX shells and container runtimes: 128 + signal; 126 and 127 come from the shell."""

DISRUPTIONS: Final = {
    "PreemptionByScheduler": LossKind.PREEMPTED,
    "DeletionByPodGC": LossKind.NODE_LOST,
    "DeletionByTaintManager": LossKind.EVICTED,
    "DeletionByDeviceTaintManager": LossKind.EVICTED,
    "EvictionByEvictionAPI": LossKind.EVICTED,
    "TerminationByKubelet": LossKind.EVICTED,
}
"""Reasons of the `DisruptionTarget` condition (KEP-3329; device taints: KEP-5055).

Drains by kubectl, Karpenter and the descheduler use the eviction API, so they have its reason. Another controller's
reason is a preemption if it names one, else an eviction.
"""

DISRUPTION_CONDITIONS: Final = frozenset({"DisruptionTarget", "TerminationTarget"})
"""Conditions that a controller sets before it ends a pod: Kubernetes' own, and Kueue's.

Kueue's reasons (`pkg/controller/jobs/pod/pod_controller.go`, `pkg/controller/jobframework`): `WorkloadEvictedDueTo` and
the cause, such as `Preempted`, `PodsReadyTimeout`, `AdmissionCheck`, `ClusterQueueStopped`, `NodeFailures`; and
`WorkloadDeleted`, `NoMatchingWorkload`, `NotAdmitted`. Before version 0.7: `StoppedByKueue`.
"""

DISRUPTED: Final = frozenset({LossKind.EVICTED, LossKind.PREEMPTED, LossKind.NODE_LOST})
"""The kinds whose message has the words of the disruption's condition."""

POD_REASONS: Final = {
    "Evicted": LossKind.EVICTED,
    "Preempting": LossKind.PREEMPTED,
    "Preempted": LossKind.PREEMPTED,
    "NodeLost": LossKind.NODE_LOST,
    "NodeShutdown": LossKind.EVICTED,
    "Shutdown": LossKind.EVICTED,
    "Terminated": LossKind.EVICTED,
}
"""Values of `status.reason` by kubelets and controllers. The last three mean a graceful shutdown of the node."""

ENDED_BY_DRIVER: Final = "was ended by the driver"
SCALED_DOWN: Final = "was scaled down to a lower target"
"""The loss messages of an executor that was killed, and of one in excess, after its name."""

_LONGEST_REASON: Final = 200
"""Characters of an API's reason that a loss message keeps."""


@dataclass(frozen=True, slots=True)
class LossReason(JsonReady):
    """Why an executor is gone."""

    kind: LossKind
    exit_code: int
    """The executor container's, else the first ended container's, else -1."""
    caused_by_app: bool
    """Whether the application caused it; false for everything that the cluster or the driver did."""
    message: str
    """For people: the executor, its exit code, the pod's reason and message, the state of every container.

    It is one line: what strangers wrote in it has its control characters escaped, and long texts are shortened.
    """


@dataclass(frozen=True, slots=True)
class RequestedEnd:
    """An end that the driver or the Allocator requested."""

    text: str
    """The loss message, after the executor's name."""
    at: datetime | None = None
    """When the executor was told to end by itself; None if its pod was deleted, as then the pod has the time."""
    however: bool = False
    """Whatever ends it after that, the driver requested it: the executor was retired, and nothing is lost with it."""

    @property
    def since(self) -> datetime | None:
        """`at` in whole seconds, as the API's timestamps have them."""
        return None if self.at is None else self.at.replace(microsecond=0)


def explain(
    executor_id: int,
    state: PodState,
    rules: PodRules,
    *,
    requested: RequestedEnd | None = None,
    finished: str | None = None,
    released: bool = False,
    node_lost: bool = False,
) -> LossReason:
    """Return why an executor ended.

    Args:
        executor_id: of the executor.
        state: the last state of its pod.
        rules: how pods are classified.
        requested: set if its end was requested.
        finished: the loss message after the executor's name, if it was decommissioned and ends with exit code 0.
        released: its pod left our selector and still exists.
        node_lost: it has been terminating for so long that its node must be lost.
    """
    pod = state.pod
    end = _end(pod, rules)
    code = 0 if end is None and isinstance(state, PodSucceeded) else _exit_code(end)
    # the end of a sidecar does not end a live executor
    decisive = executor_end(pod, rules) if isinstance(state, PodDeleted) else end
    kind = _kind(state, decisive, requested=requested, released=released, node_lost=node_lost)
    headline = requested.text if kind is LossKind.KILLED_BY_DRIVER and requested is not None else _HEADLINES[kind]
    if finished is not None and kind in (LossKind.EXITED, LossKind.FINISHED) and code == 0:
        kind, headline = LossKind.KILLED_BY_DRIVER, finished
    subject = f"executor {executor_id} (pod {pod.name}) {headline}"
    return _reason(kind, _message(subject, pod, kind, code, end), code)


def disconnected(executor_id: int, pod: Pod, rules: PodRules) -> LossReason:
    """Return the reason of an executor that was disconnected for too long while its pod is alive."""
    message = (
        f"executor {executor_id} (pod {pod.name}) was disconnected from the driver for too long: "
        f"its pod is alive and is deleted{_containers(pod)}"
    )
    return _reason(LossKind.DISCONNECTED, message, _exit_code(_end(pod, rules)))


def missing(
    executor_id: int,
    pod: Pod | None,
    rules: PodRules,
    requested: RequestedEnd | None = None,
    *,
    absent: timedelta,
    registered: timedelta | None,
) -> LossReason:
    """Return the reason of an executor that has no pod although no end was observed.

    `pod` is the last observed pod, if there was one. If its end was `requested`, it is assumed to have happened.
    `absent` is for how long no list has had its pod, `registered` how long ago it registered, None if it never did.
    """
    headline = "is missing" if requested is None else requested.text
    known = "never registered" if registered is None else f"registered {registered.total_seconds():.0f} s ago"
    message = (
        f"executor {executor_id} {headline}: the cluster has had no pod of it for {absent.total_seconds():.0f} s "
        f"and reported no end; it {known}"
    )
    kind = LossKind.MISSING if requested is None else LossKind.KILLED_BY_DRIVER
    if pod is None:
        return _reason(kind, message)
    return _reason(kind, f"{message}; its pod was {pod.name}{_containers(pod)}", _exit_code(_end(pod, rules)))


def never_started(executor_id: int, why: str) -> LossReason:
    """Return the reason of an executor that was requested and never ran."""
    return _reason(LossKind.NEVER_STARTED, f"executor {executor_id} never started: {why}")


def stopped_with_fleet(
    executor_id: int, requested: str | None = None, *, ends_by: datetime | None = None
) -> LossReason:
    """Return the reason of an executor that was stopped with the fleet.

    Args:
        executor_id: of the executor.
        requested: the loss message after its name, if its end was requested before.
        ends_by: until when its pod ends by itself, if it has not ended yet.
    """
    message = f"executor {executor_id} {requested or 'was stopped with the fleet'}"
    if ends_by is not None:
        message += f": its pod terminates, and ends by {rfc3339(ends_by)}"
    return _reason(LossKind.KILLED_BY_DRIVER, message)


def _reason(kind: LossKind, message: str, exit_code: int = NO_EXIT_CODE) -> LossReason:
    return LossReason(kind, exit_code, kind in CAUSED_BY_APP, one_line(message, LONGEST_LINE))


# ── the kind ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _kind(
    state: PodState, end: TerminatedState | None, *, requested: RequestedEnd | None, released: bool, node_lost: bool
) -> LossKind:
    """Decide who ended it. A pod that ended after its deletion or disruption began did not end by itself."""
    if released:
        return LossKind.RELEASED
    if requested is not None and requested.however and not _ended_before(end, requested.since):
        return LossKind.KILLED_BY_DRIVER
    pod = state.pod
    disruption = _disrupted(pod, end)
    deleted = node_lost or _was_deleted(state, end)
    if deleted and requested is not None:
        return LossKind.KILLED_BY_DRIVER
    if disruption is not None:
        return disruption
    if node_lost:
        return LossKind.NODE_LOST
    if deleted:
        return LossKind.NEVER_STARTED if never_heals(pod) else LossKind.DELETED
    told_at = requested.since if requested is not None else None
    if told_at is not None and not _ended_before(end, told_at):
        return LossKind.KILLED_BY_DRIVER
    ended = ends((*container_statuses(pod), *_init_statuses(pod)))
    culprit = end if end is not None and end.exit_code != 0 else next((e for e in ended if e.exit_code != 0), end)
    if culprit is not None and culprit.reason == "OOMKilled":  # with exit code 137, 143 or even 0
        return LossKind.OOM_KILLED
    if not ended and isinstance(state, PodFailed):  # its node refused it: no container ever ran
        return LossKind.NEVER_STARTED
    succeeded = isinstance(state, PodSucceeded) or (
        isinstance(state, PodDeleted) and culprit is not None and culprit.exit_code == 0
    )
    return LossKind.FINISHED if succeeded else LossKind.EXITED


def _disrupted(pod: Pod, end: TerminatedState | None) -> LossKind | None:
    """Return how the cluster disrupted the pod, None if it did not, or if the container had ended before."""
    condition = _disruption(pod)
    if condition is None:
        return POD_REASONS.get((pod.status.reason if pod.status else None) or "")
    if _ended_before(end, condition.last_transition_time):
        return None
    reason = condition.reason or ""
    return DISRUPTIONS.get(reason, LossKind.PREEMPTED if "preempt" in reason.lower() else LossKind.EVICTED)


def _disruption(pod: Pod) -> Condition | None:
    """Return the condition by which a controller said that it ends the pod."""
    conditions = (pod.status.conditions if pod.status else None) or ()
    return next((each for each in conditions if each.type in DISRUPTION_CONDITIONS and each.status == "True"), None)


def _was_deleted(state: PodState, end: TerminatedState | None) -> bool:
    """Return whether the pod's deletion ended it: it had not ended before."""
    if isinstance(state, PodSucceeded | PodFailed) and state.ended_first:
        return False
    deadline = state.pod.metadata.deletion_timestamp
    if deadline is None:
        return isinstance(state, PodDeleted) and end is None
    try:
        began = deadline - timedelta(seconds=state.pod.metadata.deletion_grace_period_seconds or 0)
    except OverflowError:
        began = deadline  # no server sends such numbers
    return not _ended_before(end, began)


def _ended_before(end: TerminatedState | None, moment: datetime | None) -> bool:
    """Return whether a container ended before a moment. The API's timestamps have whole seconds."""
    finished = end.finished_at if end is not None else None
    return finished is not None and moment is not None and finished < moment


# ── containers ───────────────────────────────────────────────────────────────────────────────────────────────────


def _init_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (pod.status.init_container_statuses if pod.status else None) or ()


def _end(pod: Pod, rules: PodRules) -> TerminatedState | None:
    """Return how the executor's container ended, else the first ended container, else the first failed init one."""
    failed = (end for end in ends(_init_statuses(pod)) if end.exit_code != 0)
    return executor_end(pod, rules) or next(iter((*ends(container_statuses(pod)), *failed)), None)


def _exit_code(end: TerminatedState | None) -> int:
    return end.exit_code if end is not None else NO_EXIT_CODE


# ── the message ────────────────────────────────────────────────────────────────────────────────────────────────────

_HEADLINES: Final = {
    LossKind.EXITED: "exited",
    LossKind.FINISHED: "finished by itself",
    LossKind.OOM_KILLED: "was killed for using more memory than its limit",
    LossKind.EVICTED: "was evicted",
    LossKind.PREEMPTED: "was preempted",
    LossKind.NODE_LOST: "was lost with its node",
    LossKind.DELETED: "was deleted by somebody else",
    LossKind.KILLED_BY_DRIVER: ENDED_BY_DRIVER,
    LossKind.NEVER_STARTED: "never started",
    LossKind.RELEASED: "was released: its labels were changed, and its pod is still alive",
}


def _message(subject: str, pod: Pod, kind: LossKind, code: int, end: TerminatedState | None) -> str:
    parts = [subject]
    if code != NO_EXIT_CODE:
        meaning = f" ({EXIT_CODES[code]})" if code in EXIT_CODES and kind is not LossKind.OOM_KILLED else ""
        parts.append(f" with exit code {code}{meaning}")
    status = pod.status
    if status is not None and (status.reason or status.message):
        parts.append(f"; pod status: {_why(status.reason, status.message)}")
    if kind in DISRUPTED and (condition := _disruption(pod)) is not None:
        parts.append(f"; {condition.type}: {_why(condition.reason, condition.message)}")
    parts.append(_containers(pod))
    if end is not None and end.message:
        parts.append("; termination message: " + _last_words(end.message))
    return "".join(parts)


def _containers(pod: Pod) -> str:
    states = [
        f"{status.name} {_container_state(status)}" for status in (*_init_statuses(pod), *container_statuses(pod))
    ]
    return f"; containers: {one_line(', '.join(states))}" if states else ""


def _container_state(status: ContainerStatus) -> str:
    state = status.state
    if state is not None and state.terminated is not None:
        reason = f" ({_why(state.terminated.reason, None)})" if state.terminated.reason else ""
        return f"ended with {state.terminated.exit_code}{reason}"
    if state is not None and state.waiting is not None:
        why = _why(state.waiting.reason, state.waiting.message)
        return f"waiting ({why})" if why else "waiting"
    return "running" if state is not None and state.running is not None else "in an unknown state"


def _why(reason: str | None, message: str | None) -> str:
    """Join a reason, which is one word, and a message."""
    limits = ((reason, _LONGEST_REASON), (message, LONGEST_TEXT))
    return ": ".join(one_line(text, limit) for text, limit in limits if text)


def _last_words(message: str) -> str:
    """Return the end of a termination message, which says more than its beginning."""
    return one_line(message.strip()[-LONGEST_TEXT:], LONGEST_LINE)[-LONGEST_TEXT:]
