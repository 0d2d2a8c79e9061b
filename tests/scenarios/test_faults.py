"""The whole tree while the API misbehaves: seeded faults of every kind, then calm, then the fleet is whole again."""

from __future__ import annotations

from random import Random

import pytest

from actors.local.faults.kinds import Chances, LoseAnswer
from actors.messages import AllocationBlocked, AllocationUnblocked
from actors.pods.loss import LossKind
from tests.scenarios.seeds import seeds
from tests.scenarios.test_whole_tree import pod_name
from tests.scenarios.world import World

TROUBLE = Chances(
    too_many_requests=0.05,
    server_error=0.05,
    lost_answer=0.05,
    stall=0.02,
    half_open=0.02,
    delay_answer=0.05,
    gone=0.02,
    cut=0.03,
    freeze=0.005,
    lag=0.03,
)
"""Without late requests and stale lists: what the network delivers after its definitive answer breaks invariant 1
by definition, and a consistent list is never stale."""

CRASHABLE = ("watch-source", "poll-source", "snapshot-store", "lifecycle-manager", "allocator", "request-pool")


def troubled(seed: int) -> None:
    """Ten minutes of trouble, then calm: the fleet reaches its target, the stop leaves nothing."""
    random = Random(seed)
    with World(seed, executor={"instances": 5}) as world:
        world.advance(5)
        world.api.chances = TROUBLE
        target = 5
        for _ in range(60):
            match random.randrange(8):
                case 0:
                    target = random.randrange(15)
                    world.target(target)
                case 1 | 2 if pods := world.pods("Running"):
                    world.kubelet.exit(random.choice(pods)["metadata"]["name"], random.choice((0, 1, 137)))
                case 3 if pods := world.pods():
                    grace = random.choice((0, 1, 30))
                    name = random.choice(pods)["metadata"]["name"]
                    world.invariants.taken_by_others(name)
                    world.store.delete("pods", "default", name, grace_period_seconds=grace)
                case 4 if present := sorted(world.invariants.present()):
                    world.kill(random.choice(present))
                case 5:
                    world.api.outage = True
                    world.advance(random.uniform(0, 20))
                    world.api.outage = False
                case 6 if random.random() < 0.3:
                    name = random.choice(CRASHABLE)
                    if world.lives(name):
                        world.crash(name)
                case _:
                    pass
            world.advance(random.uniform(0, 15))
        world.api.calm()
        world.target(15)
        world.advance(200)
        assert world.invariants.alive() == 15, f"{world.invariants.alive()} live, 15 are wanted"
        assert len(world.invariants.present()) == 15, sorted(world.invariants.present())
        assert world.stop().left_behind == ()
        assert world.pods() == []


@pytest.mark.parametrize("seed", seeds(2, of=8))
def test_after_trouble_the_fleet_is_whole_and_no_invariant_broke(seed: int) -> None:
    troubled(seed)


def test_a_post_whose_answer_is_lost_makes_no_second_pod() -> None:
    with World() as world:
        world.advance(1)
        world.api.fail_next("create", LoseAnswer(), times=3)
        world.target(3)
        world.advance(10)
        assert world.invariants.created == 3
        assert world.running() == 3
        world.stop()


def test_a_full_quota_is_reported_once_when_it_begins_and_once_when_it_ends() -> None:
    with World(executor={"instances": 5}) as world:
        world.store.create("resourcequotas", "default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})
        world.advance(60)
        assert world.running() == 2
        (blocked,) = world.heard(AllocationBlocked)
        assert "exceeded quota" in blocked.cause
        world.store.delete("resourcequotas", "default", "q")
        world.advance(90)
        assert world.running() == 5
        assert len(world.heard(AllocationUnblocked)) == 1
        world.stop()


def test_a_relabelled_pod_is_released_and_replaced_though_it_lives() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(30)
        name = pod_name(world, 1)
        world.store.patch("pods", "default", name, {"metadata": {"labels": {"executor-pods/role": "x"}}}, "merge")
        world.advance(5)
        assert world.removals()[1].reason.kind is LossKind.RELEASED
        assert world.running() == 3
        world.stop()


def test_a_watch_that_goes_silent_is_replaced_and_nothing_is_lost() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(5)
        world.api.freeze()
        world.kubelet.exit(pod_name(world, 1), 9)
        world.advance(35)
        assert world.removals()[1].reason.exit_code == 9, "the poll sees what the watch does not"
        world.advance(120)
        world.kubelet.exit(pod_name(world, 2), 9)
        world.advance(0.5)
        assert 2 in world.removals(), "the new watch sees it at once"
        world.stop()
