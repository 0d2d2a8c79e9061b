"""`PodsSnapshot`: the executors and their pod states at one moment. Immutable, with shared structure.

The next snapshot shares with it all but what changed. The number of executors by profile and state is kept with it, so
that a round does not have to count the fleet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from actors.pods.id_map import IdMap
from actors.pods.state import PodState

__all__ = ["Counts", "Ended", "PodsSnapshot", "SnapshotEdit"]

Counts: TypeAlias = Mapping[tuple[str, type[PodState]], int]
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

    states: IdMap[PodState]
    counts: Counts
    resource_version: str = ""
    """The version of the newest LIST or event in it."""
    full_sync_at: float | None = None
    """When the newest consistent LIST in it was requested (monotonic), None before the first."""

    def count(self, *kinds: type[PodState], profile: str | None = None) -> int:
        """Return the number of executors in one of these states, of one profile or of all."""
        if profile is not None:
            return sum([self.counts.get((profile, kind), 0) for kind in kinds])
        return sum(number for (_, kind), number in self.counts.items() if kind in kinds)

    def profiles(self) -> frozenset[str]:
        """Return the profiles that have executors."""
        return frozenset(profile for profile, _ in self.counts)


PodsSnapshot.EMPTY = PodsSnapshot(IdMap(), {})


class SnapshotEdit:
    """Builds the next snapshot: many changes, one new map."""

    def __init__(self, snapshot: PodsSnapshot) -> None:
        self._before = snapshot
        self._states = snapshot.states.edit()
        self._counts: dict[tuple[str, type[PodState]], int] = {}

    def get(self, executor_id: int) -> PodState | None:
        """Return an executor's state so far, None if it is not there."""
        return self._states.get(executor_id)

    def put(self, executor_id: int, state: PodState, before: PodState | None) -> None:
        """Set an executor's state, `before` until now as `get` returns it."""
        self._states.put(executor_id, state)
        self._count(before, -1)
        self._count(state, +1)

    def renew(self, executor_id: int, state: PodState) -> None:
        """Set an executor's state, of the same kind and profile as until now: the counts stay. Most changes do this."""
        self._states.put(executor_id, state)

    def drop(self, executor_id: int) -> PodState:
        """Remove an executor, and return its last state."""
        before = self.get(executor_id)
        if before is None:
            raise KeyError(executor_id)
        self._states.put(executor_id, None)
        self._count(before, -1)
        return before

    def finish(self, resource_version: str, full_sync_at: float | None) -> PodsSnapshot:
        """Return the next snapshot, and end the edit."""
        counts = self._before.counts
        if self._counts:
            changed = {key: counts.get(key, 0) + change for key, change in self._counts.items()}
            counts = {key: number for key, number in {**counts, **changed}.items() if number}
        return PodsSnapshot(self._before.states.after(self._states), counts, resource_version, full_sync_at)

    def _count(self, state: PodState | None, change: int) -> None:
        if state is not None:
            key = (state.pod.profile, type(state))
            self._counts[key] = self._counts.get(key, 0) + change
