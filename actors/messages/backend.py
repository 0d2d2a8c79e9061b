"""What the Backend hears: from its own parts, and from the driver, whom it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from actors.errors import ApiError
from actors.messages.executors import ExecutorsAbandoned, ExecutorsScaledDown
from actors.messages.lease import LeaseHeld, LeaseNotHeld, LeaseReleased
from actors.messages.ledger import StartFailureRecord
from actors.messages.observation import Freshness, Polled
from actors.pods.loss import LossReason
from actors.pods.state import PodState
from actors.pods.stuck import Stuck
from actors.runtime import Moment

__all__ = [
    "AllocatorStatus",
    "CreationBlocked",
    "DecommissionExecutors",
    "Drained",
    "EndedForgotten",
    "ExecutorDisconnected",
    "ExecutorSeen",
    "ExecutorsObserved",
    "ExecutorsRequested",
    "FleetStatus",
    "FromDriver",
    "FromInside",
    "GetExecutorIds",
    "GetFleetStatus",
    "HasEnoughExecutors",
    "IsExecutorActive",
    "IsExecutorExcluded",
    "KillExecutors",
    "PodsDeleted",
    "ProfileStatus",
    "RegisterExecutor",
    "RemoveExecutor",
    "RequestTotalExecutors",
    "SourceStatus",
    "StartFailuresExceeded",
    "StopBackend",
    "StuckObserved",
    "TakenOver",
]

# ── From inside ──────────────────────────────────────────────────────────────────────────────────────────────────────


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
    since: Moment | None = field(default=None, compare=False)
    """When the store had what shows it, None if it was found out otherwise: to measure how fast we are."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """LifecycleManager has looked at the whole fleet and asked for the adoption of whatever is not ours yet."""

    serial: int
    """The question's."""


@dataclass(frozen=True, slots=True)
class StuckObserved:
    """An executor's pod does not get on. Told once per pod and kind of cause."""

    executor_id: int
    uid: str
    stuck: Stuck


@dataclass(frozen=True, slots=True)
class AllocatorStatus:
    """What the Allocator counts, sent when it changes."""

    profiles: Mapping[str, ProfileStatus]
    starts: StartFailureRecord = field(default_factory=StartFailureRecord)


@dataclass(frozen=True, slots=True)
class CreationBlocked:
    """Creation in a profile stands still for `cause`; None when it goes on. Sent when it begins and when it ends."""

    profile: str
    cause: str | None


@dataclass(frozen=True, slots=True)
class ExecutorsObserved:
    """The states in the newest snapshot, told when any of them has changed. The map is the snapshot's own, no copy."""

    states: Mapping[int, PodState]


@dataclass(frozen=True, slots=True)
class EndedForgotten:
    """Of these executors, which have ended, no pod is shown any more: the answer to `ForgetEnded`."""

    executor_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class StartFailuresExceeded:
    """Too many executors ended before they were of use; the Allocator has stopped creating."""

    cause: str


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
    | StuckObserved
    | ExecutorsScaledDown
    | TakenOver
    | LeaseHeld
    | LeaseNotHeld
    | RemoveExecutor
    | ExecutorsAbandoned
    | EndedForgotten
    | ExecutorsObserved
    | AllocatorStatus
    | CreationBlocked
    | StartFailuresExceeded
    | Freshness
    | Polled
    | PodsDeleted
    | Drained
    | LeaseReleased
)
"""What the Backend's own actors send to it; the last three answer one that stops."""


# ── From the driver ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RequestTotalExecutors:
    """The wanted number of executors, per profile; an int means the default profile. Replaces what was asked before."""

    totals: int | Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KillExecutors:
    """End these executors. The target stays, so that they are replaced, unless `adjust_target`.

    The wish is this driver's: should it die before `executor.kill_grace_period` is over, the next one takes over those
    that live on as any others, and sees by `executor.kill_label`, if that is set, what was wished.

    Asked, it answers with the ids that will be ended; ids that are unknown or already removed are left out.
    """

    executor_ids: tuple[int, ...]
    adjust_target: bool = False


@dataclass(frozen=True, slots=True)
class DecommissionExecutors:
    """Let these executors finish: labelled, and not replaced before they are gone. Who ends them is the driver.

    Asked, it answers with the ids that are decommissioned; ids that are unknown or already removed are left out.
    """

    executor_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegisterExecutor:
    """The driver has this executor's connection. Asked, it answers whether the id is one of the fleet's."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class ExecutorDisconnected:
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
class IsExecutorExcluded:
    """Answered with a bool: this executor must be turned away, should it call: given up, ended, or none of ours."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class HasEnoughExecutors:
    """Answered with a bool: registered ≥ initial target × `backend.min_registered_ratio`."""


@dataclass(frozen=True, slots=True)
class GetFleetStatus:
    """Answered with a `FleetStatus`."""


@dataclass(frozen=True, slots=True)
class StopBackend:
    """End. With `delete_pods` the fleet is deleted first; None means the setting `backend.delete_on_stop`.

    Executors that were killed and have not ended go at once, whether the rest is deleted or left.

    Who asks is answered when the stop begins; its end is `BackendStopped`, or `BackendFailed` should the backend crash
    meanwhile, and the fleet is left as far as it was.
    """

    delete_pods: bool | None = None


FromDriver: TypeAlias = (
    RequestTotalExecutors
    | KillExecutors
    | DecommissionExecutors
    | RegisterExecutor
    | ExecutorDisconnected
    | GetExecutorIds
    | IsExecutorActive
    | IsExecutorExcluded
    | HasEnoughExecutors
    | GetFleetStatus
    | StopBackend
)


@dataclass(frozen=True, slots=True)
class ProfileStatus:
    """One profile's numbers, as of the Allocator's last round (`registered`: as of the answer)."""

    target: int = 0
    requested: int = 0
    """Requested, not in a snapshot yet."""
    pending: int = 0
    running: int = 0
    """Running or in an unknown phase."""
    terminating: int = 0
    registered: int = 0
    blocked: str | None = None
    """Why creation stands still, None while it does not."""
    blocked_since: datetime | None = None
    start_failures: int = 0
    """Executors that ended before they were of use, within `executor.failures_validity_interval`."""
    blocked_by: str | None = None
    """`blocked` as one of a few words: the class of the API's error, or what else holds creation up."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """What the Backend was last told. Ages are as of the answer."""

    app_id: str
    namespace: str
    profiles: Mapping[str, ProfileStatus]
    sources: Mapping[str, SourceStatus]
    stopping: bool = False
    may_write: bool = True
    """Pods may be made and deleted: the lease is ours, or none is used."""
    lease_held: bool = False


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source's freshness."""

    synced: bool
    """It has had a full sync and is in touch."""
    since_full_sync: timedelta | None
    since_heard: timedelta | None
    """The age of the last byte that told anything of the cluster. May be up to a second too old."""
    error: str | None
