"""Everything that a test of actors needs, wired together: virtual time, one order, probes."""

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
"""Of chance (jitter, names) when the order of messages is not drawn from a seed: a test is the same every time."""

THREAD_ENDS_WITHIN = 10.0
"""Seconds of real time to wait for a thread that has nothing left to do."""


@final
class Kit:
    """A system of actors whose every step is the test's. Use it as a context manager, or `close` it.

    Args:
        seed: draws the order of messages across mailboxes, and everything drawn by the actors. None: oldest first.
        threads: run each actor in a thread, as in production; otherwise all in the caller's, which is faster.
        runaway_after: so many messages without the clock moving are an error.
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
        """Every message that was handled, in order: compare two runs by it."""
        return self.dispatcher.trace

    def spawn(self, factory: Callable[[Context], Actor], *, name: str, owner: Address | None = None) -> Address:
        """Start an actor and settle, so that it has done what it does when it starts."""
        address = self.system.spawn(factory, name=name, owner=owner)
        self.settle()
        return address

    def probe(self, name: str = "driver") -> Probe:
        """A probe of this name, ready to receive."""
        made: list[Probe] = []

        def make(context: Context) -> Probe:
            made.append(Probe(context))
            return made[0]

        self.spawn(make, name=name)
        return made[0]

    def address(self, name: str) -> Address:
        """Where the actor of this name lives; of several, the one started last."""
        for actor in reversed(self.dispatcher.actors):
            if actor.name == name:
                return actor.address
        raise LookupError(f"there is no actor {name!r}, only {[actor.name for actor in self.dispatcher.actors]}")

    def settle(self) -> None:
        """Let everything be handled that was told, and what follows from it, without time going by."""
        self.dispatcher.settle()

    def advance(self, by: timedelta) -> None:
        """Let time go by: from timer to timer, settling after each."""
        self.settle()
        target = self.clock.elapsed + by
        while (due := self.timers.next_due()) is not None and due <= target:
            self.timers.fire_next()
            self.settle()
        self.clock.move_to(target)

    def ask(self, receiver: Address | ActorRef[Any], message: object) -> Any:
        """Ask, settle, and return the reply, or raise what the receiver raised."""
        future = receiver.request(message) if isinstance(receiver, Address) else receiver.ask(message, block=False)
        self.settle()
        try:
            return future.get(timeout=0)
        except Timeout:
            raise AssertionError(f"{receiver} gave no reply to {message!r}") from None

    def close(self) -> None:
        """Stop in order what is left, the last started first; what does not stop that way is ended."""
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
