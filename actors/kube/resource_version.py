"""Resource versions: which of two is later.

Versions of one resource compare as decimal numbers (KEP-5504). Any other string is only equal to another or not; no
function here calls one of those later.
"""

from __future__ import annotations

from typing import Final

__all__ = ["is_later", "is_old", "number_of", "passed"]

LONGEST: Final = 39
"""Digits of 2^128: etcd's revisions have 64 bits."""


def number_of(version: str | None) -> int | None:
    """Return the version as a number; None if it is no number, or longer than any server counts."""
    if version is None or len(version) > LONGEST or not version.isascii() or not version.isdecimal():
        return None
    return int(version)


def is_later(version: str | None, than: str | None) -> bool:
    """Whether a version is known to be later than another. Called per event, nearly always with equal lengths."""
    if version is None or than is None:
        return False
    if len(version) == len(than) <= LONGEST:  # numbers of one length sort as texts do
        return version > than and version.isdecimal() and than.isdecimal() and version.isascii() and than.isascii()
    a, b = number_of(version), number_of(than)
    return a is not None and b is not None and a > b


def is_old(version: str, known: str) -> bool:
    """Whether a state at `version` is not newer than one at `known`. Versions that do not compare count as newer."""
    if version > known and len(version) == len(known):  # nearly always: numbers of one length sort as texts do
        return False
    return version == known or is_later(known, version)


def passed(version: str | None, other: str | None) -> bool:
    """Whether a version has reached another: true if the two do not compare, false for None."""
    return version is not None and not is_later(other, version)
