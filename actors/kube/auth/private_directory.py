"""`private_directory`: a directory for keys and sockets that goes with what it was made for, or with the program.

A program that is killed leaves its directory behind. The next program of the same user that makes one removes it: a
lock, which the kernel frees however a process ends, tells that nobody uses it any more.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from contextlib import ExitStack

__all__ = ["private_directory"]

_PREFIX: Final = "executor-pods-"

_LOCK: Final = "lock"
"""The file in it that is locked while it is used."""


def private_directory(undo: ExitStack) -> Path:
    """Make a directory of mode 0700. It is removed when `undo` is closed or the program exits, by no forked child.

    Raises:
        OSError: it cannot be made.
    """
    directory, owner = Path(tempfile.mkdtemp(prefix=_PREFIX)), os.getpid()
    lock: int | None = None
    with suppress(OSError):  # a file system without locks: then nobody removes it after a crash
        lock = os.open(directory / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (directory / f"{_LOCK}.new").rename(directory / _LOCK)

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)
            if lock is not None:
                os.close(lock)

    undo.callback(remove)
    undo.callback(atexit.unregister, remove)
    atexit.register(remove)
    _remove_abandoned(directory.parent)
    return directory


def _remove_abandoned(folder: Path) -> None:
    """Remove the directories of programs that were killed. Links, and what others own, are left alone."""
    for path in folder.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            if path.parent.is_symlink() or path.parent.stat().st_uid != os.geteuid():
                continue
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)
