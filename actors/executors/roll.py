"""Rolls: which executor is replaced next, while executors are replaced one by one. Pure.

The model is Spark's executor roll plugin, which also replaces one executor at each interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from actors.pods.pod import Pod, restarts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from actors.messages import ProfileStatus
    from actors.messages.internal import LedgerEntry
    from actors.pods.state import PodState
    from actors.runtime import Moment

__all__ = ["POLICIES", "Candidate", "RollPolicy", "candidates", "choose", "lacks"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running executor that may be rolled, as a policy receives it."""

    executor_id: int
    profile: str
    age: float
    """Seconds since it first ran."""
    failures: int
    """How often its connection was lost, plus how often its containers were restarted."""
    pod: Pod


LONGEST_CHOICE: Final = timedelta(seconds=5)
"""How long a function of the driver may take to choose executors, all its calls together. The Backend and who asks it
wait meanwhile. A function that compares what it has takes a microsecond an executor."""

RollPolicy: TypeAlias = Callable[["Sequence[Candidate]"], int | None]
"""Returns the id of the executor to roll, None for none. It may use anything that the driver knows."""


def _lowest_id(among: Sequence[Candidate]) -> int | None:
    return min(candidate.executor_id for candidate in among)


def _oldest(among: Sequence[Candidate]) -> int | None:
    return max(among, key=lambda candidate: (candidate.age, -candidate.executor_id)).executor_id


def _most_failures(among: Sequence[Candidate]) -> int | None:
    """None while nothing has failed."""
    worst = max(among, key=lambda candidate: (candidate.failures, candidate.age, -candidate.executor_id))
    return worst.executor_id if worst.failures else None


POLICIES: Final[Mapping[str, RollPolicy]] = {"id": _lowest_id, "age": _oldest, "failures": _most_failures}


def candidates(entries: Iterable[LedgerEntry], states: Mapping[int, PodState], now: Moment) -> tuple[Candidate, ...]:
    """Return the executors that run and are neither terminating, killed nor decommissioned, by id."""
    return tuple(
        Candidate(entry.executor_id, entry.profile, now - entry.running_at, entry.disconnects + restarts(pod), pod)
        for entry in sorted(entries, key=lambda entry: entry.executor_id)
        if entry.running
        and not (entry.terminating or entry.killed is not None or entry.decommissioned)
        and entry.removed_at is None
        and entry.running_at is not None
        and (pod := entry.pod_in(states)) is not None
    )


def lacks(among: Sequence[Candidate], totals: Mapping[str, int], statuses: Mapping[str, ProfileStatus]) -> str | None:
    """Return a profile that has fewer candidates than its target, or whose creation is blocked; None if none has."""
    running = Counter(candidate.profile for candidate in among)
    for profile, total in totals.items():
        status = statuses.get(profile)
        if total and (running[profile] < total or status is None or status.blocked is not None):
            return profile
    return None


def choose(among: Sequence[Candidate], policy: RollPolicy) -> Candidate | None:
    """Return the executor to roll next, None for none.

    Raises:
        ValueError: the policy returned an id that is not among the candidates.
    """
    if not among:
        return None
    chosen = policy(among)
    if chosen is None:
        return None
    found = next((candidate for candidate in among if candidate.executor_id == chosen), None)
    if found is None:
        raise ValueError(f"the roll policy chose {chosen!r}, which is none of the running executors")
    return found
