"""`Scheduler`: binds pods to the one node as long as there is room, oldest first.

A pod of another `schedulerName`, or with scheduling gates, stays as it is, as on a real cluster. Requests, selectors
and affinities are not looked at: there is only one place to go.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from actors.local.store.object_store import ApiStatus, ObjectStore
from actors.local.store.objects import DEFAULT_SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.local.kubelet.recorder import EventRecorder

__all__ = ["Scheduler", "is_schedulable"]


class Scheduler:
    """Not thread-safe: owned by the kubelet's thread, which tells it what it sees."""

    def __init__(self, store: ObjectStore, events: EventRecorder, *, node: str, max_pods: int) -> None:
        self._store = store
        self._events = events
        self._node = node
        self._max_pods = max_pods
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._placed: set[str] = set()
        """UIDs of pods that take up room; those just bound are here before their event comes back."""

    def offer(self, pod: Mapping[str, Any]) -> None:
        """An unbound pod was seen, new or changed."""
        uid = pod["metadata"]["uid"]
        self._waiting.pop(uid, None)
        if uid in self._placed or "deletionTimestamp" in pod["metadata"] or not is_schedulable(pod):
            return
        if len(self._placed) < self._max_pods:
            self._bind(uid, pod)
        else:
            self._waiting[uid] = pod
            self._explain(pod)

    def placed(self, uid: str) -> None:
        """A pod was bound to this node, by whomever."""
        self._waiting.pop(uid, None)
        self._placed.add(uid)

    def freed(self, uid: str) -> None:
        """A pod has ended or is gone: it takes up no room any more."""
        self._waiting.pop(uid, None)
        self._placed.discard(uid)
        while self._waiting and len(self._placed) < self._max_pods:
            oldest = next(iter(self._waiting))
            self._bind(oldest, self._waiting.pop(oldest))

    def _bind(self, uid: str, pod: Mapping[str, Any]) -> None:
        meta = pod["metadata"]
        try:
            self._store.bind(meta["namespace"], meta["name"], self._node, uid=uid)
        except ApiStatus:
            return  # It is going, or somebody else bound it: its next event says what to do.
        self._placed.add(uid)
        target = f"{meta['namespace']}/{meta['name']}"
        message = f"Successfully assigned {target} to {self._node}"
        self._events.record(pod, "Scheduled", message, component="default-scheduler")

    def _explain(self, pod: Mapping[str, Any]) -> None:
        """Say once, in the pod's own status, why it waits."""
        if any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions") or ()):
            return
        message = f"0/1 nodes are available: 1 Too many pods (the node takes {self._max_pods})."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        meta = pod["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [condition]}}
        with suppress(ApiStatus):
            self._store.patch("pods", meta["namespace"], meta["name"], patch, "strategic", subresource="status")
        self._events.record(pod, "FailedScheduling", message, "Warning", component="default-scheduler")


def is_schedulable(pod: Mapping[str, Any]) -> bool:
    """It asks for no other scheduler, and has no scheduling gate."""
    return pod["spec"]["schedulerName"] == DEFAULT_SCHEDULER and not pod["spec"].get("schedulingGates")
