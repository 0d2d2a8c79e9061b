"""The commands that install, as the pages print them, in a fresh copy of the repository. They need a network."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import blocks
from tests.release.archives import checked_in, copy

if TYPE_CHECKING:
    from pathlib import Path

LONGEST = 30 * 60.0
"""Seconds for one command: the longest installs everything and runs the default suite."""

COMMANDS = [
    pytest.param(block.text, id=str(block))
    for page in ("README.md", "docs/tutorial.md", "docs/tutorial-actors.md")
    for block in blocks(page)
    if block.kind == "sh" and "pip install" in block.text
]


@pytest.mark.stress
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_installs_works_in_a_fresh_copy(command: str, tmp_path: Path) -> None:
    clone = copy(checked_in(), tmp_path / "clone")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        ["bash", "-c", command], cwd=clone, env=env, capture_output=True, text=True, timeout=LONGEST, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
