"""Timers of actors, and what calls them when they are due.

`Timers` are the keyed timers of one actor: each sends a message that the actor handles in its own thread. A timer
belongs to the incarnation that started it. Its message may already be in the mailbox when the timer is cancelled or
replaced: the actor never receives such a message.

`TimerHeap` has callbacks by the moment at which they are due; the `Loop` of an `ActorSystem` calls those of its actors,
and a `TimerThread` those of who has no actors.
"""

from __future__ import annotations

import heapq
import math
import threading
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from actors.runtime.clock import Clock, SystemClock, later
from actors.runtime.mailbox import Signal
from actors.runtime.threads import start_thread
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from actors.runtime.clock import Moment

__all__ = ["Entry", "Scheduled", "TimerDue", "TimerHeap", "TimerService", "TimerThread", "Timers"]

logger = get_logger(__name__)

LONGEST_WAIT: Final = 5.0
"""Seconds. A wait stands still while the machine sleeps, the clock does not: afterwards timers are late by so much."""

NEVER: Final = math.inf
"""The moment at which the next of no callbacks is due."""

FEW: Final = 64
"""Up to this many cancelled entries may stay in the heap until they are due."""


class Scheduled(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Do not call the callback, unless it runs already. May be called at any time, also twice."""


class TimerService(Protocol):
    """Calls callbacks after a delay, in any thread. A callback must be short and must not block."""

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> Scheduled:
        """Call `callback` once after `delay`; with a delay that is not positive, as soon as possible."""


@final
@dataclass(slots=True, eq=False)
class TimerDue(Signal):
    """Timer `key` is due. Ignored if the timer was cancelled or replaced since."""

    key: Hashable
    message: object


@dataclass(slots=True)
class _Timer:
    due: TimerDue
    interval: timedelta | None
    scheduled: Scheduled


@final
class Timers:
    """Keyed timers. Only the actor's own thread may use them."""

    def __init__(self, service: TimerService, post: Callable[[TimerDue], None]) -> None:
        self._service = service
        self._post = post
        self._timers: dict[Hashable, _Timer] = {}

    def start(self, key: Hashable, delay: timedelta, message: object) -> None:
        """Receive `message` once after `delay`. Replaces the timer of this key."""
        self._arm(key, delay, message, None)

    def every(self, key: Hashable, interval: timedelta, message: object) -> None:
        """Receive `message` every `interval`, counted from the end of the last handling: a slow actor gets fewer.

        Replaces the timer of this key.
        """
        if interval <= timedelta(0):
            raise ValueError(f"an interval must be positive, not {interval}")
        self._arm(key, interval, message, interval)

    def cancel(self, key: Hashable) -> None:
        """Cancel this key's timer, if there is one."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.scheduled.cancel()

    def cancel_all(self) -> None:
        """Cancel all timers."""
        for key in list(self._timers):
            self.cancel(key)

    def active(self, key: Hashable) -> bool:
        """Whether this key's message is still to come. True while a repeated one is being handled."""
        return key in self._timers

    def handle(self, due: TimerDue, receive: Callable[[Any], object]) -> None:
        """Pass the message to `receive`, unless its timer was cancelled or replaced."""
        timer = self._timers.get(due.key)
        if timer is None or timer.due is not due:
            return
        if timer.interval is None:
            del self._timers[due.key]
        try:
            receive(due.message)
        finally:
            if timer.interval is not None and self._timers.get(due.key) is timer:
                self._arm(due.key, timer.interval, due.message, timer.interval)

    def _arm(self, key: Hashable, delay: timedelta, message: object, interval: timedelta | None) -> None:
        self.cancel(key)
        due = TimerDue(key, message)
        self._timers[key] = _Timer(due, interval, self._service.schedule(delay, lambda: self._post(due)))


@final
class Entry:
    """A callback in the heap; None once it is taken or cancelled."""

    __slots__ = ("_heap", "callback")

    def __init__(self, heap: TimerHeap, callback: Callable[[], None] | None) -> None:
        self._heap = heap
        self.callback = callback

    def cancel(self) -> None:
        """See `Scheduled`."""
        self._heap.forget(self)


@final
class TimerHeap:
    """Thread-safe by the lock given, which must be re-entrant. After `close` it keeps nothing."""

    def __init__(self, clock: Clock, lock: AbstractContextManager[Any]) -> None:
        self._clock = clock
        self._lock = lock
        self._entries: list[tuple[Moment, int, Entry]] = []
        """With the moment at which each is due, and a number: callbacks of one moment are called in their order."""
        self._order = count()
        self._cancelled = 0
        self._closed = False
        self.due: Moment = NEVER
        """No callback is due before this. Read without the lock."""

    def add(self, delay: timedelta, callback: Callable[[], None]) -> tuple[Entry, bool]:
        """Add a callback. Return its entry, and whether it is the next one."""
        with self._lock:
            if self._closed:
                return Entry(self, None), False
            entry, moment = Entry(self, callback), later(self._clock.monotonic(), delay)
            heapq.heappush(self._entries, (moment, next(self._order), entry))
            self.due = min(self.due, moment)
            return entry, self._entries[0][2] is entry

    def forget(self, entry: Entry) -> None:
        """Cancel an entry. Rebuild the heap once most of its entries are cancelled."""
        with self._lock:
            if entry.callback is None:
                return
            entry.callback = None
            self._cancelled += 1
            if self._cancelled > max(FEW, len(self._entries) // 2):
                self._entries = [waiting for waiting in self._entries if waiting[2].callback is not None]
                heapq.heapify(self._entries)
                self._cancelled = 0

    def wait(self) -> float | None:
        """Return for how many seconds to wait before looking again; None if there is nothing to wait for."""
        with self._lock:
            self._find_due()
            return None if self.due == NEVER else min(max(0.0, self.due - self._clock.monotonic()), LONGEST_WAIT)

    def take(self) -> Callable[[], None] | None:
        """Remove and return the next callback if it is due."""
        with self._lock:
            self._find_due()
            if self.due > self._clock.monotonic():
                return None
            _, _, entry = heapq.heappop(self._entries)
            callback, entry.callback = entry.callback, None
            return callback

    def _find_due(self) -> None:
        """Find when the next callback is due. Drop the cancelled entries before it."""
        while self._entries and self._entries[0][2].callback is None:
            heapq.heappop(self._entries)
            self._cancelled = max(0, self._cancelled - 1)
        self.due = self._entries[0][0] if self._entries else NEVER

    def close(self) -> None:
        """Drop all callbacks, and later ones."""
        with self._lock:
            self._closed = True
            self._entries.clear()


@final
class TimerThread:
    """A heap and a condition. A timer starts the thread if there is none; `close` stops it and drops all timers."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._changed = threading.Condition()
        self._heap = TimerHeap(clock or SystemClock(), self._changed)
        self._thread: threading.Thread | None = None
        self._closed = False

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> Entry:
        """Call `callback` in the timer thread after `delay`. After `close` it is never called.

        Raises:
            NoThread: the thread could not be started; nothing is scheduled.
        """
        with self._changed:
            if (self._thread is None or not self._thread.is_alive()) and not self._closed:
                self._thread = start_thread(self._run, "executor-pods/timers")
            entry, is_next = self._heap.add(delay, callback)
            if is_next:
                self._changed.notify()
        return entry

    def close(self) -> None:
        """Drop every timer and stop the thread. Wait for its end, unless the caller is that thread."""
        with self._changed:
            self._closed = True
            self._heap.close()
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
                if (callback := self._heap.take()) is not None:
                    return callback
                self._changed.wait(self._heap.wait())
            return None
