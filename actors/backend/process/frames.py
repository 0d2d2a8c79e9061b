"""What the two processes send each other: lists of frames, pickled, each list after its length.

Both sides are this program, started by the same user, over a socketpair that nobody else has: what is unpickled was
pickled here. A message crosses as it is, but for addresses, all of which are the Backend's.
"""

from __future__ import annotations

import io
import pickle
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from actors.runtime import Address

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from actors.kube.api import Manifest
    from actors.kube.auth.credentials import Credential
    from actors.kube.http.bounds import AnswerBounds
    from actors.metrics.counts import ProcessCounts
    from actors.pods.state import PodState
    from actors.settings import Settings

__all__ = [
    "Ended",
    "FrameReader",
    "FromFleet",
    "Hang",
    "LogRecord",
    "MessageToBackend",
    "MessageToChild",
    "NeedCredential",
    "Observed",
    "Ping",
    "Pong",
    "Ready",
    "Renewed",
    "Setup",
    "Spawn",
    "Stop",
    "ToFleet",
    "pack",
    "resolve",
    "unpack",
]

LONGEST: Final = 512 * 1024 * 1024
"""Bytes of a list of frames. Only a ledger is long: some hundred bytes for each executor."""

_LENGTH: Final = struct.Struct("!I")

_READ: Final = 256 * 1024
"""Bytes that are read at once: what a socket's buffer holds."""


# ── to the fleet's process ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Setup:
    """The first frame: whose fleet it is, and how to reach the API server."""

    settings: Settings
    owners: tuple[Manifest, ...]
    """Of the executors, as ownerReferences."""
    namespace: str
    access_namespace: str
    credential: Credential = field(repr=False)
    request_timeout: timedelta
    max_connections: int
    bounds: AnswerBounds
    counts: ProcessCounts
    """Those of the processes before this one, to be continued."""
    level: int
    """Of the log."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a child. `incarnation` is the number of the actor that stands for it in the Backend's process."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class MessageToChild:
    """A message to this incarnation of a child."""

    name: str
    incarnation: int
    message: object


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a child after all messages that came before."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer with a `Pong`, and say which child has been busy with one message for longer than `patience`."""

    patience: timedelta


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answer to `NeedCredential`."""

    credential: Credential = field(repr=False)


ToFleet: TypeAlias = Setup | Spawn | MessageToChild | Stop | Ping | Renewed


# ── from the fleet's process ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is set up: it may be sent children."""


@dataclass(frozen=True, slots=True)
class MessageToBackend:
    """A message to the Backend."""

    message: object


@dataclass(frozen=True, slots=True)
class Observed:
    """An `ExecutorsObserved`, as what is different from the last one: None for an executor that is gone."""

    changes: Mapping[int, PodState | None]
    is_last: bool
    """False if more of the same follow."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A child has ended; `cause` is None after an orderly stop."""

    name: str
    incarnation: int
    cause: BaseException | None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The attributes of a record of the log. Its message is text."""

    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NeedCredential:
    """The server refused this credential: is there a newer one? Answered with `Renewed`."""

    refused: Credential = field(repr=False)


@dataclass(frozen=True, slots=True)
class Hang:
    """A child that is busy with one message."""

    name: str
    message: str
    """The message's type."""
    seconds: float
    stack: str


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to `Ping`."""

    hang: Hang | None
    counts: ProcessCounts


FromFleet: TypeAlias = Ready | MessageToBackend | Observed | Ended | LogRecord | NeedCredential | Pong


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────────────────────


_backend: Final[list[Address]] = []
"""In the fleet's process: the Backend's address."""


def resolve(backend: Address) -> None:
    """Have each address that arrives in this process become `backend`."""
    _backend[:] = [backend]


def _the_backend() -> Address:
    return _backend[0]


def _as_backend(_: Address) -> tuple[Callable[[], Address], tuple[()]]:
    return _the_backend, ()


class _Pickler(pickle.Pickler):
    dispatch_table = {Address: _as_backend}  # noqa: RUF012 - pickle's own way


def pack(frames: Sequence[ToFleet] | Sequence[FromFleet]) -> bytes:
    """Return frames with their length before them."""
    buffer = io.BytesIO(bytes(_LENGTH.size))
    buffer.seek(_LENGTH.size)
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(frames)
    view = buffer.getbuffer()
    _LENGTH.pack_into(view, 0, len(view) - _LENGTH.size)
    return bytes(view)


def unpack(data: bytes) -> Sequence[Any]:
    """Return the frames that were packed, given without their length.

    Raises:
        Exception: the other side has sent something else.
    """
    frames = pickle.loads(data)  # noqa: S301 - see the module
    if not isinstance(frames, list):
        raise TypeError(f"{type(frames).__name__} is no list of frames")
    return frames


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
