"""Decode the few protobuf messages that kubectl sends without asking first whether the server takes them. Pure.

kubectl encodes what it builds itself (`kubectl auth can-i`, `kubectl create configmap`) and sends files as JSON. The
answer is JSON in any case: kubectl accepts both. Field numbers are those of `generated.proto` in `k8s.io/api`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from actors.local.schema.statuses import bad_request

__all__ = ["MEDIA_TYPE", "decode_message"]

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\0"
_MAX_VARINT: Final = 10
"""Bytes of a 64-bit number."""

_Scalar: TypeAlias = Literal["text", "bytes", "bool"]


@dataclass(frozen=True, slots=True)
class _MapTo:
    """A map from text."""

    value: _Scalar


_Type: TypeAlias = "_Scalar | _MapTo | _Message"
_Message: TypeAlias = Mapping[int, tuple[str, "_Type"]]


def _texts(*names: str) -> _Message:
    """Return a message whose fields, from 1 on, are texts."""
    return {number: (name, "text") for number, name in enumerate(names, 1)}


_META: Final[_Message] = {
    **_texts("name", "generateName", "namespace"),
    11: ("labels", _MapTo("text")),
    12: ("annotations", _MapTo("text")),
}
_ATTRIBUTES: Final = _texts("namespace", "verb", "group", "version", "resource", "subresource", "name")
_REVIEW_SPEC: Final[_Message] = {
    1: ("resourceAttributes", _ATTRIBUTES),
    2: ("nonResourceAttributes", _texts("path", "verb")),
}
_KINDS: Final[Mapping[tuple[str, str], _Message]] = {
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {1: ("metadata", _META), 2: ("spec", _REVIEW_SPEC)},
    ("v1", "Namespace"): {1: ("metadata", _META)},
    ("v1", "ServiceAccount"): {1: ("metadata", _META)},
    ("v1", "ConfigMap"): {
        1: ("metadata", _META),
        2: ("data", _MapTo("text")),
        3: ("binaryData", _MapTo("bytes")),
        4: ("immutable", "bool"),
    },
    ("v1", "Secret"): {
        1: ("metadata", _META),
        2: ("data", _MapTo("bytes")),
        3: ("type", "text"),
        4: ("stringData", _MapTo("text")),
        5: ("immutable", "bool"),
    },
}
_UNKNOWN: Final[_Message] = {1: ("type", _texts("apiVersion", "kind")), 2: ("raw", "bytes")}
"""`runtime.Unknown`, the envelope of every message."""


def decode_message(body: bytes) -> dict[str, Any] | None:
    """Return the object as JSON would have it, None for a kind that is not decoded; 400 if the body is malformed."""
    try:
        envelope = _message(_without_magic(body), _UNKNOWN)
        named = envelope.get("type", {})
        kind = (named.get("apiVersion", ""), named.get("kind", ""))
        if kind not in _KINDS:
            return None
        obj = _message(base64.b64decode(envelope.get("raw", "")), _KINDS[kind])
    except ValueError as problem:
        raise bad_request(f"the object provided is unrecognized (must be valid protobuf): {problem}") from None
    return {"apiVersion": kind[0], "kind": kind[1], **obj}


def _without_magic(body: bytes) -> bytes:
    if not body.startswith(_MAGIC):
        raise ValueError("no magic number")
    return body[len(_MAGIC) :]


def _message(data: bytes, fields: _Message) -> dict[str, Any]:
    """Return the fields of a message that are known and not empty; an empty message counts."""
    decoded: dict[str, Any] = {}
    for number, value in _fields(data):
        name, shape = fields.get(number, ("", None))
        if shape is None:
            continue
        if isinstance(shape, _MapTo):
            item = _message(_bytes(value), {1: ("key", "text"), 2: ("value", shape.value)})
            decoded.setdefault(name, {})[item.get("key", "")] = item.get("value", "")
        elif isinstance(shape, Mapping):
            decoded[name] = _message(_bytes(value), shape)
        elif scalar := _scalar(value, shape):
            decoded[name] = scalar
    return decoded


def _scalar(value: int | bytes, shape: _Scalar) -> str | bool:
    match shape:
        case "bool":
            return bool(value)
        case "text":
            return _bytes(value).decode()
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message or a text belongs")  # noqa: TRY004 - of the sender, not of the caller
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return number and value of each field; fixed-width numbers are skipped, as no known field is one."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire, length = tag & 7, 0
        if wire == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in {1, 5}:
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + length > len(data):
            raise ValueError("it ends within a field")
        if wire == 2:
            yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at this place, and the place behind it."""
    number = 0
    for index, byte in enumerate(data[at : at + _MAX_VARINT]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, at + index + 1
    raise ValueError("it ends within a number")
