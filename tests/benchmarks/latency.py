"""From the event that says that an executor has ended, to the driver's notice and to its replacement's POST."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from tests.benchmarks.ours import Fleet, connect
from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["measure", "percentile"]

ENDS: Final = 10.0
"""Executors that end, a second: few enough that each is a story of its own."""

POLLING: Final = "2s"
"""So that a good part of the run has a poll in it; the default is 30 s."""

LAST_WORDS: Final = 3.0
"""Seconds until the last replacements should have been asked for."""


def measure(_who: str, *, pods: int, rate: float, seconds: float, busy: bool = False) -> dict[str, float]:
    """`rate` events a second; with `busy`, another thread of the driver's process computes all the while."""
    with Serving(pods, starts=True) as serving:
        alone = _Work().steps_in(2.0) if busy else 0.0
        with Fleet(connect(serving), pods, executor={"api_polling_interval": POLLING}) as fleet:
            serving.ask("watched")
            work = _Work() if busy else None
            beside = work.begin() if work is not None else None
            cpu = time.process_time()
            paced = serving.ask("pace", seconds=seconds, rate=rate, ends=min(ENDS, rate / 2))
            cpu = time.process_time() - cpu
            time.sleep(LAST_WORDS)
            if work is not None and beside is not None:
                speed = work.end(beside)
            counts = serving.ask("counts")
            sent = {int(number): at for number, at in counts["ended"].items()}
            told = [fleet.until_removed(number) - at for number, at in sent.items()]
        posted = [at - end for at, end in zip(sorted(counts["posts"]), sorted(sent.values()), strict=True)]
    figures = {
        "told p50 ms": percentile(told, 50) * 1e3,
        "told p99 ms": percentile(told, 99) * 1e3,
        "told max ms": max(told) * 1e3,
        "POST p50 ms": percentile(posted, 50) * 1e3,
        "POST p99 ms": percentile(posted, 99) * 1e3,
        "POST max ms": max(posted) * 1e3,
        "sent events/s": paced["events"] / seconds,
        "cpu %": cpu / seconds * 100,
    }
    return figures | ({"driver's speed %": speed / alone * 100} if busy else {})


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class _Work:
    """A computation without a pause, in a thread."""

    def __init__(self) -> None:
        self._steps = 0
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> float:
        """When that was."""
        self._thread.start()
        return time.monotonic()

    def end(self, began: float) -> float:
        """How many steps a second it came to."""
        self._ends = True
        self._thread.join()
        return self._steps / (time.monotonic() - began)

    def steps_in(self, seconds: float) -> float:
        """A second, with nothing beside it."""
        began = self.begin()
        time.sleep(seconds)
        return self.end(began)

    def _run(self) -> None:
        while not self._ends:
            total = 0
            for number in range(1000):
                total += number * number
            self._steps += 1
