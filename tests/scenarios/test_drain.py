"""Executors that drain: the driver retires them, or somebody else deletes pods that pause before SIGTERM.

The driver here has work: each executor holds results, which are lost when its process ends and which the driver takes
over one by one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import (
    ExecutorBusy,
    ExecutorDisconnected,
    ExecutorDrained,
    ExecutorRemoved,
    ExecutorTerminating,
    GetFleetStatus,
    IsExecutorActive,
    RegisterExecutor,
    RequestTotalExecutors,
    ResumeFleet,
    RetireExecutors,
    ScaleExecutors,
)
from actors.pods.loss import LossKind
from tests.scenarios.fleets import ended, fleet, is_going, name, names, pod

if TYPE_CHECKING:
    from tests.scenarios.world import World

DRAINING = {"drain_timeout": "60s"}
LEAVING = {"decommission_label": "state=leaving", "decommission_deletion_cost": -100}
MINUTE = 60.0


class Work:
    """Results that executors hold. The driver takes over one in a quarter of a second once it hears of their end."""

    def __init__(self, world: World, results: dict[int, int]) -> None:
        self.world = world
        self.held = results
        self.taken = 0
        self.lost = 0

    def go_on(self, seconds: float) -> None:
        """The driver works: it takes over from executors that terminate, and then has them end."""
        for _ in range(int(seconds * 4)):
            self.world.advance(0.25)
            for message in self.world.heard(ExecutorTerminating):
                if self.held.get(message.executor_id):
                    self._take_over(message.executor_id)

    def _take_over(self, executor_id: int) -> None:
        if not self._lives(executor_id):
            self.lost += self.held.pop(executor_id)
            return
        self.held[executor_id] -= 1
        self.taken += 1
        if not self.held[executor_id]:
            self.world.ask(ExecutorDrained(executor_id))
            self.world.kubelet.exit(name(executor_id), 0)

    def _lives(self, executor_id: int) -> bool:
        alive = [each for each in self.world.pods("Running") if each["metadata"]["name"] == name(executor_id)]
        return bool(alive)


def status(world: World) -> Any:
    return world.ask(GetFleetStatus()).profiles["default"]


# ── 14: drained ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("executor", "lost"), [({}, 28), (DRAINING, 0)])
def test_the_results_of_a_deleted_pod_are_lost_without_a_pause_and_taken_over_with_one(
    executor: dict[str, Any], lost: int
) -> None:
    with fleet(3, executor=executor) as world:
        work = Work(world, {1: 28})
        world.invariants.taken_by_others(name(1))
        world.store.delete("pods", "default", name(1))
        work.go_on(20)
        assert (work.lost, work.taken) == (lost, 28 - lost)
        assert names(world) == [name(i) for i in (2, 3, 4)], "it is replaced, and its pause ends with its process"
        assert ended(world, 1).kind is LossKind.DELETED


def test_the_results_of_evicted_retired_and_scaled_down_executors_are_taken_over() -> None:
    with fleet(8, executor=DRAINING) as world:
        work = Work(world, dict.fromkeys(range(1, 9), 10))
        world.invariants.taken_by_others(name(1))
        world.kubelet.disrupt(name(1), "EvictionByEvictionAPI")
        assert world.retire(2, 3) == (2, 3)
        work.go_on(10)
        world.invariants.retarget(6)
        assert world.ask(ScaleExecutors(6, victims="oldest")) == (4, 5)
        work.go_on(10)
        assert (work.lost, work.taken) == (0, 50)
        world.advance(42)  # the pause of the evicted one is served in full
        assert ended(world, 1).kind is LossKind.EVICTED
        assert {ended(world, i).kind for i in (2, 3, 4, 5)} == {LossKind.KILLED_BY_DRIVER}
        assert not any(ended(world, i).caused_by_app for i in (1, 2, 3, 4, 5))
        assert world.running() == 6


# ── 14: retired ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_retired_executor_is_replaced_at_once_and_stays_until_it_is_drained() -> None:
    with fleet(2, executor={**DRAINING, **LEAVING}) as world:
        assert world.retire(1) == (1,)
        (terminating,) = world.heard(ExecutorTerminating)
        assert terminating.reason == "executor 1 was retired by the driver"
        world.advance(3)
        assert not is_going(world, 1)
        assert pod(world, 1)["metadata"]["labels"]["state"] == "leaving"
        assert world.running() == 3
        assert (status(world).running, status(world).retiring, status(world).target) == (3, 1, 2)
        assert not world.ask(IsExecutorActive(1))
        assert world.ask(ExecutorDrained(1))
        world.advance(3)
        assert names(world) == [name(2), name(3)]
        assert status(world).retiring == 0
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER
        assert "was retired by the driver" in ended(world, 1).message


def test_a_stop_that_leaves_the_fleet_leaves_a_retired_executor_that_has_not_drained() -> None:
    with fleet(3, executor=DRAINING) as world:
        world.retire(1, 2)
        world.advance(3)
        world.backend.tell(ExecutorDrained(2))
        assert world.stop(delete_pods=False).left_behind == ()
        assert not is_going(world, 1)
        assert names(world) == [name(1), name(3), name(4), name(5)]
        assert sorted(world.removals()) == [2]


def test_a_retired_executor_is_not_replaced_if_the_target_falls_with_it() -> None:
    with fleet(3, executor=DRAINING) as world:
        world.invariants.retarget(1)
        assert world.retire(1, 2, adjust_target=True) == (1, 2)
        world.advance(30)
        assert (status(world).target, status(world).running, status(world).retiring) == (1, 3, 2)
        world.ask(ExecutorDrained(1))
        world.ask(ExecutorDrained(2))
        world.advance(5)
        assert names(world) == [name(3)]
        assert world.invariants.created == 3


def test_at_its_deadline_a_retired_executor_is_deleted_without_a_pause() -> None:
    with fleet(1, executor=DRAINING) as world:
        world.retire(1)
        world.advance(59)
        assert not is_going(world, 1)
        world.advance(5)
        assert names(world) == [name(2)]
        world.retire(2, deadline=timedelta(seconds=10))
        world.advance(15)
        assert names(world) == [name(3)]


def test_without_a_drain_timeout_a_retired_executor_has_the_grace_of_a_kill() -> None:
    with fleet(1, executor={"kill_grace_period": "7s"}) as world:
        world.retire(1)
        world.advance(6.9)
        assert not is_going(world, 1)
        world.advance(0.2)
        assert names(world) == [name(2)]


@pytest.mark.parametrize("how", ["exits", "is out of memory", "is evicted", "is deleted", "is lost"])
def test_however_a_retired_executor_ends_the_driver_ended_it(how: str) -> None:
    with fleet(2, executor=DRAINING) as world:
        world.retire(1)
        world.advance(5)
        match how:
            case "exits":
                world.kubelet.exit(name(1), 1)
            case "is out of memory":
                world.kubelet.oom(name(1))
            case "is evicted":
                world.kubelet.evict(name(1))
            case "is deleted":
                world.store.delete("pods", "default", name(1))
            case _:
                world.kubelet.lose(name(1))
        world.advance(90)
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER
        assert not ended(world, 1).caused_by_app
        assert world.running() == 2


def test_the_hang_up_of_a_retired_executor_is_no_disconnect() -> None:
    with fleet(2, executor={"drain_timeout": "10m", "disconnect_timeout": "30s"}) as world:
        world.ask(RegisterExecutor(1))
        world.retire(1)
        world.ask(ExecutorDisconnected(1))
        world.advance(5 * MINUTE)
        assert name(1) in names(world)
        assert not world.heard(ExecutorRemoved)


def test_a_retired_executor_that_somebody_else_deletes_was_retired_all_the_same() -> None:
    with fleet(1, executor=DRAINING) as world:
        world.retire(1)
        world.advance(50)
        world.store.delete("pods", "default", name(1))
        world.advance(5)
        assert name(1) in names(world), "it pauses"
        world.kubelet.exit(name(1), 0)
        world.advance(1)
        assert name(1) not in names(world)
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER


def test_neither_the_executor_nor_the_driver_ends_a_pause_in_which_the_node_sleeps() -> None:
    with fleet(1, executor={**DRAINING, "drain_command": []}) as world:
        world.invariants.taken_by_others(name(1))
        world.store.delete("pods", "default", name(1))
        world.advance(5)
        assert world.ask(ExecutorDrained(1))
        world.kubelet.exit(name(1), 0)
        world.advance(54)
        assert name(1) in names(world)
        world.advance(5)
        assert name(1) not in names(world)


def test_an_executor_that_is_not_terminating_cannot_be_drained() -> None:
    with fleet(1, executor=DRAINING) as world:
        assert not world.ask(ExecutorDrained(1))
        assert not world.ask(ExecutorDrained(99))
        world.advance(5)
        assert names(world) == [name(1)]


def test_a_drained_executor_is_deleted_even_if_the_first_request_is_refused() -> None:
    with fleet(1, executor=DRAINING) as world:
        world.retire(1)
        world.advance(2)
        world.inner.forbidden = {("delete", "pods")}
        world.ask(ExecutorDrained(1))
        world.advance(20)
        assert name(1) in names(world)
        world.inner.forbidden = set()
        world.advance(60)
        assert name(1) not in names(world)


@pytest.mark.parametrize("part", ["allocator", "lifecycle-manager", "request-pool"])
def test_a_retired_executor_retires_on_after_a_part_has_crashed(part: str) -> None:
    with fleet(3, executor={**DRAINING, "disconnect_timeout": "20s"}) as world:
        world.retire(1, adjust_target=True)
        world.invariants.retarget(2)
        world.ask(ExecutorDisconnected(1))
        world.crash(part)
        world.advance(40)
        assert (status(world).running, status(world).retiring, world.invariants.created) == (3, 1, 3)
        world.ask(ExecutorDrained(1))
        world.crash(part)
        world.advance(30)
        assert names(world) == [name(2), name(3)]
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER


def test_with_the_policy_failed_a_retired_executor_is_replaced_once_it_has_ended() -> None:
    with fleet(2, executor=DRAINING, allocation={"pod_replacement_policy": "Failed"}) as world:
        world.ask(RetireExecutors((1,)))
        world.advance(30)
        assert len(names(world)) == 2
        world.ask(ExecutorDrained(1))
        world.advance(5)
        assert names(world) == [name(2), name(3)]


def test_one_that_does_not_run_yet_is_deleted_at_once() -> None:
    with fleet(2, seconds=0.3, executor=DRAINING, start_delay=timedelta(minutes=1)) as world:
        assert world.retire(1) == (1,)
        world.advance(3)
        assert names(world) == [name(2), name(3)]


def test_a_rolled_executor_drains_while_its_replacement_runs() -> None:
    with fleet(2, executor=DRAINING, roll={"interval": "2m", "policy": "id"}) as world:
        world.advance(2 * MINUTE)
        assert (world.running(), status(world).retiring) == (3, 1)
        world.advance(MINUTE)
        assert names(world) == [name(2), name(3)]
        assert "was rolled" in ended(world, 1).message


def test_a_stop_deletes_a_fleet_that_drains_without_its_pause() -> None:
    world = fleet(
        3,
        executor={"image": "worker:1", **DRAINING},
        profiles={"plain": {"instances": 1, "drain_timeout": None}},
    )
    with world:
        world.kubelet.script = lambda _: Run()
        world.advance(2)
        assert len(names(world)) == 4
        stopped = world.stop(within=10)
        assert not stopped.left_behind
        assert names(world) == []


# ── 14: on hold ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_on_hold_all_executors_retire_and_none_is_created_until_the_fleet_is_resumed() -> None:
    with fleet(3, executor=DRAINING) as world:
        assert world.hold_fleet() == (3, 2, 1)
        world.ask(ExecutorDrained(2))
        world.advance(30)
        assert world.ask(GetFleetStatus()).on_hold
        assert (status(world).target, status(world).running, status(world).retiring) == (3, 2, 2)
        assert status(world).blocked is None
        world.advance(5 * MINUTE)
        assert names(world) == []
        assert {ended(world, i).kind for i in (1, 2, 3)} == {LossKind.KILLED_BY_DRIVER}
        assert "as the fleet is on hold" in ended(world, 1).message
        world.ask(ResumeFleet())
        world.advance(5)
        assert names(world) == [name(i) for i in (4, 5, 6)]
        assert not world.ask(GetFleetStatus()).on_hold


def test_a_target_that_is_set_on_hold_holds_once_the_fleet_is_resumed() -> None:
    with fleet(2) as world:
        world.hold_fleet()
        world.invariants.retarget(4)
        assert world.ask(RequestTotalExecutors(1))
        assert world.ask(ScaleExecutors(4)) == ()
        world.advance(MINUTE)
        assert names(world) == []
        assert status(world).target == 4
        world.ask(ResumeFleet())
        world.advance(5)
        assert world.running() == 4


@pytest.mark.parametrize("seconds", [0.3, 3])
def test_on_hold_executors_that_do_not_run_yet_are_deleted_without_a_pause(seconds: float) -> None:
    with fleet(3, seconds=seconds, executor=DRAINING, start_delay=timedelta(minutes=1)) as world:
        if seconds < 1:
            world.kubelet.run(name(1))  # no snapshot has it yet
        world.hold_fleet()
        world.advance(5)
        assert names(world) == []


def test_on_hold_an_executor_that_begins_to_run_all_the_same_retires() -> None:
    with fleet(2, seconds=3, executor=DRAINING, start_delay=timedelta(minutes=1)) as world:
        world.inner.forbidden = {("delete", "pods")}
        world.hold_fleet(deadline=timedelta(seconds=20))
        world.kubelet.run(name(1))
        world.advance(3)
        assert status(world).retiring == 1
        world.inner.forbidden = set()
        world.advance(60)
        assert names(world) == []
        assert "on hold" in ended(world, 1).message


@pytest.mark.parametrize("part", ["allocator", "lifecycle-manager", "snapshot-store"])
def test_a_hold_survives_the_crash_of_a_part(part: str) -> None:
    with fleet(2) as world:
        world.hold_fleet()
        world.advance(1)
        world.crash(part)
        world.advance(2 * MINUTE)
        assert names(world) == []
        assert world.invariants.created == 2
        assert world.ask(GetFleetStatus()).on_hold
        world.ask(ResumeFleet())
        world.advance(30)
        assert world.running() == 2


def test_a_fleet_that_is_resumed_while_executors_retire_has_its_target_beside_them() -> None:
    with fleet(2, executor=DRAINING) as world:
        world.hold_fleet()
        world.advance(5)
        world.ask(ResumeFleet())
        world.advance(5)
        assert (status(world).running, status(world).retiring) == (4, 2)
        world.advance(2 * MINUTE)
        assert names(world) == [name(3), name(4)]


def test_every_profile_is_on_hold_busy_executors_too() -> None:
    profiles = {"gpu": {"instances": 2, "drain_timeout": "90s"}}
    with fleet(1, seconds=0, executor=DRAINING, profiles=profiles) as world:
        world.invariants.retarget({"default": 1, "gpu": 2})
        world.advance(5)
        world.ask(ExecutorBusy(1))
        world.ask(ScaleExecutors({"gpu": 2}, victims="idle"))
        assert len(world.hold_fleet()) == 3
        world.advance(80)
        assert len(names(world)) == 2
        world.advance(20)
        assert names(world) == []


def test_a_fleet_on_hold_can_be_stopped() -> None:
    with fleet(2, executor=DRAINING) as world:
        world.hold_fleet()
        assert not world.stop(within=10).left_behind
        assert names(world) == []
