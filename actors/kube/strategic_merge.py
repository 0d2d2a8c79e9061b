"""Strategic merge patch (Kubernetes): a merge patch in which lists of named items merge item by item.

`kubectl patch` uses it by default, and so does the patch of a pod template. Pure: returns a new document that shares
the unchanged parts of the old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

__all__ = ["UnmergeableError", "copy_json", "strategic_merge"]

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
"""`patchMergeKey` of the lists that merge by item, from the Go types. Every other list is replaced as a whole."""

_MERGED_SETS: Final = frozenset({"finalizers"})
"""Lists of strings with `patchStrategy: merge`: the patch adds its items."""

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


class UnmergeableError(ValueError):
    """A patch that cannot be applied: an item lacks its list's merge key, or a directive is unknown.

    The message is that of a real server, which repeats values of the patch; `brief` repeats none.
    """

    def __init__(self, message: str, brief: str) -> None:
        super().__init__(message)
        self.brief = brief


def strategic_merge(document: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a patch. Knows the `$` directives.

    Raises:
        UnmergeableError: the patch cannot be applied.
    """
    match patch.get(_DIRECTIVE):
        case None | "merge":
            return _merge_map(document if isinstance(document, Mapping) else {}, patch)
        case "replace":
            return {key: copy_json(value) for key, value in patch.items() if key != _DIRECTIVE}
        case "delete":
            return {}
        case other:
            message = f"unknown patch type: {other} in map: {_go_map(patch)}"
            raise UnmergeableError(message, f"unknown patch type: {str(other)[:40]} in map of: {_keys(patch)}")


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
            return strategic_merge(current, value)
        case list() if key in _MERGE_KEYS and all(isinstance(item, Mapping) for item in value):
            return _merge_list(_merge_key(key, value), current if isinstance(current, list) else [], value)
        case list() if key in _MERGED_SETS and isinstance(current, list):
            return [*value, *(item for item in current if item not in value)]
        case _:
            return copy_json(value)


def _merge_key(key: str, items: Sequence[Mapping[str, Any]]) -> str:
    """Return the merge key of a list. The ports of a Service have another than those of a container."""
    return "port" if key == "ports" and any("port" in item for item in items) else _MERGE_KEYS[key]


def _merge_list(merge_key: str, current: Sequence[Any], items: Sequence[Mapping[str, Any]]) -> list[Any]:
    if any(item.get(_DIRECTIVE) == "replace" and merge_key not in item for item in items):
        return [copy_json(item) for item in items if _DIRECTIVE not in item]
    merged = {_key_of(old, merge_key): old for old in current}
    for item in items:
        if merge_key not in item:
            problem = f"does not contain declared merge key: {merge_key}"
            raise UnmergeableError(f"map: {_go_map(item)} {problem}", f"map of: {_keys(item)} {problem}")
        key = _key_of(item, merge_key)
        if item.get(_DIRECTIVE) == "delete":
            merged.pop(key, None)
        else:
            merged[key] = strategic_merge(merged.get(key, {}), item)
    before = [_key_of(old, merge_key) for old in current]
    return [merged[key] for key in _interleaved(list(merged), [_key_of(item, merge_key) for item in items], before)]


def _keys(item: Mapping[str, Any]) -> str:
    return ", ".join(map(str, item)) or "nothing"


def _interleaved(keys: Sequence[Any], order: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    """Sort `keys`: those in `order` in that order, the others as they were `before`, where the two orders allow.

    This is `mergeSortedSlice` of apimachinery: items that a patch adds come first.
    """
    first = [key for key in order if key in keys]
    others = [key for key in keys if key not in first]
    result: list[Any] = []
    for key in first:
        while others and key in before and others[0] in before and before.index(others[0]) < before.index(key):
            result.append(others.pop(0))
        result.append(key)
    return result + others


def _key_of(item: Any, merge_key: str) -> Any:
    """Return the merge key's value. A value that is no scalar is left to validation."""
    value = item.get(merge_key) if isinstance(item, Mapping) else None
    return str(value) if isinstance(value, dict | list) else value


def _delete_from_set(merged: dict[str, Any], key: str, values: Any) -> None:
    current = merged.get(key)
    if isinstance(current, list) and isinstance(values, list):
        merged[key] = [item for item in current if item not in values]


def _reorder(merged: dict[str, Any], document: Mapping[str, Any], key: str, order: Sequence[Any]) -> None:
    """Sort a merged list as a `$setElementOrder` directive says."""
    current = merged.get(key)
    if not isinstance(current, list):
        return
    before = document.get(key)
    before = before if isinstance(before, list) else []
    if key not in _MERGE_KEYS:
        merged[key] = _interleaved(current, order, before)
        return
    merge_key = _merge_key(key, current)
    items = {_key_of(item, merge_key): item for item in current}
    keys = _interleaved(
        list(items), [_key_of(each, merge_key) for each in order], [_key_of(each, merge_key) for each in before]
    )
    merged[key] = [items[each] for each in keys]


def _go_map(value: Mapping[str, Any]) -> str:
    return f"map[{' '.join(f'{key}:{item}' for key, item in sorted(value.items()))}]"


def copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value, several times faster than `copy.deepcopy`, which looks for cycles."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict | Mapping):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_json(item) for item in value]
    return value
