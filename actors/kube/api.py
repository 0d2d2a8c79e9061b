"""`PodApi`: the seam between the library and the Kubernetes API, for the pods of one namespace.

Pods are decoded; the few objects of other kinds that a fleet needs (leases, volume claims, Events) stay JSON.

A request is a value. `send` returns a `Call` at once; the call completes later, exactly once, when `reply` is called
with the answer or with an `ApiError`. A reply may come on any thread, even before `send` returns; it must be quick and
must not raise (an actor's `tell` is both). A cancelled call completes with `Cancelled`, unless it was answered before.
No implementation retries or sleeps: retries belong to the RequestPool and the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from actors.errors import ApiError
from actors.pods.pod import Pod, PodEvent
from actors.runtime import Deadline

__all__ = [
    "CLAIMS",
    "EVENTS",
    "LEASES",
    "LOGS",
    "NAMESPACES",
    "PODS",
    "Call",
    "Create",
    "CreateObject",
    "Delete",
    "DeleteCollection",
    "DeleteObject",
    "DeleteOptions",
    "Get",
    "GetObject",
    "List",
    "ListObjects",
    "ListPage",
    "Manifest",
    "ObjectPage",
    "Operation",
    "Patch",
    "PatchObject",
    "PodApi",
    "PodPage",
    "Reply",
    "Request",
    "Resource",
    "ReviewAccess",
    "Watch",
    "WatchEnded",
    "WatchEvents",
    "WatchSink",
]

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

Manifest: TypeAlias = Mapping[str, Any]
"""A v1 Pod, or a merge patch for one, as JSON."""


class Resource(msgspec.Struct, frozen=True):
    """A kind of objects, as a URL and an RBAC rule name it. The core group is empty."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS: Final = Resource("pods", "Pod")
LOGS: Final = Resource("pods/log", "Pod")
"""In rules and reviews only: it is a subresource."""
CLAIMS: Final = Resource("persistentvolumeclaims", "PersistentVolumeClaim")
EVENTS: Final = Resource("events", "Event")
LEASES: Final = Resource("leases", "Lease", "coordination.k8s.io")
NAMESPACES: Final = Resource("namespaces", "Namespace", namespaced=False)


class PodPage(msgspec.Struct, frozen=True):
    """One page of a LIST. `continue_token` is empty on the last page; `resource_version` is that of the whole list.

    `malformed` counts the items that could not be decoded as pods; they are left out and logged once. `versions` has
    the listed version of each of the `pods`, at the same place: an earlier, otherwise equal `Pod` may be returned for
    one. None means that the pods have their own.
    """

    pods: tuple[Pod, ...]
    resource_version: str
    continue_token: str = ""
    malformed: int = 0
    versions: Sequence[str] | None = None

    @property
    def listed_versions(self) -> Sequence[str]:
        """The listed version of each pod."""
        return [pod.resource_version for pod in self.pods] if self.versions is None else self.versions


class ObjectPage(msgspec.Struct, frozen=True):
    """One page of a LIST of any kind, as JSON. `continue_token` is empty on the last page."""

    items: Sequence[Manifest]
    continue_token: str = ""


class WatchEvents(msgspec.Struct, frozen=True):
    """Events of a watch stream, in order, and the version that the stream has reached. A bookmark has no events.

    `unchanged` counts the events left out because a running pod's `Pod` differs from the last one in its version only.
    With `initial_events_end`, the initial events of the watch are complete as of `resource_version`.
    """

    events: tuple[PodEvent, ...]
    resource_version: str
    malformed: int = 0
    initial_events_end: bool = False
    unchanged: int = 0
    urgent: bool = True
    """False if no pod ends or begins to: whoever reads the stream may hold it back for some milliseconds."""


class WatchEnded(msgspec.Struct, frozen=True):
    """The end of a stream. `error` is None after a clean end, `Gone` after 410, `Cancelled` after a cancel."""

    error: ApiError | None
    in_stream: bool = False
    """The error came as an ERROR event, after the server had accepted the watch."""


class DeleteOptions(msgspec.Struct, frozen=True):
    """Options of a DELETE. A failed precondition is a `Conflict`; without `grace` the pod's own grace period counts."""

    uid: str | None = None
    resource_version: str | None = None
    grace: timedelta | None = None


Operation: TypeAlias = Literal[
    "list",
    "watch",
    "get",
    "create",
    "delete",
    "delete_collection",
    "patch",
    "may",
    "get_object",
    "list_objects",
    "create_object",
    "patch_object",
    "delete_object",
]
"""The name of an operation, in metrics and injected faults."""


class Request(msgspec.Struct, Generic[A_co], frozen=True, kw_only=True):
    """A request; its answer is an `A_co` or an `ApiError`."""

    operation: ClassVar[Operation]
    deadline: Deadline | None = None
    """After this moment it is not sent, and completes with `NotSent`. Looked at when its first byte is to be sent."""

    @property
    def late(self) -> bool:
        """The deadline has passed."""
        return self.deadline is not None and self.deadline.passed


class List(Request[PodPage], frozen=True):
    """One page of a LIST by label selector. `resource_version="0"` lets the server answer from its cache."""

    operation = "list"
    selector: str
    limit: int = 500
    continue_token: str = ""
    resource_version: str | None = None


class Get(Request[Pod], frozen=True):
    """Read one pod."""

    operation = "get"
    name: str


class Create(Request[Pod], frozen=True):
    """POST a pod. A lost answer is `Ambiguous`."""

    operation = "create"
    manifest: Manifest


class Delete(Request[None], frozen=True):
    """DELETE one pod. None means that the pod is being deleted, or is gone."""

    operation = "delete"
    name: str
    options: DeleteOptions = DeleteOptions()


class DeleteCollection(Request[None], frozen=True):
    """DELETE all pods that a label selector matches. HTTP refuses an empty selector: it would match every pod."""

    operation = "delete_collection"
    selector: str
    grace: timedelta | None = None
    """As in `DeleteOptions`."""
    at_version: str | None = None
    """The version of a LIST: only what matched at that version is deleted, by its name. What has come since stays. A
    version that the server does not have any more is `Gone`."""


class Patch(Request[Pod], frozen=True):
    """Merge-patch one pod. A `metadata.uid` or `metadata.resourceVersion` in the patch is a precondition."""

    operation = "patch"
    name: str
    patch: Manifest


class ReviewAccess(Request[bool], frozen=True):
    """Ask whether our account has a right in this namespace. `verb` is an RBAC verb, such as `deletecollection`.

    With a `name` it is asked about the object of that name: the right may be granted for this one only.
    """

    operation = "may"
    verb: str
    resource: Resource
    name: str = ""


class GetObject(Request[Manifest], frozen=True):
    """Read one object of another kind, as JSON."""

    operation = "get_object"
    resource: Resource
    name: str


class ListObjects(Request[Sequence[Manifest]], frozen=True):
    """List all objects of another kind that a label selector matches, in one page: for kinds with few objects."""

    operation = "list_objects"
    resource: Resource
    selector: str


class ListPage(Request[ObjectPage], frozen=True):
    """One page of a LIST of any kind, for those who need the whole objects: nothing of them is left out."""

    operation = "list_objects"
    resource: Resource
    selector: str = ""
    field_selector: str = ""
    limit: int = 500
    continue_token: str = ""
    everywhere: bool = False
    """Of all namespaces. Needs a ClusterRole."""


class CreateObject(Request[Manifest], frozen=True):
    """POST an object of another kind. A lost answer is `Ambiguous`."""

    operation = "create_object"
    resource: Resource
    manifest: Manifest


class PatchObject(Request[Manifest], frozen=True):
    """Merge-patch one object of another kind, with the preconditions of `Patch`."""

    operation = "patch_object"
    resource: Resource
    name: str
    patch: Manifest


class DeleteObject(Request[None], frozen=True):
    """DELETE one object of another kind, if it has this UID. None means that it is being deleted, or is gone."""

    operation = "delete_object"
    resource: Resource
    name: str
    uid: str


class Watch(msgspec.Struct, frozen=True):
    """Watch pods from a version on, with bookmarks. The server ends the stream cleanly after about `timeout`.

    With `send_initial_events`, every existing pod comes first, as ADDED, up to `initial_events_end`; an empty
    `resource_version` then means the newest version. A server without this feature ends the stream with an error, as a
    status or as an event.
    """

    operation: ClassVar[Operation] = "watch"
    selector: str
    resource_version: str
    timeout: timedelta
    send_initial_events: bool = False


Reply: TypeAlias = Callable[[A | ApiError], None]

WatchSink: TypeAlias = Callable[[WatchEvents | WatchEnded], None]


class Call(Protocol):
    """A call under way."""

    def cancel(self) -> None:
        """Cancel the call at once, from any thread; `reply` gets `Cancelled`."""


class PodApi(Protocol):
    """The pods of one namespace."""

    @property
    def namespace(self) -> str:
        """The namespace of every request."""

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """Send one request. The module's docstring says when `reply` is called."""

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """Open a stream. `sink` receives `WatchEvents`, then `WatchEnded` exactly once."""

    def close(self) -> None:
        """Cancel all calls and streams, and free every thread and socket."""
