"""Check an object against the fields of its kind (`shapes` lists them).

A real server drops unknown fields, with a warning or, when asked to be strict, with a refusal. It answers 400 to a
value of the wrong type. `decode` does both in the one pass that copies the object, so that later code can rely on the
types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from actors.kube.strategic_merge import copy_json
from actors.local.schema.shapes import DELETE_OPTIONS, KINDS, Leaf, ListOf, MapOf, Struct, Type, WrongType
from actors.local.schema.statuses import bad_request, undecodable

if TYPE_CHECKING:
    from actors.local.schema.resources import Resource

__all__ = ["copy_json", "decode", "decode_as", "decode_delete_options", "json_type"]


def decode(resource: Resource, obj: Any, warnings: list[str]) -> dict[str, Any]:
    """Return a copy of `obj` without nulls and unknown fields; add a warning for each unknown field.

    Raises 400 for a value of the wrong type, and for an object of another kind or version.
    """
    return decode_as(KINDS[resource.kind], (resource.api_version,), obj, warnings)


def decode_as(shape: Struct, versions: tuple[str, ...], obj: Any, warnings: list[str]) -> dict[str, Any]:
    """Do the same for an object that is no resource, such as an Eviction, which has several API versions."""
    expected = shape.kind
    if not isinstance(obj, Mapping):
        raise bad_request(f"the object provided is unrecognized (must be of type {expected}): {_no_object(obj)}")
    kind, group_version = obj.get("kind") or expected, obj.get("apiVersion") or versions[0]
    version = str(group_version).rpartition("/")[2]
    other_kind = kind != expected
    if other_kind or group_version not in versions:
        internal = versions[0].partition("/")[0].partition(".")[0].replace("v1", "core")
        raise undecodable(
            kind,
            version,
            expected,
            f"converting (v1.{kind}) to ({internal}.{expected}): unknown conversion"
            if other_kind
            else f'no kind "{kind}" is registered for version "{group_version}"',
        )
    try:
        decoded = _Decoder(warnings).value(obj, shape, "", "", expected)
    except WrongType as problem:
        raise undecodable(kind, version, expected, str(problem)) from None
    decoded.pop("kind", None)
    decoded.pop("apiVersion", None)
    metadata = decoded.get("metadata", {})
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)
    decoded["metadata"] = {key: value for key, value in metadata.items() if value not in ("", {}, [])}
    assert isinstance(decoded, dict)
    return decoded


def decode_delete_options(obj: Any) -> dict[str, Any]:
    """Check `DeleteOptions`. A real server decodes them separately and answers mistakes with a text of the decoder."""
    if not isinstance(obj, Mapping):
        raise bad_request(_no_object(obj))
    kind, version = obj.get("kind") or "DeleteOptions", obj.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise bad_request(f'no kind "{kind}" is registered for version "{version}"')
    try:
        decoded = _Decoder([]).value(obj, DELETE_OPTIONS, "", "", "DeleteOptions")
    except WrongType as problem:
        raise bad_request(str(problem)) from None
    assert isinstance(decoded, dict)
    return decoded


def _no_object(value: Any) -> str:
    """Return the text of Go's decoder for a document without a kind."""
    problem = (
        "unexpected end of JSON input (<empty>)"
        if value is None
        else f"json: cannot unmarshal {json_type(value)} into Go value of type struct"
    )
    return f"couldn't get version/kind; json parse error: {problem}"


class _Decoder:
    """Copies values into their shape. `path` has list indices, for warnings; `plain` has none, as Go spells a field."""

    def __init__(self, warnings: list[str]) -> None:
        self._warnings = warnings

    def value(self, value: Any, shape: Type, path: str, plain: str, owner: str) -> Any:
        match shape:
            case Leaf() if shape.takes(value):
                return shape.keep(value)
            case Struct() if isinstance(value, Mapping):
                return self._struct(value, shape, path, plain)
            case ListOf() if isinstance(value, list | tuple):
                return self._list(value, shape, path, plain, owner)
            case MapOf() if isinstance(value, Mapping):
                return self._map(value, shape, path, plain, owner)
            case _:
                pass
        raise WrongType(
            f"json: cannot unmarshal {json_type(value)} into Go struct field {owner}.{plain} of type {shape.name}"
        )

    def _list(self, items: Sequence[Any], shape: ListOf, path: str, plain: str, owner: str) -> list[Any]:
        return [
            self.value(item, shape.item, f"{path}[{index}]", plain, owner)
            for index, item in enumerate(items)
            if item is not None
        ]

    def _map(self, items: Mapping[str, Any], shape: MapOf, path: str, plain: str, owner: str) -> dict[str, Any]:
        return {
            str(key): self.value(item, shape.item, f"{path}.{key}", plain, owner)
            for key, item in items.items()
            if item is not None
        }

    def _struct(self, value: Mapping[str, Any], shape: Struct, path: str, plain: str) -> dict[str, Any]:
        decoded: dict[str, Any] = {}
        for key, item in value.items():
            inner = f"{path}.{key}" if path else key
            field = shape.fields.get(key)
            if field is None:
                self._warnings.append(f'unknown field "{inner}"')
            elif item is not None:
                decoded[key] = self.value(item, field, inner, f"{plain}.{key}" if plain else key, shape.kind)
        return decoded


def json_type(value: Any) -> str:
    """Return the name that Go's decoder has for the type of a JSON value."""
    match value:
        case str():
            return "string"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case list() | tuple():
            return "array"
        case None:
            return "null"
        case _:
            return "object"
