"""Creation of a whole fleet on a real control plane, which shares the machine with it.

The figures come from the API server's audit log. Each measurement has a plane of its own, which has run other pods
before: the first pods cost it more.
"""

from __future__ import annotations

import ssl
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from actors import kube
from actors.settings import AllocationSettings, Settings
from tests.benchmarks.bare import bodies, post_all
from tests.benchmarks.ours import Fleet
from tests.benchmarks.pods import APP_ID
from tests.contract.control_plane import TOKEN
from tests.stress.plane import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stress.plane import WholePlane

__all__ = ["NAMESPACE", "make", "measure", "prepared", "running_pods"]

NAMESPACE: Final = "measured"
BEFORE: Final = "before"
WARM_UP: Final = 200
"""Pods that run before the measurement."""
SAFETY_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.5
SETTLING: Final = 3.0


def measure(who: str, *, executors: int, connections: int = 16) -> dict[str, float]:
    """Measure from the start of a backend with default settings; `bare` POSTs the same pods and does nothing else."""
    with prepared() as plane:
        cpu = time.process_time()
        began = _ours(plane, executors) if who == "ours" else _bare(plane, NAMESPACE, executors, connections)
        cpu = time.process_time() - cpu
        posts = [asked for asked in plane.audit() if (asked.verb, asked.namespace) == ("create", NAMESPACE)]
    made = [asked for asked in posts if asked.code == 201 and asked.subresource is None]
    assert len(made) == executors, f"{len(made)} pods were made for {executors} executors"
    received = [asked.received for asked in made]
    created = (max(asked.at for asked in made) - began).total_seconds()
    return {
        "requested s": (max(received) - began).total_seconds(),
        "first to last s": (max(received) - min(received)).total_seconds(),
        "created s": created,
        "executors/s": executors / created,
        "cpu s": cpu,
    }


@contextmanager
def prepared() -> Iterator[WholePlane]:
    """Start a plane that runs some pods already, and stop it at the end."""
    with running() as plane:
        _bare(plane, BEFORE, WARM_UP, connections=16)
        _settle(plane)
        yield plane


def make(plane: WholePlane, namespace: str) -> None:
    """Create a namespace."""
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})


def running_pods(plane: WholePlane, namespace: str) -> list[str]:
    """Return the paths of the running pods."""
    pods = plane.request("GET", _pods(namespace))["items"]
    return [f"{_pods(namespace)}/{pod['metadata']['name']}" for pod in pods if pod["status"]["phase"] == "Running"]


def _ours(plane: WholePlane, executors: int) -> datetime:
    make(plane, NAMESPACE)
    api = kube.connect(plane.kubeconfig, namespace=NAMESPACE, max_connections=AllocationSettings().connections)
    began = datetime.now(UTC)
    with Fleet(api, executors, settling=0.0, backend={"lease": True}):
        return began


def _bare(plane: WholePlane, namespace: str, executors: int, connections: int) -> datetime:
    make(plane, namespace)
    trust = ssl.create_default_context(cafile=plane.authority)
    pods = bodies(Settings(app_id=APP_ID, namespace=namespace, executor={"image": "worker"}), executors)
    began = datetime.now(UTC)
    post_all(f"{plane.server}{_pods(namespace)}", pods, token=TOKEN, connections=connections, trust=trust)
    return began


def _settle(plane: WholePlane) -> None:
    """Wait until the earlier pods run and the plane is idle."""
    began = time.monotonic()
    while len(running_pods(plane, BEFORE)) < WARM_UP:
        assert time.monotonic() - began < SAFETY_SECONDS, "the pods that were made before do not run"
        time.sleep(LOOK_SECONDS)
    time.sleep(SETTLING)


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
