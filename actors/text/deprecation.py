"""`warn_deprecated`: how a program learns that something public goes, when, and what replaces it.

It is the only place that warns of a deprecation, so that a test finds each one that has outlived its release.
docs/reference/compatibility.md is the promise.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Final

__all__ = ["removed_in", "warn_deprecated"]

_MINOR_RELEASES: Final = 2
"""How many minor releases still have what one release deprecated, as the page "Compatibility" promises."""


def removed_in(since: str) -> str:
    """Return the release that may remove what this one deprecated: `"1.7"` for `"1.4"`."""
    major, minor = map(int, since.split("."))
    return f"{major}.{minor + _MINOR_RELEASES + 1}"


def warn_deprecated(name: str, *, since: str, instead: str) -> None:
    """Warn the program that uses `name`, at its own line, with a `DeprecationWarning`.

    Call it with literals. `since` is the release that deprecates, such as `"1.4"`; `instead` is what to use.
    """
    frame = inspect.currentframe()
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "actors":
        frame = frame.f_back
        level += 1
    warnings.warn(
        f"{name} is deprecated since executor-pods {since} and removed in {removed_in(since)}: use {instead}",
        DeprecationWarning,
        stacklevel=level,
    )
