"""Messages to EventRecorder: the messages to the driver that operators ask about, and changes of the Lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from actors.messages.to_driver import (
    AllocationBlocked,
    AllocationUnblocked,
    ExecutorRemoved,
    ExecutorStuck,
    FleetFailed,
)

__all__ = ["DriverLeaseAcquired", "DriverLeaseLost", "ToEventRecorder"]


@dataclass(frozen=True, slots=True)
class DriverLeaseAcquired:
    """The application's lease is ours, after it was not."""


@dataclass(frozen=True, slots=True)
class DriverLeaseLost:
    """The application's lease is not ours, or no longer. Sent again when the reason changes."""

    reason: str


ToEventRecorder: TypeAlias = (
    ExecutorRemoved
    | ExecutorStuck
    | AllocationBlocked
    | AllocationUnblocked
    | FleetFailed
    | DriverLeaseAcquired
    | DriverLeaseLost
)
