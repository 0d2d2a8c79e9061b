"""The three ways to PATCH: JSON patch (RFC 6902), merge patch (RFC 7386), strategic merge patch (Kubernetes).

Pure: each takes a document and a patch and returns a new document, sharing what did not change. A patch that cannot be
applied raises the status that a real server answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from actors.local.schema import copy_json, json_type
from actors.local.statuses import ApiStatus, bad_request, internal_error

__all__ = ["PatchType", "apply_patch", "json_patch", "merge_patch", "strategic_merge_patch"]

PatchType: TypeAlias = Literal["json", "merge", "strategic"]

_MERGE_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "addresses": "type",
        "conditions": "type",
        "containers": "name",
        "env": "name",
        "ephemeralContainers": "name",
        "hostAliases": "ip",
        "imagePullSecrets": "name",
        "initContainers": "name",
        "ownerReferences": "uid",
        "podIPs": "ip",
        "ports": "containerPort",
        "resourceClaims": "name",
        "schedulingGates": "name",
        "secrets": "name",
        "topologySpreadConstraints": "topologyKey",
        "volumeDevices": "devicePath",
        "volumeMounts": "mountPath",
        "volumes": "name",
    }
)
"""`patchMergeKey` of the lists that merge by item, from the Go types; every other list is replaced as a whole."""

_MERGED_SETS: Final = frozenset({"finalizers"})
"""Lists of strings with `patchStrategy: merge`: what the patch names is added."""

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_MAX_OPERATIONS: Final = 10_000
"""A real server's limit for one JSON patch."""


def apply_patch(document: Mapping[str, Any], patch: Any, patch_type: PatchType) -> Any:
    """The document as the patch makes it."""
    match patch_type:
        case "json":
            return json_patch(document, patch)
        case "merge":
            return merge_patch(document, _as_map(patch))
        case "strategic":
            return strategic_merge_patch(document, _as_map(patch))


def _as_map(patch: Any) -> Mapping[str, Any]:
    if not isinstance(patch, Mapping):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(patch)} into Go value of type "
            "map[string]interface {}"
        )
    return patch


# ── Merge patch ──────────────────────────────────────────────────────────────────────────────────────────────────


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7386: maps merge, `null` removes, all else replaces."""
    if not isinstance(patch, Mapping):
        return copy_json(patch)
    merged = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# ── JSON patch ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Inapplicable(Exception):  # noqa: N818 - private, and it says what the patch is
    """An operation does not fit the document."""


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902: all operations in order, or none and 422."""
    if not isinstance(operations, list):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(operations)} into Go value of type "
            "[]handlers.jsonPatchOp"
        )
    if len(operations) > _MAX_OPERATIONS:
        raise ApiStatus(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(operations)}",
        )
    patched = copy_json(document)
    try:
        for operation in operations:
            patched = _operate(patched, operation)
    except _Inapplicable:
        raise ApiStatus(
            422, "Invalid", "the server rejected our request due to an error in our request", details={}
        ) from None
    return patched


def _operate(document: Any, operation: Any) -> Any:
    match operation:
        case {"op": "add", "path": str(path), "value": value}:
            return _add(document, _steps(path), copy_json(value))
        case {"op": "remove", "path": str(path)}:
            return _remove(document, _steps(path))[0]
        case {"op": "replace", "path": str(path), "value": value}:
            return _replace(document, _steps(path), copy_json(value))
        case {"op": "move", "from": str(source), "path": str(path)}:
            if path.startswith(f"{source}/"):
                raise _Inapplicable
            document, moved = _remove(document, _steps(source))
            return _add(document, _steps(path), moved)
        case {"op": "copy", "from": str(source), "path": str(path)}:
            return _add(document, _steps(path), copy_json(_find(document, _steps(source))))
        case {"op": "test", "path": str(path), "value": value}:
            if not _same(_find(document, _steps(path)), value):
                raise _Inapplicable
            return document
        case _:
            raise _Inapplicable


def _steps(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise _Inapplicable
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _find(document: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        match document:
            case dict() if step in document:
                document = document[step]
            case list():
                document = document[_index(step, len(document) - 1)]
            case _:
                raise _Inapplicable
    return document


def _index(step: str, last: int) -> int:
    if not (step.isascii() and step.isdecimal()) or (len(step) > 1 and step[0] == "0") or int(step) > last:
        raise _Inapplicable
    return int(step)


def _add(document: Any, steps: Sequence[str], value: Any) -> Any:
    if not steps:
        return value
    match _find(document, steps[:-1]):
        case dict() as parent:
            parent[steps[-1]] = value
        case list() as parent:
            parent.insert(len(parent) if steps[-1] == "-" else _index(steps[-1], len(parent)), value)
        case _:
            raise _Inapplicable
    return document


def _remove(document: Any, steps: Sequence[str]) -> tuple[Any, Any]:
    if not steps:
        raise _Inapplicable
    match _find(document, steps[:-1]):
        case dict() as parent if steps[-1] in parent:
            return document, parent.pop(steps[-1])
        case list() as parent:
            return document, parent.pop(_index(steps[-1], len(parent) - 1))
        case _:
            raise _Inapplicable


def _replace(document: Any, steps: Sequence[str], value: Any) -> Any:
    if not steps:
        return value
    _find(document, steps)
    match _find(document, steps[:-1]):
        case list() as parent:
            parent[_index(steps[-1], len(parent) - 1)] = value
        case parent:
            parent[steps[-1]] = value
    return document


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: unlike in Python, `true` is not 1."""
    match left, right:
        case (dict(), dict()):
            return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
        case (list(), list()):
            return len(left) == len(right) and all(map(_same, left, right))
        case _:
            return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


# ── Strategic merge patch ────────────────────────────────────────────────────────────────────────────────────────


def strategic_merge_patch(document: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Kubernetes' own: like a merge patch, but lists with a merge key merge item by item. Knows the `$` directives."""
    match patch.get(_DIRECTIVE):
        case None | "merge":
            return _merge_map(document if isinstance(document, Mapping) else {}, patch)
        case "replace":
            return {key: copy_json(value) for key, value in patch.items() if key != _DIRECTIVE}
        case "delete":
            return {}
        case other:
            raise internal_error(f"unknown patch type: {other} in map: {_go_map(patch)}")


def _merge_map(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(document)
    retained = patch.get(_RETAIN)
    if isinstance(retained, list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            _delete_from_set(merged, key.removeprefix(_DELETE_FROM), value)
        elif key in (_DIRECTIVE, _RETAIN) or key.startswith(_ORDER):
            continue
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_field(key, merged.get(key), value)
    for key, value in patch.items():
        if key.startswith(_ORDER) and isinstance(value, list):
            _reorder(merged, document, key.removeprefix(_ORDER), value)
    return merged


def _merge_field(key: str, current: Any, value: Any) -> Any:
    match value:
        case Mapping():
            return strategic_merge_patch(current, value)
        case list() if key in _MERGE_KEYS and all(isinstance(item, Mapping) for item in value):
            return _merge_list(_MERGE_KEYS[key], current if isinstance(current, list) else [], value)
        case list() if key in _MERGED_SETS and isinstance(current, list):
            return [*value, *(item for item in current if item not in value)]
        case _:
            return copy_json(value)


def _merge_list(merge_key: str, current: Sequence[Any], items: Sequence[Mapping[str, Any]]) -> list[Any]:
    if any(item.get(_DIRECTIVE) == "replace" and merge_key not in item for item in items):
        return [copy_json(item) for item in items if _DIRECTIVE not in item]
    merged = {_key_of(old, merge_key): old for old in current}
    for item in items:
        if merge_key not in item:
            raise internal_error(f"map: {_go_map(item)} does not contain declared merge key: {merge_key}")
        key = _key_of(item, merge_key)
        if item.get(_DIRECTIVE) == "delete":
            merged.pop(key, None)
        else:
            merged[key] = strategic_merge_patch(merged.get(key, {}), item)
    before = [_key_of(old, merge_key) for old in current]
    return [merged[key] for key in _interleaved(list(merged), [_key_of(item, merge_key) for item in items], before)]


def _interleaved(keys: Sequence[Any], wanted: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    """All `keys`: those that are `wanted` in that order, the others as they were `before`, where the two orders allow.

    This is `mergeSortedSlice` of apimachinery; with it, what a patch adds comes first.
    """
    first = [key for key in wanted if key in keys]
    others = [key for key in keys if key not in first]
    result: list[Any] = []
    for key in first:
        while others and key in before and others[0] in before and before.index(others[0]) < before.index(key):
            result.append(others.pop(0))
        result.append(key)
    return result + others


def _key_of(item: Any, merge_key: str) -> Any:
    """What tells one item from another; a key that is no scalar is nonsense, and for validation to refuse."""
    value = item.get(merge_key) if isinstance(item, Mapping) else None
    return str(value) if isinstance(value, dict | list) else value


def _delete_from_set(merged: dict[str, Any], key: str, values: Any) -> None:
    current = merged.get(key)
    if isinstance(current, list) and isinstance(values, list):
        merged[key] = [item for item in current if item not in values]


def _reorder(merged: dict[str, Any], document: Mapping[str, Any], key: str, order: Sequence[Any]) -> None:
    """Put a merged list into the order that a `$setElementOrder` directive wants."""
    current, merge_key = merged.get(key), _MERGE_KEYS.get(key)
    if not isinstance(current, list):
        return
    if merge_key is None:
        merged[key] = _interleaved(current, order, document.get(key) or [])
        return
    items = {_key_of(item, merge_key): item for item in current}
    before = [_key_of(item, merge_key) for item in document.get(key) or []]
    merged[key] = [items[each] for each in _interleaved(list(items), [_key_of(o, merge_key) for o in order], before)]


def _go_map(value: Mapping[str, Any]) -> str:
    return f"map[{' '.join(f'{key}:{item}' for key, item in sorted(value.items()))}]"
