"""Dask clusters of this machine: how soon workers are there, are replaced when they are killed, and are gone.

All contestants are asked and watched in the same way, by a client. Their workers are processes with one thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import dask.config
from distributed import Client, LocalCluster
from distributed.deploy.subprocess import SubprocessCluster

from actors.dask import PodCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["measure"]

LIGHT: Final = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "2s",
}
"""What idle workers do not need: without it a hundred of them keep two cores busy."""

LOOK_SECONDS: Final = 0.005
PATIENCE_SECONDS: Final = 30.0
"""After so long a killed worker is taken as never replaced, and no other one is killed."""

SAFETY_SECONDS: Final = 300.0


def measure(who: str, *, workers: int, losses: int) -> dict[str, float]:
    """Measure from the making of a cluster until it is closed. "replaced s" is the median of the losses."""
    makers: dict[str, Callable[[], Any]] = {
        "ours": lambda: PodCluster(workers, local=True, env=LIGHT, dashboard_address=None, asynchronous=True),
        "LocalCluster": lambda: LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, asynchronous=True
        ),
        "SubprocessCluster": lambda: SubprocessCluster(
            n_workers=workers,
            worker_kwargs={"nthreads": 1},
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            asynchronous=True,
        ),
    }
    os.environ |= LIGHT  # of the peers' workers
    dask.config.refresh()
    return asyncio.run(_measure(makers[who], workers, losses))


async def _measure(make: Callable[[], Any], workers: int, losses: int) -> dict[str, float]:
    began = time.monotonic()
    cluster = await make()
    async with asyncio.timeout(SAFETY_SECONDS), cluster, Client(cluster, asynchronous=True) as client:
        await _until(client, lambda connected: len(connected) == workers)
        ready = time.monotonic() - began
        replaced: list[float] = []
        while len(replaced) < losses and PATIENCE_SECONDS not in replaced:
            replaced.append(await _replace(client, workers))
        scaled = await _scale_down(cluster, client)
        began = time.monotonic()
    closed = time.monotonic() - began
    return {
        "ready s": ready,
        "replaced s": median(replaced),
        "slowest s": max(replaced),
        "never replaced": replaced.count(PATIENCE_SECONDS),
        "scaled down s": scaled,
        "closed s": closed,
    }


async def _replace(client: Client, workers: int) -> float:
    """Kill a worker and return how long it took until another one was connected in its place, at most 30 s."""
    victim, pid = next(iter((await client.run(os.getpid)).items()))
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _until(client, lambda connected: len(connected) == workers and victim not in connected)
    except TimeoutError:
        return PATIENCE_SECONDS
    return time.monotonic() - began


async def _scale_down(cluster: Any, client: Client) -> float:
    """Scale to one worker and return how long it took until the processes of the others had ended."""
    pids = (await client.run(os.getpid)).values()
    began = time.monotonic()
    scaling = cluster.scale(1)
    if scaling is not None:
        await scaling
    await _until(client, lambda connected: len(connected) == 1 == sum(Path(f"/proc/{pid}").exists() for pid in pids))
    return time.monotonic() - began


async def _until(client: Client, holds: Callable[[Collection[str]], bool]) -> None:
    """Wait until this holds for the addresses of the connected workers."""
    while not holds(await client.nthreads()):  # noqa: ASYNC110 - Dask tells nobody
        await asyncio.sleep(LOOK_SECONDS)
