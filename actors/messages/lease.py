"""The lease that lets one driver of an application write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from actors.runtime import Address, Moment

__all__ = ["IdsAllocated", "KeepLease", "LeaseHeld", "LeaseNotHeld", "LeaseReleased", "ReleaseLease", "ToLeaseKeeper"]


@dataclass(frozen=True, slots=True)
class KeepLease:
    """Acquire the application's lease and renew it, until `ReleaseLease`. Twice is refused."""


@dataclass(frozen=True, slots=True)
class IdsAllocated:
    """Executor ids up to this one were given out: the lease is to remember it, for whoever holds it next."""

    last_id: int


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Let go of the lease, so that the next driver need not wait for its end; `reply_to` gets `LeaseReleased`."""

    reply_to: Address


ToLeaseKeeper: TypeAlias = KeepLease | IdsAllocated | ReleaseLease


# ── From LeaseKeeper, to Backend ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """The application's lease is ours: we may write. Told again at each renewal."""

    until: Moment
    """Without a renewal it may be another's from then on; the holder must have stopped to write."""
    last_id: int = 0
    """The highest executor id that was given out, by all who held it."""


@dataclass(frozen=True, slots=True)
class LeaseNotHeld:
    """The lease is not ours, or not any more: we may only look. `why` names the holder. Told again when it changes."""

    reason: str
    holder: str | None = None
    """Whose it is; None if nobody's that we know of, as when the API is away."""
    holder_lives: bool = False
    """The holder has written it since we began to look. One that has not may have ended: then the lease runs out."""
    forbidden: bool = False
    """Our account has no right to leases."""


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """The lease is let go of, or could not be."""
