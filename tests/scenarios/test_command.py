"""`executor-pods run` over a whole fleet, in virtual time: what it says of a run, and how it ends."""

from __future__ import annotations

import signal
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from actors.cli.driver import FORCE_AFTER, Plan
from actors.cli.main_loop import LOCAL_STOP, Item, Key
from actors.lease.record import lease_name
from actors.messages.internal import ExecutorSeen
from actors.testing import FakeCluster
from tests.unit.cli.runs import Run

if TYPE_CHECKING:
    from pathlib import Path

    from actors.testing import Kit

EXECUTORS = 3
MINUTE = timedelta(minutes=1)
HAND_OVER = {"on_sigterm": "hand-over"}


def test_a_run_counts_what_it_lost_and_replaced(kit: Kit) -> None:
    cluster = FakeCluster(kit)
    losses = {60: partial(cluster.oom, 1), 61: partial(cluster.evict, 2)}
    run = Run(kit, at=losses, cluster=cluster, plan=Plan(run_for=2 * MINUTE), instances=EXECUTORS)
    assert run.last.message == "5 executors ran, 2 lost (EVICTED 1, OOM_KILLED 1), 2 replaced"
    assert run.last.details == {
        "left_behind": (),
        "ran": 5,
        "lost": {"EVICTED": 1, "OOM_KILLED": 1},
        "replaced": 2,
    }
    assert run.counts["running"] == run.counts["removed"] == EXECUTORS + 2
    removed = [event for event in run.screen.events if event.event == "removed"]
    assert [event.pod for event in removed] == [f"etl-exec-{event.executor_id}" for event in removed]
    assert (run.exit_code, cluster.pods) == (0, {})


def test_the_time_of_a_run_is_counted_from_its_start(kit: Kit) -> None:
    cluster = FakeCluster(kit)
    outage = cluster.outage()
    outage.__enter__()
    run = Run(kit, at={20: partial(outage.__exit__, None, None, None)}, cluster=cluster, plan=Plan(run_for=MINUTE))
    assert run.first("stopping").time - run.first("started").time == MINUTE
    assert run.took > MINUTE + timedelta(seconds=20)


@pytest.mark.parametrize("code", [None, 403, 422], ids=["quota", "forbidden", "invalid"])
@pytest.mark.parametrize("end", ["time is up", "interrupted"])
def test_a_run_that_makes_nothing_until_its_end_says_what_blocked_it_and_has_failed(
    kit: Kit, code: int | None, end: str
) -> None:
    cluster = FakeCluster(kit)
    words = "exceeded quota" if code is None else "no such pods here"
    if code is None:
        cluster.quota(0)
    else:
        cluster.refuse("create", code, words, times=100)
    plan = Plan(run_for=MINUTE if end == "time is up" else None)
    run = Run(kit, at={70: [signal.SIGINT]}, cluster=cluster, plan=plan, instances=EXECUTORS)
    assert (run.last.event, run.last.reason, run.last.details["ran"]) == ("stopped", end, 0)
    failed = run.screen.events[-2]
    assert (failed.event, failed.reason) == ("failed", "NOTHING_MADE")
    assert (failed.message or "").startswith("no executor could be made: 'default': ")
    assert words in (failed.message or "")
    assert run.exit_code == 1


def test_executors_that_ignore_sigterm_are_told_removed_and_the_run_stopped(kit: Kit) -> None:
    cluster = FakeCluster(kit, stop_delay=timedelta(hours=1))
    force = partial(cluster.store.delete_collection, "pods", "default", grace_period_seconds=0)
    settings: dict[str, Any] = {"instances": EXECUTORS, "stop_grace_period": "1h"}
    run = Run(kit, cluster=cluster, plan=Plan(run_for=MINUTE, force=force), **settings)
    assert run.first("stopping").message == "3 executors have up to 7 s to end"
    took = run.first("removed").time - run.first("stopping").time
    assert FORCE_AFTER <= took < FORCE_AFTER + timedelta(seconds=1)
    assert run.counts["removed"] == EXECUTORS
    assert (run.last.event, run.last.reason, run.last.details["left_behind"]) == ("stopped", "time is up", ())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"instances": 0}, None),
        ({"instances": 1}, "1 executor has up to 4 s to end"),
        ({"instances": 2, "stop_grace_period": "10m"}, "2 executors have up to 600 s to end"),
        ({"instances": 1, "backend": {"delete_on_stop": False}}, "1 executor is left running"),
        ({"instances": 2, "backend": {"delete_on_stop": False}}, "2 executors are left running"),
    ],
)
def test_the_begin_of_a_stop_says_how_long_it_may_take(kit: Kit, settings: dict[str, Any], message: str | None) -> None:
    run = Run(kit, plan=Plan(run_for=MINUTE), **settings)
    assert (run.first("stopping").message, run.exit_code) == (message, 0)
    assert len(run.cluster.pods) == (settings["instances"] if "left" in (message or "") else 0)


def test_a_standby_that_stops_promises_no_executor_an_end(kit: Kit) -> None:
    cluster = FakeCluster(kit)
    Run(kit, cluster=cluster, plan=Plan(run_for=MINUTE), instances=1, backend={"delete_on_stop": False})
    spec = {
        "holderIdentity": "another",
        "leaseDurationSeconds": 3600,
        "renewTime": f"{kit.clock.now():%Y-%m-%dT%H:%M:%S.%fZ}",
    }
    cluster.store.patch("leases", "default", lease_name("etl"), {"spec": spec}, "merge")
    run = Run(kit, cluster=cluster, plan=Plan(run_for=MINUTE), instances=1)
    assert run.first("stopping").message == "1 executor stays, unless this driver gets the lease"
    assert [*cluster.pods] == [1]


def test_the_started_event_has_the_kubeconfig_of_an_embedded_cluster(kit: Kit, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    started = Run(kit, plan=Plan(run_for=MINUTE, kubeconfig=path)).first("started")
    assert started.details["kubeconfig"] == str(path)
    assert (started.message or "").endswith(f"; export KUBECONFIG={path}")


def test_pods_that_are_left_behind_are_named_and_a_failure(kit: Kit) -> None:
    cluster = FakeCluster(kit)
    run = Run(kit, at={50: cluster.outage().__enter__}, cluster=cluster, plan=Plan(run_for=MINUTE), instances=1)
    assert run.last.details["left_behind"] == ("etl-exec-1",)
    assert run.exit_code == 1


def test_a_backend_that_crashes_is_a_failure(kit: Kit) -> None:
    def crashes() -> None:
        kit.address("backend").tell(ExecutorSeen(1, "uid", None))  # type: ignore[arg-type]  # it crashes

    run = Run(kit, at={30: crashes}, instances=1)
    assert run.names[-2:] == ["failed", "stopped"]
    assert run.screen.events[-2].message == "'NoneType' object has no attribute 'pod'"
    assert (run.last.reason, run.exit_code) == ("the backend failed", 1)
    kit.crashes.clear()


def test_running_executors_are_registered_and_killed_every_interval_until_the_stop(kit: Kit) -> None:
    killed: list[str] = []
    plan = Plan(run_for=timedelta(seconds=30), kill_every=timedelta(seconds=3), kill=killed.append)
    run = Run(kit, plan=plan, instances=2)
    assert sorted(killed) == ["etl-exec-1", "etl-exec-2"], "each once: a registered one has been killed"
    assert run.exit_code == 0


def test_no_executor_is_killed_once_the_fleet_stops(kit: Kit) -> None:
    killed: list[str] = []
    plan = Plan(run_for=timedelta(seconds=2.5), kill_every=timedelta(seconds=3), kill=killed.append)
    cluster = FakeCluster(kit, stop_delay=timedelta(seconds=20))
    run = Run(kit, plan=plan, cluster=cluster, instances=1, stop_grace_period="30s")
    assert run.counts["running"] == 1
    assert killed == []


@pytest.mark.parametrize(
    ("items", "why", "left", "exit_code"),
    [
        ([signal.SIGTERM], "SIGTERM received, handing over", 1, 143),
        ([signal.SIGTERM, signal.SIGTERM], "SIGTERM received, handing over", 1, 143),
        ([signal.SIGHUP], "SIGHUP received", 0, 0),
        ([signal.SIGINT], "interrupted", 0, 130),
        ([Key("y"), signal.SIGTERM], "a key was pressed", 0, 0),
        ([signal.SIGTERM, signal.SIGINT], "SIGTERM received, handing over", 1, 130),
    ],
    ids=str,
)
def test_of_a_driver_that_hands_over_only_sigterm_leaves_the_executors_and_the_first_stop_decides(
    kit: Kit, items: list[Item], why: str, left: int, exit_code: int
) -> None:
    run = Run(kit, at={30: items}, instances=1, backend=HAND_OVER)
    assert (run.stops, run.exit_code) == ([why], exit_code)
    assert len(run.cluster.pods) == left


def test_sigterm_after_the_drivers_own_stop_does_not_make_the_run_a_failure(kit: Kit) -> None:
    """A Job takes any other exit code than 0 for one."""
    cluster = FakeCluster(kit, stop_delay=timedelta(seconds=4))
    run = Run(
        kit, at={32: [signal.SIGTERM]}, plan=Plan(run_for=MINUTE / 2), cluster=cluster, instances=1, backend=HAND_OVER
    )
    assert (run.stops, run.exit_code, cluster.pods) == (["time is up"], 0, {})


@pytest.mark.parametrize(("end", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_on_the_embedded_cluster_an_orderly_stop_has_a_time_limit(
    kit: Kit, end: signal.Signals, exit_code: int
) -> None:
    cluster = FakeCluster(kit, stop_delay=timedelta(hours=1))
    forced: list[None] = []
    plan = Plan(force=lambda: forced.append(None))
    run = Run(kit, at={30: [end]}, plan=plan, cluster=cluster, instances=1, stop_grace_period="1h")
    assert (forced, run.exit_code) == ([None], exit_code)
    assert timedelta(seconds=30) + LOCAL_STOP < run.took < timedelta(seconds=31) + LOCAL_STOP
