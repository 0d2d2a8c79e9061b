"""What distributed's own tests ask of a deployer (`distributed/deploy/tests`), asked of `PodCluster`.

Its packages do not ship these tests, so the cases are written anew, with workers that are processes. "Quick" cases need
no worker and belong to the default suite; the others take seconds: `pytest -m stress tests/e2e/test_dask_deploy.py`.

| upstream | case | here |
| --- | --- | --- |
| cluster | eq, repr, sync_defaults_to…, sync_allows_override_of… | quick |
| | cluster_info, logs_deprecated | no: of the base class alone |
| adaptive | adapt_cores_memory, update_adaptive | quick |
| | adaptive_local_cluster, …_multi_workers, basic_no_loop | yes |
| | min_max, avoid_churn, adapt_quickly, adapt_down, no_more_workers_than_tasks, target_duration | yes |
| | simultaneous_scale_up_and_down, adaptive_scale_down_override | no: override methods of LocalCluster |
| | worker_keys | no: a worker's name is its executor's id |
| | adaptive_config | no: has no cluster |
| adaptive_core | all | no: have no cluster |
| slow_adaptive | startup, scale_up_down, adaptive | yes: a worker that has not connected goes first |
| spec_cluster | scale, scale_cores_memory, adaptive_killed_worker, unexpected_closed_worker, restart | yes |
| | logs, scheduler_info, dashboard_link, widget | yes |
| | broken_worker | in test_dask.py: a wrong image, workers that never connect |
| | loop_started, spec_sync | yes: a program with threads, and a notebook |
| | spec_close_clusters | in test_dask_lives.py: sessions that end |
| | specification, new_worker_spec, run_spec, MultiWorker, ProcessInterface…, nanny_port | no: of its `worker_spec` |
| local | close_twice, scale_up_and_down, context_manager, submit, shutdown | yes |
| | procs, memory_limit, remote_access, and other arguments | no: of LocalCluster's arguments |
| ssh, subprocess, runner | all | no: other ways to start a process |
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("distributed")

import dask.config
from distributed import Client

from tests.e2e.dask_clusters import LIMIT, SLEEPER, busy, cluster_of, double, pids, scheduler_of, told, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.dask import PodCluster

QUICK: Final[dict[str, Any]] = {"interval": "20ms", "wait_count": 10}
"""How `Adaptive` looks at the cluster in distributed's own tests."""

MOMENT: Final = 0.3
"""Seconds in which nothing must happen: fifteen looks of `Adaptive`."""


@pytest.fixture(autouse=True)
def own_configuration() -> Any:
    with dask.config.set({"distributed.scheduler.active-memory-manager.interval": "100ms"}):
        yield


def run(program: Callable[[PodCluster, Client], Awaitable[None]], n_workers: int = 0, **values: Any) -> None:
    """Run a program on a cluster, once its workers are connected."""

    async def main() -> None:
        async with (
            cluster_of(n_workers, asynchronous=True, **values) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            await until_connected(cluster, n_workers)
            await program(cluster, client)

    asyncio.run(main())


async def until_connected(cluster: PodCluster, number: int) -> None:
    await until(lambda: connected(cluster) == number)


def connected(cluster: PodCluster) -> int:
    return len(scheduler_of(cluster).workers)


def slow(number: int, seconds: float = 0.02) -> int:
    time.sleep(seconds)
    return number + 1


slow.__module__ = "__main__"  # so that it is sent by value: workers do not have this module


# ── without workers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cluster_equals_itself_alone_and_says_its_name_and_address() -> None:
    async def program() -> None:
        async with cluster_of(asynchronous=True, name="a") as one, cluster_of(asynchronous=True) as other:
            assert one == one  # noqa: PLR0124 - as the test of the base class asks
            assert one != other
            assert one != "a"
            assert repr(one) == f"PodCluster(a, '{one.scheduler_address}', workers=0, threads=0, memory=0 B)"

    asyncio.run(program())


def test_a_program_with_threads_may_ask_for_what_it_awaits_and_close_twice_but_no_more() -> None:
    async def one() -> int:
        return 1

    with cluster_of() as cluster:
        assert cluster.sync(one) == 1
        waiting = cluster.sync(one, asynchronous=True)
        assert asyncio.run(waiting) == 1
        cluster.close()
        cluster.close()
    for change in (cluster.adapt, lambda: cluster.scale(1)):
        with pytest.raises(RuntimeError, match=r"^the cluster is closed$"):
            change()


def test_a_cell_of_a_notebook_whose_loop_runs_need_not_await_a_cluster() -> None:
    async def cell() -> None:
        with cluster_of() as cluster:
            assert cluster.status.name == "running"
            assert cluster.fleet_status().profiles["default"].target == 0

    asyncio.run(cell())


def test_adapt_takes_cores_and_memory_as_numbers_of_workers() -> None:
    async def program(cluster: PodCluster, _: Client) -> None:
        inactive: Any = {"interval": None}
        cores = cluster.adapt(minimum_cores=3, maximum_cores=9, **inactive)
        assert (cores.minimum, cores.maximum) == (2, 4)
        memory = cluster.adapt(minimum_memory="7GB", maximum_memory="20 GB", **inactive)
        assert (memory.minimum, memory.maximum) == (3, 6)
        both: Any = {"minimum_cores": 1, "minimum_memory": "7GB", "maximum_cores": 10, "maximum_memory": "1 TB"}
        most = cluster.adapt(**both, **inactive)
        assert (most.minimum, most.maximum) == (3, 5)

    run(program, nthreads=2, memory_limit="3 GB")


def test_a_second_adapt_ends_the_first_one() -> None:
    async def program(cluster: PodCluster, _: Client) -> None:
        first, second = cluster.adapt(maximum=1), cluster.adapt(maximum=2)
        await until(lambda: second.state == "running")
        assert first.state == "stopped"
        assert second.maximum == 2

    run(program)


# ── with workers ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.stress
def test_workers_come_for_a_task_stay_while_it_is_wanted_and_then_go() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        cluster.adapt(interval="100 ms")
        task = client.submit(double, 1)
        assert await task == 2
        await asyncio.sleep(MOMENT)
        assert connected(cluster) == 1
        del task
        await until_connected(cluster, 0)

    run(program)


@pytest.mark.stress
def test_workers_come_for_many_tasks_go_stay_away_and_come_again() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        cluster.adapt(interval="100 ms", maximum=3)
        for _ in range(2):
            tasks = client.map(slow, range(100), pure=False)
            assert sum(await client.gather(tasks)) == 5050
            tasks.clear()
            await until_connected(cluster, 0)
            await asyncio.sleep(MOMENT)
            assert connected(cluster) == 0

    run(program)


@pytest.mark.stress
def test_adapt_keeps_between_minimum_and_maximum() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        adaptive = cluster.adapt(minimum=1, maximum=2, **QUICK)
        await until_connected(cluster, 1)
        await asyncio.sleep(MOMENT)
        assert [change for _, change in adaptive.log] == [{"status": "up", "n": 1}]
        tasks = client.map(slow, range(200), seconds=0.1)
        await until_connected(cluster, 2)
        await asyncio.sleep(MOMENT)
        assert connected(cluster) == 2
        assert [change["status"] for _, change in adaptive.log] == ["up", "up"]
        tasks.clear()
        await until_connected(cluster, 1)
        assert adaptive.log[-1][1]["status"] == "down"

    run(program)


@pytest.mark.stress
def test_short_pauses_end_no_worker() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        adaptive = cluster.adapt(interval="20 ms", wait_count=5)
        for number in range(10):
            await client.submit(slow, number, seconds=0.04)
            await asyncio.sleep(0.04)
        assert len(adaptive.log) == 1

    run(program)


@pytest.mark.stress
def test_adapt_goes_quickly_to_its_maximum_and_stays_at_one_for_tasks_in_a_row() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        adaptive = cluster.adapt(maximum=4, interval="20 ms", wait_count=5)
        held = client.submit(slow, 1, seconds=0.1)  # so that a worker stays
        assert await held == 2
        assert len(adaptive.log) == 1
        tasks = client.map(slow, range(500), seconds=0.1)
        await until(lambda: len(adaptive.log) == 2)
        assert adaptive.log[1][1]["status"] == "up"
        assert 2 < adaptive.log[1][1]["n"] <= 4
        await until_connected(cluster, 4)
        tasks.clear()
        await until(lambda: len(scheduler_of(cluster).tasks) <= 1)
        await until(lambda: connected(cluster) <= 1 and len(cluster.plan) <= 1)
        last = await client.scatter(1)
        for _ in range(100):
            last = client.submit(slow, last)
        await until_connected(cluster, 1)
        await asyncio.sleep(MOMENT)
        assert connected(cluster) == 1

    run(program)


@pytest.mark.stress
def test_a_lower_maximum_ends_workers() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        cluster.adapt(interval="20ms", maximum=4)
        tasks = client.map(slow, range(1000), seconds=0.1)
        await until_connected(cluster, 4)
        cluster.adapt(maximum=2)
        await until_connected(cluster, 2)
        tasks.clear()

    run(program)


@pytest.mark.stress
def test_no_more_workers_come_than_there_are_tasks() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        cluster.adapt(minimum=0, maximum=4, interval="10 ms")
        await client.submit(slow, 1, seconds=0.1)
        assert connected(cluster) <= 1
        assert [event["executor"] for event in told(cluster, "running")] == [1]

    with dask.config.set({"distributed.scheduler.default-task-durations": {"slow": 1000}}):
        run(program)


@pytest.mark.stress
def test_the_time_that_all_tasks_should_take_says_how_many_workers_come() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        adaptive = cluster.adapt(interval="20ms", minimum=2, target_duration="5s")
        await until_connected(cluster, 2)
        tasks = client.map(slow, range(30), seconds=0.3)
        await until(lambda: len(adaptive.log) >= 2)
        assert [change for _, change in adaptive.log][:2] == [{"status": "up", "n": 2}, {"status": "up", "n": 6}]
        tasks.clear()

    with dask.config.set({"distributed.scheduler.default-task-durations": {"slow": 1}}):
        run(program)


@pytest.mark.stress
def test_a_worker_that_has_not_connected_goes_first() -> None:
    async def program(cluster: PodCluster, _: Client) -> None:
        await cluster.scale(2)
        await cluster.scale(1)
        await until(lambda: len(cluster.plan) == 1)
        await asyncio.sleep(MOMENT)
        assert set(pids(cluster)) == {1}

    run(program, n_workers=1)


@pytest.mark.stress
def test_workers_are_scaled_up_and_down_by_number_cores_and_memory() -> None:
    async def program(cluster: PodCluster, _: Client) -> None:
        steps: list[tuple[dict[str, Any], int]] = [
            ({"n": 2}, 2),
            ({"n": 1}, 1),
            ({"cores": 3}, 2),
            ({"memory": "3 GB"}, 3),
            ({"n": 0}, 0),
        ]
        for asked, number in steps:
            await cluster.scale(**asked)
            assert len(cluster.plan) == number
            await until_connected(cluster, number)

    run(program, nthreads=2, memory_limit="1 GB")


@pytest.mark.stress
def test_a_killed_worker_is_replaced_while_dask_adapts() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        cluster.adapt(minimum=1, maximum=1, interval="20ms")
        await until_connected(cluster, 1)
        task = client.submit(slow, 1, seconds=0.2)
        await until(lambda: busy(cluster))
        os.kill(pids(cluster)[1], signal.SIGKILL)
        assert await task == 2
        assert set(pids(cluster)) == {2}

    run(program)


@pytest.mark.stress
def test_a_worker_that_closes_by_itself_is_replaced() -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        await client.retire_workers(names=[1])
        await until(lambda: set(pids(cluster)) == {2, 3})
        assert [event["executor"] for event in told(cluster, "removed")] == [1]

    run(program, n_workers=2)


@pytest.mark.stress
@pytest.mark.parametrize("nanny", [False, True])
def test_a_restart_by_the_client_brings_as_many_workers(nanny: bool) -> None:
    async def program(cluster: PodCluster, client: Client) -> None:
        before = set(pids(cluster).values())
        await client.restart(timeout=LIMIT)
        await until_connected(cluster, 2)
        assert not before & set(pids(cluster).values())
        assert await client.submit(double, 2) == 4

    run(program, n_workers=2, nanny=nanny)


@pytest.mark.stress
def test_logs_are_those_that_are_asked_for() -> None:
    async def program(cluster: PodCluster, _: Client) -> None:
        workers = set(scheduler_of(cluster).workers)
        logs = await cluster.get_logs()
        assert set(logs) == {"Cluster", "Scheduler", *workers}
        ET.fromstring(f"<div>{logs._repr_html_()}</div>")
        nothing = {"cluster": False, "scheduler": False, "workers": False}
        assert list(await cluster.get_logs(**{**nothing, "cluster": True})) == ["Cluster"]
        assert list(await cluster.get_logs(**{**nothing, "scheduler": True})) == ["Scheduler"]
        assert list(await cluster.get_logs(**nothing)) == []
        assert set(await cluster.get_logs(**{**nothing, "workers": True})) == workers
        one = min(workers)
        assert set(await cluster.get_logs(**{**nothing, "workers": [one]})) == {one}

    run(program, n_workers=2)


@pytest.mark.stress
def test_the_cluster_knows_what_its_scheduler_knows_and_shows_it() -> None:
    async def program(cluster: PodCluster, _: Client) -> None:
        await until(lambda: len(cluster.scheduler_info["workers"]) == 2)
        known = scheduler_of(cluster).identity()
        assert cluster.scheduler_info["id"] == known["id"]
        assert set(cluster.scheduler_info["workers"]) == set(known["workers"])
        assert "workers=2, threads=4" in repr(cluster)
        await cluster.scale(3)
        ET.fromstring(f"<div>{cluster._repr_html_()}</div>")
        assert "<td>3</td><td>2</td>" in cluster._repr_html_()

    run(program, n_workers=2, nthreads=2)


def test_a_notebooks_scaling_tab_says_how_many_workers_are_wanted() -> None:
    with cluster_of(worker_command=SLEEPER, drain_timeout=0) as cluster:
        assert "Workers: 0<" in cluster._scaling_status()
        cluster.scale(3)
        assert "Workers: 0 / 3<" in cluster._scaling_status()
        assert len(cluster.workers) == len(cluster.plan) == 3
    assert cluster.workers == {}


@pytest.mark.stress
def test_the_dashboard_is_linked_where_it_listens() -> None:
    async def program() -> None:
        from actors.dask import PodCluster  # noqa: PLC0415 - with a dashboard

        async with PodCluster(local=True, dashboard_address="127.0.0.1:0", asynchronous=True) as cluster:
            port = scheduler_of(cluster).http_server.port
            assert f":{port}/status" in cluster.dashboard_link

    asyncio.run(program())


@pytest.mark.stress
def test_a_program_with_threads_adapts_computes_and_is_shut_down_by_its_client() -> None:
    with cluster_of() as cluster:
        client = cluster.get_client()
        cluster.adapt(maximum=1, interval="50ms")
        assert client.submit(double, 1).result(timeout=LIMIT) == 2
        client.shutdown()
        assert cluster.status.name == "closed"
