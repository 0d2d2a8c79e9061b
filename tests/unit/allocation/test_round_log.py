"""RoundLog: who is waited for, said once, and as ranges of ids."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.allocation.expectations import Expectations
from actors.allocation.round_log import RoundLog, ranges
from actors.messages import ProfileStatus
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


def test_the_counts_of_a_profile_are_said_if_they_have_changed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "actors")
    log = RoundLog(ManualClock())
    large = ProfileStatus(target=1, running=1)
    small = ProfileStatus(target=3, requested=2, start_failures=1)
    log.counts({"large": large, "small": small}, {"large": 0, "small": 1})
    said = [
        "allocation round: profile=large target=1 requested=0 pending=0 running=1 terminating=0 missing=0 blocked=None",
        "allocation round: profile=small target=3 requested=2 pending=0 running=0 terminating=0 missing=1 blocked=None",
    ]
    assert caplog.messages == said
    log.counts({"large": large, "small": replace(small, start_failures=2)}, {"large": 0, "small": 1})
    assert caplog.messages == said, "a failure is told elsewhere"
    log.counts({"large": large, "small": replace(small, blocked_by="claims")}, {"large": 0, "small": 1})
    assert caplog.messages[2:] == [said[1].replace("None", "claims")]


@given(st.sets(st.integers(1, 200)))
def test_ranges_name_exactly_the_ids(ids: set[int]) -> None:
    pairs = [part.partition("-") for part in ranges(ids).split(",")] if ids else []
    named = [executor_id for first, _, last in pairs for executor_id in range(int(first), int(last or first) + 1)]
    assert named == sorted(ids)
    assert len(pairs) == sum(executor_id - 1 not in ids for executor_id in ids), "as few as there are gaps"
