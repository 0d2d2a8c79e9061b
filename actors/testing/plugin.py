"""Pytest fixtures: set `pytest_plugins = ["actors.testing.plugin"]` in the top-level conftest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.testing.kit import Kit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["kit"]


@pytest.fixture
def kit() -> Iterator[Kit]:
    """A `Kit` without threads, oldest message first; closed after the test."""
    with Kit() as kit:
        yield kit
