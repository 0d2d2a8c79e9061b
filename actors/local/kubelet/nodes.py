"""The node object that describes this machine."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any, Final

from actors.local.kubelet.pod_run import LOOPBACK
from actors.local.store.objects import rfc3339

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["KUBERNETES_VERSION", "local_node"]

KUBERNETES_VERSION: Final = "v1.34.4"
"""The version whose behaviour the embedded cluster follows."""

_GO_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names of machine types, where they differ from Python's."""


def local_node(name: str, max_pods: int, now: datetime) -> dict[str, Any]:
    """Return a ready v1 Node with room for `max_pods`."""
    machine = platform.machine()
    architecture, system = _GO_MACHINES.get(machine, machine), platform.system().lower()
    capacity = {"cpu": str(os.cpu_count() or 1), "memory": f"{_memory_bytes() // 1024}Ki", "pods": str(max_pods)}
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": system,
                "kubernetes.io/arch": architecture,
                "node-role.kubernetes.io/control-plane": "",
            },
        },
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [_ready(rfc3339(now))],
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}, {"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": architecture,
                "operatingSystem": system,
                "kernelVersion": platform.release(),
                "osImage": platform.platform(terse=True),
                "containerRuntimeVersion": "process://local",
                "kubeletVersion": KUBERNETES_VERSION,
                "kubeProxyVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        },
    }


def _ready(now: str) -> dict[str, str]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the process kubelet runs",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):  # not known on this platform
        return 0
