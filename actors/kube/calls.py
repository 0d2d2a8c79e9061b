"""Calls under way: each completes exactly once, whichever thread comes first. The others' answers are dropped."""

from __future__ import annotations

from threading import Lock, RLock
from typing import TYPE_CHECKING, Generic, TypeVar

from actors.errors import ApiError, Cancelled
from actors.kube.api import WatchEnded, WatchEvents

if TYPE_CHECKING:
    from actors.kube.api import Call, Reply, WatchSink
    from actors.runtime import Scheduled

__all__ = ["OpenCall", "OpenCalls", "OpenStream"]

A = TypeVar("A")


class OpenCall(Generic[A]):
    """One call: completes exactly once, with an answer or with `Cancelled`, whichever thread comes first."""

    def __init__(self, what: str, reply: Reply[A], calls: OpenCalls) -> None:
        self._what = what
        self._reply = reply
        self._calls = calls
        self._lock = Lock()
        self._under_way: list[Call | Scheduled] = []
        self._done = False
        calls.add(self)

    @property
    def done(self) -> bool:
        """It was answered."""
        return self._done

    def depends_on(self, part: Call | Scheduled) -> None:
        """Cancel `part` when this call ends, whatever ends it."""
        with self._lock:
            if not self._done:
                self._under_way.append(part)
                return
        part.cancel()

    def complete(self, answer: A | ApiError) -> None:
        """Answer it, unless it was answered before."""
        with self._lock:
            if self._done:
                return
            self._done = True
            parts, self._under_way = self._under_way, []
        self._calls.discard(self)
        for part in parts:
            part.cancel()
        self._reply(answer)

    def cancel(self) -> None:
        """Give it up."""
        self.complete(Cancelled(f"{self._what} was cancelled"))


class OpenStream(OpenCall[WatchEnded]):
    """One watch: ends exactly once, and tells its sink nothing after that, whichever threads are in it."""

    def __init__(self, sink: WatchSink, calls: OpenCalls) -> None:
        self._sink = sink
        self._telling = RLock()
        super().__init__("the watch", self._ended, calls)

    def tell(self, events: WatchEvents) -> None:
        """Pass on what the stream brought, unless it has ended."""
        with self._telling:
            if not self._done:
                self._sink(events)

    def end(self, error: ApiError | None, *, in_stream: bool = False) -> None:
        """End it, unless it has."""
        self.complete(WatchEnded(error, in_stream))

    def _ended(self, answer: WatchEnded | ApiError) -> None:
        with self._telling:
            self._sink(answer if isinstance(answer, WatchEnded) else WatchEnded(answer))


class OpenCalls:
    """The calls of one `PodApi` that are not answered yet."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._calls: dict[Call, None] = {}
        self.closed = False

    def add(self, call: Call) -> None:
        """Note a call, unless closed."""
        with self._lock:
            if not self.closed:
                self._calls[call] = None

    def discard(self, call: Call) -> None:
        """Forget a call that is answered."""
        with self._lock:
            self._calls.pop(call, None)

    def close(self) -> None:
        """Cancel all, oldest first, and whatever comes later is for its maker to cancel."""
        with self._lock:
            self.closed = True
        for call in self.open():
            call.cancel()

    def open(self) -> list[Call]:
        """Those that are not answered yet, oldest first."""
        with self._lock:
            return list(self._calls)
