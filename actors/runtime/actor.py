"""The base of every actor here: Pykka's, with its hooks sealed and its gaps closed.

Pykka misses some deaths, lives on after others, and lets one actor's SystemExit end every actor of the process. A
subclass of `Actor` dies alone, of anything it raises, in whatever way it was given the message; its owner is told
exactly once. Subclasses write `started`, `receive` and `stopped`, all run in the actor's own thread, one message at a
time. What is private here has two underscores, so that no subclass replaces it by chance.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import pykka
from pykka._envelope import Envelope
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop

from actors.errors import ActorCrashed, Refused
from actors.runtime.address import Address, Stop
from actors.runtime.handle import Handle, StoppedByHost
from actors.runtime.mailbox import Mailbox, Reply, Signal
from actors.runtime.timers import TimerDue, Timers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from actors.runtime.clock import Clock
    from actors.runtime.entropy import Entropy
    from actors.runtime.mailbox import DeadLetters
    from actors.runtime.timers import TimerService

__all__ = ["Actor", "Context", "Dispatcher"]

logger = logging.getLogger(__name__)


@final
class _Started(Signal):
    """The first message of every actor, so that `started` runs in its thread and not beside its maker."""

    __slots__ = ()


STARTED: Final = _Started()


class Dispatcher(Protocol):
    """How actors are run. Production gives each a thread; the test-kit decides who may take a message when."""

    def create_mailbox(self, name: str, clock: Clock, dead_letters: DeadLetters) -> Mailbox:
        """The mailbox for an actor that is being made."""

    def start(self, actor: Actor) -> None:
        """Begin to run the actor's loop. Raises if that is impossible; then it must not run later either."""


class System(Protocol):
    """What an actor needs of the `ActorSystem` that made it."""

    clock: Clock
    entropy: Entropy
    timers: TimerService
    letters: DeadLetters
    dispatcher: Dispatcher

    def address(self, name: str) -> Address:
        """An address where no actor lives yet."""

    def spawn(
        self, factory: Callable[[Context], Actor], *, name: str, owner: Address | None, address: Address | None = None
    ) -> Address:
        """Make an actor and start it."""

    def close(self) -> None:
        """End what the system runs for all of its actors."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an actor is born into."""

    system: System
    name: str
    incarnation: int
    """1 for the first at this address."""
    address: Address
    """Where it is told things; the next incarnation takes it over."""
    owner: Address | None
    """Who is told of its end."""

    @property
    def label(self) -> str:
        """Name and incarnation, for people."""
        return f"{self.name}-{self.incarnation}"


class Actor(pykka.ThreadingActor):
    """An actor. Made by `ActorSystem.spawn`, never by Pykka's `start`."""

    use_daemon_thread = True  # Ctrl-C must not wait for an actor; an orderly end is messages (see the Backend)

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
        """This incarnation only: what comes here when it is dead is a dead letter, not the next one's concern."""
        self.myself.incarnation, self.myself.handle = context.incarnation, self.handle
        self.timers = Timers(system.timers, lambda due: mailbox.put(Envelope(due)))
        self.__at_end: list[Callable[[], None]] = []
        mailbox.put(Envelope(STARTED))

    def __str__(self) -> str:
        return self.context.label

    # ── for subclasses ───────────────────────────────────────────────────────────────────────────────────────────

    def started(self) -> None:
        """Run before any message."""

    def receive(self, message: Any) -> object:
        """Handle one message; what is returned answers one who asked.

        `Refused` is for the sender, and the actor lives on. It dies of anything else that is raised here.
        """
        raise NotImplementedError(f"{type(self).__name__} does not receive {type(message).__name__}")

    def stopped(self) -> None:
        """Run after the last message of an orderly stop, or of one by the host; not after a crash."""

    def stop(self) -> None:
        """Ask for an orderly stop, after everything that was told before."""
        self.myself.stop()

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have `callback` called in this actor's thread when it ends, before its owner is told.

        However it ends, but for one that hangs: its thread comes to that late or never. See `Handle.at_end` for both.
        """
        self.__at_end.append(callback)

    # ── Pykka's side ─────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def start(cls, *_args: Any, **_kwargs: Any) -> Any:
        """Pykka's way to start an actor; here it would have no system, address or owner."""
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
        """Everything an actor does happens in here, so that everything it can die of is seen here."""
        current = self.handle.mailbox.current
        asked = current is not None and current.reply_to is not None
        try:
            return self.__handle(message)
        except Refused as refusal:
            if asked:
                raise
            logger.warning(
                "a message was refused: actor=%s message=%s why=%s", self.name, type(message).__name__, refusal
            )
        except BaseException as error:
            self.__crashed(error, message)
            if asked and isinstance(error, Exception):
                raise
            if asked:
                raise ActorCrashed(f"{self.name} crashed while it handled {type(message).__name__}") from error
        return None

    def __handle(self, message: Any) -> object:
        match message:
            case TimerDue():
                self.timers.handle(message, self.receive)
            case _Started():
                self.started()
            case Stop():
                self.__end(None)
            case _ActorStop():
                self._stop()
            case ProxyCall() | ProxyGetAttr() | ProxySetAttr():
                raise Refused(f"{self.name} takes messages, not calls through a proxy")
            case _:
                return self.receive(message)
        return None

    def __end(self, cause: BaseException | None) -> None:
        """Stop. If that fails it is a crash; a host that stops all its actors is not bothered with it."""
        try:
            self.stopped()
        except BaseException as error:  # noqa: BLE001 - it is logged, and told to the owner
            self.__crashed(error, None)
        else:
            self.__close(cause)

    def __crashed(self, error: BaseException, message: object) -> None:
        logger.error("an actor crashed: actor=%s message=%s", self, type(message).__name__, exc_info=error)
        self.__close(error)

    def __close(self, cause: BaseException | None) -> None:
        for callback in self.__at_end:
            try:
                callback()
            except Exception:
                logger.exception("what an actor does at its end failed: actor=%s", self)
        self.timers.cancel_all()
        if not self.handle.end(cause):
            logger.warning("an actor that had been abandoned has ended after all: actor=%s", self)

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
        """Pykka's machinery for what escapes its hooks; nothing does, and if it ever did it would be a crash."""
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
        """Sealed: an actor that failed does nothing more."""

    @final
    def on_receive(self, message: Any) -> Any:
        """Sealed: see `receive`."""
        return self.receive(message)
