"""A LIST of a whole fleet from a real API server: page by page, and as the beginning of a watch."""

from __future__ import annotations

import ssl
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

from actors.settings import Settings
from tests.benchmarks.bare import bodies, post_all
from tests.benchmarks.lists import snapshots
from tests.benchmarks.pods import APP_ID, NAMESPACE
from tests.benchmarks.processor import used
from tests.contract.control_plane import ASSETS, TOKEN, WITHOUT_ASSETS, ControlPlane

__all__ = ["measure"]

TURNS: Final = 15
"""Lists of each kind. They take turns, because the machine changes."""
CONNECTIONS: Final = 16


def measure(_who: str, *, pods: int) -> dict[str, float]:
    """Measure the median list of each kind, and what it costs this process and the server."""
    if ASSETS is None:
        raise SystemExit(WITHOUT_ASSETS)
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(ASSETS, Path(folder))
        try:
            plane.start()
            _make(plane, pods)
            return _compared(plane, pods)
        finally:
            plane.stop()


def _make(plane: ControlPlane, pods: int) -> None:
    made = bodies(Settings(app_id=APP_ID, namespace=NAMESPACE, executor={"image": "worker"}), pods)
    url = f"{plane.server}/api/v1/namespaces/{NAMESPACE}/pods"
    trust = ssl.create_default_context(cafile=plane.authority)
    post_all(url, made, token=TOKEN, connections=CONNECTIONS, trust=trust)


def _compared(plane: ControlPlane, pods: int) -> dict[str, float]:
    taken: dict[str, list[float]] = defaultdict(list)
    with (
        snapshots(plane.kubeconfig, NAMESPACE, streaming=False) as pages,
        snapshots(plane.kubeconfig, NAMESPACE, streaming=True) as stream,
    ):
        for turn in range(TURNS + 1):
            for kind, look in (("pages", pages), ("stream", stream)):
                server, cpu, began = sum(used(plane.server_pid)), time.process_time(), time.monotonic()
                found = look()
                ended = time.monotonic(), time.process_time(), sum(used(plane.server_pid))
                assert found == pods, f"{found} of {pods} pods were listed"
                if turn:  # the first finds client and server cold
                    taken[f"{kind} s"].append(ended[0] - began)
                    taken[f"{kind} cpu s"].append(ended[1] - cpu)
                    taken[f"{kind} server cpu s"].append(ended[2] - server)
    return {figure: median(values) for figure, values in taken.items()}
