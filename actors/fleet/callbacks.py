"""Calls of `on_event`, for threads: by an actor of their own. `event_loop` has those for asyncio.

They read events as any reader does: if the callback is slow, nothing else waits for it, and nothing grows. What it
raises is logged.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Final, Protocol, final

from actors.runtime import Actor, Context
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.fleet.stream import Event, EventBuffer
    from actors.runtime import ActorSystem

__all__ = ["ActorCalls", "Calls", "called", "is_coroutine_function"]

logger = get_logger(__name__)


def called(on_event: Callable[[Event], object]) -> Callable[[Event], object]:
    """Return what can be called.

    Raises:
        TypeError: it cannot.
    """
    if not callable(on_event):
        raise TypeError(f"on_event = {on_event!r}: must be a function of one event")
    return on_event


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Return whether a call only makes a coroutine, also of an object with `async def __call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class Calls(Protocol):
    """Somebody who calls `on_event` with each event of a buffer."""

    def start(self, buffer: EventBuffer, done: Callable[[], None]) -> None:
        """Begin to call. `done` is called after the last event."""

    def is_done(self) -> bool:
        """Return whether no call is made any more."""

    def is_current(self) -> bool:
        """Return whether the caller of this method is in the callback."""

    def cancel(self) -> None:
        """Call no more."""


@final
class _Thread(threading.local):
    calls: ActorCalls | None = None
    """Whose callback this thread is in. It may use other fleets, and wait for them."""


_thread: Final = _Thread()


@final
class ActorCalls:
    """Calls from an actor.

    Args:
        call: the user's callback.
        system: of the fleet's actors.
    """

    def __init__(self, call: Callable[[Event], object], system: ActorSystem) -> None:
        self._call = call
        self._system = system
        self._address = system.address("on-event")

    def start(self, buffer: EventBuffer, done: Callable[[], None]) -> None:
        """See `Calls`."""
        self._system.spawn(
            lambda context: _Caller(context, calls=self, buffer=buffer, call=self._call, done=done),
            name="on-event",
            owner=None,
            address=self._address,
        )

    def is_done(self) -> bool:
        """See `Calls`."""
        return not self._address.is_alive()

    def is_current(self) -> bool:
        """See `Calls`."""
        return _thread.calls is self

    def cancel(self) -> None:
        """A thread cannot be cancelled: the daemon thread of a callback that hangs is left."""


class _Look:
    """There may be events."""


@final
class _Caller(Actor):
    """Calls a callback until the last event."""

    def __init__(
        self,
        context: Context,
        *,
        calls: ActorCalls,
        buffer: EventBuffer,
        call: Callable[[Event], object],
        done: Callable[[], None],
    ) -> None:
        super().__init__(context)
        self._calls = calls
        self._buffer = buffer
        self._call = call
        self._is_told = False
        self.handle.at_end(done)

    def started(self) -> None:
        """Look at the first events."""
        self._buffer.add(self)
        self.wake()

    def wake(self) -> None:
        """Look again, in this actor's thread."""
        if not self._is_told:
            self._is_told = True
            self.address.tell(_Look())

    def receive(self, _: _Look) -> None:
        """Call the callback with all events that are there."""
        self._is_told = False
        has_ended = self._buffer.has_ended  # before `take`: the last event is added before the end is noted
        before, _thread.calls = _thread.calls, self._calls
        while (event := self._buffer.take()) is not None:
            try:
                self._call(event)
            except BaseException:  # a `sys.exit` in it must not end the calls either
                logger.exception("on_event failed: event=%s", type(event).__name__)
        _thread.calls = before
        if has_ended:
            self.stop()
