"""DriverIntents: which executors the driver has killed, drained, decommissioned or scaled down. Pure.

From this follow the loss reason of an executor, the labels of its pod, and when it is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from actors.messages.internal import LabelPod
from actors.pods.loss import SCALED_DOWN, RequestedEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from actors.messages.internal import ExecutorKilled, LedgerEntry
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
    from actors.pods.state import PodState
    from actors.runtime import Moment
    from actors.settings import ExecutorSettings


__all__ = ["DECOMMISSIONED", "DriverIntents"]

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""The annotation by which ReplicaSets and other controllers choose which pod to delete first."""

_NEVER: Final = 0.0
"""When a pod was last observed without the annotations: snapshots have none. So a request for them alone is repeated
only until it is carried out."""

DECOMMISSIONED: Final = "finished, as the driver had requested"
"""The loss message of a decommissioned executor, after its name."""


class DriverIntents:
    """The driver's intents by executor id, until the executor has ended."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._kill_label = _label(settings.kill_label)
        self._decommission_label = _label(settings.decommission_label)
        cost = settings.decommission_deletion_cost
        self._deletion_cost = {} if cost is None else {DELETION_COST: str(cost)}
        self._labelled: dict[int, LabelPod] = {}
        """The last label request for each pod."""
        self._killed: dict[int, ExecutorKilled] = {}
        self._outlived: set[int] = set()
        """Killed executors that were observed alive after that."""
        self._drained: set[int] = set()
        self._decommissioned: set[int] = set()
        self._scaled_down: dict[str, bool] = {}
        """UIDs of pending pods that the Allocator deletes as excess; true if the last full sync did not have it."""

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, entries: Iterable[LedgerEntry]) -> None:
        """Restore the intents from the ledger's live executors."""
        for entry in entries:
            if entry.killed is not None:
                self._killed[entry.executor_id] = entry.killed
            if entry.drained:
                self._drained.add(entry.executor_id)
            if entry.decommissioned:
                self._decommissioned.add(entry.executor_id)
            if entry.scaled_down and entry.uid is not None:
                self.scale_down([entry.uid])

    def kill(self, kill: ExecutorKilled) -> None:
        """Record that the driver killed an executor."""
        self._killed[kill.executor_id] = kill

    def observe_alive(self, executor_id: int, pod: Pod) -> None:
        """Note that a killed executor was alive after that, if its pod has the label that only the kill gave it.

        An observation without it may be older than the kill, however late it arrives.
        """
        label, request = self._kill_label.items(), self._labelled.get(executor_id)
        if label and request is not None and label <= request.labels.items() and label <= pod.labels.items():
            self._outlived.add(executor_id)

    def drained(self, executor_id: int) -> None:
        """Record that a terminating executor is drained."""
        self._drained.add(executor_id)

    def decommission(self, executor_id: int) -> None:
        """Record that the driver decommissioned an executor."""
        self._decommissioned.add(executor_id)

    def scale_down(self, uids: Iterable[str]) -> None:
        """Record that the Allocator deletes these pods, if they have not changed meanwhile."""
        self._scaled_down.update(dict.fromkeys(uids, False))

    def forget(self, executor_id: int) -> None:
        """Forget an executor that ended or was abandoned."""
        self._killed.pop(executor_id, None)
        self._outlived.discard(executor_id)
        self._drained.discard(executor_id)
        self._decommissioned.discard(executor_id)
        self._labelled.pop(executor_id, None)

    def forget_pod(self, uid: str) -> None:
        """Forget a pod that is gone, or that runs and therefore was not scaled down in time."""
        self._scaled_down.pop(uid, None)

    def synced(self, states: Mapping[int, PodState]) -> None:
        """Forget the scaled-down pods that two full syncs in a row did not have.

        After the first one, the end of such a pod may still have to be reported.
        """
        if not self._scaled_down:
            return
        visible = {state.pod.uid for state in states.values()}
        self._scaled_down = {
            uid: uid not in visible for uid, was_absent in self._scaled_down.items() if uid in visible or not was_absent
        }

    # ── consequences ─────────────────────────────────────────────────────────────────────────────────────────────

    def requested_end(self, executor_id: int, uid: str | None) -> RequestedEnd | None:
        """Return the loss message if we requested the executor's end."""
        killed = self._killed.get(executor_id)
        if killed is not None:
            return RequestedEnd(
                killed.message, killed.at, however=killed.retired, was_alive=executor_id in self._outlived
            )
        return RequestedEnd(SCALED_DOWN) if uid in self._scaled_down else None

    def is_killed(self, executor_id: int) -> bool:
        """Return whether the driver killed this executor."""
        return executor_id in self._killed

    def is_decommissioned(self, executor_id: int) -> bool:
        """Return whether the driver decommissioned this executor."""
        return executor_id in self._decommissioned

    def overdue(self, now: Moment) -> Iterator[int]:
        """Yield the executors that must end now: killed ones whose grace period is over, and drained ones."""
        yield from (executor_id for executor_id, killed in self._killed.items() if killed.delete_at <= now)
        yield from self._drained

    def label(self, executor_id: int, pod: Pod, now: Moment) -> LabelPod | None:
        """Return the labels that the pod lacks, None if there are none or the same were requested last."""
        request = self._lacking(executor_id, pod, now)
        if request is None or request == self._labelled.get(executor_id):
            return None
        self._labelled[executor_id] = request
        return request

    def unfinished(self, snapshot: PodsSnapshot, now: Moment) -> Iterator[LabelPod]:
        """Yield the labels that pods in the snapshot still lack: the requests may have been dropped or refused."""
        for executor_id in sorted(self._killed.keys() | self._decommissioned):
            state = snapshot.states.get(executor_id)
            if state is not None and (request := self._lacking(executor_id, state.pod, now)) is not None:
                if request.labels:
                    request = replace(request, observed_at=snapshot.full_sync_at)
                self._labelled[executor_id] = request
                yield request

    def _lacking(self, executor_id: int, pod: Pod, now: Moment) -> LabelPod | None:
        """Return the labels that the pod of a killed or decommissioned executor lacks. None if it terminates.

        Snapshots have no annotations, so a label shows that the pod has them, if one request added both.
        """
        killed = self._killed.get(executor_id)
        if pod.terminating or (killed is None and executor_id not in self._decommissioned):
            return None
        labels: dict[str, str] = {}
        annotations: dict[str, str] = {}
        if killed is not None and killed.delete_at > now:
            labels |= self._kill_label
        if executor_id in self._decommissioned or (killed is not None and killed.retired):
            labels |= self._decommission_label
            if not self._is_annotated(executor_id, pod):
                annotations = self._deletion_cost
        labels = {key: value for key, value in labels.items() if pod.labels.get(key) != value}
        if not labels and not annotations:
            return None
        return LabelPod(pod.name, pod.uid, labels, annotations, observed_at=None if labels else _NEVER)

    def _is_annotated(self, executor_id: int, pod: Pod) -> bool:
        """Whether the pod has a label that a request gave it together with the annotations."""
        shown, last = self._decommission_label, self._labelled.get(executor_id)
        if not shown and last is not None and last.annotations:
            shown = dict(last.labels)
        return bool(shown) and shown.items() <= pod.labels.items()


def _label(text: str | None) -> dict[str, str]:
    key, _, value = (text or "").partition("=")
    return {key: value} if key else {}
