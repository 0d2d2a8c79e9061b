"""What the arguments of `PodCluster` do, on the embedded cluster."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from typing import Any

import pytest

pytest.importorskip("distributed")

import dask.config
from distributed import Client
from distributed.core import Status

from actors.dask import PodCluster
from actors.errors import SettingsError
from actors.local.cluster import LocalCluster
from tests.docs.pages import read
from tests.e2e.dask_clusters import LIMIT, cluster_of, double, on, scheduler_of, until


@pytest.fixture(autouse=True)
def quick() -> Any:
    with dask.config.set({"distributed.adaptive.interval": "50ms"}):
        yield


@pytest.mark.stress  # on a loaded machine it waits in vain now and then; why is not known
def test_a_worker_group_has_its_own_options_and_its_own_number_and_adapts_with_the_others() -> None:
    async def program() -> None:
        groups = {"gpu": {"n_workers": 1, "worker_options": {"resources": "GPU=1"}, "env": {"KIND": "gpu"}}}
        async with cluster_of(worker_groups=groups, asynchronous=True) as cluster:
            scheduler = scheduler_of(cluster)
            async with Client(cluster, asynchronous=True) as client:
                await cluster.wait_for_workers(1, timeout=LIMIT)
                assert [ws.resources for ws in scheduler.workers.values()] == [{"GPU": 1}]
                assert await client.submit(double, 2, resources={"GPU": 1}) == 4
                cluster.adapt(minimum=1, maximum=2, target_duration="100ms", wait_count=2)
                work = client.map(time.sleep, [0.05] * 40, pure=False)
                await until(lambda: len(cluster.plan) == 2)
                assert cluster._up.targets.wanted == {"default": 1, "gpu": 1}
                await client.gather(work)
                await until(lambda: len(cluster.plan) == len(scheduler.workers) == 1)
                cluster._adaptive.stop()
                await cluster.scale(0, worker_group="default")
                await cluster.scale(0, worker_group="gpu")
                await until(lambda: not scheduler.workers)
            with pytest.raises(ValueError, match="no such group; there are default, gpu"):
                cluster.scale(1, worker_group="cpu")

    asyncio.run(program())


def test_each_argument_that_replaces_one_of_kube_cluster_exists() -> None:
    section = read("docs/how-to/from-dask-kubernetes.md").partition("## Arguments")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)=", cell)}
    assert len(named) > len(cells) / 2
    assert named <= inspect.signature(PodCluster).parameters.keys()


def test_numbers_of_workers_in_the_settings_are_those_of_the_cluster() -> None:
    async def program() -> None:
        settings = {"executor": {"instances": 1}, "profiles": {"gpu": {"instances": 0}}}
        async with cluster_of(settings=settings, asynchronous=True) as cluster:
            assert cluster.plan == {"default/0"}
            await cluster.scale(1, worker_group="gpu")
            assert (await cluster.fleet_status()).profiles["default"].target == 1

    asyncio.run(program())


def test_certificates_in_memory_reach_the_processes_of_this_machine() -> None:
    pytest.importorskip("cryptography")

    async def program() -> None:
        values: dict[str, Any] = {"security": True, "protocol": "tls", "asynchronous": True}
        async with cluster_of(1, **values) as cluster, Client(cluster, asynchronous=True) as client:
            await cluster.wait_for_workers(1, timeout=LIMIT)
            assert await client.submit(double, 2) == 4
            assert [address.partition(":")[0] for address in scheduler_of(cluster).workers] == ["tls"]

    asyncio.run(program())


def test_security_that_is_none_is_named_with_what_is_allowed() -> None:
    with pytest.raises(SettingsError, match=r"security = 'tls': must be a distributed.Security, or True for new"):
        cluster_of(security="tls")


def test_a_cluster_without_work_ends_after_a_while() -> None:
    async def program() -> None:
        async with cluster_of(asynchronous=True, idle_timeout="2s") as cluster:
            await until(lambda: cluster.status is Status.closed)

    asyncio.run(program())


def test_a_cluster_that_is_not_to_shut_down_on_close_goes_on() -> None:
    with cluster_of(shutdown_on_close=False) as cluster:
        pass
    try:
        with Client(cluster.scheduler_address) as client:
            assert client.scheduler_info()["workers"] == {}
    finally:
        cluster.shutdown()
    assert cluster.status is Status.closed


def test_workers_have_the_image_and_the_pull_secrets_of_the_drivers_pod() -> None:
    def container(name: str, image: str) -> dict[str, Any]:
        return {"name": name, "image": image, "command": ["sleep", "1000"]}

    spec = {
        "containers": [container("mesh", "proxy:1"), container("driver", "acme/etl:7")],
        "imagePullSecrets": [{"name": "registry"}],
    }
    annotations = {"kubectl.kubernetes.io/default-container": "driver"}
    with LocalCluster() as local:
        local.store.create("pods", "default", {"metadata": {"name": "etl", "annotations": annotations}, "spec": spec})
        where: dict[str, Any] = on(local) | {"image": None}
        with cluster_of(settings={"driver_pod_name": "etl"}, **where) as cluster:
            executor = cluster._up.fleet.settings.executor
            assert (executor.image, executor.image_pull_secrets) == ("acme/etl:7", ("registry",))
        with pytest.raises(SettingsError, match=r"image: must be given: the driver's pod 'no' .* there is no such pod"):
            cluster_of(settings={"driver_pod_name": "no"}, **where)
        with pytest.raises(SettingsError, match="image: must be given: this program runs in no pod"):
            cluster_of(**where)
