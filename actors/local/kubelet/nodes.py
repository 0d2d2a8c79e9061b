"""The node object that describes this machine, and what a control plane does when the node is lost."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from actors.local.kubelet.pod_run import LOOPBACK
from actors.local.store.object_store import ApiStatus, ObjectStore
from actors.local.store.objects import FINAL_PHASES, rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from actors.runtime import Clock, Scheduled

__all__ = ["KUBERNETES_VERSION", "UNREACHABLE", "NodeLifecycle", "local_node"]

KUBERNETES_VERSION: Final = "v1.37.2"
"""The version whose behaviour the embedded cluster follows."""

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
"""The taint of a node that does not report."""

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


class NodeLifecycle:
    """What the node and taint controllers of a real cluster do for one node. Not thread-safe.

    A real cluster notices the loss after 40 seconds without a heartbeat; here it is noticed at once.

    Args:
        store: the node and its pods.
        clock: for timestamps.
        later: schedules an action; it runs while the node is lost, too.
        node: the node's name.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        later: Callable[[timedelta, Callable[[], None]], Scheduled],
        node: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._later = later
        self._node = node
        self._evictions: list[Scheduled] = []

    def lost(self) -> None:
        """Taint the node, and plan the eviction of each pod for the end of its toleration."""
        taints = [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        self._write(_unknown(rfc3339(self._clock.now())), taints)
        pods = self._store.list("pods", None, field_selector=f"spec.nodeName={self._node}").items
        for pod in pods:
            if pod["status"].get("phase") in FINAL_PHASES:
                continue
            self._condition(pod, {"type": "Ready", "status": "False"})
            seconds = tolerated_seconds(pod)
            if seconds is not None and "deletionTimestamp" not in pod["metadata"]:
                self._evictions.append(self._later(timedelta(seconds=seconds), partial(self._evict, pod)))

    def back(self) -> None:
        """Take the taints off the node, and evict no more pods."""
        for eviction in self._evictions:
            eviction.cancel()
        self._evictions.clear()
        self._write(_ready(rfc3339(self._clock.now())), None)

    def _write(self, condition: Mapping[str, str], taints: list[dict[str, str]] | None) -> None:
        self._store.patch("nodes", None, self._node, {"spec": {"taints": taints}}, "merge")
        status = {"status": {"conditions": [condition]}}
        self._store.patch("nodes", None, self._node, status, "strategic", subresource="status")

    def _evict(self, pod: Mapping[str, Any]) -> None:
        message = "Taint manager: deleting due to NoExecute taint"
        reason = {"status": "True", "reason": "DeletionByTaintManager", "message": message}
        self._condition(pod, {"type": "DisruptionTarget", **reason})
        meta = pod["metadata"]
        with suppress(ApiStatus):  # gone, or replaced by another of its name
            self._store.delete("pods", meta["namespace"], meta["name"], uid=meta["uid"])

    def _condition(self, pod: Mapping[str, Any], condition: Mapping[str, str]) -> None:
        meta = pod["metadata"]
        changed = {**condition, "lastTransitionTime": rfc3339(self._clock.now())}
        patch = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [changed]}}
        with suppress(ApiStatus):  # as above
            self._store.patch("pods", meta["namespace"], meta["name"], patch, "strategic", subresource="status")


def tolerated_seconds(pod: Mapping[str, Any]) -> int | None:
    """Return how long a pod stays on an unreachable node; None for ever."""
    tolerations = [
        each
        for each in pod["spec"].get("tolerations") or ()
        if each.get("key") in {None, "", UNREACHABLE} and each.get("effect") in {None, "", "NoExecute"}
    ]
    if not tolerations:
        return 0
    limits = [each["tolerationSeconds"] for each in tolerations if each.get("tolerationSeconds") is not None]
    return max(0, min(limits)) if limits else None


def _unknown(now: str) -> dict[str, str]:
    message = "Kubelet stopped posting node status."
    return {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": message,
        "lastTransitionTime": now,
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
