"""The default pause is a command of a shell: here shells run it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.manifests.pause import pause_of, pre_stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR = 3600
SHELLS = [["sh"], ["bash"], ["dash"], ["busybox", "sh"]]
"""`sh` is one of them, mostly."""


def command(seconds: int) -> list[str]:
    words: list[str] = pre_stop(None, seconds)["exec"]["command"]
    return words


@contextmanager
def pause(file: Path, seconds: int, shell: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the hook in this shell, in a process group of its own."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"this machine has no {shell[0]}")
    words, env = command(seconds), {**os.environ, "EXECUTOR_DRAINED_FILE": str(file)}
    assert words[0] == "sh"
    with subprocess.Popen([*shell, *words[1:]], env=env, stdout=subprocess.PIPE, process_group=0) as process:
        yield process


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_the_pause_ends_when_the_file_appears(shell: list[str], tmp_path: Path) -> None:
    file = tmp_path / "drained, with a space"
    with pause(file, HOUR, shell) as process:
        assert process.poll() is None
        file.touch()
        assert process.wait() == 0


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_the_pause_ends_when_its_time_is_over(shell: list[str], tmp_path: Path) -> None:
    with pause(tmp_path / "drained", 0, shell) as process:
        assert process.wait() == 0


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_nothing_of_the_pause_outlives_it(shell: list[str], tmp_path: Path) -> None:
    file = tmp_path / "drained"
    file.touch()
    with pause(file, HOUR, shell) as process:
        assert process.wait() == 0
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)


def test_the_default_command_says_how_long_it_takes_and_another_does_not() -> None:
    assert pause_of(command(60)) == timedelta(seconds=60)
    assert pause_of(("sh", "-c", "sleep 60")) == timedelta(0)
    assert pause_of(("bye",)) == timedelta(0)
