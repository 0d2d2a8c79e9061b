"""`EventBuffer`: the events that one reader has not read yet, bounded.

When the buffer is full, later events are dropped until the reader has read what is there. It then gets `EventsMissed`
in their place, and the events after it. So memory stays bounded, order is kept, and nothing is lost silently.

There is no lock: Ctrl-C in the reader would leave it locked, and the fleet's actor could not continue. Only the writer
decides what is dropped, and each step of either side is one operation of a deque.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from actors.fleet.waiting import Waitable
from actors.messages import BackendFailed, BackendStopped, ToDriver

__all__ = ["Event", "EventBuffer", "EventsMissed"]


@dataclass(frozen=True, slots=True)
class EventsMissed:
    """The reader was too slow: at least one and at most `count` events were dropped here. `executors` is current."""

    count: int


LAST: Final = frozenset({BackendFailed, BackendStopped})
"""Messages after which no other comes."""

Event: TypeAlias = ToDriver | EventsMissed
"""What a reader of events gets."""


@final
class _Gap:
    """Stands for dropped events."""

    __slots__ = ("count", "is_read")

    def __init__(self) -> None:
        self.count = 1
        self.is_read = False


@final
class EventBuffer(Waitable):
    """Written by the fleet's actor, read by one reader in any thread.

    Args:
        size: how many events may wait.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._waiting: deque[ToDriver | _Gap] = deque()
        self._gap: _Gap | None = None
        """Stands at the end of the deque, and counts what is dropped until the reader takes it."""
        self.has_ended = False
        """No event will be added."""

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._waiting)

    def put(self, event: ToDriver) -> None:
        """Add an event, or count it as dropped. The last message is always added."""
        if type(event) in LAST:
            self._waiting.append(event)
            self.end()
            return
        gap = self._gap
        if gap is not None and not gap.is_read:
            gap.count += 1
            if not gap.is_read:
                return
            self._drop()  # the reader may have read the count before
        elif len(self._waiting) >= self._size:
            self._drop()
        else:
            self._gap = None
            self._waiting.append(event)
        self.changed()

    def end(self) -> None:
        """Add nothing any more. The reader still gets what is there."""
        self.has_ended = True
        self.changed()

    def has_news(self) -> bool:
        """Whether `take` returns an event, or no event will ever come."""
        return bool(self._waiting) or self.has_ended

    def take(self) -> Event | None:
        """Return the next event, None if there is none now."""
        try:
            event = self._waiting.popleft()
        except IndexError:
            return None
        if isinstance(event, _Gap):
            event.is_read = True
            return EventsMissed(event.count)
        return event

    def _drop(self) -> None:
        self._gap = _Gap()
        self._waiting.append(self._gap)
