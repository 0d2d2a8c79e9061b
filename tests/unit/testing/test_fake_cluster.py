"""`FakeCluster`: what a test can make of executors and of requests, and how a Backend reports it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors import (
    AllocationBlocked,
    AllocationUnblocked,
    Backend,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    GetFleetStatus,
    LossKind,
    RequestTotalExecutors,
    Settings,
    StopBackend,
)
from actors.testing import FakeCluster, Kit, StayUnscheduled

if TYPE_CHECKING:
    from actors.testing import Probe


class Fleet:
    """Two executors, and a probe as their driver."""

    def __init__(self, kit: Kit, cluster: FakeCluster, instances: int = 2, **settings: Any) -> None:
        self.kit = kit
        self.driver: Probe = kit.probe("driver")
        settings = {"app_id": "test", "backend": {"lease": False}} | settings
        self.settings = Settings(executor={"image": "any", "instances": instances}, **settings)
        self.backend = Backend.start(self.settings, self.driver.address, cluster.api, system=kit.system)
        kit.advance(seconds=5)

    def removed(self, **duration: float) -> dict[int, ExecutorRemoved]:
        """The executors that are removed within a time."""
        self.driver.take_all(ExecutorRemoved)
        self.kit.advance(**duration)
        return {message.executor_id: message for message in self.driver.take_all(ExecutorRemoved)}


@pytest.fixture
def cluster(kit: Kit) -> FakeCluster:
    return FakeCluster(kit)


# ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pods_run_by_themselves(kit: Kit, cluster: FakeCluster) -> None:
    fleet = Fleet(kit, cluster)
    assert [message.executor_id for message in fleet.driver.take_all(ExecutorRunning)] == [1, 2]
    assert cluster.phases == {1: "Running", 2: "Running"}
    assert cluster.pods[1]["metadata"]["name"] == "test-exec-1"


def test_a_pod_can_stay_pending_until_the_test_runs_it(kit: Kit) -> None:
    cluster = FakeCluster(kit, auto_run=False)
    fleet = Fleet(kit, cluster)
    assert cluster.phases == {1: "Pending", 2: "Pending"}
    cluster.run(2)
    kit.advance(seconds=2)
    assert fleet.driver.take(ExecutorRunning).executor_id == 2
    assert cluster.phases == {1: "Pending", 2: "Running"}


@pytest.mark.parametrize(
    ("action", "kind", "code"),
    [
        (lambda cluster: cluster.fail(1, 3), LossKind.EXITED, 3),
        (lambda cluster: cluster.succeed(1), LossKind.FINISHED, 0),
        (lambda cluster: cluster.oom(1), LossKind.OOM_KILLED, 137),
        (lambda cluster: cluster.evict(1), LossKind.EVICTED, 137),
        (lambda cluster: cluster.terminate(1), LossKind.DELETED, 143),
    ],
)
def test_what_ends_an_executor_is_its_reason(kit: Kit, cluster: FakeCluster, action: Any, kind: Any, code: int) -> None:
    fleet = Fleet(kit, cluster)
    action(cluster)
    removed = fleet.removed(seconds=5)
    assert {executor_id: (end.reason.kind, end.reason.exit_code) for executor_id, end in removed.items()} == {
        1: (kind, code)
    }
    kit.advance(seconds=5)
    assert cluster.phases == {2: "Running", 3: "Running"}


def test_an_executor_is_lost_with_its_node(kit: Kit, cluster: FakeCluster) -> None:
    fleet = Fleet(kit, cluster)
    cluster.lose_node(1)
    removed = fleet.removed(seconds=5)
    assert {executor_id: end.reason.kind for executor_id, end in removed.items()} == {1: LossKind.NODE_LOST}
    kit.advance(seconds=5)
    assert cluster.phases == {2: "Running", 3: "Running"}


def test_an_executor_without_its_image_is_stuck(kit: Kit) -> None:
    cluster = FakeCluster(kit, auto_run=False)
    fleet = Fleet(kit, cluster)
    cluster.stuck(1, "ImagePullBackOff", "no such image")
    kit.advance(seconds=5)
    stuck = fleet.driver.take(ExecutorStuck)
    assert (stuck.executor_id, stuck.reason) == (1, "ImagePullBackOff")
    assert "no such image" in stuck.message


def test_a_pod_that_is_about_to_run_can_get_stuck_and_run_after_all(kit: Kit) -> None:
    cluster = FakeCluster(kit, start_delay=timedelta(seconds=30))
    Fleet(kit, cluster)
    cluster.stuck(1, "ErrImagePull")
    kit.advance(minutes=1)
    assert cluster.phases == {1: "Pending", 2: "Running"}
    cluster.run(1)
    assert cluster.phases[1] == "Running"


def test_a_realistic_cluster_takes_the_times_of_a_node(kit: Kit) -> None:
    cluster = FakeCluster(kit, realistic=True)
    fleet = Fleet(kit, cluster)
    fleet.driver.take_all(ExecutorRunning)
    assert cluster.phases == {1: "Running", 2: "Running"}
    cluster.fail(1, 3)
    assert fleet.removed(seconds=0.9) == {}
    (end,) = fleet.removed(seconds=1.3).values()
    assert (end.reason.kind, end.reason.exit_code) == (LossKind.EXITED, 3)
    cluster.terminate(2)
    assert fleet.removed(seconds=0.9) == {}
    (end,) = fleet.removed(seconds=1.3).values()
    assert (end.reason.kind, end.reason.exit_code) == (LossKind.DELETED, 143)


def test_a_script_has_a_plan_for_each_pod(kit: Kit) -> None:
    fleet = Fleet(kit, FakeCluster(kit, script=lambda _: StayUnscheduled("no room")))
    kit.advance(minutes=10)
    assert {message.message for message in fleet.driver.take_all(ExecutorStuck)} == {"no room"}


def test_an_action_names_the_executors_that_there_are(kit: Kit, cluster: FakeCluster) -> None:
    Fleet(kit, cluster)
    with pytest.raises(LookupError, match=r"^executor 7 cannot fail: it has no pod. Executors with a pod: \[1, 2\]$"):
        cluster.fail(7)
    with pytest.raises(ValueError, match=r"^executor 1 cannot run: its pod is Running, not Pending$"):
        cluster.run(1)
    with pytest.raises(ValueError, match=r"use succeed\(\)"):
        cluster.fail(1, 0)
    cluster.fail(1)
    with pytest.raises(ValueError, match=r"^executor 1 cannot be evicted: its pod is Failed, not Pending or Running$"):
        cluster.evict(1)


def test_two_fleets_with_the_same_ids_need_two_clusters(kit: Kit, cluster: FakeCluster) -> None:
    Fleet(kit, cluster, app_id="one")
    Fleet(kit, cluster, app_id="two")
    with pytest.raises(LookupError, match=r"executor 1 has several pods: .*\['one-exec-1', 'two-exec-1'\]"):
        cluster.fail(1)


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_requests_are_values(kit: Kit, cluster: FakeCluster) -> None:
    Fleet(kit, cluster)
    posts = [request for request in cluster.requests if (request.verb, request.resource) == ("create", "pods")]
    assert [(request.name, request.executor_ids) for request in posts] == [("test-exec-1", (1,)), ("test-exec-2", (2,))]
    assert posts[0].body is not None
    assert posts[0].body["spec"]["containers"][0]["image"] == "any"
    assert {request.verb for request in cluster.requests} >= {"list", "watch"}


def test_requests_and_deletes_are_known_by_executor(kit: Kit, cluster: FakeCluster) -> None:
    fleet = Fleet(kit, cluster)
    cluster.fail(2)
    kit.advance(seconds=5)
    assert cluster.created == [1, 2, 3]
    assert cluster.deleted == [2]
    fleet.backend.tell(StopBackend())
    kit.advance(seconds=5)
    assert cluster.pods == {}
    assert cluster.deleted == [2, 1, 3]
    assert ("deletecollection", (1, 3)) in {(request.verb, request.executor_ids) for request in cluster.requests}


def test_other_objects_are_requests_too(kit: Kit, cluster: FakeCluster) -> None:
    Fleet(kit, cluster, backend={"lease": True})
    kit.advance(minutes=1)
    seen = {(request.verb, request.resource) for request in cluster.requests}
    assert seen >= {("get", "leases"), ("create", "leases"), ("patch", "leases")}
    assert seen >= {("create", "selfsubjectaccessreviews"), ("create", "pods")}


def test_a_quota_blocks_until_it_is_lifted(kit: Kit, cluster: FakeCluster) -> None:
    cluster.quota(3)
    fleet = Fleet(kit, cluster, instances=5)
    assert "exceeded quota" in str(fleet.driver.take(AllocationBlocked).cause)
    assert len(cluster.pods) == 3
    cluster.quota(None)
    kit.advance(minutes=2)
    assert fleet.driver.take(AllocationUnblocked)
    assert len(cluster.pods) == 5


def test_an_outage_ends_with_its_block(kit: Kit, cluster: FakeCluster) -> None:
    fleet = Fleet(kit, cluster)
    with cluster.outage():
        fleet.backend.tell(RequestTotalExecutors(4))
        cluster.fail(1)
        assert fleet.removed(seconds=30) == {}
        assert len(cluster.pods) == 2
    assert list(fleet.removed(minutes=2)) == [1]
    assert set(cluster.phases.values()) == {"Running"}
    assert len(cluster.pods) == 4


def test_a_backend_that_starts_in_an_outage_begins_after_it(kit: Kit, cluster: FakeCluster) -> None:
    with cluster.outage():
        Fleet(kit, cluster)
        assert cluster.pods == {}
    kit.advance(minutes=1)
    assert len(cluster.pods) == 2


def test_slow_answers_come_late(kit: Kit, cluster: FakeCluster) -> None:
    cluster.slow(6)
    Fleet(kit, cluster)
    assert cluster.pods == {}
    kit.advance(seconds=30)
    assert len(cluster.pods) == 2
    cluster.slow(timedelta(0))


def test_a_refused_request_is_sent_again(kit: Kit, cluster: FakeCluster) -> None:
    cluster.refuse("create", 500, times=2)
    Fleet(kit, cluster, instances=1)
    kit.advance(minutes=1)
    posts = [request for request in cluster.requests if request.executor_ids == (1,) and request.verb == "create"]
    assert len(posts) == 3
    assert posts[0].at < posts[1].at < posts[2].at
    assert cluster.phases == {1: "Running"}


def test_a_refusal_has_its_status_and_message(kit: Kit, cluster: FakeCluster) -> None:
    cluster.refuse("create", 422, "image is not a name", times=100)
    blocked = Fleet(kit, cluster).driver.take(AllocationBlocked)
    assert "image is not a name" in str(blocked.cause)


# ── assertions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_most_that_were_alive_are_counted(kit: Kit, cluster: FakeCluster) -> None:
    fleet = Fleet(kit, cluster, instances=3)
    cluster.fail(1)
    with cluster.never_more_than(3):
        kit.advance(seconds=5)
    assert cluster.most_alive == 3
    fleet.backend.tell(RequestTotalExecutors(4))
    too_many = r"4 executors were alive at 0:00:1\d.*, not at most 3: \[2, 3, 4, 5\]"
    with pytest.raises(AssertionError, match=too_many), cluster.never_more_than(3):
        kit.advance(seconds=5)
    assert cluster.most_alive == 4


def test_an_error_in_the_block_is_not_hidden(kit: Kit, cluster: FakeCluster) -> None:
    Fleet(kit, cluster)
    with pytest.raises(KeyError), cluster.never_more_than(0):
        raise KeyError


# ── drivers that follow each other ───────────────────────────────────────────────────────────────────────────────────


def test_a_second_backend_finds_the_pods_of_the_first(kit: Kit, cluster: FakeCluster) -> None:
    first = Fleet(kit, cluster)
    first.backend.tell(StopBackend(delete_pods=False))
    kit.advance(seconds=5)
    second = Fleet(kit, cluster)
    assert kit.ask(second.backend, GetFleetStatus()).profiles["default"].running == 2
    assert cluster.created == [1, 2]


def test_a_namespace_of_the_settings_is_there(kit: Kit, cluster: FakeCluster) -> None:
    api = cluster.connect("batch", request_timeout=timedelta(seconds=1))
    assert api.namespace == "batch"
    Backend.start(Settings(executor={"image": "any"}), kit.probe().address, api, system=kit.system)
    kit.advance(seconds=5)
    assert {pod["metadata"]["namespace"] for pod in cluster.pods.values()} == {"batch"}
