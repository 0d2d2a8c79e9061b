"""Cases of Spark's ExecutorPodsAllocatorSuite, told with the test-kit that users have.

Where Spark mocks the client, its labels, the pods, a clock and a snapshot store, here are ten lines: a Backend on a
`FakeCluster`. A test's comment has the name of Spark's.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from actors import Backend, RegisterExecutor, RequestTotalExecutors, Settings, StopBackend
from actors.testing import FakeCluster, Kit

if TYPE_CHECKING:
    from actors.runtime import Address


Start = Any


@pytest.fixture
def cluster(kit: Kit) -> FakeCluster:
    return FakeCluster(kit, auto_run=False)


@pytest.fixture
def start(kit: Kit, cluster: FakeCluster) -> Start:
    def start(instances: int, profiles: Any = None, **allocation: Any) -> Address:
        allocation = {"batch_size": 5, "max_batch_size": 5, "pacing": "batch", **allocation}
        settings: Any = {"allocation": allocation, "profiles": profiles or {}}
        settings["executor"] = {"image": "spark", "instances": instances, "max_failures": 99}
        return Backend.start(Settings(**settings), owner=kit.probe().address)

    return start


def test_executors_are_requested_in_batches(kit: Kit, cluster: FakeCluster, start: Start) -> None:
    """Initially request executors in batches. Do not request another batch if the first has not finished."""
    start(11)
    kit.advance(milliseconds=900)
    assert cluster.created == [1, 2, 3, 4, 5]
    with cluster.stalled_watches():
        kit.advance(milliseconds=200)
        assert cluster.created == list(range(1, 11))
        kit.advance(seconds=5)
        assert cluster.created == list(range(1, 11)), "the pods of the last batch have not been observed"
    kit.advance(seconds=2)
    assert cluster.created == list(range(1, 12))
    assert set(cluster.phases.values()) == {"Pending"}


def test_executors_that_fail_are_requested_again(kit: Kit, cluster: FakeCluster, start: Start) -> None:
    """When a current batch reaches error states immediately, re-request them on the next batch."""
    start(5)
    kit.advance(seconds=2)
    for executor_id in range(1, 6):
        cluster.run(executor_id)
        cluster.fail(executor_id)
    with cluster.never_more_than(5):
        kit.advance(minutes=1)
    assert cluster.created == list(range(1, 11))
    assert cluster.deleted == [1, 2, 3, 4, 5]
    assert sorted(cluster.phases) == [6, 7, 8, 9, 10]


def test_executors_that_fail_at_each_start_are_requested_ever_more_slowly(
    kit: Kit, cluster: FakeCluster, start: Start
) -> None:
    """Of ours: Spark creates a pod in each round, whatever becomes of it."""
    start(1)
    for executor_id in range(1, 7):
        kit.wait_until(lambda: len(cluster.created) == executor_id)  # noqa: B023 - it is called at once
        cluster.run(executor_id)
        cluster.fail(executor_id)
    moments = [request.at for request in cluster.requests if (request.verb, request.resource) == ("create", "pods")]
    waits = [(after - before).total_seconds() for before, after in pairwise(moments)]
    assert waits[-1] > 10 * waits[0]


def test_a_post_that_fails_is_sent_again(kit: Kit, cluster: FakeCluster, start: Start) -> None:
    """SPARK-41410 and others: an exception of the client must neither end the allocator nor lose the executor."""
    cluster.refuse("create", 500, times=2)
    start(2)
    kit.advance(minutes=1)
    assert sorted(cluster.phases) == [1, 2]
    assert sorted(cluster.created) == [1, 1, 2, 2]


def test_a_pod_that_is_never_observed_is_requested_again(kit: Kit, cluster: FakeCluster, start: Start) -> None:
    """When an executor is requested but the API does not report it in a reasonable time, retry requesting it."""
    backend = start(0, creation_timeout="30s")
    kit.advance(seconds=2)
    with cluster.stalled_watches():
        backend.tell(RequestTotalExecutors(1))
        kit.advance(seconds=2)
        cluster.terminate(1)
        kit.advance(seconds=27)
        assert cluster.created == [1], "it may be observed yet"
        kit.advance(minutes=1)
        assert cluster.created == [1, 2]
    kit.advance(minutes=1)
    assert sorted(cluster.phases) == [2]


def test_pending_pods_are_limited(kit: Kit, cluster: FakeCluster, start: Start) -> None:
    """SPARK-36052: pending pod limit."""
    start(10, max_pending_pods=3)
    kit.advance(seconds=5)
    assert sorted(cluster.phases) == [1, 2, 3]
    cluster.run(2)
    cluster.run(3)
    kit.advance(seconds=5)
    assert cluster.phases == {1: "Pending", 2: "Running", 3: "Running", 4: "Pending", 5: "Pending"}


def test_each_profile_has_a_target_and_all_share_the_limit(kit: Kit, cluster: FakeCluster, start: Start) -> None:
    """SPARK-36052: pending pod limit with multiple resource profiles."""
    start(2, profiles={"gpu": {"instances": 3}}, max_pending_pods=4)
    kit.advance(seconds=5)
    profiles = [pod["metadata"]["labels"]["executor-pods/profile"] for pod in cluster.pods.values()]
    assert len(profiles) == 4
    assert {"default", "gpu"} == set(profiles)
    for executor_id in list(cluster.pods):
        cluster.run(executor_id)
    kit.advance(seconds=5)
    profiles = [pod["metadata"]["labels"]["executor-pods/profile"] for pod in cluster.pods.values()]
    assert (profiles.count("default"), profiles.count("gpu")) == (2, 3)


def test_a_lower_target_deletes_pending_pods_and_no_others(kit: Kit, cluster: FakeCluster, start: Start) -> None:
    """Scale up and down on target executor count changes; SPARK-33099: respect executor idle timeout."""
    backend = start(5, idle_timeout="60s")
    kit.advance(seconds=2)
    cluster.run(1)
    cluster.run(4)
    backend.tell(RegisterExecutor(1))
    backend.tell(RequestTotalExecutors(1))
    kit.advance(seconds=30)
    assert cluster.deleted == [], "they are younger than the idle timeout"
    kit.advance(minutes=1)
    assert cluster.phases == {1: "Running", 4: "Running"}
    backend.tell(RequestTotalExecutors(3))
    kit.advance(seconds=5)
    assert cluster.phases == {1: "Running", 4: "Running", 6: "Pending"}


def test_stopping_deletes_the_pods(kit: Kit, cluster: FakeCluster, start: Start) -> None:
    """Verify stopping deletes the labeled pods."""
    backend = start(5)
    kit.advance(seconds=2)
    backend.tell(StopBackend())
    kit.advance(minutes=1)
    assert cluster.pods == {}
    assert not backend.is_alive()
