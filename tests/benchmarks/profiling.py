"""Where the time of an event goes, function by function: `python -m tests.benchmarks profile`.

py-spy samples from another process, a few hundred times a second, which thread holds the interpreter and what it runs.
Kernel time (reading, waking threads) is a row of its own, because a thread mostly releases the interpreter for it. The
cost of the fleet's start is measured with hardly any events and subtracted.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from rich.table import Table

__all__ = ["PROFILE", "profile"]

PROFILE: Final = "profile"
LOOKS: Final = 250
"""Samples a second."""
PODS: Final = 1_000
EVENTS: Final = 600_000
FEW: Final = 1_000
SHOWN: Final = 20


def profile(*, quick: bool) -> Table:
    """Return a table of the functions that take most of an event's time."""
    few, _ = _sampled(FEW)
    many, figures = _sampled(EVENTS // 20 if quick else EVENTS)
    many -= few
    cost, kernel = figures["cpu µs/event"], figures["of it kernel"]
    table = Table(title=f"Where the {cost:.1f} µs of an event go, HTTP to driver", title_justify="left")
    for heading in ("µs/event", "function", "thread"):
        table.add_column(heading, justify="right" if heading == "µs/event" else "left")
    table.add_row(f"{kernel:.2f}", "(in the kernel)", "")
    for (thread, function), looks in many.most_common(SHOWN):
        table.add_row(f"{(cost - kernel) * looks / many.total():.2f}", function, thread)
    return table


def _sampled(events: int) -> tuple[Counter[tuple[str, str]], dict[str, float]]:
    """Return how often each function itself was sampled, without its callees, and the figures of `events`."""
    py_spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if py_spy is None:
        raise SystemExit("needs py-spy: pip install -e '.[bench]'")
    with tempfile.TemporaryDirectory() as folder:
        stacks = Path(folder) / "stacks"
        values = json.dumps({"pods": PODS, "count": events})
        worker = [sys.executable, "-m", "tests.benchmarks.worker", "events", "ours", values]
        looking = [py_spy, "record", "-r", str(LOOKS), "--gil", "-t", "-f", "raw", "-o", str(stacks), "--", *worker]
        done = subprocess.run(looking, capture_output=True, text=True, check=False)
        if not stacks.is_file():
            raise SystemExit(done.stderr or done.stdout)
        figures = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
        return counted(stacks.read_text()), figures


def counted(stacks: str) -> Counter[tuple[str, str]]:
    """Count lines of `thread;function (file:line);… COUNT` by thread and innermost function, which is last."""
    found: Counter[tuple[str, str]] = Counter()
    for line in stacks.splitlines():
        stack, _, looks = line.rpartition(" ")
        frames = stack.split(";")
        thread = re.sub(r'^thread \([^)]*\)(: )?|"', "", frames[0]) if len(frames) > 1 else ""
        found[thread, re.sub(r":[0-9]+\)$", ")", frames[-1])] += int(looks)
    return found
