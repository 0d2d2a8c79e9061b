"""Bytes to values: list pages, single pods, and the lines of a watch. Pure but for one warning per undecodable pod.

Pods are decoded straight into the typed projection: a page of a list, or all lines of a read, in one call. Only when
that fails is the input looked at item by item, so that one bad pod harms no other: it is left out, counted, and logged
once per name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from actors.kube.api import PodPage, WatchEvents
from actors.kube.deduplication import Connection, Kept, PodDeduplicator, PodHeader
from actors.kube.status import error_from_status
from actors.pods.pod import Pod, PodEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.errors import ApiError

__all__ = [
    "Complaints",
    "LineSplitter",
    "LineTooLong",
    "PodDeduplicator",
    "WatchDecoder",
    "anything",
    "is_allowed",
    "json_items",
    "json_object",
    "pod",
    "pod_page",
    "status",
]

logger = logging.getLogger(__name__)

LONGEST_LINE: Final = 16 * 1024 * 1024
"""Bytes of one watch event: etcd takes objects of 1.5 MiB by default, an API server requests of 3 MiB."""

MOST_COMPLAINTS: Final = 1000
"""Names of undecodable pods that are remembered as told: a full page of them twice over."""


class LineTooLong(Exception):  # noqa: N818 - private to this package, says what it is
    """A watch sent `LONGEST_LINE` bytes without an end of line: it is no watch."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    continue_token: str | None = msgspec.field(default=None, name="continue")


class _PodList(msgspec.Struct):
    metadata: _ListMeta
    items: tuple[Pod, ...] | None = None


class _GlanceList(msgspec.Struct):
    metadata: _ListMeta
    items: tuple[PodHeader, ...] | None = None


class _RawList(msgspec.Struct):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


class _RawLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _LooseMeta(msgspec.Struct, rename="camel"):
    name: Any = None
    resource_version: Any = None


class _Loose(msgspec.Struct):
    metadata: _LooseMeta | None = None


class _Decision(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _Decision


class _ObjectList(msgspec.Struct):
    items: list[dict[str, Any]] | None = None


class _VersionedMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Versioned(msgspec.Struct):
    metadata: _VersionedMeta


class _Anything(msgspec.Struct):
    """Every field is skipped."""


_ANYTHING: Final = msgspec.json.Decoder(_Anything)
_POD: Final = msgspec.json.Decoder(Pod)
_LIST: Final = msgspec.json.Decoder(_PodList)
_REVIEW: Final = msgspec.json.Decoder(_Review)
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_OBJECTS: Final = msgspec.json.Decoder(_ObjectList)
_GLANCES: Final = msgspec.json.Decoder(_GlanceList)
_RAW_LIST: Final = msgspec.json.Decoder(_RawList)
_EVENT: Final = msgspec.json.Decoder(PodEvent)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)
_RAW_LINE: Final = msgspec.json.Decoder(_RawLine)
_LOOSE: Final = msgspec.json.Decoder(_Loose)

_NOT_A_POD: Final = (msgspec.ValidationError, UnicodeDecodeError)
"""JSON, but not what we expect: a field of another type, or bytes in a string that are no UTF-8."""

_KNOWN_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


@final
class Complaints:
    """Remembers which undecodable pods were logged, so that a pod that stays is one line and not one each round."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def about(self, raw: msgspec.Raw, error: Exception) -> str:
        """Log this pod, unless that was done; its resourceVersion, or an empty string if that is bad too."""
        metadata = _metadata(raw)
        name = metadata.name if isinstance(metadata.name, str) else "?"
        if name not in self._told:
            if len(self._told) >= MOST_COMPLAINTS:
                self._told.clear()
            self._told.add(name)
            logger.warning("a pod cannot be decoded, it is left out: pod=%s error=%s", name, error)
        return _version(metadata)


def pod(body: bytes) -> Pod:
    """The pod in an answer's body.

    Raises:
        ValueError: it is no JSON, or no pod.
    """
    found = _POD.decode(body)
    if not found.metadata.name:
        raise msgspec.ValidationError("Object has no `name` - at `$.metadata`")
    return found


def pod_page(body: bytes, complaints: Complaints, sharing: PodDeduplicator) -> PodPage:
    """The page in a LIST's body, without the items that are no pods.

    Raises:
        ValueError: it is no JSON, or no list.
    """
    return _unchanged_page(body, sharing) or _new_page(body, complaints, sharing)


def anything(body: bytes) -> None:
    """See that an answer whose content does not matter is one of the API's, and not some gateway's page.

    Raises:
        ValueError: it is no JSON object.
    """
    _ANYTHING.decode(body)


def is_allowed(body: bytes) -> bool:
    """What a review of a right says.

    Raises:
        ValueError: it is no JSON, or no review.
    """
    return _REVIEW.decode(body).status.allowed


def json_object(body: bytes) -> Mapping[str, Any]:
    """An object of any kind, as a server keeps it: it has a version.

    Raises:
        ValueError: it is no JSON, or none such.
    """
    _VERSIONED.decode(body)
    return _OBJECT.decode(body)


def json_items(body: bytes) -> Sequence[Mapping[str, Any]]:
    """The objects of a LIST of any kind.

    Raises:
        ValueError: it is no JSON, or no list.
    """
    return _OBJECTS.decode(body).items or ()


def status(body: bytes) -> Mapping[str, Any]:
    """The `v1.Status` in an answer's body; empty if there is none, as when a proxy answered."""
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}


@final
class LineSplitter:
    """Cuts what was read, which may end anywhere, behind the last line that is whole."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """The lines that `data` completes, if any, with their ends.

        Raises:
            LineTooLong: there is no end of line to be seen.
        """
        end = data.rfind(b"\n") + 1
        if not end:
            self._keep(data)
            return b""
        lines = b"".join((*self._pieces, memoryview(data)[:end]))
        self._pieces, self._size = [], 0
        self._keep(data[end:])
        return lines

    def rest(self) -> bytes:
        """The last line, if the stream ended without an end of line."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
        if self._size > LONGEST_LINE:
            raise LineTooLong


@final
class WatchDecoder:
    """Lines of one watch stream to `WatchEvents`. Knows how far the stream has come."""

    def __init__(self, resource_version: str, complaints: Complaints, sharing: PodDeduplicator) -> None:
        self._version = resource_version
        self._complaints = complaints
        self._sharing = sharing
        self._connection = Connection(resource_version or None)
        self._events: list[PodEvent] = []
        self._malformed = self._unchanged = 0
        self._moved = False
        """A line was taken since something was told."""

    def decode(self, lines: bytes, *, more: bool = False) -> tuple[list[WatchEvents], Exception | None]:
        """What these lines bring, and what ended the stream after that, if something did.

        The first is one `WatchEvents`, or none; what comes after the end of the initial events is one of its own. The
        second is the `ApiError` that the server sent; a `ValueError` or `RecursionError` for a line that is no event.

        If `more` are there already, what these bring may be told with what those do.
        """
        try:
            events = _EVENT.decode_lines(lines)
        except (ValueError, RecursionError):
            return self._one_by_one(lines)
        if events:
            self._go_to(_newest(events))
            self._take_events(events)
        return [self._told()] if self._moved and not more else [], None

    def _one_by_one(self, lines: bytes) -> tuple[list[WatchEvents], Exception | None]:
        """The same, for lines that are not all of them changes of pods."""
        told: list[WatchEvents] = []
        error: Exception | None = None
        for line in filter(bytes.strip, lines.split(b"\n")):
            try:
                error = self._take(line, told)
            except (ValueError, RecursionError) as unreadable:
                error = unreadable
            if error is not None:
                break
        if self._moved:
            told.append(self._told())
        return told, error

    def _told(self, *, initial_events_end: bool = False) -> WatchEvents:
        events = WatchEvents(
            tuple(self._events), self._version, self._malformed, initial_events_end, unchanged=self._unchanged
        )
        self._events, self._malformed, self._unchanged, self._moved = [], 0, 0, False
        return events

    def _take_events(self, events: Sequence[PodEvent]) -> None:
        news = self._sharing.watched(events, self._connection)
        self._events += news
        self._unchanged += len(events) - len(news)

    def _take(self, line: bytes, told: list[WatchEvents]) -> ApiError | None:
        """Note what one line brings; the error with which the server ended the stream, if it does."""
        try:
            event = _EVENT.decode(line)
        except _NOT_A_POD as why:
            return self._take_other(_RAW_LINE.decode(line), why, told)
        self._go_to(event.pod.resource_version)
        self._take_events((event,))
        return None

    def _take_other(self, line: _RawLine, why: Exception, told: list[WatchEvents]) -> ApiError | None:
        """A line that is no change of a pod, or none that can be read."""
        if line.type == "ERROR":
            return _event_error(line.object)
        metadata = _bookmark(line.object) if line.type == "BOOKMARK" else None
        if metadata is not None:
            self._go_to(metadata.resource_version)
            if (metadata.annotations or {}).get("k8s.io/initial-events-end") == "true":
                told.append(self._told(initial_events_end=True))
            return None
        self._malformed += 1
        if line.type in _KNOWN_TYPES:
            self._go_to(self._complaints.about(line.object, why))
        else:
            logger.warning("the watch sent an event of a type that is not known: type=%.40r", line.type)
            self._go_to(_version(_metadata(line.object)))
        return None

    def _go_to(self, version: str) -> None:
        self._moved = True
        self._version = version or self._version


def _newest(events: Sequence[PodEvent]) -> str:
    """The version of the last event that has one."""
    return next((version for event in reversed(events) if (version := event.pod.resource_version)), "")


def _bookmark(raw: msgspec.Raw) -> _BookmarkMeta | None:
    try:
        return _BOOKMARK.decode(raw).metadata
    except ValueError:
        return None


def _unchanged_page(body: bytes, sharing: PodDeduplicator) -> PodPage | None:
    """The page, if every pod on it is known as it stands there: most pages of a poll."""
    if not sharing.knows_pods:
        return None
    try:
        page = _GLANCES.decode(body)
    except _NOT_A_POD:
        return None
    kept = sharing.unchanged(page.items or ())
    return None if kept is None else _page(page.metadata, kept, malformed=0)


def _new_page(body: bytes, complaints: Complaints, sharing: PodDeduplicator) -> PodPage:
    page: _PodList | _RawList
    try:
        page = _LIST.decode(body)
        pods: Sequence[Pod] = page.items or ()
    except _NOT_A_POD:
        page = _RAW_LIST.decode(body)
        pods = _pods_one_by_one(page.items or (), complaints)
    kept = sharing.listed(pods, page.metadata.resource_version)
    return _page(page.metadata, kept, malformed=len(page.items or ()) - len(pods))


def _page(metadata: _ListMeta, kept: Kept, *, malformed: int) -> PodPage:
    return PodPage(tuple(kept.pods), metadata.resource_version, metadata.continue_token or "", malformed, kept.moved)


def _pods_one_by_one(items: Sequence[msgspec.Raw], complaints: Complaints) -> list[Pod]:
    pods: list[Pod] = []
    for raw in items:
        try:
            pods.append(_POD.decode(raw))
        except ValueError as error:
            complaints.about(raw, error)
    return pods


def _event_error(raw: msgspec.Raw) -> ApiError:
    details = status(bytes(raw))
    code = details.get("code")
    return error_from_status(details, code if isinstance(code, int) else 500, None)


def _version(metadata: _LooseMeta) -> str:
    return metadata.resource_version if isinstance(metadata.resource_version, str) else ""


def _metadata(raw: msgspec.Raw) -> _LooseMeta:
    try:
        return _LOOSE.decode(raw).metadata or _LooseMeta()
    except ValueError:
        return _LooseMeta()
