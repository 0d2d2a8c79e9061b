"""Watches a fleet from outside and says which invariant breaks, when it breaks.

It sees what the cluster's store does (the truth) and what the driver is told (the story), and knows nothing of the
actors between. Every violation is a sentence with the virtual time it was seen at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from actors.local.store.object_store import WatchMessage
from actors.messages import (
    BackendStopped,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorTerminating,
)
from actors.pods.pod import DEFAULT_PROFILE, EXECUTOR_ID_LABEL, INACTIVE_LABEL, PROFILE_LABEL, ROLE_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from actors.local.store.object_store import ObjectStore, Subscription
    from actors.messages import FleetExecutors
    from actors.messages.internal import SnapshotBatch
    from actors.runtime import Clock

SHOWN: Final[Mapping[str, frozenset[ExecutorState]]] = {
    "ExecutorPending": frozenset({ExecutorState.PENDING}),
    "ExecutorRunning": frozenset({ExecutorState.RUNNING}),
    "ExecutorTerminating": frozenset({ExecutorState.TERMINATING}),
    "RegisterExecutor": frozenset({ExecutorState.REQUESTED, ExecutorState.TERMINATING}),
}
"""As what an executor may be shown of which this was told last."""

UNTOLD: Final = frozenset({ExecutorState.REQUESTED, ExecutorState.TERMINATING})
"""As what an executor may be shown that the driver was not told of: a previous driver's may terminate."""

ENDS_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Live:
    """A pod of the fleet that neither ended nor is about to go."""

    name: str
    executor_id: int
    profile: str


@dataclass(slots=True)
class Invariants:
    """The numbered invariants of the design that can be seen from outside."""

    clock: Clock
    violations: list[str] = field(default_factory=list)
    created: int = 0
    """Pods that the cluster was made to create."""
    to_confirm: dict[int, float] = field(default_factory=dict)
    """Executor id → when a batch brought an end that is to be asked for again (monotonic)."""
    _target: dict[str, int] = field(default_factory=dict)
    _allowed: dict[str, int] = field(default_factory=dict)
    """Both by profile."""
    _alive: dict[str, Live] = field(default_factory=dict)
    """By UID."""
    _asked_to_go: set[str] = field(default_factory=set)
    """Names of pods whose deletion was asked for, whether the request got through or not."""
    _asked_for: dict[str, int] = field(default_factory=dict)
    """Name → the target when its creation was first asked for: a target lowered since is the driver's taking back."""
    _told: dict[int, str] = field(default_factory=dict)
    _removed: dict[int, int] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _returned: Counter[str] = field(default_factory=Counter)
    """How often pods that had ended are back, by UID: as often may their end be told again."""
    _old_batches: int = 0
    """Up to this number they are of a history that was reset since."""
    _fleet_is_left: bool = False
    _subscription: Subscription | None = None

    def watch(self, store: ObjectStore) -> None:
        """See every change of every pod, from what there is now on."""
        if self._subscription is not None:
            self._subscription.cancel()
        self._alive.clear()
        for pod in store.list("pods", None).items:
            self.pod_changed(WatchMessage("MODIFIED", pod))
        self._subscription = store.watch("pods", None, self.pod_changed, resource_version=store.resource_version)

    def retarget(self, target: int | Mapping[str, int]) -> None:
        """The driver asks for this many. What it takes back may live on: only creating more is wrong."""
        totals = {DEFAULT_PROFILE: target} if isinstance(target, int) else target
        for profile in {*totals, *self._target}:
            wanted, before = totals.get(profile, 0), self._target.get(profile, 0)
            kept = self._allowed.get(profile, 0) if wanted < before else 0
            self._allowed[profile] = max(wanted, self.alive(profile), kept)
            self._target[profile] = wanted

    def retarget_exactly(self, totals: Mapping[str, int], requested: Iterable[tuple[str, str]]) -> None:
        """The same, by one who knows which pods, by name and profile, were requested before and not seen yet.

        These may come up. Others that live in excess may live on, but none may come to them.
        """
        for name, profile in requested:
            self._asked_for.setdefault(name, self._target.get(profile, 0))
        self._target = dict(totals)
        self._allowed = dict(totals)

    def asked_for(self, name: str, profile: str = DEFAULT_PROFILE) -> None:
        """The backend asks for a pod."""
        self._asked_for.setdefault(name, self._target.get(profile, 0))

    def asked_for_under(self, name: str, target: int) -> None:
        """The backend asks for a pod, under a target that may have been lowered since."""
        self._asked_for[name] = target

    def asked_to_go(self, name: str) -> None:
        """The backend asks for a pod's deletion: from then on it is the API that keeps it alive."""
        self._asked_to_go.add(name)

    def retires(self, name: str) -> bool:
        """The driver retires an executor: it no longer counts. Whether it counted before."""
        counted = name not in self._asked_to_go
        self._asked_to_go.add(name)
        return counted

    def stays(self, name: str) -> None:
        """An executor does not retire after all."""
        self._asked_to_go.discard(name)

    def taken_by_others(self, name: str) -> None:
        """Somebody else deletes a pod, or the cluster does.

        If the answer to its POST was lost and the watch is away, it may be made again before anybody can know that it
        had been there: it is deleted as soon as it is seen, and not counted till then.
        """
        self._asked_to_go.add(name)

    def back_again(self, uid: str) -> None:
        """A pod that was gone is there again: moved back into our selector, or restored. It ends once for each time."""
        self._returned[uid] += 1

    def history_was_reset(self, last_batch: int = 0) -> None:
        """The cluster was restored from a backup: pods may go back in time now, once.

        One who knows when the store found that out says what its last batch before that was.
        """
        self._old_batches = last_batch
        self._versions.clear()
        for uid in self._gone:
            self._returned.pop(uid, None)
        self._gone.clear()

    def fleet_is_left(self) -> None:
        """The driver is about to stop, and to leave executors that have not ended."""
        self._fleet_is_left = True

    def another_life(self) -> None:
        """The driver starts again and knows of nothing; the cluster goes on."""
        self._fleet_is_left = False
        self._told.clear()
        self._removed.clear()
        self.another_store()
        names = {live.name for live in self._alive.values()}  # ids count on from what is seen: others may come again
        self._asked_to_go &= names
        self._asked_for = {name: target for name, target in self._asked_for.items() if name in names}

    def another_store(self) -> None:
        """The snapshots begin anew."""
        self._old_batches = 0
        self._versions.clear()
        self._gone.clear()

    def pod_changed(self, message: WatchMessage) -> None:
        """1: live pods that are not terminating never exceed the target by more than what the driver took back."""
        pod: dict[str, Any] = message.object
        metadata = pod["metadata"]
        labels = metadata.get("labels", {})
        uid, number = metadata["uid"], labels.get(EXECUTOR_ID_LABEL, "")
        is_ours = labels.get(ROLE_LABEL) == "executor" and labels.get(INACTIVE_LABEL) != "true"
        if not is_ours or not metadata["name"].endswith(f"-{number}"):
            self._alive.pop(uid, None)
            return
        profile = labels.get(PROFILE_LABEL, DEFAULT_PROFILE)
        ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if message.type == "ADDED":
            self.created += 1
        if message.type == "DELETED" or metadata.get("deletionTimestamp") or ended:
            self._alive.pop(uid, None)
        else:
            self._alive[uid] = Live(metadata["name"], int(number), profile)
        if message.type != "ADDED" or metadata["name"] in self._asked_to_go:
            return  # one that is not counted makes no excess
        here = [live.name for live in self._alive.values() if live.profile == profile]
        counted = sum(name not in self._asked_to_go for name in here)
        target = self._target.get(profile, 0)
        allowed = max(self._allowed.get(profile, 0), self._asked_for.get(metadata["name"], 0))
        if counted > allowed:
            names = ", ".join(sorted(name for name in here if name not in self._asked_to_go))
            words = f"{counted} {profile} pods live, {target} are wanted, {allowed} are allowed"
            self._broken(1, f"{words}: {metadata['name']} came to {names}")

    def knows(self, executor_id: int) -> None:
        """The driver has registered an executor: its end may be all that it hears of it."""
        self._told.setdefault(executor_id, "RegisterExecutor")

    def told(self, message: object) -> None:
        """2: the executors that the driver was told of, and no others, are reported removed, once and as the last."""
        match message:
            case ExecutorPending(executor_id) | ExecutorRunning(executor_id) | ExecutorTerminating(executor_id):
                if executor_id in self._removed:
                    self._broken(2, f"executor {executor_id} is {type(message).__name__} after its removal")
                self._told[executor_id] = type(message).__name__
                if isinstance(message, ExecutorTerminating) and message.retiring:
                    self.retires(f"app-exec-{executor_id}")
            case ExecutorRemoved(executor_id):
                if executor_id not in self._told:
                    self._broken(2, f"executor {executor_id} is removed, and the driver did not know it")
                self._removed[executor_id] = self._removed.get(executor_id, 0) + 1
                if self._removed[executor_id] > 1:
                    self._broken(2, f"executor {executor_id} is removed {self._removed[executor_id]} times")
            case BackendStopped():
                lost = sorted(self._told.keys() - self._removed.keys())
                if lost and not message.left_behind and not self._alive and not self._fleet_is_left:
                    self._broken(2, f"executors {lost} were never reported removed")
            case _:
                pass

    def seen(self, batch: SnapshotBatch) -> None:
        """3: a pod never goes back in time in the snapshots, and none comes back once it ended."""
        if batch.seq <= self._old_batches:
            return
        for ended in batch.ended:
            if ended.uid in self._gone and not self._comes_back(ended.uid):
                self._broken(3, f"the end of pod {ended.uid} is told twice")
            self._gone.add(ended.uid)
            if not ended.confirmed:
                self.to_confirm[ended.executor_id] = self.clock.monotonic()
        for executor_id in batch.changed:
            state = batch.snapshot.states.get(executor_id)
            if state is None:
                continue
            uid, version = state.pod.uid, int(state.pod.resource_version)
            if uid in self._gone and not self._comes_back(uid):
                self._broken(3, f"pod {uid} is back after its end")
            if version < self._versions.get(uid, 0):
                self._broken(3, f"pod {uid} went from version {self._versions[uid]} back to {version}")
            self._versions[uid] = version

    def _comes_back(self, uid: str) -> bool:
        """Whether one that ended may be there again: with the version that it has then."""
        if not self._returned[uid]:
            return False
        self._returned[uid] -= 1
        self._gone.discard(uid)
        self._versions.pop(uid, None)
        return True

    def present(self) -> set[int]:
        """Executors that the driver believes to be there."""
        return self._told.keys() - self._removed.keys()

    def contradicts(self, fleet: FleetExecutors, removals: Sequence[ExecutorRemoved]) -> list[str]:
        """2: whoever asks which executors there are is answered what the driver was told."""
        shown = {executor.id: executor.state for executor in fleet.alive}
        told = {executor_id: self._told[executor_id] for executor_id in self.present()}
        ids = sorted(shown.keys() | told.keys())
        both = [(executor_id, shown.get(executor_id), told.get(executor_id)) for executor_id in ids]
        wrong = [
            f"2: executor {executor_id} is shown as {state}, the driver was told {last}"
            for executor_id, state, last in both
            if state not in (UNTOLD if last is None else SHOWN[last])
        ]
        ends = [(executor.id, executor.loss) for executor in fleet.ended]
        told_ends = [(removed.executor_id, removed.reason) for removed in removals[-ENDS_SHOWN:]]
        return wrong if ends == told_ends else [*wrong, f"2: {ends} are shown as ended, {told_ends} were told"]

    def alive(self, profile: str | None = None, *, but: AbstractSet[int] = frozenset()) -> int:
        """How many of the fleet's pods live in the cluster, of one profile or of all, without some executors."""
        return sum(profile in (None, live.profile) and live.executor_id not in but for live in self._alive.values())

    def executors(self, profile: str) -> frozenset[int]:
        """The executors of one profile's pods that live in the cluster."""
        return frozenset(live.executor_id for live in self._alive.values() if live.profile == profile)

    def living(self) -> set[int]:
        """The executors of the fleet's pods that live in the cluster."""
        return {live.executor_id for live in self._alive.values()}

    def _broken(self, number: int, words: str) -> None:
        self.violations.append(f"invariant {number} at {self.clock.monotonic():.3f} s: {words}")
