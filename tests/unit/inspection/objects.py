"""Pods, Leases and Events as JSON, as a server lists them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from actors.errors import ApiError
from actors.kube.api import LEASES, PODS
from actors.local.inprocess import InProcessPodApi
from actors.local.store.object_store import ObjectStore
from actors.runtime import Entropy
from actors.testing import ManualClock
from tests.unit.builders import labels

if TYPE_CHECKING:
    from actors import kube

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUNNING = {"running": {"startedAt": "2026-03-01T11:59:00Z"}}


def at(seconds: float) -> str:
    """A moment so many seconds before NOW."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    executor_id: int = 1, phase: str = "Running", state: Any = None, *, app_id: str = "etl", **fields: Any
) -> dict[str, Any]:
    """A pod of an executor. `state` is that of its container."""
    status: dict[str, Any] = {"phase": phase}
    if state is not None:
        status["containerStatuses"] = [{"name": "main", "restartCount": 2, "state": state}]
    metadata = {
        "name": f"{app_id}-exec-{executor_id}",
        "namespace": "default",
        "uid": f"uid-{app_id}-{executor_id}",
        "resourceVersion": "7",
        "labels": labels(executor_id, app_id),
        "creationTimestamp": at(120),
        **fields.pop("metadata", {}),
    }
    container = {"name": "main", "image": "x", "env": [{"name": "EXECUTOR_ID", "value": str(executor_id)}]}
    spec = {"containers": [{"name": "sidecar", "image": "x"}, container], **fields.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": status | fields}


def lease(app_id: str = "etl", age: float = 3, holder: str = "host_1", **metadata: Any) -> dict[str, Any]:
    """A Lease that was renewed so many seconds before NOW."""
    return {
        "metadata": {
            "name": f"executor-pods-{app_id}",
            "namespace": "default",
            "resourceVersion": "9",
            "labels": {"executor-pods/app-id": app_id},
            "annotations": {"executor-pods/targets": '{"default":3,"gpu":1}', "executor-pods/last-id": "4"},
            **metadata,
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": at(age).replace("Z", ".000000Z")},
    }


def stamped(age: float, by: str = "f:renewTime") -> list[dict[str, Any]]:
    """What the server notes about a write so many seconds before NOW."""
    return [{"time": at(1), "fieldsV1": {"f:spec": {}}}, {"time": at(age), "fieldsV1": {"f:spec": {by: {}}}}]


class Cluster:
    """A store with these objects, asked in process: an answer is there at once."""

    def __init__(self, *pods: dict[str, Any], leases: tuple[dict[str, Any], ...] = ()) -> None:
        self.clock = ManualClock(start=NOW)
        self.store = ObjectStore(self.clock, Entropy(1))
        self.api = InProcessPodApi(self.store, "default")
        self.asked: list[kube.Request[Any]] = []
        for manifest in pods:
            self.add(manifest)
        for manifest in leases:
            self.add_lease(manifest)

    def add(self, manifest: dict[str, Any]) -> None:
        """Create a pod, with its status."""
        name = manifest["metadata"]["name"]
        metadata = {key: manifest["metadata"][key] for key in ("name", "labels")}
        self.store.create(PODS.plural, "default", {"metadata": metadata, "spec": manifest["spec"]})
        self.store.patch(PODS.plural, "default", name, {"status": manifest["status"]}, "merge", subresource="status")

    def add_lease(self, manifest: dict[str, Any]) -> None:
        """Create a Lease."""
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "resourceVersion"}
        self.store.create(LEASES.plural, "default", {**manifest, "metadata": metadata})

    def ask_in(self, namespace: str) -> Any:
        """What asks in a namespace."""
        api = InProcessPodApi(self.store, namespace)
        api.forbidden = self.api.forbidden

        def ask(request: kube.Request[Any], /) -> Any:
            self.asked.append(request)
            answers: list[Any] = []
            api.send(request, answers.append)
            (answer,) = answers
            if isinstance(answer, ApiError):
                raise answer
            return answer

        return ask
