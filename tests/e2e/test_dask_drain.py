"""Workers that must go lose nothing: they finish what they compute, and give their results to others."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("distributed")

import dask.config
from distributed import Client

from actors.local.cluster import LocalCluster
from tests.e2e.dask_clusters import (
    LIMIT,
    begun,
    busy,
    cluster_of,
    leave_a_thread,
    lost,
    noted,
    on,
    scheduler_of,
    told,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from actors.dask import PodCluster


@pytest.fixture(autouse=True)
def quick() -> Any:
    quick = {"distributed.adaptive.interval": "50ms", "distributed.scheduler.active-memory-manager.interval": "100ms"}
    with dask.config.set(quick):
        yield


def delete(local: LocalCluster, pod: str) -> None:
    """Delete a pod with its own grace period, as `kubectl delete` does."""
    local.store.delete("pods", "default", pod)


def connected(cluster: PodCluster) -> set[Any]:
    return {ws.name for ws in scheduler_of(cluster).workers.values()}


def assert_once(path: Path, number: int) -> None:
    """Each task was computed once."""
    computed = Counter(path.read_text().split())
    assert (len(computed), computed.total()) == (number, number)


async def drains(path: Path, how: str, number: int, workers: int) -> None:
    """Have tasks computed. Workers go when half of the tasks are done; each task is computed once."""
    with LocalCluster() as local:
        await drains_on(local, path, how, number, workers)
    assert_once(path, number)


async def drains_on(local: LocalCluster, path: Path, how: str, number: int, workers: int) -> None:
    async with cluster_of(workers, name="etl", asynchronous=True, **on(local)) as cluster:
        async with Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(workers, timeout=LIMIT)
            results = client.map(noted, range(number), path=str(path), seconds=0.02)
            await client.gather(results[: number // 2])
            if how == "scale":
                await cluster.scale(1)
                await until(lambda: len(told(cluster, "removed")) == workers - 1)
            else:
                delete(local, "etl-exec-1")
                await until(lambda: told(cluster, "removed") and len(connected(cluster)) == workers)
                assert 1 not in connected(cluster)
            assert await client.gather(results) == list(range(number))
        assert lost(cluster) == []
        assert told(cluster, "undrained") == []


@pytest.mark.parametrize("how", ["scale", "delete"])
def test_no_result_of_a_worker_that_must_go_is_lost_and_none_is_computed_twice(how: str, tmp_path: Path) -> None:
    asyncio.run(drains(tmp_path / "computed", how, 30, 2))


@pytest.mark.parametrize("nanny", [False, True])
def test_the_pause_of_a_worker_ends_once_its_results_are_with_others(nanny: bool) -> None:
    async def program(local: LocalCluster) -> None:
        values = {"name": "etl", "nanny": nanny, "drain_timeout": "1h", **on(local)}
        async with cluster_of(2, asynchronous=True, **values) as cluster, Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(2, timeout=LIMIT)
            await client.gather(client.map(str, range(10)))
            delete(local, "etl-exec-1")
            await until(lambda: told(cluster, "removed"))
            (removed,) = told(cluster, "removed")
            assert (removed["executor"], removed["kind"]) == (1, "DELETED")
            assert "with exit code 0" in removed["message"]
            assert lost(cluster) == []

    with LocalCluster() as local:
        asyncio.run(program(local))


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_cluster_that_is_closed_waits_for_no_pause(is_busy: bool) -> None:
    async def program() -> None:
        values: dict[str, Any] = {"drain_timeout": "1h", "settings": {"executor": {"stop_grace_period": "1h"}}}
        async with cluster_of(2, asynchronous=True, **values) as cluster, Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(2, timeout=LIMIT)
            if is_busy:
                _task = client.submit(time.sleep, 1000)
                await until(lambda: busy(cluster))
            await asyncio.wait_for(cluster.close(), LIMIT)
            assert {event["kind"] for event in told(cluster, "removed")} == {"KILLED_BY_DRIVER"}

    asyncio.run(program())


def test_a_thread_that_a_task_has_left_does_not_keep_a_worker_that_is_drained() -> None:
    async def program(local: LocalCluster) -> None:
        values = {"name": "etl", "drain_timeout": "1h", **on(local)}
        async with cluster_of(2, asynchronous=True, **values) as cluster, Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(2, timeout=LIMIT)
            await client.run(leave_a_thread)
            delete(local, "etl-exec-1")
            await until(lambda: told(cluster, "removed"))
            assert "with exit code 0" in told(cluster, "removed")[0]["message"]

    with LocalCluster() as local:
        asyncio.run(program(local))


@pytest.mark.stress
@pytest.mark.parametrize("how", ["scale", "delete"])
def test_no_result_is_lost_in_twenty_runs(how: str, tmp_path: Path) -> None:
    for run in range(20):
        asyncio.run(drains(tmp_path / str(run), how, 100, 3))


def test_the_results_of_the_only_worker_wait_for_its_replacement() -> None:
    async def program(**where: Any) -> None:
        async with cluster_of(1, asynchronous=True, **where) as cluster, Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(1, timeout=LIMIT)
            results = client.map(str, range(5))
            await client.gather(results)
            delete(local, "etl-exec-1")
            await until(lambda: connected(cluster) == {2})
            assert await client.gather(results) == ["0", "1", "2", "3", "4"]
            assert lost(cluster) == []

    with LocalCluster() as local:
        asyncio.run(program(name="etl", **on(local)))


def test_a_worker_that_is_scaled_down_finishes_its_task(tmp_path: Path) -> None:
    path = tmp_path / "begun"

    async def program() -> None:
        async with cluster_of(1, asynchronous=True) as cluster, Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(1, timeout=LIMIT)
            slow = client.submit(begun, str(path), seconds=0.5)
            await until(path.exists)  # the worker has begun; it would give back a task that has not
            await cluster.scale(0)
            await asyncio.wait_for(slow, LIMIT)
            await until(lambda: told(cluster, "removed"))
            assert [event["kind"] for event in told(cluster, "removed")] == ["KILLED_BY_DRIVER"]
            assert await cluster.fleet_status()

    asyncio.run(program())


async def waves(path: Path, number: int) -> None:
    """Let a cluster grow from one worker to three and shrink, so many times, and keep all results."""
    async with cluster_of(asynchronous=True, local=True) as cluster:
        async with Client(cluster, asynchronous=True) as client:
            adaptive = cluster.adapt(minimum=1, maximum=3, target_duration="100ms", wait_count=2)
            results: list[Any] = []
            for _ in range(number):
                while len(connected(cluster)) < 3:
                    if sum(not each.done() for each in results) < 40:
                        more = range(len(results), len(results) + 40)
                        results += client.map(noted, more, path=str(path), seconds=0.05)
                    await asyncio.sleep(0.01)
                await client.gather(results)
                await until(lambda: len(connected(cluster)) == 1 and len(cluster.plan) == 1)
            assert await client.gather(results) == list(range(len(results)))
        assert lost(cluster) == []
        await until(lambda: len(told(cluster, "removed")) >= 2 * number)
        assert [event["kind"] for event in told(cluster, "removed")] == ["KILLED_BY_DRIVER"] * 2 * number
        assert len(told(cluster, "connected")) == 2 * number + 1, "no worker came in vain"
        steps = [step["status"] for _, step in adaptive.log]
        turns = sum(step != following for step, following in pairwise(steps))
        assert turns == 2 * number - 1, "it grows and shrinks once a wave"
    assert_once(path, len(results))


def test_a_cluster_that_adapts_goes_up_and_down_without_loss(tmp_path: Path) -> None:
    asyncio.run(waves(tmp_path / "computed", 1))


@pytest.mark.stress
def test_a_cluster_adapts_fifty_times_without_flapping_or_loss(tmp_path: Path) -> None:
    asyncio.run(waves(tmp_path / "computed", 50))


@pytest.mark.stress
def test_workers_that_connect_when_they_are_not_wanted_any_more_take_nothing_with_them(tmp_path: Path) -> None:
    asyncio.run(changes_of_mind(tmp_path / "computed", 30))


async def changes_of_mind(path: Path, number: int) -> None:
    """Scale up, and down again as soon as workers connect, while tasks come in."""
    async with cluster_of(1, asynchronous=True) as cluster:
        async with Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(1, timeout=LIMIT)
            results: list[Any] = []
            for turn in range(number):
                await cluster.scale(3)
                since = time.monotonic()
                while len(connected(cluster)) < 2 and time.monotonic() < since + 0.1 * (turn % 12):
                    results += client.map(noted, range(len(results), len(results) + 2), path=str(path), seconds=0.01)
                    await asyncio.sleep(0.05)
                results += client.map(noted, range(len(results), len(results) + 6), path=str(path), seconds=0.01)
                await cluster.scale(1)
                await until(lambda: len(cluster.plan) == len(connected(cluster)) == 1)
            assert await client.gather(results) == list(range(len(results)))
        assert lost(cluster) == []
    assert_once(path, len(results))
