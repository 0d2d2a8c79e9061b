from __future__ import annotations

import gc
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pods.id_map import IdMap

IDS = st.one_of(st.integers(0, 70), st.integers(1000, 1050), st.integers(10**17, 10**17 + 40))
"""Few enough that steps meet in blocks, rows and places."""

STEPS = st.lists(st.dictionaries(IDS, st.one_of(st.none(), st.integers()), max_size=12), max_size=10)


@given(STEPS)
def test_each_version_is_what_a_dict_with_the_same_changes_is(steps: list[dict[int, int | None]]) -> None:
    versions: list[tuple[IdMap[int], dict[int, int]]] = [(IdMap(), {})]
    for changes in steps:
        values, model = versions[-1]
        expected = {key: value for key, value in (model | changes).items() if value is not None}
        versions.append((values.with_changes(changes), expected))

    for values, expected in versions:  # the earlier ones have not changed either
        assert values == expected
        assert list(values) == sorted(expected)
        assert list(values.items()) == sorted(expected.items())
        assert list(values.values()) == [expected[key] for key in sorted(expected)]
        assert len(values) == len(expected)
        assert all(values.get(key) == expected.get(key) for key in range(75))


@given(STEPS, STEPS)
def test_the_changes_between_two_versions_make_the_later_of_the_earlier_one(
    first: list[dict[int, int | None]], then: list[dict[int, int | None]]
) -> None:
    earlier = IdMap[int]()
    for changes in first:
        earlier = earlier.with_changes(changes)
    later = earlier
    for changes in then:
        later = later.with_changes(changes)
    changes = later.changes_since(earlier)
    assert earlier.with_changes(changes) == later
    assert all(later.get(key) is not earlier.get(key) for key in changes)
    assert later.changes_since(later) == {}


@given(STEPS)
def test_an_edit_shows_its_changes_before_it_makes_the_next_version(steps: list[dict[int, int | None]]) -> None:
    values = IdMap[int]()
    for changes in steps:
        edit, model = values.edit(), dict(values)
        for key, value in changes.items():
            assert edit.get(key) == model.get(key)
            edit.put(key, value)
            model |= {key: value} if value is not None else {}
            if value is None:
                model.pop(key, None)
            assert edit.get(key) == model.get(key)
        later = values.after(edit)
        assert later == model
        assert (later is values) == (not changes)
        values = later


@given(STEPS)
def test_a_pickled_map_is_the_same(steps: list[dict[int, int | None]]) -> None:
    values = IdMap[int]()
    for changes in steps:
        values = values.with_changes(changes)
    assert pickle.loads(pickle.dumps(values)) == values


def test_a_map_is_made_of_any_mapping() -> None:
    assert IdMap({3: "c", 40: "d"}) == {3: "c", 40: "d"}
    assert IdMap() == {}


@pytest.mark.parametrize("key", ["3", None, 3.0, (3,), -29, 35])
def test_what_is_no_id_of_it_has_no_value(key: object) -> None:
    values = IdMap({3: "c"})

    assert key not in values
    assert values.get(key) is None
    assert values.get(key, "else") == "else"
    with pytest.raises(KeyError):
        values[key]  # type: ignore[index]  # whatever a driver may ask for


def test_a_block_without_values_is_dropped() -> None:
    values = IdMap(dict.fromkeys(range(3000), "x")).with_changes(dict.fromkeys(range(2047)))

    assert len(values._blocks) == 2


def test_versions_share_the_rows_and_blocks_that_did_not_change() -> None:
    earlier = IdMap(dict.fromkeys(range(3000), "x"))
    later = earlier.with_changes({5: "y"})

    blocks = [(earlier._blocks[place], later._blocks[place]) for place in range(3)]
    assert [before is now for before, now in blocks] == [False, True, True]
    assert [before is now for before, now in zip(*blocks[0], strict=True)] == [False] + [True] * 31


def test_the_garbage_collector_does_not_track_values_that_need_none() -> None:
    values = IdMap({number: str(number) for number in range(64)})
    gc.collect()
    gc.collect()  # the blocks may have been looked at before their rows

    assert not any(gc.is_tracked(each) for block in values._blocks.values() for each in (block, *block))
