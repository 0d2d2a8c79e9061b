"""One profile's creation: how many are requested at a time, and why and until when creation is blocked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from actors.allocation.creation_block import CreationBlock
from actors.allocation.profile import Profile, Profiles
from actors.errors import (
    AlreadyExists,
    ApiError,
    Cancelled,
    Conflict,
    Forbidden,
    Invalid,
    QuotaExceeded,
    TooManyRequests,
    Unavailable,
)
from actors.runtime import Entropy
from tests.unit.views import settings

AT = datetime(2024, 1, 1, tzinfo=UTC)
NO = Forbidden("no", status=403)
TAKEN = AlreadyExists("taken", status=409)
SLOW_DOWN = TooManyRequests("slow down", status=429)
DOWN = Unavailable("down", status=503)
LIMIT = CreationBlock("max_created", "a limit of ours")


def quota(pod: int = 1, name: str = "q") -> QuotaExceeded:
    return QuotaExceeded(f'pods "app-exec-{pod}" is forbidden: exceeded quota: {name}, requested: pods=1', status=403)


def invalid(*fields: str) -> Invalid:
    return Invalid("Pod is invalid", status=422, causes=tuple((field, "Required value") for field in fields))


def profile(
    batch_size: int = 20, max_batch_size: int = 500, *, executor: dict[str, Any] | None = None, target: int = 1
) -> Profile:
    sizes = {"batch_size": batch_size, "max_batch_size": max_batch_size, "max_requests_in_flight": 32}
    subject = Profile("default", settings(allocation=sizes, executor=executor))
    subject.target = target
    return subject


def answer(subject: Profile, *answers: ApiError | None, now: float = 0.0) -> list[bool]:
    """Request a batch and answer it (None: created). Return for each answer whether the next batch may follow."""
    subject.requested(len(answers))
    return [subject.answered(error, now=now, entropy=Entropy(0)) for error in answers]


def report(
    subject: Profile, now: float = 0.0, fleet: CreationBlock | None = None, *, lacks_some: bool = True
) -> str | None:
    """Return the reported message, "None" for the end of a block, or None if nothing has changed."""
    if not subject.report(fleet, lacks_some=lacks_some, now=now, at=AT):
        return None
    return subject.block.message if subject.block is not None else "None"


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_batches_double_up_to_a_maximum_and_fall_back() -> None:
    subject = profile(20, 50)
    sizes = [subject.batch_size]
    for error in (None, None, None, TAKEN, NO):
        answer(subject, error)
        sizes.append(subject.batch_size)
    assert sizes == [20, 40, 50, 50, 20, 1]


def test_no_batch_is_much_larger_than_what_can_be_in_flight() -> None:
    subject = profile(20, 500)
    for _ in range(9):
        answer(subject, None)
    assert subject.batch_size == 160, "five for each of 32 slots"
    subject = profile(400, 500)
    answer(subject, None)
    assert subject.batch_size == 400, "the first batch is as large as it is set"


def test_the_next_batch_waits_for_the_last_answer() -> None:
    subject = profile(2, 8)
    assert answer(subject, None, TAKEN, NO) == [False, False, True]
    assert subject.awaited == 0


def test_the_next_batch_follows_a_large_one_before_a_slot_is_idle() -> None:
    """When half of it is answered, and at most as many POSTs are left as there are slots, less one."""
    assert [number for number, follows in enumerate(answer(profile(20), *[None] * 20), 1) if follows] == [10, 20]
    assert [number for number, follows in enumerate(answer(profile(8), *[None] * 8), 1) if follows] == [8]
    subject = profile(70, 500)
    assert [number for number, follows in enumerate(answer(subject, *[None] * 70), 1) if follows] == [39, 70]
    assert subject.batch_size == 140, "the batch counts once"


def test_no_batch_follows_before_the_last_answer_once_a_post_has_failed() -> None:
    subject = profile(70, 500)
    assert [number for number, follows in enumerate(answer(subject, TAKEN, *[None] * 69), 1) if follows] == [70]
    subject.requested(70)
    answered = [subject.answered(None, now=0.0, entropy=Entropy(0)) for _ in range(39)]
    assert answered[-1]
    assert not subject.waits
    subject.requested(70)
    subject.answered(NO, now=0.0, entropy=Entropy(0))
    assert subject.waits
    assert not any(subject.answered(None, now=0.0, entropy=Entropy(0)) for _ in range(99))
    assert subject.answered(None, now=0.0, entropy=Entropy(0))
    assert (subject.waits, subject.batch_size) == (False, 1)


def test_after_a_refusal_one_is_requested_then_as_many_as_get_through() -> None:
    subject = profile(4, 16)
    answer(subject, None, NO, None, None)
    sizes = [subject.batch_size]
    while subject.batch_size < 16:
        answer(subject, *[None] * subject.batch_size)
        sizes.append(subject.batch_size)
    assert sizes == [1, 2, 4, 8, 16]


def test_a_name_that_is_taken_or_a_request_that_is_withdrawn_is_no_refusal() -> None:
    subject = profile(4, 16)
    answer(subject, None, None, None, None)
    for error in (TAKEN, Cancelled("killed")):
        assert answer(subject, error) == [True]
        assert (subject.batch_size, subject.blocked_until, subject.refusal) == (4, 0.0, None)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_block_is_reported_when_it_begins_when_it_changes_and_when_it_ends() -> None:
    subject = profile(1)
    answer(subject, quota(1), now=0.0)
    assert report(subject) == CreationBlock.of(quota(1)).message
    answer(subject, quota(2), now=2.0)
    assert report(subject, 2.0) is None, "it is the same block, though another pod was refused"
    assert subject.block is not None
    assert (subject.block.since, subject.block) == (AT, CreationBlock.of(quota(1)))
    answer(subject, invalid("spec.a"), now=9.0)
    assert report(subject, 9.0) == CreationBlock.of(invalid("spec.a")).message
    assert report(subject, 10.0) is None
    answer(subject, None, now=30.0)
    assert report(subject, 30.0) == "None"


def test_each_refused_batch_doubles_the_wait_up_to_a_minute() -> None:
    subject, waits, now = profile(), [], 0.0
    for _ in range(8):
        answer(subject, quota(1), quota(2), now=now)
        waits.append(subject.blocked_until - now)
        now = subject.blocked_until
    for wait, least in zip(waits, (1, 2, 4, 8, 16, 32, 60, 60), strict=True):
        assert least <= wait <= least * 1.2, waits


def test_one_success_ends_the_wait_and_enough_of_them_end_the_refusal() -> None:
    subject = profile(4, 16)
    for now in (0.0, 10.0, 20.0):
        answer(subject, quota(), now=now)
    blocked = []
    for size in (1, 2, 4):
        report(subject, 20.0)
        blocked.append(subject.block is not None)
        answer(subject, *[None] * size, now=20.0)
        assert subject.blocked_until == 0.0
    assert (blocked, report(subject, 20.0)) == ([True, True, True], "None")
    answer(subject, quota(), now=30.0)
    assert subject.blocked_until <= 31.2, "the wait starts again"


def test_when_no_executor_is_missing_a_refusal_is_over_but_its_wait_still_counts() -> None:
    subject = profile()
    answer(subject, quota())
    report(subject)
    assert report(subject, 0.5, lacks_some=False) == "None"
    assert subject.blocked_until >= 1.0


def test_a_refusal_is_not_over_while_answers_are_awaited_though_no_executor_is_missing() -> None:
    subject = profile()
    answer(subject, NO)
    subject.requested(1)
    report(subject, lacks_some=False)
    assert subject.block is not None
    subject.answered(None, now=0.0, entropy=Entropy(0))
    report(subject, lacks_some=False)
    assert subject.block is None


def test_profiles_that_the_same_full_quota_refuses_go_on_together() -> None:
    profiles = Profiles(settings())
    a, b, c, d = (profiles[name] for name in "abcd")
    for subject, error in ((a, quota(1)), (b, quota(2)), (c, quota(3, "another")), (d, NO)):
        answer(subject, error, now=0.0)
    assert profiles.sharing_quota_with(a) == (b,)
    assert profiles.sharing_quota_with(c) == profiles.sharing_quota_with(d) == ()
    assert not b.tries_quota(0.1), "its backoff is not over"
    assert b.tries_quota(5.0)
    b.requested(1)
    assert not b.tries_quota(5.0), "the answer is awaited"
    b.delayed(Unavailable("a webhook does not answer", status=500), 5.0, AT)
    assert b.tries_quota(5.0), "who waits for something else holds nobody up"


@pytest.mark.parametrize(("error", "hastens"), [(quota(), True), (NO, False), (invalid("x"), False)])
def test_the_end_of_an_executor_may_make_room_in_a_quota_and_nowhere_else(error: ApiError, hastens: bool) -> None:
    subject = profile()
    for now in (0.0, 10.0, 20.0, 30.0, 50.0):
        answer(subject, error, now=now)
    until = subject.blocked_until
    subject.hasten(51.0)
    assert subject.blocked_until == (52.0 if hastens else until)


# ── delays, and which block is reported ──────────────────────────────────────────────────────────────────────────


RETRY_AT = datetime(2024, 1, 1, 12, 30, tzinfo=UTC)


def delay(subject: Profile, error: ApiError, now: float) -> None:
    subject.delayed(error, now, RETRY_AT)


def test_a_delay_is_reported_when_it_lasts_and_until_it_is_answered() -> None:
    subject = profile()
    subject.requested(2)
    delay(subject, SLOW_DOWN, 10.0)
    assert report(subject, 14.9) is None
    assert report(subject, 15.0) == CreationBlock.of(SLOW_DOWN, RETRY_AT).message
    delay(subject, SLOW_DOWN, 16.0)
    assert report(subject, 16.0) is None
    delay(subject, DOWN, 17.0)
    assert report(subject, 17.0) == "the API server is not available: down; next try at 12:30:00 UTC", (
        "it has lasted since the first of them"
    )
    subject.answered(None, now=18.0, entropy=Entropy(0))
    assert report(subject, 18.0) == "None"
    delay(subject, SLOW_DOWN, 19.0)
    assert report(subject, 23.0) is None


def test_a_refusal_is_reported_before_a_delay_a_delay_before_the_fleets_limits_and_those_before_a_wait() -> None:
    subject = profile(target=3)
    subject.claim_wait = (3, "data")
    assert "'data'" in str(report(subject, 0.0))
    assert report(subject, 0.0, LIMIT) == "a limit of ours"
    delay(subject, Conflict("modified", status=409), 0.0)
    assert str(report(subject, 9.0, LIMIT)).startswith("the namespace's quota is being changed")
    answer(subject, invalid("spec.a"), now=9.0)
    assert str(report(subject, 9.0, LIMIT)).startswith("the manifest is invalid")


def test_neither_a_limit_nor_a_wait_blocks_a_profile_that_lacks_no_executor() -> None:
    subject = profile(target=3)
    subject.claim_wait = (3, "data")
    assert report(subject, 0.0, LIMIT, lacks_some=False) is None


def test_a_wait_for_a_claim_is_over_with_another_target() -> None:
    subject = profile(target=3)
    subject.claim_wait = (3, "data")
    assert subject.awaited_claim == "data"
    subject.target = 4
    assert subject.awaited_claim is None


# ── start failures ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_wait_doubles_from_a_second_to_five_minutes_and_a_success_resets_it() -> None:
    subject = profile()

    def wait() -> float:
        now = 1000.0 + subject.blocked_until
        subject.add_start_failures(1, most=99, now=now, entropy=Entropy(0))
        return subject.blocked_until - now

    assert [wait() for _ in range(11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    subject.succeeded()
    assert subject.blocked_until == 0.0
    assert wait() == 1


def test_only_failures_within_the_interval_are_counted() -> None:
    subject = profile(executor={"failures_validity_interval": "1m"})
    counts = []
    for now in (0.0, 60.0, 61.0, 200.0):
        subject.add_start_failures(1, most=99, now=now, entropy=Entropy(0))
        counts.append(len(subject.starts.times))
    assert counts == [1, 2, 2, 1]
    assert (subject.start_failures(260.0), subject.start_failures(260.1)) == (1, 0)


def test_no_more_failures_are_remembered_than_are_needed() -> None:
    subject = profile()
    for now in range(100):
        subject.add_start_failures(5, most=7, now=float(now), entropy=Entropy(0))
    assert len(subject.starts.times) == 7


def test_those_that_end_while_creation_waits_do_not_make_it_wait_longer() -> None:
    subject = profile()
    for now in (10.0, 10.1, 10.9):
        subject.add_start_failures(1, most=99, now=now, entropy=Entropy(0))
    assert (subject.blocked_until, subject.starts.rounds, len(subject.starts.times)) == (11.0, 1, 3)
    subject.add_start_failures(1, most=99, now=11.0, entropy=Entropy(0))
    assert subject.blocked_until == 13.0


def test_forgiven_failures_count_no_more_but_short_lived_executors_do() -> None:
    subject = profile()
    for executor_id, now in ((1, 10.0), (2, 20.0)):
        subject.add_short_lived([executor_id], newest=executor_id, now=now, entropy=Entropy(0))
    subject.add_start_failures(1, most=99, now=20.0, entropy=Entropy(0))
    subject.forgive()
    assert (subject.start_failures(20.0), subject.starts.rounds, subject.starts.waves) == (0, 0, 2)


# ── short-lived executors ────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_short_lived_executors_cause_no_wait_and_the_next_ones_a_doubling_one() -> None:
    subject, now, waits = profile(), 1000.0, []
    for executor_id in range(1, 12):
        assert subject.add_short_lived([executor_id], newest=executor_id, now=now, entropy=Entropy(0))
        waits.append(max(0.0, subject.blocked_until - now))
        now += 400
    assert waits == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    subject.succeeded()
    assert subject.add_short_lived([99], newest=99, now=now, entropy=Entropy(0))
    assert subject.blocked_until == 0.0


def test_short_lived_executors_that_were_created_before_the_last_ones_do_not_count_again() -> None:
    subject = profile()
    assert subject.add_short_lived([3, 7], newest=9, now=1.0, entropy=Entropy(0))
    assert not subject.add_short_lived([8, 9], newest=20, now=2.0, entropy=Entropy(0))
    assert not subject.add_short_lived([1], newest=20, now=3.0, entropy=Entropy(0))
    assert subject.blocked_until == 0.0
    assert subject.add_short_lived([9, 10], newest=20, now=4.0, entropy=Entropy(0)), "10 is a replacement"
    assert subject.blocked_until == 5.0


def test_the_wait_after_short_lived_executors_is_reported_while_it_lasts() -> None:
    subject = profile()
    for executor_id, now in ((1, 100.0), (2, 200.0)):
        subject.add_short_lived([executor_id], newest=executor_id, now=now, entropy=Entropy(0))
    assert report(subject, 200.9) is not None
    assert subject.block is not None
    assert subject.block.cause == "cut_short"
    assert report(subject, 201.0) == "None"


def test_a_profile_is_made_on_first_use() -> None:
    profiles = Profiles(settings())
    assert profiles["gpu"] is profiles["gpu"]
    assert list(profiles) == ["gpu"]
