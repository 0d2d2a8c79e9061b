"""What the embedded cluster's tests begin with."""

from __future__ import annotations

import pytest

from tests.unit.local.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """An empty cluster without a kubelet."""
    return Bench()
