"""How deep a document may be nested: what recurses over it must come to an end before Python does."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["DEEPEST", "is_too_deep"]

DEEPEST: Final = 100
"""Levels. A real server takes 10,000; none of the objects that are kept here has 20 of its own."""


def is_too_deep(document: Any) -> bool:
    """Whether it has more levels than `DEEPEST`."""
    level = [document]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
