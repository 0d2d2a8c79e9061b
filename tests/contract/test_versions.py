"""Where the answers of a Kubernetes version differ from those of another: the README's table, row by row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors.local.kubelet.nodes import KUBERNETES_VERSION
from tests.contract.test_services import HEADLESS, service
from tests.contract.test_writing import pod
from tests.contract.versions import NEWEST, VERSIONS, minor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.contract.raw import Answer, Raw

README = Path(__file__).with_name("README.md")
SECTION: Final = README.read_text(encoding="utf-8").partition("## Where the versions differ\n")[2].partition("\n## ")[0]


def _table(text: str) -> list[list[str]]:
    """The cells of the rows of a table, without the line below its head."""
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"\|.*\|", text)]
    return [head, *rows]


ANSWERS, RUNS = SECTION.split("\nThe suite, run on each version")
HEAD, *LINES = _table(ANSWERS)
ROWS: Final = {request: dict(zip(HEAD[1:], answers, strict=True)) for request, *answers in LINES}
"""Of each request, the answer of each version."""


def _owned(**changes: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "d", "uid": "1"} | changes
    return pod("b", ownerReferences=[{key: value for key, value in owner.items() if value}])


REQUESTS: Final[Mapping[str, Callable[[Raw], Answer]]] = {
    "`DELETE` with a text as `gracePeriodSeconds`": lambda raw: raw.delete("pods/a", {"gracePeriodSeconds": "x"}),
    "`DELETE` with `preconditions` that are a number": lambda raw: raw.delete("pods/a", {"preconditions": 5}),
    "`DELETE` with a Pod in place of its options": lambda raw: raw.delete(
        "pods/a", {"kind": "Pod", "apiVersion": "v1"}
    ),
    "`POST` of a pod whose owner has no `apiVersion`": lambda raw: raw.post("pods", _owned(apiVersion="")),
    "`POST` of a pod whose owner has no `uid`": lambda raw: raw.post("pods", _owned(uid="")),
    "`POST` of a pod whose owner has the `apiVersion` `a/b/c`": lambda raw: raw.post(
        "pods", _owned(apiVersion="a/b/c")
    ),
    "`POST` of a pod whose owner is an Event": lambda raw: raw.post("pods", _owned(kind="Event")),
    "`POST` of the service `1a`": lambda raw: raw.post("services", service("1a", **HEADLESS)),
}
HTTP_REQUESTS: Final[Mapping[str, Callable[[Raw], Answer]]] = {
    "`DELETE` with broken JSON": lambda raw: raw.delete("pods/a", b"{"),
}


def test_the_table_has_each_request_and_each_version() -> None:
    assert list(ROWS) == [*REQUESTS, *HTTP_REQUESTS]
    assert ["request", *(minor_of(version) for version in VERSIONS)] == HEAD


def test_each_row_is_a_difference() -> None:
    assert [request for request, answers in ROWS.items() if len(set(answers.values())) == 1] == []


def test_the_runs_name_each_version_and_how_many_rows_it_answers_otherwise() -> None:
    versions, _, _, others = [
        [cell.strip() for cell in line.strip("|").split("|")][1:] for line in RUNS.splitlines()[2:]
    ]
    assert versions == list(VERSIONS)
    assert others == [
        str(sum(answers[minor_of(version)] != answers[NEWEST] for answers in ROWS.values())) for version in VERSIONS
    ]


def test_the_embedded_cluster_follows_the_newest_version() -> None:
    assert f"v{VERSIONS[-1]}" == KUBERNETES_VERSION
    assert minor_of(KUBERNETES_VERSION) == NEWEST


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda text: text.replace("`", ""))
def test_a_server_answers_as_the_table_says_of_its_version(raw: Raw, request_: str) -> None:
    raw.made("pods", pod("a"))
    assert shown(REQUESTS[request_](raw)) == ROWS[request_][raw.version]


@pytest.mark.parametrize("request_", HTTP_REQUESTS, ids=lambda text: text.replace("`", ""))
def test_a_server_answers_what_is_about_http_as_the_table_says(http: Raw, request_: str) -> None:
    http.made("pods", pod("a"))
    assert shown(HTTP_REQUESTS[request_](http)) == ROWS[request_][http.version]


def shown(answer: Answer) -> str:
    """As the table has it: the status code, the reason, and where and why a field is refused."""
    reason = answer.body.get("reason") if answer.status >= 400 else None
    causes = answer.causes if reason == "Invalid" else []
    return " ".join([str(answer.status), *([f"`{reason}`"] if reason else []), *(f"`{a}` `{b}`" for a, b in causes)])
