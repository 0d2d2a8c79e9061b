"""What the tests of whole programs on the node share."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import urllib3

if TYPE_CHECKING:
    from tests.node.real import RealWorld

__all__ = ["CONFIG", "READY", "SAFETY", "SHORT", "SIZE", "answers", "kubectl", "name_of"]

CONFIG: Final = Path(__file__).parents[2] / "config"
SAFETY: Final = 300.0
"""Seconds until a program that hangs fails a test."""
READY: Final = "5m"
"""Reached by a failure only."""
SIZE: Final = 4
SHORT: Final = 20.0
"""Seconds that no end takes, unless it waits for the default grace period or for the whole pause."""


def name_of(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:6]}"


def answers(url: str) -> bool:
    """Whether a probe of the page succeeds."""
    with urllib3.PoolManager(timeout=SAFETY) as pool:
        return pool.request("GET", url).status == 200


def kubectl(world: RealWorld, *arguments: str) -> str:
    command = ["kubectl", "--kubeconfig", str(world.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SAFETY, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
