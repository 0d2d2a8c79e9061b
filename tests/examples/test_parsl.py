"""docs/examples/parsl: blocks are executors, and Parsl asks for another one when one is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.examples.programs import Example, need

if TYPE_CHECKING:
    from pathlib import Path


def test_parsl_asks_for_another_block_when_one_is_killed(tmp_path: Path) -> None:
    need("parsl")
    with Example("parsl", tmp_path) as program:
        program.wait_for("the square of 0")
        program.kill(1)
        program.wait_for("executor 1 is gone: EXITED")
        program.wait_for("executor 3 runs")
        program.finish()
