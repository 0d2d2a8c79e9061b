"""The executors that count though no snapshot shows them alive: requested ones, and ended ones that are not decided on.

`Expectations` are those of client-go's controllers. Plain values of the Allocator. Each update costs the same, however
many executors there are: there may be hundreds, and every round asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from actors.pods.pod import Pod
    from actors.runtime import Moment

__all__ = ["Expectation", "Expectations", "Undecided"]


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


class Undecided:
    """The executors of profiles that do not replace every loss: each counts until the Backend has decided on its end.

    The Backend knows the reason, and lowers the target in the message in which it says that it has decided, perhaps
    before a snapshot shows the end. So no executor is created and taken back.
    """

    def __init__(self) -> None:
        self.profiles: frozenset[str] = frozenset()
        """In which the Backend decides."""
        self._counting: dict[int, str] = {}
        """The profiles of those that a snapshot shows alive, or that were requested."""
        self._ended: dict[int, str] = {}
        """The profiles of those that do not count otherwise any more."""
        self._counts: Counter[str] = Counter()
        self.decided: set[int] = set()
        """Those that do not count though a snapshot still shows them, or lacks them."""

    def count(self, profile: str) -> int:
        """Return how many executors of a profile have ended, or are terminating, and are not decided on."""
        return self._counts.get(profile, 0)

    def has_ended(self, executor_id: int) -> bool:
        """Whether an executor counts though it has ended, or is terminating."""
        return executor_id in self._ended

    def add(self, executor_id: int, profile: str) -> None:
        """Note an executor that is requested, or that the ledger has."""
        if profile in self.profiles:
            self._counting[executor_id] = profile

    def end(self, executor_id: int) -> None:
        """Note that an executor has ended, or begins to end: it would not count any more."""
        self.decided.discard(executor_id)
        profile = self._counting.pop(executor_id, None)
        if profile is not None:
            self._ended[executor_id] = profile
            self._counts[profile] += 1

    def decide(self, executor_ids: Iterable[int]) -> None:
        """Count these executors no longer."""
        for executor_id in executor_ids:
            profile = self._ended.pop(executor_id, None)
            if profile is not None:
                self._counts[profile] -= 1
            elif self._counting.pop(executor_id, None) is not None:
                self.decided.add(executor_id)

    def synced(self, alive: Container[int]) -> None:
        """Note which executors are in the newest snapshot, or are requested; the others have ended."""
        for executor_id in [each for each in (*self._counting, *self.decided) if each not in alive]:
            self.end(executor_id)
