"""`Executors` in an actor that stands for the Backend: who is told what of executors, and in which order."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.errors import Refused
from actors.executors.executors import Executors
from actors.executors.fleet_state import FleetState
from actors.executors.kills import Kills
from actors.messages import (
    ConnectionLost,
    DecommissionExecutors,
    DeletePods,
    ExecutorDecommissioned,
    ExecutorDisconnected,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorRemoved,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsRequested,
    ExecutorTerminating,
    KillExecutors,
    LedgerLoaded,
    RegisterExecutor,
    RemoveExecutor,
    SetTotalExpectedExecutors,
    TakenOver,
    TakeOver,
)
from actors.messages.names import ALLOCATOR, LIFECYCLE, POOL
from actors.pods.loss import LossKind, LossReason
from actors.pods.state import PodPending, PodRunning
from actors.runtime import Actor
from tests.unit.views import pending, running, settings

if TYPE_CHECKING:
    from actors.messages import ToDriver
    from actors.runtime import Address, Context
    from actors.testing import Kit

GONE = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="it exited")
SECOND = timedelta(seconds=1)


class Host(Actor):
    """Stands for the Backend. One probe stands for all its parts, so that it sees the order of what they are told."""

    def __init__(self, context: Context, *, executor: dict[str, Any], parts: Address, driver: Address) -> None:
        super().__init__(context)
        subject = settings(executor={"instances": 2, **executor})
        self._driver = driver
        children = dict.fromkeys((ALLOCATOR, LIFECYCLE, POOL), parts)
        self.state = FleetState(subject.initial_totals, subject.pod_prefix)
        self.fleet = Executors(self, subject, state=self.state, children=children, tell=self._tell)
        kills = Kills(self, subject, state=self.state, children=children, tell=self._tell, why_not=lambda: self.why_not)
        self.handlers = {**self.fleet.handlers(), **kills.handlers()}
        self.why_not = ""

    def _tell(self, word: ToDriver | None) -> None:
        if word is not None:
            self._driver.tell(word)

    def receive(self, message: Any) -> object:
        """A timer, or what the Backend would hand on."""
        return self.handlers[type(message)](message)


class Rig:
    def __init__(self, kit: Kit, **executor: Any) -> None:
        self.kit = kit
        self.parts, self.driver = kit.probe("parts"), kit.probe("driver")
        made: list[Host] = []

        def make(context: Context) -> Host:
            made.append(Host(context, executor=executor, parts=self.parts.address, driver=self.driver.address))
            return made[0]

        self.host = kit.spawn(make, name="backend")
        self.inside = made[0]
        self.fleet = made[0].fleet

    def ask(self, message: object) -> Any:
        return self.kit.ask(self.host, message)

    def have(self, *executor_ids: int, pending_ids: tuple[int, ...] = ()) -> None:
        """These run, and those are pending."""
        self.ask(ExecutorsRequested((*executor_ids, *pending_ids), "default"))
        for executor_id in executor_ids:
            self.ask(ExecutorSeen(executor_id, f"uid-{executor_id}", PodRunning(running(executor_id))))
        for executor_id in pending_ids:
            self.ask(ExecutorSeen(executor_id, f"uid-{executor_id}", PodPending(pending(executor_id))))
        self.parts.take_all()
        self.driver.take_all()

    def told(self) -> list[object]:
        """What the parts were told since the last look."""
        return self.parts.take_all()


@pytest.fixture
def rig(kit: Kit) -> Any:
    return partial(Rig, kit)


# ── kills ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_running_one_gets_its_time_and_whoever_must_know_knows_at_once(rig: Any) -> None:
    subject = rig(kill_grace_period="5s")
    subject.have(1, 2)
    assert subject.ask(KillExecutors((1,))) == (1,)
    kill = ExecutorKilled(1, subject.kit.clock.now(), subject.kit.clock.monotonic() + 5.0)
    assert subject.told() == [kill, kill]
    assert isinstance(subject.driver.take(ExecutorTerminating), ExecutorTerminating)
    subject.kit.advance(4.9 * SECOND)
    assert subject.told() == []
    subject.kit.advance(0.1 * SECOND)
    assert subject.told() == [DeletePods(frozenset({1}))]


def test_one_that_does_not_run_is_deleted_at_once_but_not_before_it_is_known_why(rig: Any) -> None:
    subject = rig()
    subject.have(1, pending_ids=(2,))
    subject.ask(KillExecutors((1, 2)))
    kinds = [type(message) for message in subject.told()]
    assert kinds == [ExecutorKilled] * 4 + [DeletePods]
    subject.ask(KillExecutors((2,)))
    assert subject.told()[-1] == DeletePods(frozenset({2})), "asked for again"


def test_one_that_ended_within_its_time_is_not_deleted(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.ask(KillExecutors((1,)))
    subject.ask(RemoveExecutor(1, "uid-1", GONE))
    subject.told()
    subject.kit.advance(10 * SECOND)
    assert subject.told() == []


def test_the_target_falls_by_those_that_were_not_killed_before(rig: Any) -> None:
    subject = rig()
    subject.have(1, 2)
    subject.ask(KillExecutors((1,)))
    subject.told()
    subject.ask(KillExecutors((1, 2, 3), adjust_target=True))
    assert SetTotalExpectedExecutors({"default": 1}) in subject.told()


def test_a_kill_whose_time_is_over_while_another_driver_writes_is_left_to_it(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.ask(KillExecutors((1,)))
    subject.told()
    subject.inside.why_not = "another driver has the lease"
    subject.kit.advance(10 * SECOND)
    assert subject.told() == []
    with pytest.raises(Refused, match="cannot be ended now: another driver has the lease"):
        subject.ask(KillExecutors((1,)))


@pytest.mark.parametrize("message", [KillExecutors, DecommissionExecutors])
def test_what_are_no_ids_is_refused_and_changes_nothing(rig: Any, message: Any) -> None:
    subject = rig()
    subject.have(1)
    with pytest.raises(Refused):
        subject.ask(message(("1",)))
    assert subject.told() == []


# ── decommissioned, connected, ended ─────────────────────────────────────────────────────────────────────────────────


def test_a_decommissioned_one_is_known_to_both_and_lives(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    assert subject.ask(DecommissionExecutors((1, 9))) == (1,)
    assert subject.told() == [ExecutorDecommissioned(1)] * 2
    subject.driver.expect_nothing()


def test_what_is_said_of_one_that_has_ended_reaches_nobody(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.ask(RemoveExecutor(1, "uid-1", GONE))
    subject.driver.take_all()
    assert subject.ask(KillExecutors((1,))) == ()
    assert subject.ask(DecommissionExecutors((1,))) == ()
    assert subject.ask(RegisterExecutor(1)) is False
    subject.ask(ExecutorDisconnected(1))
    assert subject.told() == []
    subject.driver.expect_nothing()


def test_connections_are_told_with_their_moments(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.kit.advance(3 * SECOND)
    assert subject.ask(RegisterExecutor(1)) is True
    subject.ask(ExecutorDisconnected(1))
    now = subject.kit.clock.monotonic()
    assert subject.told() == [ExecutorRegistered(1, now), ExecutorRegistered(1, now), ConnectionLost(1, now)]


def test_an_end_is_told_once(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    for _ in range(2):
        subject.ask(RemoveExecutor(1, "uid-1", GONE))
    assert subject.driver.take_all() == [ExecutorRemoved(1, GONE)]


def test_executors_that_ended_are_forgotten_after_their_time(rig: Any) -> None:
    subject = rig(removed_executors_ttl="3m")
    subject.fleet.begin()
    for executor_id in range(1, 101):
        subject.have(executor_id)
        subject.ask(RemoveExecutor(executor_id, f"uid-{executor_id}", GONE))
        subject.kit.advance(10 * SECOND)
    assert len(subject.inside.state.ledger.entries) <= 2 * 18 + 1


# ── the Allocator's begin ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_allocator_begins_once_what_there_is_was_taken_over(rig: Any) -> None:
    subject = rig()
    subject.fleet.introduce_allocator()
    subject.kit.settle()
    (take_over,) = subject.told()
    assert isinstance(take_over, TakeOver)
    subject.have(7)
    subject.ask(TakenOver(take_over.serial))
    known, wanted = subject.told()
    assert isinstance(known, LedgerLoaded)
    assert (sorted(known.ledger), known.next_id) == ([7], 8)
    assert wanted == SetTotalExpectedExecutors({"default": 2})


def test_a_lifecycle_manager_begins_with_what_the_one_before_it_saw_last(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    newer = PodRunning(running(1, version=7))
    subject.ask(ExecutorsObserved({1: newer}))
    subject.fleet.introduce_lifecycle_manager()
    subject.kit.settle()
    (known,) = subject.told()
    assert known.ledger[1].pod_in(known.observed) is newer.pod
    other = PodRunning(running(1, uid="of another pod"))
    assert known.ledger[1].pod_in({1: other}) is None
    assert known.ledger[1].pod_in({}) is None


def test_pods_are_named_as_they_were_shown_and_the_others_as_they_are_made(rig: Any) -> None:
    subject = rig()
    subject.have(1, 2)
    renamed = msgspec.structs.replace(running(1).metadata, name="earlier-exec-1")
    subject.ask(ExecutorsObserved({1: PodRunning(msgspec.structs.replace(running(1), metadata=renamed))}))
    assert subject.inside.state.known_pods(None) == ("earlier-exec-1", "app-exec-2")


def test_an_allocator_that_was_restarted_meanwhile_begins_once(rig: Any) -> None:
    subject = rig()
    for _ in range(2):
        subject.fleet.introduce_allocator()
    subject.kit.settle()
    first, second = subject.told()
    subject.ask(TakenOver(first.serial))
    assert subject.told() == []
    subject.ask(TakenOver(second.serial))
    assert [type(message) for message in subject.told()] == [LedgerLoaded, SetTotalExpectedExecutors]


def test_an_allocator_that_is_held_back_meanwhile_does_not_begin(rig: Any) -> None:
    subject = rig()
    subject.fleet.introduce_allocator()
    subject.kit.settle()
    (take_over,) = subject.told()
    subject.fleet.hold_allocator()
    subject.ask(TakenOver(take_over.serial))
    assert subject.told() == []
