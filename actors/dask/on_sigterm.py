"""A preload of `dask worker`: on SIGTERM the worker ends, and does not wait for the tasks that it computes.

Without this Dask waits up to 30 s for them, for cancelled ones too. The text of this file is an argument of the worker,
so that its image needs no package of ours: it imports nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any, Final

LIMIT: Final = 1.0
"""Seconds that the worker may take to close. It takes milliseconds, unless it waits for a task already."""


def dask_setup(worker: Any) -> None:
    """Close the worker on SIGTERM, in its event loop. A thread ends the process if that takes too long."""
    closing: list[Any] = []

    def end() -> None:
        late = threading.Timer(LIMIT, os._exit, (0,))
        late.daemon = True
        late.start()
        closing.append(asyncio.ensure_future(worker.close(executor_wait=False, nanny=False, reason="SIGTERM")))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
