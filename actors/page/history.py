"""`FleetHistory`: what became of each executor: the states that its values went through, and the driver's messages.

Pure, and for one thread. It is bounded: living executors, the last ended ones with all their words, many more as lanes
of the timeline, the last events. Each change has a number, `seq`, so that a viewer is told what changed since his last
one, however slow he reads: what he misses is merged, and nothing is kept for him.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, assert_never, final

from actors.messages import (
    AcquireRefused,
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    Executor,
    ExecutorAcquired,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
    LeaseExpired,
    LeaseLost,
    ToDriver,
)
from actors.messages.executor import ENDED_KEPT
from actors.page import documents
from actors.page.documents import STATES, VERSION, line_of
from actors.pods.loss import LossReason
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Reversible
    from datetime import datetime

    from actors.messages import FleetChanged
    from actors.page.documents import Timestamp
    from actors.pods.loss import LossKind

__all__ = ["EVENTS_KEPT", "LANES_KEPT", "MOST_COLUMNS", "MOST_STATES", "FleetHistory"]

LANES_KEPT: Final = 10_000
"""Ended executors that the timeline still has, some 500 bytes each."""

EVENTS_KEPT: Final = 500
"""The last messages to the driver."""

MOST_COLUMNS: Final = 20
"""Columns of the driver's own; as many as a table can show."""

MOST_STATES: Final = 40
"""Of one executor: most have four."""

MOST_LOSSES: Final = 1_000
"""Kinds of losses with their exit codes that are kept once; a container has 256 codes."""

LOSS_MINUTES: Final = 60
"""Losses are counted over the last hour, by minutes."""

_REQUESTED, _PENDING, _STUCK, _RUNNING, _TERMINATING, _ENDED = range(len(STATES))
_INDEX: Final = {state: STATES.index(state.value) for state in ExecutorState}


@final
class _Life:
    """One executor, from its request on."""

    __slots__ = ("ended_at", "notes", "seq", "states", "value")

    def __init__(self, value: Executor, state: int, since: Timestamp) -> None:
        self.value = value
        """As it was published last."""
        self.states = [(state, since)]
        """Each state and when it began, the first one first."""
        self.seq = 0
        """Of its last change."""
        self.ended_at: Timestamp | None = None
        self.notes: dict[str, str] | None = None

    @property
    def id(self) -> int:
        return self.value.id

    def enter(self, state: int, at: Timestamp) -> None:
        """Begin a state, unless it is the current one. One that goes to and fro for days loses states in between."""
        current, since = self.states[-1]
        if current != state:
            self.states.append((state, max(at, since)))
            if len(self.states) > MOST_STATES:
                del self.states[1:3]

    def forget_words(self, loss: LossReason | None) -> None:
        """Keep what a lane has."""
        last = self.value
        self.value = Executor(
            last.id,
            last.profile,
            last.state,
            pod=None,
            node=last.node,
            ip=None,
            since=last.since,
            registered=False,
            restarts=last.restarts,
            reason=None,
            loss=loss,
        )
        self.notes = None

    def began(self, state: int) -> Timestamp | None:
        """Return when it first entered a state, None if it never did."""
        return next((since for each, since in self.states if each == state), None)

    def row(self) -> documents.Executor:
        """Return it as a row of the table. All texts are one line, so that they show as what they are."""
        value, loss = self.value, self.value.loss
        return documents.Executor(
            value.id,
            one_line(value.profile),
            STATES[self.states[-1][0]],
            self.states[-1][1],
            self.states[0][1],
            self.began(_RUNNING),
            self.ended_at,
            value.registered,
            value.retiring,
            line_of(value.pod),
            line_of(value.node),
            line_of(value.ip),
            value.restarts,
            line_of(value.reason),
            None if loss is None else loss.kind.value,
            None if loss is None else loss.exit_code,
            None if loss is None else loss.caused_by_app,
            self.notes or {},
        )


class _Logged(NamedTuple):
    """One message to the driver."""

    seq: int
    time: Timestamp
    message: ToDriver


@final
class FleetHistory:
    """What is known of a fleet's executors.

    Args:
        began: the time. Numbers of changes begin with its milliseconds, so that those of an earlier process are lower.
    """

    def __init__(self, began: Timestamp) -> None:
        self._began = began
        self.seq = self._forgotten = int(began * 1000)
        """Of the last change. `_forgotten` is the last change of the executor that was forgotten last."""
        self._living: dict[int, _Life] = {}
        """By id, the one that changed last at the end."""
        self._ended: dict[int, _Life] = {}
        """By id, the one that ended last at the end."""
        self._full: deque[_Life] = deque()
        """The ended ones that still have all their words."""
        self._lanes: deque[_Life] = deque()
        """The ended ones before them, the oldest first: finding it in a dict is slow."""
        self._events: deque[_Logged] = deque(maxlen=EVENTS_KEPT)
        self._losses: dict[int, Counter[tuple[str, str]]] = {}
        """How many were lost in each minute, by profile and kind."""
        self._losses_only: dict[tuple[LossKind, int, bool], LossReason] = {}
        self._columns: dict[str, None] = {}
        self.started: BackendStarted | None = None
        self.stopped: BackendStopped | None = None
        self.failure: str | None = None
        """Why the Backend could not start or continue."""

    def __len__(self) -> int:
        """How many executors live."""
        return len(self._living)

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, message: ToDriver, at: Timestamp) -> None:
        """Take in a message to the driver."""
        self.seq += 1
        self._events.append(_Logged(self.seq, at, message))
        match message:
            case BackendStarted():
                self.started = message
            case BackendFailed():
                self.failure = cause_of(message)
            case BackendStopped():
                self.stopped = message
            case ExecutorPending(executor_id, pod) | ExecutorRunning(executor_id, pod) if pod.start_time is not None:
                self._adopted(executor_id, _at(pod.start_time))
            case _:
                pass

    def fold(self, change: FleetChanged) -> None:
        """Take in what has changed of the executors."""
        at = _at(change.at)
        gone = self._living.keys() - {executor.id for executor in change.executors} if change.complete else ()
        for executor in change.executors:
            self._set(executor, at)
        for executor_id in (*change.withdrawn, *sorted(gone)):
            life = self._living.get(executor_id)
            if life is not None:
                why = "it was requested and never observed" if life.value.pod is None else life.value.reason
                self._end(life, replace(life.value, reason=why, registered=False), at)

    def annotate(self, executor_id: int, columns: Mapping[str, str | None]) -> None:
        """Set columns of the driver's own for an executor that lives; None clears one."""
        life = self._living.get(executor_id)
        if life is None:
            return
        notes = dict(life.notes or {})
        for name, value in columns.items():
            if value is None:
                notes.pop(name, None)
            elif name in self._columns or len(self._columns) < MOST_COLUMNS:
                self._columns[name] = None
                notes[name] = value
        if notes != (life.notes or {}):
            life.notes = notes
            self.seq += 1
            self._touch(life)

    # ── what a viewer is told ───────────────────────────────────────────────────────────────────────────────────

    def living(self) -> list[documents.Executor]:
        """Return the living executors, by id."""
        return [self._living[executor_id].row() for executor_id in sorted(self._living)]

    def ended(self) -> list[documents.Executor]:
        """Return the last ended executors, the newest last."""
        return [life.row() for life in self._full]

    def events(self) -> list[documents.Event]:
        """Return the last events, the newest last."""
        return [_event(*logged) for logged in self._events]

    def columns(self) -> list[str]:
        """Return the names of the columns that the driver has annotated."""
        return list(self._columns)

    def can_tell_since(self, seq: int) -> bool:
        """Return whether all changes since this one are known. Else the viewer loads everything anew."""
        return self._forgotten <= seq <= self.seq

    def changes(self, since: int, most: int) -> documents.Change:
        """Return what changed since a number: the earliest changes, of at most so many executors.

        An executor that changed several times is told once, as it is now.
        """
        lives = [*_after(self._living.values(), since), *_after(self._ended.values(), since)]
        upto = self.seq
        if len(lives) > most:
            lives.sort(key=lambda life: life.seq)
            del lives[most:]
            upto = lives[-1].seq
        return documents.Change(
            upto,
            [life.row() for life in lives if life.ended_at is None],
            [life.row() for life in lives if life.ended_at is not None],
            [_event(*logged) for logged in reversed(_after(self._events, since)) if logged.seq <= upto],
        )

    def timeline(self, now: Timestamp) -> documents.Timeline:
        """Return a lane for each executor; ended ones come first."""
        profiles: dict[str, int] = {}
        nodes: dict[str | None, int] = {}
        lanes: list[documents.Lane] = [
            (
                life.id,
                profiles.setdefault(life.value.profile, len(profiles)),
                nodes.setdefault(life.value.node, len(nodes)),
                life.states if life.ended_at is None else life.states[:-1],
                life.ended_at,
                None if life.value.loss is None else life.value.loss.kind.value,
            )
            for lives in (self._ended, self._living)
            for life in lives.values()
        ]
        shown, places = [one_line(name) for name in profiles], [line_of(name) or "" for name in nodes]
        return documents.Timeline(VERSION, self.seq, now, lanes, shown, places, STATES)

    def losses(self, profile: str, now: Timestamp) -> dict[str, int]:
        """Return how many executors of a profile were lost in the last hour, by kind."""
        counts: Counter[str] = Counter()
        for minute, counted in self._losses.items():
            if minute > now // 60 - LOSS_MINUTES:
                for (name, kind), number in counted.items():
                    if name == profile:
                        counts[kind] += number
        return dict(counts)

    # ── executors ───────────────────────────────────────────────────────────────────────────────────────────────

    def _set(self, executor: Executor, at: Timestamp) -> None:
        """Take in the value of an executor that changed at this time."""
        if executor.id in self._ended:
            return
        since, life = _at(executor.since), self._living.get(executor.id)
        if executor.state is ExecutorState.ENDED:
            self._count(executor, since)
            self._end(life or _Life(executor, _REQUESTED, since), executor, since)
            return
        is_stuck = executor.state is ExecutorState.PENDING and executor.stuck is not None
        state = _STUCK if is_stuck else _INDEX[executor.state]
        if life is None:
            life = _Life(executor, state, since)
        else:
            life.enter(state, at if life.value.state is executor.state else since)
            life.value = executor
        self.seq += 1
        self._touch(life)

    def _adopted(self, executor_id: int, started: Timestamp) -> None:
        """An executor of an earlier driver began when its node took its pod."""
        life = self._living.get(executor_id)
        if life is not None and len(life.states) == 1 and started < self._began:
            life.states = [(life.states[0][0], started)]
            self._touch(life)

    def _count(self, executor: Executor, at: Timestamp) -> None:
        if executor.loss is not None:
            minute = int(at // 60)
            if minute not in self._losses:
                self._losses[minute] = Counter()
            self._losses[minute][executor.profile, executor.loss.kind.value] += 1
            if len(self._losses) > LOSS_MINUTES:
                del self._losses[min(self._losses)]

    def _touch(self, life: _Life) -> None:
        """Note that it has changed: it comes last."""
        life.seq = self.seq
        self._living.pop(life.id, None)
        self._living[life.id] = life

    def _wordless(self, loss: LossReason | None) -> LossReason | None:
        """Return a loss without its message; there are few of those."""
        if loss is None:
            return None
        key = (loss.kind, loss.exit_code, loss.caused_by_app)
        short = self._losses_only.get(key)
        if short is None:
            short = LossReason(*key, message="")
            if len(self._losses_only) < MOST_LOSSES:
                self._losses_only[key] = short
        return short

    def _end(self, life: _Life, value: Executor, at: Timestamp) -> None:
        self._living.pop(life.id, None)
        self.seq += 1
        life.enter(_ENDED, at)
        life.value, life.ended_at, life.seq = value, life.states[-1][1], self.seq
        self._ended[life.id] = life
        self._full.append(life)
        if len(self._full) > ENDED_KEPT:
            old = self._full.popleft()
            old.forget_words(self._wordless(old.value.loss))
            self._lanes.append(old)
        if len(self._lanes) > LANES_KEPT - ENDED_KEPT:
            oldest = self._lanes.popleft()
            del self._ended[oldest.id]
            self._forgotten = oldest.seq


class _Numbered(Protocol):
    @property
    def seq(self) -> int: ...


N = TypeVar("N", bound=_Numbered)


def _after(items: Reversible[N], since: int) -> list[N]:
    """Return the items that changed later, the last one first. They are in the order of their changes."""
    return list(takewhile(lambda item: item.seq > since, reversed(items)))


def _at(moment: datetime) -> Timestamp:
    return round(moment.timestamp(), 3)


def cause_of(message: BackendFailed) -> str:
    """Return why the Backend failed, as a sentence."""
    return one_line(str(message.cause)) or type(message.cause).__name__


def _event(seq: int, time: Timestamp, message: ToDriver) -> documents.Event:
    """Return a message to the driver as a row of the events."""
    name, text = _described(message)
    executor_id, profile = getattr(message, "executor_id", None), getattr(message, "profile", None)
    return documents.Event(seq, time, name, executor_id, line_of(profile), one_line(text))


def _described(message: ToDriver) -> tuple[str, str]:  # noqa: C901, PLR0912 - one case a message
    """Return what happened, in one word as the command's JSON has it, and in a sentence's end."""
    match message:
        case BackendStarted(app_id, namespace):
            return "started", f"fleet {app_id} started in namespace {namespace}"
        case ExecutorPending(pod=pod):
            return "pending", f"pod {pod.name}"
        case ExecutorRunning(pod=pod):
            return "running", f"pod {pod.name} on node {pod.node}"
        case ExecutorTerminating(reason=reason):
            return "terminating", reason
        case ExecutorRemoved(reason=loss):
            return "removed", f"{loss.kind}: {loss.message}"
        case ExecutorStuck(reason=reason, message=text):
            return "stuck", f"{reason}: {text}" if text else reason
        case AllocationBlocked(cause=cause):
            return "blocked", cause
        case AllocationUnblocked():
            return "unblocked", "executors can be created again"
        case ExecutorAcquired(lease):
            return "acquired", f"lease {lease}"
        case AcquireRefused(lease, reason):
            return "refused", f"lease {lease}: {reason}"
        case LeaseLost(lease, reason=loss):
            return "lost", f"lease {lease}: {loss.message}"
        case LeaseExpired(lease):
            return "expired", f"lease {lease}"
        case FleetFailed(cause):
            return "failed", cause
        case BackendFailed():
            return "failed", cause_of(message)
        case BackendStopped(left_behind):
            return "stopped", f"pods that may be left behind: {', '.join(left_behind)}" if left_behind else ""
        case _:
            assert_never(message)
