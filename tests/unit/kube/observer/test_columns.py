"""What crosses in place of a list: `TextColumn` and packed numbers."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actors.kube.observer.columns import TextColumn, numbers_of, pack_numbers


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_are_at_their_places_whatever_they_contain(texts: list[str]) -> None:
    crossed = msgspec.msgpack.decode(msgspec.msgpack.encode(TextColumn.of(texts)), type=TextColumn)
    assert [crossed[place] for place in range(len(texts))] == texts


def test_one_long_text_takes_room_once() -> None:
    column = TextColumn.of(["1" * 1_000_000, *["2"] * 10_000])
    assert len(column.joined) == 1_010_000


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_numbers_are_what_was_packed(numbers: list[int]) -> None:
    assert list(numbers_of(pack_numbers(numbers))) == numbers
