"""How long a refusal must last, and what a server may ask for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from actors.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from actors.kube.retries import MAX_RETRY_AFTER, PATIENCE, Patience, requested_wait

SECOND = timedelta(seconds=1)


def test_patience_ends_when_refusals_have_lasted() -> None:
    patience = Patience()
    assert [patience.ends(100.0 + moment) for moment in (0, 2, 4.9, 5, 9)] == [False, False, False, True, True]
    assert timedelta(seconds=5) == PATIENCE


def test_patience_begins_anew_after_another_answer() -> None:
    patience = Patience()
    assert not patience.ends(0.0)
    patience.renew()
    assert [patience.ends(moment) for moment in (6.0, 10.9, 11.0)] == [False, False, True]


@pytest.mark.parametrize("kind", [TooManyRequests, Unavailable])
def test_a_server_may_ask_to_wait_but_not_for_ever(kind: type[TooManyRequests | Unavailable]) -> None:
    assert requested_wait(kind("busy", retry_after=2 * SECOND)) == 2 * SECOND
    assert requested_wait(kind("busy", retry_after=timedelta(0))) == timedelta(0)
    assert requested_wait(kind("busy", retry_after=timedelta(days=1))) == MAX_RETRY_AFTER
    assert requested_wait(kind("busy", retry_after=timedelta(days=1)), SECOND) == SECOND


@pytest.mark.parametrize(
    "answer", [True, None, TooManyRequests("busy"), Forbidden("no", retry_after=SECOND), ApiError("x")]
)
def test_other_answers_ask_for_nothing(answer: object) -> None:
    assert requested_wait(answer) is None
