"""Builds the peers' programs, once: the toolchains know what has changed since, and keep the rest."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["built"]

SOURCES: Final = Path(__file__).parent

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "executor-pods/benchmarks"
"""Where the programs are kept, and what `cargo` needs to build its own again: 500 MB."""

COMMANDS: Final = {
    "go": (("go", "build", "-o", str(CACHE / "go/peer")), CACHE / "go/peer"),
    "rust": (
        ("cargo", "build", "--release", "--locked", "--target-dir", str(CACHE / "rust")),
        CACHE / "rust/release/peer",
    ),
}
"""Language → the command that builds its program, and the program."""


def built(language: str) -> Path:
    """Build a peer's program, unless it is there, and return its path.

    Raises:
        SystemExit: the toolchain is missing, or cannot build it.
    """
    command, program = COMMANDS[language]
    if shutil.which(command[0]) is None:
        raise SystemExit(f"needs {command[0]} on PATH, which builds the peer in {language}")
    done = subprocess.run(command, cwd=SOURCES / language, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise SystemExit(f"`{' '.join(command)}` failed: {last}")
    return program
