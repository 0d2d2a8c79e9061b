"""Reads the body of an answer piece by piece, decompressed, and no further than a bound.

urllib3 decompresses whatever a read returns at once: 128 KiB of gzip may become 128 MiB.
"""

from __future__ import annotations

import zlib
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Final, final

from urllib3.exceptions import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Inflater", "TooLarge", "content", "inflater_of", "read_body", "read_start"]

READ_SIZE: Final = 256 * 1024
"""Bytes of one read, and of one piece of decompressed content."""

GZIP: Final = 16 + zlib.MAX_WBITS


class TooLarge(HTTPException):
    """An answer exceeds a bound. The message continues a sentence that begins with the server's name."""


def read_body(response: HTTPResponse, most: int, setting: str, *, drop_rest: bool = False) -> bytes:
    """Return the whole body. With `drop_rest`, read a longer one to its end and return its first `most` bytes.

    Raises:
        TooLarge: the body has more than `most` bytes.
        DecodeError: it is not compressed as its header says.
        HTTPException, OSError: it is incomplete.
    """
    if not drop_rest and (response.length or 0) > most:
        raise _too_large(most, setting)
    pieces, size = [], 0
    for piece in content(response):
        if size + len(piece) <= most:
            pieces.append(piece)
        elif not drop_rest:
            raise _too_large(most, setting)
        elif size <= most:
            pieces.append(piece[: most - size])
        size += len(piece)
    return b"".join(pieces)


def read_start(response: HTTPResponse, most: int) -> bytes:
    """Return the body's first bytes, at most `most`, and read no further. What cannot be read ends it."""
    start = b""
    try:
        for piece in content(response):
            start += piece[: most - len(start)]
            if len(start) == most:
                break
    except DecodeError:
        pass
    return start


def content(response: HTTPResponse) -> Iterator[bytes]:
    """Yield the decompressed body in pieces of at most `READ_SIZE`.

    Raises:
        DecodeError, HTTPException, OSError: see `read_body`.
    """
    inflater = inflater_of(response)
    while data := response.read(READ_SIZE):
        if inflater is None:
            yield data
        else:
            yield from inflater.feed(data)
    if inflater is not None:
        inflater.check_end()


def inflater_of(response: HTTPResponse) -> Inflater | None:
    """Return what decompresses the body; None if it is not compressed.

    Raises:
        DecodeError: it is compressed in a way that we do not ask for.
    """
    match response.headers.get("Content-Encoding", "identity").strip().lower():
        case "identity" | "":
            return None
        case "gzip" | "x-gzip":
            return Inflater()
        case _:
            raise DecodeError("neither gzip nor identity")


@final
class Inflater:
    """Decompresses gzip that is cut anywhere, with several members or with bytes after the last, as urllib3 does."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(GZIP)
        self._is_first = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the content of the data in pieces of at most `READ_SIZE`.

        Raises:
            DecodeError: the data is not gzip.
        """
        while True:
            if self._member.eof:
                if not data:
                    return
                self._member, self._is_first = zlib.decompressobj(GZIP), False
            try:
                piece = self._member.decompress(data, READ_SIZE)
            except zlib.error as error:
                if self._is_first:
                    raise DecodeError("not gzip", error) from error
                return  # bytes after the last member
            if piece:
                yield piece
            data = self._member.unconsumed_tail or self._member.unused_data
            if not data and len(piece) < READ_SIZE:
                return

    def check_end(self) -> None:
        """Check that the data is complete.

        Raises:
            DecodeError: it is not.
        """
        if self._is_first and not self._member.eof:
            raise DecodeError("incomplete gzip")


def _too_large(most: int, setting: str) -> TooLarge:
    return TooLarge(f"sent an answer of more than {most} bytes ({setting})")
