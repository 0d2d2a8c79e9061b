"""What the driver's process and the observer send each other: structs as MessagePack, each after its length.

A pod crosses once for each change; after that its number stands for it, see `pod_table`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import msgspec

from actors import errors
from actors.errors import ApiError
from actors.kube.auth.connection import Connection
from actors.kube.auth.credentials import Credential
from actors.kube.observer.columns import TextColumn
from actors.pods.pod import EventType, Pod

if TYPE_CHECKING:
    import socket

__all__ = [
    "Ask",
    "Begin",
    "Body",
    "CancelCall",
    "Ended",
    "Events",
    "Failed",
    "Failure",
    "Fetch",
    "Forget",
    "FrameReader",
    "FromObserver",
    "LogLine",
    "NeedCredential",
    "Page",
    "Ping",
    "Pong",
    "Renewed",
    "ToObserver",
    "WatchPods",
    "WireCredential",
    "error_of",
    "failure_of",
    "from_observer",
    "pack",
    "to_observer",
]

LONGEST: Final = 512 * 1024 * 1024
"""Bytes of a frame: a page is bounded by `api.max_answer_size` before it is packed."""

_LENGTH: Final = struct.Struct("!I")

_READ: Final = 256 * 1024
"""Bytes that are read at once: what a socket's buffer holds."""

_ERRORS: Final = {
    name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, ApiError)
}


class WireCredential(msgspec.Struct, frozen=True, array_like=True):
    """A `Credential`. The files that it names are read by the observer itself."""

    connection: tuple[str, str | None, str | None, str | None, bool, str | None, str | None]
    authorization: str | None
    source: str
    authority: str
    contents: tuple[str, ...]

    @classmethod
    def of(cls, credential: Credential) -> WireCredential:
        """Return a credential as it crosses."""
        way = credential.connection
        return cls(
            (way.url, way.ca, way.certificate, way.key, way.verify, way.server_name, way.proxy),
            credential.authorization,
            credential.source,
            credential.authority,
            credential.contents,
        )

    def credential(self) -> Credential:
        """Return the credential. When it is due is the driver's process's business."""
        return Credential(
            Connection(*self.connection),
            self.authorization,
            source=self.source,
            authority=self.authority,
            contents=self.contents,
        )


# ── to the observer ────────────────────────────────────────────────────────────────────────────────────────────


class Begin(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The first frame: what to observe. `level` is that of the log."""

    namespace: str
    access_namespace: str
    credential: WireCredential
    request_timeout: float
    max_connections: int
    bounds: tuple[int, int, int]
    level: int


class Ask(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Answer a `List` with a `Page` or `Failed`."""

    serial: int
    selector: str
    limit: int
    continue_token: str
    resource_version: str | None


class WatchPods(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Open a `Watch`: `Events` follow, and `Ended` is the last of it."""

    serial: int
    selector: str
    resource_version: str
    timeout: float
    send_initial_events: bool


class Fetch(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Send an `HttpRequest`, and answer with a `Body` or `Failed`."""

    serial: int
    method: str
    path: str
    body: bytes | None
    content_type: str
    accept_encoding: str
    changes: bool
    answer: Literal["object", "list", "dropped"]
    deadline: float | None
    """A moment of this machine's monotonic clock, which all its processes share."""


class CancelCall(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End a call. Nothing more about it crosses than what is on its way."""

    serial: int


class Ping(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Answer with a `Pong`."""


class Renewed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to `NeedCredential`."""

    credential: WireCredential


ToObserver: TypeAlias = Begin | Ask | Fetch | WatchPods | CancelCall | Ping | Renewed


# ── from the observer ──────────────────────────────────────────────────────────────────────────────────────────


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An `ApiError`."""

    kind: str
    message: str
    status: int
    reason: str
    retry_after: float | None
    causes: tuple[tuple[str, str], ...]


class Page(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A `PodPage`. `numbers` has all pods in their order, packed, `news` those that have not crossed as they are."""

    serial: int
    numbers: bytes
    news: list[tuple[int, Pod]]
    versions: TextColumn
    resource_version: str
    continue_token: str
    malformed: int
    pages: int


class Events(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A `WatchEvents`. An event without a pod is about one that has crossed as it is."""

    serial: int
    events: list[tuple[EventType, int, Pod | None]]
    resource_version: str
    malformed: int
    initial_events_end: bool
    unchanged: int


class Body(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The body of a 2xx answer to a `Fetch`."""

    serial: int
    body: bytes


class Failed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An `Ask` or a `Fetch` has failed."""

    serial: int
    failure: Failure


class Ended(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A `WatchEnded`."""

    serial: int
    failure: Failure | None
    in_stream: bool


class Forget(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """These numbers will not be used again."""

    numbers: list[int]


class NeedCredential(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The server refused this credential: is there a newer one? Answered with `Renewed`."""

    refused: WireCredential


class Pong(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The observer answers."""


class LogLine(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A record of the log."""

    logger: str
    level: int
    text: str


FromObserver: TypeAlias = Page | Events | Body | Failed | Ended | Forget | NeedCredential | Pong | LogLine


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _as_plain(value: object) -> object:
    if isinstance(value, Mapping):  # the shared labels of a pod
        return dict(value)
    raise TypeError(f"a {type(value).__name__} does not cross")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_as_plain)
to_observer: Final = msgspec.msgpack.Decoder(ToObserver).decode
from_observer: Final = msgspec.msgpack.Decoder(FromObserver).decode


def pack(frame: ToObserver | FromObserver) -> bytes:
    """Return a frame with its length before it."""
    buffer = bytearray(_LENGTH.size)
    _encoder.encode_into(frame, buffer, _LENGTH.size)
    _LENGTH.pack_into(buffer, 0, len(buffer) - _LENGTH.size)
    return bytes(buffer)


@final
class FrameReader:
    """Reads frames from a connection, as many at once as have come: each read costs the interpreter's lock once."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray(_READ)
        self._begin = self._end = 0
        """Between them are the bytes that are no frame yet."""

    def read(self) -> list[bytes] | None:
        """Wait for frames, and return at least one, without its length; None when the other side has closed.

        Raises:
            OSError: the connection is broken, or what came is no frame.
        """
        while not (frames := self._whole()):
            self._make_room()
            count = self._connection.recv_into(memoryview(self._buffer)[self._end :])
            if not count:
                if self._begin != self._end:
                    raise OSError("the connection ended within a frame")
                return None
            self._end += count
        return frames

    def _whole(self) -> list[bytes]:
        frames: list[bytes] = []
        while self._end - self._begin >= _LENGTH.size:
            first = self._begin + _LENGTH.size
            end = first + self._length()
            if end > self._end:
                break
            frames.append(bytes(self._buffer[first:end]))
            self._begin = end
        return frames

    def _length(self) -> int:
        (length,) = _LENGTH.unpack_from(self._buffer, self._begin)
        if length > LONGEST:
            raise OSError(f"a frame of {length} bytes")
        return int(length)

    def _make_room(self) -> None:
        """Move what has come of a frame to the front of a buffer that has room for all of it."""
        left = self._buffer[self._begin : self._end]
        size = max(_READ, _LENGTH.size + self._length() if len(left) >= _LENGTH.size else 0)
        self._begin, self._end = 0, len(left)
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        self._buffer[: len(left)] = left


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────────────


def failure_of(error: ApiError) -> Failure:
    """Return an error as it crosses."""
    wait = error.retry_after
    return Failure(
        type(error).__name__,
        error.message,
        error.status,
        error.reason,
        None if wait is None else wait.total_seconds(),
        error.causes,
    )


def error_of(failure: Failure) -> ApiError:
    """Return the error that has crossed."""
    wait = failure.retry_after
    kind: Any = _ERRORS.get(failure.kind, errors.Unavailable)
    error: ApiError = kind(
        failure.message,
        status=failure.status,
        reason=failure.reason,
        retry_after=None if wait is None else timedelta(seconds=wait),
        causes=failure.causes,
    )
    return error
