"""A driver that starts again takes over what lives; and what a driver is answered about its fleet.

Lines 5 (adoption) and 16 of the issue "Allocate and account for executors under every condition".
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Forbidden
from actors.local.faults.kinds import DelayRequest, server_error
from actors.messages import (
    BackendStarted,
    ExecutorDisconnected,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    FleetStatus,
    GetExecutorIds,
    GetFleetStatus,
    RegisterExecutor,
    StopBackend,
)
from actors.pods.loss import LossKind
from actors.pods.pod import ROLE_LABEL
from tests.scenarios.fleets import PARTS, ended, fleet, name, names, patch, pod
from tests.scenarios.seeds import seeds
from tests.scenarios.world import World

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.local.faults.kinds import Fault
    from actors.local.kubelet.scripted_kubelet import ScriptedKubelet
    from tests.scenarios.world import WatchedApi


# ── 5: adoption ──────────────────────────────────────────────────────────────────────────────────────────────────────


def again(world: World, *, seconds: float = 10) -> None:
    """Another driver process takes over where the last one left off."""
    world.restart()
    world.advance(seconds)


def test_live_executors_are_reported_as_running_ended_ones_deleted_and_ids_continued() -> None:
    with fleet(4) as world:
        world.stop(delete_pods=False)
        world.kubelet.exit(name(2), 1)
        world.store.delete("pods", "default", name(3), grace_period_seconds=0)
        again(world)
        told = [message for message in world.heard(object) if not isinstance(message, BackendStarted)]
        assert {type(message) for message in told} == {ExecutorRunning, ExecutorPending}
        assert [message.executor_id for message in world.heard(ExecutorRunning)] == [1, 4, 5, 6]
        assert names(world) == [name(1), name(4), name(5), name(6)]
        assert world.ask(GetExecutorIds()) == (1, 4, 5, 6)


def test_ids_are_counted_on_from_one_that_had_ended() -> None:
    with fleet(3) as world:
        world.stop(delete_pods=False)
        world.kubelet.exit(name(3), 1)
        again(world)
        assert names(world) == [name(1), name(2), name(4)]


def test_an_adopted_one_is_like_any_other() -> None:
    with fleet(3) as world:
        world.stop(delete_pods=False)
        again(world)
        assert world.ask(RegisterExecutor(1))
        world.kubelet.oom(name(1))
        world.kill(2)
        world.backend.tell(ExecutorDisconnected(3))
        world.advance(200)
        kinds = {executor_id: ended(world, executor_id).kind for executor_id in (1, 2, 3)}
        assert kinds == {1: LossKind.OOM_KILLED, 2: LossKind.KILLED_BY_DRIVER, 3: LossKind.DISCONNECTED}
        assert names(world) == [name(4), name(5), name(6)]
        assert world.stop().left_behind == ()
        assert names(world) == []


def test_an_adopted_executor_that_ended_long_ago_is_not_reported_again_though_its_pod_is_back() -> None:
    """This life has made none of its own: no id says by its number that it was given out before."""
    with fleet(3) as world:
        world.stop(delete_pods=False)
        again(world)
        world.target(2)
        world.invariants.taken_by_others(name(1))
        uid = pod(world, 1)["metadata"]["uid"]
        patch(world, 1, labels={ROLE_LABEL: "pet"})
        world.advance(900)
        assert ended(world, 1).kind is LossKind.RELEASED
        world.invariants.back_again(uid)
        patch(world, 1, labels={ROLE_LABEL: "executor"})
        world.advance(60)
        assert ended(world, 1).kind is LossKind.RELEASED
        assert [message.executor_id for message in world.heard(ExecutorRunning)] == [1, 2, 3]
        assert names(world) == [name(2), name(3)], "its id is used up"


@pytest.mark.parametrize("seed", seeds(2, of=5))
def test_ten_drivers_in_a_row_end_with_exactly_the_target(seed: int) -> None:
    with World(seed, executor={"instances": 5}) as world:
        for life in range(10):
            world.advance(0.3 * life)
            world.backend.stop()
            world.kit.settle()
            world.restart()
        world.advance(30)
        assert world.running() == 5
        assert len(world.pods()) == 5


@pytest.mark.parametrize("part", PARTS)
def test_a_crash_while_taking_over_creates_no_duplicate(part: str) -> None:
    with fleet(4) as world:
        world.stop(delete_pods=False)
        again(world, seconds=0.02)
        world.crash(part)
        world.advance(60)
        assert names(world) == [name(1), name(2), name(3), name(4)]
        assert [message.executor_id for message in world.heard(ExecutorRunning)] == [1, 2, 3, 4]


class InPod(World):
    """The driver runs in a pod, which owns its executors; there is a pod for another life as well."""

    def _make_kubelet(self) -> ScriptedKubelet:
        kubelet = super()._make_kubelet()
        for driver in ("driver-1", "driver-2"):
            made = self.store.create(
                "pods", "default", {"metadata": {"name": driver}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            )
            self.drivers[driver] = made["metadata"]["uid"]
        return kubelet

    def __init__(self, seed: int | None = None, **settings: Any) -> None:
        self.drivers: dict[str, str] = {}
        self.patches_fail: list[Fault | ApiError] = []
        """What happens to the first PATCHes of the next life."""
        super().__init__(seed, driver_pod_name="driver-1", executor={"instances": 3}, **settings)
        self.advance(5)

    def _connect(self) -> WatchedApi:
        api = super()._connect()
        for fault in self.patches_fail:
            api.fail_next("patch", fault)
        return api

    def again(self, *, target: int = 3) -> None:
        """Another life, in the other pod."""
        executor = self.settings.executor.model_copy(update={"instances": target})
        self.settings = self.settings.model_copy(update={"driver_pod_name": "driver-2", "executor": executor})
        self.invariants.retarget(target)
        self.restart()

    def owners(self, executor_id: int) -> list[str]:
        """UIDs of who owns an executor's pod."""
        return [owner["uid"] for owner in pod(self, executor_id)["metadata"].get("ownerReferences", ())]


def writes(world: World) -> list[str]:
    """What was written to pods in this life, in order."""
    return [what for _, what in world.api.asked if what in {"patch", "create", "delete", "delete_collection"}]


def test_adopted_pods_get_the_new_drivers_pod_as_their_owner_and_outlive_the_old_one() -> None:
    with InPod() as world:
        old, new = world.drivers["driver-1"], world.drivers["driver-2"]
        assert [world.owners(executor_id) for executor_id in (1, 2, 3)] == [[old]] * 3
        world.stop(delete_pods=False)
        world.again()
        world.advance(5)
        assert [world.owners(executor_id) for executor_id in (1, 2, 3)] == [[new]] * 3
        world.store.delete("pods", "default", "driver-1", grace_period_seconds=0)
        world.advance(5)
        assert [message.executor_id for message in world.heard(ExecutorRunning)] == [1, 2, 3]
        assert world.heard(ExecutorRemoved) == []


def test_a_pod_that_another_controller_owns_is_adopted_too() -> None:
    with InPod() as world:
        world.stop(delete_pods=False)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver-1", "uid": world.drivers["driver-1"]}
        patch(world, 2, ownerReferences=[{**owner, "controller": True}])
        world.again()
        world.advance(5)
        assert world.owners(2) == [world.drivers["driver-2"]]


@pytest.mark.parametrize("seed", [None, *seeds(4, of=40)])
def test_pods_are_adopted_before_anything_else_is_written(seed: int | None) -> None:
    with InPod(seed) as world:
        world.stop(delete_pods=False)
        world.again(target=6)
        world.advance(20)
        assert writes(world) == ["patch"] * 3 + ["create"] * 3


def test_nothing_is_made_before_slow_adoptions_are_done() -> None:
    with InPod() as world:
        world.stop(delete_pods=False)
        world.patches_fail = [DelayRequest(timedelta(seconds=3))] * 3
        world.again(target=6)
        world.advance(1)
        assert writes(world) == ["patch"] * 3
        world.advance(5)
        assert writes(world) == ["patch"] * 3 + ["create"] * 3


@pytest.mark.parametrize("seed", [None, *range(5)])
def test_a_driver_that_waits_for_the_lease_adopts_when_it_has_it_before_anything_else(seed: int | None) -> None:
    with InPod(seed, backend={"lease": True}) as world:
        world.backend.stop()
        world.kit.settle()
        world.again(target=6)
        world.advance(5)
        assert [world.owners(executor_id) for executor_id in (1, 2, 3)] == [[world.drivers["driver-1"]]] * 3
        world.advance(40)
        assert writes(world) == ["patch"] * 3 + ["create"] * 3
        assert [world.owners(executor_id) for executor_id in range(1, 7)] == [[world.drivers["driver-2"]]] * 6


def test_an_adoption_that_was_refused_is_asked_for_again() -> None:
    with InPod() as world:
        world.stop(delete_pods=False)
        refusal = Forbidden("pods is forbidden: User cannot patch", status=403, reason="Forbidden")
        world.patches_fail = [refusal] * 12
        world.again()
        world.advance(10)
        assert [world.owners(executor_id) for executor_id in (1, 2, 3)] == [[world.drivers["driver-1"]]] * 3
        world.advance(190)
        assert [world.owners(executor_id) for executor_id in (1, 2, 3)] == [[world.drivers["driver-2"]]] * 3


@pytest.mark.parametrize("status", [500, 503, 504])
def test_adoptions_that_always_fail_do_not_block_creation(status: int) -> None:
    with InPod() as world:
        world.stop(delete_pods=False)
        world.patches_fail = [server_error(status)] * 100
        world.again(target=6)
        world.advance(60)
        assert writes(world).count("create") == 3
        assert [world.owners(executor_id) for executor_id in (4, 5, 6)] == [[world.drivers["driver-2"]]] * 3


# ── 16: the status ───────────────────────────────────────────────────────────────────────────────────────────────────


def status(world: World) -> FleetStatus:
    answer = world.ask(GetFleetStatus())
    assert isinstance(answer, FleetStatus)
    return answer


def test_the_registered_are_counted_by_profile() -> None:
    profiles = {"big": {"instances": 2}}
    with fleet(3, profiles=profiles) as world:
        by_profile = {
            profile: [pod["metadata"]["name"] for pod in world.pods() if is_of(pod, profile)]
            for profile in ("default", "big")
        }
        ids = {profile: [int(each.rsplit("-", 1)[1]) for each in own] for profile, own in by_profile.items()}
        for executor_id in (*ids["default"], *ids["big"]):
            world.ask(RegisterExecutor(executor_id))
            world.ask(RegisterExecutor(executor_id))
        assert registered(world) == {"default": 3, "big": 2}
        world.backend.tell(ExecutorDisconnected(ids["big"][0]))
        world.kubelet.exit(name(ids["default"][0]), 0)
        world.advance(1)
        assert registered(world) == {"default": 2, "big": 1}


def is_of(pod: dict[str, Any], profile: str) -> bool:
    return bool(pod["metadata"]["labels"]["executor-pods/profile"] == profile)


def registered(world: World) -> dict[str, int]:
    return {profile: each.registered for profile, each in status(world).profiles.items()}


def test_an_answer_does_not_change_with_the_fleet() -> None:
    with fleet(2) as world:
        before = status(world)
        assert status(world) == before
        world.target(5)
        world.kubelet.exit(name(1), 0)
        world.advance(5)
        after = status(world)
        assert (before.profiles["default"].target, before.profiles["default"].running) == (2, 2)
        assert (after.profiles["default"].target, after.profiles["default"].running) == (5, 5)


def test_a_status_can_be_asked_for_at_any_time() -> None:
    with World(executor={"instances": 3}) as world:
        for part in ("", *PARTS):
            if part:
                world.crash(part)
            for _ in range(30):
                world.advance(0.1)
                assert status(world).profiles["default"].target == 3
        world.backend.tell(StopBackend())
        assert status(world).stopping
