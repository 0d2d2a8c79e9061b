"""The promises and their figures in a run: a table, not a test.

A figure is the median of the turns, and so is a ratio: both of its sides are of one turn, as a machine that others use
changes from turn to turn.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from tests.benchmarks.cases import CONNECTIONS, LARGEST, READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.benchmarks.table import Result

__all__ = ["MUSTS", "Measured", "Must", "summary"]


class Measured:
    """The figures of one turn; a missing one raises LookupError."""

    def __init__(self, results: Sequence[Result], turn: int) -> None:
        self._results = results
        self._turn = turn

    def of(self, case: str, who: str, figure: str, **values: Any) -> float:
        """Return a figure of the measurement with these arguments."""
        for result in self._results:
            if (result.case, result.who) == (case, who) and values.items() <= result.values.items():
                return result.all(figure)[self._turn]
        raise LookupError(case)

    def events(self, who: str, figure: str, pods: int = 10_000) -> float:
        """Return a figure of no-op events, end to end, one event in a chunk."""
        return self.of("events", who, figure, pods=pods)

    def changed(self, figure: str, pods: int) -> float:
        """Return a figure of events with a change, end to end."""
        return self.of("changed", "ours", figure, pods=pods)

    def late(self, case: str, figure: str) -> float:
        """Return a latency at 1,000 events a second."""
        return self.of(case, "ours", figure, pods=10_000, rate=1_000)


@dataclass(frozen=True, slots=True)
class Must:
    """One promise."""

    what: str
    figure: Callable[[Measured], float]
    unit: str
    least: float | None = None
    most: float | None = None
    """Without `least` and `most` the figure is only printed."""

    def promised(self) -> str:
        """Return the promise as text."""
        if self.least is not None:
            return f"≥ {self.least:,g} {self.unit}"
        return f"≤ {self.most:,g} {self.unit}" if self.most is not None else "the figure"

    def is_met_by(self, figure: float) -> bool:
        """Compare the measured figure, not the rounded one."""
        return (self.least is None or figure >= self.least) and (self.most is None or figure <= self.most)


def _beside_a_busy_driver(ends: int, *, process: bool) -> tuple[Must, ...]:
    """Return the promises for a fleet with a process. A driver that computes without pause is told to use one."""

    def must(what: str, figure: str, unit: str, **bound: float) -> Must:
        beside = f"{what} beside a busy driver, {ends} ends/s, {'process' if process else 'threads'}"
        promised = bound if process else {}
        return Must(beside, lambda run: run.of("busy", "ours", figure, ends=ends, process=process), unit, **promised)

    return (
        must("end → ExecutorRemoved, p99,", "removed p99 ms", "ms", most=50),
        must("end → replacement's POST, p99,", "POST p99 ms", "ms", most=100),
        must("the driver's speed, to that without us,", "driver's speed %", "%", least=95),
        must("its processor time, to that without us,", "its processor time %", "%"),
    )


FIVE_MS: Final = {"executors": 1_000, "latency": 0.005}
REAL: Final = {"executors": 1_000}
FOUR: Final = {"workers": 4}
MANY: Final = {"pods": 50_000}
LONG: Final = {"events": 10_000_000}

MUSTS: Final = (
    Must(
        "events/s end to end at 10,000 pods, to SharedInformer",
        lambda run: run.events("ours", "events/s") / run.events("SharedInformer", "events/s"),
        "×",
        least=15,
    ),
    Must(
        "the same, to lightkube's bare watch loop",
        lambda run: run.events("ours", "events/s") / run.events("lightkube", "events/s"),
        "×",
        least=1,
    ),
    Must(
        "cost of an event at 50,000 pods, to that at 100",
        lambda run: run.events("ours", "cpu µs/event", 50_000) / run.events("ours", "cpu µs/event", 100),
        "×",
        most=1.25,
    ),
    Must(
        "cost of an event at 100,000 pods, to that at 100",
        lambda run: run.events("ours", "cpu µs/event", LARGEST) / run.events("ours", "cpu µs/event", 100),
        "×",
        most=1.25,
    ),
    Must(
        "events/s at 10,000 pods if each event is a change, to SharedInformer",
        lambda run: run.changed("events/s", 10_000) / run.events("SharedInformer", "events/s"),
        "×",
        least=15,
    ),
    Must(
        "cost of an event with a change at 50,000 pods, to that at 100",
        lambda run: run.changed("cpu µs/event", 50_000) / run.changed("cpu µs/event", 100),
        "×",
        most=1.25,
    ),
    Must(
        "store, lifecycle manager, allocator at 10,000 pods, one core",
        lambda run: run.of("inside", "ours", "events/s", pods=10_000, read=25),
        "events/s",
        least=60_000,
    ),
    Must(
        "events/s of a core through the door, to a bare Pykka driver, by the worst reader",
        lambda run: min(run.of("door", "ours", "of bare", reader=reader) for reader in READERS),
        "×",
        least=0.9,
    ),
    Must(
        "LIST of 10,000 pods to snapshot, to the kubernetes package's models",
        lambda run: (
            run.of("list", "kubernetes", "seconds", pods=10_000, gzipped=True)
            / run.of("list", "ours", "seconds", pods=10_000, gzipped=True)
        ),
        "×",
        least=10,
    ),
    Must(
        "end → ExecutorRemoved, p99 at 1,000 events/s, 10,000 pods polled",
        lambda run: run.late("latency", "removed p99 ms"),
        "ms",
        most=35,
    ),
    Must("end → replacement's POST, p99, the same", lambda run: run.late("latency", "POST p99 ms"), "ms", most=150),
    *(must for process in (True, False) for ends in (20, 1) for must in _beside_a_busy_driver(ends, process=process)),
    Must(
        "1,000 executors requested, answers after 5 ms",
        lambda run: run.of("creation", "ours", "requested s", **FIVE_MS),
        "s",
        most=8,
    ),
    Must(
        "requests in flight meanwhile",
        lambda run: run.of("creation", "ours", "max in flight", **FIVE_MS),
        "",
        most=16,
    ),
    Must(
        "an asyncio loop is held up at most, while 1,000 executors start",
        lambda run: run.of("loop", "ours", "max ms", frozen=True),
        "ms",
        most=20,
    ),
    Must(
        "the same loop without a fleet",
        lambda run: run.of("loop", "idle", "max ms", frozen=True),
        "ms",
    ),
    Must(
        "1,000 executors requested on a real control plane",
        lambda run: run.of("real", "ours", "requested s", **REAL),
        "s",
        most=10,
    ),
    Must(
        "the same, to a bare aiohttp loop with the best of 4, 8, 16 and 32 connections",
        lambda run: (
            run.of("real", "ours", "requested s", **REAL)
            / min(run.of("real", "bare", "requested s", connections=count, **REAL) for count in CONNECTIONS)
        ),
        "×",
        most=1.1,
    ),
    Must(
        "a pod is deleted by force → its replacement's POST, median of 50 on a real control plane",
        lambda run: run.of("losses", "ours", "requested p50 ms", losses=50),
        "ms",
        most=50,
    ),
    Must(
        "the same → the replacement runs",
        lambda run: run.of("losses", "ours", "runs p50 s", losses=50),
        "s",
        most=1,
    ),
    Must(
        "4 Dask workers are connected, to distributed's LocalCluster",
        lambda run: run.of("dask", "ours", "ready s", **FOUR) / run.of("dask", "LocalCluster", "ready s", **FOUR),
        "×",
        most=1.2,
    ),
    Must(
        "a Dask worker is killed → its replacement is connected, median of 20",
        lambda run: run.of("dask", "ours", "replaced s", **FOUR),
        "s",
        most=1.5,
    ),
    Must(
        "4 processes of a fleet with local=True run, less the time that they take to start alone",
        lambda run: (
            run.of("start", "ours", "seconds", until="running") - run.of("start", "bare", "seconds", until="running")
        ),
        "s",
        most=0.6,
    ),
    Must(
        "processor time of the import, to that of the kubernetes package",
        lambda run: (
            run.of("start", "ours", "cpu s", until="imported")
            / run.of("start", "kubernetes", "cpu s", until="imported")
        ),
        "×",
    ),
    Must(
        "resident memory by pod at 50,000",
        lambda run: run.of("memory", "memory", "settled KiB/pod", process=False, **MANY),
        "KiB",
        most=2.5,
    ),
    Must(
        "the same in both processes, with a process of the fleet",
        lambda run: run.of("memory", "memory", "settled KiB/pod", process=True, **MANY),
        "KiB",
        most=4,
    ),
    Must(
        "100,000 pods that run already, until the driver is told of all",
        lambda run: run.of("whole", "whole", "told s", pods=LARGEST),
        "s",
        most=15,
    ),
    Must(
        "resident memory of that process, after some polls",
        lambda run: run.of("whole", "whole", "resident MiB", pods=LARGEST),
        "MiB",
        most=350,
    ),
    Must(
        "resident memory after 10,000,000 events with a change, to that after half of them",
        lambda run: run.of("growth", "growth", "last MiB", **LONG) / run.of("growth", "growth", "half-way MiB", **LONG),
        "×",
        most=1.02,
    ),
    Must(
        "idle fleet of 10,000, of a core, apart from polls",
        lambda run: run.of("idle", "idle", "idle %", pods=10_000),
        "%",
        most=0.5,
    ),
    Must("a poll of 10,000", lambda run: run.of("idle", "idle", "poll cpu s", pods=10_000), "s", most=0.25),
)


def summary(results: Sequence[Result], musts: Sequence[Must] = MUSTS) -> Table:
    """Return a table of promises and figures."""
    table = Table(title="Promises", title_justify="left")
    for heading, justify in (("", "left"), ("figure", "right"), ("promised", "right"), ("met", "left")):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    turns = [Measured(results, turn) for turn in range(max((len(result.figures) for result in results), default=0))]
    for must in musts:
        figures = []
        for measured in turns:
            with suppress(LookupError):
                figures.append(must.figure(measured))
        if not figures:
            table.add_row(must.what, "", must.promised(), "not measured")
            continue
        figure = median(figures)
        met = "" if must.least is must.most is None else "yes" if must.is_met_by(figure) else "NO"
        table.add_row(must.what, f"{_number(figure)} {must.unit}", must.promised(), met)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
