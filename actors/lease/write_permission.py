"""What holds the creation of executors up before the Allocator may begin: a lease, a driver's pod. Plain values."""

from __future__ import annotations

import logging
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors.lease.blockers import Blockers
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    CreationBlocked,
    LeaseHeld,
    LeaseNotHeld,
    ResumeWrites,
    SuspendWrites,
)
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from actors.messages import LedgerEntry, ProfileStatus, ToDriver
    from actors.runtime import Actor, Address
    from actors.settings import Settings

__all__ = ["LeaseChange", "LeaseOver", "WritePermission"]


logger = logging.getLogger(__name__)

_BY_LEASE: Final = "lease"
_BY_DRIVER_POD: Final = "driver_pod"
"""What may hold creation up."""


class LeaseOver:
    """Nobody has said in time that the lease is still ours: another driver may take it from now on."""


_AboutLease: TypeAlias = LeaseHeld | LeaseNotHeld | LeaseOver


class LeaseChange(Enum):
    """What has changed for those who write."""

    AT_ONCE = auto()
    """The wait at the start is over."""
    LATE = auto()
    """Another driver may have the lease, or had it: what we know may be old."""


class WritePermission:
    """Of one Backend.

    Args:
        backend: whose timers and clock are used.
        pool: who writes, and is told when it may.
        tell: the driver.
    """

    def __init__(self, backend: Actor, settings: Settings, *, pool: Address, tell: Callable[[ToDriver], None]) -> None:
        self._timers = backend.timers
        self._clock = backend.clock
        self._pool = pool
        self._tell = tell
        self._profiles = settings.profile_names
        self._lease_is_optional = settings.backend.lease == "auto"
        self._is_lease_kept = False
        """We have held it, or seen another renew it: whoever keeps it respects it."""
        self._tells = False
        self.holder: str | None = None
        """Who has the lease, if it is another driver that lives: not one that may have ended."""
        self._holdups = Blockers()
        if settings.uses_lease:  # a moment later we have it, or know who has: only that is worth telling
            words = f"waiting for the lease of {settings.app_id!r}"
            self._holdups.begin(_BY_LEASE, words, self._clock.now(), quiet=True)
        if settings.driver_pod_name is not None:
            words = f"waiting for the driver's pod {settings.driver_pod_name!r} to be ready"
            self._holdups.begin(_BY_DRIVER_POD, words, self._clock.now())

    @property
    def may_create(self) -> bool:
        """Nothing stands in the way."""
        return not self._holdups

    @property
    def may_write(self) -> bool:
        """The lease is ours, or none is used."""
        return self._holdups.of(_BY_LEASE) is None

    @property
    def lease_held(self) -> bool:
        """The lease is ours; false also where none is used, or may be."""
        return self._is_lease_kept and self.may_write

    def why_not(self) -> str:
        """What stands in the way of writing, in words for a person; "" if nothing does."""
        return self._holdups.of(_BY_LEASE) or ""

    def over(
        self, profiles: Mapping[str, ProfileStatus], entries: Iterable[LedgerEntry]
    ) -> Mapping[str, ProfileStatus]:
        """The fleet's counts, and why it does not grow."""
        return self._holdups.over(profiles, entries)

    def introduce_pool(self) -> None:
        """What a pool must know at its start."""
        if not self.may_write:
            self._pool.tell(SuspendWrites(self.why_not()))

    # ── what changes ─────────────────────────────────────────────────────────────────────────────────────────────

    def begin_to_tell(self) -> None:
        """From now on the driver hears why nothing is created, when that begins, changes or ends."""
        self._tells = True
        self._tell_news()

    def end_to_tell(self) -> None:
        """The backend stops: that nothing is created is no news."""
        self._tells = False

    def driver_pod_ready(self) -> None:
        """Executors can connect to the driver."""
        self._holdups.end(_BY_DRIVER_POD)
        self._tell_news()

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Who handles what, but for the lease: what comes of that is the caller's (`handle`)."""
        return {CreationBlocked: self._creation_blocked}

    def _creation_blocked(self, message: CreationBlocked) -> None:
        if self.may_create:  # else it was the Allocator before: since then more than that stands in the way
            profile, cause = message.profile, message.cause
            self._tell(AllocationUnblocked(profile) if cause is None else AllocationBlocked(profile, cause))

    def handle(self, message: _AboutLease) -> LeaseChange | None:
        """One case a message; None if nothing has changed for those who write."""
        match message:
            case LeaseHeld(until):
                return self._held(elapsed(self._clock.monotonic(), until))
            case LeaseNotHeld(why) if message.forbidden and self._lease_is_optional and not self._is_lease_kept:
                return self._go_without(why)
            case LeaseNotHeld(_, holder, False) if holder is not None and holder == self.holder:
                return None  # its keeper has come up again and has yet to see what it told before
            case LeaseNotHeld(why, holder, holder_lives):
                self._is_lease_kept = self._is_lease_kept or holder_lives
                return self._not_held(why, holder if holder_lives else None)
            case LeaseOver():
                return self._not_held("nobody has renewed the lease in time, it may be another driver's by now", None)
            case _:
                assert_never(message)

    def _go_without(self, why: str) -> LeaseChange | None:
        if not self.may_write:
            logger.warning("going on without a lease, another driver would not be noticed: %s", why)
        return self._end_suspension()

    def _held(self, left: timedelta) -> LeaseChange | None:
        if left <= timedelta(0):
            return None
        self._timers.start("lease", left, LeaseOver())
        self._is_lease_kept, self.holder = True, None
        return self._end_suspension()

    def _end_suspension(self) -> LeaseChange | None:
        if self.may_write:
            return None
        at_once = self._holdups.is_quiet(_BY_LEASE)
        self._pool.tell(ResumeWrites())
        self._holdups.end(_BY_LEASE)
        self._tell_news()
        return LeaseChange.AT_ONCE if at_once else LeaseChange.LATE

    def _not_held(self, why: str, holder: str | None) -> LeaseChange:
        self._timers.cancel("lease")
        if self.may_write:
            self._pool.tell(SuspendWrites(why))
        self.holder = holder
        self._holdups.begin(_BY_LEASE, why, self._clock.now())
        self._tell_news()
        return LeaseChange.LATE

    def _tell_news(self) -> None:
        if self._tells and (news := self._holdups.news()) is not None:
            for profile in self._profiles:
                self._tell(AllocationBlocked(profile, news) if news else AllocationUnblocked(profile))
