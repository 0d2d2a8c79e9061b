"""`IdMap`: an immutable map by executor id. Its next version shares all with it but what changed.

Executor ids are allocated in order, so those of a fleet lie close together: neighbours share a row, and neighbouring
rows a block. A change copies one row, one block and the dict of the blocks, of which a fleet of 50,000 pods has some
fifty: no more than a step of a hash trie, which Python has none of, and whoever reads finds its value sooner.

Rows and blocks are tuples, which the garbage collector stops to track if their values need none. So it does not go
through the pods of a large fleet, which would take it longer than anything else does.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, Final, Generic, TypeAlias, TypeVar, final, overload

__all__ = ["IdMap", "IdMapEdit"]

V = TypeVar("V")
D = TypeVar("D")

_BITS: Final = 5

_WIDTH: Final = 1 << _BITS
"""Ids of a row, and rows of a block. A change copies a whole row and block, and each takes some room of its own."""

_LOW: Final = _WIDTH - 1

_Row: TypeAlias = tuple[V | None, ...]

_Blocks: TypeAlias = Mapping[int, tuple[_Row[V], ...]]
"""The blocks by the upper bits of their ids. No block is empty."""

_NO_VALUES: Final = (None,) * _WIDTH
"""The empty row: each is this object."""

_NO_ROWS: Final = (_NO_VALUES,) * _WIDTH
"""Stands for a block that is not there."""


@final
class IdMap(Mapping[int, V]):
    """Values by executor id, iterated by id. No value is None."""

    __slots__ = ("_blocks", "_size")

    def __init__(self, values: Mapping[int, V] | None = None) -> None:
        self._blocks: _Blocks[V] = {}
        self._size = 0
        if values:
            edit = self.edit()
            edit.update(values)
            self._blocks, self._size = edit.finish()

    def edit(self) -> IdMapEdit[V]:
        """Return an edit that begins with this version."""
        return IdMapEdit(self._blocks, self._size)

    def after(self, edit: IdMapEdit[V]) -> IdMap[V]:
        """Return the version that an edit of this one makes, this one if it changed nothing. The edit is used up."""
        if not edit.changed:
            return self
        made: IdMap[V] = IdMap()
        made._blocks, made._size = edit.finish()
        return made

    def with_changes(self, changes: Mapping[int, V | None]) -> IdMap[V]:
        """Return the next version: with these values, and without those that are None here."""
        edit = self.edit()
        edit.update(changes)
        return self.after(edit)

    def changes_since(self, earlier: IdMap[V]) -> dict[int, V | None]:
        """Return the values that are other objects than in `earlier`, and None for each id that only that one has.

        Blocks and rows that both share are not looked into.
        """
        changes: dict[int, V | None] = {}
        for place in {*self._blocks, *earlier._blocks}:
            rows, rows_before = self._blocks.get(place, _NO_ROWS), earlier._blocks.get(place, _NO_ROWS)
            if rows is rows_before:
                continue
            for number, (now, before) in enumerate(zip(rows, rows_before, strict=True), place << _BITS):
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
            block = self._blocks.get(key >> 2 * _BITS)
        except TypeError:
            return default
        if block is None:
            return default
        value = block[key >> _BITS & _LOW][key & _LOW]
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
        blocks = self._blocks
        for place in sorted(blocks):
            for number, row in enumerate(blocks[place], place << _BITS):
                if row is not _NO_VALUES:
                    for executor_id, value in enumerate(row, number << _BITS):
                        if value is not None:
                            yield executor_id, value


@final
class IdMapEdit(Generic[V]):
    """Makes the next version of an `IdMap`: many changes, one new map."""

    __slots__ = ("_blocks", "_copies", "_resized", "_size")

    def __init__(self, blocks: _Blocks[V], size: int) -> None:
        self._blocks = blocks
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
        row = self._copies.get(number)
        if row is not None:
            return row[executor_id & _LOW]
        block = self._blocks.get(number >> _BITS)  # as `_row`, whose call costs half as much as all else
        return None if block is None else block[number & _LOW][executor_id & _LOW]

    def put(self, executor_id: int, value: V | None) -> None:
        """Set a value, None to remove it."""
        number = executor_id >> _BITS
        copy = self._copies.get(number)
        if copy is None:
            copy = self._copies[number] = list(self._row(number))
        place = executor_id & _LOW
        if value is None or copy[place] is None:
            self._resized.add(number)
        copy[place] = value

    def update(self, values: Mapping[int, V | None]) -> None:
        """Set values, as `put` does."""
        for executor_id, value in values.items():
            self.put(executor_id, value)

    def finish(self) -> tuple[_Blocks[V], int]:
        """Return the blocks of the next version and how many values they have. The edit is used up."""
        size, blocks = self._size, dict(self._blocks)
        changed: dict[int, list[_Row[V]]] = {}
        for number, copy in self._copies.items():
            place = number >> _BITS
            block = changed.get(place)
            if block is None:
                block = changed[place] = list(blocks.get(place, _NO_ROWS))
            block[number & _LOW] = tuple(copy)
        emptied = set()
        for number in self._resized:
            free = self._copies[number].count(None)
            size += self._row(number).count(None) - free
            if free == _WIDTH:
                changed[number >> _BITS][number & _LOW] = _NO_VALUES
                emptied.add(number >> _BITS)
        for place, block in changed.items():
            blocks[place] = tuple(block)
        for place in emptied:
            if all(row is _NO_VALUES for row in blocks[place]):
                del blocks[place]
        return blocks, size

    def _row(self, number: int) -> _Row[V]:
        """Return a row as the edit began with it."""
        block = self._blocks.get(number >> _BITS)
        return _NO_VALUES if block is None else block[number & _LOW]


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
