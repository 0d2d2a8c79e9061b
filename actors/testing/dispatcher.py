"""One message at a time, in an order that a test can repeat.

Pykka's loop calls `inbox.get()` exactly when the last message is done, so a mailbox can hold its actor there until it
is granted one. With threads, each actor parks on a semaphore of its own (one shared condition would wake up every actor
for every message). Without, the same loop is run in the caller's thread and left by an exception where it would park.
Both give the same trace.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

from actors.runtime.mailbox import Mailbox, MailboxClosed
from actors.runtime.timers import TimerDue

if TYPE_CHECKING:
    from pykka._envelope import Envelope

    from actors.runtime import Actor, Clock
    from actors.runtime.mailbox import DeadLetters

__all__ = ["Runaway", "SerialDispatcher"]

RUNAWAY_AFTER: Final = 500_000
"""Messages without the clock moving: a fleet of thousands needs some ten thousands in one moment."""

LAST_LINES: Final = 30
"""Of the trace, to see who goes round in circles."""

STUCK_AFTER: Final = 120.0
"""Seconds of real time for one message: only a handler that blocks takes that long, and then the test must end."""


class Runaway(AssertionError):  # noqa: N818 - reads as what happened
    """Messages beget messages without end."""


@final
class _GrantedMailbox(Mailbox):
    """Gives its actor a message only when it was granted one."""

    def __init__(self, name: str, clock: Clock, dead_letters: DeadLetters, dispatcher: SerialDispatcher) -> None:
        super().__init__(name, clock, dead_letters)
        self._dispatcher = dispatcher
        self.granted = threading.Semaphore(0)
        self.parked = threading.Semaphore(0)
        self.may_take = False
        """Granted, where there are no threads."""
        self.waiting = self._queue.qsize
        """How many messages wait: without the detour over `depth`, as it is asked of each actor for each message."""

    def put(self, envelope: Envelope[Any], /) -> None:
        self._dispatcher.arrived.append(self)
        super().put(envelope)

    def close(self, *, abandon: bool = False) -> bool:
        first = super().close(abandon=abandon)
        if self._dispatcher.threads:
            self.granted.release()  # lets an actor that is parked find out
        return first

    def _take(self) -> Envelope[Any] | None:
        if self._dispatcher.threads:
            self.parked.release()
            self.granted.acquire()
        elif not self.may_take:
            raise MailboxClosed  # there is no thread to park: leave the loop, to come back with the next grant
        self.may_take = False
        envelope = super()._take()
        if envelope is not None:
            self._dispatcher.note(self.name, envelope.message)
        return envelope


@final
class SerialDispatcher:
    """Grants the mailbox with the oldest message; with a seed, any mailbox that has one, as the seed has it.

    Messages from one sender to one receiver stay in order either way, because every mailbox does.
    """

    def __init__(self, seed: int | None = None, *, threads: bool = True, runaway_after: int = RUNAWAY_AFTER) -> None:
        self.threads = threads
        self.trace: list[str] = []
        """What was granted, one line a message: when, to whom, of which type."""
        self.arrived: deque[_GrantedMailbox] = deque()
        """The receiver of each message that was put, oldest first."""
        self._random = random.Random(seed) if seed is not None else None  # noqa: S311 - repeatable is the point
        self._actors: dict[_GrantedMailbox, Actor] = {}
        self._clock: Clock | None = None
        self._settling = False
        self._runaway_after = runaway_after
        self._quiet_since = (0.0, 0)
        """The moment of the last message, and how many were granted before it."""

    # ── for ActorSystem ──────────────────────────────────────────────────────────────────────────────────────────

    def create_mailbox(self, name: str, clock: Clock, dead_letters: DeadLetters) -> Mailbox:
        """One that waits for grants."""
        self._clock = clock
        return _GrantedMailbox(name, clock, dead_letters, self)

    def start(self, actor: Actor) -> None:
        """Run the actor up to where it waits for its first message."""
        mailbox = actor.handle.mailbox
        assert isinstance(mailbox, _GrantedMailbox)
        self._forget_the_dead()
        self._actors[mailbox] = actor
        if not self.threads:
            actor._actor_loop_setup()  # noqa: SLF001 - Pykka's loop in three steps
            return

        def run() -> None:
            actor.handle.bind_thread()
            try:
                with contextlib.suppress(MailboxClosed):
                    actor._actor_loop()  # noqa: SLF001 - Pykka's own body of an actor's thread
            finally:
                mailbox.parked.release()

        thread = threading.Thread(target=run, name=f"executor-pods/{actor.context.label}", daemon=True)
        actor.handle.thread = thread
        thread.start()
        self._await_parked(mailbox)

    def leave_behind(self) -> None:
        """Said by an actor's own thread that is about to block, as a hanging one does: the rest goes on without it."""
        assert self.threads, "without threads everybody would hang"
        (mailbox,) = [m for m, actor in self._actors.items() if actor.handle.thread is threading.current_thread()]
        del self._actors[mailbox]
        mailbox.parked.release()

    # ── for tests ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Those that live, in the order they were started."""
        self._forget_the_dead()
        return tuple(self._actors.values())

    def settle(self) -> None:
        """Grant message after message until none is left.

        Raises:
            Runaway: there is no end to it.
        """
        if self._settling:
            raise RuntimeError("settle() was called from within an actor")
        self._settling = True
        try:
            while (mailbox := self._next()) is not None:
                self._grant(mailbox)
        finally:
            self._settling = False

    def note(self, name: str, message: object) -> None:
        """Add a line to the trace; a timer's message is named after what the timer brings."""
        assert self._clock is not None
        moment = self._clock.monotonic()
        timer = isinstance(message, TimerDue)
        kind = type(message.message if isinstance(message, TimerDue) else message).__name__
        self.trace.append(f"{moment:.6f} {name} <- {'timer ' if timer else ''}{kind}")
        if moment != self._quiet_since[0]:
            self._quiet_since = (moment, len(self.trace))

    def _next(self) -> _GrantedMailbox | None:
        if len(self.trace) - self._quiet_since[1] > self._runaway_after:
            lines = "\n".join(self.trace[-LAST_LINES:])
            self._quiet_since = (self._quiet_since[0], len(self.trace))  # so that the kit can still be closed
            raise Runaway(f"{self._runaway_after} messages without the clock moving, the last ones:\n{lines}")
        if self._random is not None:
            self.arrived.clear()
            waiting = [mailbox for mailbox in self._actors if mailbox.waiting() and not mailbox.closed]
            return self._random.choice(waiting) if waiting else None
        while self.arrived:
            mailbox = self.arrived.popleft()
            if mailbox.depth and mailbox in self._actors:
                return mailbox
        return None

    def _grant(self, mailbox: _GrantedMailbox) -> None:
        actor = self._actors[mailbox]
        if self.threads:
            mailbox.granted.release()
            self._await_parked(mailbox)
            if mailbox.closed and actor.handle.thread is not None:
                actor.handle.thread.join(STUCK_AFTER)  # it has nothing left to do, and then nobody finds it running
            return
        mailbox.may_take = True
        with contextlib.suppress(MailboxClosed):
            actor._actor_loop_running()  # noqa: SLF001 - Pykka's loop in three steps
        if mailbox.closed:
            actor._actor_loop_teardown()  # noqa: SLF001 - Pykka's loop in three steps

    def _await_parked(self, mailbox: _GrantedMailbox) -> None:
        if not mailbox.parked.acquire(timeout=STUCK_AFTER):
            raise AssertionError(f"{mailbox.name} blocks on a message: {mailbox.current!r}")

    def _forget_the_dead(self) -> None:
        for mailbox in [mailbox for mailbox in self._actors if mailbox.closed]:
            del self._actors[mailbox]
