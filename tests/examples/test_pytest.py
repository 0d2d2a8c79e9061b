"""docs/examples/pytest: each module runs on an executor, and on another one if that is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.examples.programs import Example

if TYPE_CHECKING:
    from pathlib import Path


def test_the_module_of_a_killed_executor_runs_on_another_one(tmp_path: Path) -> None:
    with Example("pytest", tmp_path) as program:
        _, executor, _, module = program.wait_for(" runs ").split()
        program.kill(int(executor))
        printed = program.finish(ours=r"executor \d+ runs|12 passed|.*100%")
    assert f"executor {executor} is gone" in printed
    assert printed.count(f"runs {module}") == 2


def test_tests_fail_whose_module_ends_each_executor(tmp_path: Path) -> None:
    example = Example("pytest", tmp_path)
    for module in (example.folder / "tests").iterdir():
        module.unlink()
    (example.folder / "tests" / "test_ends.py").write_text("import os\n\ndef test_ends():\n    os._exit(1)\n")
    with example as program:
        program.wait_for("the application lost its executor 2 times (limit = 2)")
        program.wait_for("1 failed in")
