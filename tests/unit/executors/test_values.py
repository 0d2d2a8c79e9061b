"""The answer to `GetExecutors`: every executor as a value, from its request to its end."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.messages import (
    Executor,
    ExecutorDisconnected,
    ExecutorState,
    FleetExecutors,
    GetExecutors,
    KillExecutors,
    RegisterExecutor,
)
from actors.messages.executor import ENDED_KEPT
from actors.messages.internal import (
    ExecutorsAbandoned,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsRequested,
    ExecutorsScaledDown,
    RemoveExecutor,
    StuckObserved,
)
from actors.pods.pod import ContainerState, ContainerStatus, PodSpec, PodStatus
from actors.pods.state import PodPending, PodRunning, PodState, PodTerminating
from actors.pods.stuck import Stuck, StuckKind, why_stuck
from tests.unit.executors.test_executors import GONE, SECOND, Rig
from tests.unit.views import going, pending, running, waiting

if TYPE_CHECKING:
    from datetime import datetime

    from actors.pods.pod import Pod
    from actors.testing import Kit


class Fleet(Rig):
    """A rig that observes pods as LifecycleManager reports them."""

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self.states: dict[int, PodState] = {}

    @property
    def now(self) -> datetime:
        return self.kit.clock.now()

    def request(self, *executor_ids: int, profile: str = "default") -> None:
        self.ask(ExecutorsRequested(executor_ids, profile))

    def observe(self, executor_id: int, state: PodState) -> None:
        self.states = {**self.states, executor_id: state}
        self.ask(ExecutorSeen(executor_id, state.pod.uid, state))
        self.ask(ExecutorsObserved(self.states))

    def remove(self, executor_id: int, pod: Pod | None = None) -> None:
        self.ask(RemoveExecutor(executor_id, f"uid-{executor_id}", GONE, pod=pod))
        self.states = {i: state for i, state in self.states.items() if i != executor_id}
        self.ask(ExecutorsObserved(self.states))

    def all(self) -> FleetExecutors:
        answer = self.ask(GetExecutors())
        assert isinstance(answer, FleetExecutors)
        return answer

    def one(self) -> Executor:
        (executor,) = self.all().alive
        return executor


@pytest.fixture
def fleet(kit: Kit) -> Fleet:
    return Fleet(kit)


def on_node(pod: Pod, node: str | None = "node-7", ip: str | None = "10.1.2.3", **status: Any) -> Pod:
    assert pod.status is not None
    changed = msgspec.structs.replace(pod.status, **status)
    return msgspec.structs.replace(pod, spec=PodSpec(node_name=node), status=changed, ip=ip)


def test_an_executor_is_a_value_from_its_request_to_its_end(fleet: Fleet) -> None:
    assert fleet.all() == FleetExecutors((), ())
    fleet.request(1, profile="gpu")
    since = fleet.now
    fleet.kit.advance(2 * SECOND)
    wanted = Executor(1, "gpu", ExecutorState.REQUESTED, None, None, None, since, False, 0, None, None)  # noqa: FBT003
    assert fleet.one() == wanted

    fleet.observe(1, PodPending(on_node(pending(1), None, None)))
    pod = pending(1).name
    since = fleet.now
    assert fleet.one() == Executor(1, "gpu", ExecutorState.PENDING, pod, None, None, since, False, 0, None, None)  # noqa: FBT003
    fleet.kit.advance(2 * SECOND)
    fleet.observe(1, PodPending(on_node(pending(1), "node-7", None)))
    assert (fleet.one().node, fleet.one().since) == ("node-7", since), "the same state since then"

    fleet.observe(1, PodRunning(on_node(running(1))))
    found = fleet.one()
    assert (found.state, found.node, found.ip, found.since) == ("running", "node-7", "10.1.2.3", fleet.now)
    fleet.ask(RegisterExecutor(1))
    fleet.kit.advance(2 * SECOND)
    assert fleet.one().registered
    assert fleet.one().since == found.since, "a registration is no other state"
    fleet.ask(ExecutorDisconnected(1))
    assert not fleet.one().registered

    last = on_node(running(1))
    fleet.remove(1, last)
    assert fleet.all() == FleetExecutors(
        (),
        (
            Executor(
                1,
                "gpu",
                ExecutorState.ENDED,
                pod,
                "node-7",
                "10.1.2.3",
                fleet.now,
                registered=False,
                restarts=0,
                reason=GONE.message,
                loss=GONE,
            ),
        ),
    )
    assert pickle.loads(pickle.dumps(fleet.all())) == fleet.all()


def test_a_kill_and_an_end_without_a_last_pod_say_what_was_known_before(fleet: Fleet) -> None:
    fleet.request(1, profile="gpu")
    fleet.observe(1, PodRunning(on_node(running(1))))
    fleet.driver.take_all()
    fleet.ask(KillExecutors((1,)))
    fleet.remove(1)
    events: list[Any] = fleet.driver.take_all()
    assert [(event.profile, event.node, event.ip) for event in events] == [("gpu", "node-7", "10.1.2.3")] * 2
    (ended,) = fleet.all().ended
    assert (ended.pod, ended.node, ended.ip) == (running(1).name, "node-7", "10.1.2.3")


def test_living_executors_are_in_the_order_of_their_ids(fleet: Fleet) -> None:
    fleet.request(*range(200, 0, -1))
    assert [executor.id for executor in fleet.all().alive] == list(range(1, 201))


def test_an_executor_of_a_previous_driver_is_there_from_its_first_observation(fleet: Fleet) -> None:
    fleet.observe(7, PodRunning(on_node(running(7))))
    assert (fleet.one().id, fleet.one().state, fleet.one().since) == (7, "running", fleet.now)


def test_a_terminating_executor_of_a_previous_driver_is_terminating(fleet: Fleet) -> None:
    fleet.observe(7, PodTerminating(going(running(7))))
    assert fleet.one().state is ExecutorState.TERMINATING
    assert fleet.one().reason == f"pod {running(7).name} is being deleted"


def test_a_kill_is_the_reason_also_while_the_pod_is_being_deleted(fleet: Fleet) -> None:
    fleet.request(1)
    fleet.observe(1, PodRunning(running(1)))
    fleet.ask(KillExecutors((1,)))
    killed = fleet.one()
    assert (killed.state, killed.reason, killed.since) == (
        "terminating",
        "executor 1 was ended by the driver",
        fleet.now,
    )
    fleet.kit.advance(SECOND)
    fleet.observe(1, PodTerminating(going(running(1))))
    assert fleet.one() == killed


def test_a_stuck_executor_says_why_until_it_is_no_longer_stuck(fleet: Fleet) -> None:
    fleet.request(1)
    pod = waiting(1, "ImagePullBackOff", "no such image")
    stuck = why_stuck(pod)
    assert stuck is not None
    fleet.observe(1, PodPending(pod))
    assert fleet.one().reason is None, "the driver was not notified of it yet"
    fleet.ask(StuckObserved(1, "uid-1", stuck))
    assert fleet.one().reason == "ImagePullBackOff: executor: no such image"
    fleet.observe(1, PodPending(on_node(pending(1))))
    assert fleet.one().reason is None
    fleet.observe(1, PodRunning(running(1)))
    assert fleet.one().reason is None


def test_a_pod_that_does_not_start_without_a_reason_says_for_how_long(fleet: Fleet) -> None:
    fleet.request(1)
    fleet.observe(1, PodPending(on_node(pending(1))))
    fleet.kit.advance(timedelta(minutes=6))
    fleet.ask(StuckObserved(1, "uid-1", Stuck(StuckKind.SLOW, "Pending", "not started for 300 s", heals=True)))
    assert fleet.one().reason == "Pending: not started for 360 s on node node-7; the pod's events may have the reason"


def test_an_executor_that_is_deleted_as_excess_says_so(fleet: Fleet) -> None:
    fleet.request(1)
    fleet.observe(1, PodPending(pending(1)))
    fleet.ask(ExecutorsScaledDown({1: "uid-1"}))
    assert (fleet.one().state, fleet.one().reason) == (
        "pending",
        "executor 1 is in excess of the target and is being deleted",
    )


def test_restarts_of_all_containers_are_counted(fleet: Fleet) -> None:
    fleet.request(1)
    statuses = tuple(ContainerStatus(name, count, ContainerState()) for name, count in (("executor", 2), ("proxy", 1)))
    pod = msgspec.structs.replace(running(1), status=PodStatus(phase="Running", container_statuses=statuses))
    fleet.observe(1, PodRunning(pod))
    assert fleet.one().restarts == 3


def test_the_last_ended_executors_are_kept_whatever_is_forgotten(fleet: Fleet) -> None:
    ids = range(1, ENDED_KEPT + 51)
    fleet.request(*ids)
    for executor_id in ids:
        fleet.observe(executor_id, PodRunning(running(executor_id)))
        fleet.remove(executor_id, running(executor_id))
    fleet.fleet.begin()
    fleet.kit.advance(timedelta(hours=1))
    assert not fleet.inside.state.ledger.entries
    assert fleet.all().alive == ()
    assert [executor.id for executor in fleet.all().ended] == list(ids)[-ENDED_KEPT:]


def test_an_executor_whose_end_the_driver_is_not_notified_of_is_not_among_the_ended(fleet: Fleet) -> None:
    fleet.request(1, 2)
    fleet.ask(RegisterExecutor(2))
    fleet.ask(ExecutorsAbandoned((1, 2), "its pod was not observed"))
    assert fleet.all().alive == ()
    (ended,) = fleet.all().ended
    assert (ended.id, ended.state, ended.pod) == (2, "ended", None)
    assert ended.loss is not None
    assert ended.reason == ended.loss.message
