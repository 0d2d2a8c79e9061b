"""One resource's objects, their recent changes, and their watches.

A `Table` is used only under its store's lock, and validates nothing. Stored objects never change in place: a write
replaces the object, so that lists, watch messages and the log share it without copies. They are stored without `kind`
and `apiVersion`, as list items are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from actors.local.schema.resources import Resource
    from actors.local.schema.selectors import Selector

__all__ = [
    "Change",
    "ChangeType",
    "Key",
    "Listener",
    "MessageType",
    "Object",
    "Subscription",
    "Table",
    "WatchMessage",
    "at_version",
]

Object: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]
"""Namespace (empty for a cluster-wide object) and name."""
ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
MessageType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


@dataclass(frozen=True, slots=True)
class WatchMessage:
    """One line of a watch: `{"type": …, "object": …}`, read-only. `ERROR` is the last one of a subscription."""

    type: MessageType
    object: Object


Listener: TypeAlias = Callable[[WatchMessage], None]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an object."""

    version: int
    type: ChangeType
    key: Key
    before: Object | None
    """The object until then, None for ADDED."""
    after: Object | None
    """The object since then, None for DELETED."""


class Subscription:
    """One watch. The listener receives messages in order, one at a time, outside the store's lock."""

    def __init__(
        self,
        table: Table,
        listener: Listener,
        selector: Selector,
        namespace: str | None,
        after: int,
        *,
        bookmarks: bool,
        cancel: Callable[[Subscription], None],
    ) -> None:
        self.listener = listener
        self.pending: deque[WatchMessage] = deque()
        self.scheduled = False
        """The delivery of `pending` is queued or runs."""
        self.after = after
        """Changes up to this version are not delivered."""
        self.bookmarks = bookmarks
        self._table = table
        self._selector = selector
        self._namespace = namespace
        self._cancel = cancel

    def cancel(self) -> None:
        """End the watch: no further message is delivered. A second call does nothing."""
        self._cancel(self)

    def detach(self) -> None:
        """Remove the watch from its table, if it is there. Under the store's lock."""
        if self in self._table.subscriptions:
            self._table.subscriptions.remove(self)

    def translate(self, change: Change) -> WatchMessage | None:
        """Return the message for a change, None for none. An object that no longer matches is DELETED."""
        if change.version <= self.after or (self._namespace is not None and change.key[0] != self._namespace):
            return None
        matched = change.before is not None and self._selector.matches(change.before)
        matches = change.after is not None and self._selector.matches(change.after)
        if matches:
            assert change.after is not None
            return WatchMessage("MODIFIED" if matched else "ADDED", self._table.complete(change.after))
        if matched:
            assert change.before is not None
            return WatchMessage("DELETED", self._table.complete(at_version(change.before, change.version)))
        return None


@dataclass
class Table:
    """Objects of one resource, in the order of their keys, and the changes of the window."""

    resource: Resource
    window: int
    objects: dict[Key, Object] = field(default_factory=dict)
    sizes: dict[Key, int] = field(default_factory=dict)
    """Encoded bytes by object, for the store's limit."""
    floor: int = 0
    """Changes up to this version are forgotten; watches can resume from this version on."""
    subscriptions: list[Subscription] = field(default_factory=list)
    _order: list[Key] = field(default_factory=list)
    _log: deque[Change] = field(default_factory=deque)

    def complete(self, obj: Object) -> Object:
        """Return the object with `kind` and `apiVersion`, as a GET does."""
        return {"kind": self.resource.kind, "apiVersion": self.resource.api_version, **obj}

    def apply(self, change: Change) -> None:
        """Apply a change to the objects and append it to the log."""
        if change.after is None:
            del self.objects[change.key]
            del self._order[bisect_left(self._order, change.key)]
            self.sizes.pop(change.key, None)
        else:
            if change.before is None:
                insort(self._order, change.key)
            self.objects[change.key] = change.after
        self._log.append(change)
        self.forget(self.window)

    def forget(self, keep: int) -> None:
        """Drop all but the newest `keep` changes."""
        while len(self._log) > keep:
            self.floor = self._log.popleft().version

    def restore(self, objects: Mapping[Key, Object], sizes: Mapping[Key, int], version: int) -> None:
        """Replace the objects by those of a backup at `version`, and clear the log."""
        self.objects = dict(objects)
        self.sizes = dict(sizes)
        self._order = sorted(self.objects)
        self._log.clear()
        self.floor = version

    def keys(self, namespace: str | None, start: Key | None = None) -> Iterator[Key]:
        """Return the keys of one namespace (None: all) in order, from `start` on. Iterate before the table changes."""
        first: Key = ("", "") if namespace is None else (namespace, "")
        first = first if start is None else max(first, start)
        for index in range(bisect_left(self._order, first), len(self._order)):
            key = self._order[index]
            if namespace is not None and key[0] != namespace:
                return
            yield key

    def since(self, version: int) -> Iterator[Change]:
        """Return the changes after a version of the window, oldest first."""
        return (change for change in self._log if change.version > version)

    def as_of(self, version: int) -> Table:
        """Return the table as of a version inside the window."""
        past = Table(self.resource, window=0, objects=dict(self.objects))
        for change in reversed(self._log):
            if change.version <= version:
                break
            if change.before is None:
                del past.objects[change.key]
            else:
                past.objects[change.key] = change.before
        past._order = sorted(past.objects)
        return past


def at_version(obj: Object, version: int | str) -> Object:
    """Return the object with this version. A DELETED event has the version of the deletion, as on a real server."""
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(version)}}
