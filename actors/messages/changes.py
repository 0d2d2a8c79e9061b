"""What a fleet has become: the changes that `FollowFleet` subscribes to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from actors.messages.executor import Executor
from actors.messages.status import FleetStatus

__all__ = ["FleetChanged"]


@dataclass(frozen=True, slots=True)
class FleetChanged:
    """What is different since the last one, as values. Sent to whoever follows the fleet, see `FollowFleet`.

    Replace each executor that you know by its new value, and drop those that have ended or were withdrawn.
    """

    sequence: int
    """One more than that of the last one. Otherwise some were missed: `FollowFleet` again sends everything."""
    at: datetime
    """As of when it is, in UTC."""
    executors: tuple[Executor, ...]
    """The executors that changed, as `GetExecutors` answers them; the one that ended last at the end."""
    withdrawn: tuple[int, ...] = ()
    """Executors that are no longer requested, and of which the driver was told nothing."""
    status: FleetStatus | None = None
    """The fleet as `GetFleetStatus` answers it, None if nothing in it is different but ages."""
    complete: bool = False
    """All living executors are here, and the last ones that ended: forget what else is known."""
