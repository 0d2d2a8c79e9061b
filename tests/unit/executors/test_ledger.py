"""The Backend's book: what each event means for it, and what the driver hears."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from actors.executors.ledger import Ledger
from actors.messages import (
    ExecutorKilled,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    ToDriver,
)
from actors.pods.loss import LossKind, LossReason
from actors.pods.state import PodPending, PodRunning, PodState, PodTerminating, PodUnknown
from actors.pods.stuck import StuckKind
from tests.unit.views import going, pending, running

if TYPE_CHECKING:
    from actors.pods.pod import Pod

GONE = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="it exited")


def kill(executor_id: int, delete_at: float = 0.0) -> ExecutorKilled:
    return ExecutorKilled(executor_id, datetime(2024, 1, 1, tzinfo=UTC), delete_at)


def requested(*executor_ids: int) -> Ledger:
    return Ledger().requested(executor_ids, "default")


def seen(book: Ledger, *states: PodState) -> tuple[Ledger, list[ToDriver | None]]:
    told: list[ToDriver | None] = []
    for state in states:
        number = int(state.pod.labels["executor-pods/executor-id"])
        book, words, ours = book.seen(number, state, 1.0)
        assert ours, f"{state} was taken for a stranger's"
        told.append(words)
    return book, told


def removed(book: Ledger, executor_id: int, uid: str | None = None) -> tuple[Ledger, ExecutorRemoved | None]:
    return book.removed(executor_id, uid or f"uid-{executor_id}", GONE, 2.0)


def kinds(told: list[ToDriver | None]) -> list[type[ToDriver] | None]:
    return [None if words is None else type(words) for words in told]


def test_the_driver_hears_of_pending_running_and_terminating_once_each() -> None:
    alive: Pod = running(1)
    states = [PodPending(pending(1)), PodPending(pending(1)), PodRunning(alive), PodRunning(alive)]
    _, told = seen(requested(1), *states, PodTerminating(going(alive)), PodTerminating(going(alive)))
    assert kinds(told) == [ExecutorPending, None, ExecutorRunning, None, ExecutorTerminating, None]


def test_the_driver_hears_by_when_one_that_terminates_will_be_gone() -> None:
    leaving = going(running(1))
    _, told = seen(requested(1), PodRunning(running(1)), PodTerminating(leaving))
    words = told[-1]
    assert isinstance(words, ExecutorTerminating)
    assert words.deadline == leaving.metadata.deletion_timestamp


def test_an_unknown_phase_is_no_news() -> None:
    _, told = seen(requested(1), PodUnknown(running(1)))
    assert kinds(told) == [None]


def test_one_that_was_pending_after_it_ran_is_no_news() -> None:
    _, told = seen(requested(1), PodRunning(running(1)), PodPending(pending(1)))
    assert kinds(told) == [ExecutorRunning, None]


def test_an_end_is_told_once_whoever_repeats_it() -> None:
    book, _ = seen(requested(1), PodRunning(running(1)))
    book, first = removed(book, 1)
    book, second = removed(book, 1)
    assert (first, second) == (ExecutorRemoved(1, GONE), None)
    assert not book.is_active(1)


def test_the_end_of_one_that_nobody_saw_alive_is_told() -> None:
    _, told = removed(requested(1), 1)
    assert told == ExecutorRemoved(1, GONE)


def test_the_end_of_another_pod_of_that_id_is_not_told() -> None:
    book, _ = seen(requested(1), PodRunning(running(1)))
    _, told = removed(book, 1, uid="another")
    assert told is None


def test_nothing_is_told_of_one_after_its_end_and_it_is_not_ours_any_more() -> None:
    book, _ = removed(seen(requested(1), PodPending(pending(1)))[0], 1)
    _, words, ours = book.seen(1, PodRunning(running(1)), 3.0)
    assert (words, ours) == (None, False)


def test_another_pod_under_the_id_of_one_that_ended_is_not_ours() -> None:
    book, _ = removed(seen(requested(1), PodRunning(running(1)))[0], 1)
    _, words, ours = book.seen(1, PodRunning(running(1, uid="late")), 3.0)
    assert (words, ours) == (None, False)


def test_one_of_an_earlier_life_is_taken_over_and_its_id_is_not_used_again() -> None:
    book, told = seen(Ledger(), PodRunning(running(7)))
    assert kinds(told) == [ExecutorRunning]
    assert book.next_id == 8


def test_the_end_of_one_that_ended_in_an_earlier_life_is_not_told_but_its_id_is_not_used_again() -> None:
    book, told = removed(Ledger(), 7)
    assert (told, book.next_id) == (None, 8)


def test_one_of_an_earlier_life_that_is_about_to_go_is_not_announced_but_its_end_is_told() -> None:
    book, told = seen(Ledger(), PodTerminating(going(running(7))))
    assert kinds(told) == [None]
    assert removed(book, 7)[1] == ExecutorRemoved(7, GONE)


def test_an_id_that_was_given_out_and_forgotten_is_not_ours_any_more() -> None:
    book, _ = removed(requested(5, 6), 5)
    _, _, ours = book.forgotten(before=9.0).seen(5, PodRunning(running(5)), 9.0)
    assert not ours


def test_an_id_below_the_first_one_of_this_life_is_an_earlier_lifes() -> None:
    _, told = seen(requested(5), PodRunning(running(4)))
    assert kinds(told) == [ExecutorRunning]


def test_an_id_that_is_requested_twice_keeps_what_is_known_of_it() -> None:
    book, _ = seen(requested(1), PodRunning(running(1)))
    assert book.requested((1, 2), "default").is_active(1)


def test_one_that_is_given_up_unseen_is_none_of_the_drivers_business() -> None:
    book, told = requested(1).abandoned(1, "no pod was seen", 2.0)
    assert told is None
    _, words, ours = book.seen(1, PodRunning(running(1)), 3.0)
    assert (words, ours) == (None, False)
    assert removed(book, 1)[1] is None


def test_one_that_is_given_up_after_the_driver_heard_of_it_is_told_as_never_started() -> None:
    book = requested(1).registered(1, 1.0)
    assert book is not None
    _, told = book.abandoned(1, "no pod was seen", 2.0)
    assert told is not None
    assert (told.reason.kind, "no pod was seen" in told.reason.message) == (LossKind.NEVER_STARTED, True)


def test_one_that_is_killed_before_it_came_up_is_told_as_killed_by_the_driver() -> None:
    done = requested(1).killed(kill(1, 1.0), 1.0)
    assert done is not None
    _, told = done[0].abandoned(1, "it was deleted before it was created", 2.0)
    assert told is not None
    assert told.reason.kind is LossKind.KILLED_BY_DRIVER


def test_a_kill_is_announced_once() -> None:
    book, _ = seen(requested(1), PodRunning(running(1)))
    first = book.killed(kill(1, 1.0), 1.0)
    assert first is not None
    second = first[0].killed(kill(1, 1.0), 1.0)
    assert second is not None
    assert kinds([first[2], second[2]]) == [ExecutorTerminating, None]


def test_a_killed_one_is_not_announced_again_when_its_deletion_begins() -> None:
    done = seen(requested(1), PodRunning(running(1)))[0].killed(kill(1, 1.0), 1.0)
    assert done is not None
    _, told = seen(done[0], PodTerminating(going(running(1))))
    assert told == [None]


def test_nobody_can_be_killed_who_is_unknown_or_has_ended_or_was_given_up() -> None:
    book, _ = removed(requested(1, 2), 1)
    book, _ = book.abandoned(2, "unseen", 1.0)
    assert [book.killed(kill(executor_id, 3.0), 3.0) for executor_id in (1, 2, 3)] == [None, None, None]


def test_nobody_can_register_who_is_unknown_or_has_ended() -> None:
    book, _ = removed(requested(1), 1)
    assert [book.registered(executor_id, 3.0) for executor_id in (1, 2)] == [None, None]
    assert [book.disconnected(executor_id, 3.0) for executor_id in (1, 2)] == [None, None]


def test_one_that_disconnects_is_inactive_until_it_registers_again() -> None:
    book = requested(1).registered(1, 1.0)
    assert book is not None
    assert (book.is_active(1), book.registered_count()) == (True, 1)
    away = book.disconnected(1, 3.0)
    assert away is not None
    assert (away.is_active(1), away.registered_count()) == (False, 0)
    back = away.registered(1, 2.0)
    assert back is not None
    assert (back.is_active(1), back.registered_count()) == (True, 1)


def test_a_killed_one_is_inactive_but_still_present() -> None:
    done = seen(requested(1), PodRunning(running(1)))[0].killed(kill(1, 1.0), 1.0)
    assert done is not None
    assert not done[0].is_active(1)
    assert [entry.executor_id for entry in done[0].present()] == [1]


def test_those_are_present_that_the_driver_was_told_of_and_that_have_not_ended() -> None:
    book, _ = seen(requested(1, 2, 3), PodRunning(running(3)), PodRunning(running(2)))
    book, _ = removed(book, 2)
    assert [entry.executor_id for entry in book.present()] == [3]


def test_those_that_ended_long_ago_are_forgotten_but_their_ids_are_not_used_again() -> None:
    book, _ = removed(requested(1, 2), 2)
    assert book.forgotten(before=2.0) is book
    forgotten = book.forgotten(before=2.1)
    assert (sorted(forgotten.entries), forgotten.next_id) == ([1], 3)


def test_an_earlier_lifes_are_remembered_lest_one_still_shown_is_taken_for_new() -> None:
    book, _ = removed(seen(Ledger(), PodRunning(running(5)))[0], 5)
    book = book.requested((6,), "default")
    book, _ = removed(book, 6)
    assert sorted(book.forgotten(before=9.0).entries) == [5]


def test_those_of_another_driver_are_asked_after_and_those_of_an_earlier_life_are_not() -> None:
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
    writer = observer.requested((8,), "default")
    writer, _ = removed(seen(writer, PodRunning(running(9)))[0], 9)
    assert writer.others_ended(2.1) == {9}, "another driver wrote in our place"


def test_one_runs_since_it_is_shown_running_and_one_taken_over_since_its_pod_was_started() -> None:
    shown = running(1)
    assert shown.status is not None
    start = datetime(2024, 1, 1, tzinfo=UTC)
    shown = msgspec.structs.replace(shown, status=msgspec.structs.replace(shown.status, start_time=start))
    for book, at, running_at in (
        (requested(1), start + timedelta(seconds=60), 100.0),
        (Ledger(), start + timedelta(seconds=60), 40.0),
        (Ledger(), start - timedelta(seconds=60), 100.0),
    ):
        ran, _, _ = book.seen(1, PodRunning(shown), 100.0, at)
        later, _, _ = ran.seen(1, PodRunning(shown), 200.0, at)
        assert later.entries[1].running_at == running_at


def test_what_keeps_one_from_running_is_told_once_a_kind() -> None:
    book = seen(requested(1), PodPending(pending(1)))[0].stuck(1, "uid-1", StuckKind.IMAGE)
    assert book is not None
    assert book.stuck(1, "uid-1", StuckKind.IMAGE) is None
    assert book.stuck(1, "another", StuckKind.CONFIG) is None
    assert book.stuck(2, "uid-2", StuckKind.IMAGE) is None
    assert book.stuck(1, "uid-1", StuckKind.CONFIG) is not None
    assert removed(book, 1)[0].stuck(1, "uid-1", StuckKind.CONFIG) is None


def test_pods_created_are_counted_without_those_that_were_refused() -> None:
    book = requested(1, 2, 3).requested((3,), "default")
    assert book.created == 3
    book, _ = book.abandoned(1, "the quota is full", 1.0, created=False)
    book, _ = book.abandoned(2, "nobody saw it", 1.0)
    assert book.created == 2


def test_an_executor_is_excluded_when_it_is_given_up_or_has_ended_or_is_unknown() -> None:
    book, _ = removed(requested(1, 2, 3), 1)
    book, _ = book.abandoned(2, "nobody saw it", 1.0)
    assert [book.is_excluded(executor_id) for executor_id in (1, 2, 3, 4)] == [True, True, False, True]


def test_only_one_that_lives_can_be_decommissioned() -> None:
    book, _ = removed(requested(1, 2), 1)
    assert [book.decommissioned(executor_id) for executor_id in (1, 3)] == [None, None]
    done = book.decommissioned(2)
    assert done is not None
    assert done.entries[2].decommissioned


def test_lost_connections_are_counted_and_the_first_of_them_says_since_when() -> None:
    book: Ledger | None = requested(1)
    for now in (1.0, 2.0):
        assert book is not None
        book = book.disconnected(1, now)
    assert book is not None
    assert (book.entries[1].disconnected_at, book.entries[1].disconnects) == (1.0, 2)
    back = book.registered(1, 3.0)
    assert back is not None
    assert (back.entries[1].disconnected_at, back.entries[1].disconnects) == (None, 2)


def test_the_registered_are_counted_as_a_count_of_the_whole_book_would() -> None:
    book = requested(1, 2, 3).requested((4, 5), "big")
    for executor_id in (1, 2, 3, 4, 5, 4):
        book = book.registered(executor_id, 1.0) or book
    assert (book.registered_count(), book.registered_count("big"), book.registered_count("none")) == (3, 2, 0)
    book, _ = removed(book, 1)
    book, _ = removed(book, 1)
    book, _ = book.abandoned(2, "nobody saw it", 2.0)
    book = book.disconnected(4, 2.0) or book
    book = book.disconnected(4, 3.0) or book
    assert (book.registered_count(), book.registered_count("big")) == (1, 1)
    book, _ = removed(book, 4)
    assert book.forgotten(9.0).registered_count("big") == 1


def test_a_kill_is_announced_in_the_words_of_who_asked_for_it() -> None:
    rolled = ExecutorKilled(1, datetime(2024, 1, 1, tzinfo=UTC), 0.0, "was rolled")
    done = requested(1).killed(rolled, 1.0)
    assert done is not None
    assert isinstance(done[2], ExecutorTerminating)
    assert done[2].reason == "executor 1 was rolled"


def test_of_two_kills_the_first_stands() -> None:
    first = requested(1).killed(kill(1, 6.0), 1.0)
    assert first is not None
    again = first[0].killed(kill(1, 9.0), 2.0)
    assert again is not None
    assert again[0].entries[1].killed == kill(1, 6.0)


def test_to_count_the_registered_the_book_is_not_walked() -> None:
    book = requested(1).registered(1, 1.0)
    assert book is not None
    unreadable: Any = None
    assert replace(book, entries=unreadable).registered_count() == 1


def test_ids_count_on_from_what_another_life_gave_out_and_never_back() -> None:
    book = requested(1, 2).resumed_from(7)
    assert book.next_id == 8
    assert book.resumed_from(3).next_id == 8
    assert not book.allocated(7), "it is none of this life's"
