"""`executor-pods config`: the reference, the check of a file, and the rights of a driver."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import yaml

from actors.backend.rbac import Right, used
from actors.cli.arguments import execute
from actors.cli.rbac import render_rbac
from actors.kube.api import CLAIMS, EVENTS, LEASES, LOGS, PODS
from actors.settings import Settings

CONFIG = Path(__file__).parents[3] / "config"
CLAIM: Any = {"name": "scratch", "mount_path": "/scratch", "size": "1Gi"}
RESOURCES = {(resource.group, resource.plural): resource for resource in (PODS, LEASES, CLAIMS, EVENTS, LOGS)}

pytestmark = pytest.mark.usefixtures("clean_environment")


def rights(text: str) -> list[Right]:
    """What a Role in YAML grants."""
    (role,) = (document for document in yaml.safe_load_all(text) if document["kind"] == "Role")
    return [
        Right(verb, RESOURCES[group, plural])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
        for verb in rule["verbs"]
    ]


def fleet(folder: Path, text: str) -> str:
    file = folder / "fleet.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_the_reference_and_the_rights_are_the_files_of_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    for option, file in (
        ("--reference", "reference.toml"),
        ("--rbac", "rbac.yaml"),
        ("--rbac-operator", "rbac-operator.yaml"),
    ):
        assert execute(SimpleQueue(), ["config", option]) == 0
        assert capsys.readouterr().out == (CONFIG / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"app_id": "etl"},
        {"app_id": "etl", "backend": {"lease": False}},
        {"backend": {"lease": True}},
        {"executor": {"kill_label": "a=b"}},
        {"driver_pod_name": "driver"},
        {"app_id": "etl", "driver_pod_name": "driver", "profiles": {"big": {"claims": [CLAIM]}}},
        {"driver_pod_name": "driver", "executor": {"claims": [CLAIM], "own_claims": False}},
    ],
)
def test_the_role_for_settings_grants_what_they_use_and_nothing_else(values: dict[str, Any]) -> None:
    settings = Settings(**values)
    granted = rights(render_rbac(settings))
    assert set(granted) == set(used(settings))
    assert len(granted) == len(set(granted))


def test_the_role_for_one_fleet_is_for_its_lease_only_but_for_its_creation() -> None:
    (role,) = (each for each in yaml.safe_load_all(render_rbac(Settings(app_id="etl"))) if each["kind"] == "Role")
    rules = [(rule["verbs"], rule.get("resourceNames")) for rule in role["rules"] if rule["resources"] == ["leases"]]
    assert rules == [(["get", "patch"], ["executor-pods-etl"]), (["create"], None)]


def test_the_role_for_no_settings_grants_what_any_use() -> None:
    everything = Settings(app_id="etl", driver_pod_name="driver", executor={"claims": [CLAIM]})
    assert set(rights(render_rbac())) == set(used(everything))


def test_the_rights_of_a_file_are_printed_with_the_namespace_to_apply_them_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(SimpleQueue(), ["config", "--rbac", "--config", fleet(tmp_path, 'namespace = "jobs"\n')]) == 0
    printed = capsys.readouterr().out
    assert printed == render_rbac(Settings(namespace="jobs"))
    assert "kubectl apply -n jobs -f -" in printed


def test_a_good_file_is_ok_with_its_profiles_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pod.yaml").write_text("spec: {containers: [{name: executor, image: i}]}")
    file = fleet(tmp_path, '[executor]\ninstances = 8\npod_template = "pod.yaml"\n[profiles.gpu]\ninstances = 1\n')
    assert execute(SimpleQueue(), ["config", "--check", file]) == 0
    assert capsys.readouterr() == (f"{file}: ok: default 8, gpu 1\n", "")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "[executor]\ninstances = -1\nvolumes = []\n[allocaton]\nbatch_size = 1\n",
            [
                "executor.instances = -1: must be at least 0",
                (
                    "executor.volumes: there is no such setting; "
                    "a pod's other fields are set in pod_template or template_patch"
                ),
                "allocaton: there is no such setting; did you mean the table [allocation]?",
            ],
        ),
        (
            "",
            [
                (
                    "executor.image: is not set, and there is no executor.pod_template that names one; "
                    "local=True and --local need none"
                ),
            ],
        ),
        (
            '[executor]\nimage = "i"\ntemplate_patch = { kind = "Job", spec = { restartPolicy = "Always" } }\n',
            [
                "executor.template_patch: kind is 'Job', it must be 'Pod'",
                (
                    "executor.template_patch: spec.restartPolicy is 'Always', it must be 'Never': "
                    "an executor that ended is replaced under a new id"
                ),
            ],
        ),
        ("[executor\n", ["is not TOML: Expected ']' at the end of a table declaration (at line 1, column 10)"]),
    ],
)
def test_every_problem_of_a_file_has_its_line_and_the_exit_code_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problems: list[str]
) -> None:
    file = fleet(tmp_path, text)
    assert execute(SimpleQueue(), ["config", "--check", file]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"executor-pods: {file}: {problem}" for problem in problems]
