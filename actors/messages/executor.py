"""Executors as values: the answer to `GetExecutors`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from actors.pods.loss import LossReason
from actors.text import JsonReady

__all__ = ["Executor", "ExecutorState", "FleetExecutors"]

ENDED_KEPT: Final = 200
"""The ended executors that `GetExecutors` and `Fleet` have: enough to see why a fleet loses executors, at most 1 MB."""


class ExecutorState(StrEnum):
    """What an executor does, as this driver observed it."""

    REQUESTED = "requested"
    """Its pod was not observed yet."""
    PENDING = "pending"
    """Its pod exists, and was not observed to run yet."""
    RUNNING = "running"
    """Its pod was observed to run."""
    TERMINATING = "terminating"
    """It is alive and is being deleted, or it was killed."""
    ENDED = "ended"
    """It is gone, and `loss` says why."""


@dataclass(frozen=True, slots=True)
class Executor(JsonReady):
    """One executor, as of the answer."""

    id: int
    profile: str
    state: ExecutorState
    pod: str | None
    """The name of its pod, None while no pod was observed."""
    node: str | None
    """The node of its pod, None before it has one. Of an ended executor: the last known one."""
    ip: str | None
    """The IP of its pod, None before it has one. Of an ended executor: the last known one."""
    since: datetime
    """When it entered this state, in UTC, as this driver observed it."""
    registered: bool
    """It has connected to the driver, that connection is not lost, and it has not ended."""
    restarts: int
    """How often its containers were restarted."""
    reason: str | None
    """Why it is stuck or terminating, which scheduling gate it waits for, or the message of `loss`; else None."""
    loss: LossReason | None
    """Why it ended; None while it is alive."""
    retiring: bool = False
    """It is terminating because the driver retired it: it drains, and does not count toward the target."""
    stuck: str | None = None
    """The API's reason for which its pod is stuck, such as `ImagePullBackOff`; None while it is not."""
    container: str | None = None
    """The name of the container that the fleet made, None if its pod has no other one or does not say."""


@dataclass(frozen=True, slots=True)
class FleetExecutors(JsonReady):
    """All executors that are requested or alive, and the last ones that ended."""

    alive: tuple[Executor, ...]
    """By id."""
    ended: tuple[Executor, ...]
    """The last 200 that the driver was notified of by `ExecutorRemoved`, the newest last."""
