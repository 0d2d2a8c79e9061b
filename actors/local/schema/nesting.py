"""Nested documents: read a value by its path, and limit the depth.

Code that recurses over a document must end before Python's recursion limit.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["DEEPEST", "is_too_deep", "value_at"]

DEEPEST: Final = 100
"""Levels. A real server takes 10,000; no object of this cluster needs more than 20."""


def is_too_deep(document: Any) -> bool:
    """Return whether the document has more than `DEEPEST` levels."""
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


def value_at(document: Any, *path: str) -> Any:
    """Return the value at this path, None if it is absent."""
    for step in path:
        document = document.get(step) if isinstance(document, dict) else None
    return document
