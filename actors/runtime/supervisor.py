"""`Supervisor`: restarts an actor's children in order, with backoff, and fences children that hang.

A plain object of the actor that owns it: it has no thread, receives its messages through the owner, and uses the
owner's timers. When a child cannot be kept alive it escalates to the owner. It never looks into messages of children.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, final

from actors.runtime.backoff import Backoff
from actors.runtime.clock import elapsed
from actors.runtime.handle import Handle, Hung, Lost, StoppedByHost, SupervisorMessage, Terminated
from actors.runtime.timers import TimerDue
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka._envelope import Envelope

    from actors.runtime.actor import Actor, Context
    from actors.runtime.address import Address
    from actors.runtime.clock import Moment

__all__ = ["ChildSpec", "Supervisor", "kind_of", "stack_of"]

logger = get_logger(__name__)

CHECKS_PER_HANG_TIMEOUT: Final = 4
"""A hang is detected within 1¼ of `hang_timeout`. A check reads one attribute of each child's mailbox.

A retired child gets the time between two checks only: others wait for its end.

Each check that finds a child busy with the same message adds at most the interval between two checks: after a suspended
process wakes up, much time has passed although no child hung."""

MOST_DOUBLINGS: Final = 2
"""How often the delay before a lost child is restarted doubles at the most: nothing says that it will be lost again."""

PATIENCE_AT_END: Final = timedelta(seconds=1)
"""When the owner ends, a child that has been busy with one message for longer is fenced, because no later check will
find it. No handler takes that long."""


@final
@dataclass(frozen=True, slots=True)
class RestartDue(SupervisorMessage):
    """A child's backoff has elapsed."""


@final
@dataclass(frozen=True, slots=True)
class HangCheckDue(SupervisorMessage):
    """The next check for hanging children is due."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to create a child, and what its crash affects."""

    name: str
    factory: Callable[[Context], Actor]
    on_start: Callable[[Address], None] = lambda _: None
    """Sends the child's first messages after each start; they arrive right after `started`."""
    backoff: Backoff = field(default_factory=Backoff)
    limit: int | None = None
    """Failures in a row after which the supervisor escalates; None: never."""
    isolated: bool = False
    """Its crash restarts only this child. Otherwise all children started after it are restarted too."""


class _State(Enum):
    RUNNING = auto()
    STOPPING = auto()
    """Asked to stop, not ended yet."""
    DOWN = auto()
    """Ended, to be restarted."""
    ENDED = auto()
    """Ended for good."""


@dataclass(slots=True, eq=False)
class _Child:
    spec: ChildSpec
    address: Address
    state: _State = _State.DOWN
    retired: bool = False
    """To be stopped for good."""
    failures: int = 0
    losses: int = 0
    """How often in a row it was lost. That says nothing against it."""
    started_at: Moment = 0.0
    busy_since: Moment | None = None
    """When it started to handle the message that the last check found it busy with."""
    busy: timedelta = timedelta()
    """For how long checks have found it busy with that message."""


@final
class Supervisor:
    """Children in the order of their start: each may depend on those before it."""

    def __init__(
        self, owner: Actor, on_escalate: Callable[[str, BaseException], None], hang_timeout: timedelta
    ) -> None:
        """Stop all children when `owner` ends, for whatever reason.

        `on_escalate(name, cause)` runs in the owner's thread when a child cannot be kept alive, or when the host
        stopped it (`StoppedByHost`). From then on no child is restarted; the owner decides about the others.
        """
        self._owner = owner
        self._on_escalate = on_escalate
        self._hang_timeout = hang_timeout
        self._patience = timedelta.max
        """The longest time with one message, for any child."""
        self._checked_at = 0.0
        self._children: list[_Child] = []
        self._addresses: dict[str, Address] = {}
        self._broken: int | None = None
        """Index of the first child of the group that is being restarted."""
        self._restarting = True
        self._stopping_all = False
        owner.at_end(self._stop_now)

    # ── called by the owner ──────────────────────────────────────────────────────────────────────────────────────

    def address(self, name: str) -> Address:
        """Return the child's address. It stays the same across restarts and exists before the first start."""
        if name not in self._addresses:
            self._addresses[name] = self._owner.context.system.address(name)
        return self._addresses[name]

    def children(self) -> tuple[str, ...]:
        """Return the names of the children that are alive or will be restarted, in the order of their start."""
        return tuple(child.spec.name for child in self._children if child.state is not _State.ENDED)

    def start(self, spec: ChildSpec) -> Address:
        """Start a child.

        Raises:
            Exception: its factory failed, or no thread could be started. It does not become a child.
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
        """Stop one child for good. The owner receives `Terminated`; a child that hangs is fenced."""
        child = self._find(name)
        if child is not None:
            self._retire(child)
            self._advance()

    def restart(self, name: str) -> None:
        """Restart one child because its state is outdated. Other children keep running."""
        child = self._find(name)
        if child is not None and self._restarting:
            _stop_running(child)

    def hurry(self, patience: timedelta) -> None:
        """Fence any child that is busy with one message for longer than `patience`, from now on."""
        self._patience = min(self._patience, patience)
        if self._owner.timers.active("supervisor.hang"):
            self._check_regularly()

    def stop_all(self) -> None:
        """Stop all children for good, each after all children started after it have ended."""
        self._restarting = False
        self._stopping_all = True
        self._advance()

    def handle(self, message: SupervisorMessage) -> None:
        """Handle a message to the owner. Ignore earlier incarnations and unknown actors."""
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
            child.failures = child.losses = 0
        match message.cause:
            case _ if child.retired or not self._restarting:
                child.state = _State.ENDED
            case StoppedByHost() as cause:
                self._escalate(child, cause)
            case _ if child.state is _State.STOPPING:
                child.state = _State.DOWN
            case None:  # an orderly stop is a decision, not a failure
                child.state = _State.ENDED
            case cause:
                self._failed(child, cause)
        self._advance()

    def _failed(self, child: _Child, cause: BaseException) -> None:
        spec = child.spec
        if isinstance(cause, Lost):
            child.losses += 1
            delay = spec.backoff.delay(min(child.losses - 1, MOST_DOUBLINGS), self._owner.entropy)
        else:
            child.failures += 1
            if spec.limit is not None and child.failures >= spec.limit:
                self._escalate(child, cause)
                return
            delay = spec.backoff.delay(child.failures - 1, self._owner.entropy)
        child.state = _State.DOWN
        logger.warning(
            "actor failed, restarting: actor=%s failures=%d delay=%.1fs cause=%r",
            spec.name,
            child.failures,
            delay.total_seconds(),
            cause,
        )
        self._owner.timers.start(_restart_key(child), delay, RestartDue())
        if not spec.isolated:
            # If a group is already down, this child comes before it: children of the group do not run.
            self._broken = self._children.index(child)

    def _escalate(self, child: _Child, cause: BaseException) -> None:
        child.state = _State.ENDED
        self._restarting = False
        logger.error("actor not restarted: actor=%s failures=%d cause=%r", child.spec.name, child.failures, cause)
        self._on_escalate(child.spec.name, cause)

    @property
    def _check_interval(self) -> timedelta:
        return min(self._hang_timeout, self._patience) / CHECKS_PER_HANG_TIMEOUT

    def _check_regularly(self) -> None:
        self._owner.timers.every("supervisor.hang", self._check_interval, HangCheckDue())

    def _fence_hung(self, patience: timedelta = timedelta.max) -> None:
        """Fence the children that have been busy with one message for longer than allowed, or than `patience`."""
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
        """Report the actor's end in its place. Its thread cannot be stopped, so it is abandoned."""
        current = handle.mailbox.current
        kind = kind_of(current)
        seconds = busy.total_seconds()
        hung = Hung(f"{handle.name} was busy with {kind} for {seconds:.1f}s")
        hung.add_note(stack_of(handle))
        if handle.end(hung, abandon=True):
            logger.error(
                "actor hangs, thread abandoned: actor=%s message=%s busy=%.1fs",
                handle.name,
                kind,
                seconds,
                exc_info=hung,
            )

    # ── next steps ───────────────────────────────────────────────────────────────────────────────────────────────

    def _advance(self) -> None:
        """Take all steps that are possible now. Called after each change of a child's state."""
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
        """Restart the failed child and all after it (rest-for-one): stop all, then start them in order."""
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
        for child in down:  # an isolated child whose backoff lasts longer restarts alone, later
            if not self._restart(child):
                return

    def _backs_off(self, child: _Child) -> bool:
        return self._owner.timers.active(_restart_key(child))

    def _restart(self, child: _Child) -> bool:
        """Start a child that is down, unless it still backs off. Return False if the start failed."""
        if self._backs_off(child):
            return True
        try:
            self._spawn(child)
        except Exception as error:  # noqa: BLE001 - any exception of a factory is a failure of its child
            self._failed(child, error)
            return False
        logger.info("actor restarted: actor=%s incarnation=%d", child.spec.name, child.address.incarnation)
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
        """Stop all children at once, the last started first: the owner ends and receives no more messages."""
        self._fence_hung(PATIENCE_AT_END)
        for child in reversed(self._children):
            self._retire(child)


def _restart_key(child: _Child) -> tuple[str, str]:
    return ("supervisor.restart", child.spec.name)


def _stop_running(child: _Child) -> None:
    if child.state is _State.RUNNING:
        child.state = _State.STOPPING
        child.address.stop()


def kind_of(envelope: Envelope[Any] | None) -> str:
    """Return the name of a message's type; of a timer, that of the message that it sends."""
    message = envelope.message if envelope is not None else None
    return type(message.message if isinstance(message, TimerDue) else message).__name__


def stack_of(handle: Handle) -> str:
    """Return the stack of the actor's thread."""
    ident = handle.thread.ident if handle.thread is not None else None
    frame = sys._current_frames().get(ident) if ident is not None else None  # noqa: SLF001 - public but for its name
    return "".join(traceback.format_stack(frame)) if frame is not None else "(no thread)"
