"""A `PodApi` whose answers a test waits for, and watches that it reads one event at a time."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from actors import kube
from actors.kube import DeleteOptions, PodApi, PodPage, WatchEnded, WatchEvents
from actors.pods.pod import Pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import ApiError
    from actors.kube import Call, Resource

A = TypeVar("A")

SAFETY = 30.0
"""Seconds until a test that would hang fails instead."""
WATCH = timedelta(seconds=8)
"""For a watch whose bookmark a test waits for: a real server sends it two seconds before the end, by which a loaded
machine must have done all that the test does before.
"""


def manifest(name: str, labels: dict[str, str] | None = None, *, node: str | None = None) -> dict[str, Any]:
    """A pod of one container, bound to `node` if one is named: then it needs a kubelet to be deleted."""
    spec: dict[str, Any] = {"containers": [{"name": "executor", "image": "worker:1"}]}
    if node is not None:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": spec}


class Watching:
    """A watch under way."""

    def __init__(self) -> None:
        self._heard: SimpleQueue[WatchEvents | WatchEnded] = SimpleQueue()
        self._events: deque[tuple[str, Pod]] = deque()
        self.version = ""
        self.call: Call

    def sink(self, what: WatchEvents | WatchEnded) -> None:
        self._heard.put(what)

    def event(self) -> tuple[str, Pod]:
        """The next change: its type and pod."""
        while not self._events:
            what = self._heard.get(timeout=SAFETY)
            assert isinstance(what, WatchEvents), f"the stream ended: {what}"
            self.version = what.resource_version
            self._events.extend((event.type, event.pod) for event in what.events)
        return self._events.popleft()

    def bookmark(self) -> str:
        """The version of the bookmark that comes next."""
        what = self._heard.get(timeout=SAFETY)
        assert isinstance(what, WatchEvents), f"the stream ended: {what}"
        assert what.events == ()
        return what.resource_version

    def initial(self) -> tuple[list[tuple[str, Pod]], str]:
        """What was there when the watch began, and the version that the end mark carries."""
        told: list[tuple[str, Pod]] = []
        while True:
            what = self._heard.get(timeout=SAFETY)
            assert isinstance(what, WatchEvents), f"the stream ended: {what}"
            told.extend((event.type, event.pod) for event in what.events)
            if what.initial_events_end:
                self.version = what.resource_version
                return told, what.resource_version

    def marked(self) -> bool:
        """Whether the bookmark that comes next ends initial events."""
        what = self._heard.get(timeout=SAFETY)
        assert isinstance(what, WatchEvents), f"the stream ended: {what}"
        assert what.events == ()
        return what.initial_events_end

    def end(self) -> ApiError | None:
        """How the stream ended, after what else it brought."""
        while True:
            what = self._heard.get(timeout=SAFETY)
            if isinstance(what, WatchEnded):
                assert self._heard.empty(), "something came after the end"
                return what.error

    def quiet(self) -> bool:
        """Nothing has come that was not read."""
        return not self._events and self._heard.empty()


class Asking:
    """Every method waits for the answer, an `ApiError` included."""

    def __init__(self, api: PodApi) -> None:
        self.api = api

    def create(self, pod: dict[str, Any]) -> Any:
        return self._ask(lambda reply: self.api.send(kube.Create(pod), reply))

    def created(self, pod: dict[str, Any]) -> Pod:
        found = self.create(pod)
        assert isinstance(found, Pod), found
        return found

    def get(self, name: str) -> Any:
        return self._ask(lambda reply: self.api.send(kube.Get(name), reply))

    def list(self, selector: str = "", **options: Any) -> Any:
        return self._ask(lambda reply: self.api.send(kube.List(selector, **options), reply))

    def listed(self, selector: str = "", **options: Any) -> PodPage:
        found = self.list(selector, **options)
        assert isinstance(found, PodPage), found
        return found

    def names(self, selector: str = "") -> set[str]:
        return {pod.name for pod in self.listed(selector).pods}

    def delete(self, name: str, options: DeleteOptions | None = None) -> Any:
        return self._ask(lambda reply: self.api.send(kube.Delete(name, options or DeleteOptions()), reply))

    def delete_collection(self, selector: str, grace: timedelta | None = None, at_version: str | None = None) -> Any:
        return self._ask(lambda reply: self.api.send(kube.DeleteCollection(selector, grace, at_version), reply))

    def patch(self, name: str, patch: dict[str, Any]) -> Any:
        return self._ask(lambda reply: self.api.send(kube.Patch(name, patch), reply))

    def watch(
        self, selector: str, version: str, timeout: timedelta = timedelta(minutes=5), *, initial: bool = False
    ) -> Watching:
        watching = Watching()
        watching.call = self.api.watch(
            kube.Watch(selector, version, timeout=timeout, send_initial_events=initial), watching.sink
        )
        return watching

    def may(self, verb: str, resource: Resource) -> Any:
        return self._ask(lambda reply: self.api.send(kube.ReviewAccess(verb, resource), reply))

    def get_object(self, resource: Resource, name: str) -> Any:
        return self._ask(lambda reply: self.api.send(kube.GetObject(resource, name), reply))

    def list_objects(self, resource: Resource, selector: str = "") -> Any:
        return self._ask(lambda reply: self.api.send(kube.ListObjects(resource, selector), reply))

    def list_page(self, resource: Resource, selector: str = "", **options: Any) -> Any:
        return self._ask(lambda reply: self.api.send(kube.ListPage(resource, selector, **options), reply))

    def create_object(self, resource: Resource, obj: dict[str, Any]) -> Any:
        return self._ask(lambda reply: self.api.send(kube.CreateObject(resource, obj), reply))

    def patch_object(self, resource: Resource, name: str, patch: dict[str, Any]) -> Any:
        return self._ask(lambda reply: self.api.send(kube.PatchObject(resource, name, patch), reply))

    def delete_object(self, resource: Resource, name: str, uid: str) -> Any:
        return self._ask(lambda reply: self.api.send(kube.DeleteObject(resource, name, uid), reply))

    def _ask(self, call: Callable[[Callable[[Any], None]], Call]) -> Any:
        answers: SimpleQueue[Any] = SimpleQueue()
        call(answers.put)
        return answers.get(timeout=SAFETY)
