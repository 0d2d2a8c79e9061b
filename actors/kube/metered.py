"""A `PodApi` that counts requests, their results, and how long they take. It changes no request and no answer.

It is below the fences: a request that a fence refuses is not counted. Answers come on many threads, so the counts have
a lock. It is taken twice a call, which is a network round trip, and for malformed pods; never for an event of a watch.
"""

from __future__ import annotations

import threading
from copy import deepcopy
from typing import TYPE_CHECKING, TypeVar, final

from actors.errors import ApiError
from actors.kube.api import PodPage, WatchEnded
from actors.runtime.instruments import Counter, Histogram

if TYPE_CHECKING:
    from actors.kube.api import Call, PodApi, Reply, Request, Watch, WatchEvents, WatchSink
    from actors.runtime import Clock

__all__ = ["ApiCounts", "MeteredPodApi"]

A = TypeVar("A")

LOST = "Lost"
"""The result of a call whose process has ended."""

OK = "ok"
"""The result of a successful call; the result of a failed call is the class of its error."""


@final
class ApiCounts:
    """The counts of a `MeteredPodApi`. A watch counts as a call; its result is how it ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.started = Counter()
        """Calls that were sent, by operation."""
        self.results = Counter()
        """Completed calls, by operation and result."""
        self.unreadable = Counter(("list",), ("watch",))
        """Malformed pods that were left out, by operation: each occurrence counts."""
        self._durations: dict[str, Histogram] = {}

    def __getstate__(self) -> dict[str, object]:
        """Return a copy of all but the lock: the counts cross to another process."""
        with self._lock:
            return {name: deepcopy(value) for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def lose(self) -> None:
        """Count the calls under way as lost, with the process that made them."""
        left = self.in_flight()
        with self._lock:
            for operation, count in left.items():
                if count:
                    self.results.add(operation, LOST, by=count)

    def include(self, other: ApiCounts) -> None:
        """Add the counts of another client. What has ended first, so that no count in flight is negative."""
        self.results.include(other.results)
        self.started.include(other.started)
        self.unreadable.include(other.unreadable)
        for operation, durations in other.durations().items():
            self._durations.setdefault(operation, Histogram()).include(durations)

    def in_flight(self) -> dict[str, int]:
        """Return the number of calls under way, by operation."""
        with self._lock:
            started, ended = self.started.read(), self.results.read()
        left = {operation: count for (operation,), count in started.items()}
        for (operation, _), count in ended.items():
            left[operation] -= count
        return left

    def any_succeeded(self) -> bool:
        """Whether any call has succeeded so far."""
        return any(count and result == OK for (_, result), count in self.results.read().items())

    def durations(self) -> dict[str, Histogram]:
        """Return the durations of completed calls, by operation; watches have none."""
        return self._durations.copy()

    def start(self, operation: str) -> None:
        """Count a call that is sent."""
        with self._lock:
            self.started.add(operation)

    def end(self, operation: str, result: str, seconds: float | None = None) -> None:
        """Count a call that completes after `seconds`."""
        with self._lock:
            self.results.add(operation, result)
            if seconds is not None:
                if operation not in self._durations:
                    self._durations[operation] = Histogram()
                self._durations[operation].observe(seconds)

    def leave_out(self, operation: str, pods: int) -> None:
        """Count the malformed pods of an answer."""
        if pods:
            with self._lock:
                self.unreadable.add(operation, by=pods)


@final
class MeteredPodApi:
    """Passes every request to `api`."""

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
