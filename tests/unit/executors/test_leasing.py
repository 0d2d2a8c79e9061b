"""`Leasing` in an actor that stands for the Backend: who gets which executor, what is discarded, and what is wanted."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Refused
from actors.executors.leasing import TOGETHER, Leasing
from actors.messages import (
    AcquireExecutor,
    AcquireRefused,
    CancelAcquire,
    DecommissionExecutors,
    ExecutorAcquired,
    ExecutorDisconnected,
    ExecutorRemoved,
    ExecutorTerminating,
    KillExecutors,
    LeaseExpired,
    LeaseLost,
    ProfileStatus,
    RegisterExecutor,
    ReleaseExecutor,
    RenewLease,
    RequestTotalExecutors,
    RetireExecutors,
    SetWarm,
)
from actors.messages.internal import (
    AllocatorStatus,
    DeletePod,
    ExecutorKilled,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsRequested,
    RemoveExecutor,
    SetTotalExpectedExecutors,
    StartFailureRecord,
    TakenOver,
)
from actors.pods.state import PodRunning
from tests.unit.executors.test_executors import GONE, SECOND, Host, Rig
from tests.unit.views import running

if TYPE_CHECKING:
    from actors.testing import Kit


class Pool(Host):
    """A Backend with leases."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.leasing = Leasing(self.context_of_fleet, self.kills)
        self.handlers |= self.leasing.handlers()

    def receive(self, message: Any) -> object:
        """As the Backend does it."""
        answer = super().receive(message)
        if (listen := self.leasing.listeners().get(type(message))) is not None:
            listen(message)
        self.leasing.turn_ends()
        return answer


class Leases(Rig):
    """A fleet whose executors are leased."""

    def __init__(self, kit: Kit, *, warm: int = 2, **executor: Any) -> None:
        super().__init__(kit, host=Pool, warm=warm, **executor)

    def begins(self, executor_id: int) -> None:
        """An executor is requested and runs."""
        state = PodRunning(running(executor_id))
        self.ask(ExecutorsRequested((executor_id,), "default"))
        self.ask(ExecutorSeen(executor_id, f"uid-{executor_id}", state))
        self.ask(ExecutorsObserved({**self.inside.state.states, executor_id: state}))

    def acquired(self) -> list[tuple[int, int]]:
        """The leases that were granted since the last call, and their executors."""
        return [(each.lease, each.executor.id) for each in self.driver.take_all(ExecutorAcquired)]

    def target(self) -> int:
        """The target, once it was counted."""
        self.kit.advance(TOGETHER)
        total: int = self.inside.state.totals["default"]
        return total

    def ended(self) -> list[tuple[int, str]]:
        """The executors that were killed since the last call, and why."""
        kills = [message for message in self.sent() if isinstance(message, ExecutorKilled)]
        return list({kill.executor_id: kill.message for kill in kills}.items())


def test_an_executor_is_leased_to_one_holder_and_replaced_at_once(kit: Kit) -> None:
    rig = Leases(kit)
    rig.have(1, 2)
    assert rig.ask(AcquireExecutor()) == 1
    (granted,) = rig.driver.take_all(ExecutorAcquired)
    assert (granted.lease, granted.executor.id, granted.executor.ip) == (1, 1, running(1).ip)
    assert rig.target() == 3
    assert rig.sent() == [SetTotalExpectedExecutors({"default": 3})]
    assert rig.ask(AcquireExecutor()) == 2
    assert rig.ask(AcquireExecutor()) == 3
    assert rig.acquired() == [(2, 2)]
    rig.have(3)
    assert rig.target() == 5


def test_whoever_waits_longest_is_served_first_and_who_goes_away_blocks_nobody(kit: Kit) -> None:
    rig = Leases(kit, warm=0)
    first, second, third = (rig.ask(AcquireExecutor()) for _ in range(3))
    assert rig.target() == 3
    assert rig.ask(CancelAcquire(first))
    assert rig.driver.take_all() == [AcquireRefused(first, "it was cancelled")]
    assert rig.target() == 2
    for executor_id, lease in ((1, second), (2, third)):
        rig.begins(executor_id)
        assert rig.acquired() == [(lease, executor_id)]
    assert not rig.ask(CancelAcquire(first))


def test_one_that_is_given_back_is_ended_and_lowers_the_target(kit: Kit) -> None:
    rig = Leases(kit)
    rig.have(1, 2)
    lease = rig.ask(AcquireExecutor())
    assert rig.target() == 3
    rig.sent()
    assert rig.ask(ReleaseExecutor(lease))
    assert not rig.ask(ReleaseExecutor(lease))
    kill, same = rig.sent()
    assert (
        kill
        == same
        == ExecutorKilled(1, kit.clock.now(), kit.clock.monotonic(), "was given back by its holder", is_loss=False)
    )
    assert rig.target() == 2
    assert [type(message) for message in rig.sent()] == [DeletePod, SetTotalExpectedExecutors]
    rig.ask(RemoveExecutor(1, "uid-1", GONE))
    assert rig.driver.take_all(LeaseLost) == []


def test_one_that_is_given_back_for_reuse_is_offered_again_until_it_was_leased_often_enough(kit: Kit) -> None:
    rig = Leases(kit, warm=1, max_leases=2)
    rig.have(1)
    for lease in (1, 2):
        assert rig.ask(AcquireExecutor()) == lease
        assert rig.acquired() == [(lease, 1)]
        assert rig.ask(ReleaseExecutor(lease, reuse=True))
    assert rig.ended() == [(1, "was given back by its holder")]


def test_an_executor_that_is_too_old_is_replaced_once_nobody_has_it(kit: Kit) -> None:
    rig = Leases(kit, max_age="10s")
    rig.have(1, 2)
    lease = rig.ask(AcquireExecutor())
    rig.begins(3)
    kit.advance(10 * SECOND)
    assert rig.ended() == [(2, "was ended, as it had reached executor.max_age")]
    assert rig.ask(ReleaseExecutor(lease, reuse=True))
    assert rig.ended() == [(1, "was ended, as it had reached executor.max_age")]


def test_executors_of_the_same_age_are_replaced_one_after_the_other(kit: Kit) -> None:
    rig = Leases(kit, max_age="10s")
    rig.have(1, 2)
    kit.advance(60 * SECOND)
    assert [executor_id for executor_id, _ in rig.ended()] == [1]
    rig.begins(3)
    kit.advance(1 * SECOND)
    assert [executor_id for executor_id, _ in rig.ended()] == [2]


def test_a_lease_that_was_granted_before_it_was_cancelled_is_offered_again(kit: Kit) -> None:
    rig = Leases(kit, warm=1)
    rig.have(1)
    lease = rig.ask(AcquireExecutor())
    assert rig.ask(CancelAcquire(lease))
    assert rig.ask(AcquireExecutor()) == lease + 1
    assert rig.acquired() == [(lease, 1), (lease + 1, 1)]
    assert rig.ended() == []


def test_a_lease_is_lost_with_its_executor_after_that_was_removed(kit: Kit) -> None:
    rig = Leases(kit)
    rig.have(1, 2)
    lease = rig.ask(AcquireExecutor())
    rig.driver.take_all()
    rig.ask(RemoveExecutor(1, "uid-1", GONE))
    removed, lost = rig.driver.take_all()
    assert isinstance(removed, ExecutorRemoved)
    assert lost == LeaseLost(lease, 1, GONE)
    assert rig.target() == 2
    assert not rig.ask(ReleaseExecutor(lease))
    assert not rig.ask(RenewLease(lease))


def test_a_leased_executor_that_terminates_is_replaced_and_keeps_its_reason(kit: Kit) -> None:
    rig = Leases(kit)
    rig.have(1, 2)
    lease = rig.ask(AcquireExecutor())
    rig.ask(KillExecutors((1,), adjust_target=True))
    assert rig.target() == 2, "the lease does not count any more, and the kill lowers no target that follows leases"
    rig.sent()
    assert rig.ask(ReleaseExecutor(lease))
    assert rig.ended() == []


def test_a_lease_expires_unless_it_is_renewed_and_its_executor_is_ended(kit: Kit) -> None:
    rig = Leases(kit)
    rig.have(1, 2)
    lease = rig.ask(AcquireExecutor(ttl=5 * SECOND, holder="task 7"))
    kit.advance(4 * SECOND)
    assert rig.ask(RenewLease(lease, 5 * SECOND))
    kit.advance(4 * SECOND)
    assert rig.driver.take_all(LeaseExpired) == []
    kit.advance(1 * SECOND)
    assert rig.driver.take_all(LeaseExpired) == [LeaseExpired(lease, 1)]
    assert rig.ended() == [(1, "was ended, as its lease had expired")]
    endless = rig.ask(AcquireExecutor(ttl=5 * SECOND))
    assert rig.ask(RenewLease(endless))
    kit.advance(3600 * SECOND)
    assert rig.ask(ReleaseExecutor(endless))


def test_who_waits_too_long_is_told_what_holds_it_up(kit: Kit) -> None:
    rig = Leases(kit, warm=1, max_executors=1)
    rig.have(1)
    rig.ask(AcquireExecutor())
    lease = rig.ask(AcquireExecutor(timeout=3 * SECOND))
    assert rig.target() == 1
    kit.advance(3 * SECOND)
    waited = "no executor of profile 'default' was ready in time"
    refused = AcquireRefused(lease, f"{waited}: all 1 are leased (max_executors)", timed_out=True)
    assert rig.driver.take_all(AcquireRefused) == [refused]
    rig.ask(AllocatorStatus({"default": ProfileStatus(blocked="exceeded quota")}))
    lease = rig.ask(AcquireExecutor(timeout=timedelta()))
    kit.advance(timedelta())
    refused = AcquireRefused(lease, f"{waited}: exceeded quota", timed_out=True)
    assert rig.driver.take_all(AcquireRefused) == [refused]


def test_a_fleet_that_failed_or_stops_refuses_whoever_waits(kit: Kit) -> None:
    rig = Leases(kit, warm=1)
    lease = rig.ask(AcquireExecutor())
    rig.ask(AllocatorStatus({}, StartFailureRecord(failed="too many failed")))
    assert rig.driver.take_all(AcquireRefused) == [AcquireRefused(lease, "too many failed")]
    with pytest.raises(Refused, match="AcquireExecutor: too many failed"):
        rig.ask(AcquireExecutor())
    rig.ask(SetWarm(1))
    assert rig.sent()[-1] == SetTotalExpectedExecutors({"default": 1}, forgiven=1)
    rig.ask(AllocatorStatus({}, StartFailureRecord(forgiven=1)))
    lease = rig.ask(AcquireExecutor())
    rig.inside.leasing.end()
    kit.settle()
    assert rig.driver.take_all(AcquireRefused) == [AcquireRefused(lease, "the fleet stops")]
    with pytest.raises(Refused, match="AcquireExecutor: the fleet stops"):
        rig.ask(AcquireExecutor())


def test_only_what_is_registered_is_leased_if_the_profile_says_so(kit: Kit) -> None:
    rig = Leases(kit, ready="registered")
    rig.have(1, 2)
    rig.ask(AcquireExecutor())
    assert rig.acquired() == []
    rig.ask(RegisterExecutor(2))
    assert rig.acquired() == [(1, 2)]


@pytest.mark.parametrize("end", [ExecutorDisconnected(1), DecommissionExecutors((1,)), RetireExecutors((1,))], ids=repr)
def test_what_is_not_ready_any_more_is_not_leased(kit: Kit, end: object) -> None:
    rig = Leases(kit)
    rig.have(1, 2)
    rig.ask(end)
    rig.ask(AcquireExecutor())
    rig.ask(AcquireExecutor())
    assert rig.acquired() == [(1, 2)]


def test_executors_of_earlier_drivers_are_ended_once_this_one_writes(kit: Kit) -> None:
    rig = Leases(kit)
    rig.ask(ExecutorSeen(8, "uid-8", PodRunning(running(8))))
    rig.ask(ExecutorsObserved({8: PodRunning(running(8))}))
    assert rig.ended() == []
    rig.ask(TakenOver(0))
    assert rig.ended() == [(8, "was ended, as an earlier driver may have leased it")]
    rig.ask(AcquireExecutor())
    assert rig.acquired() == []


def test_idle_executors_that_nobody_needed_for_a_while_end(kit: Kit) -> None:
    rig = Leases(kit, warm=3)
    rig.have(1, 2, 3)
    rig.ask(SetWarm({"default": 1}))
    assert rig.target() == 1
    kit.advance(59 * SECOND)
    assert rig.ended() == []
    rig.ask(ReleaseExecutor(rig.ask(AcquireExecutor()), reuse=True))
    kit.advance(1 * SECOND)
    assert rig.ended() == [(1, "was scaled down to a lower target")], "it was in excess all the time; so was only it"
    kit.advance(60 * SECOND)
    assert [executor_id for executor_id, _ in rig.ended()] == [3]


def test_a_new_target_of_other_profiles_leaves_that_which_follows_leases(kit: Kit) -> None:
    rig = Leases(kit)
    rig.have(1, 2)
    rig.ask(AcquireExecutor())
    rig.ask(RequestTotalExecutors({}))
    assert rig.target() == 3


def test_more_warm_executors_than_are_allowed_are_refused(kit: Kit) -> None:
    rig = Leases(kit, max_executors=4)
    with pytest.raises(Refused, match=r"SetWarm.warm = 5: must be at most max_executors of profile 'default' \(4\)"):
        rig.ask(SetWarm(5))


def test_a_thousand_wait_for_ten_executors_and_each_is_served_in_its_turn(kit: Kit) -> None:
    rig = Leases(kit, warm=10, max_executors=10, max_leases=1000)
    rig.have(*range(1, 11))
    leases = [rig.ask(AcquireExecutor()) for _ in range(1000)]
    assert rig.target() == 10
    served: list[int] = []
    while held := [lease for lease, _ in rig.acquired()]:
        served += held
        for lease in held:
            rig.ask(ReleaseExecutor(lease, reuse=True))
    assert served == leases
    assert rig.driver.take_all(ExecutorTerminating) == []
