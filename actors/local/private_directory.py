"""`private_directory`: a directory for keys and sockets that goes with the cluster, or with the program."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import ExitStack

__all__ = ["private_directory"]


def private_directory(undo: ExitStack) -> Path:
    """Make a directory of mode 0700. It is removed when `undo` is closed or the program exits, by no forked child."""
    directory, owner = Path(tempfile.mkdtemp(prefix="executor-pods-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    undo.callback(remove)
    undo.callback(atexit.unregister, remove)
    atexit.register(remove)
    return directory
