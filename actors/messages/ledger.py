"""The ledger: the Backend's book of executors, which it sends to those who start anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from immutables import Map

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


@dataclass(frozen=True, slots=True)
class ExecutorKilled:
    """The driver asked for this executor's end.

    LifecycleManager asks for its deletion from `delete_at` on, while it is shown alive; Allocator counts it as one that
    is going.
    """

    executor_id: int
    at: datetime
    """When that was (UTC)."""
    delete_at: Moment
    """When its pod is deleted, should it be there still."""
    message: str = ENDED_BY_DRIVER
    """What is said of its end, after the executor's name."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What the Backend knows of one executor, from its request to a while after its end."""

    executor_id: int
    profile: str
    uid: str | None = None
    """Its pod's UID, once a snapshot showed it."""
    notified_at: Moment | None = None
    """When the driver first heard of it."""
    running: bool = False
    """The driver was told that it runs."""
    running_at: Moment | None = None
    """When it first ran: when the driver was told so, or of an earlier life's, when its pod was started."""
    terminating: bool = False
    """The driver was told that it is about to go."""
    registered_at: Moment | None = None
    """When the driver registered it."""
    active: bool = True
    """False after `ExecutorDisconnected`."""
    disconnected_at: Moment | None = None
    """When its connection was lost; None while it has one, or never had."""
    disconnects: int = 0
    """How often its connection was lost."""
    killed: ExecutorKilled | None = None
    """The driver asked for its end."""
    decommissioned: bool = False
    """The driver asked it to finish: it is not replaced before it is gone."""
    stuck: frozenset[StuckKind] = frozenset()
    """Of what keeps it from running the driver was told."""
    abandoned: bool = False
    """The Allocator gave it up unseen: whatever comes up under this id is deleted on sight."""
    removed_at: Moment | None = None
    """When the driver was told of its end; nothing about it is told after that."""

    @property
    def is_present(self) -> bool:
        """The driver was told of it, and not of its end."""
        return self.notified_at is not None and self.removed_at is None

    def pod_in(self, shown: Mapping[int, PodState]) -> Pod | None:
        """Its pod as a snapshot shows it, None if it does not."""
        state = shown.get(self.executor_id)
        return state.pod if state is not None and state.pod.uid == self.uid else None


LedgerEntries: TypeAlias = Map[int, LedgerEntry]


@dataclass(frozen=True, slots=True)
class StartFailureCount:
    """Executors of one profile that ended before they were of use."""

    rounds: int = 0
    """How often creation was made to wait for that, without a success between."""
    until: Moment = 0.0
    """Until when it waits."""
    times: tuple[Moment, ...] = ()
    """When each was counted, the earliest first."""
    waves: int = 0
    """How often others ended some as early, without a success between."""
    waves_until: Moment = 0.0
    """Until when creation waits for that."""
    newest: int = 0
    """The highest id that there was at the last of these."""


@dataclass(frozen=True, slots=True)
class StartFailureRecord:
    """What the Allocator knows of executors' starts and Backend keeps for the next one, which would count anew."""

    counts: Mapping[str, StartFailureCount] = field(default_factory=dict)
    """By profile."""
    failed: str | None = None
    """Why the fleet has failed; None while it has not."""
    failed_since: datetime | None = None
