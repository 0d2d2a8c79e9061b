"""Each part crashes once at any of its first messages, in `started` and in `stopped`: the fleet comes through.

Here some of the cases; all of them, and two crashes in one run: tests/stress/test_crashes.py.
"""

from __future__ import annotations

import pytest

from actors.messages import BackendFailed, BackendStopped
from actors.opening import Opening
from actors.parts import LEASE, MAX_CRASHES, POOL
from tests.scenarios.crashes import (
    BACKEND,
    PARTS,
    SOURCES,
    Crash,
    Plan,
    backend_falls,
    part_is_given_up,
    shaken,
    survived,
)

SOME = (1, 3, 8, 50)
LONGEST_REST = 60.0
"""Seconds: the longest backoff, and as much jitter."""
WITH_STATE = [part for part in PARTS if part not in SOURCES]


def at(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


@pytest.mark.parametrize("number", SOME)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_crashes_before_a_message_and_the_fleet_converges(part: str, number: int) -> None:
    assert survived(Plan(part, at(number))) == []


@pytest.mark.parametrize("part", PARTS)
def test_a_part_crashes_when_it_has_handled_a_message_and_the_fleet_converges(part: str) -> None:
    assert survived(Plan(part, at(8), late=True)) == []


@pytest.mark.parametrize("part", PARTS)
def test_a_part_crashes_at_its_first_start_and_at_its_next_and_the_fleet_converges(part: str) -> None:
    assert survived(Plan(part, at(1, 2), "started")) == []


@pytest.mark.parametrize("part", PARTS)
def test_a_part_crashes_and_again_when_it_is_restarted_and_the_fleet_converges(part: str) -> None:
    assert survived(Plan(part, at(21)), Plan(part, at(2), "started")) == []


@pytest.mark.parametrize("part", [*PARTS, BACKEND])
def test_a_part_crashes_while_all_are_stopped_and_nothing_is_left(part: str) -> None:
    assert survived(Plan(part, at(1), "stopped")) == []


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("part", "number"), [(POOL, 1), (POOL, 2), (POOL, 3), (LEASE, 1), (LEASE, 2)])
def test_who_has_to_do_with_the_stop_crashes_at_any_message_of_it_and_nothing_is_left(
    part: str, number: int, late: bool
) -> None:
    assert survived(Plan(part, at(number), late=late, while_stopping=True)) == []


@pytest.mark.parametrize("part", [part for part in PARTS if part != POOL])
def test_a_part_crashes_while_it_is_stopped_for_a_restart_and_the_fleet_converges(part: str) -> None:
    assert survived(Plan(POOL, at(21)), Plan(part, at(1), "stopped")) == []


@pytest.mark.parametrize("part", SOURCES)
def test_what_nothing_depends_on_may_crash_more_often_than_others(part: str) -> None:
    assert survived(Plan(part, frozenset(range(3, 4 + MAX_CRASHES))), resting=LONGEST_REST) == []


@pytest.mark.parametrize("first", [1, 8, 34])
@pytest.mark.parametrize("part", WITH_STATE)
def test_a_part_that_crashes_five_times_in_a_row_ends_the_backend_and_leaves_the_fleet(part: str, first: int) -> None:
    assert part_is_given_up(part, first) == []


@pytest.mark.parametrize("number", SOME)
def test_a_backend_that_crashes_says_so_ends_all_parts_and_leaves_the_fleet_to_the_next(number: int) -> None:
    assert backend_falls(Plan(BACKEND, at(number))) == []


@pytest.mark.parametrize("late", [False, True], ids=["before its parts are started", "after that"])
def test_a_backend_that_crashes_at_its_start_says_so_and_ends_what_was_started(late: bool) -> None:
    assert backend_falls(Plan(BACKEND, at(1), "started", late=late)) == []


def crash(*_: object) -> None:
    raise Crash


def test_a_backend_that_crashes_before_it_has_looked_at_anything_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Opening, "begin", crash)
    with shaken(None) as world:
        (failed,) = world.heard(BackendFailed)
        assert isinstance(failed.cause, Crash)
        assert world.heard(BackendStopped) == []


def test_a_backend_that_cannot_close_its_connections_has_the_last_word_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shaken(None) as world:
        monkeypatch.setattr(world.api, "close", crash)
        world.advance(5)
        world.backend.stop()
        world.advance(5)
        assert world.heard(BackendStopped) == [BackendStopped()]
