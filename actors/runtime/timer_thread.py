"""`TimerThread`: the production `TimerService`, one daemon thread for all timers of a system."""

from __future__ import annotations

import heapq
import threading
from itertools import count
from typing import TYPE_CHECKING, Final, final

from actors.runtime.clock import Clock, SystemClock, later
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from actors.runtime.clock import Moment

__all__ = ["TimerThread"]

logger = get_logger(__name__)

LONGEST_WAIT: Final = 5.0
"""Seconds. A wait stands still while the machine sleeps, the clock does not: afterwards timers are late by so much."""

FEW: Final = 64
"""Up to this many cancelled entries may stay in the heap until they are due."""


@final
class _Entry:
    """A callback in the heap. `order` keeps callbacks of the same moment in the order of their scheduling."""

    __slots__ = ("_thread", "callback", "due", "order")

    def __init__(self, thread: TimerThread, due: Moment, order: int, callback: Callable[[], None]) -> None:
        self._thread = thread
        self.due = due
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: _Entry) -> bool:
        return (self.due, self.order) < (other.due, other.order)

    def cancel(self) -> None:
        self._thread.forget(self)


@final
class TimerThread:
    """A heap and a condition. The first timer starts the thread; `close` stops it and drops all timers."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._heap: list[_Entry] = []
        self._order = count()
        self._cancelled = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> _Entry:
        """Call `callback` in the timer thread after `delay`. After `close` it is never called.

        Raises:
            RuntimeError: the thread could not be started; nothing is scheduled.
        """
        with self._changed:
            entry = _Entry(self, later(self._clock.monotonic(), delay), next(self._order), callback)
            if self._closed:
                entry.callback = None
                return entry
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="executor-pods/timers", daemon=True)
                thread.start()
                self._thread = thread
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed.notify()
        return entry

    def forget(self, entry: _Entry) -> None:
        """Cancel an entry. Rebuild the heap once most of its entries are cancelled."""
        with self._changed:
            if entry.callback is None:
                return
            entry.callback = None
            self._cancelled += 1
            if self._cancelled > max(FEW, len(self._heap) // 2):
                self._heap = [waiting for waiting in self._heap if waiting.callback is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def close(self) -> None:
        """Drop every timer and stop the thread. Wait for its end, unless the caller is that thread."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            try:
                callback()
            except BaseException:
                logger.exception("timer callback failed")
            del callback  # it may hold much memory, and the wait for the next one may be long

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next callback and return it; None after `close`."""
        with self._changed:
            while not self._closed:
                if not self._heap:
                    self._changed.wait()
                    continue
                wait = self._heap[0].due - self._clock.monotonic()
                if wait > 0:
                    self._changed.wait(min(wait, LONGEST_WAIT))
                    continue
                entry = heapq.heappop(self._heap)
                callback, entry.callback = entry.callback, None
                if callback is not None:
                    return callback
                self._cancelled = max(0, self._cancelled - 1)
            return None
