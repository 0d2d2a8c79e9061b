"""That the benchmarks work: no test here looks at a figure's size."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import msgspec
import pytest

from actors.pods import Pod, PodRules, classify, executor_id, malformed
from tests.benchmarks import events
from tests.benchmarks.__main__ import main
from tests.benchmarks.cases import CASES, Case
from tests.benchmarks.latency import percentile
from tests.benchmarks.plot import cost_per_event
from tests.benchmarks.pods import BYTES, FIRST_VERSION, PodBytes
from tests.benchmarks.table import Result, ratio

if TYPE_CHECKING:
    from pathlib import Path

CASE = Case("how fast", "nowhere", (), (), compares="events/s")


def result(who: str, *rates: float, pods: int = 100) -> Result:
    figures = [{"events/s": rate, "cpu µs/event": 1e6 / rate} for rate in rates]
    return Result("events", who, f"{pods} pods", {"pods": pods}, figures)


def test_a_ratio_is_of_medians_and_says_how_many_times_better_ours_is() -> None:
    ours, peer = result("ours", 80.0, 100.0, 900.0), result("peer", 50.0)
    assert ratio(CASE, peer, [ours, peer]) == 2.0
    assert ratio(Case("", "", (), (), "events/s", more_is_better=False), peer, [ours, peer]) == 0.5


def test_ours_has_no_ratio_to_itself_nor_has_anyone_of_another_size() -> None:
    ours, peer = result("ours", 100.0), result("peer", 50.0, pods=200)
    assert ratio(CASE, ours, [ours, peer]) is None
    assert ratio(CASE, peer, [ours, peer]) is None


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 50) == 51.0
    assert percentile(values, 99) == 100.0
    assert percentile([7.0], 99) == 7.0


def test_the_plot_has_a_line_for_everyone_who_was_measured() -> None:
    drawn = [result(who, 1000.0 * size, pods=size) for who in ("ours", "peer") for size in (100, 1000)]
    picture = ET.fromstring(cost_per_event([*drawn, Result("events", "failed", "", {"pods": 1}, [])]))
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    words = " ".join(picture.itertext())
    assert len(lines) == 2
    assert "ours: 1 µs" in words
    assert "failed" not in words


@pytest.mark.parametrize("phase", ["Pending", "Running", "Failed"])
def test_the_pods_that_are_served_are_whole_and_of_the_size_that_is_told(phase: str) -> None:
    sent = PodBytes().whole(7, FIRST_VERSION, phase)
    pod = msgspec.json.decode(sent, type=Pod)
    assert malformed(pod) is None
    assert executor_id(pod) == 7
    assert type(classify(pod, PodRules())).__name__ == f"Pod{phase}"
    assert abs(len(sent) - BYTES) < 10


@pytest.mark.parametrize("joined", [False, True])
def test_every_event_gets_from_the_server_to_the_driver(joined: bool) -> None:
    figures = events.measure("ours", pods=20, count=100, joined=joined)
    assert figures.keys() == {"events/s", "cpu µs/event"}
    assert min(figures.values()) > 0


def test_the_command_keeps_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["inside", "--quick", "--json", str(tmp_path / "figures.json"), "--plot", str(tmp_path / "plot.svg")])
    (kept,) = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert kept["medians"] == kept["figures"][0]
    assert CASES["inside"].title in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")


def test_an_unknown_case_is_refused_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["evnets"])
    assert "evnets" in capsys.readouterr().err
