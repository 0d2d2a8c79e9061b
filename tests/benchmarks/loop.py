"""How long an asyncio service is held up while its `AsyncFleet` starts executors: by our callbacks, and by our threads.

A task in the loop sleeps for a millisecond again and again, and notes how late it wakes up. It is late if the loop is
busy, if another thread holds the interpreter, and if other programs have the core: `idle` is the same loop without a
fleet. A full garbage collection stops all threads for as long as the heap is large: `frozen` calls `gc.freeze` first.
"""

from __future__ import annotations

import asyncio
import gc
import time
from asyncio.events import Handle
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from actors.fleet.async_fleet import AsyncFleet
from tests.benchmarks.latency import percentile
from tests.benchmarks.pods import APP_ID
from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["measure"]

STEP: Final = 0.001
"""Seconds that the task sleeps."""

SECONDS: Final = 4.0
"""How long the idle loop runs: about as long as a fleet of a thousand."""


def measure(who: str, *, executors: int, latency: float, frozen: bool) -> dict[str, float]:
    """Measure from the entering of a fleet until it is left, with one reader of its events."""
    if frozen:
        gc.collect()
        gc.freeze()
    with Serving(0, latency=latency, starts=True) as serving, _timed_callbacks() as longest:
        lags, seconds = asyncio.run(_run(serving, executors if who == "ours" else 0))
    return {
        "max ms": max(lags) * 1e3,
        "p99 ms": percentile(lags, 99) * 1e3,
        "longest callback, cpu ms": longest[0] * 1e3,
        "seconds": seconds,
    }


async def _run(serving: Serving, executors: int) -> tuple[list[float], float]:
    lags: list[float] = []
    sampling = asyncio.create_task(_sample(lags))
    began = time.monotonic()
    if executors:
        await _start(serving, executors)
    else:
        await asyncio.sleep(SECONDS)
    sampling.cancel()
    return lags, time.monotonic() - began


async def _sample(lags: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(STEP)
        lags.append(time.perf_counter() - began - STEP)


async def _start(serving: Serving, executors: int) -> None:
    async with AsyncFleet(
        instances=executors, image="worker", app_id=APP_ID, kubeconfig=serving.kubeconfig, backend={"lease": False}
    ) as fleet:
        reading = asyncio.create_task(_read(fleet))
        await fleet.wait_for(running=executors, timeout="2m")
    await reading


async def _read(fleet: AsyncFleet) -> None:
    async for _ in fleet.events():
        pass


@contextmanager
def _timed_callbacks() -> Iterator[list[float]]:
    """Time every callback of the loop, in seconds of its thread; yields the longest."""
    longest, run = [0.0], Handle._run

    def timed(handle: Handle) -> None:
        began = time.thread_time()
        run(handle)
        longest[0] = max(longest[0], time.thread_time() - began)

    Handle._run = timed  # type: ignore[assignment, method-assign]  # asyncio has no hook for this
    try:
        yield longest
    finally:
        Handle._run = run  # type: ignore[method-assign]  # as above
