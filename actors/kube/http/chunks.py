"""An answer's chunks, taken as they come: all that has arrived, in one read.

An API server sends each event of a watch as an HTTP chunk, and a TLS record, of its own, and `http.client` gives out
one a read. A read for each event, and all that follows a read, would cost more than the event.
"""

from __future__ import annotations

import re
import ssl
from http.client import HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    import socket

    import urllib3

__all__ = ["Answer", "Chunks", "has_more"]

LONGEST_HEAD: Final = 4096
"""Bytes of a chunk's size with its extensions, and of all trailers: a size has a few digits, and nobody sends more."""

_HEAD: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
"""What comes before a chunk's content, and after that of the one before it (RFC 9112 §7.1)."""


@final
class Chunks:
    """Cuts what was read, which may end anywhere, into what is content and what is not."""

    def __init__(self) -> None:
        self.ended = False
        """The last chunk and its trailers have come; what is fed from then on is not looked at."""
        self._left = 0
        """Bytes of the chunk under way that have not come yet."""
        self._held = b"\r\n"
        """The beginning of what is not content; the first chunk has none before it that would end with this."""
        self._in_trailers = False

    def feed(self, data: bytes) -> bytes:
        """The content in what came.

        Raises:
            IncompleteRead: it is not in chunks.
        """
        if self._in_trailers:
            self._end(self._held + data)
            return b""
        if 0 < len(data) <= self._left:
            self._left -= len(data)
            return data
        data = self._held + data
        view = memoryview(data)
        pieces, at = [view[: self._left]], self._left
        while (head := _HEAD.match(data, at)) is not None:
            start, size = head.end(), int(head[1], 16)
            if size == 0:
                self._end(data[start - 2 :])
                break
            at = start + size
            pieces.append(view[start:at])
        else:
            self._left, self._held = max(0, at - len(data)), data[at:]
            _check_head(self._held)
        return b"".join(pieces)

    def _end(self, data: bytes) -> None:
        """The last chunk was there: after its trailers, if there are any, comes an empty line."""
        self._in_trailers, self._held = True, data
        self.ended = b"\r\n\r\n" in data
        if not self.ended and len(data) > LONGEST_HEAD:
            raise IncompleteRead(b"")


@final
class Answer(HTTPResponse):
    """One that `read1` gives as much of as has arrived. To be read by `read1` alone, or not at all by it."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._socket = sock
        self._by_record = isinstance(sock, ssl.SSLSocket)
        self._chunks = Chunks()
        self.ahead = b""
        """What the next read gives, without waiting: looked for when one was as long as it may be."""

    def read1(self, n: int = -1) -> bytes:
        """Up to `n` bytes, as soon as there is one; none at the end.

        Raises:
            IncompleteRead: it was cut, or is not in chunks.
        """
        if not self.chunked or self.fp is None:
            return super().read1(n)
        content, self.ahead = self.ahead, b""
        size = n if content else 0
        while not (content or self._chunks.ended):
            data = self.fp.read1(n)
            if not data:
                raise IncompleteRead(b"")
            if self._by_record:
                data = self._arrived(data, n)
            content, size = self._chunks.feed(data), len(data)
        if 0 < n <= size and not self._chunks.ended:
            self.ahead = self._chunks.feed(self._arrived(b"", n))
        return content

    def _arrived(self, data: bytes, n: int) -> bytes:
        """This and what else has arrived: OpenSSL gives out a record a read, and a server sends one for each event."""
        pieces, left, timeout = [data], n - len(data), self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            while left > 0 and (data := self.fp.read1(left)):
                pieces.append(data)
                left -= len(data)
        except OSError:
            pass  # no more has: should it be something worse, the next read meets it
        finally:
            self._socket.settimeout(timeout)
        return b"".join(pieces)


def has_more(response: urllib3.BaseHTTPResponse) -> bool:
    """Whether the next `read1` of a stream gives something without waiting."""
    answer = getattr(response, "_original_response", None)
    return isinstance(answer, Answer) and bool(answer.ahead)


def _check_head(held: bytes) -> None:
    """See that this may become the head of a chunk, once the rest of it is there."""
    if not (b"\r\n".startswith(held[:2]) and b"\n" not in held[2:] and len(held) <= LONGEST_HEAD):
        raise IncompleteRead(b"")
