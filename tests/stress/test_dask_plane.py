"""A Dask cluster of five hundred workers on a real control plane, whose API server dies meanwhile.

kwok runs the pods, or the test's own kubelet where that is missing, so no process is in them: this process connects a
worker for each pod that the fleet says runs. It speaks just what the scheduler needs to take it for one. What pods
there are is told by an observer with its own watch, and what was asked of the server by its audit log.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("distributed")

import dask.config
from distributed import Client
from distributed.comm import connect

from actors.dask import PodCluster
from actors.pods.loss import LossKind
from tests.contract.control_plane import ASSETS, TOKEN, WITHOUT_ASSETS
from tests.stress import test_control_plane
from tests.stress.hand_kubelet import HandKubelet, SmallPlane
from tests.stress.observer import Observer
from tests.stress.plane import API_SERVER, WholePlane, missing_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from distributed import Scheduler

pytestmark = [pytest.mark.stress, pytest.mark.skipif(ASSETS is None, reason=WITHOUT_ASSETS)]

WORKERS: Final = 500
RETIRED: Final = 200
LIMIT: Final = 300.0
"""Seconds that only a failure takes."""
DEAD_SECONDS: Final = 2.0
"""Until the server is started again, which takes some seconds more."""

METRICS: Final = {
    "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
    "digests_total_since_heartbeat": {},
    "event_loop_interval": 0.02,
    "managed_bytes": 0,
    "memory": 0,
    "spilled_bytes": {"memory": 0, "disk": 0},
}
"""What the scheduler reads of a worker."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[WholePlane]:
    with ExitStack() as stack:
        whole = not missing_in(test_control_plane.ASSETS)
        plane = (WholePlane if whole else SmallPlane)(test_control_plane.ASSETS, tmp_path)
        stack.callback(plane.stop)
        plane.start()
        if not whole:
            stack.enter_context(HandKubelet(plane))
        yield plane


class Workers:
    """Connect to a scheduler, one for each executor that runs, until the scheduler ends the connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lives: dict[int, asyncio.Task[None]] = {}

    def heard(self, event: tuple[float, dict[str, Any]]) -> None:
        """Handle an event of the fleet."""
        if event[1]["action"] == "running":
            executor_id = event[1]["executor"]
            self._lives[executor_id] = asyncio.ensure_future(self._live(executor_id))

    async def end(self) -> None:
        """Wait until all have ended. Raises what went wrong."""
        await asyncio.gather(*self._lives.values())

    async def _live(self, executor_id: int) -> None:
        comm = await connect(self._address)
        address = f"tcp://127.0.0.1:{20_000 + executor_id}"  # where nobody listens: nothing is computed
        about = {
            "op": "register-worker",
            "reply": False,
            "name": executor_id,
            "address": address,
            "server_id": address,
            "status": "running",
            "nthreads": 1,
            "memory_limit": None,
            "local_directory": "",
            "nanny": None,
            "pid": 0,
            "now": time.time(),
            "stimulus_id": f"connect-{executor_id}",
            "metrics": METRICS,
        }
        empty: dict[str, Any] = {"extra": {}, "resources": {}, "services": {}, "versions": {}}
        await comm.write(about | empty, serializers=["msgpack"])
        try:
            assert (await comm.read())["status"] == "OK"
            while True:
                await comm.read()
        except OSError:
            await comm.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not true():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def die(plane: WholePlane) -> None:
    """Kill the API server, and start it again."""
    plane.kill(API_SERVER)
    await asyncio.sleep(DEAD_SECONDS)
    await asyncio.to_thread(plane.start_again, API_SERVER)
    for program in plane.ended():
        await asyncio.to_thread(plane.start_again, program)


def test_five_hundred_workers_are_those_wanted_through_five_deaths_of_the_api_server(plane: WholePlane) -> None:
    options = {"distributed.scheduler.worker-ttl": None, "distributed.comm.timeouts.connect": "60s"}
    with (
        dask.config.set(options),
        Observer(plane.server, plane.authority, TOKEN, "executor-pods/app-id=many") as observer,
    ):
        asyncio.run(asyncio.wait_for(program(plane, observer), 3 * LIMIT))
    assert observer.most <= WORKERS
    assert observer.alive == {}


async def program(plane: WholePlane, observer: Observer) -> None:
    cluster = PodCluster(
        name="many",
        kubeconfig=plane.kubeconfig,
        namespace="default",
        host="127.0.0.1",
        image="worker:1",
        dashboard_address=None,
        asynchronous=True,
    )
    async with cluster, Client(cluster, asynchronous=True) as client:
        scheduler: Scheduler = cluster.scheduler
        workers = Workers(cluster.scheduler_address)
        client.subscribe_topic("executor-pods", workers.heard)

        def whole(number: int) -> bool:
            return len(observer.alive) == len(scheduler.workers) == len(cluster.plan) == number

        began = time.monotonic()
        await cluster.scale(WORKERS)
        await until(lambda: len(scheduler.workers) >= WORKERS // 4)
        await die(plane)
        await until(lambda: len(scheduler.workers) >= WORKERS // 2)
        await die(plane)
        await until(lambda: whole(WORKERS))
        print(f"{WORKERS} workers are connected after {time.monotonic() - began:.1f} s and 2 deaths")

        began = time.monotonic()
        leaving = set(sorted(scheduler.aliases)[:RETIRED])
        staying = scheduler.aliases.keys() - leaving
        retiring = asyncio.ensure_future(cluster.scale_down(leaving))
        for _ in range(2):
            await die(plane)
        await retiring
        await until(lambda: whole(WORKERS - RETIRED))
        print(f"{RETIRED} have retired after {time.monotonic() - began:.1f} s and 2 deaths")
        assert scheduler.aliases.keys() == staying, "just those went"

        began = time.monotonic()
        await cluster.scale(WORKERS)
        await die(plane)
        await until(lambda: whole(WORKERS))
        print(f"{WORKERS} again after {time.monotonic() - began:.1f} s and a death")
        removed = [event for _, event in cluster.events() if event["action"] == "removed"]
        print(f"removed: {Counter(event['kind'] for event in removed)}")
        assert {event["executor"] for event in removed} == leaving
        assert {event["kind"] for event in removed} == {LossKind.KILLED_BY_DRIVER}
        assert len(observer.seen) == WORKERS + RETIRED, "each was created once"
        print(f"POSTs by answer: {test_control_plane.codes(plane)}")
    await workers.end()
    await until(lambda: not observer.alive)
