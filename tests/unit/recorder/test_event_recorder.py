"""The EventRecorder between the API and a test in the Backend's place."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import pytest

from actors.errors import (
    AlreadyExists,
    Ambiguous,
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooManyRequests,
    Unavailable,
)
from actors.kube.api import EVENTS, LEASES
from actors.messages import AllocationBlocked, AllocationUnblocked, ExecutorRemoved, ExecutorStuck, FleetFailed
from actors.messages.internal import DriverLeaseAcquired, DriverLeaseLost, ToEventRecorder
from actors.pods.loss import LossKind, LossReason
from actors.recorder.book import MOST
from actors.recorder.event_recorder import PAUSE, EventRecorder
from actors.requests.token_bucket import TokenBucket
from actors.testing.manual_api import ManualPodApi

if TYPE_CHECKING:
    from actors.testing import Kit

POD = {"apiVersion": "v1", "kind": "Pod", "name": "driver-0", "uid": "1234", "controller": True}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "executor-pods-app"}


def lost(executor_id: int, kind: LossKind = LossKind.OOM_KILLED, profile: str = "default") -> ExecutorRemoved:
    return ExecutorRemoved(
        executor_id, LossReason(kind, 137, caused_by_app=True, message=f"executor {executor_id} was killed"), profile
    )


class Rig:
    """Five requests at once, then one in ten seconds."""

    def __init__(self, kit: Kit, about: dict[str, Any] | None = None) -> None:
        self.kit = kit
        self.api = ManualPodApi()
        self.owner = kit.probe("owner")
        self.recorder = kit.system.spawn(
            lambda context: EventRecorder(
                context,
                app_id="app",
                api=self.api,
                about=about or POD,
                instance="driver-0_abc",
                pace=TokenBucket(0.1, burst=5).spend,
            ),
            name="event-recorder",
            owner=self.owner.address,
        )

    def tell(self, *messages: ToEventRecorder) -> None:
        for message in messages:
            self.recorder.tell(message)
        self.kit.settle()

    def advance(self, seconds: float) -> None:
        self.kit.advance(timedelta(seconds=seconds))

    def answer(self, operation: str, answer: object = None) -> Any:
        """Answer the request under way; what it was."""
        (call,) = self.api.open()
        assert call.operation == operation
        call.answer({} if answer is None else answer)
        self.kit.settle()
        return call.request

    def created(self, answer: object = None) -> dict[str, Any]:
        manifest: dict[str, Any] = self.answer("create_object", answer).manifest
        return manifest

    def patched(self, answer: object = None) -> dict[str, Any]:
        patch: dict[str, Any] = self.answer("patch_object", answer).patch
        return patch

    def is_quiet(self) -> bool:
        return self.api.open() == ()


@pytest.fixture
def rig(kit: Kit) -> Rig:
    return Rig(kit)


def test_an_event_is_about_the_drivers_pod_and_says_what_occurred_when_and_how_often(rig: Rig) -> None:
    rig.tell(lost(7))
    event = rig.created()
    name = event["metadata"].pop("name")
    assert name.startswith("driver-0.")
    now = rig.kit.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": "default",
            "labels": {"executor-pods/app-id": "app", "app.kubernetes.io/managed-by": "executor-pods"},
        },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "driver-0",
            "uid": "1234",
            "namespace": "default",
        },
        "reason": "ExecutorLost",
        "type": "Warning",
        "message": "OOM_KILLED, profile default: executor 7 was killed",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "executor-pods"},
        "reportingComponent": "executor-pods",
        "reportingInstance": "driver-0_abc",
    }


def test_losses_of_one_kind_and_profile_are_one_event_with_a_count_and_the_last_words(rig: Rig) -> None:
    rig.tell(*(lost(number) for number in range(1, 101)))
    assert rig.created()["count"] == 1, "it was on its way when the others came"
    rig.advance(1)
    patch = rig.patched()
    assert (patch["count"], patch["message"]) == (100, "OOM_KILLED, profile default: executor 100 was killed")
    assert rig.is_quiet()


def test_losses_of_other_kinds_and_profiles_are_events_of_their_own(rig: Rig) -> None:
    rig.tell(lost(1), lost(2, profile="large"), lost(3, LossKind.EVICTED))
    said = [rig.created()["message"].partition(":")[0] for _ in range(3)]
    assert said == ["OOM_KILLED, profile default", "OOM_KILLED, profile large", "EVICTED, profile default"]
    assert rig.is_quiet()


def test_executors_that_the_driver_ended_are_not_lost(rig: Rig) -> None:
    rig.tell(lost(1, LossKind.KILLED_BY_DRIVER))
    assert rig.is_quiet()


@pytest.mark.parametrize(
    ("message", "reason", "type_", "text"),
    [
        (
            ExecutorStuck(3, "ImagePullBackOff", "no such image", None, "large"),
            "ExecutorStuck",
            "Warning",
            "profile large: executor 3 is stuck: ImagePullBackOff: no such image",
        ),
        (
            AllocationBlocked("default", "exceeded quota", "QuotaExceeded"),
            "CreationBlocked",
            "Warning",
            "profile default: exceeded quota",
        ),
        (FleetFailed("6 executors failed to start"), "FleetFailed", "Warning", "6 executors failed to start"),
        (DriverLeaseAcquired(), "LeaseAcquired", "Normal", "driver driver-0_abc acquired the lease"),
        (
            DriverLeaseLost("it is held by 'b'"),
            "LeaseLost",
            "Warning",
            "driver driver-0_abc creates and deletes no executors: it is held by 'b'",
        ),
    ],
)
def test_what_an_operator_asks_about_is_an_event(
    rig: Rig, message: ToEventRecorder, reason: str, type_: str, text: str
) -> None:
    rig.tell(message)
    event = rig.created()
    assert (event["reason"], event["type"], event["message"]) == (reason, type_, text)


def test_each_message_to_the_recorder_has_a_case() -> None:
    tested = {ExecutorRemoved, ExecutorStuck, AllocationBlocked, FleetFailed, DriverLeaseAcquired, DriverLeaseLost}
    assert tested | {AllocationUnblocked} == set(get_args(ToEventRecorder))


def test_creation_is_resumed_only_where_it_was_blocked(rig: Rig) -> None:
    rig.tell(AllocationUnblocked("default"))
    assert rig.is_quiet()
    rig.tell(AllocationBlocked("default", "exceeded quota"))
    rig.created()
    rig.tell(AllocationUnblocked("large"), AllocationUnblocked("default"), AllocationUnblocked("default"))
    assert rig.created()["reason"] == "CreationResumed"
    assert rig.is_quiet()


def test_creation_that_the_lease_blocks_is_told_once_by_the_event_about_the_lease(rig: Rig) -> None:
    rig.tell(AllocationBlocked("default", "the lease is not ours", "lease"), AllocationUnblocked("default"))
    assert rig.is_quiet()


# ── about the Lease ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_pod_the_events_are_about_the_lease_whose_uid_is_read_once(kit: Kit) -> None:
    rig = Rig(kit, LEASE)
    rig.tell(lost(1))
    read = rig.answer("get_object", {"metadata": {"uid": "5678"}})
    assert (read.resource, read.name) == (LEASES, "executor-pods-app")
    event = rig.created()
    assert event["involvedObject"] == {**LEASE, "uid": "5678", "namespace": "default"}
    assert event["metadata"]["name"].startswith("executor-pods-app.")
    rig.tell(lost(2))
    assert rig.patched()["count"] == 2


@pytest.mark.parametrize("answer", [{}, {"metadata": 7}, {"metadata": {"uid": ["x"]}}, NotFound("no such lease")])
def test_a_lease_that_is_not_there_yet_is_read_again_later(kit: Kit, answer: object) -> None:
    rig = Rig(kit, LEASE)
    rig.tell(lost(1))
    rig.answer("get_object", answer)
    assert rig.is_quiet()
    rig.advance(PAUSE.total_seconds())
    rig.answer("get_object", {"metadata": {"uid": "5678"}})
    assert rig.created()["count"] == 1


# ── nobody waits for it ──────────────────────────────────────────────────────────────────────────────────────────────


def test_one_request_is_under_way_at_a_time_and_the_rest_is_counted(rig: Rig) -> None:
    rig.tell(*(lost(number, profile=profile) for number in range(50) for profile in ("a", "b")))
    rig.advance(3600)
    assert len(rig.api.calls) == 1, "it was never answered"
    rig.created()
    assert len(rig.api.open()) == 1


def test_after_a_burst_few_requests_are_sent_and_none_is_lost(rig: Rig) -> None:
    rig.api.script("create_object", *[{}] * 1)
    rig.api.script("patch_object", *[{}] * 100)
    for number in range(1, 601):
        rig.tell(lost(number))
        rig.advance(1)
    assert len(rig.api.calls) == pytest.approx(5 + 60, abs=1)
    rig.advance(20)
    assert rig.api.calls[-1].request.patch["count"] == 600


def test_what_the_api_does_not_have_goes_before_the_next_count_of_what_it_has(rig: Rig) -> None:
    for number in range(1, 6):
        rig.tell(lost(number))
        rig.created() if number == 1 else rig.patched()
    rig.tell(lost(6))
    rig.tell(FleetFailed("too many"))
    assert rig.is_quiet(), "the burst is over"
    rig.advance(10)
    assert rig.created()["reason"] == "FleetFailed"
    rig.advance(10)
    assert rig.patched()["count"] == 6


def test_memory_is_bounded_whatever_occurs(rig: Rig) -> None:
    for number in range(10 * MOST):
        rig.tell(ExecutorStuck(number, f"Reason{number}", "x" * 10_000, None))
    (actor,) = (each for each in rig.kit.dispatcher.actors if isinstance(each, EventRecorder))
    assert len(actor._book._series) == MOST


def test_after_an_hour_of_silence_an_event_is_another_one(rig: Rig) -> None:
    rig.tell(lost(1))
    first = rig.created()
    rig.advance(3601)
    rig.tell(lost(2))
    second = rig.created()
    assert second["count"] == 1
    assert second["metadata"]["name"] != first["metadata"]["name"]


def test_text_is_one_line_of_at_most_a_kilobyte(rig: Rig) -> None:
    rig.tell(FleetFailed("\x1b[31mred\n" + "é" * 2000))
    message = rig.created()["message"]
    assert message.startswith("\\x1b[31mred\\né")
    assert message.endswith("...")
    assert len(message.encode()) <= 1024


def test_a_name_is_valid_however_long_the_pods_is(kit: Kit) -> None:
    rig = Rig(kit, {**POD, "name": "a" * 229 + "-" + "b" * 23})
    rig.tell(lost(1))
    name = rig.created()["metadata"]["name"]
    assert len(name) <= 253
    assert "-." not in name


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


FORBIDDEN = Forbidden('events is forbidden: User "x" cannot create resource "events"', status=403)


def test_without_the_right_nothing_is_written_any_more_and_one_line_says_so(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "actors")
    rig.tell(lost(1))
    rig.created(FORBIDDEN)
    rig.tell(lost(2), FleetFailed("too many"))
    rig.advance(PAUSE.total_seconds())
    rig.created(FORBIDDEN)
    rig.advance(7200)
    assert len(rig.api.calls) == 2
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("Kubernetes Events are not written, a right is missing: error=")


def test_a_right_that_is_missing_for_a_moment_ends_no_writing(rig: Rig) -> None:
    rig.tell(lost(1))
    for _ in range(2):
        rig.created(FORBIDDEN)
        rig.advance(PAUSE.total_seconds())
        rig.created()
        rig.advance(3600)
        rig.tell(FleetFailed("too many"))


@pytest.mark.parametrize(
    "error",
    [
        FORBIDDEN,
        Unavailable("no connection"),
        TooManyRequests("slow down", status=429),
        QuotaExceeded("exceeded quota", status=403),
        ApiError("teapot", status=418),
        Ambiguous("no answer"),
    ],
)
def test_any_other_error_makes_a_pause_in_which_occurrences_are_counted(rig: Rig, error: ApiError) -> None:
    rig.tell(lost(1))
    first = rig.created(error)
    rig.tell(lost(2))
    assert rig.is_quiet()
    rig.advance(PAUSE.total_seconds())
    again = rig.created()
    assert again["count"] == 2
    assert again["metadata"]["name"] == first["metadata"]["name"], "the first may have been created"


def test_an_event_whose_answer_was_lost_is_not_created_twice(rig: Rig) -> None:
    rig.tell(lost(1))
    rig.created(Ambiguous("no answer"))
    rig.tell(lost(2))
    rig.advance(PAUSE.total_seconds())
    rig.created(AlreadyExists("it is there", status=409))
    assert rig.patched()["count"] == 2


def test_an_event_that_somebody_deleted_is_created_anew_with_its_count(rig: Rig) -> None:
    rig.tell(lost(1))
    first = rig.created()
    rig.tell(lost(2))
    rig.patched(NotFound("gone", status=404))
    again = rig.created()
    assert again["count"] == 2
    assert again["firstTimestamp"] == first["firstTimestamp"]
    assert again["metadata"]["name"] != first["metadata"]["name"]


def test_an_event_that_the_api_refuses_is_forgotten_and_the_next_is_written(rig: Rig) -> None:
    rig.tell(lost(1))
    rig.created(Invalid("no", status=422))
    rig.tell(FleetFailed("too many"))
    assert rig.created()["reason"] == "FleetFailed"
    assert rig.is_quiet()


def test_requests_are_for_events_only(rig: Rig) -> None:
    rig.tell(lost(1))
    assert rig.answer("create_object").resource == EVENTS
    rig.tell(lost(2))
    assert rig.answer("patch_object").resource == EVENTS
