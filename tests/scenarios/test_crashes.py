"""Each part crashes once at any of its first messages, in `started` and in `stopped`: the fleet comes through.

Here some of the cases; all of them, and two crashes in one run: tests/stress/test_crashes.py.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.backend.children import MAX_CRASHES
from actors.backend.startup import Startup
from actors.local.faults.kinds import LoseAnswer
from actors.messages import BackendFailed, BackendStopped, StopBackend
from actors.messages.internal.names import LEASE, POOL
from actors.runtime import ActorDeadError
from tests.scenarios.crashes import (
    BACKEND,
    PARTS,
    SOURCES,
    Crash,
    Plan,
    backend_falls,
    backend_falls_while_stopping,
    part_is_given_up,
    shaken,
    survived,
)
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

SOME = (1, 8, 50)
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


@pytest.mark.parametrize("first", [1, 34])
@pytest.mark.parametrize("part", WITH_STATE)
def test_a_part_that_crashes_five_times_in_a_row_ends_the_backend_and_leaves_the_fleet(part: str, first: int) -> None:
    assert part_is_given_up(part, first) == []


@pytest.mark.parametrize("number", SOME)
def test_a_backend_that_crashes_says_so_ends_all_parts_and_leaves_the_fleet_to_the_next(number: int) -> None:
    assert backend_falls(Plan(BACKEND, at(number))) == []


@pytest.mark.parametrize("late", [False, True], ids=["before its parts are started", "after that"])
def test_a_backend_that_crashes_at_its_start_says_so_and_ends_what_was_started(late: bool) -> None:
    assert backend_falls(Plan(BACKEND, at(1), "started", late=late)) == []


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", SOME)
def test_a_backend_that_crashes_at_any_message_of_its_stop_says_so_and_the_next_one_ends_the_fleet(
    number: int, late: bool
) -> None:
    assert backend_falls_while_stopping(Plan(BACKEND, at(number), late=late, while_stopping=True)) == []


@pytest.mark.parametrize("number", [1, 2])
def test_who_has_asked_a_backend_to_stop_is_answered_though_it_crashes(number: int) -> None:
    with shaken(None, Plan(BACKEND, at(number), while_stopping=True)) as world:
        world.advance(5)
        world.plans[0].counts = True
        first, second = (world.backend.request(StopBackend()) for _ in range(2))
        world.kit.settle()
        if number == 1:
            with pytest.raises(Crash):
                first.get(timeout=0)
            with pytest.raises(ActorDeadError):
                second.get(timeout=0)
        else:
            assert first.get(timeout=0) is None, "the stop has begun; what comes of it the driver hears"
            with pytest.raises(Crash):
                second.get(timeout=0)
        assert isinstance(world.heard(BackendFailed)[0].cause, Crash)
        assert world.heard(BackendStopped) == []


def crash(*_: object) -> None:
    raise Crash


def test_a_backend_that_crashes_before_it_has_looked_at_anything_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Startup, "begin", crash)
    with shaken(None) as world:
        (failed,) = world.heard(BackendFailed)
        assert isinstance(failed.cause, Crash)
        assert world.heard(BackendStopped) == []


def test_a_backend_that_cannot_close_its_connections_still_reports_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shaken(None) as world:
        monkeypatch.setattr(world.api, "close", crash)
        world.advance(5)
        world.backend.stop()
        world.advance(5)
        assert world.heard(BackendStopped) == [BackendStopped()]


# ── what a pool takes with it ────────────────────────────────────────────────────────────────────────────────────────

BACK_WITHIN = 5.0
"""Seconds: the first backoff, 1.6 s at most, a list, and the POSTs; not the creation timeout, a minute."""


def before_it_is_read(world: World) -> None:
    world.crash(POOL)
    world.target(6)


def while_most_are_queued(world: World) -> None:
    world.target(6)
    world.advance(0.15)
    assert world.invariants.created == 3, "the first of four"
    world.crash(POOL)


def on_the_wire(world: World) -> None:
    world.api.fail_next("create", LoseAnswer(), times=2)
    world.target(6)
    world.advance(0.1)
    world.crash(POOL)


@pytest.mark.parametrize("when", [before_it_is_read, while_most_are_queued, on_the_wire])
@pytest.mark.parametrize("seed", [None, 1])
def test_what_a_pool_was_asked_for_when_it_crashed_is_made_as_soon_as_it_is_back_and_once(
    when: Callable[[World], None], seed: int | None
) -> None:
    queued = {"max_requests_in_flight": 2} if when is while_most_are_queued else {}
    with World(seed, latency=timedelta(milliseconds=200), executor={"instances": 2}, allocation=queued) as world:
        world.advance(10)
        when(world)
        world.advance(BACK_WITHIN)
        assert sorted(pod["metadata"]["name"] for pod in world.pods()) == [f"app-exec-{i}" for i in range(1, 7)]
        world.advance(120)
        assert world.running() == world.invariants.created == 6
        assert world.stop() == BackendStopped()


def test_an_allocator_that_crashes_before_it_has_asked_again_is_followed_by_one_that_does() -> None:
    with World(executor={"instances": 2}, allocation={"batch_size": 1, "max_batch_size": 1}) as world:
        world.advance(10)
        before_it_is_read(world)
        while world.invariants.created < 3:
            world.advance(0.001)
        world.crash("allocator")
        world.advance(2 * BACK_WITHIN)
        assert world.running() == world.invariants.created == 6
        assert {pod["metadata"]["name"] for pod in world.pods()} >= {"app-exec-3", "app-exec-4"}


def test_excess_requests_are_not_sent_when_the_pool_is_back() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        before_it_is_read(world)
        world.advance(0.1)
        world.target(2)
        world.advance(120)
        assert world.running() == world.invariants.created == 2


def test_what_the_driver_has_killed_when_the_pool_is_back_is_not_made() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        before_it_is_read(world)
        world.advance(0.1)
        world.kill(3, 4, 5, 6)
        world.advance(BACK_WITHIN)
        assert sorted(world.removals()) == [3, 4, 5, 6], "at once"
        world.advance(120)
        assert [pod["metadata"]["name"] for pod in world.pods()] == [f"app-exec-{i}" for i in (1, 10, 2, 7, 8, 9)]
        assert world.invariants.created == 6
