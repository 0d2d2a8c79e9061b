"""How many requests a second the RequestPool may send: a token bucket that holds one second's worth.

Pure: it is told the time and says how long to wait. Nothing here sleeps.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from actors.runtime import Moment

__all__ = ["TokenBucket"]

NOW: Final = timedelta()

TOLERANCE: Final = 1e-6
"""Seconds that count as none: a timer is no finer, and a float of seconds rounds."""


class TokenBucket:
    """`rate` requests a second on average, and as many (at least one) at once after a pause; None means no bound.

    Kept as the time at which the bucket would be full again (the generic cell rate algorithm): one number, and no
    rounding that adds up.
    """

    def __init__(self, rate: float | None) -> None:
        self._interval = 0.0 if rate is None else 1.0 / rate
        self._burst = max(0.0, 1.0 - self._interval)
        """How many seconds ahead of the even pace requests may be."""
        self._full_at = -math.inf

    def spend(self, now: Moment) -> timedelta:
        """Spend one request and return zero; or, if none is left, return how long until there is one again."""
        full_at = max(self._full_at, now)
        ahead = full_at - now - self._burst
        if ahead > TOLERANCE:
            return timedelta(microseconds=math.ceil(ahead * 1e6))
        self._full_at = full_at + self._interval
        return NOW
