"""Calls under way, for every implementation of `PodApi`.

A call completes exactly once. The answer, `cancel`, the call's limit and `close` may race on several threads: the first
completes the call, the others do nothing.
"""

from __future__ import annotations

from threading import Lock, RLock
from typing import TYPE_CHECKING, Generic, TypeVar

from actors.errors import ApiError, Cancelled, NotSent
from actors.kube.api import WatchEnded, WatchEvents

if TYPE_CHECKING:
    from actors.kube.api import Call, Reply, WatchSink
    from actors.runtime import Scheduled

__all__ = ["OpenCall", "OpenCalls", "OpenStream"]

A = TypeVar("A")


class OpenCall(Generic[A]):
    """One call: completes exactly once, with an answer, an error or `Cancelled`."""

    def __init__(self, what: str, reply: Reply[A], calls: OpenCalls) -> None:
        self._what = what
        self._reply: Reply[A] | None = reply
        """None once the call has completed: who replies may hold the call, and only a garbage collection would find the
        two. Full ones stop the driver for a tenth of a second."""
        self._calls = calls
        self._lock = Lock()
        self._under_way: list[Call | Scheduled] = []
        self._done = False
        calls.add(self)

    @property
    def done(self) -> bool:
        """The call has completed."""
        return self._done

    def depends_on(self, part: Call | Scheduled) -> None:
        """Cancel `part` when this call completes, or now if it has."""
        with self._lock:
            if not self._done:
                self._under_way.append(part)
                return
        part.cancel()

    def complete(self, answer: A | ApiError) -> None:
        """Complete the call, unless it has completed."""
        with self._lock:
            if self._done:
                return
            self._done = True
            parts, self._under_way = self._under_way, []
            reply, self._reply = self._reply, None
        self._calls.discard(self)
        for part in parts:
            part.cancel()
        if reply is not None:
            reply(answer)

    def not_sent(self) -> None:
        """Complete the call with `NotSent`."""
        self.complete(NotSent(f"{self._what} was not sent: the permission to write had ended"))

    def cancel(self) -> None:
        """Complete the call with `Cancelled`."""
        self.complete(Cancelled(f"{self._what} was cancelled"))


class OpenStream(OpenCall[WatchEnded]):
    """One watch: ends exactly once, and tells its sink nothing after that."""

    def __init__(self, sink: WatchSink, calls: OpenCalls) -> None:
        self._sink = sink
        self._delivering = RLock()
        super().__init__("the watch", self._ended, calls)

    def deliver(self, events: WatchEvents) -> None:
        """Hand events to the sink, unless the stream has ended."""
        with self._delivering:
            if not self._done:
                self._sink(events)

    def end(self, error: ApiError | None, *, in_stream: bool = False) -> None:
        """End the stream, unless it has ended."""
        self.complete(WatchEnded(error, in_stream))

    def _ended(self, answer: WatchEnded | ApiError) -> None:
        with self._delivering:
            self._sink(answer if isinstance(answer, WatchEnded) else WatchEnded(answer))


class OpenCalls:
    """The calls of one `PodApi` that have not completed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._calls: dict[Call, None] = {}
        self.closed = False

    def add(self, call: Call) -> None:
        """Note a call, unless this is closed."""
        with self._lock:
            if not self.closed:
                self._calls[call] = None

    def discard(self, call: Call) -> None:
        """Forget a completed call."""
        with self._lock:
            self._calls.pop(call, None)

    def close(self) -> None:
        """Cancel all calls, oldest first. The maker of a later call sees `closed` and cancels it."""
        with self._lock:
            self.closed = True
        for call in self.open():
            call.cancel()

    def open(self) -> list[Call]:
        """The calls that have not completed, oldest first."""
        with self._lock:
            return list(self._calls)
