"""What the Backend publishes, as tests write it: one line, only what the test is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from actors.messages import Executor, ExecutorState, FleetChanged, FleetStatus, ProfileStatus

__all__ = ["AT", "changed", "everything", "executor", "fleet", "only"]

AT: Final = datetime(2024, 1, 1, tzinfo=UTC)


def executor(executor_id: int, state: ExecutorState = ExecutorState.RUNNING, **values: Any) -> Executor:
    """An executor of the profile `default`, which is not registered and about which there is nothing to say."""
    plain = Executor(
        executor_id,
        "default",
        state,
        pod=f"app-exec-{executor_id}",
        node=None,
        ip=None,
        since=AT,
        registered=False,
        restarts=0,
        reason=None,
        loss=None,
    )
    return replace(plain, **values)


def fleet(profiles: dict[str, ProfileStatus] | int = 0, **values: Any) -> FleetStatus:
    """A status. A number is the target of the only profile."""
    known = {"default": ProfileStatus(target=profiles)} if isinstance(profiles, int) else profiles
    return FleetStatus("app", "default", known, **{"sources": {}, **values})


def only(**values: Any) -> dict[str, ProfileStatus]:
    """The profiles of a fleet that has one."""
    return {"default": ProfileStatus(**values)}


def changed(sequence: int, *executors: Executor, **values: Any) -> FleetChanged:
    """What has changed."""
    return FleetChanged(sequence, AT, executors, **values)


def everything(sequence: int, *executors: Executor, **values: Any) -> FleetChanged:
    """All that there is."""
    return FleetChanged(sequence, AT, executors, complete=True, **{"status": fleet(), **values})
