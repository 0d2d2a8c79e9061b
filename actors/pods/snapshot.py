"""`PodsSnapshot`: the executors and their pod states at one moment. Immutable, with shared structure.

The next snapshot costs O(log n) per change. The number of executors by profile and state is kept with it, so that a
round does not have to count the fleet.
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
"""The number of executors by profile and state, without zeros."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A pod that left `states`."""

    executor_id: int
    uid: str
    state: PodState
    """The final state: succeeded or failed if that was observed, else `PodDeleted`, with the last observed pod."""
    confirmed: bool = True
    """False if the DELETED event came without a deletion: a GET decides whether the pod only left our selector."""


@dataclass(frozen=True, slots=True)
class PodsSnapshot:
    """Pod states by executor id. Ended pods stay as long as the API has them."""

    EMPTY: ClassVar[PodsSnapshot]

    states: Map[int, PodState]
    counts: Counts
    resource_version: str = ""
    """The version of the newest LIST or event in it."""
    full_sync_at: float | None = None
    """When the newest consistent LIST in it was requested (monotonic), None before the first."""

    def count(self, *kinds: type[PodState], profile: str | None = None) -> int:
        """Return the number of executors in one of these states, of one profile or of all."""
        if profile is not None:
            return sum(self.counts.get((profile, kind), 0) for kind in kinds)
        return sum(number for (_, kind), number in self.counts.items() if kind in kinds)

    def profiles(self) -> frozenset[str]:
        """Return the profiles that have executors."""
        return frozenset(profile for profile, _ in self.counts)


PodsSnapshot.EMPTY = PodsSnapshot(Map(), Map())


class SnapshotEdit:
    """Builds the next snapshot: many changes, one new map."""

    def __init__(self, snapshot: PodsSnapshot) -> None:
        self._before = snapshot
        self.states: MapMutation[int, PodState] = snapshot.states.mutate()
        """The states so far. Read-only for callers."""
        self._counts: dict[tuple[str, type[PodState]], int] = {}
        profiles = snapshot.profiles()
        self._profile = next(iter(profiles)) if len(profiles) == 1 else None
        """The profile of all executors, None if there are several."""

    def put(self, executor_id: int, state: PodState) -> None:
        """Set an executor's state. Most changes do not affect the counts.

        With a single profile, the previous pod is not read: in a large fleet it is in no CPU cache.
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
        """Remove an executor."""
        self._count(self.states.pop(executor_id), -1)

    def finish(self, resource_version: str, full_sync_at: float | None) -> PodsSnapshot:
        """Return the next snapshot, and end the edit."""
        counts = self._before.counts
        for key, change in self._counts.items():
            number = counts.get(key, 0) + change
            counts = counts.set(key, number) if number else (counts.delete(key) if key in counts else counts)
        return PodsSnapshot(self.states.finish(), counts, resource_version, full_sync_at)

    def _count(self, state: PodState | None, change: int) -> None:
        if state is not None:
            key = (state.pod.profile, type(state))
            self._counts[key] = self._counts.get(key, 0) + change
