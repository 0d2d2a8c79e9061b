"""Messages to the driver."""

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
    """The first full sync succeeded and no right is missing. The fleet is managed from now on."""

    app_id: str
    namespace: str


@dataclass(frozen=True, slots=True)
class ExecutorPending:
    """The executor's pod exists, and does not run yet. It may have ended: then `ExecutorRemoved` follows at once."""

    executor_id: int
    pod: Pod


@dataclass(frozen=True, slots=True)
class ExecutorRunning:
    """The executor's pod runs."""

    executor_id: int
    pod: Pod


@dataclass(frozen=True, slots=True)
class ExecutorTerminating:
    """The executor is terminating: alive, and being deleted. `deadline` is the latest time of its end, if known."""

    executor_id: int
    deadline: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class ExecutorRemoved:
    """The executor is gone. Sent exactly once for each executor that the driver was notified of, and for no other."""

    executor_id: int
    reason: LossReason


@dataclass(frozen=True, slots=True)
class ExecutorStuck:
    """The executor's pod is stuck; `reason` and `message` are its status's own. Sent once per cause."""

    executor_id: int
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class AllocationBlocked:
    """No executors of this profile can be created. Sent once per cause, until `AllocationUnblocked`."""

    profile: str
    cause: str


@dataclass(frozen=True, slots=True)
class AllocationUnblocked:
    """Executors of this profile can be created again."""

    profile: str


@dataclass(frozen=True, slots=True)
class FleetFailed:
    """More executors failed to start than `executor.max_failures` allows. Creation stops until a target is set."""

    cause: str


@dataclass(frozen=True, slots=True)
class BackendFailed:
    """The last message: the backend could not start or cannot continue. The fleet is left as it is; its actors stop."""

    cause: BaseException


@dataclass(frozen=True, slots=True)
class BackendStopped:
    """The last message of a stop. `left_behind` names the pods that should have been deleted and may still exist."""

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
