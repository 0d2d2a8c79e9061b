"""`Kit`: all that a test of actors needs, wired together."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, final

from actors.runtime import ActorSystem, Address, Entropy, Timeout, installed
from actors.testing import hosting
from actors.testing.dispatcher import RUNAWAY_AFTER, Crash, NotInVirtualTime, SerialDispatcher
from actors.testing.event_loop import run
from actors.testing.manual import ManualClock, ManualTimers
from actors.testing.probe import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from actors.runtime import Actor, ActorRef, Context
    from actors.testing.hosting import A

__all__ = ["Kit"]

R = TypeVar("R")

DEFAULT_SEED: Final = 0
"""The seed of jitter and names when messages are handled oldest first: every run of a test is the same."""

THREAD_ENDS_WITHIN: Final = 10.0
"""Seconds of real time to wait for a thread without work."""

LONGEST_WAIT: Final = timedelta(hours=1)
"""Virtual time that a wait without a limit may take. A fleet always has a timer: without this, such a wait would never
end. An hour of a fleet takes about two seconds."""


@final
class Kit:
    """A system of actors that the test runs step by step. Use it as a context manager, or `close` it.

    As a context manager it is *open*: a Backend that gets no system runs on this one, and so do the Pykka actors that
    the host starts. What they cannot do in virtual time raises `NotInVirtualTime`: see `actors.testing.hosting`.

    Args:
        seed: of the order of messages across mailboxes, and of all entropy of the actors. None: oldest message first.
        threads: run each actor in a thread, as in production; otherwise all run in the caller's, which is faster.
        runaway_after: the number of messages at one moment that is an error.
    """

    def __init__(self, seed: int | None = None, *, threads: bool = False, runaway_after: int = RUNAWAY_AFTER) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.entropy = Entropy(DEFAULT_SEED if seed is None else seed)
        self.dispatcher = SerialDispatcher(seed, threads=threads, runaway_after=runaway_after)
        self.dispatcher.wait = self.wait_until
        self.system = ActorSystem(
            self.clock, self.timers, self.entropy, self.dispatcher, wait=self.wait_until, connect=_no_cluster
        )
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(installed(self.system))
        if not self.dispatcher.threads:
            self._open.enter_context(hosting.hosted(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._open:
            if error is None:
                self.close()
                self._check()
            else:
                self._abandon()

    @property
    def crashes(self) -> list[Crash]:
        """The actors that ended with an exception, in order. A test takes out those that it expects: `crashes.clear()`.

        The end of the `with` block fails if there is one left.
        """
        return self.dispatcher.crashes

    @property
    def trace(self) -> list[str]:
        """Every handled message, in order, to compare two runs."""
        return self.dispatcher.trace

    def spawn(self, factory: Callable[[Context], Actor], *, name: str, owner: Address | None = None) -> Address:
        """Start an actor, and settle."""
        address = self.system.spawn(factory, name=name, owner=owner)
        self.settle()
        return address

    def start(self, actor: type[A], *args: Any, **kwargs: Any) -> A:
        """Start an actor of the host, as `actor.start(*args, **kwargs)` does, and return the actor itself, not its ref.

        While the kit is open, all plain Pykka actors that are started run in the kit.
        """
        started = hosting.start(actor, *args, **kwargs)
        self.settle()
        return started

    def probe(self, name: str = "driver") -> Probe:
        """Start a probe of this name."""
        made: list[Probe] = []

        def make(context: Context) -> Probe:
            made.append(Probe(context))
            return made[0]

        self.spawn(make, name=name)
        return made[0]

    def address(self, name: str) -> Address:
        """Return the address of the actor of this name; of several, the one started last."""
        for actor in reversed(self.dispatcher.actors):
            if actor.name == name:
                return actor.address
        raise LookupError(f"there is no actor {name!r}, only {[actor.name for actor in self.dispatcher.actors]}")

    def settle(self) -> None:
        """Handle all messages, and those that follow from them, while the clock stands still."""
        self.dispatcher.settle()

    def advance(self, by: timedelta = timedelta(0), /, **more: float) -> None:
        """Move the clock from timer to timer, settling after each: `advance(minutes=1)`, or a `timedelta`."""
        self.settle()
        target = self.clock.elapsed + by + timedelta(**more)
        while (due := self.timers.next_due()) is not None and due <= target:
            self.timers.fire_next()
            self.settle()
        self.clock.move_to(target)

    def after(self, call: Callable[[], object], by: timedelta = timedelta(0), /, **more: float) -> None:
        """Call a function at a later moment, while a program runs: `after(call, seconds=30)`, or a `timedelta`."""

        def due() -> None:
            call()

        self.timers.schedule(by + timedelta(**more), due)

    def wait_until(self, predicate: Callable[[], bool], timeout: timedelta | None = None) -> bool:
        """Let virtual time pass, from timer to timer, until `predicate()` holds. Return whether it does at `timeout`.

        Raises:
            AssertionError: without `timeout`, nothing is left to happen, or an hour has passed.
        """
        self.settle()
        begun = self.clock.elapsed
        while not predicate():
            due = self.timers.next_due()
            if timeout is not None and (due is None or due > begun + timeout):
                self.clock.move_to(max(begun + timeout, self.clock.elapsed))
                return predicate()
            if due is None:
                raise AssertionError("this wait never ends: no message is under way and no timer is scheduled any more")
            if timeout is None and due > begun + LONGEST_WAIT:
                raise AssertionError(f"this wait has lasted {LONGEST_WAIT} of virtual time: give it a timeout")
            self.timers.fire_next()
            self.settle()
        return True

    def run(self, program: Coroutine[Any, Any, R]) -> R:
        """Run an asyncio program to its end, in virtual time: `asyncio.sleep(3600)` takes none of ours.

        Work for other threads (`asyncio.to_thread`) is done at once, in this thread. Sockets and processes are refused.

        Raises:
            AssertionError: the program waits for what never happens; the message says where.
            NotInVirtualTime: raised in the program, which uses a socket, a pipe or a process.
        """
        return run(program, self)

    def ask(self, receiver: Address | ActorRef[Any], message: object) -> Any:
        """Ask, settle, and return the reply, or raise the receiver's exception."""
        future = receiver.request(message) if isinstance(receiver, Address) else receiver.ask(message, block=False)
        self.settle()
        try:
            return future.get(timeout=0)
        except Timeout:
            raise AssertionError(f"{receiver} gave no reply to {message!r}") from None

    def close(self) -> None:
        """Stop all actors, the last started first. Ends an actor that does not stop."""
        try:
            for actor in reversed(self.dispatcher.everyone):
                actor.stop()
            self.settle()
        finally:
            self._abandon()

    def _check(self) -> None:
        if self.crashes:
            which = "\n".join(f"  {crash}" for crash in self.crashes)
            text = f"actors crashed; a test that expects them takes them out of kit.crashes:\n{which}"
            raise AssertionError(text) from self.crashes[0].cause

    def _abandon(self) -> None:
        threads = [actor.handle.thread for actor in self.dispatcher.actors]
        self.dispatcher.abandon()
        for thread in filter(None, threads):
            thread.join(timeout=THREAD_ENDS_WITHIN)


def _no_cluster(*_: object, **__: object) -> NoReturn:
    raise NotInVirtualTime(
        "a Backend in a Kit cannot use a real API server: make a FakeCluster(kit) first, or start the Backend with api="
    )
