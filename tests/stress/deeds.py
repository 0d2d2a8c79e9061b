"""What was done to each executor, and by whom: so it is known whether the reason of its end is the true one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, Literal

from actors.pods.loss import SCALED_DOWN, LossKind

if TYPE_CHECKING:
    from collections.abc import Hashable

    from actors.messages import ExecutorRemoved

__all__ = ["Deed", "Deeds"]

Deed = Literal["deleted", "evicted", "relabelled", "killed"]


class Deeds:
    """By executor id, which no two executors share.

    `ending` are the profiles whose executors end by themselves, and `failing` those whose executors never run.
    """

    def __init__(self, ending: frozenset[str], failing: frozenset[str]) -> None:
        self._ending = ending
        self._failing = failing
        self._by_hand: defaultdict[int, set[Deed]] = defaultdict(set)
        self._wished: defaultdict[int, set[Hashable]] = defaultdict(set)
        """Which drivers wished for its end, or said that it had lost its connection."""
        self._asked: defaultdict[int, set[Hashable]] = defaultdict(set)
        """Which drivers' Backends asked for the deletion of its pod."""
        self._lowered: set[str] = set()
        """Profiles whose target was lowered. What is decided then may be overtaken by what others do."""
        self._stopping: set[Hashable] = set()
        """Drivers that wish for the end of all."""
        self._ran: set[tuple[Hashable, int]] = set()

    def by_hand(self, executor_id: int, deed: Deed) -> None:
        """Somebody else has done that."""
        self._by_hand[executor_id].add(deed)

    def wished(self, driver: Hashable, executor_id: int) -> None:
        """A driver wishes for the end of an executor, or tells of its disconnection."""
        self._wished[executor_id].add(driver)

    def lowered(self, profile: str) -> None:
        """The target of a profile is lowered."""
        self._lowered.add(profile)

    def stops(self, driver: Hashable) -> None:
        """A driver stops, and its fleet with it."""
        self._stopping.add(driver)

    def asked(self, driver: Hashable, executor_id: int) -> None:
        """The Backend of a driver asks for the deletion of a pod."""
        self._asked[executor_id].add(driver)

    def ran(self, driver: Hashable, executor_id: int) -> None:
        """A driver was told that an executor runs."""
        self._ran.add((driver, executor_id))

    def lie(self, driver: Hashable, removed: ExecutorRemoved) -> str | None:
        """What is wrong with the reason that a driver was told."""
        executor_id, reason = removed.executor_id, removed.reason
        if reason.kind in self._possible(driver, removed):
            return None
        deeds = sorted(self._by_hand[executor_id])
        return f"2: executor {executor_id} of {removed.profile} is told as {reason}, by hand it was {deeds}"

    def _possible(self, driver: Hashable, removed: ExecutorRemoved) -> set[LossKind]:
        executor_id, by_hand = removed.executor_id, self._by_hand[removed.executor_id]
        asked, wished = self._asked[executor_id], self._wished[executor_id]
        possible = {kind for deed in by_hand for kind in _TOLD_AS[deed]}
        if removed.profile in self._ending:
            possible |= {LossKind.EXITED, LossKind.FINISHED}
        if removed.profile in self._failing:
            possible |= {LossKind.EXITED, LossKind.NEVER_STARTED}
        if (driver, executor_id) not in self._ran:
            possible.add(LossKind.NEVER_STARTED)
        if by_hand - {"killed"} or asked:
            possible.add(LossKind.MISSING)
        if (asked | wished) - {driver}:  # a stop that leaves the fleet ends what its driver has killed
            possible.add(LossKind.DELETED)
        is_excess = SCALED_DOWN in removed.reason.message and removed.profile in self._lowered
        if driver in asked | wished | self._stopping or is_excess:
            possible.add(LossKind.KILLED_BY_DRIVER)
        if driver in wished:
            possible |= {LossKind.DISCONNECTED, LossKind.HUNG}
        return possible


_TOLD_AS: Final = {
    "deleted": {LossKind.DELETED},
    "evicted": {LossKind.EVICTED, LossKind.DELETED},
    "relabelled": {LossKind.RELEASED, LossKind.DELETED},
    "killed": {LossKind.EXITED},
}
"""An eviction is a deletion for one who never saw the condition that says so, and so is a pod that left the selector
while nothing watched: a LIST lacks it as it lacks one that was deleted."""
