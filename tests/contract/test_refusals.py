"""The README's list of what the embedded server does not claim to do, line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest

from tests.contract.raw import Raw
from tests.contract.test_http import PROTOBUF, message, named
from tests.contract.test_writing import pod

if TYPE_CHECKING:
    from tests.contract.clusters import EmbeddedCluster

README = Path(__file__).with_name("README.md")
ROW = re.compile(
    r"\| `(?P<method>[A-Z]+) (?P<path>[^`?]+)(\?(?P<query>[^`]+))?`"
    r"( (?P<how>as|for|of) (`(?P<media>[^`]+)`|all namespaces))? \| (?P<status>\d{3}) \|"
)
ROWS = [match for line in README.read_text().splitlines() if (match := ROW.match(line))]
REFUSALS = {405: "MethodNotAllowed", 406: "NotAcceptable", 415: "UnsupportedMediaType", 501: "NotImplemented"}


def test_every_line_of_the_table_is_understood() -> None:
    _, _, table = README.read_text().partition("| request | answer |")
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    assert len(ROWS) == len(lines) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("| ").replace("`", ""))
def test_what_it_does_not_do_it_refuses_and_nothing_has_changed(embedded: EmbeddedCluster, row: re.Match[str]) -> None:
    raw = Raw(embedded.door(), embedded.new_namespace())
    made = raw.made("pods", pod("a", node="n"))
    body: Any = {"POST": pod("b"), "PUT": made, "PATCH": {"metadata": {"labels": {"x": "y"}}}}.get(row["method"])
    if row["path"].endswith("binding"):
        body = {"kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "m"}}
    if row["method"] == "POST" and row["media"] == PROTOBUF["Content-Type"]:
        body = message("v1", "Pod", named("b"))
    before = raw.get("pods").body["items"]
    headers = {"Content-Type": "application/merge-patch+json"} if row["method"] == "PATCH" else {}
    if row["media"]:
        headers |= {{"as": "Content-Type", "for": "Accept"}[row["how"]]: row["media"]}
    path = f"/api/v1/{row['path']}" if row["how"] == "of" else row["path"]
    answer = raw.ask(row["method"], path, body, headers, dict(parse_qsl(row["query"] or "")))
    assert (answer.status, answer.body["reason"]) == (int(row["status"]), REFUSALS[int(row["status"])])
    assert raw.get("pods").body["items"] == before
