"""`ScaleExecutors`: one message sets the target and ends what is in excess, and never one more."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Refused
from actors.local.faults.kinds import Refuse, server_error
from actors.local.kubelet.scripted_kubelet import Run, StayWaiting
from actors.messages import (
    DecommissionExecutors,
    ExecutorBusy,
    ExecutorDisconnected,
    ExecutorIdle,
    ExecutorRemoved,
    ExecutorRunning,
    GetExecutors,
    GetFleetStatus,
    KillExecutors,
    RegisterExecutor,
    RequestTotalExecutors,
    ScaleExecutors,
)
from actors.pods.loss import LossKind
from actors.runtime import TookTooLong
from tests.scenarios.fleets import ended, fleet, name, names
from tests.scenarios.world import World

if TYPE_CHECKING:
    from actors.messages import Executor

SECOND = timedelta(seconds=1)


def one_by_one(count: int, **options: Any) -> World:
    """A fleet whose executors began to run one after the other."""
    world = fleet(0, **options)
    for total in range(1, count + 1):
        world.target(total)
        world.advance(3)
    return world


def left(world: World) -> tuple[int, ...]:
    """The executors that are there once the others have ended."""
    world.advance(60)
    ids = sorted(int(pod.rpartition("-")[2]) for pod in names(world))
    assert world.ask(GetFleetStatus()).profiles["default"].target == len(ids)
    return tuple(ids)


# ── 4: scaling down ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("victims", "stay"),
    [
        ("newest", (1, 2, 3)),
        ("oldest", (8, 9, 10)),
        ("idle", (2, 5, 9)),
        (lambda executor: -executor.id % 4, (1, 5, 9)),
        (lambda executor: None if executor.id in {2, 3, 4} else executor.since, (2, 3, 4)),
    ],
)
def test_ten_become_three_and_the_victims_are_the_right_ones(victims: Any, stay: tuple[int, ...]) -> None:
    with one_by_one(10) as world:
        for executor_id in (2, 5):
            world.ask(ExecutorBusy(executor_id))
        for executor_id in (1, 9):
            world.ask(RegisterExecutor(executor_id))
        world.ask(ExecutorDisconnected(1))
        ids = world.ask(ScaleExecutors(3, victims))
        assert set(ids) == {*range(1, 11)} - {*stay}
        assert left(world) == stay
        assert {ended(world, executor_id).kind for executor_id in ids} == {LossKind.KILLED_BY_DRIVER}
        assert ended(world, ids[0]).message.startswith(
            f"executor {ids[0]} (pod {name(ids[0])}) was scaled down to a lower target"
        )


def test_those_that_do_not_run_yet_go_first_and_at_once_however_young_they_are() -> None:
    with one_by_one(5) as world:
        world.kubelet.script = lambda _: StayWaiting()
        world.target(10)
        world.advance(3)
        assert world.ask(ScaleExecutors(7)) == ()
        world.advance(1)
        assert len(names(world)) == 7
        assert world.ask(ScaleExecutors(4, "oldest")) == (1,)
        world.advance(1)
        assert names(world) == sorted(map(name, (1, 2, 3, 4, 5))), "it has its grace"
        world.advance(5)
        assert names(world) == sorted(map(name, (2, 3, 4, 5)))


@pytest.mark.parametrize("victims", ["newest", "oldest", "idle", lambda executor: executor.id])
def test_one_that_begins_to_run_after_all_is_ended_whatever_the_order(victims: Any) -> None:
    with one_by_one(3) as world:
        world.kubelet.script = lambda _: Run(start_delay=2 * SECOND)
        world.target(5)
        world.advance(1.5)
        world.api.lag = 3 * SECOND  # executors run, and the snapshot still has them pending
        world.advance(2)
        assert world.ask(ScaleExecutors(3, victims)) == ()
        world.advance(10)
        assert left(world) == (1, 2, 3)
        assert ended(world, 4).kind is ended(world, 5).kind is LossKind.KILLED_BY_DRIVER
        assert len(world.heard(ExecutorRemoved)) == 2, "and none is replaced"


def test_busy_ones_go_when_they_become_idle_and_not_one_too_many() -> None:
    with one_by_one(4) as world:
        for executor_id in (1, 2, 3, 4):
            world.ask(ExecutorBusy(executor_id))
        assert world.ask(ScaleExecutors(2, "idle")) == ()
        world.advance(30)
        assert world.running() == 4
        for executor_id in (3, 1, 4):
            world.ask(ExecutorIdle(executor_id))
            world.advance(30)
        assert left(world) == (2, 4)


@pytest.mark.parametrize(
    ("next_target", "running"),
    [
        (ScaleExecutors(1, "newest"), (1, 1)),
        (ScaleExecutors(1, lambda executor: None), (3, 1)),
        (RequestTotalExecutors({"default": 1, "gpu": 1}), (3, 3)),
        (RequestTotalExecutors(1, keep_others=True), (3, 1)),
        (RequestTotalExecutors({"gpu": 1}, keep_others=True), (1, 3)),
        (KillExecutors((1,), adjust_target=True), (1, 1)),
    ],
)
def test_it_holds_until_the_next_target_of_the_profile(next_target: Any, running: tuple[int, int]) -> None:
    with World(executor={"instances": 0}, profiles={"gpu": {"image": "gpu:1"}}) as world:
        world.invariants.retarget({"default": 3, "gpu": 3})
        world.ask(RequestTotalExecutors({"default": 3, "gpu": 3}))
        world.advance(5)
        for executor_id in range(1, 7):
            world.ask(ExecutorBusy(executor_id))
        assert world.ask(ScaleExecutors({"default": 1, "gpu": 1}, "idle")) == ()
        world.ask(next_target)
        for executor_id in range(1, 7):
            world.ask(ExecutorIdle(executor_id))
        world.advance(30)
        counts = world.ask(GetFleetStatus()).profiles
        assert {profile: status.target for profile, status in counts.items()} == {"default": 1, "gpu": 1}
        assert (counts["default"].running, counts["gpu"].running) == running


def test_executors_that_end_anyway_do_not_count_and_are_not_ended_again() -> None:
    with one_by_one(6) as world:
        world.kubelet.script = lambda _: Run(stop_delay=20 * SECOND)
        world.kill(6)
        world.ask(DecommissionExecutors((5,)))
        assert world.ask(ScaleExecutors(3, "newest", timedelta())) == (4,)
        assert world.ask(ScaleExecutors(3, "oldest")) == ()
        world.advance(30)
        assert names(world) == sorted(map(name, (1, 2, 3, 5)))
        assert world.ask(KillExecutors((5, 3), adjust_target=True)) == (5, 3)
        assert left(world) == (1, 2)


def test_the_grace_is_that_of_the_message() -> None:
    with one_by_one(2) as world:
        world.ask(ScaleExecutors(1, grace=20 * SECOND))
        world.advance(19)
        assert len(names(world)) == 2
        world.advance(2)
        assert names(world) == [name(1)]


def _fails(_: Executor) -> int:
    raise ValueError("no such worker")


@pytest.mark.parametrize(
    ("victims", "error"),
    [
        (_fails, "ScaleExecutors.victims failed: ValueError: no such worker"),
        (lambda _: sys.exit(3), "ScaleExecutors.victims failed: SystemExit: 3"),
        (
            lambda executor: executor.id if executor.id > 2 else "two",
            "ScaleExecutors.victims failed: TypeError: '<' not",
        ),
    ],
)
def test_a_function_that_fails_changes_nothing(victims: Any, error: str) -> None:
    with one_by_one(4) as world:
        with pytest.raises(Refused, match=error):
            world.ask(ScaleExecutors(2, victims))
        world.advance(30)
        assert left(world) == (1, 2, 3, 4)


def test_a_function_that_fails_later_ends_none(caplog: pytest.LogCaptureFixture) -> None:
    with one_by_one(3) as world:
        broken = [False]
        world.ask(ScaleExecutors(2, lambda executor: _fails(executor) if broken[0] else None))
        broken[0] = True
        world.ask(ExecutorIdle(1))
        world.advance(5)
        assert world.running() == 3
        assert "choosing victims failed" in caplog.text
        assert world.ask(ScaleExecutors(2)) == (3,)


def test_a_function_that_exits_later_ends_none_and_no_fleet(caplog: pytest.LogCaptureFixture) -> None:
    with one_by_one(3) as world:
        broken = [False]
        world.ask(ScaleExecutors(2, lambda _: sys.exit(3) if broken[0] else None))
        broken[0] = True
        world.ask(ExecutorIdle(1))
        world.advance(5)
        assert world.running() == 3
        assert "choosing victims failed" in caplog.text


def test_a_function_that_takes_too_long_later_is_not_asked_again_until_the_next_target(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with one_by_one(3) as world:
        asked: list[int] = []

        def victims(executor: Executor) -> None:
            asked.append(executor.id)
            if len(asked) > 3:
                raise TookTooLong

        world.ask(ScaleExecutors(2, victims))
        for _ in range(3):
            world.ask(ExecutorIdle(1))
            world.advance(5)
        assert len(asked) == 4
        assert world.running() == 3
        assert "choosing victims takes too long" in caplog.text
        assert world.ask(ScaleExecutors(2)) == (3,)


def test_scaling_up_creates_what_is_missing() -> None:
    with one_by_one(1) as world:
        world.invariants.retarget(4)
        assert world.ask(ScaleExecutors(4)) == ()
        assert left(world) == (1, 2, 3, 4)


def test_while_the_lease_is_lost_the_target_is_set_and_nothing_is_ended() -> None:
    with one_by_one(4, backend={"lease": True}) as world:
        world.api.outage = True
        world.advance(60)
        assert world.ask(ScaleExecutors(2, "oldest")) == ()
        world.advance(60)
        assert len(names(world)) == 4
        world.api.outage = False
        assert left(world) == (3, 4)


def test_an_allocator_that_starts_again_still_ends_what_is_young_at_once() -> None:
    with one_by_one(2) as world:
        world.kubelet.script = lambda _: StayWaiting()
        world.target(4)
        world.advance(3)
        world.api.fail_next("delete", Refuse(server_error()), times=2)
        world.ask(ScaleExecutors(3))
        world.crash("allocator")
        world.advance(10)
        assert len(names(world)) == 3


@pytest.mark.parametrize("after", [0.0, 0.1, 0.5, 1.0])
def test_as_many_as_are_in_excess_end_when_the_fleet_has_just_begun_to_run(after: float) -> None:
    """The Allocator looks less often than the LifecycleManager: it may not know yet what the driver knows."""
    with fleet(2, seconds=0) as world:
        while len(world.heard(ExecutorRunning)) < 2:
            world.advance(0.01)
        world.advance(after)
        world.invariants.retarget(1)
        assert world.ask(ScaleExecutors(1)) == (2,)
        world.advance(60)
        assert [removed.executor_id for removed in world.heard(ExecutorRemoved)] == [2]
        assert ended(world, 2).kind is LossKind.KILLED_BY_DRIVER
        assert names(world) == [name(1)]


def test_a_function_that_fails_for_lack_of_time_stops_no_other_profiles_rule() -> None:
    is_late = False

    def victims(_: Executor) -> float:
        if is_late:
            raise TimeoutError("the queue does not answer")
        return 0

    with fleet(0, profiles={"b": {"image": "i"}}) as world:
        world.invariants.retarget({"default": 2, "b": 2})
        world.ask(RequestTotalExecutors({"default": 2, "b": 2}))
        world.advance(10)
        profiles = {each.id: each.profile for each in world.ask(GetExecutors()).alive}
        of_b = [executor_id for executor_id, profile in profiles.items() if profile == "b"]
        for executor_id in of_b:
            world.backend.tell(ExecutorBusy(executor_id))
        world.invariants.retarget({"default": 1, "b": 1})
        world.ask(ScaleExecutors({"default": 1}, victims))
        assert world.ask(ScaleExecutors({"b": 1}, "idle")) == ()
        is_late = True
        for executor_id in profiles:
            world.backend.tell(ExecutorIdle(executor_id))
            world.advance(5)
        world.advance(30)
        assert [each.profile for each in world.ask(GetExecutors()).alive].count("b") == 1
