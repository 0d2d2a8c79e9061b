"""Files of the certificates and keys that a kubeconfig or an exec plugin gives as data: OpenSSL reads keys from files.

Only this user can read them. They are removed when the program ends (see `private_directory`), and before that when
many newer ones came: an exec plugin may give a new key every hour. Where no folder can be written (a read-only file
system, a full disk), Linux keeps them in its memory.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from actors.errors import SettingsError
from actors.kube.auth.private_directory import private_directory

__all__ = ["MOST", "file_with"]

MOST: Final = 192
"""Files that are kept: three each of 64 fleets in one program."""

_files: Final[dict[bytes, str]] = {}
_in_memory: Final[dict[str, int]] = {}
"""By name: the descriptors that keep files without a folder."""
_lock: Final = threading.Lock()
_directories: Final[dict[int, Path]] = {}
"""By process: a forked child has one of its own."""


def file_with(data: bytes) -> str:
    """Return the name of a file with this content.

    Raises:
        SettingsError: no file can be written.
    """
    with _lock:
        name = _files.pop(data, None)
        if name is None or not Path(name).is_file():  # which something may have cleaned away
            name = _written(data)
        _files[data] = name  # the newest
        while len(_files) > MOST:
            _remove(_files.pop(next(iter(_files))))
        return name


def _written(data: bytes) -> str:
    try:
        return _on_disk(data)
    except OSError as error:
        problem = error.strerror or str(error)
    if hasattr(os, "memfd_create"):
        with suppress(OSError):  # no descriptor is left
            return _kept_in_memory(data)
    raise SettingsError(
        f"the kubeconfig has certificates as data, which need a file, and none can be written ({problem}): "
        "set TMPDIR to a folder that can be written"
    )


def _on_disk(data: bytes) -> str:
    directory = _directories.get(os.getpid())
    if directory is None or not directory.is_dir():
        directory = _directories[os.getpid()] = private_directory(ExitStack())
    descriptor, name = tempfile.mkstemp(dir=directory)  # of mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        _remove(name)
        raise
    return name


def _kept_in_memory(data: bytes) -> str:
    """Return a name that our child processes can open, too."""
    descriptor = os.memfd_create("executor-pods")
    name = f"/proc/{os.getpid()}/fd/{descriptor}"
    if not Path(name).is_file() or os.write(descriptor, data) != len(data):  # /proc may not be there
        os.close(descriptor)
        raise OSError(errno.EIO, "not written", name)
    _in_memory[name] = descriptor
    return name


def _remove(name: str) -> None:
    if (descriptor := _in_memory.pop(name, None)) is not None:
        os.close(descriptor)
        return
    with suppress(OSError):
        Path(name).unlink()
