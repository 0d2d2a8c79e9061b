"""`HttpPodApi`: the pods of one namespace of a real API server, or of the embedded one, over HTTP."""

from __future__ import annotations

import importlib.metadata
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, final
from urllib.parse import quote, urlencode

import msgspec

from actors.errors import ApiError, BadRequest, Cancelled, SettingsError, Unavailable
from actors.kube.api import PODS, Call, DeleteOptions, Manifest, PodPage, Resource, WatchSink
from actors.kube.http import decode, failures
from actors.kube.http.calls import PendingCall, Workers
from actors.kube.http.client import Client, Request
from actors.kube.http.decode import Complaints, PodDeduplicator, WatchDecoder
from actors.kube.http.streams import Stream
from actors.runtime import Clock, SystemClock, TimerService, TimerThread

if TYPE_CHECKING:
    from actors.kube.auth.credentials import Access
    from actors.pods.pod import Pod

__all__ = ["HttpPodApi"]

logger = logging.getLogger(__name__)

A = TypeVar("A")

MERGE_PATCH: Final = "application/merge-patch+json"

_REVIEWS: Final = "authorization.k8s.io/v1"

JOIN_LIMIT: Final = timedelta(seconds=2)
"""How long `close` waits for threads in all. Cut sockets end theirs at once; what remains resolves a name, which
nothing can interrupt, or runs an exec plugin."""


@final
class HttpPodApi:
    """See `actors.kube.api.PodApi`. Thread-safe. Threads are started when they are first needed."""

    def __init__(
        self,
        access: Access,
        *,
        namespace: str,
        request_timeout: timedelta,
        max_connections: int,
        clock: Clock | None = None,
        timers: TimerService | None = None,
    ) -> None:
        """`timers` watch the limits; by default a thread of this client's own, which `close` ends."""
        if not namespace or namespace in {".", ".."} or "/" in namespace:
            raise SettingsError(f"namespace {namespace!r} cannot be the name of a namespace")
        self._access = access
        self._namespace = namespace
        self._limit = request_timeout
        self._clock = clock or SystemClock()
        self._user_agent = f"executor-pods/{_version()}"
        self._pods = self._objects(PODS)
        self._complaints = Complaints()
        self._sharing = PodDeduplicator()
        self._own_timers = TimerThread(self._clock)
        self._timers = self._own_timers if timers is None else timers
        self._workers = Workers(max_connections, self._client)
        self._lock = threading.Lock()
        self._open: set[PendingCall | Stream] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpPodApi(server={self._access.server!r}, namespace={self._namespace!r})"

    @property
    def namespace(self) -> str:
        """See `PodApi`."""
        return self._namespace

    def list(
        self,
        selector: str,
        reply: Callable[[PodPage | ApiError], None],
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
    ) -> Call:
        """See `PodApi`. A continue token says by itself which version it goes on with."""
        query = {"labelSelector": selector, "limit": str(limit)}
        if continue_token:
            query["continue"] = continue_token
        else:
            self._sharing.begin_list()
            if resource_version is not None:
                query["resourceVersion"] = resource_version
        request = Request("GET", self._collection(query), accept_encoding="gzip")
        return self._call(
            "list pods", request, lambda body: decode.pod_page(body, self._complaints, self._sharing), reply
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
        """See `PodApi`. The limit of a call is how long the server may take to answer with headers."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout.total_seconds()))),
        }
        if send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        stream = Stream(
            Request("GET", self._collection(query)),
            client=self._client(),
            server=self._access.server,
            decoder=WatchDecoder(resource_version, self._complaints, self._sharing),
            sink=sink,
            on_ended=self._forget,
        )
        if not self._remember(stream):
            stream.cancel()
            return stream
        try:
            stream.start(self._timers.schedule(self._limit, lambda: stream.give_up(self._late(stream, write=False))))
        except RuntimeError as error:
            stream.give_up(_no_thread(error))
        return stream

    def get(self, name: str, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._call("get a pod", Request("GET", self._pod(name)), decode.pod, reply, name=name)

    def create(self, manifest: Manifest, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._call("create a pod", Request("POST", self._pods, _json(manifest)), decode.pod, reply)

    def delete(self, name: str, options: DeleteOptions, reply: Callable[[ApiError | None], None]) -> Call:
        """See `PodApi`."""
        request = Request("DELETE", self._pod(name), _json(_delete_options(options)))
        return self._call("delete a pod", request, decode.anything, reply, name=name)

    def delete_collection(
        self, selector: str, reply: Callable[[ApiError | None], None], *, grace: timedelta | None = None
    ) -> Call:
        """See `PodApi`. An empty selector is refused: it would mean every pod of the namespace."""
        query = {"labelSelector": selector}
        request = Request("DELETE", self._collection(query), _json(_delete_options(DeleteOptions(grace=grace))))
        if not selector.strip():
            return self._refused("delete pods", reply, "a bulk delete without a selector would delete every pod")
        return self._call("delete pods", request, decode.anything, reply)

    def patch(self, name: str, patch: Manifest, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        request = Request("PATCH", self._pod(name), _json(patch), content_type=MERGE_PATCH)
        return self._call("patch a pod", request, decode.pod, reply, name=name)

    def may(self, verb: str, resource: Resource, reply: Callable[[bool | ApiError], None]) -> Call:
        """See `PodApi`. Every account may ask this about itself, unless a cluster's operator took that right away."""
        asked = {"namespace": self._namespace, "verb": verb, "group": resource.group, "resource": resource.plural}
        review = {"apiVersion": _REVIEWS, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        request = Request("POST", f"/apis/{_REVIEWS}/selfsubjectaccessreviews", _json(review), changes=False)
        return self._call("review a right", request, decode.is_allowed, reply)

    def get_object(self, resource: Resource, name: str, reply: Callable[[Manifest | ApiError], None]) -> Call:
        """See `PodApi`."""
        request = Request("GET", self._object(resource, name))
        return self._call(f"get one of {resource}", request, decode.json_object, reply, name=name)

    def list_objects(
        self, resource: Resource, selector: str, reply: Callable[[Sequence[Manifest] | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        query = urlencode({"labelSelector": selector}, quote_via=quote)
        request = Request("GET", f"{self._objects(resource)}?{query}", accept_encoding="gzip")
        return self._call(f"list {resource}", request, decode.json_items, reply)

    def create_object(
        self, resource: Resource, manifest: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        request = Request("POST", self._objects(resource), _json(manifest))
        return self._call(f"create one of {resource}", request, decode.json_object, reply)

    def patch_object(
        self, resource: Resource, name: str, patch: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        request = Request("PATCH", self._object(resource, name), _json(patch), content_type=MERGE_PATCH)
        return self._call(f"patch one of {resource}", request, decode.json_object, reply, name=name)

    def close(self) -> None:
        """See `PodApi`. A thread that does not end soon is reported; it can send nothing any more."""
        with self._lock:
            self._closed = True
            still_open = tuple(self._open)
        for each in still_open:
            each.give_up(Cancelled("the connection to the API was closed"))
        threads = {*self._workers.close(), *self._streaming()} - {threading.current_thread()}
        deadline = self._clock.monotonic() + JOIN_LIMIT.total_seconds()
        for thread in threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        left = sorted(thread.name for thread in threads if thread.is_alive())
        if left:
            logger.warning("threads do not end, they are left behind: threads=%s", ", ".join(left))
        self._own_timers.close()

    # ── one call ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _call(
        self,
        what: str,
        request: Request,
        read: Callable[[bytes], A],
        reply: Callable[[Any], None],
        *,
        name: str | None = None,
    ) -> Call:
        """Complete it by a worker, or by the limit. `name` is what the path ends with, if it names a pod."""
        if name is not None and (name in {"", ".", ".."} or "/" in name):
            # Such a path would mean the collection, or something else altogether.
            return self._refused(what, reply, f"{name!r} cannot be the name of a pod")
        call = PendingCall(f"the call to {what}", reply, self._forget)
        if not self._remember(call):
            call.give_up(Cancelled("the connection to the API is closed"))
            return call
        try:
            call.limited_by(
                self._timers.schedule(self._limit, lambda: call.give_up(self._late(call, write=request.write)))
            )
            self._workers.submit(lambda client: _run(call, request, client, read))
        except RuntimeError as error:
            call.give_up(_no_thread(error))
        return call

    def _refused(self, what: str, reply: Callable[[Any], None], why: str) -> Call:
        call = PendingCall(what, reply, self._forget)
        call.complete(BadRequest(f"the call to {what} was not sent: {why}"))
        return call

    def _late(self, pending: PendingCall | Stream, *, write: bool) -> ApiError:
        wire = pending.wire
        return failures.late(self._access.server, self._limit, started=wire.started, sent=wire.sent, write=write)

    def _client(self) -> Client:
        return Client(self._access, limit=self._limit, user_agent=self._user_agent, clock=self._clock)

    def _collection(self, query: Mapping[str, str]) -> str:
        return f"{self._pods}?{urlencode(query, quote_via=quote)}"

    def _pod(self, name: str) -> str:
        return self._object(PODS, name)

    def _objects(self, resource: Resource) -> str:
        root = f"/apis/{resource.group}" if resource.group else "/api"
        return f"{root}/{resource.version}/namespaces/{quote(self._namespace, safe='')}/{resource.plural}"

    def _object(self, resource: Resource, name: str) -> str:
        return f"{self._objects(resource)}/{quote(name, safe='')}"

    # ── what is open ─────────────────────────────────────────────────────────────────────────────────────────────

    def _remember(self, pending: PendingCall | Stream) -> bool:
        """Have `close` end it; False if it is closed already."""
        with self._lock:
            if self._closed:
                return False
            self._open.add(pending)
            if isinstance(pending, Stream):
                self._threads = {thread for thread in self._threads if thread.is_alive()} | {pending.thread}
            return True

    def _forget(self, pending: PendingCall | Stream) -> None:
        with self._lock:
            self._open.discard(pending)

    def _streaming(self) -> set[threading.Thread]:
        with self._lock:
            return {thread for thread in self._threads if thread.is_alive()}


def _run(call: PendingCall, request: Request, client: Client, read: Callable[[bytes], A]) -> None:
    """In a worker: the call's request and answer. One that was completed meanwhile has a cut wire and is not sent."""
    call.complete(client.fetch(request, call.wire, read))


def _no_thread(error: RuntimeError) -> ApiError:
    return Unavailable(f"no thread can be started: {error}")


def _json(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value, enc_hook=_as_json)


def _as_json(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")


def _delete_options(options: DeleteOptions) -> Mapping[str, Any]:
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    given = {key: value for key, value in preconditions.items() if value is not None}
    return {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        **({"gracePeriodSeconds": math.ceil(options.grace.total_seconds())} if options.grace is not None else {}),
        **({"preconditions": given} if given else {}),
    }


def _version() -> str:
    try:
        return importlib.metadata.version("executor-pods")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
