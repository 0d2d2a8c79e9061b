"""What every test may use, and how the tests are shared out among processes (`pytest -n auto`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["actors.testing.plugin"]

settings.register_profile(
    "suite", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)  # no wall clock, and every run the same
settings.load_profile("suite")

WAIT_MOST = "tests/e2e/"
"""Tests that wait for other processes: begun first, they wait while others compute."""


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a third of the tests' time is waiting."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(WAIT_MOST))
