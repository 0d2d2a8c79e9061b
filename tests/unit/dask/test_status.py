"""The fleet in a notebook: a row for each worker group."""

from __future__ import annotations

import pytest

from actors.messages import ExecutorState, ProfileStatus
from tests.unit.changes import executor

pytest.importorskip("distributed")

from actors.dask.status import fleet_table


def test_a_group_says_what_its_pods_do_and_what_blocks_or_holds_it_up() -> None:
    executors = [
        executor(1),
        executor(2, ExecutorState.PENDING, reason="ErrImagePull: <main>"),
        executor(3, ExecutorState.PENDING, profile="gpu", reason="Unschedulable"),
    ]
    profiles = {"default": ProfileStatus(), "gpu": ProfileStatus(blocked="no quota")}
    table = fleet_table({"default": 2, "gpu": 4, "new": 0}, executors, {1}, profiles)
    rows = [row.split("</td><td>") for row in table.split("<tr><td>")[1:]]
    assert [row[:4] for row in rows] == [
        ["default", "2", "1", "1 pending, 1 running"],
        ["gpu", "4", "0", "1 pending"],
        ["new", "0", "0", "none"],
    ]
    assert [row[4].partition("</td>")[0] for row in rows] == ["executor 2: ErrImagePull: &lt;main&gt;", "no quota", ""]
