"""A stop while the API is away, or refuses: it deletes as soon as it can, and names all that may live on."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors import Backend, Settings
from actors.messages import (
    BackendStopped,
    ExecutorDisconnected,
    ExecutorRemoved,
    HoldFleet,
    KillExecutors,
    RegisterExecutor,
    RequestTotalExecutors,
    ScaleExecutors,
    StopBackend,
)
from actors.pods.loss import LossKind
from actors.testing import FakeCluster

if TYPE_CHECKING:
    from actors.messages import FromDriver
    from actors.testing import Kit

SECOND = timedelta(seconds=1)
BOTH = ("app-exec-1", "app-exec-2")
NO_LEASE = {"lease": False}


class Stopping:
    """Two executors, that take `start_delay` seconds to run, and a driver."""

    def __init__(self, kit: Kit, *, start_delay: float = 1, seconds: float = 4, **executor: Any) -> None:
        self.kit = kit
        self.cluster = FakeCluster(kit, start_delay=timedelta(seconds=start_delay))
        self.driver = kit.probe("driver")
        subject = Settings(app_id="app", executor={"image": "any", "instances": 2, **executor}, backend=NO_LEASE)  # type: ignore[arg-type]  # pydantic reads it
        self.backend = Backend.start(subject, owner=self.driver.address)
        kit.advance(seconds=seconds)

    def tell(self, message: FromDriver, seconds: float = 0) -> None:
        self.backend.tell(message)
        self.kit.advance(seconds=seconds)

    def left(self) -> tuple[str, ...]:
        """What it named when it had stopped."""
        return self.driver.take(BackendStopped).left_behind


ENDS = {
    "not running, scaled to 0": (5.0, 1.0, ScaleExecutors(0)),
    "killed": (1.0, 4.0, KillExecutors((1, 2), grace=SECOND)),
    "created and not observed, scaled to 0": (5.0, 0.02, ScaleExecutors(0)),
}


@pytest.mark.parametrize(("start_delay", "seconds", "end"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("away", [6, 18, 22, 25, 28])
def test_a_stop_deletes_when_the_api_is_back_whatever_had_failed_before(
    kit: Kit, start_delay: float, seconds: float, end: FromDriver, away: float
) -> None:
    subject = Stopping(kit, start_delay=start_delay, seconds=seconds)
    with subject.cluster.outage():
        subject.tell(end, 2)
        subject.tell(StopBackend(), away)
    kit.advance(seconds=30)
    assert subject.left() == ()
    assert subject.cluster.pods == {}


def test_pods_that_were_created_and_not_observed_are_named_though_the_driver_never_heard_of_them(kit: Kit) -> None:
    subject = Stopping(kit, start_delay=5, seconds=0.02)
    with subject.cluster.outage():
        subject.tell(ScaleExecutors(0), 2)
        subject.tell(StopBackend(), 100)
    assert subject.left() == BOTH
    assert sorted(subject.cluster.pods) == [1, 2]


@pytest.mark.parametrize("delete_pods", [True, False])
def test_an_executor_that_was_told_removed_is_named_while_its_pod_lives_on(kit: Kit, delete_pods: bool) -> None:
    subject = Stopping(kit, disconnect_timeout="10s")
    subject.tell(RegisterExecutor(1), 1)
    with subject.cluster.outage():
        subject.tell(ExecutorDisconnected(1), 20)
        assert subject.driver.take(ExecutorRemoved).reason.kind is LossKind.DISCONNECTED
        subject.tell(StopBackend(delete_pods=delete_pods), 100)
    assert subject.left() == (BOTH if delete_pods else BOTH[:1])
    assert subject.driver.take_all(ExecutorRemoved) == [], "each end is told once"


def test_a_fleet_that_is_left_loses_the_pod_of_an_executor_that_was_told_removed(kit: Kit) -> None:
    subject = Stopping(kit, disconnect_timeout="10s")
    subject.tell(RegisterExecutor(1), 1)
    with subject.cluster.outage():
        subject.tell(ExecutorDisconnected(1), 20)
        subject.tell(StopBackend(delete_pods=False), 2)
    kit.advance(seconds=30)
    assert subject.left() == ()
    assert list(subject.cluster.pods) == [2]


@pytest.mark.parametrize("end", [RequestTotalExecutors(0), HoldFleet(), KillExecutors((1,))])
def test_pods_that_do_not_run_yet_and_are_no_longer_desired_are_named(kit: Kit, end: FromDriver) -> None:
    subject = Stopping(kit, start_delay=30)
    with subject.cluster.outage():
        subject.tell(end, 20)
        subject.tell(StopBackend(), 100)
    assert subject.left() == BOTH


@pytest.mark.parametrize("refused", [True, False])
def test_pods_whose_deletion_was_accepted_before_an_outage_are_not_named(kit: Kit, refused: bool) -> None:
    subject = Stopping(kit)
    if refused:
        subject.cluster.refuse("delete_collection", 403, times=100)
    subject.cluster.slow(0.05)
    subject.tell(StopBackend(), 0.22 if refused else 0.12)
    with subject.cluster.outage():
        kit.advance(seconds=100)
    assert subject.cluster.pods == {}
    assert subject.left() == ()
    assert sorted(removed.executor_id for removed in subject.driver.take_all(ExecutorRemoved)) == [1, 2]
