"""The Kubernetes versions that the contract is held against.

CI, the tests and the page "Compatibility" have them from here; `python tests/contract/versions.py` prints them. To add
one, add its newest patch release, build it, run the contract, and write into the README's table what differs.
"""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ["NEWEST", "VERSIONS", "Minor", "minor_of"]

VERSIONS: Final = ("1.34.4", "1.35.4", "1.36.3", "1.37.2")
"""The oldest first. CI runs the newest in full, and the others where they have been built."""

Minor: TypeAlias = str
"""Such as `"1.37"`."""


def minor_of(version: str) -> Minor:
    """The part of a version, as `/version` or `VERSIONS` has it, that decides what a server answers."""
    return ".".join(version.removeprefix("v").split(".")[:2])


NEWEST: Final = minor_of(VERSIONS[-1])
"""The embedded cluster answers as this one."""

if __name__ == "__main__":
    print("\n".join(VERSIONS))
