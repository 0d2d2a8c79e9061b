"""`Kit`: all that a test of actors needs, wired together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

from actors.runtime import ActorSystem, Address, Entropy, StoppedByHost, Timeout
from actors.testing.dispatcher import RUNAWAY_AFTER, SerialDispatcher
from actors.testing.manual import ManualClock, ManualTimers
from actors.testing.probe import Probe

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from types import TracebackType

    from actors.runtime import Actor, ActorRef, Context

__all__ = ["Kit"]

DEFAULT_SEED = 0
"""The seed of jitter and names when messages are handled oldest first: every run of a test is the same."""

THREAD_ENDS_WITHIN = 10.0
"""Seconds of real time to wait for a thread without work."""


@final
class Kit:
    """A system of actors that the test runs step by step. Use it as a context manager, or `close` it.

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
        self.system = ActorSystem(self.clock, self.timers, self.entropy, self.dispatcher)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._abandon()

    @property
    def trace(self) -> list[str]:
        """Every handled message, in order, to compare two runs."""
        return self.dispatcher.trace

    def spawn(self, factory: Callable[[Context], Actor], *, name: str, owner: Address | None = None) -> Address:
        """Start an actor, and settle."""
        address = self.system.spawn(factory, name=name, owner=owner)
        self.settle()
        return address

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

    def advance(self, by: timedelta) -> None:
        """Move the clock from timer to timer, settling after each."""
        self.settle()
        target = self.clock.elapsed + by
        while (due := self.timers.next_due()) is not None and due <= target:
            self.timers.fire_next()
            self.settle()
        self.clock.move_to(target)

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
            for actor in reversed(self.dispatcher.actors):
                actor.stop()
            self.settle()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        threads = [actor.handle.thread for actor in self.dispatcher.actors]
        while actors := self.dispatcher.actors:
            for actor in reversed(actors):
                actor.handle.end(StoppedByHost("the test is over"), abandon=True)
        for thread in filter(None, threads):
            thread.join(timeout=THREAD_ENDS_WITHIN)
