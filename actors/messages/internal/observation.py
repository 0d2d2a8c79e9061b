"""Messages of observation: from the sources to the store, and from the store to its subscribers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

from actors.errors import ApiError
from actors.pods.id_ranges import IdRanges
from actors.pods.pod import Pod, PodEvent
from actors.pods.snapshot import Ended, PodsSnapshot
from actors.runtime import Address, Moment

__all__ = [
    "AddSubscriber",
    "BatchDone",
    "CloseAdoption",
    "ExecutorsRequested",
    "Freshness",
    "LookAgain",
    "OpenAdoption",
    "Polled",
    "Relist",
    "ReplaceSnapshot",
    "RetryNow",
    "SnapshotBatch",
    "Source",
    "StartPolling",
    "StartWatching",
    "StreamAbandoned",
    "ToPollSource",
    "ToSnapshotStore",
    "ToWatchSource",
    "UpdatePods",
]

# ── To SnapshotStore ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class UpdatePods:
    """Events of watch connection number `stream`: none for a bookmark, or if all are `unchanged` and left out."""

    events: tuple[PodEvent, ...]
    resource_version: str
    stream: int
    unchanged: int = 0
    """See `actors.kube.api.WatchEvents`."""


@dataclass(frozen=True, slots=True)
class ReplaceSnapshot:
    """The answer to a LIST of all executor pods. `stream` numbers the watch that starts from it; None for a poll."""

    pods: tuple[Pod, ...]
    resource_version: str
    requested_at: Moment
    """When its first page was requested."""
    consistent: bool
    """False for a LIST with `resourceVersion=0`, which may be answered from an old cache."""
    stream: int | None = None
    versions: Sequence[str] | None = field(default=None, compare=False)
    """See `actors.kube.api.PodPage`."""


@dataclass(frozen=True, slots=True)
class StreamAbandoned:
    """Watch connection number `stream` could not be resumed for so long that it no longer counts."""

    stream: int


@dataclass(frozen=True, slots=True)
class AddSubscriber:
    """Send batches to `subscriber`, the first at once. Replaces an earlier subscription of the same address."""

    subscriber: Address
    interval: timedelta
    follows_starts: bool = False
    """Send one sooner when a pod begins to run, too, not only when one ends or terminates."""


@dataclass(frozen=True, slots=True)
class BatchDone:
    """`subscriber` has handled batch `seq` and can take the next."""

    subscriber: Address
    seq: int


@dataclass(frozen=True, slots=True)
class ExecutorsRequested:
    """The Allocator uses these ids from now on.

    Sent before their POSTs: to the Backend, for the ledger, and to the store, which takes their pods for executors.
    """

    executor_ids: tuple[int, ...]
    profile: str
    memory_steps: Mapping[int, int] = field(default_factory=dict)
    """How often the memory of those is raised that replace executors killed for using too much."""


@dataclass(frozen=True, slots=True)
class CloseAdoption:
    """From now on a pod is an executor only if its id is one of these, or was observed or requested before."""

    known: IdRanges


@dataclass(frozen=True, slots=True)
class OpenAdoption:
    """Another driver may allocate ids, too: every pod that looks like an executor is one, except known strangers."""


ToSnapshotStore: TypeAlias = (
    UpdatePods
    | ReplaceSnapshot
    | StreamAbandoned
    | AddSubscriber
    | BatchDone
    | CloseAdoption
    | OpenAdoption
    | ExecutorsRequested
)


# ── To a subscriber ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SnapshotBatch:
    """The newest snapshot, and what changed since the subscriber's last batch. Answered with `BatchDone(seq)`."""

    seq: int
    snapshot: PodsSnapshot
    changed: frozenset[int]
    """Executor ids whose state differs from the last batch's, including new ones and excluding ended ones, and running
    ones that run on (`runs_on`): their newest status is in the snapshot."""
    appeared: frozenset[int]
    """Executor ids first observed since the last batch, including those that have ended since, and those of strangers'
    pods: none of them may be allocated."""
    ended: tuple[Ended, ...]
    """Every pod that left `states` since the last batch, oldest first, each once."""
    full_sync: bool
    """A consistent LIST was applied since the last batch: a pod that is not in the snapshot does not exist."""
    heard_at: Moment | None
    """When the store last received anything from a source, None if never."""
    urgent_since: Moment | None = field(default=None, compare=False)
    """When the store got the first event that should not wait for this batch's timer, None if there is none."""


# ── To the sources ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StartWatching:
    """List, then watch, until stopped. Twice is refused."""


@dataclass(frozen=True, slots=True)
class Relist:
    """The state that the watch started from is outdated: start again from a LIST."""


@dataclass(frozen=True, slots=True)
class RetryNow:
    """A server answers again: end the backoff of a connection that failed because none did."""


@dataclass(frozen=True, slots=True)
class StartPolling:
    """Poll every `executor.api_polling_interval`. Twice is refused."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """What was listed may be outdated: poll once `after` this time, whatever the interval, and consistently."""

    after: timedelta


ToWatchSource: TypeAlias = StartWatching | Relist | RetryNow
ToPollSource: TypeAlias = StartPolling | LookAgain


# ── From the sources, to Backend ───────────────────────────────────────────────────────────────────────────────


class Source(Enum):
    """The two sources, which observe the cluster."""

    WATCH = "watch"
    POLL = "poll"


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh a source's knowledge is.

    Sent when requests begin to succeed, when they begin to fail, and with each full sync; in between at most once a
    second, when the source receives something.
    """

    source: Source
    synced_at: Moment | None
    """When its last full sync was requested."""
    error: ApiError | None
    """Why its requests fail now, None while they succeed."""
    heard_at: Moment | None = None
    """When a page, an event or a bookmark was last received."""


@dataclass(frozen=True, slots=True)
class Polled:
    """A poll has succeeded."""
