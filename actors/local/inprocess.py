"""`InProcessPodApi`: a `PodApi` on the store without a network, for tests and simulations in virtual time.

It gives the answers, errors and order of events that the HTTP client would get from a server with the same objects, and
leaves out the same events of a watch. It starts no thread; without latency, a call completes before `send` returns.
"""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeVar

from actors import kube
from actors.errors import ApiError
from actors.kube.api import PODS, PodPage, WatchEvents
from actors.kube.calls import OpenCall, OpenCalls, OpenStream
from actors.kube.deduplication import Connection, PodDeduplicator
from actors.kube.status import error_from_status
from actors.local.schema.statuses import ApiStatus, lacks_right
from actors.local.store.object_store import INITIAL_EVENTS_END
from actors.pods.api_pod import ApiEvent, ApiPod
from actors.pods.repair import pod_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.kube.api import Call, Reply, Request, Resource, Watch, WatchSink
    from actors.local.store.object_store import ObjectStore, Subscription, WatchMessage
    from actors.runtime import TimerService

__all__ = ["InProcessPodApi"]

A = TypeVar("A")

BOOKMARK_INTERVAL: Final = timedelta(seconds=60)
"""As a real server, which sends bookmarks about once a minute."""

_CACHED_PODS: Final = 20_000
"""Decoded pods to keep: more than a fleet has, and a few dozen MiB at most."""

_NOW: Final = timedelta(0)


class InProcessPodApi:
    """The pods of one namespace of a store.

    Args:
        store: the cluster.
        namespace: the namespace of every request.
        timers: without them nothing takes time: there are no bookmarks, and streams never end by themselves.
        latency: the time from a call to its answer; half of it passes before the store gets the request. An event takes
            half of it. Needs timers.

    `forbidden` holds the rights that the account lacks, as verb and plural: `("list", "pods")`. It can change at any
    time.
    """

    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        timers: TimerService | None = None,
        latency: timedelta = _NOW,
    ) -> None:
        if latency > _NOW and timers is None:
            raise ValueError("latency needs timers")
        self.store = store
        self.timers = timers
        self.calls = OpenCalls()
        self.decoder = PodDecoder()
        self.deduplicator = PodDeduplicator()
        self.namespace = namespace
        self._leg = latency / 2
        self.forbidden: set[tuple[str, str]] = set()

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`."""
        if isinstance(request, kube.List) and not request.continue_token:
            self.deduplicator.begin_list()
        call: OpenCall[A] = OpenCall(f"the {request.operation}", reply, self.calls)
        if self.calls.closed:
            call.cancel()
            return call
        if request.late:
            call.not_sent()
            return call

        def arrive() -> None:
            if call.done:
                return
            answer: A | ApiError
            try:
                answer = self._answer(request)
            except ApiStatus as status:
                answer = _error(status)
            except ApiError as error:
                answer = error
            self.after_leg(lambda: call.complete(answer), call)

        self.after_leg(arrive, call)
        return call

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        watch = _Watch(self, sink, Connection(request.resource_version or None))
        if self.calls.closed:
            watch.stream.cancel()
        else:
            self.after_leg(lambda: self.after_leg(lambda: watch.open(request)))
        return watch.stream

    def close(self) -> None:
        """See `PodApi`. Later calls complete with `Cancelled`, too."""
        self.calls.close()

    def right(self, verb: str, resource: Resource) -> None:
        """Check that the account has a right.

        Raises:
            Forbidden: it is in `forbidden`.
        """
        if (verb, resource.plural) in self.forbidden:
            raise _error(lacks_right(verb, resource.plural, resource.group, self.namespace))

    def _answer(self, request: Request[Any]) -> Any:  # noqa: C901, PLR0912 - one case a request
        """Return the store's answer.

        Raises:
            ApiError: the account lacks the right.
            ApiStatus: the store refuses the request.
        """
        store, namespace = self.store, self.namespace
        match request:
            case kube.List():
                self.right("list", PODS)
                return self._page(request)
            case kube.Get(name):
                self.right("get", PODS)
                return pod_from(store.get("pods", namespace, name)).pod()
            case kube.Create(manifest):
                self.right("create", PODS)
                return pod_from(store.create("pods", namespace, manifest)).pod()
            case kube.Delete(name, options):
                self.right("delete", PODS)
                store.delete(
                    "pods",
                    namespace,
                    name,
                    grace_period_seconds=_seconds(options.grace),
                    uid=options.uid,
                    resource_version=options.resource_version,
                )
                return None
            case kube.DeleteCollection(selector, grace, at_version):
                self.right("deletecollection", PODS)
                store.delete_collection(
                    "pods",
                    namespace,
                    listed_at=at_version,
                    match=None if at_version is None else "Exact",
                    label_selector=selector,
                    grace_period_seconds=_seconds(grace),
                )
                return None
            case kube.Patch(name, patch):
                self.right("patch", PODS)
                return pod_from(store.patch("pods", namespace, name, patch, "merge")).pod()
            case kube.ReviewAccess(verb, resource):
                return (verb, resource.plural) not in self.forbidden
            case kube.GetObject(resource, name):
                self.right("get", resource)
                return store.get(resource.plural, namespace if resource.namespaced else None, name)
            case kube.ListObjects(resource, selector):
                self.right("list", resource)
                return store.list(resource.plural, namespace, label_selector=selector).items
            case kube.ListPage(resource):
                self.right("list", resource)
                page = store.list(
                    resource.plural,
                    None if request.everywhere else namespace,
                    label_selector=request.selector,
                    field_selector=request.field_selector,
                    limit=request.limit,
                    continue_token=request.continue_token,
                )
                return kube.ObjectPage(page.items, page.continue_token)
            case kube.CreateObject(resource, manifest):
                self.right("create", resource)
                return store.create(resource.plural, namespace, manifest)
            case kube.PatchObject(resource, name, patch):
                self.right("patch", resource)
                return store.patch(resource.plural, namespace, name, patch, "merge")
            case kube.DeleteObject(resource, name, uid):
                self.right("delete", resource)
                store.delete(resource.plural, namespace, name, uid=uid)
                return None
            case _:
                raise TypeError(f"not a request to a PodApi: {request}")

    def _page(self, request: kube.List) -> PodPage:
        answer = self.store.list(
            "pods",
            self.namespace,
            label_selector=request.selector,
            limit=request.limit,
            continue_token=request.continue_token,
            resource_version=request.resource_version,
        )
        kept = self.deduplicator.listed(map(self.decoder.pod, answer.items), answer.resource_version)
        return PodPage(tuple(kept.pods), answer.resource_version, answer.continue_token, versions=kept.versions)

    def after_leg(self, step: Callable[[], None], call: OpenCall[Any] | None = None) -> None:
        """Run the step after half of the latency, or now without latency; not if `call` completes before."""
        if self.timers is None or self._leg <= _NOW:
            step()
        else:
            scheduled = self.timers.schedule(self._leg, step)
            if call is not None:
                call.depends_on(scheduled)


class _Watch:
    """A subscription of the store behind a stream."""

    def __init__(self, api: InProcessPodApi, sink: WatchSink, connection: Connection) -> None:
        self._api = api
        self._connection = connection
        self.stream = OpenStream(sink, api.calls)

    def open(self, request: Watch) -> None:
        """Subscribe, or end the stream with the store's error."""
        if self.stream.done:
            return
        api = self._api
        try:
            api.right("watch", PODS)
            subscription = api.store.watch(
                "pods",
                api.namespace,
                self._on_message,
                label_selector=request.selector,
                resource_version=request.resource_version,
                bookmarks=True,
                send_initial_events=request.send_initial_events,
            )
        except ApiStatus as status:
            self.stream.end(_error(status))
            return
        except ApiError as error:
            self.stream.end(error)
            return
        self.stream.depends_on(subscription)
        if api.timers is not None and not self.stream.done:
            self.stream.depends_on(api.timers.schedule(request.timeout, lambda: self.stream.end(None)))
            self._bookmark_later(api.timers, subscription)

    def _bookmark_later(self, timers: TimerService, subscription: Subscription) -> None:
        def due() -> None:
            if not self.stream.done:
                self._api.store.bookmark(subscription)
                self._bookmark_later(timers, subscription)

        self.stream.depends_on(timers.schedule(BOOKMARK_INTERVAL, due))

    def _on_message(self, message: WatchMessage) -> None:
        self._api.after_leg(lambda: self._pass_on(message))

    def _pass_on(self, message: WatchMessage) -> None:
        match message.type:
            case "ERROR":
                self.stream.end(_error_of(message.object), in_stream=True)
            case "BOOKMARK":
                metadata = message.object["metadata"]
                ends = metadata.get("annotations", {}).get(INITIAL_EVENTS_END) == "true"
                self.stream.deliver(WatchEvents((), metadata["resourceVersion"], initial_events_end=ends))
            case event_type:
                event = ApiEvent(event_type, self._api.decoder.pod(message.object))
                changed, _ = self._api.deduplicator.watched((event,), self._connection)
                version = message.object["metadata"]["resourceVersion"]
                self.stream.deliver(WatchEvents(tuple(changed), version, unchanged=1 - len(changed)))


class PodDecoder:
    """Decodes the pods of lists and watches, each version once: lists return the same versions many times.

    The key is the identity of an object's metadata: all copies of one version share it, and each version has its own.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Mapping[str, Any], ApiPod]] = {}

    def pod(self, obj: Mapping[str, Any]) -> ApiPod:
        """Return the pod, without its unusable fields."""
        metadata = obj["metadata"]
        known = self._known.get(id(metadata))
        if known is not None and known[0] is metadata:
            return known[1]
        pod = pod_from(obj)
        if len(self._known) >= _CACHED_PODS:
            self._known.clear()
        self._known[id(metadata)] = (metadata, pod)
        return pod


def _seconds(grace: timedelta | None) -> int | None:
    return None if grace is None else ceil(grace.total_seconds())


def _error(status: ApiStatus) -> ApiError:
    return _error_of(status.to_json())


def _error_of(status: Mapping[str, Any]) -> ApiError:
    return error_from_status(status, status.get("code", 500), None)
