"""Time as a collaborator: the only module that asks the operating system what time it is.

Everything else is given a `Clock`, so that a test can run hours of a fleet's life in virtual time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Two times that must not be mixed up."""

    def monotonic(self) -> float:
        """Seconds since some moment, never going back: for delays and ages within this process."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC: only to compare with timestamps that the API made."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """See `time.monotonic`."""
        return time.monotonic()

    def now(self) -> datetime:
        """See `datetime.now`."""
        return datetime.now(UTC)
