"""Whoever wakes late after an act: what has happened since stays true."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Unreachable
from actors.fleet.fleet import Fleet
from actors.local.kubelet.scripted_kubelet import Run
from actors.testing import FakeCluster

if TYPE_CHECKING:
    from actors.fleet.waiting import Pause
    from actors.testing import Kit


CAME = True
"""What the steps wait for."""


def test_a_fleet_that_fails_before_a_late_waker_goes_on_has_failed_for_it_too(kit: Kit) -> None:
    first = iter([Run()])
    cluster = FakeCluster(kit, script=lambda _pod: next(first, Run(exits_after=timedelta(seconds=1), exit_code=2)))
    with Fleet(image="worker:1", instances=1, max_failures=1, pod_api=cluster.api, system=kit.system) as fleet:
        fleet.wait_for(running=1)
        scaling = fleet._door.scale(2, "newest", None)
        pause: Pause = next(scaling)
        kit.settle()
        assert pause.until(), "the fleet has answered; an event loop that is busy does not go on yet"
        kit.advance(minutes=1)
        assert fleet.status().failed is not None
        finish(scaling)
        with pytest.raises(Unreachable, match="executors failed to start"):
            fleet.wait_for(running=2, timeout="10m")


def finish(steps: Any) -> None:
    """The waker goes on: everything that it waits for has come."""
    while has_come(steps):
        pass


def has_come(steps: Any) -> bool:
    """One step. Return whether there is another one."""
    try:
        steps.send(CAME)
    except StopIteration:
        return False
    return True
