"""Fields of objects as JSON, which anybody may have written: what is not of its type is None. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from actors.kube.api import Manifest

__all__ = ["items", "text", "time", "value"]


def value(manifest: object, *path: str) -> Any:
    """Return what stands at this path, None if nothing does."""
    for key in path:
        if not isinstance(manifest, Mapping):
            return None
        manifest = manifest.get(key)
    return manifest


def text(manifest: object, *path: str) -> str | None:
    """Return the text at this path, None if there is none, or an empty one."""
    found = value(manifest, *path)
    return found if isinstance(found, str) and found else None


def time(manifest: object, *path: str) -> datetime | None:
    """Return the moment at this path, None if it is none with a time zone."""
    try:
        found = msgspec.convert(value(manifest, *path), datetime)
    except msgspec.ValidationError:
        return None
    return found if found.tzinfo is not None else None


def items(manifest: object, *path: str) -> Iterator[Manifest]:
    """Yield the objects of the list at this path."""
    found = value(manifest, *path)
    yield from (each for each in (found if isinstance(found, list | tuple) else ()) if isinstance(each, Mapping))
