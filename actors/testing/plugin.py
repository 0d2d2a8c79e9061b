"""Pytest fixtures: set `pytest_plugins = ["actors.testing.plugin"]` in the top-level conftest.

The package registers no plugin by itself: the fixtures' names are common, and each run of pytest would import them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.testing.fake_cluster import FakeCluster
from actors.testing.kit import Kit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["cluster", "kit"]


@pytest.fixture
def kit() -> Iterator[Kit]:
    """A `Kit` without threads, oldest message first; closed after the test."""
    with Kit() as kit:
        yield kit


@pytest.fixture
def cluster(kit: Kit) -> FakeCluster:
    """A `FakeCluster` in the kit, whose pods run after a second: Backends use it that get no `api`."""
    return FakeCluster(kit)
