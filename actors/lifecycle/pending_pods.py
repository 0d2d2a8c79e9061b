"""PendingPods: decides when a pod that does not start, or crashes in place, is reported as stuck, once per cause. Pure.

A reason that the kubelet gives is reported at once. "Unschedulable" is reported when it lasts, as the scheduler may
need a second look at a new claim or node. A pod that has a node and no such reason is reported after
`executor.stuck_timeout`.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from actors.pods.state import PodPending, PodRunning
from actors.pods.stuck import StuckKind, crashes_in_place, does_not_start, why_stuck
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.pods.pod import Pod
    from actors.pods.state import PodState
    from actors.pods.stuck import Stuck
    from actors.runtime import Moment

__all__ = ["UNSCHEDULABLE_FOR", "PendingPods"]

UNSCHEDULABLE_FOR: Final = timedelta(seconds=10)
"""The scheduler's first answer may only mean that it looked too early: a generic ephemeral volume's claim is created a
moment after its pod, and bound a moment after that."""


class PendingPods:
    """The pending pods by executor id. `timeout` is how long one with a node may take to start."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._pods: dict[int, Pod] = {}
        """Pending pods, as last observed."""
        self._reported: dict[int, set[StuckKind]] = {}
        """The causes that were reported, until the executor has ended."""
        self._causes: dict[int, Stuck] = {}
        """The last cause of each, until it runs or the executor has ended."""
        self._pending: dict[int, Moment] = {}
        """Since when each is pending, the earliest first; without those whose timeout is over."""
        self._unschedulable: dict[int, Moment] = {}
        """Since when each is unschedulable, the earliest first; without those that were reported for it."""

    def __len__(self) -> int:
        """Return the number of executors that are remembered."""
        known = (self._pods, self._reported, self._causes, self._pending, self._unschedulable)
        return len({executor_id for each in known for executor_id in each})

    def follow(self, executor_id: int, state: PodState, now: Moment) -> Stuck | None:
        """Record the state of a live pod; return the cause to report at once, if any."""
        if isinstance(state, PodPending):
            return self.observe(executor_id, state.pod, now)
        self.leave(executor_id)
        if not isinstance(state, PodRunning):
            return None
        self._causes.pop(executor_id, None)
        return self._unless_reported(executor_id, why_stuck(state.pod)) if crashes_in_place(state.pod) else None

    def cause(self, executor_id: int) -> Stuck | None:
        """Return why an executor that never ran did not start, when that was observed last."""
        return self._causes.get(executor_id)

    def observe(self, executor_id: int, pod: Pod, now: Moment) -> Stuck | None:
        """Record a pending pod; return the cause to report at once, if any."""
        self._pods[executor_id] = pod
        self._pending.setdefault(executor_id, now)
        stuck = why_stuck(pod)
        if stuck is not None:
            self._causes[executor_id] = stuck
        if stuck is None or stuck.kind is not StuckKind.UNSCHEDULABLE:
            self._unschedulable.pop(executor_id, None)
            return self._unless_reported(executor_id, stuck)
        if stuck.kind not in self._reported.get(executor_id, ()):
            self._unschedulable.setdefault(executor_id, now)
        return None

    def leave(self, executor_id: int) -> None:
        """Stop the timeouts of a pod that is no longer pending."""
        self._pods.pop(executor_id, None)
        self._pending.pop(executor_id, None)
        self._unschedulable.pop(executor_id, None)

    def forget(self, executor_id: int) -> None:
        """Forget an executor that ended or was abandoned."""
        self.leave(executor_id)
        self._reported.pop(executor_id, None)
        self._causes.pop(executor_id, None)

    def overdue(self, now: Moment) -> Iterator[tuple[int, Pod, Stuck]]:
        """Yield, once, the pods whose timeout is over, with the cause to report."""
        found = [(i, why_stuck(self._pods[i])) for i, _ in _take(self._unschedulable, now, UNSCHEDULABLE_FOR)]
        slow = _take(self._pending, now, self._timeout)
        found += [(i, does_not_start(self._pods[i], elapsed(since, now))) for i, since in slow]
        for executor_id, stuck in found:
            if (unreported := self._unless_reported(executor_id, stuck)) is not None:
                yield executor_id, self._pods[executor_id], unreported

    def _unless_reported(self, executor_id: int, stuck: Stuck | None) -> Stuck | None:
        """Each cause is reported once: `ErrImagePull` and `ImagePullBackOff` alternate.

        Some kubelets give the registry's words with the first of them only.
        """
        reported = self._reported.get(executor_id, set())
        if stuck is None or stuck.kind in reported:
            return None
        if stuck.kind is StuckKind.IMAGE and StuckKind.REFUSED in reported:
            return None
        self._reported.setdefault(executor_id, set()).add(stuck.kind)
        return stuck


def _take(since: dict[int, Moment], now: Moment, limit: timedelta) -> list[tuple[int, Moment]]:
    """Remove and return the entries that are at least `limit` old."""
    overdue = list(takewhile(lambda item: elapsed(item[1], now) >= limit, since.items()))
    for executor_id, _ in overdue:
        del since[executor_id]
    return overdue
