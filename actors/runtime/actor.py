"""The base of every actor here: Pykka's, with its hooks sealed and its gaps closed.

Pykka does not notice some crashes, keeps an actor running after others, and lets a SystemExit in one actor stop every
actor of the process. Here any exception ends the actor that raises it and no other, and its owner is notified exactly
once. Subclasses override `started`, `receive` and `stopped`; all three run in the actor's thread, one message at a
time. Private names have two underscores, so that no subclass overrides them by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import pykka
from pykka._envelope import Envelope
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop

from actors.errors import ActorCrashed, Refused
from actors.runtime.address import Address, Stop
from actors.runtime.handle import Handle, StoppedByHost
from actors.runtime.mailbox import Mailbox, Reply, Signal
from actors.runtime.timers import TimerDue, Timers
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from types import TracebackType

    from actors.runtime.clock import Clock
    from actors.runtime.entropy import Entropy
    from actors.runtime.mailbox import DeadLetters
    from actors.runtime.timers import TimerService

__all__ = ["Actor", "Context", "Dispatcher"]

T = TypeVar("T")

logger = get_logger(__name__)


@final
class _Started(Signal):
    """The first message of every actor, so that `started` runs in the actor's thread."""

    __slots__ = ()


STARTED: Final = _Started()

OWN: Final = frozenset({TimerDue, _Started, Stop, _ActorStop, ProxyCall, ProxyGetAttr, ProxySetAttr})
"""The types of the messages that `Actor.receive` never gets as they are."""


class Dispatcher(Protocol):
    """Runs actors: in production each in its own thread, in the test-kit one message at a time."""

    def create_mailbox(self, name: str, clock: Clock, dead_letters: DeadLetters) -> Mailbox:
        """Return the mailbox for a new actor."""

    def start(self, actor: Actor) -> None:
        """Start the actor's loop. If this raises, the loop must never run."""


class System(Protocol):
    """The part of `ActorSystem` that an actor uses."""

    clock: Clock
    entropy: Entropy
    timers: TimerService
    letters: DeadLetters
    dispatcher: Dispatcher

    def address(self, name: str) -> Address:
        """Return an address without an actor."""

    def spawn(
        self, factory: Callable[[Context], Actor], *, name: str, owner: Address | None, address: Address | None = None
    ) -> Address:
        """Create an actor and start it."""

    def call_within(self, limit: timedelta, function: Callable[[], T]) -> T:
        """Return what a function of the program returns, if it does in time."""

    def close(self) -> None:
        """Stop the threads that all actors share."""


@dataclass(frozen=True, slots=True)
class Context:
    """The constructor argument of every actor."""

    system: System
    name: str
    incarnation: int
    """Counts the actors at this address, from 1."""
    address: Address
    """Receives the actor's messages; the next incarnation takes the address over."""
    owner: Address | None
    """Receives `Terminated` when the actor ends."""

    @property
    def label(self) -> str:
        """Name and incarnation, for logs."""
        return f"{self.name}-{self.incarnation}"


class Actor(pykka.ThreadingActor):
    """Base class of all actors. Only `ActorSystem.spawn` starts one, never Pykka's `start`.

    Whether it has ended says `actor_ref.actor_stopped`; its own `actor_stopped` ends Pykka's loop after each message.
    """

    use_daemon_thread = True  # Ctrl-C must not wait for an actor; an orderly stop is a message (see the Backend)

    def __init__(self, context: Context) -> None:
        system, owner = context.system, context.owner
        self.context = context
        self.name = context.name
        self.clock = system.clock
        self.entropy = system.entropy.fork(context.label)
        super().__init__()
        assert isinstance(self.actor_inbox, Mailbox)
        mailbox = self.actor_inbox
        self.handle = Handle(
            context.name, context.incarnation, mailbox, self.actor_ref, owner.tell if owner is not None else None
        )
        self.address = context.address
        self.myself = Address(context.name, system.letters)
        """The address of this incarnation only: after its end every message is a dead letter."""
        self.myself.incarnation, self.myself.handle = context.incarnation, self.handle
        self.timers = Timers(system.timers, lambda due: mailbox.put(Envelope(due)))
        self.__at_end: list[Callable[[], None]] = []
        mailbox.put(Envelope(STARTED))

    def __str__(self) -> str:
        return self.context.label

    # ── for subclasses ───────────────────────────────────────────────────────────────────────────────────────────

    def started(self) -> None:
        """Run before the first message."""

    def receive(self, message: Any) -> object:
        """Handle one message. The return value answers an `ask`.

        `Refused` goes to the sender, and the actor keeps running. Any other exception ends the actor.
        """
        raise NotImplementedError(f"{type(self).__name__} does not receive {type(message).__name__}")

    def stopped(self) -> None:
        """Run after the last message when the actor or the host stops it, but not after a crash."""

    def stop(self) -> None:
        """Stop after all messages that are in the mailbox now."""
        self.myself.stop()

    def stops_at_once(self) -> bool:
        """Whether the actor ends when it is to stop. One that stands for work elsewhere calls `end` when that ends."""
        return True

    def end(self, cause: BaseException | None) -> None:
        """End now, without `stopped`, for a cause that is known and logged already; None after an orderly stop."""
        self.__close(cause)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the actor's thread when the actor ends, before the owner is notified.

        A crash calls it too. An actor that hangs calls it late or never; for that case see `Handle.at_end`.
        """
        self.__at_end.append(callback)

    # ── Pykka's side ─────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def start(cls, *_args: Any, **_kwargs: Any) -> Any:
        """Refuse Pykka's own start: the actor would have no system, address or owner."""
        raise TypeError(f"{cls.__name__} is started by ActorSystem.spawn")

    @final
    def _create_actor_inbox(self) -> Mailbox:  # type: ignore[override]  # Pykka calls it on the instance all the same
        system = self.context.system
        return system.dispatcher.create_mailbox(self.context.label, system.clock, system.letters)

    @staticmethod
    def _create_future() -> Reply:
        return Reply()

    @final
    def _start_actor_loop(self) -> None:
        self.context.system.dispatcher.start(self)

    @final
    def _handle_receive(self, message: Any) -> Any:
        """Handle one message. All code of an actor runs in here, so no exception escapes unseen."""
        try:
            return self.receive(message) if type(message) not in OWN else self.__handle_own(message)
        except Refused as refusal:
            if not self.__answer(refusal):
                kind = type(message).__name__
                logger.warning("message refused: actor=%s message=%s reason=%s", self.name, kind, refusal)
        except BaseException as error:  # noqa: BLE001 - it is logged, and reported to the owner and to who asked
            self.__crashed(error, message)
            if isinstance(error, Exception):
                self.__answer(error)
            else:
                crashed = ActorCrashed(f"{self.name} crashed while it handled {type(message).__name__}")
                crashed.__cause__ = error
                self.__answer(crashed)
        return None

    def __answer(self, error: Exception) -> bool:
        """Answer with an error. Return whether somebody waits for an answer.

        Pykka would log each before it answers, and a handler of the program that raises would be the answer's end.
        """
        current = self.handle.mailbox.current
        if current is None or current.reply_to is None:
            return False
        try:
            current.reply_to.set_exception((type(error), error, error.__traceback__))
        except BaseException:  # from who was answered
            logger.exception("the answer to a message failed: actor=%s", self)
        return True

    def __handle_own(self, message: Any) -> None:
        match message:
            case TimerDue():
                self.timers.handle(message, self.receive)
            case _Started():
                self.started()
            case Stop():
                if self.stops_at_once():
                    self.__end(None)
            case _ActorStop():
                self._stop()
            case _:
                raise Refused(f"{self.name} takes messages, not calls through a proxy")

    def __end(self, cause: BaseException | None) -> None:
        """Stop. An exception in `stopped` is a crash; it does not reach a host that stops all actors."""
        try:
            self.stopped()
        except BaseException as error:  # noqa: BLE001 - it is logged and reported to the owner
            self.__crashed(error, None)
        else:
            self.__close(cause)

    def __crashed(self, error: BaseException, message: object) -> None:
        logger.error("actor crashed: actor=%s message=%s", self, type(message).__name__, exc_info=error)
        self.__close(error)

    def __close(self, cause: BaseException | None) -> None:
        for callback in self.__at_end:
            try:
                callback()
            except BaseException:  # the owner is still to be notified
                logger.exception("callback at the end of an actor failed: actor=%s", self)
        self.timers.cancel_all()
        if not self.handle.end(cause):
            logger.warning("abandoned actor ended after all: actor=%s", self)

    @final
    def _stop(self) -> None:
        self.__end(StoppedByHost(f"{self.name} was stopped through Pykka"))

    @final
    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Treat an exception that escapes Pykka's hooks as a crash. None is known to."""
        del traceback
        self.__crashed(exception_value or ActorCrashed(f"{self.name} failed: {exception_type}"), None)

    @final
    def on_start(self) -> None:
        """Sealed: see `started`."""

    @final
    def on_stop(self) -> None:
        """Sealed: see `stopped`."""

    @final
    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Sealed: a crashed actor runs no more code."""

    @final
    def on_receive(self, message: Any) -> Any:
        """Sealed: see `receive`."""
        return self.receive(message)
