"""`ActorSystem`: spawns actors that share a clock, a timer service, an entropy source and a dispatcher."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from pykka import ActorRegistry

from actors.runtime.actor import Actor, Context, Dispatcher
from actors.runtime.address import Address
from actors.runtime.clock import Clock, SystemClock
from actors.runtime.entropy import Entropy
from actors.runtime.loop import Loop
from actors.runtime.mailbox import DeadLetters
from actors.runtime.threads import AtOnce, Calls, Courier, call_within
from actors.text import logging_survived

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from actors.runtime.timers import TimerService

__all__ = ["ActorSystem", "installed", "installed_system"]

T = TypeVar("T")


@final
class ActorSystem:
    """Spawns actors. Several systems can run beside each other and beside the host's own actors.

    `wait` waits for a predicate, at most for a time, and returns whether it holds: the test-kit's way, which lets
    virtual time pass. None in production, where other threads run the actors. `connect` makes the clients of Backends
    of this system, if given, with a namespace and `request_timeout`: those of a cluster that is not real. `letters`
    counts messages to ended actors, those of an earlier system too.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        timers: TimerService | None = None,
        entropy: Entropy | None = None,
        dispatcher: Dispatcher | None = None,
        *,
        wait: Callable[[Callable[[], bool], timedelta | None], bool] | None = None,
        connect: Callable[..., Any] | None = None,
        letters: DeadLetters | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.entropy = entropy or Entropy()
        self._loop = Loop(self.clock)
        self.dispatcher: Dispatcher = dispatcher or self._loop
        self.timers: TimerService = timers or self._loop
        self.wait = wait
        self.connect = connect
        self.letters = letters or DeadLetters()

    def address(self, name: str) -> Address:
        """Return an address without an actor, so that actors can get each other's addresses before they start."""
        return Address(name, self.letters)

    def spawn(
        self, factory: Callable[[Context], Actor], *, name: str, owner: Address | None, address: Address | None = None
    ) -> Address:
        """Create an actor and start it, at `address` if given, as its next incarnation.

        The actor runs `started` first. `owner` is notified of its end, but not of exceptions raised here.

        Raises:
            Exception: `factory` failed, or no thread could be started (NoThread). Nothing is left running or
                registered.
            KeyboardInterrupt: likewise, unless the actor runs already: then `address` is alive.
        """
        address = address or self.address(name)
        if address.is_alive():
            raise RuntimeError(f"{name} is already alive")
        actor = factory(Context(self, name, address.incarnation + 1, address, owner))
        try:
            address.incarnation, address.handle = actor.context.incarnation, actor.handle
            with logging_survived:  # it logs when it is done
                ActorRegistry.register(actor.actor_ref)
            actor._start_actor_loop()  # noqa: SLF001 - what Pykka's `start` does after registering
        except BaseException:
            if actor.handle.claim():
                actor.handle.discard()
            raise
        return address

    def call_within(self, limit: timedelta, function: Callable[[], T]) -> T:
        """Return what a function of the program returns, as `threads.call_within` does.

        In virtual time it is called at once: no thread can be waited for.
        """
        return function() if self.wait is not None else call_within(limit, function)

    def calls(self, function: Callable[[T], object], name: str, most: int = 0) -> Calls[T]:
        """Return the calls of a function of the program, as those of a `threads.Courier`; in virtual time, at once."""
        return AtOnce(function) if self.wait is not None else Courier(function, name, most)

    def close(self) -> None:
        """Drop all timers. Stop all actors before, in the order they need."""
        self._loop.close()


_installed: Final[list[ActorSystem]] = []
"""Of the kits that are open, the newest last; in production none."""


def installed_system() -> ActorSystem | None:
    """Return the system that a Backend without one runs on. None in production: it makes its own."""
    return _installed[-1] if _installed else None


@contextmanager
def installed(system: ActorSystem) -> Iterator[None]:
    """Make this the `installed_system`: the test-kit, while it is open."""
    _installed.append(system)
    try:
        yield
    finally:
        _installed.remove(system)
