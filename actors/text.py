"""Text from outside, as text: on one line, with every character that acts escaped, and of bounded length.

Messages of containers, refusals of webhooks, names in a kubeconfig: their authors are strangers. A line break in one
forges a line of the log, an escape sequence acts on the terminal, a bidi mark shows a name backwards. Errors, loss
reasons and reports are made with `one_line`, and every logger of the library comes from `get_logger`.
"""

from __future__ import annotations

import logging
import traceback
from typing import Final

__all__ = ["LONGEST_LINE", "LONGEST_TEXT", "get_logger", "one_line"]

LONGEST_TEXT: Final = 2_000
"""Characters of one text from outside. A termination message has at most 4,096 bytes, a webhook's refusal no limit."""

LONGEST_LINE: Final = 8_000
"""Characters of a message that is made of several texts, and of a line of the log."""

_MOST_LINES: Final = 400
"""Lines of a traceback. Python itself shortens the one of an endless recursion."""

_CUT: Final = "..."
"""The end of a text that was shortened; ASCII, because a log file may be."""


def one_line(text: str, limit: int = LONGEST_TEXT) -> str:
    """Return the text with every character escaped that `repr` escapes, shortened to `limit` characters.

    These are control characters, bidi and other invisible marks, line separators, surrogates, and spaces other than
    the ordinary one. A text that is returned is not changed by a second call.
    """
    if text.isprintable() and len(text) <= limit:
        return text
    escaped = "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text[: limit + 1]
    )
    return escaped if len(escaped) <= limit else escaped[: limit - len(_CUT)] + _CUT


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
        lines[_MOST_LINES // 2 : -_MOST_LINES // 2] = [_CUT]
    return "\n".join(f"  {one_line(line)}" for line in lines)
