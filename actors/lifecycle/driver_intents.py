"""What the pod of an executor that is asked to go is marked with, for others to see: a label, an annotation. Pure."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

from actors.messages import LabelPod
from actors.pods.loss import Asked
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import timedelta

    from actors.messages import ExecutorKilled, LedgerEntry
    from actors.pods.pod import Pod
    from actors.pods.state import PodState
    from actors.runtime import Moment
    from actors.settings import ExecutorSettings


__all__ = ["DECOMMISSIONED", "DriverIntents"]

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""The annotation by which ReplicaSets, and other controllers, choose whom to delete first."""


NOT_WANTED: Final = "was not wanted any more, as the target is lower"


DECOMMISSIONED: Final = "finished, as the driver had asked it to"
"""What we say of an end that we asked for."""


class DriverIntents:
    """By executor id, until it has ended."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._kill_label = _label(settings.kill_label)
        self._decommission_label = _label(settings.decommission_label)
        cost = settings.decommission_deletion_cost
        self._deletion_cost = {} if cost is None else {DELETION_COST: str(cost)}
        self._labelled: dict[int, LabelPod] = {}
        """What their pods were last asked to be labelled with."""
        self._killed: dict[int, ExecutorKilled] = {}
        """Executors that the driver wants ended."""
        self._decommissioned: set[int] = set()
        """Executors that it lets finish."""
        self._disconnected: dict[int, Moment] = {}
        """Executors whose connection is gone, and since when, the earliest first."""
        self._taken_back: dict[str, bool] = {}
        """UIDs of pending pods that the Allocator deletes, as they are too many; true: a full sync did not show it."""

    # ── keeping in step ──────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, entries: Iterable[LedgerEntry]) -> None:
        """Take up what is known of executors that live."""
        for entry in sorted(entries, key=lambda entry: entry.disconnected_at or 0.0):
            if entry.killed is not None:
                self._killed[entry.executor_id] = entry.killed
            if entry.decommissioned:
                self._decommissioned.add(entry.executor_id)
            if entry.disconnected_at is not None:
                self._disconnected[entry.executor_id] = entry.disconnected_at

    def kill(self, kill: ExecutorKilled) -> None:
        """The driver wants it ended."""
        self._killed[kill.executor_id] = kill

    def decommission(self, executor_id: int) -> None:
        """The driver lets it finish."""
        self._decommissioned.add(executor_id)

    def disconnected(self, executor_id: int, at: Moment) -> None:
        """Its connection is gone. Told again, the first time counts."""
        self._disconnected.setdefault(executor_id, at)

    def connected(self, executor_id: int) -> None:
        """It has a connection."""
        self._disconnected.pop(executor_id, None)

    def take_back(self, uids: Iterable[str]) -> None:
        """These pods are deleted if they are still as they were."""
        self._taken_back.update(dict.fromkeys(uids, False))

    def forget(self, executor_id: int) -> None:
        """It has ended, or does not count."""
        self._killed.pop(executor_id, None)
        self._decommissioned.discard(executor_id)
        self._disconnected.pop(executor_id, None)
        self._labelled.pop(executor_id, None)

    def forget_pod(self, uid: str) -> None:
        """It is gone; or it runs, was not taken back in time, and stays."""
        self._taken_back.pop(uid, None)

    def synced(self, states: Mapping[int, PodState]) -> None:
        """What was said of a pod that was gone already is forgotten here.

        At the second full sync without it: one that was gone at the first may have its end still to be told.
        """
        if not self._taken_back:
            return
        shown = {state.pod.uid for state in states.values()}
        self._taken_back = {
            uid: uid not in shown for uid, was_absent in self._taken_back.items() if uid in shown or not was_absent
        }

    # ── what follows ─────────────────────────────────────────────────────────────────────────────────────────────

    def asked(self, executor_id: int, uid: str | None) -> Asked | None:
        """What we say of its end if we asked for it."""
        killed = self._killed.get(executor_id)
        if killed is not None:
            return Asked(killed.message, killed.at)
        return Asked(NOT_WANTED) if uid in self._taken_back else None

    def is_finishing(self, executor_id: int) -> bool:
        """Whether the driver lets it finish."""
        return executor_id in self._decommissioned

    def to_end(self, now: Moment) -> Iterator[int]:
        """Killed executors whose time to end by themselves is over."""
        return (executor_id for executor_id, killed in self._killed.items() if killed.delete_at <= now)

    def lost(self, now: Moment, timeout: timedelta) -> list[int]:
        """Executors without a connection for so long; those that the driver has ended anyway are not waited for."""
        overdue = takewhile(lambda item: elapsed(item[1], now) >= timeout, self._disconnected.items())
        return [executor_id for executor_id, _ in overdue if executor_id not in self._killed]

    def label(self, executor_id: int, pod: Pod, now: Moment) -> LabelPod | None:
        """What its pod should be labelled with, does not show, and was not asked for before.

        Annotations are not shown: they come with their label.
        """
        killed = self._killed.get(executor_id)
        if killed is None and executor_id not in self._decommissioned:
            return None
        labels: dict[str, str] = {}
        annotations: dict[str, str] = {}
        if killed is not None and killed.delete_at > now:
            labels |= self._kill_label
        if executor_id in self._decommissioned:
            labels |= self._decommission_label
            if not self._decommission_label or not self._decommission_label.items() <= pod.labels.items():
                annotations = self._deletion_cost
        labels = {key: value for key, value in labels.items() if pod.labels.get(key) != value}
        request = LabelPod(pod.name, pod.uid, labels, annotations)
        if not (labels or annotations) or request == self._labelled.get(executor_id):
            return None
        self._labelled[executor_id] = request
        return request


def _label(text: str | None) -> dict[str, str]:
    key, _, value = (text or "").partition("=")
    return {key: value} if key else {}
