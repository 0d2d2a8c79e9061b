"""The exported metrics: names, tables, alerts, several fleets on one page; and the command's page."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import REGISTRY

import actors
from actors import errors
from actors.allocation.creation_block import _ADMISSION, QUOTA, CreationBlock
from actors.cli.metrics_page import MOST_CONNECTIONS, REQUEST_WITHIN, serve_metrics
from actors.errors import ApiError, SettingsError
from actors.messages import FleetStatus, ProfileStatus
from actors.messages.internal import ReplaceSnapshot, Source, UpdatePods, names
from actors.metrics.counts import FleetCounts, StoreCounts
from actors.metrics.prometheus import FAMILIES, KEPT, PrometheusMetrics
from actors.pods.loss import LossKind
from actors.pods.state import PodRules
from actors.runtime import ActorDeadError, Timeout
from actors.runtime.instruments import BOUNDS, Counter, Histogram
from actors.settings.model import Settings
from actors.store.snapshot_store import SnapshotStore
from tests.unit.builders import event, pod
from tests.unit.pages import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.runtime import Address
    from actors.testing import Kit

ROOT = Path(actors.__file__).parents[1]
TABLE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "config/prometheus/alerts.yaml").read_text(encoding="utf-8")
NAMES = {family.name: family for family in FAMILIES}
API_ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ApiError)]


class Down:
    """A fleet whose backend has ended: only its counters are left."""

    def __init__(self, kit: Kit, app_id: str = "etl", profiles: tuple[str, ...] = ("default",)) -> None:
        self.counts = FleetCounts(app_id, profiles)
        self.counts.addresses = {"backend": kit.system.address("backend")}
        self.counts.letters = kit.system.letters


def answers(status: FleetStatus | Exception) -> PrometheusMetrics:
    """A collector whose Backends all give this answer."""

    def ask(_backend: Address, _question: object) -> FleetStatus:
        if isinstance(status, Exception):
            raise status
        return status

    return PrometheusMetrics(ask=ask)


def standing(app_id: str = "etl", **profiles: ProfileStatus) -> FleetStatus:
    return FleetStatus(app_id, "batch", profiles or {"default": ProfileStatus(target=3, running=2)}, {})


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_has_the_prefix_and_its_unit(family: Any) -> None:
    assert re.fullmatch(r"executor_pods(_[a-z]+)+", family.name)
    assert family.name.endswith("_seconds") == bool({"duration", "age", "reaction"} & {*family.name.split("_")})
    assert not {"app_id", "le", "instance", "job"} & {*family.labels}
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.help[0].isupper() or family.help[0].isdigit()
    assert not family.help.endswith(".")


def test_no_name_is_there_twice_nor_part_of_what_another_one_exports() -> None:
    exported = [name for metric in PrometheusMetrics().describe() for name in (metric.name, f"{metric.name}_total")]
    assert len(exported) == len(set(exported)) == 2 * len(FAMILIES)


def test_the_table_of_the_documentation_is_what_is_exported() -> None:
    rows = re.findall(r"^\| `(executor_pods_\w+)` \| (\w+) \| (.*?) \| (.+) \|$", TABLE, re.MULTILINE)
    expected = [
        (family.name, family.kind, ", ".join(f"`{label}`" for label in family.labels), family.help)
        for family in FAMILIES
    ]
    assert rows == expected


def test_each_cause_of_blocked_creation_is_in_the_documentation() -> None:
    section = TABLE.partition("## The label `cause`")[2]
    rows = re.findall(r"^\| (`.+`) \| .+ \|$", section, re.MULTILINE)
    documented = [cause for row in rows for cause in re.findall(r"`(\w+)`", row)]
    package = ROOT / "actors"
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((package / "allocation").glob("*.py")))
    permission = (package / "lease/write_permission.py").read_text(encoding="utf-8")
    limits = re.findall(r'\b(?:CreationBlock|cls)\(\s*"(\w+)"', source)
    limits += re.findall(r'^_BY_\w+: Final = "(\w+)"', permission, re.MULTILINE)
    limits += [*QUOTA, *(cause for cause, _, _ in _ADMISSION)]
    assert {"stale", "namespace", "lease"} <= set(limits)
    refusals = {CreationBlock.of(kind("no")).cause for kind in API_ERRORS} - {"AlreadyExists", "Cancelled"}
    assert sorted(documented) == sorted({*limits, *refusals})


def test_the_dashboard_and_the_alerts_use_only_exported_metrics() -> None:
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    assert len(expressions) > 10
    expressions += [rule["expr"] for rule in rules()]
    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
    exported = {name + suffix: family for name, family in NAMES.items() for suffix in suffixes[family.kind]}
    for expression in expressions:
        assert re.search(r"\b(executor_pods|process_cpu_seconds_total)", expression)
        for name, _, selected in re.findall(r"\b(executor_pods_\w+)(\{([^}]*)\})?", expression):
            assert name in exported, expression
            for label, operator, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', selected):
                known = {*exported[name].labels, "app_id", "instance", "job"}
                assert label in known, expression
                assert value.startswith("$") or set(value.split("|")) <= VALUES[label], (operator, expression)
        assert not re.findall(r"rate\(executor_pods_\w+(?<!_total)(?<!_bucket)(?<!_sum)(?<!_count)[{\[]", expression)


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "config/prometheus/dashboard.json").read_text(encoding="utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_asks_the_chosen_source_about_the_chosen_jobs_and_fleets_only(panel: dict[str, Any]) -> None:
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert [target["refId"] for target in panel["targets"]] == list("ABCDE")[: len(panel["targets"])]
    for target in panel["targets"]:
        metrics = re.findall(r"\b(executor_pods_\w+|process_\w+)(\{[^}]*\})?", target["expr"])
        assert metrics
        for name, selected in metrics:
            assert 'job=~"$job"' in selected, name
            assert 'app_id=~"$app_id"' in selected or name.startswith("process_"), name


def test_the_variables_of_the_dashboard_are_those_that_it_uses() -> None:
    board = dashboard()
    built_in = {"__rate_interval", "__range", "__all"}
    inputs = {each["name"] for each in board["__inputs"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board))) - built_in - inputs
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "job", "app_id"]
    assert used == {"datasource", "job", "app_id"}


def test_who_imports_the_dashboard_is_asked_for_a_data_source_and_replaces_the_one_that_was_imported_before() -> None:
    board = dashboard()
    (asked,) = board["__inputs"]
    source = board["templating"]["list"][0]
    assert (asked["type"], asked["pluginId"]) == (source["type"], source["query"]) == ("datasource", "prometheus")
    assert source["current"]["value"] == f"${{{asked['name']}}}"
    assert board["uid"] == "executor-pods"
    required = {each["id"] for each in board["__requires"] if each["type"] == "panel"}
    assert required == {panel["type"] for panel in panels()}


def test_the_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    board = dashboard()["panels"]
    assert len({panel["id"] for panel in board}) == len(board)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in board)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23


def test_the_dashboard_begins_with_what_is_wanted_what_runs_what_blocks_and_what_was_lost() -> None:
    titles = [panel["title"] for panel in panels()[:3]]
    assert titles == ["Wanted against running now", "Blocked by", "Losses by kind"]


VALUES: dict[str, set[str]] = {
    "state": {"requested", "pending", "running", "terminating"},
    "source": {source.value for source in Source},
    "kind": {kind.name for kind in LossKind},
    "cause": {"Hung", "lease", *errors.__all__},
    "result": {"ok", "applied", "dropped", *errors.__all__},
    "operation": {"watch", "create", "list"},
    "actor": {names.POOL, "driver", "backend"},
}


# ── alerts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_waits_names_its_fleet_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"[1-9][0-9]*[mh]", rule["for"])
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert "{{ $labels.app_id }}" in rule["annotations"]["summary"]
    assert len(rule["annotations"]["description"].split()) >= 10
    asked = {label for name in re.findall(r"executor_pods_\w+", rule["expr"]) for label in _labels(name)}
    said = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"] + rule["annotations"]["description"])
    dropped = set(re.findall(r"without \((\w+)\)", rule["expr"]))
    assert {*said} <= (asked | {"app_id"}) - dropped


def _labels(name: str) -> tuple[str, ...]:
    return NAMES[re.sub(r"_(bucket|sum|count)$", "", name) if name not in NAMES else name].labels


# ── a page ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_several_fleets_share_one_page_that_prometheus_can_read(kit: Kit) -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry, ask=lambda _backend, _question: standing())
    for app_id, count in (("etl", 3), ("web", 5)):
        fleet = Down(kit, app_id).counts
        fleet.backend.requested.add("default", by=count)
        fleet.backend.reaction.observe(0.02)
        fleet.api.start("create")
        fleet.api.end("create", "ok", 0.2)
        metrics.add(fleet)
    text = generate_latest(registry).decode()
    read = [family.name for family in text_string_to_metric_families(text)]
    assert len(read) == len(set(read)) == len(FAMILIES), "each name once, with the samples of all"
    assert Page(metrics, "etl").value("executor_pods_executors_requested_total", profile="default") == 3
    assert Page(metrics, "web").value("executor_pods_executors_requested_total", profile="default") == 5


def test_the_backends_status_is_exported_by_profile(kit: Kit) -> None:
    busy = ProfileStatus(
        target=9, requested=1, pending=2, running=3, terminating=4, registered=2, start_failures=5,
        blocked="the namespace has no room: pods=9", blocked_by="QuotaExceeded",
    )  # fmt: skip
    metrics = answers(standing(default=ProfileStatus(target=1, running=1), gpu=busy))
    metrics.add(Down(kit, profiles=("default", "gpu")).counts)
    page = Page(metrics)
    assert page.value("executor_pods_target_executors", profile="gpu") == 9
    assert [page.value("executor_pods_executors", profile="gpu", state=state) for state in STATES] == [1, 2, 3, 4]
    assert page.value("executor_pods_executors", profile="default", state="running") == 1
    assert page.value("executor_pods_registered_executors", profile="gpu") == 2
    assert page.value("executor_pods_start_failures", profile="gpu") == 5
    assert page.of("executor_pods_allocation_blocked") == [({"profile": "gpu", "cause": "QuotaExceeded"}, 1)]


STATES = ("requested", "pending", "running", "terminating")


@pytest.mark.parametrize("error", [ActorDeadError("gone"), Timeout("busy"), errors.ActorCrashed("it died")])
def test_a_backend_that_does_not_answer_is_down_and_keeps_its_counters(error: Exception, kit: Kit) -> None:
    metrics = answers(error)
    fleet = Down(kit).counts
    fleet.backend.requested.add("default")
    metrics.add(fleet)
    page = Page(metrics)
    assert page.value("executor_pods_up") == 0
    assert page.value("executor_pods_executors_requested_total", profile="default") == 1
    assert page.of("executor_pods_executors") == page.of("executor_pods_may_write") == []


def test_registering_asks_no_backend_and_is_refused_a_second_time(kit: Kit) -> None:
    registry = CollectorRegistry()
    metrics = answers(AssertionError("asked"))
    metrics.add(Down(kit).counts)
    registry.register(metrics)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        PrometheusMetrics(registry)


def test_nothing_is_registered_without_a_request() -> None:
    PrometheusMetrics()
    assert not [name for name in REGISTRY._names_to_collectors if name.startswith("executor_pods")]


def test_the_next_backend_of_an_app_id_replaces_the_one_before(kit: Kit) -> None:
    metrics = answers(standing())
    for count in (7, 1):
        fleet = Down(kit).counts
        fleet.backend.requested.add("default", by=count)
        metrics.add(fleet)
    assert Page(metrics).value("executor_pods_executors_requested_total", profile="default") == 1
    metrics.forget("etl")
    metrics.forget("etl")
    assert not Page(metrics).names


def test_a_process_that_starts_fleet_after_fleet_keeps_the_last_ended_and_all_running_ones(kit: Kit) -> None:
    metrics = answers(standing())
    living = Down(kit, "living").counts
    living.addresses = {"backend": kit.probe("backend").address}
    metrics.add(living)
    for number in range(100):
        metrics.add(Down(kit, f"fleet-{number}").counts)
    shown = [labels["app_id"] for labels in _app_ids(metrics)]
    assert shown == ["living", *(f"fleet-{number}" for number in range(100 - KEPT, 100))]


def _app_ids(metrics: PrometheusMetrics) -> Iterator[dict[str, str]]:
    (up,) = (metric for metric in metrics.collect() if metric.name == "executor_pods_up")
    return (sample.labels for sample in up.samples)


def test_how_many_series_a_fleet_has_is_bounded_by_profiles_and_kinds(kit: Kit) -> None:
    fleet = Down(kit, profiles=("default", "gpu")).counts
    for operation in ("list", "watch", "get", "create", "delete", "delete_collection", "patch"):
        for kind in API_ERRORS:
            fleet.api.start(operation)
            fleet.api.end(operation, kind.__name__, 1.0)
    metrics = answers(standing())
    metrics.add(fleet)
    assert sum(len(metric.samples) for metric in metrics.collect()) < 400


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_counter_counts_by_labels_and_begins_with_the_known_ones() -> None:
    tally = Counter(("a",), ("b",))
    tally.add("b")
    before = tally.read()
    tally.add("b", by=2)
    tally.add("c")
    assert before == {("a",): 0, ("b",): 1}
    assert tally.read() == {("a",): 0, ("b",): 3, ("c",): 1}


def test_a_histogram_counts_each_in_every_bucket_from_its_own_on() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, 0.3, 1000.0):
        histogram.observe(seconds)
    reached, total = histogram.read()
    assert reached[:2] == (2, 3), "a bound belongs to its bucket"
    assert reached[BOUNDS.index(0.25)] == 3
    assert reached[BOUNDS.index(0.5)] == 4
    assert reached[-2:] == (4, 5)
    assert total == pytest.approx(1000.302, abs=0.001)
    assert list(BOUNDS) == sorted(set(BOUNDS))


def test_the_store_counts_events_and_reads_of_which_a_bookmark_is_one(kit: Kit) -> None:
    counts = StoreCounts()
    store = kit.spawn(
        lambda context: SnapshotStore(
            context,
            settings=Settings(app_id="app"),
            rules=PodRules(),
            watch_source=kit.probe("watch-source").address,
            poll_source=kit.probe("poll-source").address,
            counts=counts,
        ),
        name="store",
    )
    store.tell(ReplaceSnapshot((pod(1, version=1),), "1", kit.clock.monotonic(), consistent=True, stream=1))
    events = tuple(event("ADDED", pod(number, version=number + 1)) for number in (2, 3, 4))
    store.tell(UpdatePods(events, "5", 1))
    store.tell(UpdatePods((), "9", 1))
    kit.settle()
    assert (counts.reads, counts.events) == (2, 3)


# ── the command's page ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_is_served_until_the_context_ends_with_the_process_own_metrics(kit: Kit) -> None:
    with serve_metrics("127.0.0.1", 0) as (metrics, url):
        metrics.add(Down(kit).counts)
        with urlopen(url, timeout=60) as response:
            page = response.read().decode()
        assert url.startswith("http://127.0.0.1:")
        assert 'executor_pods_up{app_id="etl"} 0.0' in page
        assert "process_resident_memory_bytes" in page
    with pytest.raises(OSError, match="refused"):
        urlopen(url, timeout=60)


def connections(stack: ExitStack, url: str, number: int) -> list[socket.socket]:
    """Open connections that send nothing."""
    split = urlsplit(url)
    return [
        stack.enter_context(socket.create_connection((split.hostname or "", split.port or 0), timeout=60))
        for _ in range(number)
    ]


def test_idle_connections_neither_lock_out_a_scrape_nor_cost_a_thread_each() -> None:
    with ExitStack() as stack:
        _, url = stack.enter_context(serve_metrics("127.0.0.1", 0))
        idle = connections(stack, url, 3 * MOST_CONNECTIONS)
        with urlopen(url, timeout=60) as response:
            assert b"process_resident_memory_bytes" in response.read()
        assert [connection.recv(1) for connection in idle[:MOST_CONNECTIONS]] == [b""] * MOST_CONNECTIONS
        pause = threading.Event()
        while sum("process_request_thread" in thread.name for thread in threading.enumerate()) > MOST_CONNECTIONS:
            pause.wait(0.01)  # those of closed connections are about to end


def test_a_request_that_does_not_end_is_cut_when_its_time_is_over(kit: Kit) -> None:
    with ExitStack() as stack:
        _, url = stack.enter_context(serve_metrics("127.0.0.1", 0, clock=kit.clock))
        idle, slow = connections(stack, url, 2)
        slow.sendall(b"GET /metrics HTTP/1.1\r\nX-A: b\r\nX-")
        with urlopen(url, timeout=60) as response:  # by now both were accepted
            response.read()
        kit.clock.move_to(kit.clock.elapsed + REQUEST_WITHIN + timedelta(seconds=1))
        assert idle.recv(1) == slow.recv(1) == b""


def test_endless_headers_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        _, url = stack.enter_context(serve_metrics("127.0.0.1", 0))
        for length in (1, 60_000, 70_000):
            (endless,) = connections(stack, url, 1)
            answer = b""
            with suppress(ConnectionError):
                endless.sendall(b"GET /metrics HTTP/1.1\r\n" + (b"X-A: " + b"b" * length + b"\r\n") * 300)
            with suppress(ConnectionError):
                answer = endless.recv(1000)
            assert answer == b"" or answer.split()[1] == b"431"
        with urlopen(url, timeout=60) as response:
            assert response.status == 200
    assert capfd.readouterr().err == ""


def test_a_request_that_breaks_the_page_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        _, url = stack.enter_context(serve_metrics("127.0.0.1", 0))
        (peer,) = connections(stack, url, 1)
        peer.sendall(b"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text; version=odd\r\n\r\n")
        assert peer.recv(100).split()[1] == b"500"
        while peer.recv(1000):
            pass
    assert capfd.readouterr().err == ""


def test_a_port_in_use_and_an_address_of_another_machine_are_errors_that_say_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = f"metrics cannot be served at 127.0.0.1 port {port}: Address already in use"
        with pytest.raises(SettingsError, match=words), serve_metrics("127.0.0.1", port):
            pass
    with pytest.raises(SettingsError, match=r"metrics cannot be served at 192\.0\.2\.1 port 0: "):
        serve_metrics("192.0.2.1", 0).__enter__()
    for no_name in ("a..b", "a" * 64):
        with pytest.raises(SettingsError, match=f"metrics cannot be served at {no_name} port 0: it is no host's name"):
            serve_metrics(no_name, 0).__enter__()
