"""TokenBucket: bounds how many requests an actor sends. Pure: the caller passes the time."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from actors.runtime import Moment

__all__ = ["TokenBucket"]

NOW: Final = timedelta()

TOLERANCE: Final = 1e-6
"""Shorter waits, in seconds, count as none: timers are no finer, and a float of seconds is rounded."""


class TokenBucket:
    """Allows `rate` requests a second on average, and after a pause a `burst`: without it as many, at least one.

    A rate of None means no bound. The state is the moment at which the bucket would be full again (the generic cell
    rate algorithm): one number, without rounding errors that add up.
    """

    def __init__(self, rate: float | None, *, burst: int | None = None) -> None:
        self._interval = 0.0 if rate is None else 1.0 / rate
        self._burst = max(0.0, 1.0 - self._interval) if burst is None else (burst - 1) * self._interval
        """How many seconds ahead of the even pace requests may be."""
        self._full_at = -math.inf

    def spend(self, now: Moment) -> timedelta:
        """Spend one token and return zero, or return the time until there is a token again."""
        full_at = max(self._full_at, now)
        ahead = full_at - now - self._burst
        if ahead > TOLERANCE:
            return timedelta(microseconds=math.ceil(ahead * 1e6))
        self._full_at = full_at + self._interval
        return NOW
