"""One watch that can be cut, stalled, frozen or delayed."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from actors.errors import Unavailable
from actors.kube.api import WatchEnded, WatchEvents
from actors.kube.calls import OpenStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import ApiError
    from actors.kube.api import WatchSink
    from actors.kube.calls import OpenCalls
    from actors.local.faults.kinds import Chances
    from actors.runtime import Entropy, TimerService

__all__ = ["FaultyStream", "broken_connection"]

_Message: TypeAlias = WatchEvents | WatchEnded

_AT_ONCE: Final = timedelta(0)


def broken_connection() -> Unavailable:
    """Return the error of a stream whose connection breaks."""
    return Unavailable("the connection broke (injected)")


class FaultyStream(OpenStream):
    """Passes on the events of the inner stream, in order, unless a fault holds them back.

    Args:
        sink: the client's sink.
        calls: the streams under way.
        trouble: returns the current chances, and the delay of every event.
    """

    def __init__(
        self,
        sink: WatchSink,
        calls: OpenCalls,
        trouble: Callable[[], tuple[Chances, timedelta]],
        timers: TimerService,
        entropy: Entropy,
    ) -> None:
        super().__init__(sink, calls)
        self._trouble = trouble
        self._timers = timers
        self._entropy = entropy
        self._frozen = False
        self._stalled = False
        self._late: deque[_Message] = deque()
        """Messages held back by a stall or a lag. Each timer of a lag releases the oldest one, to keep the order."""

    def break_off(self, error: ApiError) -> None:
        """End the stream now and lose the messages held back. A frozen stream does not deliver its end."""
        if not self._frozen:
            self.end(error)

    def stall(self) -> None:
        """Hold back every message."""
        with self._delivering:
            self._stalled = True

    def resume(self) -> None:
        """Deliver the messages held back."""
        with self._delivering:
            self._stalled = False
            while self._late:
                self._pass_on(self._late.popleft())

    def freeze(self) -> None:
        """Deliver nothing more, until the client cancels."""
        with self._delivering:
            self._frozen = True
            self._late.clear()

    def on_message(self, message: _Message) -> None:
        """The inner stream's sink."""
        with self._delivering:
            chances, lag = self._trouble()
            lag += self._fate(message, chances)
            if self._frozen or self.done:
                return
            if lag > _AT_ONCE:
                self._late.append(message)
                self._timers.schedule(lag, self._release_one)
            elif self._stalled or self._late:
                self._late.append(message)
                if not self._stalled:
                    self._timers.schedule(_AT_ONCE, self._release_one)
            else:
                self._pass_on(message)

    def _fate(self, message: _Message, chances: Chances) -> timedelta:
        """Draw the fault of the stream at this event, and return the delay of the event."""
        if isinstance(message, WatchEnded) or not chances.any_of_streams:
            return _AT_ONCE
        if not message.events and not message.unchanged:  # a bookmark
            return _AT_ONCE
        dice = self._entropy.uniform(0.0, 1.0)
        if dice < chances.cut:
            self.break_off(broken_connection())
        elif dice < chances.cut + chances.freeze:
            self.freeze()
        elif dice < chances.cut + chances.freeze + chances.lag:
            return self._entropy.uniform(0.0, 1.0) * chances.max_delay
        return _AT_ONCE

    def _release_one(self) -> None:
        with self._delivering:
            if self._late and not self._stalled:
                self._pass_on(self._late.popleft())

    def _pass_on(self, message: _Message) -> None:
        if isinstance(message, WatchEnded):
            self.end(message.error, in_stream=message.in_stream)
        else:
            self.deliver(message)
