"""Executors that are killed for their memory, in the whole tree: replacements ask for more (`executor.on_oom`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.messages import DecommissionExecutors, ExecutorRunning, GetFleetStatus
from actors.pods.loss import LossKind
from tests.scenarios.fleets import ended, fleet, name, names, pod

if TYPE_CHECKING:
    from tests.scenarios.world import World

GROWS: dict[str, Any] = {
    "resources": {"requests": {"memory": "4Gi"}, "limits": {"memory": "4Gi"}},
    "on_oom": {"factor": 1.5, "max": "8Gi"},
}
MINUTE = 60


def memory(world: World) -> dict[int, str]:
    """The memory limits of the executors' containers by executor id."""
    limits: dict[int, str] = {}
    for each in world.pods():
        executor = next(container for container in each["spec"]["containers"] if container.get("resources"))
        limits[int(each["metadata"]["labels"]["executor-pods/executor-id"])] = executor["resources"]["limits"]["memory"]
    return limits


def more_memory(world: World) -> int:
    count: int = world.ask(GetFleetStatus()).profiles["default"].more_memory
    return count


def old(count: int = 3, **options: Any) -> World:
    """A fleet whose executors no longer count as just started."""
    return fleet(count, seconds=MINUTE, executor={**GROWS, **options.pop("executor", {})}, **options)


def test_the_replacement_asks_for_more_and_again_up_to_the_maximum_and_no_other_does() -> None:
    with old() as world:
        world.kubelet.oom(name(2))
        world.advance(MINUTE)
        assert ended(world, 2).kind is LossKind.OOM_KILLED
        assert memory(world) == {1: "4Gi", 3: "4Gi", 4: "6Gi"}
        assert more_memory(world) == 1
        told = [each for each in world.heard(ExecutorRunning) if each.executor_id == 4]
        assert told[0].pod.memory_step == 1
        world.kubelet.oom(name(4))
        world.advance(MINUTE)
        assert memory(world) == {1: "4Gi", 3: "4Gi", 5: "8Gi"}
        world.kubelet.oom(name(5))
        world.advance(MINUTE)
        assert memory(world) == {1: "4Gi", 3: "4Gi", 6: "8Gi"}
        world.kubelet.oom(name(1))
        world.kubelet.exit(name(3), 1)
        world.advance(MINUTE)
        assert memory(world) == {6: "8Gi", 7: "6Gi", 8: "4Gi"}
        assert more_memory(world) == 2
        world.stop()


def test_the_replacement_of_one_with_more_memory_that_others_ended_has_as_much() -> None:
    with old() as world:
        world.kubelet.oom(name(1))
        world.advance(MINUTE)
        world.store.delete("pods", "default", name(4))
        world.advance(MINUTE)
        world.kubelet.exit(name(5), 3)
        world.advance(MINUTE)
        assert memory(world) == {2: "4Gi", 3: "4Gi", 6: "6Gi"}
        world.stop()


def test_the_replacement_of_one_that_the_driver_ended_has_what_the_profile_has() -> None:
    with old() as world:
        world.kubelet.oom(name(1))
        world.kubelet.oom(name(2))
        world.advance(MINUTE)
        assert memory(world) == {3: "4Gi", 4: "6Gi", 5: "6Gi"}
        world.kill(4)
        world.advance(MINUTE)
        world.backend.tell(DecommissionExecutors((5,)))
        world.advance(1)
        world.kubelet.exit(name(5), 0)
        world.advance(MINUTE)
        assert memory(world) == {3: "4Gi", 6: "4Gi", 7: "4Gi"}
        assert more_memory(world) == 0
        world.stop()


def test_a_lower_target_needs_no_replacement_and_a_higher_one_later_has_what_the_profile_has() -> None:
    with old() as world:
        world.target(2)
        world.kubelet.oom(name(2))
        world.advance(MINUTE)
        assert memory(world) == {1: "4Gi", 3: "4Gi"}
        world.target(3)
        world.advance(MINUTE)
        assert memory(world) == {1: "4Gi", 3: "4Gi", 4: "4Gi"}
        world.stop()


@pytest.mark.parametrize("end", ["killed", "evicted", "sidecar"])
def test_only_an_executors_own_end_for_its_memory_raises_it(end: str) -> None:
    sidecar = {"spec": {"containers": [{"name": "proxy", "image": "proxy:1"}]}}
    with old(1, executor={"template_patch": sidecar}) as world:
        if end == "killed":
            world.kill(1)
            world.kubelet.oom(name(1))
        elif end == "evicted":
            world.kubelet.disrupt(name(1), "TerminationByKubelet")
        else:
            world.kubelet.oom(name(1), container="proxy")
        world.advance(MINUTE)
        assert memory(world) == {2: "4Gi"}
        world.stop()


def test_a_quota_that_has_no_room_for_more_memory_does_not_make_it_forgotten() -> None:
    with old() as world:
        quota = {"metadata": {"name": "memory"}, "spec": {"hard": {"limits.memory": "12Gi"}}}
        world.store.create("resourcequotas", "default", quota)
        world.kubelet.oom(name(1))
        world.advance(3 * MINUTE)
        assert memory(world) == {2: "4Gi", 3: "4Gi"}
        world.store.delete("resourcequotas", "default", "memory")
        world.advance(3 * MINUTE)
        assert sorted(memory(world).values()) == ["4Gi", "4Gi", "6Gi"]
        world.stop()


@pytest.mark.parametrize("part", ["allocator", "request-pool", "snapshot-store", "lifecycle-manager"])
def test_what_was_raised_survives_the_crash_of_any_part(part: str) -> None:
    with old() as world:
        world.kubelet.oom(name(1))
        world.advance(MINUTE)
        world.kubelet.oom(name(2))
        world.advance(0.5)  # its replacement waits, or is on its way
        world.crash(part)
        world.advance(2 * MINUTE)
        assert sorted(memory(world).values()) == ["4Gi", "6Gi", "6Gi"]
        assert more_memory(world) == 2
        world.store.delete("pods", "default", name(4))
        world.advance(MINUTE)
        assert sorted(memory(world).values()) == ["4Gi", "6Gi", "6Gi"]
        world.stop()


def test_the_next_driver_reads_from_the_pods_what_was_raised() -> None:
    with old() as world:
        world.kubelet.oom(name(1))
        world.advance(MINUTE)
        world.stop(delete_pods=False)
        world.restart()
        world.advance(MINUTE)
        assert more_memory(world) == 1
        world.kubelet.oom(name(4))
        world.advance(MINUTE)
        assert memory(world) == {2: "4Gi", 3: "4Gi", 5: "8Gi"}
        world.stop()


def test_another_profiles_pod_counts_for_the_profile_of_the_executor_that_it_replaces() -> None:
    profiles = {"large": {"resources": {"limits": {"memory": "32Gi"}}}}
    own = {"resources": {"limits": {"memory": "4Gi"}}, "on_oom": {"profile": "large"}}
    with fleet(2, seconds=MINUTE, executor=own, profiles=profiles) as world:
        world.kubelet.oom(name(1))
        world.advance(MINUTE)
        assert memory(world) == {2: "4Gi", 3: "32Gi"}
        assert pod(world, 3)["metadata"]["labels"]["executor-pods/profile"] == "default"
        status = world.ask(GetFleetStatus()).profiles
        assert (status["default"].running, status["default"].more_memory, status["large"].running) == (2, 1, 0)
        world.target(2)
        world.advance(MINUTE)
        assert names(world) == [name(2), name(3)]
        world.stop()


def test_one_that_is_killed_for_its_memory_at_once_backs_off_and_rises_all_the_same() -> None:
    with fleet(1, executor=GROWS) as world:
        world.kubelet.oom(name(1))
        world.advance(0.5)
        assert world.pods() == []
        world.advance(MINUTE)
        assert memory(world) == {2: "6Gi"}
        world.stop()


def test_without_the_setting_nothing_is_raised() -> None:
    with fleet(1, seconds=MINUTE, executor={"resources": GROWS["resources"]}) as world:
        world.kubelet.oom(name(1))
        world.advance(MINUTE)
        assert memory(world) == {2: "4Gi"}
        assert more_memory(world) == 0
        world.stop()
