"""Rules of the layout that import-linter cannot say: who may hold a lock, read a clock, or draw a number."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

import actors
from actors.messages import FromDriver, ToDriver

PACKAGE = Path(actors.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

MAY_LOCK = {"runtime", "kube", "local", "testing", "examples"}
"""Invariant 8: no lock outside these; the first three are where threads meet."""

MAY_READ_TIME = {"runtime/clock.py", "runtime/entropy.py", "runtime/timer_thread.py", "testing/dispatcher.py"}


def imported(path: Path) -> set[str]:
    """The top-level names of everything that a module imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_actors_share_no_lock_and_no_thread(path: Path) -> None:
    if path.parts[0] not in MAY_LOCK and path.parts[0] != "cli":
        assert not imported(path) & {"threading", "queue", "multiprocessing", "concurrent", "_thread"}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_time_and_chance_come_from_the_clock_and_from_entropy(path: Path) -> None:
    if str(path) not in MAY_READ_TIME and path.parts[0] != "examples":
        assert not imported(path) & {"time", "random"}


def test_importing_the_package_does_not_import_the_kubernetes_client() -> None:
    for path in MODULES:
        if path.parts[0] != "kube":
            assert "kubernetes" not in imported(path)


def test_whatever_a_driver_says_or_hears_is_a_public_name() -> None:
    messages = {message.__name__ for message in (*get_args(FromDriver), *get_args(ToDriver))}
    assert messages - set(actors.__all__) == set()
