"""How many executors a round requests: what limits leave, and how profiles share it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.allocation.creator import shares, slots


def test_a_limit_leaves_its_unused_slots() -> None:
    assert (slots(None, 5), slots(7, 5), slots(5, 7)) == (None, 2, 0)


@pytest.mark.parametrize(
    ("wanted", "free", "given"),
    [
        ({"a": 9, "b": 9}, None, {"a": 9, "b": 9}),
        ({"a": 9, "b": 9}, 4, {"a": 2, "b": 2}),
        ({"a": 9, "b": 9, "c": 9}, 5, {"a": 2, "b": 2, "c": 1}),
        ({"a": 1, "b": 9}, 6, {"a": 1, "b": 5}),
        ({"a": 0, "b": 9}, 3, {"a": 0, "b": 3}),
        ({"a": 2, "b": 1}, 99, {"a": 2, "b": 1}),
        ({"a": 3, "b": 3}, 0, {"a": 0, "b": 0}),
        ({}, 5, {}),
    ],
)
def test_free_slots_are_shared_evenly_and_the_first_get_the_remainder(
    wanted: dict[str, int], free: int | None, given: dict[str, int]
) -> None:
    assert shares(wanted, free) == given


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50)), st.integers(0, 200))
def test_shares_waste_no_slot_and_give_no_profile_more_than_it_needs(wanted: dict[str, int], free: int) -> None:
    given_out = shares(wanted, free)
    assert sum(given_out.values()) == min(free, sum(wanted.values()))
    assert all(0 <= given_out[profile] <= want for profile, want in wanted.items())
    short = [given_out[profile] for profile, want in wanted.items() if given_out[profile] < want]
    assert not short or max(given_out.values()) - min(short) <= 1, "one got more while another was short by two"
