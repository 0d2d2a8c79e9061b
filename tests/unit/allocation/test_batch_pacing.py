"""How many executors are requested at a time, and when the next batch may go out."""

from __future__ import annotations

from datetime import UTC, datetime

from actors.allocation.batch_pacing import BatchPacing, BatchSize
from actors.errors import AlreadyExists, ApiError, Cancelled, Forbidden
from actors.runtime import Entropy

NO = Forbidden("no", status=403)
AT = datetime(2024, 1, 1, tzinfo=UTC)
TAKEN = AlreadyExists("taken", status=409)


def test_batches_double_up_to_a_maximum_and_fall_back() -> None:
    size = BatchSize(20, 50)
    sizes = [size.current]
    for _ in range(3):
        size.succeeded()
        sizes.append(size.current)
    size.failed()
    assert (sizes, size.current) == ([20, 40, 50, 50], 20)
    size.refused()
    assert size.current == 1


def answer(creation: BatchPacing, *answers: ApiError | None) -> list[bool]:
    """Request a batch, have it answered like this (None: created); for each, whether it was the last."""
    creation.requested(len(answers))
    return [
        creation.created() if error is None else creation.not_created(error, now=0.0, entropy=Entropy(0))[0]
        for error in answers
    ]


def test_the_next_batch_waits_for_the_last_answer() -> None:
    creation = BatchPacing(2, 8)
    assert answer(creation, None, TAKEN, NO) == [False, False, True]
    assert creation.awaited == 0


def test_after_a_refusal_one_is_requested_then_as_many_as_get_through() -> None:
    creation = BatchPacing(4, 16)
    answer(creation, None, NO, None, None)
    sizes = [creation.size.current]
    while creation.size.current < 16:
        answer(creation, *[None] * creation.size.current)
        sizes.append(creation.size.current)
    assert sizes == [1, 2, 4, 8, 16]


def test_a_name_that_is_taken_or_a_request_that_is_withdrawn_is_no_refusal() -> None:
    creation = BatchPacing(4, 16)
    answer(creation, None, None, None, None)
    for error in (TAKEN, Cancelled("killed")):
        creation.requested(1)
        assert creation.not_created(error, now=0.0, entropy=Entropy(0)) == (True, False)
        assert (creation.size.current, creation.creation_block.until) == (4, 0.0)


def test_what_is_refused_is_over_when_as_many_got_through_as_are_requested_where_nothing_is_wrong() -> None:
    creation = BatchPacing(4, 16)
    answer(creation, NO)
    stands = []
    for size in (1, 2, 4):
        creation.creation_block.tell(None, now=0.0, at=AT)
        stands.append(creation.creation_block.told is not None)
        answer(creation, *[None] * size)
    creation.creation_block.tell(None, now=0.0, at=AT)
    assert (stands, creation.creation_block.told) == ([True, True, True], None)


def test_a_refusal_stands_while_answers_are_awaited_though_nothing_more_is_wanted() -> None:
    creation = BatchPacing(4, 16)
    answer(creation, NO)
    creation.requested(1)
    creation.satisfied()
    creation.creation_block.tell(None, now=0.0, at=AT)
    assert creation.creation_block.told is not None
    creation.created()
    creation.satisfied()
    creation.creation_block.tell(None, now=0.0, at=AT)
    assert creation.creation_block.told is None
