"""`HttpLog`: the log of an HTTP server that anybody may connect to. What asyncio and aiohttp log in it is guarded."""

from __future__ import annotations

import logging
from typing import Any, final

from actors.text.logger import Log, guard_logs_of

__all__ = ["HttpLog"]

guard_logs_of("asyncio", "aiohttp.internal", "aiohttp.server", "aiohttp.web")


@final
class HttpLog(Log):
    """aiohttp's log: that a client does not speak HTTP is one quiet line, without what the client sent.

    Args:
        log: of the server's module.
        malformed: aiohttp's error for what is not HTTP; this room does not load aiohttp.
    """

    def __init__(self, log: Log, malformed: type[Exception]) -> None:
        super().__init__(log.logger)
        self._malformed = malformed

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """Log an error of this program with its traceback, one of a client without."""
        error = options.get("exc_info")
        if isinstance(error, self._malformed):
            super().log(logging.DEBUG, "malformed request refused: error=%s", type(error).__name__)
        else:
            super().log(level, msg, *args, **{**options, "stacklevel": options.get("stacklevel", 1) + 1})
