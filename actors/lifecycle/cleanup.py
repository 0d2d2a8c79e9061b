"""Which pods should be gone, and which of them take too long to go. Pure.

A DELETE may be dropped or refused, and a pod may come back from a backup: so what should go is asked for in every round
that still shows it.
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
    """By executor id, until its pod has left the snapshot."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._unwanted: dict[int, PodState] = {}
        """Ended pods, and live ones of executors that were killed, abandoned or reported as ended."""
        self._terminating: dict[int, tuple[PodTerminating, Moment]] = {}
        """Pods that are being deleted, and since when."""

    def observe(self, executor_id: int, state: PodState, now: Moment, *, stays: bool) -> None:
        """Take in the state of a pod in the snapshot; `stays`: as far as we know, its executor should live."""
        if isinstance(state, PodTerminating):
            self._unwanted.pop(executor_id, None)
            known = self._terminating.get(executor_id)
            if known is None or known[0].pod.uid != state.pod.uid:
                self._terminating[executor_id] = (state, now)
            return
        self._terminating.pop(executor_id, None)  # a cluster restored from a backup takes deletions back
        if state.final or not stays:
            self.remove(executor_id, state)
        else:
            self._unwanted.pop(executor_id, None)

    def remove(self, executor_id: int, state: PodState | None) -> None:
        """Ask for the end of this pod from the next round on, unless its deletion is under way."""
        if not isinstance(state, PodTerminating | PodDeleted | None):
            self._unwanted[executor_id] = state

    def left(self, executor_id: int) -> None:
        """Forget a pod that left the snapshot."""
        self._unwanted.pop(executor_id, None)
        self._terminating.pop(executor_id, None)

    def requests(self) -> Iterator[DeletePod | LabelPod]:
        """Yield what to ask of the pool. It takes the same request once while it is open."""
        for state in self._unwanted.values():
            pod = state.pod
            if state.final and not self._settings.delete_on_termination:
                yield LabelPod(pod.name, pod.uid, {INACTIVE_LABEL: "true"})
            else:
                yield DeletePod(pod.name, DeleteOptions(uid=pod.uid))

    def overdue(self, now: Moment) -> list[tuple[int, PodTerminating]]:
        """Take out the pods that outlive their grace period by far: nobody hears from their nodes."""
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
