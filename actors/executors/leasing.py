"""Leasing: hands ready executors to whoever acquires them, and keeps enough of them ready.

A plain object of the Backend. The `LeaseBook` decides who gets which executor; an acquire needs no request to the API.
It is level-triggered: each executor that a message has changed is looked at when the message was handled, and the
target of a profile with a pool is counted anew: its leases, its warm executors and those who wait. It discards what
holders give back, and executors of earlier drivers, of which nobody knows whether they were leased. `kills` ends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.errors import Refused
from actors.executors.leases import AcquireRequest
from actors.executors.status import living_executor
from actors.messages import (
    AcquireExecutor,
    AcquireRefused,
    CancelAcquire,
    ExecutorAcquired,
    LeaseExpired,
    LeaseLost,
    ReleaseExecutor,
    RenewLease,
    SetWarm,
)
from actors.messages.internal import AllocatorStatus, TakenOver
from actors.messages.internal.names import ALLOCATOR
from actors.pods.loss import SCALED_DOWN
from actors.pods.state import PodRunning
from actors.settings.types import LARGEST_FLEET
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.executors.fleet_context import FleetContext
    from actors.executors.fleet_state import EndedExecutor
    from actors.executors.kills import Kills
    from actors.executors.leases import Lease
    from actors.messages.internal import LedgerEntry

__all__ = ["Leasing"]

logger = get_logger(__name__)

NO_GRACE: Final = timedelta()
"""Nobody uses a discarded executor: its pod is deleted at once."""

TOGETHER: Final = timedelta(milliseconds=10)
"""Leases that begin and end within this time change the target once: each change is a round of the Allocator, which
costs 0.1 ms. A replacement starts this much later; its pod takes a hundred times as long."""

AGE_RETRY: Final = timedelta(seconds=1)
"""How often to look whether the pool is full again, before one more executor that is too old is ended."""

RELEASED: Final = "was given back by its holder"
EXPIRED: Final = "was ended, as its lease had expired"
AGED: Final = "was ended, as it had reached executor.max_age"
UNKNOWN_USE: Final = "was ended, as an earlier driver may have leased it"
"""What loss reasons say after the executor's name."""

CANCELLED: Final = "it was cancelled"
STOPS: Final = "the fleet stops"
"""Why nothing is acquired."""


@dataclass(frozen=True, slots=True)
class _WaitOver:
    """The time of a request is over."""

    lease: int


@dataclass(frozen=True, slots=True)
class _LeaseOver:
    """The time of a lease is over."""

    lease: int


@dataclass(frozen=True, slots=True)
class _AgeReached:
    """An executor is not offered any more."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class _ExcessOver:
    """Time to end the executors that nobody needed for a while."""


@dataclass(frozen=True, slots=True)
class _CountDue:
    """Time to count the targets."""


class Leasing:
    """The leases and pools of one fleet. `kills` ends its executors."""

    def __init__(self, context: FleetContext, kills: Kills) -> None:
        self._timers = context.backend.timers
        self._clock = context.backend.clock
        self._state = context.state
        self._book = context.state.leases
        self._allocator = context.children[ALLOCATOR]
        self._tell = context.tell
        self._why_not = context.why_not
        self._kills = kills
        self._idle_timeout = context.settings.allocation.idle_timeout
        self._profiles = context.settings.pools
        self._warm = {name: profile.warm or 0 for name, profile in self._profiles.items()}
        self._last = 0
        """The number of the last request."""
        self._has_ended = False
        self._least_excess: dict[str, int] = {}
        """How many idle executors of each profile were in excess ever since the timer began."""

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {
            AcquireExecutor: self._acquire,
            CancelAcquire: self._cancel,
            ReleaseExecutor: self._release,
            RenewLease: self._renew,
            SetWarm: self._set_warm,
            _AgeReached: self._age_reached,
            _CountDue: self._count_due,
            _ExcessOver: self._excess_over,
            _LeaseOver: self._lease_over,
            _WaitOver: self._wait_over,
        }

    def listeners(self) -> dict[type, Callable[..., object]]:
        """Map each message after which more is to be looked at than the executors that it changed."""
        return {AllocatorStatus: self._counted, TakenOver: self._taken_over}

    def turn_ends(self) -> None:
        """A message was handled: look at the executors that it changed."""
        while self._state.unlooked:
            unlooked, self._state.unlooked = self._state.unlooked, {}
            foreign = [executor_id for executor_id, ended in unlooked.items() if self._look(executor_id, ended)]
            self._discard(foreign, UNKNOWN_USE)
            self._count_soon()

    def end(self) -> None:
        """Grant nothing more, and end no executor: the fleet stops."""
        self._has_ended = True
        self._refuse_all(STOPS)

    # ── from the driver ─────────────────────────────────────────────────────────────────────────────────────────

    def _acquire(self, message: AcquireExecutor) -> int:
        profile = message.profile
        if self._has_ended:
            raise Refused(f"AcquireExecutor: {STOPS}")
        if self._state.starts.failed is not None and not self._book.idle(profile):
            raise Refused(f"AcquireExecutor: {self._state.starts.failed}")
        self._last += 1
        request = AcquireRequest(self._last, profile, message.ttl, message.holder)
        lease = self._book.acquire(request)
        if lease is not None:
            self._granted(lease)
        elif message.timeout is not None:
            self._timers.start(("acquire", request.id), message.timeout, _WaitOver(request.id))
        self._note_excess()  # now: it may be given back before the targets are counted
        self._count_soon()
        return request.id

    def _cancel(self, message: CancelAcquire) -> bool:
        if self._book.cancel(message.lease):
            self._timers.cancel(("acquire", message.lease))
            self._tell(AcquireRefused(message.lease, CANCELLED))
            self._count_soon()
            return True
        return self._give_back(message.lease, reuse=True)

    def _release(self, message: ReleaseExecutor) -> bool:
        return self._give_back(message.lease, reuse=message.reuse)

    def _renew(self, message: RenewLease) -> bool:
        if not self._book.holds(message.lease):
            return False
        self._limit(message.lease, message.ttl)
        return True

    def _set_warm(self, message: SetWarm) -> None:
        for name, warm in message.by_profile.items():
            if warm > (most := self._most(name)):
                raise Refused(f"SetWarm.warm = {warm}: must be at most max_executors of profile {name!r} ({most})")
        self._warm |= message.by_profile
        self._state.forgive()
        self._count()
        self._allocator.tell(self._state.target())
        self._note_excess()

    # ── from others ─────────────────────────────────────────────────────────────────────────────────────────────

    def _counted(self, _: AllocatorStatus) -> None:
        if self._state.starts.failed is not None:
            self._refuse_all(self._state.starts.failed)

    def _taken_over(self, _: TakenOver) -> None:
        """This driver writes from now on: look at all executors, those of earlier drivers among them."""
        if self._profiles:
            self._state.unlooked |= dict.fromkeys(self._state.ledger.entries.keys() - self._state.unlooked.keys())

    # ── timers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _wait_over(self, due: _WaitOver) -> None:
        request = self._book.waiter(due.lease)
        if request is not None:
            self._book.cancel(due.lease)
            self._tell(AcquireRefused(due.lease, self._held_up(request.profile), timed_out=True))
            self._count_soon()

    def _lease_over(self, due: _LeaseOver) -> None:
        lease = self._book.release(due.lease)
        if lease is not None:
            logger.warning(
                "lease expired: lease=%d executor=%d holder=%s", lease.id, lease.executor_id, lease.request.holder
            )
            self._tell(LeaseExpired(lease.id, lease.executor_id))
            self._discard_unless_ending(lease.executor_id, EXPIRED)

    def _age_reached(self, due: _AgeReached) -> None:
        """Discard an executor that nobody has. While the pool is not full, wait: many may be of the same age."""
        executor_id, entry = due.executor_id, self._state.ledger.entries[due.executor_id]
        if self._book.is_leased(executor_id):
            return
        lacks = self._book.idle(entry.profile) < self._warm[entry.profile]
        if lacks and self._book.is_idle(executor_id, entry.profile):
            self._timers.start(("age", executor_id), AGE_RETRY, due)
        else:
            self._discard_unless_ending(executor_id, AGED)

    def _excess_over(self, _: _ExcessOver) -> None:
        if not self._why_not():
            for name, number in self._least_excess.items():
                self._discard(self._book.newest_idle(name, number), SCALED_DOWN)
        self._count_soon()

    # ── leases ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _granted(self, lease: Lease) -> None:
        self._timers.cancel(("acquire", lease.id))
        self._limit(lease.id, lease.request.ttl)
        entry = self._state.ledger.entries[lease.executor_id]
        self._tell(ExecutorAcquired(lease.id, living_executor(entry, self._state.states, self._clock.now())))

    def _limit(self, lease_id: int, ttl: timedelta | None) -> None:
        if ttl is None:
            self._timers.cancel(("lease", lease_id))
        else:
            self._timers.start(("lease", lease_id), ttl, _LeaseOver(lease_id))

    def _give_back(self, lease_id: int, *, reuse: bool) -> bool:
        lease = self._book.release(lease_id)
        if lease is None:
            return False
        self._timers.cancel(("lease", lease_id))
        entry = self._state.ledger.entries[lease.executor_id]
        if reuse and self._is_reusable(entry):
            self._offer(entry)
        else:
            self._discard_unless_ending(lease.executor_id, RELEASED)
        self._count_soon()
        return True

    def _refuse_all(self, reason: str) -> None:
        for request in self._book.waiters():
            self._book.cancel(request.id)
            self._timers.cancel(("acquire", request.id))
            self._tell(AcquireRefused(request.id, reason))

    def _held_up(self, profile: str) -> str:
        """Return why no executor was ready in time."""
        status = self._state.profiles.get(profile)
        why = None if status is None else status.blocked
        if why is None and self._state.hold is not None:
            why = "the fleet is on hold"
        if why is None and self._book.leased(profile) >= self._most(profile):
            why = f"all {self._most(profile)} are leased (max_executors)"
        waited = f"no executor of profile {profile!r} was ready in time"
        return waited if why is None else f"{waited}: {why}"

    # ── executors ───────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, executor_id: int, ended: EndedExecutor | None) -> bool:
        """Look at an executor that has changed. Return whether an earlier driver's lives."""
        entry = self._state.ledger.entries.get(executor_id)
        if entry is None or entry.profile not in self._profiles:
            return False
        if entry.removed_at is not None:
            self._timers.cancel(("age", executor_id))
            lease = self._book.removed(executor_id, entry.profile)
            if lease is not None:
                assert ended is not None, "the driver knows of an executor that is leased"
                self._timers.cancel(("lease", lease.id))
                self._tell(LeaseLost(lease.id, executor_id, ended.removal.reason))
            return False
        if not self._state.ledger.allocated(executor_id):
            return entry.counts and self._state.ledger.has_begun and not self._why_not()
        if self._is_ready(entry):
            self._offer(entry)
        else:
            self._book.withdraw(executor_id, entry.profile, ends=not entry.counts)
        return False

    def _is_ready(self, entry: LedgerEntry) -> bool:
        state = self._state.states.get(entry.executor_id)  # it may be older than what was seen: a holder needs the IP
        if not isinstance(state, PodRunning) or state.pod.uid != entry.uid:
            return False
        if not entry.counts or entry.decommissioned or not entry.active:
            return False
        return entry.running if self._profiles[entry.profile].ready == "running" else entry.is_registered

    def _is_reusable(self, entry: LedgerEntry) -> bool:
        most = self._profiles[entry.profile].max_leases
        return self._is_ready(entry) and (most is None or self._book.times_leased(entry.executor_id) < most)

    def _offer(self, entry: LedgerEntry) -> None:
        """Offer a ready executor, unless it is too old."""
        max_age = self._profiles[entry.profile].max_age
        if max_age is not None and not self._timers.active(("age", entry.executor_id)):
            began = self._clock.monotonic() if entry.running_at is None else entry.running_at
            left = max_age - timedelta(seconds=self._clock.monotonic() - began)
            if left <= timedelta():
                self._age_reached(_AgeReached(entry.executor_id))
                return
            self._timers.start(("age", entry.executor_id), left, _AgeReached(entry.executor_id))
        lease = self._book.offer(entry.executor_id, entry.profile)
        if lease is not None:
            self._granted(lease)

    def _discard_unless_ending(self, executor_id: int, message: str) -> None:
        """Discard an executor that nobody has; one that ends anyway keeps the reason for which it does."""
        entry = self._state.ledger.current(executor_id)
        if entry is not None and entry.counts:
            self._discard((executor_id,), message)

    def _discard(self, executor_ids: Iterable[int], message: str) -> None:
        """End executors that nobody has. They count until they terminate: there are never more than `max_executors`."""
        ids = tuple(executor_ids)
        if not ids or self._has_ended:
            return
        for executor_id in ids:
            self._book.withdraw(executor_id, self._state.ledger.entries[executor_id].profile, ends=True)
        self._kills.end(ids, grace=NO_GRACE, message=message, is_loss=False)
        self._count_soon()

    # ── targets ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _count_soon(self) -> None:
        """Count the targets once for all that happens together."""
        if not self._timers.active("count"):
            self._timers.start("count", TOGETHER, _CountDue())

    def _count_due(self, _: _CountDue) -> None:
        if self._has_ended:
            return
        if self._count():
            self._allocator.tell(self._state.target())
        self._note_excess()

    def _count(self) -> bool:
        """Set the target of each profile with a pool. Return whether one is another."""
        targets = {name: self._target(name) for name in self._profiles}
        is_new = any(self._state.totals.get(name) != target for name, target in targets.items())
        self._state.totals |= targets
        return is_new

    def _target(self, profile: str) -> int:
        wanted = self._book.leased(profile) + self._book.waiting(profile) + self._warm[profile]
        return min(wanted, self._most(profile))

    def _most(self, profile: str) -> int:
        most = self._profiles[profile].max_executors
        return LARGEST_FLEET if most is None else most

    def _note_excess(self) -> None:
        """Let idle executors end that were in excess for a while: a burst that is over may come again."""
        excess = {
            name: max(0, self._book.idle(name) + self._book.leased(name) - self._target(name))
            for name in self._profiles
        }
        if self._timers.active("idle"):
            self._least_excess = {name: min(number, excess[name]) for name, number in self._least_excess.items()}
        elif any(excess.values()):
            self._least_excess = excess
            self._timers.start("idle", self._idle_timeout, _ExcessOver())
