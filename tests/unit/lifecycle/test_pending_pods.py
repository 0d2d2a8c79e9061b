"""Executors that do not run yet, as values: what is told of them, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from actors.lifecycle.pending_pods import UNSCHEDULABLE_FOR, PendingPods
from tests.unit.views import unschedulable, waiting

if TYPE_CHECKING:
    from actors.pods.pod import Pod

TIMEOUT = timedelta(minutes=5)
LONG = UNSCHEDULABLE_FOR.total_seconds()


def overdue(subject: PendingPods, now: float) -> list[tuple[int, str]]:
    return [(executor_id, stuck.reason) for executor_id, _, stuck in subject.overdue(now)]


def shown(subject: PendingPods, pod: Pod, now: float) -> str | None:
    stuck = subject.shown(1, pod, now)
    return None if stuck is None else stuck.reason


def test_the_kubelets_word_is_told_at_once_and_the_schedulers_when_it_has_lasted() -> None:
    subject = PendingPods(TIMEOUT)
    assert shown(subject, unschedulable(1, "no node"), 0.0) is None
    assert overdue(subject, LONG - 0.1) == []
    assert overdue(subject, LONG) == [(1, "Unschedulable")]
    assert shown(subject, waiting(1, "ErrImagePull"), LONG + 1) == "ErrImagePull"
    assert shown(subject, waiting(1, "ImagePullBackOff"), LONG + 2) is None
    assert overdue(subject, 9 * LONG) == []


def test_a_second_wait_for_a_node_begins_anew_until_it_was_told() -> None:
    subject = PendingPods(TIMEOUT)
    shown(subject, unschedulable(1, "no node"), 0.0)
    subject.over(1)
    shown(subject, unschedulable(1, "no node"), LONG)
    assert overdue(subject, LONG + 1) == []
    assert overdue(subject, 2 * LONG) == [(1, "Unschedulable")]
    shown(subject, unschedulable(1, "no node"), 2 * LONG)
    assert overdue(subject, 4 * LONG) == []


def test_one_that_still_waits_for_a_node_after_the_timeout_is_not_told_as_slow() -> None:
    subject = PendingPods(TIMEOUT)
    shown(subject, unschedulable(1, "no node"), 0.0)
    assert overdue(subject, 600.0) == [(1, "Unschedulable")]


def test_it_is_the_newest_words_that_are_told() -> None:
    subject = PendingPods(TIMEOUT)
    shown(subject, unschedulable(1, "waiting for a claim"), 0.0)
    shown(subject, unschedulable(1, "no node has room"), 5.0)
    assert [stuck.message for _, _, stuck in subject.overdue(LONG)] == ["no node has room"]


def test_nothing_is_kept_of_one_that_has_ended() -> None:
    subject = PendingPods(TIMEOUT)
    shown(subject, unschedulable(1, "no node"), 0.0)
    subject.forget(1)
    assert overdue(subject, 600.0) == []
    assert len(subject) == 0
