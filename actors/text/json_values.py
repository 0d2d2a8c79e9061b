"""Values as JSON: the one way in which the library's values and moments become types that JSON has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final

__all__ = ["JsonReady", "rfc3339"]


_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
"""Types that are looked at no further: most fields, so that a thousand executors take 5 ms."""


class JsonReady:
    """Base of frozen dataclasses that a program may show as JSON."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return its fields by name, with only types that JSON has.

        Durations are seconds, moments are RFC 3339 text in UTC with milliseconds, enums are their values, and values
        within it are dicts too.
        """
        fields: Mapping[str, object] = self.__dataclass_fields__  # type: ignore[attr-defined]  # each subclass is one
        return {name: value if type(value := getattr(self, name)) in _PLAIN else _as_json(value) for name in fields}


def rfc3339(moment: datetime) -> str:
    """Return a moment as RFC 3339 text, in UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _as_json(value: object) -> object:
    match value:
        case Enum():
            return value.value
        case None | str() | int() | float():
            return value
        case JsonReady():
            return value.as_dict()
        case datetime():
            return rfc3339(value)
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): _as_json(item) for key, item in value.items()}
        case tuple() | list():
            return [_as_json(item) for item in value]
        case _:
            raise TypeError(f"a {type(value).__name__} has no form in JSON")
