"""What a process has used of the processor."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["used"]


def used(pid: int) -> tuple[float, float]:
    """Return a process's seconds in user code and in the kernel so far, in steps of a clock tick."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")
    user, kernel = fields.split()[11:13]
    ticks = os.sysconf("SC_CLK_TCK")
    return int(user) / ticks, int(kernel) / ticks
