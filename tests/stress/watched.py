"""A `PodApi` whose requests can be judged, in the driver's process and in the fleet's.

What happens in the fleet's process is told by records of its log. They cross before the request that they are about, on
the one connection that there is, and each has its moment: the machine's processes have one monotonic clock. A record
that comes again and again says up to when all of that was heard.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn

from actors.backend.process import fleet, outbox
from actors.kube.api import Delete, List, PodPage
from actors.runtime import SystemClock
from actors.text import get_logger

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from actors.backend.process.outbox import Outbox
    from actors.errors import ApiError
    from actors.kube.api import Call, PodApi, Request

__all__ = ["ASKED_TO_GO", "UP_TO_NOW", "WATCHED", "main", "program", "watch"]

STALE: Final = 4
"""Answers of which one is given to a list that a cache may answer."""

TICK_SECONDS: Final = 0.05

GATHERS: Final = (outbox.GATHER, 0.1)
"""Seconds for which a process gathers what it tells the driver's: if for long, only what must be told before a request
has been told when the process is killed."""

ASKED_TO_GO: Final = "deletion asked for: "
UP_TO_NOW: Final = "heard up to now"

WATCHED: Final = "actors.watched"

logger = get_logger(WATCHED)


def watch(api: PodApi, asked_to_go: Callable[[str], None], random: Random) -> None:
    """Tell whose deletion is asked for, before anything can go wrong.

    What may be answered from a cache is of any time: such a list is one of the last few.
    """
    send, pages = api.send, deque[PodPage](maxlen=STALE)

    def watched(request: Request[Any], reply: Callable[[Any], None]) -> Call:
        if isinstance(request, Delete):
            asked_to_go(request.name)
        if not isinstance(request, List) or request.resource_version != "0":
            return send(request, reply)

        def answered(page: PodPage | ApiError) -> None:
            if isinstance(page, PodPage):
                pages.append(page)
                page = random.choice(pages)
            reply(page)

        return send(request, answered)

    api.send = watched  # type: ignore[method-assign]


# ── in the fleet's process ───────────────────────────────────────────────────────────────────────────────────────────


def program(seed: int) -> str:
    """What the fleet's process runs: the same as always, and it is watched."""
    return f"""
import sys
sys.path[:] = {{path}}
import actors.backend.process
from tests.stress.watched import main
main({{descriptor}}, {{parent}}, {{version!r}}, {seed})
"""


def main(descriptor: int, parent: int, version: str, seed: int) -> NoReturn:
    """Run the fleet's process."""
    clock, random = SystemClock(), Random(seed + os.getpid())
    outbox.GATHER = random.choice(GATHERS)  # type: ignore[misc]
    attributes, announced = fleet._attributes, fleet._AnnouncedPodApi

    def with_moment(record: logging.LogRecord) -> dict[str, Any]:
        return {**attributes(record), "moment": clock.monotonic()}

    def watched(api: PodApi, box: Outbox) -> PodApi:
        made = announced(api, box)
        watch(made, lambda name: logger.debug("%s%s", ASKED_TO_GO, name), random)
        threading.Thread(target=_tick, daemon=True).start()
        return made

    fleet._attributes = with_moment
    fleet._AnnouncedPodApi = watched  # type: ignore[assignment,misc]
    fleet.main(descriptor, parent, version)


def _tick() -> None:
    pause = threading.Event()
    while not pause.wait(TICK_SECONDS):
        logger.debug(UP_TO_NOW)
