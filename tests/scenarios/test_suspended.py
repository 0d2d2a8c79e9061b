"""What was asked for while nothing may be written is asked for again: the lease is lost in an outage, and regained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.messages import DecommissionExecutors
from tests.scenarios.fleets import fleet, name, names, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.scenarios.world import World

COST = "controller.kubernetes.io/pod-deletion-cost"


def decommission(world: World) -> None:
    world.backend.tell(DecommissionExecutors((1,)))


def kill(world: World) -> None:
    world.kill(1)


def end(world: World) -> None:
    world.kubelet.exit(name(1), 1)


def grow(world: World) -> None:
    world.target(3)


def metadata(world: World, executor_id: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = pod(world, executor_id)["metadata"]
    return found


@pytest.mark.parametrize(
    ("ask", "executor", "is_done"),
    [
        (
            decommission,
            {"decommission_label": "state=leaving"},
            lambda world: metadata(world)["labels"].get("state") == "leaving",
        ),
        (
            decommission,
            {"decommission_deletion_cost": -1},
            lambda world: metadata(world).get("annotations", {}).get(COST) == "-1",
        ),
        (
            kill,
            {"kill_label": "state=killed", "kill_grace_period": "10m"},
            lambda world: metadata(world)["labels"].get("state") == "killed",
        ),
        (kill, {}, lambda world: name(1) not in names(world)),
        (end, {}, lambda world: name(1) not in names(world)),
        (
            end,
            {"delete_on_termination": False},
            lambda world: metadata(world)["labels"].get("executor-pods/inactive") == "true",
        ),
        (grow, {}, lambda world: world.running() == 3),
    ],
    ids=["decommission label", "deletion cost", "kill label", "kill", "end", "inactive label", "create"],
)
def test_what_the_suspended_pool_dropped_is_asked_for_again(
    ask: Callable[[World], None], executor: dict[str, Any], is_done: Callable[[World], bool]
) -> None:
    with fleet(2, executor=executor, backend={"lease": True}) as world:
        world.api.outage = True
        ask(world)
        world.advance(60)
        assert not is_done(world)
        world.api.outage = False
        world.advance(60)
        assert is_done(world)
