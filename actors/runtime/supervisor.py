"""Keeps the children of an actor alive: restarts in order, backs off, gives up, fences what hangs.

A plain object in the hands of the actor that owns it: it has no thread, hears of everything as messages to that actor,
and waits by that actor's timers. It decides about the life of the children and about nothing else.
"""

from __future__ import annotations

import logging
import sys
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from actors.runtime.backoff import Backoff
from actors.runtime.clock import elapsed
from actors.runtime.handle import Handle, Hung, StoppedByHost, SupervisorMessage, Terminated
from actors.runtime.timers import TimerDue

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.runtime.actor import Actor, Context
    from actors.runtime.address import Address
    from actors.runtime.clock import Moment

__all__ = ["ChildSpec", "Supervisor"]

logger = logging.getLogger(__name__)

CHECKS_PER_HANG_TIMEOUT: Final = 4
"""A hang is found within 1¼ of `hang_timeout`; a check costs a look at each child's mailbox.

One that is to stop for good is waited for no longer than from check to check: it is not missed, and others wait.

Counted are checks that found it busy with the same message, each for no longer than there is between two: when a
process that was suspended goes on, much time has passed and nobody has hung."""

PATIENCE_AT_END: Final = timedelta(seconds=1)
"""No handler takes that long: a child that is busy for longer when its owner ends is fenced then, because
nobody will look again."""


@final
@dataclass(frozen=True, slots=True)
class RestartDue(SupervisorMessage):
    """A child's backoff is over."""


@final
@dataclass(frozen=True, slots=True)
class HangCheckDue(SupervisorMessage):
    """Time to look whether a child is busy with one message for too long."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to make a child, and what its crash means."""

    name: str
    factory: Callable[[Context], Actor]
    on_start: Callable[[Address], None] = lambda _: None
    """Sends its first messages, after each start and restart; they come right after `started`."""
    backoff: Backoff = field(default_factory=Backoff)
    limit: int | None = None
    """At this many failures in a row it is given up; None: never."""
    isolated: bool = False
    """Its crash concerns it alone. Otherwise those started after it depend on it and are restarted with it."""


class _State(Enum):
    RUNNING = auto()
    STOPPING = auto()
    """Told to stop, not known to have ended yet."""
    DOWN = auto()
    """Ended, to be started again."""
    ENDED = auto()
    """Ended for good."""


@dataclass(slots=True, eq=False)
class _Child:
    spec: ChildSpec
    address: Address
    state: _State = _State.DOWN
    retired: bool = False
    failures: int = 0
    started_at: Moment = 0.0
    busy_since: Moment | None = None
    """Since when the last check found it busy with one message."""
    busy: timedelta = timedelta()
    """How much of that it was found so."""


@final
class Supervisor:
    """Children in the order they were started: each may depend on those before it."""

    def __init__(
        self, owner: Actor, on_escalate: Callable[[str, BaseException], None], hang_timeout: timedelta
    ) -> None:
        """Belong to `owner`, whose end, of whatever kind, stops all children.

        `on_escalate(name, cause)` is called in the owner's thread when a child cannot be kept alive, or when the host
        stopped it (`StoppedByHost`). Nothing is restarted from then on; the owner decides what becomes of the rest.
        """
        self._owner = owner
        self._on_escalate = on_escalate
        self._hang_timeout = hang_timeout
        self._patience = timedelta.max
        """How long anybody may be busy with one message."""
        self._checked_at = 0.0
        self._children: list[_Child] = []
        self._addresses: dict[str, Address] = {}
        self._broken: int | None = None
        """Index of the first child of the group that is being restarted."""
        self._restarting = True
        self._stopping_all = False
        owner.at_end(self._stop_now)

    # ── asked by the owner ───────────────────────────────────────────────────────────────────────────────────────

    def address(self, name: str) -> Address:
        """The child's address, which its restarts do not change; also before it is started."""
        if name not in self._addresses:
            self._addresses[name] = self._owner.context.system.address(name)
        return self._addresses[name]

    def children(self) -> tuple[str, ...]:
        """The names of those that live or will be restarted, in the order they were started."""
        return tuple(child.spec.name for child in self._children if child.state is not _State.ENDED)

    def start(self, spec: ChildSpec) -> Address:
        """Start a child after those that were started before.

        Raises:
            Exception: what its factory raised, or that it could not be given a thread. It is no child then.
        """
        child = _Child(spec, self.address(spec.name))
        self._spawn(child)
        self._children.append(child)
        if not self._owner.timers.active("supervisor.hang"):
            self._checked_at = self._owner.clock.monotonic()
            self._check_regularly()
        spec.on_start(child.address)
        return child.address

    def stop(self, name: str) -> None:
        """Stop one child in order, for good. Its end comes as `Terminated`; one that hangs is fenced as ever."""
        child = self._find(name)
        if child is not None:
            self._retire(child)
            self._advance()

    def restart(self, name: str) -> None:
        """Stop one child in order and start it anew: what it knew holds no more. Others are left as they are."""
        child = self._find(name)
        if child is not None and self._restarting:
            _stop_running(child)

    def hurry(self, patience: timedelta) -> None:
        """From now on nobody may be busy with one message for longer than this: there is no time to wait."""
        self._patience = min(self._patience, patience)
        if self._owner.timers.active("supervisor.hang"):
            self._check_regularly()

    def stop_all(self) -> None:
        """Stop all children in order, for good: each when those started after it have ended, until none is left."""
        self._restarting = False
        self._stopping_all = True
        self._advance()

    def handle(self, message: SupervisorMessage) -> None:
        """Take what the owner was told. What is about an earlier incarnation, or nobody here, is ignored."""
        match message:
            case Terminated():
                self._terminated(message)
            case RestartDue():
                self._advance()
            case HangCheckDue():
                self._fence_hung()
            case _:
                raise TypeError(f"a supervisor does not know {type(message).__name__}")

    def _find(self, name: str) -> _Child | None:
        return next((child for child in self._children if child.spec.name == name), None)

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _terminated(self, message: Terminated) -> None:
        child = self._find(message.name)
        if child is None or message.incarnation != child.address.incarnation:
            return
        if child.state is _State.DOWN or child.state is _State.ENDED:
            return
        if elapsed(child.started_at, self._owner.clock.monotonic()) >= child.spec.backoff.reset_after:
            child.failures = 0
        match message.cause:
            case _ if child.retired or not self._restarting:
                child.state = _State.ENDED
            case StoppedByHost() as cause:
                self._escalate(child, cause)
            case _ if child.state is _State.STOPPING:
                child.state = _State.DOWN
            case None:  # somebody stopped it in order: that is a decision, not a failure
                child.state = _State.ENDED
            case cause:
                self._failed(child, cause)
        self._advance()

    def _failed(self, child: _Child, cause: BaseException) -> None:
        spec = child.spec
        child.failures += 1
        if spec.limit is not None and child.failures >= spec.limit:
            self._escalate(child, cause)
            return
        delay = spec.backoff.delay(child.failures - 1, self._owner.entropy)
        child.state = _State.DOWN
        logger.warning(
            "an actor failed and is restarted: actor=%s failures=%d delay=%.1fs cause=%r",
            spec.name,
            child.failures,
            delay.total_seconds(),
            cause,
        )
        self._owner.timers.start(_restart_key(child), delay, RestartDue())
        if not spec.isolated:
            # If a group is down already, this child stands before it: those in it are not running and cannot fail.
            self._broken = self._children.index(child)

    def _escalate(self, child: _Child, cause: BaseException) -> None:
        child.state = _State.ENDED
        self._restarting = False
        logger.error("an actor is given up: actor=%s failures=%d cause=%r", child.spec.name, child.failures, cause)
        self._on_escalate(child.spec.name, cause)

    @property
    def _check_interval(self) -> timedelta:
        return min(self._hang_timeout, self._patience) / CHECKS_PER_HANG_TIMEOUT

    def _check_regularly(self) -> None:
        self._owner.timers.every("supervisor.hang", self._check_interval, HangCheckDue())

    def _fence_hung(self, patience: timedelta = timedelta.max) -> None:
        """Those that have been busy for longer than is allowed, or than `patience`."""
        now = self._owner.clock.monotonic()
        passed, self._checked_at = elapsed(self._checked_at, now), now
        for child in self._children:
            handle = child.address.handle
            busy_since = handle.mailbox.busy_since if handle is not None and not handle.mailbox.closed else None
            if handle is None or busy_since is None:
                child.busy_since, child.busy = None, timedelta()
                continue
            busy = elapsed(busy_since, now)
            before = child.busy if busy_since == child.busy_since else timedelta()
            child.busy_since, child.busy = busy_since, before + min(busy, passed, self._check_interval)
            allowed = self._hang_timeout / CHECKS_PER_HANG_TIMEOUT if child.retired else self._hang_timeout
            if child.busy > min(allowed, self._patience, patience):
                self._fence(handle, busy)

    def _fence(self, handle: Handle, busy: timedelta) -> None:
        """Report it dead in its stead. Its thread cannot be ended from outside: it is abandoned, deaf from now on."""
        current = handle.mailbox.current
        stack = _stack(handle)
        message = current.message if current is not None else None
        kind = type(message.message if isinstance(message, TimerDue) else message).__name__
        if handle.end(Hung(f"{handle.name} was busy with {kind} for {busy.total_seconds():.1f}s"), abandon=True):
            logger.error(
                "an actor hangs and its thread is abandoned: actor=%s message=%s busy=%.1fs stack:\n%s",
                handle.name,
                kind,
                busy.total_seconds(),
                stack,
            )

    # ── what comes next ──────────────────────────────────────────────────────────────────────────────────────────

    def _advance(self) -> None:
        """Do whatever can be done now. Called after everything that changes a child's state."""
        if self._restarting:
            self._restart_group()
            for child in self._children[: self._broken]:
                if child.state is _State.DOWN and not self._restart(child):
                    break
        else:
            for child in self._children:
                if child.state is _State.DOWN:
                    self._retire(child)
            left = [child for child in self._children if child.state is not _State.ENDED]
            if self._stopping_all and left:
                self._retire(left[-1])
        if not self.children():
            self._owner.timers.cancel("supervisor.hang")

    def _restart_group(self) -> None:
        """Rest for one: the broken child and all after it go down together and come up in order."""
        if self._broken is None:
            return
        group = self._children[self._broken :]
        for child in reversed(group):
            _stop_running(child)
        down = [child for child in group if child.state is _State.DOWN]
        if any(child.state is _State.STOPPING for child in group):
            return
        if any(self._backs_off(child) and not child.spec.isolated for child in down):
            return
        self._broken = None
        for child in down:  # an isolated one that still rests comes up alone, later
            if not self._restart(child):
                return

    def _backs_off(self, child: _Child) -> bool:
        return self._owner.timers.active(_restart_key(child))

    def _restart(self, child: _Child) -> bool:
        """Start a child that is down, unless its backoff lasts. False if that failed."""
        if self._backs_off(child):
            return True
        try:
            self._spawn(child)
        except Exception as error:  # noqa: BLE001 - whatever a factory raises is what its child died of
            self._failed(child, error)
            return False
        logger.info("an actor was restarted: actor=%s incarnation=%d", child.spec.name, child.address.incarnation)
        child.spec.on_start(child.address)
        return True

    def _spawn(self, child: _Child) -> None:
        self._owner.context.system.spawn(
            child.spec.factory, name=child.spec.name, owner=self._owner.myself, address=child.address
        )
        child.state = _State.RUNNING
        child.started_at = self._owner.clock.monotonic()

    def _retire(self, child: _Child) -> None:
        child.retired = True
        self._owner.timers.cancel(_restart_key(child))
        _stop_running(child)
        if child.state is _State.DOWN:
            child.state = _State.ENDED

    def _stop_now(self) -> None:
        """The owner ends: nobody will hear of the children any more, so all are told now, the last started first."""
        self._fence_hung(PATIENCE_AT_END)
        for child in reversed(self._children):
            self._retire(child)


def _restart_key(child: _Child) -> tuple[str, str]:
    return ("supervisor.restart", child.spec.name)


def _stop_running(child: _Child) -> None:
    if child.state is _State.RUNNING:
        child.state = _State.STOPPING
        child.address.stop()


def _stack(handle: Handle) -> str:
    """What the actor's thread is doing."""
    ident = handle.thread.ident if handle.thread is not None else None
    frame = sys._current_frames().get(ident) if ident is not None else None  # noqa: SLF001 - public but for its name
    return "".join(traceback.format_stack(frame)) if frame is not None else "(no thread)"
