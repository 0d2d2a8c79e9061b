"""Cleanup: which pods should be deleted, and which of them take too long to terminate. Pure.

A DELETE may be dropped or refused, and a pod may come back from a backup. Therefore the requests are
repeated in every round in which the snapshot has the pods.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from actors.kube.api import DeleteOptions
from actors.messages import DeletePod, LabelPod
from actors.pods.pod import INACTIVE_LABEL
from actors.pods.state import PodDeleted, PodState, PodTerminating
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.runtime import Moment
    from actors.settings import ExecutorSettings

__all__ = ["Cleanup"]


class Cleanup:
    """The pods to delete and the terminating ones, by executor id, until they leave the snapshot."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._to_delete: dict[int, PodState] = {}
        """Ended pods, and live ones whose executors were killed, abandoned or reported as ended."""
        self._terminating: dict[int, tuple[PodTerminating, Moment]] = {}
        """Terminating pods, and since when."""

    def observe(self, executor_id: int, state: PodState, now: Moment, *, stays: bool) -> None:
        """Record a pod's state. `stays` is false if its executor was abandoned or reported as ended."""
        if isinstance(state, PodTerminating):
            self._to_delete.pop(executor_id, None)
            known = self._terminating.get(executor_id)
            if known is None or known[0].pod.uid != state.pod.uid:
                self._terminating[executor_id] = (state, now)
            return
        self._terminating.pop(executor_id, None)  # a restored backup undoes deletions
        if state.final or not stays:
            self.remove(executor_id, state)
        else:
            self._to_delete.pop(executor_id, None)

    def remove(self, executor_id: int, state: PodState | None) -> None:
        """Delete this pod from the next round on, unless it is being deleted."""
        if not isinstance(state, PodTerminating | PodDeleted | None):
            self._to_delete[executor_id] = state

    def left(self, executor_id: int) -> None:
        """Forget a pod that left the snapshot."""
        self._to_delete.pop(executor_id, None)
        self._terminating.pop(executor_id, None)

    def requests(self) -> Iterator[DeletePod | LabelPod]:
        """Yield the requests of this round. The RequestPool ignores those that are still open."""
        for state in self._to_delete.values():
            pod = state.pod
            if state.final and not self._settings.delete_on_termination:
                yield LabelPod(pod.name, pod.uid, {INACTIVE_LABEL: "true"})
            else:
                yield DeletePod(pod.name, DeleteOptions(uid=pod.uid))

    def overdue(self, now: Moment) -> list[tuple[int, PodTerminating]]:
        """Return, once, the pods that have outlived their grace period: their nodes are probably lost."""
        overdue = [
            (executor_id, state)
            for executor_id, (state, since) in self._terminating.items()
            if elapsed(since, now) >= self._patience(state)
        ]
        for executor_id, _ in overdue:
            del self._terminating[executor_id]
        return overdue

    def _patience(self, state: PodTerminating) -> timedelta:
        grace = state.pod.metadata.deletion_grace_period_seconds or 0
        return timedelta(seconds=grace) + self._settings.terminating_timeout
