"""Pytest fixtures. Use it with `pytest_plugins = ["actors.testing.plugin"]` in a top-level conftest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.testing.kit import Kit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["kit"]


@pytest.fixture
def kit() -> Iterator[Kit]:
    """A `Kit` without threads, oldest message first; closed when the test is over."""
    with Kit() as kit:
        yield kit
