"""Whether a fleet's driver lives, by its Lease and its pod; the Lease's clock; how executors are counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors.inspection.cleanup import HOLD, must_watch, refusal, release_lease, take_lease
from actors.inspection.executors import observe
from actors.inspection.fleets import Counts, FleetState, ObservedFleet, judge, owners_of, pod_lives
from actors.inspection.leases import ObservedLease, observe_lease
from tests.unit.hostile import HOSTILE
from tests.unit.inspection.objects import NOW, RUNNING, at, lease, pod, stamped


def fleet(*pods: dict[str, Any], lease: ObservedLease | None = None, owners: Any = ()) -> ObservedFleet:
    executors = tuple(filter(None, (observe(manifest, NOW) for manifest in pods)))
    return ObservedFleet("etl", "default", executors, lease, judge(lease, dict(owners), NOW), NOW)


def observed(*args: Any, **metadata: Any) -> ObservedLease:
    found = observe_lease(lease("etl", *args, **metadata))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("age", "state", "why"),
    [
        (3, FleetState.ALIVE, "host_1 holds the Lease"),
        (14, FleetState.ALIVE, "host_1 holds the Lease"),
        (15, FleetState.ORPHANED, "host_1 has not renewed the Lease for 15s"),
        (-14, FleetState.ALIVE, "host_1 holds the Lease"),
        (-3600, FleetState.UNKNOWN, "host_1 renewed the Lease 60m in the future: the clocks disagree"),
    ],
)
def test_the_lease_decides(age: float, state: FleetState, why: str) -> None:
    found = fleet(pod(), lease=observed(age))
    assert (found.state, found.driver.why) == (state, why)


def test_the_servers_stamp_counts_and_not_the_drivers_clock() -> None:
    late, early = observed(3600, managedFields=stamped(2)), observed(-3600, managedFields=stamped(60))
    assert fleet(pod(), lease=late).state is FleetState.ALIVE
    assert fleet(pod(), lease=early).state is FleetState.ORPHANED
    assert late.age(NOW) == timedelta(seconds=2)
    for other in ("f:acquireTime", ""):
        assert observed(3600, managedFields=stamped(2, other)).stamped is False


def test_a_released_lease_has_no_driver_and_without_live_pods_the_fleet_has_ended() -> None:
    released = observed(3, "")
    assert fleet(pod(), lease=released).state is FleetState.ORPHANED
    assert fleet(lease=released).state is FleetState.ENDED
    assert fleet(pod(phase="Succeeded"), lease=released).state is FleetState.ENDED


@pytest.mark.parametrize("renewed", [None, 7, "then", "2026-03-01T12:00:00"])
def test_a_lease_that_does_not_say_when_it_was_renewed_proves_nothing(renewed: Any) -> None:
    manifest = lease()
    manifest["spec"]["renewTime"] = renewed
    found = observe_lease(manifest)
    assert fleet(pod(), lease=found).state is FleetState.UNKNOWN


@pytest.mark.parametrize("metadata", [None, [], {}, {"resourceVersion": 7}])
def test_a_lease_without_a_version_is_unusable(metadata: Any) -> None:
    assert observe_lease({"metadata": metadata}) is None


@pytest.mark.parametrize(
    ("owners", "state", "why"),
    [
        ({}, FleetState.UNKNOWN, "it has no Lease, and no pod owns its executors"),
        ({"driver": True}, FleetState.ALIVE, "the driver's pod driver runs"),
        ({"old": False, "driver": True}, FleetState.ALIVE, "the driver's pod driver runs"),
        ({"driver": False}, FleetState.ORPHANED, "the driver's pod driver is gone or has ended"),
        ({"driver": None}, FleetState.UNKNOWN, "it has no Lease, and the driver's pod driver cannot be read"),
        ({"old": False, "driver": None}, FleetState.UNKNOWN, "it has no Lease, and the driver's pod driver cannot be"),
    ],
)
def test_without_a_lease_the_drivers_pod_decides(owners: Any, state: FleetState, why: str) -> None:
    found = fleet(pod(), owners=owners)
    assert found.state is state
    assert found.driver.why.startswith(why)


def test_the_drivers_pod_lives_if_it_is_the_same_and_has_not_ended() -> None:
    owner = {"kind": "Pod", "name": "driver", "uid": "u"}
    executors = fleet(pod(metadata={"ownerReferences": [owner, {"kind": "Job", "uid": "j"}]}), pod(2)).executors
    assert [each.name for each in owners_of(executors)] == ["driver"]
    assert pod_lives({"metadata": {"uid": "u"}, "status": {"phase": "Running"}}, "u")
    assert not pod_lives({"metadata": {"uid": "u"}, "status": {"phase": "Failed"}}, "u")
    assert not pod_lives({"metadata": {"uid": "v"}, "status": {"phase": "Running"}}, "u")
    assert not pod_lives(None, "u")


def test_executors_are_counted_by_profile_and_wanted_profiles_are_shown() -> None:
    waiting = {"waiting": {"reason": "ErrImagePull"}}
    found = fleet(
        pod(1, state=RUNNING),
        pod(2, phase="Unknown"),
        pod(3, phase="Pending"),
        pod(4, phase="Pending", state=waiting),
        pod(5, metadata={"deletionTimestamp": at(-5)}),
        pod(6, phase="Failed"),
        pod(7, metadata={"labels": {**pod(7)["metadata"]["labels"], "executor-pods/profile": "other"}}),
        lease=observed(),
    )
    assert found.counts == {
        "default": Counts(3, running=2, pending=2, stuck=1, terminating=1, ended=1),
        "gpu": Counts(1),
        "other": Counts(None, running=1),
    }


def test_of_two_pods_with_one_id_the_one_that_is_alive_is_meant() -> None:
    found = fleet(pod(1, phase="Failed"), pod(1, metadata={"uid": "later"}))
    live = found.find(1)
    assert live is not None
    assert live.pod.uid == "later"
    assert found.find(2) is None


def test_names_of_strangers_are_text() -> None:
    text = HOSTILE
    for found in (fleet(pod(), lease=observed(3, text)), fleet(pod(), owners={text: True})):
        assert found.driver.why.isprintable()


# ── cleaning up ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fleet_is_deleted_only_if_its_driver_is_gone_or_the_user_says_so() -> None:
    alive, orphaned = fleet(pod(), lease=observed()), fleet(pod(), lease=observed(60))
    assert refusal(alive, without_lease=True) == (
        "fleet 'etl' is alive: host_1 holds the Lease. Stop its driver, or scale it to 0; nothing was deleted"
    )
    assert refusal(orphaned) is None
    assert refusal(fleet(pod(), lease=observed(-3600))) is None  # it is watched first
    assert "give --without-lease" in (refusal(fleet(pod())) or "")
    assert refusal(fleet(pod()), without_lease=True) is None


def test_a_lease_must_stay_unchanged_for_its_duration_unless_the_server_proves_its_age() -> None:
    assert must_watch(observed(60), NOW) == timedelta(seconds=15)
    assert must_watch(observed(60, managedFields=stamped(60)), NOW) is None
    assert must_watch(observed(60, managedFields=stamped(-3600)), NOW) == timedelta(seconds=15)
    assert must_watch(observed(60, ""), NOW) is None


def test_the_lease_is_taken_if_nobody_has_written_it_and_it_stays() -> None:
    request = take_lease("etl", observed(60), "me", NOW)
    assert request.name == "executor-pods-etl"
    assert request.patch["metadata"] == {"resourceVersion": "9", "annotations": {"executor-pods/last-id": "4"}}
    assert request.patch["spec"]["holderIdentity"] == "me"
    assert request.patch["spec"]["leaseDurationSeconds"] == HOLD.total_seconds()
    patch = release_lease("etl", observed(1, "me"), NOW).patch
    assert patch["metadata"]["resourceVersion"] == "9"
    assert patch["spec"]["holderIdentity"] == ""
