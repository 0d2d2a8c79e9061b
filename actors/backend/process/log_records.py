"""Records of the log of the fleet's process: handled in a thread of this process that nothing else waits for.

A handler of the driver's may block, or raise anything. What the Backend is told must not wait for that, or be lost.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from actors.runtime import Courier
from actors.text import get_logger, log_with, logging_survived

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["log_records"]

MOST_WAITING: Final = 10_000
"""Records that wait for the driver's handlers; more are dropped."""


def log_records(app_id: str) -> Courier[Mapping[str, Any]]:
    """Return what handles the records of one process, given their attributes."""
    return Courier(partial(_handle, app_id), "executor-pods/fleet-log", MOST_WAITING)


def _handle(app_id: str, attributes: Mapping[str, Any]) -> None:
    log_with(app_id=app_id)
    with logging_survived:
        record = logging.makeLogRecord(dict(attributes))
        if (log := get_logger(record.name)).isEnabledFor(record.levelno):
            log.logger.handle(record)
