"""The example, as its docstring says to run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import actors
from actors.examples.pi import KILL_AT
from tests.docs.pages import blocks
from tests.docs.shell import matches

FOUND = 3.140739
"""Of four million points whose seeds are the tasks' numbers: whoever counts them finds the same."""


def test_pi_is_the_same_to_the_last_digit_though_executors_were_killed() -> None:
    env = os.environ | {"PYTHONPATH": str(Path(actors.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "actors.examples.pi"], capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    last = done.stdout.splitlines()[-1]
    found = re.fullmatch(r"π ≈ ([\d.]+): 200 tasks, (\d+) executors lost, (\d+) tasks repeated", last)
    assert found, last
    assert float(found[1]) == FOUND
    assert int(found[2]) == len(KILL_AT)
    assert int(found[3]) >= len(KILL_AT)
    page = blocks("docs/tutorial-actors.md")
    (command,) = [block for block in page if block.text == "python -m actors.examples.pi\n"]
    assert matches(done.stdout, page[page.index(command) + 1].text), "docs/tutorial-actors.md prints something else"
