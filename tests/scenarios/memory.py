"""What actors hold, found by walking through their attributes: how much it is, and what two of them hold together."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from actors.pods.id_map import IdMap
from actors.runtime.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.runtime import Actor

__all__ = ["shared", "sizes"]

LEAVES: Final = tuple(
    f"actors.{room}"
    for room in ("errors", "kube", "local", "manifests", "messages", "pods", "runtime", "settings", "testing")
)
"""Values, machinery and the cluster: not looked into."""

MACHINERY: Final = frozenset({"actor_inbox", "actor_ref", "context", "handle"})


# ── how much ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def sizes(parts: Iterable[Actor]) -> dict[str, int]:
    """How many entries the collections of these actors have, by the attributes that lead to them.

    Objects of ours in a collection are looked into as one: what they hold is counted together.
    """
    found: dict[str, int] = {}
    for part in parts:
        seen: set[int] = set()
        for name, value in _attributes(part):
            if name not in MACHINERY:
                _measure(f"{part.name}.{name}", value, found, seen)
    return found


class _Kind(Enum):
    """What is done with a value, by its type."""

    PASSED_OVER = auto()
    TIMERS = auto()
    MAPPING = auto()
    COLLECTION = auto()
    OURS = auto()


_PASSED_OVER, _TIMERS, _MAPPING, _OURS = _Kind.PASSED_OVER, _Kind.TIMERS, _Kind.MAPPING, _Kind.OURS
"""To look these up in the class takes longer than all the rest."""

_kinds: Final[dict[type, _Kind]] = {}


def _kind(of: type) -> _Kind:
    if of not in _kinds:
        _kinds[of] = _classified(of)
    return _kinds[of]


def _classified(of: type) -> _Kind:
    if issubclass(of, str | bytes | tuple):  # made whole, and replaced whole
        return _Kind.PASSED_OVER
    if issubclass(of, Timers):
        return _Kind.TIMERS
    if issubclass(of, Mapping):
        return _Kind.MAPPING
    if issubclass(of, AbstractSet | list | deque):
        return _Kind.COLLECTION
    is_ours = of.__module__.startswith("actors.") and not of.__module__.startswith(LEAVES)
    return _Kind.OURS if is_ours else _Kind.PASSED_OVER


def _measure(path: str, value: Any, found: dict[str, int], seen: set[int]) -> None:
    kind = _kind(type(value))
    if kind is _PASSED_OVER:
        return
    if kind is _OURS:
        if id(value) not in seen:
            seen.add(id(value))
            for name, each in _attributes(value):
                _measure(f"{path}.{name}", each, found, seen)
        return
    if kind is _TIMERS:
        value, kind = value._timers, _kind(type(value._timers))
    if isinstance(value, deque) and value.maxlen is not None:
        return  # it bounds itself
    found[path] = found.get(path, 0) + len(value)
    for each in value.values() if kind is _MAPPING else value:
        _measure(path, each, found, seen)


def _attributes(value: object) -> list[tuple[str, object]]:
    found = [(name, each) for name in _slots(type(value)) if (each := getattr(value, name, _UNSET)) is not _UNSET]
    found += getattr(value, "__dict__", _NONE).items()
    return found


_UNSET: Final = object()
_NONE: Final[Mapping[str, object]] = {}


_named_slots: Final[dict[type, tuple[str, ...]]] = {}


def _slots(of: type) -> tuple[str, ...]:
    if of not in _named_slots:
        _named_slots[of] = tuple(dict.fromkeys(name for kind in of.__mro__ for name in getattr(kind, "__slots__", ())))
    return _named_slots[of]


# ── what is shared ───────────────────────────────────────────────────────────────────────────────────────────────────

OF_ALL: Final = tuple(
    f"actors.{room}"
    for room in ("counts", "errors", "kube", "local", "metrics", "runtime", "settings", "tally", "testing")
)
"""What many actors hold, and may: settings, the client, addresses, clocks; and counts, which one writes and whoever
likes reads. Messages and pods are values."""


class _Way(Enum):
    """How a thing that can be changed is come to."""

    DIRECT = auto()
    IN_A_VALUE = auto()


def shared(parts: Iterable[Actor]) -> list[str]:
    """8: what can be changed and belongs to two of these actors.

    A dict in a frozen value is a value, too: whoever made it has let go of it. A set, a list or a deque is not.
    """
    held = [(part, _held(part)) for part in parts]
    return [
        f"8: {one.name} and {other.name} share {mine[found][0]}, which is {other.name}'s {theirs[found][0]}"
        for (one, mine), (other, theirs) in combinations(held, 2)
        for found in mine.keys() & theirs.keys()
        if _Way.IN_A_VALUE not in {mine[found][1], theirs[found][1]}
    ]


def _held(part: Actor) -> dict[int, tuple[str, _Way]]:
    found: dict[int, tuple[str, _Way]] = {}
    for name, value in _attributes(part):
        if name not in MACHINERY:
            _hold(name, value, _Way.DIRECT, found, set())
    return found


class _Trait(NamedTuple):
    """What a type is to whoever asks what is shared."""

    is_ours: bool
    holds: bool
    """It is looked into."""
    changes: bool
    frozen: bool


_traits: Final[dict[type, _Trait]] = {}


def _trait(of: type) -> _Trait:
    if of not in _traits:
        in_common = of.__module__.startswith(OF_ALL) or issubclass(of, Enum)
        is_ours, frozen = of.__module__.startswith("actors.") and not in_common, _is_frozen(of)
        holds = is_ours or issubclass(of, Mapping | AbstractSet | list | deque | tuple)
        changes = issubclass(of, set | list | deque) or (is_ours and not frozen)
        _traits[of] = _Trait(is_ours, holds, changes, frozen)
    return _traits[of]


def _hold(path: str, value: Any, way: _Way, found: dict[int, tuple[str, _Way]], seen: set[int]) -> None:
    trait = _trait(type(value))
    if not trait.holds or id(value) in seen:
        return
    seen.add(id(value))
    if trait.changes:
        found[id(value)] = path, _Way.DIRECT
    elif isinstance(value, dict):
        found[id(value)] = path, way
    if trait.is_ours:
        inside = _Way.IN_A_VALUE if trait.frozen else way
        for name, each in _attributes(value):
            _hold(f"{path}.{name}", each, inside, found, seen)
        return
    for each in value.values() if isinstance(value, Mapping) else value:
        _hold(path, each, way, found, seen)


def _is_frozen(of: type) -> bool:
    if issubclass(of, IdMap):  # its next version is another object
        return True
    if issubclass(of, msgspec.Struct):
        return bool(of.__struct_config__.frozen)
    parameters = getattr(of, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)
