"""Directories of real processes: only that of one that has ended is removed by another."""

from __future__ import annotations

import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from actors.kube.auth.private_directory import private_directory

PROGRAM = """
import sys
from contextlib import ExitStack
from actors.kube.auth.private_directory import private_directory
undo = ExitStack()
print(private_directory(undo), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def start() -> tuple[subprocess.Popen[str], Path]:
    """A process, and its directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_is_private_and_goes_with_what_it_was_made_for(folder: Path) -> None:
    with ExitStack() as undo:
        directory = private_directory(undo)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == []


def test_the_directory_of_a_program_that_was_killed_is_removed_by_the_next_and_no_other(folder: Path) -> None:
    lives, its_own = start()
    killed, abandoned = start()
    (abandoned / "key").write_text("a key")
    with killed:
        killed.kill()
    linked, foreign = folder / "executor-pods-link", folder / "executor-pods-without-lock"
    linked.symlink_to(its_own)
    foreign.mkdir()
    with lives, ExitStack() as undo:
        directory = private_directory(undo)
        assert set(folder.iterdir()) == {its_own, linked, foreign, directory}
        lives.kill()
