"""What programs leave behind: files, threads, and processes. A program's files are those in its TMPDIR, a folder of the
test; all processes that it starts have the same one, and are found by that.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from actors.kube.auth import data_files

DASKS_OWN: Final = {"dask-scratch-space", "global.lock", "purge.lock", "__pycache__"}
"""What Dask leaves for the next cluster of this machine. The last one is empty."""

LAST_STEPS: Final = 10.0
"""Seconds after which a thread that has not ended goes on for ever."""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a program whose leftovers are looked for."""
    return os.environ | {"TMPDIR": str(folder)}


def left(folder: Path) -> list[str]:
    """Return the files in the folder and the processes that have it for their files, but what this process has."""
    mark = f"TMPDIR={folder}".encode()
    ours = DASKS_OWN | {Path(each).name for each in data_files._files.values()}
    found = [str(each) for each in folder.rglob("*") if each.name not in ours]
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if int(each.name) != os.getpid() and mark in (each / "environ").read_bytes().split(b"\0"):
                found.append((each / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def running() -> set[threading.Thread]:
    """Return the threads of this process, without the one that Dask has for all clients."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Dask-Offload")}


def kept(before: set[threading.Thread]) -> set[threading.Thread]:
    """Return the threads that run beside those, and are not just in their last steps."""
    for thread in running() - before:
        thread.join(LAST_STEPS)
    return running() - before


def opened() -> set[str]:
    """Return the sockets, pipes and files that this process has open."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{each.name}: {each.readlink()}")
        except OSError:
            continue
    return found
