"""How a worker that must go gives its work away, before its executor ends, and which worker goes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed import Scheduler
    from distributed.scheduler import WorkerState

__all__ = ["costs", "drain"]

LOOK_EVERY: Final = 0.1
"""Seconds between two looks at what a worker computes."""

LOOKS: Final = 2
"""So many times in a row a worker must have been seen to compute nothing."""


async def drain(scheduler: Scheduler, worker: str) -> bool:
    """Wait until a worker computes nothing, and no result is on it alone. It gets no new task from now on.

    Return False if it goes on instead: there are results, and no other worker that could take them now.
    """
    if not await _retire(scheduler, worker):
        return False
    await _until_idle(scheduler, worker)
    return await _retire(scheduler, worker)  # results that came in meanwhile


def costs(scheduler: Scheduler) -> Mapping[int, tuple[int, int, int]]:
    """Return what the end of each worker costs, by name: idle ones cost least, among them those with little data."""
    return {
        ws.name: (len(ws.long_running), len(ws.processing), ws.nbytes)
        for ws in scheduler.workers.values()
        if isinstance(ws.name, int)
    }


async def _retire(scheduler: Scheduler, worker: str) -> bool:
    retired = await scheduler.retire_workers(workers=[worker], remove=False, close_workers=False)
    return worker in retired or worker not in scheduler.workers


async def _until_idle(scheduler: Scheduler, worker: str) -> None:
    """Return when the worker computes nothing. A task that has just ended needs a moment to be reported.

    Tasks that wait for a thread stay the worker's until it is removed, and then run elsewhere.
    """
    looks = 0
    while looks < LOOKS and (ws := _busy(scheduler, worker)) is not None:
        try:
            computes = await scheduler.rpc(ws.address).call_stack(keys=None)
        except OSError:  # it is gone, or does not answer: its pod's events say which
            return
        looks = 0 if computes else looks + 1
        await asyncio.sleep(LOOK_EVERY)


def _busy(scheduler: Scheduler, worker: str) -> WorkerState | None:
    ws = scheduler.workers.get(worker)
    return ws if ws is not None and ws.processing else None
