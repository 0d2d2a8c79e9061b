"""`Loop`: one thread that runs all actors and timers of a system.

Beside a driver that computes, a thread that is woken waits for the interpreter's lock for 5 to 10 milliseconds (see
`sys.setswitchinterval`), and each change of threads takes the driver more time than most messages do. From one actor of
this thread to the next, a message costs neither.

An actor that blocks holds the others up for two seconds at most: then another thread goes on with them, and the blocked
one finishes its message in its own. No actor may depend on which thread runs it.

If the thread dies, as a trace function or another thread of the program can make it, a new one goes on. Only the actor
that it ran is lost.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

from actors.runtime.clock import SystemClock
from actors.runtime.handle import Lost, Sender, running
from actors.runtime.mailbox import Mailbox, MailboxClosed
from actors.runtime.threads import start_thread
from actors.runtime.timers import TimerHeap
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pykka._envelope import Envelope

    from actors.runtime.actor import Actor
    from actors.runtime.clock import Clock
    from actors.runtime.mailbox import DeadLetters
    from actors.runtime.timers import Entry

__all__ = ["Loop", "at_rest"]

logger = get_logger(__name__)

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at whether the loop still handles the same message: then another thread takes over."""


MOST_TURNS: Final = 100
"""Messages after which the loop does what waits until it rests, although more wait."""


class _Thread(threading.local):
    """Thread-local state."""

    loop: Loop | None = None
    """The loop that this thread runs, if any."""


_thread: Final = _Thread()

_NO_ACTOR: Final = Sender()
"""Sends what callbacks send: the actor that ran before may have been given up, so that its messages are dropped."""


def at_rest(callback: Callable[[], None]) -> None:
    """Call `callback` in this thread: if it runs actors, once no message waits for one, else now.

    For what lets go of the interpreter, such as a write to a socket: beside a driver that computes, the actors get it
    back milliseconds later.
    """
    loop = _thread.loop
    if loop is not None and loop.runs_in_this_thread:
        loop.callbacks.append(callback)
    else:
        callback()


@final
class _LoopMailbox(Mailbox):
    """Tells the loop of each message."""

    def __init__(
        self, name: str, clock: Clock, dead_letters: DeadLetters, ready: queue.SimpleQueue[_LoopMailbox | None]
    ) -> None:
        super().__init__(name, clock, dead_letters)
        self.actor: Actor | None = None
        """None until it is started."""
        self.context = contextvars.copy_context()
        """Of the actor: it shares its thread with others."""
        self.claimed = False
        """The loop runs the actor; see `Handle.claim`."""
        self.missed = 0
        """Messages of which the loop was told while another thread was busy with the actor."""
        self._ready = ready

    def put(self, envelope: Envelope[object], /) -> None:
        """See `Mailbox`, whose steps stand here again: a call of its method would be one more for every message.

        Ctrl-C may interrupt it anywhere: the loop is told all the same, as it can be told once too often. Not of a
        message to an actor that has ended, though: the loop may have ended, too, and would remember each.
        """
        try:
            self._queue.put(envelope)
            if self.closed:
                self._drain()
        finally:
            if not self.closed:
                self._ready.put(self)


@final
class _OneMessage(threading.Event):
    """Lets Pykka's loop end after each message, where it asks whether the actor is to stop."""

    def __init__(self, mailbox: Mailbox) -> None:
        super().__init__()
        self._mailbox = mailbox

    def is_set(self) -> bool:
        """Whether the loop has taken its message."""
        return self._mailbox.current is not None


@final
class Loop:
    """The dispatcher and the timer service of one `ActorSystem`. Its thread lives while an actor does."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._lock = threading.RLock()
        self._ready: queue.SimpleQueue[_LoopMailbox | None] = queue.SimpleQueue()
        """The receiver of each message, oldest message first; None only wakes the loop."""
        self._clock = clock or SystemClock()
        self._timers = TimerHeap(self._clock, self._lock)
        self.callbacks: deque[Callable[[], None]] = deque()
        """To be called when the loop rests; see `at_rest`."""
        self._alive: set[_LoopMailbox] = set()
        """Of the actors that have not ended."""
        self._thread: threading.Thread | None = None
        """The thread that runs the actors now."""
        self._current: _LoopMailbox | None = None
        """Of the actor that this thread runs."""
        self._turn = 0
        """Counts the messages, so that two looks tell whether it is still the same."""
        self._stuck: set[_LoopMailbox] = set()
        """Of the actors that former threads still run."""

    @property
    def runs_in_this_thread(self) -> bool:
        """Whether the calling thread runs the actors, and no other has taken over."""
        return self._thread is threading.current_thread()

    # ── for ActorSystem ──────────────────────────────────────────────────────────────────────────────────────────

    def create_mailbox(self, name: str, clock: Clock, dead_letters: DeadLetters) -> Mailbox:
        """See `Dispatcher`."""
        return _LoopMailbox(name, clock, dead_letters, self._ready)

    def start(self, actor: Actor) -> None:
        """See `Dispatcher`. The first actor starts the thread.

        Raises:
            NoThread: no thread can be started.
        """
        mailbox = actor.actor_inbox
        assert isinstance(mailbox, _LoopMailbox)
        with self._lock:
            if self._thread is None:
                self._start_threads()
            actor.handle.at_end(partial(self._ended, mailbox))
            actor.actor_stopped = _OneMessage(mailbox)
            self._alive.add(mailbox)
            mailbox.actor = actor
        for _ in range(mailbox.depth):  # a message that came before had no actor
            self._ready.put(mailbox)

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> Entry:
        """See `TimerService`. Callbacks run in the loop's thread."""
        entry, is_next = self._timers.add(delay, callback)
        if is_next and not self.runs_in_this_thread:
            self._ready.put(None)
        return entry

    def close(self) -> None:
        """Drop all timers, and later ones. The thread ends with the last actor."""
        self._timers.close()

    # ── the thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _start_threads(self) -> None:
        over = threading.Event()
        start_thread(partial(self._watch, over), "executor-pods/loop-watch")
        try:
            self._start_thread(over)
        except BaseException:
            over.set()
            raise

    def _start_thread(self, over: threading.Event) -> None:
        """Start a thread that goes on with the actors, once it gets the lock, which the caller holds."""
        self._thread = start_thread(partial(self._run, over), "executor-pods/actors")

    def _run(self, over: threading.Event) -> None:
        try:
            self._take_turns(over)
        except BaseException:  # no actor's, no callback's: `_watch` starts another thread
            logger.exception("the actors' thread has failed")

    def _take_turns(self, over: threading.Event) -> None:
        thread, turns = threading.current_thread(), 0
        _thread.loop = self
        with self._lock:  # until who started it is done: from then on, `_thread` changes in a turn or in `_ends` only
            pass
        while self._thread is thread:
            if self._timers.due <= self._clock.monotonic():
                self._call_due()
            if turns == MOST_TURNS or self._ready.empty():
                turns, mailbox = 0, self._rest(over)
            else:
                turns, mailbox = turns + 1, self._ready.get()
            if mailbox is not None:
                self._turn_of(mailbox, thread)
            mailbox = None  # it may hold much memory, and the next wait may be long
        self._ready.put(None)  # the thread that goes on, if any, does what was to be done when this one rests

    def _turn_of(self, mailbox: _LoopMailbox, thread: threading.Thread) -> None:
        """Have an actor handle its next message, if it can.

        The start takes no lock: the watch takes over only while `_current` is set, so `_stuck` grows only after that.
        """
        if self._stuck and self._missed(mailbox):
            return
        actor = mailbox.actor
        if actor is None or not mailbox.waiting() or not (mailbox.claimed or actor.handle.claim()):
            return
        mailbox.claimed = True
        self._turn += 1  # first: the watch would take a message with the old number for the one before
        self._current = mailbox
        actor.handle.thread = thread
        running.sender = actor.handle
        try:
            mailbox.context.run(actor._actor_loop_running)  # noqa: SLF001 - Pykka's own loop
        except MailboxClosed:
            pass
        except BaseException as error:  # of the runtime itself: what the actor raises ends within its loop
            logger.exception("the loop of an actor failed: actor=%s", mailbox.name)
            _give_up(mailbox, error)
        mailbox.busy_since = mailbox.current = None
        with self._lock:
            if self._thread is thread:
                self._current = None
                return
            self._stuck.discard(mailbox)
            missed, mailbox.missed = mailbox.missed, 0
        for _ in range(missed):
            self._ready.put(mailbox)

    def _missed(self, mailbox: _LoopMailbox) -> bool:
        """Whether a former thread is busy with the actor. If so, that thread puts the message back."""
        with self._lock:
            if mailbox not in self._stuck:
                return False
            mailbox.missed += 1
            return True

    def _call_due(self) -> None:
        callback = self._timers.take()
        if callback is not None:
            _call(callback)

    def _rest(self, over: threading.Event) -> _LoopMailbox | None:
        """Do what waits for this, then return the receiver of the next message; None after the last actor, too.

        What begins to wait meanwhile is done at the next rest, after the messages that wait.
        """
        ends = not self._alive and self._ends(over)
        for _ in range(len(self.callbacks)):
            with suppress(IndexError):  # another thread may have begun meanwhile, and take some
                _call(self.callbacks.popleft())
        return None if ends or self.callbacks else self._next()

    def _next(self) -> _LoopMailbox | None:
        """Wait for a message and return its receiver; None if a timer is due before."""
        try:
            return self._ready.get(timeout=self._timers.wait())
        except queue.Empty:
            return None

    def _ends(self, over: threading.Event) -> bool:
        """End the thread if there are no actors. Return whether it ends."""
        with self._lock:
            if self._alive:
                return False
            self._thread = None
            over.set()
            return True

    def _ended(self, mailbox: _LoopMailbox) -> None:
        with self._lock:
            self._alive.discard(mailbox)
            mailbox.actor = None  # its state can be freed
        self._ready.put(None)

    # ── the watch ────────────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self, over: threading.Event) -> None:
        turn = 0
        while not over.wait(LOOK_EVERY):
            with self._lock:
                lost = self._current
                is_dead = self._thread is not None and not self._thread.is_alive() and self._go_on(over)
                if not is_dead and self._current is not None and self._turn == turn:
                    self._take_over(self._current, over)
                turn = self._turn
            if is_dead and lost is not None:
                _give_up(lost, Lost(f"the thread that ran {lost.name} has died"))

    def _go_on(self, over: threading.Event) -> bool:
        """Start a thread in place of a dead one. Return whether that was possible: if not, the next look tries."""
        try:
            self._start_thread(over)
        except RuntimeError as error:
            logger.warning("no thread for the actors, whose last one has failed: error=%s", error)
            return False
        self._current = None
        for mailbox in self._alive:
            for _ in range(mailbox.depth):  # the loop was told of each, but may have taken one and not handled it
                self._ready.put(mailbox)
        return True

    def _take_over(self, blocked: _LoopMailbox, over: threading.Event) -> None:
        try:
            self._start_thread(over)
        except RuntimeError as error:
            logger.warning("no thread for the actors beside one that blocks: actor=%s error=%s", blocked.name, error)
            return
        logger.debug("the other actors go on in another thread: actor=%s", blocked.name)
        self._stuck.add(blocked)
        self._current = None


def _give_up(mailbox: _LoopMailbox, cause: BaseException) -> None:
    """End an actor within whose message its loop has failed. Between two messages, nothing is lost."""
    actor, running.sender = mailbox.actor, _NO_ACTOR
    if actor is not None and mailbox.current is not None:
        actor.handle.end(cause, abandon=True)


def _call(callback: Callable[[], None]) -> None:
    running.sender = _NO_ACTOR
    try:
        callback()
    except BaseException:
        logger.exception("callback failed")
