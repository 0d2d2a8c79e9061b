"""A meter on the way to the API: a `PodApi` that counts what is asked, how it is answered, and how long that takes.

It changes nothing. It stands below the fences: what is not sent is not counted. Answers come on many threads, so that
there is a lock; it is taken twice a call, which is a round trip over the network, and not for what a watch brings, but
for pods that cannot be read.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, final

from actors.errors import ApiError
from actors.kube.api import PodPage, WatchEnded, WatchEvents
from actors.runtime.instruments import Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from actors.kube.api import Call, DeleteOptions, Manifest, PodApi, Resource, WatchSink
    from actors.pods.pod import Pod
    from actors.runtime import Clock

__all__ = ["ApiCounts", "MeteredPodApi"]

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
        self._api = api
        self._counts = counts
        self._clock = clock

    @property
    def namespace(self) -> str:
        """See `PodApi`."""
        return self._api.namespace

    def list(
        self,
        selector: str,
        reply: Callable[[PodPage | ApiError], None],
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
    ) -> Call:
        """See `PodApi`."""
        return self._send(
            "list",
            lambda reply: self._api.list(
                selector, reply, limit=limit, continue_token=continue_token, resource_version=resource_version
            ),
            reply,
        )

    def watch(
        self,
        selector: str,
        resource_version: str,
        sink: WatchSink,
        *,
        timeout: timedelta,
        send_initial_events: bool = False,
    ) -> Call:
        """See `PodApi`."""
        counts = self._counts

        def metered(what: WatchEvents | WatchEnded) -> None:
            if isinstance(what, WatchEnded):
                counts.end("watch", _result(what.error))
            else:
                counts.leave_out("watch", what.malformed)
            sink(what)

        counts.start("watch")
        try:
            return self._api.watch(
                selector, resource_version, metered, timeout=timeout, send_initial_events=send_initial_events
            )
        except BaseException as error:
            counts.end("watch", type(error).__name__)
            raise

    def get(self, name: str, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send("get", lambda reply: self._api.get(name, reply), reply)

    def create(self, manifest: Manifest, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send("create", lambda reply: self._api.create(manifest, reply), reply)

    def delete(self, name: str, options: DeleteOptions, reply: Callable[[ApiError | None], None]) -> Call:
        """See `PodApi`."""
        return self._send("delete", lambda reply: self._api.delete(name, options, reply), reply)

    def delete_collection(
        self, selector: str, reply: Callable[[ApiError | None], None], *, grace: timedelta | None = None
    ) -> Call:
        """See `PodApi`."""
        return self._send(
            "delete_collection", lambda reply: self._api.delete_collection(selector, reply, grace=grace), reply
        )

    def patch(self, name: str, patch: Manifest, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send("patch", lambda reply: self._api.patch(name, patch, reply), reply)

    def may(self, verb: str, resource: Resource, reply: Callable[[bool | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send("may", lambda reply: self._api.may(verb, resource, reply), reply)

    def get_object(self, resource: Resource, name: str, reply: Callable[[Manifest | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send("get_object", lambda reply: self._api.get_object(resource, name, reply), reply)

    def list_objects(
        self, resource: Resource, selector: str, reply: Callable[[Sequence[Manifest] | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        return self._send("list_objects", lambda reply: self._api.list_objects(resource, selector, reply), reply)

    def create_object(
        self, resource: Resource, manifest: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        return self._send("create_object", lambda reply: self._api.create_object(resource, manifest, reply), reply)

    def patch_object(
        self, resource: Resource, name: str, patch: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        return self._send("patch_object", lambda reply: self._api.patch_object(resource, name, patch, reply), reply)

    def close(self) -> None:
        """See `PodApi`."""
        self._api.close()

    def _send(
        self, operation: str, send: Callable[[Callable[[Any], None]], Call], reply: Callable[[Any], None]
    ) -> Call:
        counts, clock, began = self._counts, self._clock, self._clock.monotonic()

        def metered(answer: object) -> None:
            counts.end(operation, _result(answer), clock.monotonic() - began)
            if isinstance(answer, PodPage):
                counts.leave_out(operation, answer.malformed)
            reply(answer)

        counts.start(operation)
        try:
            return send(metered)
        except BaseException as error:
            counts.end(operation, type(error).__name__)
            raise


def _result(answer: object) -> str:
    return type(answer).__name__ if isinstance(answer, ApiError) else OK
