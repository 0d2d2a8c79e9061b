"""Values of a long page as one value: neither side makes an object for each, and hardly any is looked at."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["TextColumn", "numbers_of", "pack_numbers"]


@final
class TextColumn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Texts by place."""

    joined: str
    ends: bytes
    """Packed: where each text ends in `joined`."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextColumn:
        """Return these texts as one."""
        return cls("".join(texts), pack_numbers(accumulate(map(len, texts))))

    def __getitem__(self, place: int, /) -> str:
        """Return the text at a place, counted from 0."""
        ends = numbers_of(self.ends)
        return self.joined[ends[place - 1] if place else 0 : ends[place]]


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Return numbers from 0 on as this machine keeps them, eight bytes each."""
    return array("Q", numbers).tobytes()


def numbers_of(packed: bytes) -> memoryview:
    """Return the numbers that were packed."""
    return memoryview(packed).cast("Q")
