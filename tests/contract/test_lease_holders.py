"""A driver takes the lease of one that has ended at once, where the API or this machine shows that it has."""

from __future__ import annotations

import subprocess
import sys
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors.backend.backend import Backend
from actors.kube import LEASES
from actors.lease.marks import Marks, written_marks
from actors.lease.process_mark import BOOT_ID
from actors.messages import BackendStarted, BackendStopped, ExecutorPending, StopBackend
from actors.settings import Settings
from tests.contract.asking import SAFETY, Asking, manifest

if TYPE_CHECKING:
    from actors.kube import PodApi
    from tests.contract.clusters import Cluster

MARK = """
import os
from actors.lease.process_mark import own_mark

print(own_mark(), end="", flush=True)
os.kill(os.getpid(), 9)
"""


def marks_of_an_ended_pod(cluster: Cluster, api: Asking) -> Marks:
    pod = api.created(manifest("driver-0"))
    status = {"name": "executor", "image": "a", "imageID": "", "ready": False, "restartCount": 0}
    statuses = [status | {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]
    cluster.set_status("pods", api.api.namespace, "driver-0", {"phase": "Failed", "containerStatuses": statuses})
    return Marks(pod=("driver-0", pod.uid))


def marks_of_a_killed_process(*_: object) -> Marks:
    mark = subprocess.run([sys.executable, "-c", MARK], capture_output=True, text=True, check=False).stdout
    return Marks(process=mark)


@pytest.mark.parametrize(
    "marks_of",
    [
        marks_of_an_ended_pod,
        pytest.param(
            marks_of_a_killed_process,
            marks=pytest.mark.skipif(not BOOT_ID.exists(), reason="processes are marked on Linux only"),
        ),
    ],
)
def test_the_next_driver_has_the_lease_of_one_that_ended_without_a_wait(
    cluster: Cluster, api: Asking, marks_of: Any
) -> None:
    annotations = written_marks("dead", marks_of(cluster, api))
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 3600, "renewTime": "2024-01-01T00:00:00.000000Z"}
    metadata = {"name": "executor-pods-etl", "annotations": annotations}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    api.create_object(LEASES, lease)
    told: SimpleQueue[Any] = SimpleQueue()
    connected: PodApi = cluster.connect(api.api.namespace)
    settings = Settings(app_id="etl", backend={"lease": True}, executor={"instances": 1, "image": "any"})
    backend = Backend.start(settings, told.put, connected)
    began = [type(told.get(timeout=SAFETY)), type(told.get(timeout=SAFETY))]
    held = api.get_object(LEASES, "executor-pods-etl")
    backend.tell(StopBackend())
    while not isinstance(told.get(timeout=SAFETY), BackendStopped):
        pass
    assert began == [BackendStarted, ExecutorPending], "nothing was blocked before"
    assert held["spec"]["holderIdentity"] != "dead"
    assert held["spec"]["leaseTransitions"] == 1
