"""Resource versions: which of two is later, and what had been seen by when.

Versions of one resource are comparable as decimal numbers (KEP-5504). Any other string can only be equal to another or
not: nothing here ever says that one of those is later.
"""

from __future__ import annotations

from typing import Final

__all__ = ["is_later", "is_old", "number_of", "passed"]

LONGEST: Final = 39
"""Digits of 2^128: etcd's revisions have 64 bits."""


def number_of(version: str | None) -> int | None:
    """The version as a number, None if it is none, or longer than any that a server could count to."""
    if version is None or len(version) > LONGEST or not version.isascii() or not version.isdecimal():
        return None
    return int(version)


def is_later(version: str | None, than: str | None) -> bool:
    """Whether a version is surely later than another. Asked of every event, nearly always of two of one length."""
    if version is None or than is None:
        return False
    if len(version) == len(than) <= LONGEST:  # as numbers and as texts they stand in the same order
        return version > than and version.isdecimal() and than.isdecimal() and version.isascii() and than.isascii()
    a, b = number_of(version), number_of(than)
    return a is not None and b is not None and a > b


def is_old(version: str, known: str) -> bool:
    """Whether a word at `version` is no news after one at `known`. Of words that cannot be compared the last wins."""
    return version == known or is_later(known, version)


def passed(version: str | None, other: str | None) -> bool:
    """Whether a version has reached another. Those that cannot be compared have; None is before everything."""
    return version is not None and not is_later(other, version)
