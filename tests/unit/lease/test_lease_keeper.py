"""The LeaseKeeper between the API and a probe in the Backend's place."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import (
    AlreadyExists,
    Ambiguous,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Refused,
    TooManyRequests,
    Unavailable,
)
from actors.lease.lease_keeper import LeaseKeeper
from actors.lease.marks import MARKS, NO_MARKS, Marks, written_marks
from actors.messages.internal import IdsAllocated, KeepLease, LeaseHeld, LeaseNotHeld, LeaseReleased, ReleaseLease
from actors.pods.pod import ContainerState, ContainerStatus, ObjectMeta, Pod, PodStatus, TerminatedState
from actors.runtime import Terminated
from actors.settings.model import Settings
from actors.testing.manual_api import ManualPodApi

if TYPE_CHECKING:
    from actors.testing import Kit

MARKED = """
import os
from actors.lease.process_mark import own_mark

print(own_mark(), end="", flush=True)
os._exit(0)
"""
"""A process that has no time to remove its mark."""

SECOND = timedelta(seconds=1)
THIRD = timedelta(seconds=6)
"""A third of the duration, and the jitter."""


def lease(holder: str, version: int, renewed: str = "then", last_id: int = 0) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed, "leaseTransitions": 0}
    annotations = {"executor-pods/last-id": str(last_id)}
    metadata = {"name": "executor-pods-app", "resourceVersion": str(version), "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def last_id(patch: dict[str, Any]) -> str:
    written: str = patch["metadata"]["annotations"]["executor-pods/last-id"]
    return written


class Rig:
    def __init__(self, kit: Kit, marks: Marks = NO_MARKS) -> None:
        self.kit = kit
        self.api = ManualPodApi()
        self.backend, self.owner = kit.probe("backend"), kit.probe("owner")
        self.keeper = kit.system.spawn(
            lambda context: LeaseKeeper(
                context,
                settings=Settings(app_id="app", backend={"lease_duration": "15s"}),
                api=self.api,
                identity="me",
                backend=self.backend.address,
                marks=marks,
            ),
            name="lease-keeper",
            owner=self.owner.address,
        )

    def tell(self, message: object) -> None:
        self.keeper.tell(message)
        self.kit.settle()

    def read(self, answer: object) -> None:
        self.api.take("get_object").answer(answer)
        self.kit.settle()

    def written(self, answer: object) -> dict[str, Any]:
        """Answer the PATCH under way; what it said."""
        call = self.api.take("patch_object")
        call.answer(answer)
        self.kit.settle()
        patch: dict[str, Any] = call.request.patch
        return patch

    def hold(self) -> Rig:
        self.tell(KeepLease())
        self.read(lease("me", 1))
        self.written(lease("me", 2))
        self.backend.take(LeaseHeld)
        return self


@pytest.fixture
def rig(kit: Kit) -> Rig:
    return Rig(kit)


def test_a_missing_lease_is_created_and_held_once_it_can_be_renewed(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(NotFound("no such lease"))
    call = rig.api.take("create_object")
    assert call.request.manifest["spec"]["holderIdentity"] == "me"
    call.answer(lease("me", 1))
    rig.kit.settle()
    assert rig.backend.take_all() == []
    assert rig.written(lease("me", 2))["metadata"]["resourceVersion"] == "1"
    rig.backend.take(LeaseHeld)


def test_a_lease_that_we_may_create_and_not_renew_is_never_ours(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(NotFound("no such lease"))
    rig.api.take("create_object").answer(lease("me", 1))
    rig.kit.settle()
    for _ in range(3):
        rig.backend.expect_nothing()
        rig.written(Forbidden("leases is forbidden", status=403))
        rig.kit.advance(3 * SECOND)
        rig.read(lease("me", 1))
    (report,) = rig.backend.take_all()
    assert isinstance(report, LeaseNotHeld)
    assert report.forbidden


def test_a_release_does_not_wait_for_a_renewal_of_a_lease_just_created(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(NotFound("no such lease"))
    asker = rig.kit.probe("asker")
    rig.tell(ReleaseLease(asker.address))
    rig.api.take("create_object").answer(lease("me", 1))
    rig.kit.settle()
    asker.take(LeaseReleased)
    assert rig.api.open() == ()


def test_it_is_renewed_every_third_of_its_duration_and_each_renewal_is_valid_for_less_than_the_whole(rig: Rig) -> None:
    rig.hold()
    for version in (3, 5):
        rig.kit.advance(THIRD)
        rig.read(lease("me", version))
        sent_at = rig.kit.clock.monotonic()
        rig.kit.advance(SECOND)
        patch = rig.written(lease("me", version + 1))
        assert patch["metadata"]["resourceVersion"] == str(version)
        assert rig.backend.take(LeaseHeld).until == sent_at + 15 * 0.75, "from when it was sent, not from the answer"
    assert rig.backend.take_all() == []


def test_a_renewal_that_took_long_is_followed_by_the_next_in_time(rig: Rig) -> None:
    rig.hold()
    rig.kit.advance(THIRD)
    rig.read(lease("me", 3))
    rig.kit.advance(4 * SECOND)
    rig.written(lease("me", 4))
    rig.kit.advance(2 * SECOND)
    assert len(rig.api.open("get_object")) == 1


def test_a_renewal_that_is_answered_when_the_lease_may_be_lost_does_not_count(rig: Rig) -> None:
    rig.hold()
    rig.kit.advance(THIRD)
    rig.read(lease("me", 3))
    rig.kit.advance(11 * SECOND)
    rig.backend.take(LeaseNotHeld)
    rig.written(lease("me", 4))
    assert rig.backend.take_all() == []
    rig.kit.advance(SECOND)
    rig.read(lease("me", 4))
    rig.written(lease("me", 5))
    rig.backend.take(LeaseHeld)


def test_a_lease_that_another_driver_took_is_not_ours(rig: Rig) -> None:
    rig.hold()
    rig.kit.advance(THIRD)
    rig.read(lease("other", 3))
    report = rig.backend.take(LeaseNotHeld)
    assert (report.holder, report.holder_lives) == ("other", True)
    rig.kit.advance(timedelta(seconds=11))
    assert rig.backend.take_all() == [], "what we had does not run out a second time"


def test_without_any_answer_since_the_start_it_reports_that_in_time(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.kit.advance(timedelta(seconds=9.9))
    assert rig.backend.take_all() == []
    rig.kit.advance(SECOND)
    report = rig.backend.take(LeaseNotHeld)
    assert (report.holder, report.forbidden) == (None, False)
    assert "no answer" in report.reason


def test_the_lease_of_another_is_read_again_and_acquired_when_it_stops_changing(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(lease("other", 1))
    (report,) = rig.backend.take_all(LeaseNotHeld)
    assert "held by 'other', which may have ended: if it has, it is ours in at most 18 s" in report.reason
    assert (report.holder, report.holder_lives) == ("other", False)
    for renewed in ("later", "later still"):
        rig.kit.advance(3 * SECOND)
        rig.read(lease("other", 2, renewed))
    (report,) = rig.backend.take_all(LeaseNotHeld)
    assert "held by 'other', another driver with this app_id" in report.reason
    assert (report.holder, report.holder_lives) == ("other", True)
    for _ in range(9):
        rig.kit.advance(3 * SECOND)
        if not rig.api.open("get_object"):
            break
        rig.read(lease("other", 2, "later still"))
        if rig.api.open("patch_object"):
            break
    patch = rig.written(lease("me", 3))
    assert patch["spec"]["leaseTransitions"] == 1
    rig.backend.take(LeaseHeld)
    assert rig.backend.take_all(LeaseNotHeld) == [], "it was reported once"


def test_a_lease_that_is_not_renewed_is_ours_within_the_reported_time(rig: Rig) -> None:
    rig.tell(KeepLease())
    while not rig.api.open("patch_object"):
        if rig.api.open("get_object"):
            rig.read(lease("dead", 1))
        rig.kit.advance(SECOND / 10)
    assert timedelta(seconds=15) <= rig.kit.clock.elapsed <= timedelta(seconds=18)
    (report,) = rig.backend.take_all(LeaseNotHeld)
    assert "in at most 18 s" in report.reason


def test_a_faster_driver_is_found_at_the_next_read_and_is_alive(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(lease("", 1))
    rig.written(Conflict("the object has been modified", status=409))
    assert rig.backend.take_all(LeaseHeld) == []
    rig.kit.advance(3 * SECOND)
    rig.read(lease("other", 2))
    assert rig.backend.take(LeaseNotHeld).holder_lives


def test_a_driver_that_created_the_missing_lease_is_alive(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(NotFound("no such lease"))
    rig.api.take("create_object").answer(AlreadyExists("it is there", status=409))
    rig.kit.advance(3 * SECOND)
    rig.read(lease("other", 2))
    assert rig.backend.take(LeaseNotHeld).holder_lives


def test_a_lease_that_cannot_be_renewed_is_not_ours_before_it_is_anothers(rig: Rig) -> None:
    rig.hold()
    start = rig.kit.clock.elapsed
    while not (report := rig.backend.take_all(LeaseNotHeld)):
        rig.kit.advance(SECOND / 10)
        for call in rig.api.open("get_object"):
            call.answer(Unavailable("the server is away"))
    assert rig.kit.clock.elapsed - start <= timedelta(seconds=10.1)
    assert "the server is away" in report[0].reason
    rig.kit.advance(3 * SECOND)
    rig.read(lease("me", 9))
    rig.written(lease("me", 10))
    rig.backend.take(LeaseHeld)


def test_a_write_whose_answer_is_lost_is_followed_by_a_read(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(lease("", 1))
    rig.written(Ambiguous("the connection was cut"))
    rig.kit.advance(3 * SECOND)
    rig.read(lease("me", 2))
    rig.written(lease("me", 3))
    rig.backend.take(LeaseHeld)


def test_an_account_without_the_right_is_reported_as_such_and_retries(rig: Rig) -> None:
    rig.tell(KeepLease())
    for _ in range(4):
        rig.read(Forbidden("leases is forbidden", status=403))
        rig.kit.advance(3 * SECOND)
    (report,) = rig.backend.take_all(LeaseNotHeld)
    assert report.forbidden
    rig.read(lease("me", 1))
    rig.written(lease("me", 2))
    rig.backend.take(LeaseHeld)


@pytest.mark.parametrize("held", [False, True])
def test_an_acquisition_that_the_server_refuses_is_reported_in_its_words_once_a_kind(rig: Rig, held: bool) -> None:
    rig.tell(KeepLease())
    if held:
        rig.read(lease("dead", 1))
        rig.backend.take(LeaseNotHeld)
        rig.kit.advance(timedelta(seconds=15))
    for number in range(3):
        rig.read(lease("dead" if held else "", 1))
        rig.written(Invalid(f"no leases on Sundays ({number})", status=422))
        rig.kit.advance(3 * SECOND)
    (report,) = rig.backend.take_all(LeaseNotHeld)
    holder = "is held by 'dead', and " if held else ""
    assert f"it {holder}cannot be acquired: no leases on Sundays (0)" in report.reason
    assert (report.holder, report.forbidden) == (None, False)
    rig.read(lease("dead" if held else "", 1))
    rig.written(lease("me", 2))
    rig.backend.take(LeaseHeld)


def test_a_holders_name_is_shown_as_text(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(lease("a\n2024 ERROR\x1b[2J\u202e" + "x" * 1_000_000, 1))
    reason = rig.backend.take(LeaseNotHeld).reason
    assert "held by 'a\\n2024 ERROR\\x1b[2J\\u202exxx" in reason
    assert reason.isprintable()
    assert len(reason) < 500


def test_refusals_of_several_classes_in_turn_are_reported_once_each(rig: Rig) -> None:
    rig.tell(KeepLease())
    for _ in range(4):
        for error in (Invalid("invalid", status=422), Forbidden("forbidden", status=403)):
            rig.read(lease("", 1))
            rig.written(error)
            rig.kit.advance(3 * SECOND)
    assert [report.forbidden for report in rig.backend.take_all(LeaseNotHeld)] == [False, True]


def test_a_right_that_is_missing_for_a_moment_is_not_reported(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(Forbidden("no roles are known yet", status=403))
    rig.kit.advance(3 * SECOND)
    rig.read(lease("", 1))
    rig.written(lease("me", 2))
    rig.backend.take(LeaseHeld)
    rig.kit.advance(6 * SECOND)
    rig.read(Forbidden("no roles are known yet", status=403))
    rig.kit.advance(3 * SECOND)
    rig.read(lease("me", 2))
    rig.written(lease("me", 3))
    assert rig.backend.take_all(LeaseNotHeld) == []


@pytest.mark.parametrize("kind", [TooManyRequests, Unavailable])
def test_the_lease_is_read_again_when_the_server_wants_but_before_it_expires(
    rig: Rig, kind: type[TooManyRequests | Unavailable]
) -> None:
    rig.tell(KeepLease())
    for asked, soonest, latest in ((3, 3, 3.6), (60, 5, 6)):
        rig.read(kind("storage is (re)initializing", retry_after=asked * SECOND))
        rig.kit.advance((soonest - 0.1) * SECOND)
        assert rig.api.open() == ()
        rig.kit.advance((latest - soonest + 0.1) * SECOND)
        assert len(rig.api.open("get_object")) == 1


def test_a_create_that_the_server_refuses_is_reported_in_its_words(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(NotFound("no such lease"))
    rig.api.take("create_object").answer(Invalid("no leases on Sundays", status=422))
    rig.kit.settle()
    assert "it cannot be acquired: no leases on Sundays" in rig.backend.take(LeaseNotHeld).reason


def test_one_failure_of_the_server_at_the_start_is_not_reported(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(lease("", 1))
    rig.written(Unavailable("a webhook does not answer", status=500))
    assert rig.backend.take_all() == []
    rig.kit.advance(timedelta(seconds=2.5))
    rig.read(lease("", 1))
    rig.written(Unavailable("a webhook does not answer", status=500))
    rig.kit.advance(timedelta(seconds=10))
    assert "cannot be read or acquired: a webhook does not answer" in rig.backend.take(LeaseNotHeld).reason


@pytest.mark.parametrize("answer", [lease("other", 2), {}, {"metadata": None}, {"kind": "Status"}])
def test_a_write_whose_answer_does_not_say_that_the_lease_is_ours_does_not_count(
    rig: Rig, answer: dict[str, Any]
) -> None:
    rig.tell(KeepLease())
    rig.read(lease("", 1))
    rig.written(answer)
    assert rig.backend.take_all(LeaseHeld) == []
    assert "cannot be acquired" in rig.backend.take(LeaseNotHeld).reason
    assert rig.owner.take_all(Terminated) == []


def test_it_releases_the_lease_on_request(rig: Rig) -> None:
    rig.hold()
    asker = rig.kit.probe("asker")
    rig.tell(ReleaseLease(asker.address))
    assert rig.written(lease("", 3))["spec"]["holderIdentity"] == ""
    asker.take(LeaseReleased)
    rig.kit.advance(timedelta(minutes=1))
    assert rig.api.open() == ()


@pytest.mark.parametrize("answer", [lease("me", 8), Unavailable("away")], ids=["renewed", "failed"])
def test_a_renewal_in_flight_is_waited_for_before_the_release(rig: Rig, answer: dict[str, Any] | ApiError) -> None:
    rig.hold()
    rig.kit.advance(THIRD)
    rig.read(lease("me", 2))
    asker = rig.kit.probe("asker")
    rig.tell(ReleaseLease(asker.address))
    assert asker.take_all(LeaseReleased) == []
    rig.written(answer)
    patch = rig.written(Conflict("the object has been modified", status=409))
    assert patch["metadata"]["resourceVersion"] == ("2" if isinstance(answer, ApiError) else "8")
    asker.take(LeaseReleased)


# ── a holder that has ended ────────────────────────────────────────────────────────────────────────────────────


def marked(version: int, renewed: str = "then", process: str | None = None) -> dict[str, Any]:
    """The lease of a driver in a pod."""
    found = lease("other", version, renewed)
    found["metadata"]["annotations"] |= written_marks("other", Marks(process, ("driver-0", "uid-1")))
    return found


def driver_pod(phase: str = "Failed", uid: str = "uid-1", **state: Any) -> Pod:
    end = TerminatedState(exit_code=137, reason="OOMKilled")
    statuses = (ContainerStatus("driver", state=ContainerState(**({"terminated": end} | state))),)
    return Pod(ObjectMeta(name="driver-0", uid=uid), status=PodStatus(phase, container_statuses=statuses))


def test_the_lease_of_a_driver_whose_pod_has_ended_is_acquired_at_once(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(marked(1))
    call = rig.api.take("get")
    assert call.request.name == "driver-0"
    call.answer(driver_pod())
    rig.kit.settle()
    assert rig.written(lease("me", 2))["metadata"]["resourceVersion"] == "1", "a holder that lives has renewed it"
    rig.backend.take(LeaseHeld)
    assert rig.kit.clock.elapsed == timedelta(0)
    assert rig.backend.take_all(LeaseNotHeld) == []


@pytest.mark.parametrize(
    "answer",
    [
        NotFound("deleted by force, it seems"),
        Forbidden("pods is forbidden", status=403),
        driver_pod(uid="uid-2"),
        driver_pod(phase="Running"),
        driver_pod(terminated=None),
        driver_pod(terminated=TerminatedState(reason="ContainerStatusUnknown")),
        Pod(ObjectMeta(name="driver-0", uid="uid-1"), status=PodStatus("Failed")),
    ],
    ids=["gone", "forbidden", "another", "running", "by_a_controller", "not_seen", "no_status"],
)
def test_a_driver_whose_pod_does_not_show_its_end_is_waited_for(rig: Rig, answer: object) -> None:
    rig.tell(KeepLease())
    while not rig.api.open("patch_object"):
        if rig.api.open("get_object"):
            rig.read(marked(1))
        if rig.api.open("get"):
            rig.api.take("get").answer(answer)
        rig.kit.advance(SECOND / 10)
    assert timedelta(seconds=15) <= rig.kit.clock.elapsed <= timedelta(seconds=18)


def test_the_pod_of_a_driver_is_asked_for_again_when_its_renewal_is_overdue(rig: Rig) -> None:
    rig.tell(KeepLease())
    asked = []
    for renewed in ("1", "1", "2", "2", "3", "3", "3", "3"):
        rig.read(marked(1, renewed))
        asked.append(len(rig.api.open("get")))
        for call in rig.api.open("get"):
            call.answer(driver_pod(phase="Running"))
        rig.kit.advance(3 * SECOND)
    assert asked == [1, 1, 0, 0, 0, 0, 0, 1]


def test_a_release_does_not_wait_for_the_holders_pod(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(marked(1))
    asker = rig.kit.probe("asker")
    rig.tell(ReleaseLease(asker.address))
    rig.api.take("get").answer(driver_pod())
    rig.kit.settle()
    asker.take(LeaseReleased)
    assert rig.api.open() == ()


def test_the_lease_of_a_process_that_has_ended_is_acquired_at_once_also_after_a_refused_write(rig: Rig) -> None:
    mark = subprocess.run([sys.executable, "-c", MARKED], capture_output=True, text=True, check=True).stdout
    rig.tell(KeepLease())
    rig.read(marked(1, process=mark))
    rig.written(Unavailable("away"))
    rig.kit.advance(3 * SECOND)
    rig.read(marked(1, process=mark))
    rig.written(lease("me", 2))
    rig.backend.take(LeaseHeld)


def test_what_shows_our_own_end_is_written_with_our_name(kit: Kit) -> None:
    rig = Rig(kit, Marks("mark", ("driver-1", "uid-2")))
    rig.tell(KeepLease())
    rig.read(lease("", 1))
    written = rig.written(lease("me", 2))["metadata"]["annotations"][MARKS]
    assert json.loads(written) == {"holder": "me", "process": "mark", "pod": ["driver-1", "uid-2"]}


# ── ids ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_allocated_ids_are_written_at_once_and_renew_the_lease(rig: Rig) -> None:
    rig.hold()
    rig.kit.advance(3 * SECOND)
    rig.tell(IdsAllocated(4))
    sent_at = rig.kit.clock.monotonic()
    patch = rig.written(lease("me", 3, last_id=4))
    assert (last_id(patch), patch["metadata"]["resourceVersion"]) == ("4", "2")
    assert rig.backend.take(LeaseHeld) == LeaseHeld(sent_at + 15 * 0.75, last_id=4)
    rig.kit.advance(timedelta(seconds=4.9))
    assert rig.api.open() == (), "the next renewal is counted from this one"
    rig.tell(IdsAllocated(3))
    assert rig.api.open() == (), "that changes nothing"


def test_a_renewal_that_is_due_while_ids_are_written_is_not_sent_beside_it(rig: Rig) -> None:
    rig.hold()
    rig.kit.advance(timedelta(seconds=4.9))
    rig.tell(IdsAllocated(4))
    rig.kit.advance(2 * SECOND)
    assert [call.operation for call in rig.api.open()] == ["patch_object"]


def test_ids_that_are_allocated_during_a_write_are_written_after_it_in_one_write(rig: Rig) -> None:
    rig.hold()
    for number in (2, 5, 9):
        rig.tell(IdsAllocated(number))
    assert last_id(rig.written(lease("me", 3, last_id=2))) == "2"
    assert last_id(rig.written(lease("me", 4, last_id=9))) == "9"
    assert [held.last_id for held in rig.backend.take_all(LeaseHeld)] == [2, 9]
    assert rig.api.open() == ()


def test_the_next_holder_of_the_lease_receives_the_last_id_and_keeps_it(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(lease("", 1, last_id=12))
    assert last_id(rig.written(lease("me", 2, last_id=12))) == "12"
    assert rig.backend.take(LeaseHeld).last_id == 12


def test_a_lease_that_is_created_anew_has_the_last_id(rig: Rig) -> None:
    rig.hold()
    rig.tell(IdsAllocated(4))
    rig.written(lease("me", 3, last_id=4))
    rig.kit.advance(THIRD)
    rig.read(NotFound("a person deleted it"))
    call = rig.api.take("create_object")
    assert last_id(call.request.manifest) == "4"


def test_an_id_whose_write_failed_is_in_the_next_renewal(rig: Rig) -> None:
    rig.hold()
    rig.tell(IdsAllocated(4))
    rig.written(Ambiguous("the connection was cut"))
    rig.tell(IdsAllocated(5))
    assert rig.api.open() == (), "its version is not known"
    rig.kit.advance(timedelta(seconds=2.5))
    rig.read(lease("me", 3, last_id=4))
    assert last_id(rig.written(lease("me", 4, last_id=5))) == "5"


def test_ids_that_come_while_the_lease_is_not_ours_are_written_when_it_is(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(lease("other", 1))
    rig.tell(IdsAllocated(4))
    assert rig.api.open() == ()
    rig.kit.advance(3 * SECOND)
    rig.read(lease("", 2, last_id=3))
    assert last_id(rig.written(lease("me", 3, last_id=4))) == "4"


def test_a_released_lease_keeps_the_last_id(rig: Rig) -> None:
    rig.hold()
    rig.tell(IdsAllocated(4))
    asker = rig.kit.probe("asker")
    rig.tell(ReleaseLease(asker.address))
    rig.tell(IdsAllocated(5))
    rig.written(lease("me", 3, last_id=4))
    patch = rig.written(lease("", 4, last_id=5))
    assert (patch["spec"]["holderIdentity"], last_id(patch)) == ("", "5")


# ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_keeper_that_does_not_hold_the_lease_has_nothing_to_release(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.read(lease("other", 1))
    asker = rig.kit.probe("asker")
    rig.tell(ReleaseLease(asker.address))
    asker.take(LeaseReleased)
    assert rig.api.open() == ()


def test_keeping_the_lease_twice_is_an_error_of_the_sender(rig: Rig) -> None:
    rig.tell(KeepLease())
    with pytest.raises(Refused, match="twice"):
        rig.kit.ask(rig.keeper, KeepLease())
    assert rig.owner.take_all(Terminated) == []


def test_the_keepers_end_cancels_the_call_in_flight(rig: Rig) -> None:
    rig.tell(KeepLease())
    rig.keeper.stop()
    rig.kit.settle()
    assert [call.cancelled for call in rig.api.calls] == [True]
