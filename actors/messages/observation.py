"""What the sources see, what the store makes of it, and what its subscribers get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

from actors.errors import ApiError
from actors.pods.pod import Pod, PodEvent
from actors.pods.snapshot import Ended, PodsSnapshot
from actors.runtime import Address, Moment

__all__ = [
    "AddSubscriber",
    "BatchDone",
    "Freshness",
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

# ── To SnapshotStore ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class UpdatePods:
    """What watch stream number `stream` brought; no events means a bookmark, or `unchanged` ones that are left out."""

    events: tuple[PodEvent, ...]
    resource_version: str
    stream: int
    unchanged: int = 0
    """See `actors.kube.api.WatchEvents`."""


@dataclass(frozen=True, slots=True)
class ReplaceSnapshot:
    """The answer to a LIST of all executor pods. `stream` numbers the watch that starts from it, None for a poll."""

    pods: tuple[Pod, ...]
    resource_version: str
    requested_at: Moment
    """When its first page was asked for."""
    consistent: bool
    """False for a LIST with `resourceVersion=0`, which may be answered from an old cache."""
    stream: int | None = None
    moved: Mapping[str, str] = field(default_factory=dict)
    """See `actors.kube.api.PodPage`."""


@dataclass(frozen=True, slots=True)
class StreamAbandoned:
    """Watch stream number `stream` could not be resumed for so long that it no longer counts."""

    stream: int


@dataclass(frozen=True, slots=True)
class AddSubscriber:
    """Send batches to `subscriber`, the first at once; replaces the same address's earlier subscription."""

    subscriber: Address
    interval: timedelta


@dataclass(frozen=True, slots=True)
class BatchDone:
    """`subscriber` has handled batch `seq` and can take the next."""

    subscriber: Address
    seq: int


ToSnapshotStore: TypeAlias = UpdatePods | ReplaceSnapshot | StreamAbandoned | AddSubscriber | BatchDone


# ── To a subscriber ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SnapshotBatch:
    """The newest snapshot and all that happened since the subscriber's last batch. Answered with `BatchDone(seq)`."""

    seq: int
    snapshot: PodsSnapshot
    changed: frozenset[int]
    """Executor ids whose state differs from the last batch's, those that appeared included, those that ended not."""
    appeared: frozenset[int]
    """Executor ids first shown since the last batch, those that came and went included."""
    ended: tuple[Ended, ...]
    """Every pod that left `states` since the last batch, oldest first, each once."""
    full_sync: bool
    """A consistent LIST was applied since the last batch: what it does not show is not there."""
    heard_at: Moment | None
    """When the store last heard anything from a source, None if never."""
    urgent_since: Moment | None = field(default=None, compare=False)
    """When the store had the first of what this batch was not to wait for, None if there is none."""


# ── To the sources ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StartWatching:
    """List, then watch, until stopped. Twice is refused."""


@dataclass(frozen=True, slots=True)
class Relist:
    """What the watch started from is no longer the truth: start again from a LIST."""


@dataclass(frozen=True, slots=True)
class RetryNow:
    """There is a server that answers: what waits because there was none need not wait any longer."""


@dataclass(frozen=True, slots=True)
class StartPolling:
    """Poll every `executor.api_polling_interval`. Twice is refused."""


ToWatchSource: TypeAlias = StartWatching | Relist | RetryNow
ToPollSource: TypeAlias = StartPolling


# ── From the sources, to Backend ─────────────────────────────────────────────────────────────────────────────────────


class Source(Enum):
    """The two that observe the cluster."""

    WATCH = "watch"
    POLL = "poll"


@dataclass(frozen=True, slots=True)
class Freshness:
    """How a source stands.

    Sent when it gets in touch, when it loses touch, and with each full sync; between these at most once a second, when
    something comes.
    """

    source: Source
    synced_at: Moment | None
    """When its last full sync was asked for."""
    error: ApiError | None
    """Why it has no touch now, None while it has."""
    heard_at: Moment | None = None
    """When anything of the cluster last came: a page, an event, a bookmark."""


@dataclass(frozen=True, slots=True)
class Polled:
    """A poll has come whole."""
