"""The version of this package, as a text."""

from __future__ import annotations

import importlib.metadata

__all__ = ["package_version"]


def package_version() -> str:
    """Return the installed version of this package; "unknown" if it runs from a folder and is not installed."""
    try:
        return importlib.metadata.version("executor-pods")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
