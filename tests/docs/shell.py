"""A reader's terminal: one shell for all commands of a page, in a folder and a home of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SAFETY_SECONDS = 60.0
"""A command that hangs is killed after this; no test waits for it."""


class Shell:
    """Programs that are installed with the package are there, as in an activated environment."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "clone"
        self.folder.mkdir()
        for name in ("config", "tests"):
            (self.folder / name).symlink_to(ROOT / name)
        programs = home / "bin"
        programs.mkdir()
        for name, arguments in (("python", ""), ("executor-pods", " -m actors")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
            (programs / name).chmod(0o755)
        self._home = home
        self._blocks = 0
        self._pipes = ExitStack()
        self._bash: subprocess.Popen[str] | None = None
        self.env = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "TMPDIR": str(home),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the shell and its background jobs: they share its process group."""
        if self._bash is not None:
            self._safety.cancel()
            self._kill()
            self._bash.communicate()
        self._pipes.close()

    def run(self, commands: str, expected: str | None) -> str:
        """Run a block to its end, or until its background job has printed what is expected; what was printed."""
        bash = self._started()
        self._blocks += 1
        script, pipe = (self._home / f"{self._blocks}.{kind}" for kind in ("sh", "out"))
        script.write_text(commands, encoding="utf-8")
        os.mkfifo(pipe)
        assert bash.stdin is not None
        assert bash.stdout is not None
        bash.stdin.write(f". {script} >{pipe} 2>&1 </dev/null; echo done\n")
        bash.stdin.flush()
        output = self._pipes.enter_context(pipe.open(encoding="utf-8"))  # stays open: a job may go on to write
        printed = ""
        for line in output:
            printed += line
            if commands.rstrip().endswith("&") and expected is not None and matches(printed, expected):
                break
        assert bash.stdout.readline() == "done\n", f"{commands}\nfailed, or took too long:\n{printed}"
        return printed

    def _started(self) -> subprocess.Popen[str]:
        if self._bash is None:
            self._bash = subprocess.Popen(
                ["bash", "-e"],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._safety = threading.Timer(SAFETY_SECONDS, self._kill)
            self._safety.start()
        return self._bash

    def _kill(self) -> None:
        assert self._bash is not None
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)


def matches(printed: str, expected: str) -> bool:
    """Return whether the same lines were printed as expected, in any order; `…` matches anything.

    Output of several processes has no order.
    """
    lines = printed.splitlines()
    patterns = [re.compile(".*".join(map(re.escape, line.split("…")))) for line in expected.splitlines()]
    return all(any(pattern.fullmatch(line) for pattern in patterns) for line in lines) and all(
        any(map(pattern.fullmatch, lines)) for pattern in patterns
    )
