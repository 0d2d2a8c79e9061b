"""Cleanup: which pods should be deleted, which take too long to terminate, and which finalizers hold. Pure.

A DELETE may be dropped or refused, and a pod may come back from a backup. Therefore the requests are repeated in every
round; the RequestPool knows which were carried out. Nothing is requested for a pod that terminates already, or that is
not in the snapshot.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from actors.kube.api import DeleteOptions
from actors.messages.internal import NO_PAUSE, DeletePod, LabelPod
from actors.pods.pod import INACTIVE_LABEL, held_since
from actors.pods.state import PodState, PodTerminating
from actors.runtime import elapsed, later

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
    from actors.runtime import Moment
    from actors.settings import ExecutorSettings

__all__ = ["Cleanup"]


class Cleanup:
    """The pods to delete and the terminating ones, by executor id, until they leave the snapshot."""

    def __init__(self, settings: ExecutorSettings, draining: frozenset[str] = frozenset()) -> None:
        """`draining`: the profiles whose pods pause before SIGTERM, unless the fleet deletes them."""
        self._settings = settings
        self._draining = draining
        self._to_delete: dict[int, None] = {}
        """Ended pods, and live ones whose executors were killed, abandoned or reported as ended, in this order."""
        self._terminating: dict[int, tuple[PodTerminating, Moment]] = {}
        """Terminating pods, and when each grace period that was observed is over."""
        self._finalizing: dict[int, Pod] = {}
        """Terminating pods with finalizers that were not reported as held."""
        self._held: dict[int, str] = {}
        """UIDs of the pods that were reported as held."""

    def observe(self, executor_id: int, state: PodState, now: Moment, *, stays: bool) -> None:
        """Record a pod's state. `stays` is false if its executor was abandoned or reported as ended."""
        self._observe_finalizers(executor_id, state.pod)
        if isinstance(state, PodTerminating):
            self._to_delete.pop(executor_id, None)
            self._observe_grace(executor_id, state, now)
            return
        self._terminating.pop(executor_id, None)  # a restored backup undoes deletions
        if state.final or not stays:
            self._to_delete[executor_id] = None
        else:
            self._to_delete.pop(executor_id, None)

    def _observe_grace(self, executor_id: int, state: PodTerminating, now: Moment) -> None:
        """Note when a pod must have ended. A kubelet goes on with the longer grace period if a DELETE shortens it."""
        grace = _grace(state.pod)
        known = self._terminating.get(executor_id)
        if known is None or known[0].pod.uid != state.pod.uid:
            self._terminating[executor_id] = (state, later(now, grace))
        elif _grace(known[0].pod) != grace:
            self._terminating[executor_id] = (state, max(known[1], later(now, grace)))

    def _observe_finalizers(self, executor_id: int, pod: Pod) -> None:
        if not pod.terminating or not pod.metadata.finalizers:
            self._finalizing.pop(executor_id, None)
        elif self._held.get(executor_id) != pod.uid:
            self._finalizing[executor_id] = pod

    def remove(self, executor_id: int) -> None:
        """Delete an executor's pod from the next round on, if there is one."""
        self._to_delete[executor_id] = None

    def left(self, executor_id: int) -> None:
        """Forget a pod that left the snapshot."""
        self._to_delete.pop(executor_id, None)
        self._terminating.pop(executor_id, None)
        self._finalizing.pop(executor_id, None)
        self._held.pop(executor_id, None)

    def requests(self, snapshot: PodsSnapshot) -> Iterator[DeletePod | LabelPod]:
        """Yield the requests of this round. The RequestPool ignores those that are still open or were carried out.

        Only a LIST shows that a request which was carried out had no effect: an event may be older than its answer.
        """
        observed_at = snapshot.full_sync_at or 0.0
        for executor_id in self._in_snapshot(snapshot.states):
            state = snapshot.states[executor_id]
            pod = state.pod
            if state.final and not self._settings.delete_on_termination:
                yield LabelPod(pod.name, pod.uid, {INACTIVE_LABEL: "true"}, observed_at=observed_at)
            elif not pod.terminating:  # a second DELETE would not end a pause that has begun
                grace = NO_PAUSE if pod.profile in self._draining else None
                yield DeletePod(pod.name, DeleteOptions(uid=pod.uid, grace=grace), observed_at)

    def _in_snapshot(self, states: Mapping[int, PodState]) -> list[int]:
        """Return the pods to delete, and forget those that the snapshot does not have."""
        for executor_id in [executor_id for executor_id in self._to_delete if executor_id not in states]:
            del self._to_delete[executor_id]
        return list(self._to_delete)

    def overdue(self, now: Moment) -> list[tuple[int, PodTerminating]]:
        """Return, once, the pods that have outlived their grace period: their nodes are probably lost."""
        overdue = [
            (executor_id, state)
            for executor_id, (state, over_at) in self._terminating.items()
            if elapsed(over_at, now) >= self._settings.terminating_timeout
        ]
        for executor_id, _ in overdue:
            del self._terminating[executor_id]
        return overdue

    def held(self, at: datetime) -> list[tuple[int, Pod, datetime]]:
        """Return, once, the pods that finalizers have held for `executor.terminating_timeout`, and since when."""
        held = [
            (executor_id, pod, since)
            for executor_id, pod in self._finalizing.items()
            if (since := held_since(pod, at - self._settings.terminating_timeout)) is not None
        ]
        for executor_id, pod, _ in held:
            del self._finalizing[executor_id]
            self._held[executor_id] = pod.uid
        return held


def _grace(pod: Pod) -> timedelta:
    """Return the grace period of a terminating pod."""
    return timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
