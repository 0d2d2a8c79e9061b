"""The actors alone, on one core: the thread that would read and decode hands in the events as values."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from actors import kube
from actors.errors import NotFound
from actors.kube.api import PodPage, WatchEvents
from actors.pods.api_pod import ApiPod
from actors.pods.pod import Pod, PodEvent
from tests.benchmarks.ours import Fleet
from tests.benchmarks.pods import FIRST_VERSION, NAMESPACE, PodBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.kube.api import WatchSink

__all__ = ["Cluster", "measure", "one"]


class _Done:
    def cancel(self) -> None:
        """Do nothing: the call was complete at once."""


class Cluster:
    """A `PodApi` with running pods, whose calls all succeed and whose one watch is fed from outside."""

    namespace = NAMESPACE

    def __init__(self, pods: tuple[Pod, ...]) -> None:
        self._pods = pods
        self.sink: WatchSink

    def send(self, request: kube.Request[Any], reply: Callable[[Any], None]) -> _Done:
        match request:
            case kube.List():
                reply(PodPage(self._pods, str(FIRST_VERSION)))
            case kube.ReviewAccess():
                reply(True)  # noqa: FBT003 - the answer's own shape
            case kube.GetObject(kube.NAMESPACES, name):
                reply({"kind": "Namespace", "metadata": {"name": name}})
            case kube.Create(manifest):
                reply(msgspec.convert(msgspec.to_builtins(manifest), ApiPod).pod())
            case kube.Delete():
                reply(None)
            case kube.Patch(name):
                reply(NotFound(name))
            case _:
                raise AssertionError(f"no fleet asks for this here: {request}")
        return _Done()

    def watch(self, _request: kube.Watch, sink: WatchSink) -> _Done:
        self.sink = sink
        return _Done()

    def close(self) -> None:
        """Do nothing: no connection is open."""


def measure(_who: str, *, pods: int, count: int, read: int) -> dict[str, float]:
    """Measure `count` events, `read` of them at a time, through all our actors to the driver."""
    made = PodBytes()
    decode = msgspec.json.Decoder(ApiPod).decode

    def pod(number: int, version: int, phase: str) -> Pod:
        return decode(made.whole(number, version, phase)).pod()

    cluster = Cluster(tuple(pod(number, FIRST_VERSION, "Running") for number in range(1, pods + 1)))
    events = [PodEvent("MODIFIED", pod(1 + at % pods, FIRST_VERSION + 1 + at, "Running")) for at in range(count)]
    events.append(PodEvent("MODIFIED", pod(pods, FIRST_VERSION + 1 + count, "Failed")))
    reads = [
        WatchEvents(tuple(part), part[-1].pod.resource_version)
        for part in (events[at : at + read] for at in range(0, len(events), read))
    ]
    os.sched_setaffinity(0, one(os.sched_getaffinity(0)))
    with Fleet(cluster, pods) as fleet:
        began, cpu = time.monotonic(), time.process_time()
        for each in reads:
            cluster.sink(each)
        seconds = fleet.until_removed(pods) - began
        cpu = time.process_time() - cpu
    return {"events/s": count / seconds, "cpu µs/event": cpu / count * 1e6}


def one(cpus: Iterable[int]) -> set[int]:
    """Return one of the cores."""
    return {min(cpus)}
