"""Fleets as JSON for programs, version 1: documented in docs/reference/command.md. Keys are added, never removed.

Times are seconds since the epoch. A row of an executor has the keys of the driver's own `/api/v1/executors`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from actors.inspection.events import ObservedEvent
    from actors.inspection.executors import ObservedExecutor
    from actors.inspection.fleets import ObservedFleet

__all__ = ["as_text", "events", "executor", "fleet", "status"]

VERSION: Final = 1


def as_text(value: dict[str, Any], *, one_line: bool = False) -> str:
    """Return the JSON in ASCII: any stdout can take it, and no character in it acts on a terminal."""
    return json.dumps(value, indent=None if one_line else 2).replace("\x7f", r"\u007f")


def fleet(observed: ObservedFleet) -> dict[str, Any]:
    """Return one fleet, without its executors."""
    lease = observed.lease
    return {
        "app_id": observed.app_id,
        "namespace": observed.namespace,
        "state": observed.state.value,
        "orphaned": observed.state.value == "orphaned",
        "why": observed.driver.why,
        "holder": lease.record.holder or None if lease is not None else None,
        "renewed": _seconds(lease.renewed_at) if lease is not None else None,
        "lease_duration": lease.record.duration.total_seconds() if lease is not None else None,
        "profiles": {name: asdict(counts) for name, counts in observed.counts.items()},
        "unreadable": observed.unreadable,
    }


def listed(fleets: Iterable[ObservedFleet], now: datetime) -> dict[str, Any]:
    """Return what `list` shows."""
    return {"version": VERSION, "time": _seconds(now), "fleets": [fleet(each) for each in fleets]}


def status(observed: ObservedFleet) -> dict[str, Any]:
    """Return what `status` shows."""
    rows = [(each, executor(each)) for each in observed.executors]
    return {
        "version": VERSION,
        "time": _seconds(observed.at),
        **fleet(observed),
        "on_hold": observed.on_hold,
        "executors": [row for each, row in rows if each.alive],
        "ended": [row for each, row in rows if not each.alive],
    }


def executor(observed: ObservedExecutor) -> dict[str, Any]:
    """Return one executor. What only its driver knows is null."""
    pod, loss = observed.pod, observed.loss
    return {
        "id": observed.id,
        "profile": observed.profile,
        "state": observed.state.value,
        "since": _seconds(observed.since),
        "requested_at": _seconds(observed.created_at),
        "running_at": _seconds(observed.running_at),
        "ended_at": _seconds(observed.ended_at),
        "registered": observed.registered,
        "retiring": observed.retiring,
        "pod": pod.name,
        "node": pod.node,
        "ip": pod.ip,
        "restarts": observed.restarts,
        "why": observed.why,
        "loss": loss.kind.value if loss is not None else None,
        "exit_code": loss.exit_code if loss is not None else None,
        "caused_by_app": loss.caused_by_app if loss is not None else None,
        "notes": {},
    }


def events(observed: Iterable[ObservedEvent], now: datetime) -> dict[str, Any]:
    """Return what `events` shows."""
    rows = [
        {
            "time": _seconds(event.at),
            "since": _seconds(event.since),
            "count": event.count,
            "type": event.type,
            "reason": event.reason,
            "kind": event.kind,
            "name": event.name,
            "source": event.source,
            "message": event.message,
        }
        for event in observed
    ]
    return {"version": VERSION, "time": _seconds(now), "events": rows}


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment is not None else None
