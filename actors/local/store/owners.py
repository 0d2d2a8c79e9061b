"""Owner references, for garbage collection.

An object is garbage if it has `metadata.ownerReferences` and none of its owners exists. If some do, those that do not
are taken off. A real cluster's collector finds both a moment later; this one finds them in the same step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Owners", "Place"]

Place: TypeAlias = tuple[str, tuple[str, str]]
"""Plural name, and namespace and name."""


class Owners:
    """Objects by UID, and dependents by their owner's UID. Used only under the store's lock."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}

    def add(self, place: Place, obj: Mapping[str, Any]) -> None:
        """Add a new object."""
        self._places[obj["metadata"]["uid"]] = place
        for uid in _owner_uids(obj):
            self._dependents.setdefault(uid, {})[place] = None

    def change(self, place: Place, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Update an object's owners."""
        if _owner_uids(before) != _owner_uids(after):
            self.remove(place, before)
            self.add(place, after)

    def remove(self, place: Place, obj: Mapping[str, Any]) -> None:
        """Remove a deleted object."""
        self._places.pop(obj["metadata"]["uid"], None)
        for uid in _owner_uids(obj):
            dependents = self._dependents.get(uid)
            if dependents is not None:
                dependents.pop(place, None)
                if not dependents:
                    del self._dependents[uid]

    def dependents(self, uid: str) -> list[Place]:
        """Return the dependents of the owner with this UID, oldest first."""
        return list(self._dependents.get(uid, ()))

    def existing(self, obj: Mapping[str, Any]) -> list[Any]:
        """Return the owner references of the object whose owners exist, in its own namespace or cluster-wide."""
        metadata = obj["metadata"]
        namespace, references = metadata.get("namespace", ""), metadata.get("ownerReferences", ())
        return [owner for owner in references if self._exists(owner["uid"], namespace)]

    def _exists(self, uid: str, namespace: str) -> bool:
        place = self._places.get(uid)
        return place is not None and place[1][0] in ("", namespace)


def _owner_uids(obj: Mapping[str, Any]) -> list[str]:
    return [owner["uid"] for owner in obj["metadata"].get("ownerReferences", ())]
