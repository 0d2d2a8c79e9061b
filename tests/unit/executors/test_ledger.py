"""The ledger: what each event changes in it, and what the driver is notified of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from actors.executors.ledger import Ledger
from actors.messages import ExecutorPending, ExecutorRemoved, ExecutorRunning, ExecutorTerminating, ToDriver
from actors.messages.internal import ExecutorKilled
from actors.pods.loss import LossKind, LossReason
from actors.pods.state import PodPending, PodRunning, PodState, PodTerminating, PodUnknown
from actors.pods.stuck import StuckKind
from tests.unit.views import going, pending, running

if TYPE_CHECKING:
    from actors.messages import Suspected
    from actors.pods.pod import Pod

AT = datetime(2024, 1, 1, tzinfo=UTC)
GONE = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="it exited")


def kill(executor_id: int, delete_at: float = 0.0) -> ExecutorKilled:
    return ExecutorKilled(executor_id, AT, delete_at)


def requested(*executor_ids: int) -> Ledger:
    return Ledger().requested(executor_ids, "default", AT)


def seen(ledger: Ledger, *states: PodState) -> tuple[Ledger, list[ToDriver | None]]:
    messages: list[ToDriver | None] = []
    for state in states:
        number = int(state.pod.labels["executor-pods/executor-id"])
        ledger, message, ours = ledger.seen(number, state, 1.0, AT)
        assert ours, f"{state} was taken for a stranger's"
        messages.append(message)
    return ledger, messages


def removed(ledger: Ledger, executor_id: int, uid: str | None = None) -> tuple[Ledger, tuple[ToDriver, ...]]:
    return ledger.removed(executor_id, uid or f"uid-{executor_id}", GONE, 2.0, AT, pod=running(executor_id))


def kinds(messages: list[ToDriver | None]) -> list[type[ToDriver] | None]:
    return [None if message is None else type(message) for message in messages]


def test_the_driver_is_notified_of_pending_running_and_terminating_once_each() -> None:
    alive: Pod = running(1)
    states = [PodPending(pending(1)), PodPending(pending(1)), PodRunning(alive), PodRunning(alive)]
    _, messages = seen(requested(1), *states, PodTerminating(going(alive)), PodTerminating(going(alive)))
    assert kinds(messages) == [ExecutorPending, None, ExecutorRunning, None, ExecutorTerminating, None]


def test_the_driver_is_notified_when_a_terminating_executor_will_be_gone() -> None:
    leaving = going(running(1))
    _, messages = seen(requested(1), PodRunning(running(1)), PodTerminating(leaving))
    message = messages[-1]
    assert isinstance(message, ExecutorTerminating)
    assert message.deadline == leaving.metadata.deletion_timestamp


def test_an_unknown_phase_is_not_reported() -> None:
    _, messages = seen(requested(1), PodUnknown(running(1)))
    assert kinds(messages) == [None]


def test_a_pending_state_after_a_running_one_is_not_reported() -> None:
    _, messages = seen(requested(1), PodRunning(running(1)), PodPending(pending(1)))
    assert kinds(messages) == [ExecutorRunning, None]


def test_an_end_is_reported_once_however_often_it_is_repeated() -> None:
    ledger, _ = seen(requested(1), PodRunning(running(1)))
    ledger, first = removed(ledger, 1)
    ledger, second = removed(ledger, 1)
    assert (first, second) == ((ExecutorRemoved(1, GONE, node="node"),), ())
    assert not ledger.is_active(1)


def test_an_executor_that_was_never_observed_alive_is_reported_before_its_end() -> None:
    _, messages = removed(requested(1), 1)
    assert messages == (ExecutorPending(1, running(1)), ExecutorRemoved(1, GONE, node="node"))


def test_the_end_of_another_pod_of_the_same_id_is_not_reported() -> None:
    ledger, _ = seen(requested(1), PodRunning(running(1)))
    _, messages = removed(ledger, 1, uid="another")
    assert messages == ()


def test_nothing_is_reported_of_an_executor_after_its_end_and_it_is_no_longer_ours() -> None:
    ledger, _ = removed(seen(requested(1), PodPending(pending(1)))[0], 1)
    _, message, ours = ledger.seen(1, PodRunning(running(1)), 3.0, AT)
    assert (message, ours) == (None, False)


def test_another_pod_with_the_id_of_an_ended_executor_is_not_ours() -> None:
    ledger, _ = removed(seen(requested(1), PodRunning(running(1)))[0], 1)
    _, message, ours = ledger.seen(1, PodRunning(running(1, uid="late")), 3.0, AT)
    assert (message, ours) == (None, False)


def test_an_executor_of_a_previous_driver_is_adopted_and_its_id_is_not_used_again() -> None:
    ledger, messages = seen(Ledger(), PodRunning(running(7)))
    assert kinds(messages) == [ExecutorRunning]
    assert ledger.next_id == 8


def test_an_executor_that_ended_before_this_driver_is_not_reported_but_its_id_is_not_used_again() -> None:
    ledger, messages = removed(Ledger(), 7)
    assert (messages, ledger.next_id) == ((), 8)


def test_a_terminating_executor_of_a_previous_driver_is_reported_only_at_its_end() -> None:
    ledger, messages = seen(Ledger(), PodTerminating(going(running(7))))
    assert kinds(messages) == [None]
    assert kinds([*removed(ledger, 7)[1]]) == [ExecutorPending, ExecutorRemoved]


def test_an_allocated_id_that_was_forgotten_is_no_longer_ours() -> None:
    ledger, _ = removed(requested(5, 6), 5)
    _, _, ours = ledger.forgotten(before=9.0).seen(5, PodRunning(running(5)), 9.0, AT)
    assert not ours


def test_an_id_below_the_first_of_this_driver_is_a_previous_drivers() -> None:
    _, messages = seen(requested(5), PodRunning(running(4)))
    assert kinds(messages) == [ExecutorRunning]


def test_an_id_that_is_requested_twice_keeps_what_is_known_of_it() -> None:
    ledger, _ = seen(requested(1), PodRunning(running(1)))
    assert ledger.requested((1, 2), "default", AT).is_active(1)


def test_an_executor_abandoned_before_it_was_observed_is_not_reported() -> None:
    ledger, messages = requested(1).abandoned(1, "no pod was seen", 2.0, AT)
    assert messages == ()
    _, message, ours = ledger.seen(1, PodRunning(running(1)), 3.0, AT)
    assert (message, ours) == (None, False)
    assert removed(ledger, 1)[1] == ()


def test_an_executor_abandoned_after_the_driver_registered_it_is_reported_as_never_started() -> None:
    ledger = requested(1).registered(1, 1.0)
    assert ledger is not None
    _, (message,) = ledger.abandoned(1, "no pod was seen", 2.0, AT)
    assert isinstance(message, ExecutorRemoved)
    assert (message.reason.kind, "no pod was seen" in message.reason.message) == (LossKind.NEVER_STARTED, True)


def test_an_executor_that_the_allocator_gives_up_while_it_runs_was_scaled_down() -> None:
    """The LifecycleManager has seen it already, the Allocator has not."""
    ledger, _ = seen(requested(1), PodRunning(running(1)))
    _, (message,) = ledger.abandoned(1, "it is no longer desired", 2.0, AT)
    assert isinstance(message, ExecutorRemoved)
    assert message.reason.kind is LossKind.KILLED_BY_DRIVER
    assert message.reason.message == "executor 1 was scaled down to a lower target"


def test_an_executor_killed_before_it_was_observed_is_reported_as_killed_by_the_driver() -> None:
    done = requested(1).killed(kill(1, 1.0), 1.0)
    _, (message,) = done[0].abandoned(1, "it was deleted before it was created", 2.0, AT)
    assert isinstance(message, ExecutorRemoved)
    assert message.reason.kind is LossKind.KILLED_BY_DRIVER


def test_an_executor_that_registers_before_it_is_observed_is_reported_like_any_other() -> None:
    ledger = requested(1).registered(1, 1.0)
    assert ledger is not None
    _, messages = seen(ledger, PodPending(pending(1)), PodRunning(running(1)))
    assert kinds(messages) == [ExecutorPending, ExecutorRunning]
    assert kinds(list(removed(ledger, 1)[1])) == [ExecutorPending, ExecutorRemoved]


def test_a_kill_is_announced_once() -> None:
    ledger, _ = seen(requested(1), PodRunning(running(1)))
    first = ledger.killed(kill(1, 1.0), 1.0)
    second = first[0].killed(kill(1, 1.0), 1.0)
    assert kinds([first[2], second[2]]) == [ExecutorTerminating, None]


def test_a_killed_executor_is_not_announced_again_when_its_deletion_begins() -> None:
    done = seen(requested(1), PodRunning(running(1)))[0].killed(kill(1, 1.0), 1.0)
    _, messages = seen(done[0], PodTerminating(going(running(1))))
    assert messages == [None]


def test_no_executor_can_register_that_is_unknown_or_ended() -> None:
    ledger, _ = removed(requested(1), 1)
    assert [ledger.registered(executor_id, 3.0) for executor_id in (1, 2)] == [None, None]
    assert [ledger.disconnected(executor_id, 3.0) for executor_id in (1, 2)] == [None, None]


def test_one_that_disconnects_is_inactive_until_it_registers_again() -> None:
    ledger = requested(1).registered(1, 1.0)
    assert ledger is not None
    assert (ledger.is_active(1), ledger.registered_count()) == (True, 1)
    away = ledger.disconnected(1, 3.0)
    assert away is not None
    assert (away.is_active(1), away.registered_count()) == (False, 0)
    back = away.registered(1, 2.0)
    assert back is not None
    assert (back.is_active(1), back.registered_count()) == (True, 1)


def test_what_the_driver_suspects_last_is_kept_until_the_executor_is_back() -> None:
    ledger = requested(1)
    told: list[tuple[Suspected | None, str | None]] = [
        (None, None),
        ("network", "network"),
        ("hang", "hang"),
        (None, "hang"),
    ]
    for suspected, kept in told:
        ledger = ledger.disconnected(1, 3.0, suspected) or ledger
        assert ledger.entries[1].suspected == kept
    back = ledger.registered(1, 4.0)
    assert back is not None
    assert back.entries[1].suspected is None


def test_a_killed_one_is_inactive_but_still_present() -> None:
    done = seen(requested(1), PodRunning(running(1)))[0].killed(kill(1, 1.0), 1.0)
    assert not done[0].is_active(1)
    assert [entry.executor_id for entry in done[0].present()] == [1]


def test_executors_are_present_from_the_drivers_notification_to_their_end() -> None:
    ledger, _ = seen(requested(1, 2, 3), PodRunning(running(3)), PodRunning(running(2)))
    ledger, _ = removed(ledger, 2)
    assert [entry.executor_id for entry in ledger.present()] == [3]


def test_executors_that_ended_long_ago_are_forgotten_but_their_ids_are_not_used_again() -> None:
    ledger, _ = removed(requested(1, 2), 2)
    assert ledger.forgotten(before=2.0) is ledger
    forgotten = ledger.forgotten(before=2.1)
    assert (sorted(forgotten.entries), forgotten.next_id) == ([1], 3)


def test_a_previous_drivers_executors_are_kept_because_their_pods_may_still_be_observed() -> None:
    ledger, _ = removed(seen(Ledger(), PodRunning(running(5)))[0], 5)
    ledger = ledger.requested((6,), "default", AT)
    ledger, _ = removed(ledger, 6)
    assert sorted(ledger.forgotten(before=9.0).entries) == [5]


def test_ended_executors_of_another_driver_are_listed_and_those_of_a_previous_one_are_not() -> None:
    observer, _ = seen(Ledger(), PodRunning(running(5)), PodRunning(running(7)))
    observer, _ = removed(observer, 5)
    assert observer.others_ended(2.0) == frozenset(), "its time is not over"
    assert observer.others_ended(2.1) == {5}
    assert sorted(observer.without({5, 6}).entries) == [7]
    owner = observer.begun()
    assert owner.others_ended(2.1) == frozenset(), "it writes, and has requested none: this one was there before"
    assert not owner.allocated(5)
    assert not owner.allocated(8)
    assert owner.begun() is owner
    owner, _ = removed(seen(owner, PodRunning(running(8)))[0], 8)
    assert owner.others_ended(2.1) == {8}
    writer = observer.requested((8,), "default", AT)
    writer, _ = removed(seen(writer, PodRunning(running(9)))[0], 9)
    assert writer.others_ended(2.1) == {9}, "another driver wrote in our place"


def test_an_executor_runs_since_it_is_observed_and_an_adopted_one_since_its_pod_was_started() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    observed = msgspec.structs.replace(running(1), start_time=start)
    for ledger, at, running_at in (
        (requested(1), start + timedelta(seconds=60), 100.0),
        (Ledger(), start + timedelta(seconds=60), 40.0),
        (Ledger(), start - timedelta(seconds=60), 100.0),
    ):
        ran, _, _ = ledger.seen(1, PodRunning(observed), 100.0, at)
        later, _, _ = ran.seen(1, PodRunning(observed), 200.0, at)
        assert later.entries[1].running_at == running_at


def test_being_stuck_is_reported_once_per_cause() -> None:
    ledger = seen(requested(1), PodPending(pending(1)))[0].stuck(1, "uid-1", StuckKind.IMAGE)
    assert ledger is not None
    assert ledger.stuck(1, "uid-1", StuckKind.IMAGE) is None
    assert ledger.stuck(1, "another", StuckKind.CONFIG) is None
    assert ledger.stuck(2, "uid-2", StuckKind.IMAGE) is None
    assert ledger.stuck(1, "uid-1", StuckKind.CONFIG) is not None
    assert removed(ledger, 1)[0].stuck(1, "uid-1", StuckKind.CONFIG) is None


def test_pods_created_are_counted_without_those_that_were_refused() -> None:
    ledger = requested(1, 2, 3).requested((3,), "default", AT)
    assert ledger.created == 3
    ledger, _ = ledger.abandoned(1, "the quota is full", 1.0, AT, created=False)
    ledger, _ = ledger.abandoned(2, "it was not observed", 1.0, AT)
    assert ledger.created == 2


def test_an_executor_is_excluded_when_it_is_abandoned_or_has_ended_or_is_unknown() -> None:
    ledger, _ = removed(requested(1, 2, 3), 1)
    ledger, _ = ledger.abandoned(2, "it was not observed", 1.0, AT)
    assert [ledger.is_excluded(executor_id) for executor_id in (1, 2, 3, 4)] == [True, True, False, True]


def test_a_decommissioned_executor_is_recorded() -> None:
    assert requested(1, 2).decommissioned(2).entries[2].decommissioned


def test_lost_connections_are_counted_and_the_first_of_them_says_since_when() -> None:
    ledger: Ledger | None = requested(1)
    for now in (1.0, 2.0):
        assert ledger is not None
        ledger = ledger.disconnected(1, now)
    assert ledger is not None
    assert (ledger.entries[1].disconnected_at, ledger.entries[1].disconnects) == (1.0, 2)
    back = ledger.registered(1, 3.0)
    assert back is not None
    assert (back.entries[1].disconnected_at, back.entries[1].disconnects) == (None, 2)


def test_the_registered_count_equals_a_count_over_the_whole_ledger() -> None:
    ledger = requested(1, 2, 3).requested((4, 5), "big", AT)
    for executor_id in (1, 2, 3, 4, 5, 4):
        ledger = ledger.registered(executor_id, 1.0) or ledger
    assert (ledger.registered_count(), ledger.registered_count("big"), ledger.registered_count("none")) == (3, 2, 0)
    ledger, _ = removed(ledger, 1)
    ledger, _ = removed(ledger, 1)
    ledger, _ = ledger.abandoned(2, "it was not observed", 2.0, AT)
    ledger = ledger.disconnected(4, 2.0) or ledger
    ledger = ledger.disconnected(4, 3.0) or ledger
    assert (ledger.registered_count(), ledger.registered_count("big")) == (1, 1)
    ledger, _ = removed(ledger, 4)
    assert ledger.forgotten(9.0).registered_count("big") == 1


def test_a_kill_is_announced_with_its_own_message() -> None:
    rolled = ExecutorKilled(1, datetime(2024, 1, 1, tzinfo=UTC), 0.0, "was rolled")
    done = requested(1).killed(rolled, 1.0)
    assert isinstance(done[2], ExecutorTerminating)
    assert done[2].reason == "executor 1 was rolled"


def test_of_two_kills_the_first_counts() -> None:
    first = requested(1).killed(kill(1, 6.0), 1.0)
    again = first[0].killed(kill(1, 9.0), 2.0)
    assert again[0].entries[1].killed == kill(1, 6.0)


def test_to_count_the_registered_the_ledger_is_not_iterated() -> None:
    ledger = requested(1).registered(1, 1.0)
    assert ledger is not None
    unreadable: Any = None
    assert msgspec.structs.replace(ledger, entries=unreadable).registered_count() == 1


def test_ids_resume_from_what_another_driver_allocated_and_never_go_back() -> None:
    ledger = requested(1, 2).resumed_from(7)
    assert ledger.next_id == 8
    assert ledger.resumed_from(3).next_id == 8
    assert not ledger.allocated(7), "another driver allocated it"
