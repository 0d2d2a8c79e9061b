"""What a user of a Dask cluster reads when no worker can come: one sentence, with threads and on asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("distributed")

from actors.dask import waiting
from actors.errors import Unreachable, WaitTimeout
from actors.fleet import goals
from actors.local.cluster import LocalCluster
from tests.e2e.dask_clusters import LIMIT, cluster_of, on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLEEPER = ("sh", "-c", "trap 'exit 143' TERM; sleep 1000 & wait")
"""Runs and never connects."""


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """An embedded cluster; nobody is patient with it."""
    monkeypatch.setattr(goals, "PULL_PATIENCE", goals.PULL_PATIENCE * 0)
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


@pytest.mark.parametrize("run", [with_threads, on_asyncio])
def test_a_quota_is_named_at_the_end_of_the_time(local: LocalCluster, run: Callable[..., str]) -> None:
    quota = {"metadata": {"name": "batch"}, "spec": {"hard": {"pods": "0"}}}
    local.store.create("resourcequotas", "default", quota)
    said = run(0.5, **on(local))
    assert said.startswith("2 executors should be registered, 0 run and 0 are after 500ms: 'default' is blocked: ")
    assert "exceeded quota: batch, requested: pods=1, used: pods=0, limited: pods=0" in said
    assert "\n" not in said


@pytest.mark.parametrize("run", [with_threads, on_asyncio])
def test_a_scheduler_that_no_worker_reaches_is_named(local: LocalCluster, run: Callable[..., str]) -> None:
    said = run(LIMIT, **on(local) | {"worker_command": SLEEPER})
    assert said.partition(" s and ")[2].startswith("no worker has connected: they were given the address 127.0.0.1:")
    assert "\n" not in said
