"""A control plane of etcd and API server alone; scheduler and kubelet are in the test, and run nothing.

For tests whose executors are simulated anyway, where the other programs of a control plane are missing.
"""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from actors.pods.pod import ROLE_EXECUTOR, ROLE_LABEL
from tests.contract.control_plane import ControlPlane
from tests.stress.plane import AUDIT_POLICY, WholePlane

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HandKubelet", "SmallPlane"]

PODS: Final = "/api/v1/namespaces/default/pods"
LOOK_SECONDS: Final = 0.2
REQUESTS_AT_ONCE: Final = 8


class SmallPlane(WholePlane):
    """etcd and an API server, to be killed and started again."""

    def start(self) -> None:
        (self._folder / "audit.yaml").write_text(json.dumps(AUDIT_POLICY))
        ControlPlane.start(self)
        self.kubeconfig.chmod(0o600)


class HandKubelet(threading.Thread):
    """Binds the executors' pods to a node, says that they run, and ends those that are being deleted."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(name="hand-kubelet", daemon=True)
        self._plane = plane
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self.join()

    def run(self) -> None:
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as hands:
            while not self._closing.wait(LOOK_SECONDS):
                with suppress(OSError, http.client.HTTPException):  # the server is away
                    pods = self._plane.request("GET", f"{PODS}?labelSelector={ROLE_LABEL}%3D{ROLE_EXECUTOR}")
                    list(hands.map(self._handle, pods["items"]))

    def _handle(self, pod: Mapping[str, Any]) -> None:
        """Do the next step. What fails is tried at the next look."""
        metadata, path = pod["metadata"], f"{PODS}/{pod['metadata']['name']}"
        with suppress(OSError, http.client.HTTPException):
            if "deletionTimestamp" in metadata:
                end = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
                self._plane.request("DELETE", path, end)
            elif not pod["spec"].get("nodeName"):
                binding = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": "by-hand"}}
                self._plane.request("POST", f"{path}/binding", binding)
            elif pod["status"]["phase"] == "Pending":
                self._plane.request("PATCH", f"{path}/status", {"status": _running(pod)})


def _running(pod: Mapping[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    now = pod["metadata"]["creationTimestamp"]
    status = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
    }
    return {"phase": "Running", "podIP": "10.0.0.1", "startTime": now, "containerStatuses": [status]}
