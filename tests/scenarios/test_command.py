"""The driver of `executor-pods run` over a whole Backend, in virtual time: what it says of a run, and how it ends."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.backend.backend import Backend
from actors.cli.driver import FORCE_AFTER, FleetDriver, Plan, StopFleet, UseBackend
from actors.settings.model import Settings
from actors.testing import FakeCluster

if TYPE_CHECKING:
    from actors.cli.events import Event
    from actors.runtime import Address
    from actors.testing import Kit

EXECUTORS = 3


class Run:
    """A run, with everything that it says."""

    def __init__(self, kit: Kit, cluster: FakeCluster, plan: Plan) -> None:
        self.kit = kit
        self.events: list[Event] = []
        self.driver: Address = kit.spawn(
            lambda context: FleetDriver(context, plan=plan, show=self.events.append), name="driver"
        )
        settings = Settings(app_id="etl", executor={"instances": EXECUTORS, "image": "worker:1"})
        backend = Backend.start(settings, self.driver, cluster.api, system=kit.system)
        self.driver.tell(UseBackend(backend))

    def end(self) -> Event:
        """Wait for the last event."""
        self.kit.wait_until(lambda: not self.driver.is_alive(), timedelta(minutes=5))
        return self.events[-1]

    @property
    def counts(self) -> Counter[str]:
        return Counter(event.event for event in self.events)


def test_a_run_counts_what_it_lost_and_replaced(kit: Kit) -> None:
    cluster = FakeCluster(kit)
    run = Run(kit, cluster, Plan(run_for=timedelta(minutes=2)))
    kit.advance(minutes=1)
    cluster.oom(1)
    cluster.evict(2)
    assert run.end().message == "5 executors ran, 2 lost (EVICTED 1, OOM_KILLED 1), 2 replaced"
    assert run.counts["running"] == run.counts["removed"] == EXECUTORS + 2


@pytest.mark.parametrize("code", [None, 403, 422], ids=["quota", "forbidden", "invalid"])
@pytest.mark.parametrize("end", ["time is up", "interrupted"])
def test_a_run_that_makes_nothing_until_its_end_says_what_blocked_it(kit: Kit, code: int | None, end: str) -> None:
    cluster = FakeCluster(kit)
    words = "exceeded quota" if code is None else "no such pods here"
    if code is None:
        cluster.quota(0)
    else:
        cluster.refuse("create", code, words, times=100)
    run = Run(kit, cluster, Plan(run_for=timedelta(minutes=1) if end == "time is up" else None))
    kit.advance(seconds=50)
    if end == "interrupted":
        run.driver.tell(StopFleet(end))
    last = run.end()
    assert (last.event, last.reason, last.details["ran"]) == ("stopped", end, 0)
    failed = run.events[-2]
    assert (failed.event, failed.reason) == ("failed", "NOTHING_MADE")
    assert (failed.message or "").startswith("no executor could be made: 'default': ")
    assert words in (failed.message or "")


def test_executors_that_ignore_sigterm_are_told_removed_and_the_run_stopped(kit: Kit) -> None:
    cluster = FakeCluster(kit, stop_delay=timedelta(hours=1))
    force = lambda: cluster.store.delete_collection("pods", "default", grace_period_seconds=0)  # noqa: E731 - as `run`
    run = Run(kit, cluster, Plan(run_for=timedelta(minutes=1), force=force))
    kit.advance(timedelta(minutes=1) + FORCE_AFTER)
    last = run.end()
    assert run.counts["removed"] == EXECUTORS
    assert (last.event, last.reason, last.details["left_behind"]) == ("stopped", "time is up", ())
