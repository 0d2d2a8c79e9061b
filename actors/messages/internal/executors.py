"""Messages to Allocator and LifecycleManager about executors, besides snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from actors.errors import ApiError
from actors.kube.api import Manifest
from actors.messages.from_driver import Suspected
from actors.messages.internal.ledger import ExecutorKilled, LedgerEntries, StartFailureRecord
from actors.messages.internal.observation import SnapshotBatch
from actors.pods.pod import Pod
from actors.pods.state import PodState
from actors.runtime import Moment

__all__ = [
    "ClaimsListed",
    "ConnectionLost",
    "DrainEnded",
    "EpochBegun",
    "ExecutorDecommissioned",
    "ExecutorRegistered",
    "ExecutorsAbandoned",
    "ExecutorsScaledDown",
    "ForgetEnded",
    "LedgerLoaded",
    "PodConfirmed",
    "PodCreateDelayed",
    "PodCreateFailed",
    "PodCreated",
    "SetTotalExpectedExecutors",
    "TakeOver",
    "ToAllocator",
    "ToLifecycleManager",
]

# ── To Allocator ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SetTotalExpectedExecutors:
    """The target: the desired number of executors per profile. A profile that is not named has the target 0."""

    totals: Mapping[str, int]
    forgiven: int = 0
    """How often the driver has set a target: if once more than was known, and the fleet has failed, try again."""
    at_once: frozenset[str] = frozenset()
    """The profiles whose excess is deleted however young it is."""
    retired: frozenset[int] = frozenset()
    """Executors that do not count from now on. In one message with the target, so that they are not replaced if it has
    fallen with them."""
    decided: frozenset[int] = frozenset()
    """Ended executors of `LedgerLoaded.decides` that do not count from now on: the target has fallen with those that
    are not replaced."""


@dataclass(frozen=True, slots=True)
class ExecutorRegistered:
    """An executor has connected to the driver. It is in use, and never deleted as excess."""

    executor_id: int
    at: Moment


@dataclass(frozen=True, slots=True)
class ClaimsListed:
    """The fleet's PersistentVolumeClaims as JSON, or why they cannot be listed."""

    claims: tuple[Manifest, ...] | ApiError


@dataclass(frozen=True, slots=True)
class PodCreated:
    """The POST was answered: the pod exists, created by this try or an earlier one."""

    executor_id: int
    epoch: int
    pod: Pod
    withdrawn: bool = False
    """It was withdrawn (`WithdrawPods`), but an earlier try had created it."""


@dataclass(frozen=True, slots=True)
class PodCreateFailed:
    """The POST got a definitive answer: there is no such pod of ours."""

    executor_id: int
    epoch: int
    error: ApiError


@dataclass(frozen=True, slots=True)
class PodCreateDelayed:
    """A try failed with an error that may pass; the pool retries by itself. Sent at each try."""

    executor_id: int
    epoch: int
    error: ApiError
    retry_at: datetime
    """When the next try is sent, at the earliest."""


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """No create of an epoch before `epoch` is queued or in flight any more."""

    epoch: int
    dropped: frozenset[int]
    """Ids that have no pod: their POST was never sent, or was refused."""
    lost: frozenset[int] = frozenset()
    """Ids that this pool never received: only a crashed earlier pool knew whether their POSTs were sent."""


# ── To Allocator and LifecycleManager ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LedgerLoaded:
    """The Backend's ledger. Sent at each start of the receiver."""

    ledger: LedgerEntries
    next_id: int
    created: int = 0
    """Pods that this driver requested, without those that the API refused to create."""
    starts: StartFailureRecord = field(default_factory=StartFailureRecord)
    """For the Allocator: what its previous incarnation counted."""
    memory_steps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For the Allocator: the memory steps that its previous incarnation reported."""
    observed: Mapping[int, PodState] = field(default_factory=dict)
    """For the LifecycleManager: the last states that its previous incarnation received."""
    decides: frozenset[str] = frozenset()
    """For the Allocator: the profiles in which each executor counts until the Backend has decided on its end."""


@dataclass(frozen=True, slots=True)
class ExecutorDecommissioned:
    """The driver lets this executor finish. The Allocator counts it until it is gone."""

    executor_id: int


ToAllocator: TypeAlias = (
    LedgerLoaded
    | SetTotalExpectedExecutors
    | ExecutorRegistered
    | ExecutorKilled
    | ExecutorDecommissioned
    | PodCreated
    | PodCreateFailed
    | PodCreateDelayed
    | EpochBegun
    | ClaimsListed
    | SnapshotBatch
)


# ── To LifecycleManager ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The executor's connection to the driver is lost; its pod's events will say why."""

    executor_id: int
    at: Moment
    suspected: Suspected | None = None
    """See `ExecutorDisconnected`."""


@dataclass(frozen=True, slots=True)
class DrainEnded:
    """This terminating executor is drained: its pod must be deleted now, if nobody has."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class ExecutorsAbandoned:
    """The Allocator has abandoned these executors: a pod of theirs is deleted as soon as it is observed.

    Sent to LifecycleManager, which deletes it, and to the Backend, for the ledger.
    """

    executor_ids: tuple[int, ...]
    reason: str
    created: bool = True
    """Their pods may have been created; False if the API refused to."""


@dataclass(frozen=True, slots=True)
class ExecutorsScaledDown:
    """The Allocator deletes these executors as excess: executor id → the pod's UID.

    They are pending, or were withdrawn (`WithdrawPods`) although an earlier try had created them. Sent to
    LifecycleManager, because the end of such a pod is our doing, and to the Backend, for the ledger.
    """

    pods: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The fleet is ours to write to: have its pods adopted, then answer the Backend with `TakenOver`.

    Nothing else is written before that. Requests were dropped while another driver had the lease.
    """

    serial: int
    since: Moment | None = None
    """When no other driver could create pods any more. After a full sync that was requested later, `AdoptionEnded` is
    to follow: an earlier one may lack pods of the last holder of the lease. None without a lease."""


@dataclass(frozen=True, slots=True)
class ForgetEnded:
    """Tell the Backend which of these ended executors have no pod in the snapshot: `EndedForgotten`."""

    executor_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class PodConfirmed:
    """The answer to `ConfirmPod`: `pod` is None if the pod is gone."""

    executor_id: int
    uid: str
    pod: Pod | None


ToLifecycleManager: TypeAlias = (
    LedgerLoaded
    | ExecutorRegistered
    | ExecutorKilled
    | ExecutorDecommissioned
    | ConnectionLost
    | DrainEnded
    | ExecutorsScaledDown
    | ExecutorsAbandoned
    | TakeOver
    | ForgetEnded
    | PodConfirmed
    | SnapshotBatch
)
