"""What every test may use, and how the tests are shared out among processes (`pytest -n auto`)."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["actors.testing.plugin"]

TESTS = Path(__file__).parent

settings.register_profile(
    "suite", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)  # no wall clock, and every run the same
settings.load_profile("suite")

WAIT_MOST = ("tests/e2e/", "tests/docs/test_snippets.py")
"""Tests that wait for other processes: begun first, they wait while others compute."""


def pytest_configure() -> None:
    """Keep compiled modules, even where the environment says not to.

    Each worker and each program that a test starts would compile the package anew.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """In each worker of the whole suite, compile a share of the test modules first: the others find them compiled."""
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if worker is None or [Path(argument).resolve() for argument in session.config.args] != [TESTS]:
        return
    for path in sorted(TESTS.rglob("test_*.py"))[int(worker.removeprefix("gw")) :: count]:
        with suppress(Exception):  # the collection reports what is wrong with it
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(WAIT_MOST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a third of the tests' time is waiting."""
    return (os.cpu_count() or 1) + 1
