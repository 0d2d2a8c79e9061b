"""`PodApi`: the pods of one namespace, as the rest of the library sees the Kubernetes API.

The few objects of other kinds that a fleet needs (leases, volume claims) pass as they are, as JSON.

A request is a value: `send` returns at once with a `Call` and completes later, exactly once, by calling `reply` with
the answer or with an `ApiError` as a *value*. Replies may come on any thread, or before `send` has returned; they must
be quick and must not raise (an actor's `tell` is both). No implementation retries or sleeps: retries are the
RequestPool's and the sources'. A call that is cancelled completes with `Cancelled`, unless it was answered before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from actors.errors import ApiError
from actors.pods.pod import Pod, PodEvent

__all__ = [
    "CLAIMS",
    "LEASES",
    "PODS",
    "Call",
    "Create",
    "CreateObject",
    "Delete",
    "DeleteCollection",
    "DeleteOptions",
    "Get",
    "GetObject",
    "List",
    "ListObjects",
    "Manifest",
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
    """A kind of objects of a namespace, as a URL and a rule of RBAC name it. `group` is empty for the core's."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS: Final = Resource("pods", "Pod")
CLAIMS: Final = Resource("persistentvolumeclaims", "PersistentVolumeClaim")
LEASES: Final = Resource("leases", "Lease", "coordination.k8s.io")


class PodPage(msgspec.Struct, frozen=True):
    """One page of a LIST. `continue_token` is empty on the last page; `resource_version` is that of the whole list.

    `malformed` counts items that could not be decoded as pods: they are left out and were logged once. `moved` has, by
    UID, the versions of those that are shown at a later one than they say, and have looked the same since that.
    """

    pods: tuple[Pod, ...]
    resource_version: str
    continue_token: str = ""
    malformed: int = 0
    moved: Mapping[str, str] = {}


class WatchEvents(msgspec.Struct, frozen=True):
    """What a watch stream brought, in order: changes, and how far it has come (bookmarks too).

    `unchanged` counts those that are left out: of a pod that runs, and of nothing that a `Pod` shows but its version,
    which is that from which on it looks so.

    With `initial_events_end`, all that there was when the watch began has been told, as of `resource_version`.
    """

    events: tuple[PodEvent, ...]
    resource_version: str
    malformed: int = 0
    initial_events_end: bool = False
    unchanged: int = 0


class WatchEnded(msgspec.Struct, frozen=True):
    """The last word of a stream. `error` is None after a clean end, `Gone` after 410, `Cancelled` after a cancel."""

    error: ApiError | None
    in_stream: bool = False
    """The error came as an event: the server had taken the watch and could not go on with it."""


class DeleteOptions(msgspec.Struct, frozen=True):
    """Options of a DELETE. Preconditions that fail are answered by `Conflict`; `grace` None means the pod's own."""

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
]
"""What a request does, as metrics and injected faults name it."""


class Request(msgspec.Struct, Generic[A_co], frozen=True):
    """A request that `A_co` or an `ApiError` answers."""

    operation: ClassVar[Operation]


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
    """POST a pod. An answer that was lost is `Ambiguous`."""

    operation = "create"
    manifest: Manifest


class Delete(Request[None], frozen=True):
    """DELETE one pod; None means that its deletion has begun (or is done)."""

    operation = "delete"
    name: str
    options: DeleteOptions = DeleteOptions()


class DeleteCollection(Request[None], frozen=True):
    """DELETE all pods that a label selector matches. An empty selector is refused: it would match every pod."""

    operation = "delete_collection"
    selector: str


class Patch(Request[Pod], frozen=True):
    """Merge-patch one pod; a `metadata.uid` or `metadata.resourceVersion` in the patch is a precondition."""

    operation = "patch"
    name: str
    patch: Manifest


class ReviewAccess(Request[bool], frozen=True):
    """Whether our account has a right in this namespace: `verb` is one of RBAC's, such as `deletecollection`."""

    operation = "may"
    verb: str
    resource: Resource


class GetObject(Request[Manifest], frozen=True):
    """Read one object of another kind, as JSON."""

    operation = "get_object"
    resource: Resource
    name: str


class ListObjects(Request[Sequence[Manifest]], frozen=True):
    """All objects of another kind that a label selector matches, in one answer: for what there are few of."""

    operation = "list_objects"
    resource: Resource
    selector: str


class CreateObject(Request[Manifest], frozen=True):
    """POST an object of another kind. An answer that was lost is `Ambiguous`."""

    operation = "create_object"
    resource: Resource
    manifest: Manifest


class PatchObject(Request[Manifest], frozen=True):
    """Merge-patch one object of another kind, with preconditions as `Patch` has them."""

    operation = "patch_object"
    resource: Resource
    name: str
    patch: Manifest


class Watch(msgspec.Struct, frozen=True):
    """Watch pods from a version on, with bookmarks; the server ends the stream cleanly after about `timeout`.

    With `send_initial_events` what there is comes first, as ADDED, up to an `initial_events_end`; an empty
    `resource_version` then means what a LIST would show. A server that cannot do that ends the stream with an error, in
    a status or in an event.
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
        """Give it up, from any thread, at once. See the module's docstring for what its reply then gets."""


class PodApi(Protocol):
    """The pods of one namespace."""

    @property
    def namespace(self) -> str:
        """The namespace that every call goes to."""

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """Send one request. See the module's docstring for when `reply` is called."""

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """Open a stream: `sink` receives `WatchEvents` (empty ones mean a bookmark), and last, once, `WatchEnded`."""

    def close(self) -> None:
        """End all calls and streams (each completes with `Cancelled`) and free every thread and socket."""
