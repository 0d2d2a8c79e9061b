"""`FleetContext`: what the parts of one Backend share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.executors.fleet_state import FleetState
    from actors.messages import ToDriver
    from actors.metrics.counts import BackendCounts
    from actors.runtime import Actor, Address
    from actors.settings import Settings

__all__ = ["FleetContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetContext:
    """The fleet of one Backend, and whom its parts talk to. Each part takes what it needs of this."""

    backend: Actor
    """The Backend. Its parts use its timers, its clock and its address."""
    settings: Settings
    state: FleetState
    """What is known of the fleet."""
    children: Mapping[str, Address]
    """The addresses of the Backend's children, by name."""
    tell: Callable[[ToDriver | None], None]
    """Sends the driver a message, unless it is None."""
    why_not: Callable[[], str]
    """Returns why nothing may be written now, "" while it may."""
    counts: BackendCounts
    """For the metrics."""
