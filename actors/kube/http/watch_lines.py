"""Decodes the lines of a watch.

All lines of a read are decoded in one call. Only if that fails are they decoded one by one, so that one bad pod harms
no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

import msgspec

from actors.kube.api import WatchEvents
from actors.kube.deduplication import Connection
from actors.kube.http.body import TooLarge
from actors.kube.http.bounds import AnswerBounds
from actors.kube.http.decode import NOT_A_POD, MadeContainers, status, version_of
from actors.kube.status import error_from_status
from actors.pods.api_pod import ApiEvent
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actors.errors import ApiError
    from actors.kube.deduplication import PodDeduplicator
    from actors.kube.http.decode import Complaints
    from actors.pods.pod import EventType, PodEvent

__all__ = ["LineSplitter", "Lines", "WatchDecoder"]

logger = get_logger(__name__)

Lines: TypeAlias = bytes | memoryview
"""Whole lines."""

LONGEST_VERSION: Final = 1024
"""Characters of a version to resume from, which is sent back in a URL. A real one has at most 20 digits."""


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


class _RawLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


_EVENT: Final = msgspec.json.Decoder(ApiEvent)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)
_RAW_LINE: Final = msgspec.json.Decoder(_RawLine)

_KNOWN_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


@final
class LineSplitter:
    """Splits reads, which may end anywhere, after the last complete line."""

    def __init__(self, longest: int = AnswerBounds.one_object) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Lines]:
        """Return the lines that `data` completes, with their line ends: the first one by itself, if it began before.

        Raises:
            TooLarge: no line end came within `longest` bytes.
        """
        begin, end = 0, data.rfind(b"\n") + 1
        found: list[Lines] = []
        if end and self._pieces:
            begin = data.index(b"\n") + 1
            found.append(b"".join((*self._pieces, data[:begin])))
            self._pieces, self._size = [], 0
        if begin < end:
            found.append(memoryview(data)[begin:end])  # a copy of a whole read costs as much as one of its events
        self._keep(data[end:])
        return found

    def rest(self) -> list[Lines]:
        """Return the last line, if the stream ended without a line end."""
        pieces, self._pieces = self._pieces, []
        return [b"".join(pieces)] if pieces else []

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
        if self._size > self._longest:
            raise TooLarge(f"sent a watch event of more than {self._longest} bytes (api.max_object_size)")


@final
class WatchDecoder:
    """Decodes the lines of one connection to `WatchEvents` and tracks the version that it has reached."""

    def __init__(self, resource_version: str, complaints: Complaints, deduplicator: PodDeduplicator) -> None:
        self._version = resource_version
        self._complaints = complaints
        self._deduplicator = deduplicator
        self._connection = Connection(resource_version or None)
        self._events: list[PodEvent] = []
        self._malformed = self._unchanged = 0
        self._urgent = False
        """See `WatchEvents.urgent`."""
        self._pending = False
        """Whether a line was decoded since the last `WatchEvents`."""

    def decode(self, lines: Lines, *, more: bool = False) -> tuple[list[WatchEvents], Exception | None]:
        """Return the decoded reads, and the error that ended the stream, if any.

        There is at most one `WatchEvents`, plus one for the end of the initial events. The error is the `ApiError` that
        the server sent, or a `ValueError` or `RecursionError` for a line that is not an event.

        With `more`, further lines are already there, and the events may be returned with the next call.
        """
        try:
            events = _EVENT.decode_lines(lines)
        except (ValueError, RecursionError):
            return self._one_by_one(lines)
        if events:
            self._advance_to(_newest(events))
            self._take_events(events, lambda: map(_object, _split(lines)))
        return [self._flush()] if self._pending and not more else [], None

    def _one_by_one(self, lines: Lines) -> tuple[list[WatchEvents], Exception | None]:
        """Decode lines that are not all events of pods."""
        reads: list[WatchEvents] = []
        error: Exception | None = None
        for line in _split(lines):
            try:
                error = self._take(line, reads)
            except (ValueError, RecursionError) as unreadable:
                error = unreadable
            if error is not None:
                break
        if self._pending:
            reads.append(self._flush())
        return reads, error

    def _flush(self, *, initial_events_end: bool = False) -> WatchEvents:
        events = WatchEvents(
            tuple(self._events),
            self._version,
            self._malformed,
            initial_events_end,
            self._unchanged,
            self._urgent or initial_events_end,
        )
        self._events, self._malformed, self._unchanged = [], 0, 0
        self._urgent = self._pending = False
        return events

    def _take_events(self, events: Sequence[ApiEvent], raws: Callable[[], Iterable[msgspec.Raw]]) -> None:
        """Take decoded events; `raws` returns the JSON of their pods."""
        made_of = MadeContainers(lambda: zip((event.pod for event in events), raws(), strict=True))
        changed, urgent = self._deduplicator.watched(events, self._connection, made_of)
        self._events += changed
        self._unchanged += len(events) - len(changed)
        self._urgent = self._urgent or urgent

    def _take(self, line: bytes, reads: list[WatchEvents]) -> ApiError | None:
        """Decode one line. Return the error if the server ended the stream with it."""
        try:
            event = _EVENT.decode(line)
        except NOT_A_POD as why:
            return self._take_other(_RAW_LINE.decode(line), why, reads)
        self._advance_to(event.pod.metadata.resource_version)
        self._take_events((event,), lambda: (_object(line),))
        return None

    def _take_other(self, line: _RawLine, why: Exception, reads: list[WatchEvents]) -> ApiError | None:
        """Decode a line that is not an event of a pod, or has an undecodable pod."""
        if line.type == "ERROR":
            return _event_error(line.object, self._complaints.redacted)
        metadata = _bookmark(line.object) if line.type == "BOOKMARK" else None
        if metadata is not None:
            self._advance_to(metadata.resource_version)
            if (metadata.annotations or {}).get("k8s.io/initial-events-end") == "true":
                reads.append(self._flush(initial_events_end=True))
            return None
        self._advance_to(version_of(line.object))
        if line.type not in _KNOWN_TYPES:
            logger.warning("watch event of unknown type: type=%.40r", self._complaints.redacted(line.type))
        elif line.type != "BOOKMARK" and (pod := self._complaints.repaired(line.object, why)) is not None:
            self._take_events((ApiEvent(cast("EventType", line.type), pod),), lambda: (line.object,))
            return None
        self._malformed += 1
        return None

    def _advance_to(self, version: str) -> None:
        self._pending = True
        if version and len(version) <= LONGEST_VERSION:
            self._version = version


def _newest(events: Sequence[ApiEvent]) -> str:
    """Return the version of the last event that has one."""
    return next((version for event in reversed(events) if (version := event.pod.metadata.resource_version)), "")


def _split(lines: Lines) -> Iterable[bytes]:
    return filter(bytes.strip, bytes(lines).split(b"\n"))


def _object(line: bytes) -> msgspec.Raw:
    """Return the pod's JSON of a line that is an event."""
    return _RAW_LINE.decode(line).object


def _bookmark(raw: msgspec.Raw) -> _BookmarkMeta | None:
    try:
        return _BOOKMARK.decode(raw).metadata
    except ValueError:
        return None


def _event_error(raw: msgspec.Raw, redacted: Callable[[str], str]) -> ApiError:
    details = status(bytes(raw))
    code = details.get("code")
    return error_from_status(details, code if isinstance(code, int) else 500, None, redacted)
