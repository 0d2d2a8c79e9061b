"""`Lease` and `LeasedExecutor`, as their holder has them, and `DoorLeases`: what the Backend has said of each.

There is no lock: each step of either side is one operation of a dictionary.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, final

from actors.errors import ExecutorLost
from actors.fleet.waiting import Waitable
from actors.messages import AcquireRefused, Executor, ExecutorAcquired, LeaseExpired, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DoorLeases", "Lease", "LeasedExecutor"]

FIELDS: Final = tuple(Executor.__dataclass_fields__)


@final
class Lease:
    """A leased executor: nobody else has it until the lease ends. Made by `Fleet.acquire` and `Fleet.acquire_lease`.

    `executor` is the executor as it was when it was acquired, and `id` the number of the lease, as messages have it.
    """

    def __init__(self, lease_id: int, executor: Executor) -> None:
        self.id: Final = lease_id
        self.executor: Final = LeasedExecutor(*(getattr(executor, name) for name in FIELDS), lease=self)
        self.end: LeaseLost | LeaseExpired | None = None
        """Why it ended before it was released; written by the fleet's actor."""

    def __repr__(self) -> str:
        return f"Lease(id={self.id}, executor_id={self.executor.id})"

    def check(self) -> None:
        """Check that the lease has not ended, as far as the fleet knows. Waits for nothing.

        Raises:
            ExecutorLost: the executor has ended, or the time of the lease is over.
        """
        match self.end:
            case LeaseLost(reason=reason):
                raise ExecutorLost(reason.message, reason)
            case LeaseExpired(executor_id=executor_id):
                raise ExecutorLost(f"the lease of executor {executor_id} has expired")
            case None:
                pass


@final
@dataclass(frozen=True, slots=True)
class LeasedExecutor(Executor):
    """An executor that a program has leased, as of when it was acquired."""

    lease: Lease = field(kw_only=True, repr=False, compare=False)
    """The lease: `lease.check()` raises an error if it has ended."""


Answer: TypeAlias = Lease | AcquireRefused


@final
class DoorLeases:
    """The leases of one door, and those that its program waits for."""

    def __init__(self) -> None:
        self._answers: dict[int, Answer] = {}
        """What nobody has taken yet."""
        self._held: dict[int, Lease] = {}
        self._dropped: set[int] = set()
        """Those that are cancelled, and were not answered yet."""
        self._waiters: dict[int, Waitable] = {}

    # ── for the fleet's actor ───────────────────────────────────────────────────────────────────────────────────

    def answered(self, event: ExecutorAcquired | AcquireRefused) -> None:
        """Take in what has become of a request."""
        answer: Answer
        if isinstance(event, ExecutorAcquired):
            answer = self._held[event.lease] = Lease(event.lease, event.executor)
        else:
            answer = event
        self._answers[event.lease] = answer
        if event.lease in self._dropped:  # after the answer is there: either this or `drop` removes it
            self._dropped.discard(event.lease)
            self._forget(event.lease)
        if (waiter := self._waiters.get(event.lease)) is not None:
            waiter.changed()

    def ended(self, event: LeaseLost | LeaseExpired) -> None:
        """Take in the end of a lease."""
        lease = self._held.pop(event.lease, None)
        if lease is not None:
            lease.end = event

    def wake(self) -> None:
        """Let everybody who waits look again."""
        for waiter in list(self._waiters.values()):
            waiter.changed()

    # ── for every thread ────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def awaited(self, lease_id: int) -> Iterator[Waitable]:
        """Return what changes when this request is answered, within the context."""
        waiter = self._waiters[lease_id] = Waitable()
        try:
            yield waiter
        finally:
            self._waiters.pop(lease_id, None)

    def has_answer(self, lease_id: int) -> bool:
        """Whether the request was answered."""
        return lease_id in self._answers

    def take(self, lease_id: int) -> Answer | None:
        """Return the answer, None if there is none."""
        return self._answers.pop(lease_id, None)

    def drop(self, lease_id: int) -> None:
        """Forget a request, and its answer whenever it comes."""
        self._dropped.add(lease_id)
        if lease_id in self._answers:
            self._dropped.discard(lease_id)
            self._forget(lease_id)

    def release(self, lease_id: int) -> None:
        """Forget a lease that was given back."""
        self._held.pop(lease_id, None)

    def _forget(self, lease_id: int) -> None:
        self._answers.pop(lease_id, None)
        self._held.pop(lease_id, None)
