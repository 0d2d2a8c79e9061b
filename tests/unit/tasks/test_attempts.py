"""Which losses count against a task, and what is said when it must not run again."""

from __future__ import annotations

from typing import Any

import pytest

from actors import Attempts, LossKind, LossReason

CRASH = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="executor 3 exited with exit code 1")
EVICTION = LossReason(LossKind.EVICTED, -1, caused_by_app=False, message="executor 4 was evicted")


def after(attempts: Attempts, *reasons: LossReason) -> Attempts:
    for reason in reasons:
        attempts = attempts.after(reason)
    return attempts


def test_a_task_runs_again_until_the_application_lost_its_executor_as_often_as_the_limit_says() -> None:
    assert after(Attempts(limit=2), CRASH).may_run_again
    twice = after(Attempts(limit=2), CRASH, CRASH)
    assert not twice.may_run_again
    assert twice.refusal == (
        "the application lost its executor 2 times (limit = 2); the last loss: executor 3 exited with exit code 1"
    )


def test_losses_by_the_cluster_or_the_driver_count_never_unless_they_are_limited() -> None:
    assert after(Attempts(limit=1), *[EVICTION] * 1000).may_run_again
    limited = after(Attempts(limit=1, other_limit=2), EVICTION)
    assert limited.may_run_again
    assert limited.after(EVICTION).refusal == (
        "the cluster or the driver ended its executor 2 times (other_limit = 2); the last loss: executor 4 was evicted"
    )


def test_a_loss_makes_other_attempts_and_leaves_these() -> None:
    first = Attempts()
    second = first.after(CRASH).after(EVICTION)
    assert (first.by_app, first.by_others) == (0, 0)
    assert (second.by_app, second.by_others, second.last) == (1, 1, EVICTION)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"limit": 0}, "limit = 0: must be a whole number, at least 1$"),
        ({"limit": None}, "limit = None: must be a whole number, at least 1$"),
        ({"limit": True}, "limit = True: must be"),
        ({"other_limit": 0}, "other_limit = 0: must be a whole number, at least 1, or None"),
        ({"other_limit": "3"}, "other_limit = '3': must be"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name(limits: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Attempts(**limits)
