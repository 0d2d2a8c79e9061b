"""Pods as bytes, 2.4 KB each, as an API server sends them: made once, so the server only joins them."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["APP_ID", "BYTES", "FIRST_VERSION", "NAMESPACE", "PodBytes", "name"]

APP_ID: Final = "bench"
NAMESPACE: Final = "default"

BYTES: Final = 2400
"""Size of a pod's JSON. A real pod with one container has 2 to 4 KB without its `managedFields`."""

FIRST_VERSION: Final = 1_000_000_000
"""All versions have ten digits, so all events of a pod have one length."""

_STARTED: Final = "2026-01-01T00:00:07Z"


class PodBytes:
    """The JSON of any executor's pod in any phase: `head(id)`, its version, `tail(phase)`.

    A "Restarted" pod runs and has as many bytes as a "Running" one. All pods share the tails: a small server.
    """

    def __init__(self) -> None:
        self._heads: dict[int, bytes] = {}
        self._tails = {phase: self._tail(phase) for phase in ("Pending", "Running", "Restarted", "Failed")}
        self.ends = {phase: tail + b"}\n" for phase, tail in self._tails.items()}
        """Phase → the bytes after the version in a watch event."""

    def item(self, executor_id: int, version: int, phase: str) -> bytes:
        """Return the pod as a list item, which has no kind."""
        return b"{" + self.head(executor_id) + b"%d" % version + self._tails[phase]

    def whole(self, executor_id: int, version: int, phase: str) -> bytes:
        """Return the pod as a GET answers it."""
        return b'{"kind":"Pod","apiVersion":"v1",' + self.item(executor_id, version, phase)[1:]

    def around(self, executor_id: int, phase: str, kind: str) -> tuple[bytes, bytes]:
        """Return the bytes before and after the version in a watch event, newline included."""
        before = b'{"type":"%s","object":{"kind":"Pod","apiVersion":"v1",' % kind.encode() + self.head(executor_id)
        return before, self.ends[phase]

    def head(self, executor_id: int) -> bytes:
        """Return the bytes from `metadata` to the version. Cached: nothing else takes as long."""
        if executor_id not in self._heads:
            self._heads[executor_id] = self._head(executor_id)
        return self._heads[executor_id]

    def _head(self, executor_id: int) -> bytes:
        head = {
            "name": name(executor_id),
            "namespace": NAMESPACE,
            "uid": f"{executor_id:08d}-5a5a-4b4b-8c8c-{executor_id:012d}",
            "labels": {
                "app.kubernetes.io/managed-by": "executor-pods",
                "executor-pods/app-id": APP_ID,
                "executor-pods/executor-id": str(executor_id),
                "executor-pods/profile": "default",
                "executor-pods/role": "executor",
            },
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": "",
        }
        return b'"metadata":' + _json(head).removesuffix(b'"}')

    def _tail(self, phase: str) -> bytes:
        tail = b'"},' + _json({"spec": _spec(), "status": _status(phase)})[1:]
        missing = BYTES - len(self.head(1)) - len(tail) - 42
        assert missing > 0, f"a pod is {-missing} bytes longer than it should be"
        return tail.replace(b'"PADDING"', b'"' + b"x" * (missing + len("PADDING")) + b'"')


def name(executor_id: int) -> str:
    """Return the name of an executor's pod."""
    return f"{APP_ID}-exec-{executor_id}"


def _spec() -> dict[str, Any]:
    mount = {"name": "token", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    pod_ip = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    return {
        "volumes": [{"name": "token", "projected": {"sources": [], "defaultMode": 420}}],
        "containers": [
            {
                "name": "executor",
                "image": "registry.example.com/worker:1.4.2",
                "args": ["--verbose", "PADDING"],
                "env": [
                    {"name": "EXECUTOR_APP_ID", "value": APP_ID},
                    {"name": "EXECUTOR_PROFILE", "value": "default"},
                    {"name": "EXECUTOR_POD_IP", "valueFrom": pod_ip},
                ],
                "resources": {"limits": {"memory": "4Gi"}, "requests": {"cpu": "2", "memory": "4Gi"}},
                "volumeMounts": [mount],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "serviceAccountName": "default",
        "nodeName": "node-17",
        "schedulerName": "default-scheduler",
        "priority": 0,
    }


def _status(phase: str) -> dict[str, Any]:
    restarts = 1 if phase == "Restarted" else 0
    phase = "Running" if restarts else phase
    if phase == "Pending":
        return {"phase": phase, "qosClass": "Burstable"}
    state: dict[str, Any] = {"running": {"startedAt": _STARTED}}
    if phase == "Failed":
        state = {
            "terminated": {
                "exitCode": 1,
                "reason": "Error",
                "startedAt": _STARTED,
                "finishedAt": "2026-01-01T01:00:00Z",
            }
        }
    ready = "True" if phase == "Running" else "False"
    return {
        "phase": phase,
        "conditions": [
            {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:05Z"}
            for kind, status in (("PodScheduled", "True"), ("Ready", ready))
        ],
        "hostIP": "10.1.2.3",
        "podIP": "10.2.3.4",
        "podIPs": [{"ip": "10.2.3.4"}],
        "startTime": "2026-01-01T00:00:05Z",
        "containerStatuses": [
            {
                "name": "executor",
                "state": state,
                "ready": phase == "Running",
                "restartCount": restarts,
                "image": "registry.example.com/worker:1.4.2",
                "imageID": "sha256:" + "a1" * 32,
                "containerID": "containerd://" + "b2" * 32,
                "started": phase == "Running",
            }
        ],
        "qosClass": "Burstable",
    }


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
