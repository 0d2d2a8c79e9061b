"""Settings: defaults, sources, and how each kind of mistake is reported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actors
from actors.errors import SettingsError
from actors.kube.names import label_key_problem, label_value_problem
from actors.pods.state import PodRules
from actors.settings import AllocationSettings, ExecutorSettings, ProfileSettings, Settings
from actors.settings.durations import LONGEST, format_duration, parse_duration, parse_grace
from actors.settings.model import setting_names
from actors.settings.reference import attribute_docstrings, render_reference
from tests.unit.settings.refusals import refused

CONFIG = Path(__file__).parents[3] / "config"

pytestmark = pytest.mark.usefixtures("clean_environment")


# ── Defaults ─────────────────────────────────────────────────────────────────────────────────────────────────────

DEFAULTS = {
    "namespace": None,
    "driver_pod_name": None,
    "driver_address": None,
    "executor.warm": None,
    "executor.max_executors": None,
    "executor.ready": "running",
    "executor.max_leases": None,
    "executor.max_age": None,
    "executor.instances": 2,
    "executor.image": None,
    "executor.command": None,
    "executor.args": None,
    "executor.drain_timeout": None,
    "executor.drain_command": None,
    "executor.stop_grace_period": None,
    "executor.share_process_namespace": None,
    "executor.working_dir": None,
    "executor.env": None,
    "executor.env_from": (),
    "executor.pod_template": None,
    "executor.template_patch": None,
    "executor.resources": None,
    "executor.node_selector": None,
    "executor.tolerations": (),
    "executor.priority_class": None,
    "executor.service_account": None,
    "executor.image_pull_secrets": (),
    "executor.labels": None,
    "executor.annotations": None,
    "executor.claims": (),
    "executor.on_oom": None,
    "executor.replace": "always",
    "executor.container": "executor",
    "executor.prefix": None,
    "executor.api_polling_interval": "30s",
    "executor.polling_from_cache": False,
    "executor.event_processing_interval": "1s",
    "executor.delete_on_termination": True,
    "executor.missing_pod_detect_delta": "30s",
    "executor.check_all_containers": True,
    "executor.removed_executors_ttl": "3m",
    "executor.kill_grace_period": "5s",
    "executor.max_failures": None,
    "executor.failures_validity_interval": None,
    "executor.stuck_timeout": "5m",
    "executor.min_run_time": "10s",
    "executor.disconnect_timeout": "2m",
    "executor.terminating_timeout": "60s",
    "executor.kill_label": None,
    "executor.decommission_label": None,
    "executor.decommission_deletion_cost": None,
    "executor.owned_by": "driver",
    "executor.own_claims": True,
    "executor.reuse_claims": True,
    "executor.wait_to_reuse_claim": False,
    "allocation.batch_size": 20,
    "allocation.max_batch_size": 500,
    "allocation.batch_delay": "1s",
    "allocation.creation_timeout": "60s",
    "allocation.idle_timeout": "60s",
    "allocation.max_pending_pods": None,
    "allocation.max_pending_pods_per_profile": None,
    "allocation.max_created": None,
    "allocation.pacing": "pipelined",
    "allocation.pod_replacement_policy": "TerminatingOrFailed",
    "allocation.max_requests_in_flight": 48,
    "allocation.max_requests_per_second": None,
    "source.stale_after": "90s",
    "source.process": False,
    "source.streaming_list": False,
    "source.inactivity_timeout": "70s",
    "store.min_round_interval": "10ms",
    "backend.min_registered_ratio": 0.8,
    "backend.start_timeout": "30s",
    "backend.request_timeout": "10s",
    "backend.shutdown_timeout": None,
    "backend.hang_timeout": "30s",
    "backend.delete_on_stop": True,
    "backend.on_sigterm": "stop",
    "backend.delete_inactive_on_stop": False,
    "backend.driver_ready_timeout": "1m",
    "backend.lease": "auto",
    "backend.lease_duration": "15s",
    "backend.kubernetes_events": True,
    "api.max_retry_after": "1m",
    "api.max_answer_size": "64Mi",
    "api.max_object_size": "16Mi",
    "api.max_header_size": "64Ki",
    "api.max_pages": 1000,
    "api.max_pods": 250_000,
    "roll.interval": None,
    "roll.policy": "id",
}


def value_of(settings: Settings, name: str) -> object:
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items(), ids=DEFAULTS)
def test_each_setting_has_its_documented_default(name: str, default: object) -> None:
    expected = parse_duration(default) if isinstance(value_of(Settings(), name), timedelta) else default
    assert value_of(Settings(), name) == expected


def test_no_setting_is_left_out_of_the_table_of_defaults() -> None:
    assert set(setting_names()) == {*DEFAULTS, "app_id", "profiles"}


def test_every_setting_has_a_docstring() -> None:
    for name in setting_names():
        group, _, inner = name.rpartition(".")
        model = type(Settings.model_fields[group].default) if group else Settings
        assert attribute_docstrings(model)[inner]


def test_a_generated_app_id_is_short_a_dns_label_and_not_the_same_twice() -> None:
    first, second = Settings().app_id, Settings().app_id
    assert first.startswith("fleet-")
    assert len(first) == len("fleet-") + 6
    assert first != second


def test_each_backend_has_an_app_id_of_its_own_unless_it_was_set() -> None:
    shared = Settings()
    first, second = shared.for_one_backend(), shared.for_one_backend()
    assert len({shared.app_id, first.app_id, second.app_id}) == 3
    assert not first.app_id_given
    assert (first.uses_lease, first.pod_prefix) == (False, first.app_id)
    assert Settings(app_id="etl").for_one_backend().app_id == "etl"


@pytest.mark.parametrize(
    ("address", "pod_ip", "full"),
    [
        (None, None, None),
        (None, "10.0.0.7", "10.0.0.7"),
        (None, "fd00::7", "fd00::7"),
        (":7077", "10.0.0.7", "10.0.0.7:7077"),
        (":7077", "fd00::7", "[fd00::7]:7077"),
        ("etl-driver.batch.svc:7077", "10.0.0.7", "etl-driver.batch.svc:7077"),
        (None, "", None),
        (None, "not yet", None),
    ],
)
def test_the_drivers_address_is_its_pods_unless_it_is_set(
    monkeypatch: pytest.MonkeyPatch, address: str | None, pod_ip: str | None, full: str | None
) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    if pod_ip is not None:
        monkeypatch.setenv("POD_IP", pod_ip)
    settings = Settings(driver_address=address)
    assert settings.driver_address == address
    assert settings.for_one_backend().driver_address == full
    assert not settings.for_one_backend().app_id_given


def test_a_port_alone_needs_the_ip_of_the_drivers_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    with pytest.raises(SettingsError, match=r"driver_address = ':7077': needs .* POD_IP .*, or a host before the port"):
        Settings(driver_address=":7077").for_one_backend()


def test_failures_allowed_are_twice_the_target_and_at_least_three() -> None:
    assert [ExecutorSettings().failures_allowed(target) for target in (0, 1, 2, 10)] == [3, 3, 4, 20]
    assert ExecutorSettings(max_failures=7).failures_allowed(100) == 7


def test_a_pod_has_five_rounds_to_appear_however_long_a_round_is() -> None:
    assert AllocationSettings(batch_delay=timedelta(seconds=1)).unseen_timeout == timedelta(seconds=60)
    assert AllocationSettings(batch_delay=timedelta(minutes=1)).unseen_timeout == timedelta(minutes=5)


def test_pods_are_named_after_the_app_unless_there_is_a_prefix() -> None:
    assert Settings(app_id="etl").pod_prefix == "etl"
    assert Settings(app_id="etl", executor={"prefix": "nightly"}).pod_prefix == "nightly"


def test_pod_rules_come_from_the_executor_settings() -> None:
    settings = Settings(app_id="app", executor={"container": "worker", "check_all_containers": False})
    assert settings.pod_rules == PodRules(executor_container="worker", check_all_containers=False, app_id="app")


def test_settings_cannot_be_changed() -> None:
    settings = Settings()
    with pytest.raises(Exception, match="frozen"):
        settings.namespace = "other"
    with pytest.raises(Exception, match="frozen"):
        settings.executor.instances = 3


# ── The reference ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_reference_file_is_what_is_rendered() -> None:
    assert (CONFIG / "reference.toml").read_text(encoding="utf-8") == render_reference()


def test_the_reference_file_read_as_settings_gives_the_defaults() -> None:
    assert Settings.load(CONFIG / "reference.toml", app_id="x") == Settings(app_id="x")


def test_the_reference_file_with_all_its_examples_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "executor-pod.yaml").write_bytes((CONFIG / "executor-pod.yaml").read_bytes())
    text = (CONFIG / "reference.toml").read_text(encoding="utf-8")
    names = {name.rpartition(".")[2] for name in setting_names()}
    lines = [
        line.removeprefix("# ") if line.startswith("# [") or line.removeprefix("# ").split(" = ")[0] in names else line
        for line in text.splitlines()
    ]
    full = tmp_path / "full.toml"
    full.write_text("\n".join(lines), encoding="utf-8")
    values = tomllib.loads(full.read_text())
    given = {f"{group}.{name}" for group, inner in values.items() if isinstance(inner, dict) for name in inner}
    assert {"profiles", *(set(values) - {name.partition(".")[0] for name in given}), *given} == {
        *setting_names(),
        "profiles.large",
    }
    assert set(values["profiles"]["large"]) == set(ProfileSettings.model_fields)
    assert Settings.load(full).executor.command == ("python", "-m", "worker")


# ── Sources ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_constructor_overrides_the_environment_which_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('namespace = "file"\n[executor]\ninstances = 3\nimage = "file"\nprefix = "file"\n')
    monkeypatch.setenv("EXECUTOR_PODS_EXECUTOR__INSTANCES", "4")
    monkeypatch.setenv("EXECUTOR_PODS_EXECUTOR__IMAGE", "environment")
    settings = Settings.load(file, executor={"instances": 5})
    assert (settings.executor.instances, settings.executor.image, settings.executor.prefix) == (
        5,
        "environment",
        "file",
    )
    assert settings.namespace == "file"


def test_a_file_does_not_leak_into_later_settings(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('namespace = "file"')
    Settings.load(file)
    assert Settings().namespace is None


def test_the_environment_can_hold_every_kind_of_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    template = tmp_path / "pod.yaml"
    template.write_text("spec: {containers: [{name: executor}]}")
    for name, value in {
        "EXECUTOR_PODS_APP_ID": "etl",
        "EXECUTOR_PODS_EXECUTOR__COMMAND": '["python", "-m", "worker"]',
        "EXECUTOR_PODS_EXECUTOR__POD_TEMPLATE": str(template),
        "EXECUTOR_PODS_EXECUTOR__DELETE_ON_TERMINATION": "false",
        "executor_pods_allocation__batch_delay": "250ms",
        "EXECUTOR_PODS_BACKEND__MIN_REGISTERED_RATIO": "0.5",
        "EXECUTOR_PODS_BACKEND__LEASE": "True",
    }.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.app_id == "etl"
    assert settings.executor.command == ("python", "-m", "worker")
    assert settings.executor.pod_template == {"spec": {"containers": [{"name": "executor"}]}}
    assert settings.executor.delete_on_termination is False
    assert settings.allocation.batch_delay == timedelta(milliseconds=250)
    assert settings.backend.min_registered_ratio == 0.5
    assert settings.backend.lease is True


def test_a_wrong_value_of_the_environment_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXECUTOR_PODS_EXECUTOR__INSTANCES", "many")
    assert refused() == [
        "executor.instances = 'many': must be a whole number (from the environment: EXECUTOR_PODS_EXECUTOR__INSTANCES)"
    ]
    assert refused(executor={"instances": -1}) == ["executor.instances = -1: must be at least 0"]


def test_a_variable_that_names_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXECUTOR_PODS_EXECUTER__INSTANCES", "4")
    monkeypatch.setenv("EXECUTOR_PODS_NAMESPASE", "batch")
    assert refused() == [
        f"executer.instances: there is no such setting; did you mean executor.instances?{ORIGIN}EXECUTER__INSTANCES)",
        f"namespase: there is no such setting; did you mean namespace?{ORIGIN}NAMESPASE)",
    ]


def test_variables_of_a_kubernetes_service_of_our_name_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR"):
        monkeypatch.setenv(f"EXECUTOR_PODS_{name}", "tcp://10.0.0.1:80")
    monkeypatch.setenv("EXECUTOR_PODS_METRICS_SERVICE_HOST", "10.0.0.1")
    assert Settings().executor.instances == 2


def test_variables_of_the_commands_for_operators_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXECUTOR_PODS_ENDPOINT", "http://127.0.0.1:8080")
    monkeypatch.setenv("EXECUTOR_PODS_TOKEN_FILE", "token")
    assert Settings().executor.instances == 2


def test_a_group_as_broken_json_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXECUTOR_PODS_EXECUTOR", "{instances")
    (line,) = refused()
    assert "executor" in line
    assert "must be JSON" in line


def test_a_file_may_be_named_by_text(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text('app_id = "etl"')
    assert Settings.load(str(tmp_path / "fleet.toml")).app_id == "etl"


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml: cannot be read: No such file"):
        Settings.load(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("executor = nothing")
    with pytest.raises(SettingsError, match=r"broken\.toml: is not TOML: .*line 1"):
        Settings.load(broken)


# ── Mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────────

VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
LABEL = 'must be a label as "key=value", such as "example.com/state=leaving"'
ORIGIN = " (from the environment: EXECUTOR_PODS_"
NO_UNIT = 'has no unit: write numbers with units (ms, s, m, h, d), such as "30s", "5m" or "1h30m"'

ADDRESS = 'must be an address, such as "etl-driver.batch.svc:7077", or a port alone, such as ":7077"'
OBJECT_NAME = "must be the name of an object: lower-case letters, digits, '-' and '.', at most 253 characters"
WORDS = 'must be a list of words, such as ["python", "-m", "worker"]'
NUL = "must not have a NUL character, which no process can get"
NO_PROGRAM = "must begin with the name or path of a program, not with an empty word"

WRONG: dict[str, list[tuple[object, str | None]]] = {
    "executor.instances": [(-1, "must be at least 0"), (10**9, "must be at most 100000"), (True, "must be a number")],
    "executor.image": [
        ("a b", "must be text without spaces"),
        ("", "must be text without spaces"),
        (3, "must be text"),
        ("a\udcff", "must be Unicode text"),
        ("a\0", "must not have a NUL character"),
    ],
    "executor.command": [
        *((value, WORDS) for value in ("python -m w", [], ["sh", 7])),
        (("sh", "a\udcff"), "must be Unicode text"),
        (["sh", "a\0b"], NUL),
        (["", "a"], NO_PROGRAM),
    ],
    "executor.drain_command": [
        ("python -m drain", WORDS),
        ([""], NO_PROGRAM),
        (("", "drain"), NO_PROGRAM),
        (["dr\0ain"], NUL),
    ],
    "executor.container": [("Executor", None)],
    "executor.pod_template": [
        ("/nowhere/pod.yaml", "cannot be read: No such file or directory"),
        (7, "must be a v1 Pod as a mapping, or the path of a YAML file with one"),
        ({"spec": [{"on": {True: 1}}]}, "has the key True, which must be text; put it in quotes"),
        ({"spec": ["\ud800"]}, "has text that is not Unicode"),
        ({"\ud800": "spec"}, "has text that is not Unicode"),
    ],
    "executor.template_patch": [("[]", "must be a v1 Pod as a mapping, or the path of a YAML file with one")],
    "executor.resources": [("much", "must be a table of settings")],
    "executor.node_selector": [(["a"], "must be a map of names to values")],
    "executor.claims": [({"name": "a"}, "must be a list")],
    "executor.args": [("--port 7077", WORDS), (["--port", "\0"], NUL)],
    "executor.working_dir": [(folder, 'must be an absolute path, such as "/app"') for folder in ("app", "", "/a\0")],
    "executor.env_from": [({"secret": "db"}, "must be a list")],
    "executor.tolerations": [({"key": "spot"}, "must be a list")],
    "executor.priority_class": [("High", OBJECT_NAME)],
    "executor.service_account": [("a b", OBJECT_NAME), ("", OBJECT_NAME)],
    "executor.image_pull_secrets": [("registry", "must be a list")],
    "executor.labels": [(["a"], "must be a map of names to values")],
    "executor.annotations": [(["a"], "must be a map of names to values")],
    "executor.kill_label": [
        *((value, LABEL) for value in ("state", "=x", "a b=x", "a=x y", "a/b/c=x", f"{'a' * 64}=x")),
        ("executor-pods/inactive=true", "must not start with 'executor-pods/': such labels are set by the fleet"),
    ],
    "executor.decommission_label": [("state", LABEL)],
    "executor.decommission_deletion_cost": [
        (2**31, "must be at most 2147483647"),
        (-(2**31) - 1, "must be at least -2147483648"),
    ],
    "executor.owned_by": [("pod", "must be 'driver' or 'controller'")],
    "allocation.max_created": [(0, "must be at least 1")],
    "backend.lease": [(value, 'must be "auto", true or false') for value in ("perhaps", 1, None)],
    "backend.on_sigterm": [("leave", "must be 'stop' or 'hand-over'")],
    "backend.lease_duration": [("1500ms", "must be whole seconds, as a Lease has them")],
    "roll.policy": [("random", "must be 'id', 'age' or 'failures'")],
    "executor.prefix": [("a_b", None), ("-a", None)],
    "executor.api_polling_interval": [
        (30, NO_UNIT),
        ("30", NO_UNIT),
        ("0s", "must be longer than 0s"),
        (timedelta(seconds=-1), "must be longer than 0s"),
        ("400d", "must be at most 365d"),
        ("soon", NO_UNIT.replace("has no unit", "is not a duration")),
        ("-3s", NO_UNIT.replace("has no unit", "is not a duration")),
    ],
    "executor.delete_on_termination": [("maybe", "must be true or false")],
    "executor.max_failures": [(-1, "must be at least 0")],
    "allocation.batch_size": [
        (0, "must be at least 1"),
        (2.5, "must be a whole number"),
        ("x", "must be a whole number"),
    ],
    "allocation.pacing": [("fast", "must be 'pipelined' or 'batch'")],
    "allocation.pod_replacement_policy": [("never", "must be 'TerminatingOrFailed' or 'Failed'")],
    "allocation.max_requests_in_flight": [(257, "must be at most 256")],
    "backend.min_registered_ratio": [
        (1.1, "must be at most 1"),
        ("nan", "must be at least 0"),
        ("x", "must be a number"),
    ],
    "app_id": [("Fleet", None), ("a" * 64, None)],
    "namespace": [("a.b", None)],
    "driver_pod_name": [("A", "must be a pod's name: lower-case letters, digits, '-' and '.', at most 253 characters")],
    "driver_address": [
        ("a b", "must be text without spaces"),
        ("\ud800", "must be Unicode text"),
        ("a\0", "must not have a NUL character"),
        *((port, ADDRESS) for port in (":", ":0", ":65536", ":http", "::1", ":7077:7078")),
    ],
}
TOO_LONG = (
    f"app_id = '{'a' * 49}': must be at most 48 characters, "
    'so that pod names ("<prefix>-exec-<id>") stay DNS labels, or executor.prefix be set'
)
DNS_LABEL = "must be a DNS label: at most 63 lower-case letters, digits and '-', with a letter or digit first and last"


@pytest.mark.parametrize(
    ("name", "value", "allowed"), [(name, value, words) for name, cases in WRONG.items() for value, words in cases]
)
def test_a_wrong_value_is_refused_with_its_name_and_what_is_allowed(
    name: str, value: object, allowed: str | None
) -> None:
    group, _, inner = name.rpartition(".")
    (line,) = refused(**({group: {inner: value}} if group else {name: value}))
    assert line.startswith(f"{name} = ")
    assert line.endswith(f": {allowed or DNS_LABEL}")
    assert len(line) < 250


def test_all_problems_are_reported_at_once_one_a_line() -> None:
    lines = refused(executor={"instances": -1, "stuck_timeout": 5}, backend={"delete_on_stop": "x"}, nonsense=1)
    assert [line.split(" ")[0].rstrip(":") for line in lines] == [
        "executor.instances",
        "executor.stuck_timeout",
        "backend.delete_on_stop",
        "nonsense",
    ]


@pytest.mark.parametrize(
    ("values", "suggestion"),
    [
        ({"executor": {"instance": 3}}, "instances"),
        ({"executor": {"apiPollingInterval": "30s"}}, "api_polling_interval"),
        ({"instances": 3}, "executor.instances"),
        ({"whatever": {}}, None),
        ({"allocations": {}}, "the table [allocation]"),
        ({"allocaton": {"batch_size": 3}}, "the table [allocation]"),
        ({"executors": {"instances": 3}}, "the table [executor]"),
        ({"profile": {"gpu": {}}}, "the table [profiles]"),
        ({"executor": {"resource": {}}}, "resources"),
        ({"executor": {"nodeSelector": {}}}, "node_selector"),
        ({"executor": {"serviceAccountName": "x"}}, "service_account"),
        ({"executor": {"priorityClassName": "x"}}, "priority_class"),
        ({"executor": {"env_from": [{"secretRef": {"name": "db"}}]}}, "secret"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(values: dict[str, object], suggestion: str | None) -> None:
    (line,) = refused(**values)
    assert "there is no such setting" in line
    assert line.endswith(
        f"did you mean {suggestion}?" if suggestion else "`executor-pods config --reference` lists them all"
    )


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("PROFILE__GPU__INSTANCES", "profiles.gpu.instances"),
        ("ALLOCATON__BATCHSIZE", "allocation.batch_size"),
        ("EXECUTORS__NONSENSE", "the table [executor]"),
    ],
)
def test_a_variable_of_an_unknown_table_is_answered_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, variable: str, suggestion: str
) -> None:
    monkeypatch.setenv(f"EXECUTOR_PODS_{variable}", "4")
    (line,) = refused()
    assert f"; did you mean {suggestion}? (from the environment: " in line


@pytest.mark.parametrize("field", ["volumes", "affinity", "security_context", "initContainers", "ports", "lifecycle"])
@pytest.mark.parametrize("table", ["executor", "profiles.gpu"])
def test_a_field_of_a_pod_that_is_no_setting_is_left_to_the_template(table: str, field: str) -> None:
    shape: dict[str, Any] = {field: []}
    assert refused(**({"executor": shape} if table == "executor" else {"profiles": {"gpu": shape}})) == [
        f"{table}.{field}: there is no such setting; a pod's other fields are set in pod_template or template_patch"
    ]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"allocation": {"batch_size": 50, "max_batch_size": 20}},
            "allocation.max_batch_size = 20: must be at least batch_size (50)",
        ),
        (
            {"allocation": {"max_pending_pods": 5, "max_pending_pods_per_profile": 6}},
            "allocation.max_pending_pods_per_profile = 6: must be at most max_pending_pods (5)",
        ),
        (
            {"backend": {"request_timeout": "30s", "shutdown_timeout": "30s"}},
            "backend.request_timeout = 30s: must be below shutdown_timeout (30s)",
        ),
        (
            {"source": {"inactivity_timeout": "2m"}},
            "source.inactivity_timeout = 2m: must be at most stale_after (90s)",
        ),
        (
            {"store": {"min_round_interval": "2s"}, "allocation": {"batch_delay": "3s"}},
            "store.min_round_interval = 2s: must be at most executor.event_processing_interval (1s)",
        ),
        (
            {"app_id": "a" * 49},
            TOO_LONG,
        ),
        (
            {"allocation": {"max_created": 1}},
            "allocation.max_created = 1: must be at least what the fleet starts with: executor.instances (2)",
        ),
        (
            {"allocation": {"max_created": 5}, "profiles": {"big": {"instances": 4}, "none": {}}},
            (
                "allocation.max_created = 5: must be at least what the fleet starts with: "
                "executor.instances (2) + profiles.big.instances (4)"
            ),
        ),
        (
            {"app_id": "etl", "backend": {"lease_duration": "10s"}},
            (
                "backend.lease_duration = 10s: must be longer than backend.request_timeout (10s): "
                "a renewal that is not answered must not outlast the Lease"
            ),
        ),
        (
            {"executor": {"wait_to_reuse_claim": True, "own_claims": False}, "driver_pod_name": "driver"},
            "executor.wait_to_reuse_claim = true: needs own_claims, which is false",
        ),
        (
            {"executor": {"wait_to_reuse_claim": True, "reuse_claims": False}, "driver_pod_name": "driver"},
            "executor.wait_to_reuse_claim = true: needs reuse_claims, which is false",
        ),
        (
            {"executor": {"wait_to_reuse_claim": True}},
            "executor.wait_to_reuse_claim = true: needs driver_pod_name, the pod that owns the claims",
        ),
        (
            {"backend": {"on_sigterm": "hand-over"}},
            'backend.on_sigterm = "hand-over": needs app_id, by which the next driver finds the executors',
        ),
        (
            {"app_id": "etl", "driver_pod_name": "driver", "backend": {"on_sigterm": "hand-over"}},
            (
                'backend.on_sigterm = "hand-over": needs executor.owned_by = "controller", or no driver_pod_name: '
                "Kubernetes deletes the executors with the driver's pod that owns them"
            ),
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: dict[str, object], line: str) -> None:
    assert refused(**values) == [line]


@pytest.mark.parametrize(
    "values",
    [
        {"allocation": {"max_pending_pods": 5}},  # batches are cut to the slots that are left
        {"allocation": {"max_pending_pods": 5, "max_pending_pods_per_profile": 5}},
        {"allocation": {"max_created": 6}, "profiles": {"big": {"instances": 4}}},
        {"app_id": "etl", "backend": {"lease": False, "lease_duration": "1s"}},
        {"backend": {"lease_duration": "1s"}},
        {"executor": {"wait_to_reuse_claim": True}, "driver_pod_name": "driver"},
        {"executor": {"own_claims": False}},
        {"executor": {"owned_by": "controller"}},  # on a laptop, with the settings of the cluster
        {"app_id": "etl", "backend": {"on_sigterm": "hand-over"}},
        {
            "app_id": "etl",
            "driver_pod_name": "driver",
            "executor": {"owned_by": "controller"},
            "backend": {"on_sigterm": "hand-over"},
        },
        {"backend": {"delete_inactive_on_stop": True, "delete_on_stop": False}},  # a stop may be asked to delete
    ],
)
def test_values_that_only_look_as_if_they_contradicted_each_other_are_allowed(values: dict[str, Any]) -> None:
    Settings(**values)


@pytest.mark.parametrize(
    ("lease", "given", "used"),
    [("auto", True, True), ("auto", False, False), (True, False, True), (False, True, False)],
)
def test_a_lease_guards_an_app_id_that_was_given_unless_it_is_set_otherwise(
    *, lease: Any, given: bool, used: bool
) -> None:
    settings = Settings(app_id="etl", backend={"lease": lease}) if given else Settings(backend={"lease": lease})
    assert (settings.app_id_given, settings.uses_lease) == (given, used)


def test_an_app_id_of_the_environment_or_a_file_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('app_id = "etl"')
    assert Settings.load(file).app_id_given
    monkeypatch.setenv("EXECUTOR_PODS_APP_ID", "etl")
    assert Settings().app_id_given


@given(
    st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True),
    st.from_regex(VALUE, fullmatch=True),
)
def test_every_label_that_kubernetes_allows_can_be_a_kill_label(key: str, value: str) -> None:
    for label in (f"{key}={value}", f"example.com/{key}={value}"):
        assert Settings(executor={"kill_label": label}).executor.kill_label == label


@given(st.text(max_size=70))
def test_a_label_is_either_refused_or_has_a_key_and_a_value_that_kubernetes_allows(text: str) -> None:
    try:
        label = ExecutorSettings(kill_label=text).kill_label
    except SettingsError:
        return
    assert label is not None
    key, _, value = label.partition("=")
    assert label_key_problem(key) is None
    assert label_value_problem(value) is None


def test_a_long_app_id_is_allowed_with_a_short_prefix() -> None:
    assert Settings(app_id="a" * 63, executor={"prefix": "a"}).pod_prefix == "a"


def test_a_group_of_its_own_raises_the_same_error() -> None:
    with pytest.raises(SettingsError, match=r"^instances = -1: must be at least 0$"):
        ExecutorSettings(instances=-1)


def test_a_template_is_found_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("spec: {containers: [{name: executor}]}")
    file = tmp_path / "fleet.toml"
    file.write_text('[executor]\npod_template = "pod.yaml"')
    assert Settings.load(file).executor.pod_template == {"spec": {"containers": [{"name": "executor"}]}}


@pytest.mark.parametrize("text", ["- a\n- b", "a: [", "a: 1\n---\nb: 2", "just words"])
def test_a_template_that_is_no_yaml_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    (line,) = refused(executor={"pod_template": file})
    assert line.startswith("executor.pod_template = ")
    assert "is not one YAML document" in line or "must be a v1 Pod as a mapping" in line


def test_a_template_is_never_repeated_in_an_error() -> None:
    assert "secret" not in "".join(refused(executor={"pod_template": {"env": "secret"}, "instances": -1}))


# ── Durations ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1.5s", 1.5), ("2d", 172800)]
)
def test_durations_read_as_written(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@given(st.integers(min_value=0, max_value=int(LONGEST.total_seconds()) * 1000))
def test_a_formatted_duration_reads_back_as_itself(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_grace(format_duration(duration)) == duration


@pytest.mark.parametrize("nothing", ["0s", "0ms", "0h0m", timedelta()])
def test_only_a_grace_may_be_zero_in_whatever_unit(nothing: object) -> None:
    assert parse_grace(nothing) == timedelta()
    with pytest.raises(ValueError, match="must be longer than 0s"):
        parse_duration(nothing)
    with pytest.raises(ValueError, match="must not be negative"):
        parse_grace(timedelta(seconds=-1))


# ── The package ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, actors; print(*(m for m in ('pydantic', 'kubernetes', 'rich', 'aiohttp') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_public_name_can_be_imported() -> None:
    for name in actors.__all__:
        assert name in {"Suspected", "Victims"} or getattr(actors, name).__name__ == name  # a type alias has no name
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = actors.nonsense  # type: ignore[attr-defined]  # type checkers know the names, too
