"""Counting, cheap enough to be done always: one addition, no lock.

The one thing that threads share here without a message. Each of these objects has one writer, the actor (or, under its
lock, the client of the API) that it was given to; anybody may read, at any moment. What is read may be a moment old,
and two numbers that are read one after the other may be of two moments. Nothing is ever decided by them.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

__all__ = ["BOUNDS", "Counter", "Histogram"]

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds. From what a reaction takes to the limit of a call; what is longer counts as infinite."""


class Counter:
    """How often, by labels. Their values come from a small set that is known beforehand: never a name or an id."""

    __slots__ = ("_counts",)

    def __init__(self, *known: tuple[str, ...]) -> None:
        """Begin with these at 0: whoever looks for an increase sees the first one."""
        self._counts: dict[tuple[str, ...], int] = dict.fromkeys(known, 0)

    def add(self, *labels: str, by: int = 1) -> None:
        """Count."""
        self._counts[labels] = self._counts.get(labels, 0) + by

    def read(self) -> dict[tuple[str, ...], int]:
        """A copy, made in one step of the interpreter: the writer may go on meanwhile."""
        return self._counts.copy()


class Histogram:
    """How long, in seconds."""

    __slots__ = ("_buckets", "_sum")

    def __init__(self) -> None:
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._buckets[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def read(self) -> tuple[tuple[int, ...], float]:
        """How many took at most as long as each bound, and how many there were; and the sum of all."""
        return tuple(accumulate(self._buckets.copy())), self._sum
