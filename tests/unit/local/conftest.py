"""Fixtures of the embedded cluster's tests."""

from __future__ import annotations

import pytest

from tests.unit.local.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """An empty cluster without a kubelet."""
    return Bench()
