"""What the page costs its driver, in percent of a core: `python -m tests.page.cost --size 500 --rate 1000`.

In one process and one run, in turns: messages to the driver that nobody takes; the same with a page that nobody looks
at; with one viewer; with fifty. Each row is the process time of all threads, less that of the first row. The viewers
are processes that read the stream; the Backend is a made-up one, and each message has its change beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Final

from actors.messages import (
    Executor,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    FleetChanged,
    FleetStatus,
    FollowFleet,
    ProfileStatus,
)
from actors.page.page import serve_page
from actors.pods.loss import LossKind, LossReason
from actors.runtime import Actor, ActorSystem, SystemClock
from tests.unit.builders import pod
from tests.unit.changes import changed, executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.messages import ToDriver

READ: Final = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1] + "api/v1/stream") as stream:
    while stream.read1(1 << 20):
        pass
"""
LOSS: Final = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="executor ended with exit code 1: bad record")


class Answers(Actor):
    """A Backend of so many executors, which publishes them once."""

    def __init__(self, context: object, size: int) -> None:
        super().__init__(context)  # type: ignore[arg-type]  # a Context
        at = self.clock.now()
        each = (
            Executor(i, "default", ExecutorState.RUNNING, f"app-exec-{i}", "node", "10.0.0.1", at, True, 0, None, None)  # noqa: FBT003
            for i in range(1, size + 1)
        )
        status = FleetStatus("etl", "batch", {"default": ProfileStatus(size, running=size)}, {})
        self._everything = FleetChanged(0, at, tuple(each), status=status, complete=True)

    def receive(self, message: object) -> object:
        if isinstance(message, FollowFleet):
            message.follower(self._everything)
        return True


def lives(first: int) -> Iterator[ToDriver | FleetChanged]:
    """Executors that are pending, run and end, one after the other: what is published, and what a driver is told."""
    executor_id, sequence = first, count(1)
    while True:
        for state, message in (
            (ExecutorState.PENDING, ExecutorPending(executor_id, pod(executor_id, phase="Pending"))),
            (ExecutorState.RUNNING, ExecutorRunning(executor_id, pod(executor_id))),
            (ExecutorState.ENDED, ExecutorRemoved(executor_id, LOSS)),
        ):
            loss = LOSS if state is ExecutorState.ENDED else None
            yield changed(next(sequence), executor(executor_id, state, loss=loss))
            yield message
        executor_id += 1


def paced(messages: Iterator[object], take: Callable[[object], object], rate: int, seconds: float) -> float:
    """Send messages, each with its change, at a rate; return the processor seconds of the whole process."""
    begin, spent, sent = time.monotonic(), time.process_time(), 0
    while (passed := time.monotonic() - begin) < seconds:
        while sent < passed * rate:
            take(next(messages))
            take(next(messages))
            sent += 1
        time.sleep(0.01)
    return time.process_time() - spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    system = ActorSystem(SystemClock())
    fed, untaken = lives(given.size + 1), lives(given.size + 1)  # a page that misses one asks for everything
    with ExitStack() as stack:
        stack.callback(system.close)
        page = stack.enter_context(serve_page(0, "etl"))
        page.backend = system.spawn(lambda context: Answers(context, given.size), name="backend", owner=None)
        for _ in range(given.rounds):
            alone = paced(untaken, lambda _: None, given.rate, given.seconds)
            for viewers in (0, 1, 50):
                with ExitStack() as looking:
                    for _ in range(viewers):
                        reader = subprocess.Popen([sys.executable, "-c", READ, page.url])
                        looking.callback(reader.wait)
                        looking.callback(reader.kill)
                    if viewers:
                        paced(fed, page.feed, given.rate, 3.0)  # until they read
                    spent = paced(fed, page.feed, given.rate, given.seconds)
                print(f"{viewers:>2} viewers: {100 * (spent - alone) / given.seconds:6.2f} % of a core", flush=True)


if __name__ == "__main__":
    main()
