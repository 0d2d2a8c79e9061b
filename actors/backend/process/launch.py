"""The operating system's part of a fleet's process: its connection, its start and its end."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Final

__all__ = ["END_LIMIT", "connection_pair", "reap", "start"]

END_LIMIT: Final = 1.0
"""Seconds that the end of a process that was killed is waited for. It takes milliseconds."""

STANDARD_STREAMS: Final = (0, 1, 2)

PROGRAM: Final = """
import sys
sys.path[:] = {path}
from actors.backend.process.fleet import main
main({descriptor}, {parent}, {version!r})
"""


def connection_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection. Neither takes the number of a standard stream that this process has closed."""
    ours, theirs = map(_beyond_streams, socket.socketpair())
    for end in (ours, theirs):
        end.settimeout(None)  # whatever the program has set by `socket.setdefaulttimeout`
    return ours, theirs


def _beyond_streams(end: socket.socket) -> socket.socket:
    if end.fileno() > STANDARD_STREAMS[-1]:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, STANDARD_STREAMS[-1] + 1))


def start(theirs: socket.socket, version: str) -> subprocess.Popen[bytes]:
    """Start the process with its end of the connection. It imports what this process imports, and has no terminal.

    Raises:
        OSError: it cannot be started.
    """
    if getattr(sys, "frozen", False):
        raise OSError("a frozen program has no Python interpreter, but would start itself once more")
    if not sys.executable:
        raise OSError("this program does not know its Python interpreter")
    descriptor = theirs.fileno()
    path = [each for each in sys.path if isinstance(each, str)]
    program = PROGRAM.format(path=ascii(path), descriptor=descriptor, parent=os.getpid(), version=version)
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, *_options(), "-c", program],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if _is_open(STANDARD_STREAMS[-1]) else subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is the driver's
        env=os.environ,
    )


def reap(process: subprocess.Popen[bytes]) -> str:
    """Wait for the end of a process that has closed its connection, and return how it ended, empty if in order."""
    try:
        code = process.wait(END_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return ""
    if code < 0:
        with suppress(ValueError):
            return f"it was killed by {signal.Signals(-code).name}"
    return f"it exited with {code}" if code else ""


def _options() -> list[str]:
    """Return the flags by which this interpreter ignores its environment, to pass them on."""
    flags = sys.flags
    options = {"-I": flags.isolated, "-E": flags.ignore_environment, "-s": flags.no_user_site, "-S": flags.no_site}
    return [option for option, is_set in options.items() if is_set]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
