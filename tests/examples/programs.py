"""One example of docs/examples, run by the commands of its README in a copy of its folder."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final, Self

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.shell import matches

EXAMPLES: Final = ROOT / "docs" / "examples"

SAFETY_SECONDS: Final = 300.0
"""A program that hangs is killed after this; no test waits for it."""


def need(*modules: str) -> None:
    """Skip the test if the example's engine is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; the library does not need them")


class Example:
    """A running example. Leaving kills it, if the test has not waited for its end."""

    def __init__(self, name: str, folder: Path) -> None:
        readme = blocks(f"docs/examples/{name}/README.md")
        (commands,) = (block.text for block in readme if block.kind == "sh")
        install, _, self._commands = commands.partition("\n")
        assert install == "pip install -r requirements.txt"
        self._expected = next((block.text for block in readme if block.kind == "output"), "")
        self.folder = Path(shutil.copytree(EXAMPLES / name, folder / name))
        self._temporary = Path(tempfile.mkdtemp())  # short: Ray has sockets there
        self._printed = ""

    def __enter__(self) -> Self:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._errors = (self.folder.parent / "stderr").open("w+", encoding="utf-8")
        self._program = subprocess.Popen(
            ["/bin/sh", "-ec", self._commands],
            cwd=self.folder,
            env=os.environ
            | {"PATH": path, "PYTHONPATH": str(ROOT), "TMPDIR": str(self._temporary), "HOME": str(self._temporary)},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._safety = threading.Timer(SAFETY_SECONDS, self._kill)
        self._safety.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._safety.cancel()
        if self._program.poll() is None:
            self._kill()
        self._program.communicate()
        self._errors.close()
        shutil.rmtree(self._temporary, ignore_errors=True)  # what ends may still write there

    def wait_for(self, text: str) -> str:
        """Return the next line with this text."""
        assert self._program.stdout is not None
        for line in self._program.stdout:
            self._printed += line
            if text in line:
                return line
        raise AssertionError(f"{text!r} is not printed:\n{self._printed}\n{self._said()}")

    def kill(self, executor_id: int) -> None:
        """Kill the process of an executor, as the kernel does when the memory is full."""
        os.kill(self._process_of(executor_id), signal.SIGKILL)

    def finish(self, *, ours: str = "") -> str:
        """Wait for the end. Returns what was printed. Lines that begin like this pattern are those of the README."""
        assert self._program.stdout is not None
        self._printed += self._program.stdout.read()
        assert self._program.wait() == 0, f"{self._printed}\n{self._said()}"
        lines = [line for line in self._printed.splitlines() if re.match(ours, line)]
        assert matches("\n".join(lines), self._expected), f"the README says something else:\n{self._printed}"
        assert self._processes() == [], "executors are left"
        return self._printed

    def _process_of(self, executor_id: int) -> int:
        """The first process with the executor's environment: the others are its children."""
        return min(self._processes(f"EXECUTOR_ID={executor_id}"))

    def _processes(self, mark: str = "EXECUTOR_ID=") -> list[int]:
        ours = f"TMPDIR={self._temporary}".encode()
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                environment = (each / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if ours in environment and any(line.startswith(mark.encode()) for line in environment):
                found.append(int(each.name))
        return found

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def _kill(self) -> None:
        """End the program, and with it the embedded cluster and its pods."""
        os.killpg(self._program.pid, signal.SIGKILL)
