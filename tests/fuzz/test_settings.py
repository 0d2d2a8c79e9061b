"""Settings from anywhere, and pod templates with anything in them: a `SettingsError`, or pods that can be sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.errors import SettingsError
from actors.manifests.executor_pod import ExecutorManifests, check_template
from actors.settings.loading import ENV_PREFIX
from actors.settings.model import Settings, setting_names
from actors.settings.profiles import ShapeSettings
from tests.fuzz.material import DEEP, SECRET, scalars, spoiled, tried, values

if TYPE_CHECKING:
    from pathlib import Path

ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

TEMPLATE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x", "labels": {"team": "blue"}, "annotations": {"n": "x"}, "ownerReferences": [{"uid": "u"}]},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"disk": "ssd"},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [
            {"name": "sidecar", "image": "proxy:1"},
            {
                "name": "executor",
                "image": "worker:1",
                "args": ["--hard"],
                "env": [{"name": "PASSWORD", "value": SECRET}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            },
        ],
    },
}
PATCH: dict[str, Any] = {
    "metadata": {"labels": {"team": None}, "$patch": "merge"},
    "spec": {
        "$setElementOrder/containers": [{"name": "executor"}, {"name": "more"}],
        "containers": [
            {"name": "more", "image": "m", "env": [{"name": "TOKEN", "value": SECRET}]},
            {"name": "sidecar", "$patch": "delete"},
        ],
        "tolerations": [{"key": "spot"}],
        "$retainKeys": ["containers", "volumes"],
    },
}
CLAIM = {"name": "data", "mount_path": "/data", "size": "10Gi"}
RESOURCES = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
SHAPE: dict[str, Any] = {
    "image": "i",
    "command": ["work"],
    "drain_timeout": "60s",
    "drain_command": ["drain"],
    "stop_grace_period": "9s",
    "share_process_namespace": True,
    "on_oom": {"factor": 1.5, "max": "8Gi"},
    "replace": ["EVICTED"],
    "warm": 1,
    "max_executors": 2,
    "ready": "registered",
    "max_leases": 3,
    "max_age": "1h",
    "args": ["--port"],
    "working_dir": "/app",
    "env": {"PASSWORD": SECRET, "TOKEN": {"secret": "db", "key": "token", "optional": True}},
    "env_from": [{"config_map": "site", "prefix": "SITE_"}],
    "service_account": "worker",
    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    "image_pull_secrets": ["registry"],
    "priority_class": "batch",
    "node_selector": {"disk": "ssd"},
    "labels": {"team": "blue"},
    "annotations": {"note": "x"},
}
TOML = (
    'app_id = "app"\n[executor]\nimage = "i"\ninstances = 2\nkill_grace_period = "3s"\n'
    '[executor.resources]\nrequests = { cpu = "1" }\n[profiles.big]\ninstances = 1\n[backend]\nlease = true\n'
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # a value that is taken for a path names nothing here


def made_or_refused(**changes: Any) -> None:
    """Every pod and claim of these settings is JSON, and is the fleet's; or they are refused without a secret."""

    def checked() -> Settings:
        found = Settings(app_id="app", **changes)
        check_template(found)
        return found

    subject = tried(checked, SettingsError)
    if subject is None:
        return
    manifests = ExecutorManifests(subject, namespace="space")
    for profile in subject.profile_names:
        pod = manifests.pod(7, profile)
        msgspec.json.encode(pod)
        assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("app-exec-7", "space")
        assert pod["metadata"]["labels"]["executor-pods/app-id"] == "app"
        assert pod["metadata"]["labels"]["executor-pods/executor-id"] == "7"
        assert pod["spec"]["restartPolicy"] == "Never"
        msgspec.json.encode(manifests.claims(7, profile))


@given(spoiled(TEMPLATE), st.none() | spoiled(PATCH))
@example({**TEMPLATE, "spec": {"containers": [{"image": SECRET}]}}, PATCH)
@example(TEMPLATE, {"spec": {"containers": [{"image": SECRET}]}})
@example(TEMPLATE, {"spec": {"$patch": "improve", "x": SECRET}})
@example({**TEMPLATE, "spec": {**TEMPLATE["spec"], "volumes": [{"name": []}]}}, None)
@example(
    {"spec": {"containers": 5, "x": 5}},
    {"spec": {"$setElementOrder/x": [1], "x": [1], "$setElementOrder/containers": []}},
)
@example({"spec": {"containers": 5}}, {"spec": {"$setElementOrder/containers": [], "containers": [{"name": "a"}]}})
@example({"spec": {"containers": [{"name": "executor", "image": "i", "volumeMounts": [{"mountPath": {}}]}]}}, None)
def test_any_template_makes_pods_or_is_refused(template: Any, patch: Any) -> None:
    made_or_refused(executor={"pod_template": template, "template_patch": patch})


@given(
    st.sampled_from(("executor", "big")), spoiled(CLAIM), spoiled({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})
)
def test_any_claim_and_resource_makes_manifests_or_is_refused(where: str, claim: Any, resources: Any) -> None:
    given_ = {"image": "i", "claims": [claim, CLAIM], "resources": resources}
    made_or_refused(**({"executor": given_} if where == "executor" else {"profiles": {"big": given_}}))


def test_every_setting_of_a_pod_is_spoiled() -> None:
    elsewhere = {"instances", "pod_template", "template_patch", "resources", "claims"}
    assert set(SHAPE) | elsewhere == set(ShapeSettings.model_fields)
    shape: Any = {"pod_template": TEMPLATE, **SHAPE}
    check_template(Settings(app_id="app", executor=shape))


@given(spoiled(SHAPE))
def test_any_variables_labels_and_tolerations_make_manifests_or_are_refused(shape: Any) -> None:
    made_or_refused(executor={"pod_template": TEMPLATE, **(shape if isinstance(shape, dict) else {})})


@pytest.mark.parametrize(
    "text",
    [
        "&a {spec: *a}",
        "spec: &a {containers: [{name: x, image: y}], x: *a}",
        "[" * 600,
        "{a: " * 600,
        f"spec:\n  env: {{password: {SECRET}, x: [}}\n",
        f"spec: {{password: *{SECRET[:4]}}}",
        "spec: {containers: [{name: x, image: y}], activeDeadlineSeconds: 2001-99-99}",
        "spec: {containers: [{name: x, image: y}], activeDeadlineSeconds: 2001-09-09}",
        f"spec: {{containers: [{{name: x, image: y}}], activeDeadlineSeconds: {'9' * 40}}}",
        f"spec: {{containers: [{{name: x, image: y}}], activeDeadlineSeconds: {'9' * 5_000}}}",
        "spec: {containers: [{name: x, image: y}], terminationGracePeriodSeconds: .nan}",
        "? [a]\n: b",
        "!!python/object/apply:os.system ['touch ran']",
        "a: !!binary '!'",
        "\x07",
    ],
)
def test_a_file_that_is_no_plain_data_is_no_template(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(SettingsError) as refused:
        Settings(executor={"image": "i", "pod_template": tmp_path / "t.yaml"})
    assert SECRET not in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_aliases_that_stand_for_more_than_there_is_memory_are_refused(tmp_path: Path) -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    (tmp_path / "t.yaml").write_text("\n".join(["l0: &l0 [x, x]", *levels]))
    with pytest.raises(SettingsError, match="too large"):
        Settings(executor={"image": "i", "pod_template": tmp_path / "t.yaml"})


@ONE_FOLDER
@given(st.text(max_size=40), st.integers(0, len(TOML)), st.integers(0, 20))
@example("[" * 5_000, len('app_id = "app"\nx = '), 0)
@example("=" + "9" * 5_000, 3, 0)
def test_any_toml_is_settings_or_refused(tmp_path: Path, text: str, start: int, length: int) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TOML[:start] + text + TOML[start + length :], encoding="utf-8", errors="surrogatepass")
    tried(lambda: Settings.load(path), SettingsError)


@ONE_FOLDER
@given(
    st.sampled_from(
        [*setting_names(), "executor", "profiles", "backend", "profiles.a", "profiles.a.claims", "nothing"]
    ),
    values.map(json.dumps) | scalars.map(str) | st.sampled_from((DEEP.decode(), '{"a":' * 5_000, "9" * 5_000)),
)
def test_any_variable_is_a_setting_or_refused(name: str, value: str) -> None:
    variable = ENV_PREFIX + name.upper().replace(".", "__")
    with pytest.MonkeyPatch.context() as patch:
        try:
            patch.setenv(variable, value)
        except (ValueError, UnicodeEncodeError):
            return  # no environment can have it
        tried(Settings, SettingsError)


@ONE_FOLDER
@given(st.sampled_from(setting_names()), values)
def test_any_value_is_a_setting_or_refused(name: str, value: Any) -> None:
    group, _, inner = name.partition(".")
    values: dict[str, Any] = {group: {inner: value} if inner else value}
    tried(lambda: Settings(**values), SettingsError)
