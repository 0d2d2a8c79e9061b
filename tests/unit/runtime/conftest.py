from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest
from pykka import ActorRegistry

from tests.unit.runtime.stage import SAFETY, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Check that each test leaves no actor registered with Pykka and no thread of ours running."""
    before = ActorRegistry.get_all()
    threads = threading.enumerate()
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("executor-pods/") and thread not in threads:
            thread.join(SAFETY)
            assert not thread.is_alive(), f"{thread.name} goes on"
    left = [ref for ref in ActorRegistry.get_all() if ref not in before]
    for ref in left:
        ActorRegistry.unregister(ref)
    assert left == []


@pytest.fixture
def tight_switching() -> Iterator[None]:
    """Switch threads as often as possible to provoke races."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=["stepped", "serial threads", "loop"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Run the test three times: in the caller's thread, in threads one at a time, and in the loop."""
    with Stage(request.param) as stage:
        yield stage
