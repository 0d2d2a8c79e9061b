"""How a worker that must go gives its work away, before its executor ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from distributed.protocol.pickle import dumps

from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection

    from distributed import Scheduler
    from distributed.scheduler import WorkerState

__all__ = ["abort", "cheapest", "drain"]

logger = get_logger(__name__)

LEAVING: Final = "closing_gracefully"
"""The status of a worker that is being retired."""

ABORT_LIMIT: Final = 2.0
"""Seconds that workers have to hear it. Those that do not are killed with their pods."""

LOOK_EVERY: Final = 0.1
"""Seconds between two looks at what a worker computes."""


async def drain(scheduler: Scheduler, ids: Collection[int]) -> frozenset[int]:
    """Wait until these workers compute nothing, and no result is on them alone. They get no new task from now on.

    Returns those that could not give their results away, because there is no other worker that could take them.
    """
    here = [ws for ws in _workers(scheduler, ids) if ws.status.name != LEAVING]
    if not here:
        return frozenset()
    await _retire(scheduler, here)
    leaving = [ws for ws in here if ws.status.name == LEAVING]
    await asyncio.gather(*(_until_idle(scheduler, ws) for ws in leaving))
    await _retire(scheduler, leaving)  # results that came in meanwhile
    return frozenset(ws.name for ws in _workers(scheduler, ids) if ws.status.name != LEAVING)


async def abort(scheduler: Scheduler, ids: Collection[int]) -> None:
    """End the processes of those workers that still compute, cancelled tasks too. On SIGTERM, Dask waits for these."""
    workers = {ws.address: bool(ws.processing) for ws in _workers(scheduler, ids)}
    computed = await _ask(scheduler, list(workers), {"op": "call_stack", "keys": None})
    busy = [worker for worker, has_tasks in workers.items() if has_tasks or computed.get(worker)]
    function = {"function": dumps(os._exit), "args": dumps((0,)), "kwargs": dumps({})}
    await _ask(scheduler, busy, {"op": "run", **function})


def cheapest(scheduler: Scheduler, ids: Collection[int], number: int) -> list[int]:
    """Return the workers whose end costs least: idle ones first, those with the least data first among them."""
    workers = {ws.name: ws for ws in _workers(scheduler, ids)}

    def cost(executor_id: int) -> tuple[bool, int, int]:
        ws = workers.get(executor_id)
        return (False, 0, 0) if ws is None else (bool(ws.long_running), len(ws.processing), ws.nbytes)

    return sorted(ids, key=cost)[: max(0, number)]


def _workers(scheduler: Scheduler, ids: Collection[int]) -> list[WorkerState]:
    addresses = [scheduler.aliases.get(each) for each in ids]
    return [scheduler.workers[each] for each in addresses if each in scheduler.workers]


async def _ask(scheduler: Scheduler, workers: list[str], message: dict[str, Any]) -> dict[str, Any]:
    """Ask workers something. The answer has those that answer in time; none does if one hangs."""
    answers: dict[str, Any] = {}
    if workers:
        with contextlib.suppress(OSError):  # which a timeout is, too
            async with asyncio.timeout(ABORT_LIMIT):
                answers = await scheduler.broadcast(msg=message, workers=workers, on_error="ignore")
    return answers


async def _retire(scheduler: Scheduler, workers: Collection[WorkerState]) -> None:
    addresses = [ws.address for ws in workers if ws.address in scheduler.workers]
    if addresses:
        await scheduler.retire_workers(workers=addresses, remove=False, close_workers=False)


async def _until_idle(scheduler: Scheduler, ws: WorkerState) -> None:
    """Return when the worker computes nothing. A task that has just ended needs a moment to be reported."""
    looks = 0
    while ws.address in scheduler.workers and ws.processing:
        try:
            computes = await scheduler.rpc(ws.address).call_stack(keys=None)
        except OSError:  # it is gone, or does not answer: its pod's events say which
            return
        looks = 0 if computes else looks + 1
        if looks > 1:
            return
        await asyncio.sleep(LOOK_EVERY)
