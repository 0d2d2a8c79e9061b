"""Creation of a whole fleet, on a server that answers after a delay."""

from __future__ import annotations

import time
from typing import Final

from actors.settings.model import Settings
from tests.benchmarks.bare import bodies, post_all
from tests.benchmarks.ours import Fleet, connect
from tests.benchmarks.pods import APP_ID, NAMESPACE
from tests.benchmarks.serving import Serving

__all__ = ["measure"]

IN_FLIGHT: Final = 16
"""`allocation.max_requests_in_flight`, and the connections of `bare`."""


def measure(who: str, *, executors: int, latency: float) -> dict[str, float]:
    """Measure from the start of a backend; `bare` POSTs as many pods and does nothing else."""
    with Serving(0, latency=latency, starts=True) as serving:
        began = _ours(serving, executors) if who == "ours" else _bare(serving, executors)
        counts = serving.ask("counts")
    assert len(counts["posts"]) == executors, f"{len(counts['posts'])} POSTs for {executors} executors"
    requested, created = counts["posts"][-1] - began, counts["answered"][-1] - began
    return {
        "requested s": requested,
        "created s": created,
        "executors/s": executors / created,
        "max in flight": counts["most_in_flight"],
    }


def _ours(serving: Serving, executors: int) -> float:
    with Fleet(connect(serving), executors, settling=0.0, allocation={"max_requests_in_flight": IN_FLIGHT}) as fleet:
        return fleet.began


def _bare(serving: Serving, executors: int) -> float:
    pods = bodies(Settings(app_id=APP_ID, executor={"image": "worker"}), executors)
    began = time.monotonic()
    post_all(f"{serving.url}/api/v1/namespaces/{NAMESPACE}/pods", pods, token="bench", connections=IN_FLIGHT)
    return began
