"""Events about pods (`kubectl describe`, `kubectl get events`), a bounded number of them."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from actors.local.schema.statuses import ApiStatus
from actors.local.store.objects import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.local.store.object_store import ObjectStore
    from actors.runtime import Clock

__all__ = ["EventRecorder"]

_KEPT: Final = 2_000
"""A fleet that restarts all day makes a few events per pod; older ones are of no interest, and each costs memory."""


class EventRecorder:
    """Writes events of one node. Not thread-safe: owned by one thread."""

    def __init__(self, store: ObjectStore, clock: Clock, *, host: str) -> None:
        self._store = store
        self._clock = clock
        self._host = host
        self._kept: deque[tuple[str, str]] = deque()
        self._count = 0

    def record(
        self,
        pod: Mapping[str, Any],
        reason: str,
        message: str,
        kind: Literal["Normal", "Warning"] = "Normal",
        *,
        component: Literal["kubelet", "default-scheduler"] = "kubelet",
    ) -> None:
        """Write an event about a pod. One that cannot be written (its namespace is terminating) is dropped."""
        meta = pod["metadata"]
        self._count += 1
        now = rfc3339(self._clock.now())
        name = f"{meta['name'][:200]}.{self._count:016x}"
        event = {
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": component, "host": self._host},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "reportingComponent": component,
            "reportingInstance": self._host,
        }
        with suppress(ApiStatus):
            self._store.create("events", meta["namespace"], event)
            self._kept.append((meta["namespace"], name))
        while len(self._kept) > _KEPT:
            namespace, oldest = self._kept.popleft()
            with suppress(ApiStatus):
                self._store.delete("events", namespace, oldest)
