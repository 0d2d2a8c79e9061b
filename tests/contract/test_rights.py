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
import yaml

import actors
from actors import kube
from actors.backend.backend import Backend
from actors.backend.rbac import Right, needed
from actors.cli.rbac import render_rbac
from actors.errors import Forbidden
from actors.kube.api import CLAIMS, EVENTS, LEASES, LOGS, PODS
from actors.messages import BackendFailed, BackendStarted, BackendStopped, ExecutorPending, StopBackend
from actors.settings.model import Settings
from tests.contract.accounts import open_account, rights, wait_for_review
from tests.contract.asking import SAFETY
from tests.contract.clusters import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.contract.clusters import RealCluster
    from tests.contract.control_plane import ControlPlane

CONFIG = Path(__file__).parents[2] / "config"
BASIC_USER = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
"""Where a cluster gives every account the right to review its own."""


DRIVER_POD = {"metadata": {"name": "driver-0"}, "spec": {"containers": [{"name": "driver", "image": "driver:1"}]}}
CLAIM = {"name": "scratch", "mount_path": "/scratch", "size": "1Gi"}

EVERYTHING: dict[str, Any] = {
    "driver_pod_name": "driver-0",
    "executor": {"claims": [CLAIM], "delete_on_termination": False},
    "backend": {"lease": True},
}
"""Settings that need every right that there is a need for."""

LIST_CLAIMS = Right("list", CLAIMS)
OPTIONAL = {LIST_CLAIMS, Right("delete", CLAIMS), Right("create", EVENTS), Right("patch", EVENTS), Right("get", LOGS)}
"""A fleet runs without these."""


class Driver(pykka.ThreadingActor):
    """Hands on what it is told."""

    def __init__(self, heard: SimpleQueue[object]) -> None:
        super().__init__()
        self._heard = heard

    def on_receive(self, message: object) -> None:
        self._heard.put(message)


class Fleet:
    """A real Backend that wants one executor, as an account of the real server."""

    def __init__(self, kubeconfig: Path, **settings: Any) -> None:
        self._heard: SimpleQueue[object] = SimpleQueue()
        self.driver = Driver.start(self._heard)
        executor: Any = {"instances": 1, "image": "worker:1", **settings.pop("executor", {})}
        subject = Settings(app_id="rights", executor=executor, **settings)
        self.backend = Backend.start(subject, self.driver, kube.connect(kubeconfig, request_timeout=LIMIT))

    def hears(self, *kinds: type[Any]) -> Any:
        """The next of these that the driver is told."""
        while True:
            message = self._heard.get(timeout=SAFETY)
            if isinstance(message, kinds):
                return message


@pytest.fixture
def fleet() -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(kubeconfig: Path, **settings: Any) -> Fleet:
        made.append(Fleet(kubeconfig, **settings))
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


def lease(plane: ControlPlane, namespace: str) -> Any:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/executor-pods-rights"
    return plane.request("GET", path)["spec"]


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
    api.send(kube.ListObjects(LEASES, ""), answers.put)
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
    assert lease(plane, namespace)["holderIdentity"] != ""
    subject.backend.tell(StopBackend())
    assert subject.hears(BackendStopped) == BackendStopped()
    assert pods(plane, namespace) == []
    assert lease(plane, namespace)["holderIdentity"] == ""


def test_with_the_rights_that_the_command_prints_for_its_settings_a_fleet_runs(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str
) -> None:
    given: dict[str, Any] = {"backend": {"lease": False}, "executor": {"delete_on_termination": False}}
    subject = fleet(open_account(plane, namespace, text=render_rbac(Settings(app_id="rights", **given))), **given)
    assert subject.hears(BackendStarted, BackendFailed) == BackendStarted("rights", namespace)
    assert subject.hears(ExecutorPending).executor_id == 1
    subject.backend.tell(StopBackend())
    assert subject.hears(BackendStopped) == BackendStopped()
    assert pods(plane, namespace) == []


def test_every_right_that_is_shipped_is_needed_by_some_settings_except_a_few() -> None:
    subject = Settings(app_id="rights", **{**EVERYTHING, "executor": {"image": "worker:1", **EVERYTHING["executor"]}})
    assert {*needed(subject)} == {*rights()} - OPTIONAL


@pytest.mark.parametrize(
    "right", [right for right in rights() if right not in OPTIONAL], ids=lambda r: f"{r.verb} {r.resource}"
)
def test_without_one_right_the_start_fails_and_says_which_and_nothing_is_created(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str, right: Right
) -> None:
    plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", DRIVER_POD)
    subject = fleet(open_account(plane, namespace, without=right), **EVERYTHING)
    outcome = subject.hears(BackendStarted, BackendFailed)
    assert isinstance(outcome, BackendFailed)
    assert isinstance(outcome.cause, Forbidden)
    verb, plural, group = right.verb, right.resource.plural, right.resource.group
    line = f'the account may not {verb} {plural} in namespace "{namespace}": grant verb "{verb}" on resource "{plural}"'
    assert str(outcome.cause).startswith(f'{line} of group "{group}"' if group else line)
    assert [pod["metadata"]["name"] for pod in pods(plane, namespace)] == ["driver-0"]


def test_without_a_right_to_list_claims_a_fleet_that_has_some_starts_all_the_same(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str
) -> None:
    plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", DRIVER_POD)
    settings = {**EVERYTHING, "backend": {"lease": True, "driver_ready_timeout": "100ms"}}
    subject = fleet(open_account(plane, namespace, without=LIST_CLAIMS), **settings)
    assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)
    assert subject.hears(ExecutorPending).executor_id == 1
    claims = plane.request("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")["items"]
    assert [claim["metadata"]["name"] for claim in claims] == ["rights-exec-1-pvc-0"]


@pytest.mark.parametrize("verb", ["get", "create", "patch"])
def test_without_a_right_to_an_optional_lease_a_fleet_starts(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str, verb: str
) -> None:
    subject = fleet(open_account(plane, namespace, without=Right(verb, LEASES)))
    assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)
    assert subject.hears(ExecutorPending).executor_id == 1


def test_the_right_to_label_is_not_asked_for_where_executors_that_ended_are_deleted(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str
) -> None:
    subject = fleet(open_account(plane, namespace, without=Right("patch", PODS)))
    assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)


@pytest.mark.parametrize("name", ["rbac.yaml", "driver.yaml"])
def test_a_server_takes_what_is_shipped_to_the_letter(plane: ControlPlane, namespace: str, name: str) -> None:
    for document in yaml.safe_load_all((CONFIG / name).read_text()):
        group = "/api/v1" if document["apiVersion"] == "v1" else f"/apis/{document['apiVersion']}"
        path = f"{group}/namespaces/{namespace}/{document['kind'].lower()}s?dryRun=All&fieldValidation=Strict"
        assert plane.request("POST", path, document)["metadata"]["name"] == "executor-pods-driver"


def test_where_no_account_may_review_its_rights_a_fleet_starts_all_the_same(
    plane: ControlPlane, fleet: Callable[..., Fleet], namespace: str
) -> None:
    kubeconfig = open_account(plane, namespace)
    with nobody_may_review(plane):
        wait_for_review(plane, kubeconfig, "refused")
        subject = fleet(kubeconfig)
        assert isinstance(subject.hears(BackendStarted, BackendFailed), BackendStarted)
        assert subject.hears(ExecutorPending).executor_id == 1
    wait_for_review(plane, kubeconfig, "yes")


def test_the_command_says_what_is_missing_on_stderr_and_exits_with_1(plane: ControlPlane, namespace: str) -> None:
    kubeconfig = open_account(plane, namespace, without=Right("delete"))
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
        'grant verb "delete" on resource "pods" (`executor-pods config --rbac` prints the rule)'
    )
    assert line in done.stderr.splitlines()
    assert done.returncode == 1
    assert pods(plane, namespace) == []
