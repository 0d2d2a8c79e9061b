"""stdout and stderr of the command: whatever becomes of them, the fleet is stopped in order.

A full disk, a reader that ends, a stream that the caller closed, an encoding without a character: none of them may end
the process in the middle of something.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["check_reader", "discard", "has_no_reader", "is_of_stream", "prepare", "say", "say_raw", "unwritten"]

_OF_WRITES: Final = frozenset({errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def prepare() -> None:
    """Let stdout and stderr take every character, and discard what is written to a stream that the caller closed.

    Without this, the next opened file or socket would get the descriptor of a closed stream.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor: this one
    sys.stdout = sys.stdout or _discarding(1)
    sys.stderr = sys.stderr or _discarding(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discarding(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", closefd=False)


def discard(stream: TextIO) -> None:
    """Discard what is written to a stream that failed, so that the interpreter's last flush does not fail too."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device, not a path
        os.dup2(nowhere.fileno(), stream.fileno())


def is_of_stream(error: OSError) -> bool:
    """Whether writing to a stream failed, not opening a file or a connection."""
    return error.filename is None and error.errno in _OF_WRITES


def has_no_reader(error: OSError) -> bool:
    """Whether writing to stdout failed because its reader has ended: a pipe's other end, or a terminal."""
    if error.errno == errno.EIO:  # of a terminal that was closed; of a disk it is a failure
        return stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)
    return isinstance(error, BrokenPipeError)


def check_reader(stream: IO[str]) -> None:
    """Raise BrokenPipeError if this is a pipe whose reader has ended, as the next write to it would."""
    with suppress(io.UnsupportedOperation):  # it has no descriptor
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        if any(happened & select.POLLERR for _, happened in poll.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def unwritten(error: OSError) -> str:
    """Return what to say of a write to stdout that failed."""
    return f"stdout cannot be written: {error.strerror or error}"


def give_up(error: OSError) -> bool:
    """Discard what else is written to stdout, which cannot be written. Return whether only its reader has ended.

    Raises:
        OSError: the error is of something else.
    """
    if not is_of_stream(error):
        raise error
    is_closed = has_no_reader(error)
    discard(sys.stdout)
    if not is_closed:
        say(unwritten(error))
    return is_closed


def say(text: str) -> None:
    """Write a line to stderr, with who says it."""
    say_raw(f"executor-pods: {text}")


def say_raw(line: str) -> None:
    """Write a line to stderr. If that fails, stderr is discarded from then on: nobody can be notified of it."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)
