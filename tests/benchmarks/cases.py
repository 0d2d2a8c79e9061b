"""The rows of the table: what is measured, for which contestant, and at which size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["CASES", "LARGEST", "READERS", "Case", "Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement in one process: the contestant `who`, and the arguments of the measuring function."""

    who: str
    values: dict[str, Any]
    label: str = ""
    """Tells the contestant's runs of a case apart; runs of other contestants with this label are compared."""
    must: bool = False
    """A promise in `must.py` depends on this run."""


@dataclass(frozen=True, slots=True)
class Case:
    """Some rows of the table."""

    title: str
    module: str
    """A module of this folder that has a function `measure`."""
    runs: tuple[Run, ...]
    quick: tuple[Run, ...]
    compares: str = ""
    """The figure whose ratio to ours is printed, if there are other contestants."""
    more_is_better: bool = True
    grows: str = ""
    """The figure whose ratio to that of the smallest fleet is printed."""
    repeats: int = 3


SIZES: Final = (100, 1_000, 10_000, 50_000)

LARGEST: Final = 100_000
"""Pods of the largest fleet, which only ours is measured with."""

COUNTS: Final = {
    "ours": 600_000,
    "SharedInformer": 20_000,
    "lightkube": 200_000,
    "kr8s": 4_000,
    "kopf": 3_000,
    "client-go": 40_000,
    "kube-rs": 200_000,
    "decoding only": 100_000,
}
"""Events for each contestant, so that each takes some seconds."""

FEW_EVENTS: Final = {"ours": 5_000, "lightkube": 5_000, "SharedInformer": 1_000}

EVENTS_THAT_COUNT: Final = {("ours", size) for size in (100, 10_000, 50_000, LARGEST)} | {
    (who, 10_000) for who in ("SharedInformer", "lightkube")
}


def _events(sizes: tuple[int, ...], counts: dict[str, int], *, joined: bool) -> tuple[Run, ...]:
    return tuple(
        Run(
            who,
            {"pods": pods, "count": count, "joined": joined},
            f"{pods:,} pods",
            must=not joined and (who, pods) in EVENTS_THAT_COUNT,
        )
        for pods in sizes
        for who, count in counts.items()
    )


def _changed(pods: int, count: int) -> Run:
    values = {"pods": pods, "count": count, "changed": True}
    return Run("ours", values, f"{pods:,} pods", must=pods != LARGEST and ("ours", pods) in EVENTS_THAT_COUNT)


def _lists(pods: int) -> tuple[Run, ...]:
    return tuple(
        Run(
            who,
            {"pods": pods, "gzipped": gzipped},
            f"{pods:,} pods, {'gzip' if gzipped else 'plain'}",
            must=gzipped and who in {"ours", "kubernetes"},
        )
        for gzipped in (True, False)
        for who in ("ours", "kubernetes", "lightkube", "kr8s")
        if who != "kr8s" or gzipped
    )


def _latency(rates: tuple[int, ...], pods: int, seconds: float) -> tuple[Run, ...]:
    return tuple(
        Run(
            "ours",
            {"pods": pods, "rate": rate, "seconds": max(seconds, 400 / rate)},
            f"{rate:,} events/s",
            must=rate == 1_000,
        )
        for rate in rates
    )


def _busy(pods: int, seconds: float) -> tuple[Run, ...]:
    """With a process of the fleet and without, at many losses a second, which the figures need, and at few."""
    return tuple(
        Run(
            "ours",
            {"pods": pods, "rate": 1_000, "seconds": seconds, "busy": True, "ends": ends, "process": process},
            f"{ends} ends/s, {'process' if process else 'threads'}",
            must=True,
        )
        for process in (False, True)
        for ends in (20, 1)
    )


def _creation(executors: int, latencies: tuple[float, ...]) -> tuple[Run, ...]:
    return tuple(
        Run(
            who,
            {"executors": executors, "latency": latency},
            f"{executors:,} executors, {latency * 1e3:g} ms",
            must=(who, latency) == ("ours", 0.005),
        )
        for latency in latencies
        for who in ("ours", "bare")
    )


def _real(executors: int) -> tuple[Run, ...]:
    label = f"{executors:,} executors"
    ours = Run("ours", {"executors": executors}, label, must=True)
    values = ({"executors": executors, "connections": connections} for connections in CONNECTIONS)
    return (ours, *(Run("bare", each, f"{label}, {each['connections']} connections", must=True) for each in values))


def _losses(executors: int, losses: int) -> tuple[Run, ...]:
    return (Run("ours", {"executors": executors, "losses": losses}, f"{executors:,} executors", must=True),)


def _leases(warm: int, rate: int, count: int, *, reuse: bool) -> Run:
    how = "offered again" if reuse else "ended and replaced"
    return Run(
        "ours", {"warm": warm, "rate": rate, "count": count, "reuse": reuse}, f"{warm} warm, {rate:,} leases/s, {how}"
    )


def _door(pods: int) -> tuple[Run, ...]:
    return tuple(Run("ours", {"pods": pods, "reader": reader}, f"read by {reader}", must=True) for reader in READERS)


def _loop(executors: int) -> tuple[Run, ...]:
    return tuple(
        Run(
            who,
            {"executors": executors, "latency": 0.005, "frozen": frozen},
            f"{executors:,} executors{', after gc.freeze()' if frozen else ''}",
            must=frozen,
        )
        for frozen in (False, True)
        for who in ("ours", "idle")
    )


def _dask(workers: int, losses: int) -> tuple[Run, ...]:
    return tuple(
        Run(
            who,
            {"workers": workers, "losses": losses},
            f"{workers} workers",
            must=workers == 4 and who != "SubprocessCluster",
        )
        for who in ("ours", "LocalCluster", "SubprocessCluster")
        if who != "SubprocessCluster" or workers == 4
    )


LOCAL_RUN: Final = "run --local --executors 1 --output json --for 1ms"


def _start(*peers: str) -> tuple[Run, ...]:
    imports = (
        Run(who, {"until": "imported"}, "imported", must=who in {"ours", "kubernetes"}) for who in ("ours", *peers)
    )
    commands = (Run(command, {"until": "answered"}, "the command") for command in ("--help", LOCAL_RUN))
    sent = (Run("ours", {"until": until}, f"first {until} sent") for until in ("LIST", "POST"))
    running = (Run(who, {"until": "running"}, "4 processes run", must=True) for who in ("ours", "bare"))
    return (*imports, *commands, *sent, *running)


CONNECTIONS: Final = (4, 8, 16, 32)
"""Of the bare loop: the fastest is compared."""

READERS: Final = ("nobody", "events()", "on_event")

CASES: Final[dict[str, Case]] = {
    "list": Case(
        "LIST of a whole fleet, until an executor can be looked up",
        "lists",
        _lists(10_000),
        _lists(1_000),
        compares="seconds",
        more_is_better=False,
    ),
    "streaming": Case(
        "The whole fleet listed by an API server of this machine: in pages, and as a streaming list",
        "streaming",
        tuple(Run("ours", {"pods": pods}, f"{pods:,} pods") for pods in (1_000, 5_000)),
        (Run("ours", {"pods": 100}, "100 pods"),),
        repeats=1,
    ),
    "events": Case(
        "Events end to end, from HTTP to the driver; one event in an HTTP chunk, as an API server sends them",
        "events",
        (*_events(SIZES, COUNTS, joined=False), *_events((LARGEST,), {"ours": COUNTS["ours"]}, joined=False)),
        _events((100, 1_000), FEW_EVENTS | {"kopf": 200, "kr8s": 200}, joined=False),
        compares="events/s",
        grows="cpu µs/event",
    ),
    "joined": Case(
        "The same, many events in one HTTP chunk",
        "events",
        _events((100, 10_000), COUNTS, joined=True),
        _events((1_000,), FEW_EVENTS, joined=True),
        compares="events/s",
        grows="cpu µs/event",
    ),
    "changed": Case(
        "The same, each event with a change: a container restarted",
        "events",
        (
            *(_changed(size, 200_000) for size in (*SIZES, LARGEST)),
            Run(
                "ours",
                {"pods": 50_000, "count": 200_000, "changed": True, "shuffled": True},
                "50,000 pods in no order",
            ),
        ),
        (_changed(1_000, 5_000),),
        grows="cpu µs/event",
    ),
    "inside": Case(
        "All actors without HTTP and JSON, on one core",
        "inside",
        tuple(
            Run(
                "ours",
                {"pods": pods, "count": 100_000, "read": read},
                f"{pods:,} pods, {read} events a read",
                must=(pods, read) == (10_000, 25),
            )
            for read in (1, 25)
            for pods in (100, 10_000)
        ),
        (Run("ours", {"pods": 1_000, "count": 5_000, "read": 25}, "1,000 pods, 25 events a read"),),
    ),
    "door": Case(
        "The door beside a bare Pykka driver, each event is news for it; all on one core",
        "door",
        _door(60_000),
        _door(5_000)[1:2],
        repeats=5,
    ),
    "leases": Case(
        "Leases of 200 warm executors through Fleet; cluster and kubelet are in the same process",
        "leases",
        (_leases(200, 1_000, 5_000, reuse=True), _leases(200, 50, 500, reuse=False)),
        (_leases(20, 200, 200, reuse=True),),
    ),
    "latency": Case(
        "End of an executor → ExecutorRemoved, → its replacement's POST; 10,000 pods and a poll every 2 s",
        "latency",
        _latency((10, 1_000, 10_000), 10_000, 20.0),
        _latency((1_000,), 1_000, 3.0),
    ),
    "busy": Case(
        "The same at 1,000 events/s, beside a driver that computes without pause",
        "latency",
        _busy(10_000, 10.0),
        _busy(1_000, 3.0),
        repeats=5,
    ),
    "creation": Case(
        "Executors requested, by the time that the server takes to answer",
        "creation",
        _creation(1_000, (0.0, 0.005, 0.02)),
        _creation(200, (0.005,)),
        compares="requested s",
        more_is_better=False,
    ),
    "loop": Case(
        "How late the loop of an asyncio service wakes a task while executors start",
        "loop",
        _loop(1_000),
        _loop(100)[2:],
        compares="max ms",
        more_is_better=False,
    ),
    "real": Case(
        "Executors requested, on a real control plane of this machine",
        "real",
        _real(1_000),
        _real(100),
    ),
    "losses": Case(
        "A pod is deleted by force → its replacement's POST, → it runs, on a real control plane of this machine",
        "losses",
        _losses(1_000, 50),
        _losses(20, 3),
        repeats=1,
    ),
    "dask": Case(
        "Dask clusters of this machine: workers connected, replaced when they are killed, scaled down to one",
        "dask_clusters",
        (*_dask(4, losses=20), *_dask(100, losses=5)),
        _dask(2, losses=1),
        compares="ready s",
        more_is_better=False,
    ),
    "start": Case(
        "The start: of the library, of a backend until its requests, of a fleet on the embedded cluster",
        "start",
        _start("kubernetes", "lightkube", "kr8s", "kopf"),
        _start("kubernetes"),
        compares="seconds",
        more_is_better=False,
        repeats=5,
    ),
    "memory": Case(
        "Resident memory by pod: after the start, after a stream and some polls, and at its peak",
        "upkeep",
        tuple(
            Run(
                "memory",
                {"pods": pods, "events": 50_000, "process": process},
                f"{pods:,} pods, {'process' if process else 'threads'}",
                must=pods == 50_000,
            )
            for pods in (10_000, 50_000)
            for process in (False, True)
        ),
        (Run("memory", {"pods": 2_000, "events": 5_000, "process": True}, "2,000 pods, process"),),
        repeats=1,
    ),
    "whole": Case(
        "A whole fleet that runs already: until the driver is told of all, what it holds, and what it answers",
        "upkeep",
        tuple(Run("whole", {"pods": pods}, f"{pods:,} pods", must=pods == LARGEST) for pods in (10_000, LARGEST)),
        (Run("whole", {"pods": 1_000}, "1,000 pods"),),
    ),
    "growth": Case(
        "Resident memory during a long stream, 1,000 pods",
        "upkeep",
        (Run("growth", {"pods": 1_000, "events": 10_000_000, "part": 100_000}, "1,000 pods", must=True),),
        (Run("growth", {"pods": 500, "events": 20_000, "part": 5_000}, "500 pods"),),
        repeats=1,
    ),
    "idle": Case(
        "Processor time of an idle fleet, and of a poll",
        "upkeep",
        (Run("idle", {"pods": 10_000, "seconds": 20}, "10,000 pods", must=True),),
        (Run("idle", {"pods": 1_000, "seconds": 4}, "1,000 pods"),),
        repeats=2,
    ),
}
