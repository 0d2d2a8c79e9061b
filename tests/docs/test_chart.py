"""The Helm chart of `config/` makes what the kustomization makes, and follows its values."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from actors.manifests.executor_pod import check_template
from actors.pods.pod import APP_ID_LABEL
from actors.settings.model import Settings
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: Final = ROOT / "config"
CHART: Final = CONFIG / "chart"
DRIVER: Final = "executor-pods-driver"

pytestmark = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed: nobody rendered the chart")


def render(*command: str) -> dict[str, Any]:
    """The objects that a command prints, by kind and name."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(done.stdout)}


def chart(release: str, *values: str) -> dict[str, Any]:
    return render("helm", "template", release, str(CHART), *(f"--set={each}" for each in values))


def pod_of(objects: dict[str, Any], release: str) -> dict[str, Any]:
    """The template of the driver's pod."""
    found: dict[str, Any] = objects[f"Deployment/{release}"]["spec"]["template"]
    return found


def settings_of(objects: dict[str, Any], release: str, folder: Path) -> Settings:
    for name, text in objects[f"ConfigMap/{release}"]["data"].items():
        (folder / name).write_text(text)
    return Settings.load(folder / "config.toml")


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: nobody rendered the kustomization"
)
def test_the_chart_makes_what_the_kustomization_makes() -> None:
    charted, customized = chart(DRIVER), render("kubectl", "kustomize", str(CONFIG))
    (checksum,) = pod_of(charted, DRIVER)["metadata"].pop("annotations")
    assert checksum == "checksum/config", "a Deployment of a kustomization is restarted by hand"
    for objects in (charted, customized):
        data = objects[f"ConfigMap/{DRIVER}"]["data"]
        data["config.toml"] = tomllib.loads(data["config.toml"])
        data["executor-pod.yaml"] = yaml.safe_load(data["executor-pod.yaml"])
    assert charted == customized


def test_its_values_reach_every_object(tmp_path: Path) -> None:
    objects = chart(
        "night",
        "settings.app_id=etl-2",
        "settings.executor.instances=9",
        "settings.executor.decommission_label=leaves=true",
        "pod.nodeSelector.disk=ssd",
        "env[0].name=A",
        "env[0].value=b",
    )
    settings = settings_of(objects, "night", tmp_path)
    check_template(settings)
    assert (settings.app_id, settings.executor.instances, settings.driver_address) == ("etl-2", 9, "night:7077")
    budget = objects["PodDisruptionBudget/executor-pods-etl-2"]["spec"]
    assert budget["minAvailable"] == 8
    assert budget["selector"]["matchLabels"][APP_ID_LABEL] == "etl-2"
    assert budget["selector"]["matchExpressions"] == [{"key": "leaves", "operator": "NotIn", "values": ["true"]}]
    assert objects["NetworkPolicy/executor-pods-etl-2"]["spec"]["podSelector"]["matchLabels"] == {APP_ID_LABEL: "etl-2"}
    pod = pod_of(objects, "night")
    assert objects["Service/night"]["spec"]["selector"] == pod["metadata"]["labels"]
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["spec"]["containers"][0]["env"][1:] == [{"name": "A", "value": "b"}]
    assert {each["metadata"]["name"] for each in objects.values()} == {"night", "executor-pods-etl-2"}


def test_other_settings_start_another_driver() -> None:
    few, many = (pod_of(chart(DRIVER, f"settings.executor.instances={number}"), DRIVER) for number in (3, 4))
    assert few["metadata"]["annotations"] != many["metadata"]["annotations"]


def test_with_the_prometheus_operator_it_has_the_alerts_and_the_dashboard() -> None:
    objects = chart(DRIVER, "monitoring.enabled=true", "monitoring.labels.release=p")
    folder = CONFIG / "prometheus"
    assert objects[f"PrometheusRule/{DRIVER}"]["spec"] == yaml.safe_load((folder / "alerts.yaml").read_text())
    (dashboard,) = objects[f"ConfigMap/{DRIVER}-dashboard"]["data"].values()
    assert json.loads(dashboard) == json.loads((folder / "dashboard.json").read_text())
    monitor = objects[f"ServiceMonitor/{DRIVER}"]
    assert (
        monitor["metadata"].pop("labels")
        == objects[f"PrometheusRule/{DRIVER}"]["metadata"]["labels"]
        == {"release": "p"}
    )
    assert monitor == yaml.safe_load((folder / "service-monitor.yaml").read_text())
    service = objects[f"Service/{DRIVER}"]
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert monitor["spec"]["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_a_budget_without_a_label_is_refused_in_words() -> None:
    command = ["helm", "template", DRIVER, str(CHART), "--set=settings.executor.decommission_label=null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "settings.executor.decommission_label: the budget needs one" in done.stderr
    assert "PodDisruptionBudget/executor-pods-etl" not in chart(
        DRIVER, "settings.executor.decommission_label=null", "disruptionBudget.enabled=false"
    )
