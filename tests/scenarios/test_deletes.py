"""DELETEs in the whole tree: how many are sent, to which pods never, and what finalizers hold."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.local.faults.kinds import server_error
from actors.messages import GetFleetStatus
from actors.pods.loss import LossKind
from actors.pods.pod import ROLE_LABEL
from tests.scenarios.fleets import ended, fleet, name, names, patch
from tests.scenarios.test_rights import Restricted

if TYPE_CHECKING:
    from actors.messages import FleetStatus
    from tests.scenarios.world import World

HOLD = "example.com/hold"


def deletes(world: World) -> int:
    """Return how many DELETEs of single pods were sent."""
    return sum(operation == "delete" for _, operation in world.api.asked)


def hold(world: World, *executor_ids: int) -> None:
    """Have a finalizer hold these pods, and end their executors."""
    for executor_id in executor_ids:
        patch(world, executor_id, finalizers=[HOLD])
        world.kubelet.exit(name(executor_id), 1)


def release(world: World, executor_id: int) -> None:
    """Relabel a pod, so that it leaves the fleet."""
    patch(world, executor_id, labels={ROLE_LABEL: "other"})


def status(world: World) -> FleetStatus:
    answer: FleetStatus = world.ask(GetFleetStatus())
    return answer


# ── how many ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("executors", "held", "latency"),
    [(60, 50, 0.5), pytest.param(600, 500, 0.05, marks=pytest.mark.stress)],
)
def test_held_pods_keep_no_executor_waiting(executors: int, held: int, latency: float) -> None:
    """All that are wanted run within 30 s, and each held pod costs one DELETE in ten minutes."""
    with fleet(executors, seconds=60, latency=timedelta(seconds=latency)) as world:
        assert world.running() == executors
        hold(world, *range(1, held + 1))
        world.advance(30)
        assert world.running() == executors
        world.advance(570)
        assert deletes(world) <= 1.1 * held


def test_ten_held_pods_cost_ten_deletes_in_ten_minutes() -> None:
    with fleet(10) as world:
        hold(world, *range(1, 11))
        world.advance(600)
        assert deletes(world) == 10


def test_a_half_open_watch_repeats_no_delete() -> None:
    with fleet(100) as world:
        world.api.stall()
        for executor_id in range(1, 101):
            world.kubelet.exit(name(executor_id), 1)
        world.advance(90)
        assert deletes(world) == 100
        assert world.running() == 100


def test_excess_executors_that_a_half_open_watch_still_shows_are_deleted_once() -> None:
    with fleet(1, seconds=5, start_delay=timedelta(hours=1), allocation={"idle_timeout": "1s"}) as world:
        world.target(11)
        world.advance(3)
        world.api.freeze()
        world.target(1)
        world.advance(25)
        assert deletes(world) == 10


def test_a_pod_that_a_restored_backup_shows_anew_is_deleted_again() -> None:
    with fleet(1) as world:
        world.kubelet.exit(name(1), 1)
        backup = world.store.snapshot()
        world.advance(10)
        assert name(1) not in names(world)
        world.restore(backup)
        world.advance(120)
        assert name(1) not in names(world)


# ── what is held ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_driver_and_the_log_hear_what_finalizers_hold_and_since_when(caplog: pytest.LogCaptureFixture) -> None:
    with fleet(3) as world:
        patch(world, 3, finalizers=["example.com/other"])
        at = world.kit.clock.now()
        hold(world, 1, 2)
        world.advance(50)
        shown = [(pod.executor_id, pod.pod_name, pod.finalizers) for pod in status(world).held]
        assert shown == [(1, name(1), (HOLD,)), (2, name(2), (HOLD,))], "a finalizer of a pod that lives holds nothing"
        assert all(timedelta() <= pod.since - at <= timedelta(seconds=2) for pod in status(world).held)
        assert "held" not in caplog.text, "many finalizers are removed after a moment"
        world.advance(600)
        lines = [record.getMessage() for record in caplog.records if "held" in record.getMessage()]
        assert [line.partition(" finalizers=")[0] for line in lines] == [
            f"pod held by finalizers: executor={executor_id} pod={name(executor_id)}" for executor_id in (1, 2)
        ]
        patch(world, 1, finalizers=None)
        patch(world, 2, finalizers=None)
        world.advance(5)
        assert status(world).held == ()


# ── what left the fleet ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_that_was_relabelled_while_its_deletion_was_refused_is_left_alone() -> None:
    with Restricted(executor={"instances": 2}) as world:
        world.advance(5)
        world.forbid("delete", "deletecollection")
        world.kill(1)
        world.advance(20)
        release(world, 1)
        world.advance(5)
        assert ended(world, 1).kind is LossKind.RELEASED
        world.forbid()
        before = deletes(world)
        world.advance(300)
        assert name(1) in names(world)
        assert deletes(world) == before


@pytest.mark.parametrize("watching", [True, False])
def test_a_pod_that_was_relabelled_while_its_deletion_was_retried_is_left_alone(*, watching: bool) -> None:
    """Also if only a LIST shows that it has left."""
    with fleet(2, executor={"kill_grace_period": "1s"}) as world:
        for operation in ("delete", "delete_collection"):
            world.api.fail_next(operation, server_error(), times=7)
        if not watching:
            world.api.freeze()
        world.kill(1)
        world.advance(3)
        release(world, 1)
        world.advance(300)
        assert name(1) in names(world)
