"""What `kubectl describe` says of a driver's pod, on a real server and on the embedded one."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.backend.backend import Backend
from actors.backend.rbac import Right
from actors.kube.api import EVENTS
from actors.local.cluster import LocalCluster
from actors.messages import BackendFailed, BackendStarted, BackendStopped, ExecutorPending, ExecutorRemoved, StopBackend
from actors.settings.model import Settings
from tests.contract.accounts import open_account
from tests.contract.asking import SAFETY
from tests.contract.clusters import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actors.kube import PodApi
    from tests.contract.control_plane import ControlPlane

TRIES = 2_000
"""An Event is written some milliseconds after its cause; a try takes several."""

CONTAINER = {"name": "driver", "image": "driver:1", "command": ["sleep", "600"]}
DRIVER_POD = {"metadata": {"name": "driver-0"}, "spec": {"containers": [CONTAINER]}}


class Subject:
    """A real Backend that wants one executor, in the pod `driver-0` if it is named."""

    def __init__(self, api: PodApi, **settings: Any) -> None:
        self._heard: SimpleQueue[object] = SimpleQueue()
        executor: Any = {"instances": 1, "image": "worker:1", "command": ["sleep", "600"]}
        backend: Any = {"driver_ready_timeout": "10ms"}
        subject = Settings(app_id="told", executor=executor, backend=backend, **settings)
        self.backend = Backend.start(subject, self._heard.put, api)

    def hears(self, *kinds: type[Any]) -> Any:
        """The next of these that the driver is told."""
        while True:
            message = self._heard.get(timeout=SAFETY)
            if isinstance(message, kinds):
                return message

    def stop(self) -> None:
        self.backend.tell(StopBackend())
        self.hears(BackendStopped, BackendFailed)


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    name = f"events-{uuid.uuid4().hex[:10]}"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def described(kubeconfig: Path, namespace: str, what: str, reason: str) -> list[str]:
    """The words of the line of this reason in `kubectl describe`, once it is there."""
    for _ in range(TRIES):
        done = subprocess.run(
            ["kubectl", "--kubeconfig", kubeconfig, "-n", namespace, "describe", *what.split()],
            capture_output=True,
            text=True,
            timeout=SAFETY,
            check=True,
            env={**os.environ, "HOME": str(kubeconfig.parent)},
        )
        for line in done.stdout.partition("\nEvents:")[2].splitlines():
            if reason in line.split():
                return line.split()
    raise AssertionError(f"kubectl describe {what} shows no {reason}")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_describe_of_the_drivers_pod_says_which_executors_were_lost(
    plane: ControlPlane, namespace: str
) -> None:
    plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", DRIVER_POD)
    subject = Subject(kube.connect(open_account(plane, namespace), request_timeout=LIMIT), driver_pod_name="driver-0")
    assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)
    subject.hears(ExecutorPending)
    plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/told-exec-1", {"gracePeriodSeconds": 0})
    subject.hears(ExecutorRemoved)
    line = described(plane.kubeconfig, namespace, "pod driver-0", "ExecutorLost")
    assert line[:2] == ["Warning", "ExecutorLost"]
    assert line[3:8] == ["executor-pods", "NEVER_STARTED,", "profile", "default:", "executor"]
    subject.stop()


def test_without_the_right_to_write_events_a_fleet_runs(plane: ControlPlane, namespace: str) -> None:
    plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", DRIVER_POD)
    account = open_account(plane, namespace, without=Right("create", EVENTS))
    subject = Subject(kube.connect(account, request_timeout=LIMIT), driver_pod_name="driver-0")
    assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)
    for number in (1, 2):
        assert subject.hears(ExecutorPending).executor_id == number
        path = f"/api/v1/namespaces/{namespace}/pods/told-exec-{number}"
        plane.request("DELETE", path, {"gracePeriodSeconds": 0})
        assert subject.hears(ExecutorRemoved).executor_id == number
    subject.stop()


@pytest.fixture
def local() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_on_the_embedded_cluster_the_lease_says_who_acquired_it(local: LocalCluster) -> None:
    subject = Subject(kube.connect(local.kubeconfig_path, request_timeout=LIMIT))
    assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)
    line = described(local.kubeconfig_path, "default", "lease executor-pods-told", "LeaseAcquired")
    assert line[0] == "Normal"
    assert line[-3:] == ["acquired", "the", "lease"]
    subject.stop()
