"""Messages to the Backend from its child actors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from actors.errors import ApiError
from actors.messages.internal.executors import ClaimsListed, ExecutorsAbandoned, ExecutorsScaledDown
from actors.messages.internal.lease import LeaseHeld, LeaseNotHeld, LeaseReleased
from actors.messages.internal.ledger import StartFailureRecord
from actors.messages.internal.observation import ExecutorsRequested, Freshness, Polled
from actors.messages.status import ProfileStatus
from actors.pods.loss import LossReason
from actors.pods.pod import Pod
from actors.pods.state import PodState
from actors.pods.stuck import Stuck
from actors.runtime import Moment

__all__ = [
    "AdoptionEnded",
    "AllocatorStatus",
    "ClaimDeleted",
    "CreationBlocked",
    "Drained",
    "EndedForgotten",
    "ExecutorSeen",
    "ExecutorsObserved",
    "FromInside",
    "PodsDeleted",
    "RemoveExecutor",
    "StartFailuresExceeded",
    "StuckObserved",
    "TakenOver",
    "UnseenPod",
]


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
class AdoptionEnded:
    """All executors that were there when the lease became ours were reported: what comes now is a stranger's."""

    serial: int
    """That of the `TakeOver`."""


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
    pod: Pod | None = field(default=None, compare=False)
    """The pod as it was last observed."""


@dataclass(frozen=True, slots=True)
class AllocatorStatus:
    """The Allocator's counts. Sent when they change."""

    profiles: Mapping[str, ProfileStatus]
    starts: StartFailureRecord = field(default_factory=StartFailureRecord)
    memory_steps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By profile: the memory steps that its executors have or are to have, for the Allocator's next incarnation."""


@dataclass(frozen=True, slots=True)
class CreationBlocked:
    """Creation in a profile is blocked by `cause`; None when it is unblocked. Sent at both."""

    profile: str
    cause: str | None
    blocked_by: str | None = None
    """The kind of `cause`, see `ProfileStatus.blocked_by`."""


@dataclass(frozen=True, slots=True)
class ExecutorsObserved:
    """The states in the newest snapshot. Sent when one has changed; the map is the snapshot's own, not a copy."""

    states: Mapping[int, PodState]
    changed: frozenset[int] | None = field(default=None, compare=False)
    """The executors whose states are others than in the last one; None: any may be."""


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
    """The deletion of these pods, name → UID, was answered; `error` is None if the API accepted it."""

    pods: Mapping[str, str]
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
    | AdoptionEnded
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
