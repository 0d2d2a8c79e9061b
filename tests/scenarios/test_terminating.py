"""Executors that a driver asks to go, in the whole tree: killed, decommissioned, rolled.

Lines 13 and 14 of the issue "Allocate and account for executors under every condition".
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.local.faults.kinds import DelayRequest, LoseAnswer
from actors.local.kubelet.scripted_kubelet import Run, StayWaiting
from actors.messages import (
    DecommissionExecutors,
    ExecutorDisconnected,
    ExecutorRemoved,
    ExecutorTerminating,
    GetExecutorIds,
    GetFleetStatus,
    KillExecutors,
    RegisterExecutor,
    RetireExecutors,
    StopBackend,
)
from actors.pods.loss import LossKind
from tests.scenarios.fleets import PARTS, ended, fleet, is_going, name, names, patch, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.executors.roll import Candidate
    from actors.local.faults.kinds import Fault
    from tests.scenarios.world import World

SLOW = Run(stop_delay=timedelta(seconds=20))
"""It takes this long to end when it is asked to."""


def labels(world: World, executor_id: int) -> dict[str, str]:
    found: dict[str, str] = pod(world, executor_id)["metadata"]["labels"]
    return found


def target(world: World) -> int:
    status = world.ask(GetFleetStatus())
    return int(status.profiles["default"].target)


# ── 13: killed ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_killed_one_is_labelled_and_announced_at_once_and_deleted_when_its_time_is_over() -> None:
    with fleet(2, executor={"kill_label": "example.com/state=killed"}) as world:
        world.kubelet.script = lambda _: SLOW
        world.target(3)
        world.advance(5)
        world.kill(3)
        world.advance(0.1)
        assert isinstance(world.about(3)[-1], ExecutorTerminating)
        assert labels(world, 3)["example.com/state"] == "killed"
        assert "example.com/state" not in labels(world, 2)
        world.advance(4.8)
        assert not is_going(world, 3)
        world.advance(0.2)
        assert is_going(world, 3)
        assert world.removals() == {}, "it has not ended yet"
        world.advance(20)
        assert ended(world, 3).kind is LossKind.KILLED_BY_DRIVER
        assert names(world) == [name(1), name(2), name(4)]


def test_one_that_does_not_run_yet_is_deleted_at_once() -> None:
    with fleet(1) as world:
        world.kubelet.script = lambda _: StayWaiting()
        world.target(2)
        world.advance(5)
        world.kill(2)
        world.advance(0.1)
        assert name(2) not in names(world)
        assert ended(world, 2).kind is LossKind.KILLED_BY_DRIVER


def test_killed_excess_does_not_lower_the_target_that_was_lowered_before() -> None:
    """Twelve run; the driver wants three, and ends the nine in excess, which only it may choose."""
    with fleet(12) as world:
        world.target(3)
        world.advance(2)
        world.backend.tell(KillExecutors((1, 2, 3, 4, 5, 6, 7), adjust_target=True))
        world.advance(20)
        assert (target(world), world.running()) == (3, 5)
        world.backend.tell(KillExecutors((8, 9, 10), adjust_target=True))
        world.advance(20)
        assert (target(world), world.running()) == (2, 2), "two were in excess, the third was not"
        world.stop()


def test_executors_killed_while_others_are_still_missing_lower_the_target_by_their_number() -> None:
    with fleet(4) as world:
        world.kubelet.script = lambda _: StayWaiting()
        world.target(12)
        world.advance(5)
        world.backend.tell(KillExecutors((1, 2, 5), adjust_target=True))
        world.advance(20)
        assert (target(world), len(names(world))) == (9, 9)
        world.stop()


@pytest.mark.parametrize("code", [0, 3])
def test_one_that_ends_by_itself_within_its_time_was_ended_by_the_driver(code: int) -> None:
    with fleet(1) as world:
        world.kill(1)
        world.advance(3)
        world.kubelet.exit(name(1), code)
        world.advance(60)
        reason = ended(world, 1)
        assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.KILLED_BY_DRIVER, code, False)


def test_one_that_had_run_out_of_memory_before_it_was_killed_did_so() -> None:
    with fleet(1) as world:
        world.api.stall()
        world.kubelet.oom(name(1))
        world.advance(2)
        world.kill(1)
        world.advance(8)
        world.api.resume()
        world.advance(60)
        assert ended(world, 1).kind is LossKind.OOM_KILLED


def test_ids_that_are_unknown_or_done_with_are_left_out_of_the_answer() -> None:
    with fleet(2) as world:
        world.kubelet.exit(name(1), 0)
        world.advance(1)
        assert world.ask(KillExecutors((1, 2, 77))) == (2,)
        world.advance(60)
        assert sorted(world.removals()) == [1, 2]


def test_a_second_kill_changes_nothing() -> None:
    with fleet(1) as world:
        world.kill(1)
        world.advance(3)
        assert world.ask(KillExecutors((1,))) == (1,)
        world.advance(2.1)
        assert name(1) not in names(world), "its time was not made longer"
        world.advance(60)
        assert [type(m) for m in world.about(1)[-2:]] == [ExecutorTerminating, ExecutorRemoved]
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER


def test_the_target_falls_once_with_each_killed_executor_if_asked_to() -> None:
    with fleet(4) as world:
        for _ in range(2):
            assert world.ask(KillExecutors((1, 2, 99), adjust_target=True)) == (1, 2)
        world.advance(60)
        assert target(world) == 2
        assert names(world) == [name(3), name(4)]


def test_a_kill_while_the_api_is_away_is_done_when_it_is_back() -> None:
    with fleet(1) as world:
        world.api.outage = True
        world.kill(1)
        world.advance(180)
        assert isinstance(world.about(1)[-1], ExecutorTerminating)
        world.api.outage = False
        world.advance(60)
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER
        assert names(world) == [name(2)]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("after", [0.0, 4.999, 5.002])
def test_a_crash_between_kill_and_deletion_loses_nothing(part: str, after: float) -> None:
    with fleet(2) as world:
        world.kill(1)
        world.advance(after)
        world.crash(part)
        world.advance(60)
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER
        assert names(world) == [name(2), name(3)]


@pytest.mark.parametrize("fault", [DelayRequest(timedelta(seconds=3)), LoseAnswer(), None])
def test_one_whose_request_is_still_under_way_never_comes_to_live(fault: Fault | None) -> None:
    with fleet(0) as world:
        if fault is not None:
            world.api.fail_next("create", fault)
        world.target(1)
        world.kit.settle()
        assert world.ask(KillExecutors((1,), adjust_target=True)) == (1,)
        world.advance(60)
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER
        assert names(world) == []
        assert world.ask(GetExecutorIds()) == ()


def test_a_stop_that_leaves_the_fleet_ends_those_that_were_killed() -> None:
    with fleet(2) as world:
        world.kill(1)
        world.advance(1)
        assert world.stop(delete_pods=False).left_behind == ()
        assert names(world) == [name(2)]
        reason = ended(world, 1)
        assert (reason.kind, reason.message) == (LossKind.KILLED_BY_DRIVER, "executor 1 was ended by the driver")
        assert sorted(world.removals()) == [1], "the other one lives on"
        world.restart()
        world.advance(60)
        assert world.about(1) == []
        assert names(world) == [name(2), name(3)]
        world.stop()


@pytest.mark.parametrize("after", [0.0, 0.004, 0.1])
def test_a_stop_that_leaves_the_fleet_waits_for_a_deletion_under_way(after: float) -> None:
    with fleet(1) as world:
        world.kubelet.script = lambda _: StayWaiting()
        world.target(3)
        world.advance(5)
        world.kill(2)
        world.advance(after)
        world.stop(delete_pods=False)
        assert {name(1), name(3)} <= set(names(world))
        assert name(2) not in names(world)
        assert ended(world, 2).kind is LossKind.KILLED_BY_DRIVER


def test_a_stop_that_leaves_the_fleet_deletes_a_killed_one_whose_request_is_still_under_way() -> None:
    with fleet(0) as world:
        world.api.fail_next("create", DelayRequest(timedelta(seconds=3)))
        world.target(2)
        world.kit.settle()
        world.kill(1)
        world.stop(delete_pods=False)
        assert names(world) == [name(2)]


def test_a_stop_that_leaves_the_fleet_reports_when_a_killed_one_ends_that_has_longer() -> None:
    with fleet(2, executor={"stop_grace_period": "30s"}, backend={"shutdown_timeout": "15s"}) as world:
        world.kubelet.script = lambda _: SLOW
        world.kubelet.exit(name(1), 0)
        world.advance(5)
        world.kill(3)
        assert world.stop(delete_pods=False, within=16).left_behind == ()
        assert is_going(world, 3)
        assert sorted(world.removals()) == [1, 3]
        assert "its pod terminates, and ends by" in world.removals()[3].reason.message
        world.advance(10)
        assert names(world) == [name(2)]


def test_a_stop_that_leaves_the_fleet_in_an_outage_names_those_that_were_killed() -> None:
    with fleet(2) as world:
        world.kill(1)
        world.api.outage = True
        assert world.stop(delete_pods=False).left_behind == (name(1),)
        assert world.removals() == {}


# ── 14: decommissioned ───────────────────────────────────────────────────────────────────────────────────────────────

LEAVING = {"decommission_label": "example.com/state=leaving", "decommission_deletion_cost": -100}


def leaves(world: World, executor_id: int) -> bool:
    """Whether its pod is marked as the settings have it."""
    metadata = pod(world, executor_id)["metadata"]
    cost = metadata.get("annotations", {}).get("controller.kubernetes.io/pod-deletion-cost")
    return (metadata["labels"].get("example.com/state"), cost) == ("leaving", "-100")


def decommission(world: World, *executor_ids: int) -> None:
    assert world.ask(DecommissionExecutors(executor_ids)) == executor_ids
    world.advance(0.1)


def test_a_decommissioned_one_is_marked_and_not_replaced_before_it_has_finished() -> None:
    with fleet(2, executor=LEAVING) as world:
        decommission(world, 1)
        assert (leaves(world, 1), leaves(world, 2)) == (True, False)
        world.advance(600)
        assert names(world) == [name(1), name(2)]
        world.kubelet.exit(name(1), 0)
        world.advance(5)
        reason = ended(world, 1)
        assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.KILLED_BY_DRIVER, 0, False)
        assert "finished, as the driver had requested" in reason.message
        assert names(world) == [name(2), name(3)]


def test_a_decommissioned_one_that_fails_exited() -> None:
    with fleet(1, executor=LEAVING) as world:
        decommission(world, 1)
        world.kubelet.exit(name(1), 3)
        world.advance(5)
        assert (ended(world, 1).kind, ended(world, 1).caused_by_app) == (LossKind.EXITED, True)


@pytest.mark.parametrize("finishing", [True, False])
def test_a_decommissioned_one_is_not_replaced_while_it_terminates_as_another_is(*, finishing: bool) -> None:
    with fleet(0) as world:
        world.kubelet.script = lambda _: SLOW
        world.target(1)
        world.advance(5)
        if finishing:
            decommission(world, 1)
        world.kill(1)
        world.advance(10)
        assert is_going(world, 1)
        assert names(world) == ([name(1)] if finishing else [name(1), name(2)])
        world.advance(20)
        assert names(world) == [name(2)]


@pytest.mark.parametrize("part", PARTS)
def test_a_restart_remembers_who_was_decommissioned(part: str) -> None:
    with fleet(0, executor=LEAVING) as world:
        world.kubelet.script = lambda _: SLOW
        world.target(2)
        world.advance(5)
        decommission(world, 1)
        world.crash(part)
        world.advance(20)
        world.store.delete("pods", "default", name(1), grace_period_seconds=30)
        world.advance(15)
        assert names(world) == [name(1), name(2)]
        world.advance(10)
        assert names(world) == [name(2), name(3)]


def test_decommissioned_ids_that_are_unknown_or_done_with_are_left_out_of_the_answer() -> None:
    with fleet(2) as world:
        world.kubelet.exit(name(1), 0)
        world.advance(1)
        assert world.ask(DecommissionExecutors((1, 2, 77))) == (2,)


def test_one_that_is_decommissioned_before_it_came_up_is_marked_when_it_does() -> None:
    with fleet(0, executor=LEAVING) as world:
        world.api.fail_next("create", DelayRequest(timedelta(seconds=3)))
        world.target(1)
        world.kit.settle()
        decommission(world, 1)
        world.advance(5)
        assert leaves(world, 1)


@pytest.mark.parametrize("part", PARTS)
def test_a_mark_that_a_crash_lost_is_made_after_all(part: str) -> None:
    with fleet(1, executor=LEAVING) as world:
        world.api.outage = True
        decommission(world, 1)
        world.crash(part)
        world.advance(10)
        world.api.outage = False
        world.advance(60)
        assert leaves(world, 1)


# ── 14: rolled ───────────────────────────────────────────────────────────────────────────────────────────────────────


def replaced(world: World, *, minutes: int) -> list[int]:
    """Who is rolled in so many minutes, in order, while the fleet never shrinks by two."""
    for _ in range(minutes * 60):
        world.advance(1)
        assert world.running() >= 2, "two were rolled at a time"
    assert target(world) == 3
    return list(world.removals())


def test_every_interval_the_one_of_the_lowest_id_is_replaced_and_the_target_kept() -> None:
    with fleet(3, executor=LEAVING, roll={"interval": "2m", "policy": "id"}) as world:
        assert replaced(world, minutes=7) == [1, 2, 3]
        world.advance(10)
        assert names(world) == [name(4), name(5), name(6)]
        reason = ended(world, 1)
        assert reason.kind is LossKind.KILLED_BY_DRIVER
        assert "executor 1 (pod app-exec-1) was rolled, for a new one to take its place" in reason.message


def test_a_rolled_one_is_marked_as_leaving_and_announced() -> None:
    with fleet(3, executor=LEAVING, roll={"interval": "2m"}) as world:
        world.advance(116)
        assert leaves(world, 1)
        terminating = world.about(1)[-1]
        assert isinstance(terminating, ExecutorTerminating)
        assert "rolled" in terminating.reason


def test_by_age_the_one_that_came_first_is_rolled() -> None:
    with fleet(0, roll={"interval": "1m", "policy": "age"}) as world:
        world.api.fail_next("create", DelayRequest(timedelta(seconds=3)))
        world.target(3)
        world.advance(10)
        assert replaced(world, minutes=3) == [2, 3, 1]


def test_by_age_the_one_that_has_run_the_longest_is_rolled_and_not_the_one_that_was_pending_the_longest() -> None:
    with fleet(0, roll={"interval": "1m", "policy": "age"}) as world:
        delays = iter([20, 1, 5])
        world.kubelet.script = lambda _: Run(start_delay=timedelta(seconds=next(delays, 1)))
        world.target(3)
        world.advance(50)
        assert replaced(world, minutes=3) == [2, 3, 1]


def test_by_age_one_that_was_taken_over_has_run_since_its_pod_was_started() -> None:
    with fleet(0, roll={"interval": "1m", "policy": "age"}) as world:
        delays = iter([20, 1, 5])
        world.kubelet.script = lambda _: Run(start_delay=timedelta(seconds=next(delays, 1)))
        world.target(3)
        world.advance(30)
        world.stop(delete_pods=False, within=5)
        world.restart()
        world.target(3)
        world.advance(50)
        assert replaced(world, minutes=3) == [2, 3, 1]


def test_by_failures_the_disconnected_executor_is_rolled_and_then_none() -> None:
    with fleet(3, roll={"interval": "1m", "policy": "failures"}) as world:
        for executor_id in (1, 2, 2):
            world.ask(ExecutorDisconnected(executor_id))
            world.ask(RegisterExecutor(executor_id))
        assert replaced(world, minutes=6) == [2, 1]


def test_a_policy_of_the_drivers_own_chooses_among_those_that_run_by_id() -> None:
    shown: list[list[int]] = []

    def last(among: Sequence[Candidate]) -> int | None:
        shown.append([candidate.executor_id for candidate in among])
        return among[-1].executor_id if len(shown) < 3 else None

    with fleet(3, roll={"interval": "1m"}, roll_policy=last) as world:
        assert replaced(world, minutes=6) == [3, 4]
        assert shown[:3] == [[1, 2, 3], [1, 2, 4], [1, 2, 5]]


def boom(_: Sequence[Candidate]) -> int | None:
    raise RuntimeError("no metrics yet")


@pytest.mark.parametrize("policy", [boom, lambda _: 99, lambda _: None], ids=["raises", "names a stranger", "nobody"])
def test_a_policy_that_fails_or_names_no_executor_harms_nothing(policy: object) -> None:
    with fleet(3, roll={"interval": "1m"}, roll_policy=policy) as world:
        assert replaced(world, minutes=5) == []
        assert world.backend.is_alive()


def test_no_executor_is_rolled_while_the_fleet_is_below_its_target() -> None:
    with fleet(3, roll={"interval": "1m"}) as world:
        world.kubelet.script = lambda _: StayWaiting()
        world.kubelet.exit(name(2), 0)
        assert replaced(world, minutes=8) == [2]


def test_no_executor_is_rolled_while_another_one_finishes() -> None:
    with fleet(3, roll={"interval": "1m"}) as world:
        decommission(world, 2)
        assert replaced(world, minutes=4) == []
        world.kubelet.exit(name(2), 0)
        assert replaced(world, minutes=2) == [2, 1, 3]


def test_no_executor_is_rolled_while_the_backend_stops() -> None:
    with fleet(3, roll={"interval": "10s"}) as world:
        world.api.outage = True
        world.backend.tell(StopBackend())
        world.advance(29)
        assert world.backend.is_alive()
        assert world.heard(ExecutorTerminating) == []


def test_an_interval_shorter_than_the_grace_rolls_one_at_a_time_all_the_same() -> None:
    with fleet(3, executor={"kill_grace_period": "10s"}, roll={"interval": "1s"}) as world:
        assert len(replaced(world, minutes=1)) >= 3


@pytest.mark.parametrize(
    "executor",
    [{"decommission_label": None}, {"decommission_label": None, "kill_label": "example.com/state=killed"}, {}],
    ids=["no label", "the kill label only", "its own label"],
)
@pytest.mark.parametrize("retires", [False, True])
def test_a_deletion_cost_takes_one_patch(executor: dict[str, Any], *, retires: bool) -> None:
    with fleet(2, executor={**LEAVING, "kill_grace_period": "10m", **executor}) as world:
        world.advance(40)
        asked_before = world.api.asked.copy()
        if retires:
            world.ask(RetireExecutors((1,)))
        else:
            decommission(world, 1)
        for _ in range(4):
            world.advance(40)
            patch(world, 1, labels={"some": f"change-{world.kit.clock.monotonic():.0f}"})
        cost = pod(world, 1)["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"]
        assert cost == "-100"
        asked = [operation for _, operation in world.api.asked[len(asked_before) :]]
        assert asked.count("patch") == 1


def test_a_deletion_cost_takes_one_patch_however_seldom_the_fleet_is_listed() -> None:
    with fleet(2, executor={"decommission_deletion_cost": -100, "api_polling_interval": "10m"}) as world:
        asked_before = len(world.api.asked)
        for executor_id in (1, 2):
            decommission(world, executor_id)
            world.advance(200)
        world.advance(1200)
        asked = [operation for _, operation in world.api.asked[asked_before:]]
        assert asked.count("list") >= 2
        assert asked.count("patch") == 2
