"""Records of the log of the fleet's process: handled in a thread of this process that nothing else waits for.

A handler of the driver's may block, or raise anything. What the Backend is told must not wait for that, or be lost.
"""

from __future__ import annotations

import logging
import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

from actors.text import get_logger, log_with, logging_survived

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LogRecords"]

MOST_WAITING: Final = 10_000
"""Records that wait for the driver's handlers; more are dropped."""


@final
class LogRecords:
    """The records of one process. Its thread starts with the first one."""

    def __init__(self, app_id: str) -> None:
        self._app_id = app_id
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def put(self, attributes: Mapping[str, Any]) -> None:
        """Have a record handled. Called by one thread."""
        with suppress(queue.Full):
            self._waiting.put_nowait(attributes)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="executor-pods/fleet-log", daemon=True)
            with suppress(RuntimeError):  # the next record tries again
                thread.start()
                self._thread = thread

    def close(self, limit: float) -> None:
        """Wait until all records are handled, at most for so many seconds."""
        if self._thread is not None:
            with suppress(queue.Full):
                self._waiting.put(None, timeout=limit)
            self._thread.join(limit)

    def _run(self) -> None:
        log_with(app_id=self._app_id)
        while (attributes := self._waiting.get()) is not None:
            with logging_survived:
                record = logging.makeLogRecord(dict(attributes))
                if (log := get_logger(record.name)).isEnabledFor(record.levelno):
                    log.logger.handle(record)
