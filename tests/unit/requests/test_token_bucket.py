"""How many requests a second there may be."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.requests.token_bucket import TokenBucket


def spent(budget: TokenBucket, now: float, asked: int = 1000) -> int:
    """Return how many of these requests may be sent at once."""
    return next((count for count in range(asked) if budget.spend(now)), asked)


@pytest.mark.parametrize(("rate", "burst"), [(50, 50), (2.5, 2), (1, 1), (0.1, 1)])
def test_one_seconds_worth_may_go_at_once_and_always_one(rate: float, burst: int) -> None:
    assert spent(TokenBucket(rate), 1000.0) == burst


def test_a_burst_can_be_longer_than_a_second() -> None:
    budget = TokenBucket(0.1, burst=5)
    assert spent(budget, 1000.0) == 5
    assert budget.spend(1000.0) == timedelta(seconds=10)
    assert spent(budget, 1020.0) == 2


def test_without_a_rate_everything_may_go() -> None:
    assert spent(TokenBucket(None), 1000.0) == 1000


def test_what_is_not_used_is_kept_for_a_second_only() -> None:
    budget = TokenBucket(10)
    spent(budget, 1000.0)
    assert spent(budget, 1000.55) == 5
    assert spent(budget, 5000.0) == 10


def test_the_wait_is_how_long_it_takes_until_one_may_go() -> None:
    budget = TokenBucket(4)
    spent(budget, 1000.0)
    assert budget.spend(1000.0) == timedelta(seconds=0.25)
    assert budget.spend(1000.2) == timedelta(seconds=0.05)
    assert budget.spend(1000.25) == timedelta()


def test_asking_in_vain_costs_nothing() -> None:
    budget = TokenBucket(1)
    budget.spend(1000.0)
    for _ in range(10):
        assert budget.spend(1000.5)
    assert not budget.spend(1001.0)


@given(
    rate=st.floats(0.1, 10_000),
    pauses=st.lists(st.floats(0, 5), max_size=200),
)
def test_over_any_time_no_more_goes_than_the_rate_and_one_burst(rate: float, pauses: list[float]) -> None:
    budget, now, sent = TokenBucket(rate), 1000.0, 0
    for pause in pauses:
        now += pause
        sent += not budget.spend(now)
    assert sent <= rate * (now - 1000.0 + 2e-6) + max(1.0, rate)


@given(rate=st.floats(0.1, 10_000), start=st.floats(0, 1e7))
def test_after_the_wait_one_may_go(rate: float, start: float) -> None:
    budget = TokenBucket(rate)
    count = 0
    while not (wait := budget.spend(start)) and count <= rate:
        count += 1
    for _ in range(3):  # so large a float has no microseconds
        start += wait.total_seconds()
        wait = budget.spend(start)
        if not wait:
            return
    raise AssertionError(f"still {wait} to wait")
