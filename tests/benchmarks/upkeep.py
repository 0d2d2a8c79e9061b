"""The cost of a running fleet: memory by pod and after many events, processor time when idle and for polls."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from actors.messages import GetExecutors, GetFleetStatus
from tests.benchmarks.lists import PAGE
from tests.benchmarks.memory import give_back, malloc_arenas, peak_resident, resident, resident_in_process
from tests.benchmarks.ours import Fleet, connect
from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure"]

SETTLING: Final = 3.0
"""Seconds until a start has settled."""

OFTEN: Final = 2
"""Seconds between polls, so that a short run has many."""

ENDS: Final = 10
"""Executors that end and are replaced in each part of the long stream."""

POLLS: Final = 4
"""Polls of a whole fleet, at least the time for them."""

ANSWER_LIMIT: Final = timedelta(minutes=1)
"""After this long a question has failed."""

FEW: Final = 100
"""Pods of the fleet whose memory is subtracted."""


def measure(who: str, **values: Any) -> dict[str, float]:
    """Measure `memory`, `whole`, `growth` or `idle`, as `who` says."""
    return _ASKED[who](**values)


def _memory(pods: int, events: int, *, process: bool = False) -> dict[str, float]:
    """Measure resident memory by pod: after the start, after `events` changes and some polls, and without free memory.

    Memory that malloc keeps for later is resident too: each thread may have an arena of its own. With `process`, the
    fleet has a process, whose resident memory is added to what is resident at the start and settled.
    """
    few, many = _weights(FEW, events, process=process), _weights(pods, events, process=process)
    arenas = many.pop("arenas")
    by_pod = {f"{when} KiB/pod": (weight - few[when]) / (pods - FEW) / 1024 for when, weight in many.items()}
    return by_pod | {"process MiB": many["settled"] / 2**20, "malloc arenas": arenas}


def _weights(pods: int, events: int, *, process: bool) -> dict[str, int]:
    """Measure in a process of its own, because freed memory is not returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            json.dump(_weigh(pods, events, process=process), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        weights: dict[str, int] = json.load(pipe)
    os.waitpid(child, 0)
    return weights


def _weigh(pods: int, events: int, *, process: bool) -> dict[str, int]:
    settings = {"executor": {"api_polling_interval": f"{OFTEN}s"}, "source": {"process": process}}
    with (
        Serving(pods, changed=True) as serving,
        Fleet(connect(serving), pods, settling=SETTLING, **settings) as fleet,
    ):
        synced = resident() + resident_in_process()
        serving.ask("watched")
        fleet.until_removed(serving.ask("stream", count=events)["last"])
        time.sleep(OFTEN * 2 + SETTLING)
        settled, peak, arenas = resident() + resident_in_process(), peak_resident(), malloc_arenas()
        give_back()
        return {"synced": synced, "settled": settled, "given back": resident(), "peak": peak, "arenas": arenas}


def _whole(pods: int) -> dict[str, float]:
    """Measure a fleet of pods that run already: until the driver is told of all, memory, polls, and answers."""
    with (
        Serving(pods, gzipped=True) as serving,
        Fleet(connect(serving), pods, settling=SETTLING, executor={"api_polling_interval": f"{OFTEN}s"}) as fleet,
    ):
        pages, cpu = serving.ask("counts")["lists"], time.process_time()
        time.sleep(POLLS * OFTEN)
        cpu = time.process_time() - cpu
        polls = (serving.ask("counts")["lists"] - pages) / max(1, -(-pods // PAGE))
        held, peak = resident(), peak_resident()
        answers = {}
        for name, question in (("status", GetFleetStatus()), ("executors", GetExecutors())):
            asked = time.monotonic()
            fleet.backend.ask(question, ANSWER_LIMIT)
            answers[f"{name} ms"] = (time.monotonic() - asked) * 1e3
        return {
            "told s": fleet.told,
            "resident MiB": held / 2**20,
            "peak MiB": peak / 2**20,
            "poll cpu s": cpu / polls,
            **answers,
        }


def _growth(pods: int, events: int, part: int) -> dict[str, float]:
    """Measure resident memory after the first part of a long stream and later; in each part some executors end.

    Memory that a poll takes for a moment, and malloc keeps, belongs to the start: some polls come before.
    """
    polling = {"api_polling_interval": f"{OFTEN}s"}
    with (
        Serving(pods, starts=True, changed=True) as serving,
        Fleet(connect(serving), pods, settling=OFTEN * 2 + SETTLING, executor=polling) as fleet,
    ):
        serving.ask("watched")
        began, weights = time.monotonic(), []
        for _ in range(events // part):
            fleet.until_removed(serving.ask("stream", count=part, ends=ENDS - 1)["last"])
            weights.append(resident() / 2**20)
        seconds = time.monotonic() - began
    half = len(weights) // 2
    return {
        "first MiB": weights[0],
        "half-way MiB": weights[half - 1],
        "last MiB": weights[-1],
        "most MiB": max(weights),
        "growth B/event": (weights[-1] - weights[0]) * 2**20 / (events - part),
        "2nd half B/event": (weights[-1] - weights[half - 1]) * 2**20 / (events - half * part),
        "executors ended": len(fleet.removed),
        "events/s": events / seconds,
    }


def _idle(pods: int, seconds: int) -> dict[str, float]:
    """Measure without changes and polls, then with many polls; the difference is their cost."""
    with Serving(pods, gzipped=True) as serving:
        with Fleet(connect(serving), pods, settling=SETTLING, executor={"api_polling_interval": "1h"}):
            cpu = time.process_time()
            time.sleep(seconds)
            idle = (time.process_time() - cpu) / seconds
        with Fleet(connect(serving), pods, settling=SETTLING, executor={"api_polling_interval": f"{OFTEN}s"}):
            pages = serving.ask("counts")["lists"]
            cpu = time.process_time()
            time.sleep(seconds)
            cpu = time.process_time() - cpu - idle * seconds
            polls = (serving.ask("counts")["lists"] - pages) / max(1, -(-pods // PAGE))
    return {"idle %": idle * 100, "idle cpu s/minute": idle * 60, "poll cpu s": cpu / polls}


_ASKED: Final[dict[str, Callable[..., dict[str, float]]]] = {
    "memory": _memory,
    "whole": _whole,
    "growth": _growth,
    "idle": _idle,
}
