"""Resource versions: which of two is later, and what had been seen by when.

Versions of one resource are comparable as decimal numbers (KEP-5504). Any other string can only be equal to another or
not: nothing here ever says that one of those is later.
"""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ["SEEN_GRANULE", "SEEN_KEPT", "Seen", "highest_before", "is_later", "is_old", "number_of", "passed", "see"]

SEEN_GRANULE: Final = 0.1
"""Seconds. Versions seen within one are remembered as one, the last: at most that much proof is lost."""

SEEN_KEPT: Final = 64
"""How many granules are remembered. When there are more, every other one of the older half is forgotten, so that they
reach the further back the coarser they are: a list that takes minutes still finds one from before it was asked for."""

LONGEST: Final = 39
"""Digits of 2^128: etcd's revisions have 64 bits."""

Seen: TypeAlias = tuple[tuple[float, int], ...]
"""(when it was handled, highest version until then), oldest first."""


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


def see(seen: Seen, version: str, now: float) -> Seen:
    """With a version handled `now`."""
    number = number_of(version)
    if number is None or (seen and seen[-1][1] >= number):
        return seen
    if seen and now // SEEN_GRANULE <= seen[-1][0] // SEEN_GRANULE:
        return (*seen[:-1], (max(now, seen[-1][0]), number))
    if len(seen) >= SEEN_KEPT:
        half = SEEN_KEPT // 2
        seen = (*seen[:half:2], *seen[half:])
    return (*seen, (now, number))


def highest_before(seen: Seen, moment: float) -> int:
    """The highest version known to have been handled before a moment; an answer asked for then cannot be below it."""
    return max((number for at, number in seen if at < moment), default=0)
