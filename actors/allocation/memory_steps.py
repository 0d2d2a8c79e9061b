"""Decides which executors get more memory: those that replace executors killed for using more than their limit.

Each profile has slots with a memory step: how often memory was raised there. An executor that is killed for its memory
raises its slot by a step, up to the last one that `on_oom` has. The replacement of a lost executor keeps the step of
its slot; that of one that the driver ended does not. Slots that the target no longer needs are dropped, the lowest
first.

Nothing here sends a message. Without `on_oom` nothing is followed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from actors.pods.loss import LossKind, explain
from actors.pods.state import executor_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.allocation.executor_tracker import ExecutorTracker
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.messages.internal import LedgerEntry, SnapshotBatch
    from actors.pods.snapshot import PodsSnapshot
    from actors.pods.state import PodState
    from actors.settings import Settings

__all__ = ["MemorySteps"]


class MemorySteps:
    """The memory steps of one Allocator's executors."""

    def __init__(self, settings: Settings, tracker: ExecutorTracker, manifests: ExecutorManifests) -> None:
        self._rules = settings.pod_rules
        self._tracker = tracker
        self._manifests = manifests
        self._enabled = any(manifests.memory_steps(name) for name in settings.profile_names)
        self._slots: dict[str, Counter[int]] = {}
        """By profile: how many of its executors are to have each step, without step 0."""
        self._raised: dict[int, tuple[str, int]] = {}
        """The executors with more memory that count toward a target: profile and step."""
        self._ended: set[str] = set()
        """UIDs of pods in the snapshot whose end was followed."""

    def load(self, slots: Mapping[str, Iterable[int]], entries: Iterable[LedgerEntry]) -> None:
        """Continue what the last incarnation knew. Executors in the snapshot say themselves what they have."""
        if self._enabled:
            self._slots = {profile: Counter(steps) for profile, steps in slots.items()}
            for entry in entries:
                if entry.memory_step and entry.executor_id in self._tracker.requested:
                    self._raised[entry.executor_id] = entry.profile, entry.memory_step

    def follow(self, batch: SnapshotBatch, *, counts: bool) -> None:
        """Apply a batch, before the tracker does. Ends count only if `counts`: others were counted before."""
        if not self._enabled:
            return
        states = batch.snapshot.states
        ends = [(ended.executor_id, ended.state) for ended in batch.ended]
        for executor_id in sorted(batch.changed):
            state = states.get(executor_id)
            if state is None:
                continue
            if state.final:
                ends.append((executor_id, state))
            elif state.pod.memory_step and self._tracker.counts_toward_target(state):
                self._raised.setdefault(executor_id, (state.pod.profile, state.pod.memory_step))
        self._drop_those_ended_by_us(batch.snapshot)
        for executor_id, state in ends:
            if state.pod.uid not in self._ended:
                self._ended.add(state.pod.uid)
                if counts and self._is_out_of_memory(executor_id, state):
                    self._raise(state.pod.profile, state.pod.memory_step)
        self._ended.difference_update(ended.uid for ended in batch.ended)
        self._adopt()

    def _drop_those_ended_by_us(self, snapshot: PodsSnapshot) -> None:
        """Stop counting those that are leaving or gone; those that the driver ended leave no slot."""
        for executor_id, (profile, step) in list(self._raised.items()):
            if self._counts(executor_id, snapshot):
                continue
            del self._raised[executor_id]
            if self._tracker.is_being_ended(executor_id):
                self._slots.get(profile, Counter()).subtract({step: 1})

    def _counts(self, executor_id: int, snapshot: PodsSnapshot) -> bool:
        state = snapshot.states.get(executor_id)
        if state is None:
            return executor_id in self._tracker.requested
        return self._tracker.counts_toward_target(state)

    def _is_out_of_memory(self, executor_id: int, state: PodState) -> bool:
        """Whether its own container was killed for its memory, and nobody had decided to end it."""
        end = executor_end(state.pod, self._rules)
        return (
            end is not None
            and end.reason == "OOMKilled"
            and not self._tracker.is_being_ended(executor_id)
            and explain(executor_id, state, self._rules).kind is LossKind.OOM_KILLED
        )

    def _raise(self, profile: str, step: int) -> None:
        most = self._manifests.memory_steps(profile)
        slots = self._slots.setdefault(profile, Counter())
        if step and slots[step]:
            slots[step] -= 1
        if most:
            slots[min(step + 1, most)] += 1

    def _adopt(self) -> None:
        """Make slots for the executors of an earlier driver, which nobody told us of."""
        for profile, steps in self._has().items():
            slots = self._slots.setdefault(profile, Counter())
            for step, count in steps.items():
                slots[step] = max(slots[step], count)

    def _has(self) -> dict[str, Counter[int]]:
        has: dict[str, Counter[int]] = {}
        for profile, step in self._raised.values():
            has.setdefault(profile, Counter())[step] += 1
        return has

    def _owed(self, profile: str) -> list[int]:
        """Return the steps of the slots without an executor, the highest first."""
        owed = self._slots.get(profile, Counter()) - self._has().get(profile, Counter())
        return sorted(owed.elements(), reverse=True)

    def forget_abandoned(self, snapshot: PodsSnapshot) -> None:
        """Owe again what was given to executors that were abandoned since the last batch."""
        for executor_id in [i for i in self._raised if not self._counts(i, snapshot)]:
            del self._raised[executor_id]

    def give(self, profile: str, executor_ids: Iterable[int]) -> dict[int, int]:
        """Return the steps of those of the requested executors that get more memory, by id: the first ones."""
        if not self._slots.get(profile):
            return {}
        most = self._manifests.memory_steps(profile)
        pairs = zip(executor_ids, self._owed(profile), strict=False)
        given = {executor_id: (step, min(step, most)) for executor_id, step in pairs}
        for executor_id, (slot, _) in given.items():
            self._raised[executor_id] = profile, slot
        return {executor_id: step for executor_id, (_, step) in given.items() if step}

    def step_of(self, executor_id: int, profile: str) -> int:
        """Return how often the memory of a requested executor is raised."""
        _, step = self._raised.get(executor_id, (profile, 0))
        return min(step, self._manifests.memory_steps(profile))

    def settle(self, missing: Mapping[str, int], snapshot: PodsSnapshot) -> None:
        """Drop the slots that the targets no longer need; `missing` is what each profile lacks after a round."""
        self.forget_abandoned(snapshot)
        for profile, slots in list(self._slots.items()):
            lacks = max(0, missing.get(profile, 0))
            slots.subtract(self._owed(profile)[lacks:])
            self._slots[profile] = +slots
            if not self._slots[profile]:
                del self._slots[profile]

    def count(self, profile: str) -> int:
        """Return how many executors of a profile have more memory."""
        return sum(each == profile for each, _ in self._raised.values())

    def record(self) -> dict[str, tuple[int, ...]]:
        """Return the slots, for the Allocator's next incarnation."""
        return {profile: tuple(sorted(slots.elements())) for profile, slots in sorted(self._slots.items())}
