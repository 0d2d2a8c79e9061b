"""What the store remembers, as values: the memory that the merge rules read and the difference that they answer with.

`floor` is the version of the newest list applied, `position` how far the current watch stream has come. A pod that a
list no longer shows leaves the snapshot at once, but is only *absent*: its end is told with its DELETED event, which
may be on its way and knows the reason, or when that can come no more. Every end leaves a *tombstone* at its version,
until both floor and position have passed it, so that what is still on its way brings nothing back to life.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from immutables import Map

from actors.kube.resource_version import is_later, number_of, passed
from actors.pods.snapshot import Ended, PodsSnapshot

if TYPE_CHECKING:
    from actors.pods.pod import Pod
    from actors.pods.state import PodRules, PodState
    from actors.runtime import Moment

__all__ = [
    "SEEN_GRANULE",
    "SEEN_KEPT",
    "Absent",
    "History",
    "Merged",
    "Progress",
    "Seen",
    "Tombstone",
    "highest_before",
    "see",
]


@dataclass(frozen=True, slots=True)
class Absent:
    """A pod that the newest list does not show and whose end has not been told."""

    executor_id: int
    state: PodState
    """The last word on it."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A pod that ended: no word on it up to `version` is news. A later one tells of its return to our selector."""

    version: str
    at: Moment
    """When its end was told: a list asked for later cannot rightly show it as it was."""


@dataclass(slots=True)
class Progress:
    """How far the store has come. A step changes a copy of its own; that of a `History` never changes."""

    floor: str | None = None
    """The version of the newest list applied."""
    position: str | None = None
    """How far the current watch stream has come; None when there is none, or it was given up."""
    stream: int = 0
    """The number of the current watch stream; events of an older one are dropped."""
    version: str = ""
    """The highest version of a list or an event so far: the snapshot's."""
    full_sync_at: Moment | None = None
    """When the newest consistent list was asked for: the snapshot's."""
    newest: str = "0"
    """No pod in the snapshot is known at a version that is later."""
    seen: Seen = ()
    event_at: Moment = -math.inf
    """When the watch last brought an event; a list asked for before may be of a moment before that."""
    reset_at: Moment = -math.inf
    """When the last reset was found; a list asked for before may be of the history before it."""

    def see(self, version: str, now: Moment) -> None:
        """Remember that a version was handled, and when."""
        self.seen = see(self.seen, version, now)
        if not is_later(self.version, version):
            self.version = version

    def synced(self, requested_at: Moment) -> None:
        """Remember that a consistent list was applied."""
        self.full_sync_at = requested_at if self.full_sync_at is None else max(requested_at, self.full_sync_at)

    def stream_has_passed(self, version: str | None) -> bool:
        """Whether the current stream, if there is one, can bring no more events up to this version."""
        return self.position is None or passed(self.position, version)


@dataclass(frozen=True, slots=True)
class History:
    """All that the store remembers. `known`, `absent` and `tombstones` are by UID, and no UID is in two of them."""

    rules: PodRules
    snapshot: PodsSnapshot = PodsSnapshot.EMPTY
    progress: Progress = field(default_factory=Progress)
    known: Map[str, int] = Map()
    """The executor id that each pod in the snapshot has there. It keeps it, whatever somebody does to its label."""
    absent: Map[str, Absent] = Map()
    tombstones: Map[str, Tombstone] = Map()
    set_aside: Map[str, None] = Map()
    """UIDs of malformed pods that are there, so that each is logged once."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The next history, and how it differs from the last."""

    history: History
    changed: frozenset[int] = frozenset()
    """Executor ids in the snapshot whose state is another one now."""
    appeared: frozenset[int] = frozenset()
    """Executor ids that were first shown, those that came and went included."""
    ended: tuple[Ended, ...] = ()
    relist: bool = False
    """WatchSource must start again from a list."""
    reset: bool = False
    """The cluster's history was found to be another one."""
    applied: bool = True
    """What was handed in was not dropped whole."""
    malformed: tuple[Pod, ...] = ()
    """Pods that cannot be counted, each the first time it is seen."""
    urgent: bool = False
    """A pod ended, or is about to: a report or a replacement may be due."""


SEEN_GRANULE: Final = 0.1
"""Seconds. Versions seen within one are remembered as one, the last: at most that much proof is lost."""


SEEN_KEPT: Final = 64
"""How many granules are remembered. When there are more, every other one of the older half is forgotten, so that they
reach the further back the coarser they are: a list that takes minutes still finds one from before it was asked for."""


Seen: TypeAlias = tuple[tuple["Moment", int], ...]
"""(when it was handled, highest version until then), oldest first."""


def see(seen: Seen, version: str, now: Moment) -> Seen:
    """With a version handled `now`."""
    number = number_of(version)
    if number is None or (seen and seen[-1][1] >= number):
        return seen
    if seen and now // SEEN_GRANULE <= seen[-1][0] // SEEN_GRANULE:
        return (*seen[:-1], (max(now, seen[-1][0]), number))
    if len(seen) >= SEEN_KEPT:
        half = SEEN_KEPT // 2
        seen = (*seen[:half:2], *seen[half:])
    return (*seen, (now, number))


def highest_before(seen: Seen, moment: Moment) -> int:
    """The highest version known to have been handled before a moment; an answer asked for then cannot be below it."""
    return max((number for at, number in seen if at < moment), default=0)
