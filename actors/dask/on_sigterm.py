"""A preload of `dask worker`: on SIGTERM the worker ends, and does not wait for the tasks that it computes.

Without this Dask waits up to 30 s for them, for cancelled ones too. The text of this file is an argument of the worker,
so that its image needs no package of ours: it imports nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Any, Final

LIMIT: Final = 1.0
"""Seconds that the worker may take to close. It takes milliseconds, unless it waits for a task already."""


def dask_setup(worker: Any) -> None:
    """Handle SIGTERM in the worker's event loop."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(_end(worker)))


async def _end(worker: Any) -> None:
    """Close the worker, then end the process: the threads of its tasks cannot be ended otherwise."""
    try:
        await asyncio.wait_for(worker.close(executor_wait=False, nanny=False, reason="SIGTERM"), LIMIT)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


if "." not in __name__ and __spec__ is not None and __spec__.cached:
    # Dask imports this text from a file, and removes that, but not what Python has compiled of it.
    with contextlib.suppress(OSError):
        os.unlink(__spec__.cached)  # noqa: PTH108 - imports little
