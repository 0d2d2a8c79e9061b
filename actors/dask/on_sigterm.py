"""A preload of `dask worker`: on SIGTERM the worker ends, and once a worker has closed its process ends.

Without this Dask waits up to 30 s for the tasks that it computes, for cancelled ones too. And a thread that a task has
left running keeps the process of a worker that the scheduler has closed, and with it the pause of its pod. The text of
this file is an argument of the worker, so that its image needs no package of ours: it imports nothing but the standard
library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from typing import Any, Final

LIMIT: Final = 1.0
"""Seconds that the worker may take to close, and then its process to end. Each takes milliseconds, unless it waits for
a task's thread."""

_watches: set[Any] = set()
"""Keeps the tasks that run in the loop."""


def dask_setup(worker: Any) -> None:
    """Handle SIGTERM, and the end of the worker, in the worker's event loop."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(_end(worker)))
    _watches.add(loop.create_task(_watch(worker)))


async def _end(worker: Any) -> None:
    """Close the worker, then end the process: the threads of its tasks cannot be ended otherwise."""
    try:
        await asyncio.wait_for(worker.close(executor_wait=False, nanny=False, reason="SIGTERM"), LIMIT)
    finally:
        _exit()


async def _watch(worker: Any) -> None:
    """Once the worker has closed, let the interpreter exit by itself, and end the process if it does not."""
    try:
        await worker  # has started
    except Exception:  # noqa: BLE001 - Dask ends the process then, with an exit code that says so
        return
    await worker.finished()
    timer = threading.Timer(LIMIT, _exit)
    timer.daemon = True
    timer.start()


def _exit() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


if "." not in __name__ and __spec__ is not None and __spec__.cached:
    # Dask imports this text from a file, and removes that, but not what Python has compiled of it.
    with contextlib.suppress(OSError):
        os.unlink(__spec__.cached)  # noqa: PTH108 - imports little
