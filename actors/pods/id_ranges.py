"""`IdRanges`: an immutable set of executor ids. Ids are allocated in order, so a million are mostly one range."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["IdRanges"]


class IdRanges(msgspec.Struct, frozen=True):
    """A set of executor ids."""

    spans: tuple[tuple[int, int], ...] = ()
    """The first and the last id of each range, ascending. No two ranges touch."""

    @classmethod
    def of(cls, ids: Iterable[int]) -> IdRanges:
        """Return the set of these ids."""
        return cls(_joined(sorted((executor_id, executor_id) for executor_id in ids)))

    def union(self, other: IdRanges) -> IdRanges:
        """Return the ids of both."""
        return IdRanges(_joined(sorted((*self.spans, *other.spans))))

    def __contains__(self, executor_id: int) -> bool:
        after = bisect_right(self.spans, executor_id, key=itemgetter(0))
        return after > 0 and executor_id <= self.spans[after - 1][1]


def _joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join the ranges, in ascending order, that touch."""
    joined: list[tuple[int, int]] = []
    for first, last in spans:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return tuple(joined)
