"""Profiles, resources and claims: which values they allow, and what a profile inherits from `executor`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import SettingsError
from actors.kube.names import label_value_problem
from actors.kube.quantities import parse_quantity
from actors.pods.loss_kind import LossKind
from actors.settings import (
    AllocationSettings,
    ClaimSettings,
    EnvFromSettings,
    EnvVarSettings,
    ProfileSettings,
    ResourceSettings,
    Settings,
    TolerationSettings,
)
from actors.settings.pod_parts import resource_problems
from actors.settings.profiles import ShapeSettings
from tests.unit.settings.refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

DATA: dict[str, Any] = {"name": "data", "mount_path": "/data", "size": "10Gi"}

pytestmark = pytest.mark.usefixtures("clean_environment")


# ── profiles ─────────────────────────────────────────────────────────────────────────────────────────────────────

EVERYWHERE: Any = {
    "instances": 3,
    "warm": None,
    "max_executors": None,
    "ready": "running",
    "max_leases": 5,
    "max_age": "1h",
    "image": "worker:1",
    "command": ("work",),
    "pod_template": {"metadata": {"labels": {"team": "blue"}}},
    "template_patch": {"spec": {"priority": 1}},
    "resources": {"requests": {"cpu": "1"}},
    "node_selector": {"disk": "ssd"},
    "claims": [DATA],
    "args": ["--port", "7077"],
    "drain_timeout": "60s",
    "drain_command": ["drain", "now"],
    "stop_grace_period": "9s",
    "share_process_namespace": True,
    "working_dir": "/app",
    "env": {"LEVEL": "info", "TOKEN": {"secret": "db", "key": "token"}},
    "env_from": [{"secret": "db"}],
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "priority_class": "batch",
    "service_account": "worker",
    "image_pull_secrets": ["registry"],
    "labels": {"team": "blue"},
    "annotations": {"example.com/Owner": "etl"},
    "on_oom": {"factor": 1.5, "max": "8Gi"},
    "replace": "never",
}
OTHER: Any = {
    "instances": 5,
    "warm": None,
    "max_executors": None,
    "ready": "registered",
    "max_leases": None,
    "max_age": "5m",
    "image": "worker:2",
    "command": ("work", "more"),
    "pod_template": {"metadata": {"labels": {"team": "red"}}},
    "template_patch": {"spec": {"priority": 2}},
    "resources": {"limits": {"memory": "1Gi"}},
    "node_selector": {"arch": "arm"},
    "claims": [],
    "args": [],
    "drain_timeout": "5s",
    "drain_command": None,
    "stop_grace_period": None,
    "share_process_namespace": False,
    "working_dir": None,
    "env": {"LEVEL": "debug"},
    "env_from": [{"config_map": "site", "prefix": "SITE_"}],
    "tolerations": [],
    "priority_class": "high",
    "service_account": None,
    "image_pull_secrets": ["other"],
    "labels": {},
    "annotations": None,
    "on_oom": {"factor": 2, "max": "16Gi"},
    "replace": ["NODE_LOST", "EVICTED"],
}


def test_the_default_profile_is_what_executor_describes() -> None:
    settings = Settings(executor=EVERYWHERE)
    assert settings.profile("default") == ProfileSettings(**EVERYWHERE)
    assert settings.profile_names == ("default",)


@pytest.mark.parametrize("own", ShapeSettings.model_fields)
def test_a_profile_has_its_own_value_where_it_sets_one_and_that_of_executor_elsewhere(own: str) -> None:
    profiles: Any = {"big": {own: OTHER[own]}}

    settings = Settings(executor=EVERYWHERE, profiles=profiles)

    assert settings.profile("big") == ProfileSettings(**{**EVERYWHERE, "instances": 0, own: OTHER[own]})
    assert settings.profile("default") == ProfileSettings(**EVERYWHERE)


def test_a_profile_may_set_a_setting_of_executor_to_none() -> None:
    settings = Settings(executor=EVERYWHERE, profiles={"big": {"image": None, "node_selector": {}, "claims": []}})

    profile = settings.profile("big")

    assert (profile.image, profile.node_selector, profile.claims) == (None, {}, ())


def test_a_fleet_starts_with_the_warm_executors_of_a_profile_that_has_some() -> None:
    settings = Settings(executor={"warm": 4, "instances": 9}, profiles={"big": {"warm": 0}, "plain": {"instances": 3}})
    assert settings.initial_totals == {"default": 4, "big": 0, "plain": 3}
    assert settings.pool_names == ("default", "big")
    assert refused(executor={"warm": 4, "max_executors": 3}) == [
        "executor.max_executors = 3: must be at least warm (4)"
    ]


def test_each_profile_starts_with_its_own_number_of_executors() -> None:
    settings = Settings(executor={"instances": 3}, profiles={"big": {"instances": 4}, "idle": {"image": "x"}})

    assert settings.profile_names == ("default", "big", "idle")
    assert settings.initial_totals == {"default": 3, "big": 4, "idle": 0}


def test_a_profile_that_is_not_in_the_settings_does_not_exist() -> None:
    with pytest.raises(KeyError, match="big"):
        Settings().profile("big")


def test_a_profile_cannot_be_named_default_for_executor_describes_that_one() -> None:
    assert refused(profiles={"default": {"instances": 1}}) == [
        ("profiles has 'default': is what `executor` describes; the profile must have another name")
    ]


@pytest.mark.parametrize("name", ["Big", "a_b", "", "-a", "a.b", "x" * 64])
def test_a_profiles_name_is_a_dns_label(name: str) -> None:
    (line,) = refused(profiles={name: {}})
    assert "must be a DNS label" in line
    assert name[:50] in line


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True).filter(lambda name: name != "default"))
def test_every_name_of_a_profile_can_be_its_label(name: str) -> None:
    assert Settings(profiles={name: {}}).profile_names == ("default", name)
    assert label_value_problem(name) is None


def test_a_problem_of_a_profile_is_reported_with_its_name() -> None:
    assert refused(
        profiles={
            "big": {"instances": -1, "imagee": "x", "claims": [{**DATA, "size": "much"}]},
            "small": {"resources": {"requests": {"cpu": "1 core"}}},
        }
    ) == [
        "profiles.big.instances = -1: must be at least 0",
        "profiles.big.claims.0.size = 'much': must be a size, such as \"10Gi\"",
        "profiles.big.imagee: there is no such setting; did you mean image?",
        'profiles.small.resources.requests.cpu = \'1 core\': must be a quantity, such as "500m", "2" or "4Gi"',
    ]


def test_profiles_can_be_in_a_file_with_templates_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("spec: {containers: [{name: executor}]}")
    (tmp_path / "patch.yaml").write_text("spec: {priority: 7}")
    file = tmp_path / "fleet.toml"
    file.write_text(
        '[executor]\nimage = "a"\ntemplate_patch = "patch.yaml"\n'
        '[profiles.big]\npod_template = "pod.yaml"\ntemplate_patch = "patch.yaml"\n'
        'resources = { limits = { "nvidia.com/gpu" = 1 } }\n'
        '[[profiles.big.claims]]\nname = "data"\nmount_path = "/data"\nsize = "10Gi"\n'
    )

    settings = Settings.load(file)

    big = settings.profile("big")
    assert settings.executor.template_patch == {"spec": {"priority": 7}}
    assert big.pod_template == {"spec": {"containers": [{"name": "executor"}]}}
    assert big.template_patch == {"spec": {"priority": 7}}
    assert big.resources == ResourceSettings(limits={"nvidia.com/gpu": "1"})
    assert big.claims == (ClaimSettings(**DATA),)


def test_the_environment_holds_profiles_and_maps_as_json_or_one_value_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PROFILES": json.dumps({"big": {"image": "worker:2", "instances": 1}}),
        "PROFILES__BIG__INSTANCES": "4",
        "PROFILES__SMALL__NODE_SELECTOR": '{"disk": "ssd"}',
        "EXECUTOR__RESOURCES": '{"requests": {"cpu": 2}}',
        "EXECUTOR__NODE_SELECTOR": '{"arch": "arm"}',
        "EXECUTOR__CLAIMS": json.dumps([DATA]),
        "EXECUTOR__TEMPLATE_PATCH": '{"spec": {"priority": 7}}',
    }.items():
        monkeypatch.setenv(f"EXECUTOR_PODS_{name}", value)

    settings = Settings()

    assert settings.profile("big").image == "worker:2"
    assert settings.initial_totals == {"default": 2, "big": 4, "small": 0}
    assert settings.profile("small").node_selector == {"disk": "ssd"}
    big = settings.profile("big")
    assert big.resources == ResourceSettings(requests={"cpu": "2"})
    assert big.node_selector == {"arch": "arm"}
    assert big.claims == (ClaimSettings(**DATA),)
    assert big.template_patch == {"spec": {"priority": 7}}


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("PROFILES__BIG__INSTANCES", "many", "profiles.big.instances = 'many': must be a whole number"),
        ("PROFILES__BIG", "large", "profiles.big = 'large': must be a table of settings"),
        ("PROFILES", "[1]", "profiles = [1]: must be a map of names to values"),
        ("EXECUTOR__NODE_SELECTOR", "ssd", "executor.node_selector = 'ssd': must be a map of names to values"),
        ("EXECUTOR__CLAIMS", "data", "executor.claims = 'data': must be a list"),
        ("EXECUTOR__CLAIMS", '[{"name": "data", "size": "1Gi"}]', "executor.claims.0.mount_path: must be set"),
        (
            "EXECUTOR__RESOURCES",
            '{"requests": {"cpu": "x"}}',
            'executor.resources.requests.cpu = \'x\': must be a quantity, such as "500m", "2" or "4Gi"',
        ),
    ],
)
def test_a_wrong_map_of_the_environment_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str
) -> None:
    monkeypatch.setenv(f"EXECUTOR_PODS_{variable}", value)

    assert refused() == [f"{line} (from the environment: EXECUTOR_PODS_{variable})"]


def test_a_value_of_the_constructor_is_not_blamed_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXECUTOR_PODS_PROFILES__BIG__INSTANCES", "4")

    assert refused(profiles={"big": {"instances": -1}}) == ["profiles.big.instances = -1: must be at least 0"]

    monkeypatch.setenv("EXECUTOR_PODS_ALLOCATION__MAX_CREATED", "50")
    (line,) = refused(allocation=AllocationSettings(max_created=1))
    assert line.startswith("allocation.max_created = 1: ")
    assert "environment" not in line


# ── more memory ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("on_oom", "line"),
    [
        ({}, "executor.on_oom.factor, profile: one of them must be set, and not both"),
        (
            {"factor": 2, "max": "8Gi", "profile": "big"},
            "executor.on_oom.factor, profile: one of them must be set, and not both",
        ),
        ({"factor": 2}, "executor.on_oom.max: must be set with factor, and only with it"),
        ({"profile": "big", "max": "8Gi"}, "executor.on_oom.max: must be set with factor, and only with it"),
        ({"factor": 1, "max": "8Gi"}, "executor.on_oom.factor = 1: must be at least 1.1"),
        ({"factor": 2, "max": "a lot"}, "executor.on_oom.max = 'a lot': must be a size, such as \"10Gi\""),
        (
            {"profile": "huge"},
            "executor.on_oom.profile = 'huge': there is no such profile; there are default, big, bigger",
        ),
        ({"profile": "default"}, "executor.on_oom: leads back to its own profile: default → default"),
    ],
)
def test_a_way_to_more_memory_that_cannot_work_is_refused(on_oom: Any, line: str) -> None:
    assert refused(executor={"on_oom": on_oom}, profiles={"big": {}, "bigger": {}}) == [line]


def test_a_circle_of_profiles_is_refused_at_each_of_them_and_at_none_that_leads_into_it() -> None:
    big, bigger = {"on_oom": {"profile": "bigger"}}, {"on_oom": {"profile": "big"}}
    assert refused(executor={"on_oom": {"profile": "big"}}, profiles={"big": big, "bigger": bigger}) == [
        "profiles.big.on_oom: leads back to its own profile: big → bigger → big",
        "profiles.bigger.on_oom: leads back to its own profile: bigger → big → bigger",
    ]


def test_a_profile_inherits_a_factor_and_no_profile() -> None:
    factor = Settings(executor={"on_oom": {"factor": 2, "max": "8Gi"}}, profiles={"big": {}})
    assert factor.profile("big").on_oom == factor.executor.on_oom
    given = Settings(executor={"on_oom": {"profile": "big"}}, profiles={"big": {}})
    assert given.profile("big").on_oom is None
    assert given.profile("default").on_oom == given.executor.on_oom


# ── resources and node selectors ─────────────────────────────────────────────────────────────────────────────────

NAME = 'must be cpu, memory, ephemeral-storage, hugepages-<size>, or a device\'s name such as "nvidia.com/gpu"'


@pytest.mark.parametrize(
    ("resources", "line"),
    [
        ({"requests": {"gpu": 1}}, f"executor.resources.requests has 'gpu': {NAME}"),
        ({"limits": {"a b/c": 1}}, f"executor.resources.limits has 'a b/c': {NAME}"),
        ({"limits": {"hugepages-big": 1}}, f"executor.resources.limits has 'hugepages-big': {NAME}"),
        ({"limits": {"requests.a/b": 1}}, f"executor.resources.limits has 'requests.a/b': {NAME}"),
        (
            {"requests": {"memory": "-1Gi"}},
            'executor.resources.requests.memory = \'-1Gi\': must be a quantity, such as "500m", "2" or "4Gi"',
        ),
        (
            {"requests": {"cpu": True}},
            'executor.resources.requests.cpu = True: must be a quantity, such as "500m", "2" or "4Gi"',
        ),
        (
            {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}},
            "executor.resources.requests has 'cpu' = '1500m': must be at most what limits has ('1')",
        ),
        (
            {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}},
            "executor.resources.requests has 'nvidia.com/gpu' = '1': must be what limits has ('2')",
        ),
        (
            {"limits": {"nvidia.com/gpu": "500m"}},
            "executor.resources.limits has 'nvidia.com/gpu' = '500m': must be a whole number",
        ),
    ],
)
def test_resources_that_no_server_would_take_are_refused(resources: dict[str, Any], line: str) -> None:
    assert refused(executor={"resources": resources}) == [line]


@pytest.mark.parametrize(
    ("selector", "line"),
    [
        ({"a b": "x"}, "executor.node_selector has 'a b': must be a label's key: "),
        ({"disk": "x y"}, "executor.node_selector.disk = 'x y': must be a label's value: "),
        ({"disk": True}, "executor.node_selector.disk = True: must be a label's value: text "),
    ],
)
def test_node_selectors_are_labels(selector: dict[str, Any], line: str) -> None:
    (told,) = refused(executor={"node_selector": selector})
    assert told.startswith(line)


QUANTITIES = st.one_of(
    st.integers(0, 10**9),
    st.integers(0, 10**9).map(lambda number: number / 1000),
    st.builds("{}{}".format, st.integers(0, 10**6), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3"])),
)


@given(QUANTITIES)
def test_every_quantity_is_kept_as_it_was_written(quantity: Any) -> None:
    kept = ResourceSettings(requests={"cpu": quantity}).requests["cpu"]

    assert kept == str(quantity)
    assert parse_quantity(kept) == parse_quantity(quantity)


@given(st.text(max_size=8))
def test_what_is_kept_as_a_quantity_is_a_number_of_at_least_nothing(text: str) -> None:
    try:
        kept = ResourceSettings(requests={"cpu": text}).requests["cpu"]
    except SettingsError:
        number = parse_quantity(text)
        assert number is None or number < 0
    else:
        assert parse_quantity(kept) is not None


@given(QUANTITIES, QUANTITIES)
def test_a_request_and_a_limit_go_together_exactly_if_the_request_is_not_more(request: Any, limit: Any) -> None:
    wanted, most = parse_quantity(request), parse_quantity(limit)
    assert wanted is not None
    assert most is not None

    assert (not [*resource_problems({"cpu": request}, {"cpu": limit})]) == (wanted <= most)
    huge = [*resource_problems({"hugepages-2Mi": request}, {"hugepages-2Mi": limit, "cpu": 1})]
    assert (not huge) == (wanted == most)


# ── variables, tolerations, names ────────────────────────────────────────────────────────────────────────────────

VARIABLE = "must have only letters, digits, '_', '-' and '.', and no digit first"
TEXT_OR_KEY = 'must be text, or a key of an object, such as { secret = "db", key = "token" }'
ONE_SOURCE = "secret, config_map: one of them must be set, and not both"


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"1ST": "x"}, f"executor.env has '1ST': {VARIABLE}"),
        ({"A B": "x"}, f"executor.env has 'A B': {VARIABLE}"),
        ({"..A": "x"}, f"executor.env has '..A': {VARIABLE}"),
        ({"EXECUTOR_ID": "1"}, "executor.env has 'EXECUTOR_ID': is set by the fleet"),
        ({"DRIVER_ADDRESS": "x"}, "executor.env has 'DRIVER_ADDRESS': is set by the fleet"),
        ({"PIN": 4711}, f"executor.env.PIN: {TEXT_OR_KEY}"),
        ({"PIN": "47\x0011"}, f"executor.env.PIN: {TEXT_OR_KEY}"),
        ({"PIN": "47\udc8011"}, f"executor.env.PIN: {TEXT_OR_KEY}"),
        ("PIN=4711", 'executor.env: must be a map of names to values, such as { LOG_LEVEL = "info" }'),
        ({"T": {"secret": "db"}}, "executor.env.T.key: must be set"),
        ({"T": {"key": "token"}}, f"executor.env.T.{ONE_SOURCE}"),
        ({"T": {"secret": "db", "config_map": "db", "key": "k"}}, f"executor.env.T.{ONE_SOURCE}"),
        ({"T": {"secret": "DB", "key": "k"}}, "executor.env.T.secret = 'DB': must be the name of an object: "),
        ({"T": {"secret": "db", "key": "a/b"}}, "executor.env.T.key = 'a/b': must be a key of a Secret or ConfigMap: "),
        ({"T": {"secret": "db", "keys": "a"}}, "executor.env.T.key: must be set"),
    ],
)
def test_a_variable_that_no_container_could_have_is_refused_without_its_value(env: Any, line: str) -> None:
    lines = refused(executor={"env": env})
    assert lines[0].startswith(line)
    assert "4711" not in "".join(lines)


def test_variables_are_not_in_the_text_of_settings() -> None:
    template = {"spec": {"containers": [{"name": "a", "env": [{"name": "PIN", "value": "4711"}]}]}}
    settings = Settings(
        executor={"env": {"PIN": "4711"}, "pod_template": template}, profiles={"big": {"template_patch": template}}
    )
    assert "4711" not in repr(settings)
    assert "4711" not in str(settings)


@pytest.mark.parametrize(
    ("setting", "value", "line"),
    [
        ("env_from", [{}], f"executor.env_from.0.{ONE_SOURCE}"),
        ("env_from", [{"secret": "db", "prefix": "1"}], f"executor.env_from.0.prefix = '1': {VARIABLE}"),
        ("tolerations", [{"effect": "Never"}], "executor.tolerations.0.effect = 'Never': must be 'NoSchedule', "),
        ("tolerations", [{}], 'executor.tolerations.0.key: must be set, or operator be "Exists"'),
        (
            "tolerations",
            [{"key": "a", "operator": "Exists", "value": "b"}],
            "executor.tolerations.0.value = 'b': must not be set with the operator \"Exists\"",
        ),
        (
            "tolerations",
            [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}],
            'executor.tolerations.0.tolerationSeconds = 5: needs the effect "NoExecute"',
        ),
        (
            "tolerations",
            [{"operator": "Exists", "toleration_seconds": 5}],
            "executor.tolerations.0.toleration_seconds: there is no such setting; did you mean tolerationSeconds?",
        ),
        ("image_pull_secrets", ["a", "a"], "executor.image_pull_secrets: 'a' appears twice"),
        ("image_pull_secrets", ["A"], "executor.image_pull_secrets.0 = 'A': must be the name of an object: "),
        ("labels", {"executor-pods/role": "x"}, "executor.labels has 'executor-pods/role': is set by the fleet"),
        ("labels", {"app.kubernetes.io/managed-by": "x"}, "executor.labels has 'app.kubernetes.io/managed-by': is set"),
        ("labels", {"a b": "x"}, "executor.labels has 'a b': must be a label's key: "),
        ("labels", {"a": "x y"}, "executor.labels.a = 'x y': must be a label's value: "),
        ("annotations", {"a b": "x"}, "executor.annotations has 'a b': must be an annotation's key: "),
        ("annotations", {"a": 1}, "executor.annotations.a = 1: must be text"),
        (
            "annotations",
            {"a": "ä" * 2**17},
            "executor.annotations: must have at most 262144 bytes together, keys and values; has 262145",
        ),
    ],
)
def test_what_no_pod_could_have_is_refused(setting: str, value: Any, line: str) -> None:
    values: Any = {setting: value}
    (told,) = refused(executor=values)
    assert told.startswith(line)


def test_annotations_may_have_256_kib_together() -> None:
    assert Settings(executor={"annotations": {"a": "x" * (2**18 - 1)}}).executor.annotations


def test_the_environment_holds_variables_and_lists_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ENV": '{"LEVEL": "info", "TOKEN": {"secret": "db", "key": "token", "optional": true}}',
        "ENV_FROM": '[{"config_map": "site"}]',
        "ARGS": '["--port", "7077"]',
        "TOLERATIONS": '[{"operator": "Exists"}]',
        "LABELS": '{"team": "blue"}',
    }.items():
        monkeypatch.setenv(f"EXECUTOR_PODS_EXECUTOR__{name}", value)

    executor = Settings().executor

    assert executor.env == {"LEVEL": "info", "TOKEN": EnvVarSettings(secret="db", key="token", optional=True)}
    assert executor.env_from == (EnvFromSettings(config_map="site"),)
    assert executor.args == ("--port", "7077")
    assert executor.tolerations == (TolerationSettings(operator="Exists"),)
    assert executor.labels == {"team": "blue"}


def test_a_variable_for_executors_keeps_its_case_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "EXECUTOR__ENV__LOG_LEVEL": "debug",
        "executor__env__mixedCase": "4711",
        "PROFILES__BIG__ENV__TOKEN__SECRET": "db",
        "PROFILES__BIG__ENV__TOKEN__KEY": "token",
        "PROFILES__BIG__ENV__ZONE": '{"config_map": "site", "key": "zone"}',
    }.items():
        monkeypatch.setenv(f"EXECUTOR_PODS_{name}", value)
    file = tmp_path / "fleet.toml"
    file.write_text('[executor.env]\nLOG_LEVEL = "info"\nZONE = "a"\n')

    settings = Settings.load(file)

    assert settings.executor.env == {"LOG_LEVEL": "debug", "ZONE": "a", "mixedCase": "4711"}
    assert settings.profiles["big"].env == {
        "TOKEN": EnvVarSettings(secret="db", key="token"),
        "ZONE": EnvVarSettings(config_map="site", key="zone"),
    }

    monkeypatch.setenv("EXECUTOR_PODS_EXECUTOR__ENV__1ST", "x")
    monkeypatch.setenv("EXECUTOR_PODS_PROFILES__BIG__ENV__TOKEN__SECRET", "DB")
    lines = refused()
    assert lines[0] == f"executor.env has '1ST': {VARIABLE}"
    assert lines[1].endswith(" (from the environment: EXECUTOR_PODS_PROFILES__BIG__ENV__TOKEN__SECRET)")


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": "b"}', "{}", "[1]", '{"unfinished', "5", "null", '"x"', ""])
def test_a_variable_for_executors_that_is_json_and_no_reference_is_text_as_it_stands(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXECUTOR_PODS_EXECUTOR__ENV__OPTIONS", text)
    monkeypatch.setenv("EXECUTOR_PODS_PROFILES__BIG__ENV__OPTIONS", text)
    settings = Settings()
    assert settings.executor.env == settings.profiles["big"].env == {"OPTIONS": text}


# ── claims ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("claims", "line"),
    [
        ([{**DATA, "name": "Data"}], "executor.claims.0.name = 'Data': must be a DNS label: "),
        ([DATA, {**DATA, "name": "b", "mount_path": "data"}], "executor.claims.1.mount_path = 'data': must be an abso"),
        ([{**DATA, "mount_path": "/a:b"}], "executor.claims.0.mount_path = '/a:b': must be an absolute path without"),
        ([{**DATA, "size": "0"}], "executor.claims.0.size = '0': must be a size"),
        ([{**DATA, "size": True}], "executor.claims.0.size = True: must be a size"),
        ([{**DATA, "storage_class": "a b"}], "executor.claims.0.storage_class = 'a b': must be a storage class's name"),
        ([{**DATA, "access_modes": []}], "executor.claims.0.access_modes = []: must name at least one"),
        ([{**DATA, "access_modes": ["RWO"]}], "executor.claims.0.access_modes.0 = 'RWO': must be 'ReadWriteOnce', 'Re"),
        (
            [{**DATA, "access_modes": ["ReadWriteOncePod", "ReadOnlyMany"]}],
            "executor.claims.0.access_modes = ['ReadWriteOncePod', 'ReadOnlyMany']: ReadWriteOncePod must be alone",
        ),
        ([{**DATA, "sub_path": "../x"}], "executor.claims.0.sub_path = '../x': must be a relative path without '..'"),
        ([{**DATA, "sub_path": "x\0"}], r"executor.claims.0.sub_path = 'x\x00': must be a relative path without '..'"),
        (
            [{**DATA, "mount_path": "/x\0"}],
            r"executor.claims.0.mount_path = '/x\x00': must be an absolute path without",
        ),
        ([{**DATA, "sub_path": "/x"}], "executor.claims.0.sub_path = '/x': must be a relative path"),
        ([DATA, {**DATA, "mount_path": "/b"}], "executor.claims: the name 'data' appears twice"),
        ([DATA, {**DATA, "name": "b"}], "executor.claims: the mount_path '/data' appears twice"),
    ],
)
def test_a_claim_that_no_pod_could_mount_is_refused(claims: list[dict[str, Any]], line: str) -> None:
    (told,) = refused(executor={"claims": claims})
    assert told.startswith(line)


def test_a_claim_without_any_class_is_not_one_of_the_default_class() -> None:
    assert ClaimSettings(**DATA, storage_class="").storage_class == ""
    assert ClaimSettings(**DATA).storage_class is None


@pytest.mark.parametrize(
    ("given", "replaced"),
    [
        ("always", None),
        ("never", frozenset()),
        (["NODE_LOST", "EVICTED", "EVICTED"], {LossKind.EVICTED, LossKind.NODE_LOST}),
        ('["PREEMPTED"]', {LossKind.PREEMPTED}),
        ({LossKind.DELETED}, {LossKind.DELETED}),
    ],
)
def test_a_profile_replaces_all_losses_none_or_those_of_some_kinds(given: Any, replaced: object) -> None:
    assert Settings(executor={"replace": given}).replaced("default") == replaced


@pytest.mark.parametrize("given", ["sometimes", "EVICTED", [], ["EVICTED", "LOST"], True, None, 3, [3], [["EVICTED"]]])
def test_another_rule_of_replacement_is_refused(given: Any) -> None:
    (problem,) = refused(executor={"replace": given})
    allowed = ", ".join(LossKind)
    assert problem == f'executor.replace = {given!r}: must be "always", "never", or a list of loss kinds: {allowed}'
