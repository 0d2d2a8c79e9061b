"""`FleetView`: what the door knows of its fleet. The fleet's actor writes it, any thread reads it.

An event replaces one entry of a dictionary; values for the user are made when they are read. An `Executor` that has not
changed since is not made again.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, final

from actors.fleet.waiting import Waitable
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    Executor,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
    ToDriver,
)
from actors.messages.executor import ENDED_KEPT
from actors.pods.pod import restarts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from actors.fleet.stream import EventBuffer
    from actors.page.feed import Page
    from actors.pods.loss import LossReason
    from actors.pods.pod import Pod
    from actors.runtime import Address, Clock, Moment

__all__ = ["FleetView", "Record"]

NOTHING: Final[Mapping[int, Executor]] = MappingProxyType({})


class Record(NamedTuple):
    """What the last events said of an executor."""

    profile: str
    state: ExecutorState
    since: datetime
    pod: Pod | None
    node: str | None = None
    """Unless the pod says it, as `ip`."""
    ip: str | None = None
    reason: str | None = None
    stuck: str | None = None
    """The API's reason why its pod is stuck."""
    stuck_since: Moment = 0.0
    """When that was reported."""
    loss: LossReason | None = None
    retiring: bool = False


@final
class FleetView(Waitable):
    """What the door knows, from the messages to the driver."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._apply: dict[type, Callable[..., None]] = {
            AllocationBlocked: self._blocked,
            AllocationUnblocked: self._unblocked,
            BackendFailed: self._failed,
            BackendStarted: self._started,
            BackendStopped: self._stopped,
            ExecutorPending: self._pending,
            ExecutorRemoved: self._removed,
            ExecutorRunning: self._running,
            ExecutorStuck: self._stuck,
            ExecutorTerminating: self._terminating,
            FleetFailed: self._fleet_failed,
        }
        self.backend: Address | None = None
        """Set once the Backend was started."""
        self.started: BackendStarted | None = None
        self.failure: BaseException | None = None
        """Why the fleet could not start or continue."""
        self.left_behind: tuple[str, ...] = ()
        self.is_over = False
        """The fleet has ended, and so have all actors but its own."""
        self.records: dict[int, Record] = {}
        self.stuck: dict[int, Record] = {}
        """The records of pending executors that are stuck: few, while a wait looks at them after each event."""
        self.registered: set[int] = set()
        """Executors that the driver has registered; the door's callers add and remove them."""
        self.blocked: dict[str, AllocationBlocked] = {}
        """Why creation is blocked, by profile."""
        self.failed: str | None = None
        """Why the fleet creates no executors any more, until a target is set."""
        self.running: Counter[str] = Counter()
        """How many executors run, by profile."""
        self.targets: Mapping[str, int] = {}
        """By profile, as of the last answer of the Backend; empty before the first."""
        self.page: Page | None = None
        """Gets each event; set before the Backend is started."""
        self.change = object()
        """Another one after each event, and after each change by the door's callers."""
        self._readers: dict[weakref.ref[EventBuffer], None] = {}
        self._ended: deque[tuple[int, Record]] = deque(maxlen=ENDED_KEPT)
        self._made: dict[int, tuple[Record, Executor]] = {}
        self._shown: tuple[object, Mapping[int, Executor]] = (None, NOTHING)
        """What `executors` returned last, and `change` at that time."""

    # ── for the fleet's actor ───────────────────────────────────────────────────────────────────────────────────

    def apply(self, event: ToDriver) -> None:
        """Take in one event."""
        self._apply[type(event)](event)
        if self.page is not None:
            self.page.feed(event)
        self.touch()
        for reader in list(self._readers):
            buffer = reader()
            if buffer is not None:
                buffer.put(event)

    def end(self, failure: BaseException | None = None) -> None:
        """The fleet has ended; keep an earlier failure."""
        self.failure = self.failure or failure
        self.is_over = True
        for reader in list(self._readers):
            buffer = reader()
            if buffer is not None:
                buffer.end()
        self.touch()

    # ── for every thread ────────────────────────────────────────────────────────────────────────────────────────

    def add_reader(self, buffer: EventBuffer) -> None:
        """Pass each event from now on to this buffer, as long as somebody else refers to it."""
        self._readers[weakref.ref(buffer, lambda gone: self._readers.pop(gone, None))] = None
        if self.is_over:  # after the buffer is added: either this or `end` ends it
            buffer.end()

    def has_changed(self, since: object) -> bool:
        """Return whether `change` is another one by now."""
        return self.change is not since

    def touch(self) -> None:
        """Let everybody who waits look again."""
        self.change = object()
        self.changed()

    def register(self, executor_id: int) -> None:
        """Note that an executor is registered, unless it has ended meanwhile."""
        self.registered.add(executor_id)
        if any(executor_id == ended for ended, _ in self._ended.copy()):
            self.registered.discard(executor_id)
        self.touch()

    def unregister(self, executor_id: int) -> None:
        """Note that an executor's connection is lost."""
        self.registered.discard(executor_id)
        self.touch()

    def executors(self) -> Mapping[int, Executor]:
        """Return the executors that live, by id. The mapping does not change."""
        change, (shown_at, shown) = self.change, self._shown
        if shown_at is change:
            return shown
        records, made = self.records.copy(), self._made
        values: dict[int, Executor] = {}
        remade: dict[int, tuple[Record, Executor]] = {}
        is_same = len(records) == len(shown)
        for executor_id in sorted(records):
            record = records[executor_id]
            earlier = made.get(executor_id)
            is_registered = executor_id in self.registered
            if earlier is None or earlier[0] is not record or earlier[1].registered is not is_registered:
                earlier = (record, _executor(executor_id, record, is_registered=is_registered))
                is_same = False
            remade[executor_id] = earlier
            values[executor_id] = earlier[1]
        self._made = remade
        result = shown if is_same else MappingProxyType(values)
        self._shown = change, result
        return result

    def ended(self) -> tuple[Executor, ...]:
        """Return the executors that ended last, the newest last."""
        return tuple(_executor(executor_id, record, is_registered=False) for executor_id, record in self._ended.copy())

    def last_loss(self) -> Record | None:
        """Return the executor that ended last."""
        return self._ended[-1][1] if self._ended else None

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _started(self, event: BackendStarted) -> None:
        self.started = event

    def _failed(self, event: BackendFailed) -> None:
        self.failure = event.cause

    def _stopped(self, event: BackendStopped) -> None:
        self.left_behind = event.left_behind

    def _fleet_failed(self, event: FleetFailed) -> None:
        self.failed = event.cause

    def _blocked(self, event: AllocationBlocked) -> None:
        self.blocked[event.profile] = event

    def _unblocked(self, event: AllocationUnblocked) -> None:
        self.blocked.pop(event.profile, None)

    def _pending(self, event: ExecutorPending) -> None:
        self._observed(event, ExecutorState.PENDING)

    def _running(self, event: ExecutorRunning) -> None:
        self._observed(event, ExecutorState.RUNNING)

    def _terminating(self, event: ExecutorTerminating) -> None:
        old = self.records.get(event.executor_id)
        pod = old.pod if old is not None else None
        record = Record(
            event.profile,
            ExecutorState.TERMINATING,
            old.since if old is not None and old.state is ExecutorState.TERMINATING else self._clock.now(),
            pod,
            event.node,
            event.ip,
            event.reason,
            retiring=event.retiring,
        )
        self._set(event.executor_id, old, record)

    def _stuck(self, event: ExecutorStuck) -> None:
        old = self.records.get(event.executor_id)
        if old is not None:
            said = f"{event.reason}: {event.message}" if event.message else event.reason
            record = old._replace(reason=said, stuck=event.reason, stuck_since=self._clock.monotonic())
            self._set(event.executor_id, old, record)

    def _removed(self, event: ExecutorRemoved) -> None:
        executor_id, loss = event.executor_id, event.reason
        old = self.records.pop(executor_id, None)
        self.stuck.pop(executor_id, None)
        if old is not None and old.state is ExecutorState.RUNNING:
            self.running[old.profile] -= 1
        self.registered.discard(executor_id)
        pod = old.pod if old is not None else None
        record = Record(
            event.profile, ExecutorState.ENDED, self._clock.now(), pod, event.node, event.ip, loss.message, loss=loss
        )
        self._ended.append((executor_id, record))

    def _observed(self, event: ExecutorPending | ExecutorRunning, state: ExecutorState) -> None:
        executor_id, pod = event.executor_id, event.pod
        record = Record(pod.profile, state, self._clock.now(), pod)
        self._set(executor_id, self.records.get(executor_id), record)

    def _set(self, executor_id: int, old: Record | None, record: Record) -> None:
        was_running = old is not None and old.state is ExecutorState.RUNNING
        if was_running is not (record.state is ExecutorState.RUNNING):
            self.running[record.profile] += -1 if was_running else 1
        self.records[executor_id] = record
        if record.stuck is not None and record.state is ExecutorState.PENDING:
            self.stuck[executor_id] = record
        else:
            self.stuck.pop(executor_id, None)


def _executor(executor_id: int, record: Record, *, is_registered: bool) -> Executor:
    pod = record.pod
    return Executor(
        id=executor_id,
        profile=record.profile,
        state=record.state,
        pod=pod.name if pod is not None else None,
        node=record.node or (pod.node if pod is not None else None),
        ip=record.ip or (pod.ip if pod is not None else None),
        since=record.since,
        registered=is_registered,
        restarts=restarts(pod) if pod is not None else 0,
        reason=record.reason,
        loss=record.loss,
        retiring=record.retiring,
    )
