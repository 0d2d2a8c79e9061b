"""`PodCluster` on the embedded cluster: a scheduler in this process, workers as processes of this machine."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("distributed")

import dask.config
from distributed import Client, KilledWorker, Scheduler, Worker

from actors.dask import PodCluster
from actors.dask.link import Link
from actors.errors import WaitTimeout
from actors.fleet.async_fleet import AsyncFleet
from actors.local.cluster import LocalCluster
from tests.docs.pages import blocks
from tests.e2e.dask_clusters import LIMIT, SLEEPER, busy, cluster_of, double, lost, on, pids, scheduler_of, told, until
from tests.e2e.leftovers import kept, left, opened, running

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def quick() -> Any:
    with dask.config.set({"distributed.adaptive.interval": "50ms", "distributed.scheduler.work-stealing": False}):
        yield


def delete_by_force(local: LocalCluster, pod: str) -> None:
    """Delete a pod without grace, as somebody else would."""
    local.store.delete("pods", "default", pod, grace_period_seconds=0)


def test_a_program_with_threads_scales_and_loses_no_result() -> None:
    with cluster_of(2, name="etl") as cluster:
        cluster.wait_for_workers(2, timeout=LIMIT)
        with cluster.get_client() as client:
            numbers = client.map(double, range(40))
            assert sum(client.gather(numbers)) == 1560
            cluster.scale(1)
            cluster.sync(until, lambda: len(cluster.scheduler_info["workers"]) == 1)
            assert sum(client.gather(numbers)) == 1560
            assert lost(cluster) == []
        assert cluster.fleet_status().profiles["default"].target == 1
        assert "1 running" in cluster._repr_html_()
        logs = cluster.get_logs(workers=False)
        assert "executor 1 runs" in logs["Cluster"]
        assert cluster.name == "etl"


def test_a_worker_that_is_killed_is_replaced_and_its_tasks_run_elsewhere() -> None:
    async def program() -> None:
        async with cluster_of(1, asynchronous=True) as cluster, Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(1, timeout=LIMIT)
            slow = client.submit(time.sleep, 0.3)
            await until(lambda: busy(cluster))
            os.kill(pids(cluster)[1], signal.SIGKILL)
            assert await slow is None
            assert set(pids(cluster)) == {2}
            assert [event["executor"] for event in told(cluster, "removed")] == [1]
            assert await client.get_events("executor-pods")

    asyncio.run(program())


def test_a_task_is_not_suspected_when_its_workers_pod_was_deleted() -> None:
    async def program(local: LocalCluster) -> None:
        async with cluster_of(1, name="etl", asynchronous=True, **on(local)) as cluster:
            assert cluster.scheduler is not None
            async with Client(cluster, asynchronous=True) as client:
                await cluster.wait_for_workers(1, timeout=LIMIT)
                slow = client.submit(time.sleep, 0.2, key="slow")
                await until(lambda: busy(cluster))
                delete_by_force(local, "etl-exec-1")
                await until(lambda: told(cluster, "removed"))
                assert told(cluster, "removed")[0]["kind"] == "DELETED"
                assert cluster.scheduler.tasks["slow"].suspicious == 0
                assert await slow is None

    with LocalCluster() as local:
        asyncio.run(program(local))


def test_a_task_is_not_suspected_either_when_the_connection_is_lost_after_the_end_was_told() -> None:
    async def program() -> None:
        async with cluster_of(1, asynchronous=True) as cluster, Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(1, timeout=LIMIT)
            _slow = client.submit(time.sleep, 1000, key="slow")
            await until(lambda: busy(cluster))
            scheduler = cluster.scheduler
            assert scheduler is not None
            scheduler.plugins["executor-pods"]._removed(1, by_app=False)
            await scheduler.remove_worker(scheduler.aliases[1], stimulus_id="the connection is lost", expected=False)
            assert scheduler.tasks["slow"].suspicious == 0

    asyncio.run(program())


def freeze() -> None:
    """Stop the whole process, as a deadlock that holds the interpreter does."""
    import os  # noqa: PLC0415 - the workers have this function only
    import signal  # noqa: PLC0415 - as above

    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.stress  # Dask waits five seconds for a heartbeat, at the least
def test_a_task_that_freezes_its_workers_fails_after_its_allowed_deaths() -> None:
    async def program() -> None:
        settings = {"executor": {"disconnect_timeout": "1s"}}
        async with (
            cluster_of(2, asynchronous=True, settings=settings) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            await cluster.wait_for_workers(2, timeout=LIMIT)
            with pytest.raises(KilledWorker):
                await asyncio.wait_for(client.submit(freeze, key="poison"), LIMIT)
            await until(lambda: len(told(cluster, "removed")) >= 2)
            assert {event["kind"] for event in told(cluster, "removed")} == {"HUNG"}

    with dask.config.set({"distributed.scheduler.worker-ttl": "1s", "distributed.scheduler.allowed-failures": 1}):
        asyncio.run(program())


def test_what_the_scheduler_names_as_its_reason_tells_a_hang_from_a_closed_connection() -> None:
    async def program() -> None:
        async with cluster_of(2, asynchronous=True) as cluster:
            await cluster.wait_for_workers(2, timeout=LIMIT)
            scheduler = scheduler_of(cluster)
            fleet = scheduler.plugins["executor-pods"]._fleet
            seen: list[Any] = []
            fleet.disconnected = lambda *told: seen.append(told)
            for executor_id, stimulus in ((1, "check-worker-ttl-1.5"), (2, "handle-worker-cleanup-1.5")):
                await scheduler.remove_worker(scheduler.aliases[executor_id], stimulus_id=stimulus)
            assert seen == [(1, "hang"), (2, "network")]

    asyncio.run(program())


def test_dask_adapts_the_number_of_workers() -> None:
    async def program() -> None:
        async with cluster_of(asynchronous=True) as cluster, Client(cluster, asynchronous=True) as client:
            cluster.adapt(minimum=0, maximum=2, target_duration="100ms", wait_count=2)
            results = client.map(double, range(20))
            answers = await client.gather(results)
            results.clear()
            assert sum(answers) == 380
            await until(lambda: cluster.scheduler is not None and not cluster.scheduler.workers)
            await until(lambda: cluster.plan == set())
            assert lost(cluster) == []
            assert {event["kind"] for event in told(cluster, "removed")} <= {"KILLED_BY_DRIVER"}

    asyncio.run(program())


def test_a_change_of_the_number_counts_at_once_though_nobody_awaits_it() -> None:
    async def program() -> None:
        async with cluster_of(asynchronous=True) as cluster:
            cluster.scale(1)
            assert cluster.plan == {"default/0"}
            await until(lambda: pids(cluster))
            cluster.scale_down(list(pids(cluster)))
            assert cluster.plan == set()
            await until(lambda: told(cluster, "removed"))
            await cluster.scale(0)
            with pytest.raises(ValueError, match="n = -1: must be a whole number of workers"):
                cluster.scale(-1)

    asyncio.run(program())


def test_a_local_cluster_is_reached_from_this_machine_only() -> None:
    async def program() -> None:
        async with PodCluster(1, local=True, dashboard_address=":0", asynchronous=True) as cluster:
            await cluster.wait_for_workers(1, timeout=LIMIT)
            scheduler = scheduler_of(cluster)
            listeners = scheduler.http_server._sockets.values()
            assert {sock.getsockname()[0] for sock in listeners} == {"127.0.0.1"}
            assert scheduler.address.startswith("tcp://127.0.0.1:")
            (worker,) = scheduler.workers
            assert worker.startswith("tcp://127.0.0.1:")

    asyncio.run(program())


def test_at_the_end_of_the_time_the_error_says_what_holds_the_workers_up() -> None:
    with (
        cluster_of(1, worker_command=SLEEPER, drain_timeout=0) as cluster,
        pytest.raises(WaitTimeout, match="1 run and 0 are"),
    ):
        cluster.wait_for_workers(1, timeout=1.5)


def test_a_worker_that_no_executor_has_is_refused_without_a_task_and_one_with_another_name_is_left_alone() -> None:
    async def program() -> None:
        async with cluster_of(asynchronous=True) as cluster, Client(cluster, asynchronous=True) as client:
            answer = client.submit(double, 2)
            stranger = Worker(cluster.scheduler_address, name=99, dashboard_address="127.0.0.1:0")
            await stranger
            await stranger.finished()
            assert [event["executor"] for event in told(cluster, "refused")] == [99]
            assert stranger.state.executed_count == 0
            async with Worker(cluster.scheduler_address, name="mine", dashboard_address="127.0.0.1:0") as mine:
                assert await answer == 4
                assert list(scheduler_of(cluster).workers) == [mine.address]

    asyncio.run(program())


def test_a_worker_of_an_earlier_program_waits_for_the_fleet_to_start() -> None:
    async def nothing() -> None:
        pass

    async def program() -> None:
        async with Scheduler(host="127.0.0.1", dashboard_address="127.0.0.1:0") as scheduler:
            said: list[str] = []
            link = Link(scheduler, said=lambda line, _: said.append(line), before_close=nothing, failed=list)
            fleet = AsyncFleet(local=True, instances=0, on_event=link.on_event)
            link.attach(fleet, int)
            scheduler.add_plugin(link)
            worker = Worker(scheduler.address, name=7, dashboard_address="127.0.0.1:0")
            starting = asyncio.ensure_future(worker.start())
            await until(lambda: scheduler.workers)
            assert said == []
            async with fleet:
                link.begin()
                await starting
                await worker.finished()
                assert said == [f"worker 7 at {worker.address} is refused: it is not wanted"]
            await link.detach()

    asyncio.run(program())


@pytest.mark.parametrize("page", ["docs/how-to/dask.md", "docs/how-to/from-dask-kubernetes.md"])
def test_the_program_of_the_page_prints_what_the_page_says(page: str) -> None:
    program, printed = blocks(page)[:2]
    environment = os.environ | {"PYTHONWARNINGS": "ignore:Port 8787 is already in use"}  # by another test's dashboard
    done = subprocess.run(
        [sys.executable, "-c", program.text],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
        env=environment,
    )
    assert done.stdout.strip() == printed.text.strip()
    assert done.stderr == ""


def test_other_libraries_use_the_cluster() -> None:
    with cluster_of(1) as cluster, cluster.get_client() as client:
        with client.get_executor() as executor:
            assert list(executor.map(double, range(3))) == [0, 2, 4]
        joblib = pytest.importorskip("joblib")
        with joblib.parallel_config("dask"):
            assert joblib.Parallel()(joblib.delayed(double)(number) for number in range(3)) == [0, 2, 4]


def test_prefect_runs_tasks_on_a_cluster() -> None:
    prefect_dask = pytest.importorskip("prefect_dask")
    kwargs = {"n_workers": 1, "local": True, "dashboard_address": None}
    with prefect_dask.DaskTaskRunner(cluster_class="actors.dask.PodCluster", cluster_kwargs=kwargs) as runner:
        assert runner.client.submit(double, 2).result() == 4
        assert isinstance(runner._cluster, PodCluster)


def test_jupyterlab_makes_clusters_by_its_factory() -> None:
    if importlib.util.find_spec("dask_labextension") is None:
        pytest.skip("dask-labextension is not installed")

    async def program() -> None:
        manager = importlib.import_module("dask_labextension.manager")  # needs a loop
        kwargs = {"local": True, "dashboard_address": None}
        factory = {"module": "actors.dask", "class": "PodCluster", "args": [], "kwargs": kwargs}
        with dask.config.set({"labextension.factory": factory}):
            cluster, _ = await manager.make_cluster({})
        assert isinstance(cluster, PodCluster)
        await cluster.close()

    asyncio.run(program())


def test_a_cluster_that_is_closed_leaves_nothing(folder: Path) -> None:
    cluster_of().close()  # what is loaded once
    threads, files = running(), opened()
    with cluster_of(1, drain_timeout=0) as cluster:
        cluster.wait_for_workers(1, timeout=LIMIT)
        with cluster.get_client() as client:  # whose end cancels the task, which computes on
            _task = client.submit(time.sleep, 1000)
            while not any(client.call_stack().values()):
                pass
    assert cluster._stopping is not None
    assert cluster._stopping.result() == (), "no pod is left, though a worker was busy"
    assert kept(threads) == set()
    assert opened() - files == set()
    assert left(folder) == []


def test_a_cluster_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    threads = running()
    with pytest.raises(Exception, match="kubeconfig"):
        cluster_of(kubeconfig=tmp_path / "none", image="any")
    assert kept(threads) == set()
