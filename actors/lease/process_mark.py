"""The mark of this process: a locked file, by which a later process of this machine sees that this one has ended.

The kernel holds the lock as long as the process lives, stopped or not, and frees it however the process ends. Nothing
is concluded from process ids, start times or host names, which two processes can share. A file counts only where the
process put it: it names the boot of the machine, its file system and its inode. So a copy of the file, in an image or
a cloned machine, shows nothing, and neither does a file that another machine shares.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import secrets
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["has_ended", "own_mark"]

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Linux only: elsewhere no process is marked, and none is found to have ended."""

_MARK: Final = re.compile(r"[0-9a-f]{32}")

_LONGEST: Final = 200
"""Bytes of a mark's file."""

_PREFIX: Final = "executor-pods-driver-"

USEFUL_FOR: Final = 3600
"""Seconds. An older mark of a process that was killed is removed: its Lease has expired by then, or the process had
run for so long that its successor may wait for that."""


def own_mark() -> str | None:
    """Return the mark of this process, which is there until the process ends; None if it cannot have one.

    It blocks for no longer than it takes to write a small file.
    """
    return _mark_of(os.getpid())


def has_ended(mark: str) -> bool:
    """Return whether it is certain that the process of this mark has ended. False after the first True."""
    if _MARK.fullmatch(mark) is None:
        return False
    try:
        return _is_removed(_path(mark), original=True)
    except OSError:  # its process lives, or there is no such file
        return False


def _is_removed(path: Path, *, original: bool) -> bool:
    """Remove a mark's file, but for `original` none that was copied. Return whether that was done.

    Raises:
        OSError: its process lives, or it cannot be removed.
    """
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(file).st_uid != os.geteuid() or (original and os.read(file, _LONGEST) != _content(file)):
            return False
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(file)
    return True


def _remove_old(folder: Path, now: float) -> None:
    """Remove what drivers have left that were killed, also before this boot."""
    for path in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if now - path.lstat().st_mtime >= USEFUL_FOR:
                _is_removed(path, original=False)


@cache
def _mark_of(_process: int) -> str | None:
    """Make the mark. Forked processes have marks of their own.

    The descriptor stays open: as a number, because the end of the interpreter closes objects, while threads go on.
    """
    mark = secrets.token_hex(16)  # never from a seed: no other process may have it
    try:
        path = _path(mark)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        atexit.register(_remove, path, os.getpid())
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, _content(file))
        _remove_old(path.parent, os.fstat(file).st_mtime)
    except OSError:
        return None
    return mark


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:
        with suppress(OSError):
            path.unlink()


def _path(mark: str) -> Path:
    """Return the mark's file.

    Raises:
        OSError: there is no folder for temporary files, or none that may be written.
    """
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{mark}"


def _content(file: int) -> bytes:
    """Return what the file of a mark contains if it is the original one.

    Raises:
        OSError: this machine does not say which boot this is.
    """
    status = os.fstat(file)
    return f"{BOOT_ID.read_text().strip()} {status.st_dev} {status.st_ino}\n".encode()
