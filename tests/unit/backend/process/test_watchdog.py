"""What speaks against a process: silence, a start that does not end, a child that hangs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from actors.backend.process.frames import Hang
from actors.backend.process.watchdog import (
    MOST_UNANSWERED,
    PING_EVERY,
    START_LIMIT,
    Stage,
    Watchdog,
    ping_interval,
)
from actors.runtime import Hung

HANG = Hang("request-pool", "DeletePod", 2.0, "the stack")


def test_a_process_is_killed_when_it_leaves_as_many_pings_unanswered() -> None:
    watchdog = Watchdog()
    for _ in range(MOST_UNANSWERED):
        assert watchdog.check(Stage.READY) == ""
        watchdog.pinged()
    assert watchdog.check(Stage.READY) == "it does not answer"
    watchdog.heard()
    assert watchdog.check(Stage.READY) == ""


def test_a_process_that_is_never_ready_is_killed_and_one_that_is_ready_just_in_time_is_not() -> None:
    watchdog = Watchdog()
    watchdog.sets_up(START_LIMIT - PING_EVERY)
    assert watchdog.check(Stage.SETTING_UP) == ""
    watchdog.sets_up(PING_EVERY)
    assert watchdog.check(Stage.SETTING_UP) == "it does not begin"
    assert watchdog.check(Stage.READY) == ""


def test_a_child_hangs_when_two_pongs_in_a_row_say_so() -> None:
    watchdog = Watchdog()
    assert [watchdog.hung(each) for each in (HANG, None, HANG)] == [None, None, None]
    hung = watchdog.hung(HANG)
    assert isinstance(hung, Hung)
    assert str(hung) == "request-pool was busy with DeletePod for 2.0s"
    assert hung.__notes__ == ["the stack"]


@pytest.mark.parametrize(("patience", "interval"), [(1, 0.25), (20, 5), (3600, 5)])
def test_the_interval_between_pings_follows_from_the_patience(patience: float, interval: float) -> None:
    assert ping_interval(timedelta(seconds=patience)) == timedelta(seconds=interval)
