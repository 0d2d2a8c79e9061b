"""What a fleet costs that is there: memory by pod and after many events, processor time when idle and for polls."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks.ours import Fleet, connect
from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure"]

SETTLING: Final = 3.0
"""Seconds until what a start has brought about is over."""

OFTEN: Final = 2
"""Seconds between polls, so that a short run has many."""

FEW: Final = 100
"""Pods of the fleet that tells what a process weighs without its pods."""


def measure(who: str, **values: int) -> dict[str, float]:
    """`who` is what is asked for."""
    return _ASKED[who](**values)


def _memory(pods: int, events: int) -> dict[str, float]:
    """Resident memory by pod: after the start, and after `events` changes and some polls."""
    few = _weights(FEW, events)
    many = _weights(pods, events)
    return {f"{when} KiB/pod": (weight - few[when]) / (pods - FEW) / 1024 for when, weight in many.items()}


def _weights(pods: int, events: int) -> dict[str, int]:
    """In a process of its own, as memory once had is not given back."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            print(*_weigh(pods, events), file=pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        synced, settled, peak = (int(word) for word in pipe.read().split())
    os.waitpid(child, 0)
    return {"synced": synced, "settled": settled, "peak": peak}


def _weigh(pods: int, events: int) -> tuple[int, int, int]:
    with (
        Serving(pods) as serving,
        Fleet(connect(serving), pods, settling=SETTLING, executor={"api_polling_interval": f"{OFTEN}s"}) as fleet,
    ):
        synced = _resident()
        serving.ask("watched")
        last = serving.ask("stream", count=events)["last"]
        fleet.until_removed(last)
        time.sleep(OFTEN * 2 + SETTLING)
        return synced, _resident(), _peak()


def _growth(pods: int, events: int, parts: int) -> dict[str, float]:
    """Resident memory after each part of a long stream, against that after the first."""
    with Serving(pods) as serving, Fleet(connect(serving), pods) as fleet:
        serving.ask("watched")
        weights = []
        for _ in range(parts):
            last = serving.ask("stream", count=events // parts)["last"]
            fleet.until_removed(last)
            weights.append(_resident())
    return {
        "first MiB": weights[0] / 2**20,
        "last MiB": weights[-1] / 2**20,
        "growth B/event": (weights[-1] - weights[0]) / (events * (parts - 1) / parts),
    }


def _idle(pods: int, seconds: int) -> dict[str, float]:
    """Without a change and without a poll, then with many polls, whose cost is the difference."""
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
            polls = (serving.ask("counts")["lists"] - pages) / max(1, -(-pods // 500))
    return {"idle %": idle * 100, "idle cpu s/minute": idle * 60, "poll cpu s": cpu / polls}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


_ASKED: Final[dict[str, Callable[..., dict[str, float]]]] = {"memory": _memory, "growth": _growth, "idle": _idle}
