"""`get_logger`: the library's loggers, whose every record is text, and has its values as fields, too.

A line of the log reads `event in a few words: key=value`. Each of its keys is an attribute of the record, as with
`extra=`, so that every formatter that writes JSON has it; and so is what `log_with` has set, such as `app_id`.

Handlers, filters and record factories are the program's, and run where we log. What they raise is told on stderr and
costs a line of the log: it never reaches the code that logs.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, final

from actors.text.escape import CUT, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["LONGEST_LINE", "Log", "fields_of", "get_logger", "guard_logs_of", "log_with", "logging_survived", "unmute"]

LONGEST_LINE: Final = 8_000
"""Characters of a message that is made of several texts, and of a line of the log."""

_MOST_LINES: Final = 400
"""Lines of a traceback. Python itself shortens the one of an endless recursion."""


_PLACEHOLDER: Final = re.compile(r"(?:(\w+)=)?%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])(-)?")
_NAMES: Final = {"executor": "executor_id", "error": "reason", "cause": "reason"}
"""Keys of the log's lines that have another name as fields."""

_OWN: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""What each record has; none of it is a field."""

_COMMON: Final[ContextVar[Mapping[str, str]]] = ContextVar("fields", default=MappingProxyType({}))


def log_with(**fields: str) -> None:
    """Give each record of the library these fields, too: those of this thread, and of actors that it starts."""
    _COMMON.set({**_COMMON.get(), **fields})


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the fields of a record: all that formatters do not know by themselves."""
    return {name: value for name, value in record.__dict__.items() if name not in _OWN}


def get_logger(name: str) -> Log:
    """Return the log of a module. Each record that it makes is text: its message is one line."""
    logger = logging.getLogger(name)  # noqa: TID251 - the one place
    logger.addFilter(_as_text)  # which adds it once
    return Log(logger)


def unmute(name: str) -> None:
    """Let the warnings and errors of another library reach stderr in a program that has set no logging up.

    A `NullHandler` keeps them from Python's handler of last resort. A program that has set logging up notices nothing.
    """
    logger = logging.getLogger(name)  # noqa: TID251 - another library's
    for handler in [each for each in logger.handlers if isinstance(each, logging.NullHandler)]:
        logger.removeHandler(handler)


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose methods raise nothing of what the program's handlers, filters and record factory raise.

    `logger` is the one of the module `logging`.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger)

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """Log a line. All other methods that log one call this."""
        if self.isEnabledFor(level):
            options["stacklevel"] = options.get("stacklevel", 1) + 1
            with logging_survived:
                self.logger.log(level, msg, *args, **options)


@final
class _LoggingSurvived:
    """What is raised in its `with` ends there, and is told on stderr, as `logging.Handler.handleError` does.

    Except Ctrl-C and the program's `sys.exit` in the main thread: they are for that thread.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            return True
        if isinstance(error, KeyboardInterrupt | SystemExit) and _is_main_thread():
            return False
        if logging.raiseExceptions:
            _tell(error)
        return True


logging_survived: Final = _LoggingSurvived()
"""For records that no `Log` makes, such as those of another package's call that does nothing after it has logged."""


_OURS: Final = "executor-pods/"
"""What the names of the library's threads begin with."""


class _Guarded(threading.local):
    """A filter that has the records of the library's threads handled as those of a `Log` are, and no others."""

    is_handling = False

    def __call__(self, record: logging.LogRecord) -> bool:
        """Handle a record here, where what is raised ends, and tell its logger not to."""
        if self.is_handling or not threading.current_thread().name.startswith(_OURS):
            return True
        self.is_handling = True
        try:
            with logging_survived:
                logging.getLogger(record.name).handle(record)  # noqa: TID251 - another package's; with all its filters
        finally:
            self.is_handling = False
        return False


_guarded: Final = _Guarded()


def guard_logs_of(*names: str) -> None:
    """Guard what other packages log in the library's threads, by the names of their loggers.

    A handler of the program that raises would be the end of what they do there. In threads of the program it still is.
    """
    for name in names:
        logging.getLogger(name).addFilter(_guarded)  # noqa: TID251 - another package's; it adds it once


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _tell(error: BaseException) -> None:
    """Write an error to stderr. The program may have put anything there."""
    try:
        if sys.stderr is not None:
            print("A line of the log is lost: its handling failed.", file=sys.stderr)  # noqa: T201 - no log is left
            traceback.print_exception(error)
    except BaseException as another:
        if isinstance(another, KeyboardInterrupt | SystemExit) and _is_main_thread():
            raise


def _as_text(record: logging.LogRecord) -> bool:
    """Escape what a record's values bring with them. A record of ordinary text keeps its format and its arguments."""
    record.__dict__.update(_fields(record))
    message = record.getMessage()
    if (shown := one_line(message, LONGEST_LINE)) != message:
        record.msg, record.args = shown, ()
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = _as_block(traceback.format_exception(record.exc_info[1]))
    return True


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the values of a line by their keys: numbers and booleans as they are, all else as text."""
    fields: dict[str, object] = dict(_COMMON.get())
    args = record.args if isinstance(record.args, tuple) else (record.args,)  # `logging` unpacks a single dict
    for name, value in zip(_keys(str(record.msg)), args, strict=False):
        if name is not None:
            is_plain = isinstance(value, bool | int | float) or value is None
            fields[name] = value if is_plain else one_line(str(value), LONGEST_LINE)
    return fields


@lru_cache(maxsize=1024)
def _keys(line: str) -> tuple[str | None, ...]:
    """Return the field of each placeholder of a line, None for one that is none, such as a part of a range."""
    found = [match for match in _PLACEHOLDER.finditer(line) if not match[0].endswith("%%")]
    names = ((_NAMES.get(match[1], match[1]), match[2]) for match in found)
    return tuple(None if name in _OWN or is_range else name for name, is_range in names)


def _as_block(parts: list[str]) -> str:
    """Return a traceback, indented, so that no line of it can be taken for a line of the log."""
    lines = "".join(parts).rstrip("\n").split("\n")
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES // 2 : -_MOST_LINES // 2] = [CUT]
    return "\n".join(f"  {one_line(line)}" for line in lines)
