"""RoundLog: who is waited for, said once, and as ranges of ids."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.allocation.expectations import Expectations
from actors.allocation.round_log import RoundLog
from actors.testing import ManualClock
from actors.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def waits(caplog: pytest.LogCaptureFixture) -> Callable[[RoundLog, Expectations], list[str]]:
    """What is said of the executors that are expected in a round."""
    caplog.set_level(logging.DEBUG, "actors")

    def waits(log: RoundLog, requested: Expectations) -> list[str]:
        caplog.clear()
        log.waits(requested)
        return caplog.messages

    return waits


def test_each_profile_has_a_line_with_the_ids_and_the_begin_of_the_longest_wait(
    waits: Callable[[RoundLog, Expectations], list[str]],
) -> None:
    clock, requested = ManualClock(), Expectations()
    begun = rfc3339(clock.now())
    for executor_id in (2, 1, 3, 7, 9, 10):
        requested.add(executor_id, "small" if executor_id < 9 else "large", clock.monotonic())
    clock.move_to(timedelta(seconds=5))
    answered = rfc3339(clock.now())
    requested.answered(7, clock.monotonic(), None)
    clock.move_to(timedelta(seconds=10))
    log = RoundLog(clock)
    assert waits(log, requested) == [
        f"creation not answered yet: profile=large ids=9-10 since={begun}",
        f"creation not answered yet: profile=small ids=1-3 since={begun}",
        f"pods not observed yet: profile=small ids=7 since={answered}",
    ]
    assert waits(log, requested) == [], "nothing has changed"
    requested.remove(2)
    requested.remove(7)
    assert waits(log, requested) == [f"creation not answered yet: profile=small ids=1,3 since={begun}"]
    for executor_id in (1, 3, 9, 10):
        requested.remove(executor_id)
    assert waits(log, requested) == []


def test_without_debug_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "actors")
    requested = Expectations()
    requested.add(1, "default", 0.0)
    RoundLog(ManualClock()).waits(requested)
    assert caplog.messages == []
