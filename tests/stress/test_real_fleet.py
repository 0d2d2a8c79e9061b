"""What a real control plane refuses, ends and takes back, and what a Backend makes of it.

Each fleet has a namespace of its own on one plane. What was asked of the server is read from its own audit log.
"""

from __future__ import annotations

import statistics
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors.backend.rbac import Right
from actors.kube.api import PODS
from actors.messages import AllocationBlocked, AllocationUnblocked, BackendFailed
from actors.pods.loss import LossKind
from tests.contract.accounts import open_account, wait_for_review
from tests.stress import test_control_plane
from tests.stress.fleet import Fleet
from tests.stress.hands import CLASS, Namespace
from tests.stress.plane import WholePlane
from tests.stress.real import RealFleet, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.stress.plane import Asked

pytestmark = test_control_plane.pytestmark

HELD_SECONDS: Final = 20.0
"""How long what blocks a fleet stays, to see that it is told once and seldom asked for again."""
POSTS_WHILE_HELD: Final = 6
"""The last of the batch, then one after each of 1, 2, 4 and 8 seconds, which a fifth of jitter may make shorter."""
ENDED: Final = 20
WRITES: Final = ("create", "patch", "delete", "deletecollection")
BAD: Final = 400
"""The first status of those that say no."""
LOOK: Final = timedelta(seconds=2)
"""How often one that has no lease looks, at most, with some time for the machine."""
REPLACED_WITHIN_SECONDS: Final = 0.5
"""From a deletion to the POST of the replacement: the watch tells at once, and an end brings a round at once."""
MADE_IN_VAIN: Final = 40
"""Of ten executors that are collected, each is replaced at once, for as long as it takes to find out why: one GET."""
LEASE: Final = timedelta(seconds=3)
NO_LEASE: Final[dict[str, Any]] = {"lease": False}
CLAIM: Final = {"name": "scratch", "mount_path": "/scratch", "size": "1Gi", "storage_class": CLASS}
OF_AGE_SECONDS: Final = 5.0
"""`allocation.creation_timeout`: younger claims are not taken over."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholePlane]:
    plane = WholePlane(test_control_plane.ASSETS, tmp_path_factory.mktemp("plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def namespace(plane: WholePlane, request: pytest.FixtureRequest) -> Namespace:
    """One for the test alone."""
    tests = [item.nodeid for item in request.session.items]
    return Namespace(plane, f"test-{tests.index(request.node.nodeid)}")


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_quota_is_told_once_and_more_executors_run_when_it_is_raised(
    plane: WholePlane, namespace: Namespace
) -> None:
    namespace.set_quota(3)
    with RealFleet(plane.kubeconfig, namespace.name, 5) as fleet:
        fleet.until_running(3)
        blocked = fleet.until_told(AllocationBlocked)
        assert "exceeded quota" in blocked.cause
        namespace.hold(HELD_SECONDS, posts=POSTS_WHILE_HELD)
        status = fleet.status().profiles["default"]
        assert (status.running, status.blocked) == (3, blocked.cause)
        assert status.blocked_since is not None
        assert datetime.now(UTC) - status.blocked_since >= timedelta(seconds=HELD_SECONDS)
        assert fleet.kinds() == {"AllocationBlocked": 1}
        namespace.set_quota(10)
        fleet.until_running(5)
        fleet.until_told(AllocationUnblocked)
        assert fleet.kinds() == {"AllocationBlocked": 1, "AllocationUnblocked": 1}
        assert fleet.status().profiles["default"].blocked_since is None
        assert namespace.codes().count(201) == 5


def test_a_right_that_is_taken_away_is_told_once_and_missed_no_more_when_it_is_back(
    plane: WholePlane, namespace: Namespace
) -> None:
    account = open_account(plane, namespace.name)
    with RealFleet(account, namespace.name, 3) as fleet:
        fleet.until_running(3)
        with namespace.role_without("create"):
            wait_for_review(plane, account, "no", Right("create", PODS))
            namespace.delete_by_force(fleet.pods[1])
            blocked = fleet.until_told(AllocationBlocked)
            assert 'cannot create resource "pods"' in blocked.cause
            namespace.hold(HELD_SECONDS, posts=POSTS_WHILE_HELD)
            assert fleet.kinds() == {"AllocationBlocked": 1, "ExecutorRemoved": 1}
        fleet.until_running(3, removed=1)
        fleet.until_told(AllocationUnblocked)
        assert fleet.kinds() == {"AllocationBlocked": 1, "AllocationUnblocked": 1, "ExecutorRemoved": 1}


def test_a_pod_that_only_the_server_finds_invalid_is_told_once_with_its_field_and_holds_up_no_other_profile(
    plane: WholePlane, namespace: Namespace
) -> None:
    profiles = {"wrong": {"instances": 2, "template_patch": {"spec": {"dnsPolicy": "Sometimes"}}}}
    with RealFleet(plane.kubeconfig, namespace.name, 2, profiles=profiles) as fleet:
        fleet.until_running(2)
        blocked = fleet.until_told(AllocationBlocked)
        assert blocked.profile == "wrong"
        assert "is invalid" in blocked.cause
        assert "spec.dnsPolicy" in blocked.cause
        namespace.hold(HELD_SECONDS, posts=POSTS_WHILE_HELD)
        assert fleet.kinds() == {"AllocationBlocked": 1}
        fleet.ask_for({"default": 3})
        fleet.until_running(3)
        assert fleet.until_told(AllocationUnblocked) == AllocationUnblocked("wrong")
        assert fleet.kinds() == {"AllocationBlocked": 1, "AllocationUnblocked": 1}


def test_what_an_admission_forbids_is_told_once_and_made_when_the_rule_is_gone(
    plane: WholePlane, namespace: Namespace
) -> None:
    resources = {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}}
    namespace.limit_memory("1Gi", resources)
    with RealFleet(plane.kubeconfig, namespace.name, 2, executor={"resources": resources}) as fleet:
        blocked = fleet.until_told(AllocationBlocked)
        assert "maximum memory usage per Container is 1Gi" in blocked.cause
        namespace.hold(HELD_SECONDS, posts=POSTS_WHILE_HELD)
        assert fleet.kinds() == {"AllocationBlocked": 1}
        namespace.lift_limit()
        fleet.until_running(2)
        fleet.until_told(AllocationUnblocked)
        assert fleet.kinds() == {"AllocationBlocked": 1, "AllocationUnblocked": 1}


def test_a_namespace_that_is_deleted_under_its_fleet_is_told_once_and_filled_again_when_it_is_back(
    plane: WholePlane, namespace: Namespace
) -> None:
    with RealFleet(plane.kubeconfig, namespace.name, 3, backend=NO_LEASE) as fleet:
        fleet.until_running(3)
        with namespace.terminating():
            blocked = fleet.until_told(AllocationBlocked)
            assert "the namespace is being deleted" in blocked.cause
            fleet.until_running(0, removed=3)
            namespace.hold(HELD_SECONDS, posts=POSTS_WHILE_HELD)
            assert fleet.kinds() == {"AllocationBlocked": 1, "ExecutorRemoved": 3}
        until(lambda: namespace.codes()[-1] == 404, "a POST finds no namespace")
        assert fleet.kinds() == {"AllocationBlocked": 1, "ExecutorRemoved": 3}
        namespace.make()
        fleet.until_running(3, removed=3)
        fleet.until_told(AllocationUnblocked)
        assert fleet.kinds() == {"AllocationBlocked": 1, "AllocationUnblocked": 1, "ExecutorRemoved": 3}
        assert {reason.kind for reason in fleet.removed.values()} == {LossKind.DELETED}
        assert not any(reason.caused_by_app for reason in fleet.removed.values())


def test_a_lease_that_goes_with_its_namespace_is_told_once_too_and_ours_again_when_it_is_back(
    plane: WholePlane, namespace: Namespace
) -> None:
    with RealFleet(plane.kubeconfig, namespace.name, 3) as fleet:
        fleet.until_running(3)
        with namespace.terminating():
            fleet.until_told(AllocationBlocked, 2)
            fleet.until_running(0, removed=3)
            namespace.hold(HELD_SECONDS, posts=0)
        until(lambda: not namespace.exists(), "the namespace is gone")
        namespace.make()
        fleet.until_running(3, removed=3)
        fleet.until_told(AllocationUnblocked)
        assert fleet.kinds() == {"AllocationBlocked": 2, "AllocationUnblocked": 1, "ExecutorRemoved": 3}
        creation, lease = (each.cause for each in fleet.told(AllocationBlocked))
        assert "the namespace is being deleted" in creation
        assert "the lease executor-pods-real is not ours" in lease
        assert "because it is being terminated" in lease


# ── what ends ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_executor_deleted_by_force_is_replaced_within_half_a_second(plane: WholePlane, namespace: Namespace) -> None:
    with RealFleet(plane.kubeconfig, namespace.name, 5) as fleet:
        fleet.until_running(5)
        for count in range(ENDED):
            fleet.register(fleet.running)  # the next ones would wait if these were ended before they did anything
            namespace.delete_by_force(fleet.pods[min(fleet.running)])
            fleet.until_running(5, removed=count + 1)
        assert {reason.kind for reason in fleet.removed.values()} == {LossKind.DELETED}
    made = [post.received for post in namespace.asked("create") if post.subresource is None]
    ended = [delete.received for delete in namespace.done_by_hand("delete")]
    waits = [(min(at for at in made if at > end) - end).total_seconds() for end in ended]
    print(f"\nfrom DELETE to POST: p50 {statistics.median(waits):.3f} s, max {max(waits):.3f} s")
    assert len(waits) == ENDED
    assert len(made) == 5 + ENDED
    assert max(waits) <= REPLACED_WITHIN_SECONDS


@pytest.mark.parametrize("by_force", [True, False], ids=["by force", "in time, and waited for"])
def test_a_replacement_mounts_the_claim_of_the_executor_that_was_deleted(
    plane: WholePlane, namespace: Namespace, by_force: bool
) -> None:
    namespace.make_volumes(3)
    namespace.make_pod("driver-0")
    settings: dict[str, Any] = {
        "driver_pod_name": "driver-0",
        "executor": {"claims": [CLAIM], "wait_to_reuse_claim": not by_force},
        "allocation": {"creation_timeout": f"{OF_AGE_SECONDS}s"},
    }
    with RealFleet(plane.kubeconfig, namespace.name, 2, **settings) as fleet:
        fleet.until_running(2)
        claims = namespace.claims()
        assert claims == [f"{fleet.pods[1]}-pvc-0", f"{fleet.pods[2]}-pvc-0"]
        threading.Event().wait(OF_AGE_SECONDS)
        for count in range(3):
            victim = fleet.pods[min(fleet.running)]
            mounted = namespace.claims_of(victim)
            (namespace.delete_by_force if by_force else namespace.delete_pod)(victim)
            fleet.until_running(2, removed=count + 1)
            assert namespace.claims_of(fleet.pods[max(fleet.running)]) == mounted
            assert namespace.claims() == claims
    assert len(namespace.asked("create", resource="persistentvolumeclaims")) == 2


def test_the_fleet_is_collected_when_the_pod_of_a_driver_that_is_gone_is_deleted(
    plane: WholePlane, namespace: Namespace
) -> None:
    namespace.make_pod("driver-0")
    with RealFleet(plane.kubeconfig, namespace.name, 10, driver_pod_name="driver-0", backend=NO_LEASE) as fleet:
        fleet.until_running(10)
    assert len(namespace.pods()) == 11, "it is left as it is"
    namespace.delete_by_force("driver-0")
    until(lambda: namespace.pods() == [], "the garbage collector has taken the fleet")
    deleted, *_ = namespace.done_by_hand("delete")
    collected = [asked.at - deleted.at for asked in namespace.asked("delete") if is_collector(asked)]
    print(f"\ncollected within {max(collected)}")
    assert len(collected) == 10


def test_a_driver_that_outlives_its_pod_gives_up_rather_than_feed_the_collector(
    plane: WholePlane, namespace: Namespace
) -> None:
    namespace.make_pod("driver-0")
    with RealFleet(plane.kubeconfig, namespace.name, 10, driver_pod_name="driver-0", backend=NO_LEASE) as fleet:
        fleet.until_running(10)
        namespace.delete_by_force("driver-0")
        failed = fleet.until_told(BackendFailed)
        assert "driver_pod_name = 'driver-0': there is no such pod any more" in str(failed.cause)
        until(lambda: namespace.pods() == [], "what was made meanwhile is collected too")
    print(f"\n{len(namespace.codes()) - 10} executors were made in vain")
    assert len(namespace.codes()) <= 10 + MADE_IN_VAIN


def test_a_restarted_driver_adopts_the_fleet_before_it_creates_any_and_it_outlives_the_first_drivers_pod(
    plane: WholePlane, namespace: Namespace
) -> None:
    owner = namespace.make_pod("driver-0")
    namespace.make_pod("driver-1")
    with RealFleet(plane.kubeconfig, namespace.name, 10, driver_pod_name="driver-0", backend=NO_LEASE) as first:
        first.until_running(10)
    namespace.make_pod("canary", ownerReferences=[owner])
    since = len(namespace.asked("create", "patch", "delete"))
    with RealFleet(plane.kubeconfig, namespace.name, 12, driver_pod_name="driver-1", backend=NO_LEASE) as second:
        second.until_running(12)
        namespace.delete_by_force("driver-0")
        until(lambda: "canary" not in namespace.pods(), "what the first driver's pod owns is collected")
        threading.Event().wait(3.0)
        assert second.kinds() == {}, "nobody of the fleet has ended"
        assert namespace.pods() == sorted(["driver-1", *second.pods.values()])
        assert sorted(second.pods) == list(range(1, 13))
    ours = [asked for asked in namespace.asked("create", "patch", "delete")[since:] if is_backend(asked)]
    assert [(asked.verb, asked.code) for asked in ours] == [("patch", 200)] * 10 + [("create", 201)] * 2


# ── two drivers ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_two_drivers_of_one_app_id_one_looks_on_until_the_lease_of_the_other_has_run_out(
    plane: WholePlane, namespace: Namespace, tmp_path: Path
) -> None:
    account = open_account(plane, namespace.name)
    seconds = LEASE.total_seconds()
    config = tmp_path / "settings.toml"
    config.write_text(
        f'app_id = "pair"\n[backend]\nlease_duration = "{seconds}s"\nrequest_timeout = "{seconds / 3}s"\n'
    )
    more = ("--config", str(config), "--namespace", namespace.name)
    first_folder, second_folder = tmp_path / "first", tmp_path / "second"
    first_folder.mkdir()
    second_folder.mkdir()
    with Fleet(first_folder, account, 4, *more) as first:
        first.until_whole()
        with Fleet(second_folder, plane.kubeconfig, 6, *more) as second:
            while (event := second.next())["event"] != "blocked":
                pass
            assert "held by" in event["message"]
            threading.Event().wait(2 * seconds)
            assert first.process.poll() is None
            killed = datetime.now(UTC)
            first.process.kill()
            second.until_whole()
            assert second.interrupt() == 130
            assert namespace.pods() == []
            assert sorted(second.removed) == [1, 2, 3, 4, 5, 6]
    writes = [each for each in namespace.asked(*WRITES) if is_backend(each)]
    terms = sorted([*namespace.asked(*WRITES, resource="leases"), *writes], key=lambda asked: asked.at)
    took = next(
        asked.at for asked in terms if asked.user == "admin" and asked.resource == "leases" and asked.code < 300
    )
    print(f"\nthe lease was taken {took - killed} after the first driver was killed")
    assert took - killed <= LEASE + LOOK
    check_terms(terms)


def check_terms(asked: Sequence[Asked]) -> None:
    """Whoever writes has written the lease last, and less than its duration ago."""
    holder, renewed = "", datetime.min.replace(tzinfo=UTC)
    for each in asked:
        if each.resource == "pods":
            assert each.user == holder, f"{each} while {holder!r} has the lease"
            assert each.received - renewed < LEASE, f"{each} though the lease was renewed at {renewed}"
        elif each.code < BAD:
            holder, renewed = each.user, each.received


def is_backend(asked: Asked) -> bool:
    return asked.agent.startswith("executor-pods")


def is_collector(asked: Asked) -> bool:
    return "garbage-collector" in asked.agent
