"""docs/examples/search: the result is the same, though an executor is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.examples.programs import Example

if TYPE_CHECKING:
    from pathlib import Path


def test_the_search_finds_the_same_though_an_executor_is_killed(tmp_path: Path) -> None:
    with Example("search", tmp_path) as search:
        search.wait_for("executor 2 runs")
        search.kill(2)
        printed = search.finish()
    assert "SIGKILL" in printed
    assert "executor 5 runs" in printed
