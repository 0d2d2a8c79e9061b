"""The store's objects, versions and watches, and the changes that one change causes.

`ObjectStore` checks requests and carries them out through a `State`, under its one lock: every method except `changing`
and `cancel` must be called inside `with state.changing()`.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from actors.local.schema.resources import RESOURCES, Resource
from actors.local.schema.statuses import ApiStatus, Cause, conflict, forbidden, internal_error, no_such_path, not_found
from actors.local.store import claims, deletion, objects, quota, validation
from actors.local.store.history import Change, ChangeType, Key, Object, Subscription, Table, WatchMessage, at_version
from actors.local.store.owners import Owners, Place
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.runtime import Clock

__all__ = ["State"]

logger = get_logger(__name__)

CLAIMS: Final = RESOURCES["persistentvolumeclaims"]
_SPACE_EXCEEDED: Final = "etcdserver: mvcc: database space exceeded"

_MOST_STORED: Final = 3 * 2**19
"""Bytes of one object that etcd takes (`--max-request-bytes`). A real server stores most objects as protobuf, which is
a little shorter than the JSON that is measured here."""

_MOST_SENT: Final = 2 * 2**20
"""Bytes that a server's client of etcd sends in one message."""


class State:
    """Tables of all resources, one version counter, one lock."""

    def __init__(self, clock: Clock, *, window: int, max_objects: int, max_bytes: int) -> None:
        self.tables: Mapping[str, Table] = {plural: Table(resource, window) for plural, resource in RESOURCES.items()}
        self.version = 0
        self.rehearsing = False
        """What is stored gets no version: it is the state of a dry run."""
        self._clock = clock
        self._max_objects = max_objects
        self._max_bytes = max_bytes
        self._bytes = 0
        self._count = 0
        self._lock = Lock()
        self._owners = Owners()
        self._to_deliver: deque[Subscription] = deque()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock; after its release, deliver the messages about the changes."""
        try:
            with self._lock:
                yield
        finally:
            self._deliver()

    # ── Objects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def existing(self, table: Table, key: Key) -> Object:
        """Return the object; 404 if there is none."""
        obj = table.objects.get(key)
        if obj is None:
            raise not_found(table.resource, key[1])
        return obj

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Refuse a new object whose namespace does not exist or is terminating."""
        metadata = self.existing(self.tables["namespaces"], ("", namespace))["metadata"]
        if "deletionTimestamp" in metadata:
            detail = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = Cause("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
            raise forbidden(resource, name, detail, [cause])

    def add(self, table: Table, key: Key, obj: Object) -> Object:
        """Store a new object; delete it at once if its owners no longer exist."""
        self._remove_expired(table)
        if self._count >= self._max_objects:
            raise internal_error(_SPACE_EXCEEDED)
        stored = self.put(table, key, obj)
        self._collect(table, key, stored)
        return stored

    def _collect(self, table: Table, key: Key, obj: Object) -> None:
        """Delete an object none of whose owners exists, or take those off it that do not. A begun deletion goes on."""
        metadata, owners = obj["metadata"], self._owners.existing(obj)
        if "deletionTimestamp" in metadata or len(owners) == len(metadata.get("ownerReferences", ())):
            return
        if owners:
            self.put(table, key, obj | {"metadata": metadata | {"ownerReferences": owners}})
        else:
            self.delete(table, key, None)

    def update(self, table: Table, key: Key, sent: Object, subresource: str | None) -> Object:
        """Store the result of a PUT or PATCH; 409 if its version is not the current one."""
        old, resource = self.existing(table, key), table.resource
        if subresource is not None and (subresource != "status" or not resource.has_status):
            raise no_such_path()
        objects.check_identity(sent, key[0], key[1])
        version = sent["metadata"].get("resourceVersion")
        if version and not (version.isascii() and version.isdecimal()):
            raise internal_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(resource, key[1])
        new = objects.updated_object(resource, old, sent, subresource)
        validation.check_update(resource, old, new, sent["metadata"])
        if _unversioned(old) == new:
            return old
        if "deletionTimestamp" in old["metadata"] and self._is_finished(resource, key, new):
            self._remove(table, key)
            return at_version(old | {"metadata": new["metadata"]}, old["metadata"]["resourceVersion"])
        stored = self.put(table, key, new)
        self._collect(table, key, stored)
        return stored

    def put(self, table: Table, key: Key, obj: Object) -> Object:
        """Store an object as the next version."""
        before = table.objects.get(key)
        after = self._unstored(obj, before) if self.rehearsing else at_version(obj, self.version + 1)
        size = len(msgspec.json.encode(after))
        grown = size - table.sizes.get(key, 0)
        if grown > 0 and "deletionTimestamp" not in after["metadata"]:
            _check_size(size)
        if self._bytes + grown > self._max_bytes and "deletionTimestamp" not in after["metadata"]:
            raise internal_error(_SPACE_EXCEEDED)
        self._bytes += grown
        table.sizes[key] = size
        place = (table.resource.plural, key)
        if before is None:
            self._count += 1
            self._owners.add(place, after)
        else:
            self._owners.change(place, before, after)
        self._commit(table, "ADDED" if before is None else "MODIFIED", key, before, after)
        return after

    def _unstored(self, obj: Object, before: Object | None) -> Object:
        """Return the object as a dry run answers it: with the version that the stored object keeps."""
        return at_version(obj, before["metadata"]["resourceVersion"]) if before is not None else obj

    # ── Deletion ──────────────────────────────────────────────────────────────────────────────────────────────────

    def delete(self, table: Table, key: Key, grace: int | None) -> Object:
        """Begin, shorten or finish a deletion; return the object's last state."""
        obj, resource = table.objects[key], table.resource
        if resource.plural == "namespaces" and key[1] in deletion.PROTECTED_NAMESPACES:
            raise forbidden(resource, key[1], "this namespace may not be deleted")
        begun = deletion.begin(resource, obj, grace, self._clock.now())
        if begun is not None:
            obj = self.put(table, key, begun)
        if resource.plural == "namespaces":
            self._empty_namespace(key[1])
        if resource is CLAIMS:
            self._unprotect(key)
        if key in table.objects and self._is_finished(resource, key, obj):
            self._remove(table, key)
            obj = obj if self.rehearsing else at_version(obj, self.version)
        return obj

    def _remove(self, table: Table, key: Key) -> None:
        """Remove an object and its dependents, and its namespace if that waited for this object."""
        removed = table.objects[key]
        place: Place = (table.resource.plural, key)
        self._owners.remove(place, removed)
        self._count -= 1
        self._bytes -= table.sizes[key]
        self._commit(table, "DELETED", key, removed, None)
        for plural, dependent in self._owners.dependents(removed["metadata"]["uid"]):
            owned = self.tables[plural].objects.get(dependent)
            if owned is not None:
                self._collect(self.tables[plural], dependent, owned)
        if table.resource.plural == "pods":
            for name in claims.used_by(removed):
                self._unprotect((key[0], name))
        if key[0]:
            self._finish_namespace(key[0])

    def _unprotect(self, key: Key) -> None:
        """Remove the finalizer of a claim that is being deleted and not used, as the claims' controller does."""
        table, pods = self.tables[CLAIMS.plural], self.tables["pods"]
        claim = table.objects.get(key)
        metadata: Object = claim["metadata"] if claim is not None else {}
        protected = claims.PROTECTION in metadata.get("finalizers", ())
        if claim is None or not protected or "deletionTimestamp" not in metadata:
            return
        if not claims.is_used(key[1], (pods.objects[each] for each in pods.keys(key[0]))):
            kept = [each for each in metadata["finalizers"] if each != claims.PROTECTION]
            others = {name: value for name, value in metadata.items() if name != "finalizers"}
            self.put(table, key, claim | {"metadata": others | ({"finalizers": kept} if kept else {})})
            if not kept:
                self._remove(table, key)

    def _empty_namespace(self, name: str) -> None:
        for table in self.tables.values():
            if table.resource.namespaced:
                for key in list(table.keys(name)):
                    if key in table.objects:
                        self.delete(table, key, None)

    def _finish_namespace(self, name: str) -> None:
        namespaces, key = self.tables["namespaces"], ("", name)
        namespace = namespaces.objects.get(key)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        if self._is_finished(namespaces.resource, key, namespace):
            self._remove(namespaces, key)

    def _is_finished(self, resource: Resource, key: Key, obj: Object) -> bool:
        """Return whether an object that is being deleted can be removed; a namespace must be empty."""
        if resource.plural == "namespaces":
            tables = (table for table in self.tables.values() if table.resource.namespaced)
            if any(next(table.keys(key[1]), None) is not None for table in tables):
                return False
        return deletion.finished(resource, obj)

    def _remove_expired(self, table: Table) -> None:
        """Remove the objects that are older than their resource's `keep`: without this, events would grow forever."""
        keep = table.resource.keep
        if keep is None:
            return
        oldest = objects.rfc3339(self._clock.now() - keep)
        expired: list[Key] = []
        for key, obj in table.objects.items():  # oldest first: a changed object keeps its place
            if obj["metadata"]["creationTimestamp"] >= oldest:
                break
            expired.append(key)
        for key in expired:
            self._remove(table, key)

    # ── Changes and watches ───────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, table: Table, kind: ChangeType, key: Key, before: Object | None, after: Object | None) -> None:
        self.version += 1
        change = Change(self.version, kind, key, before, after)
        table.apply(change)
        for subscription in table.subscriptions:
            self.notify(subscription, change)
        quotas = self.tables["resourcequotas"]
        if table is not quotas or before is None or after is None or before.get("spec") != after.get("spec"):
            for quota_key, refreshed in quota.refreshed(key[0], self.tables):
                self.put(quotas, quota_key, refreshed)

    def notify(self, subscription: Subscription, change: Change) -> None:
        """Queue the watch's message about a change, if it has one."""
        message = subscription.translate(change)
        if message is not None:
            self.enqueue(subscription, message)

    def enqueue(self, subscription: Subscription, message: WatchMessage) -> None:
        """Queue a message; it is delivered at the end of `changing`."""
        subscription.pending.append(message)
        if not subscription.scheduled:
            subscription.scheduled = True
            self._to_deliver.append(subscription)

    def fail(self, subscription: Subscription, status: ApiStatus) -> None:
        """Queue the ERROR that ends a watch. The watch must not be one of its table's subscriptions."""
        self.enqueue(subscription, WatchMessage("ERROR", status.to_json()))

    def cancel(self, subscription: Subscription) -> None:
        """End a watch, from any thread and from within its listener."""
        with self._lock:
            subscription.pending.clear()
            subscription.detach()

    def _deliver(self) -> None:
        while True:
            with self._lock:
                if not self._to_deliver:
                    return
                subscription = self._to_deliver.popleft()
            self._drain(subscription)

    def _drain(self, subscription: Subscription) -> None:
        """Deliver until nothing is pending. Messages that other threads add meanwhile are delivered here, too."""
        while True:
            with self._lock:
                if not subscription.pending:
                    subscription.scheduled = False
                    return
                message = subscription.pending.popleft()
            try:
                subscription.listener(message)
            except Exception:  # one failing listener must not affect the others
                logger.exception("watch cut, its listener failed")
                self.cancel(subscription)

    # ── Backups ───────────────────────────────────────────────────────────────────────────────────────────────────

    def restore(self, version: int, tables: Mapping[str, tuple[Mapping[Key, Object], Mapping[Key, int]]]) -> None:
        """Restore the tables and the version of a backup; watches do not receive again what they have received."""
        self._owners = Owners()
        for plural, table in self.tables.items():
            for subscription in table.subscriptions:
                subscription.after = max(subscription.after, self.version)
            table.restore(*tables[plural], version)
            for key, obj in table.objects.items():
                self._owners.add((plural, key), obj)
        self.version = version
        self._count = sum(len(table.objects) for table in self.tables.values())
        self._bytes = sum(sum(table.sizes.values()) for table in self.tables.values())


def _unversioned(obj: Object) -> Object:
    return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}}


def _check_size(size: int) -> None:
    """Refuse an object that is too large, as etcd does, and a server's client of etcd before it."""
    if size > _MOST_SENT:
        numbers = f"({size} vs. {_MOST_SENT})"
        raise internal_error(
            f"rpc error: code = ResourceExhausted desc = trying to send message larger than max {numbers}"
        )
    if size > _MOST_STORED:
        raise internal_error("etcdserver: request is too large")
