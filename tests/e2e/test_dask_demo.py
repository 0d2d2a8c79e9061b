"""The example on Dask, as its docstring says to run it, and what it would say if something were wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

pytest.importorskip("distributed")

from actors.examples.dask_demo import Outcome, report
from tests.docs.pages import blocks
from tests.docs.shell import matches
from tests.e2e.leftovers import environment, left

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = (sys.executable, "-m", "actors.examples.dask_demo")

LIMIT: Final = 300.0
"""Seconds that only a failure takes."""


def outcome_of(executions: dict[int, list[int]], total: int) -> Outcome:
    return Outcome(total, executions, lost={1}, drained={2}, reasons={1: "executor 1 was killed; containers: one"})


def test_only_workers_that_were_lost_may_have_tasks_that_are_computed_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(outcome_of({0: [3], 1: [1, 3], 2: [2]}, total=5), tasks=3) == 0
    assert capsys.readouterr().out.splitlines() == [
        "worker 1 went: executor 1 was killed",
        "the sum of 3 squares is 5; computed again: 1 of worker 1",
        "that is right, and no task of a worker that could drain was computed again",
    ]


def test_a_task_of_a_drained_worker_that_is_computed_again_and_a_wrong_sum_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(outcome_of({0: [3], 1: [1, 2, 3], 2: [2, 3]}, total=6), tasks=3) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "the sum is 6, and should be 5",
        "tasks of worker 2, which could drain, were computed again: 2",
    ]


@pytest.mark.stress
def test_the_demo_prints_what_its_page_says(tmp_path: Path) -> None:
    done = subprocess.run(
        PROGRAM, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment(tmp_path)
    )
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    page = blocks("docs/how-to/dask.md")
    (command,) = [block for block in page if block.text == "python -m actors.examples.dask_demo\n"]
    assert matches(done.stdout, page[page.index(command) + 1].text), "docs/how-to/dask.md prints something else"
    words = [line for line in done.stdout.splitlines() if " went: " in line]
    assert len([line for line in words if "was scaled down" in line]) == 5
    for reason in ("SIGKILL", "more memory than its limit", "deleted by somebody else"):
        assert len([line for line in words if reason in line]) == 1, reason
    assert left(tmp_path) == []


@pytest.mark.stress
def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        PROGRAM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    )
    with demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "8 workers share 600 tasks of 0.4 s\n"
        assert demo.stdout.readline().startswith("90 tasks are done: ")
        demo.send_signal(signal.SIGINT)
        rest, errors = demo.communicate(timeout=LIMIT)
    assert (demo.returncode, rest, errors) == (130, "interrupted: all workers have ended\n", "")
    assert left(tmp_path) == []
