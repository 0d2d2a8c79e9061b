"""Counters and histograms that cost one addition and no lock.

They are the only objects that threads share without a message. Each has one writer: the actor that owns it, or the API
client under its own lock. Any thread may read at any moment; a value may be slightly old, and two values read one after
the other may not fit together. Counts are for metrics only: no decision depends on them.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

__all__ = ["BOUNDS", "Counter", "Histogram"]

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds, from the time of a reaction to the limit of a call; longer times count as infinite."""


class Counter:
    """Counts by labels. Label values come from a small set that is known in advance: never a name or an id."""

    __slots__ = ("_counts",)

    def __init__(self, *known: tuple[str, ...]) -> None:
        """Start `known` at 0, so that `increase()` sees the first count."""
        self._counts: dict[tuple[str, ...], int] = dict.fromkeys(known, 0)

    def add(self, *labels: str, by: int = 1) -> None:
        """Add `by` to the count of these labels."""
        self._counts[labels] = self._counts.get(labels, 0) + by

    def include(self, other: Counter) -> None:
        """Add all counts of another counter."""
        for labels, count in other.read().items():
            self.add(*labels, by=count)

    def read(self) -> dict[tuple[str, ...], int]:
        """Return a copy; the interpreter makes it in one step, so the writer need not stop."""
        return self._counts.copy()


class Histogram:
    """Durations in seconds, counted by bucket."""

    __slots__ = ("_buckets", "_sum")

    def __init__(self) -> None:
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._buckets[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def include(self, other: Histogram) -> None:
        """Add all durations of another histogram."""
        self._buckets = [mine + its for mine, its in zip(self._buckets, other._buckets, strict=True)]
        self._sum += other._sum

    def read(self) -> tuple[tuple[int, ...], float]:
        """Return the cumulative count for each bound, the total last, and the sum of all durations."""
        return tuple(accumulate(self._buckets.copy())), self._sum
