"""Messages to the Backend: from its child actors, and from the driver, whose questions it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from actors.errors import ApiError
from actors.messages.executors import ClaimsListed, ExecutorsAbandoned, ExecutorsScaledDown
from actors.messages.lease import LeaseHeld, LeaseNotHeld, LeaseReleased
from actors.messages.ledger import StartFailureRecord
from actors.messages.observation import Freshness, Polled
from actors.pods.loss import LossReason
from actors.pods.pod import DEFAULT_PROFILE, Pod
from actors.pods.state import PodState
from actors.pods.stuck import Stuck
from actors.runtime import Moment

__all__ = [
    "AllocatorStatus",
    "ClaimDeleted",
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
    "HeldPod",
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
    "UnseenPod",
]

# ── From its children ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ExecutorsRequested:
    """The Allocator uses these ids from now on. Sent before their POSTs."""

    executor_ids: tuple[int, ...]
    profile: str


@dataclass(frozen=True, slots=True)
class ExecutorSeen:
    """An executor is in a new state in the snapshot."""

    executor_id: int
    uid: str
    state: PodState


@dataclass(frozen=True, slots=True)
class RemoveExecutor:
    """An executor has ended. May be repeated after a restart; the driver is notified once."""

    executor_id: int
    uid: str | None
    reason: LossReason
    since: Moment | None = field(default=None, compare=False)
    """When the store got the event of the end, None if it was found out without one. Measures the reaction time."""
    pod: Pod | None = field(default=None, compare=False)
    """The pod as it was last observed."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The answer to `TakeOver`: LifecycleManager has requested the adoption of all pods that are not ours yet."""

    serial: int
    """That of the `TakeOver`."""


@dataclass(frozen=True, slots=True)
class StuckObserved:
    """An executor's pod is stuck. Sent once per pod and cause."""

    executor_id: int
    uid: str
    stuck: Stuck


@dataclass(frozen=True, slots=True)
class AllocatorStatus:
    """The Allocator's counts. Sent when they change."""

    profiles: Mapping[str, ProfileStatus]
    starts: StartFailureRecord = field(default_factory=StartFailureRecord)


@dataclass(frozen=True, slots=True)
class CreationBlocked:
    """Creation in a profile is blocked by `cause`; None when it is unblocked. Sent at both."""

    profile: str
    cause: str | None


@dataclass(frozen=True, slots=True)
class ExecutorsObserved:
    """The states in the newest snapshot. Sent when one has changed; the map is the snapshot's own, not a copy."""

    states: Mapping[int, PodState]


@dataclass(frozen=True, slots=True)
class EndedForgotten:
    """The answer to `ForgetEnded`: these executors have ended, and the snapshot has no pod of theirs."""

    executor_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class StartFailuresExceeded:
    """More executors failed to start than `executor.max_failures` allows; the Allocator has stopped creating."""

    cause: str


@dataclass(frozen=True, slots=True)
class PodsDeleted:
    """The bulk delete was answered; `error` is None if the API accepted it."""

    executor_ids: frozenset[int] | None
    error: ApiError | None


@dataclass(frozen=True, slots=True)
class ClaimDeleted:
    """A `DeleteClaim` was answered. If it was refused, the claim stays."""

    name: str


@dataclass(frozen=True, slots=True)
class UnseenPod:
    """A pod that a POST has created and that no snapshot has had."""

    executor_id: int
    uid: str


@dataclass(frozen=True, slots=True)
class Drained:
    """The RequestPool has no create queued, in flight or unresolved, and accepts no more."""

    unseen: Mapping[str, UnseenPod] = field(default_factory=dict)
    """Pods that were created, and neither observed nor known to be gone, by name: they may lack our labels."""


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
    | ClaimsListed
    | ClaimDeleted
    | Drained
    | LeaseReleased
)
"""What the Backend's children send to it. The last five are answers during a stop."""


# ── From the driver ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class RequestTotalExecutors:
    """Set the target: the desired number of executors per profile. An int means the default profile.

    Replaces the previous target: a profile that is not named has the target 0. A profile's target is at most 100,000.

    Answered with True.
    """

    totals: int | Mapping[str, int]

    @property
    def by_profile(self) -> dict[str, int]:
        """The target of each profile that is named."""
        return {DEFAULT_PROFILE: self.totals} if isinstance(self.totals, int) else dict(self.totals)


@dataclass(frozen=True, slots=True)
class KillExecutors:
    """End these executors, at most 100,000 at a time. They are replaced, unless `adjust_target` lowers the target.

    Executors that are in excess of the target are not replaced and do not lower it: each other one lowers it by one.

    A running executor has `executor.kill_grace_period` to end by itself, then its pod is deleted; one that does not run
    yet is deleted at once. If the driver dies meanwhile, the next driver adopts those that live on like any others. The
    pod label `executor.kill_label`, if set, tells it that they were killed.

    Answered with the ids that will be ended, without ids that are unknown or already removed.
    """

    executor_ids: tuple[int, ...]
    adjust_target: bool = False


@dataclass(frozen=True, slots=True)
class DecommissionExecutors:
    """Let these executors finish. They are labelled, and replaced only when they are gone; the driver ends them.

    Answered with the ids that are decommissioned, without ids that are unknown or already removed.
    """

    executor_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegisterExecutor:
    """This executor has connected to the driver. Answered with a bool: it is not excluded, see `IsExecutorExcluded`."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class ExecutorDisconnected:
    """This executor's connection is lost. It is inactive until its pod's events say why it ended."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class GetExecutorIds:
    """Answered with the sorted tuple of the active ids, see `IsExecutorActive`."""


@dataclass(frozen=True, slots=True)
class IsExecutorActive:
    """Answered with a bool: the driver was notified of it, and it is not killed, scaled down, disconnected or gone."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class IsExecutorExcluded:
    """Answered with a bool: refuse this executor if it connects.

    It is abandoned, scaled down, has ended or is unknown, or a stop deletes it.
    """

    executor_id: int


@dataclass(frozen=True, slots=True)
class HasEnoughExecutors:
    """Answered with a bool: registered ≥ initial target × `backend.min_registered_ratio`."""


@dataclass(frozen=True, slots=True)
class GetFleetStatus:
    """Answered with a `FleetStatus`."""


@dataclass(frozen=True, slots=True)
class StopBackend:
    """Stop. `delete_pods` says whether the fleet is deleted first; None means the setting `backend.delete_on_stop`.

    Killed executors that have not ended are deleted in either case, without waiting for their grace period.

    Answered with None when the stop begins. `BackendStopped` says that it has ended; `BackendFailed`, that the backend
    crashed while it stopped, which leaves the fleet as it is then.
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
    """Executors that are not in a snapshot yet."""
    pending: int = 0
    running: int = 0
    """Running or in an unknown phase."""
    terminating: int = 0
    registered: int = 0
    blocked: str | None = None
    """Why creation is blocked, None while it is not."""
    blocked_since: datetime | None = None
    start_failures: int = 0
    """Short-lived executors within `executor.failures_validity_interval`."""
    blocked_by: str | None = None
    """The kind of `blocked`, one of a few: the class of the API's error, or the name of another blocker."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """What the Backend knows now. Ages are as of the answer."""

    app_id: str
    namespace: str
    profiles: Mapping[str, ProfileStatus]
    sources: Mapping[str, SourceStatus]
    stopping: bool = False
    may_write: bool = True
    """Pods may be created and deleted: the lease is ours, or none is used."""
    lease_held: bool = False
    held: tuple[HeldPod, ...] = ()
    """Pods that finalizers hold, the longest held first. An operator may have to remove the finalizers."""


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod that was deleted and whose grace period is over, but that stays until its finalizers are removed."""

    executor_id: int
    pod_name: str
    finalizers: tuple[str, ...]
    since: datetime
    """When its grace period ended."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source's freshness."""

    synced: bool
    """The source has had a full sync, and its last request or connection did not fail."""
    since_full_sync: timedelta | None
    since_heard: timedelta | None
    """The age of the last page, event or bookmark. May be up to a second too old."""
    error: str | None
