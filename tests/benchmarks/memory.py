"""What this process weighs, as Linux and glibc tell it, in bytes."""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
from pathlib import Path

__all__ = ["give_back", "malloc_arenas", "peak_resident", "resident"]


def resident() -> int:
    """What of it is in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_resident() -> int:
    """The most that ever was."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def give_back() -> None:
    """Collect garbage, and have malloc return what is free in its arenas, which it does not do by itself."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def malloc_arenas() -> int:
    """How many heaps malloc has: at most 8 for each core, as threads compete for them."""
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    with tempfile.TemporaryFile() as told:
        stream = ctypes.c_void_p(libc.fdopen(os.dup(told.fileno()), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        told.seek(0)
        return told.read().count(b"<heap nr=")
