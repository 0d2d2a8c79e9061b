"""The Allocator's decisions, as functions of values."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.allocation.decisions import LIVE, LIVE_OR_GOING, counted, overdue, shares, slots, surplus
from actors.allocation.expectations import Expectations, NewlyCreated
from actors.pods.snapshot import PodsSnapshot
from actors.pods.state import PodPending
from tests.unit.views import View, going, pending, running

MINUTE = timedelta(minutes=1)


def unseen(newly: dict[int, NewlyCreated]) -> Expectations:
    book = Expectations()
    for executor_id, new in newly.items():
        book.requested(executor_id, new.profile, new.requested_at)
        if new.answered_at is not None:
            book.answered(executor_id, new.answered_at, None)
    return book


def snapshot(view: View, *, synced_at: float) -> PodsSnapshot:
    view.sync(synced_at)
    return view.batch(synced_at).snapshot


def test_one_that_goes_counts_only_when_replacements_wait_for_its_end() -> None:
    view = View()
    view.show(pending(1), running(2), going(running(3)))
    shown = snapshot(view, synced_at=0.0)
    assert counted((1, 2, 3, 4), shown, "default", LIVE) == 2
    assert counted((1, 2, 3, 4), shown, "default", LIVE_OR_GOING) == 3
    assert counted((1, 2, 3), shown, "gpu", LIVE) == 0


def test_one_whose_request_is_not_answered_is_never_overdue() -> None:
    newly = {1: NewlyCreated("default", 0.0)}
    assert overdue(unseen(newly), snapshot(View(), synced_at=999.0), now=1000.0, timeout=MINUTE) == ()


def test_one_is_overdue_when_the_timeout_has_passed_since_the_answer() -> None:
    newly = {1: NewlyCreated("default", 0.0, answered_at=10.0)}
    shown = snapshot(View(), synced_at=11.0)
    assert overdue(unseen(newly), shown, now=69.9, timeout=MINUTE) == ()
    assert overdue(unseen(newly), shown, now=70.0, timeout=MINUTE) == (1,)


def test_one_is_not_overdue_before_a_full_sync_that_was_asked_for_after_the_answer() -> None:
    newly = {1: NewlyCreated("default", 0.0, answered_at=10.0)}
    assert overdue(unseen(newly), snapshot(View(), synced_at=10.0), now=500.0, timeout=MINUTE) == ()
    assert overdue(unseen(newly), PodsSnapshot.EMPTY, now=500.0, timeout=MINUTE) == ()


def test_one_that_the_snapshot_shows_is_not_overdue() -> None:
    view = View()
    view.show(pending(1))
    newly = {1: NewlyCreated("default", 0.0, answered_at=10.0)}
    assert overdue(unseen(newly), snapshot(view, synced_at=11.0), now=500.0, timeout=MINUTE) == ()


def chosen(
    excess: int,
    newly: dict[int, NewlyCreated],
    pending_since: dict[int, float],
    *,
    spared: frozenset[int] = frozenset(),
    running_ids: tuple[int, ...] = (),
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    view = View()
    view.show(*(pending(executor_id) for executor_id in pending_since))
    view.show(*(running(executor_id) for executor_id in running_ids))
    abandoned, waiting = surplus(
        excess,
        unseen(newly),
        snapshot(view, synced_at=0.0),
        pending_since,
        profile="default",
        spared=spared,
        now=100.0,
        idle_timeout=MINUTE,
    )
    assert all(isinstance(state, PodPending) for _, state in waiting)
    return abandoned, tuple(state.pod.name for _, state in waiting)


def test_newly_created_ones_go_before_pending_ones_and_the_oldest_first() -> None:
    newly = {8: NewlyCreated("default", 20.0, 20.0), 7: NewlyCreated("default", 10.0, 10.0)}
    assert chosen(3, newly, {2: 5.0, 1: 6.0}) == ((7, 8), ("app-exec-2",))
    assert chosen(1, newly, {2: 5.0, 1: 6.0}) == ((7,), ())


def test_no_more_than_the_excess_is_chosen() -> None:
    assert chosen(0, {7: NewlyCreated("default", 0.0, 0.0)}, {1: 0.0}) == ((), ())


def test_one_younger_than_the_idle_timeout_is_left() -> None:
    assert chosen(2, {7: NewlyCreated("default", 40.1, 40.1)}, {1: 40.1, 2: 40.0}) == ((), ("app-exec-2",))


def test_one_whose_request_is_under_way_is_left() -> None:
    assert chosen(1, {7: NewlyCreated("default", 0.0)}, {}) == ((), ())


def test_a_spared_one_is_left() -> None:
    newly = {7: NewlyCreated("default", 0.0, 0.0)}
    assert chosen(2, newly, {1: 0.0, 2: 0.0}, spared=frozenset({1, 7})) == ((), ("app-exec-2",))


def test_a_running_one_is_never_chosen() -> None:
    assert chosen(5, {}, {}, running_ids=(1, 2)) == ((), ())


def test_one_of_another_profile_is_left() -> None:
    assert chosen(1, {7: NewlyCreated("gpu", 0.0, 0.0)}, {}) == ((), ())


def test_a_limit_leaves_what_is_not_used_of_it() -> None:
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
def test_shares_waste_no_slot_and_give_nobody_more_than_it_wants(wanted: dict[str, int], free: int) -> None:
    given_out = shares(wanted, free)
    assert sum(given_out.values()) == min(free, sum(wanted.values()))
    assert all(0 <= given_out[profile] <= want for profile, want in wanted.items())
    short = [given_out[profile] for profile, want in wanted.items() if given_out[profile] < want]
    assert not short or max(given_out.values()) - min(short) <= 1, "one got more while another was short by two"
