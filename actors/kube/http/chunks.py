"""Reads all chunks of an answer that have arrived, in one go.

An API server sends each event of a watch as one HTTP chunk and one TLS record, and `http.client` returns one a read. A
read per event would cost more than the event itself.
"""

from __future__ import annotations

import re
import ssl
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING, Any, Final, final

from actors.kube.http.bounds import AnswerBounds, TooLarge

if TYPE_CHECKING:
    import socket

    import urllib3

__all__ = ["Answer", "Chunks", "has_more"]

LONGEST_HEAD: Final = 4096
"""Bytes of a chunk's size line with extensions, and of all trailers. A size has a few digits; no server sends more."""

_HEAD: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
"""The bytes between the content of two chunks (RFC 9112 §7.1)."""


@final
class Chunks:
    """Extracts the content from chunked data that is cut anywhere."""

    def __init__(self) -> None:
        self.ended = False
        """The last chunk and its trailers have arrived; further data is ignored."""
        self._left = 0
        """Bytes that are missing of the current chunk."""
        self._held = b"\r\n"
        """The beginning of a chunk head. The first chunk has no predecessor whose CRLF would begin its head."""
        self._in_trailers = False

    def feed(self, data: bytes) -> bytes:
        """Return the content in the data.

        Raises:
            IncompleteRead: the data is not chunked.
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
        """Handle the data after the last chunk: trailers, if any, and an empty line."""
        self._in_trailers, self._held = True, data
        self.ended = b"\r\n\r\n" in data
        if not self.ended and len(data) > LONGEST_HEAD:
            raise IncompleteRead(b"")


class Answer(HTTPResponse):
    """An HTTP answer whose `read1` returns all that has arrived. Do not mix `read1` with other reads."""

    most_headers = AnswerBounds.headers
    """Bytes of the status line and all headers."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._socket = sock
        self._by_record = isinstance(sock, ssl.SSLSocket)
        self._chunks = Chunks()
        self.ahead = b""
        """The content of the next read, already here: fetched when a read had its full size."""

    def begin(self) -> None:
        """Read the status line and the headers.

        Raises:
            TooLarge: they exceed `most_headers`.
        """
        whole: Any = self.fp
        head: Any = _Head(whole, self.most_headers)
        self.fp = head
        try:
            super().begin()
        except HTTPException as error:
            if str(error).startswith("got more than"):  # a line or a number of lines that is fixed in `http.client`
                raise TooLarge(f"sent too many headers: {error}") from None
            raise
        finally:
            if self.fp is not None:
                self.fp = whole
        self.msg.defects = []  # urllib3 would log what is no header, and that may be our credential
        self.msg.set_payload("")

    def _read_next_chunk_size(self) -> int:
        """Refuse a negative size, which `http.client` would take for all that is to come."""
        size: int = super()._read_next_chunk_size()  # type: ignore[misc]  # typeshed leaves private methods out
        if size < 0:
            raise IncompleteRead(b"")
        return size

    def read1(self, n: int = -1) -> bytes:
        """Return up to `n` bytes as soon as one is there; none at the end.

        Raises:
            IncompleteRead: the answer was cut, or is not chunked.
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
        """Return the data and all that has arrived after it: OpenSSL returns one record a read."""
        pieces, left, timeout = [data], n - len(data), self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            while left > 0 and (data := self.fp.read1(left)):
                pieces.append(data)
                left -= len(data)
        except OSError:
            pass  # nothing more has arrived; a real error shows up in the next read
        finally:
            self._socket.settimeout(timeout)
        return b"".join(pieces)


class _Head:
    """The head of an answer, line by line."""

    def __init__(self, file: Any, most: int) -> None:
        self._file = file
        self._most = self._left = most

    def readline(self, most: int) -> bytes:
        """Return the next line, of at most `most` bytes.

        Raises:
            TooLarge: the lines exceed the bound.
        """
        line: bytes = self._file.readline(min(most, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise TooLarge(f"sent headers of more than {self._most} bytes (api.max_header_size)")
        return line

    def close(self) -> None:
        """Close the connection's file."""
        self._file.close()


def has_more(response: urllib3.BaseHTTPResponse) -> bool:
    """Whether the next `read1` of a stream returns without waiting."""
    answer = getattr(response, "_original_response", None)
    return isinstance(answer, Answer) and bool(answer.ahead)


def _check_head(held: bytes) -> None:
    """Check that this can become the head of a chunk."""
    if not (b"\r\n".startswith(held[:2]) and b"\n" not in held[2:] and len(held) <= LONGEST_HEAD):
        raise IncompleteRead(b"")
