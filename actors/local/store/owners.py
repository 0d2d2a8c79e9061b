"""Who owns whom: what garbage collection needs to know.

An object whose `metadata.ownerReferences` name nobody that exists (any more) is garbage. A real cluster's collector
finds that out a moment later; here it is found out in the step that makes it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Owners", "Place"]

Place: TypeAlias = tuple[str, tuple[str, str]]
"""Plural name, and namespace and name."""


class Owners:
    """Objects by UID, and dependents by their owner's UID. Only touched under the store's lock."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}

    def add(self, place: Place, obj: Mapping[str, Any]) -> None:
        """Note a new object."""
        self._places[obj["metadata"]["uid"]] = place
        for uid in _owner_uids(obj):
            self._dependents.setdefault(uid, {})[place] = None

    def change(self, place: Place, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Note that an object may have other owners now."""
        if _owner_uids(before) != _owner_uids(after):
            self.remove(place, before)
            self.add(place, after)

    def remove(self, place: Place, obj: Mapping[str, Any]) -> None:
        """Note that an object is gone."""
        self._places.pop(obj["metadata"]["uid"], None)
        for uid in _owner_uids(obj):
            dependents = self._dependents.get(uid)
            if dependents is not None:
                dependents.pop(place, None)
                if not dependents:
                    del self._dependents[uid]

    def dependents(self, uid: str) -> list[Place]:
        """What names this UID as an owner, oldest first."""
        return list(self._dependents.get(uid, ()))

    def is_garbage(self, obj: Mapping[str, Any]) -> bool:
        """It names owners, and none of them exists where it may: in its own namespace, or outside of all."""
        uids = _owner_uids(obj)
        return bool(uids) and not any(self._exists(uid, obj["metadata"].get("namespace", "")) for uid in uids)

    def _exists(self, uid: str, namespace: str) -> bool:
        place = self._places.get(uid)
        return place is not None and place[1][0] in ("", namespace)


def _owner_uids(obj: Mapping[str, Any]) -> list[str]:
    return [owner["uid"] for owner in obj["metadata"].get("ownerReferences", ())]
