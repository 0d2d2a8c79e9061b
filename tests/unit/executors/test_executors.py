"""`Executors` in an actor that stands for the Backend: who is notified of what, and in which order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.errors import Refused
from actors.executors.executors import Executors
from actors.executors.fleet_context import FleetContext
from actors.executors.fleet_state import FleetState
from actors.executors.kills import Kills
from actors.executors.leases import LeaseBook
from actors.executors.replacement import Replacement
from actors.kube.api import DeleteOptions
from actors.messages import (
    DecommissionExecutors,
    ExecutorDisconnected,
    ExecutorDrained,
    ExecutorRemoved,
    ExecutorTerminating,
    KillExecutors,
    ProfileStatus,
    RegisterExecutor,
    RequestTotalExecutors,
    RetireExecutors,
)
from actors.messages.internal import (
    NO_PAUSE,
    AdoptionEnded,
    AllocatorStatus,
    CloseAdoption,
    ConnectionLost,
    DeletePod,
    DrainEnded,
    ExecutorDecommissioned,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsRequested,
    ExecutorsScaledDown,
    LedgerLoaded,
    OpenAdoption,
    RemoveExecutor,
    SetTotalExpectedExecutors,
    StartFailureCount,
    StartFailureRecord,
    TakenOver,
    TakeOver,
)
from actors.messages.internal.names import ALLOCATOR, LIFECYCLE, POOL, STORE
from actors.metrics.counts import BackendCounts
from actors.pods.id_ranges import IdRanges
from actors.pods.loss import LossKind, LossReason
from actors.pods.state import PodPending, PodRunning
from actors.runtime import Actor
from tests.unit.builders import pod_name
from tests.unit.views import pending, running, settings

if TYPE_CHECKING:
    from actors.messages import ToDriver
    from actors.pods.state import PodState
    from actors.runtime import Address, Context
    from actors.testing import Kit

GONE = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="it exited")
SECOND = timedelta(seconds=1)


class Host(Actor):
    """Stands for the Backend. One probe stands for all its children, so that it receives their messages in order."""

    def __init__(self, context: Context, *, executor: dict[str, Any], children: Address, driver: Address) -> None:
        super().__init__(context)
        subject = settings(executor={"instances": 2, **executor})
        self._driver = driver
        self.state = FleetState(subject.initial_totals, subject.pod_prefix, leases=LeaseBook(subject.pool_names))
        self.context_of_fleet = FleetContext(
            backend=self,
            settings=subject,
            state=self.state,
            children=dict.fromkeys((ALLOCATOR, LIFECYCLE, POOL, STORE), children),
            tell=self._tell,
            why_not=lambda: self.why_not,
            counts=BackendCounts(),
        )
        replacement = Replacement(subject, state=self.state, system=self.context.system)
        self.fleet = Executors(self.context_of_fleet, replacement)
        self.kills = Kills(self.context_of_fleet)
        self.handlers = {**self.fleet.handlers(), **self.kills.handlers()}
        self.why_not = ""

    def _tell(self, message: ToDriver | None) -> None:
        if message is not None:
            self._driver.tell(message)

    def receive(self, message: Any) -> object:
        """A timer, or what the Backend would hand on."""
        return self.handlers[type(message)](message)


class Rig:
    def __init__(self, kit: Kit, *, host: type[Host] = Host, **executor: Any) -> None:
        self.kit = kit
        self.children, self.driver = kit.probe("children"), kit.probe("driver")
        made: list[Any] = []

        def make(context: Context) -> Any:
            made.append(host(context, executor=executor, children=self.children.address, driver=self.driver.address))
            return made[0]

        self.host = kit.spawn(make, name="backend")
        self.inside = made[0]
        self.fleet = made[0].fleet

    def ask(self, message: object) -> Any:
        return self.kit.ask(self.host, message)

    def have(self, *executor_ids: int, pending_ids: tuple[int, ...] = ()) -> None:
        """These run, and those are pending."""
        self.ask(ExecutorsRequested((*executor_ids, *pending_ids), "default"))
        states: dict[int, PodState] = {executor_id: PodRunning(running(executor_id)) for executor_id in executor_ids}
        states |= {executor_id: PodPending(pending(executor_id)) for executor_id in pending_ids}
        for executor_id, state in states.items():
            self.ask(ExecutorSeen(executor_id, f"uid-{executor_id}", state))
        self.ask(ExecutorsObserved({**self.inside.state.states, **states}))
        self.children.take_all()
        self.driver.take_all()

    def sent(self) -> list[object]:
        """The messages to the children since the last call."""
        return self.children.take_all()


@pytest.fixture
def rig(kit: Kit) -> Any:
    return partial(Rig, kit)


def deletion(executor_id: int, grace: timedelta | None = None) -> DeletePod:
    return DeletePod(pod_name(executor_id), DeleteOptions(uid=f"uid-{executor_id}", grace=grace))


# ── retired ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_allocator_is_told_of_retired_executors_and_the_fallen_target_in_one_message(rig: Any) -> None:
    subject = rig(drain_timeout="60s")
    subject.have(1, 2, pending_ids=(3,))
    assert subject.ask(RetireExecutors((1, 3, 99), adjust_target=True)) == (1, 3)
    now = subject.kit.clock.monotonic()
    sent = subject.sent()
    kills = [message for message in sent if isinstance(message, ExecutorKilled)]
    assert [(kill.executor_id, kill.delete_at, kill.retired) for kill in kills] == [(1, now + 60, True), (3, now, True)]
    targets = [message for message in sent if isinstance(message, SetTotalExpectedExecutors)]
    assert targets == [SetTotalExpectedExecutors({"default": 1}, retired=frozenset({1, 3}))]
    subject.kit.advance(60 * SECOND)
    assert subject.sent() == [deletion(1, NO_PAUSE)], "the drain has had its time"


def test_a_retired_executor_may_register_before_its_pod_was_observed_to_run(rig: Any) -> None:
    subject = rig(drain_timeout="60s")
    subject.have(pending_ids=(1,))
    subject.ask(RegisterExecutor(1))
    subject.sent()
    subject.ask(RetireExecutors((1,)))
    assert not any(isinstance(message, DeletePod) for message in subject.sent())


@pytest.mark.parametrize("end", [KillExecutors, RetireExecutors])
def test_an_executor_that_is_being_ended_may_connect_again_until_it_has_ended(
    rig: Any, end: type[KillExecutors | RetireExecutors]
) -> None:
    subject = rig()
    subject.have(1)
    subject.ask(end((1,)))
    assert subject.ask(RegisterExecutor(1)) is True
    subject.ask(RemoveExecutor(1, "uid-1", GONE))
    assert subject.ask(RegisterExecutor(1)) is False


def test_a_killed_executor_that_is_retired_no_longer_counts_and_keeps_the_earlier_deadline(rig: Any) -> None:
    subject = rig(drain_timeout="60s", kill_grace_period="5s")
    subject.have(1, 2)
    subject.ask(KillExecutors((1,)))
    now = subject.kit.clock.monotonic()
    subject.ask(RetireExecutors((1,), adjust_target=True))
    entry = subject.inside.state.ledger.entries[1]
    assert (entry.killed.retired, entry.killed.delete_at) == (True, now + 5)
    assert subject.inside.state.totals == {"default": 2}, "the kill did not lower it, and it was killed already"
    assert len(subject.driver.take_all()) == 1


def test_only_a_terminating_executor_can_be_drained(rig: Any) -> None:
    subject = rig(drain_timeout="60s")
    subject.have(1, 2)
    assert not subject.ask(ExecutorDrained(1))
    subject.ask(RetireExecutors((1,)))
    subject.sent()
    assert subject.ask(ExecutorDrained(1))
    assert subject.sent() == [DrainEnded(1)]
    subject.inside.why_not = "the lease is not held"
    for message in (ExecutorDrained(1), RetireExecutors((2,))):
        with pytest.raises(Refused, match="the lease is not held"):
            subject.ask(message)


# ── kills ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_running_executor_gets_its_grace_period_and_all_are_notified_at_once(rig: Any) -> None:
    subject = rig(kill_grace_period="5s")
    subject.have(1, 2)
    assert subject.ask(KillExecutors((1,))) == (1,)
    kill = ExecutorKilled(1, subject.kit.clock.now(), subject.kit.clock.monotonic() + 5.0)
    assert subject.sent() == [kill, kill]
    assert isinstance(subject.driver.take(ExecutorTerminating), ExecutorTerminating)
    subject.kit.advance(4.9 * SECOND)
    assert subject.sent() == []
    subject.kit.advance(0.1 * SECOND)
    assert subject.sent() == [deletion(1)]


def test_the_driver_is_notified_until_when_a_killed_executor_may_end_by_itself(rig: Any) -> None:
    subject = rig(kill_grace_period="5s")
    subject.have(1, 2, pending_ids=(3,))
    now = subject.kit.clock.now()
    subject.ask(KillExecutors((1, 3)))
    subject.ask(KillExecutors((2,), grace=20 * SECOND))
    deadlines = {m.executor_id: m.deadline for m in subject.driver.take_all(ExecutorTerminating)}
    assert deadlines == {1: now + 5 * SECOND, 3: now, 2: now + 20 * SECOND}


def test_an_executor_that_does_not_run_is_deleted_at_once_but_after_its_kill_was_sent(rig: Any) -> None:
    subject = rig()
    subject.have(1, pending_ids=(2,))
    subject.ask(KillExecutors((1, 2)))
    kinds = [type(message) for message in subject.sent()]
    assert kinds == [ExecutorKilled] * 4 + [DeletePod]
    subject.ask(KillExecutors((2,)))
    assert subject.sent()[-1] == deletion(2), "requested again"


def test_a_kill_can_have_a_grace_period_of_its_own_which_a_later_one_only_shortens(rig: Any) -> None:
    subject = rig(kill_grace_period="5s")
    subject.have(1, 2)
    subject.ask(KillExecutors((1, 2), grace=20 * SECOND))
    assert subject.sent()[-1].delete_at == subject.kit.clock.monotonic() + 20
    subject.kit.advance(2 * SECOND)
    subject.ask(KillExecutors((1,)))
    assert subject.sent()[-1].delete_at == subject.kit.clock.monotonic() + 5, "both actors learn of it"
    for grace in (60 * SECOND, None):
        assert subject.ask(KillExecutors((1,), grace=grace)) == (1,)
    subject.kit.advance(4.9 * SECOND)
    assert [message for message in subject.sent() if isinstance(message, DeletePod)] == []
    subject.kit.advance(0.1 * SECOND)
    assert subject.sent() == [deletion(1)]
    subject.kit.advance(13 * SECOND)
    assert subject.sent()[-1] == deletion(2)


def test_a_grace_of_nothing_deletes_at_once(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.ask(KillExecutors((1,)))
    subject.ask(KillExecutors((1,), grace=0 * SECOND))
    subject.kit.advance(0 * SECOND)
    assert subject.sent()[-1] == deletion(1)


@pytest.mark.parametrize("first", [KillExecutors, RetireExecutors])
def test_the_driver_is_notified_again_when_a_kill_or_retirement_brings_the_deletion_forward(
    rig: Any, first: type[KillExecutors | RetireExecutors]
) -> None:
    subject = rig(kill_grace_period="20s", drain_timeout="30s")
    subject.have(1, pending_ids=(2,))
    subject.ask(first((1, 2)))
    earlier = {m.executor_id: m for m in subject.driver.take_all(ExecutorTerminating)}
    subject.kit.advance(2 * SECOND)
    now = subject.kit.clock.now()
    subject.ask(KillExecutors((1, 2), grace=60 * SECOND))
    assert subject.driver.take_all(ExecutorTerminating) == []
    subject.ask(RetireExecutors((1, 2), deadline=10 * SECOND))
    (again,) = subject.driver.take_all(ExecutorTerminating)
    assert again == replace(earlier[1], deadline=now + 10 * SECOND, retiring=True), "the reason is the first one's"
    subject.ask(KillExecutors((1, 2), grace=5 * SECOND))
    (again,) = subject.driver.take_all(ExecutorTerminating)
    assert again == replace(earlier[1], deadline=now + 5 * SECOND, retiring=True)


def test_an_executor_that_ended_within_its_grace_period_is_not_deleted(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.ask(KillExecutors((1,)))
    subject.ask(RemoveExecutor(1, "uid-1", GONE))
    subject.sent()
    subject.kit.advance(10 * SECOND)
    assert subject.sent() == []


def test_the_target_falls_by_the_executors_that_were_not_killed_before(rig: Any) -> None:
    subject = rig()
    subject.have(1, 2)
    subject.ask(KillExecutors((1,)))
    subject.sent()
    subject.ask(KillExecutors((1, 2, 3), adjust_target=True))
    assert SetTotalExpectedExecutors({"default": 1}) in subject.sent()


@pytest.mark.parametrize("is_counted", [True, False], ids=["counted", "before the Allocator counts"])
def test_twelve_run_and_killing_seven_of_them_leaves_a_target_of_three(rig: Any, is_counted: bool) -> None:
    subject = rig()
    subject.have(*range(1, 13))
    subject.ask(RequestTotalExecutors(3))
    if is_counted:
        subject.ask(AllocatorStatus({"default": ProfileStatus(target=3, running=12)}))
    subject.ask(KillExecutors(tuple(range(1, 8)), adjust_target=True))
    assert subject.inside.state.totals == {"default": 3}
    subject.ask(KillExecutors((8, 9, 10), adjust_target=True))
    assert subject.inside.state.totals == {"default": 2}, "two were in excess, the third was not"


def test_the_target_does_not_fall_by_an_executor_that_is_being_deleted_as_excess(rig: Any) -> None:
    subject = rig()
    subject.have(1, 2, pending_ids=(3,))
    subject.ask(ExecutorsScaledDown({3: "uid-3"}))
    assert subject.ask(KillExecutors((3,), adjust_target=True)) == (3,)
    assert subject.inside.state.totals == {"default": 2}
    subject.ask(KillExecutors((2, 3), adjust_target=True))
    assert subject.inside.state.totals == {"default": 1}


def test_a_profile_that_is_not_named_has_the_target_0_or_keeps_its_own(rig: Any) -> None:
    subject = rig()
    targets = (
        (RequestTotalExecutors({"default": 2, "gpu": 4}), {"default": 2, "gpu": 4}),
        (RequestTotalExecutors(5, keep_others=True), {"default": 5, "gpu": 4}),
        (RequestTotalExecutors({"gpu": 1}, keep_others=True), {"default": 5, "gpu": 1}),
        (RequestTotalExecutors({}, keep_others=True), {"default": 5, "gpu": 1}),
        (RequestTotalExecutors({"gpu": 3}), {"gpu": 3}),
    )
    for forgiven, (message, totals) in enumerate(targets, 1):
        assert subject.ask(message) is True
        assert subject.sent() == [SetTotalExpectedExecutors(totals, forgiven)]


def test_a_target_forgives_what_the_allocator_reports_before_it_has_received_it(rig: Any) -> None:
    """An Allocator that then ends without receiving it is followed by one that must not continue what had failed."""
    subject = rig()
    failed = StartFailureRecord({"default": StartFailureCount(rounds=3)}, "images are missing")
    subject.ask(AllocatorStatus({}, failed))
    assert subject.inside.state.starts == failed
    subject.ask(RequestTotalExecutors(2))
    subject.ask(AllocatorStatus({}, failed))
    assert subject.inside.state.starts == StartFailureRecord({"default": StartFailureCount()}, forgiven=1)
    subject.ask(AllocatorStatus({}, replace(failed, forgiven=1)))
    assert subject.inside.state.starts == replace(failed, forgiven=1)


def test_a_target_forgets_no_backoff_that_it_does_not_end(rig: Any) -> None:
    subject = rig()
    waits = StartFailureRecord({"default": StartFailureCount(rounds=1, until=60.0, times=(1.0,))})
    subject.ask(AllocatorStatus({"default": ProfileStatus(target=2)}, waits))
    subject.ask(RequestTotalExecutors(2))
    assert subject.inside.state.starts == replace(waits, forgiven=1)


def test_a_kill_whose_grace_period_ends_while_another_driver_writes_deletes_nothing(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.ask(KillExecutors((1,)))
    subject.sent()
    subject.inside.why_not = "another driver has the lease"
    subject.kit.advance(10 * SECOND)
    assert subject.sent() == []
    with pytest.raises(Refused, match="cannot be ended now: another driver has the lease"):
        subject.ask(KillExecutors((1,)))


@pytest.mark.parametrize("message", [KillExecutors, DecommissionExecutors])
def test_many_unknown_executors_are_one_line_of_the_log(
    rig: Any, message: Any, caplog: pytest.LogCaptureFixture
) -> None:
    subject = rig()
    subject.have(1)
    assert subject.ask(message(tuple(range(1, 1_001)))) == (1,)
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert line.endswith("ids=2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... (999 executors)")


# ── decommissioned, connected, ended ───────────────────────────────────────────────────────────────────────────


def test_a_decommissioned_executor_is_reported_to_both_actors_and_not_deleted(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    assert subject.ask(DecommissionExecutors((1, 9))) == (1,)
    assert subject.sent() == [ExecutorDecommissioned(1)] * 2
    subject.driver.expect_nothing()


def test_messages_about_an_ended_executor_are_not_forwarded(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.ask(RemoveExecutor(1, "uid-1", GONE))
    subject.driver.take_all()
    assert subject.ask(KillExecutors((1, 2))) == ()
    assert subject.ask(DecommissionExecutors((1, 2))) == ()
    assert subject.ask(RegisterExecutor(1)) is False
    subject.ask(ExecutorDisconnected(1))
    assert subject.sent() == []
    subject.driver.expect_nothing()


def test_connections_are_reported_with_their_moments(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    subject.kit.advance(3 * SECOND)
    assert subject.ask(RegisterExecutor(1)) is True
    subject.ask(ExecutorDisconnected(1))
    now = subject.kit.clock.monotonic()
    assert subject.sent() == [ExecutorRegistered(1, now), ExecutorRegistered(1, now), ConnectionLost(1, now)]


def test_an_end_is_reported_once(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    for _ in range(2):
        subject.ask(RemoveExecutor(1, "uid-1", GONE))
    assert subject.driver.take_all() == [ExecutorRemoved(1, GONE, node="node")]


def test_executors_that_ended_are_forgotten_after_their_ttl(rig: Any) -> None:
    subject = rig(removed_executors_ttl="3m")
    subject.fleet.begin()
    for executor_id in range(1, 101):
        subject.have(executor_id)
        subject.ask(RemoveExecutor(executor_id, f"uid-{executor_id}", GONE))
        subject.kit.advance(10 * SECOND)
    assert len(subject.inside.state.ledger.entries) <= 2 * 18 + 1


# ── the Allocator's begin ──────────────────────────────────────────────────────────────────────────────────────


def test_the_allocator_begins_after_existing_pods_were_adopted(rig: Any) -> None:
    subject = rig()
    subject.fleet.introduce_allocator(None)
    subject.kit.settle()
    (take_over,) = subject.sent()
    assert isinstance(take_over, TakeOver)
    subject.have(7)
    subject.ask(TakenOver(take_over.serial))
    known, target = subject.sent()
    assert isinstance(known, LedgerLoaded)
    assert (sorted(known.ledger), known.next_id) == ([7], 8)
    assert target == SetTotalExpectedExecutors({"default": 2})


def test_a_lifecycle_manager_begins_with_the_last_states_of_its_previous_incarnation(rig: Any) -> None:
    subject = rig()
    subject.have(1)
    newer = PodRunning(running(1, version=7))
    subject.ask(ExecutorsObserved({1: newer}))
    subject.fleet.introduce_lifecycle_manager()
    subject.kit.settle()
    (known,) = subject.sent()
    assert known.ledger[1].pod_in(known.observed) is newer.pod
    other = PodRunning(running(1, uid="of another pod"))
    assert known.ledger[1].pod_in({1: other}) is None
    assert known.ledger[1].pod_in({}) is None


def test_pods_are_named_as_observed_and_the_others_as_they_are_created(rig: Any) -> None:
    subject = rig()
    subject.have(1, 2)
    renamed = msgspec.structs.replace(running(1).metadata, name="earlier-exec-1")
    subject.ask(ExecutorsObserved({1: PodRunning(msgspec.structs.replace(running(1), metadata=renamed))}))
    assert subject.inside.state.known_pods(None) == ("earlier-exec-1", "app-exec-2")


def test_an_allocator_that_was_restarted_meanwhile_begins_once(rig: Any) -> None:
    subject = rig()
    for _ in range(2):
        subject.fleet.introduce_allocator(None)
    subject.kit.settle()
    first, second = subject.sent()
    subject.ask(TakenOver(first.serial))
    assert subject.sent() == []
    subject.ask(TakenOver(second.serial))
    assert [type(message) for message in subject.sent()] == [LedgerLoaded, SetTotalExpectedExecutors]


def test_an_allocator_that_is_held_meanwhile_does_not_begin(rig: Any) -> None:
    subject = rig()
    subject.fleet.introduce_allocator(None)
    subject.kit.settle()
    (take_over,) = subject.sent()
    subject.fleet.hold_allocator()
    subject.ask(TakenOver(take_over.serial))
    assert subject.sent() == [OpenAdoption()]


def test_adoption_is_over_once_the_fleet_was_taken_over_with_a_lease(rig: Any) -> None:
    subject = rig()
    subject.have(3, 4)
    subject.ask(ExecutorSeen(9, "uid-9", PodRunning(running(9))))
    subject.children.take_all()
    subject.fleet.introduce_store()
    subject.fleet.introduce_allocator(5.0)
    subject.kit.settle()
    (take_over,) = subject.sent()
    assert take_over.since == 5.0
    subject.ask(TakenOver(take_over.serial))
    subject.sent()
    subject.ask(AdoptionEnded(take_over.serial - 1))
    assert subject.sent() == []
    subject.ask(AdoptionEnded(take_over.serial))
    closed = CloseAdoption(IdRanges(((3, 4), (9, 9))))
    assert subject.sent() == [closed]
    assert [subject.inside.state.is_ours(executor_id) for executor_id in (3, 8, 9)] == [True, False, True]
    subject.fleet.introduce_store()
    subject.kit.settle()
    assert subject.sent() == [closed], "a store that was restarted begins with it"
