"""Connections: which executors the driver is connected to, and whether one that stays away hangs or is cut off. Pure.

A driver that only hears nothing cannot tell a process that hangs from a network that is cut. What it suspects decides.
If it suspects nothing, the others tell: a hang ends one connection, a cut ends those of a node or of the fleet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.pods.pod import node_answers
from actors.pods.state import PodRunning
from actors.pods.stuck import crashes_in_place
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.messages import Suspected
    from actors.messages.internal import LedgerEntry
    from actors.pods.state import PodState
    from actors.runtime import Moment

__all__ = ["TOGETHER", "Connections", "Lost", "Others", "Peers", "Verdict", "judge", "judged"]

TOGETHER: Final = timedelta(seconds=60)
"""Connections that are lost within this time of each other may have one cause: drivers notice a silent connection after
a time of their own, such as three heartbeats of ten seconds, in turns of ten."""

CUT_SHARE: Final = 4
"""A node, or the fleet, counts as cut off if one of so many of its other executors was lost together with this one. Two
executors may hang in one minute, but not a quarter of many, unless they all have the same work."""


class Lost(NamedTuple):
    """An executor whose connection is lost."""

    since: Moment
    suspected: Suspected | None = None
    """What the driver suspects; the last word counts."""


class Verdict(NamedTuple):
    """What became of an executor that stays away."""

    hung: bool
    why: str
    """What this follows from, for people: the end of a sentence after "and"."""


@dataclass(frozen=True, slots=True)
class Others:
    """The other executors of a node or of the fleet whose pods run."""

    connected: int = 0
    """They were connected before this one was lost, and have been since."""
    lost: int = 0
    """They were lost within `TOGETHER` of it, and have not come back."""

    @property
    def are_cut_off(self) -> bool:
        """Whether so many were lost with it that one cause is likely."""
        return self.lost > 0 and self.lost * CUT_SHARE >= self.lost + self.connected


def judge(
    suspected: Suspected | None, *, runs: bool, node_silent: bool, waited: timedelta, node: Others, fleet: Others
) -> Verdict:
    """Return whether an executor hangs that was disconnected for too long. The first rule that applies decides.

    Args:
        suspected: what the driver suspects.
        runs: its pod runs, and no container of it is in a crash loop.
        node_silent: a controller has noticed that its node does not answer.
        waited: for how long it has been disconnected.
        node: the other executors of its node.
        fleet: all other executors.
    """
    if suspected is not None:
        return Verdict(suspected == "hang", f"the driver suspects {'a hang' if suspected == 'hang' else 'the network'}")
    if not runs:
        return Verdict(hung=False, why="a container of its pod does not run")
    if node_silent:
        return Verdict(hung=False, why="its node does not answer")
    if waited < TOGETHER:
        return Verdict(hung=False, why="executor.disconnect_timeout is too short to see who else is lost")
    for others, of in ((node, "its node"), (fleet, "the fleet")):
        if others.are_cut_off:
            all_of = others.lost + others.connected
            return Verdict(hung=False, why=f"so were {others.lost} of {all_of} other executors of {of}")
    if not fleet.connected:
        return Verdict(hung=False, why="no other executor stayed connected")
    return Verdict(hung=True, why=f"{fleet.connected} of {fleet.lost + fleet.connected} others stayed connected")


@dataclass(frozen=True, slots=True)
class Peers:
    """When the executors were connected and lost, by node: sorted, because thousands may be lost at once."""

    connected: dict[str | None, list[Moment]] = field(default_factory=dict)
    """Under None: of the fleet."""
    lost: dict[str | None, list[Moment]] = field(default_factory=dict)

    @classmethod
    def of(cls, connected: Iterable[tuple[str | None, Moment]], lost: Iterable[tuple[str | None, Moment]]) -> Peers:
        """Return those that were connected and lost on these nodes (None: unknown) at these moments."""
        peers = cls()
        for moments, found in ((peers.connected, connected), (peers.lost, lost)):
            for node, at in sorted(found, key=lambda item: item[1]):
                for place in {None, node}:
                    moments.setdefault(place, []).append(at)
        return peers

    def others(self, since: Moment, node: str | None = None) -> Others:
        """Return the others of one that was lost at `since` and is in `lost`: of its node, or of the fleet."""
        connected, lost, within = self.connected.get(node, []), self.lost.get(node, []), TOGETHER.total_seconds()
        together = bisect_right(lost, since + within) - bisect_left(lost, since - within)
        return Others(bisect_right(connected, since), max(0, together - 1))


class Connections:
    """The connections by executor id, until the executor has ended."""

    def __init__(self) -> None:
        self._connected: dict[int, Moment] = {}
        """Since when each is connected."""
        self._lost: dict[int, Lost] = {}
        """The earliest first."""
        self._given_up: dict[int, tuple[str | None, Moment]] = {}
        """Node, and since when they were lost: removed executors, as long as others may have been lost with them."""

    def __len__(self) -> int:
        """Return the number of executors that are remembered."""
        return len(self._connected) + len(self._lost) + len(self._given_up)

    def load(self, entries: Iterable[LedgerEntry]) -> None:
        """Restore the connections from the ledger's live executors."""
        for entry in sorted(entries, key=lambda entry: entry.disconnected_at or 0.0):
            if entry.disconnected_at is not None:
                self._lost[entry.executor_id] = Lost(entry.disconnected_at, entry.suspected)
            elif entry.registered_at is not None:
                self._connected[entry.executor_id] = entry.registered_at

    def connect(self, executor_id: int, at: Moment) -> None:
        """Record that an executor is connected."""
        self._lost.pop(executor_id, None)
        self._connected[executor_id] = at

    def lose(self, executor_id: int, at: Moment, suspected: Suspected | None) -> None:
        """Record that a connection is lost. The first time counts, and the last word of what the driver suspects."""
        self._connected.pop(executor_id, None)
        earlier = self._lost.get(executor_id)
        if earlier is None:
            self._lost[executor_id] = Lost(at, suspected)
        else:
            self._lost[executor_id] = Lost(earlier.since, suspected or earlier.suspected)

    def forget(self, executor_id: int) -> None:
        """Forget an executor that ended or was abandoned."""
        self._connected.pop(executor_id, None)
        self._lost.pop(executor_id, None)

    def give_up(self, executor_id: int, node: str | None) -> None:
        """Remember that an executor is removed because it stays away: others may have been lost with it."""
        self._given_up[executor_id] = node, self._lost[executor_id].since

    def overdue(self, now: Moment, timeout: timedelta) -> list[tuple[int, Lost]]:
        """Return the executors that have been disconnected for `timeout`."""
        return list(takewhile(lambda item: elapsed(item[1].since, now) >= timeout, self._lost.items()))

    def peers(self, now: Moment, timeout: timedelta, running: Iterable[tuple[int, PodState]]) -> Peers:
        """Return who is connected and who is lost among running executors, and those that were removed before them.

        `timeout` is how long after its loss an executor is removed.
        """
        keep = timeout + 2 * TOGETHER
        self._given_up = {i: gone for i, gone in self._given_up.items() if elapsed(gone[1], now) <= keep}
        connected: list[tuple[str | None, Moment]] = []
        lost = list(self._given_up.values())
        for executor_id, state in running:
            if (at := self._connected.get(executor_id)) is not None:
                connected.append((state.pod.node, at))
            elif (away := self._lost.get(executor_id)) is not None:
                lost.append((state.pod.node, away.since))
        return Peers.of(connected, lost)


def judged(lost: Lost, state: PodState, peers: Peers, now: Moment) -> Verdict:
    """Return whether an executor hangs that was disconnected for too long. `peers` contain it."""
    pod, node = state.pod, state.pod.node
    return judge(
        lost.suspected,
        runs=isinstance(state, PodRunning) and not crashes_in_place(pod),
        node_silent=not node_answers(pod),
        waited=elapsed(lost.since, now),
        node=Others() if node is None else peers.others(lost.since, node),
        fleet=peers.others(lost.since),
    )
