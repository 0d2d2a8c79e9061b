"""`EventBook`: the Events that were written or are to be written, a bounded number of them. A plain object."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from actors.recorder.occurrences import Occurrence

__all__ = ["MOST", "SILENCE", "EventBook", "Series"]

MOST: Final = 200
"""Events that are remembered: every kind of loss in a dozen profiles. Each takes a few kilobytes."""

SILENCE: Final = timedelta(hours=1)
"""After this long without an occurrence, the next one begins a new Event: a server keeps an Event for an hour
(`--event-ttl`), counted from its last change."""


@dataclass(slots=True, eq=False)
class Series:
    """Alike occurrences, as one Event."""

    latest: Occurrence
    first: datetime
    last: datetime
    count: int = 1
    written: int = 0
    """The count that the API has."""
    name: str | None = None
    """The Event's name, None before the first attempt to create it."""
    exists: bool = False
    """The Event was created."""


class EventBook:
    """What has occurred, as Events."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, ...], Series] = {}
        """In the order of their last occurrence."""

    def note(self, found: Occurrence, now: datetime) -> None:
        """Count an occurrence. If there are too many Events, the one that occurred least recently is forgotten."""
        key = (found.reason, *found.alike)
        series = self._series.pop(key, None)
        if series is None or now - series.last > SILENCE:
            series = Series(found, now, now)
        else:
            series.latest, series.last = found, now
            series.count += 1
        self._series[key] = series
        if len(self._series) > MOST:
            self._series.pop(next(iter(self._series)))

    def next(self) -> Series | None:
        """Return the Event to write next, None if the API has all: one that it does not have, else the oldest."""
        unwritten = [series for series in self._series.values() if series.count > series.written]
        return min(unwritten, key=lambda series: (series.exists, series.last), default=None)

    def forget(self, series: Series) -> None:
        """Forget an Event that the API refuses."""
        self._series = {key: other for key, other in self._series.items() if other is not series}

    def clear(self) -> None:
        """Forget all."""
        self._series.clear()
