"""Kubernetes Events about the driver's pod or its Lease: what they say, and that no fleet waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Forbidden
from actors.local.faults.kinds import LoseAnswer, Refuse, Stall, server_error, too_many_requests
from actors.messages import ExecutorRunning
from tests.scenarios.test_driver_pod import InPod
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.kube.api import Operation

OPERATIONS: tuple[Operation, ...] = ("create_object", "patch_object")


def events(world: World, kind: str = "Pod") -> list[Mapping[str, Any]]:
    """What was recorded, oldest first."""
    found = world.store.list("events", "default").items
    ours = [event for event in found if event.get("reportingComponent") == "executor-pods"]
    assert {event["involvedObject"]["kind"] for event in ours} <= {kind}
    return sorted(ours, key=lambda event: int(event["metadata"]["resourceVersion"]))


def said(world: World, kind: str = "Pod") -> list[tuple[str, int]]:
    return [(event["reason"], event["count"]) for event in events(world, kind)]


def test_executors_that_are_lost_are_one_event_about_the_drivers_pod() -> None:
    with InPod(executor={"instances": 5, "max_failures": 100}) as world:
        world.advance(60)
        for number in (1, 2, 3):
            world.kubelet.exit(f"app-exec-{number}", 1)
        world.advance(60)
        (event,) = (event for event in events(world) if event["reason"] == "ExecutorLost")
        assert event["count"] == 3
        assert event["message"].startswith("EXITED, profile default: executor 3 (pod app-exec-3) ")
        assert event["involvedObject"]["uid"] == world.uid
        world.stop()
        assert sum(count for reason, count in said(world) if reason == "ExecutorLost") == 3, "a stop loses nothing"


def test_without_a_pod_they_are_about_the_lease_and_say_who_holds_it() -> None:
    with World(backend={"lease": True}, executor={"instances": 1}) as world:
        world.advance(5)
        assert said(world, "Lease") == [("LeaseAcquired", 1)]
        (event,) = events(world, "Lease")
        lease = world.store.get("leases", "default", "executor-pods-app")
        assert event["involvedObject"]["uid"] == lease["metadata"]["uid"]
        spec = {"holderIdentity": "thief", "renewTime": "2030-01-01T00:00:00.000000Z"}
        world.store.patch("leases", "default", "executor-pods-app", {"spec": spec}, "merge")
        world.advance(60)
        lost = next(event for event in events(world, "Lease") if event["reason"] == "LeaseLost")
        assert "'thief'" in lost["message"]
        assert said(world, "Lease")[-1] == ("LeaseAcquired", 2)
        assert "CreationBlocked" not in dict(said(world, "Lease"))
        world.stop()


def test_a_full_quota_and_its_end_are_events() -> None:
    with InPod(executor={"instances": 3}) as world:
        world.store.create("resourcequotas", "default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})
        world.target(6)
        world.advance(30)
        blocked = next(event for event in events(world) if event["reason"] == "CreationBlocked")
        assert "exceeded quota" in blocked["message"]
        world.store.delete("resourcequotas", "default", "q")
        world.advance(120)
        assert said(world)[-1][0] == "CreationResumed"
        world.stop()


def test_without_a_pod_and_a_lease_nothing_is_written_and_nobody_is_there_to_write() -> None:
    with World(executor={"instances": 1}) as world:
        world.advance(60)
        world.kubelet.exit("app-exec-1", 1)
        world.advance(60)
        assert not world.lives("event-recorder")
        assert events(world) == []


def test_they_can_be_switched_off() -> None:
    with InPod(executor={"instances": 1}, backend={"kubernetes_events": False}) as world:
        world.advance(60)
        world.kubelet.exit("app-exec-1", 1)
        world.advance(60)
        assert not world.lives("event-recorder")
        assert events(world) == []
        world.stop()


@pytest.mark.parametrize(
    "fault",
    [
        Stall(),
        LoseAnswer(),
        Refuse(server_error(503)),
        Refuse(too_many_requests()),
        Refuse(Forbidden("events is forbidden", status=403)),
    ],
)
def test_an_api_that_is_slow_or_refuses_delays_neither_the_fleet_nor_its_end(fault: Any) -> None:
    times = []
    for broken in (False, True):
        with InPod(executor={"instances": 3, "max_failures": 100}) as world:
            if broken:
                for operation in OPERATIONS:
                    world.api.fail_next(operation, fault, times=1000)
            world.advance(60)
            for number in (1, 2, 3):
                world.kubelet.exit(f"app-exec-{number}", 1)
            world.advance(30)
            running = [message.executor_id for message in world.heard(ExecutorRunning)]
            began = world.kit.clock.monotonic()
            assert world.stop().left_behind == ()
            times.append((running, world.kit.clock.monotonic() - began))
    assert times[0] == times[1]


def test_a_recorder_that_crashes_harms_nobody_and_its_next_incarnation_writes() -> None:
    with InPod(executor={"instances": 2, "max_failures": 100}) as world:
        world.advance(60)
        world.crash("event-recorder")
        world.advance(10)
        world.kubelet.exit("app-exec-1", 1)
        world.advance(10)
        assert ("ExecutorLost", 1) in said(world)
        assert len(world.executors()) == 2
        world.stop()
