"""The rights of config/rbac.yaml on a real server: with all of them a fleet runs, without one the start says which."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pykka
import pytest

import actors
from actors import kube
from actors.backend import Backend
from actors.errors import Forbidden
from actors.kube.api import LEASES
from actors.messages import BackendFailed, BackendStarted, BackendStopped, ExecutorPending, StopBackend
from actors.settings import Settings
from tests.contract.accounts import open_account, verbs, wait_for_review
from tests.contract.asking import SAFETY
from tests.contract.clusters import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.contract.clusters import RealCluster
    from tests.contract.control_plane import ControlPlane

BASIC_USER = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
"""Where a cluster gives every account the right to review its own."""


class Driver(pykka.ThreadingActor):
    """Hands on what it is told."""

    def __init__(self, heard: SimpleQueue[object]) -> None:
        super().__init__()
        self._heard = heard

    def on_receive(self, message: object) -> None:
        self._heard.put(message)


class Fleet:
    """A real Backend that wants one executor, as an account of the real server."""

    def __init__(self, kubeconfig: Path, **executor: Any) -> None:
        self._heard: SimpleQueue[object] = SimpleQueue()
        self.driver = Driver.start(self._heard)
        settings = Settings(app_id="rights", executor={"instances": 1, "image": "worker:1", **executor})
        self.backend = Backend.start(settings, self.driver, kube.connect(kubeconfig, request_timeout=LIMIT))

    def hears(self, *kinds: type[Any]) -> Any:
        """The next of these that the driver is told."""
        while True:
            message = self._heard.get(timeout=SAFETY)
            if isinstance(message, kinds):
                return message


@pytest.fixture
def fleet() -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(kubeconfig: Path, **executor: Any) -> Fleet:
        made.append(Fleet(kubeconfig, **executor))
        return made[-1]

    yield make
    for one in made:
        one.backend.stop()
        one.driver.stop()


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """One without any account."""
    name = f"rights-{uuid.uuid4().hex[:10]}"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def pods(plane: ControlPlane, namespace: str) -> list[Any]:
    found: list[Any] = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return found


@contextmanager
def nobody_may_review(plane: ControlPlane) -> Iterator[None]:
    """An operator takes the right to review away, and gives it back."""
    binding = plane.request("GET", f"{BASIC_USER}/system:basic-user")
    plane.request("DELETE", f"{BASIC_USER}/system:basic-user")
    try:
        yield
    finally:
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        plane.request("POST", BASIC_USER, binding)


def test_the_contract_is_held_against_a_real_server_with_these_rights_and_no_other(real: RealCluster) -> None:
    namespace = real.new_namespace()
    answers: SimpleQueue[Any] = SimpleQueue()
    api = real.connect(namespace)
    api.list_objects(LEASES, "", answers.put)
    refused = answers.get(timeout=SAFETY)
    api.close()
    assert type(refused) is Forbidden
    assert f"system:serviceaccount:{namespace}:executor-pods-driver" in refused.message


def test_with_all_rights_a_fleet_starts_and_a_stop_leaves_nothing(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str
) -> None:
    subject = fleet(open_account(plane, namespace))
    assert subject.hears(BackendStarted, BackendFailed) == BackendStarted("rights", namespace)
    assert subject.hears(ExecutorPending).executor_id == 1
    assert [pod["metadata"]["name"] for pod in pods(plane, namespace)] == ["rights-exec-1"]
    subject.backend.tell(StopBackend())
    assert subject.hears(BackendStopped) == BackendStopped()
    assert pods(plane, namespace) == []


@pytest.mark.parametrize("verb", verbs())
def test_without_one_right_the_start_fails_and_says_which_and_nothing_is_created(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str, verb: str
) -> None:
    kubeconfig = open_account(plane, namespace, without=verb)
    subject = fleet(kubeconfig, delete_on_termination=verb != "patch")
    outcome = subject.hears(BackendStarted, BackendFailed)
    assert isinstance(outcome, BackendFailed)
    assert isinstance(outcome.cause, Forbidden)
    line = f'the account may not {verb} pods in namespace "{namespace}": grant verb "{verb}" on resource "pods"'
    assert str(outcome.cause).startswith(line)
    assert pods(plane, namespace) == []


def test_the_right_to_label_is_not_asked_for_where_executors_that_ended_are_deleted(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str
) -> None:
    subject = fleet(open_account(plane, namespace, without="patch"))
    assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)


def test_where_no_account_may_review_its_rights_a_fleet_starts_all_the_same(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str
) -> None:
    kubeconfig = open_account(plane, namespace)
    with nobody_may_review(plane):
        wait_for_review(plane, kubeconfig, "list", "refused")
        subject = fleet(kubeconfig)
        assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)
        assert subject.hears(ExecutorPending).executor_id == 1
    wait_for_review(plane, kubeconfig, "list", "yes")


def test_the_command_says_what_is_missing_on_stderr_and_exits_with_1(plane: ControlPlane, namespace: str) -> None:
    kubeconfig = open_account(plane, namespace, without="delete")
    env = {name: value for name, value in os.environ.items() if not name.startswith("EXECUTOR_PODS_")}
    done = subprocess.run(
        [sys.executable, "-m", "actors", "run", "--kubeconfig", kubeconfig, "--executors", "1", "--image", "x"],
        env=env | {"PYTHONPATH": str(Path(actors.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=SAFETY,
        check=False,
    )
    line = (
        f'executor-pods: the backend cannot start: the account may not delete pods in namespace "{namespace}": '
        'grant verb "delete" on resource "pods" (config/rbac.yaml has the rule)'
    )
    assert line in done.stderr.splitlines()
    assert done.returncode == 1
    assert pods(plane, namespace) == []
