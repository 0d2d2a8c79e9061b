"""`config/` on a real API server: applied as a user does, in a namespace that enforces Pod Security `restricted`.

The driver is the process of the Deployment's container, with its command, its probes and a token of its account.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Timer
from typing import TYPE_CHECKING, Any, Self

import pytest
import yaml

from actors import kube
from actors.backend.backend import Backend
from actors.messages import (
    AllocationBlocked,
    BackendFailed,
    BackendStopped,
    StopBackend,
)
from actors.settings.model import Settings
from tests.contract.accounts import account
from tests.contract.asking import SAFETY
from tests.contract.clusters import LIMIT

if TYPE_CHECKING:
    from tests.contract.control_plane import ControlPlane

CONFIG = Path(__file__).parents[2] / "config"
TRIES = 2_000
"""A driver is ready some milliseconds after it listens; a try takes several."""
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """One that accepts only restricted pods."""
    name = f"restricted-{uuid.uuid4().hex[:10]}"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    return name


def apply(plane: ControlPlane, namespace: str, *what: str) -> subprocess.CompletedProcess[str]:
    where = ["kubectl", "--kubeconfig", str(plane.kubeconfig), "-n", namespace]
    command = [*where, "apply", "--server-side", "--validate=strict", *what]
    return subprocess.run(command, capture_output=True, text=True, timeout=SAFETY, check=False)


def helm(plane: ControlPlane, namespace: str, *what: str) -> str:
    """Run helm as an administrator; what it warns of, such as a pod that is not restricted."""
    command = ["helm", "--kubeconfig", str(plane.kubeconfig), "--namespace", namespace, *what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SAFETY, check=False)
    assert done.returncode == 0, done.stderr
    return "".join(line for line in done.stderr.splitlines(keepends=True) if "found symbolic link" not in line)


def replica_set(plane: ControlPlane, namespace: str, name: str = "executor-pods-driver") -> dict[str, Any]:
    """The ReplicaSet that the Deployment's controller would make."""
    path = f"/apis/apps/v1/namespaces/{namespace}"
    spec = plane.request("GET", f"{path}/deployments/{name}")["spec"]
    made = {"metadata": {"name": name}, "spec": {key: spec[key] for key in ("selector", "template")}}
    return plane.request("POST", f"{path}/replicasets", made)


def driver_pod(plane: ControlPlane, namespace: str, replicas: dict[str, Any], number: int = 0) -> str:
    """A pod that the ReplicaSet's controller would make; its name."""
    template, metadata = replicas["spec"]["template"], replicas["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": metadata["name"], "uid": metadata["uid"]}
    named = {"name": f"executor-pods-driver-{number}", "ownerReferences": [owner | {"controller": True}]}
    pod = template | {"metadata": template["metadata"] | named}
    path = f"/api/v1/namespaces/{namespace}/pods?fieldValidation=Strict"
    created: str = plane.request("POST", path, pod)["metadata"]["name"]
    return created


def config(plane: ControlPlane, namespace: str, folder: Path) -> Path:
    """The settings that the driver's pod mounts."""
    data = plane.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/executor-pods-driver")["data"]
    for name, text in data.items():
        (folder / name).write_text(text)
    return folder / "config.toml"


class Driver:
    """The driver's Backend, as its service account."""

    def __init__(self, plane: ControlPlane, namespace: str, settings: Settings) -> None:
        self._heard: SimpleQueue[object] = SimpleQueue()
        kubeconfig = account(plane, namespace, "executor-pods-driver")
        self._backend = Backend.start(settings, self._heard.put, kube.connect(kubeconfig, request_timeout=LIMIT))

    def hears(self, *kinds: type[Any]) -> Any:
        while True:
            message = self._heard.get(timeout=SAFETY)
            if isinstance(message, (*kinds, BackendFailed)):
                return message

    def stop(self) -> None:
        self._backend.tell(StopBackend())
        assert self.hears(BackendStopped) == BackendStopped()


class Process:
    """The driver's process, as its pod runs it: the command of the Deployment, with the account's token."""

    def __init__(self, plane: ControlPlane, namespace: str, pod: str, settings: Path) -> None:
        self._plane = plane
        self._pod = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        (self.container,) = plane.request("GET", self._pod)["spec"]["containers"]
        given: list[str] = self.container["command"] + self.container["args"]
        assert given[0] == "executor-pods"
        here = {"/etc/executor-pods/config.toml": str(settings), "8080": "0", "0.0.0.0": "127.0.0.1"}
        arguments = [here.get(each, each) for each in given[1:]]
        fields = {"metadata.name": pod}
        env = {each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in self.container["env"]}
        kubeconfig = account(plane, namespace, "executor-pods-driver")
        outside = {name: value for name, value in os.environ.items() if not name.startswith("EXECUTOR_PODS_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "actors", *arguments],
            env=outside | env | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(CONFIG.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._limit = Timer(2 * SAFETY, self._process.kill)
        """Met by a failure only: then whoever reads its output reads the end."""

    def __enter__(self) -> Self:
        assert self._process.stderr is not None
        self._limit.start()
        line = next(line for line in self._process.stderr if "page at " in line)
        self._url = line.partition("page at ")[2].strip().rstrip("/")
        return self

    def __exit__(self, *error: object) -> None:
        """End as a pod does, and hand over."""
        self._limit.cancel()
        self._process.terminate()
        out, err = self._process.communicate(timeout=SAFETY)
        assert self._process.returncode == 143 or any(error), out + err

    def asks(self, path: str) -> str:
        with urllib.request.urlopen(self._url + path, timeout=SAFETY) as response:
            answer: bytes = response.read()
        return answer.decode()

    def probes(self) -> dict[str, str]:
        """What the kubelet is answered."""
        paths = {name: probe["httpGet"]["path"] for name, probe in self.container.items() if name.endswith("Probe")}
        return {name: self.asks(path) for name, path in paths.items()}

    def becomes_ready(self) -> None:
        """The kubelet says so, once its probe is answered."""
        for _ in range(TRIES):
            with suppress(urllib.error.HTTPError):
                self.asks(self.container["readinessProbe"]["httpGet"]["path"])
                break
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        self._plane.request("PATCH", f"{self._pod}/status", ready)

    def hears(self, kind: str) -> dict[str, Any]:
        """The next event of this kind in the driver's log."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == kind:
                return event
        raise AssertionError(f"the driver ended without {kind}")


def test_all_that_belongs_together_is_applied_and_its_driver_makes_executors_where_pods_are_restricted(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    done = apply(plane, namespace, "-k", str(CONFIG))
    assert (done.stderr, done.returncode) == ("", 0)
    files = yaml.safe_load((CONFIG / "kustomization.yaml").read_text())["resources"]
    objects = [each for name in files for each in yaml.safe_load_all((CONFIG / name).read_text())]
    assert len(done.stdout.splitlines()) == len(objects)
    replicas = replica_set(plane, namespace)
    name, settings = driver_pod(plane, namespace, replicas), config(plane, namespace, tmp_path)
    with Process(plane, namespace, name, settings) as driver:
        driver.becomes_ready()
        assert [driver.hears("pending")["executor_id"] for _ in range(4)] == [1, 2, 3, 4]
        for path in (_budget(namespace), _policy(namespace)):
            assert len(_selected(plane, namespace, path)) == 4, path
        assert driver.probes() == {"livenessProbe": "ok", "readinessProbe": "ok", "startupProbe": "ok"}
        assert 'executor_pods_target_executors{app_id="etl",profile="default"} 4.0' in driver.asks("/metrics")
    left = _owners(plane, namespace)
    plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")
    successor = driver_pod(plane, namespace, replicas, 1)
    with Process(plane, namespace, successor, settings) as driver:
        driver.becomes_ready()
        assert [driver.hears("pending")["executor_id"] for _ in range(4)] == [1, 2, 3, 4]
        plane.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/etl-exec-4?gracePeriodSeconds=0")
        assert driver.hears("pending")["executor_id"] == 5, "created after the others were adopted"
    assert left == {f"etl-exec-{number}": [name, "executor-pods-driver"] for number in (1, 2, 3, 4)}
    then = {f"etl-exec-{number}": [successor, "executor-pods-driver"] for number in (1, 2, 3, 5)}
    assert _owners(plane, namespace) == then


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed: nobody installed the chart")
def test_the_chart_is_installed_where_pods_are_restricted_and_leaves_nothing(
    plane: ControlPlane, namespace: str
) -> None:
    assert helm(plane, namespace, "install", "etl-driver", str(CONFIG / "chart")) == ""
    replicas = replica_set(plane, namespace, "etl-driver")
    driver_pod(plane, namespace, replicas)
    assert helm(plane, namespace, "uninstall", "etl-driver") == ""
    for path in (_budget(namespace), _policy(namespace)):
        with pytest.raises(urllib.error.HTTPError) as gone:
            plane.request("GET", path)
        with gone.value:
            assert gone.value.code == 404


def test_executors_without_a_template_are_refused_there_and_the_driver_is_told_why(
    plane: ControlPlane, namespace: str
) -> None:
    assert apply(plane, namespace, "-f", str(CONFIG / "rbac.yaml")).returncode == 0
    driver = Driver(plane, namespace, Settings(app_id="etl", executor={"image": "worker:1"}, backend={"lease": False}))
    blocked = driver.hears(AllocationBlocked)
    assert 'violates PodSecurity "restricted:latest"' in blocked.cause
    driver.stop()


def test_the_pod_template_that_is_shipped_is_restricted_too(plane: ControlPlane, namespace: str) -> None:
    template = yaml.safe_load((CONFIG / "executor-pod.yaml").read_text())
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    plane.request("POST", path, template | {"metadata": template["metadata"] | {"name": "executor"}})
    template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(urllib.error.HTTPError) as refused:
        plane.request("POST", path, template | {"metadata": template["metadata"] | {"name": "executor"}})
    with refused.value:
        assert refused.value.code == 403


def _owners(plane: ControlPlane, namespace: str) -> dict[str, list[str]]:
    """Executor → the names of its owners."""
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=executor-pods/app-id=etl"
    found = (pod["metadata"] for pod in plane.request("GET", path)["items"])
    return {each["name"]: [owner["name"] for owner in each["ownerReferences"]] for each in found}


def _budget(namespace: str) -> str:
    return f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/executor-pods-etl"


def _policy(namespace: str) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/executor-pods-etl"


def _selected(plane: ControlPlane, namespace: str, path: str) -> list[Any]:
    """The pods that an object selects."""
    spec = plane.request("GET", path)["spec"]
    selector = spec.get("selector") or spec["podSelector"]
    terms = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    for each in selector.get("matchExpressions", ()):
        assert each["operator"] == "NotIn"
        terms.append(f"{each['key']} notin ({','.join(each['values'])})")
    query = urllib.parse.quote(",".join(terms))
    found: list[Any] = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={query}")["items"]
    return found
