"""What a lease costs, through `Fleet`, of a pool of warm executors: how long an acquire takes, and its processor time.

The embedded store and a virtual kubelet are in the same process, and share its interpreter with the fleet. So an
executor that is ended and replaced costs much more than on a cluster: the POST, the DELETE and four events are ours.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from actors.fleet.fleet import Fleet
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import ScriptedKubelet
from actors.local.store.object_store import ObjectStore
from actors.runtime import Entropy, SystemClock
from actors.runtime.timers import TimerThread
from actors.settings import AllocationSettings, ExecutorValues
from tests.benchmarks.latency import percentile
from tests.benchmarks.pods import APP_ID

__all__ = ["measure"]

START: Final = timedelta(milliseconds=20)
"""From a pod's creation to its running: what is measured is not the start of containers."""

LIMIT: Final = 60
"""Seconds that an acquire and the start may take: only a failure does."""


def measure(_who: str, *, warm: int, rate: int, count: int, reuse: bool) -> dict[str, float]:
    """Measure `count` leases at `rate` a second. Each is given back at once, for reuse or to be ended."""
    clock = SystemClock()
    timers = TimerThread(clock)
    store = ObjectStore(clock, Entropy(0))
    ScriptedKubelet(store, clock, timers, start_delay=START)
    api, took = InProcessPodApi(store, "default", timers), []
    executor: ExecutorValues = {"image": "worker", "warm": warm, "max_executors": 3 * warm}
    many = AllocationSettings(batch_size=warm, max_batch_size=warm)
    with Fleet(pod_api=api, app_id=APP_ID, backend={"lease": False}, executor=executor, allocation=many) as fleet:
        fleet.wait_for(running=warm, timeout=LIMIT)
        before, cpu, begun = store.resource_version, time.process_time(), time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            asked = time.perf_counter()
            lease = fleet.acquire_lease(timeout=LIMIT)
            took.append(time.perf_counter() - asked)
            fleet.release(lease, reuse=reuse)
        seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
        writes = int(store.resource_version) - int(before)
    timers.close()
    return {
        "leases/s": count / seconds,
        "p50 ms": percentile(took, 50) * 1e3,
        "p99 ms": percentile(took, 99) * 1e3,
        "longest ms": max(took) * 1e3,
        "cpu µs/lease": cpu / count * 1e6,
        "writes/lease": writes / count,
    }
