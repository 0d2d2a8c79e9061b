"""ReportedEnds: remembers which ends were reported, so that each is reported exactly once. Pure.

An end may be observed many times, by several sources. A UID is remembered as long as the snapshot has its pod, and for
`executor.removed_executors_ttl` after that. The memory is therefore bounded by the visible pods and the recent ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cachetools import TTLCache

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from actors.runtime import Moment

__all__ = ["ReportedEnds"]


class ReportedEnds:
    """The pods and executors whose end was reported.

    Args:
        ttl: how long they are remembered once the pod is gone.
        timer: returns the current moment.
    """

    def __init__(self, ttl: timedelta, timer: Callable[[], Moment]) -> None:
        self._visible: set[str] = set()
        """UIDs that the snapshot still has."""
        self._gone: TTLCache[str, bool] = TTLCache(math.inf, ttl.total_seconds(), timer=timer)
        """UIDs that the snapshot no longer has."""
        self._executors: TTLCache[int, bool] = TTLCache(math.inf, ttl.total_seconds(), timer=timer)
        """Executors that have ended: messages about one may arrive later."""

    def __len__(self) -> int:
        """Return the number of pods that are remembered."""
        return len(self._visible) + len(self._gone)

    def add(self, executor_id: int, uid: str | None, *, visible: bool) -> None:
        """Record that an end is reported. `visible`: the snapshot still has the pod."""
        self._executors[executor_id] = True
        if uid is not None:
            self.remember(uid, visible=visible)

    def remember(self, uid: str, *, visible: bool) -> None:
        """Report nothing more about this pod."""
        if visible:
            self._gone.pop(uid, None)
            self._visible.add(uid)
        elif uid not in self._visible:
            self._gone[uid] = True

    def left(self, uid: str) -> bool:
        """Start the time to live of a pod that left the snapshot; return whether its end was reported."""
        if uid in self._visible:
            self._visible.discard(uid)
            self._gone[uid] = True
        return uid in self._gone

    def has_ended(self, executor_id: int) -> bool:
        """Return whether this executor's end was reported recently."""
        return executor_id in self._executors

    def __contains__(self, uid: str) -> bool:
        """Return whether this pod's end was reported."""
        return uid in self._visible or uid in self._gone
