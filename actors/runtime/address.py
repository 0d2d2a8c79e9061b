"""`Address`: how actors refer to each other. It outlives the actor behind it and never raises on `tell`."""

from __future__ import annotations

import queue
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, final

from pykka import ActorDeadError, Timeout
from pykka._envelope import Envelope

from actors.runtime.handle import running
from actors.runtime.mailbox import DeadLetters, Mailbox, Reply, Signal
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef, Future

    from actors.runtime.handle import Handle

__all__ = ["Address", "Stop"]

logger = get_logger(__name__)


@final
class Stop(Signal):
    """Stops an actor after all messages that came before."""

    __slots__ = ()


STOP: Final = Stop()

LONGEST_WAIT: Final = 100 * 365 * 24 * 60 * 60
"""Seconds: an answer that is waited for without a limit. The system's clocks take no arbitrary number."""


class Address:
    """The target of messages. After a restart the next incarnation receives them. Equal only to itself."""

    __slots__ = ("_dead_letters", "handle", "incarnation", "name")

    def __init__(self, name: str, dead_letters: DeadLetters) -> None:
        self.name = name
        self.incarnation = 0
        """How many actors were spawned at this address."""
        self.handle: Handle | None = None
        """The newest of these actors, dead or alive; for the runtime only."""
        self._dead_letters = dead_letters

    @staticmethod
    def to(ref: ActorRef[Any], dead_letters: DeadLetters | None = None) -> Address:
        """Return an address for an actor that this runtime did not spawn, such as the driver."""
        return _ForeignAddress(ref, dead_letters or DeadLetters())

    @staticmethod
    def calling(function: Callable[[Any], object], dead_letters: DeadLetters | None = None) -> Address:
        """Return an address whose `tell` calls a function, in the sender's thread. It is alive for ever."""
        return _FunctionAddress(function, dead_letters or DeadLetters())

    def __repr__(self) -> str:
        return f"<Address of {self.name}>"

    @property
    def ref(self) -> ActorRef[Any] | None:
        """Pykka's ref of the newest actor, for hosts that use Pykka; None before the first."""
        return self.handle.ref if self.handle is not None else None

    @property
    def depth(self) -> int:
        """How many messages wait in the mailbox."""
        return self.handle.mailbox.depth if self.handle is not None else 0

    @property
    def high_water(self) -> int:
        """The most messages that ever waited for the newest actor."""
        return self.handle.mailbox.high_water if self.handle is not None else 0

    def is_alive(self) -> bool:
        """Whether an actor is alive at this address."""
        return self.handle is not None and not self.handle.mailbox.closed

    def tell(self, message: object) -> None:
        """Send a message without waiting. Never raises: a message to a dead actor is a counted dead letter.

        A message from an abandoned thread is a dead letter too, unless it stops a child.
        """
        handle = self.handle
        if handle is not None and (not running.sender.abandoned or isinstance(message, Signal)):
            handle.mailbox.put(Envelope(message))
        elif not isinstance(message, Signal):
            self._dead_letters.record(self.name, message)

    def ask(self, message: object, timeout: timedelta | float) -> Any:
        """Send a message and wait for the answer. Never call this inside an actor: it handles nothing meanwhile.

        Args:
            message: the question.
            timeout: how long to wait; a number means seconds, and infinity for ever.

        Raises:
            ActorDeadError: there is no live actor, or it ended before it answered.
            Timeout: no answer in time. The actor may still handle the message.
            ActorCrashed: the message crashed the actor with a `BaseException` that is no `Exception`.
            Exception: the actor raised it. The actor is dead, unless it is `Refused`.
        """
        if not isinstance(timeout, timedelta | int | float) or timeout != timeout:  # noqa: PLR0124 - only nan does
            raise TypeError(f"a timeout is a timedelta or a number of seconds, not {timeout!r}")
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        limit = timedelta(seconds=min(seconds, LONGEST_WAIT))
        future = self.request(message)
        try:
            return future.get(timeout=limit.total_seconds())
        except Timeout:
            raise Timeout(f"{self.name} did not answer {type(message).__name__} within {limit}") from None

    def request(self, message: object) -> Future[Any]:
        """Send a message and return the future of the answer. Only an actor that hangs leaves it unresolved."""
        future = Reply()
        if self.handle is None:
            error = ActorDeadError(f"{self.name} has not been started")
            future.set_exception((ActorDeadError, error, None))
        else:
            self.handle.mailbox.put(Envelope(message, reply_to=future))
        return future

    def stop(self) -> None:
        """Stop the actor after all messages that are in its mailbox now."""
        Address.tell(self, STOP)  # a subclass may refuse to send it as a message


@final
class _ForeignAddress(Address):
    """An address for a Pykka ref. The runtime never restarts its actor."""

    __slots__ = ("_ref",)

    def __init__(self, ref: ActorRef[Any], dead_letters: DeadLetters) -> None:
        super().__init__(ref.actor_class.__name__, dead_letters)
        self._ref = ref

    @property
    def ref(self) -> ActorRef[Any] | None:
        return self._ref

    @property
    def depth(self) -> int:
        """How many messages wait, if the inbox is a `Mailbox` or Pykka's usual `queue.Queue`; else 0."""
        match self._ref.actor_inbox:
            case Mailbox() as mailbox:
                return mailbox.depth
            case queue.Queue() as inbox:
                return inbox.qsize()
            case _:
                return 0

    def is_alive(self) -> bool:
        """Whether Pykka says so and the object exists: after SystemExit in `on_start` Pykka still says alive."""
        return self._ref.is_alive() and self._ref._actor_weakref() is not None  # noqa: SLF001 - Pykka has no other sign

    def tell(self, message: object) -> None:
        if running.sender.abandoned:
            self._dead_letters.record(self.name, message)
            return
        try:
            self._ref.tell(message)
        except ActorDeadError:
            self._dead_letters.record(self.name, message)

    def request(self, message: object) -> Future[Any]:
        return self._ref.ask(message, block=False)

    def stop(self) -> None:
        self._ref.stop(block=False)


@final
class _FunctionAddress(Address):
    """An address for a function. What it raises is logged: it must not end the sender."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Any], object], dead_letters: DeadLetters) -> None:
        super().__init__(getattr(function, "__name__", type(function).__name__), dead_letters)
        self._function = function

    def is_alive(self) -> bool:
        return True

    def tell(self, message: object) -> None:
        if running.sender.abandoned:
            self._dead_letters.record(self.name, message)
            return
        try:
            self._function(message)
        except BaseException:  # a `sys.exit` in it must not end the sender either
            logger.exception(
                "function that receives messages failed: function=%s message=%s", self.name, type(message).__name__
            )
