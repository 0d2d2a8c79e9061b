"""Why creation stands still, as values: what is news, in which words, and how long it waits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from actors.allocation.creation_block import CreationBlock, sort_of, words
from actors.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooManyRequests,
    Unavailable,
)
from actors.runtime import Entropy

AT = datetime(2024, 1, 1, tzinfo=UTC)
SLOW_DOWN = TooManyRequests("slow down", status=429)
TERMINATING = Forbidden(
    'pods "x-1" is forbidden: unable to create new content in namespace x because it is being terminated',
    status=403,
    reason="Forbidden",
)


def quota(name: str, pod: int, used: int) -> QuotaExceeded:
    words = f'pods "app-exec-{pod}" is forbidden: exceeded quota: {name}, requested: pods=1, used: pods={used}'
    return QuotaExceeded(words, status=403, reason="Forbidden")


def invalid(pod: int, *fields: str) -> Invalid:
    causes = tuple((field, "Required value") for field in fields)
    return Invalid(f'Pod "app-exec-{pod}" is invalid: {fields}', status=422, causes=causes)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (quota("q", 1, 5), quota("q", 92, 60), True),
        (quota("q", 1, 5), quota("r", 1, 5), False),
        (quota("q", 1, 5), Forbidden("pods is forbidden", status=403, reason="Forbidden"), False),
        (invalid(1, "spec.a"), invalid(2, "spec.a"), True),
        (invalid(1, "spec.a"), invalid(1, "spec.a", "spec.b"), False),
        (
            Forbidden('pods "x-1" violates PodSecurity', status=403),
            Forbidden('pods "x-2" violates PodSecurity', status=403),
            True,
        ),
        (Forbidden("webhook a denied it", status=403), Forbidden("webhook b denied it", status=403), False),
        (TERMINATING, NotFound('namespaces "x" not found', status=404, reason="NotFound"), True),
        (TERMINATING, Forbidden('pods "x-1" is forbidden: no', status=403, reason="Forbidden"), False),
    ],
)
def test_two_errors_are_one_cause_if_only_the_pod_and_the_numbers_differ(
    one: ApiError, other: ApiError, same: bool
) -> None:
    assert (sort_of(one) == sort_of(other)) is same


def test_what_is_invalid_is_named_by_the_server_pod_or_claim() -> None:
    claim = Invalid('PersistentVolumeClaim "app-exec-1-pvc-0" is invalid: spec.resources: Required value', status=422)
    assert words(claim) == (
        'what was to be made is invalid: PersistentVolumeClaim "app-exec-1-pvc-0" is invalid: '
        "spec.resources: Required value"
    )


def test_an_error_that_nobody_has_words_for_is_told_in_the_servers() -> None:
    assert words(Gone("too old", status=410)) == "the API server refuses it: too old"


def told(creation_block: CreationBlock, now: float, others: str | None = None) -> str | None:
    """What is told at this moment if it is news."""
    return str(creation_block.told) if creation_block.tell(others, now=now, at=AT) else None


def test_a_refusal_is_news_once_a_sort_and_its_end_is_news() -> None:
    creation_block, entropy = CreationBlock(), Entropy(0)
    news = [
        creation_block.refused(error, now=now, entropy=entropy)
        for now, error in enumerate((quota("q", 1, 5), quota("q", 2, 6), invalid(3, "spec.a")))
    ]
    assert news == [True, False, True]
    assert told(creation_block, 3.0) == words(invalid(3, "spec.a"))
    assert told(creation_block, 4.0) is None
    creation_block.got_through(enough=True)
    assert (told(creation_block, 5.0), creation_block.told, creation_block.told_since) == ("None", None, None)


def test_each_refused_batch_doubles_the_wait_up_to_a_minute() -> None:
    creation_block, entropy, waits, now = CreationBlock(), Entropy(0), [], 0.0
    for _ in range(8):
        creation_block.refused(quota("q", 1, 5), now=now, entropy=entropy)
        creation_block.refused(quota("q", 2, 5), now=now, entropy=entropy)  # of the same batch
        waits.append(creation_block.until - now)
        now = creation_block.until
    for wait, least in zip(waits, (1, 2, 4, 8, 16, 32, 60, 60), strict=True):
        assert least <= wait <= least * 1.2, waits


def test_one_that_got_through_ends_the_wait_and_enough_of_them_end_the_refusal() -> None:
    creation_block, entropy = CreationBlock(), Entropy(0)
    for now in (0.0, 10.0, 20.0):
        creation_block.refused(quota("q", 1, 5), now=now, entropy=entropy)
    told(creation_block, 20.0)
    creation_block.got_through(enough=False)
    assert (creation_block.until, told(creation_block, 21.0)) == (0.0, None)
    creation_block.refused(quota("q", 1, 5), now=30.0, entropy=entropy)
    assert creation_block.until <= 31.2
    creation_block.got_through(enough=True)
    assert told(creation_block, 32.0) == "None"


def test_when_nothing_is_wanted_a_refusal_is_over_but_the_wait_counts_on() -> None:
    creation_block = CreationBlock()
    creation_block.refused(quota("q", 1, 5), now=0.0, entropy=Entropy(0))
    told(creation_block, 0.0)
    creation_block.rest()
    assert told(creation_block, 1.0) == "None"
    assert creation_block.until >= 1.0


@pytest.mark.parametrize(
    ("error", "hastens"), [(quota("q", 1, 5), True), (Forbidden("no", status=403), False), (invalid(1, "x"), False)]
)
def test_the_end_of_an_executor_may_make_room_in_a_quota_and_nowhere_else(error: ApiError, hastens: bool) -> None:
    creation_block, entropy = CreationBlock(), Entropy(0)
    for now in (0.0, 10.0, 20.0, 30.0, 50.0):
        creation_block.refused(error, now=now, entropy=entropy)
    until = creation_block.until
    creation_block.hasten(51.0)
    assert creation_block.until == (52.0 if hastens else until)


def test_what_is_put_off_is_told_when_it_lasts_and_until_it_is_answered() -> None:
    creation_block = CreationBlock()
    creation_block.put_off(SLOW_DOWN, 10.0)
    assert told(creation_block, 14.9) is None
    assert told(creation_block, 15.0) == words(SLOW_DOWN)
    creation_block.put_off(SLOW_DOWN, 16.0)
    assert told(creation_block, 16.0) is None
    creation_block.put_off(Unavailable("down", status=503), 17.0)
    assert told(creation_block, 17.0) == "the API server is not available: down", (
        "it has lasted since the first of them"
    )
    creation_block.answered()
    assert told(creation_block, 18.0) == "None"
    creation_block.put_off(SLOW_DOWN, 19.0)
    assert told(creation_block, 23.0) is None


def test_what_the_api_refuses_is_told_before_what_it_puts_off_and_that_before_the_rest() -> None:
    creation_block = CreationBlock()
    assert told(creation_block, 0.0, "a limit of ours") == "a limit of ours"
    creation_block.put_off(Conflict("modified", status=409), 0.0)
    assert str(told(creation_block, 9.0, "a limit of ours")).startswith("others change")
    creation_block.refused(invalid(1, "spec.a"), now=9.0, entropy=Entropy(0))
    assert str(told(creation_block, 9.0, "a limit of ours")).startswith("what was to be made is invalid")
