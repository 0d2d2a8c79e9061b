"""RequestPool between probes: what is sent when, and to whom the answers are reported."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from actors import kube
from actors.errors import (
    AlreadyExists,
    Altered,
    Ambiguous,
    ApiError,
    Cancelled,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotSent,
    QuotaExceeded,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from actors.kube.api import DeleteOptions
from actors.messages.internal import (
    AdoptPod,
    AllowWrites,
    BeginEpoch,
    ConfirmPod,
    CreatePod,
    DeletePod,
    DeletePods,
    Drain,
    Drained,
    EpochBegun,
    LabelPod,
    PodConfirmed,
    PodCreated,
    PodCreateDelayed,
    PodCreateFailed,
    PodsDeleted,
    PodsObserved,
    SuspendWrites,
    UnseenPod,
    WithdrawPods,
    WithdrawRequests,
)
from actors.requests.carried_out import FORGOTTEN_AFTER, CarriedOut
from actors.requests.dispatcher import BACKOFF, FIRST_WITHIN
from actors.requests.kinds import BLOCKING_TRIES, CONFIRM_TRIES, PodDelete
from actors.requests.request_pool import RequestPool
from actors.testing.manual_api import ManualPodApi
from tests.unit.builders import APP_ID, labels, pod, pod_name

if TYPE_CHECKING:
    from actors.kube.api import Operation
    from actors.testing import Kit, Probe
    from actors.testing.manual_api import ManualCall

LIMIT = 4
"""Three slots for POSTs, and one that they leave free."""
POLL = timedelta(minutes=10)
UID = DeleteOptions(uid="u")
LOST = Ambiguous("the connection broke before the answer")
DOWN = Unavailable("down", status=503)
FORBIDDEN = Forbidden("no", status=403)
EXISTS = AlreadyExists("pods already exists", status=409)


class World:
    def __init__(self, kit: Kit, limit: int = LIMIT, rate: float | None = None) -> None:
        self.kit = kit
        self.api = ManualPodApi()
        self.allocator = kit.probe("allocator")
        self.backend = kit.probe("backend")
        self.pool = kit.system.address("request-pool")
        self.limit = limit
        self.rate = rate
        self.spawn()
        self.tell(BeginEpoch(1, self.allocator.address))
        self.allocator.take(EpochBegun)

    def spawn(self) -> None:
        """Start the pool, or its next incarnation."""
        self.kit.system.spawn(
            lambda context: RequestPool(
                context, api=self.api, app_id=APP_ID, limit=self.limit, repeat_interval=POLL, rate=self.rate
            ),
            name="request-pool",
            owner=self.backend.address,
            address=self.pool,
        )

    def tell(self, *messages: object) -> None:
        for message in messages:
            self.pool.tell(message)
        self.kit.settle()

    def create(self, *executor_ids: int, epoch: int = 1, again: bool = False, rank: int = 0) -> None:
        for executor_id in executor_ids:
            manifest = {"metadata": {"name": pod_name(executor_id), "labels": labels(executor_id)}}
            self.tell(CreatePod(executor_id, epoch, manifest, self.allocator.address, again=again, rank=rank))

    def answer(self, call: ManualCall, answer: object) -> None:
        call.answer(answer)
        self.kit.settle()

    def answer_next(self, verb: Operation, answer: object) -> None:
        self.answer(self.api.take(verb), answer)

    def open(self) -> list[str]:
        """Return the calls in flight, oldest first."""
        return [words(call) for call in self.api.open()]

    def wait_for(self, verb: Operation) -> timedelta:
        """Advance until the next such call is sent; return how long that took."""
        start = self.kit.clock.elapsed
        while not any(not call.taken for call in self.api.open(verb)):
            due = self.kit.timers.next_due()
            assert due is not None, f"no {verb} is in flight and no timer is set"
            self.kit.advance(due - self.kit.clock.elapsed)
        return self.kit.clock.elapsed - start

    def quiet(self) -> None:
        """Assert that nothing is in flight and nothing more is sent or reported."""
        self.kit.advance(timedelta(hours=1))
        assert self.open() == []
        self.unanswered()
        self.backend.expect_nothing()

    def unanswered(self) -> None:
        """Assert that no create has a final answer."""
        self.allocator.take_all(PodCreateDelayed)
        self.allocator.expect_nothing()


def bulk(asker: Probe, *executor_ids: int) -> DeletePods:
    """A bulk delete of these executors."""
    pods = {pod_name(executor_id): f"uid-{executor_id}" for executor_id in executor_ids}
    return DeletePods(pods, frozenset(executor_ids), "7", asker.address)


def words(call: ManualCall) -> str:
    match call.operation:
        case "create":
            return f"create {call.request.manifest['metadata']['name']}"
        case "delete_collection":
            return f"delete {call.request.selector.partition('executor-id ')[2] or 'all'}"
        case _:
            return f"{call.operation} {call.request.name}"


@pytest.fixture
def world(kit: Kit) -> World:
    return World(kit)


# ── order and bound ──────────────────────────────────────────────────────────────────────────────────────────────


def test_posts_of_profiles_that_have_fewer_executors_go_first(world: World) -> None:
    world.create(1, 2, 3)  # all slots for POSTs are taken
    for executor_id, rank in ((4, 7), (5, 8), (6, 0), (7, 1), (8, 7)):
        world.create(executor_id, rank=rank)
    sent = []
    for executor_id in (1, 2, 3, 6, 7):
        world.answer_next("create", pod(executor_id))
        sent.append(world.open()[-1])
    assert sent == [f"create {pod_name(executor_id)}" for executor_id in (6, 7, 4, 8, 5)]


def test_at_most_the_limit_of_calls_is_in_flight(world: World) -> None:
    world.create(1, 2, 3)
    world.tell(*(DeletePod(name, UID) for name in "abc"))
    assert world.open() == ["create app-exec-1", "create app-exec-2", "create app-exec-3", "delete a"]
    world.answer(world.api.take("create"), pod(1))
    assert world.open() == ["create app-exec-2", "create app-exec-3", "delete a", "delete b"]


def test_the_bound_counts_every_kind_of_call(world: World) -> None:
    world.tell(
        DeletePod("a", UID),
        LabelPod("b", "u", {}),
        ConfirmPod(3, "c", "u", world.backend.address),
        bulk(world.backend, 7),
        DeletePod("d", UID),
    )
    assert world.open() == ["delete a", "patch b", "get c", "delete in (7)"]
    world.answer_next("patch", pod(2))
    assert world.open() == ["delete a", "get c", "delete in (7)", "delete d"]


@pytest.mark.parametrize("kind", ["create", "delete", "patch"])
def test_each_kind_of_call_leaves_one_slot_free(world: World, kind: str) -> None:
    for number in range(1, 6):
        match kind:
            case "create":
                world.create(number)
            case "delete":
                world.tell(DeletePod(f"pod-{number}", UID))
            case _:
                world.tell(LabelPod(f"pod-{number}", "u", {}))
    assert [words.partition(" ")[0] for words in world.open()] == [kind] * 3


def test_posts_leave_one_slot_free(world: World) -> None:
    world.create(1, 2, 3, 4, 5)
    assert world.open() == ["create app-exec-1", "create app-exec-2", "create app-exec-3"]
    world.tell(DeletePod("a", UID), DeletePod("b", UID))
    assert world.open()[3:] == ["delete a"]
    world.answer(world.api.take("create"), pod(1))
    assert world.open() == ["create app-exec-2", "create app-exec-3", "delete a", "delete b"]


def test_a_verification_counts_as_no_post(world: World) -> None:
    world.create(1, 2, 3, 4)
    world.answer_next("create", EXISTS)
    assert world.open() == ["create app-exec-2", "create app-exec-3", "get app-exec-1", "create app-exec-4"]


def test_a_pool_with_one_slot_uses_it_for_posts_too(kit: Kit) -> None:
    world = World(kit, limit=1)
    world.create(1, 2)
    world.tell(DeletePod("a", UID))
    assert world.open() == ["create app-exec-1"]
    world.answer_next("create", pod(1))
    assert world.open() == ["delete a"]
    world.answer_next("delete", None)
    assert world.open() == ["create app-exec-2"]


def test_a_request_in_backoff_occupies_no_slot(world: World) -> None:
    world.create(1, 2, 3, 4)
    world.answer_next("create", DOWN)
    assert world.open() == ["create app-exec-2", "create app-exec-3", "create app-exec-4"]


def test_a_delete_overtakes_queued_creates(world: World) -> None:
    world.create(1, 2, 3, 4, 5, 6)
    world.tell(DeletePod("a", UID), DeletePod("b", UID))
    world.answer_next("create", pod(1))
    assert world.open()[2:] == ["delete a", "delete b"]


def test_as_many_creates_are_in_flight_as_the_server_keeps_up_with(kit: Kit) -> None:
    world = World(kit, limit=32)

    def in_flight_after_answers(seconds: float) -> int:
        world.kit.advance(timedelta(seconds=seconds))
        for call in world.api.open("create"):
            world.answer(call, pod(1))
        return len(world.api.open("create"))

    world.create(*range(1, 301))
    assert len(world.api.open("create")) == 16
    assert [in_flight_after_answers(0.02) for _ in range(3)] == [31, 31, 31]
    fewer = [in_flight_after_answers(2.0) for _ in range(4)]
    assert fewer[-1] <= 14, fewer
    world.tell(*(DeletePod(f"pod-{number}", UID) for number in range(40)))
    assert len(world.api.open("delete")) == 32 - fewer[-1], "deletes are not held back"
    assert in_flight_after_answers(0.02) >= fewer[-1]


@pytest.mark.parametrize("slowest", ["create", "delete", "patch", "get"])
def test_the_kinds_of_calls_share_the_slots_fairly(kit: Kit, slowest: str) -> None:
    """Even if each call of one kind takes ten times as long as all others."""
    world = World(kit, limit=16)
    for number in range(1, 201):
        world.create(number)
        world.tell(DeletePod(f"pod-{number}", UID), LabelPod(f"pod-{number}", "u", {}))
        world.tell(ConfirmPod(number, f"pod-{number}", "u", world.backend.address))
    shares: Counter[str] = Counter()
    for step in range(30):
        calls = world.api.open()
        if step >= 10:
            shares.update(call.operation for call in calls)
        for call in calls:
            if call.operation != slowest or step % 10 == 0:
                world.answer(call, None if call.operation == "delete" else pod(1))
    assert len(shares) == 4
    assert all(0.2 <= share / shares.total() <= 0.3 for share in shares.values()), shares


@pytest.mark.parametrize("rate", [4, 40])
def test_the_kinds_of_calls_share_the_rate_fairly(kit: Kit, rate: float) -> None:
    world = World(kit, limit=16, rate=rate)
    for number in range(1, 201):
        world.create(number)
        world.tell(DeletePod(f"pod-{number}", UID), LabelPod(f"pod-{number}", "u", {}))
    while world.kit.clock.elapsed < timedelta(seconds=10):
        for call in world.api.open():
            world.answer(call, pod(1) if call.operation == "create" else None)
        world.kit.advance(timedelta(seconds=0.5 / rate))
    sent = Counter(call.operation for call in world.api.calls)
    assert set(sent) == {"create", "delete", "patch"}
    assert max(sent.values()) - min(sent.values()) <= rate, sent


def test_what_was_carried_out_is_sent_again_only_once_its_pod_was_observed_anew(world: World) -> None:
    def ask(observed_at: float) -> list[str]:
        world.tell(
            DeletePod("a", DeleteOptions(uid="u"), observed_at),
            LabelPod("b", "u", {"x": "y"}, observed_at=observed_at),
            AdoptPod("c", "u", ({"uid": "driver"},), observed_at),
        )
        return world.open()

    start = world.kit.clock.monotonic()
    assert ask(start) == ["delete a", "patch b", "patch c"]
    world.answer_next("delete", NotFound("gone", status=404))
    world.answer_next("patch", Conflict("another UID", status=409))
    world.answer_next("patch", pod(1))
    for _ in range(600):
        world.kit.advance(timedelta(seconds=1))
        assert ask(start) == []
    assert ask(start + 1) == ["delete a", "patch b", "patch c"]


def test_what_was_carried_out_is_forgotten_once_nobody_repeats_it() -> None:
    carried_out, request = CarriedOut(POLL), PodDelete(DeletePod("a", observed_at=0.0))
    carried_out.note(request, None, 1.0)
    later = 1.0 + (POLL + FORGOTTEN_AFTER).total_seconds()
    assert carried_out.holds_back(request, later)
    carried_out.note(PodDelete(DeletePod("b", observed_at=0.0)), None, later + 1)
    assert len(carried_out) == 2
    carried_out.note(PodDelete(DeletePod("c", observed_at=0.0)), None, 2 * later)
    assert not carried_out.holds_back(request, 2 * later)


def test_what_was_carried_out_is_forgotten_once_its_pod_is_gone(world: World) -> None:
    request = DeletePod("a", DeleteOptions(uid="u"), world.kit.clock.monotonic())
    world.tell(request)
    world.answer_next("delete", None)
    world.tell(request)
    assert world.open() == []
    world.tell(WithdrawRequests({"a": "u"}), request, WithdrawRequests({"a": "u"}))
    world.answer_next("delete", None)
    world.tell(request)
    assert world.open() == ["delete a"], "also if the pod was gone before the answer"


def test_what_would_write_to_a_pod_that_has_left_is_withdrawn(world: World) -> None:
    """Queued, in backoff or in flight. A later pod of the same name is another one."""
    world.create(1, 2, 3)
    for name in ("waits", "flies", "fails", "other"):
        world.tell(DeletePod(name, DeleteOptions(uid=f"uid-{name}")))
    world.tell(LabelPod("waits", "uid-waits", {"x": "y"}))
    world.tell(WithdrawRequests({name: f"uid-{name}" for name in ("waits", "flies", "fails")} | {"other": "uid-1"}))
    for executor_id in (1, 2, 3):
        world.answer_next("create", pod(executor_id))
    assert world.open() == ["delete waits", "delete other"]
    world.answer_next("delete", Unavailable("a webhook failed", status=500))
    world.answer_next("delete", None)
    world.allocator.take_all(PodCreated)
    world.quiet()


def test_no_pod_is_created_before_every_adoption_is_answered(world: World) -> None:
    for executor_id in (1, 2):
        world.tell(AdoptPod(pod_name(executor_id), f"uid-{executor_id}", ({"uid": "driver"},)))
    world.create(3)
    world.tell(DeletePod("app-exec-9", UID))
    assert world.open() == ["patch app-exec-1", "patch app-exec-2", "delete app-exec-9"]
    world.answer_next("patch", pod(1))
    world.answer_next("patch", Unavailable("away for a moment", status=503))
    assert "create app-exec-3" not in world.open()
    world.wait_for("patch")
    world.answer_next("patch", Forbidden("cannot patch pods", status=403))
    assert "create app-exec-3" in world.open()


def test_no_pod_is_created_before_one_that_counts_no_longer_is_deleted(world: World) -> None:
    """Also when all waited for a POST that hangs."""
    world.create(1, 2, 3, 4, 5, 6)
    flying = world.open()
    world.tell(DeletePod("other", UID), DeletePod("excess", UID, goes_first=True))
    assert [call for call in world.open() if call not in flying] == ["delete other"]
    world.answer_next("create", pod(1))
    world.answer_next("delete", None)
    assert [call for call in world.open() if call not in flying] == ["delete excess"]
    world.answer_next("delete", None)
    assert len([call for call in world.open() if call not in flying and call.startswith("create")]) == 1


def test_what_goes_first_holds_up_creation_for_seconds_however_often_it_fails(world: World) -> None:
    world.tell(DeletePod("excess", UID, goes_first=True))
    world.create(3)
    world.kit.advance(FIRST_WITHIN / 2)
    assert world.open() == ["delete excess"]
    world.answer_next("delete", Unavailable("a webhook failed", status=500))
    world.tell(DeletePod("another", UID, goes_first=True))
    assert "create app-exec-3" not in world.open()
    world.kit.advance(FIRST_WITHIN / 2)
    assert "create app-exec-3" in world.open()
    world.answer_next("create", pod(3))
    world.tell(DeletePod("a third", UID, goes_first=True))
    world.create(4)
    assert "create app-exec-4" in world.open(), "later ones prolong nothing"


def test_a_delete_that_waits_already_goes_first_once_it_has_to(world: World) -> None:
    world.tell(DeletePod("excess", UID), DeletePod("excess", UID, goes_first=True))
    world.create(3)
    assert world.open() == ["delete excess"]
    world.answer_next("delete", None)
    assert world.open() == ["create app-exec-3"]


def test_an_adoption_that_always_fails_blocks_no_post_for_long(world: World) -> None:
    world.tell(AdoptPod(pod_name(1), "uid-1", ({"uid": "driver"},)))
    world.create(3)
    for _ in range(BLOCKING_TRIES):
        assert "create app-exec-3" not in world.open()
        world.wait_for("patch")
        world.answer_next("patch", Unavailable("a webhook failed", status=500))
    assert world.open() == ["create app-exec-3"]


def test_a_retried_create_goes_before_later_ones(world: World) -> None:
    world.create(1, 2, 3, 4, 5, 6)
    world.answer_next("create", DOWN)
    world.kit.advance(timedelta(seconds=5))
    world.answer_next("create", pod(2))
    assert world.open()[-1] == "create app-exec-1"


# ── the rate ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rate_limits_the_requests_of_a_second(kit: Kit) -> None:
    world = World(kit, limit=50, rate=4)
    world.create(*range(1, 17))
    sent = [len(world.api.calls)]
    for _ in range(3):
        world.kit.advance(timedelta(seconds=1))
        sent.append(len(world.api.calls))
    assert sent == [4, 8, 12, 16]


def test_deletes_and_reads_use_the_rate_before_posts(kit: Kit) -> None:
    world = World(kit, limit=50, rate=2)
    world.create(1, 2, 3)
    world.tell(DeletePod("a", UID), LabelPod("b", "u", {}))
    world.kit.advance(timedelta(seconds=1))
    assert world.open() == ["create app-exec-1", "create app-exec-2", "delete a", "patch b"]
    world.kit.advance(timedelta(seconds=0.5))
    assert world.open()[4:] == ["create app-exec-3"]


def test_a_verification_that_waits_for_the_rate_is_not_sent_once_the_pod_is_observed(kit: Kit) -> None:
    world = World(kit, rate=0.1)
    world.create(1)
    world.answer_next("create", EXISTS)
    assert world.open() == []
    world.tell(PodsObserved({1: pod(1)}))
    world.allocator.take(PodCreated)
    world.quiet()
    assert len(world.api.calls) == 1


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_missing_right_is_one_warning_per_kind_of_request(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.tell(DeletePod("a", UID), DeletePod("b", UID), LabelPod("c", "u", {}), LabelPod("d", "u", {}))
    for verb in ("delete", "delete", "patch", "patch"):
        world.answer_next(verb, Forbidden(f"cannot {verb} pods", status=403, reason="Forbidden"))
    assert warnings(caplog) == [
        "request refused: request=delete a error=cannot delete pods",
        "request refused: request=label c error=cannot patch pods",
    ]


def test_a_refusal_with_another_cause_is_another_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for name, error in enumerate((Forbidden("no right", status=403), Unauthorized("expired", status=401)) * 2):
        world.tell(DeletePod(f"pod-{name}", UID))
        world.answer_next("delete", error)
    assert [line.partition("error=")[2] for line in warnings(caplog)] == ["no right", "expired"]


@pytest.mark.parametrize("answer", [None, NotFound("gone", status=404)])
def test_a_refusal_after_a_success_of_its_kind_is_a_warning_again(
    world: World, caplog: pytest.LogCaptureFixture, answer: object
) -> None:
    for name, reply in enumerate((FORBIDDEN, FORBIDDEN, answer, FORBIDDEN)):
        world.tell(DeletePod(f"pod-{name}", UID))
        world.answer_next("delete", reply)
    assert len(warnings(caplog)) == 2


def test_a_request_without_an_answer_does_not_count_as_a_success(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ask = ConfirmPod(1, "a", "u", world.backend.address)
    world.tell(ask)
    world.answer_next("get", FORBIDDEN)
    world.tell(ask)
    for _ in range(CONFIRM_TRIES):
        world.wait_for("get")
        world.answer_next("get", DOWN)
    world.tell(ask)
    world.answer_next("get", FORBIDDEN)
    assert [line for line in warnings(caplog) if "refused" in line] == ["request refused: request=confirm a error=no"]


# ── creates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_created_pod_is_reported_once(world: World) -> None:
    world.create(1)
    world.answer_next("create", pod(1))
    assert world.allocator.take(PodCreated) == PodCreated(1, 1, pod(1))
    world.quiet()


@pytest.mark.parametrize(
    "refusal",
    [
        Invalid("spec.containers: Required value", status=422),
        Forbidden("cannot create pods", status=403),
        QuotaExceeded("exceeded quota", status=403),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_definitive_refusal_is_reported_once_and_not_retried(world: World, refusal: ApiError) -> None:
    world.create(1)
    world.answer_next("create", refusal)
    assert world.allocator.take(PodCreateFailed) == PodCreateFailed(1, 1, refusal)
    assert len(world.api.calls) == 1
    world.quiet()


@pytest.mark.parametrize("answer", [LOST, DOWN, Unavailable("connection refused")], ids=str)
def test_the_same_name_is_posted_again_until_the_answer_is_definitive(world: World, answer: ApiError) -> None:
    world.create(1)
    pauses = []
    for _ in range(8):
        world.answer_next("create", answer)
        world.unanswered()
        pauses.append(world.wait_for("create").total_seconds())
        assert world.open() == ["create app-exec-1"]
    floors = [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert all(floor <= pause <= 2 * floor for floor, pause in zip(floors, pauses, strict=True))
    world.answer_next("create", pod(1))
    assert world.allocator.take(PodCreated).pod == pod(1)
    world.quiet()


def test_a_lost_answer_to_a_post_that_made_the_pod_is_found_out(world: World) -> None:
    world.create(1)
    world.answer_next("create", LOST)
    world.wait_for("create")
    world.answer_next("create", EXISTS)
    assert world.open() == ["get app-exec-1"], "at once"
    world.answer_next("get", pod(1))
    assert world.allocator.take(PodCreated) == PodCreated(1, 1, pod(1))
    world.quiet()


@pytest.mark.parametrize("other", [pod(1, app_id="another"), pod(1, terminating=True)], ids=["foreign", "terminating"])
def test_a_name_that_another_pod_holds_is_a_failure(world: World, other: object) -> None:
    world.create(1)
    world.answer_next("create", EXISTS)
    world.answer_next("get", other)
    assert world.allocator.take(PodCreateFailed) == PodCreateFailed(1, 1, EXISTS)
    world.quiet()


def test_the_verification_after_a_409_goes_before_everything_that_is_queued(world: World) -> None:
    world.create(1, 2, 3, 4)
    world.tell(DeletePod("a", UID))
    world.answer_next("create", EXISTS)
    assert world.open()[-1] == "get app-exec-1"


def test_a_conflict_on_the_quota_object_is_retried(world: World) -> None:
    world.create(1)
    world.answer_next("create", Conflict("the object has been modified", status=409))
    assert BACKOFF.initial <= world.wait_for("create") <= 2 * BACKOFF.initial
    world.answer_next("create", pod(1))
    world.allocator.take(PodCreated)
    world.quiet()


@pytest.mark.parametrize(
    "error",
    [TooManyRequests("slow down", status=429), Conflict("modified", status=409), DOWN, LOST],
    ids=lambda e: e.reason,
)
def test_each_transient_failure_of_a_create_is_reported(world: World, error: ApiError) -> None:
    world.create(1)
    for _ in range(2):
        world.answer_next("create", error)
        delayed = world.allocator.take(PodCreateDelayed)
        assert delayed == PodCreateDelayed(1, 1, error, delayed.retry_at)
        world.wait_for("create")
        assert delayed.retry_at == world.kit.clock.now()
    world.answer_next("create", pod(1))
    world.allocator.take(PodCreated)
    world.quiet()


def test_a_second_answer_to_a_call_is_ignored(world: World) -> None:
    world.create(1)
    post = world.api.take("create")
    for _ in range(2):
        post.reply(pod(1))
        post.answered = True
    world.kit.settle()
    world.allocator.take(PodCreated)
    world.quiet()


def test_a_create_that_is_requested_twice_is_one_create(world: World) -> None:
    world.create(1, 1)
    assert world.open() == ["create app-exec-1"]


# ── pods that are observed before their POST is answered ─────────────────────────────────────────────────────────


def test_a_pod_that_is_observed_while_its_create_waits_is_not_posted_again(world: World) -> None:
    """The pod may have ended: another POST of the name would give the id to a second pod."""
    world.create(1)
    world.answer_next("create", LOST)
    world.tell(PodsObserved({1: pod(1)}))
    assert world.allocator.take(PodCreated) == PodCreated(1, 1, pod(1))
    world.quiet()


def test_a_pod_that_is_observed_while_its_create_is_in_flight_is_not_posted_again(world: World) -> None:
    world.create(1)
    world.tell(PodsObserved({1: pod(1)}), PodsObserved({2: pod(2)}))
    world.unanswered()
    world.answer_next("create", LOST)
    assert world.allocator.take(PodCreated).pod == pod(1)
    world.quiet()


def test_a_pod_that_is_observed_while_its_create_is_queued_is_not_posted_at_all(world: World) -> None:
    world.create(1, 2, 3, 4)
    world.tell(PodsObserved({4: pod(4)}))
    assert world.allocator.take(PodCreated).executor_id == 4
    for executor_id in (1, 2, 3):
        world.answer_next("create", pod(executor_id))
    world.allocator.take_all()
    world.quiet()


def test_a_pod_that_is_observed_between_two_verifications_is_reported_once(world: World) -> None:
    world.create(1)
    world.answer_next("create", EXISTS)
    world.answer_next("get", DOWN)
    world.tell(PodsObserved({1: pod(1)}))
    world.allocator.take(PodCreated)
    world.quiet()


def test_a_second_pod_that_a_late_try_made_after_the_first_was_observed_is_deleted(world: World) -> None:
    world.create(1)
    world.answer_next("create", LOST)
    world.wait_for("create")
    world.tell(PodsObserved({1: pod(1, uid="first")}))
    world.answer_next("create", pod(1, uid="second"))
    assert world.api.take("delete").request == kube.Delete(pod_name(1), DeleteOptions(uid="second"))


def test_an_observed_pod_is_deleted_if_its_executor_was_killed_meanwhile(world: World) -> None:
    world.create(1)
    world.answer_next("create", LOST)
    world.tell(DeletePod(pod_name(1)))
    world.tell(PodsObserved({1: pod(1)}))
    assert world.api.take("delete").request.options.uid == "uid-1"


def test_an_epoch_begins_once_the_last_open_create_is_observed(world: World) -> None:
    world.create(1)
    world.answer_next("create", LOST)
    world.tell(BeginEpoch(2, world.allocator.address))
    world.tell(PodsObserved({1: pod(1)}))
    world.allocator.take(PodCreated)
    assert world.allocator.take(EpochBegun) == EpochBegun(2, dropped=frozenset())


def test_observed_pods_without_an_open_create_change_nothing(world: World) -> None:
    world.create(1)
    world.tell(PodsObserved({2: pod(2)}))
    assert world.open() == ["create app-exec-1"]
    world.answer_next("create", pod(1))
    world.allocator.take(PodCreated)
    world.quiet()


# ── 429 ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def too_many(seconds: float | None = None) -> TooManyRequests:
    wait = timedelta(seconds=seconds) if seconds is not None else None
    return TooManyRequests("too many requests", status=429, retry_after=wait)


def test_a_429_pauses_all_creates_for_as_long_as_the_server_requests(world: World) -> None:
    world.create(1, 2, 3, 4)
    for call in world.api.open():
        world.answer(call, too_many(20))
    assert world.open() == []
    world.kit.advance(timedelta(seconds=20) - timedelta(microseconds=1))
    world.create(5)
    assert world.open() == []
    world.kit.advance(timedelta(seconds=10))
    assert world.open() == ["create app-exec-1"], "one shows whether the server takes them"
    world.answer_next("create", pod(1))
    assert world.open() == ["create app-exec-2", "create app-exec-3"], "then more, in their order"
    world.answer_next("create", pod(2))
    assert world.open() == ["create app-exec-3", "create app-exec-4", "create app-exec-5"]


def test_a_429_on_a_create_delays_no_delete(world: World) -> None:
    world.create(1)
    world.answer_next("create", too_many(60))
    world.tell(DeletePod("a", UID), LabelPod("b", "u", {}), ConfirmPod(3, "c", "u", world.backend.address))
    assert world.open() == ["delete a", "patch b", "get c"]


def test_a_429_on_a_delete_delays_nothing_else(world: World) -> None:
    world.tell(DeletePod("a", UID))
    world.answer_next("delete", too_many(60))
    world.create(1)
    world.tell(DeletePod("b", UID))
    assert world.open() == ["create app-exec-1", "delete b"]
    world.answer_next("delete", None)
    assert timedelta(seconds=60) <= world.wait_for("delete") <= timedelta(seconds=90)


def test_a_later_429_does_not_shorten_the_pause(world: World) -> None:
    world.create(1, 2)
    world.answer_next("create", too_many(60))
    world.answer_next("create", too_many())
    assert world.wait_for("create") >= timedelta(seconds=60)


def test_a_retry_after_of_one_second_does_not_replace_the_backoff(world: World) -> None:
    world.create(1)
    for _ in range(6):
        world.answer_next("create", too_many(1))
        world.wait_for("create")
    world.answer_next("create", too_many(1))
    assert world.wait_for("create") >= timedelta(seconds=30)


def test_a_429_on_a_post_delays_no_verification(world: World) -> None:
    world.create(1, 2)
    world.answer_next("create", too_many(60))
    world.answer_next("create", EXISTS)
    assert world.open() == ["get app-exec-2"]
    world.answer_next("get", DOWN)
    assert world.wait_for("get") <= 2 * BACKOFF.initial


def test_a_429_on_a_verification_pauses_no_post(world: World) -> None:
    world.create(1)
    world.answer_next("create", EXISTS)
    world.answer_next("get", too_many(60))
    world.create(2)
    assert world.open() == ["create app-exec-2"]
    assert world.wait_for("get") >= timedelta(seconds=60)


def test_a_paused_post_that_is_cancelled_is_verified_at_once(world: World) -> None:
    world.create(1)
    world.answer_next("create", LOST)
    world.wait_for("create")
    world.answer_next("create", too_many(60))
    world.tell(WithdrawPods(frozenset({1})))
    assert world.open() == ["get app-exec-1"]
    world.answer_next("get", NotFound("no such pod", status=404))
    world.allocator.take(PodCreateFailed)


# ── deletes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_delete_is_sent_with_its_preconditions(world: World) -> None:
    options = DeleteOptions(uid="u", resource_version="7", grace=timedelta(seconds=5))
    world.tell(DeletePod("a", options))
    assert world.api.take("delete").request.options == options


def test_the_same_delete_requested_again_while_it_is_open_is_one_request(world: World) -> None:
    again = DeletePod("a", DeleteOptions(uid="u"))
    world.tell(again, again)
    assert world.open() == ["delete a"]
    world.answer_next("delete", DOWN)
    world.tell(again)
    assert world.open() == [], "it waits for its next try"
    world.wait_for("delete")
    assert world.open() == ["delete a"]
    world.answer_next("delete", None)
    world.tell(again)
    assert world.open() == ["delete a"], "an answered request can be repeated"


def test_a_delete_with_other_preconditions_is_another_request(world: World) -> None:
    world.tell(
        DeletePod("a", DeleteOptions(uid="u", resource_version="7")),
        DeletePod("a", DeleteOptions(uid="u")),
        DeletePod("a", DeleteOptions(uid="v")),
    )
    assert world.open() == ["delete a"] * 3


def test_a_delete_that_fails_for_now_is_tried_until_it_is_answered(world: World) -> None:
    world.tell(DeletePod("a", UID))
    for _ in range(3):
        world.answer_next("delete", LOST)
        world.wait_for("delete")
    world.answer_next("delete", NotFound("gone", status=404))
    world.quiet()


def test_a_bulk_delete_is_reported_to_its_sender(world: World) -> None:
    world.tell(bulk(world.backend, 1, 2))
    world.answer_next("delete_collection", DOWN)
    world.backend.expect_nothing()
    world.wait_for("delete_collection")
    assert world.open() == ["delete in (1,2)"]
    world.answer_next("delete_collection", None)
    assert world.backend.take(PodsDeleted) == PodsDeleted({pod_name(1): "uid-1", pod_name(2): "uid-2"}, None)
    world.quiet()


def test_a_bulk_delete_takes_the_place_of_what_waits_to_be_sent_to_its_pods(world: World) -> None:
    for executor_id in (1, 2, 3):
        world.tell(DeletePod(pod_name(executor_id), DeleteOptions(uid=f"uid-{executor_id}")))
        world.answer_next("delete", Unavailable("a webhook failed", status=500))
    world.tell(bulk(world.backend, 1, 2))
    world.answer_next("delete_collection", None)
    world.wait_for("delete")
    world.kit.advance(timedelta(minutes=1))
    assert world.open() == ["delete app-exec-3"]


def test_all_who_delete_the_same_pod_get_the_answer_to_the_one_request(world: World) -> None:
    options = DeleteOptions(uid="uid-1")
    world.tell(DeletePod(pod_name(1), options), DeletePod(pod_name(1), options, reply_to=world.backend.address))
    world.answer_next("delete", NotFound("gone", status=404))
    assert world.backend.take(PodsDeleted) == PodsDeleted({pod_name(1): "uid-1"}, None), "gone is as good as deleted"
    world.quiet()


def test_a_pod_that_was_created_and_not_observed_is_deleted_by_its_uid(world: World) -> None:
    world.create(1)
    world.answer_next("create", pod(1))
    world.tell(DeletePod(pod_name(1)))
    assert world.api.take("delete").request == kube.Delete(pod_name(1), DeleteOptions(uid="uid-1"))


def test_a_pod_that_no_create_of_this_pool_made_is_looked_up_before_it_is_deleted(world: World) -> None:
    world.tell(DeletePod(pod_name(1)))
    world.answer_next("get", pod(1))
    assert world.api.take("delete").request == kube.Delete(pod_name(1), DeleteOptions(uid="uid-1"))
    world.tell(DeletePod(pod_name(2)))
    world.answer_next("get", pod(7))
    assert world.open() == ["delete app-exec-1"], "a pod of another executor has that name"


def test_killing_an_executor_whose_create_is_queued_drops_the_create(world: World) -> None:
    world.create(1, 2, 3, 4, 5)
    world.tell(DeletePod(pod_name(4)))
    failed = world.allocator.take(PodCreateFailed)
    assert (failed.executor_id, type(failed.error)) == (4, Cancelled)
    for executor_id in (1, 2, 3):
        world.answer_next("create", pod(executor_id))
    assert world.open() == ["create app-exec-5"]


def test_killing_an_executor_whose_create_is_in_flight_deletes_the_pod_once_it_is_made(world: World) -> None:
    world.create(1, 2)
    world.tell(DeletePod(pod_name(1)))
    world.answer_next("create", pod(1))
    assert world.allocator.take(PodCreated).executor_id == 1
    assert world.api.take("delete").request == kube.Delete(pod_name(1), DeleteOptions(uid="uid-1"))
    world.answer_next("create", pod(2))
    assert world.open() == ["delete app-exec-1"], "the other one stays"


def test_killing_an_executor_whose_answer_was_lost_verifies_and_deletes_its_pod(world: World) -> None:
    world.create(1)
    world.answer_next("create", LOST)
    world.tell(DeletePod(pod_name(1)))
    world.unanswered()
    assert BACKOFF.initial <= world.wait_for("get"), "a cancelled pod is not POSTed again"
    world.answer_next("get", pod(1))
    assert world.allocator.take(PodCreated).executor_id == 1
    assert world.open() == ["delete app-exec-1"]


def test_killing_an_executor_whose_lost_post_made_nothing_ends_the_tries(world: World) -> None:
    world.create(1)
    post = world.api.take("create")
    world.tell(DeletePod(pod_name(1)))
    world.answer(post, LOST)
    world.wait_for("get")
    world.answer_next("get", NotFound("no such pod", status=404))
    assert isinstance(world.allocator.take(PodCreateFailed).error, Cancelled)
    world.quiet()


def test_killing_an_executor_whose_name_is_taken_deletes_the_pod_if_it_is_ours(world: World) -> None:
    world.create(1)
    world.answer_next("create", EXISTS)
    world.answer_next("get", DOWN)
    world.tell(DeletePod(pod_name(1)))
    world.wait_for("get")
    world.answer_next("get", pod(1))
    assert world.open() == ["delete app-exec-1"]


@pytest.mark.parametrize("answer", [too_many(5), Conflict("modified", status=409), Unavailable("connection refused")])
def test_killing_an_executor_whose_try_made_no_pod_ends_the_tries(world: World, answer: ApiError) -> None:
    world.create(1)
    post = world.api.take("create")
    world.tell(DeletePod(pod_name(1)))
    world.answer(post, answer)
    assert isinstance(world.allocator.take(PodCreateFailed).error, Cancelled)
    world.quiet()


def test_killing_an_executor_in_backoff_after_such_a_try_ends_the_tries(world: World) -> None:
    world.create(1)
    world.answer_next("create", Unavailable("connection refused"))
    world.tell(DeletePod(pod_name(1)))
    assert isinstance(world.allocator.take(PodCreateFailed).error, Cancelled)
    world.quiet()


# ── labels, confirmations ────────────────────────────────────────────────────────────────────────────────────────


def test_a_label_is_patched_once_while_it_is_open(world: World) -> None:
    label = LabelPod("a", "u", {"x": "y"})
    world.tell(label, label)
    assert world.open() == ["patch a"]
    world.answer_next("patch", pod(1))
    world.quiet()


def test_each_sender_of_a_confirmation_gets_an_answer(world: World) -> None:
    for probe in (world.backend, world.allocator):
        world.tell(ConfirmPod(1, pod_name(1), "uid-1", probe.address))
    while world.api.open():
        world.answer_next("get", NotFound("gone", status=404))
    assert world.backend.take(PodConfirmed) == world.allocator.take(PodConfirmed) == PodConfirmed(1, "uid-1", None)


def test_a_confirmation_ends_after_a_few_tries(world: World) -> None:
    world.tell(ConfirmPod(1, pod_name(1), "uid-1", world.backend.address))
    for _ in range(2):
        world.answer_next("get", DOWN)
        world.wait_for("get")
    world.backend.expect_nothing()
    world.answer_next("get", DOWN)
    assert world.backend.take(PodConfirmed).pod is None
    world.quiet()


# ── epochs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_epoch_begins_at_once_when_nothing_is_open(world: World) -> None:
    world.tell(BeginEpoch(2, world.allocator.address))
    assert world.allocator.take(EpochBegun) == EpochBegun(2, dropped=frozenset())


def test_a_new_epoch_drops_queued_creates_and_resolves_those_in_flight(world: World) -> None:
    world.create(1, 2, 3, 4, 5)
    world.tell(BeginEpoch(2, world.allocator.address))
    assert [failed.executor_id for failed in world.allocator.take_all(PodCreateFailed)] == [4, 5]
    world.answer_next("create", pod(1))
    world.answer_next("create", Invalid("no", status=422))
    assert world.allocator.take(PodCreated).executor_id == 1
    assert world.allocator.take(PodCreateFailed).executor_id == 2
    world.unanswered()
    third = world.api.take("create")
    world.answer(third, LOST)
    world.unanswered()
    world.wait_for("get")
    world.answer_next("get", pod(3))
    assert world.allocator.take(PodCreated).executor_id == 3
    assert world.allocator.take(EpochBegun) == EpochBegun(2, dropped=frozenset({2, 4, 5}))
    world.quiet()


def test_a_create_of_an_earlier_epoch_that_made_no_pod_is_not_retried(world: World) -> None:
    world.create(1, 2)
    world.answer_next("create", Unavailable("connection refused"))
    world.tell(BeginEpoch(2, world.allocator.address))
    world.answer_next("create", too_many(60))
    assert world.allocator.take(EpochBegun).dropped == {1, 2}
    world.allocator.take_all(PodCreateFailed)
    world.quiet()


def test_a_new_epoch_does_not_wait_for_its_own_creates(world: World) -> None:
    world.create(1)
    world.tell(BeginEpoch(2, world.allocator.address))
    world.create(2, epoch=2)
    world.answer_next("create", pod(1))
    assert world.allocator.take(PodCreated).executor_id == 1
    assert world.allocator.take(EpochBegun) == EpochBegun(2, dropped=frozenset())


def test_deletes_survive_a_new_epoch(world: World) -> None:
    world.tell(DeletePod("a", UID), BeginEpoch(2, world.allocator.address))
    assert world.open() == ["delete a"]


def test_a_create_of_an_earlier_epoch_is_not_sent(world: World) -> None:
    world.tell(BeginEpoch(2, world.allocator.address))
    world.create(1, epoch=1)
    assert world.api.calls == []


def test_an_epoch_that_is_replaced_passes_its_results_to_the_next(world: World, kit: Kit) -> None:
    world.create(1, 2, 3, 4)
    world.tell(BeginEpoch(2, world.allocator.address))
    world.answer_next("create", pod(1))
    successor = kit.probe("successor")
    world.tell(BeginEpoch(3, successor.address))
    world.answer_next("create", pod(2))
    world.answer_next("create", pod(3))
    assert [created.executor_id for created in world.allocator.take_all(PodCreated)] == [1, 2, 3]
    assert successor.take(EpochBegun) == EpochBegun(3, dropped=frozenset({4}))
    assert world.allocator.take_all(EpochBegun) == []


# ── requests of an earlier incarnation ───────────────────────────────────────────────────────────────────────────────


def lost(world: World, epoch: int, *unseen: int) -> set[int]:
    """Return which of an Allocator's unseen ids are lost."""
    world.tell(BeginEpoch(epoch, world.allocator.address, frozenset(unseen)))
    world.allocator.take_all(PodCreateFailed)
    return set(world.allocator.take(EpochBegun).lost)


def test_ids_that_were_never_requested_here_are_lost(world: World) -> None:
    assert lost(world, 2, 4, 5) == {4, 5}


def test_ids_that_were_answered_are_not_lost(world: World) -> None:
    world.create(6, 7)
    world.answer_next("create", pod(6))
    world.answer_next("create", Invalid("no", status=422))
    world.allocator.take_all(PodCreated)
    assert lost(world, 2, 4, 6, 7, 8) == {4}


def test_ids_that_are_requested_again_are_no_longer_lost(world: World) -> None:
    assert lost(world, 2, 4, 5) == {4, 5}
    world.create(4, epoch=2, again=True)
    world.answer_next("create", pod(4))
    world.allocator.take_all(PodCreated)
    assert lost(world, 3, 4, 5) == {5}
    assert lost(world, 4, 5) == {5}


def test_a_create_requested_again_finds_its_pod_and_makes_no_second_one(world: World) -> None:
    world.create(1, again=True)
    world.answer_next("create", EXISTS)
    world.answer_next("get", pod(1))
    assert world.allocator.take(PodCreated).pod.uid == "uid-1"
    world.quiet()


def test_a_create_requested_again_that_is_refused_is_verified_first(world: World) -> None:
    world.create(1, again=True)
    world.answer_next("create", QuotaExceeded("our own pod has the last place", status=403))
    world.answer_next("get", pod(1))
    assert world.allocator.take(PodCreated).executor_id == 1
    world.quiet()


# ── withdrawn ────────────────────────────────────────────────────────────────────────────────────────────────────────


def withdraw(world: World, *executor_ids: int) -> None:
    world.tell(WithdrawPods(frozenset(executor_ids)))


def test_withdrawn_creates_are_not_sent_but_those_in_flight_continue(world: World) -> None:
    world.create(1, 2, 3, 4, 5)
    withdraw(world, 3, 4)
    answer = world.allocator.take(PodCreateFailed)
    assert (answer.executor_id, type(answer.error)) == (4, Cancelled)
    assert world.open() == ["create app-exec-1", "create app-exec-2", "create app-exec-3"]
    for executor_id in (1, 2, 3, 5):
        world.answer_next("create", pod(executor_id))
    created = world.allocator.take_all(PodCreated)
    assert [(each.executor_id, each.withdrawn) for each in created] == [(i, False) for i in (1, 2, 3, 5)]
    world.quiet()


def test_a_withdrawn_create_in_backoff_that_made_no_pod_is_not_retried(world: World) -> None:
    world.create(1)
    world.answer_next("create", Unavailable("connection refused"))
    world.unanswered()
    withdraw(world, 1)
    assert isinstance(world.allocator.take(PodCreateFailed).error, Cancelled)
    world.quiet()


@pytest.mark.parametrize("made", [True, False])
def test_a_withdrawn_create_that_may_have_made_a_pod_is_verified(world: World, made: bool) -> None:
    world.create(1)
    world.answer_next("create", LOST)
    world.unanswered()
    for _ in range(2):
        withdraw(world, 1)
    world.unanswered()
    world.wait_for("get")
    world.answer_next("get", pod(1) if made else NotFound("gone", status=404))
    if made:
        assert world.allocator.take(PodCreated).withdrawn
    else:
        assert isinstance(world.allocator.take(PodCreateFailed).error, Cancelled)
    world.quiet()


# ── drain, stop, restart ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_pool_without_creates_is_drained_at_once(world: World) -> None:
    world.tell(DeletePod("a", UID), Drain(world.backend.address))
    world.backend.take(Drained)
    assert world.open() == ["delete a"]


def test_draining_drops_queued_creates_and_waits_for_those_in_flight(world: World) -> None:
    world.create(1, 2, 3, 4)
    world.tell(Drain(world.backend.address))
    assert [failed.executor_id for failed in world.allocator.take_all(PodCreateFailed)] == [4]
    world.answer_next("create", pod(1))
    world.answer_next("create", LOST)
    world.backend.expect_nothing()
    world.answer_next("create", too_many(60))
    world.backend.take(Drained)
    assert [created.executor_id for created in world.allocator.take_all(PodCreated)] == [1]
    assert [failed.executor_id for failed in world.allocator.take_all(PodCreateFailed)] == [2, 3]
    world.quiet()


def test_a_drain_waits_for_no_pod_that_cannot_be_looked_up(world: World) -> None:
    for number, answer in enumerate((too_many(60), FORBIDDEN), 1):
        world.create(number)
        world.answer_next("create", LOST)
        world.wait_for("create")
        world.answer_next("create", EXISTS)
        world.answer_next("get", answer)
    world.tell(Drain(world.backend.address))
    world.backend.take(Drained)
    assert [failed.executor_id for failed in world.allocator.take_all(PodCreateFailed)] == [1, 2]
    world.quiet()


def test_a_drained_pool_takes_no_creates_but_still_deletes(world: World) -> None:
    world.tell(Drain(world.backend.address))
    world.create(1)
    assert isinstance(world.allocator.take(PodCreateFailed).error, Cancelled)
    world.tell(bulk(world.backend, 7))
    assert world.open() == ["delete in (7)"]


def test_a_stop_cancels_every_call_in_flight(world: World) -> None:
    world.create(1)
    world.tell(DeletePod("a", UID))
    world.pool.stop()
    world.kit.settle()
    assert [call.cancelled for call in world.api.calls] == [True, True]
    world.unanswered()


def test_late_answers_to_an_earlier_incarnation_are_not_the_new_ones(world: World) -> None:
    world.create(1)
    late = world.api.take("create")
    reply = late.reply
    world.pool.stop()
    world.kit.settle()
    world.spawn()
    world.create(2)
    reply(pod(1))
    world.kit.settle()
    assert world.allocator.received == []
    assert world.open() == ["create app-exec-2"]


def test_a_refused_delete_that_is_repeated_every_second_is_sent_with_a_growing_delay(world: World) -> None:
    sent: list[float] = []
    for second in range(600):
        world.tell(DeletePod("a", UID))
        if world.api.open("delete"):
            sent.append(float(second))
            world.answer_next("delete", Forbidden("cannot delete pods", status=403))
        world.kit.advance(timedelta(seconds=1))
    waits = [later - earlier for earlier, later in pairwise(sent)]
    assert all(least <= wait <= 1.5 * least + 1 for wait, least in zip(waits, (2, 4, 8, 16, 32, 60), strict=False)), (
        waits
    )
    assert len(sent) <= 18, sent


def test_a_refused_delete_delays_no_other_and_its_delay_ends_once_it_is_accepted(world: World) -> None:
    world.tell(DeletePod("a", UID))
    world.answer_next("delete", Forbidden("cannot delete pods", status=403))
    world.tell(DeletePod("b", UID))
    world.answer_next("delete", None)
    world.kit.advance(timedelta(seconds=4))
    for _ in range(2):
        world.tell(DeletePod("a", UID))
        world.answer_next("delete", None)


# ── the end of the permission to write ───────────────────────────────────────────────────────────────────────────


def deadline(call: ManualCall) -> float | None:
    found: float | None = call.request.deadline and call.request.deadline.moment
    return found


def test_each_write_has_the_latest_end_of_the_permission_as_its_deadline_and_a_read_has_none(world: World) -> None:
    now = world.kit.clock.monotonic()
    world.tell(DeletePod("a", UID), AllowWrites(now + 10), DeletePod("b", UID))
    world.tell(AllowWrites(now + 15), ConfirmPod(1, "c", "uid", world.backend.address))
    world.create(2)
    deletes = world.api.open("delete")
    assert [deadline(call) for call in deletes] == [None, now + 10]
    assert deadline(world.api.take("get")) is None
    create = world.api.take("create")
    assert deadline(create) == now + 15
    assert not create.request.late
    world.kit.advance(timedelta(seconds=15))
    assert create.request.late


def test_writes_that_came_too_late_to_be_sent_are_no_outage_and_are_sent_when_they_may_be(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.tell(AllowWrites(world.kit.clock.monotonic()))
    world.tell(DeletePod("a", UID), DeletePod("b", UID))
    world.create(1)
    for call in world.api.open():
        world.answer(call, NotSent("it was not sent"))
    until = world.kit.clock.monotonic() + 10
    world.tell(AllowWrites(until))
    world.kit.advance(timedelta(seconds=1))
    assert sorted(world.open()) == [f"create {pod_name(1)}", "delete a", "delete b"]
    assert {deadline(call) for call in world.api.open()} == {until}
    assert caplog.records == []


def test_a_create_that_was_not_sent_made_no_pod(world: World) -> None:
    world.create(1)
    world.answer_next("create", NotSent("it was not sent"))
    world.tell(SuspendWrites("another driver has the lease"))
    assert world.allocator.take_all(PodCreateFailed) != []
    assert world.open() == [], "there is nothing to verify"


# ── pods that were created and not observed ──────────────────────────────────────────────────────────────────────────


def test_a_pod_that_is_not_what_was_requested_is_deleted_by_its_uid_and_reported_as_refused(world: World) -> None:
    world.create(1)
    made = pod(1, uid="made")
    world.answer_next("create", replace(made, metadata=replace(made.metadata, shared_labels=None)))
    failed = world.allocator.take(PodCreateFailed)
    assert isinstance(failed.error, Altered)
    assert "label executor-pods/app-id is missing" in failed.error.message
    call = world.api.take("delete")
    assert call.request == kube.Delete("app-exec-1", DeleteOptions(uid="made"))
    world.answer(call, FORBIDDEN)
    world.tell(Drain(world.backend.address))
    assert world.backend.take(Drained).unseen == {"app-exec-1": UnseenPod(1, "made")}


def test_a_drain_names_the_pods_that_were_created_and_neither_observed_nor_deleted(world: World) -> None:
    world.create(1, 2, 3)
    for number in (1, 2, 3):
        world.answer_next("create", pod(number))
    world.create(4)
    world.tell(PodsObserved({2: pod(2), 4: pod(4)}), DeletePod("app-exec-3", UID))
    world.answer_next("create", pod(4))
    world.answer_next("delete", None)
    world.tell(Drain(world.backend.address))
    assert world.backend.take(Drained).unseen == {"app-exec-1": UnseenPod(1, "uid-1")}
