"""The page of a real fleet: what `Fleet` feeds it with, and what an operator does through it."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from actors import Fleet, PrometheusMetrics
from actors.errors import SettingsError
from actors.testing import Kit
from tests.unit.page_fleet import TOKEN, page_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 30
"""Seconds that only a failure reaches."""


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with page_fleet() as made:
        yield made


def get(fleet: Fleet, path: str) -> Any:
    with urllib.request.urlopen(f"{fleet.page_url}{path}", timeout=LIMIT) as answer:
        text = answer.read()
    return json.loads(text) if path.startswith("api/") else text.decode()


def test_a_fleet_shows_what_it_knows_and_lets_an_operator_act(fleet: Fleet) -> None:
    fleet.wait_for(running=2, timeout="30s")
    fleet.register(1)
    fleet.annotate(1, stage="map", id=7)
    assert get(fleet, "readyz") == "ok"
    status = get(fleet, "api/v1/status")
    assert (status["app_id"], status["namespace"], status["started"]) == (fleet.app_id, "default", True)
    assert (status["profiles"]["default"]["target"], status["columns"]) == (2, ["stage", "id"])
    one, two = get(fleet, "api/v1/executors")["executors"]
    assert (one["state"], one["registered"], one["notes"]) == ("running", True, {"stage": "map", "id": "7"})
    assert (two["id"], two["registered"], two["pod"]) == (2, False, f"{fleet.app_id}-exec-2")
    assert 'executor_pods_executors_running_total{app_id="' in get(fleet, "metrics")
    body = json.dumps({"targets": {"default": 3}}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{fleet.page_url}api/v1/scale", body, headers)
    with urllib.request.urlopen(asked, timeout=LIMIT) as answer:
        assert json.loads(answer.read()) == {"ids": []}
    fleet.wait_for(running=3, timeout="30s")  # it knows that more are wanted by now
    fleet.kill(2)
    kinds = [event["event"] for event in get(fleet, "api/v1/events")["events"]]
    assert kinds[:4] == ["started", "running", "running", "running"]
    assert kinds.count("terminating") == 1


def test_a_page_that_cannot_be_is_refused_before_anything_starts() -> None:
    with pytest.raises(SettingsError, match="page = 'x'"):
        Fleet(image="any", page="x")
    with pytest.raises(SettingsError, match="at least 16"):
        Fleet(image="any", page=0, page_token="short")
    with pytest.raises(TypeError, match="page_token and page_hosts need page"):
        Fleet(image="any", page_token=TOKEN)
    with Kit() as kit, pytest.raises(TypeError, match="page is served in real time"):
        Fleet(image="any", page=0, system=kit.system)


def test_a_fleet_without_a_page_takes_columns_and_has_no_address() -> None:
    fleet = Fleet(image="any", metrics=PrometheusMetrics())
    assert fleet.page_url is None
    with pytest.raises(RuntimeError, match="was not entered"):
        fleet.annotate(1, stage=3)
