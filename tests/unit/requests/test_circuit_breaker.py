"""Outages: one request per step, and everything at once after an answer."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.errors import ApiError, Cancelled, Conflict, NotFound, TooManyRequests, Unavailable
from actors.kube.api import DeleteOptions
from actors.kube.retries import lacks_server
from actors.messages.internal import (
    BeginEpoch,
    ConfirmPod,
    DeletePod,
    Drain,
    Drained,
    EpochBegun,
    PodConfirmed,
    PodCreated,
    PodCreateFailed,
    PodsObserved,
)
from actors.requests.circuit_breaker import STEPS, STEPS_AT_STOP
from actors.requests.dispatcher import BACKOFF
from tests.unit.builders import pod, pod_name
from tests.unit.requests.test_request_pool import DOWN, FORBIDDEN, LOST, UID, World

if TYPE_CHECKING:
    from actors.testing import Kit

REFUSED = Unavailable("connection refused")
FIRST_STEP = STEPS.initial * (1 + STEPS.jitter)
LONGEST_STEP = STEPS.maximum * (1 + STEPS.jitter)


@pytest.fixture
def world(kit: Kit) -> World:
    return World(kit)


def answer_all(world: World, answer: object) -> None:
    """Answer all calls in flight, and those that are sent in their place, with this."""
    while calls := world.api.open():
        world.answer(calls[0], answer)


def begin(world: World, answer: ApiError = REFUSED) -> None:
    """Begin an outage with two DELETEs in flight."""
    world.tell(DeletePod("a", UID), DeletePod("b", UID))
    answer_all(world, answer)
    assert world.open() == []


def steps(world: World, count: int, answer: ApiError = REFUSED) -> list[tuple[float, list[str]]]:
    """Return how long the next steps took and what was sent after each. All calls fail."""
    taken = []
    for _ in range(count):
        start = world.kit.clock.elapsed
        while not world.open():
            due = world.kit.timers.next_due()
            assert due is not None, "nothing is in flight and no timer is set"
            world.kit.advance(due - world.kit.clock.elapsed)
        taken.append(((world.kit.clock.elapsed - start).total_seconds(), world.open()))
        answer_all(world, answer)
    return taken


@pytest.mark.parametrize(
    ("answer", "lacks"),
    [
        (REFUSED, True),
        (LOST, True),
        (Unavailable("bad gateway", status=502), True),
        (DOWN, True),
        (Unavailable("gateway timeout", status=504), True),
        (Unavailable("a webhook failed", status=500), False),
        (Unavailable("too slow", status=408), False),
        (TooManyRequests("slow", status=429), False),
        (FORBIDDEN, False),
        (None, False),
        (pod(1), False),
    ],
    ids=str,
)
def test_only_a_failure_on_the_way_to_a_server_shows_that_there_is_none(answer: object, lacks: bool) -> None:
    assert lacks_server(answer) is lacks


def test_while_there_is_no_server_one_request_goes_out_a_step(world: World) -> None:
    world.tell(*(DeletePod(str(number), UID) for number in range(10)))
    world.create(*range(1, 11))
    answer_all(world, REFUSED)
    taken = steps(world, 9)
    assert [len(sent) for _, sent in taken] == [1] * 9
    floors = [0.5, 1, 2, 4, 8, 16, 20, 20, 20]
    assert all(floor <= step <= 1.5 * floor for floor, (step, _) in zip(floors, taken, strict=True)), taken


def test_each_probe_is_another_request_urgent_ones_first(world: World) -> None:
    begin(world)
    world.create(1, 2)
    world.tell(DeletePod("c", UID))
    sent = [words for _, (words,) in steps(world, 7)]
    assert sent == [
        "delete c",
        "create app-exec-1",
        "create app-exec-2",
        "delete a",
        "delete b",
        "delete c",
        "create app-exec-1",
    ]


def test_once_there_is_an_answer_everything_goes_out_at_once(kit: Kit) -> None:
    world = World(kit, limit=20)
    begin(world)
    world.create(1, 2, 3)
    steps(world, 8)
    world.wait_for("delete")
    world.answer_next("delete", NotFound("gone", status=404))
    assert sorted(world.open()) == ["create app-exec-1", "create app-exec-2", "create app-exec-3", "delete b"]


@pytest.mark.parametrize(
    "answer",
    [None, FORBIDDEN, Conflict("uid", status=409), TooManyRequests("slow", status=429), Unavailable("x", status=500)],
    ids=str,
)
def test_an_answer_of_any_kind_proves_that_there_is_a_server(world: World, answer: object) -> None:
    begin(world)
    world.wait_for("delete")
    world.answer_next("delete", answer)
    assert world.open() == ["delete b"]


def test_a_late_answer_to_an_earlier_request_ends_an_outage_too(world: World) -> None:
    world.tell(DeletePod("a", UID), DeletePod("b", UID), DeletePod("c", UID))
    late = world.api.open()[2]
    for call in world.api.open()[:2]:
        world.answer(call, LOST)
    assert world.open() == ["delete c"]
    world.answer(late, None)
    assert world.open() == ["delete a", "delete b"]


def test_a_new_outage_restarts_the_steps(world: World) -> None:
    begin(world)
    steps(world, 7)
    world.wait_for("delete")
    world.answer_next("delete", None)
    world.tell(DeletePod("c", UID))
    answer_all(world, REFUSED)
    assert world.wait_for("delete") <= FIRST_STEP


def test_requests_in_flight_when_an_outage_begins_count_as_one_step(kit: Kit) -> None:
    world = World(kit, limit=16)
    world.create(*range(1, 16))
    for call in world.api.open():
        world.kit.advance(timedelta(milliseconds=20))
        world.answer(call, LOST)
    assert world.open() == []
    assert steps(world, 1)[0][0] <= FIRST_STEP.total_seconds()
    assert STEPS.initial * 2 <= world.wait_for("create") <= FIRST_STEP * 2


def test_calls_that_hang_block_no_probe_and_count_as_no_step(kit: Kit) -> None:
    """Half-open connections: each comes back after its own ten seconds."""
    world = World(kit, limit=16)
    world.create(*range(1, 16))
    hanging = world.api.open()
    for call in hanging[:2]:
        world.answer(call, LOST)
    for call in hanging[2:]:
        call.taken = True
    world.wait_for("create")
    for call in hanging[2:]:
        world.answer(call, LOST)
    (probe,) = world.api.open()
    assert world.kit.timers.next_due() is None, "no step begins before the probe is back"
    world.answer(probe, LOST)
    assert STEPS.initial * 2 <= world.wait_for("create") <= FIRST_STEP * 2


def test_one_request_that_fails_alone_blocks_nothing(world: World) -> None:
    """A webhook blocks a DELETE until it times out, again and again."""
    world.tell(DeletePod("a", UID))
    for executor_id in range(1, 9):
        world.wait_for("delete")
        world.answer_next("delete", LOST)
        world.create(executor_id)
        assert world.open() == [f"create {pod_name(executor_id)}"], "at once"
        world.answer_next("create", pod(executor_id))
    assert world.wait_for("delete") >= timedelta(seconds=30), "its own backoff"


def test_requests_that_fail_for_their_own_reasons_starve_no_other(world: World) -> None:
    begin(world)
    steps(world, 8)
    world.create(1)
    assert world.wait_for("create") <= LONGEST_STEP, "the next probe"
    world.answer_next("create", pod(1))
    world.allocator.take(PodCreated)
    assert world.open() == ["delete a", "delete b"]
    answer_all(world, LOST)
    world.create(2)
    assert world.wait_for("create") <= FIRST_STEP
    world.answer_next("create", pod(2))
    world.allocator.take(PodCreated)


def test_a_request_in_backoff_joins_the_others_when_an_outage_begins(world: World) -> None:
    world.tell(DeletePod("a", UID))
    for _ in range(7):
        world.answer_next("delete", REFUSED)
        world.wait_for("delete")
    world.answer_next("delete", REFUSED)
    world.create(1)
    world.answer_next("create", REFUSED)
    assert world.wait_for("delete") <= FIRST_STEP
    world.answer_next("delete", REFUSED)
    assert world.wait_for("create") <= 2 * FIRST_STEP
    world.answer_next("create", pod(1))
    assert world.open() == ["delete a"], "without waiting for its own backoff"


def test_a_request_that_failed_in_an_outage_restarts_its_own_backoff(world: World) -> None:
    begin(world)
    steps(world, 8)
    world.wait_for("delete")
    world.answer_next("delete", Unavailable("a webhook failed", status=500))
    world.answer_next("delete", None)
    assert world.wait_for("delete") <= 2 * BACKOFF.initial


def test_a_request_that_the_server_answered_keeps_its_own_backoff(world: World) -> None:
    world.tell(DeletePod("x", UID))
    world.answer_next("delete", TooManyRequests("slow", status=429, retry_after=timedelta(minutes=5)))
    begin(world)
    assert {words for _, (words,) in steps(world, 6)} == {"delete a", "delete b"}


def test_a_step_is_as_long_as_the_server_asks_for(world: World) -> None:
    begin(world, Unavailable("not ready", status=503, retry_after=timedelta(seconds=50)))
    assert timedelta(seconds=50) <= world.wait_for("delete") <= timedelta(seconds=75)


def test_after_an_outage_the_budget_counts(kit: Kit) -> None:
    world = World(kit, limit=50, rate=3)
    begin(world)
    world.create(*range(1, 10))
    world.wait_for("create")
    world.kit.advance(timedelta(seconds=1))
    world.answer_next("create", pod(1))
    assert len(world.open()) == 3
    world.kit.advance(timedelta(seconds=1.01))
    assert len(world.open()) == 6


def test_creates_that_a_429_pauses_are_no_probes(world: World) -> None:
    world.create(1)
    world.answer_next("create", TooManyRequests("slow", status=429, retry_after=timedelta(seconds=100)))
    begin(world)
    sent = [words for _, (words,) in steps(world, 5)]
    assert sent == ["delete a", "delete b", "delete a", "delete b", "delete a"]


def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.create(1, 2, 3)
    answer_all(world, REFUSED)
    steps(world, 5)
    world.wait_for("create")
    world.answer_next("create", pod(1))
    told = [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]
    assert told == [
        ("WARNING", "retry scheduled"),
        ("WARNING", "API server unreachable, sending one probe at a time"),
        ("INFO", "API server reachable again"),
    ]


# ── other requests in an outage ──────────────────────────────────────────────────────────────────────────────────


def test_a_confirmation_ends_after_a_few_steps_whichever_request_was_the_probe(world: World) -> None:
    begin(world)
    world.tell(ConfirmPod(1, pod_name(1), "uid-1", world.backend.address))
    for _ in range(3):
        world.backend.expect_nothing()
        while not world.open():
            world.kit.advance(timedelta(seconds=0.1))
        answer_all(world, REFUSED)
    assert world.backend.take(PodConfirmed).pod is None
    assert all("get" not in words for _, (words,) in steps(world, 4))


def test_killing_an_executor_whose_create_waits_for_the_server_drops_the_create(world: World) -> None:
    world.create(1, 2)
    answer_all(world, REFUSED)
    world.tell(DeletePod(pod_name(1)))
    assert isinstance(world.allocator.take(PodCreateFailed).error, Cancelled)
    assert {words for _, (words,) in steps(world, 4)} == {"create app-exec-2"}


def test_killing_an_executor_whose_answer_was_lost_verifies_it_after_the_outage(world: World) -> None:
    world.create(1, 2)
    answer_all(world, LOST)
    world.tell(DeletePod(pod_name(1)))
    world.unanswered()
    world.wait_for("get")
    world.answer_next("get", pod(1))
    world.allocator.take(PodCreated)
    assert sorted(world.open()) == ["create app-exec-2", "delete app-exec-1"]


def test_a_pod_that_is_observed_in_an_outage_is_not_posted_again(world: World) -> None:
    world.create(1, 2)
    answer_all(world, LOST)
    world.tell(PodsObserved({1: pod(1), 7: pod(7)}))
    assert world.allocator.take(PodCreated).executor_id == 1
    assert {words for _, (words,) in steps(world, 3)} == {"create app-exec-2"}


def test_an_epoch_that_begins_in_an_outage_waits_only_for_pods_that_may_exist(world: World) -> None:
    world.create(1, 2, 3, 4, 5)
    world.answer_next("create", LOST)
    answer_all(world, REFUSED)
    world.tell(BeginEpoch(2, world.allocator.address))
    dropped = {failed.executor_id for failed in world.allocator.take_all(PodCreateFailed)}
    assert dropped == {2, 3, 4, 5}
    world.unanswered()
    assert [words for _, (words,) in steps(world, 2)] == ["get app-exec-1"] * 2
    world.wait_for("get")
    world.answer_next("get", pod(1))
    world.allocator.take(PodCreated)
    assert world.allocator.take(EpochBegun) == EpochBegun(2, frozenset(dropped))
    world.quiet()


def test_a_drain_restarts_the_backoff_of_an_outage(world: World) -> None:
    begin(world)
    steps(world, 8, LOST)
    world.tell(Drain(world.backend.address))
    assert world.wait_for("delete") <= FIRST_STEP


def test_a_drain_does_not_wait_out_the_backoff_of_a_single_create(world: World) -> None:
    world.create(1)
    for _ in range(7):
        world.answer_next("create", LOST)
        world.wait_for("create")
    world.answer_next("create", LOST)
    world.tell(Drain(world.backend.address))
    world.backend.take(Drained)
    world.allocator.take(PodCreateFailed)
    world.quiet()


def test_the_same_delete_requested_again_in_an_outage_is_one_request(world: World) -> None:
    begin(world)
    world.tell(DeletePod("a", UID), DeletePod("a", DeleteOptions(uid="u")))
    assert [words for _, (words,) in steps(world, 4)] == ["delete a", "delete b"] * 2


def test_a_stop_probes_every_few_seconds_however_long_the_outage_has_lasted(world: World) -> None:
    begin(world)
    steps(world, 8)
    world.tell(Drain(world.backend.address))
    longest = STEPS_AT_STOP.maximum * (1 + STEPS_AT_STOP.jitter)
    assert max(waited for waited, _ in steps(world, 8)) <= longest.total_seconds()
