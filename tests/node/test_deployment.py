"""`config/` on two nodes, as a user applies it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.node.pods import HANDLES
from tests.node.programs import CONFIG, SAFETY, SIZE, answers, kubectl, name_of
from tests.node.real import RealWorld

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.raw import RawWatch

pytestmark = pytest.mark.node

EXECUTOR_LABEL: Final = "executor-pods/role=executor"


class Deployed:
    """`config/` in a namespace of its own that enforces Pod Security `restricted`."""

    def __init__(self, world: RealWorld, folder: Path) -> None:
        self._world = world
        self.namespace = name_of("config")
        self.api = world.within(self.namespace)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.api.made("/api/v1/namespaces", {"metadata": {"name": self.namespace, "labels": labels}})
        shutil.copytree(CONFIG, folder / "config")
        overlay = folder / "overlay"
        overlay.mkdir()
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(self._overlay()), encoding="utf-8")
        kubectl(world, "apply", "-k", str(overlay))

    def _overlay(self) -> dict[str, Any]:
        """What everybody changes: the executors' command, here one that handles SIGTERM, and their size."""
        (config, *_) = yaml.safe_load_all((CONFIG / "driver.yaml").read_text(encoding="utf-8"))
        text: str = config["data"]["config.toml"]
        text = re.sub(r"(?m)^command = .*$", f"command = {json.dumps(list(HANDLES))}", text)
        text = re.sub(r"(?m)^resources = .*$", 'resources = { requests = { cpu = "50m", memory = "32Mi" } }', text)
        patch = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": config["metadata"], "data": {"config.toml": text}}
        return {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": self.namespace,
            "resources": ["../config"],
            "patches": [{"patch": yaml.safe_dump(patch)}],
        }

    def delete(self) -> None:
        kubectl(self._world, "delete", "namespace", self.namespace, "--wait=false")

    def await_driver(self) -> dict[str, Any]:
        """Wait until a driver's pod is ready, by its probes."""
        return self._await_ready("app.kubernetes.io/name=executor-pods-driver", 1)[0]

    def await_executors(self) -> list[dict[str, Any]]:
        return self._await_ready(EXECUTOR_LABEL, SIZE)

    def _await_ready(self, selector: str, count: int) -> list[dict[str, Any]]:
        with self.watching(selector) as watching:
            return watching.until(count)

    @contextmanager
    def watching(self, selector: str) -> Iterator[Watching]:
        watch = self.api.watch("pods", labelSelector=selector)
        try:
            yield Watching(watch)
        finally:
            watch.close()


class Watching:
    """The pods of a watch."""

    def __init__(self, watch: RawWatch) -> None:
        self._watch = watch
        self._pods: dict[str, dict[str, Any]] = {}
        self.fewest: int | None = None
        """How many were ready at a time, since somebody asked for it."""

    def until(self, count: int) -> list[dict[str, Any]]:
        """Go on until so many are ready and do not terminate, and no others are there."""
        while len(ready := self.ready()) != count or len(self._pods) != count:
            self.step()
        return ready

    def step(self) -> None:
        event = self._watch.next()
        name = event["object"]["metadata"]["name"]
        if event["type"] == "DELETED":
            self._pods.pop(name, None)
        else:
            self._pods[name] = event["object"]
        if self.fewest is not None:
            self.fewest = min(self.fewest, len(self.ready()))

    def ready(self) -> list[dict[str, Any]]:
        return [pod for pod in self._pods.values() if "deletionTimestamp" not in pod["metadata"] and is_ready(pod)]


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@pytest.fixture
def deployed(node_1: RealWorld, tmp_path: Path) -> Iterator[Deployed]:
    found = Deployed(node_1, tmp_path)
    yield found
    found.delete()


def test_config_runs_a_driver_whose_restart_costs_no_executor(node_1: RealWorld, deployed: Deployed) -> None:
    driver = deployed.await_driver()
    before = {pod["metadata"]["uid"] for pod in deployed.await_executors()}
    page = f"http://{driver['status']['podIP']}:8080"
    assert answers(f"{page}/livez")
    assert answers(f"{page}/readyz")
    name = driver["metadata"]["name"]
    machine = int(driver["spec"]["nodeName"].removeprefix("node-"))
    RealWorld(node_1.machines, machine).signal(name, signal.SIGKILL)
    watch = deployed.api.watch("pods", fieldSelector=f"metadata.name={name}")
    while not restarted(watch.next()["object"]):
        pass
    watch.close()
    assert {pod["metadata"]["uid"] for pod in deployed.await_executors()} == before


def restarted(pod: dict[str, Any]) -> bool:
    """The container runs again, and is ready."""
    return is_ready(pod) and pod["status"]["containerStatuses"][0]["restartCount"] > 0


@pytest.mark.parametrize("deed", ["deleted", "evicted"])
def test_executors_outlive_the_drivers_pod(node_1: RealWorld, deployed: Deployed, deed: str) -> None:
    name = deployed.await_driver()["metadata"]["name"]
    before = {pod["metadata"]["uid"] for pod in deployed.await_executors()}
    if deed == "deleted":
        assert deployed.api.delete(f"pods/{name}").status == 200
    else:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        assert deployed.api.post(f"pods/{name}/eviction", body).status == 201
    assert deployed.await_driver()["metadata"]["name"] != name
    assert {pod["metadata"]["uid"] for pod in deployed.await_executors()} == before


def test_executors_end_with_the_deployment(node_1: RealWorld, deployed: Deployed) -> None:
    deployed.await_driver()
    deployed.await_executors()
    kubectl(node_1, "-n", deployed.namespace, "delete", "deployment", "executor-pods-driver")
    with deployed.watching(EXECUTOR_LABEL) as watching:
        assert watching.until(0) == []


def test_a_drain_of_the_drivers_node_keeps_what_the_budget_says(node_1: RealWorld, deployed: Deployed) -> None:
    node = deployed.await_driver()["spec"]["nodeName"]
    budget = yaml.safe_load((CONFIG / "disruption-budget.yaml").read_text(encoding="utf-8"))["spec"]["minAvailable"]
    with deployed.watching(EXECUTOR_LABEL) as watching:
        before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in watching.until(SIZE)}
        watching.fewest = SIZE
        drain = threading.Thread(target=drained, args=(node_1, node))
        drain.start()
        try:
            while any(pod["spec"]["nodeName"] == node for pod in watching.ready()) or len(watching.ready()) != SIZE:
                watching.step()
            after = {pod["metadata"]["uid"] for pod in watching.ready()}
        finally:
            drain.join(SAFETY)
            kubectl(node_1, "uncordon", node)
    print(f"\nof {SIZE} executors at least {watching.fewest} were ready")
    assert watching.fewest >= budget
    assert after >= {uid for uid, where in before.items() if where != node}
    assert deployed.await_driver()["spec"]["nodeName"] != node


def drained(world: RealWorld, node: str) -> None:
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=280s")
    kubectl(world, "drain", node, *options)
