"""The Backend with all its children, between a driver's probe and an API."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from contextlib import closing
from datetime import timedelta
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

import pykka
import pytest

from actors.backend.backend import Backend
from actors.errors import (
    ApiError,
    Forbidden,
    NotFound,
    Refused,
    SettingsError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from actors.kube.api import LEASES, PodPage
from actors.kube.retries import PATIENCE
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import ScriptedKubelet, StayUnscheduled
from actors.local.store.object_store import ObjectStore
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    DecommissionExecutors,
    ExecutorBusy,
    ExecutorDisconnected,
    ExecutorIdle,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    FleetFailed,
    FleetStatus,
    GetExecutorIds,
    GetFleetStatus,
    HasEnoughExecutors,
    IsExecutorActive,
    KillExecutors,
    RegisterExecutor,
    RequestTotalExecutors,
    ScaleExecutors,
    StopBackend,
    ToDriver,
)
from actors.messages.internal import CreationBlocked, FromInside, RemoveExecutor, StartFailuresExceeded
from actors.pods.loss import LossKind
from actors.runtime import StoppedByHost, SupervisorMessage, Terminated
from actors.settings.model import Settings
from actors.testing import Kit
from actors.testing.manual_api import ManualPodApi
from actors.testing.probe import Probe
from tests.unit.views import running, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actors.backend.backend_ref import BackendRef
    from actors.messages import FromDriver
    from actors.runtime import Address

SECOND = timedelta(seconds=1)
CHILDREN = ["request-pool", "snapshot-store", "lifecycle-manager", "allocator", "poll-source", "watch-source"]


class Fleet:
    """A Backend on a cluster in this process, and the driver's probe."""

    def __init__(self, kit: Kit, *, instances: int = 2, stop_delay: timedelta = timedelta(0), **groups: Any) -> None:
        self.kit = kit
        self.store = ObjectStore(kit.clock, kit.entropy)
        self.kubelet = ScriptedKubelet(self.store, kit.clock, kit.timers, stop_delay=stop_delay)
        self.driver = kit.probe("driver")
        executor = {"instances": instances, **groups.pop("executor", {})}
        self.settings = settings(executor=executor, **groups)
        self.backend = self.start()

    @property
    def inside(self) -> Address:
        """The address that the Backend's children have."""
        return self.kit.address("backend")

    def start(self) -> BackendRef:
        self.api = InProcessPodApi(self.store, "default", self.kit.timers)
        backend = Backend.start(self.settings, self.driver.address, self.api, system=self.kit.system)
        self.kit.advance(2 * SECOND)
        return backend

    def tell(self, message: FromDriver) -> None:
        self.backend.tell(message)
        self.kit.advance(2 * SECOND)

    def ask(self, message: object) -> Any:
        return self.kit.ask(self.backend, message)

    def status(self) -> FleetStatus:
        answer = self.ask(GetFleetStatus())
        assert isinstance(answer, FleetStatus)
        return answer

    def reported(self, *kinds: type[ToDriver]) -> list[tuple[str, int]]:
        """What the driver heard since the last look of these kinds of executors' events, in order."""
        heard = [message for message in self.driver.take_all() if isinstance(message, kinds)]
        return [(type(message).__name__, message.executor_id) for message in heard]  # type: ignore[union-attr]

    def removed(self) -> dict[int, LossKind]:
        """Whose end the driver heard since the last look, each once."""
        heard = self.driver.take_all(ExecutorRemoved)
        assert len({end.executor_id for end in heard}) == len(heard), f"an end was reported twice: {heard}"
        return {end.executor_id: end.reason.kind for end in heard}

    def pods(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.store.list("pods", "default").items)

    def delete(self, name: str) -> None:
        """Somebody deletes a pod by force."""
        self.store.delete("pods", "default", name, grace_period_seconds=0)
        self.kit.advance(2 * SECOND)

    def crash(self, child: str) -> None:
        """A child crashes at an unknown message, and restarts after its backoff."""
        self.kit.address(child).tell("nonsense")
        self.kit.advance(timedelta(seconds=5))


@pytest.fixture
def fleet(kit: Kit) -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(**options: Any) -> Fleet:
        made.append(Fleet(kit, **options))
        return made[-1]

    yield make
    for one in made:
        one.kubelet.close()


# ── the start ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_or_an_owner_that_are_none_are_refused_in_a_sentence(kit: Kit) -> None:
    start: Any = Backend.start
    driver = kit.probe("driver")

    async def on_event(_: object) -> None:
        pass

    with pytest.raises(TypeError, match=r"^settings must be Settings\(\.\.\.\) or Settings\.load\(path\), not dict$"):
        start({"executor": {"instances": 3}}, driver.address)
    for owner, what in ((driver, "Probe"), (Probe, "the class Probe"), (on_event, "a coroutine function")):
        with pytest.raises(TypeError, match=rf"^owner must be the driver's actor_ref, or a function, not {what}$"):
            start(settings(), owner)
    with pytest.raises(TypeError, match=r"^api has a cluster of its own: give either api, or kubeconfig and context$"):
        start(settings(), driver.address, ManualPodApi(), context="test")
    with pytest.raises(
        SettingsError, match=r"^kubeconfig = '': must be the path of a file, or None for the files that"
    ):
        start(settings(), driver.address, kubeconfig="")
    with pytest.raises(
        TypeError, match=r"^replace_if must be a function of an ExecutorRemoved, not a coroutine function$"
    ):
        start(settings(), driver.address, replace_if=on_event)
    assert [actor.name for actor in kit.dispatcher.actors] == ["driver"]


def test_an_owner_may_be_a_function_and_what_it_raises_is_logged(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[ToDriver] = []

    def on_event(message: ToDriver) -> None:
        heard.append(message)
        if isinstance(message, ExecutorRunning):
            raise SystemExit("I am wrong")

    store = ObjectStore(kit.clock, kit.entropy)
    with closing(ScriptedKubelet(store, kit.clock, kit.timers)):
        api = InProcessPodApi(store, "default", kit.timers)
        backend = Backend.start(settings(), on_event, api, system=kit.system)
        kit.advance(timedelta(minutes=2))
        assert "function that receives messages failed: function=on_event message=ExecutorRunning" in caplog.text
        backend.tell(StopBackend())
        kit.advance(timedelta(minutes=1))
    kinds = [type(message) for message in heard]
    assert kinds[0] is BackendStarted
    assert kinds[-1] is BackendStopped
    assert Counter(kinds) >= Counter({ExecutorRunning: 2, ExecutorRemoved: 2})


def test_a_kubeconfig_and_a_context_may_be_given(tmp_path: Path) -> None:
    kit = Kit()  # not open: the real client has threads
    kit.system.connect = None
    path = tmp_path / "config"
    driver = kit.probe("driver").address
    with pytest.raises(SettingsError, match=rf"^kubeconfig {path}: there is no such file$"):
        Backend.start(settings(), driver, kubeconfig=path)
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u", "namespace": name}} for name in ("one", "two")]
    users = [{"name": "u", "user": {}}]
    config = {"current-context": "one", "clusters": [cluster], "contexts": contexts, "users": users}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    for context, namespace in ((None, "one"), ("two", "two")):
        backend = Backend.start(settings(), driver, kubeconfig=str(path), context=context, system=kit.system)
        assert kit.ask(backend, GetFleetStatus()).namespace == namespace
        backend.stop()
        kit.settle()
    with pytest.raises(SettingsError, match="three"):
        Backend.start(settings(), driver, kubeconfig=path, context="three")
    kit.close()


def test_children_start_in_the_order_of_their_dependence(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    assert [actor.name for actor in subject.kit.dispatcher.actors] == ["driver", "backend", *CHILDREN]


def test_two_backends_of_one_settings_without_an_app_id_have_a_fleet_each(kit: Kit) -> None:
    store = ObjectStore(kit.clock, kit.entropy)
    shared = Settings(executor={"instances": 5, "image": "worker:1"})
    drivers = [kit.probe(name) for name in ("first", "second")]
    for driver in drivers:
        Backend.start(shared, driver.address, InProcessPodApi(store, "default", kit.timers), system=kit.system)
    kit.advance(timedelta(minutes=2))
    first, second = (driver.take(BackendStarted).app_id for driver in drivers)
    labels = [pod["metadata"]["labels"]["executor-pods/app-id"] for pod in store.list("pods", "default").items]
    assert (first != second, Counter(labels)) == (True, {first: 5, second: 5})


def test_the_fleet_is_brought_to_the_initial_target(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=3)
    assert subject.pods() == ["app-exec-1", "app-exec-2", "app-exec-3"]
    assert subject.driver.take(BackendStarted) == BackendStarted("app", "default")
    heard = subject.reported(ExecutorPending, ExecutorRunning)
    assert [heard.index(("ExecutorRunning", executor_id)) >= 0 for executor_id in (1, 2, 3)] == [True] * 3


def test_the_driver_is_notified_of_the_start_before_any_executor(fleet: Callable[..., Fleet]) -> None:
    assert isinstance(fleet().driver.received[0], BackendStarted)


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ({"image": None}, "image"),
        ({"pod_template": {"spec": {"containers": []}}}, "containers"),
    ],
)
def test_settings_that_make_no_executor_are_refused_before_anything_starts(
    kit: Kit, executor: dict[str, Any], message: str
) -> None:
    driver, api = kit.probe(), ManualPodApi()
    with pytest.raises(SettingsError, match=message):
        Backend.start(settings(executor=executor), driver.address, api, system=kit.system)
    assert [actor.name for actor in kit.dispatcher.actors] == ["driver"]
    assert api.calls == []


NAMESPACE = {"kind": "Namespace", "metadata": {"name": "default"}, "status": {"phase": "Active"}}


class Starting:
    """A Backend whose API answers as the test has it; the account has every right, unless the test reviews them."""

    def __init__(self, kit: Kit, subject: Settings | None = None, *, reviewed: bool = True) -> None:
        self.kit = kit
        self.api = ManualPodApi()
        self.driver = kit.probe("driver")
        self.backend = Backend.start(subject or settings(), self.driver.address, self.api, system=kit.system)
        kit.settle()
        if reviewed:
            self.review()

    def answer_list(self, answer: PodPage | ApiError) -> None:
        self.api.take("list").answer(answer)
        self.kit.settle()

    def review(self, *missing: str, otherwise: bool | ApiError = True) -> None:
        for call in self.api.open("may"):
            call.answer(False if call.request.verb in missing else otherwise)
        for call in self.api.open("get_object"):
            call.answer(otherwise if isinstance(otherwise, ApiError) else NAMESPACE)
        self.kit.settle()


@pytest.mark.parametrize("error", [NotFound("no such path", status=404), Unauthorized("who?", status=401)])
@pytest.mark.parametrize("reviewed", [True, False])
def test_an_error_that_no_retry_helps_fails_the_start(kit: Kit, error: ApiError, reviewed: bool) -> None:
    subject = Starting(kit, reviewed=reviewed)
    subject.answer_list(error)
    kit.advance(PATIENCE)
    subject.driver.expect_nothing()
    subject.answer_list(error)
    assert subject.driver.take(BackendFailed).cause is error
    assert [actor.name for actor in kit.dispatcher.actors] == ["driver"]
    assert subject.api.closed


@pytest.mark.parametrize("error", [NotFound("no such path", status=404), Unauthorized("who?", status=401)])
def test_an_error_that_passes_in_time_fails_no_start(kit: Kit, error: ApiError) -> None:
    subject = Starting(kit)
    subject.answer_list(error)
    kit.advance(2 * SECOND)
    subject.answer_list(PodPage((), "7"))
    subject.driver.take(BackendStarted)
    kit.advance(PATIENCE)
    assert subject.driver.take_all(BackendFailed) == []


def test_a_refusal_that_passes_in_time_fails_no_start(kit: Kit) -> None:
    subject = Starting(kit, reviewed=False)
    subject.answer_list(LIST_DENIED)
    subject.review("list", "watch")
    kit.advance(2 * SECOND)
    subject.answer_list(PodPage((), "7"))
    subject.driver.expect_nothing()
    subject.review()
    subject.driver.take(BackendStarted)
    kit.advance(2 * PATIENCE)
    assert subject.driver.take_all(BackendFailed) == []
    assert subject.api.open("may") == ()


def test_a_right_that_is_missing_is_reviewed_every_second(kit: Kit) -> None:
    subject = Starting(kit, reviewed=False)
    subject.answer_list(PodPage((), "7"))
    subject.review("delete")
    for _ in range(4):
        assert subject.api.open("may") == ()
        kit.advance(SECOND)
        (again,) = subject.api.open("may")
        assert again.request.verb == "delete"
        subject.review("delete")
    subject.driver.expect_nothing()
    kit.advance(SECOND)
    subject.review("delete")
    assert isinstance(subject.driver.take(BackendFailed).cause, Forbidden)


@pytest.mark.parametrize("kind", [TooManyRequests, Unavailable])
def test_what_the_server_asks_to_wait_for_is_asked_again_when_it_wants(
    kit: Kit, kind: type[TooManyRequests | Unavailable]
) -> None:
    subject = Starting(kit, reviewed=False)
    subject.answer_list(PodPage((), "7"))
    subject.review(otherwise=kind("storage is (re)initializing", retry_after=10 * SECOND))
    kit.advance(9.9 * SECOND)
    assert subject.api.open("may", "get_object") == ()
    kit.advance(5.1 * SECOND)
    subject.driver.expect_nothing()
    subject.api.take("get_object").answer(NotFound('namespaces "default" not found', status=404))
    kit.settle()
    assert isinstance(subject.driver.take(BackendFailed).cause, NotFound)


def test_a_server_that_asks_to_wait_for_longer_delays_the_start_to_its_timeout_at_most(kit: Kit) -> None:
    subject = Starting(kit, settings(backend={"start_timeout": timedelta(seconds=20)}), reviewed=False)
    subject.answer_list(PodPage((), "7"))
    subject.review(otherwise=TooManyRequests("storage is (re)initializing", retry_after=30 * SECOND))
    kit.advance(19 * SECOND)
    subject.driver.expect_nothing()
    kit.advance(SECOND)
    subject.driver.take(BackendStarted)
    kit.advance(60 * SECOND)
    assert subject.api.open("may") == ()


def test_an_api_that_does_not_answer_fails_the_start_after_its_timeout(kit: Kit) -> None:
    subject = Starting(kit, settings(backend={"start_timeout": timedelta(seconds=20)}))
    kit.advance(timedelta(seconds=19))
    subject.driver.expect_nothing()
    kit.advance(SECOND)
    cause = subject.driver.take(BackendFailed).cause
    assert (type(cause), "20 s" in str(cause)) == (Unavailable, True)


def test_a_start_that_timed_out_reports_the_last_error(kit: Kit) -> None:
    subject = Starting(kit)
    subject.answer_list(Unavailable("connection refused"))
    kit.advance(timedelta(seconds=30))
    assert "connection refused" in str(subject.driver.take(BackendFailed).cause)


def test_an_api_that_comes_in_time_is_waited_for(kit: Kit) -> None:
    subject = Starting(kit)
    subject.answer_list(Unavailable("connection refused"))
    kit.advance(timedelta(seconds=10))
    subject.answer_list(PodPage((), "1"))
    kit.advance(timedelta(minutes=1))
    assert subject.driver.take_all(BackendStarted)
    assert subject.driver.take_all(BackendFailed) == []


def test_a_right_that_is_lost_later_does_not_end_the_backend(kit: Kit) -> None:
    subject = Starting(kit)
    subject.answer_list(PodPage((), "1"))
    kit.advance(timedelta(seconds=40))
    subject.answer_list(Forbidden("pods is forbidden", status=403))
    assert subject.driver.take_all(BackendFailed) == []
    assert subject.backend.is_alive()


def test_a_namespace_that_does_not_exist_fails_the_start_though_its_list_is_empty(kit: Kit) -> None:
    driver = kit.probe("driver")
    api = InProcessPodApi(ObjectStore(kit.clock, kit.entropy), "nowhere", kit.timers, timedelta(milliseconds=5))
    Backend.start(settings(), driver.address, api, system=kit.system)
    kit.advance(SECOND)
    cause = driver.take(BackendFailed).cause
    assert (type(cause), str(cause)) == (NotFound, "there is no namespace 'nowhere'; create it, or set namespace")
    assert driver.take_all(BackendStarted) == []
    assert [actor.name for actor in kit.dispatcher.actors] == ["driver"]


@pytest.mark.parametrize(
    "answer",
    [
        Forbidden('User "etl" cannot get resource "namespaces"', status=403),
        Unavailable("it is not ready", status=503),
        NotFound("404 page not found", status=404),
    ],
    ids=["forbidden", "503", "a proxy's 404"],
)
def test_a_namespace_that_cannot_be_read_is_no_obstacle(kit: Kit, answer: ApiError) -> None:
    subject = Starting(kit, reviewed=False)
    subject.answer_list(PodPage((), "1"))
    subject.api.take("get_object").answer(answer)
    subject.review()
    assert subject.driver.take_all()[0] == BackendStarted("app", "default")


def test_a_namespace_without_an_answer_delays_the_start_no_longer_than_its_timeout(kit: Kit) -> None:
    subject = Starting(kit, settings(backend={"start_timeout": timedelta(seconds=20)}), reviewed=False)
    subject.answer_list(PodPage((), "1"))
    for call in subject.api.open("may"):
        call.answer(True)  # noqa: FBT003 - the answer of a review
    kit.advance(19 * SECOND)
    subject.driver.expect_nothing()
    kit.advance(SECOND)
    subject.driver.take(BackendStarted)


def test_a_namespace_that_is_missing_does_not_end_a_stop_early(kit: Kit) -> None:
    subject = Starting(kit, reviewed=False)
    subject.api.take("may").answer(True)  # noqa: FBT003 - the answer of a review
    subject.backend.tell(StopBackend())
    subject.api.take("get_object").answer(NotFound('namespaces "default" not found', status=404))
    kit.settle()
    assert subject.driver.take_all(BackendFailed) == []
    assert subject.backend.is_alive()


# ── rights ─────────────────────────────────────────────────────────────────────────────────────────────────────

LIST_DENIED = Forbidden('User "etl" cannot list resource "pods"', status=403)


def test_every_right_is_reviewed_once_beside_the_first_list(kit: Kit) -> None:
    subject = Starting(kit, reviewed=False)
    asked = [call.request.verb for call in subject.api.open("may")]
    assert asked == ["list", "watch", "create", "get", "delete", "deletecollection"]
    assert len(subject.api.open("list")) == 1


def test_the_rights_to_the_lease_may_be_for_its_name_only_but_for_its_creation(kit: Kit) -> None:
    subject = Starting(kit, settings(backend={"lease": True}), reviewed=False)
    asked = [call.request for call in subject.api.open("may") if call.request.resource == LEASES]
    named = {"get": "executor-pods-app", "create": "", "patch": "executor-pods-app"}
    assert {review.verb: review.name for review in asked} == named


def test_nothing_is_created_and_no_executor_reported_before_the_rights_are_known(kit: Kit) -> None:
    subject = Starting(kit, reviewed=False)
    subject.answer_list(PodPage((running(7),), "1"))
    subject.backend.tell(RequestTotalExecutors(2))
    kit.advance(5 * SECOND)
    assert subject.api.open("create", "delete") == ()
    subject.driver.expect_nothing()
    subject.review()
    kit.advance(SECOND)
    assert [type(message) for message in subject.driver.take_all()] == [BackendStarted, ExecutorRunning]
    assert len(subject.api.open("create")) == 1


def test_nothing_is_created_before_the_fleet_is_listed(kit: Kit) -> None:
    subject = Starting(kit)
    kit.advance(5 * SECOND)
    assert subject.api.open("create") == ()
    subject.driver.expect_nothing()


def test_a_missing_right_fails_the_start_with_a_line_that_says_what_to_grant(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    subject = Starting(kit, reviewed=False)
    subject.answer_list(PodPage((), "1"))
    subject.review("delete")
    kit.advance(PATIENCE)
    subject.review("delete")
    cause = subject.driver.take(BackendFailed).cause
    line = (
        'the account may not delete pods in namespace "default": grant verb "delete" on resource "pods" '
        "(`executor-pods config --rbac` prints the rule)"
    )
    assert (type(cause), str(cause)) == (Forbidden, line)
    assert f"the backend cannot start: {line}" in caplog.text
    assert [call for call in subject.api.calls if call.operation == "create"] == []
    assert [actor.name for actor in kit.dispatcher.actors] == ["driver"]
    assert subject.api.closed


def test_a_refused_list_waits_for_the_reviews_so_that_one_line_names_all_missing_rights(kit: Kit) -> None:
    subject = Starting(kit, reviewed=False)
    subject.answer_list(LIST_DENIED)
    subject.driver.expect_nothing()
    subject.review("list", "watch")
    kit.advance(PATIENCE)
    subject.review("list", "watch")
    line = str(subject.driver.take(BackendFailed).cause)
    assert 'grant verbs "list" and "watch" on resource "pods"' in line
    assert line.endswith(f"the server says: {LIST_DENIED}")


def test_a_refused_list_fails_the_start_whatever_the_reviews_say(kit: Kit) -> None:
    subject = Starting(kit)
    subject.answer_list(LIST_DENIED)
    kit.advance(PATIENCE)
    subject.driver.expect_nothing()
    subject.answer_list(LIST_DENIED)
    assert 'the account may not list pods in namespace "default"' in str(subject.driver.take(BackendFailed).cause)


@pytest.mark.parametrize("error", [Forbidden("no", status=403), Unavailable("503", status=503)])
def test_rights_that_cannot_be_reviewed_are_assumed_and_that_is_logged_once(
    kit: Kit, error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    subject = Starting(kit, reviewed=False)
    subject.review(otherwise=error)
    subject.answer_list(PodPage((), "1"))
    assert subject.driver.take(BackendStarted)
    assert [r.levelname for r in caplog.records if "rights not reviewed" in r.getMessage()] == ["INFO"]


def test_reviews_that_are_never_answered_delay_the_start_to_its_timeout_at_most(kit: Kit) -> None:
    subject = Starting(kit, settings(backend={"start_timeout": timedelta(seconds=20)}), reviewed=False)
    subject.answer_list(PodPage((), "1"))
    kit.advance(timedelta(seconds=19))
    subject.driver.expect_nothing()
    kit.advance(SECOND)
    assert subject.driver.take(BackendStarted)
    subject.review("delete")
    assert subject.backend.is_alive()


@pytest.mark.usefixtures("expect_crashes")
def test_a_restarted_child_requests_no_new_reviews(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    subject.driver.take_all()
    subject.api.forbidden |= {(verb, "pods") for verb in ("patch", "deletecollection")}
    for child in CHILDREN:
        subject.crash(child)
    assert subject.driver.take_all(BackendFailed) == []
    assert subject.backend.is_alive()


@pytest.mark.usefixtures("expect_crashes")
def test_a_child_that_crashes_before_the_rights_are_known_is_introduced_when_they_are(kit: Kit) -> None:
    subject = Starting(kit, settings(executor={"instances": 1}), reviewed=False)
    for child in ("allocator", "lifecycle-manager"):
        kit.address(child).tell("nonsense")
        kit.advance(5 * SECOND)
    subject.answer_list(PodPage((), "1"))
    subject.review()
    kit.advance(timedelta(seconds=40))
    subject.answer_list(PodPage((), "2"))
    kit.advance(SECOND)
    assert len(subject.api.open("create")) == 1


# ── targets ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_target_replaces_the_previous_one(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=1)
    subject.tell(RequestTotalExecutors(3))
    assert len(subject.pods()) == 3
    assert subject.ask(RequestTotalExecutors({"default": 4})) is True
    subject.kit.advance(2 * SECOND)
    assert len(subject.pods()) == 4


@pytest.mark.parametrize("totals", [-1, True, 2.5, "3", None, {"gpu": 1}, {"default": -1}, {"default": None}])
def test_an_invalid_target_is_refused_and_changes_nothing(fleet: Callable[..., Fleet], totals: Any) -> None:
    subject = fleet(instances=1)
    with pytest.raises(Refused):
        subject.ask(RequestTotalExecutors(totals))
    subject.kit.advance(5 * SECOND)
    assert subject.pods() == ["app-exec-1"]


def test_an_unknown_message_is_refused(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    with pytest.raises(Refused, match="str"):
        subject.kit.ask(subject.inside, "hello")
    assert subject.backend.is_alive()


def test_a_message_that_no_driver_sends_is_refused_by_name_where_it_is_sent(fleet: Callable[..., Fleet]) -> None:
    backend: Any = fleet().backend
    sends = (backend.tell, backend.request, partial(backend.ask, timeout=1))
    kinds: list[type] = [*get_args(FromInside), *get_args(ToDriver), str, SupervisorMessage]
    for send, kind in product(sends, kinds):
        with pytest.raises(Refused) as refused:
            send(object.__new__(kind) if kind is not str else "hello")
        assert (
            str(refused.value) == f"{kind.__name__} is no message that a driver sends; see actors.messages.FromDriver"
        )
    with pytest.raises(Refused, match=r"^class GetFleetStatus is no message"):
        backend.tell(GetFleetStatus)
    assert backend.depth == 0


def test_what_a_start_returns_is_the_backends_address(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    assert subject.backend.ref == subject.inside.ref
    assert repr(subject.backend) == "<Address of backend>"
    assert subject.backend.is_alive()
    subject.backend.stop()
    subject.kit.settle()
    assert not subject.backend.is_alive()
    subject.backend.tell(StopBackend())  # to one that has ended: dropped


# ── kills ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_killed_executor_is_announced_at_once_removed_when_it_ended_and_replaced(
    fleet: Callable[..., Fleet],
) -> None:
    subject = fleet(stop_delay=3 * SECOND)
    subject.driver.take_all()
    assert subject.ask(KillExecutors((1,))) == (1,)
    assert subject.driver.take(ExecutorTerminating).executor_id == 1
    subject.kit.advance(4.9 * SECOND)
    assert "deletionTimestamp" not in subject.store.get("pods", "default", "app-exec-1")["metadata"]
    subject.kit.advance(0.1 * SECOND)
    assert "deletionTimestamp" in subject.store.get("pods", "default", "app-exec-1")["metadata"]
    subject.kit.advance(5 * SECOND)
    assert subject.removed() == {1: LossKind.KILLED_BY_DRIVER}
    assert subject.pods() == ["app-exec-2", "app-exec-3"]


def test_an_executor_killed_with_its_target_adjusted_is_not_replaced(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=3)
    subject.tell(KillExecutors((1, 2), adjust_target=True))
    subject.kit.advance(timedelta(minutes=3))
    assert subject.pods() == ["app-exec-3"]
    assert subject.status().profiles["default"].target == 1


def test_a_kill_that_adjusts_the_target_costs_no_other_executor(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=1, stop_delay=5 * SECOND)
    subject.kubelet.script = lambda _: StayUnscheduled()
    subject.tell(RequestTotalExecutors(2))
    subject.kit.advance(timedelta(minutes=5))
    subject.tell(KillExecutors((1,), adjust_target=True))
    subject.kit.advance(timedelta(minutes=1))
    assert subject.pods() == ["app-exec-2"]


def test_an_executor_that_is_killed_twice_lowers_the_target_once(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=3)
    subject.backend.tell(KillExecutors((1,), adjust_target=True))
    subject.backend.tell(KillExecutors((1,), adjust_target=True))
    subject.kit.advance(5 * SECOND)
    assert subject.status().profiles["default"].target == 2


def test_executors_that_are_unknown_or_ended_are_left_out_of_the_answer(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    subject.delete("app-exec-1")
    assert subject.ask(KillExecutors((1, 2, 99, 2))) == (2,)


WRONG: list[tuple[Any, tuple[Any, ...], str]] = [
    (RegisterExecutor, ([1],), "RegisterExecutor.executor_id has a value of type list: an executor id is a whole"),
    (ExecutorDisconnected, ({},), "ExecutorDisconnected.executor_id has a value of type dict"),
    (ExecutorDisconnected, (1, "hung"), "suspected = 'hung': must be one of 'hang', 'network', or None"),
    (ExecutorDisconnected, (1, ["hang"]), "ExecutorDisconnected.suspected = a value of type list: must be one of"),
    (IsExecutorActive, (0,), "IsExecutorActive.executor_id has 0: an executor id is a whole number from 1 to 9+"),
    (KillExecutors, ((True,),), "KillExecutors.executor_ids has True"),
    (KillExecutors, ((1,), 1), "KillExecutors.adjust_target = 1: must be True or False"),
    (KillExecutors, ((1,), False, 5), "KillExecutors.grace = 5: must be None or a timedelta from 0 to 365 days"),
    (KillExecutors, ((1,), False, -SECOND), r"KillExecutors.grace = .*days=-1.*: must be None or a timedelta from 0"),
    (KillExecutors, ((1,), False, timedelta.max), "KillExecutors.grace = .*: must be None or a timedelta"),
    (KillExecutors, (None,), "KillExecutors.executor_ids = None: must be a tuple of executor ids"),
    (KillExecutors, (range(10**8),), "has 100000000 executor ids: must have at most 100000"),
    (DecommissionExecutors, (("\x1b[2J" * 50,),), r"executor_ids has '\\x1b\[2J.{50,130}'\.\.\.: an executor id is"),
    (RequestTotalExecutors, (1, "yes"), "RequestTotalExecutors.keep_others = 'yes': must be True or False"),
    (ScaleExecutors, ({"gpu": 1},), "ScaleExecutors.totals has 'gpu': there is no such profile; there are 'default'"),
    (ScaleExecutors, (1, "youngest"), "victims = 'youngest': must be one of 'newest', 'oldest', 'idle', or a function"),
    (ScaleExecutors, (1, None), "ScaleExecutors.victims = None: must be one of"),
    (ScaleExecutors, (1, "idle", 3.5), "ScaleExecutors.grace = 3.5: must be None or a timedelta from 0 to 365 days"),
    (ExecutorBusy, ("1",), "ExecutorBusy.executor_id has '1': an executor id is a whole number"),
    (ExecutorIdle, (None,), "ExecutorIdle.executor_id has None"),
    (RequestTotalExecutors, ({"default": 10**30},), r"totals\['default'\] = a number of 100 bits: .* from 0 to 100000"),
    (StopBackend, ("no",), "StopBackend.delete_pods = 'no': must be True, False or None"),
]


@pytest.mark.parametrize(("kind", "fields", "error"), WRONG)
def test_a_mistake_of_the_driver_is_an_error_that_names_the_field_and_what_is_allowed(
    fleet: Callable[..., Fleet], kind: Any, fields: tuple[Any, ...], error: str
) -> None:
    subject = fleet()
    with pytest.raises(Refused, match=error):
        subject.ask(kind(*fields))
    subject.tell(kind(*fields))
    assert subject.ask(GetExecutorIds()) == (1, 2)


def test_an_executor_killed_before_it_was_observed_is_reported_as_killed(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    subject.kubelet.script = lambda _: StayUnscheduled()
    subject.tell(RequestTotalExecutors(3))
    subject.driver.take_all()
    subject.tell(KillExecutors((3,), adjust_target=True))
    assert subject.removed() == {3: LossKind.KILLED_BY_DRIVER}
    assert subject.pods() == ["app-exec-1", "app-exec-2"]


# ── queries ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_ids_are_those_of_the_active_executors_in_order(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=12, stop_delay=10 * SECOND)
    subject.ask(ExecutorDisconnected(2))
    subject.delete("app-exec-3")
    subject.ask(KillExecutors((4,)))
    expected = tuple(executor_id for executor_id in range(1, 14) if executor_id not in (2, 3, 4))
    assert subject.ask(GetExecutorIds()) == expected


def test_an_executor_is_active_from_when_the_driver_is_notified_until_its_end(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=1)
    assert [subject.ask(IsExecutorActive(executor_id)) for executor_id in (1, 2)] == [True, False]
    subject.delete("app-exec-1")
    assert [subject.ask(IsExecutorActive(executor_id)) for executor_id in (1, 2)] == [False, True]


def test_there_are_enough_executors_when_the_ratio_of_the_initial_target_is_registered(
    fleet: Callable[..., Fleet],
) -> None:
    subject = fleet(instances=5)
    answers = [subject.ask(HasEnoughExecutors())]
    for executor_id in range(1, 5):
        assert subject.ask(RegisterExecutor(executor_id)) is True
        answers.append(subject.ask(HasEnoughExecutors()))
    assert answers == [False, False, False, False, True]


def test_the_ratio_can_be_set(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=2, backend={"min_registered_ratio": 0.5})
    subject.ask(RegisterExecutor(1))
    assert subject.ask(HasEnoughExecutors()) is True


def test_an_unknown_executor_is_excluded(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=1)
    subject.delete("app-exec-1")
    assert [subject.ask(RegisterExecutor(executor_id)) for executor_id in (1, 2, 99)] == [False, True, False]


def test_one_that_disconnects_is_only_inactive_until_its_pod_says_why(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=1)
    subject.ask(RegisterExecutor(1))
    subject.ask(ExecutorDisconnected(1))
    subject.kit.advance(5 * SECOND)
    assert subject.ask(IsExecutorActive(1)) is False
    assert (subject.removed(), subject.pods()) == ({}, ["app-exec-1"])
    subject.kubelet.exit("app-exec-1", 9)
    subject.kit.advance(2 * SECOND)
    assert subject.removed() == {1: LossKind.EXITED}


def test_the_status_counts_the_fleet_and_says_how_fresh_that_is(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=2)
    subject.kubelet.script = lambda _: StayUnscheduled()
    subject.tell(RequestTotalExecutors(3))
    subject.ask(RegisterExecutor(1))
    status = subject.status()
    profile = status.profiles["default"]
    assert (status.app_id, status.namespace, status.stopping) == ("app", "default", False)
    assert (profile.target, profile.running, profile.pending, profile.registered) == (3, 2, 1, 1)
    assert (status.sources["watch"].synced, status.sources["watch"].error) == (True, None)
    assert status.sources["watch"].since_full_sync == timedelta(seconds=4)


# ── from inside ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_driver_is_notified_when_creation_is_blocked_and_when_it_is_unblocked(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    subject.driver.take_all()
    subject.inside.tell(CreationBlocked("default", "exceeded quota", "QuotaExceeded"))
    status = subject.status().profiles["default"]
    assert (status.blocked, status.blocked_by) == ("exceeded quota", "QuotaExceeded"), "before the next counts"
    subject.inside.tell(CreationBlocked("default", None))
    assert subject.status().profiles["default"].blocked is None
    assert subject.driver.take_all() == [
        AllocationBlocked("default", "exceeded quota", "QuotaExceeded"),
        AllocationUnblocked("default"),
    ]


def test_the_driver_is_notified_when_executors_fail_to_start_again_and_again(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    subject.inside.tell(StartFailuresExceeded("3 executors ended"))
    subject.kit.advance(2 * SECOND)
    assert subject.driver.take(FleetFailed).cause == "3 executors ended"


def test_a_repeated_end_is_reported_once(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=1)
    subject.delete("app-exec-1")
    end = subject.driver.take(ExecutorRemoved)
    subject.inside.tell(RemoveExecutor(1, None, end.reason))
    subject.kit.advance(2 * SECOND)
    assert subject.removed() == {}


def test_a_late_pod_of_an_allocated_id_is_deleted_and_never_reported(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=1)
    late = subject.store.get("pods", "default", "app-exec-1")
    subject.delete("app-exec-1")
    subject.kit.advance(timedelta(minutes=10))  # so long that its end is forgotten
    subject.driver.take_all()
    metadata = {"name": "app-exec-1", "labels": late["metadata"]["labels"]}
    subject.store.create("pods", "default", {"metadata": metadata, "spec": late["spec"]})
    subject.kit.advance(timedelta(minutes=1))
    assert subject.pods() == ["app-exec-2"]
    assert subject.reported(ExecutorPending, ExecutorRunning, ExecutorRemoved) == []


def test_executors_that_ended_long_ago_are_forgotten(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=1)
    for executor_id in range(1, 6):
        subject.kit.advance(15 * SECOND)  # it ran long enough: the next one is created at once
        subject.delete(f"app-exec-{executor_id}")
    subject.kit.advance(timedelta(minutes=7))
    backend = next(actor for actor in subject.kit.dispatcher.actors if isinstance(actor, Backend))
    assert list(backend._state.ledger.entries) == [6]


# ── a previous driver ──────────────────────────────────────────────────────────────────────────────────────────


def test_executors_of_a_previous_driver_are_adopted_and_ids_continue(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(instances=3)
    subject.tell(StopBackend(delete_pods=False))
    subject.kubelet.exit("app-exec-2", 1)
    subject.driver.take_all()
    subject.backend = subject.start()
    subject.kit.advance(5 * SECOND)
    assert subject.pods() == ["app-exec-1", "app-exec-3", "app-exec-4"]
    reports = subject.reported(ExecutorRunning, ExecutorRemoved)
    assert sorted(reports) == [("ExecutorRunning", executor_id) for executor_id in (1, 3, 4)]


# ── crashes ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("expect_crashes")
@pytest.mark.parametrize("child", CHILDREN)
def test_a_crashed_child_restarts_and_nothing_is_created_or_reported_twice(
    fleet: Callable[..., Fleet], child: str
) -> None:
    subject = fleet(instances=3)
    subject.ask(RegisterExecutor(2))
    subject.driver.take_all()
    subject.crash(child)
    subject.kit.advance(timedelta(minutes=2))
    subject.driver.expect_nothing()
    assert subject.pods() == ["app-exec-1", "app-exec-2", "app-exec-3"]
    subject.delete("app-exec-2")
    subject.tell(RequestTotalExecutors(4))
    subject.kit.advance(timedelta(minutes=1))
    assert subject.removed() == {2: LossKind.DELETED}
    assert subject.pods() == ["app-exec-1", "app-exec-3", "app-exec-4", "app-exec-5"]


@pytest.mark.usefixtures("expect_crashes")
@pytest.mark.parametrize("child", CHILDREN)
def test_an_executor_that_ends_while_a_child_is_down_is_removed_once_and_replaced(
    fleet: Callable[..., Fleet], child: str
) -> None:
    subject = fleet(instances=2)
    subject.driver.take_all()
    subject.kit.address(child).tell("nonsense")
    subject.kit.settle()
    subject.delete("app-exec-1")
    subject.kubelet.exit("app-exec-2", 1)
    subject.kit.advance(timedelta(minutes=2))
    assert sorted(subject.removed()) == [1, 2]
    assert subject.pods() == ["app-exec-3", "app-exec-4"]


@pytest.mark.usefixtures("expect_crashes")
def test_a_child_that_crashes_again_and_again_ends_the_backend_and_leaves_the_fleet(
    fleet: Callable[..., Fleet],
) -> None:
    subject = fleet()
    for _ in range(5):
        subject.kit.address("allocator").tell("nonsense")
        subject.kit.advance(timedelta(seconds=40))
    assert isinstance(subject.driver.take(BackendFailed).cause, AssertionError)
    assert [actor.name for actor in subject.kit.dispatcher.actors] == ["driver"]
    assert subject.pods() == ["app-exec-1", "app-exec-2"]


@pytest.mark.usefixtures("expect_crashes")
def test_a_backend_that_crashes_reports_it_and_leaves_no_child_behind(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    subject.driver.take_all()
    subject.inside.tell(RemoveExecutor(1, None, None))  # type: ignore[arg-type]  # this is what it dies of
    subject.kit.advance(5 * SECOND)
    assert isinstance(subject.driver.take(BackendFailed).cause, AttributeError)
    assert [actor.name for actor in subject.kit.dispatcher.actors] == ["driver"]
    assert subject.driver.take_all(BackendStopped) == []


# ── the end of others ──────────────────────────────────────────────────────────────────────────────────────────


def test_when_the_driver_dies_the_backend_ends_and_leaves_the_fleet(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    subject.driver.stop()
    subject.kit.advance(2 * SECOND)
    assert subject.kit.dispatcher.actors == ()
    assert subject.pods() == ["app-exec-1", "app-exec-2"]


def test_a_stop_that_the_driver_requested_continues_when_the_driver_ends(fleet: Callable[..., Fleet]) -> None:
    subject = fleet(stop_delay=5 * SECOND)
    subject.backend.tell(StopBackend())
    subject.driver.stop()
    subject.kit.advance(3 * SECOND)
    assert subject.backend.is_alive(), "an executor has not ended yet"
    subject.kit.advance(6 * SECOND)
    assert subject.pods() == []
    assert subject.kit.dispatcher.actors == ()


@pytest.mark.parametrize("name", ["backend", *CHILDREN])
def test_when_the_host_stops_an_actor_all_end_nothing_restarts_and_the_fleet_is_left(
    fleet: Callable[..., Fleet], name: str
) -> None:
    subject = fleet()
    ref = subject.kit.address(name).ref
    assert ref is not None
    ref.stop(block=False)
    subject.kit.advance(timedelta(minutes=1))
    assert [actor.name for actor in subject.kit.dispatcher.actors] == ["driver"]
    assert subject.driver.take_all(BackendStopped) == [BackendStopped()]
    assert subject.driver.take_all(BackendFailed) == []
    assert subject.pods() == ["app-exec-1", "app-exec-2"]


def test_a_driver_of_the_same_runtime_is_notified_how_its_backend_ended(fleet: Callable[..., Fleet]) -> None:
    subject = fleet()
    ref = subject.backend.ref
    assert ref is not None
    ref.stop(block=False)
    subject.kit.settle()
    assert isinstance(subject.driver.take(Terminated).cause, StoppedByHost)


class HostsDriver(pykka.ThreadingActor):
    """A driver as a host writes it, without anything of this library."""

    use_daemon_thread = True

    def __init__(self, heard: list[object]) -> None:
        super().__init__()
        self.heard = heard
        self.stopped = threading.Event()

    def on_receive(self, message: object) -> None:
        self.heard.append(message)
        if isinstance(message, BackendStopped):
            self.stopped.set()


def test_a_plain_pykka_actor_can_be_the_driver_and_its_death_is_noticed(kit: Kit) -> None:
    heard: list[object] = []
    driver = HostsDriver.start(heard)
    store = ObjectStore(kit.clock, kit.entropy)
    Backend.start(settings(), driver, InProcessPodApi(store, "default", kit.timers), system=kit.system)
    kit.advance(2 * SECOND)
    driver.stop(timeout=10)
    kit.advance(2 * SECOND)
    assert BackendStarted("app", "default") in heard
    assert not any(isinstance(message, Terminated) for message in heard)
    assert kit.dispatcher.actors == ()


def test_a_system_of_its_own_is_closed_with_the_backend() -> None:
    """With real threads and the real clock: what is waited for here is the end of threads."""
    heard: list[object] = []
    driver = HostsDriver.start(heard)
    before = set(threading.enumerate())
    api = ManualPodApi()
    stopped = driver.proxy().stopped.get()
    backend = Backend.start(settings(), driver, api)
    backend.tell(StopBackend(delete_pods=False))
    assert stopped.wait(timeout=10)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
    assert set(threading.enumerate()) <= before
    assert api.closed
    driver.stop(timeout=10)
    assert heard == [BackendStopped()]
