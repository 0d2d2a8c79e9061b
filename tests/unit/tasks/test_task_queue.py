"""Tasks are handed out, taken back from the lost, and answered once, in any order of what a driver is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import Attempts, LossKind, LossReason, TaskQueue

CRASH = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="it crashed")
EVICTION = LossReason(LossKind.EVICTED, -1, caused_by_app=False, message="it was evicted")


@dataclass(frozen=True, eq=False)
class Link:
    """A connection of an executor."""

    executor_id: int


def queue(*executors: int, tasks: Any = "abc", **options: Any) -> TaskQueue[str, int]:
    found: TaskQueue[str, int] = TaskQueue(tasks, **options)
    for executor in executors:
        found.connected(executor)
    return found


def test_each_task_is_given_to_one_executor_until_none_is_free() -> None:
    tasks = queue(1, 2)
    assert tasks.assign() == [(1, "a"), (2, "b")]
    assert tasks.assign() == []
    assert tasks.waiting == 1
    assert tasks.answered(2, "b")
    assert tasks.assign() == [(2, "c")]


def test_an_executor_may_have_several_but_no_second_one_before_all_have_one() -> None:
    assert queue(1, 2, at_once=2).assign() == [(1, "a"), (2, "b"), (1, "c")]


def test_the_tasks_of_a_lost_connection_come_before_all_others_in_their_order() -> None:
    tasks = queue(1, tasks="abcd", at_once=2)
    tasks.assign()
    tasks.disconnected(1)
    tasks.connected(2)
    assert tasks.assign() == [(2, "a"), (2, "b")]
    assert tasks.repeated == 2


def test_the_first_answer_counts_and_every_other_one_is_dropped() -> None:
    tasks = queue(1, tasks="a")
    tasks.assign()
    tasks.removed(1, EVICTION)
    tasks.connected(2)
    assert tasks.assign() == [(2, "a")]
    assert tasks.answered(1, "a"), "it was on its way"
    assert tasks.is_done
    assert not tasks.answered(2, "a")
    assert not tasks.answered(2, "unknown")


def test_an_answer_that_comes_after_the_loss_keeps_the_task_from_being_given_again() -> None:
    tasks = queue(1, tasks="a")
    tasks.assign()
    tasks.removed(1, EVICTION)
    assert tasks.answered(1, "a")
    tasks.connected(2)
    assert tasks.assign() == []


def test_a_terminating_executor_gets_no_more_tasks_also_over_another_connection() -> None:
    tasks: TaskQueue[str, Link] = TaskQueue("ab")
    first, second = Link(1), Link(1)
    tasks.connected(first)
    assert tasks.assign() == [(first, "a")]
    assert tasks.terminating(1) == (first,)
    assert tasks.answered(first, "a")
    tasks.disconnected(first)
    tasks.connected(second)
    assert tasks.assign() == []


def test_a_task_whose_executors_crash_fails_at_the_limit_and_says_why() -> None:
    tasks = queue(tasks="a", attempts=Attempts(limit=2))
    for executor in (1, 2):
        tasks.connected(executor)
        assert tasks.assign() == [(executor, "a")]
        tasks.disconnected(executor)
        failed = tasks.removed(executor, CRASH)
    assert failed == ("a",)
    assert tasks.is_done
    assert (
        tasks.failed["a"].refusal == "the application lost its executor 2 times (limit = 2); the last loss: it crashed"
    )
    assert not tasks.answered(2, "a")


def test_evictions_never_fail_a_task() -> None:
    tasks = queue(tasks="a", attempts=Attempts(limit=1))
    for executor in range(1, 100):
        tasks.connected(executor)
        assert tasks.assign() == [(executor, "a")]
        assert tasks.removed(executor, EVICTION) == ()


def test_a_task_ends_no_more_executors_than_its_limit_however_late_their_ends_are_explained() -> None:
    tasks = queue(*range(1, 9), tasks="a", attempts=Attempts(limit=3))
    for executor in (1, 2, 3):
        assert tasks.assign() == [(executor, "a")]
        tasks.disconnected(executor)
    assert tasks.assign() == []
    assert (tasks.waiting, tasks.repeated, tasks.is_done) == (1, 2, False)
    assert [tasks.removed(executor, CRASH) for executor in (3, 1, 2)] == [(), (), ("a",)]
    assert (tasks.waiting, tasks.is_done) == (0, True)


def test_a_held_task_is_open_again_once_a_loss_was_not_its_fault() -> None:
    tasks = queue(1, 2, tasks="ab", attempts=Attempts(limit=1))
    tasks.assign()
    tasks.disconnected(1)
    tasks.disconnected(2)
    tasks.connected(3)
    assert tasks.assign() == []
    tasks.removed(1, EVICTION)
    assert tasks.assign() == [(3, "a")]
    tasks.connected(2)
    assert tasks.assign() == [(2, "b")]


def test_a_held_task_may_still_be_answered() -> None:
    tasks = queue(1, 2, tasks="a", attempts=Attempts(limit=1))
    tasks.assign()
    tasks.disconnected(1)
    assert tasks.answered(1, "a")
    assert tasks.is_done
    assert tasks.removed(1, CRASH) == ()
    assert tasks.assign() == []
    assert tasks.failed == {}


def test_losses_by_others_hold_a_task_if_they_have_a_limit() -> None:
    tasks = queue(1, 2, 3, tasks="a", attempts=Attempts(limit=9, other_limit=2))
    tasks.assign()
    tasks.removed(1, EVICTION)
    tasks.assign()
    tasks.disconnected(2)
    assert tasks.assign() == []
    tasks.removed(2, CRASH)
    assert tasks.assign() == [(3, "a")]


def test_a_connection_that_was_lost_and_made_again_counts_against_no_task() -> None:
    tasks = queue(1, tasks="a", attempts=Attempts(limit=1))
    tasks.assign()
    tasks.disconnected(1)
    tasks.connected(1)
    tasks.disconnected(1)
    assert tasks.removed(1, CRASH) == ()
    assert tasks.waiting == 1


def test_a_task_may_be_added_again_once_it_is_answered() -> None:
    tasks = queue(1, tasks="a")
    with pytest.raises(ValueError, match="task 'a' is in the queue already"):
        tasks.add("a")
    tasks.assign()
    tasks.answered(1, "a")
    tasks.add("a")
    assert tasks.assign() == [(1, "a")]


def test_what_at_once_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="at_once = 0: must be a whole number, at least 1"):
        queue(at_once=0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("connect", "disconnect", "answer", "terminate", "crash", "evict", "assign", "old answer")),
        st.integers(1, 4),
    ),
    max_size=80,
)


@given(STEPS, st.integers(1, 3))
def test_whatever_happens_each_task_is_answered_or_failed_once_and_none_is_forgotten(
    steps: list[tuple[str, int]], at_once: int
) -> None:
    names = "abcdef"
    tasks: TaskQueue[str, Link] = TaskQueue(names, at_once=at_once, attempts=Attempts(limit=2))
    links: dict[int, Link] = {}
    given: list[tuple[Link, str]] = []
    answered: Counter[str] = Counter()
    gone: set[int] = set()
    for step, executor_id in steps:
        link = links.get(executor_id)
        match step:
            case "connect" if link is None and executor_id not in gone:
                links[executor_id] = Link(executor_id)
                tasks.connected(links[executor_id])
            case "disconnect" if link is not None:
                tasks.disconnected(links.pop(executor_id))
            case "answer" if link is not None:
                for task in tasks.working_on(link)[:1]:
                    answered[task] += tasks.answered(link, task)
            case "old answer" if given:
                old, task = given[executor_id % len(given)]
                answered[task] += tasks.answered(old, task)
            case "terminate":
                tasks.terminating(executor_id)
            case "crash" | "evict":
                gone.add(executor_id)
                links.pop(executor_id, None)
                tasks.removed(executor_id, CRASH if step == "crash" else EVICTION)
            case "assign":
                given += tasks.assign()
            case _:
                pass  # there is nobody to do it
        for each in links.values():
            assert len(tasks.working_on(each)) <= at_once
        assert not set(answered) - set(names)
        assert max(answered.values(), default=0) <= 1
        assert not {task for task, count in answered.items() if count} & set(tasks.failed)
    last = Link(1000)
    for link in links.values():
        tasks.disconnected(link)
    for executor_id in range(1, 5):
        tasks.removed(executor_id, EVICTION)
    tasks.connected(last)
    while batch := tasks.assign():
        for executor, task in batch:
            answered[task] += tasks.answered(executor, task)
    assert tasks.is_done
    assert {task for task, count in answered.items() if count} | set(tasks.failed) == set(names)
