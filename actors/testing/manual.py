"""A clock that only a test moves, and timers that only a test fires."""

from __future__ import annotations

import heapq
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from actors.runtime import Moment, later

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ManualClock", "ManualTimers"]

EPOCH: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""The beginning of virtual time: every run has the same timestamps."""

MONOTONIC_EPOCH: Final[Moment] = 1000.0
"""The first value of `monotonic`. Not 0, to find code that takes 0.0 for "never"."""


@final
class ManualClock:
    """Monotonic and wall clock time move together, in whole microseconds: small steps add up exactly."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start
        self.elapsed = timedelta(0)
        """How far the clock has been moved."""
        self._monotonic = MONOTONIC_EPOCH

    def monotonic(self) -> Moment:
        """Return virtual seconds, from an origin that is not zero."""
        return self._monotonic

    def now(self) -> datetime:
        """Return the virtual wall clock time."""
        return self._start + self.elapsed

    def move_to(self, elapsed: timedelta) -> None:
        """Move the clock to `elapsed`, never back. Fires no timer: see `Kit.advance`."""
        if elapsed < self.elapsed:
            raise ValueError(f"time does not go back from {self.elapsed} to {elapsed}")
        self.elapsed = elapsed
        self._monotonic = later(MONOTONIC_EPOCH, elapsed)


@final
class _Callback:
    __slots__ = ("call", "due", "order")

    def __init__(self, due: timedelta, order: int, call: Callable[[], None]) -> None:
        self.due = due
        self.order = order
        self.call: Callable[[], None] | None = call

    def __lt__(self, other: _Callback) -> bool:
        return (self.due, self.order) < (other.due, other.order)

    def cancel(self) -> None:
        self.call = None


@final
class ManualTimers:
    """A `TimerService` that fires on demand, in the order of due time, then of scheduling."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._heap: list[_Callback] = []
        self._scheduled = 0

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> _Callback:
        """Call `callback` once the clock has moved by `delay`."""
        self._scheduled += 1
        entry = _Callback(self._clock.elapsed + max(delay, timedelta(0)), self._scheduled, callback)
        heapq.heappush(self._heap, entry)
        return entry

    @property
    def pending(self) -> int:
        """The number of pending callbacks."""
        return sum(entry.call is not None for entry in self._heap)

    def next_due(self) -> timedelta | None:
        """Return when the next callback is due, as `ManualClock.elapsed`; None if there is none."""
        while self._heap and self._heap[0].call is None:
            heapq.heappop(self._heap)
        return self._heap[0].due if self._heap else None

    def fire_next(self) -> None:
        """Move the clock to the time of the next callback, unless that has passed, and call it."""
        due = self.next_due()
        if due is None:
            raise LookupError("no timer is pending")
        entry = heapq.heappop(self._heap)
        self._clock.move_to(max(due, self._clock.elapsed))
        call, entry.call = entry.call, None
        assert call is not None
        call()
