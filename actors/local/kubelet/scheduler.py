"""`Scheduler`: binds pods to the one node as long as there is room, oldest first.

Pods of another `schedulerName`, or with scheduling gates, are ignored, as on a real cluster. Requests, selectors and
affinities are not considered: there is only one node.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from actors.local.kubelet.nodes import UNREACHABLE
from actors.local.store.object_store import ApiStatus, ObjectStore
from actors.local.store.objects import DEFAULT_SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.local.kubelet.recorder import EventRecorder

__all__ = ["Scheduler", "is_schedulable"]


class Scheduler:
    """Not thread-safe: called on the kubelet's thread."""

    def __init__(self, store: ObjectStore, events: EventRecorder, *, node: str, max_pods: int) -> None:
        self._store = store
        self._events = events
        self._node = node
        self._max_pods = max_pods
        self._node_lost = False
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._placed: set[str] = set()
        """UIDs of the pods on the node, including those just bound, whose event has not come back yet."""

    def offer(self, pod: Mapping[str, Any]) -> None:
        """Bind an unbound pod, or let it wait for room."""
        uid = pod["metadata"]["uid"]
        self._waiting.pop(uid, None)
        if uid in self._placed or "deletionTimestamp" in pod["metadata"] or not is_schedulable(pod):
            return
        if self._has_room():
            self._bind(uid, pod)
        else:
            self._waiting[uid] = pod
            self._report_unschedulable(pod)

    def placed(self, uid: str) -> None:
        """Count a pod that was bound to this node, by any scheduler."""
        self._waiting.pop(uid, None)
        self._placed.add(uid)

    def freed(self, uid: str) -> None:
        """Stop counting a pod that has ended or is gone, and bind waiting pods."""
        self._waiting.pop(uid, None)
        self._placed.discard(uid)
        self._bind_waiting()

    def node_lost(self) -> None:
        """Bind no pod until `node_back`."""
        self._node_lost = True

    def node_back(self) -> None:
        """Bind the pods that wait."""
        self._node_lost = False
        self._bind_waiting()

    def _has_room(self) -> bool:
        return not self._node_lost and len(self._placed) < self._max_pods

    def _bind_waiting(self) -> None:
        while self._waiting and self._has_room():
            oldest = next(iter(self._waiting))
            self._bind(oldest, self._waiting.pop(oldest))

    def _bind(self, uid: str, pod: Mapping[str, Any]) -> None:
        meta = pod["metadata"]
        try:
            self._store.bind(meta["namespace"], meta["name"], self._node, uid=uid)
        except ApiStatus:
            return  # terminating, or bound by another client: its next event decides
        self._placed.add(uid)
        target = f"{meta['namespace']}/{meta['name']}"
        message = f"Successfully assigned {target} to {self._node}"
        self._events.record(pod, "Scheduled", message, component="default-scheduler")

    def _report_unschedulable(self, pod: Mapping[str, Any]) -> None:
        """Write into the pod's status, once, why it is not bound."""
        if any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions") or ()):
            return
        full = f"1 Too many pods (the node takes {self._max_pods})"
        tainted = f"1 node(s) had untolerated taint {{{UNREACHABLE}: }}"
        message = f"0/1 nodes are available: {tainted if self._node_lost else full}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        meta = pod["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [condition]}}
        with suppress(ApiStatus):
            self._store.patch("pods", meta["namespace"], meta["name"], patch, "strategic", subresource="status")
        self._events.record(pod, "FailedScheduling", message, "Warning", component="default-scheduler")


def is_schedulable(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod is for the default scheduler and has no scheduling gate."""
    return pod["spec"]["schedulerName"] == DEFAULT_SCHEDULER and not pod["spec"].get("schedulingGates")
