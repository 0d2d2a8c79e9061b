"""One watch between a `PodApi` and its client that can be cut, stalled, frozen or made to lag."""

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
    """How a stream ends whose connection breaks."""
    return Unavailable("the connection broke (injected)")


class FaultyStream(OpenStream):
    """Hands on what the inner stream brings, in order, unless a fault is upon it.

    Args:
        sink: the client's.
        calls: where it is known as open.
        trouble: what can happen to it at the moment, and how late every event comes.
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
        """Held back by a stall or a lag. Each timer of a lag lets one of them go, the oldest, so that order is kept."""

    def break_off(self, error: ApiError) -> None:
        """End it now; what was held back is lost. A frozen one cannot tell its client any more."""
        if not self._frozen:
            self.end(error)

    def stall(self) -> None:
        """Hold everything back."""
        with self._delivering:
            self._stalled = True

    def resume(self) -> None:
        """Let go what was held back."""
        with self._delivering:
            self._stalled = False
            while self._late:
                self._hand_on(self._late.popleft())

    def freeze(self) -> None:
        """Bring nothing any more, until the client gives up."""
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
                self._timers.schedule(lag, self._let_one_go)
            elif self._stalled or self._late:
                self._late.append(message)
                if not self._stalled:
                    self._timers.schedule(_AT_ONCE, self._let_one_go)
            else:
                self._hand_on(message)

    def _fate(self, message: _Message, chances: Chances) -> timedelta:
        """Draw what happens to the stream at this event; what is returned is how late the event comes."""
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

    def _let_one_go(self) -> None:
        with self._delivering:
            if self._late and not self._stalled:
                self._hand_on(self._late.popleft())

    def _hand_on(self, message: _Message) -> None:
        if isinstance(message, WatchEnded):
            self.end(message.error, in_stream=message.in_stream)
        else:
            self.deliver(message)
