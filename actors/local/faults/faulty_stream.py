"""One watch between a `PodApi` and its client that can be cut, stalled, frozen or made to lag."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeAlias

from actors.errors import ApiError, Unavailable
from actors.kube.api import WatchEnded, WatchEvents
from actors.local.calls import OpenStream

if TYPE_CHECKING:
    from actors.kube.api import Call, WatchSink
    from actors.local.faults.faulty_api import FaultyPodApi
    from actors.runtime import Entropy, TimerService

__all__ = ["FaultyStream", "broken_connection"]

_Message: TypeAlias = WatchEvents | WatchEnded

_AT_ONCE: Final = timedelta(0)


def broken_connection() -> Unavailable:
    """How a stream ends whose connection breaks."""
    return Unavailable("the connection broke (injected)")


class FaultyStream:
    """Hands on what the inner stream brings, in order, unless a fault is upon it."""

    def __init__(self, sink: WatchSink, api: FaultyPodApi, timers: TimerService, entropy: Entropy) -> None:
        self._api = api
        self._timers = timers
        self._entropy = entropy
        self._lock = RLock()
        self._frozen = False
        self._stalled = False
        self._late: deque[_Message] = deque()
        """Held back by a stall or a lag. Each timer of a lag lets one of them go, the oldest, so that order is kept."""
        self._stream = OpenStream(sink, api.calls, lambda: api.forget(self))

    def cancel(self) -> None:
        """See `Call`."""
        self._stream.cancel()

    def depends_on(self, inner: Call) -> None:
        """Cancel the inner stream when this one ends."""
        self._stream.depends_on(inner)

    def end(self, error: ApiError | None) -> None:
        """End it now; what was held back is lost. A frozen one cannot tell its client any more."""
        if not self._frozen:
            self._stream.end(error)

    def stall(self) -> None:
        """Hold everything back."""
        with self._lock:
            self._stalled = True

    def resume(self) -> None:
        """Let go what was held back."""
        with self._lock:
            self._stalled = False
            while self._late:
                self._hand_on(self._late.popleft())

    def freeze(self) -> None:
        """Bring nothing any more, until the client gives up."""
        with self._lock:
            self._frozen = True
            self._late.clear()

    def on_message(self, message: _Message) -> None:
        """The inner stream's sink."""
        with self._lock:
            lag = self._api.lag + self._fate(message)
            if self._frozen or self._stream.done:
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

    def _fate(self, message: _Message) -> timedelta:
        """Draw what happens to the stream at this event; what is returned is how late the event comes."""
        chances = self._api.chances
        if isinstance(message, WatchEnded) or not chances.any_of_streams:
            return _AT_ONCE
        if not message.events and not message.unchanged:  # a bookmark
            return _AT_ONCE
        dice = self._entropy.uniform(0.0, 1.0)
        if dice < chances.cut:
            self.end(broken_connection())
        elif dice < chances.cut + chances.freeze:
            self.freeze()
        elif dice < chances.cut + chances.freeze + chances.lag:
            return self._entropy.uniform(0.0, 1.0) * chances.max_delay
        return _AT_ONCE

    def _let_one_go(self) -> None:
        with self._lock:
            if self._late and not self._stalled:
                self._hand_on(self._late.popleft())

    def _hand_on(self, message: _Message) -> None:
        if isinstance(message, WatchEnded):
            self._stream.end(message.error, in_stream=message.in_stream)
        else:
            self._stream.tell(message)
