"""The public protocol: every message that crosses from one actor to another, grouped by its receiver.

Commands are imperative, events are past tense; all are frozen. A union alias per actor (`ToSnapshotStore`, …) says what
that actor accepts, so that its `match` can be checked for exhaustiveness. Messages that never leave one module are
private to it and start with an underscore.

Times in messages: `datetime` in UTC is the API's or the wall clock's; `float` is `Clock.monotonic()` in seconds, which
only this process can compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeAlias

from immutables import Map

from actors.errors import ApiError
from actors.kube.api import DeleteOptions, Manifest
from actors.loss import LossReason
from actors.pods import Pod, PodEvent, PodState
from actors.runtime import Address
from actors.snapshot import Ended, PodsSnapshot

DEFAULT_PROFILE = "default"
"""The profile that an int target means, and that a pod without the profile label belongs to."""


# ── The ledger: the Backend's book of executors ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What the Backend knows of one executor, from its request to a while after its end."""

    executor_id: int
    profile: str
    uid: str | None = None
    """Its pod's UID, once a snapshot showed it."""
    told_at: float | None = None
    """When the driver first heard of it (monotonic)."""
    running: bool = False
    """The driver was told that it runs."""
    terminating: bool = False
    """The driver was told that it is about to go."""
    registered_at: float | None = None
    """When the driver registered it (monotonic)."""
    active: bool = True
    """False after `DisconnectExecutor`."""
    killed: bool = False
    """The driver asked for its end."""
    given_up: bool = False
    """The Allocator gave it up unseen: whatever comes up under this id is deleted on sight."""
    removed_at: float | None = None
    """When the driver was told of its end (monotonic); nothing about it is told after that."""
    pod: Pod | None = None
    """What was last told about its pod."""


Ledger: TypeAlias = Map[int, LedgerEntry]


# ── To SnapshotStore ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class UpdatePods:
    """What one read of watch stream number `stream` brought; no events means a bookmark."""

    events: tuple[PodEvent, ...]
    resource_version: str
    stream: int


@dataclass(frozen=True, slots=True)
class ReplaceSnapshot:
    """The answer to a LIST of all executor pods. `stream` numbers the watch that starts from it, None for a poll."""

    pods: tuple[Pod, ...]
    resource_version: str
    requested_at: float
    """When its first page was asked for (monotonic)."""
    consistent: bool
    """False for a LIST with `resourceVersion=0`, which may be answered from an old cache."""
    stream: int | None = None


@dataclass(frozen=True, slots=True)
class StreamGivenUp:
    """Watch stream number `stream` could not be resumed for so long that it no longer counts."""

    stream: int


@dataclass(frozen=True, slots=True)
class AddSubscriber:
    """Send batches to `subscriber`, the first at once; replaces the same address's earlier subscription."""

    subscriber: Address
    interval: timedelta


@dataclass(frozen=True, slots=True)
class NotifySubscribers:
    """Send everyone a batch now."""


@dataclass(frozen=True, slots=True)
class BatchDone:
    """`subscriber` has handled batch `seq` and can take the next."""

    subscriber: Address
    seq: int


ToSnapshotStore: TypeAlias = (
    UpdatePods | ReplaceSnapshot | StreamGivenUp | AddSubscriber | NotifySubscribers | BatchDone
)


# ── To a subscriber ──────────────────────────────────────────────────────────────────────────────────────────────


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
    heard_at: float | None
    """When the store last heard anything from a source (monotonic), None if never."""


# ── To the sources ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StartWatching:
    """List, then watch, until stopped. Twice is refused."""


@dataclass(frozen=True, slots=True)
class Relist:
    """What the watch started from is no longer the truth: start again from a LIST."""


@dataclass(frozen=True, slots=True)
class StartPolling:
    """Poll every `executor.api_polling_interval`. Twice is refused."""


ToWatchSource: TypeAlias = StartWatching | Relist
ToPollSource: TypeAlias = StartPolling


# ── To Allocator ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SetTotalExpectedExecutors:
    """The wanted number of executors per profile; a profile that is not named is wanted no more."""

    totals: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ExecutorRegistered:
    """The driver has an executor's connection: it is in use, and never deleted for being in excess."""

    executor_id: int
    at: float


@dataclass(frozen=True, slots=True)
class PodCreated:
    """The POST was answered: the pod exists (made now, or by an earlier try of ours)."""

    executor_id: int
    epoch: int
    pod: Pod


@dataclass(frozen=True, slots=True)
class PodCreateFailed:
    """The POST was answered, definitely: there is no such pod of ours."""

    executor_id: int
    epoch: int
    error: ApiError


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """No create of an epoch before `epoch` is queued or under way any more."""

    epoch: int
    created: frozenset[int]
    """Ids whose POST was on the wire and turned out to have made a pod."""
    dropped: frozenset[int]
    """Ids that have no pod: their POST never left, or was refused."""


# ── To Allocator and LifecycleManager ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ExecutorsKnown:
    """The Backend's book, sent at each of the receiver's starts."""

    ledger: Ledger
    next_id: int


@dataclass(frozen=True, slots=True)
class ExecutorKilled:
    """The driver asked for this executor's end.

    LifecycleManager asks for its deletion again while it is shown alive; Allocator counts it as one that is going.
    """

    executor_id: int


ToAllocator: TypeAlias = (
    ExecutorsKnown
    | SetTotalExpectedExecutors
    | ExecutorRegistered
    | ExecutorKilled
    | PodCreated
    | PodCreateFailed
    | EpochBegun
    | SnapshotBatch
)


# ── To LifecycleManager ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ExecutorDisconnected:
    """The executor's connection to the driver is gone; its pod's events will say why."""

    executor_id: int
    at: float


@dataclass(frozen=True, slots=True)
class ExecutorsGivenUp:
    """The Allocator waits no longer for these: whatever of them comes up is deleted on sight."""

    executor_ids: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class PodConfirmed:
    """What a GET said of a pod whose DELETED event came without a deletion: `pod` is None when it is gone."""

    executor_id: int
    uid: str
    pod: Pod | None


ToLifecycleManager: TypeAlias = (
    ExecutorsKnown
    | ExecutorRegistered
    | ExecutorKilled
    | ExecutorDisconnected
    | ExecutorsGivenUp
    | PodConfirmed
    | SnapshotBatch
)


# ── To RequestPool ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """A new Allocator: drop the queued creates of earlier epochs, resolve those on the wire, then say `EpochBegun`."""

    epoch: int
    reply_to: Address


@dataclass(frozen=True, slots=True)
class CreatePod:
    """POST this pod; `reply_to` gets `PodCreated` or `PodCreateFailed`, once."""

    executor_id: int
    epoch: int
    manifest: Manifest
    reply_to: Address


@dataclass(frozen=True, slots=True)
class DeletePod:
    """DELETE one pod. The same pod asked for again while the first request is open is the same request."""

    name: str
    options: DeleteOptions = field(default_factory=DeleteOptions)


@dataclass(frozen=True, slots=True)
class DeletePods:
    """DELETE these executors' pods by label, or all of the application's when `executor_ids` is None.

    Creates of these ids that are still queued are dropped; one that is on the wire is deleted once it is answered.
    """

    executor_ids: frozenset[int] | None
    grace: timedelta | None = None
    reply_to: Address | None = None
    """Gets `PodsDeleted`, once."""


@dataclass(frozen=True, slots=True)
class LabelPod:
    """Merge-patch labels of one pod, with its UID as precondition."""

    name: str
    uid: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfirmPod:
    """GET one pod; `reply_to` gets `PodConfirmed`, once."""

    executor_id: int
    name: str
    uid: str
    reply_to: Address


@dataclass(frozen=True, slots=True)
class PodsAppeared:
    """A snapshot showed these pods, by executor id, before their POSTs were answered: they are not POSTed again."""

    pods: Mapping[int, Pod]


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no more creates, drop those queued, resolve those on the wire; then `reply_to` gets `Drained`."""

    reply_to: Address


ToRequestPool: TypeAlias = (
    BeginEpoch | CreatePod | DeletePod | DeletePods | LabelPod | ConfirmPod | PodsAppeared | Drain
)


# ── To Backend, from inside ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ExecutorsRequested:
    """These ids are used from now on; sent before their POSTs."""

    executor_ids: tuple[int, ...]
    profile: str


@dataclass(frozen=True, slots=True)
class ExecutorSeen:
    """A snapshot shows this executor in a state that it was not in before."""

    executor_id: int
    uid: str
    state: PodState


@dataclass(frozen=True, slots=True)
class RemoveExecutor:
    """This executor has ended, for this reason. May be repeated after a restart; the driver hears it once."""

    executor_id: int
    uid: str | None
    reason: LossReason


@dataclass(frozen=True, slots=True)
class AllocatorStatus:
    """What the Allocator counts, sent when it changes."""

    profiles: Mapping[str, ProfileStatus]


@dataclass(frozen=True, slots=True)
class CreationBlocked:
    """Creation in a profile stands still for `cause`; None when it goes on. Sent when it begins and when it ends."""

    profile: str
    cause: str | None


@dataclass(frozen=True, slots=True)
class StartFailuresExceeded:
    """Too many executors ended before they were of use; the Allocator has stopped creating."""

    cause: str


class Source(Enum):
    """The two that observe the cluster."""

    WATCH = "watch"
    POLL = "poll"


@dataclass(frozen=True, slots=True)
class Freshness:
    """How a source stands.

    Sent when it gets in touch, when it loses touch, and with each full sync; between these, when something comes, at
    most once a second.
    """

    source: Source
    synced_at: float | None
    """When its last full sync was asked for (monotonic)."""
    error: ApiError | None
    """Why it has no touch now, None while it has."""
    heard_at: float | None = None
    """When anything of the cluster last came (monotonic): a page, an event, a bookmark."""


@dataclass(frozen=True, slots=True)
class PodsDeleted:
    """The bulk delete was answered; `error` is None when the API took it."""

    executor_ids: frozenset[int] | None
    error: ApiError | None


@dataclass(frozen=True, slots=True)
class Drained:
    """The pool has no create queued, under way or unresolved, and takes no more."""


FromInside: TypeAlias = (
    ExecutorsRequested
    | ExecutorSeen
    | RemoveExecutor
    | ExecutorsGivenUp
    | AllocatorStatus
    | CreationBlocked
    | StartFailuresExceeded
    | Freshness
)
"""What a running backend hears; `PodsDeleted` and `Drained` are answers to one that stops."""


# ── To Backend, from the driver ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RequestTotalExecutors:
    """The wanted number of executors, per profile; an int means the default profile. Replaces what was asked before."""

    totals: int | Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KillExecutors:
    """End these executors. The target stays, so that they are replaced, unless `adjust_target`.

    Asked, it answers with the ids that will be ended; ids that are unknown or already removed are left out.
    """

    executor_ids: tuple[int, ...]
    adjust_target: bool = False


@dataclass(frozen=True, slots=True)
class RegisterExecutor:
    """The driver has this executor's connection. Asked, it answers whether the id is one of the fleet's."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class DisconnectExecutor:
    """This executor's connection is gone: it is inactive until its pod's events say why it ended."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class GetExecutorIds:
    """Answered with the sorted tuple of ids that are active: told of, not removed, not disconnected."""


@dataclass(frozen=True, slots=True)
class IsExecutorActive:
    """Answered with a bool."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class HasEnoughExecutors:
    """Answered with a bool: registered ≥ initial target × `backend.min_registered_ratio`."""


@dataclass(frozen=True, slots=True)
class GetFleetStatus:
    """Answered with a `FleetStatus`."""


@dataclass(frozen=True, slots=True)
class StopBackend:
    """End. With `delete_pods` the fleet is deleted first; None means the setting `backend.delete_on_stop`."""

    delete_pods: bool | None = None


FromDriver: TypeAlias = (
    RequestTotalExecutors
    | KillExecutors
    | RegisterExecutor
    | DisconnectExecutor
    | GetExecutorIds
    | IsExecutorActive
    | HasEnoughExecutors
    | GetFleetStatus
    | StopBackend
)


@dataclass(frozen=True, slots=True)
class ProfileStatus:
    """One profile's numbers, as of the Allocator's last round (`registered`: as of the answer)."""

    target: int = 0
    newly_created: int = 0
    """Requested, not in a snapshot yet."""
    pending: int = 0
    running: int = 0
    """Running or in an unknown phase."""
    terminating: int = 0
    registered: int = 0
    blocked: str | None = None
    """Why creation stands still, None while it does not."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """What the Backend was last told. Ages are as of the answer."""

    app_id: str
    namespace: str
    profiles: Mapping[str, ProfileStatus]
    sources: Mapping[str, SourceStatus]
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source's freshness."""

    synced: bool
    """It has had a full sync and is in touch."""
    since_full_sync: timedelta | None
    since_heard: timedelta | None
    """The age of the last byte that told anything of the cluster. May be up to a second too old."""
    error: str | None


# ── To the driver ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class BackendStarted:
    """The first full sync is in and no right is missing: the fleet is being kept from now on."""

    app_id: str
    namespace: str


@dataclass(frozen=True, slots=True)
class ExecutorPending:
    """The API shows the executor's pod; it does not run yet."""

    executor_id: int
    pod: Pod


@dataclass(frozen=True, slots=True)
class ExecutorRunning:
    """The executor's pod runs."""

    executor_id: int
    pod: Pod


@dataclass(frozen=True, slots=True)
class ExecutorTerminating:
    """The executor lives and is about to go. `deadline` is when it will be gone at the latest, if that is known."""

    executor_id: int
    deadline: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class ExecutorRemoved:
    """The executor is gone. Told exactly once for each that the driver was told of."""

    executor_id: int
    reason: LossReason


@dataclass(frozen=True, slots=True)
class ExecutorStuck:
    """The executor's pod does not get on, in the pod's own words. Told once per cause."""

    executor_id: int
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class AllocationBlocked:
    """No executors of this profile can be created, for this cause. Told once, until `AllocationUnblocked`."""

    profile: str
    cause: str


@dataclass(frozen=True, slots=True)
class AllocationUnblocked:
    """Executors of this profile can be created again."""

    profile: str


@dataclass(frozen=True, slots=True)
class FleetFailed:
    """Executors end before they are of use, again and again: creation has stopped, the driver decides."""

    cause: str


@dataclass(frozen=True, slots=True)
class BackendFailed:
    """The backend could not start, or could not be kept alive; the fleet is left as it is, the actors are stopped."""

    cause: BaseException


@dataclass(frozen=True, slots=True)
class BackendStopped:
    """The end. `left_behind` names the pods that should have been deleted and may still be there."""

    left_behind: tuple[str, ...] = ()


ToDriver: TypeAlias = (
    BackendStarted
    | ExecutorPending
    | ExecutorRunning
    | ExecutorTerminating
    | ExecutorRemoved
    | ExecutorStuck
    | AllocationBlocked
    | AllocationUnblocked
    | FleetFailed
    | BackendFailed
    | BackendStopped
)
