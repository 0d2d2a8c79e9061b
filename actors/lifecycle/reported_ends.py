"""Whose end was told: what makes "exactly once" of an end that is shown many times, by several sources, or again.

A pod's end is remembered by its UID for as long as a snapshot shows the pod, however long that is, and for
`executor.removed_executors_ttl` after that: so what is remembered is bounded by what is visible and by what ended
lately. Plain values in the LifecycleManager's hands; nothing here sends a message.
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
    """`ttl` is how long an end is remembered once its pod is gone, by `timer`."""

    def __init__(self, ttl: timedelta, timer: Callable[[], Moment]) -> None:
        self._visible: set[str] = set()
        """UIDs whose end was told and that the snapshot still shows."""
        self._gone: TTLCache[str, bool] = TTLCache(math.inf, ttl.total_seconds(), timer=timer)
        """UIDs whose end was told and that the snapshot no longer shows."""
        self._executors: TTLCache[int, bool] = TTLCache(math.inf, ttl.total_seconds(), timer=timer)
        """Executors that have ended: what was said of one before its end was known may arrive after it."""

    def __len__(self) -> int:
        """How many pods are remembered."""
        return len(self._visible) + len(self._gone)

    def tell(self, executor_id: int, uid: str | None, *, visible: bool) -> None:
        """This end is told now. The pod may be shown still, or be gone."""
        self._executors[executor_id] = True
        if uid is not None:
            self.remember(uid, visible=visible)

    def remember(self, uid: str, *, visible: bool) -> None:
        """Nothing is to be told of this pod any more."""
        if visible:
            self._gone.pop(uid, None)
            self._visible.add(uid)
        elif uid not in self._visible:
            self._gone[uid] = True

    def left(self, uid: str) -> bool:
        """This pod left the snapshot: its time runs from now on. Answers whether its end was told before."""
        if uid in self._visible:
            self._visible.discard(uid)
            self._gone[uid] = True
        return uid in self._gone

    def has_ended(self, executor_id: int) -> bool:
        """Whether an executor's end was told, within the time that this is remembered for."""
        return executor_id in self._executors

    def __contains__(self, uid: str) -> bool:
        """Whether a pod's end was told."""
        return uid in self._visible or uid in self._gone
