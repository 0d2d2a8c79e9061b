"""Certificates and keys that are given as data."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from actors.errors import SettingsError
from actors.kube.auth.data_files import MOST, file_with


def test_a_file_is_its_users_only_and_written_once() -> None:
    name = file_with(b"a key")
    assert Path(name).read_bytes() == b"a key"
    assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    assert file_with(b"a key") == name


def test_a_file_that_was_cleaned_away_is_written_anew() -> None:
    Path(file_with(b"lost")).unlink()
    assert Path(file_with(b"lost")).read_bytes() == b"lost"


def test_old_files_go_when_many_newer_ones_came() -> None:
    used, old = file_with(b"used"), file_with(b"old")
    for number in range(MOST - 1):
        file_with(b"%d" % number)
        file_with(b"used")
    assert Path(used).exists()
    assert not Path(old).exists()


class TestNoFolderCanBeWritten:
    @pytest.fixture(autouse=True)
    def read_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def none(**_: object) -> tuple[int, str]:
            raise FileNotFoundError(2, "No usable temporary directory found")

        monkeypatch.setattr(tempfile, "mkstemp", none)

    @pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux keeps files in memory")
    def test_the_systems_memory_has_the_file_also_for_child_processes(self) -> None:
        name = file_with(b"in memory")
        assert Path(name).read_bytes() == b"in memory"
        assert subprocess.run(["cat", name], capture_output=True, check=True).stdout == b"in memory"
        assert file_with(b"in memory") == name

    def test_where_there_is_no_such_memory_the_error_says_what_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "memfd_create", raising=False)
        with pytest.raises(SettingsError, match=r"none can be written \(No usable .*\): set TMPDIR to a folder"):
            file_with(b"nowhere")


def test_all_go_with_the_program_but_not_with_a_forked_child(tmp_path: Path) -> None:
    program = (
        "import os, sys; from actors.kube.auth.data_files import file_with; name = file_with(b'key')\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait(); assert os.path.exists(name)"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []
