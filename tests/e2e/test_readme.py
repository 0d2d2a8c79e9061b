"""What the README says is so: its driver runs as it stands, and it is short, with links that work on PyPI too."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import actors
from actors.local.cluster import LocalCluster
from tests.docs.pages import REPOSITORY, ROOT, blocks, read

README = read("README.md")
LARGEST = 8 * 1024
"""Bytes: what does not fit belongs into docs/."""


def test_the_driver_runs_as_it_stands_and_is_notified_of_a_kill_and_of_the_replacement(tmp_path: Path) -> None:
    (program,) = [block.text for block in blocks("README.md") if block.kind == "python"]
    file = tmp_path / "driver.py"
    file.write_text(program, encoding="utf-8")
    with LocalCluster() as cluster:
        env = os.environ | {
            "KUBECONFIG": str(cluster.kubeconfig_path),
            "PYTHONPATH": str(Path(actors.__file__).parents[1]),
        }
        with subprocess.Popen(
            [sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        ) as driver:
            safety = threading.Timer(60, driver.kill)
            safety.start()
            assert driver.stdout is not None
            assert driver.stderr is not None
            printed: list[str] = []

            def until(text: str) -> str:
                assert driver.stdout is not None
                for line in driver.stdout:
                    printed.append(line)
                    if text in line:
                        return line
                raise AssertionError(f"{text!r} never came: {printed}")

            name = until("executor 3 runs in pod ").split()[-1]
            cluster.kill(name, signal.SIGKILL)
            assert "137" in until("executor 3 is gone")
            until("executor 4 runs")
            driver.send_signal(signal.SIGINT)
            assert driver.stderr.read().endswith("KeyboardInterrupt\n")
            driver.wait()
            safety.cancel()
        assert cluster.store.list("pods", "default").items == []


def test_the_driver_is_ten_lines() -> None:
    (program,) = [block.text for block in blocks("README.md") if block.kind == "python"]
    assert len(program.splitlines()) <= 10


def test_the_two_commands_are_one_line_each_and_the_first_one_names_real_options() -> None:
    first, second = [block.text for block in blocks("README.md") if block.kind == "sh"]
    assert (first.count("\n"), second.count("\n")) == (1, 1)
    assert second.strip().endswith("&& .venv/bin/pytest -n auto")
    words = shlex.split(first)
    arguments = words[words.index(".venv/bin/executor-pods") + 1 :]
    assert arguments[:2] == ["run", "--local"]


def test_it_is_short() -> None:
    assert len(README.encode()) <= LARGEST


def test_its_links_are_absolute_so_that_they_work_on_pypi_too() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com")
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert pictures
    assert [link for link in pictures if not (ROOT / link.removeprefix(f"{raw}/main/")).is_file()] == []
