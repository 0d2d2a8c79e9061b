"""The whole tree with a bound on what it may ask of the API."""

from __future__ import annotations

from itertools import pairwise

from tests.scenarios.world import World


def test_a_fleet_with_a_request_budget_grows_and_shrinks_within_it() -> None:
    with World(executor={"instances": 30}, allocation={"max_requests_per_second": 5}) as world:
        world.advance(1)
        made = [world.invariants.created]
        for _ in range(7):
            world.advance(1)
            made.append(world.invariants.created)
        assert made[0] <= 10, "a second's worth at once, and what the first second brought"
        assert all(later - earlier <= 5 for earlier, later in pairwise(made)), made
        assert made[-1] == 30
        world.kill(*range(1, 11))
        world.advance(10)
        assert world.running() == 30
        assert world.stop().left_behind == ()
