"""`SerialDispatcher`: handles one message at a time, in an order that a test can repeat.

Pykka's loop calls `inbox.get()` exactly when the last message is done, so a mailbox can hold its actor there until the
dispatcher grants it a message. With threads, each actor parks on its own semaphore (a shared condition would wake every
actor for every message). Without threads, the loop runs in the caller's thread, and an exception leaves it where it
would park. Both give the same trace.

An answer that comes from one of these mailboxes is waited for by running the actors, whoever asks: nobody else would.
"""

from __future__ import annotations

import contextlib
import contextvars
import random
import threading
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, final

from pykka import ActorRegistry

from actors.runtime import Actor, Hung, StoppedByHost, Timeout
from actors.runtime.handle import running
from actors.runtime.mailbox import Mailbox, MailboxClosed
from actors.runtime.timers import TimerDue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pykka import ThreadingActor, ThreadingFuture
    from pykka._envelope import Envelope

    from actors.runtime import Clock
    from actors.runtime.mailbox import DeadLetters

__all__ = ["Crash", "GrantedMailbox", "NotInVirtualTime", "Runaway", "SerialDispatcher"]

RUNAWAY_AFTER: Final = 500_000
"""Messages at one moment. A fleet of thousands needs some ten thousand."""

LAST_LINES: Final = 30
"""Lines of the trace in the error, to see which actors send messages in a circle."""

LONGEST_TIMEOUT: Final = 24 * 60 * 60.0
"""Seconds of virtual time. Who waits longer for an answer has no limit in mind."""

STUCK_AFTER: Final = 120.0
"""Seconds of real time for one message. Only a handler that blocks takes that long."""


class Runaway(AssertionError):  # noqa: N818 - reads as what happened
    """Actors send messages without end."""


class NotInVirtualTime(AssertionError):  # noqa: N818 - reads as what happened
    """A program does what cannot happen in virtual time: the message says what, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Crash:
    """An actor ended with an exception."""

    actor: str
    cause: BaseException

    def __str__(self) -> str:
        return f"{self.actor}: {self.cause!r}"


@final
class GrantedMailbox(Mailbox):
    """Gives its actor a message only when the dispatcher grants one."""

    def __init__(self, name: str, clock: Clock, dead_letters: DeadLetters, dispatcher: SerialDispatcher) -> None:
        super().__init__(name, clock, dead_letters)
        self.dispatcher = dispatcher
        self.granted = threading.Semaphore(0)
        self.parked = threading.Semaphore(0)
        self.may_take = False
        """Whether a message is granted, without threads."""

    def put(self, envelope: Envelope[Any], /) -> None:
        """See `Mailbox`."""
        if envelope.reply_to is not None:
            self.dispatcher.await_by_running(self, envelope)
        self.dispatcher.arrived.append(self)
        super().put(envelope)

    def close(self, *, abandon: bool = False) -> bool:
        """See `Mailbox`."""
        first = super().close(abandon=abandon)
        if self.dispatcher.threads:
            self.granted.release()  # wakes a parked actor, which then sees the end
        return first

    def get(self) -> Envelope[Any]:
        """See `Mailbox`. Wait for a grant before."""
        self.busy_since = self.current = None
        if not self.closed:
            self._await_grant()
        envelope = super().get()
        self.dispatcher.note(self.name, envelope.message)
        return envelope

    def _await_grant(self) -> None:
        if self.dispatcher.threads:
            self.parked.release()
            self.granted.acquire()
        elif not self.may_take:
            raise MailboxClosed  # no thread to park: leave the loop until the next grant
        self.may_take = False


@final
class SerialDispatcher:
    """Grants the mailbox with the oldest message; with a seed, a random mailbox that has one.

    Messages from one sender to one receiver stay in order either way, as each mailbox keeps its order.
    """

    def __init__(self, seed: int | None = None, *, threads: bool = True, runaway_after: int = RUNAWAY_AFTER) -> None:
        self.threads = threads
        self.wait: Callable[[Callable[[], bool], timedelta | None], bool] | None = None
        """Waits for a predicate in virtual time, outside of actors; the kit sets it."""
        self.crashes: list[Crash] = []
        """The actors that crashed so far, in order."""
        self.trace: list[str] = []
        """One line per granted message: the moment, the receiver and the type."""
        self.arrived: deque[GrantedMailbox] = deque()
        """The receiver of each message, oldest message first."""
        self._random = random.Random(seed) if seed is not None else None  # noqa: S311 - repeatable is the point
        self._actors: dict[GrantedMailbox, ThreadingActor] = {}
        self._contexts: dict[GrantedMailbox, contextvars.Context] = {}
        """Of each actor: without a thread of its own, it would change those of whoever runs it."""
        self._running: list[GrantedMailbox] = []
        """The actors that handle a message now: several if one waits for the answer of the next."""
        self._paused: set[Mailbox] = set()
        self._arrived_paused: list[GrantedMailbox] = []
        self._clock: Clock | None = None
        self._settling = False
        self._runaway_after = runaway_after
        self._quiet_since = (0.0, 0)
        """The moment of the last message, and the number of messages before that moment."""

    # ── for ActorSystem ──────────────────────────────────────────────────────────────────────────────────────────

    def create_mailbox(self, name: str, clock: Clock, dead_letters: DeadLetters) -> Mailbox:
        """Return a mailbox that waits for grants."""
        self._clock = clock
        return GrantedMailbox(name, clock, dead_letters, self)

    def start(self, actor: ThreadingActor) -> None:
        """Start the actor and run it until it waits for its first message. With threads, only our own actors."""
        mailbox = actor.actor_inbox
        assert isinstance(mailbox, GrantedMailbox)
        self._forget_the_dead()
        self._actors[mailbox] = actor
        if not self.threads:
            context = self._contexts[mailbox] = contextvars.copy_context()
            self._running.append(mailbox)
            try:
                context.run(actor._actor_loop_setup)  # noqa: SLF001 - Pykka's loop in three steps
            finally:
                self._running.pop()
            if actor.actor_stopped.is_set():  # it failed
                self._ended(actor, mailbox)
            return
        assert isinstance(actor, Actor)

        def run() -> None:
            running.sender = actor.handle
            try:
                with contextlib.suppress(MailboxClosed):
                    actor._actor_loop()  # noqa: SLF001 - Pykka's own body of an actor's thread
            finally:
                mailbox.parked.release()

        name, inherited = f"executor-pods/{actor.context.label}", contextvars.copy_context()
        thread = threading.Thread(target=inherited.run, args=(run,), name=name, daemon=True)
        actor.handle.thread = thread
        thread.start()
        self._await_parked(mailbox)

    def leave_behind(self) -> None:
        """Continue without the actor that calls this. For an actor whose thread is about to hang."""
        assert self.threads, "without threads every actor would hang"
        (mailbox,) = [m for m, actor in self._own() if actor.handle.thread is threading.current_thread()]
        del self._actors[mailbox]
        mailbox.parked.release()

    # ── for tests ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def actors(self) -> tuple[Actor, ...]:
        """The live actors of this library, in the order of their start."""
        self._forget_the_dead()
        return tuple(actor for _, actor in self._own())

    @property
    def everyone(self) -> tuple[ThreadingActor, ...]:
        """The live actors, also those of the host, in the order of their start."""
        self._forget_the_dead()
        return tuple(self._actors.values())

    @property
    def running(self) -> str | None:
        """The name of the actor that handles a message now."""
        return self._running[-1].name if self._running else None

    def abandon(self) -> None:
        """End all actors that are left, the last started first, and those that they start meanwhile."""
        while everyone := self.everyone:
            for actor in reversed(everyone):
                if isinstance(actor, Actor):
                    actor.handle.end(StoppedByHost("the test is over"), abandon=True)
                else:
                    ActorRegistry.unregister(actor.actor_ref)
                    actor.actor_stopped.set()
                    actor.actor_inbox.close()  # type: ignore[attr-defined]  # it is a GrantedMailbox

    def pause(self, actors: Iterable[ThreadingActor]) -> None:
        """Grant these actors nothing until `resume`, as if their process were stopped. Their messages wait."""
        paused = set(actors)
        self._paused.update(mailbox for mailbox, actor in self._actors.items() if actor in paused)

    def resume(self) -> None:
        """Grant every actor again what waits for it."""
        self._paused.clear()
        self.arrived.extend(self._arrived_paused)
        self._arrived_paused.clear()

    def settle(self) -> None:
        """Grant messages until none is left.

        Raises:
            Runaway: the messages do not end.
        """
        if self._settling or self._running:
            raise RuntimeError("settle() was called from within an actor")
        self._settling = True
        try:
            while (mailbox := self._next()) is not None:
                self._grant(mailbox)
        finally:
            self._settling = False

    def await_by_running(self, mailbox: GrantedMailbox, envelope: Envelope[Any]) -> None:
        """Make whoever waits for the answer to this message run the actors meanwhile."""
        future: ThreadingFuture[Any] | None = envelope.reply_to  # type: ignore[assignment]  # Pykka has no other
        assert future is not None
        get = future.get

        def is_answered() -> bool:
            return future._result is not None  # noqa: SLF001 - Pykka has no other sign

        def wait(*, timeout: float | None = None) -> Any:
            if not is_answered():
                self._run_until(is_answered, mailbox, envelope, timeout)
            if not is_answered() and timeout is not None:
                raise Timeout(f"{timeout} seconds")
            return get(timeout=timeout)

        future.get = wait  # type: ignore[method-assign]  # Pykka's hook for this refuses a later answer

    def note(self, name: str, message: object) -> None:
        """Add a line to the trace. A timer's message has the name of its content."""
        assert self._clock is not None
        moment = self._clock.monotonic()
        timer = isinstance(message, TimerDue)
        kind = type(message.message if isinstance(message, TimerDue) else message).__name__
        self.trace.append(f"{moment:.6f} {name} <- {'timer ' if timer else ''}{kind}")
        if moment != self._quiet_since[0]:
            self._quiet_since = (moment, len(self.trace))

    def _next(self) -> GrantedMailbox | None:
        if len(self.trace) - self._quiet_since[1] > self._runaway_after:
            lines = "\n".join(self.trace[-LAST_LINES:])
            self._quiet_since = (self._quiet_since[0], len(self.trace))  # lets the kit close
            raise Runaway(f"{self._runaway_after} messages at one moment, the last ones:\n{lines}")
        if self._random is not None:
            self.arrived.clear()
            paused = self._paused
            waiting = [m for m in self._actors if m.waiting() and not m.closed and m not in paused]
            return self._random.choice(waiting) if waiting else None
        while self.arrived:
            mailbox = self.arrived.popleft()
            if mailbox in self._paused:
                self._arrived_paused.append(mailbox)
            elif mailbox.depth and mailbox in self._actors:
                return mailbox
        return None

    def _run_until(
        self, is_answered: Callable[[], bool], mailbox: GrantedMailbox, envelope: Envelope[Any], timeout: float | None
    ) -> None:
        """Run the actors until an answer is there or the time is over.

        Within an actor, only the one that was asked runs, with the messages that it has: time stands still.
        """
        if not self._running:
            if self.wait is not None:
                endless = timeout is None or timeout > LONGEST_TIMEOUT
                self.wait(is_answered, None if endless else timedelta(seconds=timeout or 0))
            return
        if timeout == 0:
            return
        while not is_answered() and mailbox.depth and mailbox not in {*self._running, *self._paused}:
            self._grant(mailbox)
        if not is_answered():
            raise NotInVirtualTime(
                f"{self.running} waits until {mailbox.name} answers {type(envelope.message).__name__}. "
                f"It does not while {self.running} waits: in a Kit, one actor runs at a time"
            )

    def _own(self) -> Iterator[tuple[GrantedMailbox, Actor]]:
        return ((mailbox, actor) for mailbox, actor in self._actors.items() if isinstance(actor, Actor))

    def _grant(self, mailbox: GrantedMailbox) -> None:
        actor = self._actors[mailbox]
        self._running.append(mailbox)
        try:
            if self.threads:
                mailbox.granted.release()
                self._await_parked(mailbox)
            else:
                mailbox.may_take = True
                with contextlib.suppress(MailboxClosed):
                    self._contexts[mailbox].run(actor._actor_loop_running)  # noqa: SLF001 - as above
        finally:
            self._running.pop()
        if actor.actor_stopped.is_set():
            self._ended(actor, mailbox)

    def _ended(self, actor: ThreadingActor, mailbox: GrantedMailbox) -> None:
        mailbox.close()  # an actor of the host leaves it open
        if not isinstance(actor, Actor):
            return
        cause = actor.handle.cause
        if cause is not None and not isinstance(cause, StoppedByHost | Hung):
            self.crashes.append(Crash(actor.name, cause))
        if actor.handle.thread is not None:
            actor.handle.thread.join(STUCK_AFTER)  # it must not be found running

    def _await_parked(self, mailbox: GrantedMailbox) -> None:
        if not mailbox.parked.acquire(timeout=STUCK_AFTER):
            raise AssertionError(f"{mailbox.name} blocks on a message: {mailbox.current!r}")

    def _forget_the_dead(self) -> None:
        for mailbox in [mailbox for mailbox in self._actors if mailbox.closed]:
            del self._actors[mailbox]
            self._contexts.pop(mailbox, None)
