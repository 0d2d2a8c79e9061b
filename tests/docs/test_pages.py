"""The pages agree with the code: tables, names, examples of output, links."""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import actors
from actors import Fleet, errors, testing
from actors.cli.arguments import execute
from actors.cli.events import Event, describe, stopped, stopping, to_json
from actors.cli.tally import Tally
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendStarted,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
    FromDriver,
    ToDriver,
)
from actors.page.documents import schema
from actors.pods.loss import CAUSED_BY_APP, LossKind, LossReason
from actors.pods.pod import ObjectMeta, Pod, PodSpec, PodStatus
from actors.recorder.occurrences import Reason
from actors.settings import ExecutorValues, Settings, SettingsValues
from actors.settings.model import setting_names
from actors.settings.reference import attribute_docstrings
from actors.settings.types import Group
from tests.docs.literals import literals
from tests.docs.pages import PAGES, REPOSITORY, ROOT, blocks, read
from tests.lowest import floors

NOW = datetime(2026, 3, 1, 9, 30, 15, 250_000, tzinfo=UTC)
POD = Pod(
    metadata=ObjectMeta(name="etl-exec-3", uid="uid-3"),
    spec=PodSpec(node_name="node-a"),
    status=PodStatus(),
    ip="10.1.2.3",
)
PLACE: dict[str, Any] = {"profile": "default", "node": "node-a", "ip": "10.1.2.3"}
PODS = {3: "etl-exec-3", 4: "etl-exec-4"}
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", FENCE.sub("", read(page)))
    folder = (ROOT / page).parent
    lost = []
    for link in links:
        of_the_repository = re.match(rf"{REPOSITORY}/(?:blob|tree)/main/(.+)", link)
        if of_the_repository is not None:
            path: Path | None = ROOT / of_the_repository[1]
        else:
            path = None if re.match(r"https?:", link) else folder / link
        if path is not None and not path.exists():
            lost.append(link)
    assert lost == []


def test_what_pypi_shows_is_in_the_same_repository() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert {url for url in urls.values() if not url.startswith(REPOSITORY)} == set()


def test_every_dependency_and_its_extra_is_in_the_table_of_what_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"": project["dependencies"]} | {
        extra: project["optional-dependencies"][extra] for extra in ("cli", "local", "metrics", "page", "otel")
    }
    assert project["optional-dependencies"]["all"] == ["executor-pods[cli,local,metrics,page,otel]"]
    rows = re.findall(r"^\| `([\w-]+)` \| `?(\w*)`? ?\| .+ \|$", read("docs/reference/install.md"), re.MULTILINE)
    assert rows == [
        (name, extra)
        for extra, specifiers in wanted.items()
        for name in sorted(re.split(r"[><=]", each)[0] for each in specifiers)
    ]
    assert {name for name, _ in rows} <= set(floors()), "each has a lowest version, which is tested"


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_that_a_page_names_exist(page: str) -> None:
    names = set(setting_names())
    groups = {name.partition(".")[0] for name in names if "." in name}
    named = {
        name for name in re.findall(r"`([a-z_]+\.[a-z_]+)(?:`| =)", read(page)) if name.partition(".")[0] in groups
    }
    assert named - names - {"executor.pods"} == set()


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("docs/explanation/")])
def test_the_messages_that_a_page_names_are_public(page: str) -> None:
    text = FENCE.sub("", read(page))
    if page.startswith("docs/how-to/from-"):  # the left columns have the names of others
        text = re.sub(r"^\| .*? \|", "", text, flags=re.MULTILINE)
    named = set(re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]+)\b", text))
    of_others = {
        *dir(builtins),
        "ActorDeadError",
        "BackendDoor",
        "ContainerStatusUnknown",
        "ApiException",
        "DaskTaskRunner",
        "DeadlineExceeded",
        "ErrImagePull",
        "ExecutionProvider",
        "FailedPreStopHook",
        "ImagePullBackOff",
        "KubeCluster",
        "KubernetesPodOperator",
        "KubernetesExecutorBackend",
        "ListenerThread",
        "LeasedExecutor",
        "LocalCluster",
        "NotSupported",
        "PersistentVolumeClaim",
        "PodCluster",
        "BatchSpanProcessor",
        "SharedInformer",
        "StartError",
    }
    of_events = set(get_args(Reason))
    assert named - set(actors.__all__) - set(errors.__all__) - set(testing.__all__) - of_events - of_others == set()


def test_the_page_lists_the_reasons_of_kubernetes_events() -> None:
    section = read("docs/how-to/monitoring.md").partition("## Kubernetes Events")[2].partition("\n## ")[0]
    rows = [line.partition("| ")[2].partition(" |")[0] for line in section.splitlines() if line.startswith("| `")]
    assert [reason for row in rows for reason in re.findall(r"`(\w+)`", row)] == list(get_args(Reason))


def test_every_public_name_is_in_the_reference() -> None:
    pages = read("docs/reference/api.md") + read("docs/reference/messages.md")
    by_name = set(re.findall(r"actors\.(\w+)", pages))
    by_union = {kind.__name__ for kind in (*get_args(FromDriver), *get_args(ToDriver))}
    answers = {"Executor", "ExecutorState", "FleetExecutors", "FleetStatus", "HeldPod", "ProfileStatus", "SourceStatus"}
    assert set(actors.__all__) - by_name - by_union - answers - {"FleetChanged"} == set()


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_keywords_of_a_fleet_are_those_that_it_takes() -> None:
    section = read("docs/reference/api.md").partition("### Keywords of a fleet")[2].partition("\nA duration")[0]
    _, executor, others = section.split(":\n")
    assert re.findall(r"`(\w+)`", executor) == sorted(ExecutorValues.__annotations__)
    assert re.findall(r"`(\w+)`", others) == sorted(SettingsValues.__annotations__)


def test_the_keywords_that_replace_those_of_others_exist() -> None:
    known = {*ExecutorValues.__annotations__, *SettingsValues.__annotations__, *inspect.signature(Fleet).parameters}
    for page in ("docs/how-to/from-pod-operators-and-jobs.md", "docs/how-to/from-agent-sandboxes.md"):
        named = set(re.findall(r"`(\w+)=", read(page)))
        assert named
        assert named <= known, page


def test_spark_settings_are_translated_to_those_whose_docstrings_name_them() -> None:
    table = read("docs/how-to/from-spark.md").partition("## Settings")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`spark.+?) \| `([\w.]+)`[^|]*\|$", table, re.MULTILINE)
    settings = dict(attribute_docstrings(Settings))
    for group, field in Settings.model_fields.items():
        if isinstance(field.default, Group):
            settings |= {f"{group}.{name}": text for name, text in attribute_docstrings(type(field.default)).items()}
    translated = [(theirs, ours) for theirs, ours in rows if not ours.startswith("fleet.")]
    assert len(translated) > 20
    for theirs, ours in translated:
        names = re.findall(r"`spark[\w.<>]+`", theirs)
        assert any(name in settings[ours] for name in names), f"the docstring of {ours} names none of {names}"


def test_every_kind_of_loss_is_explained_and_whether_the_application_caused_it() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| .+ \| (yes|no) \|$", read("docs/reference/loss-kinds.md"), re.MULTILINE)
    assert rows == [(kind.name, "yes" if kind in CAUSED_BY_APP else "no") for kind in LossKind]


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("actors/page/static/words.js", r'"by-app": \[(.+)\]'),
        ("config/prometheus/alerts.yaml", r'removed_total\{kind=~"(.+?)"\}'),
        ("config/prometheus/dashboard.json", r"Only (.+) are the application's doing"),
    ],
)
def test_whoever_names_the_kinds_that_the_application_causes_names_them_all(file: str, kinds: str) -> None:
    [named] = re.findall(kinds, read(file))
    assert set(re.findall(r"[A-Z_]{2,}", named)) == CAUSED_BY_APP


def test_the_page_has_each_kind_in_one_of_its_colours() -> None:
    """One that is left out would be shown as the cluster's doing."""
    table = read("actors/page/static/words.js").partition("const LOSSES = {")[2].partition("};")[0]
    assert sorted(re.findall(r'"([A-Z_]+)"', table)) == sorted(LossKind)


COMMANDS = (
    *("run", "local", "config", "list", "status", "describe", "events", "logs", "cleanup"),
    *("scale", "retire", "kill", "hold", "resume"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_the_command_is_described(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = _options(command, capsys)
    assert options
    assert {option for option in options if option not in read("docs/reference/command.md")} == set()


def test_no_option_is_described_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    known = set().union(*(_options(command, capsys) for command in COMMANDS))
    table = "\n".join(line for line in read("docs/reference/command.md").splitlines() if line.startswith("| `-"))
    assert set(re.findall(r"--[a-z][a-z-]*", table)) <= known


def _options(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    assert execute(None, [command, "--help"]) == 0  # type: ignore[arg-type]  # help needs no inbox
    return set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)) - {"--help"}


def test_every_message_of_the_troubleshooting_table_is_one_of_the_librarys() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| .+ \| .+ \|$", read("docs/how-to/troubleshooting.md"), re.MULTILINE)
    assert rows
    assert [message for message in rows if not literals().would_print(message)] == []


def test_every_line_of_the_log_beside_one_of_sparks_exists_with_its_levels() -> None:
    section = read("docs/explanation/versus-spark.md").partition("## Log lines")[2]
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| ((?:DEBUG|INFO|WARNING)[^|]+) \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n| ") - 2, "each row but the head and its rule names a line of ours"
    lines = [found for row in rows for found in re.findall(r"([A-Z]+(?:, [A-Z]+)*) `([^`=]+:)`", row)]
    assert len(lines) >= len(rows)
    assert [line for levels, line in lines if not literals().would_log({*levels.split(", ")}, line)] == []


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_schema_of_the_page_is_that_of_its_documents() -> None:
    """Write it anew with `python -m tests.page.schema` after a change, which may only add to it."""
    assert json.loads(read("docs/reference/page.schema.json")) == schema()


# ── JSON events ──────────────────────────────────────────────────────────────────────────────────────────────────


def examples() -> list[Event]:
    """One event of each kind, with everything that it can have."""
    loss = LossReason(
        LossKind.EXITED, 3, caused_by_app=True, message="executor 3 (pod etl-exec-3) exited with exit code 3"
    )
    later = NOW + timedelta(seconds=30)
    tally = Tally()
    for message in (ExecutorRunning(3, POD), ExecutorRemoved(3, loss, **PLACE)):
        tally.apply(describe(message, NOW, PODS))
    return [
        describe(BackendStarted("etl", "batch"), NOW, PODS, Path("/tmp/kubeconfig")),
        describe(ExecutorPending(3, msgspec.structs.replace(POD, spec=None, status=None, ip=None)), NOW, PODS),
        describe(ExecutorRunning(3, POD), NOW, PODS),
        describe(ExecutorTerminating(3, later, "pod etl-exec-3 is being deleted", **PLACE), NOW, PODS),
        describe(ExecutorRemoved(3, loss, **PLACE), NOW, PODS),
        describe(ExecutorStuck(4, "ImagePullBackOff", "executor: Back-off pulling image", NOW, **PLACE), NOW, PODS),
        describe(AllocationBlocked("default", "the namespace has no room: exceeded quota", "QuotaExceeded"), NOW, PODS),
        describe(AllocationUnblocked("default"), NOW, PODS),
        describe(FleetFailed("6 executors ended too soon"), NOW, PODS),
        stopping(NOW, "time is up", 1, timedelta(seconds=4)),
        stopped(NOW, "time is up", ("etl-exec-3",), tally.sums(), str(tally)),
    ]


def test_the_examples_of_json_events_are_what_the_command_prints() -> None:
    (block,) = [block for block in blocks("docs/reference/json-events.md") if block.kind == "json"]
    assert block.text.splitlines() == [to_json(event) for event in examples()]


def test_the_keys_of_every_json_event_are_described() -> None:
    page = read("docs/reference/json-events.md")
    common = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", page, re.MULTILINE)
    rows = {
        event: re.findall(r"`(\w+)`", keys)
        for event, keys in re.findall(r"^\| `(\w+)` \|([^|]*)\| .+ \|$", page, re.MULTILINE)
    }
    assert rows == {event.event: list(event.details) for event in examples()}
    assert all(list(json.loads(to_json(event))) == [*common, *event.details] for event in examples())


# ── how it works ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_functions_that_the_explanation_names_exist() -> None:
    page = read("docs/explanation/how-it-works.md")
    rooms = {path.name for path in (ROOT / "actors").iterdir() if path.is_dir()}
    named = [name for name in re.findall(r"`([a-z_]+\.[\w.]+)`", page) if name.partition(".")[0] in rooms]
    named = [name for name in named if name not in setting_names()]
    assert len(named) > 20
    assert [name for name in named if not _exists(name)] == []


def _exists(name: str) -> bool:
    """Whether the package has this function or method: the longest part that is a module, then attributes."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (ROOT / "actors" / "/".join(parts[:end])).with_suffix(".py").exists():
            found: object = importlib.import_module(".".join(("actors", *parts[:end])))
            for attribute in parts[end:]:
                found = getattr(found, attribute, None)
            return found is not None
    return False
