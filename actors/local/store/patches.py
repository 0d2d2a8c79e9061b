"""The three kinds of PATCH: JSON patch (RFC 6902), merge patch (RFC 7386), strategic merge patch (Kubernetes).

Pure: each takes a document and a patch and returns a new document that shares the unchanged values. A patch that does
not apply raises the status of a real server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from actors.kube.strategic_merge import UnmergeableError, strategic_merge
from actors.local.schema.decode import copy_json, json_type
from actors.local.schema.nesting import is_too_deep
from actors.local.schema.statuses import ApiStatus, bad_request, internal_error

__all__ = ["PatchType", "apply_patch", "json_patch", "merge_patch", "strategic_merge_patch"]

PatchType: TypeAlias = Literal["json", "merge", "strategic"]

_MAX_OPERATIONS: Final = 10_000
"""A real server's limit for one JSON patch."""

_MAX_COPIED: Final = 3 * 1024 * 1024
"""Bytes, as JSON, that the `copy` operations of one JSON patch may add: a real server's `AccumulatedCopySizeLimit`.
Each copy can double the document, so thirty of them would fill the memory."""


def apply_patch(document: Mapping[str, Any], patch: Any, patch_type: PatchType) -> Any:
    """Return the patched document."""
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
    """RFC 7386: maps merge, `null` removes, any other value replaces."""
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


class _Inapplicable(Exception):  # noqa: N818 - reads as what the patch is
    """An operation does not fit the document."""


def json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902: apply all operations in order, or raise 422."""
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
    patched, left = copy_json(document), _MAX_COPIED
    try:
        for operation in operations:
            left -= _copied(patched, operation, left)
            patched = _operate(patched, operation)
        _check_depth(patched)
    except _Inapplicable:
        raise ApiStatus(
            422, "Invalid", "the server rejected our request due to an error in our request", details={}
        ) from None
    return patched


def _copied(document: Any, operation: Any, most: int) -> int:
    """Return how many bytes an operation adds by copying."""
    match operation:
        case {"op": "copy", "from": str(source)}:
            source_found = _find(document, _steps(source))
            _check_depth(source_found)
            if (size := len(msgspec.json.encode(source_found))) > most:
                raise _Inapplicable
            return size
        case _:
            return 0


def _check_depth(document: Any) -> None:
    if is_too_deep(document):
        raise _Inapplicable


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
    """Compare as JSON: unlike in Python, `true` is not 1."""
    match left, right:
        case (dict(), dict()):
            return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
        case (list(), list()):
            return len(left) == len(right) and all(map(_same, left, right))
        case _:
            return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


# ── Strategic merge patch ────────────────────────────────────────────────────────────────────────────────────────


def strategic_merge_patch(document: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a strategic merge patch, with its `$` directives: lists that have a merge key merge item by item."""
    try:
        return strategic_merge(document, patch)
    except UnmergeableError as error:
        raise internal_error(str(error)) from None
