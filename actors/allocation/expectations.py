"""The executors that were requested and are not in a snapshot yet, as in the expectations of client-go's controllers.

A plain value of the Allocator. Each update costs the same, however many executors are expected: there may be hundreds,
and every round asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.pods.pod import Pod
    from actors.runtime import Moment

__all__ = ["Expectation", "Expectations"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """An executor that was requested and is not in a snapshot yet."""

    profile: str
    requested_at: Moment
    answered_at: Moment | None = None
    """When its POST was answered; None while it is queued or in flight."""
    pod: Pod | None = None
    """The pod in the answer."""
    lost: bool = False
    """Its request was lost when the pool crashed, and may have created a pod: it is to be sent again."""


class Expectations(Mapping[int, Expectation]):
    """All expectations, by executor id."""

    def __init__(self) -> None:
        self._all: dict[int, Expectation] = {}
        self._answered: dict[int, Moment] = {}
        """When each POST was answered, the earliest first."""
        self._lost: dict[int, None] = {}
        self._counts: Counter[str] = Counter()

    def __getitem__(self, executor_id: int) -> Expectation:
        return self._all[executor_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def count(self, profile: str) -> int:
        """Return how many executors of a profile are expected."""
        return self._counts.get(profile, 0)

    def profiles(self) -> frozenset[str]:
        """Return the profiles of all expected executors."""
        return frozenset(self._counts)

    def add(self, executor_id: int, profile: str, at: Moment) -> None:
        """Expect an executor that is requested now."""
        self._all[executor_id] = Expectation(profile, at)
        self._counts[profile] += 1

    def answered(self, executor_id: int, at: Moment, pod: Pod | None) -> None:
        """Note that the API has created the pod. Answers arrive in the order of time."""
        before = self._all[executor_id]
        self._all[executor_id] = Expectation(before.profile, before.requested_at, at, pod)
        self._answered[executor_id] = at

    def lose(self, executor_id: int) -> None:
        """Note that the outcome of the request is unknown."""
        before = self._all[executor_id]
        self._all[executor_id] = Expectation(before.profile, before.requested_at, lost=True)
        self._lost[executor_id] = None

    def requested_again(self, executor_id: int) -> None:
        """Note that a lost request was sent again."""
        before = self._all[executor_id]
        self._all[executor_id] = Expectation(before.profile, before.requested_at)
        del self._lost[executor_id]

    def lost(self) -> tuple[int, ...]:
        """Return the executors whose request is lost, in the order in which they were lost."""
        return tuple(self._lost)

    def remove(self, executor_id: int) -> Expectation:
        """Stop expecting an executor, and return what was expected."""
        removed = self._all.pop(executor_id)
        self._answered.pop(executor_id, None)
        self._lost.pop(executor_id, None)
        self._counts[removed.profile] -= 1
        if not self._counts[removed.profile]:
            del self._counts[removed.profile]
        return removed

    def answered_by(self, moment: Moment) -> Iterator[tuple[int, Moment]]:
        """Yield the executors whose POST was answered at `moment` or before, and when, the earliest first."""
        return takewhile(lambda answered: answered[1] <= moment, self._answered.items())
