"""The driver's own pod at the start: looked up, waited for until it is ready, message by message."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.backend.backend import Backend
from actors.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    NotFound,
    SettingsError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from actors.kube.api import PodPage
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    GetFleetStatus,
    StopBackend,
)
from actors.pods.pod import Condition, OwnerReference, Pod, PodStatus
from actors.settings.model import Settings
from actors.testing.manual_api import ManualPodApi
from tests.unit.builders import pod

if TYPE_CHECKING:
    from actors.testing import Kit

SECOND = timedelta(seconds=1)
CHILDREN = [
    "event-recorder",
    "request-pool",
    "snapshot-store",
    "lifecycle-manager",
    "allocator",
    "poll-source",
    "watch-source",
]


RING = OwnerReference(kind="ReplicaSet", name="driver", uid="uid-of-ring", api_version="apps/v1", controller=True)


def driver_pod(*, ready: bool = True, uid: str = "uid-of-driver", owner: OwnerReference | None = None) -> Pod:
    owners = None if owner is None else (owner,)
    metadata = msgspec.structs.replace(
        pod(1).metadata, name="driver-0", uid=uid, shared_labels={}, owner_references=owners
    )
    condition = Condition(type="Ready", status="True" if ready else "False")
    return msgspec.structs.replace(
        pod(1), metadata=metadata, status=PodStatus(phase="Running", conditions=(condition,))
    )


class Rig:
    """A Backend whose driver runs in the pod `driver-0`, on an API whose every answer is the test's."""

    def __init__(self, kit: Kit, *, owned_by: str = "driver", **backend: Any) -> None:
        self.kit = kit
        self.api = ManualPodApi("jobs")
        self.driver = kit.probe("driver")
        waiting: Any = {"lease": False, **backend}
        executor: Any = {"image": "worker:1", "owned_by": owned_by}
        subject = Settings(app_id="app", driver_pod_name="driver-0", executor=executor, backend=waiting)
        self.backend = Backend.start(subject, self.driver.address, self.api, system=kit.system)
        kit.settle()

    def found(self, answer: Pod | ApiError) -> None:
        """The GET of the driver's pod is answered."""
        call = self.api.take("get")
        assert call.request.name == "driver-0"
        call.answer(answer)
        self.kit.settle()

    def listed(self) -> None:
        """The fleet is listed, and the account has every right."""
        for review in self.api.open("may"):
            review.answer(True)  # noqa: FBT003 - the answer of a review
        for read in self.api.open("get_object"):
            read.answer({"kind": "Namespace", "metadata": {"name": "jobs"}})
        self.api.take("list").answer(PodPage((), "1"))
        self.kit.advance(SECOND / 2)

    def children(self) -> list[str]:
        return [actor.name for actor in self.kit.dispatcher.actors if actor.name not in ("driver", "backend")]

    def created(self) -> int:
        return len(self.api.open("create"))


@pytest.fixture
def rig(kit: Kit) -> Rig:
    return Rig(kit)


def test_nothing_starts_before_the_pod_is_found(rig: Rig) -> None:
    rig.kit.advance(5 * SECOND)
    assert rig.children() == []
    assert [call.operation for call in rig.api.calls] == ["get"]


def test_a_ready_pod_blocks_nothing_and_owns_every_executor(rig: Rig) -> None:
    rig.found(driver_pod())
    assert rig.children() == CHILDREN
    rig.listed()
    (owner,) = rig.api.take("create").request.manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
        "Pod",
        "driver-0",
        "uid-of-driver",
        True,
    )
    assert rig.driver.take_all(AllocationBlocked) == []
    rig.kit.advance(timedelta(minutes=5))
    assert rig.api.open("get") == (), "it is not looked at again"


def test_what_controls_the_pod_owns_every_executor_beside_it(kit: Kit) -> None:
    rig = Rig(kit, owned_by="controller")
    rig.found(driver_pod(owner=RING))
    rig.listed()
    owners = rig.api.take("create").request.manifest["metadata"]["ownerReferences"]
    assert [(each["apiVersion"], each["kind"], each["uid"], each["controller"]) for each in owners] == [
        ("v1", "Pod", "uid-of-driver", True),
        ("apps/v1", "ReplicaSet", "uid-of-ring", False),
    ]


def test_a_pod_that_executors_outlive_is_looked_at_as_often_as_the_fleet_is_polled(kit: Kit) -> None:
    rig = Rig(kit, owned_by="controller")
    rig.found(driver_pod(owner=RING))
    rig.listed()
    for answer in (
        driver_pod(owner=RING),
        driver_pod(owner=RING, ready=False),
        Unavailable("503"),
        Forbidden("no", status=403),
    ):
        kit.advance(30 * SECOND)
        rig.found(answer)
    assert rig.driver.take_all(BackendFailed) == []
    kit.advance(30 * SECOND)
    rig.found(NotFound('pods "driver-0" not found', status=404))
    assert "the executors are left to the driver of the next pod" in str(rig.driver.take(BackendFailed).cause)


@pytest.mark.parametrize("owner", [None, msgspec.structs.replace(RING, controller=None)], ids=["none", "another"])
def test_a_pod_that_nothing_controls_fails_the_start_and_nothing_is_made(
    kit: Kit, owner: OwnerReference | None
) -> None:
    rig = Rig(kit, owned_by="controller")
    rig.found(driver_pod(owner=owner))
    cause = rig.driver.take(BackendFailed).cause
    assert isinstance(cause, SettingsError)
    assert "nothing controls the driver's pod 'driver-0'" in str(cause)
    assert [call.operation for call in rig.api.calls] == ["get"]


def test_a_missing_pod_fails_the_start_with_its_name_the_namespace_and_the_setting(rig: Rig) -> None:
    rig.found(NotFound('pods "driver-0" not found', status=404))
    cause = rig.driver.take(BackendFailed).cause
    assert isinstance(cause, SettingsError)
    for text in ("driver_pod_name", "'driver-0'", "'jobs'"):
        assert text in str(cause)
    assert [call.operation for call in rig.api.calls] == ["get"], "nothing was made or asked besides"
    assert not rig.backend.is_alive()


def test_a_pod_that_may_not_be_read_fails_the_start_with_what_to_grant(rig: Rig) -> None:
    for _ in range(5):
        rig.found(Forbidden('pods "driver-0" is forbidden', status=403))
        rig.driver.expect_nothing()
        rig.kit.advance(SECOND)
    rig.found(Forbidden('pods "driver-0" is forbidden', status=403))
    message = str(rig.driver.take(BackendFailed).cause)
    assert 'the account may not get pods in namespace "jobs": grant verb "get" on resource "pods"' in message
    assert 'the server says: pods "driver-0" is forbidden' in message


@pytest.mark.parametrize(
    "error", [Unauthorized("who?", status=401), BadRequest("what?", status=400), NotFound("no such path", status=404)]
)
def test_an_error_that_no_retry_helps_ends_the_start(rig: Rig, error: ApiError) -> None:
    for _ in range(5):
        rig.found(error)
        rig.driver.expect_nothing()
        rig.kit.advance(SECOND)
    rig.found(error)
    assert rig.driver.take(BackendFailed).cause is error


def test_an_error_that_passes_is_no_trouble(rig: Rig) -> None:
    for error in (Unauthorized("who?", status=401), Forbidden("no role yet", status=403), Unavailable("busy")) * 5:
        rig.found(error)
        rig.kit.advance(SECOND)
    rig.found(driver_pod())
    rig.listed()
    rig.driver.take(BackendStarted)


@pytest.mark.parametrize("kind", [TooManyRequests, Unavailable])
def test_the_pod_is_read_again_when_the_server_wants(rig: Rig, kind: type[TooManyRequests | Unavailable]) -> None:
    rig.found(kind("storage is (re)initializing", retry_after=10 * SECOND))
    rig.kit.advance(9.9 * SECOND)
    assert rig.api.open("get") == ()
    rig.kit.advance(5.1 * SECOND)
    rig.found(driver_pod())
    rig.listed()
    rig.driver.take(BackendStarted)


def test_an_api_that_does_not_answer_is_retried_until_the_start_times_out(rig: Rig) -> None:
    for _ in range(29):
        rig.found(Unavailable("connection refused"))
        rig.kit.advance(SECOND)
    assert rig.driver.take_all() == []
    rig.kit.advance(2 * SECOND)
    assert str(rig.driver.take(BackendFailed).cause) == "connection refused"


def test_an_api_that_comes_back_in_time_is_no_trouble(rig: Rig) -> None:
    rig.found(Unavailable("connection refused"))
    rig.kit.advance(SECOND)
    rig.found(driver_pod())
    rig.listed()
    rig.driver.take(BackendStarted)
    assert rig.created() == 2


def test_a_pod_that_is_not_ready_blocks_creation_and_the_driver_is_notified_once(rig: Rig) -> None:
    rig.found(driver_pod(ready=False))
    rig.listed()
    rig.driver.take(BackendStarted)
    blocked = AllocationBlocked("default", "waiting for the driver's pod 'driver-0' to be ready", "driver_pod")
    for _ in range(10):
        rig.kit.advance(SECOND)
        if rig.api.open("get"):
            rig.found(driver_pod(ready=False))
    assert rig.driver.take_all() == [blocked]
    status = rig.kit.ask(rig.backend, GetFleetStatus()).profiles["default"]
    assert (status.blocked, status.target) == (blocked.cause, 2)
    assert status.blocked_since is not None
    assert rig.created() == 0
    rig.kit.advance(SECOND)
    rig.found(driver_pod())
    rig.kit.advance(SECOND)
    assert rig.driver.take_all() == [AllocationUnblocked("default")]
    assert rig.created() == 2
    assert rig.kit.ask(rig.backend, GetFleetStatus()).profiles["default"].blocked is None


def test_a_pod_that_is_ready_before_the_fleet_is_listed_is_never_reported_as_blocking(rig: Rig) -> None:
    rig.found(driver_pod(ready=False))
    rig.kit.advance(SECOND)
    rig.found(driver_pod())
    rig.listed()
    assert rig.driver.take_all(AllocationBlocked) == []
    assert rig.created() == 2


def test_after_the_timeout_creation_continues_with_a_warning(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(kit, driver_ready_timeout="10s")
    rig.found(driver_pod(ready=False))
    rig.listed()
    for _ in range(12):
        kit.advance(SECOND)
        if rig.api.open("get"):
            rig.found(driver_pod(ready=False))
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    expected = "driver's pod not ready, creating executors all the same: pod=driver-0 waited=10s"
    assert said == [expected]
    assert rig.created() == 2
    assert len(rig.driver.take_all(AllocationUnblocked)) == 1
    kit.advance(timedelta(minutes=1))
    assert rig.api.open("get") == ()


def test_an_api_that_does_not_answer_changes_nothing_while_the_pod_is_not_ready(rig: Rig) -> None:
    rig.found(driver_pod(ready=False))
    rig.listed()
    for error in (Unavailable("503"), Forbidden("for a moment", status=403)):
        rig.kit.advance(SECOND)
        rig.found(error)
    assert rig.driver.take_all(BackendFailed) == []
    rig.kit.advance(SECOND)
    rig.found(driver_pod())
    rig.kit.advance(SECOND)
    assert rig.created() == 2


@pytest.mark.parametrize(
    "answer", [NotFound('pods "driver-0" not found', status=404), driver_pod(uid="another")], ids=["gone", "another"]
)
def test_a_pod_that_is_gone_before_it_was_ready_fails_the_start(rig: Rig, answer: Pod | ApiError) -> None:
    rig.found(driver_pod(ready=False))
    rig.listed()
    rig.kit.advance(SECOND)
    rig.found(answer)
    assert "there is no such pod any more in namespace 'jobs'" in str(rig.driver.take(BackendFailed).cause)
    assert rig.created() == 0


def test_a_stop_before_the_pod_is_found_has_nothing_to_do(rig: Rig) -> None:
    rig.backend.tell(StopBackend())
    rig.kit.settle()
    assert rig.driver.take_all()[0] == BackendStopped()
    assert rig.api.closed
    assert not rig.backend.is_alive()


def test_a_stop_while_the_pod_is_not_ready_is_like_any_other(rig: Rig) -> None:
    rig.found(driver_pod(ready=False))
    rig.listed()
    rig.driver.take_all()
    rig.kit.advance(SECOND)
    rig.backend.tell(StopBackend())
    rig.kit.settle()
    rig.found(driver_pod())
    rig.api.take("list").answer(PodPage((), "5"))
    rig.kit.settle()
    assert rig.driver.take(BackendStopped) == BackendStopped()
    assert [call.operation for call in rig.api.calls if call.operation == "create"] == []


def owned(executor_id: int, *uids: str) -> Pod:
    owners = tuple(OwnerReference(kind="Pod", name="driver-0", uid=uid) for uid in uids)
    metadata = msgspec.structs.replace(pod(executor_id).metadata, owner_references=owners)
    return msgspec.structs.replace(pod(executor_id), metadata=metadata)


@pytest.mark.parametrize("owned_by", ["driver", "controller"])
def test_a_stop_deletes_only_what_the_drivers_pod_or_its_controller_owns(
    kit: Kit, owned_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(kit, owned_by=owned_by)
    rig.found(driver_pod(owner=RING))
    rig.listed()
    ours = ["uid-of-driver"] if owned_by == "driver" else ["uid-of-driver", "uid-of-ring"]
    for number in range(1, rig.created() + 1):
        rig.api.take("create").answer(owned(number, *ours))
    rig.backend.tell(StopBackend())
    rig.kit.settle()
    earlier, stranger, free = owned(7, "uid-of-ring"), owned(8, "uid-of-another"), pod(9)
    rig.api.take("list").answer(PodPage((owned(1, "uid-of-driver"), earlier, stranger, free), "5"))
    rig.kit.settle()
    ids = "(1,7)" if owned_by == "controller" else "(1)"
    assert rig.api.take("delete_collection").request.selector.endswith(f"executor-id in {ids}")
    assert rig.api.open("delete") == ()
    (told,) = [record.getMessage() for record in caplog.records if "left alone" in record.getMessage()]
    assert ("app-exec-8" in told, "app-exec-9" in told, "app-exec-7" in told) == (True, True, owned_by == "driver")


@pytest.mark.usefixtures("expect_crashes")
@pytest.mark.parametrize("child", ["request-pool", "allocator"])
def test_a_child_that_restarts_meanwhile_waits_too(rig: Rig, child: str) -> None:
    rig.found(driver_pod(ready=False))
    rig.listed()
    rig.kit.address(child).tell("nonsense")
    rig.kit.advance(5 * SECOND)
    assert rig.created() == 0
    rig.found(driver_pod())
    for call in rig.api.open("list"):
        call.answer(PodPage((), "2"))
    rig.kit.advance(2 * SECOND)
    assert len(rig.driver.take_all(AllocationBlocked)) == 1
