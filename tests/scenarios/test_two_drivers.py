"""Two drivers of one `app_id`: the Lease lets one write, and the other takes over when it can be."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.errors import ApiError, Refused
from actors.kube.api import LEASES
from actors.local.faults.kinds import Chances, DelayRequest, Refuse, server_error
from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    DecommissionExecutors,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    GetExecutorIds,
    GetFleetStatus,
    KillExecutors,
    StopBackend,
)
from actors.messages.internal.names import ALLOCATOR, LEASE, POOL, STORE, WATCH
from actors.pods.loss import LossKind
from tests.scenarios.memory import sizes
from tests.scenarios.rivals import Rivals
from tests.scenarios.seeds import seeds

if TYPE_CHECKING:
    from datetime import datetime

    from actors.runtime import Clock
    from tests.scenarios.rivals import Rival


def ids(rival: Rival, kind: type[ExecutorRunning | ExecutorRemoved | ExecutorPending]) -> list[int]:
    return [message.executor_id for message in rival.heard(kind)]


def remembered(rival: Rival) -> int:
    """How many entries the collections of its backend and of the backend's parts have."""
    return sum(sizes(actor for actor in rival.actors() if actor.name != "driver").values())


# ── one writes, one looks on ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_log_of_a_standby_says_why_its_allocator_is_restarted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "actors")
    with Rivals("first") as cluster:
        cluster.advance(10)
        caplog.clear()
        cluster.begin("second")
        cluster.advance(60)
        about = [line for line in caplog.messages if "allocator" in line]
        assert len(about) > 1
        for why, restarted in zip(about[::2], about[1::2], strict=True):
            assert why.startswith("restarting the allocator, what it knows is outdated: reason=the lease ")
            assert restarted.startswith("actor restarted: actor=allocator")


def test_the_first_driver_writes_and_the_standby_driver_names_it() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(120)
        assert list(cluster.pods().values()) == ["Running"] * 3
        assert (first.heard(AllocationBlocked), second.wrote) == ([], [])
        assert ids(second, ExecutorRunning) == [1, 2, 3], "it hears of what runs"
        at_first, blocked = second.heard(AllocationBlocked)
        assert cluster.lease()["holderIdentity"] in at_first.cause
        assert "which may have ended: if it has, it is ours in at most 18 s" in at_first.cause
        assert cluster.lease()["holderIdentity"] in blocked.cause
        assert "another driver" in blocked.cause
        status = cluster.kit.ask(second.backend, GetFleetStatus()).profiles["default"]
        assert (status.target, status.running, status.blocked) == (3, 3, blocked.cause)
        assert status.blocked_since is not None


def test_the_standby_driver_is_notified_of_the_holders_executors_and_writes_nothing() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        cluster.kubelet.exit("app-exec-2", 3)
        first.target(4)
        cluster.advance(30)
        assert ids(second, ExecutorRunning) == [1, 2, 3, 4, 5]
        assert [(gone.executor_id, gone.reason.exit_code) for gone in second.heard(ExecutorRemoved)] == [(2, 3)]
        assert second.wrote == []


def test_what_the_second_is_asked_to_end_is_refused_with_the_holders_name() -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        for message in (KillExecutors((1,)), DecommissionExecutors((1,))):
            with pytest.raises(Refused, match=cluster.lease()["holderIdentity"]):
                cluster.kit.ask(second.backend, message)
        second.backend.tell(KillExecutors((2,)))
        cluster.advance(30)
        assert cluster.kit.ask(second.backend, GetExecutorIds()) == (1, 2, 3)
        assert second.wrote == []


def test_a_stop_of_the_second_deletes_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(7)
        holder = cluster.lease()["holderIdentity"]
        assert second.stop(delete_pods=True, within=0) == BackendStopped()
        assert second.heard(ExecutorRemoved) == []
        assert second.wrote == []
        assert cluster.lease()["holderIdentity"] == holder
        assert list(cluster.pods().values()) == ["Running"] * 3
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"fleet not deleted, another driver holds the lease: holder={holder}" in said


def test_a_driver_that_has_the_lease_at_once_is_not_notified() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        assert isinstance(first.driver.heard[0], BackendStarted)
        assert first.heard(AllocationBlocked) + first.heard(AllocationUnblocked) == []


def test_where_no_lease_is_set_none_is_requested() -> None:
    with Rivals(backend={"lease": False}) as cluster:
        cluster.arrived = lambda *_: None  # type: ignore[method-assign]  # the oracle has no lease to go by
        only = cluster.begin("only")
        cluster.advance(30)
        assert len(cluster.pods()) == 3
        assert not {operation for _, operation in only.api.asked} & {"create_object", "patch_object"}
        only.stop()
        assert cluster.lease() == {}


def test_a_long_standby_forgets_ended_executors() -> None:
    with Rivals("first", instances=1, executor={"removed_executors_ttl": "1m"}) as cluster:
        cluster.kubelet.script = lambda _: Run(exits_after=timedelta(seconds=15))
        second = cluster.begin("second")
        cluster.advance(240)
        before = remembered(second)
        cluster.advance(480)
        assert len(second.heard(ExecutorRemoved)) > 35
        assert remembered(second) <= before + 5


@pytest.mark.parametrize("part", [None, "lifecycle-manager", pytest.param("snapshot-store", marks=pytest.mark.stress)])
def test_a_standby_driver_reports_no_end_twice_however_long_the_pod_stays(part: str | None) -> None:
    with Rivals("first", instances=1) as cluster:
        second = cluster.begin("second")
        cluster.advance(10)
        cluster.kubelet.hold()
        cluster.store.delete("pods", "default", "app-exec-1", grace_period_seconds=30)
        cluster.advance(420)
        if part is not None:
            second.crash(part)
        cluster.advance(300)
        assert ids(second, ExecutorRunning) == [1]
        assert [(gone.executor_id, gone.reason.kind) for gone in second.heard(ExecutorRemoved)] == [
            (1, LossKind.NODE_LOST)
        ]
        assert "app-exec-1" in [pod["metadata"]["name"] for pod in cluster.store.list("pods", "default").items]


# ── taking over ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_when_the_first_stops_in_order_the_second_takes_over_within_seconds() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        second.target(5)
        assert first.stop(delete_pods=False, within=1) == BackendStopped()
        assert cluster.lease()["holderIdentity"] == ""
        cluster.advance(4)
        assert cluster.holder() is second
        assert len(second.heard(AllocationUnblocked)) == 1
        cluster.advance(10)
        assert sorted(cluster.pods()) == [f"app-exec-{number}" for number in range(1, 6)], "the old are kept"
        assert ids(second, ExecutorRunning) == [1, 2, 3, 4, 5]
        assert second.heard(ExecutorRemoved) == []


def test_when_the_first_dies_the_second_takes_over_once_the_lease_has_run_out() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        first.kill()
        cluster.kubelet.exit("app-exec-1", 1)
        cluster.advance(8)
        assert second.wrote == []
        cluster.advance(12)
        assert cluster.holder() is second
        assert cluster.lease()["leaseTransitions"] == 1
        cluster.advance(10)
        assert sorted(cluster.pods()) == ["app-exec-2", "app-exec-3", "app-exec-4"]
        assert ids(second, ExecutorRemoved) == [1]


def test_a_driver_that_starts_again_after_its_death_finds_its_fleet() -> None:
    with Rivals("one") as cluster:
        for life in range(2, 6):
            cluster.advance(7)
            cluster.drivers[-1].kill()
            cluster.begin(f"life {life}")
        cluster.advance(60)
        assert sorted(cluster.pods()) == ["app-exec-1", "app-exec-2", "app-exec-3"]
        assert cluster.holder() is cluster.drivers[-1]
        assert cluster.lease()["leaseTransitions"] == 1, "the three between never had it"


def test_a_third_driver_takes_over_from_the_second() -> None:
    with Rivals("first", "second", "third") as cluster:
        for _ in range(2):
            cluster.advance(30)
            holder = cluster.holder()
            assert holder is not None
            holder.stop(delete_pods=False, within=20)
        cluster.advance(30)
        (last,) = (rival for rival in cluster.drivers if not rival.heard(BackendStopped))
        assert cluster.holder() is last
        assert len(cluster.pods()) == 3
        last.stop()
        assert cluster.pods() == {}


# ── losing it ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_holder_that_is_cut_off_stops_to_write_before_the_other_may_begin() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        first.api.outage = True
        cluster.advance(12)
        (blocked,) = first.heard(AllocationBlocked)
        assert "was not renewed in time" in blocked.cause
        assert "connection refused" in blocked.cause
        assert cluster.holder() is first, "nobody has taken it yet"
        cluster.kubelet.exit("app-exec-1", 1)
        cluster.advance(20)
        assert cluster.holder() is second
        assert "app-exec-4" in cluster.pods()
        first.api.outage = False
        cluster.advance(60)
        causes = [blocked.cause for blocked in first.heard(AllocationBlocked)]
        assert len(causes) == 2
        assert cluster.lease()["holderIdentity"] in causes[1], "it says who has it now"
        assert ids(first, ExecutorRunning) == [1, 2, 3, 4]
        assert ids(first, ExecutorRemoved) == [1]


def test_a_lease_that_is_lost_and_regained_repeats_no_event_and_creates_no_executor_twice() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        first.api.outage = True
        cluster.advance(30)
        cluster.kubelet.exit("app-exec-1", 1)
        cluster.advance(10)
        first.api.outage = False
        cluster.advance(60)
        second.stop(delete_pods=False, within=10)
        assert cluster.holder() is first
        cluster.kubelet.exit("app-exec-2", 1)
        cluster.advance(30)
        assert sorted(cluster.pods()) == ["app-exec-3", "app-exec-4", "app-exec-5"]
        assert ids(first, ExecutorRunning) == [1, 2, 3, 4, 5]
        assert sorted(ids(first, ExecutorRemoved)) == [1, 2]
        assert len(first.heard(AllocationUnblocked)) == 1


def test_executors_of_the_others_time_are_kept_in_whatever_order_they_are_seen() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        first.api.outage = True
        cluster.advance(25)
        first.api.outage = False
        cluster.advance(30)
        assert cluster.holder() is second
        second.api.fail_next("create", DelayRequest(timedelta(seconds=5)))
        first.target(5)
        second.target(5)
        cluster.advance(60)
        assert ids(first, ExecutorRunning) == [1, 2, 3, 5, 4]
        second.stop(delete_pods=False, within=10)
        cluster.advance(60)
        assert cluster.holder() is first
        assert sorted(cluster.pods()) == [f"app-exec-{number}" for number in range(1, 6)]
        assert first.heard(ExecutorRemoved) == []


def test_what_is_under_way_when_the_lease_is_lost_is_not_delivered_afterwards() -> None:
    with Rivals("first", instances=12) as cluster:
        (first,) = cluster.drivers
        cluster.advance(20)
        second = cluster.begin("second")
        cluster.advance(5)
        first.api.fail_next("get_object", server_error(), times=50)
        first.api.fail_next("delete", DelayRequest(timedelta(seconds=9.5)), times=50)  # just below a call's limit
        for executor_id in range(1, 13):
            cluster.kubelet.exit(f"app-exec-{executor_id}", 1)
            cluster.advance(1)
        cluster.advance(60)
        assert cluster.holder() is second
        assert first.heard(AllocationBlocked)


def test_a_driver_that_gets_its_lease_back_asks_again_for_what_was_refused_meanwhile() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.api.outage = True
        first.target(5)
        cluster.advance(15)
        assert "the lease executor-pods-app is not ours" in first.heard(AllocationBlocked)[-1].cause
        first.api.outage = False
        cluster.advance(45)
        assert len(cluster.pods()) == 5, "sooner than what may have been made is given up"
        assert len(first.heard(AllocationUnblocked)) == 1


def test_an_executor_whose_time_to_end_was_over_while_the_lease_was_lost_is_ended_when_it_is_back() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.backend.tell(KillExecutors((1,)))
        first.api.outage = True
        cluster.advance(20)
        assert "app-exec-1" in cluster.pods()
        first.api.outage = False
        cluster.advance(60)
        assert sorted(cluster.pods()) == ["app-exec-2", "app-exec-3", "app-exec-4"]
        (removed,) = first.heard(ExecutorRemoved)
        assert (removed.executor_id, removed.reason.kind) == (1, LossKind.KILLED_BY_DRIVER)


@pytest.mark.parametrize("when", [5.5, 9.0])
def test_a_keeper_that_crashes_is_back_before_the_lease_is_lost(when: float) -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(when)
        first.crash("lease-keeper")
        cluster.advance(60)
        assert first.heard(AllocationBlocked) == []
        assert cluster.holder() is first


@pytest.mark.parametrize("part", [POOL, STORE, ALLOCATOR, WATCH])
def test_the_keeper_renews_the_lease_whatever_else_crashes(part: str) -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.crash(part)
        cluster.advance(10)
        assert first.part(part).incarnation == 2
        assert first.part(LEASE).incarnation == 1


def test_a_backend_whose_keeper_stays_down_stops_writing() -> None:
    with Rivals("first", "second") as cluster:
        cluster.advance(10)
        first = cluster.holder()
        assert first is not None
        (second,) = (rival for rival in cluster.drivers if rival is not first)
        for _ in range(60):
            if any(actor.name == "lease-keeper" for actor in first.actors()):
                first.crash("lease-keeper")
            cluster.advance(1)
        assert "no renewal of the lease was reported in time" in first.heard(AllocationBlocked)[0].cause
        assert cluster.holder() is second
        cluster.kubelet.exit("app-exec-1", 1)
        cluster.advance(60)
        assert len(cluster.pods()) == 3


@pytest.mark.parametrize("part", ["request-pool", "snapshot-store", "lifecycle-manager", "allocator"])
def test_a_part_of_the_second_that_comes_up_again_writes_nothing_either(part: str) -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        second.crash(part)
        cluster.advance(60)
        assert second.wrote == []
        assert len(second.heard(AllocationBlocked)) == 2, "nothing of it is repeated"


class StoppedWallClock:
    """Its wall clock shows the same time for ever."""

    def __init__(self, clock: Clock) -> None:
        self.monotonic = clock.monotonic
        self._stopped_at = clock.now()

    def now(self) -> datetime:
        return self._stopped_at


def test_a_holder_whose_wall_clock_stands_still_keeps_its_lease() -> None:
    with Rivals() as cluster:
        first = cluster.begin("first", clock=StoppedWallClock(cluster.kit.clock))
        cluster.advance(5)
        second = cluster.begin("second")
        cluster.advance(120)
        assert cluster.holder() is first
        assert second.wrote == []


def test_a_standby_whose_wall_clock_stands_still_takes_over_from_a_dead_holder() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        second = cluster.begin("second", clock=StoppedWallClock(cluster.kit.clock))
        cluster.advance(5)
        first.kill()
        cluster.advance(20)
        assert cluster.holder() is second


def test_a_lease_that_a_policy_lets_nobody_take_over_says_why() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(5)
        first.kill()
        second = cluster.begin("second")
        denied = 'admission webhook "leases.example" denied the request: no leases on Sundays'
        for number in range(40):
            second.api.fail_next("patch_object", Refuse(ApiError(f"{denied} ({number})", status=400)))
        cluster.advance(60)
        causes = [blocked.cause for blocked in second.heard(AllocationBlocked)]
        assert len(causes) == 2, "once a kind, however it is worded"
        assert "ours in at most 18 s" in causes[0]
        assert f"held by {cluster.lease()['holderIdentity']!r}, and cannot be acquired: {denied} (0)" in causes[1]
        second.api.calm()
        cluster.advance(10)
        assert cluster.holder() is second
        assert len(cluster.pods()) == 3


# ── a process that stands still ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("begun", [0.0, 0.0005, 0.0025, 0.006])
def test_a_driver_that_was_paused_while_it_created_writes_nothing_after_its_lease_was_taken(begun: float) -> None:
    with Rivals("first", instances=0, allocation={"batch_size": 60}) as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        first.workers.busy = True
        for rival in (first, second):
            rival.target(60)
        cluster.advance(begun)
        first.pause()
        cluster.advance(28)
        assert cluster.holder() is second
        before = len(first.wrote)
        assert 0 < before < 60, "requests wait in the pool, and for a worker"
        first.resume()
        cluster.advance(10)
        assert first.wrote[before:] == []
        assert len(cluster.pods()) == 60
        assert "another driver" in first.heard(AllocationBlocked)[-1].cause


def test_a_driver_that_was_paused_and_still_has_its_lease_goes_on() -> None:
    with Rivals("first", instances=0, allocation={"batch_size": 60}) as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.workers.busy = True
        first.target(60)
        cluster.advance(0.0025)
        first.pause()
        cluster.advance(28)
        before = len(first.wrote)
        first.resume()
        assert len(first.wrote) == before, "nobody has taken it, but somebody could have"
        cluster.advance(20)
        assert len(cluster.pods()) == 60
        assert cluster.holder() is first


# ── a stop with a lease ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stop_that_deletes_lets_go_of_the_lease_when_nothing_is_left() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        assert first.stop(delete_pods=True, within=5) == BackendStopped()
        assert cluster.pods() == {}
        assert (cluster.lease()["holderIdentity"], cluster.lease()["leaseDurationSeconds"]) == ("", 1)


def test_a_stop_before_the_lease_is_known_waits_for_it_and_deletes_what_an_earlier_life_left() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.stop(delete_pods=False, within=5)
        second = cluster.begin("second")
        assert second.stop(delete_pods=True, within=5) == BackendStopped()
        assert cluster.pods() == {}
        assert cluster.lease()["holderIdentity"] == ""


def test_a_stop_in_an_outage_waits_for_the_lease_and_deletes_the_fleet_when_it_is_back() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.api.outage = True
        cluster.advance(15)
        assert len(first.heard(AllocationBlocked)) == 1, "the lease may be lost by now"
        first.api.outage = False
        assert first.stop(delete_pods=True, within=29) == BackendStopped()
        assert cluster.pods() == {}
        assert sorted(ids(first, ExecutorRemoved)) == [1, 2, 3]


def test_a_stop_in_an_outage_without_an_end_names_what_it_leaves_in_time() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.api.outage = True
        cluster.advance(15)
        stopped = first.stop(delete_pods=True, within=35)
        assert stopped.left_behind == ("app-exec-1", "app-exec-2", "app-exec-3")
        assert first.heard(ExecutorRemoved) == []


@pytest.mark.parametrize("delete_pods", [True, False])
def test_a_lease_that_is_lost_to_another_during_the_stop_leaves_the_rest_to_it(delete_pods: bool) -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        first.api.outage = True
        cluster.advance(25)
        assert cluster.holder() is second
        first.api.outage = False
        assert first.stop(delete_pods=delete_pods) == BackendStopped()
        assert first.heard(ExecutorRemoved) == []
        assert len(cluster.pods()) == 3


def test_a_keeper_that_is_down_does_not_hold_the_stop_up() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.crash("lease-keeper")
        assert first.stop(delete_pods=True, within=5) == BackendStopped()
        assert cluster.pods() == {}


# ── a stop soon after a crash ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("after", [0.0, 0.05, 3.0, 14.0])
def test_a_stop_soon_after_a_crash_waits_for_the_dead_ones_lease_and_deletes_the_fleet(after: float) -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        cluster.drivers[0].kill()
        second = cluster.begin("second")
        cluster.advance(after)
        assert second.stop(delete_pods=True, within=29) == BackendStopped()
        assert cluster.pods() == {}
        assert cluster.lease()["holderIdentity"] == ""
        told = 3 if after else 0  # it had not begun when it was stopped
        assert sorted(ids(second, ExecutorRemoved)) == list(range(1, told + 1))


def test_a_stop_waits_until_the_holder_is_known_to_be_alive_and_keeps_its_fleet() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(0.05)
        second.backend.tell(StopBackend(delete_pods=True))
        cluster.advance(1)
        assert second.heard(BackendStopped) == [], "it is not known yet"
        cluster.advance(8)
        assert second.heard(BackendStopped) == [BackendStopped()]
        assert second.wrote == []
        assert second.heard(ExecutorRemoved) == []
        assert cluster.holder() is first
        assert list(cluster.pods().values()) == ["Running"] * 3


@pytest.mark.parametrize("after", [0.0, 3.0])
def test_a_stop_whose_time_is_over_before_the_dead_ones_lease_names_what_it_leaves(after: float) -> None:
    with Rivals("first", backend={"shutdown_timeout": "11s"}) as cluster:
        cluster.advance(10)
        cluster.drivers[0].kill()
        second = cluster.begin("second")
        cluster.advance(after)
        stopped = second.stop(delete_pods=True, within=12)
        assert stopped == BackendStopped(("app-exec-1", "app-exec-2", "app-exec-3"))
        assert second.wrote == []
        assert second.heard(ExecutorRemoved) == []


def test_a_driver_that_starts_after_a_stop_that_took_too_long_does_not_wait_for_the_lease() -> None:
    slow = {"template_patch": {"spec": {"terminationGracePeriodSeconds": 600}}}
    with Rivals("first", executor=slow, backend={"shutdown_timeout": "20s"}) as cluster:
        cluster.kubelet.script = lambda _: Run(stop_delay=timedelta(seconds=300))
        cluster.advance(10)
        first = cluster.drivers[0]
        assert first.stop(within=20) == BackendStopped()
        assert len(first.heard(ExecutorRemoved)) == 3
        second = cluster.begin("second")
        cluster.advance(3)
        assert cluster.holder() is second


def test_a_stop_that_leaves_the_fleet_does_not_wait_for_the_dead_ones_lease() -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        cluster.drivers[0].kill()
        second = cluster.begin("second")
        cluster.advance(3)
        assert second.stop(delete_pods=False, within=1) == BackendStopped()
        assert list(cluster.pods().values()) == ["Running"] * 3


# ── rights ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["get", "create", "patch"])
def test_without_a_right_to_leases_a_driver_that_requires_none_continues_and_logs_it_once(
    caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    with Rivals() as cluster:
        cluster.arrived = lambda *_: None  # type: ignore[method-assign]  # the oracle has no lease to go by
        only = cluster.begin("only", without=(verb,))
        cluster.advance(120)
        assert len(cluster.pods()) == 3
        assert only.heard(AllocationBlocked) == []
        assert only.stop() == BackendStopped()
        assert cluster.pods() == {}
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([line for line in said if line.startswith("continuing without a lease")]) == 1


def test_without_a_right_to_change_it_the_lease_of_a_dead_one_is_waited_for() -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        cluster.drivers[0].kill()
        cluster.kubelet.exit("app-exec-1", 1)
        second = cluster.begin("second", without=("patch",))
        cluster.advance(14)
        assert second.wrote == []
        cluster.arrived = lambda *_: None  # type: ignore[method-assign]  # the oracle has no lease to go by
        cluster.advance(30)
        assert sorted(cluster.pods()) == ["app-exec-2", "app-exec-3", "app-exec-4"]


def test_without_a_right_to_change_it_the_lease_of_another_is_respected() -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        second = cluster.begin("second", without=("patch",))
        cluster.advance(60)
        assert second.wrote == []


def test_a_holder_whose_right_is_revoked_stops_writing() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        second = cluster.begin("second")
        cluster.advance(5)
        first.door.forbidden.update({("get", LEASES.plural), ("patch", LEASES.plural)})
        cluster.advance(60)
        assert cluster.holder() is second
        assert 'cannot get resource "leases"' in first.heard(AllocationBlocked)[0].cause


@pytest.mark.parametrize("verb", ["get", "create", "patch"])
def test_without_a_right_to_a_lease_that_was_asked_for_the_start_fails_and_says_which(verb: str) -> None:
    with Rivals(backend={"lease": True}) as cluster:
        only = cluster.begin("only", without=(verb,))
        cluster.advance(60)
        (failed,) = only.heard(BackendFailed)
        line = f'grant verb "{verb}" on resource "leases" of group "coordination.k8s.io"'
        assert line in str(failed.cause)
        assert 'in namespace "default"' in str(failed.cause)
        assert cluster.pods() == {}


# ── everything at once ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", seeds(2, of=10))
def test_whatever_happens_to_both_at_no_moment_both_write(seed: int) -> None:
    with Rivals("first", "second", seed=seed) as cluster:
        dice = cluster.kit.entropy.fork("trouble")
        trouble = Chances(
            too_many_requests=0.03,
            server_error=0.05,
            lost_answer=0.05,
            stall=0.03,
            half_open=0.03,
            delay_request=0.1,
            delay_answer=0.1,
            cut=0.02,
        )
        cluster.advance(1)  # a driver that cannot start is no rival
        for _ in range(12):
            for rival in cluster.drivers:
                rival.api.chances = trouble
                rival.api.outage = dice.uniform(0, 1) < 0.3
            names = list(cluster.pods())
            if names and dice.uniform(0, 1) < 0.5:
                cluster.kubelet.exit(dice.choice(names), 1)
            cluster.advance(dice.uniform(1, 25))
        for rival in cluster.drivers:
            rival.api.calm()
        cluster.advance(200)
        assert len(cluster.pods()) == 3
        holder = cluster.holder()
        assert holder is not None
        (other,) = (rival for rival in cluster.drivers if rival is not holder)
        other.wrote.clear()
        holder.kill()
        cluster.kubelet.exit(next(iter(cluster.pods())), 1)
        cluster.advance(120)
        assert len(cluster.pods()) == 3
        assert "create pods" in other.wrote


@pytest.mark.parametrize("seed", seeds(1, of=10))
def test_whenever_both_are_paused_at_no_moment_both_write(seed: int) -> None:
    with Rivals("first", "second", seed=seed, instances=12) as cluster:
        dice = cluster.kit.entropy.fork("pauses")
        for rival in cluster.drivers:
            rival.workers.busy = True
            rival.api.chances = Chances(too_many_requests=0.03, server_error=0.05, lost_answer=0.05)
        cluster.advance(1)
        for _ in range(15):
            rival = dice.choice(cluster.drivers)
            for name in list(cluster.pods())[:4]:
                cluster.kubelet.exit(name, 1)
            cluster.advance(dice.choice((0.0005, 0.0025, 0.7, 1.0, 1.003, 5.001)))
            rival.pause()
            cluster.advance(dice.uniform(1, 40))
            rival.resume()
            cluster.advance(dice.uniform(0, 10))
        for rival in cluster.drivers:
            rival.api.calm()
        cluster.advance(200)
        assert len(cluster.pods()) == 12


@pytest.mark.parametrize("seconds", [15, 60])
def test_a_driver_that_waits_believes_no_two_refusals_between_which_it_could_read(seconds: int) -> None:
    """As behind a balancer with one API server that still reads its roles."""
    refused = ("get", LEASES.plural)
    with Rivals("first", backend={"lease_duration": f"{seconds}s"}) as cluster:
        (first,) = cluster.drivers
        cluster.advance(seconds / 3 + 5.2)
        second = cluster.begin("second", without=("get",))
        cluster.advance(1)
        second.door.forbidden.clear()
        cluster.advance(5)
        second.door.forbidden.add(refused)
        cluster.advance(2.2)
        second.door.forbidden.clear()
        second.target(5)
        cluster.advance(20)
        assert cluster.holder() is first
        assert cluster.violations == []
