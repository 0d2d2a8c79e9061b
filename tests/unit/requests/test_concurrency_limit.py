"""The limit against servers of several kinds, answer by answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.requests.concurrency_limit import FIRST, LOWEST, SLOW, ConcurrencyLimit

if TYPE_CHECKING:
    from collections.abc import Iterable

SLOW_SECONDS = SLOW.total_seconds()

Takes: TypeAlias = Callable[[int], float]
"""The seconds that an answer takes, by the requests in flight."""


def _constant(seconds: float, _: int) -> float:
    return seconds


class Sender:
    """Sends as many requests as the limit allows, and gets their answers in order."""

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.limit = limit
        self.at = 1000.0
        self.waiting: deque[tuple[int, float]] = deque()

    def fill(self) -> None:
        while len(self.waiting) < self.limit.now:
            self.waiting.append((self.limit.sent(), self.at))

    def answers(self, count: int, takes: Takes) -> list[int]:
        """Get so many answers; return the limit after each."""
        limits = []
        for _ in range(count):
            self.fill()
            in_flight = len(self.waiting)
            ticket, sent_at = self.waiting.popleft()
            self.at = max(self.at, sent_at + takes(in_flight))
            self.limit.answered(ticket, sent_at, sent_at + takes(in_flight), in_flight=in_flight)
            limits.append(self.limit.now)
        return limits

    def refuse_all(self) -> None:
        self.fill()
        while self.waiting:
            self.limit.refused(self.waiting.popleft()[0])


@pytest.fixture
def sender() -> Sender:
    return Sender(ConcurrencyLimit(31))


def test_it_begins_with_as_many_as_ever_and_grows_to_the_most(sender: Sender) -> None:
    assert sender.limit.now == FIRST
    assert sender.answers(200, lambda _: 0.02)[-1] == 31


@pytest.mark.parametrize("most", [1, 3])
def test_a_low_setting_is_the_most_from_the_start(most: int) -> None:
    sender = Sender(ConcurrencyLimit(most))
    assert set(sender.answers(100, lambda _: 0.02)) == {most}


def test_it_grows_with_each_answer_first(sender: Sender) -> None:
    assert sender.answers(5, lambda _: 0.02) == [17, 18, 19, 20, 21]


def test_it_does_not_grow_while_it_is_not_used_up(sender: Sender) -> None:
    for _ in range(100):
        sender.limit.answered(sender.limit.sent(), sender.at, sender.at + 0.02, in_flight=1)
    assert sender.limit.now == FIRST


def test_answers_that_take_longer_in_proportion_are_no_reason_to_send_less(sender: Sender) -> None:
    """A server without idle processors is still done sooner: it does less of something else."""
    assert min(sender.answers(500, lambda in_flight: 0.005 * in_flight)) >= FIRST
    assert sender.limit.now == 31


def test_a_server_that_cannot_keep_up_gets_fewer_requests_and_is_still_kept_busy(sender: Sender) -> None:
    sender.answers(100, lambda _: 0.02)
    limits = sender.answers(1000, lambda in_flight: 0.05 * in_flight)[200:]
    assert min(limits) >= 6
    assert max(limits) <= 1.3 * SLOW_SECONDS / 0.05


def test_a_server_that_recovers_gets_more_again(sender: Sender) -> None:
    sender.answers(100, lambda _: 0.02)
    sender.answers(300, lambda in_flight: 0.2 * in_flight)
    assert sender.limit.now <= 2 * LOWEST
    assert sender.answers(1000, lambda _: 0.02)[-1] == 31


def test_a_server_that_is_slow_for_another_reason_gets_as_many_as_a_fast_one(sender: Sender) -> None:
    assert min(sender.answers(500, lambda _: 3.0)) >= FIRST
    assert sender.limit.now == 31


def test_a_server_that_becomes_slow_for_another_reason_gets_as_many_again(sender: Sender) -> None:
    sender.answers(100, lambda _: 0.02)
    limits = sender.answers(1000, lambda _: 3.0)
    assert min(limits) == LOWEST
    assert limits[-1] == 31


def test_requests_that_hang_change_nothing(sender: Sender) -> None:
    sender.answers(100, lambda _: 0.02)
    for _ in range(50):
        sender.limit.answered(sender.limit.sent(), sender.at - 600, sender.at, in_flight=sender.limit.now)
        assert sender.answers(30, lambda _: 0.02)[-1] == 31


def test_a_pause_of_the_process_costs_one_step(sender: Sender) -> None:
    sender.answers(100, lambda _: 0.02)
    sender.fill()
    sender.at += 3600
    assert min(sender.answers(40, lambda _: 0.02)) >= 21
    assert sender.answers(500, lambda _: 0.02)[-1] == 31


def test_after_a_429_one_is_sent_at_a_time_and_soon_half_as_many(sender: Sender) -> None:
    sender.answers(100, lambda _: 0.02)
    sender.refuse_all()
    assert sender.limit.now == 1, "however many were refused"
    assert sender.answers(14, lambda _: 0.02) == [*range(2, 16)]
    assert sender.answers(7, lambda _: 0.02)[-1] <= 16, "slower from then on"


def test_answers_to_requests_from_before_a_429_say_nothing(sender: Sender) -> None:
    sender.fill()
    (first, _), (second, sent_at) = sender.waiting[0], sender.waiting[1]
    sender.limit.refused(first)
    sender.limit.answered(second, sent_at, sent_at + 0.02, in_flight=FIRST - 1)
    assert sender.limit.now == 1


def test_a_server_that_refuses_again_and_again_gets_one_at_a_time_at_first(sender: Sender) -> None:
    for _ in range(20):
        sender.refuse_all()
        assert sender.limit.now == 1
        sender.answers(5, lambda _: 0.02)
    assert sender.answers(1000, lambda _: 0.02)[-1] == 31


@given(
    st.integers(1, 40),
    st.lists(st.floats(0, 100) | st.none(), max_size=300),
)
def test_it_stays_within_its_bounds_and_never_stops(most: int, history: Iterable[float | None]) -> None:
    sender = Sender(ConcurrencyLimit(most))
    for seconds in history:
        if seconds is None:
            sender.refuse_all()
        else:
            sender.answers(3, partial(_constant, seconds))
        assert 1 <= sender.limit.now <= most
    assert sender.answers(4000, lambda _: 0.02)[-1] == most
