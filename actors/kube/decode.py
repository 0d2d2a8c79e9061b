"""Bytes to values: list pages, single pods, and the lines of a watch. Pure but for one warning per undecodable pod.

A pod is decoded straight into the typed projection, in about 2 µs. Only when that fails is the input looked at item by
item, so that one bad pod harms no other: it is left out, counted, and logged once per name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from actors.kube.api import PodPage, WatchEvents
from actors.kube.errors import error_from_status
from actors.pods import EventType, Pod, PodEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.errors import ApiError

__all__ = [
    "Complaints",
    "LineSplitter",
    "LineTooLong",
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


class _RawList(msgspec.Struct):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


class _Line(msgspec.Struct):
    type: str
    object: Pod


class _BookmarkMeta(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


class _BookmarkLine(msgspec.Struct):
    object: _Bookmark


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
_RAW_LIST: Final = msgspec.json.Decoder(_RawList)
_LINE: Final = msgspec.json.Decoder(_Line)
_BOOKMARK_LINE: Final = msgspec.json.Decoder(_BookmarkLine)
_RAW_LINE: Final = msgspec.json.Decoder(_RawLine)
_LOOSE: Final = msgspec.json.Decoder(_Loose)

_NOT_A_POD: Final = (msgspec.ValidationError, UnicodeDecodeError)
"""JSON, but not what we expect: a field of another type, or bytes in a string that are no UTF-8."""

_CHANGES: Final[Mapping[str, EventType]] = {"ADDED": "ADDED", "MODIFIED": "MODIFIED", "DELETED": "DELETED"}


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
        return metadata.resource_version if isinstance(metadata.resource_version, str) else ""


def pod(body: bytes) -> Pod:
    """The pod in an answer's body.

    Raises:
        ValueError: it is no JSON, or no pod.
    """
    found = _POD.decode(body)
    if not found.metadata.name:
        raise msgspec.ValidationError("Object has no `name` - at `$.metadata`")
    return found


def pod_page(body: bytes, complaints: Complaints) -> PodPage:
    """The page in a LIST's body, without the items that are no pods.

    Raises:
        ValueError: it is no JSON, or no list.
    """
    try:
        page = _LIST.decode(body)
    except _NOT_A_POD:
        return _page_item_by_item(body, complaints)
    return PodPage(page.items or (), page.metadata.resource_version, page.metadata.continue_token or "")


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
    """Cuts what was read, which may end anywhere, into lines."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes.

        Raises:
            LineTooLong: there is no end of line to be seen.
        """
        head, newline, tail = data.partition(b"\n")
        if not newline:
            self._keep(data)
            return []
        *lines, rest = tail.split(b"\n")
        lines.insert(0, b"".join((*self._pieces, head)))
        self._pieces, self._size = [], 0
        self._keep(rest)
        return lines

    def rest(self) -> list[bytes]:
        """The last line, if the stream ended without an end of line."""
        pieces, self._pieces = self._pieces, []
        return [b"".join(pieces)] if pieces else []

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
        if self._size > LONGEST_LINE:
            raise LineTooLong


@final
class WatchDecoder:
    """Lines of one watch stream to `WatchEvents`. Knows how far the stream has come."""

    def __init__(self, resource_version: str, complaints: Complaints) -> None:
        self._version = resource_version
        self._complaints = complaints
        self._events: list[PodEvent] = []
        self._malformed = 0
        self._initial_events_end = False

    def decode(self, lines: list[bytes]) -> tuple[list[WatchEvents], ApiError | None]:
        """What these lines bring, and the error with which the server ended the stream, if it did.

        That is one `WatchEvents`, or none; what comes after the end of the initial events is one of its own.

        Raises:
            ValueError: a line is no JSON. What the lines before it brought is lost with it: the stream is to
                be resumed from its last version.
        """
        self._events, self._malformed, self._initial_events_end = [], 0, False
        told: list[WatchEvents] = []
        moved, error = False, None
        for line in lines:
            if not line.strip():
                continue
            error = self._take(line)
            if error is not None:
                break
            moved = not self._initial_events_end
            if not moved:
                told.append(self._told())
        if moved:
            told.append(self._told())
        return told, error

    def _told(self) -> WatchEvents:
        events = WatchEvents(tuple(self._events), self._version, self._malformed, self._initial_events_end)
        self._events, self._malformed, self._initial_events_end = [], 0, False
        return events

    def _take(self, line: bytes) -> ApiError | None:
        try:
            found = _LINE.decode(line)
        except _NOT_A_POD as why:
            return self._take_other(line, why)
        if found.type == "ERROR":
            return self._take_other(line, None)
        change = _CHANGES.get(found.type)
        if change is not None:
            self._events.append(PodEvent(change, found.object))
        elif found.type == "BOOKMARK":
            self._initial_events_end = _ends_initial_events(line)
        else:
            self._malformed += 1
            logger.warning("the watch sent an event of a type that is not known: type=%.40r", found.type)
        self._version = found.object.metadata.resource_version or self._version
        return None

    def _take_other(self, line: bytes, why: Exception | None) -> ApiError | None:
        raw = _RAW_LINE.decode(line)
        if raw.type == "ERROR":
            return _event_error(raw.object)
        self._malformed += 1
        if why is not None:
            self._version = self._complaints.about(raw.object, why) or self._version
        return None


def _ends_initial_events(line: bytes) -> bool:
    """Whether a bookmark is the one that ends the initial events. Bookmarks are rare, so it is decoded once more."""
    annotations = _BOOKMARK_LINE.decode(line).object.metadata.annotations or {}
    return annotations.get("k8s.io/initial-events-end") == "true"


def _page_item_by_item(body: bytes, complaints: Complaints) -> PodPage:
    page = _RAW_LIST.decode(body)
    pods: list[Pod] = []
    items = page.items or ()
    for raw in items:
        try:
            pods.append(_POD.decode(raw))
        except ValueError as error:
            complaints.about(raw, error)
    return PodPage(
        tuple(pods), page.metadata.resource_version, page.metadata.continue_token or "", len(items) - len(pods)
    )


def _event_error(raw: msgspec.Raw) -> ApiError:
    details = status(bytes(raw))
    code = details.get("code")
    return error_from_status(details, code if isinstance(code, int) else 500, None)


def _metadata(raw: msgspec.Raw) -> _LooseMeta:
    try:
        return _LOOSE.decode(raw).metadata or _LooseMeta()
    except ValueError:
        return _LooseMeta()
