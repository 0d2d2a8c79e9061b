"""Decodes the bodies of answers: pages of pods, single pods, objects and statuses.

A page is decoded into `Pod`s in one call. Only if that fails are its items decoded one by one, so that one bad pod
harms no other: it is left out, counted, and logged once per name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

import msgspec
from msgspec.structs import force_setattr

from actors.kube.api import ObjectPage, PodPage
from actors.kube.deduplication import PodDeduplicator, PodHeader
from actors.kube.http.bounds import MIB
from actors.pods.api_pod import ApiPod, has_several_containers, made_container
from actors.pods.repair import pod_from
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from actors.pods.pod import Pod


__all__ = [
    "NOT_A_POD",
    "Complaints",
    "MadeContainers",
    "anything",
    "is_allowed",
    "json_items",
    "json_object",
    "object_page",
    "pod",
    "pod_page",
    "status",
    "version_of",
]

logger = get_logger(__name__)

T = TypeVar("T")

MAX_COMPLAINTS: Final = 1000
"""Names of undecodable pods that are remembered as logged: two full pages."""

MAX_DIGITS: Final = 20
"""Longer numbers fit no 64-bit integer."""


LARGE: Final = 8 * MIB
"""Bytes from which a page is checked before it is decoded: more than 500 ordinary pods have."""

DENSEST: Final = 8
"""The fewest bytes per value of a large page. Pods have about 25. `[1,1,…` would take forty times its own size."""

LONGEST_TOKEN: Final = 64 * 1024
"""Characters of a continue token or version, which are sent back in a URL. A real token has a few hundred."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    continue_token: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: tuple[T, ...] | None = None


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


class _PageMeta(msgspec.Struct):
    continue_token: str | None = msgspec.field(default=None, name="continue")


class _ObjectPage(msgspec.Struct):
    metadata: _PageMeta
    items: list[dict[str, Any]] | None = None


class _Versioned(msgspec.Struct):
    metadata: _ListMeta


_POD: Final = msgspec.json.Decoder(ApiPod)
_LIST: Final = msgspec.json.Decoder(_List[ApiPod])
_REVIEW: Final = msgspec.json.Decoder(_Review)
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_OBJECT_PAGE: Final = msgspec.json.Decoder(_ObjectPage)
_OBJECTS: Final = msgspec.json.Decoder(_ObjectList)
_HEADERS: Final = msgspec.json.Decoder(_List[PodHeader])
_RAW_LIST: Final = msgspec.json.Decoder(_List[msgspec.Raw])
_LOOSE: Final = msgspec.json.Decoder(_Loose)

NOT_A_POD: Final = (msgspec.ValidationError, UnicodeDecodeError)
"""Errors for JSON of an unexpected form: a field of another type, or a string that is not UTF-8."""


@final
class Complaints:
    """Remembers which pods with unusable fields were logged: each is logged once, not with each LIST."""

    def __init__(self, redacted: Callable[[str], str] = str) -> None:
        self.redacted = redacted
        """Returns a text of the server without our credential."""
        self._logged: set[str] = set()

    def repaired(self, raw: msgspec.Raw, error: Exception) -> ApiPod | None:
        """Return the usable part of a pod that could not be decoded, None if it must be left out. Log it once."""
        try:
            pod = repaired(raw)
        except (ValueError, RecursionError):
            self._about(raw, "undecodable pod left out: pod=%s error=%s", error)
            return None
        self._about(raw, "pod read without its unusable fields: pod=%s error=%s", error)
        return pod

    def _about(self, raw: msgspec.Raw, text: str, error: Exception) -> None:
        found = _metadata(raw).name
        name = found if isinstance(found, str) else "?"
        if name not in self._logged:
            if len(self._logged) >= MAX_COMPLAINTS:
                self._logged.clear()
            self._logged.add(name)
            logger.warning(text, self.redacted(name), self.redacted(str(error)))


def repaired(body: bytes | msgspec.Raw) -> ApiPod:
    """Decode a pod with unusable fields, see `pod_from`.

    Raises:
        ValueError: the body is not JSON, or not a pod.
    """
    return pod_from(_loaded(body))


def plain(body: bytes | msgspec.Raw) -> object:
    """Decode JSON as it is, None if it is none."""
    try:
        return _loaded(body)
    except (ValueError, RecursionError):
        return None


def _loaded(body: bytes | msgspec.Raw) -> Any:
    return json.loads(bytes(body).decode("utf-8", "replace"), parse_int=_number)


@final
class MadeContainers:
    """Finds the fleet's container in the JSON of decoded pods: their JSON is looked for only if it is needed."""

    __slots__ = ("_by_pod", "_sources")

    def __init__(self, sources: Callable[[], Iterable[tuple[ApiPod, msgspec.Raw]]]) -> None:
        """`sources` returns the pods, each with its JSON."""
        self._sources = sources
        self._by_pod: Mapping[int, msgspec.Raw] | None = None

    def __call__(self, pod: ApiPod) -> str | None:
        """Return the name of the container that the fleet made, see `made_container`."""
        if self._by_pod is None:
            self._by_pod = {id(one): raw for one, raw in self._sources()}
        return made_container(plain(self._by_pod[id(pod)]))


def _number(digits: str) -> float:
    """Python refuses to read an `int` of thousands of digits; for our fields a `float` is as much too large."""
    return int(digits) if len(digits) < MAX_DIGITS else float(digits)


def pod(body: bytes) -> Pod:
    """Decode a pod.

    Raises:
        ValueError: the body is not JSON, or not a pod.
    """
    try:
        found = _POD.decode(body)
    except NOT_A_POD:
        found = repaired(body)
    if has_several_containers(found):
        force_setattr(found, "made_container", made_container(plain(body)))
    if not found.metadata.name:
        raise msgspec.ValidationError("Object has no `name` - at `$.metadata`")
    return found.pod()


def pod_page(body: bytes, complaints: Complaints, deduplicator: PodDeduplicator) -> PodPage:
    """Decode a page of a LIST of pods, without the items that are not pods.

    Raises:
        ValueError: the body is not JSON, or not a list.
    """
    if len(body) > LARGE and body.count(b",") * DENSEST > len(body):
        raise msgspec.ValidationError("it is no list of pods: its values are too short")
    return _known_page(body, complaints, deduplicator) or _new_page(body, complaints, deduplicator)


def anything(body: bytes) -> None:
    """Check that an answer whose content does not matter comes from the API, not from a gateway.

    Raises:
        ValueError: the body, which may be cut, does not begin as a JSON object.
    """
    if not body.lstrip().startswith(b"{"):
        raise ValueError("it is no JSON object")


def is_allowed(body: bytes) -> bool:
    """Decode whether an access review allows the request.

    Raises:
        ValueError: the body is not JSON, or not a review.
    """
    return _REVIEW.decode(body).status.allowed


def json_object(body: bytes) -> Mapping[str, Any]:
    """Decode an object of any kind.

    Raises:
        ValueError: the body is not JSON, or not an object with a version.
    """
    _VERSIONED.decode(body)
    return _OBJECT.decode(body)


def json_items(body: bytes) -> Sequence[Mapping[str, Any]]:
    """Decode the items of a LIST of any kind.

    Raises:
        ValueError: the body is not JSON, or not a list.
    """
    return _OBJECTS.decode(body).items or ()


def object_page(body: bytes) -> ObjectPage:
    """Decode a page of a LIST of any kind.

    Raises:
        ValueError: the body is not JSON, or not a list.
    """
    page = _OBJECT_PAGE.decode(body)
    token = page.metadata.continue_token or ""
    if len(token) > LONGEST_TOKEN:
        raise msgspec.ValidationError(f"its continue token has more than {LONGEST_TOKEN} characters")
    return ObjectPage(page.items or (), token)


def status(body: bytes) -> Mapping[str, Any]:
    """Decode a `v1.Status`; return an empty mapping if the body is none, as when a proxy answered."""
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}


def _known_page(body: bytes, complaints: Complaints, deduplicator: PodDeduplicator) -> PodPage | None:
    """Decode a page whose pods are mostly known and unchanged, as those of a poll; return None for another page.

    Only its other pods are decoded as a whole, which takes four times as long; all are if most have changed.
    """
    if not deduplicator.knows_pods:
        return None
    try:
        page = _HEADERS.decode(body)
    except NOT_A_POD:
        return None
    headers = page.items or ()
    pods = deduplicator.unchanged(headers)
    changed = [at for at, pod in enumerate(pods) if pod is None]
    if 2 * len(changed) > len(pods):
        return None
    if changed:
        items = _RAW_LIST.decode(body).items or ()
        decoded = {at: one for at in changed if (one := _one_pod(items[at], complaints)) is not None}
        made_of = MadeContainers(lambda: [(one, items[at]) for at, one in decoded.items()])
        listed = deduplicator.listed(decoded.values(), page.metadata.resource_version, made_of)
        for at, found in zip(decoded, listed.pods, strict=True):
            pods[at] = found
    versions = [header.metadata.resource_version for header, pod in zip(headers, pods, strict=True) if pod is not None]
    kept = [pod for pod in pods if pod is not None]
    return _page(page.metadata, kept, versions, malformed=len(pods) - len(kept))


def _new_page(body: bytes, complaints: Complaints, deduplicator: PodDeduplicator) -> PodPage:
    page: _List[ApiPod] | _List[msgspec.Raw]
    try:
        page = _LIST.decode(body)
        pods: Sequence[ApiPod] = page.items or ()
        made_of = MadeContainers(lambda: zip(pods, _RAW_LIST.decode(body).items or (), strict=True))
    except NOT_A_POD:
        page = _RAW_LIST.decode(body)
        usable = [(pod, raw) for raw in page.items or () if (pod := _one_pod(raw, complaints)) is not None]
        pods = [pod for pod, _ in usable]
        made_of = MadeContainers(lambda: usable)
    kept = deduplicator.listed(pods, page.metadata.resource_version, made_of)
    return _page(page.metadata, kept.pods, kept.versions, malformed=len(page.items or ()) - len(pods))


def _page(metadata: _ListMeta, pods: Sequence[Pod], versions: Sequence[str], *, malformed: int) -> PodPage:
    if len(metadata.continue_token or "") > LONGEST_TOKEN or len(metadata.resource_version) > LONGEST_TOKEN:
        raise msgspec.ValidationError(f"its continue token or version has more than {LONGEST_TOKEN} characters")
    return PodPage(tuple(pods), metadata.resource_version, metadata.continue_token or "", malformed, versions)


def _one_pod(raw: msgspec.Raw, complaints: Complaints) -> ApiPod | None:
    """Decode an item of a page, or what can be used of it; return None if it must be left out."""
    try:
        return _POD.decode(raw)
    except ValueError as error:
        return complaints.repaired(raw, error)


def version_of(raw: msgspec.Raw) -> str:
    """Return the resourceVersion of any object; empty if it has none."""
    version = _metadata(raw).resource_version
    return version if isinstance(version, str) else ""


def _metadata(raw: msgspec.Raw) -> _LooseMeta:
    try:
        return _LOOSE.decode(raw).metadata or _LooseMeta()
    except ValueError:
        return _LooseMeta()
