"""The ledger: the Backend's record of executors, which it sends to a child actor at each of its starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from actors.messages.executor import ExecutorState
from actors.messages.from_driver import Suspected
from actors.pods.id_map import IdMap
from actors.pods.loss import ENDED_BY_DRIVER
from actors.pods.pod import Pod
from actors.pods.state import PodState
from actors.pods.stuck import StuckKind
from actors.runtime import Moment

__all__ = [
    "ExecutorKilled",
    "LedgerEntries",
    "LedgerEntry",
    "StartFailureCount",
    "StartFailureRecord",
]

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ExecutorKilled:
    """The driver killed this executor.

    LifecycleManager requests its deletion from `delete_at` on, while it is alive. Allocator counts it until it
    terminates, unless it is retired.
    """

    executor_id: int
    at: datetime
    """When it was killed (UTC)."""
    delete_at: Moment
    """When its pod is deleted, if it still exists."""
    message: str = ENDED_BY_DRIVER
    """What its loss reason says after the executor's name."""
    retired: bool = False
    """It drains until then, and counts as terminating from now on."""
    is_loss: bool = True
    """False if the target was lowered with it, or if it ends to be replaced."""


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
    """What the Backend knows of one executor, from its request until `executor.removed_executors_ttl` after its end."""

    executor_id: int
    profile: str
    uid: str | None = None
    """Its pod's UID, once the pod was observed."""
    notified_at: Moment | None = None
    """When the driver was first sent a message about it."""
    running: bool = False
    """The driver was notified that it runs."""
    running_at: Moment | None = None
    """When it began to run: when the driver was notified of that, or when an adopted executor's pod was started."""
    terminating: bool = False
    """Its pod was observed to be terminating, or the driver killed it."""
    registered_at: Moment | None = None
    """When the driver registered it."""
    active: bool = True
    """False after `ExecutorDisconnected`."""
    disconnected_at: Moment | None = None
    """When its connection was lost; None while it has one, or if it never had."""
    suspected: Suspected | None = None
    """Why it has none, as the driver suspects."""
    disconnects: int = 0
    """How often its connection was lost."""
    killed: ExecutorKilled | None = None
    """Set once the driver killed it."""
    drained: bool = False
    """The driver said so (`ExecutorDrained`): its pod must end now."""
    busy: bool = False
    """The driver said so (`ExecutorBusy`)."""
    decommissioned: bool = False
    """The driver lets it finish: it is not replaced before it is gone."""
    scaled_down: bool = False
    """The Allocator deletes it as excess. Unset if it runs after all."""
    stuck: frozenset[StuckKind] = frozenset()
    """The causes of being stuck that the driver was notified of."""
    abandoned: bool = False
    """The Allocator abandoned it before its pod was observed: a pod of this id is deleted as soon as it is."""
    removed_at: Moment | None = None
    """When it ended. The driver is notified of nothing about it after that."""
    memory_step: int = 0
    """How often its memory was raised, by `on_oom`."""
    since: datetime = _LONG_AGO
    """When it entered its state (UTC)."""

    @property
    def state(self) -> ExecutorState:
        """What it does, as values show it to the driver."""
        if self.removed_at is not None:
            return ExecutorState.ENDED
        if self.terminating:
            return ExecutorState.TERMINATING
        if self.running:
            return ExecutorState.RUNNING
        return ExecutorState.REQUESTED if self.uid is None else ExecutorState.PENDING

    @property
    def runs(self) -> bool:
        """It was observed to run, or has registered: it may have work."""
        return self.running or self.registered_at is not None

    @property
    def is_registered(self) -> bool:
        """The driver registered it, its connection is not lost, and it has not ended."""
        return self.registered_at is not None and self.removed_at is None and self.active

    @property
    def is_known(self) -> bool:
        """The driver knows this executor: it was notified of it, or has registered it."""
        return self.notified_at is not None or self.registered_at is not None

    @property
    def is_present(self) -> bool:
        """The driver knows this executor, and it has not ended."""
        return self.is_known and self.removed_at is None

    @property
    def counts(self) -> bool:
        """Whether it counts toward the target: it has not ended, and its end has not begun."""
        return self.removed_at is None and self.killed is None and not (self.terminating or self.scaled_down)

    def pod_in(self, states: Mapping[int, PodState]) -> Pod | None:
        """Return its pod from a snapshot's states, None if it is not there."""
        state = states.get(self.executor_id)
        return state.pod if state is not None and state.pod.uid == self.uid else None


LedgerEntries: TypeAlias = IdMap[LedgerEntry]


@dataclass(frozen=True, slots=True)
class StartFailureCount:
    """Short-lived executors of one profile, and the backoff of its creation."""

    rounds: int = 0
    """How often creation backed off because of them, without a success between."""
    until: Moment = 0.0
    """When that backoff ends."""
    times: tuple[Moment, ...] = ()
    """When each was counted, earliest first."""
    waves: int = 0
    """How often others ended executors as early, without a success between."""
    waves_until: Moment = 0.0
    """When the backoff for these ends."""
    newest: int = 0
    """The highest executor id at the last of these."""

    def cleared(self) -> StartFailureCount:
        """Return what is left after the driver has set a target, if the fleet had failed."""
        return replace(self, rounds=0, until=0.0, times=())


@dataclass(frozen=True, slots=True)
class StartFailureRecord:
    """What the Allocator knows of failed starts. The Backend keeps it for the Allocator's next incarnation."""

    counts: Mapping[str, StartFailureCount] = field(default_factory=dict)
    """By profile."""
    failed: str | None = None
    """Why the fleet has failed; None while it has not."""
    failed_since: datetime | None = None
    forgiven: int = 0
    """How often the driver had set a target: what failed before the last time is forgiven."""
