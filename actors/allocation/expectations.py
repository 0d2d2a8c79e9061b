"""Executors that were requested and that no snapshot has shown yet: by profile, and in the order of their answers.

A plain value in the Allocator's hands. Each step costs what changes, not what is unseen: there may be hundreds, and
every round asks.
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

__all__ = ["Expectations", "NewlyCreated"]


@dataclass(frozen=True, slots=True)
class NewlyCreated:
    """An executor that was requested and that no snapshot has shown yet."""

    profile: str
    requested_at: Moment
    answered_at: Moment | None = None
    """When its POST was answered; None while it is queued or under way."""
    pod: Pod | None = None
    """The answer."""
    lost: bool = False
    """Its request went down with the pool, and may have made a pod or not: it is to be asked for again."""


class Expectations(Mapping[int, NewlyCreated]):
    """By executor id."""

    def __init__(self) -> None:
        self._all: dict[int, NewlyCreated] = {}
        self._answered: dict[int, Moment] = {}
        """When each was answered, the earliest first."""
        self._lost: dict[int, None] = {}
        self._counts: Counter[str] = Counter()

    def __getitem__(self, executor_id: int) -> NewlyCreated:
        return self._all[executor_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def count(self, profile: str) -> int:
        """How many there are of a profile."""
        return self._counts[profile]

    def profiles(self) -> frozenset[str]:
        """The profiles that any is of."""
        return frozenset(self._counts)

    def requested(self, executor_id: int, profile: str, at: Moment) -> None:
        """An executor is asked for."""
        self._all[executor_id] = NewlyCreated(profile, at)
        self._counts[profile] += 1

    def answered(self, executor_id: int, at: Moment, pod: Pod | None) -> None:
        """Its POST was answered: the pod exists, as far as the API is concerned. Answers come in the order of time."""
        new = self._all[executor_id]
        self._all[executor_id] = NewlyCreated(new.profile, new.requested_at, at, pod)
        self._answered[executor_id] = at

    def lose(self, executor_id: int) -> None:
        """What became of its request is not known."""
        new = self._all[executor_id]
        self._all[executor_id] = NewlyCreated(new.profile, new.requested_at, lost=True)
        self._lost[executor_id] = None

    def asked_again(self, executor_id: int) -> None:
        """Its answer is awaited as any other's."""
        new = self._all[executor_id]
        self._all[executor_id] = NewlyCreated(new.profile, new.requested_at)
        del self._lost[executor_id]

    def lost(self) -> tuple[int, ...]:
        """Those that are lost, in the order in which they were."""
        return tuple(self._lost)

    def take(self, executor_id: int) -> NewlyCreated:
        """It is unseen no more."""
        new = self._all.pop(executor_id)
        self._answered.pop(executor_id, None)
        self._lost.pop(executor_id, None)
        self._counts[new.profile] -= 1
        if not self._counts[new.profile]:
            del self._counts[new.profile]
        return new

    def answered_by(self, moment: Moment) -> Iterator[tuple[int, Moment]]:
        """Those whose POST was answered then or before, and when, the earliest first."""
        return takewhile(lambda answered: answered[1] <= moment, self._answered.items())
