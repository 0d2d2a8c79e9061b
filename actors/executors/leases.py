"""`LeaseBook`: which executors are leased, which are idle, and who waits for one, of each profile with a pool.

It knows no time and sends no message: every method returns what follows. Each takes constant time, whatever waits.
Waiting is fair: an executor that becomes idle goes to whoever has waited longest.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

__all__ = ["AcquireRequest", "Lease", "LeaseBook"]


class AcquireRequest(NamedTuple):
    """Somebody asks for an executor."""

    id: int
    """The lease's, once it is granted."""
    profile: str
    ttl: timedelta | None = None
    """How long the lease lasts; None: until it is given back."""
    holder: str = ""
    """Who asks, for people."""


class Lease(NamedTuple):
    """An executor that one holder has."""

    id: int
    executor_id: int
    request: AcquireRequest

    @property
    def profile(self) -> str:
        """The profile of the executor."""
        return self.request.profile


class _Pool:
    """The executors and waiters of one profile."""

    def __init__(self) -> None:
        self.idle: OrderedDict[int, None] = OrderedDict()
        """The executors that nobody has, the longest idle first."""
        self.waiting: OrderedDict[int, AcquireRequest] = OrderedDict()
        """The requests by id, the oldest first. While somebody waits, none is idle."""
        self.leased = 0
        self.ending = 0
        """How many of the leased executors are about to end."""


class LeaseBook:
    """The leases of one Backend. `profiles` are those with a pool."""

    def __init__(self, profiles: Iterable[str] = ()) -> None:
        self._pools = {name: _Pool() for name in profiles}
        self._leases: dict[int, Lease] = {}
        self._by_executor: dict[int, Lease] = {}
        self._waiting: dict[int, _Pool] = {}
        self._ending: set[int] = set()
        """The leased executors that are about to end."""
        self._counts: dict[int, int] = {}
        """How often each executor was leased."""

    @property
    def profiles(self) -> frozenset[str]:
        """The profiles with a pool."""
        return frozenset(self._pools)

    # ── what there is ───────────────────────────────────────────────────────────────────────────────────────────

    def idle(self, profile: str) -> int:
        """Return how many executors nobody has."""
        return len(self._pools[profile].idle)

    def leased(self, profile: str) -> int:
        """Return how many executors are leased, without those that are about to end."""
        pool = self._pools[profile]
        return pool.leased - pool.ending

    def waiting(self, profile: str) -> int:
        """Return how many requests wait."""
        return len(self._pools[profile].waiting)

    def waiters(self) -> list[AcquireRequest]:
        """Return all requests that wait, those of each profile in their order."""
        return [request for pool in self._pools.values() for request in pool.waiting.values()]

    def waiter(self, request_id: int) -> AcquireRequest | None:
        """Return a request that waits, None if it does not."""
        pool = self._waiting.get(request_id)
        return None if pool is None else pool.waiting[request_id]

    def is_idle(self, executor_id: int, profile: str) -> bool:
        """Whether nobody has this executor, and it can be acquired."""
        return executor_id in self._pools[profile].idle

    def is_leased(self, executor_id: int) -> bool:
        """Whether somebody has this executor."""
        return executor_id in self._by_executor

    def holds(self, lease_id: int) -> bool:
        """Whether this lease was granted and has not ended."""
        return lease_id in self._leases

    def times_leased(self, executor_id: int) -> int:
        """Return how often this executor was leased."""
        return self._counts.get(executor_id, 0)

    # ── what holders do ─────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, request: AcquireRequest) -> Lease | None:
        """Grant the executor that was idle longest. None: the request waits."""
        pool = self._pools[request.profile]
        if pool.idle:
            executor_id, _ = pool.idle.popitem(last=False)
            return self._grant(request, executor_id, pool)
        pool.waiting[request.id] = request
        self._waiting[request.id] = pool
        return None

    def cancel(self, request_id: int) -> bool:
        """Forget a request. False: it does not wait."""
        pool = self._waiting.pop(request_id, None)
        if pool is not None:
            del pool.waiting[request_id]
        return pool is not None

    def release(self, lease_id: int) -> Lease | None:
        """End a lease; nobody has its executor then, and nobody can acquire it. None: there is no such lease."""
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            del self._by_executor[lease.executor_id]
            pool = self._pools[lease.profile]
            pool.leased -= 1
            if lease.executor_id in self._ending:
                self._ending.discard(lease.executor_id)
                pool.ending -= 1
        return lease

    # ── what becomes of executors ───────────────────────────────────────────────────────────────────────────────

    def offer(self, executor_id: int, profile: str) -> Lease | None:
        """An executor that nobody has is ready: grant it to the first that waits. None: it is idle, or leased."""
        pool = self._pools[profile]
        if executor_id in self._by_executor or executor_id in pool.idle:
            return None
        if not pool.waiting:
            pool.idle[executor_id] = None
            return None
        request_id, request = pool.waiting.popitem(last=False)
        del self._waiting[request_id]
        return self._grant(request, executor_id, pool)

    def withdraw(self, executor_id: int, profile: str, *, ends: bool) -> None:
        """An executor is not ready any more. If it `ends`, its lease no longer counts, but stays until it has ended."""
        pool = self._pools[profile]
        pool.idle.pop(executor_id, None)
        if ends and executor_id in self._by_executor and executor_id not in self._ending:
            self._ending.add(executor_id)
            pool.ending += 1

    def newest_idle(self, profile: str, number: int) -> tuple[int, ...]:
        """Return so many idle executors, or all, the newest first."""
        idle = reversed(self._pools[profile].idle)
        return tuple(executor_id for executor_id, _ in zip(idle, range(number), strict=False))

    def removed(self, executor_id: int, profile: str) -> Lease | None:
        """An executor has ended. Return the lease that is lost with it."""
        self._pools[profile].idle.pop(executor_id, None)
        self._counts.pop(executor_id, None)
        lease = self._by_executor.get(executor_id)
        return None if lease is None else self.release(lease.id)

    def _grant(self, request: AcquireRequest, executor_id: int, pool: _Pool) -> Lease:
        lease = Lease(request.id, executor_id, request)
        self._leases[lease.id] = self._by_executor[executor_id] = lease
        self._counts[executor_id] = self.times_leased(executor_id) + 1
        pool.leased += 1
        return lease
