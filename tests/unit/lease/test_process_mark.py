"""Marks of real processes: only the end of the process that made a mark shows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Final

import pytest

from actors.lease.process_mark import BOOT_ID, _mark_of, has_ended, own_mark

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not BOOT_ID.exists(), reason="processes are marked on Linux only")

PROGRAM: Final = """
import os, sys
from actors.lease.process_mark import own_mark
mark = own_mark()
if sys.argv[1] != "forks" or os.fork() > 0:
    print(mark, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A process, and its mark."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments, ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_process_has_ended_when_it_was_killed_and_not_when_it_is_stopped(folder: Path) -> None:
    process, mark = start()
    with process:
        process.send_signal(signal.SIGSTOP)
        assert not has_ended(mark)
        copy = folder / "copy"
        shutil.copy2(folder / f"executor-pods-driver-{mark}", copy)
        process.kill()
        process.wait()
        original = (folder / f"executor-pods-driver-{mark}").rename(folder / "original")
        copy.rename(folder / f"executor-pods-driver-{mark}")
        assert not has_ended(mark), "a copy of the mark shows nothing"
        original.rename(folder / f"executor-pods-driver-{mark}")
        assert has_ended(mark)
    assert [path.name for path in folder.iterdir()] == []


def test_a_forked_child_keeps_the_mark_of_its_parent(folder: Path) -> None:
    process, mark = start("forks")
    with process:
        process.kill()
        process.wait()
        assert not has_ended(mark)
        assert process.stdin is not None
        process.stdin.close()  # the child ends
        assert process.stdout is not None
        process.stdout.read()
    assert [path.name for path in folder.iterdir()] == [f"executor-pods-driver-{mark}"], "it is not the child's"


def test_a_mark_of_another_boot_shows_nothing(folder: Path) -> None:
    process, mark = start()
    with process:
        process.kill()
        process.wait()
    path = folder / f"executor-pods-driver-{mark}"
    text = path.read_bytes()
    path.write_bytes(b"another boot, " + text)
    assert not has_ended(mark)
    path.write_bytes(text)
    assert has_ended(mark)


def test_a_process_that_ends_in_order_removes_its_mark(folder: Path) -> None:
    process, mark = start()
    process.communicate("")
    assert list(folder.iterdir()) == []
    assert not has_ended(mark), "nothing shows it"


def test_this_process_lives_and_has_one_mark() -> None:
    mark = own_mark()
    assert mark is not None
    assert mark == own_mark()
    assert not has_ended(mark)


@pytest.mark.parametrize("mark", ["", "x", "../../etc/passwd", "0" * 31, "0" * 33, "0" * 32 + "\n", "\ud800"])
def test_what_is_no_mark_shows_nothing(mark: str) -> None:
    assert not has_ended(mark)


def test_a_mark_that_is_a_pipe_or_a_link_shows_nothing_and_blocks_nobody(folder: Path) -> None:
    os.mkfifo(folder / f"executor-pods-driver-{'0' * 32}")
    (folder / f"executor-pods-driver-{'1' * 32}").symlink_to("/etc/hosts")
    assert not has_ended("0" * 32)
    assert not has_ended("1" * 32)


def test_without_a_folder_for_temporary_files_there_is_no_mark_and_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", refused)
    _mark_of.cache_clear()
    assert own_mark() is None
    assert not has_ended("0" * 32)
    _mark_of.cache_clear()


def test_a_new_driver_removes_old_marks_of_killed_ones_and_no_other(folder: Path) -> None:
    """By age, because the next driver of a killed one's fleet takes over by its mark."""
    lives, its_mark = start()
    killed = [start() for _ in range(3)]
    for process, _ in killed:
        with process:
            process.kill()
    with lives:
        marks = [folder / f"executor-pods-driver-{mark}" for mark in (its_mark, *(mark for _, mark in killed))]
        marks[2].write_text("another boot 1 2\n")
        stranger = folder / "executor-pods-driver-link"
        stranger.symlink_to(folder)
        for path in marks[:3]:
            os.utime(path, (0, 0))
        _mark_of.cache_clear()
        own = own_mark()
        left = {path.name for path in folder.iterdir()}
        assert left == {marks[0].name, marks[3].name, stranger.name, f"executor-pods-driver-{own}"}
        _mark_of.cache_clear()
        lives.kill()
