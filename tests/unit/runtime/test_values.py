"""Clock, entropy and backoff."""

from __future__ import annotations

import re
import time
import uuid
from datetime import UTC, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime import Backoff, Entropy, SystemClock
from actors.testing import ManualClock

SECOND = timedelta(seconds=1)


def test_the_system_clock_does_not_go_back_and_knows_its_time_zone() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    assert clock.monotonic() >= before
    assert clock.now().tzinfo is UTC


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has this clock")
def test_the_system_clock_runs_on_while_the_machine_sleeps() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_manual_clock_moves_both_times_together_and_adds_up_exactly() -> None:
    clock = ManualClock()
    now, monotonic = clock.now(), clock.monotonic()
    for _ in range(10):
        clock.move_to(clock.elapsed + timedelta(milliseconds=100))
    assert clock.now() - now == SECOND
    assert clock.monotonic() - monotonic == 1.0


def test_a_manual_clock_does_not_go_back() -> None:
    clock = ManualClock()
    clock.move_to(SECOND)
    with pytest.raises(ValueError, match="time does not go back"):
        clock.move_to(SECOND / 2)


def draws(entropy: Entropy) -> tuple[object, ...]:
    return (
        entropy.uniform(0, 1),
        entropy.jittered(SECOND, 1.0),
        entropy.token(8),
        entropy.uid(),
        entropy.choice(range(1000)),
    )


def test_one_seed_draws_one_sequence() -> None:
    assert draws(Entropy(7)) == draws(Entropy(7))
    assert draws(Entropy(7)) != draws(Entropy(8))
    assert draws(Entropy()) != draws(Entropy())


def test_a_fork_draws_its_own_sequence_whatever_its_origin_has_drawn() -> None:
    used, fresh = Entropy(7), Entropy(7)
    draws(used)
    assert draws(used.fork("a")) == draws(fresh.fork("a"))
    assert draws(fresh.fork("a")) != draws(fresh.fork("b"))
    assert draws(Entropy().fork("a")) != draws(Entropy().fork("a"))


def test_a_seed_means_the_same_in_every_process() -> None:
    """No draw depends on this process's hash seed."""
    assert Entropy(7).fork("allocator-1").token(6) == "h6pk62"


def test_tokens_are_fit_for_dns_labels_and_uids_are_uuids() -> None:
    entropy = Entropy(1)
    assert re.fullmatch(r"[a-z0-9]{63}", entropy.token(63))
    assert uuid.UUID(entropy.uid()).version == 4


@given(st.integers(), st.floats(0, 10), st.timedeltas(timedelta(0), timedelta(days=1)))
def test_jitter_only_stretches(seed: int, factor: float, delay: timedelta) -> None:
    drawn = Entropy(seed).jittered(delay, factor)
    assert delay <= drawn <= delay * (1 + factor) + timedelta(microseconds=1)


def test_a_backoff_grows_by_its_factor_up_to_its_maximum() -> None:
    backoff = Backoff(initial=SECOND, maximum=10 * SECOND, factor=3.0, jitter=0.0)
    delays = [backoff.delay(failures, Entropy(1)).total_seconds() for failures in range(5)]
    assert delays == [1, 3, 9, 10, 10]


def test_a_backoff_does_not_overflow_however_long_it_fails() -> None:
    assert Backoff(jitter=0.0).delay(1_000_000, Entropy(1)) == timedelta(seconds=30)


def test_the_default_backoff_is_that_of_the_reflector_of_client_go() -> None:
    backoff = Backoff()
    assert (backoff.initial, backoff.maximum, backoff.factor, backoff.jitter, backoff.reset_after) == (
        timedelta(milliseconds=800),
        timedelta(seconds=30),
        2.0,
        1.0,
        timedelta(minutes=2),
    )


@given(st.integers(0, 100), st.integers())
def test_jitter_spreads_a_backoff_over_once_again_its_delay(failures: int, seed: int) -> None:
    plain = Backoff(jitter=0.0).delay(failures, Entropy(seed))
    assert plain <= Backoff().delay(failures, Entropy(seed)) <= 2 * plain
