"""What whoever follows the fleet is sent: values, once for what happens together, and before the driver is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from actors.executors.publication import Publication
from actors.executors.status import fleet_status, held_pods
from actors.messages import (
    ExecutorDisconnected,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    FleetChanged,
    FollowFleet,
    GetExecutors,
    KillExecutors,
    ProfileStatus,
    RegisterExecutor,
)
from actors.messages.internal import (
    AllocatorStatus,
    ExecutorsAbandoned,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsRequested,
    ExecutorsScaledDown,
    Freshness,
    RemoveExecutor,
    Source,
    StuckObserved,
)
from actors.pods.id_map import IdMap
from actors.pods.state import PodPending, PodRunning, PodState, PodTerminating
from actors.pods.stuck import why_stuck
from actors.view import FleetView
from tests.unit.executors.test_executors import GONE, SECOND, Host, Rig
from tests.unit.views import going, pending, running, waiting

if TYPE_CHECKING:
    from actors.messages import FleetStatus, ToDriver
    from actors.pods.pod import Pod
    from actors.runtime import Context
    from actors.testing import Kit


class Publisher(Host):
    """A host that publishes, as the Backend does."""

    def __init__(self, context: Context, **parts: Any) -> None:
        super().__init__(context, **parts)
        self.waits: list[ToDriver] | None = None
        self.publication = Publication(
            self.context_of_fleet, status=self._status, hold=self._hold, release=self._release
        )
        self.handlers |= self.publication.handlers()

    def _status(self) -> FleetStatus:
        state, at = self.state, self.clock.now()
        return fleet_status(
            "app",
            "default",
            ledger=state.ledger,
            profiles=state.counts(),
            totals=state.totals,
            sources=state.sources,
            now=self.clock.monotonic(),
            stopping=False,
            held=held_pods(state.finalized.values(), at),
            starts=state.starts,
        )

    def _hold(self) -> None:
        self.waits = self.waits or []

    def _release(self) -> None:
        while self.waits:
            self._driver.tell(self.waits.pop(0))

    def _tell(self, message: ToDriver | None) -> None:
        if message is not None and self.waits is not None:
            self.waits.append(message)
        else:
            super()._tell(message)

    def receive(self, message: Any) -> object:
        if isinstance(message, Freshness):
            self.state.sources[message.source] = message
            answer = None
        else:
            answer = super().receive(message)
        self.publication.turn_ends(message)
        return answer


class Followed(Rig):
    """A rig with somebody who follows."""

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit, host=Publisher)
        self.got: list[FleetChanged] = []
        self.view = FleetView(kit.clock)
        self.states: IdMap[PodState] = IdMap()

    def follow(self) -> None:
        self.view.follow(self.host, self.got.append)
        self.kit.settle()

    def tell(self, *messages: object) -> None:
        """Messages that wait together."""
        for message in messages:
            self.host.tell(message)
        self.kit.settle()

    def observed(self, executor_id: int, state: PodState | None) -> ExecutorsObserved:
        self.states = self.states.with_changes({executor_id: state})
        return ExecutorsObserved(self.states, frozenset({executor_id}))

    def seen(self, executor_id: int, state: PodState) -> tuple[object, ...]:
        return self.observed(executor_id, state), ExecutorSeen(executor_id, state.pod.uid, state)

    def take(self) -> list[FleetChanged]:
        """What was published since the last look, which is what is answered."""
        taken, self.got[:] = self.got.copy(), []
        for change in taken:
            self.view.fold(change)
        answer = self.ask(GetExecutors())
        assert tuple(self.view.alive[i] for i in sorted(self.view.alive)) == answer.alive
        assert tuple(self.view.ended) == answer.ended
        return taken

    def ids(self) -> list[int]:
        """The executors in the one change since the last look."""
        (change,) = self.take()
        return sorted(executor.id for executor in change.executors)


def keep(subject: Pod) -> Pod:
    """The same pod, with a finalizer."""
    return structs.replace(subject, metadata=structs.replace(subject.metadata, finalizers=("example.com/keep",)))


def held(fleet: Followed) -> list[int]:
    assert fleet.view.status is not None
    return [pod.executor_id for pod in fleet.view.status.held]


@pytest.fixture
def fleet(kit: Kit) -> Followed:
    return Followed(kit)


def test_each_message_about_an_executor_publishes_it_as_it_is_answered(fleet: Followed) -> None:
    fleet.follow()
    assert fleet.take()[0].complete
    fleet.tell(ExecutorsRequested((1, 2, 3, 4), "default"))
    assert fleet.ids() == [1, 2, 3, 4]
    stuck = PodPending(waiting(1, "ErrImagePull"))
    fleet.tell(*fleet.seen(1, stuck))
    assert fleet.ids() == [1]
    why = why_stuck(stuck.pod)
    assert why is not None
    fleet.tell(StuckObserved(1, stuck.pod.uid, why))
    assert fleet.ids() == [1]
    assert fleet.view.alive[1].stuck == "ErrImagePull"
    fleet.tell(*fleet.seen(1, PodRunning(running(1))))
    assert fleet.ids() == [1]
    assert fleet.view.alive[1].stuck is None
    fleet.ask(RegisterExecutor(1))
    assert fleet.ids() == [1]
    assert fleet.view.registered["default"] == 1
    fleet.tell(ExecutorDisconnected(1))
    assert fleet.ids() == [1]
    fleet.ask(KillExecutors((1,)))
    assert fleet.ids() == [1]
    fleet.tell(RemoveExecutor(1, "uid-1", GONE), fleet.observed(1, None))
    assert fleet.ids() == [1]
    assert [executor.id for executor in fleet.view.ended] == [1]
    fleet.tell(*fleet.seen(2, PodPending(pending(2))))
    assert fleet.ids() == [2]
    fleet.tell(ExecutorsScaledDown({2: "uid-2"}))
    assert fleet.ids() == [2]


def test_an_executor_of_which_the_driver_was_told_nothing_is_withdrawn(fleet: Followed) -> None:
    fleet.follow()
    fleet.tell(ExecutorsRequested((1,), "default"))
    fleet.tell(ExecutorsAbandoned((1,), "no pod of it was observed"))
    last = fleet.take()[-1]
    assert (last.executors, last.withdrawn) == ((), (1,))


def test_what_happens_together_is_one_change_and_each_executor_once_in_it(fleet: Followed) -> None:
    fleet.follow()
    fleet.take()
    fleet.tell(
        ExecutorsRequested((1, 2), "default"),
        *fleet.seen(1, PodRunning(running(1))),
        *fleet.seen(2, PodRunning(running(2))),
        RemoveExecutor(1, "uid-1", GONE),
    )
    (change,) = fleet.take()
    assert [executor.id for executor in change.executors] == [2, 1], "the one that ended comes last"


def test_sequence_numbers_follow_one_another(fleet: Followed) -> None:
    fleet.follow()
    for executor_id in range(1, 4):
        fleet.tell(ExecutorsRequested((executor_id,), "default"))
    assert [change.sequence for change in fleet.take()] == [0, 1, 2, 3]


def test_what_the_driver_changes_was_published_before_it_is_answered(fleet: Followed) -> None:
    fleet.have(1)
    answers: list[Any] = []
    answered: list[list[bool]] = []
    fleet.host.tell(FollowFleet(lambda _: answered.append([answer.is_set for answer in answers])))
    fleet.kit.settle()
    answers.append(fleet.host.request(RegisterExecutor(1)))
    fleet.kit.settle()
    assert answered == [[], [False]]
    assert answers[0].get(timeout=0)


def test_the_driver_is_told_after_whoever_follows_and_misses_nothing(fleet: Followed) -> None:
    fleet.follow()
    told: list[str] = []
    fleet.host.tell(FollowFleet(lambda _: told.extend(type(each).__name__ for each in fleet.driver.take_all())))
    fleet.tell(ExecutorsRequested((1,), "default"))
    fleet.tell(*fleet.seen(1, PodPending(pending(1))), *fleet.seen(1, PodRunning(running(1))))
    assert told == [], "at the time of each change"
    assert [type(each) for each in fleet.driver.take_all()] == [ExecutorPending, ExecutorRunning]
    fleet.ask(KillExecutors((1,)))
    fleet.tell(RemoveExecutor(1, "uid-1", GONE))
    assert [type(each) for each in fleet.driver.take_all()] == [ExecutorRemoved]
    assert told == [ExecutorTerminating.__name__]


def test_while_nobody_follows_nothing_is_kept_and_the_driver_is_told_at_once(fleet: Followed) -> None:
    fleet.have(1, pending_ids=(2,))
    fleet.ask(KillExecutors((1,)))
    assert fleet.inside.state.changed is None
    assert [type(each) for each in fleet.driver.take_all()] == [ExecutorTerminating]


def test_a_follower_that_comes_later_or_again_is_sent_everything_once(fleet: Followed) -> None:
    fleet.follow()
    fleet.have(1)
    fleet.tell(RemoveExecutor(1, "uid-1", GONE))
    fleet.have(2)
    fleet.take()
    later: list[FleetChanged] = []
    for _ in range(2):
        fleet.host.tell(FollowFleet(later.append))
        fleet.kit.settle()
        assert [executor.id for executor in later[-1].executors] == [2, 1]
        assert later[-1].complete
    assert fleet.got == [], "the others know it"
    fleet.tell(ExecutorsRequested((3,), "default"))
    assert later[2:] == fleet.got, "it was told once"
    assert later[2].sequence == later[1].sequence + 1


def test_a_follower_that_fails_harms_nobody(fleet: Followed, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: FleetChanged) -> None:
        raise ValueError("no more")

    fleet.host.tell(FollowFleet(fail))
    fleet.follow()
    fleet.tell(ExecutorsRequested((1,), "default"))
    assert [executor.id for change in fleet.take() for executor in change.executors] == [1]
    assert caplog.text.count("function that receives messages failed") == 2


def test_the_status_is_published_if_more_of_it_is_new_than_ages(fleet: Followed) -> None:
    fleet.follow()
    counts = AllocatorStatus({"default": ProfileStatus(requested=1)})
    fleet.tell(counts)
    fleet.kit.advance(SECOND)
    fleet.tell(counts)
    fleet.tell(Freshness(Source.POLL, 1.0, None, 1.0))
    fleet.tell(Freshness(Source.POLL, 1.0, None, 1.0))
    first, *others = (change.status for change in fleet.take())
    assert first is not None
    assert first.profiles["default"].requested == 0
    assert [status.profiles["default"].requested for status in others if status is not None] == [1, 1]
    assert fleet.view.status is others[-1]


def test_a_pod_that_finalizers_hold_is_published_when_its_grace_period_is_over(fleet: Followed) -> None:
    fleet.have(1)
    fleet.follow()
    fleet.tell(*fleet.seen(1, PodTerminating(keep(going(running(1), grace=5, now=fleet.kit.clock.now())))))
    fleet.take()
    assert held(fleet) == []
    fleet.kit.advance(5 * SECOND)
    fleet.take()
    assert held(fleet) == [1]
