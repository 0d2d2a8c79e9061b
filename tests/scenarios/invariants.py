"""Watches a fleet from outside and says which invariant breaks, when it breaks.

It sees what the cluster's store does (the truth) and what the driver is told (the story), and knows nothing of the
actors between. Every violation is a sentence with the virtual time it was seen at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.local.store import WatchMessage
from actors.messages import (
    BackendStopped,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    SnapshotBatch,
)
from actors.pods import EXECUTOR_ID_LABEL, ROLE_LABEL

if TYPE_CHECKING:
    from actors.local.store import ObjectStore, Subscription
    from actors.runtime import Clock


@dataclass(slots=True)
class Invariants:
    """The numbered invariants of the design that can be seen from outside."""

    clock: Clock
    violations: list[str] = field(default_factory=list)
    created: int = 0
    """Pods that the cluster was made to create."""
    _target: int = 0
    _allowed: int = 0
    _alive: dict[str, str] = field(default_factory=dict)
    """UID → name."""
    _asked_to_go: set[str] = field(default_factory=set)
    """Names of pods whose deletion was asked for, whether the request got through or not."""
    _asked_for: dict[str, int] = field(default_factory=dict)
    """Name → the target when its creation was first asked for: a target lowered since is the driver's taking back."""
    _told: dict[int, str] = field(default_factory=dict)
    _removed: dict[int, int] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _returned: set[str] = field(default_factory=set)
    """UIDs of pods that are back, and whose end has not been told since."""
    _subscription: Subscription | None = None

    def watch(self, store: ObjectStore) -> None:
        """See every change of every pod, from what there is now on."""
        if self._subscription is not None:
            self._subscription.cancel()
        self._alive.clear()
        for pod in store.list("pods", None).items:
            self.pod_changed(WatchMessage("MODIFIED", pod))
        self._subscription = store.watch("pods", None, self.pod_changed, resource_version=store.resource_version)

    def retarget(self, target: int) -> None:
        """The driver asks for this many. What it takes back may live on: only creating more is wrong."""
        self._allowed = max(target, len(self._alive), self._allowed if target < self._target else 0)
        self._target = target

    def asked_for(self, name: str) -> None:
        """The backend asks for a pod."""
        self._asked_for.setdefault(name, self._target)

    def asked_to_go(self, name: str) -> None:
        """The backend asks for a pod's deletion: from then on it is the API that keeps it alive."""
        self._asked_to_go.add(name)

    def taken_by_others(self, name: str) -> None:
        """Somebody else deletes a pod. If the answer to its POST was lost and the watch is away, it may be made again
        before anybody can know that it had been there: it is deleted as soon as it is seen, and not counted till then.
        """
        self._asked_to_go.add(name)

    def back_again(self, uid: str) -> None:
        """Somebody moves a pod that had left our selector back into it: it ends twice, once for each time."""
        self._returned.add(uid)

    def history_was_reset(self) -> None:
        """The cluster was restored from a backup: pods may go back in time now, once."""
        self._versions.clear()
        self._gone.clear()

    def another_life(self) -> None:
        """The driver starts again and knows of nothing; the cluster goes on."""
        self._told.clear()
        self._removed.clear()
        self._versions.clear()
        self._gone.clear()

    def pod_changed(self, message: WatchMessage) -> None:
        """1: live pods that are not terminating never exceed the target by more than what the driver took back."""
        pod: dict[str, Any] = message.object
        metadata = pod["metadata"]
        labels = metadata.get("labels", {})
        if labels.get(ROLE_LABEL) != "executor" or not labels.get(EXECUTOR_ID_LABEL, "").isdecimal():
            self._alive.pop(metadata["uid"], None)
            return
        uid = metadata["uid"]
        ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if message.type == "ADDED":
            self.created += 1
        if message.type == "DELETED" or metadata.get("deletionTimestamp") or ended:
            self._alive.pop(uid, None)
        else:
            self._alive[uid] = metadata["name"]
        wanted = [name for name in self._alive.values() if name not in self._asked_to_go]
        allowed = max(self._allowed, self._asked_for.get(metadata["name"], 0))
        if message.type == "ADDED" and len(wanted) > allowed:
            self._broken(1, f"{len(wanted)} pods live, {self._target} are wanted, {allowed} are allowed")

    def told(self, message: object) -> None:
        """2: every executor the driver was told of is reported removed exactly once, and not heard of after that."""
        match message:
            case ExecutorPending(executor_id) | ExecutorRunning(executor_id) | ExecutorTerminating(executor_id):
                if executor_id in self._removed:
                    self._broken(2, f"executor {executor_id} is {type(message).__name__} after its removal")
                self._told[executor_id] = type(message).__name__
            case ExecutorRemoved(executor_id):
                self._removed[executor_id] = self._removed.get(executor_id, 0) + 1
                if self._removed[executor_id] > 1:
                    self._broken(2, f"executor {executor_id} is removed {self._removed[executor_id]} times")
            case BackendStopped():
                lost = sorted(self._told.keys() - self._removed.keys())
                if lost and not message.left_behind and not self._alive:
                    self._broken(2, f"executors {lost} were never reported removed")
            case _:
                pass

    def seen(self, batch: SnapshotBatch) -> None:
        """3: a pod never goes back in time in the snapshots, and none comes back once it ended."""
        for ended in batch.ended:
            if ended.uid in self._gone and ended.uid not in self._returned:
                self._broken(3, f"the end of pod {ended.uid} is told twice")
            if ended.uid in self._gone:
                self._returned.discard(ended.uid)
            self._gone.add(ended.uid)
        for executor_id in batch.changed:
            state = batch.snapshot.states.get(executor_id)
            if state is None:
                continue
            uid, version = state.pod.uid, int(state.pod.resource_version)
            if uid in self._gone and uid not in self._returned:
                self._broken(3, f"pod {uid} is back after its end")
            if version < self._versions.get(uid, 0):
                self._broken(3, f"pod {uid} went from version {self._versions[uid]} back to {version}")
            self._versions[uid] = version

    def present(self) -> set[int]:
        """Executors that the driver believes to be there."""
        return self._told.keys() - self._removed.keys()

    def alive(self) -> int:
        """How many of the fleet's pods live in the cluster."""
        return len(self._alive)

    def _broken(self, number: int, words: str) -> None:
        self.violations.append(f"invariant {number} at {self.clock.monotonic():.3f} s: {words}")
