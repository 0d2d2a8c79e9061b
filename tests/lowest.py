"""Constraints with the lowest accepted version of each dependency of the library and its tests.

`python -m tests.lowest >lowest.txt && pip install -c lowest.txt '.[test]'`
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

__all__ = ["floors"]

ROOT = Path(__file__).parents[1]


def floors() -> dict[str, str]:
    """The lowest version of each distribution in `dependencies`, and in the extras of a user and of the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = sum((extras[name] for name in ("cli", "local", "metrics", "otel", "test")), project["dependencies"])
    return {found[1]: found[2] for each in wanted if (found := re.match(r"([\w.-]+)>=([\w.]+)", each))}


if __name__ == "__main__":
    print(*(f"{name}=={version}" for name, version in floors().items()), sep="\n")
