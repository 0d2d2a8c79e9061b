"""Messages to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from actors.messages.executor import Executor
from actors.pods.loss import LossReason
from actors.pods.pod import DEFAULT_PROFILE, Pod

__all__ = [
    "AcquireRefused",
    "AllocationBlocked",
    "AllocationUnblocked",
    "BackendFailed",
    "BackendStarted",
    "BackendStopped",
    "ExecutorAcquired",
    "ExecutorPending",
    "ExecutorRemoved",
    "ExecutorRunning",
    "ExecutorStuck",
    "ExecutorTerminating",
    "FleetFailed",
    "LeaseExpired",
    "LeaseLost",
    "ToDriver",
]


@dataclass(frozen=True, slots=True)
class BackendStarted:
    """The first full sync succeeded and no right is missing. The fleet is managed from now on."""

    app_id: str
    namespace: str


@dataclass(frozen=True, slots=True)
class _PodObserved:
    """The executor's pod, and what a driver asks of it most."""

    executor_id: int
    pod: Pod

    @property
    def profile(self) -> str:
        """The executor's profile."""
        return self.pod.profile

    @property
    def node(self) -> str | None:
        """The pod's node, None before it has one."""
        return self.pod.node

    @property
    def ip(self) -> str | None:
        """The pod's IP, None before it has one."""
        return self.pod.ip


@dataclass(frozen=True, slots=True)
class ExecutorPending(_PodObserved):
    """The executor's pod exists, and does not run yet. It may have ended: then `ExecutorRemoved` follows at once."""


@dataclass(frozen=True, slots=True)
class ExecutorRunning(_PodObserved):
    """The executor's pod runs."""


@dataclass(frozen=True, slots=True)
class ExecutorTerminating:
    """The executor is terminating: alive, and being deleted or killed by the driver.

    Sent once, at the first; and again, with the new deadline, when the driver brings the deletion forward.
    """

    executor_id: int
    deadline: datetime | None
    """Until when it may end by itself. Of a kill: when its pod will be deleted, if it has not ended; then it has the
    pod's own grace period. Of a deletion: when that grace period is over and its node kills it. None if unknown."""
    reason: str
    profile: str = DEFAULT_PROFILE
    node: str | None = None
    """The node of its pod, None if it has none or no pod was observed."""
    ip: str | None = None
    """The IP of its pod, None if it has none or no pod was observed."""
    retiring: bool = False
    """The driver retired it: it drains, and does not count toward the target."""


@dataclass(frozen=True, slots=True)
class ExecutorRemoved:
    """The executor is gone. Sent exactly once for each executor that the driver was notified of, and for no other.

    If the time of a stop is over, it may be that its pod still terminates: `reason` says so, and until when.

    An executor that ends before it was observed alive is notified of by `ExecutorPending` first. The driver was also
    notified of one if it has registered it: then its removal may be the only message, if no pod of it was observed.
    """

    executor_id: int
    reason: LossReason
    profile: str = DEFAULT_PROFILE
    node: str | None = None
    """The last known node of its pod, None if none is known."""
    ip: str | None = None
    """The last known IP of its pod, None if none is known."""
    lowered_target: bool = False
    """It is not replaced, as `executor.replace` of its profile says: the profile's target is one lower now."""


@dataclass(frozen=True, slots=True)
class ExecutorStuck:
    """The executor's pod is stuck; `reason` and `message` are its status's own. Sent once per cause."""

    executor_id: int
    reason: str
    message: str
    since: datetime | None
    profile: str = DEFAULT_PROFILE
    node: str | None = None
    """The node of its pod, None before it has one."""
    ip: str | None = None
    """The IP of its pod, None before it has one."""


@dataclass(frozen=True, slots=True)
class AllocationBlocked:
    """No executors of this profile can be created. Sent once per cause, until `AllocationUnblocked`."""

    profile: str
    cause: str
    blocked_by: str | None = None
    """The kind of `cause`, as `ProfileStatus.blocked_by` has it."""


@dataclass(frozen=True, slots=True)
class AllocationUnblocked:
    """Executors of this profile can be created again."""

    profile: str


@dataclass(frozen=True, slots=True)
class FleetFailed:
    """More executors failed to start than `executor.max_failures` allows. Creation stops until a target is set."""

    cause: str


@dataclass(frozen=True, slots=True)
class ExecutorAcquired:
    """The lease is granted: the executor is ready, and nobody else's until the lease ends."""

    lease: int
    executor: Executor

    @property
    def executor_id(self) -> int:
        """The executor's id."""
        return self.executor.id


@dataclass(frozen=True, slots=True)
class AcquireRefused:
    """The lease is not granted, and will not be."""

    lease: int
    reason: str
    """For people. It says what holds the executors up, as `AllocationBlocked` does."""
    timed_out: bool = False
    """The time of `AcquireExecutor` is over. False: it was cancelled, the fleet failed, or the fleet stops."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The leased executor has ended, and the lease with it. Sent after its `ExecutorRemoved`."""

    lease: int
    executor_id: int
    reason: LossReason


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    """The time of the lease is over, and nobody has renewed it. Its executor is ended."""

    lease: int
    executor_id: int


@dataclass(frozen=True, slots=True)
class BackendFailed:
    """The last message: the backend could not start or cannot continue. The fleet is left as it is; its actors stop."""

    cause: BaseException


@dataclass(frozen=True, slots=True)
class BackendStopped:
    """The last message of a stop. `left_behind` names the pods that should have been deleted and may live on.

    A pod that terminates, and will end by itself in its grace period, is not among them; one beyond its time is.
    """

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
    | ExecutorAcquired
    | AcquireRefused
    | LeaseLost
    | LeaseExpired
    | BackendFailed
    | BackendStopped
)
