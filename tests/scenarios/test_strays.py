"""Pods, claims and leases that somebody else made or spoiled: each harms at most itself."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from actors import kube
from actors.lease.record import LAST_ID, lease_name
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import BackendFailed, ExecutorRemoved, ExecutorRunning, GetFleetStatus, RegisterExecutor
from actors.pods.ids import LAST_BELIEVED_ID
from actors.pods.loss import LossKind
from actors.pods.pod import EXECUTOR_ID_LABEL
from tests.scenarios.fleets import PARTS, ended, fleet, name, names, patch
from tests.scenarios.liar import LyingWorld
from tests.scenarios.rivals import Rivals
from tests.scenarios.test_volumes import Disks
from tests.scenarios.world import World
from tests.unit.builders import labels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.kube.api import Call, WatchSink

LARGEST = 10**18 - 1


def stray(world: World, pod_name: str, executor_id: int | str, more: Mapping[str, str] | None = None) -> None:
    """Somebody makes a pod with the fleet's labels."""
    marks = {**labels(0), EXECUTOR_ID_LABEL: str(executor_id), **(more or {})}
    metadata = {"name": pod_name, "labels": marks}
    spec = {"containers": [{"name": "other", "image": "other:1"}]}
    world.invariants.taken_by_others(pod_name)
    world.store.create("pods", "default", {"kind": "Pod", "metadata": metadata, "spec": spec})


def running_ids(world: World) -> list[int]:
    return [message.executor_id for message in world.heard(ExecutorRunning)]


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pod_name", ["stray", name(LARGEST), name(7)])
@pytest.mark.parametrize("before", [True, False])
def test_a_pod_with_the_largest_id_breaks_no_creation(pod_name: str, before: bool) -> None:
    with World(executor={"instances": 0}) as world:
        if before:
            stray(world, pod_name, LARGEST)
        world.advance(5)
        world.target(2)
        world.advance(5)
        if not before:
            stray(world, pod_name, LARGEST)
            world.advance(5)
        world.target(4)
        world.advance(200)
        counted = pod_name == name(LARGEST)
        ours = [pod_name for pod_name in names(world) if pod_name not in {"stray", name(7), name(LARGEST)}]
        assert ours == [name(each) for each in range(1, len(ours) + 1)], "each id follows the last one"
        assert len(ours) == (3 if counted else 4)
        assert world.heard(ExecutorRemoved) == []
        assert world.stop().left_behind == ()
        assert names(world) == ([] if counted else [pod_name]), "only executors are deleted"


def test_a_pod_that_looks_like_ours_with_a_large_id_leaves_room_for_billions() -> None:
    with World(executor={"instances": 0}) as world:
        stray(world, name(LAST_BELIEVED_ID), LAST_BELIEVED_ID)
        world.advance(5)
        world.target(3)
        world.advance(200)
        expected = [LAST_BELIEVED_ID + more for more in (0, 1, 2)]
        assert (names(world), running_ids(world)) == ([name(each) for each in expected], expected)


def test_a_pod_of_another_name_takes_no_id_of_ours() -> None:
    with fleet(2) as world:
        stray(world, "stray", 3)
        world.advance(2)
        world.target(3)
        world.advance(200)
        assert names(world) == [name(1), name(2), name(3), "stray"]
        assert running_ids(world) == [1, 2, 3]
        assert world.stop().left_behind == ()


def test_a_claim_with_the_largest_id_breaks_no_creation() -> None:
    with Disks(0) as world:
        world.store.create("persistentvolumeclaims", "default", claim_of(LARGEST))
        world.target(2)
        world.advance(200)
        assert names(world) == [name(1), name(2)]
        assert running_ids(world) == [1, 2]


def claim_of(executor_id: int) -> dict[str, Any]:
    metadata = {"name": f"{name(executor_id)}-pvc-0", "labels": {**labels(0), "executor-pods/claim": "scratch"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def test_a_lease_with_the_largest_id_breaks_no_creation() -> None:
    with Rivals() as cluster:
        annotated = {"name": lease_name("app"), "annotations": {LAST_ID: str(LARGEST)}}
        cluster.store.create("leases", "default", {"kind": "Lease", "metadata": annotated, "spec": {}})
        cluster.begin("first")
        cluster.advance(200)
        assert sorted(cluster.pods()) == [name(1), name(2), name(3)]
        assert cluster.store.get("leases", "default", lease_name("app"))["metadata"]["annotations"][LAST_ID] == "3"


# ── strangers of a driver that holds its Lease ───────────────────────────────────────────────────────────────────────


def held(count: int) -> World:
    """A fleet of a driver that holds its Lease."""
    return fleet(count, backend={"lease": True})


def touch(world: World, pod_name: str) -> None:
    """Somebody changes a pod, so that there is an event about it."""
    world.store.patch("pods", "default", pod_name, {"metadata": {"annotations": {"touched": "yes"}}}, "merge")


def test_a_pod_that_this_driver_did_not_request_is_no_executor_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    with held(2) as world:
        stray(world, name(7), 7)
        world.advance(2)
        touch(world, name(7))
        world.advance(60)
        assert not world.ask(RegisterExecutor(7))
        assert world.ask(GetFleetStatus()).profiles["default"].running == 2
        world.kubelet.exit(name(1), 1)
        world.advance(60)
        assert running_ids(world) == [1, 2, 8], "the next id follows the one that is taken"
        world.target(3)
        world.advance(60)
        assert running_ids(world) == [1, 2, 8, 9]
        assert [message.executor_id for message in world.heard(ExecutorRemoved)] == [1]
        said = [record.message for record in caplog.records if "stranger" in record.message]
        assert said == [f"stranger's pod left alone, this driver did not request its id: pod={name(7)}"]
        world.stop()
        assert names(world) == [name(7)]


@pytest.mark.parametrize("part", PARTS)
def test_a_crash_turns_no_stranger_into_an_executor_and_no_executor_into_a_stranger(part: str) -> None:
    with held(2) as world:
        stray(world, name(7), 7)
        world.advance(2)
        world.target(3)
        world.crash(part)
        world.advance(0.2)
        stray(world, name(9), 9)
        world.advance(120)
        assert running_ids(world) in ([1, 2, 8], [1, 2, 10])
        assert world.heard(ExecutorRemoved) == []
        world.stop()
        assert names(world) == [name(7), name(9)]


def test_a_stranger_may_come_back_and_end_under_an_id_that_was_skipped() -> None:
    with held(2) as world:
        stray(world, name(7), 7)
        world.advance(2)
        world.target(3)
        world.advance(5)
        world.store.delete("pods", "default", name(7), grace_period_seconds=0)
        stray(world, name(7), 7)
        world.advance(40)
        world.kubelet.exit(name(7), 1)
        world.advance(40)
        assert running_ids(world) == [1, 2, 8]
        assert world.heard(ExecutorRemoved) == []
        world.stop()
        assert names(world) == [name(7)]


def test_a_pod_whose_copied_id_was_refused_is_left_alone_after_the_end_of_that_executor() -> None:
    with held(2) as world:
        stray(world, "other-exec-1", 1)
        world.advance(2)
        world.kubelet.exit(name(1), 1)
        world.advance(5)
        touch(world, "other-exec-1")
        world.advance(60)
        assert "other-exec-1" in names(world)
        assert [message.executor_id for message in world.heard(ExecutorRemoved)] == [1]


def test_a_stop_deletes_executors_whose_label_somebody_has_changed_each_by_its_uid() -> None:
    with held(4) as world:
        for executor_id, label in ((1, "2"), (2, "900"), (3, "x")):
            patch(world, executor_id, labels={EXECUTOR_ID_LABEL: label})
        world.advance(5)
        assert world.stop().left_behind == ()
        assert names(world) == []


def test_executors_of_the_last_driver_are_adopted_and_what_comes_after_is_a_strangers() -> None:
    with held(3) as world:
        world.stop(delete_pods=False)
        world.restart()
        world.advance(1)
        stray(world, name(5), 5)  # its request may have been under way
        world.advance(10)
        stray(world, name(8), 8)
        world.advance(60)
        assert running_ids(world) == [1, 2, 3, 5]
        world.stop()
        assert names(world) == [name(8)]


def test_a_driver_that_gets_its_lease_back_knows_its_strangers_and_adopts_what_came_meanwhile() -> None:
    with held(2) as world:
        stray(world, name(7), 7)
        world.advance(2)
        world.api.outage = True
        world.advance(30)
        stray(world, name(8), 8)
        world.api.outage = False
        world.advance(60)
        assert running_ids(world) == [1, 2, 8], "another driver may have made it"
        assert name(7) in names(world)


# ── a server that ignores the selector ───────────────────────────────────────────────────────────────────────────────


class Blind(InProcessPodApi):
    """A server, or a proxy before it, that ignores label selectors of reads."""

    def send(self, request: kube.Request[Any], reply: kube.Reply[Any]) -> Call:
        """See `PodApi`."""
        return super().send(replace(request, selector="") if isinstance(request, kube.List) else request, reply)

    def watch(self, request: kube.Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        return super().watch(replace(request, selector=""), sink)


class BlindWorld(World):
    door = Blind


OTHERS: dict[str, dict[str, str]] = {
    "another fleet's": {"executor-pods/app-id": "other"},
    "of another role": {"executor-pods/role": "pet"},
    "set aside": {"executor-pods/inactive": "true"},
}


@pytest.mark.parametrize("more", OTHERS.values(), ids=OTHERS)
def test_where_the_selector_is_ignored_pods_of_others_are_neither_counted_nor_written_to(
    more: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with BlindWorld() as world:
        stray(world, "other-exec-2", 2, more)
        world.target(2)
        world.advance(20)
        stray(world, "other-exec-7", 7, more)
        world.kubelet.exit("other-exec-2", 1)
        world.advance(20)
        assert running_ids(world) == [1, 2]
        assert world.heard(ExecutorRemoved) == []
        told = [record for record in caplog.records if "ignores our label selector" in record.getMessage()]
        assert 1 <= len(told) <= 4, "once after each list, whatever they do"
        world.store.delete("pods", "default", "other-exec-2", grace_period_seconds=0)
        world.advance(20)
        assert world.heard(ExecutorRemoved) == []
        assert names(world) == [name(1), name(2), "other-exec-7"]
        assert world.stop(delete_pods=True).left_behind == ()
        assert names(world) == ["other-exec-7"]


# ── unusable fields ──────────────────────────────────────────────────────────────────────────────────────────────────

TIMES: tuple[Any, ...] = (
    "2024-01-01T00:00:00",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "99999-01-01T00:00:00Z",
    "yesterday",
    "",
    7,
    [],
)
NUMBERS: tuple[Any, ...] = (9 * 10**18, 10**14, 2**63, 10**30, -1, -(10**18), 0.5, 1e300, "30", True, [], {})


def says(pod_name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Make a server that changes what it says of one pod."""

    def say(pod: dict[str, Any]) -> dict[str, Any]:
        if pod["metadata"]["name"] == pod_name:
            change(pod)
        return pod

    return say


def field_of(place: str, value: Any) -> Callable[[dict[str, Any]], object]:
    *way, last = place.split(".")

    def change(pod: dict[str, Any]) -> None:
        for step in way:
            pod = pod.setdefault(step, {})
        pod[last] = value

    return change


def deleting(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda pod: change(pod) if "deletionTimestamp" in pod["metadata"] else None


def survives_a_deletion(change: Callable[[dict[str, Any]], object]) -> None:
    """Somebody deletes an executor, of which the server says odd things: it ends, it is replaced, and that is all."""
    with LyingWorld(executor={"instances": 3}) as world:
        world.liar.say = says(name(2), deleting(change))
        world.kubelet.script = lambda _: Run(stop_delay=timedelta(seconds=90))
        world.advance(5)
        world.store.delete("pods", "default", name(2), grace_period_seconds=120)
        world.advance(40)
        assert (names(world), world.removals()) == ([name(1), name(2), name(3), name(4)], {})
        world.advance(100)
        assert names(world) == [name(1), name(3), name(4)]
        assert world.removals().keys() == {2}
        assert ended(world, 2).kind in {LossKind.DELETED, LossKind.NODE_LOST, LossKind.EXITED}
        assert world.heard(BackendFailed) == []


@pytest.mark.parametrize("value", NUMBERS, ids=str)
def test_any_grace_period_harms_at_most_the_pod_that_has_it(value: Any) -> None:
    survives_a_deletion(field_of("metadata.deletionGracePeriodSeconds", value))


@pytest.mark.parametrize("value", TIMES, ids=str)
def test_any_deletion_timestamp_harms_at_most_the_pod_that_has_it(value: Any) -> None:
    survives_a_deletion(field_of("metadata.deletionTimestamp", value))


@pytest.mark.parametrize("value", TIMES, ids=str)
def test_any_start_time_harms_nobody(value: Any) -> None:
    with LyingWorld(executor={"instances": 3}) as world:
        say = world.liar.say = says(name(2), field_of("status.startTime", value))
        world.advance(100)
        world.stop(delete_pods=False)
        world.restart()
        world.liar.say = say
        world.advance(100)
        assert (names(world), running_ids(world)) == ([name(1), name(2), name(3)], [1, 2, 3])
        assert (world.removals(), world.heard(BackendFailed)) == ({}, [])


def test_a_field_that_cannot_be_used_is_logged_once_and_costs_no_executor(caplog: pytest.LogCaptureFixture) -> None:
    with LyingWorld(executor={"instances": 3}) as world:
        world.liar.say = says(name(2), field_of("spec.containers", "none"))
        world.advance(200)
        assert (names(world), world.removals()) == ([name(1), name(2), name(3)], {})
        told = [record.getMessage() for record in caplog.records if "unusable fields" in record.getMessage()]
        assert len(told) == 1
        assert name(2) in told[0]
