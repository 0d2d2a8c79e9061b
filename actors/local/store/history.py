"""One resource's objects, the changes that led to them, and those who watch.

A `Table` is only ever touched under its store's lock; it decides nothing and refuses nothing but versions outside its
window. Objects are never changed in place: a write puts a new one there, so that a list, a watch message and the log
can share them without copying. They are kept without `kind` and `apiVersion`, as a list shows its items.
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
"""Namespace (empty for what has none) and name."""
ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
MessageType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


@dataclass(frozen=True, slots=True)
class WatchMessage:
    """One line of a watch: `{"type": …, "object": …}`, read-only. After `ERROR` the subscription is over."""

    type: MessageType
    object: Object


Listener: TypeAlias = Callable[[WatchMessage], None]


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a table's history."""

    version: int
    type: ChangeType
    key: Key
    before: Object | None
    """What was stored, None for ADDED."""
    after: Object | None
    """What is stored now, None for DELETED."""


class Subscription:
    """One watch. Messages reach the listener in order, one at a time, outside the store's lock."""

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
        """It waits for, or is in, its delivery."""
        self.after = after
        """Changes up to this version are known to it, or were never to be."""
        self.bookmarks = bookmarks
        self._table = table
        self._selector = selector
        self._namespace = namespace
        self._cancel = cancel

    def cancel(self) -> None:
        """End it. No message is delivered that has not begun to be; a second cancel is nothing."""
        self._cancel(self)

    def leave(self) -> None:
        """Take it off its table, if it is there. Under the store's lock."""
        if self in self._table.subscriptions:
            self._table.subscriptions.remove(self)

    def translate(self, change: Change) -> WatchMessage | None:
        """What this watch shows of a change, None for nothing. An object that stops to match is shown DELETED."""
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
    """Changes up to this version are forgotten: only what came after it can be told."""
    subscriptions: list[Subscription] = field(default_factory=list)
    _order: list[Key] = field(default_factory=list)
    _log: deque[Change] = field(default_factory=deque)

    def complete(self, obj: Object) -> Object:
        """The object as a single answer shows it: with `kind` and `apiVersion`."""
        return {"kind": self.resource.kind, "apiVersion": self.resource.api_version, **obj}

    def apply(self, change: Change) -> None:
        """Take the change into the objects and the log."""
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
        """Go back to what was there at `version`; of how it came about nothing is known any more."""
        self.objects = dict(objects)
        self.sizes = dict(sizes)
        self._order = sorted(self.objects)
        self._log.clear()
        self.floor = version

    def keys(self, namespace: str | None, start: Key | None = None) -> Iterator[Key]:
        """Keys of one namespace (None: of all) in order, from `start` on. The table must not change meanwhile."""
        first: Key = ("", "") if namespace is None else (namespace, "")
        first = first if start is None else max(first, start)
        for index in range(bisect_left(self._order, first), len(self._order)):
            key = self._order[index]
            if namespace is not None and key[0] != namespace:
                return
            yield key

    def since(self, version: int) -> Iterator[Change]:
        """Changes after a version of the window, oldest first."""
        return (change for change in self._log if change.version > version)

    def as_of(self, version: int) -> Table:
        """What was here at a version, which must be inside the window."""
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
    """The object with another version; the last state of what is gone has that of its end, as on a real server."""
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(version)}}
