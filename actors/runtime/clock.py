"""`Clock`: the only module that reads the operating system's time.

All other code gets a `Clock`, so that a test runs hours of a fleet in virtual time.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol, TypeAlias

__all__ = ["Clock", "Deadline", "Moment", "SystemClock", "elapsed", "later"]

Moment: TypeAlias = float
"""A reading of `Clock.monotonic()`, in seconds. Readings of two processes cannot be compared."""


def elapsed(since: Moment, now: Moment) -> timedelta:
    """Return the time from `since` to `now`."""
    return timedelta(seconds=now - since)


def later(moment: Moment, delay: timedelta) -> Moment:
    """Return the moment that is `delay` after `moment`."""
    return moment + delay.total_seconds()


class Clock(Protocol):
    """A monotonic clock and a wall clock."""

    def monotonic(self) -> Moment:
        """Return seconds since an arbitrary moment, never decreasing: for delays and ages in this process.

        It runs on while the process is stopped or the machine sleeps.
        """

    def now(self) -> datetime:
        """Return the wall clock time in UTC, timezone-aware: only to compare with timestamps of the API."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of a clock, for a thread that has no clock of its own."""

    moment: Moment
    clock: Clock

    @property
    def passed(self) -> bool:
        """Whether it is that moment or later."""
        return self.clock.monotonic() >= self.moment


def _find_boottime() -> int | None:
    """Return the id of the clock that runs while the machine sleeps, which `time.monotonic` on Linux does not."""
    with suppress(AttributeError, OSError):
        time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.CLOCK_BOOTTIME
    return None


_BOOTTIME: Final = _find_boottime()


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic if _BOOTTIME is None else partial(time.clock_gettime, _BOOTTIME))
    """See CLOCK_BOOTTIME in clock_gettime(2), on Linux; `time.monotonic` elsewhere. Every message asks for the time."""

    def now(self) -> datetime:
        """See `datetime.now`."""
        return datetime.now(UTC)
