"""The fleet's events in words, for the log, and as values for Dask's own event log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
)

if TYPE_CHECKING:
    from actors.fleet.stream import Event

__all__ = ["news"]


def news(event: Event) -> dict[str, Any] | None:
    """Return what an event says; None for the start and the stop, which whoever starts and stops knows."""
    match event:
        case ExecutorPending(executor_id):
            return _of(executor_id, "pending", f"executor {executor_id} is pending")
        case ExecutorRunning(executor_id):
            return _of(executor_id, "running", f"executor {executor_id} runs", node=event.node)
        case ExecutorStuck(executor_id, reason, message):
            return _of(executor_id, "stuck", f"executor {executor_id} is stuck: {reason}: {message}")
        case ExecutorTerminating(executor_id, reason=reason):
            return _of(executor_id, "terminating", reason)
        case ExecutorRemoved(executor_id, loss):
            return _of(executor_id, "removed", loss.message, kind=str(loss.kind), caused_by_app=loss.caused_by_app)
        case AllocationBlocked(profile, cause):
            return _about(profile, "blocked", f"no executors of {profile!r} can be created: {cause}")
        case AllocationUnblocked(profile):
            return _about(profile, "unblocked", f"executors of {profile!r} can be created again")
        case _:
            return _failed(event)


def _failed(event: Event) -> dict[str, Any] | None:
    match event:
        case FleetFailed(cause):
            return {"action": "fleet-failed", "message": cause}
        case BackendFailed(cause=error):
            return {"action": "backend-failed", "message": f"the fleet has failed: {error}"}
        case _:
            return None


def _of(executor_id: int, action: str, message: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "message": message, "executor": executor_id, **more}


def _about(group: str, action: str, message: str) -> dict[str, Any]:
    return {"action": action, "message": message, "worker_group": group}
