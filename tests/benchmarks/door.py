"""What the door costs: events that are all news for the driver, through `Fleet` and to a bare Pykka actor.

All pods wait at first, and each event says of another one that it runs: the driver is told of each. There is no HTTP,
no JSON and no creation, and all threads share one core. So an event is as cheap as it can be, and the door's part of it
as large.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec
import pykka

from actors.backend.backend import Backend
from actors.fleet.fleet import Fleet
from actors.kube.api import WatchEvents
from actors.messages import BackendStarted, BackendStopped, ExecutorRunning, StopBackend
from actors.pods.api_pod import ApiPod
from actors.pods.pod import Pod, PodEvent
from actors.settings import ExecutorValues, Settings
from tests.benchmarks.inside import Cluster, one
from tests.benchmarks.pods import APP_ID, FIRST_VERSION, PodBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["measure"]

READ: Final = 25
"""Events that the cluster hands in at a time: what a socket's buffer takes at once."""

TURN: Final = 5_000
"""Events of a turn."""

ROUNDS: Final = "20ms"
"""The interval of the lifecycle's rounds: with the default second, a turn would measure that second."""

LOOK: Final = 0.001
"""Seconds between two looks at how many events have arrived; nobody is woken by an event for this."""

SETTLING: Final = 1.0
"""Seconds for the other actors to finish their start."""


class _Heard:
    """What has arrived."""

    def __init__(self) -> None:
        self.running = 0
        self.started, self.stopped = threading.Event(), threading.Event()

    def hear(self, event: object) -> None:
        """Note an event: the least that a driver or a reader does."""
        match event:
            case ExecutorRunning():
                self.running += 1
            case BackendStarted():
                self.started.set()
            case BackendStopped():
                self.stopped.set()
            case _:
                pass

    def read(self, fleet: Fleet) -> None:
        """Read all events of a fleet."""
        for event in fleet.events():
            self.hear(event)


class _Driver(pykka.ThreadingActor):
    use_daemon_thread = True

    def __init__(self, heard: _Heard) -> None:
        super().__init__()
        self.on_receive = heard.hear  # type: ignore[assignment]  # nothing stands between Pykka and the count


@contextmanager
def _bare(settings: Settings, cluster: Cluster) -> Iterator[Callable[[], int]]:
    heard = _Heard()
    driver = _Driver.start(heard)
    backend = Backend.start(settings, driver, cluster)
    heard.started.wait()
    yield lambda: heard.running
    backend.tell(StopBackend(delete_pods=False))
    heard.stopped.wait()
    driver.stop()


@contextmanager
def _ours(settings: Settings, cluster: Cluster, reader: str) -> Iterator[Callable[[], int]]:
    heard = _Heard()
    on_event = heard.hear if reader == "on_event" else None
    many = settings.executor.instances
    with Fleet(settings, pod_api=cluster, keep=True, on_event=on_event, max_events=many) as fleet:
        if reader == "events()":
            threading.Thread(target=heard.read, args=(fleet,), daemon=True).start()
        view = fleet._door.state.view
        yield (lambda: view.running["default"]) if reader == "nobody" else lambda: heard.running


def measure(_who: str, *, pods: int, reader: str) -> dict[str, float]:
    """Measure `pods` events each of two fleets of one process, which take turns.

    `reader` of the door is "nobody", "events()" or "on_event". "of bare" compares the events in a second
    of a processor, as the core is busy with other programs too: the median of the turns' ratios.
    """
    executor: ExecutorValues = {"instances": pods, "image": "worker", "event_processing_interval": ROUNDS}
    settings = Settings(app_id=APP_ID, executor=executor, backend={"lease": False})
    os.sched_setaffinity(0, one(os.sched_getaffinity(0)))
    bare, ours = _Load(pods), _Load(pods)
    with _bare(settings, bare.cluster) as by_bare, _ours(settings, ours.cluster, reader) as by_ours:
        time.sleep(SETTLING)
        gc.collect()
        gc.freeze()  # collecting what was made beforehand belongs to nobody's turn
        turns = []
        for at in range(0, pods, TURN):
            one_turn = [(bare, by_bare), (ours, by_ours)]
            costs = {load: load.feed(at, arrived) for load, arrived in (one_turn[::-1] if at // TURN % 2 else one_turn)}
            turns.append((costs[bare], costs[ours]))
    return {
        "events/s": TURN / median(seconds for _, (seconds, _) in turns),
        "bare events/s": TURN / median(seconds for (seconds, _), _ in turns),
        "cpu µs/event": median(cpu for _, (_, cpu) in turns) / TURN * 1e6,
        "bare cpu": median(cpu for (_, cpu), _ in turns) / TURN * 1e6,
        "of bare": median(bare[1] / ours[1] for bare, ours in turns),
    }


class _Load:
    """A cluster and its events."""

    def __init__(self, pods: int) -> None:
        made = PodBytes()
        decode = msgspec.json.Decoder(ApiPod).decode

        def pod(number: int, version: int, phase: str) -> Pod:
            return decode(made.whole(number, version, phase)).pod()

        self.cluster = Cluster(tuple(pod(number, FIRST_VERSION, "Pending") for number in range(1, pods + 1)))
        self._events = [
            PodEvent("MODIFIED", pod(number, FIRST_VERSION + number, "Running")) for number in range(1, pods + 1)
        ]

    def feed(self, at: int, arrived: Callable[[], int]) -> tuple[float, float]:
        """Feed one turn's events, and return the seconds until all have arrived, and those of a processor."""
        reads = [self._events[start : start + READ] for start in range(at, at + TURN, READ)]
        began, cpu = time.monotonic(), time.process_time()
        for read in reads:
            self.cluster.sink(WatchEvents(tuple(read), read[-1].pod.resource_version))
        while arrived() < at + TURN:
            time.sleep(LOOK)
        return time.monotonic() - began, time.process_time() - cpu
