"""Messages to and from LeaseKeeper, about the lease that lets one driver of an application write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from actors.runtime import Address, Moment

__all__ = ["IdsAllocated", "KeepLease", "LeaseHeld", "LeaseNotHeld", "LeaseReleased", "ReleaseLease", "ToLeaseKeeper"]


@dataclass(frozen=True, slots=True)
class KeepLease:
    """Acquire the application's lease and renew it, until `ReleaseLease`. Twice is refused."""


@dataclass(frozen=True, slots=True)
class IdsAllocated:
    """Executor ids up to this one were allocated. Record it in the lease, for its next holder."""

    last_id: int
    targets: Mapping[str, int] = field(default_factory=dict)
    """The target of each profile. It is recorded with the next renewal, for those who look from outside."""


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Release the lease, so that the next driver need not wait until it expires; `reply_to` gets `LeaseReleased`."""

    reply_to: Address


ToLeaseKeeper: TypeAlias = KeepLease | IdsAllocated | ReleaseLease


# ── From LeaseKeeper, to Backend ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """The application's lease is ours: we may write. Sent again at each renewal."""

    until: Moment
    """We must not write after this moment, unless the lease is renewed: it may be another driver's then."""
    last_id: int = 0
    """The highest executor id that any of its holders allocated."""


@dataclass(frozen=True, slots=True)
class LeaseNotHeld:
    """The lease is not ours, or no longer: we may not write. `reason` names the holder. Sent again when it changes."""

    reason: str
    holder: str | None = None
    """Who holds it; None if that is unknown, for example while the API does not answer."""
    holder_lives: bool = False
    """The holder has written the lease since we first read it. Otherwise it may have ended, and the lease expires."""
    forbidden: bool = False
    """Our account has no right to use leases."""


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """The release is done, or has failed: the lease then expires by itself."""
