"""`Clock`: the only module that reads the operating system's time.

All other code gets a `Clock`, so that a test runs hours of a fleet in virtual time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeAlias

__all__ = ["Clock", "Moment", "SystemClock", "elapsed", "later"]

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
        """Return seconds since an arbitrary moment, never decreasing: for delays and ages in this process."""

    def now(self) -> datetime:
        """Return the wall clock time in UTC, timezone-aware: only to compare with timestamps of the API."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> Moment:
        """See `time.monotonic`."""
        return time.monotonic()

    def now(self) -> datetime:
        """See `datetime.now`."""
        return datetime.now(UTC)
