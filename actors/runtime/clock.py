"""Time as a collaborator: the only module that asks the operating system what time it is.

Everything else is given a `Clock`, so that a test can run hours of a fleet's life in virtual time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeAlias

__all__ = ["Clock", "Moment", "SystemClock", "elapsed", "later"]

Moment: TypeAlias = float
"""A reading of `Clock.monotonic()`, in seconds. Only readings of one process can be compared."""


def elapsed(since: Moment, now: Moment) -> timedelta:
    """How long ago `since` was."""
    return timedelta(seconds=now - since)


def later(moment: Moment, delay: timedelta) -> Moment:
    """The moment `delay` after another."""
    return moment + delay.total_seconds()


class Clock(Protocol):
    """Two times that must not be mixed up."""

    def monotonic(self) -> Moment:
        """Seconds since some moment, never going back: for delays and ages within this process."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC: only to compare with timestamps that the API made."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> Moment:
        """See `time.monotonic`."""
        return time.monotonic()

    def now(self) -> datetime:
        """See `datetime.now`."""
        return datetime.now(UTC)
