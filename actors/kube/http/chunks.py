"""Reads all chunks of an answer that have arrived, in one go.

An API server sends each event of a watch as one HTTP chunk and one TLS record, and `http.client` returns one a read. A
read per event would cost more than the event itself.
"""

from __future__ import annotations

import re
import ssl
from http.client import HTTPResponse, IncompleteRead, LineTooLong, UnknownProtocol
from typing import TYPE_CHECKING, Any, Final, final

from actors.kube.http.body import TooLarge
from actors.kube.http.bounds import AnswerBounds

if TYPE_CHECKING:
    import socket


__all__ = ["Answer", "Chunks"]

LONGEST_HEAD: Final = 4096
"""Bytes of a chunk's size line with extensions, and of all trailers. A size has a few digits; no server sends more."""

CONTINUE: Final = 100
NO_CONTENT: Final = 204
NOT_MODIFIED: Final = 304

SIZES_KEPT: Final = 1024
"""Heads of chunks that a connection remembers. The events of a fleet have a few hundred sizes."""

LONGEST_KEPT: Final = 19
"""Bytes of such a head: fifteen digits between two line ends."""

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
        self._sizes: dict[bytes, int] = {}
        """Chunk head → size, of the heads that came before: to look one up costs a third of reading it."""
        self._width = 7
        """Bytes of the last head that was new. Most heads are as long, so the end of a head is not searched for."""

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
        sizes, width = self._sizes, self._width
        pieces, at = [view[: self._left]], self._left
        while True:
            start = at + width
            size = sizes.get(data[at:start])
            if size is None:
                start = data.find(b"\r\n", at + 2) + 2
                size = sizes.get(data[at:start])
                width = start - at
            if size is None:
                head = _HEAD.match(data, at)
                if head is None:
                    self._left, self._held = max(0, at - len(data)), data[at:]
                    _check_head(self._held)
                    break
                start, size = head.end(), int(head[1], 16)
                if size == 0:
                    self._end(data[start - 2 :])
                    break
                self._remember(head[0], size)
                self._width = len(head[0])
            at = start + size
            pieces.append(view[start:at])
        return b"".join(pieces)

    def _remember(self, head: bytes, size: int) -> None:
        if len(self._sizes) < SIZES_KEPT and len(head) <= LONGEST_KEPT:
            self._sizes[head] = size

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
    version_string = "HTTP/1.1"
    """Of our requests; urllib3 logs it."""
    sent_over: Any = None
    """The connection, which `Transport` may use again once the answer was read to its end."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._socket = sock
        self._by_record = isinstance(sock, ssl.SSLSocket)
        self._chunks = Chunks()
        self.ahead = b""
        """The content of the next read, already here: fetched when a read had its full size."""

    def begin(self) -> None:
        """Read the status line and the headers. A line that is no header is skipped: it may be our credential.

        Raises:
            TooLarge: they exceed `most_headers`, or the status line what `http.client` reads of it.
        """
        whole: Any = self.fp
        head: Any = _Head(whole, self.most_headers)
        self.fp = head
        try:
            self._read_head(head)
        except LineTooLong as error:
            raise TooLarge(f"sent too many headers: {error}") from None
        finally:
            if self.fp is not None:
                self.fp = whole

    def _read_head(self, head: _Head) -> None:
        """Do as `http.client` does, without its parser, which is that of e-mails and takes ten times as long."""
        status, headers = CONTINUE, _Headers()
        while status == CONTINUE:
            version, status, reason = self._read_status()  # type: ignore[attr-defined]  # typeshed leaves private methods out
            headers = _headers(head)
        if not version.startswith("HTTP/1."):
            raise UnknownProtocol(version)
        self.code = self.status = status
        self.reason = reason.strip()
        self.version = 10 if version == "HTTP/1.0" else 11
        self.headers = self.msg = headers  # type: ignore[assignment]  # looked up without case, as in a message
        self.chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = headers.get("content-length", "")
        self.length = int(length) if length.isdecimal() and length.isascii() and not self.chunked else None
        if status in {NO_CONTENT, NOT_MODIFIED} or status < 200:
            self.length = 0
        ends = self._check_close()  # type: ignore[attr-defined]  # the same
        self.will_close = ends or (self.length is None and not self.chunked)

    def _read_next_chunk_size(self) -> int:
        """Refuse a negative size, which `http.client` would take for all that is to come."""
        size: int = super()._read_next_chunk_size()  # type: ignore[misc]  # typeshed leaves private methods out
        if size < 0:
            raise IncompleteRead(b"")
        return size

    @property
    def length_remaining(self) -> int | None:
        """How many bytes are still to come, None if nobody said so."""
        return self.length

    def read(self, n: int | None = None) -> bytes:
        """Return `n` bytes, fewer at the end.

        Raises:
            IncompleteRead: the answer was cut, or is not chunked.
        """
        return self._checked(super().read(n), n)

    def read1(self, n: int = -1) -> bytes:
        """Return up to `n` bytes as soon as one is there; none at the end.

        Raises:
            IncompleteRead: the answer was cut, or is not chunked.
        """
        if not self.chunked or self.fp is None:
            return self._checked(super().read1(n), n)
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

    def _checked(self, data: bytes, n: int | None) -> bytes:
        if not data and n != 0 and self.length:
            raise IncompleteRead(b"", self.length)
        return data

    def _arrived(self, data: bytes, n: int) -> bytes:
        """Return the data and all that has arrived after it: OpenSSL returns one record a read."""
        pieces, left, timeout = [data] if data else [], n - len(data), self._socket.gettimeout()
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

    def readline(self, most: int | None = None) -> bytes:
        """Return the next line, or its first `most` bytes.

        Raises:
            TooLarge: the lines exceed the bound.
        """
        line: bytes = self._file.readline(self._left + 1 if most is None else min(most, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise TooLarge(f"sent headers of more than {self._most} bytes (api.max_header_size)")
        return line

    def close(self) -> None:
        """Close the connection's file."""
        self._file.close()


class _Headers(dict[str, str]):
    """Values by name in lower case. urllib3's class does more, and takes five times as long for each answer."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a header, of any case."""
        return super().get(name.lower(), default)


def _headers(head: _Head) -> _Headers:
    """Read the headers up to the empty line.

    One that goes on in further lines is joined (RFC 9112 §5.2), and so are several of one name (RFC 9110 §5.3).
    """
    headers, last = _Headers(), ""
    while (line := head.readline()) not in {b"\r\n", b"\n", b""}:
        name, colon, value = line.decode("latin-1").partition(":")
        if line[:1] in b" \t" and last:
            headers[last] += f" {line.decode('latin-1').strip()}"
        elif colon:
            last, value = name.lower(), value.strip()
            headers[last] = f"{headers[last]}, {value}" if last in headers else value
    return headers


def _check_head(held: bytes) -> None:
    """Check that this can become the head of a chunk."""
    if not (b"\r\n".startswith(held[:2]) and b"\n" not in held[2:] and len(held) <= LONGEST_HEAD):
        raise IncompleteRead(b"")
