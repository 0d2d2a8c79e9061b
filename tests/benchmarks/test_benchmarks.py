"""The benchmarks work. No test here checks the size of a figure."""

from __future__ import annotations

import asyncio
import json
import shutil
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from actors.pods.api_pod import ApiPod
from actors.pods.pod import executor_id
from actors.pods.state import PodRules, classify, malformed
from tests.benchmarks import creation, events, real
from tests.benchmarks.__main__ import main
from tests.benchmarks.cases import CASES, Case
from tests.benchmarks.latency import percentile
from tests.benchmarks.memory import give_back, malloc_arenas, peak_resident, resident
from tests.benchmarks.must import Must, summary
from tests.benchmarks.peers.programs import built
from tests.benchmarks.plot import HEIGHT, LABEL, cost_per_event
from tests.benchmarks.pods import BYTES, FIRST_VERSION, PodBytes, name
from tests.benchmarks.profiling import counted
from tests.benchmarks.served import Served
from tests.benchmarks.table import Result, growth, ratio, shown

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

SVG: Final = "{http://www.w3.org/2000/svg}"

CASE = Case("how fast", "nowhere", (), (), compares="events/s")


def result(who: str, *rates: float, pods: int = 100) -> Result:
    figures = [{"events/s": rate, "cpu µs/event": 1e6 / rate} for rate in rates]
    return Result("events", who, f"{pods} pods", {"pods": pods}, figures)


def cells(table: Table, column: int) -> list[str]:
    return [str(cell) for cell in table.columns[column].cells]


class Everything(dict[str, float]):
    """Has every figure, with one value."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def __missing__(self, figure: str) -> float:
        return self._value


async def flushed() -> None:
    """Every watch can take more."""


def test_a_ratio_compares_medians() -> None:
    ours, peer = result("ours", 80.0, 100.0, 900.0), result("peer", 50.0)
    assert ratio(CASE, peer, [ours, peer]) == 2.0
    assert ratio(Case("", "", (), (), "events/s", more_is_better=False), peer, [ours, peer]) == 0.5


def test_ours_has_no_ratio_and_neither_has_a_contestant_of_another_size() -> None:
    ours, peer = result("ours", 100.0), result("peer", 50.0, pods=200)
    assert ratio(CASE, ours, [ours, peer]) is None
    assert ratio(CASE, peer, [ours, peer]) is None


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 50) == 51.0
    assert percentile(values, 99) == 100.0
    assert percentile([7.0], 99) == 7.0


def test_the_plot_has_a_line_for_each_contestant() -> None:
    drawn = [result(who, 1000.0 * size, pods=size) for who in ("ours", "peer") for size in (100, 1000)]
    picture = ET.fromstring(cost_per_event([*drawn, Result("events", "failed", "", {"pods": 1}, [])]))
    lines = picture.findall(f".//{SVG}polyline")
    words = " ".join(picture.itertext())
    assert len(lines) == 2
    assert "ours: 1 µs" in words
    assert "failed" not in words


def test_no_label_of_the_plot_covers_another_or_leaves_it() -> None:
    together = [result(who, 1e6 / cost) for who, cost in (("ours", 10.0), ("second", 10.1), ("third", 10.2))]
    picture = ET.fromstring(cost_per_event(together))
    heights = sorted(float(line.attrib["y"]) for line in picture.findall(f".//{SVG}g/{SVG}text"))
    assert min(later - sooner for sooner, later in pairwise(heights)) >= LABEL
    assert heights[-1] <= HEIGHT


def test_the_cost_of_an_event_is_compared_with_the_smallest_fleet() -> None:
    case = Case("", "", (), (), grows="cpu µs/event")
    small, large = result("ours", 200.0), result("ours", 100.0, pods=1000)
    others = [result("peer", 1.0, pods=10)]
    assert growth(case, large, [large, small, *others]) == 2.0
    assert growth(case, small, [large, small, *others]) is None


def test_a_promise_is_met_by_its_figure_and_never_without_one() -> None:
    def promises(unit: str, least: float | None, most: float | None) -> Must:
        return Must("rate", lambda run: run.of("events", "ours", "events/s", pods=100), unit, least, most)

    musts = [promises("", 100, None), promises("", None, 99), promises("", None, None)]
    assert cells(summary([result("ours", 100.0)], musts), 3) == ["yes", "NO", ""]
    assert cells(summary([result("peer", 100.0)], musts), 3) == ["not measured"] * 3
    assert cells(summary([], musts), 2) == ["≥ 100 ", "≤ 99 ", "the figure"]


def test_a_promised_ratio_is_of_figures_of_one_turn() -> None:
    ratio = Must("", lambda run: run.of("events", "ours", "") / run.of("events", "peer", ""), "×", most=1.5)
    ours = Result("events", "ours", "", {}, [{"": 10.0}, {"": 20.0}, {"": 90.0}])
    peer = Result("events", "peer", "", {}, [{"": 10.0}, {"": 40.0}, {"": 30.0}])
    assert cells(summary([ours, peer], [ratio]), 1) == ["1 ×"]
    assert cells(summary([ours, Result("events", "peer", "", {}, peer.figures[:1])], [ratio]), 1) == ["1 ×"]


def test_each_promise_names_figures_of_its_run() -> None:
    runs = [(name, run) for name, case in CASES.items() for run in case.runs if run.must]
    named = [Result(name, run.who, run.label, run.values, [Everything(1.0)]) for name, run in runs]
    assert "not measured" not in cells(summary(named), 3)
    for left_out in named:
        rest = [each for each in named if each is not left_out]
        assert "not measured" in cells(summary(rest), 3), f"no promise needs {left_out.case} {left_out.label}"


def test_a_row_without_figures_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(SystemExit, match="needs a folder, named by KUBEBUILDER_ASSETS, with etcd, ") as lacking:
        real.measure("ours", executors=1)
    failed = Result("real", "ours", "1 executor", {}, [], str(lacking.value))
    assert cells(shown(CASE, [failed]), 2) == [failed.lacks]


def test_a_peer_whose_toolchain_is_missing_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="needs cargo on PATH, which builds the peer in rust"):
        built("rust")


@pytest.mark.stress  # the first build takes minutes
@pytest.mark.parametrize(("who", "toolchain"), [("client-go", "go"), ("kube-rs", "cargo")])
def test_a_program_of_a_peer_hears_of_the_end_of_an_executor(who: str, toolchain: str) -> None:
    if shutil.which(toolchain) is None:
        pytest.skip(f"{toolchain} is not installed")
    assert events.measure(who, pods=20, count=100)["events/s"] > 0


def test_each_run_of_the_events_has_a_contestant() -> None:
    runs = [run for case in CASES.values() if case.module == "events" for run in (*case.runs, *case.quick)]
    assert {run.who for run in runs} <= events.CONTESTANTS.keys()


def test_a_profile_counts_by_thread_and_function() -> None:
    stacks = "thread (7): watch;run (a.py:1);read (b.py:2) 3\nthread (7): watch;run (a.py:1);read (b.py:9) 4\n"
    assert counted(stacks + "thread (8);main (c.py:5) 1\n") == {("watch", "read (b.py)"): 7, ("", "main (c.py)"): 1}


def test_a_process_has_some_mebibytes_in_some_arenas() -> None:
    give_back()
    assert 2**20 < resident() <= peak_resident()
    assert malloc_arenas() >= 1


def test_all_pages_of_a_list_have_the_version_of_the_first() -> None:
    served = Served(4, lambda _: None, starts=True)
    first = json.loads(served.page({"limit": "3"}, gzipped=True)[0])
    served.delete(4)
    token = first["metadata"]["continue"]
    rest = json.loads(served.page({"limit": "3", "continue": token}, gzipped=True)[0])
    assert [pod["metadata"]["name"] for pod in first["items"] + rest["items"]] == [
        name(number) for number in range(1, 5)
    ]
    assert rest["metadata"] == {"resourceVersion": str(FIRST_VERSION)}


def test_a_stream_has_the_requested_events_and_ends() -> None:
    sent: list[bytes] = []
    served = Served(5, sent.append, starts=True)
    last = int(asyncio.run(served.stream(100, flushed, ends=3))["last"])
    events = [json.loads(line) for line in b"".join(sent).splitlines() if line.startswith(b"{")]
    ended = [event["object"]["metadata"]["name"] for event in events if event["object"]["status"]["phase"] == "Failed"]
    assert len(events) == 104
    assert ended == [name(1), name(2), name(3), name(last)]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == list(range(FIRST_VERSION + 1, FIRST_VERSION + 105))


@pytest.mark.parametrize("who", ["ours", "bare"])
def test_all_executors_are_requested_once_by_us_and_by_the_bare_loop(who: str) -> None:
    figures = creation.measure(who, executors=20, latency=0.001)
    assert 0 < figures["requested s"] <= figures["created s"]
    assert 1 <= figures["max in flight"] <= 16


@pytest.mark.parametrize("phase", ["Pending", "Running", "Failed"])
def test_served_pods_are_complete_and_of_the_stated_size(phase: str) -> None:
    sent = PodBytes().whole(7, FIRST_VERSION, phase)
    pod = msgspec.json.decode(sent, type=ApiPod).pod()
    assert malformed(pod) is None
    assert executor_id(pod) == 7
    assert type(classify(pod, PodRules())).__name__ == f"Pod{phase}"
    assert abs(len(sent) - BYTES) < 10


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("joined", [False, True])
def test_every_event_reaches_the_driver(joined: bool, changed: bool) -> None:
    figures = events.measure("ours", pods=20, count=100, joined=joined, changed=changed, shuffled=changed)
    assert figures.keys() == {"events/s", "cpu µs/event", "of it kernel", "server µs/event"}
    assert min(figures["events/s"], figures["server µs/event"]) > 0
    assert 0 <= figures["of it kernel"] <= figures["cpu µs/event"]


def test_the_command_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["inside", "--quick", "--json", str(tmp_path / "figures.json"), "--plot", str(tmp_path / "plot.svg")])
    (kept,) = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert kept["medians"] == kept["figures"][0]
    assert CASES["inside"].title in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")


def test_an_unknown_case_is_refused_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evnets"])
    assert "evnets" in capsys.readouterr().err
