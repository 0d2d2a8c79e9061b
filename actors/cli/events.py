"""What the command tells its user: one `Event` for each message of the Backend, as JSON or as a line of text.

The keys and names here are a public format: scripts read them. New keys may come, none goes or changes its meaning.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_never

from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
    ToDriver,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Event", "describe", "failed", "stopped", "to_json", "to_line"]

Detail = str | int | bool | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, in words for a person and keys for a program."""

    time: datetime
    event: str
    """started, pending, running, terminating, removed, stuck, blocked, unblocked, failed or stopped."""
    executor_id: int | None = None
    pod: str | None = None
    reason: str | None = None
    """One word for a program, where there is one: a loss kind, the pod's own reason, why the fleet stops."""
    message: str | None = None
    """A sentence for a person."""
    details: Mapping[str, Detail] = field(default_factory=dict)
    """What only this kind of event has."""


def describe(  # noqa: C901, PLR0912 - one case a message
    message: ToDriver, now: datetime, pods: Mapping[int, str], kubeconfig: Path | None = None
) -> Event:
    """The event for one message of the Backend.

    `pods` has the pod names of the executors known so far, `kubeconfig` is the way to the cluster if only we know it.
    """
    details: dict[str, Detail]
    match message:
        case BackendStarted(app_id, namespace):
            words = f"the fleet {app_id} is being kept in namespace {namespace}"
            details = {"app_id": app_id, "namespace": namespace}
            if kubeconfig is not None:
                words += f"; export KUBECONFIG={kubeconfig}"
                details["kubeconfig"] = str(kubeconfig)
            return Event(now, "started", message=words, details=details)
        case ExecutorPending(executor_id, pod):
            return Event(now, "pending", executor_id, pod.name)
        case ExecutorRunning(executor_id, pod):
            return Event(now, "running", executor_id, pod.name)
        case ExecutorTerminating(executor_id, deadline, reason):
            details = {"deadline": _rfc3339(deadline)} if deadline else {}
            return Event(now, "terminating", executor_id, pods.get(executor_id), None, reason, details)
        case ExecutorRemoved(executor_id, loss):
            details = {"exit_code": loss.exit_code, "caused_by_app": loss.caused_by_app}
            kind = loss.kind.name.lower()
            return Event(now, "removed", executor_id, pods.get(executor_id), kind, loss.message, details)
        case ExecutorStuck(executor_id, reason, words, since):
            details = {"since": _rfc3339(since)} if since else {}
            return Event(now, "stuck", executor_id, pods.get(executor_id), reason, words, details)
        case AllocationBlocked(profile, cause):
            return Event(now, "blocked", message=cause, details={"profile": profile})
        case AllocationUnblocked(profile):
            return Event(now, "unblocked", details={"profile": profile})
        case FleetFailed(cause):
            return failed(now, cause)
        case BackendFailed(cause):
            return failed(now, str(cause) or type(cause).__name__)
        case BackendStopped(left_behind):
            return stopped(now, None, left_behind)
        case _:
            assert_never(message)


def failed(now: datetime, cause: str) -> Event:
    """The fleet cannot be kept."""
    return Event(now, "failed", message=cause)


def stopped(now: datetime, why: str | None, left_behind: tuple[str, ...]) -> Event:
    """The last event of all."""
    message = f"pods that may be left behind: {', '.join(left_behind)}" if left_behind else None
    return Event(now, "stopped", reason=why, message=message, details={"left_behind": left_behind})


def to_json(event: Event) -> str:
    """One line of `--output json`. The first six keys are always there; null where the event has no such thing."""
    known = {
        "time": _rfc3339(event.time),
        "event": event.event,
        "executor_id": event.executor_id,
        "pod": event.pod,
        "reason": event.reason,
        "message": event.message,
    }
    return json.dumps(known | dict(event.details), ensure_ascii=False)


def to_line(event: Event) -> str:
    """One line of plain output: local time, event, executor, then why, or else which pod."""
    executor = "" if event.executor_id is None else f"executor {event.executor_id}"
    why = ": ".join(part for part in (event.reason, event.message or event.pod) if part)
    return one_line(f"{event.time.astimezone():%H:%M:%S}  {event.event:<11}  {executor:<13}  {why}")


def one_line(text: str) -> str:
    """The words of other programs may hold line breaks and control characters: a terminal gets neither."""
    return "".join(character if character.isprintable() else " " for character in text).rstrip()


def _rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
