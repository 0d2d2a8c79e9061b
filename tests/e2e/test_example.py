"""The example, as its docstring says to run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import actors
from actors.examples.pi import KILL_AT, SAMPLES, TASKS
from actors.examples.pi_executor import count_inside


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
    expected = 4 * sum(count_inside(task, SAMPLES) for task in range(TASKS)) / (TASKS * SAMPLES)
    assert float(found[1]) == expected
    assert int(found[2]) == len(KILL_AT)
    assert int(found[3]) >= len(KILL_AT)
