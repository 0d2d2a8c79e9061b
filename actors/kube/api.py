"""`PodApi`: the pods of one namespace, as the rest of the library sees the Kubernetes API.

The few objects of other kinds that a fleet needs (leases, volume claims) pass as they are, as JSON.

Every method returns at once with a `Call` and completes later, exactly once, by calling `reply` with the answer or with
an `ApiError` as a *value*. Replies may come on any thread, or before the method has returned; they must be quick and
must not raise (an actor's `tell` is both). No implementation retries or sleeps: retries are the RequestPool's and the
sources'. A call that is cancelled completes with `Cancelled`, unless it was answered before; a second one is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from actors.errors import ApiError
from actors.pods.pod import Pod, PodEvent

__all__ = [
    "CLAIMS",
    "LEASES",
    "PODS",
    "Call",
    "DeleteOptions",
    "Manifest",
    "PodApi",
    "PodPage",
    "Resource",
    "WatchEnded",
    "WatchEvents",
    "WatchSink",
]

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

    def list(
        self,
        selector: str,
        reply: Callable[[PodPage | ApiError], None],
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
    ) -> Call:
        """One page of a LIST by label selector. `resource_version="0"` lets the server answer from its cache."""

    def watch(
        self,
        selector: str,
        resource_version: str,
        sink: WatchSink,
        *,
        timeout: timedelta,
        send_initial_events: bool = False,
    ) -> Call:
        """Watch from a version on, with bookmarks; the server ends the stream cleanly after about `timeout`.

        `sink` receives `WatchEvents`, and last, exactly once, `WatchEnded`. Empty `WatchEvents` mean a bookmark.
        With `send_initial_events` what there is comes first, as ADDED, up to an `initial_events_end`; an empty
        `resource_version` then means what a LIST would show. A server that cannot do that ends the stream with an
        error, in a status or in an event.
        """

    def get(self, name: str, reply: Callable[[Pod | ApiError], None]) -> Call:
        """Read one pod."""

    def create(self, manifest: Manifest, reply: Callable[[Pod | ApiError], None]) -> Call:
        """POST a pod. An answer that was lost is `Ambiguous`."""

    def delete(self, name: str, options: DeleteOptions, reply: Callable[[ApiError | None], None]) -> Call:
        """DELETE one pod; None means that its deletion has begun (or is done)."""

    def delete_collection(
        self, selector: str, reply: Callable[[ApiError | None], None], *, grace: timedelta | None = None
    ) -> Call:
        """DELETE all pods that a label selector matches."""

    def patch(self, name: str, patch: Manifest, reply: Callable[[Pod | ApiError], None]) -> Call:
        """Merge-patch one pod; a `metadata.uid` or `metadata.resourceVersion` in the patch is a precondition."""

    def may(self, verb: str, resource: Resource, reply: Callable[[bool | ApiError], None]) -> Call:
        """Whether our account has a right in this namespace: `verb` is one of RBAC's, such as `deletecollection`."""

    def get_object(self, resource: Resource, name: str, reply: Callable[[Manifest | ApiError], None]) -> Call:
        """Read one object of another kind, as JSON."""

    def list_objects(
        self, resource: Resource, selector: str, reply: Callable[[Sequence[Manifest] | ApiError], None]
    ) -> Call:
        """All objects of another kind that a label selector matches, in one answer: for what there are few of."""

    def create_object(
        self, resource: Resource, manifest: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> Call:
        """POST an object of another kind. An answer that was lost is `Ambiguous`."""

    def patch_object(
        self, resource: Resource, name: str, patch: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> Call:
        """Merge-patch one object of another kind, with preconditions as `patch` has them."""

    def close(self) -> None:
        """End all calls and streams (each completes with `Cancelled`) and free every thread and socket."""
