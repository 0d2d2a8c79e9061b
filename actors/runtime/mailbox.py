"""`Mailbox`: Pykka's inbox, made to close atomically.

In Pykka's own queue, a message that arrives between the actor's last read and its end is never answered. Here a closed
mailbox answers an `ask` with `ActorDeadError` and counts a `tell` as a dead letter.

`put` takes no lock, and not for speed alone: a signal handler or a finalizer may send a message while the same thread
is inside `put`. `queue.SimpleQueue` allows that, a lock does not. Instead, `put` checks for `closed` after queueing,
and `close` drains the queue after closing: whichever comes second finds the message.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, Final, final

import pykka
from pykka.messages import _ActorStop

from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka._envelope import Envelope
    from pykka._types import OptExcInfo

    from actors.runtime.clock import Clock, Moment

__all__ = ["DeadLetters", "Mailbox", "MailboxClosed", "Reply", "Signal"]

logger = get_logger(__name__)

MANY_WAITING: Final = 10_000
"""Waiting messages from which a warning is logged: the actor is too slow. A message takes one or two microseconds, so
an actor that keeps up has some hundreds at most."""


class Signal:
    """Base class of the runtime's own messages. They concern the actor alone, so a late one is no dead letter."""

    __slots__ = ()


class MailboxClosed(BaseException):
    """Raised by `Mailbox.get` to end the loop of a fenced actor. Never leaves the runtime."""


@final
class Reply(pykka.ThreadingFuture[Any]):
    """The future of an `ask`. The first answer counts: a fenced actor may answer long after the caller got an error."""

    def __init__(self) -> None:
        super().__init__()
        self.is_set = False
        """Whether there is an answer: `get` returns at once."""
        self._callback: Callable[[], None] | None = None

    def when_set(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the answering thread once there is an answer. If there is one, `is_set` says so."""
        self._callback = callback

    def set(self, value: Any | None = None) -> None:
        """Answer, unless there is an answer."""
        with contextlib.suppress(queue.Full):
            super().set(value)
            self._answered()

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Answer with an exception, unless there is an answer."""
        with contextlib.suppress(queue.Full):
            super().set_exception(exc_info)
            self._answered()

    def _answered(self) -> None:
        self.is_set = True
        if self._callback is not None:
            self._callback()


@final
class DeadLetters:
    """Counts messages to dead actors."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant for signal handlers and finalizers
        self.total = 0

    def __reduce__(self) -> tuple[Callable[[int], DeadLetters], tuple[int]]:
        """Pickle the number."""
        return DeadLetters.of, (self.total,)

    @classmethod
    def of(cls, total: int) -> DeadLetters:
        """Return a counter that has counted so many."""
        letters = cls()
        letters.total = total
        return letters

    def record(self, receiver: str, message: object) -> None:
        """Count one message. Only its type is logged, because its content may be secret."""
        with self._lock:
            self.total += 1
        logger.debug("dead letter: receiver=%s message=%s", receiver, type(message).__name__)


class Mailbox:
    """Read by the actor's thread, written by any thread, closed once.

    The first caller of `close` also gets the right to report the actor's end, so that it is reported exactly once.
    """

    def __init__(self, name: str, clock: Clock, dead_letters: DeadLetters) -> None:
        self.name = name
        self._clock = clock
        self._dead_letters = dead_letters
        self._queue: queue.SimpleQueue[Envelope[Any] | None] = queue.SimpleQueue()
        self.waiting = self._queue.qsize
        """Return the number of queued messages. Faster than `depth`: called for each message."""
        self._claim = threading.Lock()
        self._warn_at = MANY_WAITING
        self.closed = False
        """Whether messages are refused."""
        self.current: Envelope[Any] | None = None
        """The message that the actor handles now; None while it waits."""
        self.busy_since: Moment | None = None
        """When the actor started to handle `current`; None while it waits."""
        self.high_water = 0
        """The most messages that ever waited, counted whenever the reader takes one."""

    @property
    def depth(self) -> int:
        """How many messages wait."""
        return 0 if self.closed else self.waiting()

    def put(self, envelope: Envelope[Any], /) -> None:
        """Queue a message. If the mailbox is closed, answer it with an error or count it as a dead letter."""
        self._queue.put(envelope)
        if self.closed:
            self._drain()

    def get(self) -> Envelope[Any]:
        """Wait for the next message. Pykka's loop calls this only when the last message is done.

        Raises:
            MailboxClosed: the mailbox is closed.
        """
        self.busy_since = None
        self.current = None
        envelope = self._queue.get() if not self.closed else None
        if envelope is None:
            raise MailboxClosed
        if self.closed:
            self._discard(envelope)
            raise MailboxClosed
        self.current = envelope
        self.busy_since = self._clock.monotonic()
        waiting = self.waiting()
        if waiting > self.high_water:
            self._note_depth(waiting)
        return envelope

    def empty(self) -> bool:
        """Whether no message waits. A closed mailbox is empty, so that Pykka's teardown cannot block on it."""
        return self.depth == 0

    def close(self, *, abandon: bool = False) -> bool:
        """Refuse new messages and discard the waiting ones. Return True for the first caller only.

        With `abandon`, also answer the message that the actor handles now, because the actor may never do so.
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
        """Record a new high water mark and warn at each doubling. The reader does it: a signal handler cannot log."""
        self.high_water = waiting
        if waiting >= self._warn_at:
            logger.warning("actor falls behind: actor=%s waiting=%d", self.name, waiting)
        while self._warn_at <= waiting:
            self._warn_at *= 2

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
            reply_to.set(None)  # the actor is stopped, as asked
        elif reply_to is not None:
            error = pykka.ActorDeadError(f"{self.name} ended before it answered {type(message).__name__}")
            reply_to.set_exception((pykka.ActorDeadError, error, None))
        elif not isinstance(message, Signal | _ActorStop):
            self._dead_letters.record(self.name, message)
