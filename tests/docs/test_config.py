"""`config/`: its files belong together and say the same."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from actors.manifests.executor_pod import check_template
from actors.page.site import ANSWER_SECONDS
from actors.pods.pod import APP_ID_LABEL
from actors.settings import BackendSettings
from actors.settings.model import Settings
from tests.docs.pages import REPOSITORY, ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = ROOT / "config"
NO_OBJECTS = {"executor-pod.yaml", "kustomization.yaml", "rbac-operator.yaml"}
"""A template, the list itself, and the rights of people."""

KUBELET_PERIOD = 10
"""Seconds between two probes, unless `periodSeconds` says so."""


def objects(name: str) -> dict[str, Any]:
    """The objects of a file by kind and name."""
    found = yaml.safe_load_all((CONFIG / name).read_text(encoding="utf-8"))
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Those of the driver's ConfigMap."""
    for name, text in objects("driver.yaml")["ConfigMap/executor-pods-driver"]["data"].items():
        (tmp_path / name).write_text(text)
    return Settings.load(tmp_path / "config.toml")


def test_the_list_has_every_file_with_objects() -> None:
    listed = yaml.safe_load((CONFIG / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert sorted(listed) == sorted({path.name for path in CONFIG.glob("*.yaml")} - NO_OBJECTS)


def test_the_budget_counts_the_executors_of_this_fleet_but_those_that_leave(settings: Settings) -> None:
    spec = objects("disruption-budget.yaml")["PodDisruptionBudget/executor-pods-etl"]["spec"]
    assert spec["selector"]["matchLabels"][APP_ID_LABEL] == settings.app_id
    (leaving,) = spec["selector"]["matchExpressions"]
    assert leaving["operator"] == "NotIn"
    assert [f"{leaving['key']}={value}" for value in leaving["values"]] == [settings.executor.decommission_label]
    assert spec["minAvailable"] == settings.executor.instances - 1


def test_the_executors_outlive_the_drivers_pod_and_find_its_next_one(settings: Settings) -> None:
    assert settings.backend.hands_over
    assert settings.executor.owned_by == "controller"
    deployment = objects("driver.yaml")["Deployment/executor-pods-driver"]["spec"]
    assert deployment["strategy"] == {"type": "Recreate"}
    assert deployment["revisionHistoryLimit"] > 0, "the executors go with a ReplicaSet that is deleted"
    (service,) = objects("service.yaml").values()
    assert settings.driver_address is not None
    name, port = settings.driver_address.split(":")
    assert name == service["metadata"]["name"]
    assert int(port) in [each["port"] for each in service["spec"]["ports"] if each["name"] == "work"]


def test_the_kubelet_asks_the_page_that_the_driver_serves() -> None:
    (driver,) = objects("driver.yaml")["Deployment/executor-pods-driver"]["spec"]["template"]["spec"]["containers"]
    (port,) = driver["ports"]
    assert driver["args"][:2] == ["--page-port", str(port["containerPort"])]
    assert driver["terminationMessagePolicy"] == "FallbackToLogsOnError", "no Event says why a driver failed"
    live, ready, begun = (driver[f"{kind}Probe"] for kind in ("liveness", "readiness", "startup"))
    paths = [probe["httpGet"] for probe in (live, ready, begun)]
    assert paths == [{"path": path, "port": port["name"]} for path in ("/livez", "/readyz", "/livez")]
    assert all(probe["timeoutSeconds"] > ANSWER_SECONDS for probe in (live, ready, begun))
    wait = BackendSettings().hang_timeout.total_seconds()
    assert live["failureThreshold"] * KUBELET_PERIOD > wait
    assert begun["failureThreshold"] * begun["periodSeconds"] >= 4 * wait


def test_executors_may_reach_the_drivers_port_and_nobody_reaches_executors(settings: Settings) -> None:
    policies = objects("network-policy.yaml")
    driver = policies["NetworkPolicy/executor-pods-driver"]["spec"]
    labels = objects("driver.yaml")["Deployment/executor-pods-driver"]["spec"]["template"]["metadata"]["labels"]
    assert driver["podSelector"]["matchLabels"] == labels
    service = objects("service.yaml")["Service/executor-pods-driver"]["spec"]
    assert service["selector"] == labels
    (work,) = (port["port"] for port in service["ports"] if port["name"] == "work")
    assert driver["ingress"][0] == {
        "from": [{"podSelector": {"matchLabels": {APP_ID_LABEL: settings.app_id}}}],
        "ports": [{"port": work}],
    }
    (container,) = objects("driver.yaml")["Deployment/executor-pods-driver"]["spec"]["template"]["spec"]["containers"]
    (page,) = (port["containerPort"] for port in container["ports"])
    assert driver["ingress"][1]["ports"] == [{"port": page}]
    assert page in [port["port"] for port in service["ports"]]
    executors = policies[f"NetworkPolicy/executor-pods-{settings.app_id}"]["spec"]
    assert executors["podSelector"]["matchLabels"] == {APP_ID_LABEL: settings.app_id}
    assert executors["ingress"] == []


def test_the_executors_template_is_accepted(settings: Settings) -> None:
    check_template(settings)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_overlay_of_the_page_changes_images_and_settings_and_keeps_the_rest(tmp_path: Path) -> None:
    (overlay,) = (each.text for each in blocks("docs/how-to/in-a-cluster.md") if "kind: Kustomization" in each.text)
    base = f"{REPOSITORY}/config?ref=main"
    assert base in overlay
    (tmp_path / "kustomization.yaml").write_text(overlay.replace(base, os.path.relpath(CONFIG, tmp_path.resolve())))
    command = ["kubectl", "kustomize", str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(built)}
    assert {each["metadata"]["namespace"] for each in found.values()} == {"batch"}
    (container,) = found["Deployment/executor-pods-driver"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.acme/etl:7"
    for name, text in found["ConfigMap/executor-pods-driver"]["data"].items():
        (tmp_path / name).write_text(text)
    settings = Settings.load(tmp_path / "config.toml")
    assert settings.executor.instances == 8
    assert settings.backend.hands_over
    assert settings.executor.owned_by == "controller"
    check_template(settings)
