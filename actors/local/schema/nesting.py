"""Nested documents: how deep one may be (what recurses over it must end before Python does), and looking into one."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["DEEPEST", "is_too_deep", "look"]

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


def look(document: Any, *path: str) -> Any:
    """The value behind these keys, None where there is none."""
    for step in path:
        document = document.get(step) if isinstance(document, dict) else None
    return document
