"""Keeps a fleet of executor pods alive on Kubernetes, from inside a driver program.

A driver sets a target, the desired number of executors. The library creates their pods, watches them, replaces those
that are lost, and notifies the driver of each change. It is level-triggered, like a Kubernetes controller: two sources
observe the cluster, a store merges what they observe into immutable snapshots, and two subscribers reconcile the newest
snapshot with the target. Every actor is a Pykka actor; actors share nothing but messages (`actors.messages`).

Terms, as all code, messages and documentation use them:

driver
    The user's program. It uses a `Fleet` or an `AsyncFleet`; or it is a Pykka actor, and owns the Backend itself.
executor
    One worker of the driver, in one pod, with an integer *executor id* from 1. An id is never used again.
profile
    A named pod shape with a target of its own. `"default"` is the one that `[executor]` describes.
target
    The desired number of executors of a profile.
snapshot
    An immutable map from executor id to pod state, at one resource version.
full sync
    The answer to a LIST of all executor pods, merged into the snapshot.
event
    One change of a pod (added, modified, deleted), as a watch delivers it. The store merges it into the snapshot.
round
    What a subscriber does with one batch: the newest snapshot, and the changes since its last round.
requested
    An executor whose POST was asked for and whose pod is not in a snapshot yet.
expectation
    The Allocator's note of a requested executor: when its POST was answered, and until when its pod must be observed.
ledger
    The Backend's record of executors: pod UID, what the driver was notified of, registered, killed, removed.
follower
    Somebody whom the Backend sends each change of the fleet, as values. Its *view* is what it knows from them.
withdrawn
    An executor that is no longer requested, and of which the driver was told nothing.
loss reason
    Why an executor is gone: kind, exit code, whether the application caused it, and a message for people.
registered, disconnected
    An executor is registered once it has connected to the driver, and disconnected once that connection is lost; the
    driver sends a message for each.
abandoned
    A requested executor that the Allocator no longer expects. If its pod is observed later, the pod is deleted.
excluded
    An executor that is abandoned, is scaled down, has ended, is unknown, or is deleted by a stop. The driver must
    refuse its connection.
adopted
    A living pod of a previous driver with the same `app_id`: it keeps its id and counts for the target. The new
    driver's pod, if there is one, becomes its owner.
kill
    End executors: the driver is notified, and pods that still exist after `executor.kill_grace_period` are deleted.
decommission
    Let executors finish: nothing ends them, and they are replaced only when they are gone.
retire
    Let executors drain, and end them at a deadline: they no longer count, and are replaced, or the target falls.
roll
    Replace running executors one by one, at an interval, while the fleet keeps its size.
terminating
    Alive, and being deleted: the pod has a deletion timestamp, or its executor was killed.
stuck
    A pod that should run and cannot, as its own status says.
excess
    Executors above the target. The Allocator deletes those that are requested or pending. One that runs or is
    registered is ended only by the driver: `KillExecutors`, `ScaleExecutors`.
scaled down
    Deleted, or killed, as excess.
backoff
    A growing delay before a retry.
blocked
    No executors are created in a profile: the API, a limit, start failures, the lease or the driver's pod prevents it.
tombstone
    The store's record of a deleted pod's UID, so that a late event or LIST does not bring the pod back.
incarnation
    One run of an actor, from its start to its end. A restart begins the next incarnation at the same address.
lease
    The Kubernetes Lease of an `app_id`. Only the driver that holds it writes.
standby driver
    A driver that does not hold the lease. It observes the fleet and writes nothing until it acquires the lease.
orphaned
    A fleet without a driver whose executors live: its lease has run out, or its driver's pod is gone.
claim
    A PersistentVolumeClaim of one executor, which its replacement may reuse.
pool
    The ready executors of a profile with the setting `warm`. Nobody has them until they are acquired.
leased
    An executor that one holder has, from `ExecutorAcquired` until the end of this lease, which is no Kubernetes Lease.

Public names are imported on first use, so that `import actors` costs next to nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.backend.backend import Backend
    from actors.backend.backend_ref import BackendRef
    from actors.errors import (
        ApiError,
        ExecutorLost,
        ExecutorPodsError,
        FleetEnded,
        Refused,
        SettingsError,
        Unreachable,
        WaitTimeout,
    )
    from actors.executors.roll import Candidate
    from actors.fleet.async_fleet import AsyncFleet
    from actors.fleet.fleet import Fleet
    from actors.fleet.output.lines import LogLine
    from actors.fleet.stream import EventsMissed
    from actors.messages import (
        AcquireExecutor,
        AcquireRefused,
        AllocationBlocked,
        AllocationUnblocked,
        BackendFailed,
        BackendStarted,
        BackendStopped,
        CancelAcquire,
        DecommissionExecutors,
        Executor,
        ExecutorAcquired,
        ExecutorBusy,
        ExecutorDisconnected,
        ExecutorDrained,
        ExecutorIdle,
        ExecutorPending,
        ExecutorRemoved,
        ExecutorRunning,
        ExecutorState,
        ExecutorStuck,
        ExecutorTerminating,
        FleetChanged,
        FleetExecutors,
        FleetFailed,
        FleetStatus,
        FollowFleet,
        GetExecutorIds,
        GetExecutors,
        GetFleetStatus,
        HasEnoughExecutors,
        HeldPod,
        HoldFleet,
        IsExecutorActive,
        IsExecutorExcluded,
        KillExecutors,
        LeaseExpired,
        LeaseLost,
        ProfileStatus,
        RegisterExecutor,
        ReleaseExecutor,
        RenewLease,
        RequestTotalExecutors,
        ResumeFleet,
        RetireExecutors,
        ScaleExecutors,
        SetWarm,
        SourceStatus,
        StopBackend,
        Suspected,
        Victims,
    )
    from actors.metrics.prometheus import PrometheusMetrics
    from actors.metrics.spans import OpenTelemetryTraces
    from actors.pods.loss import LossKind, LossReason
    from actors.pods.pod import Pod
    from actors.settings.model import Settings
    from actors.tasks.attempts import Attempts
    from actors.tasks.task_queue import TaskQueue

    __version__: str

__all__ = [
    "AcquireExecutor",
    "AcquireRefused",
    "AllocationBlocked",
    "AllocationUnblocked",
    "ApiError",
    "AsyncFleet",
    "Attempts",
    "Backend",
    "BackendFailed",
    "BackendRef",
    "BackendStarted",
    "BackendStopped",
    "CancelAcquire",
    "Candidate",
    "DecommissionExecutors",
    "EventsMissed",
    "Executor",
    "ExecutorAcquired",
    "ExecutorBusy",
    "ExecutorDisconnected",
    "ExecutorDrained",
    "ExecutorIdle",
    "ExecutorLost",
    "ExecutorPending",
    "ExecutorPodsError",
    "ExecutorRemoved",
    "ExecutorRunning",
    "ExecutorState",
    "ExecutorStuck",
    "ExecutorTerminating",
    "Fleet",
    "FleetChanged",
    "FleetEnded",
    "FleetExecutors",
    "FleetFailed",
    "FleetStatus",
    "FollowFleet",
    "GetExecutorIds",
    "GetExecutors",
    "GetFleetStatus",
    "HasEnoughExecutors",
    "HeldPod",
    "HoldFleet",
    "IsExecutorActive",
    "IsExecutorExcluded",
    "KillExecutors",
    "LeaseExpired",
    "LeaseLost",
    "LogLine",
    "LossKind",
    "LossReason",
    "OpenTelemetryTraces",
    "Pod",
    "ProfileStatus",
    "PrometheusMetrics",
    "Refused",
    "RegisterExecutor",
    "ReleaseExecutor",
    "RenewLease",
    "RequestTotalExecutors",
    "ResumeFleet",
    "RetireExecutors",
    "ScaleExecutors",
    "SetWarm",
    "Settings",
    "SettingsError",
    "SourceStatus",
    "StopBackend",
    "Suspected",
    "TaskQueue",
    "Unreachable",
    "Victims",
    "WaitTimeout",
]

_ELSEWHERE = {
    "ApiError": "errors",
    "AsyncFleet": "fleet.async_fleet",
    "Attempts": "tasks.attempts",
    "Backend": "backend.backend",
    "BackendRef": "backend.backend_ref",
    "Candidate": "executors.roll",
    "EventsMissed": "fleet.stream",
    "ExecutorLost": "errors",
    "ExecutorPodsError": "errors",
    "Fleet": "fleet.fleet",
    "FleetEnded": "errors",
    "LogLine": "fleet.output.lines",
    "LossKind": "pods.loss",
    "LossReason": "pods.loss",
    "OpenTelemetryTraces": "metrics.spans",
    "Pod": "pods.pod",
    "PrometheusMetrics": "metrics.prometheus",
    "Refused": "errors",
    "Settings": "settings.model",
    "SettingsError": "errors",
    "TaskQueue": "tasks.task_queue",
    "Unreachable": "errors",
    "WaitTimeout": "errors",
}
"""The module of each public name that `actors.messages` does not define."""

if not TYPE_CHECKING:  # with it, every misspelled import would be right for a type checker

    def __getattr__(name: str) -> Any:
        """Import a public name on first use (PEP 562)."""
        if name == "__version__":
            return importlib.import_module(f"{__name__}.text.version").package_version()
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'messages')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    lacking = set() if importlib.util.find_spec("prometheus_client") else {"PrometheusMetrics"}
    return sorted({*globals(), *__all__} - lacking)
