"""Somebody else deletes executors: how soon they are replaced, and that this does not go on at full speed for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.messages import AllocationBlocked, AllocationUnblocked, FleetFailed, RegisterExecutor
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 10


def delete(world: World, *names: str) -> None:
    for name in names:
        world.invariants.taken_by_others(name)
        world.store.delete("pods", "default", name, grace_period_seconds=0)


def names(world: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in world.pods()]


def delete_all_for(world: World, seconds: float, every: float = 0.5) -> None:
    for _ in range(round(seconds / every)):
        delete(world, *names(world))
        world.advance(every)


def test_what_a_drained_node_takes_is_replaced_at_once_however_young_it_is() -> None:
    with World(executor={"instances": SIZE}) as world:
        world.advance(2)
        assert world.running() == SIZE
        delete(world, *names(world)[:7])
        world.advance(1)
        assert world.running() == SIZE
        assert world.invariants.created == SIZE + 7
        world.advance(60)
        delete(world, *names(world))
        world.advance(1)
        assert world.running() == SIZE, "a second node, later: those before have been of use"
        assert world.heard(AllocationBlocked) == []


def test_executors_lost_one_by_one_with_a_node_cause_no_backoff() -> None:
    with World(executor={"instances": SIZE}) as world:
        world.advance(2)
        for name in names(world):
            delete(world, name)
            world.advance(0.1)
        world.advance(1)
        assert world.running() == SIZE
        assert world.invariants.created == 2 * SIZE


def test_a_client_that_deletes_every_pod_slows_creation_down_and_the_driver_is_notified() -> None:
    with World(executor={"instances": SIZE}) as world:
        world.advance(2)
        delete_all_for(world, 600)
        assert world.invariants.created <= SIZE * 11, "waits of 1, 2, 4 … 256 s, and not two a second"
        blocked = world.heard(AllocationBlocked)
        assert {(each.profile, each.cause) for each in blocked} == {
            ("default", "executors and their replacements are deleted or evicted soon after their start")
        }
        assert world.heard(FleetFailed) == []
        world.advance(310)
        assert world.running() == SIZE, "it never stops for good"
        assert world.heard(AllocationUnblocked)
        world.advance(20)
        delete(world, *names(world))
        world.advance(1)
        assert world.running() == SIZE, "those before have been of use: all is forgotten"


@pytest.mark.parametrize(
    "use",
    [
        lambda world: [world.ask(RegisterExecutor(int(name.rpartition("-")[2]))) for name in names(world)],
        lambda world: world.advance(11),
    ],
    ids=["registered", "after min_run_time"],
)
def test_healthy_executors_are_replaced_at_once_however_often(use: Callable[[World], object]) -> None:
    with World(executor={"instances": SIZE}) as world:
        for times in range(1, 10):
            world.advance(2)
            assert world.running() == SIZE
            assert world.invariants.created == times * SIZE
            use(world)
            delete(world, *names(world))
        world.advance(2)
        assert world.running() == SIZE


def test_a_target_that_changes_every_other_second_causes_no_backoff() -> None:
    with World(executor={"instances": 2}, allocation={"idle_timeout": "1s"}) as world:
        world.kubelet.close()  # pods stay pending
        for _ in range(10):
            world.target(8)
            world.advance(2)
            world.target(2)
            world.advance(3)
        world.target(8)
        world.advance(2)
        assert len(world.pods()) == 8
        assert world.heard(AllocationBlocked) == []
