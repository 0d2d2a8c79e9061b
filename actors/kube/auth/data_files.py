"""Files of the certificates and keys that a kubeconfig or an exec plugin gives as data: OpenSSL reads keys from files.

Only this user can read them. They are removed when the program ends, and before that when many newer ones came: an exec
plugin may give a new key every hour.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["MOST", "file_with"]

MOST: Final = 192
"""Files that are kept: three each of 64 fleets in one program."""

_files: Final[dict[bytes, str]] = {}
_lock: Final = threading.Lock()
_owner = os.getpid()


def file_with(data: bytes) -> str:
    """Return the name of a file with this content."""
    with _lock:
        name = _files.pop(data, None)
        if name is None or not Path(name).is_file():  # which something may have cleaned away
            name = _written(data)
        _files[data] = name  # the newest
        while len(_files) > MOST:
            _remove(_files.pop(next(iter(_files))))
        return name


def _written(data: bytes) -> str:
    descriptor, name = tempfile.mkstemp(prefix="executor-pods-")  # of mode 0600
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return name


def _remove(name: str) -> None:
    with suppress(OSError):
        Path(name).unlink()


@atexit.register
def _remove_all() -> None:
    if os.getpid() == _owner:  # not in a forked child: its parent goes on to use them
        for name in _files.values():
            _remove(name)
