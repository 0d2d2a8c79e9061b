"""What a user of a Dask cluster reads when no worker can come: one sentence, with threads and on asyncio."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("distributed")

from distributed import Client

from actors.dask import waiting
from actors.errors import Unreachable, WaitTimeout
from actors.fleet import goals
from actors.local.cluster import LocalCluster
from tests.e2e.dask_clusters import LIMIT, SLEEPER, cluster_of, on, pids, told, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """An embedded cluster; nobody is patient with it."""
    monkeypatch.setattr(goals, "PATIENCE", goals.PATIENCE * 0)
    monkeypatch.setattr(waiting, "CONNECT_PATIENCE", 0.2)
    with LocalCluster(failing_pulls=["acme/*"]) as cluster:
        yield cluster


def with_threads(timeout: float, **values: Any) -> str:
    with cluster_of(2, drain_timeout=0, **values) as cluster, pytest.raises((Unreachable, WaitTimeout)) as raised:
        cluster.wait_for_workers(2, timeout=timeout)
    return str(raised.value)


def on_asyncio(timeout: float, **values: Any) -> str:
    async def program() -> str:
        async with cluster_of(2, drain_timeout=0, asynchronous=True, **values) as cluster:
            with pytest.raises((Unreachable, WaitTimeout)) as raised:
                await cluster.wait_for_workers(2, timeout=timeout)
            return str(raised.value)

    return asyncio.run(program())


@pytest.mark.parametrize("run", [with_threads, on_asyncio])
def test_an_image_that_cannot_be_pulled_is_named(local: LocalCluster, run: Callable[..., str]) -> None:
    said = run(LIMIT, **on(local) | {"image": "acme/etl:7"})
    assert said.startswith("2 executors should be registered, 0 run and 0 are: executor 1 is stuck: ")
    assert "acme/etl:7" in said
    assert "\n" not in said


def test_who_waits_for_a_result_without_a_word_is_told_what_holds_it_up(
    local: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster_of(3, drain_timeout=0, **on(local) | {"image": "acme/etl:7"}) as cluster:
        cluster.sync(until, lambda: len(told(cluster, "stuck")) == 3)
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name.endswith("tor-pods")]
    reasons = {event["message"].split(":")[1] for event in told(cluster, "stuck")}
    assert len(said) == len(reasons), "once a reason, not once an executor"
    assert all(level == "WARNING" and "acme/etl:7" in line for level, line in said)


def test_a_fleet_that_can_not_go_on_ends_the_scheduler_so_that_results_raise(local: LocalCluster) -> None:
    container = {"name": "driver", "image": "i", "command": ["sleep", "1000"]}
    local.store.create("pods", "default", {"metadata": {"name": "driver"}, "spec": {"containers": [container]}})

    async def program() -> None:
        values: dict[str, Any] = {**on(local), "settings": {"driver_pod_name": "driver"}, "asynchronous": True}
        async with cluster_of(1, **values) as cluster, Client(cluster, asynchronous=True) as client:
            await until(lambda: pids(cluster))
            result = client.submit(time.sleep, 1000)
            for name in ("driver", f"{cluster.name}-exec-1"):
                local.store.delete("pods", "default", name, grace_period_seconds=0)
            with pytest.raises(CancelledError):
                await asyncio.wait_for(result.result(), LIMIT)
            assert told(cluster, "backend-failed")

    asyncio.run(program())


def test_a_fleet_that_has_failed_and_has_no_worker_left_ends_the_scheduler_too(local: LocalCluster) -> None:
    async def program() -> None:
        settings = {"executor": {"max_failures": 1, "min_run_time": "1h"}}
        values: dict[str, Any] = {**on(local), "worker_command": ("sh", "-c", "exit 3"), "settings": settings}
        async with cluster_of(1, asynchronous=True, **values) as cluster, Client(cluster, asynchronous=True) as client:
            with pytest.raises(CancelledError):
                await asyncio.wait_for(client.submit(time.sleep, 1000).result(), LIMIT)
            assert told(cluster, "fleet-failed")

    asyncio.run(program())


@pytest.mark.parametrize("run", [with_threads, on_asyncio])
def test_a_quota_is_named_at_the_end_of_the_time(local: LocalCluster, run: Callable[..., str]) -> None:
    quota = {"metadata": {"name": "batch"}, "spec": {"hard": {"pods": "1"}}}
    local.store.create("resourcequotas", "default", quota)
    other = {"name": "other", "image": "any", "command": ["sleep", "1000"]}
    local.store.create("pods", "default", {"metadata": {"name": "other"}, "spec": {"containers": [other]}})
    said = run(0.5, **on(local))
    assert said.startswith("2 executors should be registered, 0 run and 0 are after 500ms: 'default' is blocked: ")
    assert "exceeded quota: batch, requested: pods=1, used: pods=1, limited: pods=1" in said
    assert "\n" not in said


@pytest.mark.parametrize("run", [with_threads, on_asyncio])
def test_a_quota_that_no_worker_fits_is_named_at_once(local: LocalCluster, run: Callable[..., str]) -> None:
    quota = {"metadata": {"name": "batch"}, "spec": {"hard": {"requests.cpu": "4"}}}
    local.store.create("resourcequotas", "default", quota)
    said = run(LIMIT, **on(local) | {"resources": {"requests": {"cpu": "8"}}})
    assert "one executor requests more than the whole quota of the namespace: " in said
    assert "requested: requests.cpu=8, used: requests.cpu=0, limited: requests.cpu=4" in said


@pytest.mark.parametrize("run", [with_threads, on_asyncio])
def test_a_scheduler_that_no_worker_reaches_is_named(local: LocalCluster, run: Callable[..., str]) -> None:
    said = run(LIMIT, **on(local) | {"worker_command": SLEEPER})
    assert said.partition(" s and ")[2].startswith("no worker has connected: they were given the address 127.0.0.1:")
    assert "\n" not in said
