"""`PodsSnapshot`: which executors there are and how each stands, as of one moment. Immutable, structurally shared.

The next snapshot costs O(log n) per change. How many executors of a profile are in a state is kept with it, because
that is what a round asks for, and a round must not cost what the fleet weighs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from immutables import Map

from actors.pods.state import PodState

if TYPE_CHECKING:
    from immutables import MapMutation

__all__ = ["Counts", "Ended", "PodsSnapshot", "SnapshotEdit"]

Counts: TypeAlias = Map[tuple[str, type[PodState]], int]
"""How many executors of a profile are in a state; pairs that count none are left out."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A pod that left `states`."""

    executor_id: int
    uid: str
    state: PodState
    """How it ended: succeeded or failed if that was the last word on it, else `PodDeleted`, with the last Pod known."""
    confirmed: bool = True
    """False when its DELETED event came without a deletion: it may live on outside our selector, a GET tells."""


@dataclass(frozen=True, slots=True)
class PodsSnapshot:
    """States by executor id. Pods that ended stay in it as long as the API shows them."""

    EMPTY: ClassVar[PodsSnapshot]

    states: Map[int, PodState]
    counts: Counts
    resource_version: str = ""
    """How far it has come: the version of the newest list or event in it."""
    full_sync_at: float | None = None
    """When the newest consistent list in it was asked for (monotonic), None before the first."""

    def count(self, *kinds: type[PodState], profile: str | None = None) -> int:
        """How many executors are in one of these states, in one profile or in all."""
        if profile is not None:
            return sum(self.counts.get((profile, kind), 0) for kind in kinds)
        return sum(number for (_, kind), number in self.counts.items() if kind in kinds)

    def profiles(self) -> frozenset[str]:
        """The profiles that any executor is of."""
        return frozenset(profile for profile, _ in self.counts)


PodsSnapshot.EMPTY = PodsSnapshot(Map(), Map())


class SnapshotEdit:
    """Makes the next snapshot from one: many changes, one new map."""

    def __init__(self, snapshot: PodsSnapshot) -> None:
        self._before = snapshot
        self.states: MapMutation[int, PodState] = snapshot.states.mutate()
        """As edited so far; to be read."""
        self._counts: dict[tuple[str, type[PodState]], int] = {}
        profiles = snapshot.profiles()
        self._profile = next(iter(profiles)) if len(profiles) == 1 else None
        """The profile that all are of, if there is such a one."""

    def put(self, executor_id: int, state: PodState) -> None:
        """Set an executor's state. Most changes are of a detail, and count for nothing.

        Where all are of one profile, the pod as it was is not looked at: of a big fleet it is in no cache.
        """
        before, profile = self.states.get(executor_id), state.pod.profile
        self.states[executor_id] = state
        if profile != self._profile:
            self._profile = None
        if (
            before is None
            or type(before) is not type(state)
            or (self._profile is None and before.pod.profile != profile)
        ):
            self._count(before, -1)
            self._count(state, +1)

    def drop(self, executor_id: int) -> None:
        """Take an executor out."""
        self._count(self.states.pop(executor_id), -1)

    def finish(self, resource_version: str, full_sync_at: float | None) -> PodsSnapshot:
        """The next snapshot. The edit is used up."""
        counts = self._before.counts
        for key, change in self._counts.items():
            number = counts.get(key, 0) + change
            counts = counts.set(key, number) if number else (counts.delete(key) if key in counts else counts)
        return PodsSnapshot(self.states.finish(), counts, resource_version, full_sync_at)

    def _count(self, state: PodState | None, change: int) -> None:
        if state is not None:
            key = (state.pod.profile, type(state))
            self._counts[key] = self._counts.get(key, 0) + change
