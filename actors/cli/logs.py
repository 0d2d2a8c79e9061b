"""Log records in the command: as a note that is said once, or as a line of JSON with fields."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, final

from actors.cli.tally import gist
from actors.text import fields_of, one_line, rfc3339

if TYPE_CHECKING:
    import logging

__all__ = ["TOLD", "LogFormat", "LogLevel", "Repeats", "as_json", "as_text", "is_told_by_event"]

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_REMEMBERED: Final = 1_000
"""Different notes of which repetitions are noticed."""

TOLD: Final = (
    "backend started:",
    "backend stopping:",
    "executor removed:",
    "executor stuck:",
    "creation refused:",
    "fleet failed, creation stopped:",
    "the backend cannot ",
    "child failed too often:",
    "backend stopped, pods may be left:",
    "lease not held, writing nothing:",
    "page served:",
)
"""Beginnings of records that come with an event, or with a remark of the command, which says the same."""


def is_told_by_event(record: logging.LogRecord) -> bool:
    """Whether an event says the same."""
    return record.name.startswith("actors.") and record.getMessage().startswith(TOLD)


def as_text(record: logging.LogRecord) -> str:
    """Return a record as one line, with the exception but without its traceback, which is no use to the user."""
    error = record.exc_info[1] if record.exc_info else None
    return f"{record.getMessage()}: {error!r}" if error else record.getMessage()


def as_json(record: logging.LogRecord) -> str:
    """Return a record as one line of JSON, in ASCII: time, level, logger, message, then its fields."""
    known: dict[str, Any] = {
        "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
        "level": record.levelname,
        "logger": record.name,
        "message": one_line(record.getMessage()),
    }
    if record.exc_info and record.exc_info[1] is not None:
        known["error"] = one_line(repr(record.exc_info[1]))
    fields = {name: value for name, value in fields_of(record).items() if name not in known}
    return json.dumps(known | fields, default=lambda value: one_line(str(value))).replace("\x7f", r"\u007f")


@final
class Repeats:
    """Counts how often each note was said. Notes that differ only in numbers are the same."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def count(self, text: str) -> int:
        """Return how often this was said, now included."""
        key = gist(text)
        times = self._counts[key] = self._counts.pop(key, 0) + 1
        if len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)
        return times
