"""`HttpPodApi`: the `PodApi` of a real API server, or of the embedded one, over HTTP."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, final
from urllib.parse import quote, urlencode

import msgspec

from actors.errors import BadRequest, Cancelled, NoThread, SettingsError, Unavailable
from actors.kube import api
from actors.kube.api import PODS
from actors.kube.calls import OpenCall, OpenCalls
from actors.kube.deduplication import PodDeduplicator
from actors.kube.http import decode, failures
from actors.kube.http.bounds import AnswerBounds
from actors.kube.http.client import Client, HttpRequest, ServerClock
from actors.kube.http.decode import Complaints
from actors.kube.http.logs import read_log
from actors.kube.http.streams import Stream
from actors.kube.http.watch_lines import WatchDecoder
from actors.kube.http.wire import Wire, WireCut, WireLate
from actors.kube.http.workers import Workers, deliver
from actors.kube.names import dns_label_problem
from actors.runtime import Clock, SystemClock, TimerService, TimerThread, later
from actors.text import get_logger
from actors.text.version import package_version

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from actors.kube.api import Call, DeleteOptions, Manifest, PodPage, Reply, Request, Resource, Watch, WatchSink
    from actors.kube.auth.credentials import Access
    from actors.runtime import Deadline

__all__ = ["HttpPodApi"]

logger = get_logger(__name__)

A = TypeVar("A")

MERGE_PATCH: Final = "application/merge-patch+json"

_REVIEWS: Final = "authorization.k8s.io/v1"

JOIN_LIMIT: Final = timedelta(seconds=2)
"""How long `close` waits for all threads together. A cut socket ends its thread at once; a thread that resolves a name
cannot be interrupted, and one that runs an exec plugin waits for it."""


@final
class HttpPodApi:
    """Thread-safe. Starts threads when they are first needed."""

    def __init__(
        self,
        access: Access,
        *,
        namespace: str,
        request_timeout: timedelta,
        max_connections: int,
        bounds: AnswerBounds | None = None,
        clock: Clock | None = None,
        timers: TimerService | None = None,
    ) -> None:
        """`timers` enforce the limits; by default a thread of this client, which `close` ends."""
        if dns_label_problem(namespace):
            raise SettingsError(f"namespace {namespace!r} cannot be the name of a namespace")
        self.access = access
        self.namespace = namespace
        self.request_timeout = request_timeout
        self.max_connections = max_connections
        self.bounds = bounds or AnswerBounds()
        self._clock = clock or SystemClock()
        self._server_clock = ServerClock(self._clock)
        self._user_agent = f"executor-pods/{package_version()}"
        self._complaints = Complaints(access.credentials.redacted)
        self._deduplicator = PodDeduplicator()
        self._own_timers = TimerThread(self._clock)
        self._timers = self._own_timers if timers is None else timers
        self._workers = Workers(max_connections, self._client)
        self._calls = OpenCalls()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        """The threads of streams."""
        self._logs: set[Wire] = set()
        """Of the logs that are being read, each in its caller's thread."""

    def __repr__(self) -> str:
        return f"HttpPodApi(server={self.access.server!r}, namespace={self.namespace!r})"

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`. A worker completes the call, or the limit does."""
        if isinstance(request, api.List) and not request.continue_token:
            self._deduplicator.begin_list()
        try:
            translated, read = self._translated(request)
        except BadRequest as error:
            call = self._opened(request, reply)
            call.complete(error)
            return call
        call = self._opened(request, reply)
        if self._calls.closed:
            call.cancel()
        else:
            self._submit(call, translated, read, request.deadline)
        return call

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`. The limit counts until the headers arrive."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": request.selector,
            "resourceVersion": request.resource_version,
            "timeoutSeconds": str(max(1, round(request.timeout.total_seconds()))),
        }
        if request.send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        stream = Stream(
            HttpRequest("GET", self._path(PODS, query=query)),
            client=self._client(),
            server=self.access.server,
            limit=self.request_timeout,
            longest=self.bounds.one_object,
            redacted=self.access.credentials.redacted,
            decoder=WatchDecoder(request.resource_version, self._complaints, self._deduplicator),
            sink=sink,
            calls=self._calls,
        )
        if self._calls.closed:
            stream.cancel()
            return stream
        try:
            with self._lock:
                self._threads = {*filter(threading.Thread.is_alive, self._threads), stream.start(self._timers)}
        except NoThread as error:
            stream.end(Unavailable(str(error)))
            logger.info("fewer requests at a time, so that a watch gets a thread: most=%d", self._workers.spare_one())
        else:
            self._workers.use_all()
        return stream

    def server_now(self) -> datetime | None:
        """Return the server's wall clock, None before its first answer, or if it does not say."""
        return self._server_clock.now()

    def read_log(
        self,
        name: str,
        *,
        container: str | None = None,
        follow: bool = False,
        previous: bool = False,
        tail: int | None = None,
    ) -> Generator[bytes, None, None]:
        """Yield the output of a pod's container as it comes, in the caller's thread, until it ends.

        `follow` waits for more while the container runs; `previous` is that of its last incarnation; `tail` bounds the
        lines from before now.

        Raises:
            ApiError: there is no log, the connection was lost, or the client was closed meanwhile.
        """
        query = {
            **({"container": container} if container is not None else {}),
            **({"follow": "true"} if follow else {}),
            **({"previous": "true"} if previous else {}),
            **({"tailLines": str(tail)} if tail is not None else {}),
        }
        request = HttpRequest("GET", self._path(PODS, name, subresource="log", query=query))
        return self._read_log(request)

    def _read_log(self, request: HttpRequest) -> Generator[bytes, None, None]:
        wire = Wire()
        with self._lock:
            self._logs.add(wire)
        try:
            if self._calls.closed:
                raise Cancelled("the log was not read: the client is closed")
            server, limit = self.access.server, self.request_timeout
            yield from read_log(request, self._client(), wire, timers=self._timers, limit=limit, server=server)
        finally:
            with self._lock:
                self._logs.discard(wire)

    def close(self) -> None:
        """See `PodApi`. A thread that does not end in time is logged; it can send nothing more."""
        workers = self._workers.close()  # first: a worker that is freed below must not send a queued call
        self._calls.close()
        with self._lock:
            for wire in self._logs:
                wire.cancel()
            threads = {*workers, *self._threads} - {threading.current_thread()}
        deadline = later(self._clock.monotonic(), JOIN_LIMIT)
        for thread in threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        left = sorted(thread.name for thread in threads if thread.is_alive())
        if left:
            logger.warning("threads left behind: threads=%s", ", ".join(left))
        self._own_timers.close()

    # ── one call ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _translated(  # noqa: C901, PLR0912 - one case a request
        self, request: Request[A]
    ) -> tuple[HttpRequest, Callable[[bytes], Any]]:
        """Return the request as HTTP, and the decoder of its answer, which raises ValueError for another answer.

        Raises:
            BadRequest: the request must not be sent.
        """
        match request:
            case api.List(selector, limit, continue_token, resource_version):
                query = {"labelSelector": selector, "limit": str(limit)}
                if continue_token:  # which names the version of its list
                    query["continue"] = continue_token
                elif resource_version is not None:
                    query["resourceVersion"] = resource_version
                return _list(self._path(PODS, query=query)), self._read_page
            case api.Get(name):
                return _get(self._path(PODS, name)), decode.pod
            case api.Create(manifest):
                return HttpRequest("POST", self._path(PODS), _json(manifest)), decode.pod
            case api.Delete(name, options):
                return _delete(self._path(PODS, name), options), decode.anything
            case api.DeleteCollection(selector, grace, at_version):
                if not selector.strip():
                    raise BadRequest("not sent: a bulk delete without a selector would delete every pod")
                query = {"labelSelector": selector}
                if at_version is not None:
                    query |= {"resourceVersion": at_version, "resourceVersionMatch": "Exact"}
                path = self._path(PODS, query=query)
                return _delete(path, api.DeleteOptions(grace=grace)), decode.anything
            case api.Patch(name, patch):
                return _patch(self._path(PODS, name), patch), decode.pod
            case api.ReviewAccess(verb, resource, name):
                return self._review(verb, resource, name), decode.is_allowed
            case api.GetObject(resource, name):
                return _get(self._path(resource, name)), decode.json_object
            case api.ListObjects(resource, selector):
                return _list(self._path(resource, query={"labelSelector": selector})), decode.json_items
            case api.ListPage(resource):
                return _list(self._path(resource, query=_page_query(request), everywhere=request.everywhere)), (
                    decode.object_page
                )
            case api.CreateObject(resource, manifest):
                return HttpRequest("POST", self._path(resource), _json(manifest)), decode.json_object
            case api.PatchObject(resource, name, patch):
                return _patch(self._path(resource, name), patch), decode.json_object
            case api.DeleteObject(resource, name, uid):
                body = _json(_delete_options(api.DeleteOptions(uid=uid)))
                return HttpRequest("DELETE", self._path(resource, name), body), decode.anything
            case _:
                raise TypeError(f"not a request to a PodApi: {request}")

    def _read_page(self, body: bytes) -> PodPage:
        return decode.pod_page(body, self._complaints, self._deduplicator)

    def _review(self, verb: str, resource: Resource, name: str) -> HttpRequest:
        """Every account may review its own access, unless the cluster's operator removed that right."""
        asked = {"namespace": self.namespace, "verb": verb, "group": resource.group, "resource": resource.plural}
        if name:
            asked["name"] = name
        review = {"apiVersion": _REVIEWS, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        return HttpRequest("POST", f"/apis/{_REVIEWS}/selfsubjectaccessreviews", _json(review), changes=False)

    def _path(
        self,
        resource: Resource,
        name: str | None = None,
        *,
        subresource: str | None = None,
        query: Mapping[str, str] | None = None,
        everywhere: bool = False,
    ) -> str:
        """Return the path and query of one object, or of the collection if there is no name.

        Raises:
            BadRequest: the name would lead to the collection, or to another path.
        """
        root = f"/apis/{resource.group}" if resource.group else "/api"
        within = resource.namespaced and not everywhere
        namespace = f"/namespaces/{quote(self.namespace, safe='')}" if within else ""
        path = f"{root}/{resource.version}{namespace}/{resource.plural}"
        if name is not None:
            if name in {"", ".", ".."} or "/" in name:
                raise BadRequest(f"not sent: {name!r} cannot be the name of an object")
            path += f"/{quote(name, safe='')}" + (f"/{subresource}" if subresource is not None else "")
        return f"{path}?{urlencode(query, quote_via=quote)}" if query else path

    def _opened(self, request: Request[A], reply: Reply[A]) -> OpenCall[A]:
        return OpenCall(f"the {request.operation}", partial(deliver, reply), self._calls)

    def _submit(
        self, call: OpenCall[A], request: HttpRequest, read: Callable[[bytes], A], deadline: Deadline | None
    ) -> None:
        """Have a worker send the request. A call that completes before is not sent: its wire is cut."""
        wire = Wire(deadline)
        call.depends_on(wire)

        def late() -> None:
            server, started, sent = self.access.server, wire.started, wire.sent
            call.complete(failures.late(server, self.request_timeout, started=started, sent=sent, write=request.write))

        def run(client: Client) -> None:
            try:
                call.complete(client.fetch(request, wire, read))
            except WireCut:
                pass  # the call has completed
            except WireLate:
                call.not_sent()

        try:
            call.depends_on(self._timers.schedule(self.request_timeout, late))
            self._workers.submit(run)
        except NoThread as error:
            call.complete(Unavailable(str(error)))

    def _client(self) -> Client:
        return Client(
            self.access,
            limit=self.request_timeout,
            user_agent=self._user_agent,
            clock=self._clock,
            bounds=self.bounds,
            server_clock=self._server_clock,
        )


def _get(path: str) -> HttpRequest:
    return HttpRequest("GET", path)


def _list(path: str) -> HttpRequest:
    return HttpRequest("GET", path, accept_encoding="gzip", answer="list")


def _page_query(request: api.ListPage) -> dict[str, str]:
    query = {
        "labelSelector": request.selector,
        "fieldSelector": request.field_selector,
        "limit": str(request.limit),
        "continue": request.continue_token,
    }
    return {key: value for key, value in query.items() if value}


def _delete(path: str, options: DeleteOptions) -> HttpRequest:
    """A bulk delete is answered with all that it deletes."""
    return HttpRequest("DELETE", path, _json(_delete_options(options)), answer="dropped")


def _patch(path: str, patch: Manifest) -> HttpRequest:
    return HttpRequest("PATCH", path, _json(patch), content_type=MERGE_PATCH)


def _json(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value, enc_hook=_as_json)


def _as_json(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _delete_options(options: DeleteOptions) -> Mapping[str, Any]:
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    given = {key: value for key, value in preconditions.items() if value is not None}
    return {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        **({"gracePeriodSeconds": math.ceil(options.grace.total_seconds())} if options.grace is not None else {}),
        **({"preconditions": given} if given else {}),
    }
