"""Why an executor is gone: what its pod's last word means, as a kind, an exit code and words for a person.

Pure. A reason is worked out from the pod alone and from what we did to it; nothing here guesses from timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from actors.pods.pod import ContainerStatus, Pod, TerminatedState, container_statuses, ends
from actors.pods.state import PodDeleted, PodFailed, PodRules, PodState, PodSucceeded, executor_end
from actors.pods.stuck import never_heals

__all__ = [
    "Asked",
    "LossKind",
    "LossReason",
    "disconnected",
    "explain",
    "missing",
    "never_started",
    "stopped_with_fleet",
]


class LossKind(Enum):
    """What became of an executor."""

    EXITED = "exited"
    """It ended by itself, with whatever exit code."""
    OOM_KILLED = "oom killed"
    """The kernel ended it for using more memory than its limit."""
    EVICTED = "evicted"
    """The node or an eviction took it away: pressure, drain, taint."""
    PREEMPTED = "preempted"
    """The scheduler made room for a pod of higher priority."""
    NODE_LOST = "node lost"
    """Its node is gone or has not been heard of."""
    DELETED = "deleted"
    """Somebody else deleted its pod."""
    KILLED_BY_DRIVER = "killed by driver"
    """The driver asked for its end."""
    NEVER_STARTED = "never started"
    """It was requested and never came up."""
    MISSING = "missing"
    """The cluster shows no trace of it."""
    DISCONNECTED = "disconnected"
    """Its connection to the driver was gone for too long while its pod lived on."""
    RELEASED = "released"
    """Somebody took its labels away: the pod lives, but is the fleet's no more."""


CAUSED_BY_APP: Final = frozenset({LossKind.EXITED, LossKind.OOM_KILLED})
"""The kinds that are the application's doing; retries of its work count against it only for these."""

NO_EXIT_CODE: Final = -1

EXIT_CODES: Final = {
    126: "the command cannot be executed",
    127: "the command was not found",
    128: "the container could not be started",
    137: "SIGKILL: out of memory, killed by hand, or the end of the grace period",
    139: "SIGSEGV: it crashed",
    143: "SIGTERM: it was asked to end",
    255: "an exit code out of range, or a failure to start",
}
"""POSIX shells and the container runtimes: 128 + signal; 126 and 127 are the shell's."""

DISRUPTIONS: Final = {
    "PreemptionByScheduler": LossKind.PREEMPTED,
    "DeletionByPodGC": LossKind.NODE_LOST,
    "DeletionByTaintManager": LossKind.EVICTED,
    "EvictionByEvictionAPI": LossKind.EVICTED,
    "TerminationByKubelet": LossKind.EVICTED,
}
"""Reasons of the `DisruptionTarget` condition (KEP-3329)."""

POD_REASONS: Final = {
    "Evicted": LossKind.EVICTED,
    "Preempting": LossKind.PREEMPTED,
    "Preempted": LossKind.PREEMPTED,
    "NodeLost": LossKind.NODE_LOST,
    "NodeShutdown": LossKind.EVICTED,
    "Shutdown": LossKind.EVICTED,
    "Terminated": LossKind.EVICTED,
}
"""What kubelets and controllers write to `status.reason`; the last three at a node's graceful shutdown."""

MESSAGE_LIMIT: Final = 2_000
"""Characters of a termination message in the words for a person; the API itself allows 4,096 bytes."""


@dataclass(frozen=True, slots=True)
class LossReason:
    """Why an executor is gone."""

    kind: LossKind
    exit_code: int
    """The executor container's, else the first ended container's, else -1."""
    caused_by_app: bool
    """The application's own doing; false for everything that the cluster or the driver did to it."""
    message: str
    """Words for a person: the executor, its exit code, the pod's reason and message, every container's state."""


@dataclass(frozen=True, slots=True)
class Asked:
    """We had asked for an executor's end."""

    words: str
    """What is said of that, after the executor's name."""
    at: datetime | None = None
    """When it was asked to end by itself; None if its pod was deleted, which the pod says itself."""


def explain(
    executor_id: int,
    state: PodState,
    rules: PodRules,
    *,
    asked: Asked | None = None,
    finished: str | None = None,
    released: bool = False,
    node_lost: bool = False,
) -> LossReason:
    """Why this executor ended, from the last word on its pod and from what is known besides.

    `asked`: we had asked for its end. `finished`: it had been let end by itself, in words that follow its name.
    `released`: its pod left our selector and lives. `node_lost`: it has been terminating for so long that nobody can
    have heard of its node.
    """
    pod = state.pod
    end = _end(pod, rules)
    code = 0 if end is None and isinstance(state, PodSucceeded) else _exit_code(end)
    # a pod that lived did not end with its sidecar
    decisive = executor_end(pod, rules) if isinstance(state, PodDeleted) else end
    kind = _kind(state, decisive, asked=asked, released=released, node_lost=node_lost)
    headline = asked.words if kind is LossKind.KILLED_BY_DRIVER and asked is not None else _HEADLINES[kind]
    if finished is not None and kind is LossKind.EXITED and code == 0:
        kind, headline = LossKind.KILLED_BY_DRIVER, finished
    subject = f"executor {executor_id} (pod {pod.name}) {headline}"
    return _reason(kind, _words(subject, pod, kind, code, end), code)


def disconnected(executor_id: int, pod: Pod, rules: PodRules) -> LossReason:
    """Its connection to the driver has been gone for too long, while its pod lives."""
    words = (
        f"executor {executor_id} (pod {pod.name}) was without a connection to the driver for too long, "
        f"while its pod lives: it is deleted{_containers(pod)}"
    )
    return _reason(LossKind.DISCONNECTED, words, _exit_code(_end(pod, rules)))


def missing(executor_id: int, pod: Pod | None, rules: PodRules, asked: Asked | None = None) -> LossReason:
    """The cluster shows no trace of it, and told nobody of its end: with what was last known of it, if anything was.

    If we had `asked` for its end, that is what became of it.
    """
    headline = "is missing" if asked is None else asked.words
    words = f"executor {executor_id} {headline}: the cluster shows no pod of it and said nothing of its end"
    kind = LossKind.MISSING if asked is None else LossKind.KILLED_BY_DRIVER
    if pod is None:
        return _reason(kind, words)
    return _reason(kind, f"{words}; its pod was {pod.name}{_containers(pod)}", _exit_code(_end(pod, rules)))


def never_started(executor_id: int, why: str) -> LossReason:
    """It was requested and never came up."""
    return _reason(LossKind.NEVER_STARTED, f"executor {executor_id} never started: {why}")


def stopped_with_fleet(executor_id: int, asked: str | None = None) -> LossReason:
    """It went when the fleet was stopped; or its end had been `asked` for before, in words that follow its name."""
    return _reason(LossKind.KILLED_BY_DRIVER, f"executor {executor_id} {asked or 'was stopped with the fleet'}")


def _reason(kind: LossKind, message: str, exit_code: int = NO_EXIT_CODE) -> LossReason:
    return LossReason(kind, exit_code, kind in CAUSED_BY_APP, message)


# ── the kind ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _kind(
    state: PodState, end: TerminatedState | None, *, asked: Asked | None, released: bool, node_lost: bool
) -> LossKind:
    """Who ended it. What ended after its deletion began, or was disrupted, did not end by itself."""
    if released:
        return LossKind.RELEASED
    pod = state.pod
    disruption = _disruption(pod, end)
    deleted = node_lost or _was_deleted(state, end)
    if deleted and asked is not None:
        return LossKind.KILLED_BY_DRIVER
    if disruption is not None:
        return disruption
    if node_lost:
        return LossKind.NODE_LOST
    if deleted:
        return LossKind.NEVER_STARTED if never_heals(pod) else LossKind.DELETED
    if asked is not None and asked.at is not None and not _ended_before(end, asked.at.replace(microsecond=0)):
        return LossKind.KILLED_BY_DRIVER
    ended = ends((*container_statuses(pod), *_init_statuses(pod)))
    culprit = end if end is not None and end.exit_code != 0 else next((e for e in ended if e.exit_code != 0), end)
    if culprit is not None and culprit.reason == "OOMKilled":  # the exit code may be 0 or 143 as well as 137
        return LossKind.OOM_KILLED
    if not ended and isinstance(state, PodFailed):  # refused by its node: no container of it ever ran
        return LossKind.NEVER_STARTED
    return LossKind.EXITED


def _disruption(pod: Pod, end: TerminatedState | None) -> LossKind | None:
    """The cluster took it away, and says how; not if its container had ended before that."""
    status = pod.status
    if status is None:
        return None
    for condition in status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            ended_before = _ended_before(end, condition.last_transition_time)
            return None if ended_before else DISRUPTIONS.get(condition.reason or "", LossKind.EVICTED)
    return POD_REASONS.get(status.reason or "")


def _was_deleted(state: PodState, end: TerminatedState | None) -> bool:
    """Whether its deletion is what ended it, and not that it had ended before."""
    deadline = state.pod.metadata.deletion_timestamp
    if deadline is None:
        return isinstance(state, PodDeleted) and end is None
    try:
        began = deadline - timedelta(seconds=state.pod.metadata.deletion_grace_period_seconds or 0)
    except OverflowError:
        began = deadline  # no server sends such numbers
    return not _ended_before(end, began)


def _ended_before(end: TerminatedState | None, moment: datetime | None) -> bool:
    """Whether a container had ended before a moment. The API's timestamps have whole seconds.

    Timestamps with and without a time zone cannot be compared: then it was not before.
    """
    finished = end.finished_at if end is not None else None
    if finished is None or moment is None or (finished.tzinfo is None) != (moment.tzinfo is None):
        return False
    return finished < moment


# ── containers ───────────────────────────────────────────────────────────────────────────────────────────────────


def _init_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (pod.status.init_container_statuses if pod.status else None) or ()


def _end(pod: Pod, rules: PodRules) -> TerminatedState | None:
    """How the executor's container ended, else the first ended one.

    Init containers come last, and only if they failed: they end before the rest.
    """
    failed = (end for end in ends(_init_statuses(pod)) if end.exit_code != 0)
    return executor_end(pod, rules) or next(iter((*ends(container_statuses(pod)), *failed)), None)


def _exit_code(end: TerminatedState | None) -> int:
    return end.exit_code if end is not None else NO_EXIT_CODE


# ── the words ────────────────────────────────────────────────────────────────────────────────────────────────────

_HEADLINES: Final = {
    LossKind.EXITED: "exited",
    LossKind.OOM_KILLED: "was killed for using more memory than its limit",
    LossKind.EVICTED: "was evicted",
    LossKind.PREEMPTED: "was preempted by a pod of higher priority",
    LossKind.NODE_LOST: "was lost with its node",
    LossKind.DELETED: "was deleted by somebody else",
    LossKind.KILLED_BY_DRIVER: "was ended by the driver",
    LossKind.NEVER_STARTED: "never started",
    LossKind.RELEASED: "is the fleet's no more: its labels were changed, its pod lives on",
}


def _words(subject: str, pod: Pod, kind: LossKind, code: int, end: TerminatedState | None) -> str:
    parts = [subject]
    if code != NO_EXIT_CODE:
        meaning = f" ({EXIT_CODES[code]})" if code in EXIT_CODES and kind is not LossKind.OOM_KILLED else ""
        parts.append(f" with exit code {code}{meaning}")
    status = pod.status
    if status is not None and (status.reason or status.message):
        parts.append("; the pod says: " + ": ".join(filter(None, (status.reason, status.message))))
    parts.append(_containers(pod))
    if end is not None and end.message:
        parts.append("; last words: " + end.message.strip()[-MESSAGE_LIMIT:])
    return "".join(parts)


def _containers(pod: Pod) -> str:
    states = [
        f"{status.name} {_container_state(status)}" for status in (*_init_statuses(pod), *container_statuses(pod))
    ]
    return f"; containers: {', '.join(states)}" if states else ""


def _container_state(status: ContainerStatus) -> str:
    state = status.state
    if state is not None and state.terminated is not None:
        reason = f" ({state.terminated.reason})" if state.terminated.reason else ""
        return f"ended with {state.terminated.exit_code}{reason}"
    if state is not None and state.waiting is not None:
        why = ": ".join(filter(None, (state.waiting.reason, state.waiting.message)))
        return f"waiting ({why})" if why else "waiting"
    return "running" if state is not None and state.running is not None else "in an unknown state"
