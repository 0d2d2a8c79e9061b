"""The memory of this process in bytes, as Linux and glibc report it."""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
from pathlib import Path

__all__ = ["give_back", "malloc_arenas", "peak_resident", "resident", "resident_in_process"]


def resident(process: str = "self") -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resident_in_process() -> int:
    """Return the resident memory of the fleet's process, 0 if there is none."""
    listings = [listing.read_text().split() for listing in Path("/proc/self/task").glob("*/children")]
    return sum(
        resident(child)
        for children in listings
        for child in children
        if b"actors.backend.process" in Path(f"/proc/{child}/cmdline").read_bytes()
    )


def peak_resident() -> int:
    """Return the highest resident memory so far."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def give_back() -> None:
    """Collect garbage, and make malloc return the free memory of its arenas, which it keeps otherwise."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def malloc_arenas() -> int:
    """Return how many heaps malloc has: at most 8 for each core, as threads compete."""
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    with tempfile.TemporaryFile() as told:
        stream = ctypes.c_void_p(libc.fdopen(os.dup(told.fileno()), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        told.seek(0)
        return told.read().count(b"<heap nr=")
