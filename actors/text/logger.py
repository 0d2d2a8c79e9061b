"""`get_logger`: the library's loggers, whose every record is text."""

from __future__ import annotations

import logging
import traceback
from typing import Final

from actors.text.escape import CUT, one_line

__all__ = ["LONGEST_LINE", "get_logger"]

LONGEST_LINE: Final = 8_000
"""Characters of a message that is made of several texts, and of a line of the log."""

_MOST_LINES: Final = 400
"""Lines of a traceback. Python itself shortens the one of an endless recursion."""


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module. Each record that it makes is text: its message is one line."""
    logger = logging.getLogger(name)  # noqa: TID251 - the one place
    logger.addFilter(_as_text)  # which adds it once
    return logger


def _as_text(record: logging.LogRecord) -> bool:
    """Escape what a record's values bring with them. A record of ordinary text keeps its format and its arguments."""
    message = record.getMessage()
    if (shown := one_line(message, LONGEST_LINE)) != message:
        record.msg, record.args = shown, ()
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = _as_block(traceback.format_exception(record.exc_info[1]))
    return True


def _as_block(parts: list[str]) -> str:
    """Return a traceback, indented, so that no line of it can be taken for a line of the log."""
    lines = "".join(parts).rstrip("\n").split("\n")
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES // 2 : -_MOST_LINES // 2] = [CUT]
    return "\n".join(f"  {one_line(line)}" for line in lines)
