"""How a Backend stops: step by step against an API in the test's hand, and as a whole on a cluster."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from actors.backend.backend import Backend
from actors.backend.deletion.fleet_deletion import in_bulk
from actors.backend.shutdown import stop_limit
from actors.errors import ApiError, Forbidden, Gone, NotFound, Unavailable
from actors.kube.api import PodPage
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import Run, ScriptedKubelet
from actors.local.store.object_store import ObjectStore
from actors.messages import (
    BackendFailed,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    GetFleetStatus,
    KillExecutors,
    RequestTotalExecutors,
    StopBackend,
)
from actors.messages.internal import Drained, Freshness, LeaseHeld, LeaseNotHeld, Source
from actors.pods.loss import LossKind
from actors.pods.pod import EXECUTOR_ID_LABEL
from actors.testing.manual_api import ManualPodApi
from actors.text import rfc3339
from tests.unit.builders import event, pod_name
from tests.unit.views import going, labelled, pending, running, settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.pods.pod import Pod
    from actors.runtime import Address
    from actors.testing import Kit
    from actors.testing.manual_api import ManualCall

SECOND = timedelta(seconds=1)
NOTHING: Mapping[str, Any] = MappingProxyType({})
SLOW = MappingProxyType({"template_patch": {"spec": {"terminationGracePeriodSeconds": 600}}})
OTHERS = ["request-pool", "snapshot-store", "lifecycle-manager"]


class Rig:
    """A Backend that runs two executors, on an API whose every answer is the test's."""

    def __init__(
        self,
        kit: Kit,
        *,
        instances: int = 2,
        lease: bool = False,
        executor: Mapping[str, Any] = NOTHING,
        **backend: Any,
    ) -> None:
        self.kit = kit
        self.api = ManualPodApi()
        self.driver = kit.probe("driver")
        subject = settings(executor={"instances": instances, **executor}, backend={"lease": lease, **backend})
        self.backend = Backend.start(subject, self.driver.address, self.api, system=kit.system)
        kit.settle()
        for review in self.api.open("may"):
            review.answer(True)  # noqa: FBT003 - the answer of a review
        self.answer("get_object", {"kind": "Namespace", "metadata": {"name": "default"}})
        if lease:
            self.answer("get_object", lease_of("", 1))
            self.renewed(2)
        self.answer("list", PodPage((), "1"))
        self.watch = self.api.take("watch")
        kit.advance(SECOND)
        if lease and instances:
            self.renewed(3)  # with the allocated ids

    @property
    def inside(self) -> Address:
        """The address that the Backend's children have."""
        return self.kit.address("backend")

    def answer(self, verb: Any, answer: object) -> ManualCall:
        call = self.api.take(verb)
        call.answer(answer)
        self.kit.settle()
        return call

    def renewed(self, version: int) -> None:
        """The PATCH of the Lease succeeds."""
        (call,) = self.api.open("patch_object")
        self.identity = call.request.patch["spec"]["holderIdentity"]
        self.answer("patch_object", lease_of(self.identity, version))

    def renew_for(self, seconds: int) -> None:
        """Time passes, in which each renewal of the Lease succeeds."""
        for _ in range(seconds):
            self.kit.advance(SECOND)
            if self.api.open("get_object"):  # the keeper's, or the recorder's, whose Events are about the Lease
                self.answer("get_object", lease_of(self.identity, 3))
            if any(call.request.patch["spec"]["holderIdentity"] for call in self.api.open("patch_object")):
                self.renewed(3)

    def run(self, *executor_ids: int) -> Rig:
        """The POSTs of these are answered, and the watch delivers that they run."""
        for version, executor_id in enumerate(executor_ids, start=2):
            self.answer("create", pending(executor_id))
            self.watch.send(event("ADDED", running(executor_id, version=version)), version=str(version))
        self.kit.advance(2 * SECOND)
        return self

    def stop(self, delete_pods: bool | None = None) -> None:
        self.backend.tell(StopBackend(delete_pods))
        self.kit.settle()

    def children(self) -> list[str]:
        return [actor.name for actor in self.kit.dispatcher.actors if actor.name not in ("driver", "backend")]

    def left(self, *pods: Pod) -> None:
        """Answer the LIST that is due by now with these."""
        self.kit.advance(2 * SECOND)
        self.answer("list", PodPage(pods, "9"))

    def bulk(self, answer: object = None, *pods: Pod) -> ManualCall:
        """The LIST that is due has these pods, or both, and the bulk delete of them is answered."""
        self.answer("list", PodPage(pods or (running(1), running(2)), "4"))
        return self.answer("delete_collection", answer)

    def deleted(self) -> None:
        """The bulk delete is answered, and the LIST after it is empty."""
        self.bulk()
        self.answer("list", PodPage((), "5"))

    def lose_pool(self) -> None:
        """The pool crashes, and the next one has just started."""
        self.kit.address("request-pool").tell("nonsense")
        self.kit.advance(timedelta(seconds=1.5))

    def ended(self) -> tuple[str, ...]:
        """It has ended: what it left behind."""
        assert not self.backend.is_alive()
        return self.driver.take(BackendStopped).left_behind


@pytest.fixture
def rig(kit: Kit) -> Rig:
    return Rig(kit).run(1, 2)


def lease_of(holder: str, version: int) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": str(version), "leaseTransitions": 0}
    return {"metadata": {"name": "executor-pods-app", "resourceVersion": str(version)}, "spec": spec}


def test_sources_and_allocator_stop_first(rig: Rig) -> None:
    rig.stop()
    assert rig.children() == OTHERS
    assert rig.watch.cancelled
    lines = [line.split(" ", 1)[1] for line in rig.kit.trace]
    ends = [index for index, line in enumerate(lines) if line == "backend-1 <- Terminated"]
    assert (len(ends), ends[-1] < lines.index("request-pool-1 <- Drain")) == (3, True)


def test_the_listed_fleet_is_deleted_by_its_labels_and_listed_until_it_is_gone(rig: Rig) -> None:
    rig.stop()
    call = rig.bulk()
    fleet = "executor-pods/app-id=app,executor-pods/role=executor,executor-pods/inactive!=true"
    assert call.request.selector == f"{fleet},executor-pods/executor-id in (1,2)"
    assert call.request.at_version == "4", "what comes after the list is not hit"
    rig.answer("list", PodPage((going(running(1)), going(running(2))), "5"))
    rig.left(going(running(2)))
    assert rig.backend.is_alive()
    rig.left()
    assert rig.ended() == ()


@pytest.mark.parametrize(
    ("executor", "grace"),
    [({}, 4 * SECOND), ({"stop_grace_period": "9s"}, 9 * SECOND), (SLOW, None)],
)
def test_the_fleet_is_deleted_with_the_grace_period_of_a_stop(
    kit: Kit, executor: Mapping[str, Any], grace: timedelta | None
) -> None:
    rig = Rig(kit, executor=executor).run(1, 2)
    rig.stop()
    assert rig.bulk(Forbidden("no", status=403)).request.grace == grace
    rig.answer("list", PodPage((running(1), running(2)), "5"))
    assert [call.request.options.grace for call in rig.api.open("delete")] == [grace, grace]


def test_a_stop_logs_how_long_executors_have_to_end(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "actors"):
        rig.stop()
    assert "deleting executors: executors=2 grace=4s limit=34s" in caplog.messages


def test_a_deletion_is_logged_once_and_not_while_the_stop_waits_for_its_lease(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(kit, lease=True).run(1, 2)
    with caplog.at_level(logging.INFO, "actors"):
        rig.inside.tell(LeaseNotHeld("the API is away"))
        rig.stop()
        assert "deleting executors" not in caplog.text
        for _ in range(2):
            rig.inside.tell(LeaseHeld(kit.clock.monotonic() + 10))
            rig.inside.tell(LeaseNotHeld("the API is away"))
            kit.settle()
    assert caplog.text.count("deleting executors") == 1


def test_an_executor_that_was_deleted_before_gets_no_more_time_than_the_others(kit: Kit) -> None:
    rig = Rig(kit).run(1, 2)
    rig.stop()
    rig.bulk(Forbidden("no", status=403), going(running(1), grace=30))
    rig.answer("list", PodPage((going(running(1), grace=30), going(running(2), grace=4)), "5"))
    (call,) = rig.api.open("delete")
    assert (call.request.name, call.request.options.grace) == ("app-exec-1", 4 * SECOND)


def test_a_killed_executor_of_a_fleet_that_is_left_has_the_grace_period_of_a_stop(kit: Kit) -> None:
    rig = Rig(kit).run(1, 2)
    rig.backend.tell(KillExecutors((1,)))
    rig.stop(delete_pods=False)
    assert rig.bulk().request.grace == 4 * SECOND


def test_each_executor_is_reported_as_stopped_before_the_end_is(rig: Rig) -> None:
    rig.driver.take_all()
    rig.stop()
    rig.deleted()
    *ends, last = rig.driver.take_all()[:3]
    assert [(end.executor_id, end.reason.kind) for end in ends if isinstance(end, ExecutorRemoved)] == [
        (1, LossKind.KILLED_BY_DRIVER),
        (2, LossKind.KILLED_BY_DRIVER),
    ]
    assert last == BackendStopped()


def test_the_delay_between_lists_grows(kit: Kit) -> None:
    rig = Rig(kit, executor=SLOW).run(1, 2)
    rig.stop()
    rig.bulk()
    waits = []
    for _ in range(7):
        rig.answer("list", PodPage((going(running(1)),), "5"))
        waits.append(0)
        while not rig.api.open("list"):
            rig.kit.advance(timedelta(milliseconds=100))
            waits[-1] += 1
    assert waits == [1, 2, 4, 8, 16, 20, 20]


@pytest.mark.parametrize(
    ("size", "last"), [(2, [*range(40, 60)]), (60, [40, 43, 46, 49, 52, 55, 58]), (200, [40, 45, 50, 55])]
)
def test_the_fewer_are_left_the_oftener_they_are_listed_when_the_last_grace_period_is_over(
    rig: Rig, size: int, last: list[int]
) -> None:
    rig.stop()
    rig.bulk()
    began, tenth = rig.kit.clock.now(), timedelta(milliseconds=100)
    listed = []
    pods = tuple(going(running(i), grace=3 if i == 1 else 4, now=began) for i in range(1, size + 1))
    while rig.kit.clock.now() < began + 6 * SECOND:
        if rig.api.open("list"):
            listed.append((rig.kit.clock.now() - began) / tenth)
            rig.answer("list", PodPage(pods, "5"))
        rig.kit.advance(tenth)
    assert listed == [0, 1, 3, 7, 15, 31, *last]


def test_a_list_that_fails_is_asked_for_again(rig: Rig) -> None:
    rig.stop()
    rig.bulk()
    rig.answer("list", Unavailable("connection refused"))
    rig.left()
    assert rig.ended() == ()


def test_pods_that_the_bulk_delete_left_are_deleted_one_by_one(rig: Rig) -> None:
    rig.stop()
    rig.bulk(Forbidden("cannot deletecollection", status=403))
    rig.answer("list", PodPage((running(1), going(running(2), grace=4)), "5"))
    call = rig.api.take("delete")
    assert (call.request.name, call.request.options.uid) == ("app-exec-1", "uid-1")
    assert rig.api.open("delete") == (call,)


def test_a_pod_that_leaves_the_fleet_during_a_stop_is_left_alone(rig: Rig) -> None:
    rig.stop()
    rig.bulk(Forbidden("cannot deletecollection", status=403))
    rig.answer("list", PodPage((running(1), running(2)), "5"))
    for _ in range(2):
        rig.answer("delete", Unavailable("a webhook failed", status=500))
    rig.kit.advance(SECOND / 10)
    rig.answer("list", PodPage((running(2),), "9"))
    rig.kit.advance(10 * SECOND)
    assert {call.request.name for call in rig.api.open("delete")} == {"app-exec-2"}


def test_a_large_fleet_is_deleted_in_slices_each_pod_by_one_request(rig: Rig) -> None:
    rig.stop()
    fleet = tuple(running(number) for number in range(1, 251))
    rig.answer("list", PodPage((*fleet, going(running(251), grace=4)), "4"))
    slices = rig.api.open("delete_collection")
    chosen = [one.request.selector.partition(" in ")[2].strip("()").split(",") for one in slices]
    assert [len(ids) for ids in chosen] == [100, 100, 50]
    assert sorted(int(number) for ids in chosen for number in ids) == list(range(1, 251))
    rig.left(*fleet[:30], running(252))
    *same, later = rig.api.open("delete_collection")
    assert tuple(same) == slices, "nothing is asked for twice at a time"
    assert later.request.selector.endswith(" in (252)")
    for one in rig.api.open("delete_collection"):
        one.answer(None)
    rig.kit.settle()
    rig.answer("list", PodPage(fleet[:30], "9"))
    assert len(rig.api.open("delete_collection")) == 1
    rig.left()
    assert rig.ended() == ()


def test_a_stop_whose_bulk_delete_never_ends_names_the_pods_that_are_left(kit: Kit) -> None:
    rig = Rig(kit, shutdown_timeout="15s").run(1, 2)
    rig.stop()
    rig.left(running(2))
    rig.kit.advance(15 * SECOND)
    assert rig.ended() == ("app-exec-2",)


def test_creates_in_flight_are_resolved_before_the_fleet_is_deleted(kit: Kit) -> None:
    rig = Rig(kit, instances=1)
    rig.stop()
    assert rig.api.open("list") == ()
    rig.answer("create", pending(1))
    assert len(rig.api.open("list")) == 1


def test_nothing_is_requested_any_more(rig: Rig) -> None:
    rig.stop()
    rig.backend.tell(RequestTotalExecutors(9))
    rig.kit.advance(5 * SECOND)
    assert rig.api.open("create") == ()


def test_without_deletion_the_fleet_is_left_and_no_executor_is_reported_removed(rig: Rig) -> None:
    rig.driver.take_all()
    rig.stop(delete_pods=False)
    assert rig.ended() == ()
    assert rig.driver.take_all(ExecutorRemoved) == []
    assert [call.operation for call in rig.api.calls if call.operation in ("delete", "delete_collection")] == []


def test_a_setting_says_whether_the_fleet_is_deleted_unless_the_message_does(kit: Kit) -> None:
    rig = Rig(kit, delete_on_stop=False).run(1, 2)
    rig.stop()
    assert rig.ended() == ()
    assert rig.api.open("delete_collection") == ()


def test_deletion_can_be_asked_for_against_the_setting(kit: Kit) -> None:
    rig = Rig(kit, delete_on_stop=False).run(1, 2)
    rig.stop(delete_pods=True)
    rig.bulk()


def test_a_stop_that_times_out_names_the_pods_of_the_last_list(rig: Rig) -> None:
    rig.stop()
    rig.bulk()
    rig.answer("list", PodPage((running(2),), "5"))
    rig.kit.advance(timedelta(seconds=33))
    assert rig.backend.is_alive()
    rig.kit.advance(SECOND)
    assert rig.ended() == ("app-exec-2",)
    ends = rig.driver.take_all(ExecutorRemoved)
    assert [end.executor_id for end in ends] == [1], "a pod that may be left is not reported removed"


def test_an_executor_that_ends_by_itself_after_the_limit_is_reported_removed_and_not_left(kit: Kit) -> None:
    rig = Rig(kit, executor=SLOW, shutdown_timeout="20s").run(1, 2)
    rig.driver.take_all()
    rig.stop()
    rig.bulk()
    ends_by = kit.clock.now() + 604 * SECOND
    rig.answer("list", PodPage((going(running(1), grace=600, now=kit.clock.now()), running(2)), "5"))
    kit.advance(20 * SECOND)
    assert rig.ended() == ("app-exec-2",), "its deletion was not accepted"
    (removed,) = rig.driver.take_all(ExecutorRemoved)
    assert (removed.executor_id, removed.reason.kind) == (1, LossKind.KILLED_BY_DRIVER)
    assert removed.reason.message == (
        f"executor 1 was stopped with the fleet: its pod terminates, and ends by {rfc3339(ends_by)}"
    )


def test_a_pause_that_began_before_the_stop_ends_by_itself(kit: Kit) -> None:
    rig = Rig(kit, executor={"drain_timeout": "1m"}, shutdown_timeout="20s").run(1, 2)
    rig.backend.tell(RequestTotalExecutors(1))
    began = kit.clock.now()
    rig.watch.send(event("MODIFIED", going(running(1, version=8), grace=90, now=began)), version="8")
    kit.advance(SECOND)
    rig.driver.take_all()
    rig.stop()
    rig.bulk(None, going(running(1), grace=90, now=began))
    for _ in range(8):
        rig.left(going(running(1), grace=1, now=began))
    kit.advance(10 * SECOND)
    assert rig.ended() == ()
    one = next(each for each in rig.driver.take_all(ExecutorRemoved) if each.executor_id == 1)
    assert one.reason.message.endswith(f"ends by {rfc3339(began + 94 * SECOND)}")


@pytest.mark.parametrize("began", [timedelta(), -30 * SECOND])
def test_a_pod_that_terminates_beyond_its_time_is_left(kit: Kit, began: timedelta) -> None:
    rig = Rig(kit, shutdown_timeout="20s").run(1, 2)
    rig.driver.take_all()
    rig.stop()
    rig.bulk()
    held = going(running(2), grace=5, now=kit.clock.now() + began)
    for _ in range(9):
        rig.answer("list", PodPage((held,), "5"))
        kit.advance(2 * SECOND)
    kit.advance(10 * SECOND)
    assert rig.ended() == ("app-exec-2",), "a finalizer holds it, or its node does not answer"
    assert [removed.executor_id for removed in rig.driver.take_all(ExecutorRemoved)] == [1]


def test_a_clock_that_differs_from_the_servers_gives_no_pod_more_time(kit: Kit) -> None:
    rig = Rig(kit, shutdown_timeout="20s").run(1, 2)
    rig.stop()
    rig.bulk()
    ahead = going(running(2), grace=5, now=kit.clock.now() + timedelta(hours=1))
    for _ in range(9):
        rig.answer("list", PodPage((ahead,), "5"))
        kit.advance(2 * SECOND)
    kit.advance(10 * SECOND)
    assert rig.ended() == ("app-exec-2",)


@pytest.mark.parametrize("error", [Unavailable("no route to host"), Forbidden("no", status=403)])
@pytest.mark.parametrize("in_bulk", [True, False])
def test_pods_whose_deletion_was_accepted_are_not_left_though_no_list_follows(
    rig: Rig, error: ApiError, in_bulk: bool
) -> None:
    rig.driver.take_all()
    rig.stop()
    if in_bulk:
        rig.bulk()
    else:
        rig.bulk(Forbidden("cannot deletecollection", status=403))
        rig.answer("list", PodPage((running(1), running(2)), "5"))
        rig.answer("delete", None)
        rig.answer("delete", NotFound("gone", status=404))
    while rig.backend.is_alive():
        for call in rig.api.open("list"):
            call.answer(error)
        rig.kit.advance(SECOND)
    assert rig.ended() == ()
    assert [end.executor_id for end in rig.driver.take_all(ExecutorRemoved)] == [1, 2]


def test_a_pod_that_a_later_list_shows_alive_is_deleted_again_though_its_deletion_was_accepted(rig: Rig) -> None:
    rig.stop()
    rig.bulk()
    rig.answer("list", PodPage((running(2),), "5"))
    assert rig.api.take("delete_collection").request.selector.endswith(" in (2)")
    rig.kit.advance(35 * SECOND)
    assert rig.ended() == ("app-exec-2",)


def test_a_fleet_that_cannot_be_listed_is_deleted_as_it_was_observed_last_each_pod_once(rig: Rig) -> None:
    rig.stop()
    for _ in range(5):
        rig.answer("list", Forbidden("cannot list pods", status=403))
        rig.kit.advance(2 * SECOND)
    assert [(call.request.name, call.request.options.uid) for call in rig.api.open("delete")] == [
        ("app-exec-1", "uid-1"),
        ("app-exec-2", "uid-2"),
    ]
    for _ in range(2):
        rig.answer("delete", None)
    rig.kit.advance(4 * SECOND)
    assert rig.api.open("delete") == ()
    rig.left()
    assert rig.ended() == ()


# ── what is not ours ───────────────────────────────────────────────────────────────────────────────────────────


def other(name: str, executor_id: str | None) -> Pod:
    """A pod with the fleet's labels that is no executor's."""
    subject = running(9)
    labels = {key: value for key, value in subject.labels.items() if key != EXECUTOR_ID_LABEL}
    if executor_id is not None:
        labels[EXECUTOR_ID_LABEL] = executor_id
    return replace(subject, metadata=replace(subject.metadata, name=name, uid=f"uid-{name}", shared_labels=labels))


STRANGERS = (other("payments-0", None), other("payments-1", "2"), other("app-exec-7", "8"), other("app-exec-x", "x"))


def test_what_has_the_fleets_labels_and_is_no_executor_is_named_and_not_deleted(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.stop()
    call = rig.bulk(None, running(1), running(2), running(3), *STRANGERS)
    assert call.request.selector.endswith(" in (1,3)")
    (single,) = rig.api.open("delete")
    assert (single.request.name, single.request.options.uid) == ("app-exec-2", "uid-2"), "its id has another pod, too"
    single.answer(None)
    for _ in range(3):
        rig.left(going(running(3), grace=5), *STRANGERS)
    rig.left(*STRANGERS)
    assert rig.ended() == (), "what is not ours is not waited for"
    told = [record.getMessage() for record in caplog.records if "left alone" in record.getMessage()]
    names = ["app-exec-7", "app-exec-x", "payments-0", "payments-1"]
    assert told == [f"pods left alone, they have the fleet's labels but no name, id or owner: pods={names}"]


def test_where_the_server_ignores_the_selector_of_a_list_no_selector_is_used_to_delete(rig: Rig) -> None:
    rig.stop()
    rig.answer("list", PodPage((running(1), running(2), labelled(running(3), app__id="other")), "4"))
    assert [call.request.name for call in rig.api.open("delete")] == ["app-exec-1", "app-exec-2"]
    assert rig.api.open("delete_collection") == ()


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((running(1), running(2)), {"uid-1", "uid-2"}),
        ((running(1), running(2), STRANGERS[0]), {"uid-1", "uid-2"}),
        ((running(1), running(2), STRANGERS[1]), {"uid-1"}),
        ((), set()),
    ],
)
def test_a_bulk_delete_takes_pods_whose_id_no_other_pod_has(pods: tuple[Pod, ...], expected: set[str]) -> None:
    assert in_bulk([pod for pod in pods if pod not in STRANGERS], pods) == expected


@pytest.mark.parametrize("error", [Gone("the list is too old", status=410), Forbidden("no", status=403)])
def test_a_bulk_delete_of_a_list_that_is_too_old_is_no_reason_to_delete_one_by_one(rig: Rig, error: ApiError) -> None:
    rig.stop()
    rig.bulk(error)
    rig.answer("list", PodPage((running(1), running(2)), "9"))
    again = len(rig.api.open("delete_collection")), len(rig.api.open("delete"))
    assert again == ((1, 0) if isinstance(error, Gone) else (0, 2))


# ── without an answer ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [Unavailable("no route to host"), Forbidden("no", status=403)])
def test_a_stop_without_an_answering_api_ends_in_time_and_names_all_pods_that_may_exist(
    rig: Rig, error: ApiError
) -> None:
    rig.stop()
    for _ in range(35):
        for call in rig.api.open():
            call.answer(error)
        rig.kit.advance(SECOND)
    assert rig.ended() == ("app-exec-1", "app-exec-2")
    assert rig.kit.dispatcher.actors == (rig.driver,)


def test_an_executor_whose_post_was_never_answered_is_named(kit: Kit) -> None:
    rig = Rig(kit, instances=1)
    rig.stop()
    kit.advance(timedelta(seconds=35))
    assert rig.ended() == ("app-exec-1",)


@pytest.mark.parametrize(
    ("executor", "backend", "seconds"),
    [
        ({}, {}, 4 + 10 + 2 * 10),
        ({"stop_grace_period": "1m"}, {}, 60 + 10 + 2 * 10),
        (SLOW, {}, 600 + 10 + 2 * 10),
        (SLOW, {"request_timeout": "1m"}, 600 + 10 + 2 * 60),
        (SLOW, {"shutdown_timeout": "20s"}, 20),
        ({"drain_timeout": "1m"}, {}, 1 + 60 + 10 + 2 * 10),
    ],
)
def test_a_stop_may_take_as_long_as_the_longest_grace_period_demands_unless_its_limit_is_set(
    executor: Mapping[str, Any], backend: dict[str, Any], seconds: float
) -> None:
    assert stop_limit(settings(executor={**executor}, backend=backend)) == seconds * SECOND


def test_a_stop_waits_for_executors_that_have_long_to_end(kit: Kit) -> None:
    rig = Rig(kit, executor=SLOW).run(1, 2)
    rig.stop()
    rig.bulk()
    for _ in range(300):
        rig.answer("list", PodPage((going(running(1), grace=600, now=kit.clock.now()),), "5"))
        kit.advance(2 * SECOND)
    rig.left()
    assert rig.ended() == ()


def test_the_time_a_stop_may_take_can_be_set(kit: Kit) -> None:
    rig = Rig(kit, request_timeout=SECOND, shutdown_timeout=timedelta(seconds=3)).run(1, 2)
    rig.stop()
    kit.advance(timedelta(seconds=3))
    assert rig.ended() == (pod_name(1), pod_name(2))


def test_a_second_stop_changes_nothing(rig: Rig) -> None:
    rig.stop()
    rig.stop(delete_pods=False)
    assert len(rig.api.open("list")) == 1
    rig.deleted()
    assert rig.ended() == ()
    assert rig.driver.take_all(BackendStopped) == []


def test_the_status_says_that_it_stops(rig: Rig) -> None:
    rig.stop()
    assert rig.kit.ask(rig.backend, GetFleetStatus()).stopping is True


def test_the_connection_is_closed_and_no_timer_is_left(rig: Rig) -> None:
    rig.stop(delete_pods=False)
    assert rig.api.closed
    assert rig.kit.timers.pending == 0


@pytest.mark.usefixtures("expect_crashes")
def test_the_bulk_delete_is_requested_again_after_a_crash_of_the_pool(rig: Rig) -> None:
    rig.stop()
    rig.answer("list", PodPage((running(1), running(2)), "4"))
    rig.api.take("delete_collection")
    rig.kit.address("request-pool").tell("nonsense")
    rig.kit.advance(5 * SECOND)
    rig.deleted()
    assert rig.ended() == ()


def test_a_late_message_that_the_pool_has_drained_repeats_no_step(rig: Rig) -> None:
    rig.stop()
    rig.bulk()
    rig.inside.tell(Drained())
    rig.kit.settle()
    assert rig.api.open("delete_collection") == ()


@pytest.mark.usefixtures("expect_crashes")
def test_a_pool_that_crashes_while_it_drains_is_drained_again(kit: Kit) -> None:
    rig = Rig(kit, instances=1)
    rig.stop()
    kit.address("request-pool").tell("nonsense")
    kit.advance(5 * SECOND)
    rig.deleted()
    assert rig.ended() == ()


@pytest.mark.usefixtures("expect_crashes")
def test_a_pod_that_comes_of_a_request_whose_pool_was_lost_is_deleted(kit: Kit) -> None:
    rig = Rig(kit, instances=1)
    rig.stop()
    rig.lose_pool()
    rig.deleted()
    assert rig.backend.is_alive(), "the server may carry the request out yet"
    rig.left(pending(1))
    rig.answer("delete_collection", None)
    rig.left()
    assert rig.ended() == ()


@pytest.mark.usefixtures("expect_crashes")
def test_a_list_that_was_requested_too_early_and_arrives_late_does_not_end_the_stop(kit: Kit) -> None:
    rig = Rig(kit, instances=1)
    rig.stop()
    rig.lose_pool()
    rig.deleted()
    kit.advance(SECOND / 10)
    (_,) = rig.api.open("list")
    kit.advance(5 * SECOND)
    rig.answer("list", PodPage((), "5"))
    assert rig.backend.is_alive()
    rig.left()
    assert rig.ended() == ()


def test_the_first_start_of_the_pool_has_lost_nothing(kit: Kit) -> None:
    rig = Rig(kit, instances=1)
    rig.answer("create", pending(1))
    rig.stop()
    rig.answer("list", PodPage((), "5"))
    rig.answer("get", NotFound("not found", status=404))
    rig.answer("list", PodPage((), "6"))
    assert rig.ended() == ()


@pytest.mark.usefixtures("expect_crashes")
def test_a_pool_that_fails_when_it_has_drained_has_lost_no_create(kit: Kit) -> None:
    rig = Rig(kit, instances=1)
    rig.stop()
    rig.answer("create", pending(1))
    rig.lose_pool()
    rig.answer("list", PodPage((), "5"))
    rig.answer("get", NotFound("not found", status=404))
    rig.answer("list", PodPage((), "6"))
    assert rig.ended() == ()


@pytest.mark.usefixtures("expect_crashes")
def test_a_pod_may_come_of_a_lost_request_whose_executor_was_abandoned(kit: Kit) -> None:
    rig = Rig(kit, instances=1)
    kit.advance(5 * SECOND)
    rig.backend.tell(RequestTotalExecutors(0))
    rig.lose_pool()
    rig.answer("list", PodPage((), "3"))
    rig.answer("get", NotFound("not found", status=404))
    rig.stop()
    rig.answer("list", PodPage((), "5"))
    assert rig.backend.is_alive(), "the server may carry the lost request out yet"


def test_pods_whose_time_was_not_over_at_the_last_look_are_not_left_though_the_lease_takes_a_while(kit: Kit) -> None:
    rig = Rig(kit, lease=True, shutdown_timeout="11s").run(1, 2)
    rig.stop()
    rig.bulk()
    pods = tuple(going(running(number), grace=5, now=kit.clock.now()) for number in (1, 2))
    for _ in range(8 * 4):
        if rig.api.open("list"):
            rig.answer("list", PodPage(pods, "5"))
        kit.advance(SECOND / 4)
        if rig.api.open("get_object"):
            rig.answer("get_object", lease_of(rig.identity, 3))
    while rig.backend.is_alive():
        kit.advance(SECOND / 10)
        for call in rig.api.open("patch_object"):
            rig.answer("patch_object", lease_of(call.request.patch["spec"]["holderIdentity"], 4))
        if rig.api.open("get_object"):
            rig.answer("get_object", lease_of(rig.identity, 3))
    assert rig.ended() == ()
    assert [end.executor_id for end in rig.driver.take_all(ExecutorRemoved)] == [1, 2]


@pytest.mark.usefixtures("expect_crashes")
def test_a_stop_that_times_out_names_the_pods_that_may_come_yet(kit: Kit) -> None:
    rig = Rig(kit, instances=1, request_timeout=SECOND, shutdown_timeout=timedelta(seconds=3))
    rig.stop()
    rig.lose_pool()
    rig.deleted()
    kit.advance(timedelta(seconds=1.5))
    assert rig.ended() == (pod_name(1),)


@pytest.mark.usefixtures("expect_crashes")
def test_a_pool_that_fails_too_often_ends_the_stop_early(kit: Kit) -> None:
    rig = Rig(kit, shutdown_timeout=timedelta(hours=1)).run(1, 2)
    pool = kit.address("request-pool")
    rig.stop()
    for _ in range(5):
        pool.tell("nonsense")
        kit.advance(timedelta(minutes=1))
    assert rig.ended() == ("app-exec-1", "app-exec-2")
    assert rig.driver.take_all(BackendFailed) == []


@pytest.mark.usefixtures("expect_crashes")
def test_a_child_that_is_down_when_the_stop_begins_does_not_delay_it(rig: Rig) -> None:
    rig.kit.address("allocator").tell("nonsense")
    rig.kit.settle()
    rig.stop()
    rig.deleted()
    assert rig.ended() == ()


def test_a_stop_before_the_first_full_sync_deletes_what_a_previous_driver_left(kit: Kit) -> None:
    api = ManualPodApi()
    driver = kit.probe("driver")
    backend = Backend.start(settings(), driver.address, api, system=kit.system)
    kit.settle()
    backend.tell(StopBackend())
    kit.settle()
    api.take("list").answer(PodPage((running(1),), "4"))
    kit.settle()
    api.take("delete_collection").answer(None)
    kit.settle()
    api.take("list").answer(PodPage((), "5"))
    kit.settle()
    assert driver.take_all()[0] == BackendStopped()


def test_an_error_that_would_have_failed_the_start_does_not_end_a_stop_early(kit: Kit) -> None:
    driver = kit.probe("driver")
    backend = Backend.start(settings(), driver.address, ManualPodApi(), system=kit.system)
    kit.settle()
    backend.tell(StopBackend())
    kit.address("backend").tell(Freshness(Source.WATCH, None, Forbidden("pods is forbidden", status=403)))
    kit.settle()
    assert backend.is_alive()
    assert driver.take_all() == []


# ── with a lease ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_lease_is_released_when_the_fleet_is_gone_and_no_writer_is_left(kit: Kit) -> None:
    rig = Rig(kit, lease=True).run(1, 2)
    rig.stop()
    rig.bulk()
    assert rig.api.open("patch_object") == ()
    rig.answer("list", PodPage((), "5"))
    assert rig.children() == ["lease-keeper"]
    assert rig.backend.is_alive()
    patch = rig.answer("patch_object", lease_of("", 3)).request.patch
    assert patch["spec"]["holderIdentity"] == ""
    assert rig.ended() == ()


def test_the_lease_of_a_fleet_that_is_left_is_released_too(kit: Kit) -> None:
    rig = Rig(kit, lease=True).run(1, 2)
    rig.stop(delete_pods=False)
    assert rig.children() == ["lease-keeper"]
    rig.answer("patch_object", lease_of("", 3))
    assert rig.ended() == ()


@pytest.mark.parametrize("answers", [True, False])
def test_a_stop_that_takes_too_long_releases_the_lease_when_what_it_has_sent_is_over(kit: Kit, answers: bool) -> None:
    rig = Rig(kit, lease=True, shutdown_timeout="16s").run(1, 2)
    rig.stop()
    if answers:
        rig.bulk()
    else:
        rig.renew_for(2)
    rig.answer("list", PodPage((running(1), running(2)), "5"))
    rig.renew_for(13 - (not answers) * 2)
    assert rig.children() == ["lease-keeper"], "nothing more is sent"
    kit.advance(1.9 * SECOND)
    assert rig.api.open("patch_object") == (), "the server may carry out a request that it has"
    kit.advance(SECOND / 10)
    rig.answer("get_object", lease_of(rig.identity, 3))  # it was about to be renewed
    assert rig.answer("patch_object", lease_of("", 4)).request.patch["spec"]["holderIdentity"] == ""
    assert rig.ended() == ("app-exec-1", "app-exec-2")


def test_a_stop_that_takes_too_long_for_its_lease_to_be_released_lets_it_expire(kit: Kit) -> None:
    rig = Rig(kit, lease=True, request_timeout=SECOND, shutdown_timeout=4 * SECOND).run(1, 2)
    rig.stop()
    rig.answer("list", PodPage((running(1), running(2)), "4"))
    kit.advance(3.9 * SECOND)
    assert rig.backend.is_alive()
    kit.advance(SECOND / 10)
    assert rig.api.open("patch_object") == ()
    assert rig.ended() == ("app-exec-1", "app-exec-2")


@pytest.mark.usefixtures("expect_crashes")
def test_a_stop_that_ends_early_because_a_child_failed_too_often_releases_the_lease(kit: Kit) -> None:
    rig = Rig(kit, lease=True, shutdown_timeout=timedelta(hours=1)).run(1, 2)
    pool = kit.address("request-pool")
    rig.stop()
    for _ in range(5):
        pool.tell("nonsense")
        rig.renew_for(30)
    assert rig.answer("patch_object", lease_of("", 4)).request.patch["spec"]["holderIdentity"] == ""
    assert rig.ended() == ("app-exec-1", "app-exec-2")


def test_a_lease_that_cannot_be_released_expires(kit: Kit) -> None:
    rig = Rig(kit, lease=True).run(1, 2)
    rig.stop(delete_pods=False)
    rig.answer("patch_object", Unavailable("connection refused"))
    assert rig.ended() == ()


def test_a_release_without_an_answer_takes_no_longer_than_a_stop_may(kit: Kit) -> None:
    rig = Rig(kit, lease=True, shutdown_timeout=timedelta(seconds=12)).run(1, 2)
    rig.stop(delete_pods=False)
    kit.advance(timedelta(seconds=11))
    assert rig.backend.is_alive()
    kit.advance(2 * SECOND)
    assert rig.ended() == ()


@pytest.mark.usefixtures("expect_crashes")
@pytest.mark.parametrize("crashes_first", [True, False])
def test_a_lease_keeper_that_crashes_does_not_delay_the_stop(kit: Kit, crashes_first: bool) -> None:
    rig = Rig(kit, lease=True).run(1, 2)
    keeper = kit.address("lease-keeper")
    if crashes_first:
        keeper.tell("nonsense")
        kit.settle()
    rig.stop(delete_pods=False)
    keeper.tell("nonsense")
    kit.settle()
    assert rig.ended() == ()


def test_a_stop_that_may_not_delete_deletes_when_it_may_again(kit: Kit) -> None:
    rig = Rig(kit, lease=True).run(1, 2)
    rig.driver.take_all()
    rig.stop()
    rig.bulk()
    rig.answer("list", PodPage((running(1), running(2)), "5"))
    rig.inside.tell(LeaseNotHeld("the API is away"))
    kit.settle()
    kit.advance(3 * SECOND)
    assert [call.operation for call in rig.api.open("delete_collection", "delete", "list")] == []
    rig.inside.tell(LeaseHeld(kit.clock.monotonic() + 10))
    kit.settle()
    rig.bulk()
    rig.answer("list", PodPage((), "6"))
    rig.answer("get_object", lease_of("me", 2))  # it was about to be renewed
    rig.answer("patch_object", lease_of("", 3))
    assert len(rig.driver.take_all(ExecutorRemoved)) == 2
    assert rig.ended() == ()


def test_a_stop_that_may_never_delete_again_names_the_pods(kit: Kit) -> None:
    rig = Rig(kit, lease=True, shutdown_timeout=timedelta(seconds=20)).run(1, 2)
    rig.inside.tell(LeaseNotHeld("the API is away"))
    rig.stop()
    kit.advance(timedelta(seconds=21))
    assert rig.api.open("delete_collection") == ()
    assert rig.ended() == ("app-exec-1", "app-exec-2")


def test_a_fleet_that_becomes_anothers_during_the_stop_is_left_and_no_executor_is_reported_removed(kit: Kit) -> None:
    rig = Rig(kit, lease=True).run(1, 2)
    rig.driver.take_all()
    rig.stop()
    rig.bulk()
    rig.answer("list", PodPage((running(1), running(2)), "5"))
    rig.inside.tell(LeaseNotHeld("it is other's", holder="other", holder_lives=True))
    kit.advance(SECOND)
    assert rig.driver.take_all(ExecutorRemoved) == []
    rig.answer("patch_object", lease_of("", 4))  # its keeper does not know yet
    assert rig.ended() == ()


def test_a_stop_while_the_holder_may_be_alive_waits_and_lists_once(kit: Kit) -> None:
    rig = Rig(kit, lease=True, instances=0)
    rig.inside.tell(LeaseNotHeld("other may have ended", holder="other"))
    rig.stop()
    rig.answer("list", Unavailable("connection refused"))
    rig.left(running(1), running(2))
    kit.advance(5 * SECOND)
    assert rig.api.open("list", "delete", "delete_collection") == ()
    rig.inside.tell(LeaseHeld(kit.clock.monotonic() + 10))
    kit.settle()
    rig.bulk()
    assert rig.backend.is_alive()


def test_a_stop_that_never_learns_whether_the_holder_is_alive_names_what_was_listed(kit: Kit) -> None:
    rig = Rig(kit, lease=True, instances=0, shutdown_timeout=timedelta(seconds=20))
    rig.inside.tell(LeaseNotHeld("other may have ended", holder="other"))
    rig.stop()
    rig.answer("list", PodPage((running(1), running(7)), "5"))
    kit.advance(21 * SECOND)
    assert rig.ended() == ("app-exec-1", "app-exec-7")
    assert rig.driver.take_all(ExecutorRemoved) == []


def test_a_list_from_before_the_lease_was_ours_does_not_say_that_the_fleet_is_gone(kit: Kit) -> None:
    rig = Rig(kit, lease=True, instances=0)
    rig.inside.tell(LeaseNotHeld("other may have ended", holder="other"))
    rig.stop()
    early = rig.api.take("list")
    rig.inside.tell(LeaseHeld(kit.clock.monotonic() + 10))
    kit.settle()
    assert early.cancelled
    rig.bulk()
    rig.answer("list", PodPage((going(running(1)),), "6"))
    assert rig.backend.is_alive()


def test_an_empty_list_while_the_holder_may_be_alive_does_not_end_the_wait(kit: Kit) -> None:
    rig = Rig(kit, lease=True, instances=0)
    rig.inside.tell(LeaseNotHeld("other may have ended", holder="other"))
    rig.stop()
    rig.answer("list", PodPage((), "5"))
    assert rig.children() == ["lease-keeper", "event-recorder", *OTHERS], (
        "the last creates of a dead driver may still be executed"
    )
    rig.inside.tell(LeaseHeld(kit.clock.monotonic() + 10))
    kit.settle()
    rig.bulk()


def test_a_holder_that_turns_out_to_be_alive_keeps_its_fleet(kit: Kit) -> None:
    rig = Rig(kit, lease=True, instances=0)
    rig.inside.tell(LeaseNotHeld("other may have ended", holder="other"))
    rig.stop()
    rig.answer("list", PodPage((running(1),), "5"))
    rig.inside.tell(LeaseNotHeld("it is other's", holder="other", holder_lives=True))
    kit.settle()
    rig.answer("patch_object", lease_of("", 4))  # its keeper does not know yet
    assert rig.ended() == ()
    assert rig.api.open("delete", "delete_collection") == ()


# ── on a cluster ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fleet_that_ends_slowly_is_waited_for(kit: Kit) -> None:
    store = ObjectStore(kit.clock, kit.entropy)
    kubelet = ScriptedKubelet(store, kit.clock, kit.timers, script=lambda _: Run(stop_delay=7 * SECOND))
    driver = kit.probe("driver")
    api = InProcessPodApi(store, "default", kit.timers)
    backend = Backend.start(
        settings(executor={"instances": 5, "stop_grace_period": "9s"}), driver.address, api, system=kit.system
    )
    kit.advance(3 * SECOND)
    assert len(driver.take_all(ExecutorRunning)) == 5
    backend.tell(StopBackend())
    kit.advance(6 * SECOND)
    assert backend.is_alive()
    kit.advance(3 * SECOND)
    kubelet.close()
    assert store.list("pods", "default").items == []
    assert len(driver.take_all(ExecutorRemoved)) == 5
    assert driver.take(BackendStopped) == BackendStopped()
    assert kit.dispatcher.actors == (driver,)
