"""The permission to write: whether the lease is ours, and whether executors may be created.

A plain object of the Backend. It suspends and resumes the RequestPool, and notifies the driver of what blocks creation.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors.lease.blockers import Blockers
from actors.messages import AllocationBlocked, AllocationUnblocked
from actors.messages.internal import AllowWrites, CreationBlocked, LeaseHeld, LeaseNotHeld, SuspendWrites
from actors.runtime import elapsed
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from actors.messages import ProfileStatus, ToDriver
    from actors.messages.internal import LedgerEntry
    from actors.runtime import Actor, Address, Moment
    from actors.settings import Settings

__all__ = ["LeaseChange", "LeaseOver", "WritePermission"]


logger = get_logger(__name__)

_BY_LEASE: Final = "lease"
_BY_DRIVER_POD: Final = "driver_pod"
"""The blockers."""


class LeaseOver:
    """No `LeaseHeld` came in time: another driver may acquire the lease from now on."""


_AboutLease: TypeAlias = LeaseHeld | LeaseNotHeld | LeaseOver


class LeaseChange(Enum):
    """How the permission to write has changed."""

    FIRST_GRANT = auto()
    """We may write, and no other driver was found to hold the lease before."""
    CHANGED_HANDS = auto()
    """Another driver may hold the lease, or may have held it: what we know may be outdated."""


class WritePermission:
    """The permission of one Backend.

    Args:
        backend: its timers and clock are used.
        settings: of the fleet.
        pool: the RequestPool.
        tell: sends the driver a message.
    """

    def __init__(self, backend: Actor, settings: Settings, *, pool: Address, tell: Callable[[ToDriver], None]) -> None:
        self._timers = backend.timers
        self._clock = backend.clock
        self._pool = pool
        self._tell = tell
        self._profiles = settings.profile_names
        self._lease_is_optional = settings.backend.lease == "auto"
        self._is_lease_kept = False
        """We have held the lease, or observed another driver renew it: drivers of this application use it."""
        self._until: Moment | None = None
        """Until when we may write; None without a lease."""
        self.granted_at: Moment | None = None
        """Since when the lease is ours, None if it is not."""
        self._notifies = False
        self.holder: str | None = None
        """The other driver that holds the lease, if it is known to be alive."""
        self._blockers = Blockers()
        if settings.uses_lease:  # quiet, because a moment later we know who holds it
            reason = f"waiting for the lease of {settings.app_id!r}"
            self._blockers.begin(_BY_LEASE, reason, self._clock.now(), quiet=True)
        if settings.driver_pod_name is not None:
            reason = f"waiting for the driver's pod {settings.driver_pod_name!r} to be ready"
            self._blockers.begin(_BY_DRIVER_POD, reason, self._clock.now())

    @property
    def may_create(self) -> bool:
        """Nothing blocks creation here."""
        return not self._blockers

    @property
    def may_write(self) -> bool:
        """The lease is ours, or none is used."""
        return self._blockers.of(_BY_LEASE) is None

    @property
    def lease_held(self) -> bool:
        """The lease is ours. False if none is used, or if we have no right to use one."""
        return self._is_lease_kept and self.may_write

    def why_not(self) -> str:
        """Return why nothing may be written, for people; "" if it may."""
        return self._blockers.of(_BY_LEASE) or ""

    def over(
        self, profiles: Mapping[str, ProfileStatus], entries: Iterable[LedgerEntry]
    ) -> Mapping[str, ProfileStatus]:
        """Return the counts of each profile, and what blocks its creation."""
        return self._blockers.over(profiles, entries)

    def introduce_pool(self) -> None:
        """Tell a new RequestPool whether it may write, and until when."""
        self._pool.tell(AllowWrites(self._until) if self.may_write else SuspendWrites(self.why_not()))

    # ── what changes ────────────────────────────────────────────────────────────────────────────────────────────

    def begin_to_notify(self) -> None:
        """From now on, notify the driver when creation is blocked, for another reason than before, or unblocked."""
        self._notifies = True
        self._notify()

    def end_to_notify(self) -> None:
        """The backend stops: nothing is created any more."""
        self._notifies = False

    def driver_pod_ready(self) -> None:
        """The driver's pod is ready: executors can connect to the driver."""
        self._blockers.end(_BY_DRIVER_POD)
        self._notify()

    def creation_blocked(self, message: CreationBlocked) -> None:
        """Notify the driver that the Allocator creates no executors of a profile, or creates them again."""
        if self.may_create:  # otherwise the Allocator sent it before we blocked creation
            self._tell(_block(message.profile, message.cause, message.blocked_by))

    def handle(self, message: _AboutLease) -> LeaseChange | None:
        """Handle a message about the lease. None if the permission has not changed."""
        match message:
            case LeaseHeld(until):
                return self._held(until)
            case LeaseNotHeld(reason) if message.forbidden and self._lease_is_optional and not self._is_lease_kept:
                return self._continue_without(reason)
            case LeaseNotHeld(_, holder, False) if holder is not None and holder == self.holder:
                return None  # a restarted keeper does not know yet that the holder is alive
            case LeaseNotHeld(reason, holder, holder_lives):
                self._is_lease_kept = self._is_lease_kept or holder_lives
                return self._not_held(reason, holder if holder_lives else None)
            case LeaseOver():
                return self._not_held("no renewal of the lease was reported in time, another driver may hold it", None)
            case _:
                assert_never(message)

    def _continue_without(self, reason: str) -> LeaseChange | None:
        if not self.may_write:
            logger.warning("continuing without a lease, another driver would not be noticed: reason=%s", reason)
        return self._end_suspension()

    def _held(self, until: Moment) -> LeaseChange | None:
        left = elapsed(self._clock.monotonic(), until)
        if left <= timedelta(0):
            return None
        self._timers.start("lease", left, LeaseOver())
        self._is_lease_kept, self.holder, self._until = True, None, until
        if self.granted_at is None:
            self.granted_at = self._clock.monotonic()
        if self.may_write:
            self._pool.tell(AllowWrites(until))
        return self._end_suspension()

    def _end_suspension(self) -> LeaseChange | None:
        if self.may_write:
            return None
        is_first = self._blockers.is_quiet(_BY_LEASE)
        self._pool.tell(AllowWrites(self._until))
        self._blockers.end(_BY_LEASE)
        self._notify()
        return LeaseChange.FIRST_GRANT if is_first else LeaseChange.CHANGED_HANDS

    def _not_held(self, reason: str, holder: str | None) -> LeaseChange:
        self._timers.cancel("lease")
        if self.may_write:
            self._pool.tell(SuspendWrites(reason))
        self.holder, self.granted_at = holder, None
        self._blockers.begin(_BY_LEASE, reason, self._clock.now())
        self._notify()
        return LeaseChange.CHANGED_HANDS

    def _notify(self) -> None:
        if self._notifies and (cause := self._blockers.changed()) is not None:
            for profile in self._profiles:
                self._tell(_block(profile, cause, self._blockers.notified_of))


def _block(profile: str, cause: str | None, blocked_by: str | None) -> AllocationBlocked | AllocationUnblocked:
    return AllocationBlocked(profile, cause, blocked_by) if cause else AllocationUnblocked(profile)
