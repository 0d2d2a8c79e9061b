"""ConcurrencyLimit: how many requests to have in flight, by how the server answers them. Pure.

It grows while the server keeps up and shrinks when it does not: additive increase, multiplicative decrease, as in TCP.
Whether the answers come faster with more in flight is no sign: they take longer in proportion, and the server is still
done sooner. Therefore only answers that take long both by themselves and compared to what is usual shrink the limit.

The server may be slow for another reason, such as a webhook. Then a smaller limit is of no use: what the answers take
at the lowest limit is usual from then on. One request that hangs changes no median.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.runtime import elapsed

if TYPE_CHECKING:
    from actors.runtime import Moment

__all__ = ["ConcurrencyLimit"]

FIRST: Final = 16
"""The limit at the start."""

LOWEST: Final = 4
"""Slow answers shrink the limit no further, and after a 429 it soon is as large again."""

SLOW: Final = timedelta(milliseconds=500)
"""A shorter median is no reason to send less. Kubernetes aims at 1 s for 99 % of the calls that change an object."""

RISE: Final = 2.0
"""A median this many times as long as usual is one."""

SHRINK: Final = 0.7
"""What slow answers leave of the limit, as in TCP's CUBIC (RFC 9438 §4.6)."""

FEWEST_ANSWERS: Final = 8
"""A median is that of as many answers as the limit has requests, and at least of this many."""


class ConcurrencyLimit:
    """A limit from 1 to `most`. Requests are told apart by tickets, so no step of a clock confuses them."""

    def __init__(self, most: int) -> None:
        self.now = min(FIRST, most)
        self._most = most
        self._slow_from = most
        """Below it each answer raises the limit by one, from there on each window of answers."""
        self._tickets = 0
        self._stale = 0
        """Requests up to this ticket were sent before the limit shrank: their answers say nothing about it."""
        self._window: list[timedelta] = []
        self._usual = timedelta.max
        """The shortest median, or the last one at the lowest limit."""

    def sent(self) -> int:
        """Return the ticket of a request that is sent now."""
        self._tickets += 1
        return self._tickets

    def answered(self, ticket: int, sent_at: Moment, now: Moment, *, in_flight: int) -> None:
        """Note an answer, and how many requests were in flight: the limit grows only if they used it up."""
        if ticket <= self._stale:
            return
        self._window.append(elapsed(sent_at, now))
        used_up = in_flight >= self.now
        if used_up and self.now < self._slow_from:
            self._grow()
        if len(self._window) >= max(self.now, FEWEST_ANSWERS):
            self._end_window(used_up=used_up)

    def refused(self, ticket: int) -> None:
        """Note a 429: continue with one request at a time, and soon with half as many as before."""
        if ticket > self._stale:
            self._shrink(1, max(self.now // 2, LOWEST))

    def _end_window(self, *, used_up: bool) -> None:
        took = sorted(self._window)[len(self._window) // 2]
        self._window.clear()
        self._usual = min(self._usual, took)
        if took > SLOW and took / RISE > self._usual:
            if self.now > LOWEST:
                fewer = max(int(self.now * SHRINK), LOWEST)
                self._shrink(fewer, fewer)
            else:
                self._usual = took
        elif used_up and self.now >= self._slow_from:
            self._grow()

    def _grow(self) -> None:
        self.now = min(self.now + 1, self._most)

    def _shrink(self, now: int, slow_from: int) -> None:
        self.now, self._slow_from, self._stale = now, slow_from, self._tickets
        self._window.clear()
