"""What the pod of an executor that is asked to go is marked with, for others to see: a label, an annotation. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from actors.pods.loss import Asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import timedelta

    from actors.messages import ExecutorKilled, LedgerEntry
    from actors.pods.pod import Pod
    from actors.pods.state import PodState
    from actors.settings.model import ExecutorSettings


__all__ = ["DECOMMISSIONED", "NO_MARK", "DriverIntents", "Mark", "of_decommissioned", "of_killed"]

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""The annotation by which ReplicaSets, and other controllers, choose whom to delete first."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Labels and annotations; false if there are none."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)

    @classmethod
    def of(cls, marks: Iterable[Mark]) -> Mark:
        """All of these in one."""
        labels: dict[str, str] = {}
        annotations: dict[str, str] = {}
        for mark in marks:
            labels |= mark.labels
            annotations |= mark.annotations
        return cls(labels, annotations)

    def is_on(self, pod: Pod) -> bool:
        """Whether a pod has the labels; annotations, which are not read, come with them."""
        return bool(self.labels) and all(pod.labels.get(key) == value for key, value in self.labels.items())


NO_MARK: Final = Mark()


def of_killed(settings: ExecutorSettings) -> Mark:
    """What the driver ends: `executor.kill_label`."""
    return Mark(_label(settings.kill_label))


def of_decommissioned(settings: ExecutorSettings) -> Mark:
    """What the driver lets finish: `executor.decommission_label` and `executor.decommission_deletion_cost`."""
    cost = settings.decommission_deletion_cost
    return Mark(_label(settings.decommission_label), {} if cost is None else {DELETION_COST: str(cost)})


def _label(text: str | None) -> dict[str, str]:
    key, _, value = (text or "").partition("=")
    return {key: value} if key else {}


NOT_WANTED: Final = "was not wanted any more, as the target is lower"


DECOMMISSIONED: Final = "finished, as the driver had asked it to"
"""What we say of an end that we asked for."""


class DriverIntents:
    """By executor id, until it has ended."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._killed: dict[int, ExecutorKilled] = {}
        """Executors that the driver wants ended."""
        self._decommissioned: set[int] = set()
        """Executors that it lets finish."""
        self._disconnected: dict[int, float] = {}
        """Executors whose connection is gone, and since when (monotonic), the earliest first."""
        self._taken_back: dict[str, bool] = {}
        """UIDs of pending pods that the Allocator deletes, as they are too many; true: a full sync did not show it."""

    # ── keeping in step ──────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, entries: Iterable[LedgerEntry]) -> None:
        """Take up what is known of executors that live."""
        away: list[tuple[float, int]] = []
        for entry in entries:
            if entry.killed is not None:
                self._killed[entry.executor_id] = entry.killed
            if entry.decommissioned:
                self._decommissioned.add(entry.executor_id)
            if entry.disconnected_at is not None:
                away.append((entry.disconnected_at, entry.executor_id))
        self._disconnected.update({executor_id: since for since, executor_id in sorted(away)})

    def kill(self, kill: ExecutorKilled) -> None:
        """The driver wants it ended."""
        self._killed[kill.executor_id] = kill

    def decommission(self, executor_id: int) -> None:
        """The driver lets it finish."""
        self._decommissioned.add(executor_id)

    def disconnected(self, executor_id: int, at: float) -> None:
        """Its connection is gone. Told again, the first time counts."""
        self._disconnected.setdefault(executor_id, at)

    def connected(self, executor_id: int) -> None:
        """It has a connection."""
        self._disconnected.pop(executor_id, None)

    def take_back(self, uids: Iterable[str]) -> None:
        """These pods are deleted if they are still as they were."""
        self._taken_back.update(dict.fromkeys(uids, False))

    def runs(self, uid: str) -> None:
        """This pod runs: it was not taken back in time, and stays."""
        self._taken_back.pop(uid, None)

    def forget(self, executor_id: int) -> None:
        """It has ended, or does not count."""
        self._killed.pop(executor_id, None)
        self._decommissioned.discard(executor_id)
        self._disconnected.pop(executor_id, None)

    def forget_pod(self, uid: str) -> None:
        """It is gone."""
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
            return Asked(killed.words, killed.at)
        return Asked(NOT_WANTED) if uid in self._taken_back else None

    def is_finishing(self, executor_id: int) -> bool:
        """Whether the driver lets it finish."""
        return executor_id in self._decommissioned

    def to_end(self, now: float) -> Iterator[int]:
        """Killed executors whose time to end by themselves is over."""
        return (executor_id for executor_id, killed in self._killed.items() if killed.delete_at <= now)

    def lost(self, now: float, timeout: timedelta) -> list[int]:
        """Executors without a connection for so long; those that the driver has ended anyway are not waited for."""
        limit = timeout.total_seconds()
        overdue = takewhile(lambda item: now - item[1] >= limit, self._disconnected.items())
        return [executor_id for executor_id, _ in overdue if executor_id not in self._killed]

    def mark(self, executor_id: int, pod: Pod, now: float) -> Mark:
        """What its pod should be marked with, and does not show; annotations are not shown."""
        killed = self._killed.get(executor_id)
        if killed is None and executor_id not in self._decommissioned:
            return NO_MARK
        marks = []
        if killed is not None and killed.delete_at > now:
            marks.append(of_killed(self._settings))
        if executor_id in self._decommissioned:
            marks.append(of_decommissioned(self._settings))
        return Mark.of(mark for mark in marks if not mark.is_on(pod))
