"""The driver hears of the end of each executor that it knows, and of no other, whatever it does and whatever happens.

The invariants of every scenario say so, too. Here the driver also registers executors that nobody has observed yet.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pytest

from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import ExecutorPending, ExecutorRemoved, RegisterExecutor, StopBackend
from actors.pods.loss import LossKind
from tests.scenarios.fleets import PARTS, ended, fleet, name, names
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 6
"""Executors at a time."""

STEPS = 25


def register(world: World, executor_id: int) -> bool:
    accepted: bool = world.ask(RegisterExecutor(executor_id))
    if accepted:
        world.invariants.knows(executor_id)
    return accepted


def unseen(world: World) -> World:
    """Executor 2 is created and registered, and no source shows its pod."""
    world.advance(0.5)
    world.api.stall()
    world.target(2)
    world.advance(0.5)
    assert name(2) in names(world)
    assert register(world, 2)
    assert world.about(2) == []
    return world


def test_an_executor_that_registers_before_it_is_observed_and_ends_is_reported_pending_before_its_end() -> None:
    with fleet(1) as world:
        world.kubelet.script = lambda _: Run(start_delay=timedelta(0), exits_after=timedelta(seconds=1), exit_code=3)
        unseen(world)
        world.advance(120)
        assert [type(message) for message in world.about(2)] == [ExecutorPending, ExecutorRemoved]
        assert ended(world, 2).exit_code == 3


def test_the_end_of_an_executor_that_registered_and_that_nobody_ever_observed_is_reported() -> None:
    with fleet(1) as world:
        unseen(world)
        world.store.delete("pods", "default", name(2), grace_period_seconds=0)
        world.advance(200)
        assert [type(message) for message in world.about(2)] == [ExecutorRemoved]
        assert ended(world, 2).kind in {LossKind.NEVER_STARTED, LossKind.MISSING}


def test_a_stop_reports_the_end_of_an_executor_that_registered_and_that_nobody_observed() -> None:
    with fleet(1) as world:
        unseen(world)
        world.backend.tell(StopBackend())
        world.advance(60)
        assert [type(message) for message in world.about(2)] == [ExecutorRemoved]


def some_pod(world: World, random: Random, what: Callable[[str], object]) -> None:
    if found := names(world):
        what(random.choice(found))


@pytest.mark.parametrize("seed", range(6))
def test_ends_are_reported_once_and_only_of_executors_that_the_driver_knows(seed: int) -> None:
    random = Random(seed)
    with World(seed, executor={"instances": 2, "delete_on_termination": seed % 2 == 0}) as world:

        def some_id() -> int:
            return random.randint(1, world.invariants.created + 2)

        steps: list[Callable[[], object]] = [
            lambda: world.target(random.randint(0, MOST)),
            lambda: world.kill(some_id()),
            lambda: register(world, some_id()),
            lambda: register(world, world.invariants.created + 1),
            world.api.stall,
            world.api.cut,
            lambda: world.crash(random.choice(PARTS)),
            lambda: some_pod(
                world, random, lambda pod: world.store.delete("pods", "default", pod, grace_period_seconds=0)
            ),
            lambda: some_pod(
                world, random, lambda pod: world.store.delete("pods", "default", pod, grace_period_seconds=5)
            ),
            lambda: some_pod(world, random, lambda pod: world.kubelet.exit(pod, random.randint(0, 1))),
        ]
        for _ in range(STEPS):
            with suppress(LookupError):  # a pod that has ended, an actor that is being restarted
                random.choice(steps)()
            world.advance(random.choice((0, 0.01, 0.3, 1, 5, 30)))
        world.backend.tell(StopBackend(delete_pods=True))
        world.advance(60)
