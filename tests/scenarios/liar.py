"""A server that says of its pods what a test wants. All that it says goes as JSON through the client's decoders."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from actors import kube
from actors.errors import ApiError, Unavailable
from actors.kube.calls import OpenStream
from actors.kube.http import decode, failures
from actors.kube.http.decode import Complaints
from actors.kube.http.watch_lines import WatchDecoder
from actors.local.inprocess import InProcessPodApi
from actors.local.schema.statuses import ApiStatus
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Call, PodPage, WatchSink
    from actors.local.store.object_store import WatchMessage

Said = dict[str, Any]


class Liar(InProcessPodApi):
    """Says what `say` makes of each pod. Changes nothing in the store."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.say: Callable[[Said], Any] = lambda pod: pod
        self.also: Callable[[], list[Any]] = list
        """More items of each list."""
        self._open: list[tuple[OpenStream, WatchDecoder]] = []
        self._complaints = Complaints()

    def _json(self, pod: Any) -> bytes:
        return json.dumps(self.say(copy.deepcopy(pod))).encode("utf-8", "surrogatepass")

    def _page(self, request: kube.List) -> PodPage:
        answer = self.store.list("pods", self.namespace, label_selector=request.selector)
        items = [*map(self._json, answer.items), *(json.dumps(pod).encode() for pod in self.also())]
        body = b'{"metadata":{"resourceVersion":"%b"},"items":[%b]}' % (
            answer.resource_version.encode(),
            b",".join(items),
        )
        try:
            return decode.pod_page(body, self._complaints, self.deduplicator)
        except (ValueError, RecursionError) as error:
            raise failures.unreadable(error, "the liar", write=False, redacted=str) from None

    def _answer(self, request: kube.Request[Any]) -> Any:
        match request:
            case kube.Get(name):
                return self._read(self.store.get("pods", self.namespace, name), write=False)
            case kube.Create(manifest):
                return self._read(self.store.create("pods", self.namespace, manifest), write=True)
            case kube.Patch(name, patch):
                return self._read(self.store.patch("pods", self.namespace, name, patch, "merge"), write=True)
            case _:
                return super()._answer(request)

    def _read(self, pod: Any, *, write: bool) -> Any:
        try:
            return decode.pod(self._json(pod))
        except (ValueError, RecursionError) as error:
            raise failures.unreadable(error, "the liar", write=write, redacted=str) from None

    def babble(self, lines: bytes) -> None:
        """Send these lines to each watch."""
        for stream, decoder in self._open:
            if not stream.done:
                _deliver(lines, stream, decoder)

    def watch(self, request: kube.Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        stream = OpenStream(sink, self.calls)
        decoder = WatchDecoder(request.resource_version, self._complaints, self.deduplicator)

        self._open = [(stream, decoder), *((one, its) for one, its in self._open if not one.done)]

        def pass_on(message: WatchMessage) -> None:
            said = self._json(message.object) if message.type in {"ADDED", "MODIFIED", "DELETED"} else None
            body = json.dumps(message.object).encode() if said is None else said
            _deliver(b'{"type":"%b","object":%b}\n' % (message.type.encode(), body), stream, decoder)

        def opens() -> None:
            if stream.done:
                return
            try:
                subscription = self.store.watch(
                    "pods",
                    self.namespace,
                    lambda message: self.after_leg(lambda: pass_on(message)),
                    label_selector=request.selector,
                    resource_version=request.resource_version,
                    bookmarks=True,
                )
            except ApiStatus as status:
                stream.end(Unavailable(str(status)))
                return
            stream.depends_on(subscription)
            if self.timers is not None and not stream.done:
                stream.depends_on(self.timers.schedule(request.timeout, lambda: stream.end(None)))

        if self.calls.closed:
            stream.cancel()
        else:
            self.after_leg(opens)
        return stream


def _deliver(lines: bytes, stream: OpenStream, decoder: WatchDecoder) -> None:
    batches, error = decoder.decode(lines)
    for events in batches:
        stream.deliver(events)
    if error is not None:
        stream.end(error if isinstance(error, ApiError) else Unavailable(str(error)), in_stream=True)


class LyingWorld(World):
    """A world whose server lies."""

    door = Liar

    @property
    def liar(self) -> Liar:
        """The server."""
        found = self.api._inner
        assert isinstance(found, Liar)
        return found
