"""Pods of a fleet that come, change and go without anybody asking for it: what sources are to see of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.local.kubelet import pod_status
from actors.local.kubelet.pod_status import Ended
from actors.local.store.objects import rfc3339
from actors.pods.pod import ROLE_LABEL
from tests.unit.builders import labels, pod_name

if TYPE_CHECKING:
    from random import Random

    from actors.local.store.object_store import ObjectStore
    from actors.runtime import Clock

NAMESPACE: Final = "default"

FEW: Final = 10
"""Pods below which another one is made."""

MANY: Final = 60
"""Pods above which one goes."""


class Churn:
    """One change a step. It alone writes to the store, from one thread."""

    def __init__(self, store: ObjectStore, random: Random, clock: Clock) -> None:
        self.changes = 0
        self.asked_to_end: dict[str, float] = {}
        """By UID: when the change that ends the pod was about to be made."""
        self._store = store
        self._random = random
        self._clock = clock
        self._pods: dict[int, str] = {}
        """Executor id → UID of those that are there."""
        self._last_id = 0

    def step(self) -> None:
        """Change something."""
        self.changes += 1
        if len(self._pods) < FEW:
            self._make(self._next_id())
            return
        number = self._random.choice(list(self._pods))
        if len(self._pods) > MANY:
            self._remove(number)
            return
        match self._random.randrange(20):
            case 0 | 1 | 2 | 3:
                self._make(self._next_id())
            case 4 | 5 | 6:
                self._go_on(number)
            case 7 | 8:
                self._exit(number)
            case 9 | 10:
                self._delete(number, grace=30)
            case 11 | 12:
                self._remove(number)
            case 13:
                self._remove(number)
                self._make(number)
            case 14:
                passing = self._next_id()
                self._make(passing)
                self._remove(passing)
            case 15 if self._random.random() < 0.3:
                self._take_out(number)
            case _:
                self._patch(number, {"metadata": {"annotations": {"seen": str(self.changes)}}})

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _make(self, number: int) -> None:
        pod = {
            "metadata": {"name": pod_name(number), "labels": labels(number)},
            "spec": {"containers": [{"name": "executor", "image": "worker:ü"}]},
        }
        made = self._store.create("pods", NAMESPACE, pod)
        self._pods[number] = made["metadata"]["uid"]

    def _go_on(self, number: int) -> None:
        """To a node, and from there to running; one that ended or is on its way out stays as it is."""
        pod = self._get(number)
        if "nodeName" in pod["spec"]:
            if pod["status"]["phase"] == "Pending":
                self._set_status(number, pod_status.running(pod, self._now()))
        elif "deletionTimestamp" not in pod["metadata"]:
            self._store.bind(NAMESPACE, pod_name(number), "node")

    def _exit(self, number: int) -> None:
        pod = self._get(number)
        if pod["status"]["phase"] == "Running":
            how = Ended.with_code(self._random.choice((0, 1, 137)))
            self._set_status(number, pod_status.ended(pod, how, self._now()))

    def _remove(self, number: int) -> None:
        """By force: it is gone at once."""
        self._delete(number, grace=0)

    def _delete(self, number: int, *, grace: int) -> None:
        now = self._clock.monotonic()
        last = self._store.delete("pods", NAMESPACE, pod_name(number), grace_period_seconds=grace)
        if last["metadata"]["deletionGracePeriodSeconds"] == 0:
            self.asked_to_end[self._pods.pop(number)] = now

    def _take_out(self, number: int) -> None:
        """Out of the fleet's selector, as a person with `kubectl label` does. It lives on, and is nobody's."""
        self.asked_to_end[self._pods.pop(number)] = self._clock.monotonic()
        self._patch(number, {"metadata": {"labels": {ROLE_LABEL: "pet"}}})

    def _get(self, number: int) -> dict[str, Any]:
        return self._store.get("pods", NAMESPACE, pod_name(number))

    def _patch(self, number: int, patch: dict[str, Any]) -> None:
        self._store.patch("pods", NAMESPACE, pod_name(number), patch, "merge")

    def _set_status(self, number: int, status: dict[str, Any]) -> None:
        patch = {"status": status}
        self._store.patch("pods", NAMESPACE, pod_name(number), patch, "merge", subresource="status")

    def _now(self) -> str:
        return rfc3339(self._clock.now())
