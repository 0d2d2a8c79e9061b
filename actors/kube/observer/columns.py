"""Values of a long page as one value: neither side makes an object for each, and hardly any is looked at."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["TextColumn", "numbers_of", "pack_numbers"]

_FILLER = "\0"
"""After a text that is shorter than others. No version of the server has it."""


@final
class TextColumn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Short texts of about the same length, by place."""

    width: int
    joined: str

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextColumn:
        """Return these texts as one."""
        width = max(map(len, texts), default=0)
        return cls(width, "".join([text.ljust(width, _FILLER) for text in texts]))

    def __getitem__(self, place: int, /) -> str:
        """Return the text at a place that the column has."""
        start = place * self.width
        return self.joined[start : start + self.width].rstrip(_FILLER)


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Return numbers from 0 on as this machine keeps them, eight bytes each."""
    return array("Q", numbers).tobytes()


def numbers_of(packed: bytes) -> memoryview:
    """Return the numbers that were packed."""
    return memoryview(packed).cast("Q")
