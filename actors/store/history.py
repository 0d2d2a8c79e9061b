"""The store's memory as values: `History` is the input of the merge rules, `Merged` their result.

A pod that is missing from a LIST leaves the snapshot at once and becomes *absent*. Its end is reported with its DELETED
event, which knows the reason, or once that event can no longer come. Each end leaves a *tombstone* at its version until
both `floor` and `position` have passed it, so that a late event or LIST does not bring the pod back.

Once this driver has taken over the fleet, a new pod whose id it did not request is a *stranger's* for as long as that
pod exists, whatever its name and labels say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from actors.kube.resource_version import is_later, number_of, passed
from actors.pods.id_ranges import IdRanges
from actors.pods.snapshot import Ended, PodsSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from actors.pods.pod import Pod
    from actors.pods.state import PodRules, PodState
    from actors.runtime import Moment

__all__ = [
    "SEEN_GRANULE",
    "SEEN_KEPT",
    "Absent",
    "Doubt",
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
    """A pod that is missing from the newest LIST and whose end is not reported yet."""

    executor_id: int
    state: PodState
    """Its last observed state."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A pod that ended. Events up to `version` are outdated; a later one means that it matches our selector again."""

    version: str
    at: Moment
    """When its end was reported: a LIST requested later cannot contain the pod as it was."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A LIST has contradicted the history: the cluster was restored from a backup, or an API server is behind."""

    at: Moment
    """When that LIST arrived."""
    version: str
    """Its version."""
    behind: bool
    """Its version is below one that was handled: an API server that is behind answers so, too."""


@dataclass(slots=True)
class Progress:
    """How far the store has read. Each merge changes its own copy; the one of a `History` never changes."""

    floor: str | None = None
    """The version of the newest LIST applied."""
    position: str | None = None
    """The version that the current watch stream has reached; None without a stream."""
    stream: int = 0
    """The number of the current watch stream; events of older streams are dropped."""
    version: str = ""
    """The highest version of any LIST or event; the snapshot's `resource_version`."""
    full_sync_at: Moment | None = None
    """When the newest consistent LIST was requested; the snapshot's `full_sync_at`."""
    seen: Seen = ()
    event_at: Moment = -math.inf
    """When the last event arrived; a LIST requested earlier may be older than that event."""
    reset_at: Moment = -math.inf
    """When the last reset was detected; a LIST requested earlier may belong to the history before it."""
    doubt: Doubt | None = None
    """Until a second LIST confirms it, or anything refutes it."""

    def copy(self) -> Progress:
        """Return a copy, to change. Much faster than `dataclasses.replace`, and each step of the store begins so."""
        return Progress(
            self.floor,
            self.position,
            self.stream,
            self.version,
            self.full_sync_at,
            self.seen,
            self.event_at,
            self.reset_at,
            self.doubt,
        )

    def see(self, version: str, now: Moment) -> None:
        """Record that a version was handled at `now`. If it is a new one, the history goes on."""
        self.seen = see(self.seen, version, now)
        if not is_later(self.version, version):
            if self.doubt is not None and self.doubt.behind and is_later(version, self.version):
                self.doubt = None
            self.version = version

    def synced(self, requested_at: Moment) -> None:
        """Record that a consistent LIST was applied."""
        self.full_sync_at = requested_at if self.full_sync_at is None else max(requested_at, self.full_sync_at)

    def stream_has_passed(self, version: str | None) -> bool:
        """Whether no event up to this version can arrive any more: the stream is past it, or there is no stream."""
        return self.position is None or passed(self.position, version)


@dataclass(frozen=True, slots=True)
class History:
    """The store's memory. `absent` and `tombstones` are keyed by UID. No UID is in two of them and the snapshot."""

    rules: PodRules
    snapshot: PodsSnapshot = PodsSnapshot.EMPTY
    progress: Progress = field(default_factory=Progress)
    absent: Mapping[str, Absent] = field(default_factory=dict)
    tombstones: Mapping[str, Tombstone] = field(default_factory=dict)
    set_aside: AbstractSet[str] = frozenset()
    """UIDs of malformed pods that exist, so that each is logged once."""
    adopts: bool = True
    """Whether every pod is an executor that looks like one. Else its id must be in `known`."""
    known: IdRanges = field(default_factory=IdRanges)
    """The ids of this driver's executors and of those that it took over. Complete once `adopts` is false."""
    strangers: Mapping[str, int] = field(default_factory=dict)
    """Strangers' pods that exist: executor id by UID."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The next history and how it differs from the last one."""

    history: History
    changed: frozenset[int] = frozenset()
    """Executor ids in the snapshot whose state changed, without pods that run on (`runs_on`)."""
    appeared: frozenset[int] = frozenset()
    """Executor ids observed for the first time, including pods that ended in the same step, and strangers' ones."""
    ended: tuple[Ended, ...] = ()
    relist: bool = False
    """WatchSource must LIST again."""
    reset: bool = False
    """The cluster was restored from a backup: its history is a different one."""
    look_again: bool = False
    """PollSource must LIST after `SECOND_LOOK`: a LIST has contradicted the history for the first time."""
    applied: bool = True
    """False if the whole input was dropped."""
    malformed: tuple[Pod, ...] = ()
    """Malformed pods, each reported once."""
    strange: tuple[Pod, ...] = ()
    """Strangers' pods, each reported once."""
    urgent: bool = False
    """A pod ended or begins to, see `is_urgent`."""
    begun: bool = False
    """A pod begins to run."""


SEEN_GRANULE: Final = 0.1
"""Seconds. Only the last version of each granule is kept: a LIST requested within one is judged by older ones."""


SEEN_KEPT: Final = 64
"""The number of granules kept. When there are more, every other one of the older half is dropped: older entries become
coarser and reach further back, so that even a LIST that takes minutes finds one from before its request."""


Seen: TypeAlias = tuple[tuple["Moment", int], ...]
"""Pairs (moment, highest version handled until then), oldest first."""


def see(seen: Seen, version: str, now: Moment) -> Seen:
    """Return `seen` plus a version handled at `now`."""
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
    """Return the highest version handled before a moment: a consistent LIST requested then cannot be below it."""
    return max((number for at, number in seen if at < moment), default=0)
