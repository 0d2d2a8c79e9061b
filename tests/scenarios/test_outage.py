"""The whole tree while there is no server: how little it asks of nobody, and how soon the fleet is whole again."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_args

import pytest

from actors.allocation.profile import CREATE_BACKOFF
from actors.backend.backend import Backend
from actors.backend.shutdown import stop_limit
from actors.errors import Forbidden, NotFound, Unauthorized, Unavailable
from actors.kube.api import Operation
from actors.local.faults.faulty_api import FaultyPodApi
from actors.local.faults.faulty_stream import FaultyStream
from actors.local.faults.kinds import LoseAnswer, Refuse, Stall, server_error, too_many_requests
from actors.local.inprocess import InProcessPodApi
from actors.local.store.object_store import ObjectStore
from actors.messages import BackendStopped, ExecutorRunning, GetFleetStatus, StopBackend
from actors.pods.loss import LossKind
from actors.runtime import Entropy
from actors.settings import Settings
from actors.testing import Kit
from tests.scenarios.seeds import seeds
from tests.scenarios.test_whole_tree import pod_name
from tests.scenarios.world import WatchedApi, World

if TYPE_CHECKING:
    from actors.kube.api import Call, Watch, WatchSink
    from actors.local.faults.kinds import Fault

FLEET, MORE = 50, 20
MINUTES = 10
RETRY_AFTER = timedelta(seconds=7)
EXIT_CODES = {1: 9, 2: 0, 3: 137}
"""Of executors that end while nobody can see it."""

REFUSED = Refuse(Unavailable("connection refused"))
NOT_READY = Refuse(Unavailable("not ready", status=503, retry_after=RETRY_AFTER))


class TroubledApi(WatchedApi):
    """Has one and the same thing happen to all calls of an operation for as long as it is set."""

    trouble: dict[Operation, Fault]

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        stream = super().watch(request, sink)
        if isinstance(self.trouble.get("watch"), Stall):
            assert isinstance(stream, FaultyStream)
            stream.freeze()
        return stream

    def _fault_of(self, operation: Operation, *, later_page: bool = False) -> Fault | None:
        planned = super()._fault_of(operation, later_page=later_page)
        trouble = self.trouble.get(operation)
        return planned if trouble is None or (operation == "watch" and isinstance(trouble, Stall)) else trouble


class TroubledWorld(World):
    """A world with such an API."""

    api: TroubledApi

    def _connect(self) -> TroubledApi:
        inner = InProcessPodApi(self.store, "default", self.kit.timers, self._latency)
        api = TroubledApi(inner, self.kit.timers, self.kit.entropy.fork("faults"))
        api.asked_for = self.invariants.asked_for
        api.asked_to_go = self.invariants.asked_to_go
        api.asked, api.clock, api.trouble = [], self.kit.clock, {}
        return api

    def grow(self) -> None:
        """Twenty more are asked for; the first POSTs are under way, and the answers of some are lost."""
        self.advance(10)
        assert self.running() == FLEET
        self.api.fail_next("create", LoseAnswer(), times=3)
        self.target(FLEET + MORE)
        while self.api.asked[-1][1] != "create":
            self.advance(0.001)

    def trouble(self, fault: Fault, *operations: Operation) -> None:
        """From now on; every stream feels it too, if watches do."""
        self.api.asked.clear()
        self.api.trouble = dict.fromkeys(operations, fault)
        if "watch" not in operations:
            return
        if isinstance(fault, Stall):
            self.api.freeze()
        else:
            self.api.cut()

    def per_minute(self, *operations: Operation) -> list[int]:
        """How many calls there were in each minute of the trouble."""
        start = self.kit.clock.monotonic() - 60 * MINUTES
        counts = Counter(int((at - start) // 60) for at, what in self.api.asked if what in operations or not operations)
        return [counts[minute] for minute in range(MINUTES)]

    def tries(self, operation: Operation) -> list[float]:
        """When it was tried."""
        return [at for at, what in self.api.asked if what == operation]


EVERYTHING: tuple[Operation, ...] = ("list", "watch", "get", "create", "delete", "delete_collection", "patch")


@pytest.mark.parametrize(
    "fault",
    [REFUSED, NOT_READY, Stall(), Stall(delivered=True)],
    ids=["nobody listens", "503 and Retry-After", "nobody answers", "answers are lost"],
)
@pytest.mark.parametrize("seed", [None, pytest.param(1, marks=pytest.mark.stress)])
def test_an_outage_costs_few_requests_and_no_executor(fault: Fault, seed: int | None) -> None:
    with TroubledWorld(seed, executor={"instances": FLEET}) as world:
        world.grow()
        world.trouble(fault, *EVERYTHING)
        world.advance(120)
        for executor_id, code in EXIT_CODES.items():
            world.kubelet.exit(pod_name(world, executor_id), code)
        world.advance(60 * MINUTES - 120)
        counts = world.per_minute()
        assert max(counts[1:]) <= 10, counts
        assert world.removals() == {}, "what nobody can see is not reported"

        world.api.trouble = {}
        world.advance(60)
        assert world.running() == FLEET + MORE
        assert {i: removed.reason.exit_code for i, removed in world.removals().items()} == EXIT_CODES
        kinds = {removed.reason.kind for removed in world.removals().values()}
        assert kinds == {LossKind.EXITED if code else LossKind.FINISHED for code in EXIT_CODES.values()}
        assert world.invariants.created == FLEET + MORE + len(EXIT_CODES)
        world.advance(300)
        assert len(world.removals()) == len(EXIT_CODES), "nobody who lives is reported lost"
        assert world.stop().left_behind == ()


@pytest.mark.parametrize("fault", [REFUSED, NOT_READY], ids=["nobody listens", "503 and Retry-After"])
def test_a_watch_connects_at_most_once_a_step(fault: Refuse) -> None:
    with TroubledWorld(executor={"instances": FLEET}) as world:
        world.grow()
        world.trouble(fault, *EVERYTHING)
        world.advance(60 * MINUTES)
        asked_for = fault.error.retry_after or timedelta()
        gaps = [later - earlier for earlier, later in pairwise(world.tries("watch"))]
        steps = [max(min(0.8 * 2**step, 30), asked_for.total_seconds()) for step in range(1, len(gaps) + 1)]
        assert all(gap >= step - 1e-6 for gap, step in zip(gaps, steps, strict=True)), gaps
        lists = world.tries("list")
        assert min(later - earlier for earlier, later in zip(lists, lists[2:], strict=False)) >= 30, (
            "the polls, and the watch once it gave its stream up"
        )


@pytest.mark.parametrize("seed", seeds(1, of=2))
@pytest.mark.parametrize("minutes", [2, 4, 20])
def test_the_watch_is_back_with_the_first_poll_that_gets_through(seed: int, minutes: int) -> None:
    with TroubledWorld(seed, executor={"instances": 1}) as world:
        world.advance(10)
        world.trouble(REFUSED, *EVERYTHING)
        world.advance(60 * minutes)
        world.api.trouble = {}
        world.api.asked.clear()
        polled = False
        while not polled and not world.ask(GetFleetStatus()).sources["watch"].synced:
            world.advance(0.1)
            polled = bool(world.tries("list"))
        world.advance(0.2)
        assert len(world.tries("watch")) == 1
        world.kubelet.exit(pod_name(world, 1), 3)
        world.advance(0.1)
        assert world.removals()[1].reason.exit_code == 3, "it sees what happens"
        world.stop()


def test_a_server_that_gives_lists_and_cuts_every_watch_is_not_hammered() -> None:
    with TroubledWorld(executor={"instances": 1}) as world:
        world.advance(10)
        world.trouble(REFUSED, "watch")
        world.advance(60 * MINUTES)
        assert max(world.per_minute("watch")[2:]) <= 5, "each on its backoff, or with a poll"
        world.stop()


def test_creates_that_fail_for_reasons_of_their_own_hold_no_delete_up() -> None:
    with TroubledWorld(executor={"instances": FLEET}) as world:
        world.grow()
        world.trouble(Refuse(server_error(500)), "create")
        for minute in range(MINUTES):
            world.kubelet.exit(pod_name(world, minute + 1), 1)
            world.advance(1)
            assert minute + 1 in world.removals()
            assert len(world.pods()) == world.running(), "what ended is deleted at once"
            world.advance(59)
        open_creates = MORE + MINUTES
        assert max(world.per_minute("create")[2:]) <= 2 * open_creates, "each is on its own backoff of 30 s and more"
        world.api.trouble = {}
        world.advance(90)
        assert world.running() == FLEET + MORE
        assert world.invariants.created == FLEET + MORE + MINUTES
        world.stop()


@pytest.mark.parametrize("away", [5, 60, 900], ids=lambda seconds: f"{seconds} s")
@pytest.mark.parametrize("seed", [None, pytest.param(1, marks=pytest.mark.stress)])
def test_a_namespace_that_was_deleted_is_filled_as_soon_as_the_backoff_lets_it_when_it_is_back(
    away: int, seed: int | None
) -> None:
    with TroubledWorld(seed, executor={"instances": 7}) as world:
        world.advance(10)
        world.trouble(Refuse(NotFound('namespaces "default" not found', status=404)), "create")
        for pod in world.pods():
            world.invariants.taken_by_others(pod["metadata"]["name"])
            world.store.delete("pods", "default", pod["metadata"]["name"])
        world.advance(away)
        world.api.trouble = {}
        world.advance(min(away, CREATE_BACKOFF.maximum.total_seconds()) * (1 + CREATE_BACKOFF.jitter) + 2)
        assert world.running() == 7
        world.stop()


@pytest.mark.parametrize("fault", [REFUSED, NOT_READY, Stall(delivered=True)], ids=["refused", "503", "lost"])
def test_a_stop_in_an_outage_ends_in_time_and_names_what_it_leaves(fault: Fault) -> None:
    with TroubledWorld(executor={"instances": FLEET}) as world:
        world.grow()
        world.trouble(fault, *EVERYTHING)
        world.advance(300)
        limit = stop_limit(world.settings).total_seconds()
        assert len(world.stop(within=limit + 1).left_behind) >= FLEET


@pytest.mark.parametrize("fault", [REFUSED, Stall(delivered=True)], ids=["refused", "lost"])
def test_a_stop_in_an_outage_that_ends_soon_leaves_nothing(fault: Fault) -> None:
    with TroubledWorld(executor={"instances": FLEET}) as world:
        world.grow()
        world.trouble(fault, *EVERYTHING)
        world.advance(300)
        world.backend.tell(StopBackend())
        world.advance(3)
        world.api.trouble = {}
        world.advance(30)
        (stopped,) = world.heard(BackendStopped)
        assert stopped.left_behind == ()
        assert world.pods() == []


UNREACHED = {
    "refused": REFUSED,
    "503": NOT_READY,
    "no answer": Stall(),
    "wrong token": Refuse(Unauthorized("Unauthorized", status=401)),
}


@pytest.mark.parametrize("fault", UNREACHED.values(), ids=UNREACHED)
@pytest.mark.parametrize("settings", [{}, {"backend": {"lease": True}}, {"driver_pod_name": "me"}], ids=str)
@pytest.mark.parametrize("after", [0, 0.003, 1.7, 4.9])
def test_a_fleet_that_was_never_reached_stops_at_once(fault: Fault, settings: Any, after: float) -> None:
    with Kit() as kit:
        store = ObjectStore(kit.clock, Entropy(0))
        api = FaultyPodApi(InProcessPodApi(store, "default", kit.timers), kit.timers, Entropy(0))
        for operation in get_args(Operation):
            if operation != "watch" or isinstance(fault, Refuse):
                api.fail_next(operation, fault, times=100)
        driver = kit.probe("driver")
        subject = Settings(executor={"image": "worker:1"}, **settings)
        backend = Backend.start(subject, driver.address, api, system=kit.system)
        kit.advance(timedelta(seconds=after))
        backend.tell(StopBackend())
        kit.advance(timedelta(seconds=max(0.0, 1 - after)))
        assert driver.take_all()[0] == BackendStopped()
        assert [actor.name for actor in kit.dispatcher.actors] == ["driver"]


# ── a target that falls meanwhile ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("minutes", [1, 2, 10])
@pytest.mark.parametrize("seed", [None, pytest.param(1, marks=pytest.mark.stress)])
def test_creates_that_wait_for_a_server_are_withdrawn_when_the_target_falls(seed: int | None, minutes: int) -> None:
    with TroubledWorld(seed, executor={"instances": FLEET}) as world:
        world.advance(10)
        world.trouble(REFUSED, *EVERYTHING)
        world.target(FLEET + MORE)
        world.advance(8)
        status = world.ask(GetFleetStatus()).profiles["default"]
        assert status.requested == MORE
        world.target(FLEET)
        world.advance(2)
        assert world.ask(GetFleetStatus()).profiles["default"].requested == 0, "at once"
        world.advance(60 * minutes)
        world.api.trouble = {}
        world.advance(60)
        assert world.running() == world.invariants.created == FLEET
        world.stop()


def test_what_was_made_though_its_answer_was_lost_is_looked_for_and_deleted_when_the_target_falls() -> None:
    with TroubledWorld(executor={"instances": FLEET}) as world:
        world.advance(10)
        world.trouble(Stall(delivered=True), "create", "watch", "list")
        world.target(FLEET + MORE)
        world.advance(0.1)
        made = len(world.pods()) - FLEET
        assert made > 0
        world.target(FLEET)
        world.advance(20)
        world.api.trouble = {}
        world.advance(5)
        assert world.running() == FLEET
        assert world.invariants.created == FLEET + made
        assert len(world.removals()) == 0, "the driver never heard of them"
        world.stop()


def test_a_created_pod_is_deleted_too_if_the_watch_shows_it_before_its_verification() -> None:
    with TroubledWorld(executor={"instances": FLEET}) as world:
        world.advance(10)
        world.trouble(Stall(delivered=True), "create", "watch", "list", "get")
        world.target(FLEET + MORE)
        world.advance(0.1)
        made = len(world.pods()) - FLEET
        world.target(FLEET)
        world.advance(20)
        world.api.trouble = {"get": Stall()}
        while world.running() == FLEET or not world.heard(ExecutorRunning)[FLEET:]:
            world.advance(0.1)
        world.api.trouble = {}
        world.advance(45)
        assert world.running() == FLEET
        assert world.invariants.created == FLEET + made
        world.stop()


def test_a_target_that_falls_and_rises_in_an_outage_is_reached_without_excess() -> None:
    with TroubledWorld(executor={"instances": FLEET}) as world:
        world.grow()
        world.trouble(REFUSED, *EVERYTHING)
        for target in (FLEET + MORE, FLEET + 5, FLEET + MORE, FLEET + 10):
            world.target(target)
            world.advance(30)
        world.api.trouble = {}
        world.advance(60)
        assert world.running() == FLEET + 10
        world.stop()


FORBIDDEN = Refuse(Forbidden("no", status=403))


@pytest.mark.parametrize(
    "get", [FORBIDDEN, Refuse(too_many_requests(timedelta(hours=1))), Refuse(server_error())], ids=["403", "429", "500"]
)
def test_a_stop_deletes_the_fleet_though_a_create_stays_unresolved(get: Fault) -> None:
    with TroubledWorld(executor={"instances": 3}) as world:
        world.advance(5)
        world.api.fail_next("create", Stall())
        world.target(4)
        world.advance(9)
        world.trouble(FORBIDDEN, "create")
        world.api.trouble["get"] = get
        world.advance(60)
        assert world.stop().left_behind == ()
        assert world.pods() == []


def test_a_stop_waits_for_no_create_that_has_failed_for_minutes() -> None:
    with TroubledWorld(executor={"instances": 3}) as world:
        world.advance(5)
        world.trouble(Refuse(server_error()), "create")
        world.target(4)
        world.advance(300)
        world.backend.tell(StopBackend())
        world.advance(5)
        assert [stopped.left_behind for stopped in world.heard(BackendStopped)] == [()]
        assert world.pods() == []


def test_executors_that_were_withdrawn_and_are_desired_again_are_not_replaced() -> None:
    with World() as world:
        world.advance(1)
        world.api.fail_next("create", LoseAnswer(), times=10)
        world.target(10)
        world.advance(0.1)
        world.target(0)
        world.advance(0.1)
        world.target(10)
        world.advance(20)
        assert world.running() == 10
        assert world.invariants.created == 10
