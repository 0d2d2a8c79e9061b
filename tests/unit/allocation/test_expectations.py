"""The executors that were requested and not seen: counts, and the order of their answers."""

from __future__ import annotations

from actors.allocation.expectations import Expectations


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
