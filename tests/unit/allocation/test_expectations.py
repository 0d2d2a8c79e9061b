"""The executors that count though no snapshot shows them: counts, the order of answers, and ends to be decided on."""

from __future__ import annotations

from actors.allocation.expectations import Expectations, Undecided


def three() -> Expectations:
    book = Expectations()
    for executor_id, profile in ((1, "a"), (2, "a"), (3, "b")):
        book.add(executor_id, profile, 0.0)
    return book


def test_counts_follow_added_and_removed_expectations() -> None:
    book = three()
    assert (len(book), book.count("a"), book.count("b"), book.count("c")) == (3, 2, 1, 0)
    assert book.remove(3).profile == "b"
    assert (len(book), book.count("b"), book.profiles()) == (2, 0, frozenset("a"))


def test_those_answered_by_a_moment_come_in_the_order_of_their_answers() -> None:
    book = three()
    book.answered(2, 1.0, None)
    book.answered(1, 2.0, None)
    assert list(book.answered_by(0.9)) == []
    assert list(book.answered_by(1.0)) == [(2, 1.0)]
    assert list(book.answered_by(9.0)) == [(2, 1.0), (1, 2.0)]
    book.remove(2)
    assert list(book.answered_by(9.0)) == [(1, 2.0)]
    assert book[1].answered_at == 2.0


def test_a_lost_request_is_known_until_it_is_sent_again_or_removed() -> None:
    book = three()
    book.answered(2, 1.0, None)
    for executor_id in (3, 1):
        book.lose(executor_id)
    assert book.lost() == (3, 1)
    assert book[3].lost
    book.requested_again(3)
    assert (book.lost(), book[3].lost, book[3].answered_at) == ((1,), False, None)
    book.remove(1)
    assert book.lost() == ()
    assert book.count("b") == 1


# ── those that are not decided on ────────────────────────────────────────────────────────────────────────────────────


def some_undecided() -> Undecided:
    book = Undecided()
    book.profiles = frozenset({"a"})
    for executor_id, profile in ((1, "a"), (2, "a"), (3, "b")):
        book.add(executor_id, profile)
    return book


def test_one_that_ends_counts_until_it_is_decided_on() -> None:
    book = some_undecided()
    assert book.count("a") == 0
    book.end(1)
    book.end(1)
    assert (book.count("a"), book.has_ended(1), book.decided) == (1, True, set())
    book.decide((1,))
    book.decide((1,))
    assert (book.count("a"), book.has_ended(1), book.decided) == (0, False, set())


def test_one_that_is_decided_on_before_its_end_is_observed_does_not_count_until_then() -> None:
    book = some_undecided()
    book.decide((1, 9))
    assert (book.count("a"), book.decided) == (0, {1})
    book.end(1)
    assert (book.count("a"), book.decided) == (0, set())


def test_nobody_decides_on_those_of_other_profiles() -> None:
    book = some_undecided()
    book.end(3)
    book.decide((3,))
    assert (book.count("b"), book.has_ended(3), book.decided) == (0, False, set())


def test_a_full_sync_shows_who_has_ended_unobserved() -> None:
    book = some_undecided()
    book.add(4, "a")
    book.decide((4,))
    book.synced({2})
    assert (book.count("a"), book.has_ended(1), book.has_ended(2), book.decided) == (1, True, False, set())
