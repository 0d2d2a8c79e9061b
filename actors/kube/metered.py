"""A meter on the way to the API: a `PodApi` that counts what is asked, how it is answered, and how long that takes.

It changes nothing. It stands below the fences: what is not sent is not counted. Answers come on many threads, so that
there is a lock; it is taken twice a call, which is a round trip over the network, and not for what a watch brings, but
for pods that cannot be read.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar, final

from actors.errors import ApiError
from actors.kube.api import PodPage, WatchEnded
from actors.runtime.instruments import Counter, Histogram

if TYPE_CHECKING:
    from actors.kube.api import Call, PodApi, Reply, Request, Watch, WatchEvents, WatchSink
    from actors.runtime import Clock

__all__ = ["ApiCounts", "MeteredPodApi"]

A = TypeVar("A")

OK = "ok"
"""The result of a call that was answered with what it asked for; of another one it is the error's class."""


@final
class ApiCounts:
    """What a `MeteredPodApi` counts. A watch is a call that lasts; its result is how it ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = Counter()
        self.results = Counter()
        """Calls that were answered, by operation and result."""
        self.unreadable = Counter(("list",), ("watch",))
        """Pods that could not be decoded and were left out, by operation, each time one came."""
        self._durations: dict[str, Histogram] = {}

    def in_flight(self) -> dict[str, int]:
        """How many calls are not answered yet, by operation."""
        with self._lock:
            started, ended = self._started.read(), self.results.read()
        left = {operation: count for (operation,), count in started.items()}
        for (operation, _), count in ended.items():
            left[operation] -= count
        return left

    def durations(self) -> dict[str, Histogram]:
        """How long the answered calls took, by operation; not of watches."""
        return self._durations.copy()

    def start(self, operation: str) -> None:
        """A call is sent."""
        with self._lock:
            self._started.add(operation)

    def end(self, operation: str, result: str, seconds: float | None = None) -> None:
        """A call is answered, after so long."""
        with self._lock:
            self.results.add(operation, result)
            if seconds is not None:
                if operation not in self._durations:
                    self._durations[operation] = Histogram()
                self._durations[operation].observe(seconds)

    def leave_out(self, operation: str, pods: int) -> None:
        """So many pods of an answer could not be decoded."""
        if pods:
            with self._lock:
                self.unreadable.add(operation, by=pods)


@final
class MeteredPodApi:
    """Passes everything on to `api`. See `actors.kube.api.PodApi` for the methods."""

    def __init__(self, api: PodApi, counts: ApiCounts, clock: Clock) -> None:
        self.namespace = api.namespace
        self._api = api
        self._counts = counts
        self._clock = clock

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`."""
        counts, clock, began = self._counts, self._clock, self._clock.monotonic()
        operation = request.operation

        def metered(answer: A | ApiError) -> None:
            counts.end(operation, _result(answer), clock.monotonic() - began)
            if isinstance(answer, PodPage):
                counts.leave_out(operation, answer.malformed)
            reply(answer)

        counts.start(operation)
        try:
            return self._api.send(request, metered)
        except BaseException as error:
            counts.end(operation, type(error).__name__)
            raise

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        counts, operation = self._counts, request.operation

        def metered(message: WatchEvents | WatchEnded) -> None:
            if isinstance(message, WatchEnded):
                counts.end(operation, _result(message.error))
            else:
                counts.leave_out(operation, message.malformed)
            sink(message)

        counts.start(operation)
        try:
            return self._api.watch(request, metered)
        except BaseException as error:
            counts.end(operation, type(error).__name__)
            raise

    def close(self) -> None:
        """See `PodApi`."""
        self._api.close()


def _result(answer: object) -> str:
    return type(answer).__name__ if isinstance(answer, ApiError) else OK
