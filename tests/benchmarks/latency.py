"""The time from the event of an executor's end to `ExecutorRemoved`, and to the POST of its replacement."""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
import threading
import time
from statistics import mean
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.lists import PAGE
from tests.benchmarks.ours import Fleet, connect
from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["measure", "percentile"]

ENDS: Final = 20.0
"""Executors that end in a second: few enough that their rounds rarely overlap."""

POLLING: Final = "2s"
"""A good part of the run coincides with a poll; the default is 30 s."""

LAST_WORDS: Final = 3.0
"""Seconds until the last replacements have been requested."""

TASKS: Final = 1_000
"""Of the computation beside which a fleet is measured."""

WITHOUT: Final = 4.0
"""Seconds before and after the run that measure the driver's speed without a fleet."""


def measure(
    _who: str,
    *,
    pods: int,
    rate: float,
    seconds: float,
    busy: bool = False,
    ends: float = ENDS,
    process: bool = False,
) -> dict[str, float]:
    """Measure at `rate` events a second, `ends` of them ends of executors.

    With `busy`, another thread of the driver's process computes meanwhile: how fast, to its speed beside the same
    server and a client that drops what it reads, and how much of the time it has a processor, in the same way: a
    machine that is slower for some seconds changes the speed. With `process`, the fleet has a process of
    its own.
    """
    without = [_work_without(pods, rate, ends)] if busy else []
    with Serving(pods, starts=True) as serving:
        polling = {"api_polling_interval": POLLING}
        with Fleet(connect(serving), pods, executor=polling, source={"process": process}) as fleet:
            serving.ask("watched")
            pages = serving.ask("counts")["lists"]
            work = _Work() if busy else None
            cpu = time.process_time()
            paced = serving.ask("pace", seconds=seconds, rate=rate, ends=min(ends, rate / 2))
            cpu = time.process_time() - cpu
            if work is not None:
                work.end()
                cpu -= work.cpu
            pages = serving.ask("counts")["lists"] - pages
            time.sleep(LAST_WORDS)
            counts = serving.ask("counts")
            sent = {int(number): at for number, at in counts["ended"].items()}
            told = [fleet.until_removed(number) - at for number, at in sent.items()]
        posted = [at - end for at, end in zip(sorted(counts["posts"]), sorted(sent.values()), strict=True)]
        figures = {
            "removed p50 ms": percentile(told, 50) * 1e3,
            "removed p99 ms": percentile(told, 99) * 1e3,
            "POST p50 ms": percentile(posted, 50) * 1e3,
            "POST p99 ms": percentile(posted, 99) * 1e3,
            "POST max ms": max(posted) * 1e3,
            "ends": len(told),
            "sent events/s": paced["events"] / paced["seconds"],
            "sent late p99 ms": percentile(counts["late"], 99) * 1e3,
            "polls": pages / max(1, -(-pods // PAGE)),
            "cpu %": cpu / paced["seconds"] * 100,
            "server %": paced["cpu"] / paced["seconds"] * 100,
        }
        if work is None:
            return figures
    without.append(_work_without(pods, rate, ends))
    return figures | {
        "driver's speed %": work.speed / mean(each.speed for each in without) * 100,
        "its processor time %": work.share / mean(each.share for each in without) * 100,
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class _Work:
    """A scheduler's computation without pause, in a thread of its own, until `end`.

    It is a mixture, and uses memory of all sizes. A loop over integers alone is up to an eighth faster or slower, in a
    process of its own too, by where the allocator happens to put three of them.
    """

    def __init__(self) -> None:
        self.cpu = 0.0
        """Processor seconds that it used."""
        self._steps = 0
        self._ends = False
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop, and set `cpu`, `speed`, in steps a second, and `share`, of the time, in which it had a processor."""
        self._ends = True
        self._thread.join()
        seconds = time.monotonic() - self._began
        self.speed, self.share = self._steps / seconds, self.cpu / seconds

    def _run(self) -> None:
        cpu = time.thread_time()
        queue = [(number, number) for number in range(TASKS)]
        runs = dict.fromkeys(range(TASKS), 0)
        names = [f"task-{number}" for number in range(TASKS)]
        while not self._ends:
            total = 0.0
            for _ in range(40):  # the task that is due next, and when it is due again
                due, task = heapq.heappop(queue)
                runs[task] += 1
                heapq.heappush(queue, (due + task * 7919 % TASKS + 1, task))
                total += due * 0.5
            first = self._steps * 16 % TASKS
            tasks = [{"name": name, "runs": runs[number]} for number, name in enumerate(names[first : first + 16])]
            assert len(json.loads(json.dumps({"total": total, "tasks": sorted(tasks, key=_name)}))["tasks"]) > 0
            self._steps += 1
        self.cpu = time.thread_time() - cpu


def _name(task: dict[str, Any]) -> str:
    return str(task["name"])


def _work_without(pods: int, rate: float, ends: float) -> _Work:
    """Return what the driver has computed beside the server and a client that costs the driver nothing."""
    with Serving(pods, starts=True) as serving:
        command = [sys.executable, "-m", "tests.benchmarks.dropping", str(serving.port), POLLING.removesuffix("s")]
        with subprocess.Popen(command) as client:
            try:
                serving.ask("watched")
                work = _Work()
                serving.ask("pace", seconds=WITHOUT, rate=rate, ends=min(ends, rate / 2))
                work.end()
            finally:
                client.kill()
    return work
