"""PendingPods: which causes are reported, and when."""

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


def observe(subject: PendingPods, pod: Pod, now: float) -> str | None:
    stuck = subject.observe(1, pod, now)
    return None if stuck is None else stuck.reason


def test_the_kubelets_reason_is_reported_at_once_and_the_schedulers_when_it_lasts() -> None:
    subject = PendingPods(TIMEOUT)
    assert observe(subject, unschedulable(1, "no node"), 0.0) is None
    assert overdue(subject, LONG - 0.1) == []
    assert overdue(subject, LONG) == [(1, "Unschedulable")]
    assert observe(subject, waiting(1, "ErrImagePull"), LONG + 1) == "ErrImagePull"
    assert observe(subject, waiting(1, "ImagePullBackOff"), LONG + 2) is None
    assert overdue(subject, 9 * LONG) == []


def test_a_second_wait_for_a_node_restarts_its_timeout_until_it_was_reported() -> None:
    subject = PendingPods(TIMEOUT)
    observe(subject, unschedulable(1, "no node"), 0.0)
    subject.leave(1)
    observe(subject, unschedulable(1, "no node"), LONG)
    assert overdue(subject, LONG + 1) == []
    assert overdue(subject, 2 * LONG) == [(1, "Unschedulable")]
    observe(subject, unschedulable(1, "no node"), 2 * LONG)
    assert overdue(subject, 4 * LONG) == []


def test_a_pod_that_waits_for_a_node_is_not_reported_as_slow() -> None:
    subject = PendingPods(TIMEOUT)
    observe(subject, unschedulable(1, "no node"), 0.0)
    assert overdue(subject, 600.0) == [(1, "Unschedulable")]


def test_the_newest_message_is_reported() -> None:
    subject = PendingPods(TIMEOUT)
    observe(subject, unschedulable(1, "waiting for a claim"), 0.0)
    observe(subject, unschedulable(1, "no node has room"), 5.0)
    assert [stuck.message for _, _, stuck in subject.overdue(LONG)] == ["no node has room"]


def test_an_executor_that_has_ended_is_forgotten() -> None:
    subject = PendingPods(TIMEOUT)
    observe(subject, unschedulable(1, "no node"), 0.0)
    subject.forget(1)
    assert overdue(subject, 600.0) == []
    assert len(subject) == 0
