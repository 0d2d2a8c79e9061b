"""Executors that do not run yet: what is told of those that do not get on, each kind of cause once.

What the kubelet says is told at once. That no node takes a pod is told when it has lasted: a claim that is bound, or a
node that is about to be there, takes the scheduler a second look. And a pod that has a node and gives no reason is told
after `executor.stuck_timeout`. Plain values in the LifecycleManager's hands; nothing here sends a message or reads a
clock.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from actors.pods.stuck import StuckKind, does_not_start, why_stuck
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.pods.pod import Pod
    from actors.pods.stuck import Stuck
    from actors.runtime import Moment

__all__ = ["UNSCHEDULABLE_FOR", "PendingPods"]

UNSCHEDULABLE_FOR: Final = timedelta(seconds=10)
"""The scheduler's first answer may be no more than that it was asked too early: a generic ephemeral volume's claim is
made a moment after its pod, and a claim is bound a moment after that."""


class PendingPods:
    """By executor id. `timeout` is how long one that has a node is waited for."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._pods: dict[int, Pod] = {}
        """Those that do not run, as they were last shown."""
        self._told: dict[int, set[StuckKind]] = {}
        """What was told of whom anything was, until it has ended."""
        self._pending: dict[int, Moment] = {}
        """Since when they do not run, the earliest first; without those that were looked at for that."""
        self._unschedulable: dict[int, Moment] = {}
        """Since when no node takes them, the earliest first; without those of which that was told."""

    def __len__(self) -> int:
        """How many executors are remembered."""
        return len(self._pods.keys() | self._told.keys() | self._pending.keys() | self._unschedulable.keys())

    def shown(self, executor_id: int, pod: Pod, now: Moment) -> Stuck | None:
        """It does not run: what is to be told of that at once."""
        self._pods[executor_id] = pod
        self._pending.setdefault(executor_id, now)
        stuck = why_stuck(pod)
        if stuck is None or stuck.kind is not StuckKind.UNSCHEDULABLE:
            self._unschedulable.pop(executor_id, None)
            return self._news(executor_id, stuck)
        if stuck.kind not in self._told.get(executor_id, ()):
            self._unschedulable.setdefault(executor_id, now)
        return None

    def over(self, executor_id: int) -> None:
        """It does not wait any more; should it do so again, its time begins anew."""
        self._pods.pop(executor_id, None)
        self._pending.pop(executor_id, None)
        self._unschedulable.pop(executor_id, None)

    def forget(self, executor_id: int) -> None:
        """It has ended, or does not count."""
        self.over(executor_id)
        self._told.pop(executor_id, None)

    def overdue(self, now: Moment) -> Iterator[tuple[int, Pod, Stuck]]:
        """Those that have waited for too long by now, and what is to be told of it; each once."""
        found = [(i, why_stuck(self._pods[i])) for i, _ in _take(self._unschedulable, now, UNSCHEDULABLE_FOR)]
        slow = _take(self._pending, now, self._timeout)
        found += [(i, does_not_start(self._pods[i], elapsed(since, now))) for i, since in slow]
        for executor_id, stuck in found:
            if (news := self._news(executor_id, stuck)) is not None:
                yield executor_id, self._pods[executor_id], news

    def _news(self, executor_id: int, stuck: Stuck | None) -> Stuck | None:
        """Told once a kind of cause: `ErrImagePull` and `ImagePullBackOff` take turns."""
        if stuck is None or stuck.kind in self._told.get(executor_id, ()):
            return None
        self._told.setdefault(executor_id, set()).add(stuck.kind)
        return stuck


def _take(since: dict[int, Moment], now: Moment, limit: timedelta) -> list[tuple[int, Moment]]:
    """Those that are overdue, which are not looked at again."""
    overdue = list(takewhile(lambda item: elapsed(item[1], now) >= limit, since.items()))
    for executor_id, _ in overdue:
        del since[executor_id]
    return overdue
