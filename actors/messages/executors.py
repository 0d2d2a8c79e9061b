"""What Allocator and LifecycleManager hear of executors, besides snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from actors.errors import ApiError
from actors.kube.api import Manifest
from actors.messages.ledger import ExecutorKilled, LedgerEntries, StartFailureRecord
from actors.messages.observation import SnapshotBatch
from actors.pods.pod import Pod
from actors.pods.state import PodState
from actors.runtime import Moment

__all__ = [
    "ClaimsListed",
    "ConnectionLost",
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

# ── To Allocator ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SetTotalExpectedExecutors:
    """The wanted number of executors per profile; a profile that is not named is wanted no more."""

    totals: Mapping[str, int]
    forgives: bool = False
    """The driver asks for them: if the fleet has failed, it shall try again."""


@dataclass(frozen=True, slots=True)
class ExecutorRegistered:
    """The driver has an executor's connection: it is in use, and never deleted for being in excess."""

    executor_id: int
    at: Moment


@dataclass(frozen=True, slots=True)
class ClaimsListed:
    """The fleet's PersistentVolumeClaims as the API has them, as JSON, or why they cannot be listed."""

    claims: tuple[Manifest, ...] | ApiError


@dataclass(frozen=True, slots=True)
class PodCreated:
    """The POST was answered: the pod exists (made now, or by an earlier try of ours)."""

    executor_id: int
    epoch: int
    pod: Pod
    withdrawn: bool = False
    """It was withdrawn (`WithdrawPods`), and had been made all the same."""


@dataclass(frozen=True, slots=True)
class PodCreateFailed:
    """The POST was answered, definitely: there is no such pod of ours."""

    executor_id: int
    epoch: int
    error: ApiError


@dataclass(frozen=True, slots=True)
class PodCreateDelayed:
    """A try failed for what may pass; the pool goes on with it by itself. Told at each try."""

    executor_id: int
    epoch: int
    error: ApiError


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """No create of an epoch before `epoch` is queued or under way any more."""

    epoch: int
    dropped: frozenset[int]
    """Ids that have no pod: their POST never left, or was refused."""
    lost: frozenset[int] = frozenset()
    """Ids that this pool was never asked for: what became of their POSTs, if they left, an earlier one took with it."""


# ── To Allocator and LifecycleManager ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LedgerLoaded:
    """The Backend's book, sent at each of the receiver's starts."""

    ledger: LedgerEntries
    next_id: int
    created: int = 0
    """Pods that were requested in the driver's life, without those that the API refused to make."""
    starts: StartFailureRecord = field(default_factory=StartFailureRecord)
    """For the Allocator: what the one before it counted."""
    observed: Mapping[int, PodState] = field(default_factory=dict)
    """For the LifecycleManager: what the one before it saw last."""


@dataclass(frozen=True, slots=True)
class ExecutorDecommissioned:
    """The driver asked this executor to finish. Allocator counts it until it is gone."""

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


# ── To LifecycleManager ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The executor's connection to the driver is gone; its pod's events will say why."""

    executor_id: int
    at: Moment


@dataclass(frozen=True, slots=True)
class ExecutorsAbandoned:
    """The Allocator waits no longer for these: whatever of them comes up is deleted on sight."""

    executor_ids: tuple[int, ...]
    reason: str
    created: bool = True
    """Their pods may have been made; False if the API refused to."""


@dataclass(frozen=True, slots=True)
class ExecutorsScaledDown:
    """The Allocator deletes these executors, which are too many: executor id → the pod's UID.

    They are pending, or were withdrawn (`WithdrawPods`) and had been made all the same. It tells Backend, who tells
    LifecycleManager: if such a pod is gone, it was us.
    """

    pods: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The fleet is ours to write to: have its pods adopted, then say `TakenOver` to Backend.

    Nothing else is written before that. What was asked for while another driver had the lease was dropped.
    """

    serial: int


@dataclass(frozen=True, slots=True)
class ForgetEnded:
    """Of these executors, which have ended, tell Backend which are not shown any more, as `EndedForgotten`."""

    executor_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class PodConfirmed:
    """What a GET said of a pod whose DELETED event came without a deletion: `pod` is None when it is gone."""

    executor_id: int
    uid: str
    pod: Pod | None


ToLifecycleManager: TypeAlias = (
    LedgerLoaded
    | ExecutorRegistered
    | ExecutorKilled
    | ExecutorDecommissioned
    | ConnectionLost
    | ExecutorsScaledDown
    | ExecutorsAbandoned
    | TakeOver
    | ForgetEnded
    | PodConfirmed
    | SnapshotBatch
)
