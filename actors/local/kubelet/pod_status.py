"""The pod statuses that the scripted kubelet writes: strategic merge patches, as a real node writes them.

Pure: takes a pod and what happened to it, returns a patch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors.local.kubelet.container_run import STATUS_UNKNOWN
from actors.local.kubelet.pod_run import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Ended", "disruption", "ended", "given_up", "running", "scripted_node", "unschedulable", "waiting"]

Json: TypeAlias = dict[str, Any]

_READY_CONDITIONS: Final = ("Ready", "ContainersReady")


@dataclass(frozen=True, slots=True)
class Ended:
    """A container's exit code, and why it ended."""

    exit_code: int
    reason: str
    message: str = ""

    @classmethod
    def with_code(cls, exit_code: int, reason: str | None = None, message: str = "") -> Ended:
        """Use the reason of a real kubelet for this exit code, unless another is given."""
        return cls(exit_code, reason or ("Completed" if exit_code == 0 else "Error"), message)


def scripted_node(name: str, now: str) -> Json:
    """Return a ready node with room for every test."""
    room = {"cpu": "1000", "memory": "1000Gi", "pods": "100000"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
    }


def waiting(pod: Mapping[str, Any], reason: str, message: str, now: str) -> Json:
    """Return the status of a bound pod whose containers all wait for one reason."""
    state = {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}
    return {
        "phase": "Pending",
        "startTime": now,
        "hostIP": LOOPBACK,
        "conditions": [_condition("Initialized", now), *_unready(now, "ContainersNotReady")],
        "containerStatuses": [_container(container, state) for container in pod["spec"]["containers"]],
    }


def running(pod: Mapping[str, Any], now: str) -> Json:
    """Return the status of a pod whose containers are all running and ready."""
    state = {"running": {"startedAt": now}}
    names = ("PodReadyToStartContainers", "Initialized", *_READY_CONDITIONS)
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": LOOPBACK,
        "podIP": LOOPBACK,
        "podIPs": [{"ip": LOOPBACK}],
        "conditions": [_condition(name, now) for name in names],
        "containerStatuses": [_container(container, state, ready=True) for container in pod["spec"]["containers"]],
    }


def ended(pod: Mapping[str, Any], how: Ended, now: str, only: str | None = None, *, at: str | None = None) -> Json:
    """Return the status after the running containers (or the named one) ended; the last one ends the pod.

    `now` is when the kubelet notices it, `at` when they ended: by default the same.
    """
    statuses = [
        _ended_container(status, how, at or now) if only in (None, status["name"]) else status
        for status in pod["status"].get("containerStatuses", ())
    ]
    codes = [status["state"].get("terminated", {}).get("exitCode") for status in statuses]
    patch: Json = {"containerStatuses": statuses, "conditions": _unready(now, "ContainersNotReady")}
    if None not in codes:
        succeeded = bool(codes) and not any(codes)
        patch["phase"] = "Succeeded" if succeeded else "Failed"
        patch["conditions"] = _unready(now, "PodCompleted" if succeeded else "PodFailed")
    return patch


def given_up(pod: Mapping[str, Any], now: str) -> Json:
    """Return the last status of a pod that is deleted while its containers wait: they end with an unknown status."""
    state = {"terminated": STATUS_UNKNOWN}
    return {
        "phase": "Failed",
        "conditions": _unready(now, "PodFailed"),
        "containerStatuses": [_container(container, state) for container in pod["spec"]["containers"]],
    }


def _ended_container(status: Json, how: Ended, at: str) -> Json:
    if "terminated" in status["state"]:
        return status
    terminated: Json = {"exitCode": how.exit_code, "reason": how.reason, "finishedAt": at}
    if how.message:
        terminated["message"] = how.message
    if started := status["state"].get("running", {}).get("startedAt"):
        terminated["startedAt"] = started
    return status | {"ready": False, "started": False, "state": {"terminated": terminated}}


def unschedulable(message: str, now: str) -> Json:
    """Return the status of a pod that no node has room for."""
    condition = _condition("PodScheduled", now, "False") | {"reason": "Unschedulable", "message": message}
    return {"conditions": [condition]}


def disruption(reason: str, message: str, now: str) -> Json:
    """Return the condition of a pod that is about to be ended by the cluster, not by itself."""
    condition = _condition("DisruptionTarget", now) | {"reason": reason}
    return {"conditions": [condition | {"message": message} if message else condition]}


def _container(container: Mapping[str, Any], state: Json, *, ready: bool = False) -> Json:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def _unready(now: str, reason: str) -> list[Json]:
    return [_condition(name, now, "False") | {"reason": reason} for name in _READY_CONDITIONS]


def _condition(name: str, now: str, status: str = "True") -> Json:
    return {"type": name, "status": status, "lastTransitionTime": now}
