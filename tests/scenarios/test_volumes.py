"""Executors with volumes of their own, in virtual time: claims that are made, taken over, waited for, and go."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from actors.local.faults.kinds import server_error
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendStopped,
    ExecutorRunning,
    GetFleetStatus,
    StopBackend,
)
from actors.pods.pod import ROLE_LABEL
from tests.scenarios.fleets import is_going, name, pod
from tests.scenarios.seeds import seeds
from tests.scenarios.world import WatchedApi, World

if TYPE_CHECKING:
    from actors.local.store.object_store import WatchMessage

CLAIM: dict[str, Any] = {"name": "scratch", "mount_path": "/scratch", "size": "10Gi"}
DRIVER = {"kind": "Pod", "metadata": {"name": "driver"}, "spec": {"containers": [{"name": "driver", "image": "d:1"}]}}
LIST_CLAIMS = ("list", "persistentvolumeclaims")
DELETE_CLAIMS = ("delete", "persistentvolumeclaims")
CRASHING = ("allocator", "watch-source")
OLD = 61
"""Seconds after which a claim is older than `allocation.creation_timeout`."""


class Disks(World):
    """The driver runs in a pod; no two pods that live ever mount the same claim, or the world ends in a failure."""

    def __init__(self, count: int = 2, *, seed: int | None = None, **options: Any) -> None:
        self._mounts: dict[str, list[str]] = {}
        self.shared: list[str] = []
        self.forbidden: set[tuple[str, str]] = set()
        executor = {"instances": count, "claims": [CLAIM], **options.pop("executor", {})}
        super().__init__(seed, **{"executor": executor, "driver_pod_name": "driver", **options})
        self.advance(5)

    def _connect(self) -> WatchedApi:
        api = super()._connect()
        assert isinstance(api._inner, InProcessPodApi)
        api._inner.forbidden = self.forbidden
        return api

    def _start(self) -> None:
        if not self._drivers:
            self.store.create("pods", "default", DRIVER)
            self.advance(1)
            self.store.watch("pods", None, self._changed, resource_version=self.store.resource_version)
        super()._start()

    def _changed(self, message: WatchMessage) -> None:
        metadata, status = message.object["metadata"], message.object.get("status", {})
        self._mounts.pop(metadata["uid"], None)
        if message.type != "DELETED" and status.get("phase") not in {"Failed", "Succeeded"}:
            self._mounts[metadata["uid"]] = list(mounted(message.object))
        counts = Counter(claim for claims in self._mounts.values() for claim in claims)
        self.shared.extend(claim for claim, count in counts.items() if count > 1)

    def check(self) -> None:
        """Nor was any invariant broken."""
        super().check()
        assert not self.shared, f"mounted by two pods at a time: {self.shared}"

    def pods(self, *phases: str) -> list[dict[str, Any]]:
        """Without the driver's."""
        return [each for each in super().pods(*phases) if ROLE_LABEL in each["metadata"].get("labels", {})]

    def claims(self) -> list[str]:
        """The names of all claims."""
        listed = self.store.list("persistentvolumeclaims", "default").items
        return sorted(claim["metadata"]["name"] for claim in listed)

    def claims_of(self, executor_id: int) -> list[str]:
        """What an executor's pod mounts."""
        return list(mounted(pod(self, executor_id)))

    def die(self, *executor_ids: int, within: float = 5) -> None:
        """Executors end by themselves."""
        for executor_id in executor_ids:
            self.kubelet.exit(name(executor_id), 1)
        self.advance(within)

    def quota(self, hard: dict[str, str]) -> None:
        """The namespace holds no more than this."""
        self.store.create("resourcequotas", "default", {"metadata": {"name": "full"}, "spec": {"hard": hard}})

    def asked(self, operation: str) -> int:
        """How often the backend has called the API for this."""
        return sum(each == operation for _, each in self.api.asked)


def mounted(manifest: dict[str, Any]) -> list[str]:
    volumes = manifest["spec"].get("volumes", ())
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


# ── made ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_executor_of_the_first_fleet_gets_a_claim_that_the_drivers_pod_owns() -> None:
    with Disks() as world:
        assert world.running() == 2
        assert world.claims() == ["app-exec-1-pvc-0", "app-exec-2-pvc-0"]
        assert [world.claims_of(i) for i in (1, 2)] == [["app-exec-1-pvc-0"], ["app-exec-2-pvc-0"]]
        driver = world.store.get("pods", "default", "driver")["metadata"]["uid"]
        for claim in world.store.list("persistentvolumeclaims", "default").items:
            assert [owner["uid"] for owner in claim["metadata"]["ownerReferences"]] == [driver]


@pytest.mark.parametrize("without", [{"driver_pod_name": None}, {"executor": {"own_claims": False}}])
def test_without_an_owner_that_lives_on_each_pod_gets_volumes_that_go_with_it(without: dict[str, Any]) -> None:
    with Disks(**without) as world:
        (volume,) = pod(world, 1)["spec"]["volumes"]
        template = volume["ephemeral"]["volumeClaimTemplate"]

        assert world.running() == 2
        assert world.claims() == []
        assert template["spec"]["resources"] == {"requests": {"storage": "10Gi"}}
        assert world.asked("list_objects") == 0


def test_claims_go_with_the_drivers_pod_once_no_executor_uses_them() -> None:
    with Disks() as world:
        world.stop(delete_pods=False)
        assert len(world.claims()) == 2
        world.store.delete("pods", "default", "driver")
        world.advance(40)

        assert (world.pods(), world.claims()) == ([], [])


# ── taken over ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_replacement_of_an_executor_that_ended_mounts_its_claim() -> None:
    with Disks() as world:
        world.advance(OLD)
        world.die(2)

        assert world.running() == 2
        assert world.claims_of(3) == ["app-exec-2-pvc-0"]
        assert len(world.claims()) == 2


def test_two_that_end_at_once_hand_on_two_claims_and_none_twice() -> None:
    with Disks(4) as world:
        world.advance(OLD)
        world.die(2, 4)

        assert world.running() == 4
        assert sorted([*world.claims_of(5), *world.claims_of(6)]) == ["app-exec-2-pvc-0", "app-exec-4-pvc-0"]
        assert len(world.claims()) == 4


def test_executors_with_two_claims_each_take_over_both() -> None:
    other = {"name": "model", "mount_path": "/model", "size": "1Gi"}
    with Disks(executor={"claims": [CLAIM, other]}) as world:
        world.advance(OLD)
        world.die(1, 2)

        assert world.running() == 2
        assert len(world.claims()) == 4
        for executor_id in (3, 4):
            scratch, model = world.claims_of(executor_id)
            assert (scratch[-1], model[-1]) == ("0", "1"), "each where the same one was"


def test_a_young_claim_is_not_taken_over() -> None:
    with Disks(executor={"min_run_time": "1s"}) as world:
        world.die(2)

        assert world.claims_of(3) == ["app-exec-3-pvc-0"]


def test_with_reuse_off_each_executor_gets_a_new_claim() -> None:
    with Disks(executor={"reuse_claims": False}) as world:
        world.advance(OLD)
        world.die(2)

        assert world.claims_of(3) == ["app-exec-3-pvc-0"]
        assert world.asked("list_objects") == 0


def test_a_claim_is_in_use_until_the_pod_that_mounts_it_is_gone() -> None:
    with Disks() as world:
        world.kubelet.script = lambda _: Run(stop_delay=timedelta(seconds=20))
        world.target(3)
        world.advance(OLD)
        world.kill(3)
        world.advance(8)
        assert is_going(world, 3)
        assert world.claims_of(4) == ["app-exec-4-pvc-0"], "three is terminating and still mounts its own"

        world.advance(40)
        world.die(1)
        assert world.claims_of(5) in (["app-exec-1-pvc-0"], ["app-exec-3-pvc-0"])


def test_a_node_that_holds_a_pod_for_long_is_not_waited_for() -> None:
    with Disks() as world:
        world.advance(OLD)
        world.kubelet.close()
        world.store.delete("pods", "default", name(2))
        world.advance(5)

        assert is_going(world, 2)
        assert world.claims_of(3) == ["app-exec-3-pvc-0"]


def test_without_the_right_to_list_claims_new_ones_are_made_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="actors.allocation.volumes"), Disks() as world:
        world.advance(OLD)
        world.forbidden.add(LIST_CLAIMS)
        for executor_id in (1, 2, 3):
            world.die(executor_id)
        assert world.running() == 2
        assert len(world.claims()) == 5
        assert [record.levelname for record in caplog.records if record.name == "actors.allocation.volumes"] == [
            "WARNING"
        ]

        world.advance(OLD)
        world.forbidden.clear()
        world.die(4)
        assert len(world.claims()) == 5, "with the right, there is one to take over"


def test_claims_are_handed_on_over_a_restart_of_the_allocator() -> None:
    with Disks(4) as world:
        world.advance(OLD)
        world.crash("allocator")
        world.advance(5)
        world.die(1, 2)

        assert world.running() == 4
        assert len(world.claims()) == 4


def test_a_driver_that_comes_back_takes_over_the_claims_of_those_that_ended_meanwhile() -> None:
    with Disks(3) as world:
        world.advance(OLD)
        world.stop(delete_pods=False)
        for executor_id in (2, 3):
            world.store.delete("pods", "default", name(executor_id), grace_period_seconds=0)
        world.restart()
        world.advance(5)

        assert world.running() == 3
        assert len(world.claims()) == 3
        assert {message.executor_id for message in world.heard(ExecutorRunning)} == {1, 4, 5}


@pytest.mark.parametrize("changes", [{"size": "20Gi"}, {"storage_class": "fast"}, {"access_modes": ["ReadWriteMany"]}])
def test_a_driver_that_comes_back_asking_for_other_claims_gets_new_ones(changes: dict[str, Any]) -> None:
    with Disks(1) as world:
        world.advance(OLD)
        world.forbidden.add(DELETE_CLAIMS)
        world.stop()
        executor = world.settings.executor.model_copy(
            update={"claims": (world.settings.executor.claims[0].model_copy(update=changes),)}
        )
        world.settings = world.settings.model_copy(update={"executor": executor})
        world.restart()
        world.advance(5)

        assert world.running() == 1
        assert world.claims() == ["app-exec-1-pvc-0", "app-exec-2-pvc-0"], "and no id that a claim is named after"


def test_where_claims_are_left_and_not_listed_ids_go_on_until_names_are_free() -> None:
    with Disks(3, executor={"reuse_claims": False}) as world:
        world.forbidden.add(DELETE_CLAIMS)
        world.stop()
        world.restart()
        world.advance(5)

        assert world.running() == 3
        assert sorted(claim for each in world.pods() for claim in mounted(each)) == [
            f"app-exec-{executor_id}-pvc-0" for executor_id in (4, 5, 6)
        ]


# ── waited for ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_executors_wait_for_claims_in_use_where_set_so_and_the_driver_is_notified_once() -> None:
    with Disks(executor={"wait_to_reuse_claim": True}) as world:
        world.advance(OLD)
        world.kubelet.close()
        world.store.delete("pods", "default", name(2))
        world.advance(20)

        assert (len(world.pods()), len(world.claims())) == (2, 2)
        (blocked,) = world.heard(AllocationBlocked)
        assert "wait for a free claim 'scratch'" in blocked.cause
        assert world.ask(GetFleetStatus()).profiles["default"].blocked == blocked.cause

        world.store.delete("pods", "default", name(2), grace_period_seconds=0)
        world.advance(1)
        assert world.claims_of(3) == ["app-exec-2-pvc-0"]
        assert len(world.heard(AllocationUnblocked)) == 1


def test_while_executors_wait_claims_are_not_listed_every_round() -> None:
    with Disks(executor={"wait_to_reuse_claim": True}) as world:
        world.advance(OLD)
        world.kubelet.close()
        world.store.delete("pods", "default", name(2))
        world.advance(1)
        before = world.asked("list_objects")
        world.advance(60)

        assert 6 <= world.asked("list_objects") - before <= 13


def test_executors_that_wait_get_young_claims_when_those_are_old_enough() -> None:
    with Disks(executor={"wait_to_reuse_claim": True, "min_run_time": "1s"}) as world:
        world.die(2)
        assert world.running() == 1
        world.advance(OLD)

        assert world.claims_of(3) == ["app-exec-2-pvc-0"]


def test_a_larger_target_makes_claims_for_those_that_are_more() -> None:
    with Disks(executor={"wait_to_reuse_claim": True}) as world:
        world.advance(OLD)
        world.kubelet.script = lambda _: Run(stop_delay=timedelta(seconds=25))
        world.store.delete("pods", "default", name(2))
        world.advance(1)
        world.target(3)
        world.advance(2)
        assert len(world.claims()) == 3, "one of two is lacking and has to wait, the third is new"

        world.advance(40)
        assert (world.running(), len(world.claims())) == (3, 3)


def test_a_target_that_is_lowered_ends_the_wait() -> None:
    with Disks(executor={"wait_to_reuse_claim": True}) as world:
        world.advance(OLD)
        world.kubelet.close()
        world.store.delete("pods", "default", name(2))
        world.advance(5)
        world.target(1)
        world.advance(2)

        assert len(world.heard(AllocationBlocked)) == len(world.heard(AllocationUnblocked)) == 1


# ── refused ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_refused_claim_blocks_creation_with_its_own_reason_until_there_is_room() -> None:
    with Disks(1) as world:
        world.quota({"count/persistentvolumeclaims": "1"})
        world.target(3)
        world.advance(20)
        assert (world.running(), world.claims()) == (1, ["app-exec-1-pvc-0"])
        (blocked,) = world.heard(AllocationBlocked)
        assert "persistentvolumeclaims" in blocked.cause

        world.store.delete("resourcequotas", "default", "full")
        world.advance(70)
        assert world.running() == 3
        assert len(world.claims()) == 3
        assert len(world.heard(AllocationUnblocked)) == 1


@pytest.mark.parametrize("reuse", [True, False])
def test_pods_that_are_refused_again_and_again_do_not_pile_up_claims(reuse: bool) -> None:
    with Disks(0, executor={"reuse_claims": reuse}) as world:
        world.quota({"pods": "1"})  # the driver's
        world.target(5)
        world.advance(600)
        assert world.pods() == []
        assert len(world.claims()) <= 5

        world.store.delete("resourcequotas", "default", "full")
        world.advance(70)
        assert (world.running(), len(world.claims())) == (5, 5)


# ── all at once ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("seed", seeds(1, of=5))
def test_whatever_happens_no_claim_is_mounted_twice_and_they_do_not_pile_up(seed: int, waits: bool) -> None:
    random = Random(seed)
    options = {"wait_to_reuse_claim": waits, "min_run_time": "1s", "max_failures": 1000}
    with Disks(6, seed=seed, executor=options, start_delay=timedelta(seconds=2)) as world:
        world.kubelet.script = lambda _: Run(stop_delay=timedelta(seconds=random.choice([0, 3, 25])))
        for _ in range(60):
            _disturb(world, random)
            world.advance(random.choice([0.2, 1, 5, 20]))
        world.target(8)
        world.advance(240)

        assert world.running() == 8
        assert len(world.claims()) <= (8 if waits else 40)


def _disturb(world: Disks, random: Random) -> None:
    running = [each["metadata"]["name"] for each in world.pods("Running")]
    victim = random.choice(running) if running else None
    match random.randrange(6):
        case 0 | 1 if victim is not None:
            world.kubelet.exit(victim, 1)
        case 2 if victim is not None:
            world.store.delete("pods", "default", victim)
        case 3 if victim is not None:
            world.store.delete("pods", "default", victim, grace_period_seconds=0)
        case 4 if random.random() < 0.3 and all(map(world.lives, CRASHING)):
            world.crash(random.choice(CRASHING))
        case _:
            world.target(random.randrange(4, 8))


# ── the end of the fleet ─────────────────────────────────────────────────────────────────────────────────────────────


def someone_elses(world: Disks) -> str:
    """Create a claim with the fleet's labels that the driver's pod does not own, and return its name."""
    claim = world.store.get("persistentvolumeclaims", "default", "app-exec-1-pvc-0")
    metadata = {"name": "other", "labels": claim["metadata"]["labels"]}
    world.store.create("persistentvolumeclaims", "default", {"metadata": metadata, "spec": claim["spec"]})
    return "other"


def test_a_stop_that_deletes_the_fleet_deletes_the_claims_that_the_drivers_pod_owns_too() -> None:
    with Disks(20) as world:
        left = someone_elses(world)
        world.die(3)
        assert world.stop().left_behind == ()
        assert world.pods() == []
        assert world.claims() == [left]


@pytest.mark.parametrize("delete_pods", [False, True])
def test_a_stop_that_leaves_executors_leaves_the_claims(*, delete_pods: bool) -> None:
    with Disks() as world:
        world.kill(1)
        if delete_pods:
            world.api.fail_next("delete_collection", server_error(), times=1000)
            world.api.fail_next("delete", server_error(), times=1000)
        world.stop(delete_pods=delete_pods)
        assert len(world.claims()) == 2


@pytest.mark.parametrize("verb", ["list", "delete"])
def test_a_stop_without_a_right_to_claims_leaves_them_and_says_so_once(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Disks(3) as world:
        world.forbidden.add((verb, "persistentvolumeclaims"))
        world.backend.tell(StopBackend())
        world.advance(5)
        assert world.heard(BackendStopped) == [BackendStopped()], "it takes no longer"
        assert len(world.claims()) == 3
    refused = [record for record in caplog.records if "refused" in record.getMessage()]
    assert len(refused) == 1
    assert "claim" in refused[0].getMessage()


@pytest.mark.parametrize("part", ["request-pool", "lifecycle-manager"])
@pytest.mark.parametrize("after", [0.03 * step for step in range(1, 8)])
def test_claims_are_deleted_although_an_actor_crashes_during_the_stop(part: str, after: float) -> None:
    with Disks(20, latency=timedelta(milliseconds=50)) as world:
        world.backend.tell(StopBackend())
        world.advance(2.1 + after)
        if world.lives(part):
            world.crash(part)
        world.advance(60)
        assert world.claims() == []


def test_claims_are_deleted_although_the_server_fails_for_a_while() -> None:
    with Disks(5) as world:
        world.api.fail_next("list_objects", server_error(), times=3)
        world.api.fail_next("delete_object", server_error(), times=10)
        assert world.stop().left_behind == ()
        assert world.claims() == []
