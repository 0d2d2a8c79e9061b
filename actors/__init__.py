"""Keeps a fleet of executor pods alive on Kubernetes, from inside a driver program.

A driver asks for a number of executors; the library creates their pods, watches them, replaces those that are lost and
tells the driver what became of each. It is level-triggered, like a Kubernetes controller: two sources observe the
cluster, a store turns what they see into immutable snapshots, and two subscribers reconcile the newest snapshot with
what the driver wants. Every part is a Pykka actor; parts meet only through messages (`actors.messages`).

The words that all of it is written in:

driver
    The user's program, itself a Pykka actor; owns the Backend.
executor
    One worker of the driver, running in one pod, known by an integer *executor id* from 1. An id is never used again.
profile
    A named pod shape with its own target count; `"default"` when the user has one shape.
snapshot
    Immutable map executor id → pod state, as of one moment.
full sync
    The answer to a LIST of all executor pods, merged into the snapshot.
update
    Watched events, merged into the snapshot.
round
    What a subscriber does on one batch: the newest snapshot and all that happened since its last round.
newly created
    An executor whose pod was requested but has not appeared in a snapshot yet.
ledger
    The Backend's book of executors: id → pod UID, told, registered, killed, removed.
loss reason
    Why an executor is gone: kind, exit code, whether the application caused it, words for a person.
registered, disconnected
    The driver has an executor's connection, and says so; it lost it, and says so.
given up, excluded
    An executor whose pod was requested and is waited for no longer; its id is excluded: should it call, turn it away.
taken over
    An executor of an earlier life of the driver's `app_id` that lives: its pod is *adopted*, its id stays.
kill
    End executors: they are told to go, have `executor.kill_grace_period`, and are deleted if they are still there.
decommission
    Let executors finish: nobody ends them, and none is replaced before it is gone.
roll
    Replace running executors one by one at an interval, while the fleet keeps its size.
stuck
    A pod that should run and does not get on, as its own status says.
claim
    A volume of an executor's own: a PersistentVolumeClaim, which its replacement may take over.
held up, blocked
    No executors are created: the driver may not yet, or the API, a limit or failures to start stand in the way.
lease
    What lets one of two drivers of one `app_id` write, while the other one looks on.

Public names are imported on first use, so that `import actors` costs next to nothing.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.backend.backend import Backend
    from actors.errors import ApiError, ExecutorPodsError, Refused, SettingsError
    from actors.executors.roll import Candidate
    from actors.messages import (
        AllocationBlocked,
        AllocationUnblocked,
        BackendFailed,
        BackendStarted,
        BackendStopped,
        DecommissionExecutors,
        ExecutorDisconnected,
        ExecutorPending,
        ExecutorRemoved,
        ExecutorRunning,
        ExecutorStuck,
        ExecutorTerminating,
        FleetFailed,
        FleetStatus,
        GetExecutorIds,
        GetFleetStatus,
        HasEnoughExecutors,
        IsExecutorActive,
        IsExecutorExcluded,
        KillExecutors,
        ProfileStatus,
        RegisterExecutor,
        RequestTotalExecutors,
        SourceStatus,
        StopBackend,
    )
    from actors.metrics.prometheus import PrometheusMetrics
    from actors.pods.loss import LossKind, LossReason
    from actors.pods.pod import Pod
    from actors.settings.model import Settings

__all__ = [
    "AllocationBlocked",
    "AllocationUnblocked",
    "ApiError",
    "Backend",
    "BackendFailed",
    "BackendStarted",
    "BackendStopped",
    "Candidate",
    "DecommissionExecutors",
    "ExecutorDisconnected",
    "ExecutorPending",
    "ExecutorPodsError",
    "ExecutorRemoved",
    "ExecutorRunning",
    "ExecutorStuck",
    "ExecutorTerminating",
    "FleetFailed",
    "FleetStatus",
    "GetExecutorIds",
    "GetFleetStatus",
    "HasEnoughExecutors",
    "IsExecutorActive",
    "IsExecutorExcluded",
    "KillExecutors",
    "LossKind",
    "LossReason",
    "Pod",
    "ProfileStatus",
    "PrometheusMetrics",
    "Refused",
    "RegisterExecutor",
    "RequestTotalExecutors",
    "Settings",
    "SettingsError",
    "SourceStatus",
    "StopBackend",
]

_ELSEWHERE = {
    "ApiError": "errors",
    "Backend": "backend.backend",
    "Candidate": "executors.roll",
    "ExecutorPodsError": "errors",
    "LossKind": "pods.loss",
    "LossReason": "pods.loss",
    "Pod": "pods.pod",
    "PrometheusMetrics": "metrics.prometheus",
    "Refused": "errors",
    "Settings": "settings.model",
    "SettingsError": "errors",
}
"""The module of each public name that is not a message."""

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'messages')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
