"""What actors hold of each other: a place to tell things to, whoever lives there now."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any, Final, final

from pykka import ActorDeadError, Timeout
from pykka._envelope import Envelope

from actors.runtime.handle import thread_counts
from actors.runtime.mailbox import DeadLetters, Mailbox, Reply, Signal

if TYPE_CHECKING:
    from datetime import timedelta

    from pykka import ActorRef, Future

    from actors.runtime.handle import Handle

__all__ = ["Address", "Stop"]


@final
class Stop(Signal):
    """Asks an actor to stop in order, once everything told before has been handled."""

    __slots__ = ()


STOP: Final = Stop()


class Address:
    """Survives restarts: whoever is spawned here next gets what is told from then on. Equal only to itself."""

    __slots__ = ("_dead_letters", "handle", "incarnation", "name")

    def __init__(self, name: str, dead_letters: DeadLetters) -> None:
        self.name = name
        self.incarnation = 0
        """How many actors have lived here."""
        self.handle: Handle | None = None
        """The newest of them, dead or alive; for the runtime only."""
        self._dead_letters = dead_letters

    @staticmethod
    def to(ref: ActorRef[Any], dead_letters: DeadLetters | None = None) -> Address:
        """An address for an actor of somebody else's, such as the host's driver."""
        return _ForeignAddress(ref, dead_letters or DeadLetters())

    def __repr__(self) -> str:
        return f"<Address of {self.name}>"

    @property
    def ref(self) -> ActorRef[Any] | None:
        """Pykka's ref of the newest actor here, for a host that speaks Pykka; None before the first."""
        return self.handle.ref if self.handle is not None else None

    @property
    def depth(self) -> int:
        """How many messages wait."""
        return self.handle.mailbox.depth if self.handle is not None else 0

    @property
    def high_water(self) -> int:
        """The most messages that ever waited for the newest actor here."""
        return self.handle.mailbox.high_water if self.handle is not None else 0

    def is_alive(self) -> bool:
        """Whether somebody lives here now."""
        return self.handle is not None and not self.handle.mailbox.closed

    def tell(self, message: object) -> None:
        """Send and forget. Never raises: what is told to nobody is a counted dead letter.

        So is what an abandoned thread tells; only that its children may end is still heard.
        """
        handle = self.handle
        if handle is not None and (thread_counts() or isinstance(message, Signal)):
            handle.mailbox.put(Envelope(message))
        elif not isinstance(message, Signal):
            self._dead_letters.record(self.name, message)

    def ask(self, message: object, timeout: timedelta) -> Any:
        """Send and wait for the reply. For callers outside of actors only: an actor that waits is deaf meanwhile.

        Raises:
            ActorDeadError: nobody lives here, or the actor ended before it answered.
            Timeout: no reply in time. The message may be handled all the same.
            ActorCrashed: the actor died of it, of something that is no `Exception`.
            Exception: whatever the actor raised; it is dead then, unless it was `Refused`.
        """
        future = self.request(message)
        try:
            return future.get(timeout=timeout.total_seconds())
        except Timeout:
            raise Timeout(f"{self.name} did not answer {type(message).__name__} within {timeout}") from None

    def request(self, message: object) -> Future[Any]:
        """Send, and get the future of the reply. It is always resolved as long as the actor neither hangs nor waits."""
        future = Reply()
        if self.handle is None:
            error = ActorDeadError(f"{self.name} has not been started")
            future.set_exception((ActorDeadError, error, None))
        else:
            self.handle.mailbox.put(Envelope(message, reply_to=future))
        return future

    def stop(self) -> None:
        """Ask for an orderly stop, after everything that was told before."""
        self.tell(STOP)


@final
class _ForeignAddress(Address):
    """Pykka's ref in the shape of an address. Its actor is never restarted by us."""

    __slots__ = ("_ref",)

    def __init__(self, ref: ActorRef[Any], dead_letters: DeadLetters) -> None:
        super().__init__(ref.actor_class.__name__, dead_letters)
        self._ref = ref

    @property
    def ref(self) -> ActorRef[Any] | None:
        return self._ref

    @property
    def depth(self) -> int:
        """Known of our own inbox and of Pykka's usual one, which is a `queue.Queue`; 0 of any other."""
        match self._ref.actor_inbox:
            case Mailbox() as mailbox:
                return mailbox.depth
            case queue.Queue() as inbox:
                return inbox.qsize()
            case _:
                return 0

    def is_alive(self) -> bool:
        """Pykka says so, and its object exists: one whose `on_start` raised SystemExit says so without a thread."""
        return self._ref.is_alive() and self._ref._actor_weakref() is not None  # noqa: SLF001 - Pykka has no other sign

    def tell(self, message: object) -> None:
        if not thread_counts():
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
