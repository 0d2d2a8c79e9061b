"""Batches as the store would send them, made by the real merge rules from the pods that a test shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from actors.messages.internal import ReplaceSnapshot, SnapshotBatch
from actors.pods.pod import (
    Condition,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    Pod,
    PodEvent,
    PodSpec,
    PodStatus,
    RunningState,
    SchedulingGate,
    TerminatedState,
    WaitingState,
)
from actors.pods.state import PodRules
from actors.settings import AllocationSettings, BackendSettings, ExecutorSettings, Settings, SourceSettings
from actors.store.history import History, Merged
from actors.store.lists import apply_list
from actors.text import rfc3339
from tests.unit.builders import APP_ID, apply_events, pod

if TYPE_CHECKING:
    from actors.pods.snapshot import Ended

RULES = PodRules()

STARTED = datetime(2024, 1, 1, tzinfo=UTC)
"""When containers began to run."""

LATER = STARTED + timedelta(hours=1)
"""When nothing has happened for a while."""


def settings(
    *,
    executor: dict[str, Any] | None = None,
    allocation: dict[str, Any] | None = None,
    source: dict[str, Any] | None = None,
    backend: dict[str, Any] | None = None,
    driver_pod_name: str | None = None,
) -> Settings:
    return Settings(
        app_id=APP_ID,
        driver_pod_name=driver_pod_name,
        executor=ExecutorSettings(**{"image": "worker:1", **(executor or {})}),
        allocation=AllocationSettings(**(allocation or {})),
        source=SourceSettings(**(source or {})),
        backend=BackendSettings(**{"lease": False, **(backend or {})}),
    )


def pending(executor_id: int, **changes: Any) -> Pod:
    return pod(executor_id, phase="Pending", **changes)


def waiting(executor_id: int, reason: str, message: str | None = None, *, init: bool = False) -> Pod:
    """A pending pod on a node, whose container (or init container) waits for this reason."""
    status = ContainerStatus(name="executor", state=ContainerState(waiting=WaitingState(reason, message)))
    shown = PodStatus(
        phase="Pending",
        container_statuses=None if init else (status,),
        init_container_statuses=(status,) if init else None,
    )
    spec = PodSpec(node_name="node", containers=(ContainerSpec("executor"),))
    return msgspec.structs.replace(pending(executor_id), spec=spec, status=shown)


def unschedulable(executor_id: int, message: str, *, gated: bool = False) -> Pod:
    """A pending pod that no node takes, or that a scheduling gate holds back."""
    reason = "SchedulingGated" if gated else "Unschedulable"
    condition = Condition("PodScheduled", "False", reason, message, rfc3339(STARTED))
    spec = PodSpec(scheduling_gates=(SchedulingGate("example.com/gate"),) if gated else None)
    status = PodStatus(phase="Pending", conditions=(condition,))
    return msgspec.structs.replace(pending(executor_id), spec=spec, status=status)


def running(executor_id: int, **changes: Any) -> Pod:
    return _with_container(pod(executor_id, phase="Running", **changes), ContainerState(running=RunningState()))


def failed(executor_id: int, code: int = 1, *, ran: timedelta = timedelta(0), reason: str | None = "Error") -> Pod:
    """A pod whose executor ended after `ran` with an exit code."""
    end = TerminatedState(exit_code=code, reason=reason, started_at=STARTED, finished_at=STARTED + ran)
    return _with_container(pod(executor_id, phase="Failed"), ContainerState(terminated=end))


def succeeded(executor_id: int, *, ran: timedelta = timedelta(0)) -> Pod:
    end = TerminatedState(exit_code=0, reason="Completed", started_at=STARTED, finished_at=STARTED + ran)
    return _with_container(pod(executor_id, phase="Succeeded"), ContainerState(terminated=end))


def evicted(executor_id: int) -> Pod:
    subject = failed(executor_id, 137)
    assert subject.status is not None
    target = Condition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
    return msgspec.structs.replace(subject, status=msgspec.structs.replace(subject.status, conditions=(target,)))


def going(subject: Pod, *, grace: int = 30, now: datetime = STARTED) -> Pod:
    """The same pod, its deletion having begun at `now`."""
    metadata = msgspec.structs.replace(
        subject.metadata, deletion_timestamp=now + timedelta(seconds=grace), deletion_grace_period_seconds=grace
    )
    return msgspec.structs.replace(subject, metadata=metadata)


def labelled(subject: Pod, **labels: str) -> Pod:
    """The same pod with other labels, their keys written with `__` for `-` and without the prefix."""
    more = {f"executor-pods/{key.replace('__', '-')}": value for key, value in labels.items()}
    metadata = msgspec.structs.replace(subject.metadata, shared_labels={**subject.labels, **more})
    return msgspec.structs.replace(subject, metadata=metadata)


def _with_container(subject: Pod, state: ContainerState) -> Pod:
    assert subject.status is not None
    status = PodStatus(phase=subject.status.phase, container_statuses=(ContainerStatus(name="executor", state=state),))
    spec = PodSpec(node_name="node", containers=(ContainerSpec("executor"),))
    return msgspec.structs.replace(subject, spec=spec, status=status)


class View:
    """A cluster that a test changes pod by pod, and what a subscriber would hear of it."""

    def __init__(self) -> None:
        cached = ReplaceSnapshot((), "0", 0.0, consistent=False, stream=0)  # a stream begins, nothing is synced yet
        nothing = apply_list(History(RULES), cached, 0.0)
        self._history = nothing.history
        self._pods: dict[int, Pod] = {}
        self._version = 0
        self._seq = 0
        self._changed: set[int] = set()
        self._appeared: set[int] = set()
        self._ended: list[Ended] = []
        self._full_sync = False

    def show(self, *pods: Pod) -> None:
        """The watch brings these pods as they are now."""
        for subject in pods:
            number = int(subject.labels["executor-pods/executor-id"])
            kind = "MODIFIED" if number in self._pods else "ADDED"
            self._pods[number] = self._versioned(subject)
            self._absorb(self._event(PodEvent(kind, self._pods[number])))  # type: ignore[arg-type]  # both are

    def end(self, *executor_ids: int, deleted: bool = True) -> None:
        """The watch brings their DELETED events: of pods whose deletion had begun, unless not `deleted`."""
        for executor_id in executor_ids:
            last = self._versioned(self._pods.pop(executor_id))
            shown = going(last, now=LATER) if deleted and not last.terminating else last
            self._absorb(self._event(PodEvent("DELETED", shown)))

    def lose(self, *executor_ids: int) -> None:
        """These are gone, and no event will ever say so."""
        for executor_id in executor_ids:
            del self._pods[executor_id]

    def sync(self, now: float) -> None:
        """A LIST that was asked for just now shows what there is."""
        self._version += 1
        listed = ReplaceSnapshot(tuple(self._pods.values()), str(self._version), now, consistent=True)
        merged = apply_list(self._history, listed, now)
        self._full_sync = True
        self._absorb(merged)

    def batch(self, now: float, *, heard_at: float | None = None) -> SnapshotBatch:
        """What there is, and what has happened since the last batch."""
        self._seq += 1
        batch = SnapshotBatch(
            self._seq,
            self._history.snapshot,
            frozenset(self._changed),
            frozenset(self._appeared),
            tuple(self._ended),
            self._full_sync,
            now if heard_at is None else heard_at,
        )
        self._changed, self._appeared, self._ended, self._full_sync = set(), set(), [], False
        return batch

    def everything(self, now: float) -> SnapshotBatch:
        """The first batch of a new subscription: all that is shown is new to it."""
        self._changed = self._appeared = set(self._history.snapshot.states)
        self._full_sync = self._history.snapshot.full_sync_at is not None
        return self.batch(now)

    def _versioned(self, subject: Pod) -> Pod:
        self._version += 1
        return subject.at_version(str(self._version))

    def _event(self, event: PodEvent) -> Merged:
        return apply_events(self._history, (event,), str(self._version), 0, now=0.0)

    def _absorb(self, merged: Merged) -> None:
        self._history = merged.history
        self._changed.difference_update(ended.executor_id for ended in merged.ended)
        self._changed.update(merged.changed)
        self._appeared.update(merged.appeared)
        self._ended.extend(merged.ended)
