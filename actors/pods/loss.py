"""Loss reasons: why an executor is gone, as a kind, an exit code and a message for people. Pure.

A reason follows from the pod alone and from what we did to it. Nothing here guesses from timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.pods.loss_kind import (
    CAUSED_BY_APP,
    LossKind,
    RequestedEnd,
    decide,
    disruption,
    first_end,
    last_alive,
    was_seen,
)
from actors.pods.pod import ContainerStatus, Pod, TerminatedState, container_statuses, init_statuses
from actors.pods.state import PodDeleted, PodRules, PodState, PodSucceeded
from actors.pods.stuck import Stuck, why_stuck
from actors.text import LONGEST_LINE, LONGEST_TEXT, JsonReady, one_line, rfc3339

if TYPE_CHECKING:
    from datetime import datetime, timedelta

__all__ = [
    "CAUSED_BY_APP",
    "ENDED_BY_DRIVER",
    "LossKind",
    "LossReason",
    "RequestedEnd",
    "disconnected",
    "explain",
    "in_short",
    "missing",
    "never_started",
    "parted",
    "scaled_down",
    "stopped_with_fleet",
]


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

SIGTERM: Final = 143

UNASKED_SIGTERM: Final = "SIGTERM: by its kubelet after a failed liveness or startup probe, or by a process in its pod"
"""What 143 means if nobody deleted or evicted the pod. The pod's status does not say which, nor does a container's."""

DISRUPTED: Final = frozenset({LossKind.EVICTED, LossKind.PREEMPTED, LossKind.NODE_LOST})
"""The kinds whose message has the words of the disruption's condition."""

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
    """The executor container's, else the first ended container's, else -1; -1 too if nobody saw the end."""
    caused_by_app: bool
    """Whether the application caused it; false for everything that the cluster or the driver did."""
    message: str
    """For people: the executor, its exit code, the pod's reason and message, the state of every container.

    It is one line: what strangers wrote in it has its control characters escaped, and long texts are shortened.
    """


def explain(
    executor_id: int,
    state: PodState,
    rules: PodRules,
    *,
    requested: RequestedEnd | None = None,
    finished: str | None = None,
    released: bool = False,
    node_lost: bool = False,
    waited: Stuck | None = None,
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
        waited: why it did not start, when that was observed last: its kubelet takes it back when the pod is deleted.
    """
    pod, end = state.pod, first_end(state.pod, rules)
    kind = decide(state, rules, requested=requested, released=released, node_lost=node_lost)
    code = 0 if end is None and isinstance(state, PodSucceeded) else _exit_code(end)
    if kind is LossKind.NEVER_STARTED:
        code = NO_EXIT_CODE
    headline = requested.text if kind is LossKind.KILLED_BY_DRIVER and requested is not None else _HEADLINES[kind]
    if finished is not None and kind in (LossKind.EXITED, LossKind.FINISHED) and code == 0:
        kind, headline = LossKind.KILLED_BY_DRIVER, finished
    subject = f"executor {executor_id} (pod {pod.name}) {headline}"
    return _reason(kind, _message(subject, state, kind, code, end, waited=waited), code)


def disconnected(executor_id: int, pod: Pod, rules: PodRules, *, hung: bool, why: str) -> LossReason:
    """Return the reason of an executor that was disconnected for too long while its pod is alive.

    `why` says from what follows whether it hung.
    """
    kind, headline = (LossKind.HUNG, "hung: it ") if hung else (LossKind.DISCONNECTED, "")
    message = (
        f"executor {executor_id} (pod {pod.name}) {headline}was disconnected from the driver for too long, and {why}; "
        f"its pod is alive and is deleted{_containers(pod)}"
    )
    return _reason(kind, message, _exit_code(first_end(pod, rules)))


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
    return _reason(kind, f"{message}; its pod was {pod.name}{_containers(pod)}", _exit_code(first_end(pod, rules)))


def never_started(executor_id: int, why: str) -> LossReason:
    """Return the reason of an executor that was requested and never ran."""
    return _reason(LossKind.NEVER_STARTED, f"executor {executor_id} never started: {why}")


def scaled_down(executor_id: int) -> LossReason:
    """Return the reason of an executor that ran, and that the Allocator gave up before it observed that."""
    return _reason(LossKind.KILLED_BY_DRIVER, f"executor {executor_id} {SCALED_DOWN}")


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


def _exit_code(end: TerminatedState | None) -> int:
    return end.exit_code if end is not None and was_seen(end) else NO_EXIT_CODE


# ── the message ────────────────────────────────────────────────────────────────────────────────────────────────────

_SAID: Final = "; termination message: "
_LINE_BREAK: Final = r"\n"
"""As `one_line` writes it."""

_HEADLINES: Final = {
    LossKind.EXITED: "exited",
    LossKind.FINISHED: "finished by itself",
    LossKind.OOM_KILLED: "was killed for using more memory than its limit",
    LossKind.STORAGE_EXCEEDED: "was evicted for using more local storage than its pod may",
    LossKind.EVICTED: "was evicted",
    LossKind.PREEMPTED: "was preempted",
    LossKind.NODE_LOST: "was lost with its node",
    LossKind.DELETED: "was deleted by somebody else",
    LossKind.KILLED_BY_DRIVER: ENDED_BY_DRIVER,
    LossKind.NEVER_STARTED: "never started",
    LossKind.RELEASED: "was released: its labels were changed, and its pod is still alive",
}


def _message(
    subject: str, state: PodState, kind: LossKind, code: int, end: TerminatedState | None, *, waited: Stuck | None
) -> str:
    pod, parts = state.pod, [subject]
    if code != NO_EXIT_CODE:
        parts.append(f" with exit code {code}{_meaning(code, kind)}")
    if kind is LossKind.NEVER_STARTED and (pod.terminating or isinstance(state, PodDeleted)):
        parts.append(": its pod was deleted before")
    status = pod.status
    if status is not None and (status.reason or status.message):
        parts.append(f"; pod status: {_why(status.reason, status.message)}")
    if kind in DISRUPTED and (condition := disruption(pod)) is not None:
        parts.append(f"; {condition.type}: {_why(condition.reason, condition.message)}")
    if kind is LossKind.NEVER_STARTED:
        parts.append(_waited(last_alive(state) or pod, waited))
    else:
        parts.append(_containers(pod))
    if end is not None and was_seen(end) and end.message:
        parts.append(_SAID + _last_words(end.message))
    return "".join(parts)


def _meaning(code: int, kind: LossKind) -> str:
    """Return what an exit code means, in brackets, if it means something."""
    if kind in {LossKind.OOM_KILLED, LossKind.STORAGE_EXCEEDED} or code not in EXIT_CODES:
        return ""
    return f" ({UNASKED_SIGTERM if kind is LossKind.EXITED and code == SIGTERM else EXIT_CODES[code]})"


def _waited(pod: Pod, waited: Stuck | None) -> str:
    """Return what a pod that never ran waited for. `pod` is its last observation alive, or its only one."""
    stuck = why_stuck(pod) or waited
    return _containers(pod) if stuck is None else f"; it waited: {_why(stuck.reason, stuck.message)}"


def _containers(pod: Pod) -> str:
    states = [f"{status.name} {_container_state(status)}" for status in (*init_statuses(pod), *container_statuses(pod))]
    return f"; containers: {one_line(', '.join(states))}" if states else ""


def _container_state(status: ContainerStatus) -> str:
    state = status.state
    if state is not None and state.terminated is not None:
        reason = f" ({_why(state.terminated.reason, None)})" if state.terminated.reason else ""
        if not was_seen(state.terminated):
            return f"ended unseen{reason}"
        return f"ended with {state.terminated.exit_code}{reason}"
    if state is not None and state.waiting is not None:
        why = _why(state.waiting.reason, state.waiting.message)
        return f"waiting ({why})" if why else "waiting"
    return "running" if state is not None and state.running is not None else "in an unknown state"


def _why(reason: str | None, message: str | None) -> str:
    """Join a reason, which is one word, and a message."""
    limits = ((reason, _LONGEST_REASON), (message, LONGEST_TEXT))
    return ": ".join(one_line(text, limit) for text, limit in limits if text)


def parted(message: str) -> tuple[str, list[str]]:
    """Return what a loss message says without the termination message, and the lines of that, each on one line."""
    facts, _, said = message.partition(_SAID)
    return facts, [line for line in said.split(_LINE_BREAK) if line.strip()]


def in_short(message: str) -> str:
    """Return a loss message for a place where its end may be cut: the last line of the container's words is first."""
    facts, lines = parted(message)
    if not lines:
        return message
    before = _LINE_BREAK.join(lines[:-1])
    return f"{lines[-1].strip()}; {facts}" + (f"; before: {before}" if before else "")


def _last_words(message: str) -> str:
    """Return the end of a termination message, which says more than its beginning."""
    return one_line(message.strip()[-LONGEST_TEXT:], LONGEST_LINE)[-LONGEST_TEXT:]
