"""A driver's computation, in a thread of the driver's process, and how far it comes beside a fleet and without one."""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

__all__ = ["Beside", "Computation", "Control", "Progress"]

TASKS: Final = 1_000
"""Of the computation beside which a fleet is measured."""


class Progress(NamedTuple):
    """How far a computation is, or how far it came in some time."""

    steps: int
    cpu: float
    """Processor seconds."""
    seconds: float

    def since(self, other: Progress) -> Progress:
        """Return how far it came after `other`."""
        return Progress(self.steps - other.steps, self.cpu - other.cpu, self.seconds - other.seconds)

    @property
    def speed(self) -> float:
        """Steps a second."""
        return self.steps / self.seconds

    @property
    def share(self) -> float:
        """Of the time, in which it had a processor."""
        return self.cpu / self.seconds


class Computation:
    """A scheduler's computation without pause, in a thread of its own, until the end of the `with`.

    It is a mixture, and uses memory of all sizes. A loop over integers alone is up to an eighth faster or slower, in a
    process of its own too, by where the allocator happens to put three of them. For the same reason one computation
    goes on through all that is compared.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._thread.ident is not None
        self._clock = time.pthread_getcpuclockid(self._thread.ident)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._thread.join()

    def progress(self) -> Progress:
        """Return how far it is by now."""
        return Progress(self._steps, time.clock_gettime(self._clock), time.monotonic())

    def during(self, wait: Callable[[], object]) -> Progress:
        """Return how far it comes until `wait` returns."""
        began = self.progress()
        wait()
        return self.progress().since(began)

    def _run(self) -> None:
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


class Control:
    """A server like the fleet's, with a client that drops what it reads, until the end of the `with`.

    Both are stopped but for their turns.
    """

    def __init__(self, pods: int, polling: float) -> None:
        self._serving = Serving(pods, starts=True)
        self._polling = polling
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with self._open as opened:
            serving = opened.enter_context(self._serving)
            command = [sys.executable, "-m", "tests.benchmarks.dropping", str(serving.port), str(self._polling)]
            client = opened.enter_context(subprocess.Popen(command))
            opened.callback(client.kill)
            serving.ask("watched")
            self._open = opened.pop_all()
        self._open.enter_context(serving.stopped())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def turn(self, computation: Computation, seconds: float, rate: float, ends: float) -> Progress:
        """Return how far the computation comes beside events that nobody handles."""
        with self._serving.resumed():
            return computation.during(lambda: self._serving.ask("pace", seconds=seconds, rate=rate, ends=ends))


@dataclass(frozen=True, slots=True)
class Beside:
    """Turns with a fleet, each between two without."""

    beside: list[Progress] = field(default_factory=list)
    without: list[Progress] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        """Processor seconds of the computation in all turns with a fleet."""
        return sum(turn.cpu for turn in self.beside)

    def percent(self, figure: Callable[[Progress], float]) -> float:
        """Return the figure with a fleet, to the one without: the median of all turns, each to its two neighbours.

        A shared machine is slower for some seconds, and then the neighbours are slower too.
        """
        around = (mean(map(figure, both)) for both in pairwise(self.without))
        return median(figure(turn) / beside for turn, beside in zip(self.beside, around, strict=True)) * 100


def _name(task: dict[str, Any]) -> str:
    return str(task["name"])
