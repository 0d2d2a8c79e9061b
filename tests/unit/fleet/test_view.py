"""What other threads see of a fleet, event by event."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from actors.fleet.view import FleetView
from actors.messages import ExecutorRunning, ExecutorTerminating
from actors.testing import pod

if TYPE_CHECKING:
    from actors.testing import Kit


def test_an_executor_terminates_since_the_first_notice_of_it(kit: Kit) -> None:
    view = FleetView(kit.clock)
    view.apply(ExecutorRunning(1, pod(1)))
    since = kit.clock.now()
    for seconds in (20, 5):
        view.apply(ExecutorTerminating(1, kit.clock.now() + timedelta(seconds=seconds), "it was killed"))
        kit.advance(timedelta(seconds=1))
    assert view.executors()[1].since == since
