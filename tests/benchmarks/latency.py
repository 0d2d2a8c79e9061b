"""The time from the event of an executor's end to `ExecutorRemoved`, and to the POST of its replacement."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tests.benchmarks.computing import Beside, Computation, Control
from tests.benchmarks.lists import PAGE
from tests.benchmarks.ours import Fleet, connect
from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["measure", "percentile"]

ENDS: Final = 20.0
"""Executors that end in a second: few enough that their rounds rarely overlap."""

POLLING: Final = 2.0
"""Seconds. A good part of the run coincides with a poll; the default is 30 s."""

LAST_WORDS: Final = 3.0
"""Seconds until the last replacements have been requested."""

TURN: Final = 2.0
"""Seconds beside a busy driver that are compared with as many before and after them."""

SETTLING: Final = 0.3
"""Seconds until all is done that followed from the last event of a turn."""


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

    With `busy`, another thread of the driver's process computes meanwhile: how fast, to its speed beside such a
    server and a client that drops what it reads, and how much of the time it has a processor, in the same way. The
    servers take turns: a machine that is slower for some seconds changes the speed. With `process`, the fleet has a
    process of its own.
    """
    ends = min(ends, rate / 2)
    with ExitStack() as opened:
        serving = opened.enter_context(Serving(pods, starts=True))
        polling = {"api_polling_interval": f"{POLLING}s"}
        fleet = opened.enter_context(Fleet(connect(serving), pods, executor=polling, source={"process": process}))
        serving.ask("watched")
        pages = serving.ask("counts")["lists"]
        if busy:
            control = opened.enter_context(Control(pods, POLLING))
            computation = opened.enter_context(Computation())
            paced, compared = _turns(serving, control, computation, seconds, rate, ends)
        else:
            paced, compared = [_paced(serving, seconds, rate, ends)], None
        pages = serving.ask("counts")["lists"] - pages
        time.sleep(LAST_WORDS)
        counts = serving.ask("counts")
        sent = {int(number): at for number, at in counts["ended"].items()}
        told = [fleet.until_removed(number) - at for number, at in sent.items()]
    posted = [at - end for at, end in zip(sorted(counts["posts"]), sorted(sent.values()), strict=True)]
    took = sum(turn["seconds"] for turn in paced)
    figures = {
        "removed p50 ms": percentile(told, 50) * 1e3,
        "removed p99 ms": percentile(told, 99) * 1e3,
        "POST p50 ms": percentile(posted, 50) * 1e3,
        "POST p99 ms": percentile(posted, 99) * 1e3,
        "POST max ms": max(posted) * 1e3,
        "ends": len(told),
        "sent events/s": sum(turn["events"] for turn in paced) / took,
        "sent late p99 ms": percentile(counts["late"], 99) * 1e3,
        "polls": pages / max(1, -(-pods // PAGE)),
        "cpu %": (sum(turn["own"] for turn in paced) - (compared.cpu if compared else 0)) / took * 100,
        "server %": sum(turn["cpu"] for turn in paced) / took * 100,
    }
    if compared is None:
        return figures
    return figures | {
        "driver's speed %": compared.percent(lambda turn: turn.speed),
        "its processor time %": compared.percent(lambda turn: turn.share),
    }


def _paced(serving: Serving, seconds: float, rate: float, ends: float) -> dict[str, float]:
    """Have the server send its events, and return what it says of them, and our own processor seconds meanwhile."""
    cpu = time.process_time()
    said: dict[str, float] = serving.ask("pace", seconds=seconds, rate=rate, ends=ends)
    return said | {"own": time.process_time() - cpu}


def _turns(
    serving: Serving, control: Control, computation: Computation, seconds: float, rate: float, ends: float
) -> tuple[list[dict[str, float]], Beside]:
    """Have both servers send their events in turns, so many seconds each. A fleet whose server stands still rests."""
    compared, paced = Beside(), []

    def without() -> None:
        with serving.stopped():
            compared.without.append(control.turn(computation, TURN, rate, ends))

    without()
    for _ in range(max(1, round(seconds / TURN))):
        compared.beside.append(computation.during(lambda: paced.append(_paced(serving, TURN, rate, ends))))
        time.sleep(SETTLING)
        without()
    return paced, compared


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
