"""Events of the command: one for each message of the Backend, as JSON or as a line of text.

The keys and names are a public format that scripts read. Keys may be added, but never removed or changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors.messages import (
    AcquireRefused,
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorAcquired,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
    LeaseExpired,
    LeaseLost,
    ToDriver,
)
from actors.pods.loss import in_short
from actors.pods.pod import restarts
from actors.text import LONGEST_LINE, one_line, rfc3339

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from pathlib import Path

__all__ = ["NOTHING_MADE", "Event", "describe", "failed", "stopped", "stopping", "to_json", "to_line"]

NOTHING_MADE: Final = "NOTHING_MADE"
"""The reason of `failed` at the end of a run that could not make one executor."""

Detail = str | int | bool | tuple[str, ...] | Mapping[str, int] | None
ExecutorEvent: TypeAlias = ExecutorPending | ExecutorRunning | ExecutorTerminating | ExecutorRemoved | ExecutorStuck


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, for people and for programs."""

    time: datetime
    event: str
    """started, pending, running, terminating, removed, stuck, blocked, unblocked, acquired, refused, lost, expired,
    failed, stopping or stopped."""
    executor_id: int | None = None
    pod: str | None = None
    reason: str | None = None
    """For programs: a loss kind, the reason of a pod, or why the fleet stops."""
    message: str | None = None
    """For people."""
    details: Mapping[str, Detail] = field(default_factory=dict)
    """Further facts of this kind of event."""


def describe(  # noqa: C901, PLR0912 - one case a message
    message: ToDriver, now: datetime, pods: Mapping[int, str], kubeconfig: Path | None = None
) -> Event:
    """Return the event for one message of the Backend.

    Args:
        message: of the Backend.
        now: the event's time.
        pods: the pod names of the executors so far.
        kubeconfig: of an embedded cluster.
    """
    details: dict[str, Detail]
    match message:
        case BackendStarted(app_id, namespace):
            text = f"fleet {app_id} started in namespace {namespace}"
            details = {"app_id": app_id, "namespace": namespace}
            if kubeconfig is not None:
                text += f"; export KUBECONFIG={kubeconfig}"
                details["kubeconfig"] = str(kubeconfig)
            return Event(now, "started", message=text, details=details)
        case ExecutorPending(executor_id, pod):
            return Event(now, "pending", executor_id, pod.name, details=_place(message) | {"restarts": restarts(pod)})
        case ExecutorRunning(executor_id, pod):
            return Event(now, "running", executor_id, pod.name, details=_place(message) | {"restarts": restarts(pod)})
        case ExecutorTerminating(executor_id, deadline, reason):
            details = _place(message) | ({"deadline": rfc3339(deadline)} if deadline else {})
            return Event(now, "terminating", executor_id, pods.get(executor_id), None, reason, details)
        case ExecutorRemoved(executor_id, loss):
            details = _place(message) | {"exit_code": loss.exit_code, "caused_by_app": loss.caused_by_app}
            details["lowered_target"] = message.lowered_target
            return Event(now, "removed", executor_id, pods.get(executor_id), loss.kind, loss.message, details)
        case ExecutorStuck(executor_id, reason, text, since):
            details = _place(message) | ({"since": rfc3339(since)} if since else {})
            return Event(now, "stuck", executor_id, pods.get(executor_id), reason, text, details)
        case AllocationBlocked(profile, cause, blocked_by):
            return Event(now, "blocked", message=cause, details={"profile": profile, "blocked_by": blocked_by})
        case AllocationUnblocked(profile):
            return Event(now, "unblocked", details={"profile": profile})
        case ExecutorAcquired(lease, executor):
            return Event(now, "acquired", executor.id, executor.pod, details={"lease": lease})
        case AcquireRefused(lease, reason):
            return Event(now, "refused", message=reason, details={"lease": lease})
        case LeaseLost(lease, executor_id, loss):
            return Event(now, "lost", executor_id, pods.get(executor_id), loss.kind, loss.message, {"lease": lease})
        case LeaseExpired(lease, executor_id):
            return Event(now, "expired", executor_id, pods.get(executor_id), details={"lease": lease})
        case FleetFailed(cause):
            return failed(now, cause)
        case BackendFailed(cause):
            return failed(now, str(cause) or type(cause).__name__)
        case BackendStopped(left_behind):
            return stopped(now, None, left_behind)
        case _:
            assert_never(message)


def _place(message: ExecutorEvent) -> dict[str, Detail]:
    return {"profile": message.profile, "node": message.node, "ip": message.ip}


def failed(now: datetime, cause: str, reason: str | None = None) -> Event:
    """Return the event of a fleet that failed."""
    return Event(now, "failed", reason=reason, message=cause)


def stopping(
    now: datetime, why: str, executors: int = 0, grace: timedelta | None = None, *, stands_by: bool = False
) -> Event:
    """Return the event of a stop that begins: what ends from now on ends with the fleet.

    Args:
        now: the event's time.
        why: the fleet stops.
        executors: how many there are.
        grace: how long they have to end at the most; None if the fleet is left.
        stands_by: whether another driver may hold the lease. A stop deletes nothing of another driver's.
    """
    is_one = executors == 1
    who = "1 executor" if is_one else f"{executors} executors"
    if not executors:
        message = None
    elif grace is None:
        message = f"{who} {'is' if is_one else 'are'} left running"
    elif stands_by:
        message = f"{who} {'stays' if is_one else 'stay'}, unless this driver gets the lease"
    else:
        message = f"{who} {'has' if is_one else 'have'} up to {grace.total_seconds():g} s to end"
    return Event(now, "stopping", reason=why, message=message)


def stopped(
    now: datetime,
    why: str | None,
    left_behind: tuple[str, ...],
    sums: Mapping[str, Detail] | None = None,
    text: str = "",
) -> Event:
    """Return the last event, with what the run came to: as numbers and as text."""
    left = f"pods that may be left behind: {', '.join(left_behind)}" if left_behind else ""
    message = "; ".join(filter(None, (text, left))) or None
    return Event(now, "stopped", reason=why, message=message, details={"left_behind": left_behind, **(sums or {})})


def to_json(event: Event) -> str:
    """Return one line of `--output json`. It always has the first six keys, null if they do not apply.

    It is ASCII: any stdout can take it, and no character in it acts on a terminal.
    """
    known = {
        "time": rfc3339(event.time),
        "event": event.event,
        "executor_id": event.executor_id,
        "pod": event.pod,
        "reason": event.reason,
        "message": event.message,
    }
    return json.dumps(known | dict(event.details)).replace("\x7f", r"\u007f")


def to_line(event: Event) -> str:
    """Return one line of plain output: local time, event, executor or profile, then the reason or the pod."""
    profile = event.details.get("profile", "")
    executor = str(profile) if event.executor_id is None else f"executor {event.executor_id}"
    said = in_short(event.message) if event.message and event.event == "removed" else event.message
    why = ": ".join(part for part in (event.reason, said or event.pod) if part)
    return one_line(
        f"{event.time.astimezone():%H:%M:%S}  {event.event:<11}  {executor:<13}  {why}", LONGEST_LINE
    ).rstrip()
