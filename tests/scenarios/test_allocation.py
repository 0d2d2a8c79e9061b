"""How many executors there are, of which shape, and why not more: the whole tree, in virtual time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    Refused,
    TooLarge,
    TooManyRequests,
    Unavailable,
)
from actors.local.faults.kinds import DelayRequest, Stall
from actors.local.kubelet import pod_status
from actors.local.kubelet.scripted_kubelet import Run, StayUnscheduled, StayWaiting
from actors.local.store.objects import rfc3339
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    DecommissionExecutors,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    FleetFailed,
    GetExecutorIds,
    GetExecutors,
    GetFleetStatus,
    IsExecutorExcluded,
    KillExecutors,
    ProfileStatus,
    RegisterExecutor,
    RequestTotalExecutors,
)
from actors.pods.loss import LossKind
from tests.scenarios.test_whole_tree import pod_name
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.local.kubelet.scripted_kubelet import Plan

MINUTE = 60
LARGE = {"image": "worker:large", "node_selector": {"size": "large"}}


def want(world: World, totals: Mapping[str, int]) -> None:
    """The driver asks for so many of each profile."""
    world.invariants.retarget(totals)
    world.backend.tell(RequestTotalExecutors(totals))


def profile_of(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["executor-pods/profile"])


def of_profiles(world: World) -> Counter[str]:
    """How many pods of each profile there are and are not about to go."""
    return Counter(profile_of(pod) for pod in world.pods() if "deletionTimestamp" not in pod["metadata"])


def status(world: World, profile: str = "default") -> ProfileStatus:
    found = world.ask(GetFleetStatus()).profiles[profile]
    assert isinstance(found, ProfileStatus)
    return found


def posts(world: World, since: float = 0.0) -> int:
    """How many POSTs of pods there were from then on."""
    return sum(operation == "create" and at >= since for at, operation in world.api.asked)


def now(world: World) -> float:
    return world.kit.clock.monotonic()


# ── 1: profiles ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_profile_has_pods_of_its_own_shape_and_label_up_to_its_own_target() -> None:
    large = {
        **LARGE,
        "instances": 3,
        "resources": {"requests": {"cpu": "4"}},
        "template_patch": {"spec": {"priorityClassName": "high"}},
    }
    with World(executor={"instances": 2, "resources": {"requests": {"cpu": "1"}}}, profiles={"large": large}) as world:
        world.invariants.retarget(world.settings.initial_totals)
        world.advance(5)
        assert of_profiles(world) == {"default": 2, "large": 3}
        for pod in world.pods():
            spec, is_large = pod["spec"], profile_of(pod) == "large"
            container = spec["containers"][0]
            assert container["image"] == ("worker:large" if is_large else "worker:1")
            assert container["resources"]["requests"] == {"cpu": "4" if is_large else "1"}
            assert spec.get("nodeSelector") == ({"size": "large"} if is_large else None)
            assert spec.get("priorityClassName") == ("high" if is_large else None)
            assert {"name": "EXECUTOR_PROFILE", "value": profile_of(pod)} in container["env"]
        want(world, {"default": 1, "large": 6})
        world.advance(5)
        assert of_profiles(world) == {"default": 2, "large": 6}, "running ones are the driver's to end"
        assert (status(world).target, status(world, "large").running) == (1, 6)
        assert len(world.ask(GetExecutorIds())) == 8
        world.stop()


def test_an_executor_that_ends_is_replaced_by_one_of_its_own_profile() -> None:
    with World(executor={"instances": 2}, profiles={"large": {**LARGE, "instances": 2}}) as world:
        world.invariants.retarget(world.settings.initial_totals)
        world.advance(30)
        for pod in [pod for pod in world.pods() if profile_of(pod) == "large"]:
            world.kubelet.exit(pod["metadata"]["name"], 1)
        world.advance(5)
        assert of_profiles(world) == {"default": 2, "large": 2}
        assert len(world.removals()) == 2
        world.stop()


def test_slots_are_shared_evenly_between_profiles_that_want_pods_and_the_first_get_the_remainder() -> None:
    shapes = {name: {"image": "worker:1"} for name in ("a", "b", "idle")}
    with World(allocation={"max_pending_pods": 5}, profiles=shapes) as world:
        world.kubelet.script = lambda _: StayUnscheduled()
        world.advance(1)
        want(world, {"a": 9, "b": 9, "default": 9})
        world.advance(10)
        assert of_profiles(world) == {"a": 2, "b": 2, "default": 1}
        world.stop()


def test_a_slot_that_one_profile_does_not_need_goes_to_another() -> None:
    shapes = {name: {"image": "worker:1"} for name in ("a", "b")}
    with World(allocation={"max_pending_pods": 6}, profiles=shapes) as world:
        world.kubelet.script = lambda _: StayUnscheduled()
        world.advance(1)
        want(world, {"a": 1, "b": 9})
        world.advance(10)
        assert of_profiles(world) == {"a": 1, "b": 5}
        world.stop()


def test_a_profile_that_the_target_no_longer_names_keeps_what_runs_and_loses_what_is_pending() -> None:
    with World(executor={"instances": 1}, profiles={"large": {**LARGE, "instances": 1}}) as world:
        world.invariants.retarget(world.settings.initial_totals)
        world.advance(5)
        world.kubelet.script = lambda _: StayUnscheduled()
        want(world, {"default": 1, "large": 3})
        world.advance(5)
        assert of_profiles(world)["large"] == 3
        want(world, {"default": 1})
        world.advance(70)
        assert of_profiles(world) == {"default": 1, "large": 1}
        assert (status(world, "large").target, status(world, "large").running) == (0, 1)
        world.stop()


def test_a_target_for_an_unknown_profile_is_refused_to_its_sender_and_changes_nothing() -> None:
    with World(executor={"instances": 2}, profiles={"large": LARGE}) as world:
        world.advance(5)
        with pytest.raises(Refused, match="has 'huge': there is no such profile; there are 'default', 'large'"):
            world.ask(RequestTotalExecutors({"default": 7, "huge": 1}))
        world.backend.tell(RequestTotalExecutors({"huge": 1}))
        world.advance(5)
        assert world.running() == 2
        assert status(world).target == 2
        world.stop()


def test_executors_of_a_profile_that_is_no_more_are_taken_over_and_not_counted_for_another() -> None:
    with World(executor={"instances": 1}, profiles={"large": {**LARGE, "instances": 2}}) as world:
        world.invariants.retarget(world.settings.initial_totals)
        world.kubelet.script = lambda pod: StayUnscheduled() if pod["metadata"]["name"].endswith("3") else Run()
        world.advance(5)
        profiles = {pod["metadata"]["name"]: profile_of(pod) for pod in world.pods()}
        assert profiles[pod_name(world, 3)] == "large"
        world.stop(delete_pods=False)
        world.settings = world.settings.model_copy(update={"profiles": {}})
        world.restart()
        world.target(2)
        world.advance(80)
        assert of_profiles(world) == {"default": 2, "large": 1}, "the pending one of it is nobody's, the running one is"
        assert status(world, "large").running == 1
        assert sorted(m.executor_id for m in world.heard(ExecutorRunning)) == [1, 2, 4]
        world.stop()


# ── 2: limits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_never_more_are_pending_than_the_limits_allow_in_all_and_of_a_profile() -> None:
    limits = {"max_pending_pods": 7, "max_pending_pods_per_profile": 4, "batch_size": 2, "max_batch_size": 16}
    with World(allocation=limits, profiles={"large": LARGE}, start_delay=timedelta(seconds=3)) as world:
        world.advance(1)
        want(world, {"default": 30, "large": 30})
        most: Counter[str] = Counter()
        for _ in range(400):
            world.advance(0.1)
            waiting = Counter(profile_of(pod) for pod in world.pods("Pending"))
            most |= Counter({**waiting, "all": waiting.total()})
        assert most == {"default": 4, "large": 4, "all": 7}
        assert of_profiles(world) == {"default": 30, "large": 30}
        world.stop()


def test_batches_grow_while_creation_succeeds() -> None:
    with World(allocation={"batch_size": 2, "max_batch_size": 16, "max_requests_in_flight": 64}) as world:
        world.advance(1)
        world.target(60)
        world.advance(2)
        moments = Counter(at for at, operation in world.api.asked if operation == "create")
        assert [moments[at] for at in sorted(moments)] == [2, 4, 8, 16, 16, 14]
        world.stop()


def test_a_driver_creates_no_more_pods_in_its_life_than_it_is_allowed_and_says_so_once() -> None:
    with World(executor={"instances": 3}, allocation={"max_created": 5}) as world:
        world.advance(30)
        for executor_id in (1, 2, 3):
            world.kubelet.exit(pod_name(world, executor_id), 1)
        world.advance(5 * MINUTE)
        assert world.running() == 2
        assert posts(world) == 5
        (blocked,) = world.heard(AllocationBlocked)
        assert blocked.cause == "allocation.max_created = 5: this driver has created so many pods"
        assert status(world).blocked == blocked.cause
        assert status(world).blocked_since is not None
        assert world.heard(AllocationUnblocked) == []
        world.target(2)
        world.advance(2)
        assert world.heard(AllocationUnblocked) == [AllocationUnblocked("default")], "nothing is missing any more"
        assert status(world).blocked is None
        world.stop()


def test_a_permanent_block_is_not_reported_again_while_other_causes_delay_creation() -> None:
    with World(executor={"instances": 2, "max_failures": 99}, allocation={"max_created": 4}) as world:
        world.kubelet.script = lambda _: Run(exits_after=timedelta(seconds=2), exit_code=1)
        world.advance(5 * MINUTE)
        assert posts(world) == 4
        assert len(world.heard(AllocationBlocked)) == 1
        assert world.heard(AllocationUnblocked) == []
        world.stop()


def test_those_taken_over_and_those_that_were_refused_do_not_count_as_created() -> None:
    with World(executor={"instances": 3}, allocation={"max_created": 3}) as world:
        world.advance(30)
        world.stop(delete_pods=False)
        world.restart()
        world.api.fail_next("create", Forbidden("no", status=403), times=3)
        world.advance(30)
        world.target(6)
        world.advance(2 * MINUTE)
        assert world.running() == 6
        world.target(7)
        world.advance(5)
        assert world.running() == 6
        assert "max_created = 3" in str(status(world).blocked)
        world.stop()


def test_a_crash_of_the_allocator_does_not_forget_how_many_were_created() -> None:
    with World(executor={"instances": 3}, allocation={"max_created": 4}) as world:
        world.advance(30)
        world.kubelet.exit(pod_name(world, 1), 1)
        world.advance(5)
        world.crash("allocator")
        world.advance(5)
        world.kubelet.exit(pod_name(world, 2), 1)
        world.advance(MINUTE)
        assert posts(world) == 4
        assert world.running() == 2
        world.stop()


# ── 3: concurrent creation ───────────────────────────────────────────────────────────────────────────────────────────


def test_requests_run_side_by_side_up_to_the_limit() -> None:
    with World(allocation={"max_requests_in_flight": 5}, latency=timedelta(seconds=1)) as world:
        world.advance(5)
        world.target(20)
        world.advance(10)
        assert world.running() == 20
        moments = Counter(round(at, 3) for at, operation in world.api.asked if operation == "create")
        assert max(moments.values()) == 4, "four side by side: one place is kept for deletes"
        world.stop()


def test_nothing_waits_while_requests_hang() -> None:
    with World(executor={"instances": 4}, allocation={"max_requests_in_flight": 4}) as world:
        world.advance(30)
        world.api.fail_next("create", Stall(), times=1000)
        world.target(10)
        world.advance(2)
        assert status(world).requested == 6
        world.kubelet.exit(pod_name(world, 1), 9)
        world.kill(2)
        world.advance(7)
        assert world.removals()[1].reason.exit_code == 9
        assert world.removals()[2].reason.kind is LossKind.KILLED_BY_DRIVER
        world.api.calm()
        world.advance(2 * MINUTE)
        assert world.running() == 10
        world.stop()


# ── 4: downscale ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_excess_pending_executors_are_deleted_oldest_first_and_running_ones_stay() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(5)
        world.kubelet.script = lambda _: StayUnscheduled()
        world.target(3)
        world.advance(20)
        world.target(5)
        world.advance(20)
        world.target(4)
        world.advance(18)
        assert len(world.pods()) == 5, "none is 60 seconds old"
        world.advance(5)
        assert sorted(world.removals()) == [3], "the oldest"
        world.target(0)
        world.advance(30)
        assert sorted(world.removals()) == [3, 4, 5]
        assert world.running() == 2
        assert {removal.reason.kind for removal in world.heard(ExecutorRemoved)} == {LossKind.KILLED_BY_DRIVER}
        assert "was scaled down to a lower target" in world.removals()[3].reason.message
        assert world.ask(IsExecutorExcluded(3))
        assert not world.ask(IsExecutorExcluded(1))
        world.stop()


def test_a_pending_executor_that_registered_is_never_excess() -> None:
    with World(executor={"instances": 2}, start_delay=timedelta(minutes=10)) as world:
        world.advance(5)
        assert world.ask(RegisterExecutor(1))
        world.target(0)
        world.advance(2 * MINUTE)
        assert sorted(world.removals()) == [2]
        world.stop()


def test_one_that_starts_while_its_deletion_is_on_the_way_survives_and_is_not_taken_for_killed() -> None:
    with World(executor={"instances": 1}, start_delay=timedelta(seconds=62)) as world:
        world.advance(5)
        world.api.fail_next("delete", DelayRequest(timedelta(seconds=5)))
        world.target(0)
        world.advance(70)
        assert any(operation == "delete" for _, operation in world.api.asked)
        assert world.running() == 1, "it had just started"
        assert world.heard(ExecutorRemoved) == []
        world.advance(MINUTE)
        world.store.delete("pods", "default", pod_name(world, 1), grace_period_seconds=0)
        world.advance(5)
        assert world.removals()[1].reason.kind is LossKind.DELETED, "by somebody else"
        world.stop()


def test_an_executor_that_runs_after_it_was_abandoned_is_deleted_and_refused() -> None:
    with World() as world:
        world.advance(1)
        world.invariants.taken_by_others(pod_name(world, 1))  # made by the network after its definitive answer
        world.api.fail_next("create", DelayRequest(timedelta(minutes=4)))
        world.api.fail_next("create", Forbidden("no", status=403))
        world.target(1)
        world.advance(MINUTE)
        assert [m.executor_id for m in world.heard(ExecutorRunning)] == [2], "the first was refused in the end"
        assert world.ask(IsExecutorExcluded(1))
        world.advance(170)
        assert len(world.pods()) == 1
        world.advance(15)
        assert Counter(pod["metadata"]["name"] for pod in world.pods()) == {pod_name(world, 2): 1}
        assert world.api.asked[-1][1] in {"delete", "delete_collection"}, "it did come up"
        assert world.ask(IsExecutorExcluded(1))
        assert not world.ask(RegisterExecutor(1))
        assert world.about(1) == []
        world.stop()


# ── 6: errors by class ───────────────────────────────────────────────────────────────────────────────────────────────

ERRORS: dict[str, tuple[ApiError, str]] = {
    "quota": (
        QuotaExceeded(
            'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2', status=403
        ),
        "the namespace has no room: ",
    ),
    "throttling": (TooManyRequests("too many requests", status=429), "the API server throttles our requests: "),
    "forbidden": (
        Forbidden('User "x" cannot create resource "pods"', status=403),
        "the API server does not allow it: ",
    ),
    "invalid": (Invalid('Pod "x" is invalid: spec.x: Required', status=422), "the manifest is invalid: "),
    "conflict": (
        Conflict("Operation cannot be fulfilled on resourcequotas: modified", status=409),
        "the namespace's quota is being changed concurrently: ",
    ),
    "failing": (Unavailable("an error on the server", status=500), "the API server fails to create the pod: "),
    "unavailable": (Unavailable("an error on the server", status=503), "the API server is not available: "),
    "too large": (
        TooLarge("etcdserver: request is too large", status=500),
        "the pod is larger than the API server takes: ",
    ),
    "no server": (Unavailable("connection refused"), "the API server is not available: "),
    "ambiguous": (
        Ambiguous("the connection broke before the answer"),
        "the API server does not answer, but pods may have been created: ",
    ),
    "no namespace": (
        NotFound('namespaces "default" not found', status=404, reason="NotFound"),
        "the namespace does not exist: ",
    ),
    "namespace being deleted": (
        Forbidden("unable to create new content in namespace x because it is being terminated", status=403),
        "the namespace is being deleted: ",
    ),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_each_cause_that_blocks_creation_is_reported_once_with_its_own_reason_and_ends_by_itself(
    kind: str,
) -> None:
    error, words = ERRORS[kind]
    with World(executor={"instances": 2}) as world:
        world.advance(30)
        began = now(world)
        world.api.fail_next("create", error, times=100_000)
        world.target(12)
        world.advance(6 * MINUTE)
        assert [m.profile for m in world.heard(AllocationBlocked)] == ["default"]
        (blocked,) = world.heard(AllocationBlocked)
        for cause in (blocked.cause, status(world).blocked):
            assert cause is not None
            assert cause.partition("; next try at ")[0] == f"{words}{error.message}"
        since = status(world).blocked_since
        assert since is not None
        assert (world.kit.clock.now() - since).total_seconds() == pytest.approx(6 * MINUTE, abs=20)
        assert world.heard(AllocationUnblocked) == []
        assert posts(world, began + 3 * MINUTE) <= 3 * 11 * 3, "each of the pool's requests waits for itself"
        world.api.calm()
        world.advance(2 * MINUTE)
        assert world.heard(AllocationUnblocked) == [AllocationUnblocked("default")]
        assert len(world.heard(AllocationBlocked)) == 1
        assert (status(world).blocked, status(world).blocked_since) == (None, None)
        assert world.running() == 12
        world.stop()


@pytest.mark.parametrize("kind", ["quota", "forbidden", "invalid", "no namespace", "namespace being deleted"])
def test_what_is_refused_is_asked_for_once_a_minute_with_one_request(kind: str) -> None:
    with World() as world:
        world.advance(30)
        world.api.fail_next("create", ERRORS[kind][0], times=100_000)
        began = now(world)
        world.target(100)
        world.advance(3 * MINUTE)
        assert posts(world, began) <= 20 + 10, "a batch, and then one at a time"
        world.advance(5 * MINUTE)
        assert posts(world, began + 3 * MINUTE) <= 5
        world.stop()


def test_a_block_of_seconds_is_not_reported() -> None:
    with World() as world:
        world.advance(30)
        world.api.fail_next("create", ERRORS["throttling"][0], times=3)
        world.target(20)
        world.advance(MINUTE)
        assert world.running() == 20
        assert world.heard(AllocationBlocked) == []
        world.stop()


def test_another_cause_takes_the_place_of_the_one_before() -> None:
    with World() as world:
        world.advance(30)
        causes = (
            Invalid("one", status=422, causes=(("spec.a", "Required"),)),
            Invalid("two", status=422, causes=(("spec.b", "Required"),)),
            Forbidden("three", status=403),
        )
        world.target(1)
        for cause in causes:
            world.api.calm()
            world.api.fail_next("create", cause, times=100_000)
            world.advance(3 * MINUTE)
        told = [blocked.cause.rpartition(": ")[2] for blocked in world.heard(AllocationBlocked)]
        assert told == ["one", "two", "three"]
        assert world.heard(AllocationUnblocked) == []
        world.stop()


def test_a_target_that_is_lowered_to_what_there_is_ends_a_blockade() -> None:
    with World(executor={"instances": 5}) as world:
        world.store.create("resourcequotas", "default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})
        world.advance(MINUTE)
        assert len(world.heard(AllocationBlocked)) == 1
        world.target(2)
        world.advance(2)
        assert world.heard(AllocationUnblocked) == [AllocationUnblocked("default")]
        world.stop()


def test_in_a_full_namespace_an_ended_executor_is_replaced_at_once_and_the_quota_reported_once() -> None:
    with World(executor={"instances": 5}) as world:
        world.store.create("resourcequotas", "default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}})
        world.advance(20 * MINUTE)
        for executor_id in (1, 2):
            world.kubelet.exit(pod_name(world, executor_id), 9)
            world.advance(4)
            assert world.running() == 3, "its room is taken again, though the quota was full for long"
            world.advance(5 * MINUTE)
        assert len(world.heard(AllocationBlocked)) == 1
        assert world.heard(AllocationUnblocked) == []
        world.stop()


def test_what_one_profile_is_refused_for_holds_up_no_other() -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "3"}}}
    large = {**LARGE, "resources": {"requests": {"cpu": "4"}}}
    with World(executor={"resources": {"requests": {"cpu": "1"}}}, profiles={"large": large}) as world:
        world.store.create("resourcequotas", "default", quota)
        world.advance(1)
        want(world, {"default": 3, "large": 1})
        world.advance(2 * MINUTE)
        assert of_profiles(world) == {"default": 3}
        assert [blocked.profile for blocked in world.heard(AllocationBlocked)] == ["large"]
        assert status(world).blocked is None
        world.kubelet.exit(pod_name(world, 1), 9)
        world.advance(5)
        assert of_profiles(world) == {"default": 3}
        world.stop()


def test_a_name_that_is_taken_costs_an_id_and_no_time() -> None:
    with World() as world:
        world.advance(1)
        for executor_id in (1, 2):
            foreign = {
                "metadata": {"name": pod_name(world, executor_id)},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            world.store.create("pods", "default", foreign)
        world.target(2)
        world.advance(5)
        assert sorted(m.executor_id for m in world.heard(ExecutorRunning)) == [3, 4]
        assert world.heard(AllocationBlocked) == []
        world.stop()


def test_creation_blocked_by_a_stale_snapshot_is_reported_until_the_api_is_back() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(30)
        world.api.outage = True
        world.advance(3 * MINUTE)
        assert world.heard(AllocationBlocked) == [], "nothing is missing, as far as anybody knows"
        world.target(3)
        world.advance(10)
        (blocked,) = world.heard(AllocationBlocked)
        assert "no source has reported for too long" in blocked.cause
        world.api.calm()
        world.advance(MINUTE)
        assert len(world.heard(AllocationUnblocked)) == 1
        assert world.running() == 3
        world.stop()


# ── 7: start failures ────────────────────────────────────────────────────────────────────────────────────────────────

FAILS_AT_ONCE = Run(exits_after=timedelta(seconds=1), exit_code=1)


def by_profile(**plans: Plan) -> Any:
    """A script: the plan of each profile, and to run for those that have none."""
    return lambda pod: plans.get(profile_of(pod), Run())


def test_one_profile_that_does_not_start_waits_longer_and_longer_and_holds_up_no_other() -> None:
    with World(executor={"max_failures": 99}, profiles={"large": LARGE}) as world:
        world.kubelet.script = by_profile(large=FAILS_AT_ONCE)
        world.advance(1)
        want(world, {"default": 2, "large": 1})
        starts: list[float] = []
        for _ in range(1200):
            world.advance(0.5)
            if (made := sum(profile_of(pod) == "large" for pod in world.pods("Running"))) and (
                not starts or now(world) - starts[-1] > 1.5
            ):
                starts.append(now(world))
                assert made == 1
        waits = [round(later - earlier) for earlier, later in pairwise(starts)]
        assert len(waits) >= 6
        assert all(later >= 1.5 * earlier for earlier, later in pairwise(waits[1:])), waits
        failures = status(world, "large").start_failures
        assert failures == len(starts)
        assert status(world).start_failures == 0
        want(world, {"default": 12, "large": 1})
        world.advance(5)
        assert of_profiles(world)["default"] == 12
        world.stop()


def test_executors_of_one_batch_that_end_one_after_another_make_the_next_ones_wait_once() -> None:
    with World(executor={"instances": 40, "max_failures": 9999}) as world:
        plans = (Run(exits_after=timedelta(milliseconds=500 + 20 * n), exit_code=1) for n in range(9999))
        world.kubelet.script = lambda _: next(plans)
        world.advance(2.2)
        assert len(world.removals()) > 10
        world.advance(5)
        assert posts(world) > 41, "a second's wait, not five minutes', for one generation"


def test_a_success_resets_the_wait() -> None:
    with World(executor={"instances": 1, "max_failures": 99}) as world:
        world.kubelet.script = lambda _: FAILS_AT_ONCE
        world.advance(2 * MINUTE)
        world.kubelet.script = lambda _: Run()
        world.advance(2 * MINUTE)
        (alive,) = world.ask(GetExecutorIds())
        world.kubelet.script = lambda _: FAILS_AT_ONCE
        world.kubelet.exit(pod_name(world, alive), 1)
        world.advance(1)
        before = posts(world)
        world.advance(5)
        assert posts(world) >= before + 1, "a second's wait, then two"
        world.stop()


@pytest.mark.parametrize("how", ["evicted", "preempted", "deleted", "killed", "killed, and ends by itself", "finished"])
def test_short_lived_executors_that_others_end_are_no_start_failures(how: str) -> None:
    with World(executor={"instances": 1, "max_failures": 1, "kill_grace_period": timedelta(seconds=3)}) as world:
        world.advance(3)
        for executor_id in range(1, 6):
            name = pod_name(world, executor_id)
            match how:
                case "evicted":
                    world.kubelet.evict(name)
                case "preempted":
                    world.kubelet.disrupt(name, "PreemptionByScheduler")
                case "deleted":
                    world.store.delete("pods", "default", name, grace_period_seconds=0)
                case "finished":
                    world.backend.tell(DecommissionExecutors((executor_id,)))
                    world.advance(1)
                    world.kubelet.exit(name, 0)
                case _:
                    world.kill(executor_id)
                    if how == "killed, and ends by itself":
                        world.advance(1)
                        world.kubelet.exit(name, 0)
            world.advance(6)
            assert executor_id in world.removals()
        assert status(world).start_failures == 0
        assert world.heard(FleetFailed) == []
        world.advance(10)  # where others go on ending what was just made, creation waits: see test_cut_short
        assert world.running() == 1
        world.stop()


def test_a_fleet_that_fails_says_so_once_stops_and_starts_again_when_the_driver_sets_a_target() -> None:
    with World(executor={"instances": 1, "max_failures": 2}, profiles={"large": LARGE}) as world:
        world.kubelet.script = lambda _: FAILS_AT_ONCE
        world.advance(20 * MINUTE)
        (failed,) = world.heard(FleetFailed)
        assert failed.cause == (
            "3 executors failed to start (3 of profile 'default'), more than executor.max_failures allows (2)"
        )
        assert status(world).blocked == failed.cause
        assert posts(world) == 3
        world.kubelet.script = lambda _: Run()
        want(world, {"default": 1, "large": 2})
        world.advance(5)
        assert of_profiles(world) == {"default": 1, "large": 2}
        assert status(world).blocked is None
        assert status(world).start_failures == 0
        assert len(world.heard(FleetFailed)) == 1
        world.stop()


def test_start_failures_of_all_profiles_count_together_and_as_many_as_allowed_fail_nothing() -> None:
    with World(executor={"instances": 1, "max_failures": 4}, profiles={"large": LARGE}) as world:
        want(world, {"default": 1, "large": 1})
        world.kubelet.script = lambda _: FAILS_AT_ONCE
        while len(world.removals()) < 4:
            world.advance(0.5)
        world.advance(0.5)
        assert world.heard(FleetFailed) == [], "so many may fail"
        world.advance(20 * MINUTE)
        (failed,) = world.heard(FleetFailed)
        assert failed.cause == (
            "5 executors failed to start (3 of profile 'default', 2 of profile 'large'), "
            "more than executor.max_failures allows (4)"
        )
        assert posts(world) <= 6
        world.stop()


def test_a_target_that_is_set_while_the_allocator_is_down_makes_a_failed_fleet_try_again_too() -> None:
    with World(executor={"instances": 1, "max_failures": 0}) as world:
        world.kubelet.script = lambda _: FAILS_AT_ONCE
        world.advance(10)
        assert len(world.heard(FleetFailed)) == 1
        world.kubelet.script = lambda _: Run()
        world.crash("allocator")
        world.kit.settle()
        assert not world.lives("allocator")
        world.target(1)
        world.advance(5)
        assert world.running() == 1
        world.stop()


def test_taking_executors_back_does_not_make_a_failed_fleet_try_again() -> None:
    with World(executor={"instances": 2, "max_failures": 2}) as world:
        world.advance(30)
        world.target(3)
        world.kubelet.script = lambda _: FAILS_AT_ONCE
        world.advance(2 * MINUTE)
        assert len(world.heard(FleetFailed)) == 1
        before = posts(world)
        world.backend.tell(KillExecutors((1,), adjust_target=True))
        world.advance(10 * MINUTE)
        assert posts(world) == before
        world.stop()


def test_only_failures_within_the_validity_interval_fail_a_fleet() -> None:
    settings = {"instances": 1, "max_failures": 2, "failures_validity_interval": timedelta(minutes=2)}
    with World(executor=settings) as world:
        plans = cycle((FAILS_AT_ONCE, Run()))
        world.kubelet.script = lambda _: next(plans)
        for _ in range(5):
            world.advance(90)
            (alive,) = world.ask(GetExecutorIds())
            world.kubelet.exit(pod_name(world, alive), 1)
            world.advance(0.1)
        assert len(world.removals()) == 10
        assert world.heard(FleetFailed) == []
        assert status(world).start_failures <= 2
        world.kubelet.script = lambda _: FAILS_AT_ONCE
        world.advance(30)
        (failed,) = world.heard(FleetFailed)
        assert failed.cause.startswith("3 executors failed to start within 2m (3 of profile 'default'), more than ")
        world.stop()


def test_a_crash_of_the_allocator_forgets_no_start_failure() -> None:
    with World(executor={"instances": 1, "max_failures": 3}) as world:
        world.kubelet.script = lambda _: FAILS_AT_ONCE
        for failures in (1, 2, 3):
            while len(world.removals()) < failures:
                world.advance(0.5)
            world.advance(0.5)
            world.crash("allocator")
        world.advance(10 * MINUTE)
        (failed,) = world.heard(FleetFailed)
        assert failed.cause.startswith("4 executors")
        assert posts(world) == 4
        world.crash("allocator")
        world.advance(5 * MINUTE)
        assert posts(world) == 4, "it stays failed"
        assert len(world.heard(FleetFailed)) == 1
        assert status(world).blocked == failed.cause
        world.target(1)
        world.advance(5)
        assert posts(world) > 4
        world.stop()


# ── 8: stuck pods ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("InvalidImageName", "the kubelet's words"),
        ("ErrImageNeverPull", "the kubelet's words"),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
    ],
)
def test_a_stuck_executor_is_reported_once_replaced_and_fails_the_fleet_in_the_end(reason: str, words: str) -> None:
    with World(executor={"instances": 1, "max_failures": 2}) as world:
        world.kubelet.script = lambda _: StayWaiting(reason, words)
        world.advance(4 * MINUTE)
        (stuck,) = world.heard(ExecutorStuck)
        assert (stuck.executor_id, stuck.reason) == (1, reason)
        assert stuck.message == f"executor: {words}"
        assert world.heard(ExecutorRemoved) == []
        world.advance(70)
        removal = world.removals()[1].reason
        assert (removal.kind, removal.caused_by_app) == (LossKind.NEVER_STARTED, False)
        assert reason in removal.message
        world.advance(15 * MINUTE)
        assert posts(world) == 3
        assert len(world.heard(ExecutorStuck)) == 3, "each of them once"
        assert len(world.heard(FleetFailed)) == 1
        world.stop()


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        (StayWaiting("ErrImagePull", "no such image"), "ErrImagePull"),
        (StayWaiting("ImagePullBackOff"), "ImagePullBackOff"),
        (StayUnscheduled("0/1 nodes are available"), "Unschedulable"),
        (StayWaiting("CreateContainerConfigError", 'secret "x" not found'), "CreateContainerConfigError"),
    ],
    ids=["image pull", "back-off", "unschedulable", "no secret"],
)
def test_a_stalled_executor_that_may_recover_is_reported_once_and_kept(plan: Plan, word: str) -> None:
    with World(executor={"instances": 1}) as world:
        world.kubelet.script = lambda _: plan
        world.advance(12 * MINUTE)
        assert [stuck.reason for stuck in world.heard(ExecutorStuck)][:1] == [word]
        assert len(world.heard(ExecutorStuck)) <= 2, "its own words, and that it does not start"
        assert posts(world) == 1
        assert world.heard(ExecutorRemoved) == []
        world.stop()


def test_a_stuck_executor_is_not_reported_again_after_a_restart() -> None:
    with World(executor={"instances": 2}) as world:
        plans: Iterator[Plan] = iter([StayWaiting("ErrImagePull"), StayUnscheduled("0/1 nodes are available")])
        world.kubelet.script = lambda _: next(plans)
        world.advance(20)
        world.crash("lifecycle-manager")
        world.advance(4 * MINUTE)
        assert sorted(stuck.reason for stuck in world.heard(ExecutorStuck)) == ["ErrImagePull", "Unschedulable"]
        world.stop()


def test_one_that_no_node_takes_for_a_moment_is_not_stuck() -> None:
    with World(executor={"instances": 1}) as world:
        world.kubelet.script = lambda _: StayUnscheduled("waiting for the claim to be made")
        world.advance(8)
        conditions = [{"type": "PodScheduled", "status": "True"}]
        world.store.patch(
            "pods", "default", pod_name(world, 1), {"status": {"conditions": conditions}}, "merge", subresource="status"
        )
        world.advance(MINUTE)
        assert world.heard(ExecutorStuck) == []
        world.stop()


def test_a_gated_one_is_left_alone_and_starts_when_its_gate_opens() -> None:
    patch = {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}
    with World(executor={"instances": 1, "template_patch": patch}) as world:
        world.advance(20 * MINUTE)
        assert world.heard(ExecutorStuck) == []
        assert posts(world) == 1
        (gated,) = world.ask(GetExecutors()).alive
        assert gated.reason == "waits for the scheduling gate example.com/gate"
        world.store.patch("pods", "default", pod_name(world, 1), {"spec": {"schedulingGates": []}}, "merge")
        world.advance(5)
        assert world.running() == 1
        world.stop()


def test_a_stuck_executor_that_recovers_while_its_replacement_is_created_survives_and_counts_as_a_success() -> None:
    with World(executor={"instances": 1, "max_failures": 0}) as world:
        world.kubelet.script = lambda _: StayWaiting("ErrImageNeverPull", "is not present")
        world.advance(4 * MINUTE)
        world.api.fail_next("delete", DelayRequest(timedelta(seconds=5)))
        while not any(operation == "delete" for _, operation in world.api.asked):
            world.advance(1)
        name = pod_name(world, 1)
        pod = world.store.get("pods", "default", name)
        status_now = pod_status.running(pod, rfc3339(world.kit.clock.now()))
        world.store.patch("pods", "default", name, {"status": status_now}, "strategic", subresource="status")
        world.advance(2 * MINUTE)
        assert world.running() == 1
        assert world.heard(ExecutorRemoved) == []
        world.store.delete("pods", "default", name, grace_period_seconds=0)
        world.advance(5)
        assert world.heard(FleetFailed) == [], "it got on, and was deleted by a person"
        world.stop()


def test_a_stuck_one_that_the_driver_kills_is_no_start_failure() -> None:
    with World(executor={"instances": 1, "max_failures": 0}) as world:
        world.kubelet.script = lambda _: StayWaiting("InvalidImageName")
        world.advance(299)
        world.kubelet.script = lambda _: Run()
        world.api.fail_next("delete_collection", DelayRequest(timedelta(seconds=8)))
        world.kill(1)
        world.advance(MINUTE)
        assert world.removals()[1].reason.kind is LossKind.KILLED_BY_DRIVER
        assert world.heard(FleetFailed) == []
        assert world.running() == 1
        world.stop()


# ── a quota that several profiles share ──────────────────────────────────────────────────────────────────────────────


def with_room(world: World, pods: int) -> None:
    """The namespace's quota allows so many pods, from now on."""
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(pods)}}}
    if world.store.list("resourcequotas", "default").items:
        world.store.patch("resourcequotas", "default", "q", {"spec": quota["spec"]}, "merge")
    else:
        world.store.create("resourcequotas", "default", quota)


def three_profiles(**options: Any) -> World:
    """Three profiles, of which each wants more than there is room for."""
    return World(profiles={"a": LARGE, "b": LARGE}, **options)


EVERYBODY = {"default": 60, "a": 60, "b": 60}


def test_what_a_quota_leaves_at_the_start_is_shared_evenly() -> None:
    with three_profiles() as world:
        with_room(world, 20)
        want(world, EVERYBODY)
        world.advance(10)
        assert sorted(of_profiles(world).values()) == [6, 7, 7]
        world.stop()


@pytest.mark.parametrize(("pods", "later"), [(3, 23), (6, 66), (0, 20)])
def test_what_a_full_quota_leaves_later_is_shared_evenly(pods: int, later: int) -> None:
    with three_profiles() as world:
        with_room(world, pods)
        want(world, EVERYBODY)
        world.advance(300)
        with_room(world, later)
        world.advance(100)
        found = of_profiles(world).values()
        assert sum(found) == later
        assert max(found) - min(found) <= 1, found
        world.stop()


def test_a_profile_that_comes_to_a_full_quota_gets_its_share_of_what_ends() -> None:
    with three_profiles() as world:
        with_room(world, 12)
        want(world, {"default": 60})
        world.advance(60)
        want(world, EVERYBODY)
        world.advance(60)
        for _ in range(8):
            most = max(world.pods("Running"), key=lambda pod: of_profiles(world)[profile_of(pod)])
            world.kubelet.exit(most["metadata"]["name"], 0)
            world.advance(70)
        assert sorted(of_profiles(world).values()) == [4, 4, 4]
        world.stop()


def test_a_profile_that_needs_little_leaves_its_share_of_a_quota_to_the_others() -> None:
    with three_profiles() as world:
        with_room(world, 20)
        want(world, {"default": 60, "a": 2, "b": 60})
        world.advance(10)
        assert of_profiles(world) == {"default": 9, "a": 2, "b": 9}
        world.stop()


def test_a_quota_of_one_profile_alone_holds_no_other_back() -> None:
    quota = {"metadata": {"name": "cpu"}, "spec": {"hard": {"requests.cpu": "4"}}}
    with World(profiles={"large": {**LARGE, "resources": {"requests": {"cpu": "2"}}}}) as world:
        world.store.create("resourcequotas", "default", quota)
        want(world, {"default": 30, "large": 30})
        world.advance(120)
        assert of_profiles(world) == {"default": 30, "large": 2}
        world.stop()


# ── 16: the status ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_status_counts_each_profile_and_says_what_blocks_it_since_when() -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "6"}}}
    with World(executor={"instances": 3}, profiles={"large": {**LARGE, "instances": 2}}) as world:
        world.store.create("resourcequotas", "default", quota)
        world.kubelet.script = by_profile(large=StayUnscheduled())
        world.invariants.retarget(world.settings.initial_totals)
        world.advance(10)
        assert world.ask(RegisterExecutor(1))
        world.kubelet.script = lambda _: Run(stop_delay=timedelta(seconds=20))
        want(world, {"default": 4, "large": 2})
        world.advance(5)
        began = world.kit.clock.now()
        want(world, {"default": 5, "large": 2})
        world.advance(30)
        world.store.delete("pods", "default", pod_name(world, 6), grace_period_seconds=30)
        world.advance(2)
        default, large = status(world), status(world, "large")
        assert (default.target, default.running, default.terminating, default.registered) == (5, 3, 1, 1)
        assert (default.pending, default.requested, default.start_failures) == (0, 0, 0)
        assert "exceeded quota" in str(default.blocked)
        assert default.blocked_since is not None
        assert abs(default.blocked_since - began) < timedelta(seconds=2)
        assert (large.target, large.pending, large.running, large.blocked) == (2, 2, 0, None)
        world.stop()


def test_the_status_can_be_asked_for_before_anything_is_known() -> None:
    with World(executor={"instances": 3}, profiles={"large": {**LARGE, "instances": 2}}) as world:
        profiles = world.ask(GetFleetStatus()).profiles
        assert profiles == {"default": ProfileStatus(target=3), "large": ProfileStatus(target=2)}
