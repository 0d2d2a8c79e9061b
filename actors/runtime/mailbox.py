"""The mailbox of an actor: Pykka's inbox, made to close atomically.

With Pykka's own queue a message can be put between the actor's last look and its end, and then nobody ever answers it.
Here no message is lost silently: whatever comes to a closed mailbox is answered with `ActorDeadError` when it was asked
and counted as a dead letter when it was told.

There is no lock on the way of a message, and this is not for speed alone: a signal handler or a finalizer may tell an
actor something while the very same thread is in the middle of `put`. `queue.SimpleQueue` is made for that, a lock is
not. Instead, putting is followed by a look at whether the mailbox is closed, and closing is followed by emptying it:
whichever of the two comes second finds the message.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from typing import TYPE_CHECKING, Any, Final, final

import pykka
from pykka.messages import _ActorStop

if TYPE_CHECKING:
    from pykka._envelope import Envelope
    from pykka._types import OptExcInfo

    from actors.runtime.clock import Clock, Moment

__all__ = ["DeadLetters", "Mailbox", "MailboxClosed", "Reply", "Signal"]

logger = logging.getLogger(__name__)

MANY_WAITING: Final = 10_000
"""Messages, from which on an operator should know: the actor is slower than what it is told. At a microsecond or two
for one, an actor that keeps up has no more than some hundreds."""


class Signal:
    """Base of the runtime's own messages. They are about the actor itself, so that nobody misses one that came late."""

    __slots__ = ()


class MailboxClosed(BaseException):
    """Raised by `Mailbox.get` to end the loop of an actor that was fenced. Never leaves the runtime."""


@final
class Reply(pykka.ThreadingFuture[Any]):
    """The answer to an ask. The first one counts: a fenced actor may still answer long after its asker was told."""

    def set(self, value: Any | None = None) -> None:
        """Answer, unless it was answered before."""
        with contextlib.suppress(queue.Full):
            super().set(value)

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Answer with an exception, unless it was answered before."""
        with contextlib.suppress(queue.Full):
            super().set_exception(exc_info)


@final
class DeadLetters:
    """Counts messages that were told to nobody."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler or a finalizer may come in between
        self.total = 0

    def record(self, receiver: str, message: object) -> None:
        """Count one. Only its type is logged: a message may hold what must not be in a log."""
        with self._lock:
            self.total += 1
        logger.debug("dead letter: receiver=%s message=%s", receiver, type(message).__name__)


class Mailbox:
    """One reader, the actor's own thread; any number of writers; closed once, by whoever is first.

    Closing also claims the right to report the actor's death, so that it is reported exactly once.
    """

    def __init__(self, name: str, clock: Clock, dead_letters: DeadLetters) -> None:
        self.name = name
        self._clock = clock
        self._dead_letters = dead_letters
        self._queue: queue.SimpleQueue[Envelope[Any] | None] = queue.SimpleQueue()
        self._claim = threading.Lock()
        self._warn_at = MANY_WAITING
        self.closed = False
        """No more messages are taken."""
        self.current: Envelope[Any] | None = None
        """What the actor is busy with, None while it waits."""
        self.busy_since: Moment | None = None
        """Since when the actor has been busy with one message, None while it waits."""
        self.high_water = 0
        """The most messages that ever waited, as the reader found it when it took one."""

    @property
    def depth(self) -> int:
        """How many messages wait."""
        return 0 if self.closed else self._queue.qsize()

    def put(self, envelope: Envelope[Any], /) -> None:
        """Take a message, or make sure that its sender or the count of dead letters knows better."""
        self._queue.put(envelope)
        if self.closed:
            self._drain()

    def get(self) -> Envelope[Any]:
        """Wait for the next message. Pykka's loop calls this exactly when the last message is done.

        Raises:
            MailboxClosed: there will be none.
        """
        self.busy_since = None
        self.current = None
        envelope = self._take() if not self.closed else None
        if envelope is None:
            raise MailboxClosed
        if self.closed:
            self._discard(envelope)
            raise MailboxClosed
        self.current = envelope
        self.busy_since = self._clock.monotonic()
        waiting = self._queue.qsize()
        if waiting > self.high_water:
            self._note_depth(waiting)
        return envelope

    def empty(self) -> bool:
        """Whether nothing waits. A closed mailbox is empty, so that Pykka's teardown cannot block on it."""
        return self.depth == 0

    def close(self, *, abandon: bool = False) -> bool:
        """Take no more messages and discard those that wait. True for the first caller only.

        With `abandon`, the one who asked for what the actor is busy with is answered now: the actor may never do it.
        """
        if not self._claim.acquire(blocking=False):  # never released: this is a claim, not a critical section
            return False
        self.closed = True
        self._drain()
        current = self.current
        if abandon and current is not None:
            self._discard(current)
        return True

    def _note_depth(self, waiting: int) -> None:
        """Warn at each doubling. Seen from the reader: `put` may run in a signal handler, where nobody can log."""
        self.high_water = waiting
        if waiting >= self._warn_at:
            logger.warning("an actor falls behind: actor=%s waiting=%d", self.name, waiting)
        while self._warn_at <= waiting:
            self._warn_at *= 2

    def _take(self) -> Envelope[Any] | None:
        """The next message, None to wake up a reader whose mailbox was closed. Test-kits override when to give one."""
        return self._queue.get()

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                envelope = self._queue.get_nowait()
                if envelope is not None:
                    self._discard(envelope)
        self._queue.put(None)

    def _discard(self, envelope: Envelope[Any]) -> None:
        message, reply_to = envelope.message, envelope.reply_to
        if reply_to is not None and isinstance(message, _ActorStop):
            reply_to.set(None)  # it is stopped, which is what was asked for
        elif reply_to is not None:
            error = pykka.ActorDeadError(f"{self.name} ended before it answered {type(message).__name__}")
            reply_to.set_exception((pykka.ActorDeadError, error, None))
        elif not isinstance(message, Signal | _ActorStop):
            self._dead_letters.record(self.name, message)
