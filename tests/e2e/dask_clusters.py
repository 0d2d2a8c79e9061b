"""What the tests of Dask clusters share."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

from actors.dask import PodCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Scheduler

    from actors.local.cluster import LocalCluster

LIMIT: Final = 60.0
"""Seconds that only a failure waits."""

SLEEPER: Final = ("sh", "-c", "trap 'exit 143' TERM; sleep 1000 & wait")
"""The command of a worker that runs and never connects."""


def cluster_of(n_workers: int = 0, **values: Any) -> PodCluster:
    """A cluster without a dashboard, of processes of this machine."""
    values.setdefault("local", "kubeconfig" not in values)
    return PodCluster(n_workers, dashboard_address=None, **values)


def on(local: LocalCluster) -> dict[str, Any]:
    """The arguments of a cluster whose workers are pods of this embedded cluster."""
    command = (sys.executable, "-m", "distributed.cli.dask_worker")
    return {"kubeconfig": local.kubeconfig_path, "host": "127.0.0.1", "image": "any", "worker_command": command}


def scheduler_of(cluster: PodCluster) -> Scheduler:
    assert cluster.scheduler is not None
    return cluster.scheduler


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - Dask's own state tells nobody
            await asyncio.sleep(0.01)


def pids(cluster: PodCluster) -> dict[int, int]:
    return {ws.name: ws.pid for ws in scheduler_of(cluster).workers.values()}


def busy(cluster: PodCluster) -> bool:
    return any(ws.processing for ws in scheduler_of(cluster).workers.values())


def told(cluster: PodCluster, action: str) -> list[dict[str, Any]]:
    return [event for _, event in cluster.events() if event["action"] == action]


def lost(cluster: PodCluster) -> list[Any]:
    """The results that were lost with a worker."""
    removals = [e for _, e in scheduler_of(cluster).get_events("all") if e.get("action") == "remove-worker"]
    return [key for event in removals for key in event["lost-computed-tasks"]]


def double(number: int) -> int:
    return 2 * number


def noted(number: int, path: str, seconds: float) -> int:
    """Compute for a while, and note in a file that this was computed."""
    import time  # noqa: PLC0415 - the workers have this function only

    time.sleep(seconds)
    with open(path, "a") as file:  # noqa: PTH123 - as above
        file.write(f"{number}\n")
    return number


def begun(path: str, seconds: float) -> None:
    """Create a file, then compute for a while."""
    import time  # noqa: PLC0415 - as above

    with open(path, "x"):  # noqa: PTH123 - as above
        time.sleep(seconds)


def leave_a_thread() -> None:
    """Start a thread that never ends, and for which an interpreter waits before it exits."""
    import threading  # noqa: PLC0415 - as above

    threading.Thread(target=threading.Event().wait, daemon=False).start()


for sent_by_value in (double, noted, begun, leave_a_thread):  # workers do not have this module
    sent_by_value.__module__ = "__main__"
