"""What an operator sees of a fleet while things go wrong: the numbers are those of what happened."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pykka
import pytest

from actors.backend.backend import Backend
from actors.errors import BadRequest, Forbidden, Invalid, QuotaExceeded, TooLarge, Unavailable
from actors.local.faults.kinds import DelayAnswer, LoseAnswer, Stall, gone, over_quota, server_error, too_many_requests
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import StayWaiting
from actors.messages import (
    BackendFailed,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    GetFleetStatus,
    RegisterExecutor,
    StopBackend,
)
from actors.metrics.prometheus import PrometheusMetrics
from actors.pods.loss import LossKind
from actors.runtime import SupervisorMessage
from actors.settings.model import Settings
from tests.scenarios.fleets import PARTS, fleet, name, patch
from tests.scenarios.rivals import Rivals
from tests.scenarios.test_executors import ENDS, never_healing
from tests.scenarios.test_hangs import HANG_TIMEOUT, REPLACED_WITHIN, Hang
from tests.scenarios.world import World
from tests.unit.pages import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from actors.errors import ApiError


def page(world: World) -> Page:
    """What a scrape shows now."""
    return Page(world.metrics)


def by_state(world: World, profile: str = "default") -> dict[str, float]:
    found = page(world)
    states = ("requested", "pending", "running", "terminating")
    return {
        state: number
        for state in states
        if (number := found.value("executor_pods_executors", profile=profile, state=state))
    }


# ── the fleet ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_target_and_the_executors_of_each_state_are_shown() -> None:
    with World(executor={"instances": 3}, start_delay=timedelta(seconds=5)) as world:
        world.advance(3)
        assert by_state(world) == {"pending": 3}
        world.advance(5)
        assert by_state(world) == {"running": 3}
        world.backend.tell(RegisterExecutor(1))
        world.store.delete("pods", "default", name(2), grace_period_seconds=30)
        world.kubelet.hold()
        world.target(4)
        world.advance(2)
        assert by_state(world) == {"pending": 2, "running": 2, "terminating": 1}
        found = page(world)
        assert found.value("executor_pods_up") == found.value("executor_pods_may_write") == 1
        assert found.value("executor_pods_lease_held") == 0, "none is used"
        assert found.value("executor_pods_target_executors", profile="default") == 4
        assert found.value("executor_pods_registered_executors", profile="default") == 1
        assert found.value("executor_pods_executors_requested_total", profile="default") == 5
        assert found.value("executor_pods_executors_running_total", profile="default") == 3


KINDS = {kind: end for _, end, kind, _, _ in ENDS}
"""One end of each kind."""


@pytest.mark.parametrize(("kind", "end"), KINDS.items(), ids=[kind.name for kind in KINDS])
def test_an_end_is_counted_once_by_its_kind(kind: LossKind, end: Callable[[World], None]) -> None:
    with fleet(1) as world:
        end(world)
        world.advance(200)
        removed = page(world).of("executor_pods_executors_removed_total")
        assert {labels["kind"]: count for labels, count in removed if count} == {kind.name: 1}
        assert {labels["kind"] for labels, _ in removed} == {kind.name for kind in LossKind}, "the others stand at 0"


def test_one_that_never_starts_is_counted_as_that_and_as_a_failure_to_start_and_as_stuck() -> None:
    with fleet(1) as world:
        never_healing(world)
        world.advance(2)
        found = page(world)
        assert found.value("executor_pods_executors_removed_total", profile="default", kind="NEVER_STARTED") == 1
        assert found.value("executor_pods_start_failures", profile="default") == 1
        assert found.value("executor_pods_executors_stuck_total", profile="default") == 1


def test_whatever_happens_the_counters_equal_the_events_of_the_driver() -> None:
    with World(7, executor={"instances": 6}) as world:
        world.advance(10)
        for number in range(1, 5):
            world.kubelet.exit(name(number), number)
            world.api.fail_next("create", LoseAnswer())
            world.crash(PARTS[number % len(PARTS)])
            world.advance(20)
        world.advance(60)
        found = page(world)
        assert found.total("executor_pods_executors_removed_total") == len(world.heard(ExecutorRemoved)) >= 4
        assert found.total("executor_pods_executors_running_total") == len(world.heard(ExecutorRunning)) >= 10
        values = {value for labels in found.labels for label, value in labels.items() if label != "le"}
        assert not [value for value in values if not re.fullmatch("[A-Za-z][A-Za-z_-]*", value)], "no name, no id"


def test_pods_of_foreign_profiles_are_counted_under_one_name_and_leave_nothing_behind() -> None:
    with fleet(2) as world:
        known, strays = len(page(world).labels), range(1_000, 1_040)
        found = world.store.get("pods", "default", name(1))
        world.invariants.retarget({"default": 2, **{f"stray-{number}": 1 for number in strays}})
        for number in strays:
            metadata = {
                "name": f"stray-exec-{number}",
                "labels": {
                    **found["metadata"]["labels"],
                    "executor-pods/executor-id": str(number),
                    "executor-pods/profile": f"stray-{number}",
                },
            }
            world.store.create("pods", "default", {**found, "metadata": metadata})
        world.advance(3)
        profiles = {labels["profile"] for labels in page(world).labels if "profile" in labels}
        assert profiles == {"default", "other"}
        assert page(world).value("executor_pods_executors", profile="other", state="running") == len(strays)
        for number in strays:
            world.store.delete("pods", "default", f"stray-exec-{number}", grace_period_seconds=0)
        world.advance(3)
        assert page(world).value("executor_pods_executors_running_total", profile="other") == len(strays)
        assert page(world).value("executor_pods_executors_removed_total", profile="other", kind="DELETED") == len(
            strays
        )
        assert len(page(world).labels) - known < 10
        assert set(world.ask(GetFleetStatus()).profiles) == {"default"}
        assert len(profiles_of_the_allocator(world)) == 1


def profiles_of_the_allocator(world: World) -> Collection[str]:
    (allocator,) = (actor for actor in world.kit.dispatcher.actors if actor.name == "allocator")
    found: Collection[str] = cast("Any", allocator)._profiles
    return found


def test_how_fast_an_end_reaches_the_driver_is_measured_from_when_the_store_had_it() -> None:
    with World(executor={"instances": 4}) as world:
        world.advance(30)
        world.kubelet.exit(name(1), 1)
        world.advance(30)
        assert page(world).value("executor_pods_reaction_seconds_count") == 1
        assert page(world).value("executor_pods_reaction_seconds_sum") == pytest.approx(0, abs=1e-6), "virtual time"
        for executor_id in (2, 3, 4):  # the first has a round at once, the second after 10 ms, the third 10 ms later
            world.kubelet.exit(name(executor_id), 1)
            world.advance(0.005)
        world.advance(30)
        assert page(world).value("executor_pods_reaction_seconds_count") == 4
        assert page(world).value("executor_pods_reaction_seconds_sum") == pytest.approx(0.005 + 0.010, abs=1e-3)


def test_how_long_it_took_to_find_an_end_out_otherwise_is_not_measured() -> None:
    with fleet(1) as world:
        world.kubelet.exit(name(1), 1)
        world.advance(5)
        patch(world, 2, labels={"executor-pods/role": "pet"})  # its pod is asked for before that is told
        world.advance(5)
        assert page(world).value("executor_pods_executors_removed_total", profile="default", kind="RELEASED") == 1
        assert page(world).value("executor_pods_reaction_seconds_count") == 1


# ── the API ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_answers_are_counted_by_class_and_tries_again_too() -> None:
    with World(executor={"instances": 2}) as world:
        world.api.fail_next("create", too_many_requests())
        world.api.fail_next("create", LoseAnswer())
        world.advance(20)
        created = page(world).of("executor_pods_api_requests_total", operation="create")
        assert {labels["result"]: count for labels, count in created} == {
            "TooManyRequests": 1,
            "Ambiguous": 1,
            "ok": 1,  # the other one appeared before it was tried again
        }
        retries = page(world).of("executor_pods_request_retries_total")
        assert {(labels["kind"], labels["error"]): count for labels, count in retries} == {
            ("create", "TooManyRequests"): 1,
            ("create", "Ambiguous"): 1,
        }


def test_what_is_under_way_and_what_waits_is_shown() -> None:
    with World(executor={"instances": 40}, allocation={"batch_size": 40, "max_requests_in_flight": 4}) as world:
        world.api.fail_next("create", Stall(), times=3)
        world.advance(1)
        found = page(world)
        assert found.value("executor_pods_api_requests_in_flight", operation="create") == 3
        assert found.value("executor_pods_api_requests_in_flight", operation="watch") == 1
        assert found.value("executor_pods_requests_queued") == 37
        world.crash("request-pool")
        world.kit.settle()
        assert not world.lives("request-pool")
        assert page(world).value("executor_pods_requests_queued") == 0, "nobody has them any more"
        world.advance(120)
        assert page(world).value("executor_pods_api_requests_in_flight", operation="create") == 0
        assert page(world).value("executor_pods_requests_queued") == 0


def test_what_waits_for_its_next_try_is_shown_as_that() -> None:
    with World(executor={"instances": 3}) as world:
        world.advance(10)
        world.api.fail_next("create", server_error(), times=2)
        world.target(5)
        world.advance(0.1)
        assert page(world).value("executor_pods_requests_waiting") == 2
        assert page(world).value("executor_pods_requests_queued") == 0
        world.advance(10)
        assert page(world).value("executor_pods_requests_waiting") == 0


def test_how_long_the_api_takes_is_shown_by_operation() -> None:
    with World(executor={"instances": 4}, latency=timedelta(milliseconds=30)) as world:
        world.advance(10)
        found = page(world)
        assert found.value("executor_pods_api_request_duration_seconds_count", operation="create") == 4
        assert found.value("executor_pods_api_request_duration_seconds_sum", operation="create") == pytest.approx(0.12)
        assert found.bucket("executor_pods_api_request_duration_seconds", 0.025, operation="create") == 0
        assert found.bucket("executor_pods_api_request_duration_seconds", 0.05, operation="create") == 4
        assert not found.of("executor_pods_api_request_duration_seconds_count", operation="watch")
        assert found.value("executor_pods_api_request_duration_seconds_count", operation="may") > 0, "the first calls"


def test_an_outage_is_shown_while_it_lasts_with_what_waits_for_its_end() -> None:
    with World(executor={"instances": 3}) as world:
        world.advance(100)
        world.api.outage = True
        world.target(6)
        world.advance(60)
        found = page(world)
        assert found.value("executor_pods_api_outage") == 1
        assert found.value("executor_pods_requests_queued") + found.value("executor_pods_requests_waiting") == 3
        assert found.value("executor_pods_source_synced", source="watch") == 0
        assert found.value("executor_pods_source_heard_age_seconds", source="watch") >= 60
        assert found.of("executor_pods_api_requests_total", operation="watch", result="Unavailable")
        world.api.outage = False
        world.advance(60)
        found = page(world)
        assert found.value("executor_pods_api_outage") == 0
        assert found.value("executor_pods_requests_queued") == 0
        assert found.value("executor_pods_source_synced", source="watch") == 1
        assert by_state(world) == {"running": 6}


def test_lists_polls_events_and_a_watch_that_has_to_start_over_are_counted() -> None:
    with World(executor={"instances": 2, "api_polling_interval": "10s"}) as world:
        world.advance(35)
        found = page(world)
        assert found.value("executor_pods_lists_total", source="watch", result="applied") == 1
        polls = found.value("executor_pods_lists_total", source="poll", result="applied")
        assert polls == found.value("executor_pods_list_duration_seconds_count", source="poll") == 3
        assert found.value("executor_pods_source_full_sync_age_seconds", source="poll") < 11
        assert found.value("executor_pods_watch_events_total") >= 4
        assert found.value("executor_pods_watch_reads_total") >= 4
        assert found.value("executor_pods_batches_total") >= 35
        world.api.expire()
        world.advance(10)
        found = page(world)
        assert found.value("executor_pods_api_requests_total", operation="watch", result=type(gone()).__name__) == 1
        assert found.value("executor_pods_lists_total", source="watch", result="applied") == 2


def test_a_list_that_is_older_than_what_is_known_is_counted_as_dropped() -> None:
    with World(executor={"instances": 2, "api_polling_interval": "10s"}) as world:
        world.advance(25)
        world.api.fail_next("list", DelayAnswer(timedelta(seconds=8)))
        world.advance(7)  # the poll is under way, at the version of its beginning
        world.kubelet.exit(name(1), 1)
        world.advance(2)
        world.api.expire()
        world.advance(10)
        assert page(world).value("executor_pods_lists_total", source="poll", result="dropped") == 1


def test_a_history_that_went_back_and_malformed_pods_are_counted() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        backup = world.store.snapshot()
        world.target(4)
        world.advance(60)
        world.restore(backup)
        world.advance(60)
        assert page(world).value("executor_pods_history_resets_total") == 1
        labels = {"executor-pods/app-id": "app", "executor-pods/role": "executor", "executor-pods/executor-id": "x"}
        spec = {"containers": [{"name": "executor", "image": "x"}]}
        world.store.create("pods", "default", {"metadata": {"name": "odd", "labels": labels}, "spec": spec})
        world.advance(60)
        assert page(world).value("executor_pods_malformed_pods_total") >= 1
        assert page(world).total("executor_pods_unreadable_pods_total") == 0


# ── what holds it up ─────────────────────────────────────────────────────────────────────────────────────────────

CAUSES: list[tuple[ApiError, str]] = [
    (over_quota(), "QuotaExceeded"),
    (Forbidden('pods is forbidden: User "x" cannot create', status=403), "Forbidden"),
    (Invalid("pod is invalid", status=422, causes=(("spec.containers[0].image", "required"),)), "Invalid"),
    (Forbidden("unable to create in app-7 because it is being terminated", status=403), "namespace"),
    (too_many_requests(), "TooManyRequests"),
    (Unavailable("no", status=500), "Unavailable"),
    (TooLarge("etcdserver: request is too large", status=500), "TooLarge"),
    (QuotaExceeded("exceeded quota: q, requested: cpu=8, used: cpu=0, limited: cpu=4", status=403), "quota_too_small"),
    (Forbidden('violates PodSecurity "restricted:latest": runAsNonRoot != true', status=403), "policy"),
    (BadRequest('admission webhook "policy.example" denied the request: no', status=400), "webhook"),
    (Forbidden('error looking up service account x/y: serviceaccount "y" not found', status=403), "missing"),
]


@pytest.mark.parametrize(("error", "cause"), CAUSES, ids=[cause for _, cause in CAUSES])
def test_the_cause_of_a_block_is_a_label_value_until_it_ends(error: ApiError, cause: str) -> None:
    with World(executor={"instances": 2}) as world:
        world.api.fail_next("create", error, times=100_000)
        world.advance(30)
        blocked = page(world).of("executor_pods_allocation_blocked")
        assert blocked == [({"profile": "default", "cause": cause}, 1)]
        world.api.calm()
        world.advance(100)
        assert page(world).of("executor_pods_allocation_blocked") == []


def blocked_by(world: World) -> list[str]:
    return [labels["cause"] for labels, _ in page(world).of("executor_pods_allocation_blocked")]


def test_every_other_cause_of_a_block_has_its_label_value() -> None:
    with World(executor={"instances": 2}, allocation={"max_created": 2}) as world:
        world.advance(5)
        world.target(3)
        world.advance(5)
        assert blocked_by(world) == ["max_created"]
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        world.api.outage = True
        world.advance(160)
        world.target(3)
        world.advance(2)
        assert blocked_by(world) == ["stale"]
    with World(executor={"instances": 1, "max_failures": 0}) as world:
        world.kubelet.script = lambda _: StayWaiting("InvalidImageName", "couldn't parse image reference")
        world.advance(400)
        assert blocked_by(world) == ["start_failures"]


def test_of_two_drivers_one_is_shown_to_write_and_the_other_to_wait_for_the_lease() -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        cluster.begin("second")
        cluster.advance(60)
        first, second = (Page(rival.metrics) for rival in cluster.drivers)
        assert first.value("executor_pods_lease_held") == first.value("executor_pods_may_write") == 1
        assert second.value("executor_pods_lease_held") == second.value("executor_pods_may_write") == 0
        assert [labels["cause"] for labels, _ in second.of("executor_pods_allocation_blocked")] == ["lease"]
        assert first.of("executor_pods_allocation_blocked") == []


# ── the actors ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("part", [*PARTS, "watch-source", "poll-source"])
def test_a_crash_is_counted_by_part_and_cause_and_what_was_counted_before_stays(part: str) -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(40)
        before = page(world)
        world.crash(part)
        world.advance(40)
        after = page(world)
        assert [(labels["actor"], count) for labels, count in after.of("executor_pods_actor_failures_total")] == [
            (part, 1)
        ]
        assert after.value("executor_pods_actor_starts_total", actor=part) == 2
        assert after.value("executor_pods_actor_starts_total", actor="backend") == 1
        counters = [name for name in before.names if name.endswith(("_total", "_count", "_sum", "_bucket"))]
        assert all(after.total(name) >= before.total(name) for name in counters)


def test_one_that_hangs_is_counted_as_hung_and_its_replacement_as_a_start() -> None:
    with World(threads=True, executor={"instances": 2}, backend={"hang_timeout": HANG_TIMEOUT}) as world:
        world.advance(10)
        hang = Hang(world)
        hang.await_message("allocator", "SetTotalExpectedExecutors")
        world.target(4)
        world.advance(10)
        assert page(world).value("executor_pods_mailbox_depth", actor="allocator") > 0
        world.advance(REPLACED_WITHIN)
        found = page(world)
        assert found.of("executor_pods_actor_failures_total") == [({"actor": "allocator", "cause": "Hung"}, 1)]
        assert found.value("executor_pods_actor_starts_total", actor="allocator") == 2
        assert found.value("executor_pods_mailbox_depth", actor="allocator") == 0
        assert found.value("executor_pods_dead_letters_total") > 0, "what waited for it is lost"
        hang.let_go()


def test_the_most_that_ever_waited_for_an_actor_is_shown() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        for _ in range(50):
            world.backend.tell(RegisterExecutor(1))
        world.kit.settle()
        found = page(world)
        assert found.value("executor_pods_mailbox_high_water", actor="backend") == 49
        assert found.value("executor_pods_mailbox_depth", actor="backend") == 0


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stop_is_shown_while_it_lasts_and_what_was_counted_when_it_is_over() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        assert page(world).value("executor_pods_start_duration_seconds") < 1
        assert page(world).of("executor_pods_stop_duration_seconds") == []
        world.kubelet.hold()
        world.backend.tell(StopBackend())
        world.advance(2)
        assert page(world).value("executor_pods_stopping") == 1
        world.kubelet.release()
        world.advance(60)
        assert world.heard(BackendStopped) == [BackendStopped()]
        found = page(world)
        assert found.value("executor_pods_up") == 0
        assert found.of("executor_pods_executors") == []
        assert found.value("executor_pods_executors_requested_total", profile="default") == 2
        assert 2 < found.value("executor_pods_stop_duration_seconds") < 8


def test_a_backend_that_has_crashed_is_shown_as_down_with_all_that_it_counted() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        world.address("backend").tell(SupervisorMessage())
        world.advance(1)
        assert world.heard(BackendFailed)
        found = page(world)
        assert found.value("executor_pods_up") == 0
        assert found.value("executor_pods_executors_running_total", profile="default") == 2


def test_the_failures_of_a_child_that_is_escalated_are_all_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        while not world.heard(BackendFailed):
            if world.lives("request-pool"):
                world.crash("request-pool")
            world.advance(1)
        failures = page(world).of("executor_pods_actor_failures_total")
        assert [(labels["actor"], count) for labels, count in failures] == [("request-pool", 5)]


def test_a_backend_that_its_host_stops_has_not_failed() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        ref = world.address("allocator").ref
        assert ref is not None
        ref.stop(block=False)
        world.advance(1)
        assert world.heard(BackendStopped)
        assert page(world).value("executor_pods_up") == 0
        assert page(world).of("executor_pods_actor_failures_total") == []


def test_a_message_to_a_driver_that_ended_is_a_dead_letter() -> None:
    with World() as world:
        gone_driver = pykka.ThreadingActor.start()
        settings = Settings(app_id="other", executor={"image": "x", "instances": 0}, backend={"lease": False})
        metrics = PrometheusMetrics(ask=world.kit.ask)
        api = InProcessPodApi(world.store, "default", world.kit.timers)
        Backend.start(settings, gone_driver, api, system=world.kit.system, metrics=metrics)
        gone_driver.stop()
        world.advance(0.5)
        assert Page(metrics).value("executor_pods_dead_letters_total") == 1, "that the backend has started"


def test_a_driver_that_begins_another_life_begins_to_count_anew() -> None:
    with World(executor={"instances": 2}, backend={"delete_on_stop": False}) as world:
        world.advance(10)
        world.stop()
        world.restart()
        world.advance(10)
        found = page(world)
        assert found.value("executor_pods_up") == 1
        assert found.value("executor_pods_executors_requested_total", profile="default") == 0
        assert by_state(world) == {"running": 2}


def test_a_scrape_between_any_two_messages_changes_nothing_for_the_fleet() -> None:
    def trace(*, scraped: bool) -> list[str]:
        with World(3, executor={"instances": 3}) as world:
            if scraped:
                world.metrics._ask = lambda _backend, _question: None  # type: ignore[assignment,return-value]  # it would be a message more
                note = world.kit.dispatcher.note

                def note_and_scrape(name: str, message: object) -> None:
                    assert page(world).names
                    note(name, message)

                world.kit.dispatcher.note = note_and_scrape  # type: ignore[method-assign]
            world.advance(5)
            world.kubelet.exit(name(1), 1)
            world.crash("request-pool")
            world.advance(20)
            world.stop(within=20)
            return world.kit.trace

    assert trace(scraped=True) == trace(scraped=False)
