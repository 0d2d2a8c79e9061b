"""`ObjectStore`: the embedded cluster's only state.

It behaves as Kubernetes 1.37: versions, watches with a window, optimistic concurrency, graceful deletion, finalizers,
owners, quotas.

Thread-safe, with one lock. Listeners are called after its release, by the thread that made the change, in order per
subscription. Every returned object is shared and read-only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from actors.local.schema.decode import decode
from actors.local.schema.selectors import parse_selector
from actors.local.schema.statuses import (
    ApiStatus,
    Undecodable,
    already_exists,
    conflict,
    deleted,
    expired,
    other_uid,
    precondition_failed,
    too_large_version,
    unpatchable,
)
from actors.local.store import objects, paging, quota, validation
from actors.local.store.history import Key, Listener, Object, Subscription, Table, WatchMessage
from actors.local.store.patches import PatchType, apply_patch
from actors.local.store.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.local.schema.resources import Resource
    from actors.local.schema.selectors import Selector
    from actors.local.store.deletion import DeleteOptions
    from actors.local.store.paging import ListRequest
    from actors.runtime import Clock, Entropy

__all__ = [
    "INITIAL_EVENTS_END",
    "ApiStatus",
    "ListResult",
    "ObjectStore",
    "Selectors",
    "StoreSnapshot",
    "Subscription",
    "Validation",
    "WatchMessage",
]

_FIRST_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_GENERATED_SUFFIX: Final = 5
_RETURNED: Final = frozenset({"namespaces", "pods", "resourcequotas", "serviceaccounts", "services"})
"""A DELETE of these is always answered with the object: `ReturnDeletedObject` of a real server's storage."""
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Selectors(TypedDict, total=False):
    """The objects of a collection that a call selects; without selectors, all."""

    label_selector: str
    field_selector: str


class Validation(TypedDict, total=False):
    """How unknown fields are handled."""

    field_validation: str | None
    """`Warn` by default."""
    warnings: list[str]
    """Receives the texts that a real server sends in `Warning` headers."""


@dataclass(frozen=True, slots=True)
class ListResult:
    """One page of a list. The items have no `kind`, as on a real server, and are read-only."""

    items: list[Object]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """A backup of a store, for `restore`. Opaque."""

    version: int
    tables: Mapping[str, tuple[Mapping[Key, Object], Mapping[Key, int]]]


class ObjectStore:
    """Objects of all resources (by plural name: `"pods"`), their versions, and their watches.

    Args:
        clock: for timestamps.
        entropy: for UIDs and generated names.
        window: changes kept per resource; a watch or continue token from before them is answered by 410.
        max_objects: creating more is answered by 500 "database space exceeded", like etcd's quota.
        max_bytes: the same for the size of all objects together.
    """

    def __init__(
        self,
        clock: Clock,
        entropy: Entropy,
        *,
        window: int = 10_000,
        max_objects: int = 100_000,
        max_bytes: int = 1 << 30,
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._state = State(clock, window=window, max_objects=max_objects, max_bytes=max_bytes)
        self._empty = partial(
            ObjectStore, clock, entropy.fork("rehearsal"), window=0, max_objects=max_objects, max_bytes=max_bytes
        )
        for name in _FIRST_NAMESPACES:
            self.create("namespaces", None, {"metadata": {"name": name}})

    @property
    def resource_version(self) -> str:
        """The current version."""
        with self._state.changing():
            return str(self._state.version)

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, resource: str, namespace: str | None, name: str) -> Object:
        """Return one object, with `kind` and `apiVersion`; 404 if there is none."""
        table = self._state.tables[resource]
        with self._state.changing():
            return table.complete(self._state.existing(table, _key(table, namespace, name)))

    def list(
        self,
        resource: str,
        namespace: str | None,
        *,
        limit: int = 0,
        continue_token: str = "",
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        **selectors: Unpack[Selectors],
    ) -> ListResult:
        """Return objects in the order of their names; `namespace` None means all namespaces.

        All pages of a list have the version of the first page. A token or an exact version outside the window is a 410,
        a version that this server has not reached a 504, a malformed token, selector or version a 400.
        """
        table = self._state.tables[resource]
        selector = parse_selector(table.resource, **selectors)
        request = paging.parse(limit, continue_token, resource_version, resource_version_match)
        with self._state.changing():
            return self._list(table, namespace, selector, request)

    def _list(self, table: Table, namespace: str | None, selector: Selector, request: ListRequest) -> ListResult:
        state = self._state
        if request.version > state.version:
            raise too_large_version(request.version, state.version)
        version = request.version if request.exact else state.version
        source = table if version == state.version else paging.as_of(table, request)
        page = paging.page(source, namespace, selector, request)
        token = paging.token(version, page.next_key) if page.next_key else ""
        return ListResult(page.items, str(version), token, page.remaining)

    def watch(
        self,
        resource: str,
        namespace: str | None,
        listener: Listener,
        *,
        resource_version: str | None = None,
        bookmarks: bool = False,
        send_initial_events: bool = False,
        **selectors: Unpack[Selectors],
    ) -> Subscription:
        """Send every change after `resource_version` to `listener`, until the watch is cancelled.

        Without a version, or with `"0"` or `send_initial_events`, the existing objects come first, as ADDED. With
        `send_initial_events` and `bookmarks`, a BOOKMARK with the annotation `k8s.io/initial-events-end` follows them.
        For a version outside the window one ERROR (410) is sent, and nothing else; for one that the server has not
        reached, nothing until it is reached. The listener may be called before this method returns, on any thread that
        changes the store. It must be quick; its watch is cancelled if it raises.
        """
        state, table = self._state, self._state.tables[resource]
        selector = parse_selector(table.resource, **selectors)
        version = paging.parse_watch_version(resource_version)
        with state.changing():
            initial = send_initial_events or version == 0
            after = state.version if initial else version
            subscription = Subscription(
                table, listener, selector, namespace, after, bookmarks=bookmarks, cancel=state.cancel
            )
            if initial and version > state.version:
                state.fail(subscription, too_large_version(version, state.version))
                return subscription
            if not initial and version < table.floor:
                state.fail(subscription, expired(f"too old resource version: {version} ({table.floor})"))
                return subscription
            if initial:
                for key in table.keys(namespace):
                    if selector.matches(table.objects[key]):
                        state.enqueue(subscription, WatchMessage("ADDED", table.complete(table.objects[key])))
            if send_initial_events and bookmarks:
                state.enqueue(subscription, self._bookmark(table, {INITIAL_EVENTS_END: "true"}))
            for change in table.since(after):
                state.notify(subscription, change)
            table.subscriptions.append(subscription)
        return subscription

    # ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def create(
        self,
        resource: str,
        namespace: str | None,
        obj: Any,
        **checks: Unpack[Validation],
    ) -> Object:
        """POST: store a new object and return it as stored.

        Unknown fields are dropped: listed in `warnings`, or refused by 400 with `field_validation="Strict"`.
        """
        state, table = self._state, self._state.tables[resource]
        sent = _decoded(table.resource, obj, checks)
        where = (namespace or "") if table.resource.namespaced else ""
        objects.check_identity(sent, where, None)
        with state.changing():
            if table.resource.namespaced:
                state.check_namespace(table.resource, where, sent["metadata"].get("name", ""))
            suffix = "" if sent["metadata"].get("name") else self._entropy.token(_GENERATED_SUFFIX)
            uid = self._entropy.uid()
            new = objects.new_object(table.resource, where, sent, uid=uid, suffix=suffix, now=self._clock.now())
            quota.check(table.resource, new, state.tables)
            validation.check_new(table.resource, new)
            name = new["metadata"]["name"]
            taken = table.objects.get((where, name))
            if taken is not None:
                raise already_exists(table.resource, name, terminating="deletionTimestamp" in taken["metadata"])
            return table.complete(state.add(table, (where, name), new))

    def replace(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        obj: Any,
        *,
        subresource: str | None = None,
        **checks: Unpack[Validation],
    ) -> Object:
        """PUT. A `metadata.resourceVersion` or `metadata.uid` in it must be the current one, or 409."""
        state, table = self._state, self._state.tables[resource]
        sent = _decoded(table.resource, obj, checks)
        key = _key(table, namespace, name)
        with state.changing():
            found = state.existing(table, key)["metadata"]["uid"]
            uid = sent["metadata"].get("uid", found)
            if uid != found:
                raise other_uid(table.resource, key, uid, found)
            return table.complete(state.update(table, key, sent, subresource))

    def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        patch: Any,
        patch_type: PatchType,
        *,
        subresource: str | None = None,
        **checks: Unpack[Validation],
    ) -> Object:
        """PATCH. A `metadata.resourceVersion` in it must be the current one, or 409; another `metadata.uid` is 422."""
        state, table = self._state, self._state.tables[resource]
        key = _key(table, namespace, name)
        with state.changing():
            old = state.existing(table, key)
            patched = apply_patch(old, patch, patch_type)
            try:
                sent = _decoded(table.resource, patched, checks)
            except Undecodable as refusal:
                raise unpatchable(table.complete(patched), refusal.problem) from None
            return table.complete(state.update(table, key, sent, subresource))

    def bind(self, namespace: str | None, name: str, node: str, *, uid: str | None = None) -> Object:
        """Assign an unbound pod to a node, as a scheduler does; 409 if it has a node, or another UID than `uid`."""
        state, table = self._state, self._state.tables["pods"]
        key = _key(table, namespace, name)
        with state.changing():
            old = state.existing(table, key)
            bound, found = old["spec"].get("nodeName"), old["metadata"]["uid"]
            if uid is not None and uid != found:
                raise other_uid(table.resource, key, uid, found)
            if bound or "deletionTimestamp" in old["metadata"]:
                assigned = f'pod {name} is already assigned to node "{bound}"'
                detail = assigned if bound else f"pod {name} is being deleted"
                raise conflict(table.resource, name, detail, subresource="binding")
            return table.complete(state.put(table, key, objects.bound(old, node, self._clock.now())))

    # ── Deleting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def delete(self, resource: str, namespace: str | None, name: str, **options: Unpack[DeleteOptions]) -> Object:
        """Begin, shorten or finish an object's deletion; 409 if a precondition does not hold.

        A pod on a node stays, with a deletion timestamp, until its kubelet deletes it with grace 0. Any object stays
        until its last finalizer is removed. Returns the object, or, like a real server for kinds without graceful
        deletion, a `Status` of success.
        """
        state, table = self._state, self._state.tables[resource]
        key = _key(table, namespace, name)
        with state.changing():
            found = state.existing(table, key)["metadata"]
            _check_preconditions(table.resource, found, options)
            last = state.delete(table, key, options.get("grace_period_seconds"))
            as_object = resource in _RETURNED or "deletionTimestamp" in last["metadata"]
            return table.complete(last) if as_object else deleted(table.resource, name, found["uid"])

    def evict(self, namespace: str | None, name: str, **options: Unpack[DeleteOptions]) -> None:
        """Evict a pod, as `kubectl drain` asks for: add a condition and delete it. No disruption budget is checked.

        409 if a precondition does not hold.
        """
        state, table = self._state, self._state.tables["pods"]
        key = _key(table, namespace, name)
        with state.changing():
            pod = state.existing(table, key)
            _check_preconditions(table.resource, pod["metadata"], options)
            evicted = objects.evicted(pod, self._clock.now())
            if evicted != pod:
                state.put(table, key, evicted)
            state.delete(table, key, options.get("grace_period_seconds"))

    def delete_collection(
        self,
        resource: str,
        namespace: str | None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        listed_at: str | None = None,
        match: str | None = None,
        **options: Unpack[DeleteOptions],
    ) -> ListResult:
        """Delete all objects of a LIST, each as `delete` would; return them as they were in it.

        `listed_at` and `match` are the LIST's `resource_version` and its match: an exact one deletes, by name, what
        matched at that version. A failed precondition is a 409 before any deletion (a real server may have deleted
        some).
        """
        state, table = self._state, self._state.tables[resource]
        selector = parse_selector(table.resource, label_selector, field_selector)
        request = paging.parse(0, "", listed_at, match)
        with state.changing():
            result = self._list(table, namespace, selector, request)
            for found in result.items:
                _check_preconditions(table.resource, found["metadata"], options)
            for found in result.items:
                key = _key(table, found["metadata"].get("namespace"), found["metadata"]["name"])
                if key in table.objects:  # unless deleted with its owner, or since the LIST
                    state.delete(table, key, options.get("grace_period_seconds"))
            return result

    def rehearsal(self) -> ObjectStore:
        """Return a copy, for a dry run: its changes are not delivered to watches.

        Its objects keep their versions when they change; new ones get none.
        """
        copy = self._empty()
        copy.restore(self.snapshot())
        copy._state.rehearsing = True  # noqa: SLF001 - of its own class
        return copy

    # ── For servers and tests only ────────────────────────────────────────────────────────────────────────────────

    def bookmark(self, *subscriptions: Subscription) -> None:
        """Send a BOOKMARK with the current version to these watches (default: all) that asked for bookmarks.

        A real server sends none while nothing changes, but on a real cluster something always does. Here idle watches
        get them, too, so that a client can tell a quiet server from a dead connection.
        """
        state = self._state
        with state.changing():
            for table in state.tables.values():
                for subscription in table.subscriptions:
                    eligible = subscription.bookmarks and subscription.after <= state.version
                    if eligible and (not subscriptions or subscription in subscriptions):
                        state.enqueue(subscription, self._bookmark(table))

    def _bookmark(self, table: Table, annotations: Mapping[str, str] | None = None) -> WatchMessage:
        metadata: Object = {"resourceVersion": str(self._state.version)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        return WatchMessage("BOOKMARK", table.complete({"metadata": metadata}))

    def expire(self, keep: int = 0) -> None:
        """Forget all but the newest `keep` changes of each resource, like etcd's compaction."""
        with self._state.changing():
            for table in self._state.tables.values():
                table.forget(keep)
                if keep == 0:
                    table.floor = self._state.version

    def snapshot(self) -> StoreSnapshot:
        """Return a backup."""
        state = self._state
        with state.changing():
            tables = {name: (dict(table.objects), dict(table.sizes)) for name, table in state.tables.items()}
            return StoreSnapshot(state.version, tables)

    def restore(self, snapshot: StoreSnapshot) -> None:
        """Restore the objects and the version counter of a backup, without any event.

        Existing watches stay, as if their clients had resumed them from their last versions: they receive nothing until
        the counter passes those versions again. A cluster restored from a backup behaves like this.
        """
        with self._state.changing():
            self._state.restore(snapshot.version, snapshot.tables)


def _key(table: Table, namespace: str | None, name: str) -> Key:
    return (namespace or "", name) if table.resource.namespaced else ("", name)


def _check_preconditions(resource: Resource, found: Mapping[str, Any], options: DeleteOptions) -> None:
    for field, expected, actual in (
        ("UID", options.get("uid"), found["uid"]),
        ("ResourceVersion", options.get("resource_version"), found["resourceVersion"]),
    ):
        if expected is not None and expected != actual:
            raise precondition_failed(resource, found["name"], field, expected, actual)


def _decoded(resource: Resource, obj: Any, checks: Validation) -> Object:
    problems: list[str] = []
    decoded = decode(resource, obj, problems)
    validation.check_unknown(resource, problems, checks.get("field_validation"), checks.get("warnings"))
    return decoded
