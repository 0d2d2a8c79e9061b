"""`FleetHistory`: what became of each executor, from the messages to the driver and the Backend's answers.

Pure, and for one thread. It is bounded: living executors, the last ended ones with all their words, many more as lanes
of the timeline, the last events. Each change has a number, `seq`, so that a viewer is told what changed since his last
one, however slow he reads: what he misses is merged, and nothing is kept for him.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, assert_never, final

from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
    ToDriver,
)
from actors.messages.executor import ENDED_KEPT
from actors.page import documents
from actors.page.documents import STATES, VERSION, line_of
from actors.pods.loss import LossReason
from actors.pods.pod import restarts
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Reversible
    from datetime import datetime

    from actors.messages import Executor, FleetExecutors
    from actors.page.documents import Timestamp
    from actors.pods.loss import LossKind
    from actors.pods.pod import Pod

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
_BY_NAME: Final = {name: index for index, name in enumerate(STATES)}


@final
class _Life:
    """One executor, from its request on."""

    __slots__ = (
        "ended_at", "heard_at", "id", "ip", "loss", "node", "notes", "pod", "profile", "registered", "restarts",
        "retiring", "seen", "seq", "states", "why",
    )  # fmt: skip

    def __init__(self, executor_id: int, profile: str, state: int, since: Timestamp) -> None:
        self.id = executor_id
        self.profile = profile
        self.states = [(state, since)]
        """Each state and when it began, the first one first."""
        self.heard_at = since
        """When the last message about it came."""
        self.seq = 0
        """Of its last change."""
        self.ended_at: Timestamp | None = None
        self.registered = False
        self.retiring = False
        self.restarts = 0
        self.seen: Pod | None = None
        """The pod as a message had it, until somebody looks."""
        self.pod: str | None = None
        self.node: str | None = None
        self.ip: str | None = None
        self.why: str | None = None
        self.loss: LossReason | None = None
        self.notes: dict[str, str] | None = None

    @property
    def state(self) -> int:
        return self.states[-1][0]

    def enter(self, state: int, at: Timestamp) -> None:
        """Begin a state, unless it is the current one. One that goes to and fro for days loses states in between."""
        if self.states[-1][0] != state:
            self.states.append((state, at))
            if len(self.states) > MOST_STATES:
                del self.states[1:3]

    def look(self) -> None:
        """Take from the pod what is shown. Most pods are followed by another one before somebody looks."""
        pod, self.seen = self.seen, None
        if pod is not None:
            self.pod, self.restarts = pod.name, restarts(pod)
            self.node, self.ip = pod.node or self.node, pod.ip or self.ip

    def forget_words(self) -> None:
        """Keep what a lane has."""
        if self.node is None:
            self.look()
        self.seen = self.pod = self.ip = self.why = self.notes = None

    def began(self, state: int) -> Timestamp | None:
        """Return when it first entered a state, None if it never did."""
        return next((since for each, since in self.states if each == state), None)

    def row(self) -> documents.Executor:
        """Return it as a row of the table. All texts are one line, so that they show as what they are."""
        self.look()
        loss = self.loss
        return documents.Executor(
            self.id,
            one_line(self.profile),
            STATES[self.states[-1][0]],
            self.states[-1][1],
            self.states[0][1],
            self.began(_RUNNING),
            self.ended_at,
            self.registered,
            self.retiring,
            line_of(self.pod),
            line_of(self.node),
            line_of(self.ip),
            self.restarts,
            line_of(self.why),
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
        self._apply: dict[type, Callable[[Any, Timestamp], None]] = {
            AllocationBlocked: self._noted,
            AllocationUnblocked: self._noted,
            BackendFailed: self._backend_failed,
            BackendStarted: self._backend_started,
            BackendStopped: self._backend_stopped,
            ExecutorPending: self._pending,
            ExecutorRemoved: self._removed,
            ExecutorRunning: self._running,
            ExecutorStuck: self._stuck,
            ExecutorTerminating: self._terminating,
            FleetFailed: self._noted,
        }

    def __len__(self) -> int:
        """How many executors live."""
        return len(self._living)

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, message: ToDriver, at: Timestamp) -> None:
        """Take in a message to the driver."""
        self.seq += 1
        self._events.append(_Logged(self.seq, at, message))
        self._apply[type(message)](message, at)

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

    def observe(self, found: FleetExecutors, asked_at: Timestamp) -> None:
        """Take in the Backend's own view, which knows what no message says: requested executors, restarts, reasons.

        What a message has said since `asked_at` is newer than the answer and stays.
        """
        alive = {executor.id for executor in found.alive}
        for executor in found.alive:
            self._observe(executor, asked_at)
        gone = [life for life in self._living.values() if life.id not in alive and life.heard_at <= asked_at]
        ended = {executor.id: executor for executor in found.ended} if gone else {}
        for life in gone:  # requested and never observed; or its end was not passed on
            last = ended.get(life.id)
            self.seq += 1
            life.look()
            life.why = "it was requested and never observed" if life.pod is None else life.why
            self._end(life, asked_at if last is None else _at(last.since), None if last is None else last.loss)

    def _observe(self, executor: Executor, asked_at: Timestamp) -> None:
        if executor.id in self._ended:
            return
        life = self._living.get(executor.id)
        state, since = _BY_NAME[executor.state.value], _at(executor.since)
        if life is None:
            life = _Life(executor.id, executor.profile, state, min(since, asked_at))
        elif life.heard_at > asked_at:
            return
        elif life.state == _STUCK and state == _PENDING and executor.reason is not None:
            state = _STUCK
        life.look()
        place = (executor.pod or life.pod, executor.node or life.node, executor.ip or life.ip)
        seen = (*place, executor.registered, executor.retiring, executor.restarts, executor.reason)
        known = (life.pod, life.node, life.ip, life.registered, life.retiring, life.restarts, life.why)
        if seen == known and state == life.state and life.seq:
            return
        life.enter(state, max(since, life.states[-1][1]))
        life.pod, life.node, life.ip, life.registered, life.retiring, life.restarts, life.why = seen
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
        for life in (*self._full, *self._living.values()):
            life.look()
        profiles: dict[str, int] = {}
        nodes: dict[str | None, int] = {}
        lanes: list[documents.Lane] = [
            (
                life.id,
                profiles.setdefault(life.profile, len(profiles)),
                nodes.setdefault(life.node, len(nodes)),
                life.states if life.ended_at is None else life.states[:-1],
                life.ended_at,
                None if life.loss is None else life.loss.kind.value,
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

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────

    def _backend_started(self, message: BackendStarted, _: Timestamp) -> None:
        self.started = message

    def _backend_failed(self, message: BackendFailed, _: Timestamp) -> None:
        self.failure = cause_of(message)

    def _backend_stopped(self, message: BackendStopped, _: Timestamp) -> None:
        self.stopped = message

    def _noted(self, message: AllocationBlocked | AllocationUnblocked | FleetFailed, at: Timestamp) -> None:
        """Nothing: the Backend's status says it."""

    def _pending(self, message: ExecutorPending, at: Timestamp) -> None:
        self._seen(message.executor_id, message.pod, _PENDING, at)

    def _running(self, message: ExecutorRunning, at: Timestamp) -> None:
        self._seen(message.executor_id, message.pod, _RUNNING, at)

    def _seen(self, executor_id: int, pod: Pod, state: int, at: Timestamp) -> None:
        life = self._living.get(executor_id)
        if life is None:
            if executor_id in self._ended:
                return
            life = _Life(executor_id, pod.profile, _REQUESTED, at)
            if (began := self._before(pod)) is not None:
                life.states = [(state, began)]
        life.heard_at, life.seen, life.why = at, pod, None
        self._change(life, state, at)

    def _stuck(self, message: ExecutorStuck, at: Timestamp) -> None:
        life = self._life(message.executor_id, message.profile, at)
        if life is not None:
            life.why = f"{message.reason}: {message.message}" if message.message else message.reason
            self._change(life, life.state if life.state >= _RUNNING else _STUCK, at)

    def _terminating(self, message: ExecutorTerminating, at: Timestamp) -> None:
        life = self._life(message.executor_id, message.profile, at)
        if life is not None:
            life.node, life.ip, life.why = message.node or life.node, message.ip or life.ip, message.reason
            life.retiring = message.retiring
            self._change(life, _TERMINATING, at)

    def _removed(self, message: ExecutorRemoved, at: Timestamp) -> None:
        loss, life = message.reason, self._life(message.executor_id, message.profile, at)
        counts = self._losses.setdefault(int(at // 60), Counter())
        counts[message.profile, loss.kind.value] += 1
        if len(self._losses) > LOSS_MINUTES:
            del self._losses[min(self._losses)]
        if life is not None:
            life.node, life.ip = message.node or life.node, message.ip or life.ip
            self._end(life, at, loss)

    def _before(self, pod: Pod) -> Timestamp | None:
        """Return when its node took an adopted pod, None if that was in the time of this driver."""
        started = pod.start_time
        return None if started is None or _at(started) >= self._began else _at(started)

    # ── executors ───────────────────────────────────────────────────────────────────────────────────────────────

    def _life(self, executor_id: int, profile: str, at: Timestamp) -> _Life | None:
        """Return the executor that a message is about, None if it has ended."""
        life = self._living.get(executor_id)
        if life is None:
            if executor_id in self._ended:
                return None
            life = _Life(executor_id, profile, _REQUESTED, at)
        life.heard_at = at
        return life

    def _change(self, life: _Life, state: int, at: Timestamp) -> None:
        life.enter(state, at)
        self._touch(life)

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

    def _end(self, life: _Life, at: Timestamp, loss: LossReason | None) -> None:
        self._living.pop(life.id, None)
        life.enter(_ENDED, at)
        life.ended_at, life.loss, life.seq, life.registered = at, loss, self.seq, False
        life.why = life.why if loss is None else loss.message
        self._ended[life.id] = life
        self._full.append(life)
        if len(self._full) > ENDED_KEPT:
            old = self._full.popleft()
            old.forget_words()
            old.loss = self._wordless(old.loss)
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


def _described(message: ToDriver) -> tuple[str, str]:  # noqa: C901 - one case a message
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
        case FleetFailed(cause):
            return "failed", cause
        case BackendFailed():
            return "failed", cause_of(message)
        case BackendStopped(left_behind):
            return "stopped", f"pods that may be left behind: {', '.join(left_behind)}" if left_behind else ""
        case _:
            assert_never(message)
