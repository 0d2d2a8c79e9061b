"""The time from a forced deletion to the replacement's POST and until it runs, on a real control plane.

Pods are deleted one after the other. kwok runs a pod as soon as it is bound to a node, so the rest of the time is that
of the control plane, of our watch and of the driver.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from statistics import median
from typing import Final

from actors import kube
from actors.settings import AllocationSettings
from tests.benchmarks.ours import SAFETY_SECONDS, Fleet
from tests.benchmarks.real import NAMESPACE, make, prepared, running_pods

__all__ = ["measure"]

LOOK_SECONDS: Final = 0.002
PAUSE: Final = 0.1
"""Seconds between two losses: less than a round."""


def measure(_who: str, *, executors: int, losses: int) -> dict[str, float]:
    """Measure one deletion after the other, each by the audit log and by what the driver is told."""
    with prepared() as plane:
        make(plane, NAMESPACE)
        api = kube.connect(plane.kubeconfig, namespace=NAMESPACE, max_connections=AllocationSettings().connections)
        ran = []
        with Fleet(api, executors, backend={"lease": True}) as fleet:
            since = datetime.now(UTC)
            for path in running_pods(plane, NAMESPACE)[:losses]:
                before, began = fleet.running, time.monotonic()
                plane.request("DELETE", path, {"gracePeriodSeconds": 0})
                while fleet.running == before:
                    assert time.monotonic() - began < SAFETY_SECONDS, f"{path} is not replaced"
                    time.sleep(LOOK_SECONDS)
                ran.append(time.monotonic() - began)
                time.sleep(PAUSE)
        asked = [a for a in plane.audit() if a.received >= since and a.namespace == NAMESPACE and a.code]
    deleted = sorted(a.received for a in asked if a.verb == "delete" and not a.agent.startswith("kwok"))
    posted = sorted(a.received for a in asked if a.verb == "create" and a.subresource is None)
    waits = [(post - end).total_seconds() * 1e3 for end, post in zip(deleted, posted, strict=True)]
    return {
        "requested p50 ms": median(waits),
        "requested max ms": max(waits),
        "runs p50 s": median(ran),
        "runs max s": max(ran),
        "losses": len(waits),
    }
