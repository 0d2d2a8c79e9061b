"""`IdMap`: an immutable map by executor id. Its next version shares all with it but what changed.

Executor ids are allocated in order, so those of a fleet lie close together: neighbours share a row. A row is a tuple,
which the garbage collector stops to track if its values need none. So it does not go through the pods of a large fleet,
which would take it longer than anything else does.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, Final, Generic, TypeAlias, TypeVar, final, overload

from immutables import Map

__all__ = ["IdMap", "IdMapEdit"]

V = TypeVar("V")
D = TypeVar("D")

_BITS: Final = 5

_WIDTH: Final = 1 << _BITS
"""Ids of a row. A change copies a whole row, and each row takes some room of its own: as many as a node of `Map`."""

_LOW: Final = _WIDTH - 1

_Rows: TypeAlias = Map[int, tuple[V | None, ...]]
"""The rows by the upper bits of their ids. No row is empty."""

_EMPTY: Final = (None,) * _WIDTH
"""Stands for a row that is not there."""


@final
class IdMap(Mapping[int, V]):
    """Values by executor id, iterated by id. No value is None."""

    __slots__ = ("_rows", "_size")

    _rows: _Rows[V]
    _size: int

    def __init__(self, values: Mapping[int, V] | None = None) -> None:
        edit: IdMapEdit[V] = IdMapEdit(Map(), 0)
        edit.update(values or {})
        self._rows, self._size = edit.finish()

    def edit(self) -> IdMapEdit[V]:
        """Return an edit that begins with this version."""
        return IdMapEdit(self._rows, self._size)

    def after(self, edit: IdMapEdit[V]) -> IdMap[V]:
        """Return the version that an edit of this one makes, this one if it changed nothing. The edit is used up."""
        if not edit.changed:
            return self
        made: IdMap[V] = IdMap()
        made._rows, made._size = edit.finish()
        return made

    def with_changes(self, changes: Mapping[int, V | None]) -> IdMap[V]:
        """Return the next version: with these values, and without those that are None here."""
        edit = self.edit()
        edit.update(changes)
        return self.after(edit)

    def changes_since(self, earlier: IdMap[V]) -> dict[int, V | None]:
        """Return the values that are other objects than in `earlier`, and None for each id that only that one has.

        Rows that both share are not looked into.
        """
        changes: dict[int, V | None] = {}
        for number in {*self._rows, *earlier._rows}:
            now, before = self._rows.get(number, _EMPTY), earlier._rows.get(number, _EMPTY)
            if now is not before:
                first = number << _BITS
                changes |= {first + i: now[i] for i in range(_WIDTH) if now[i] is not before[i]}
        return changes

    @overload
    def get(self, key: Any, default: None = None, /) -> V | None: ...

    @overload
    def get(self, key: Any, default: V | D, /) -> V | D: ...

    def get(self, key: Any, default: V | D | None = None, /) -> V | D | None:
        """Return the value of an id, `default` if there is none. Whatever is no integer has none."""
        try:
            row = self._rows.get(key >> _BITS)
        except TypeError:
            return default
        value = row[key & _LOW] if row is not None else None
        return default if value is None else value

    def __getitem__(self, key: int) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        return (executor_id for executor_id, _ in self.pairs())

    def items(self) -> ItemsView[int, V]:
        """Return the pairs of id and value."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return the values."""
        return _Values(self)

    def __reduce__(self) -> tuple[type[IdMap[V]], tuple[dict[int, V]]]:
        """Pickle the values: rows are shared with versions that do not cross."""
        return IdMap, (dict(self.pairs()),)

    def __repr__(self) -> str:
        return f"IdMap({dict(self.items())!r})"

    def pairs(self) -> Iterator[tuple[int, V]]:
        """Iterate over the pairs of id and value."""
        rows = self._rows
        for number in sorted(rows):
            for executor_id, value in enumerate(rows[number], number << _BITS):
                if value is not None:
                    yield executor_id, value


@final
class IdMapEdit(Generic[V]):
    """Makes the next version of an `IdMap`: many changes, one new map."""

    __slots__ = ("_copies", "_resized", "_rows", "_size")

    def __init__(self, rows: _Rows[V], size: int) -> None:
        self._rows = rows
        self._size = size
        self._copies: dict[int, list[V | None]] = {}
        """The rows that have changed."""
        self._resized: set[int] = set()
        """Those in which a value was added or removed: comparing each with None takes as long as all else."""

    @property
    def changed(self) -> bool:
        """Whether anything was put."""
        return bool(self._copies)

    def get(self, executor_id: int) -> V | None:
        """Return the value so far, None if there is none."""
        number = executor_id >> _BITS
        row = self._copies.get(number) or self._rows.get(number)
        return row[executor_id & _LOW] if row is not None else None

    def put(self, executor_id: int, value: V | None) -> None:
        """Set a value, None to remove it."""
        number = executor_id >> _BITS
        copy = self._copies.get(number)
        if copy is None:
            copy = self._copies[number] = list(self._rows.get(number, _EMPTY))
        place = executor_id & _LOW
        if value is None or copy[place] is None:
            self._resized.add(number)
        copy[place] = value

    def update(self, values: Mapping[int, V | None]) -> None:
        """Set values, as `put` does."""
        for executor_id, value in values.items():
            self.put(executor_id, value)

    def finish(self) -> tuple[_Rows[V], int]:
        """Return the rows of the next version and how many values they have. The edit is used up."""
        size, rows = self._size, self._rows.mutate()
        for number, copy in self._copies.items():
            rows[number] = tuple(copy)
        for number in self._resized:
            free = self._copies[number].count(None)
            size += self._rows.get(number, _EMPTY).count(None) - free
            if free == _WIDTH:
                del rows[number]
        return rows.finish(), size


class _Items(ItemsView[int, V]):
    """Iterates without looking up each id."""

    _mapping: IdMap[V]

    def __iter__(self) -> Iterator[tuple[int, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V]):
    """As `_Items`."""

    _mapping: IdMap[V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.pairs())
