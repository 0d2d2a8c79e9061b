"""What the driver is told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from actors.pods.loss import LossReason
from actors.pods.pod import Pod

__all__ = [
    "AllocationBlocked",
    "AllocationUnblocked",
    "BackendFailed",
    "BackendStarted",
    "BackendStopped",
    "ExecutorPending",
    "ExecutorRemoved",
    "ExecutorRunning",
    "ExecutorStuck",
    "ExecutorTerminating",
    "FleetFailed",
    "ToDriver",
]


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
