"""Messages from the driver to the Backend: commands, events and questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from actors.messages.changes import FleetChanged
from actors.messages.executor import Executor, FleetExecutors
from actors.messages.status import FleetStatus
from actors.pods.pod import DEFAULT_PROFILE

__all__ = [
    "AcquireExecutor",
    "CancelAcquire",
    "DecommissionExecutors",
    "ExecutorBusy",
    "ExecutorDisconnected",
    "ExecutorDrained",
    "ExecutorIdle",
    "FollowFleet",
    "FromDriver",
    "GetExecutorIds",
    "GetExecutors",
    "GetFleetStatus",
    "HasEnoughExecutors",
    "HoldFleet",
    "IsExecutorActive",
    "IsExecutorExcluded",
    "KillExecutors",
    "Question",
    "RegisterExecutor",
    "ReleaseExecutor",
    "RenewLease",
    "RequestTotalExecutors",
    "ResumeFleet",
    "RetireExecutors",
    "ScaleExecutors",
    "SetWarm",
    "StopBackend",
    "SupportsLessThan",
    "Suspected",
    "Victims",
]

A_co = TypeVar("A_co", covariant=True)


class Question(Generic[A_co]):
    """A message that is answered with an `A_co`; one that needs no answer, with None."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RequestTotalExecutors(Question[bool]):
    """Set the target: the desired number of executors per profile. An int means the default profile.

    Replaces the previous target: a profile that is not named has the target 0, or keeps its own with `keep_others`. A
    profile's target is at most 100,000. No running executor is ended, see `ScaleExecutors`.

    Answered with True.
    """

    totals: int | Mapping[str, int]
    keep_others: bool = False

    @property
    def by_profile(self) -> dict[str, int]:
        """The target of each profile that is named."""
        return _by_profile(self.totals)


class SupportsLessThan(Protocol):
    """A value that can be compared, such as a number or a tuple of numbers."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether it is less than `other`."""


Victims: TypeAlias = Literal["newest", "oldest", "idle"] | Callable[[Executor], SupportsLessThan | None]
"""Which of the running executors go first when there are too many. See `ScaleExecutors`."""


@dataclass(frozen=True, slots=True)
class ScaleExecutors(Question[tuple[int, ...]]):
    """Set the target of these profiles, and end what is in excess. An int means the default profile.

    A profile that is not named keeps its target. Executors that do not run yet go first, at once; then running ones in
    the order of `victims`, like killed ones (`KillExecutors`), or with `executor.drain_timeout` like retired ones
    (`RetireExecutors`):

    - "newest" or "oldest": by when they began to run.
    - "idle": those that are not busy (`ExecutorBusy`). Not connected ones go first, then the newest. Busy ones stay
      until they are idle.
    - a function: a sort key. The lowest goes first; None: this one stays. The backend waits for it. If it fails, or
      takes longer than 5 s, the message is refused and changes nothing.

    Executors that are being ended or were decommissioned neither count nor are they ended again. This holds until the
    next message that sets the profile's target: a pending executor that begins to run after all while there are too
    many is ended, and busy ones are when they are idle. While nothing may be written, because the lease is not held,
    the target is set and nothing is ended until the lease is back.

    Answered with the ids of the running executors that are ended now, the first victim first.
    """

    totals: int | Mapping[str, int]
    victims: Victims = "newest"
    grace: timedelta | None = None
    """How long they may take. None means `executor.drain_timeout` of the profile, or else
    `executor.kill_grace_period`."""

    @property
    def by_profile(self) -> dict[str, int]:
        """The target of each profile that is named."""
        return _by_profile(self.totals)


@dataclass(frozen=True, slots=True)
class KillExecutors(Question[tuple[int, ...]]):
    """End these executors, at most 100,000 at a time. They are replaced, unless `adjust_target` lowers the target.

    Executors that are in excess of the target are not replaced and do not lower it: each other one lowers it by one.

    A running executor has `grace` to end by itself, then its pod is deleted; one that does not run yet is deleted at
    once. A second kill can shorten the first one's grace, and never prolongs it. If the driver dies meanwhile, the next
    driver adopts those that live on like any others. The pod label `executor.kill_label`, if set, tells it that they
    were killed.

    Answered with the ids that will be ended, without ids that are unknown or already removed.
    """

    executor_ids: tuple[int, ...]
    adjust_target: bool = False
    grace: timedelta | None = None
    """None means `executor.kill_grace_period`. Deleted pods then have their own `terminationGracePeriodSeconds` to end,
    also after a grace of 0: the DELETE does not shorten it."""


@dataclass(frozen=True, slots=True)
class RetireExecutors(Question[tuple[int, ...]]):
    """Let these executors drain, at most 100,000 at a time, and end them at the deadline.

    A retiring executor no longer counts: it is replaced now, unless `adjust_target` lowers the target by one for it, as
    with `KillExecutors`. With `allocation.pod_replacement_policy = "Failed"` it is replaced once it has ended. The
    driver receives `ExecutorTerminating` at once, gives the executor no more work, and takes over what it has.

    Its pod is deleted when the driver says that it is drained (`ExecutorDrained`), and at the deadline at the latest;
    one that does not run yet is deleted at once. Whenever and however it ends, its kind is `KILLED_BY_DRIVER`. Its
    connection may be lost meanwhile: `executor.disconnect_timeout` does not end it. A second one, or a kill, can
    shorten its deadline, and never prolongs it.

    Answered with the ids that retire, without ids that are unknown or already removed.
    """

    executor_ids: tuple[int, ...]
    deadline: timedelta | None = None
    """How long it may take. None means `executor.drain_timeout` of its profile, or else
    `executor.kill_grace_period`."""
    adjust_target: bool = False


@dataclass(frozen=True, slots=True)
class HoldFleet(Question[tuple[int, ...]]):
    """Retire all executors and create none, until `ResumeFleet`. The targets stay, and may be set meanwhile.

    Executors that do not run yet are deleted at once; one that begins to run all the same is retired. While nothing may
    be written, because the lease is not held, none is retired until the lease is back. The next driver knows of no
    hold. `FleetStatus.on_hold` tells it.

    Answered with the ids of the running executors that retire now.
    """

    deadline: timedelta | None = None
    """As that of `RetireExecutors`."""


@dataclass(frozen=True, slots=True)
class ResumeFleet(Question[None]):
    """End a `HoldFleet`: executors are created again, up to the targets. Those that retire go on to."""


@dataclass(frozen=True, slots=True)
class ExecutorDrained(Question[bool]):
    """This terminating executor has nothing left to lose: its pod is deleted now.

    After `RetireExecutors` or `KillExecutors` it receives SIGTERM within a second, and SIGKILL two seconds later.

    If somebody else deleted its pod, which pauses (`executor.drain_timeout`), nothing that this library can ask of the
    cluster ends the pause. Have the executor end, or create the file that EXECUTOR_DRAINED_FILE names.

    Answered with a bool: the executor is terminating. Else nothing happens.
    """

    executor_id: int


@dataclass(frozen=True, slots=True)
class DecommissionExecutors(Question[tuple[int, ...]]):
    """Let these executors finish. They are labelled, and replaced only when they are gone; the driver ends them.

    Answered with the ids that are decommissioned, without ids that are unknown or already removed.
    """

    executor_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegisterExecutor(Question[bool]):
    """This executor has connected to the driver. Answered with a bool: it is not excluded, see `IsExecutorExcluded`.

    One that is being ended is not excluded as long as it lives: it may connect again to hand over what it has. The
    driver was sent `ExecutorTerminating`, and gives it no more work.
    """

    executor_id: int


Suspected: TypeAlias = Literal["hang", "network"]
"""Why a driver thinks that an executor stays away. See `ExecutorDisconnected`."""


@dataclass(frozen=True, slots=True)
class ExecutorDisconnected(Question[None]):
    """This executor's connection is lost. It is inactive until its pod's events say why it ended.

    If it does not register again within `executor.disconnect_timeout` and its pod is alive, it is removed: as `HUNG`,
    which counts against the application, or as `DISCONNECTED`. What the driver suspects decides, and may be sent later,
    in another message.

    - "hang": the executor can be reached, and its process does not answer.
    - "network": its process may be well. Its connection was cut, or it has closed the connection itself.
    - None: the fleet compares it with the others. It hung if they stay connected.
    """

    executor_id: int
    suspected: Suspected | None = None


@dataclass(frozen=True, slots=True)
class ExecutorBusy(Question[None]):
    """This executor has work to do: `ScaleExecutors` with "idle" victims lets it finish. An executor starts idle."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class ExecutorIdle(Question[None]):
    """This executor has no work to do. It is ended if `ScaleExecutors` left it only because it was busy."""

    executor_id: int


@dataclass(frozen=True, slots=True)
class SetWarm(Question[None]):
    """Set how many executors of these profiles are kept ready beyond the leased ones. An int means the default profile.

    Only for profiles with the setting `warm`. Like a new target, it has creation tried again if the fleet had failed.
    """

    warm: int | Mapping[str, int]

    @property
    def by_profile(self) -> dict[str, int]:
        """The number of each profile that is named."""
        return _by_profile(self.warm)


@dataclass(frozen=True, slots=True)
class AcquireExecutor(Question[int]):
    """Lease an executor that is ready. Nobody else has it until the lease ends, and another one takes its place.

    Only for profiles with the setting `warm`. If none is ready, this waits; whoever has waited longest is served first.

    Answered with the number of the lease. Either `ExecutorAcquired` or `AcquireRefused` is sent for it, once, perhaps
    before the answer.
    """

    profile: str = DEFAULT_PROFILE
    timeout: timedelta | None = None
    """How long it may wait; None: as long as the fleet lives."""
    ttl: timedelta | None = None
    """How long the lease lasts unless it is renewed; None: until it is released."""
    holder: str = ""
    """Who asks, for logs and loss reasons; at most 200 characters."""


@dataclass(frozen=True, slots=True)
class CancelAcquire(Question[bool]):
    """Do not wait any more. If the lease was granted meanwhile, its executor is offered again: nobody has used it.

    Answered with a bool: it waited, or the lease was held. Else nothing happens.
    """

    lease: int


@dataclass(frozen=True, slots=True)
class ReleaseExecutor(Question[bool]):
    """End a lease. Its executor is ended: its pod is deleted now.

    Answered with a bool: the lease was held. Else it is lost, has expired or was released, and nothing happens.
    """

    lease: int
    reuse: bool = False
    """Offer the executor again instead, unless it was leased `executor.max_leases` times, or is older than
    `executor.max_age`, or is not ready any more."""


@dataclass(frozen=True, slots=True)
class RenewLease(Question[bool]):
    """Let a lease last this long from now on; None: until it is released.

    Answered with a bool: the lease is held. Else nothing happens.
    """

    lease: int
    ttl: timedelta | None = None


@dataclass(frozen=True, slots=True)
class GetExecutorIds(Question[tuple[int, ...]]):
    """Answered with the sorted tuple of the active ids, see `IsExecutorActive`."""


@dataclass(frozen=True, slots=True)
class GetExecutors(Question[FleetExecutors]):
    """Answered with `FleetExecutors`: all executors as values, which costs the backend about 5 µs an executor."""


@dataclass(frozen=True, slots=True)
class IsExecutorActive(Question[bool]):
    """Answered with a bool: the driver knows it, and it is not killed, scaled down, disconnected or gone.

    The driver knows the executors that it was notified of or has registered.
    """

    executor_id: int


@dataclass(frozen=True, slots=True)
class IsExecutorExcluded(Question[bool]):
    """Answered with a bool: refuse this executor if it connects.

    It is abandoned, scaled down, has ended or is unknown, or a stop deletes it.
    """

    executor_id: int


@dataclass(frozen=True, slots=True)
class HasEnoughExecutors(Question[bool]):
    """Answered with a bool: registered ≥ initial target × `backend.min_registered_ratio`."""


@dataclass(frozen=True, slots=True)
class GetFleetStatus(Question[FleetStatus]):
    """Answered with a `FleetStatus`."""


@dataclass(frozen=True, slots=True)
class FollowFleet(Question[None]):
    """Call `follower` with each `FleetChanged` from now on. The first one is complete; again, so is the next.

    What happens together is in one `FleetChanged`, and the driver receives its own messages about that afterwards. What
    a message of the driver changes was sent before it is answered. An actor that follows gives its ref's `tell`.

    Answered with None.
    """

    follower: Callable[[FleetChanged], object]
    """Called in the Backend's thread, so it must not block, nor `ask` the Backend. What it raises is logged."""


@dataclass(frozen=True, slots=True)
class StopBackend(Question[None]):
    """Stop. `delete_pods` says whether the fleet is deleted first; None means the setting `backend.delete_on_stop`.

    Killed executors that have not ended are deleted in either case, without waiting for their grace period. Retired
    ones that have not drained are left with the fleet.

    Answered with None when the stop begins. `BackendStopped` says that it has ended; `BackendFailed`, that the backend
    crashed while it stopped, which leaves the fleet as it is then.
    """

    delete_pods: bool | None = None


def _by_profile(totals: int | Mapping[str, int]) -> dict[str, int]:
    return {DEFAULT_PROFILE: totals} if isinstance(totals, int) else dict(totals)


FromDriver: TypeAlias = (
    RequestTotalExecutors
    | ScaleExecutors
    | KillExecutors
    | RetireExecutors
    | HoldFleet
    | ResumeFleet
    | SetWarm
    | AcquireExecutor
    | CancelAcquire
    | ReleaseExecutor
    | RenewLease
    | ExecutorDrained
    | DecommissionExecutors
    | RegisterExecutor
    | ExecutorDisconnected
    | ExecutorBusy
    | ExecutorIdle
    | GetExecutorIds
    | GetExecutors
    | IsExecutorActive
    | IsExecutorExcluded
    | HasEnoughExecutors
    | GetFleetStatus
    | FollowFleet
    | StopBackend
)
