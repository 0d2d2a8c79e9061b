"""ReportedEnds: how long an end is remembered."""

from __future__ import annotations

from datetime import timedelta

from actors.lifecycle.reported_ends import ReportedEnds


class Now:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ends(ttl: float = 60.0) -> tuple[ReportedEnds, Now]:
    now = Now()
    return ReportedEnds(timedelta(seconds=ttl), now), now


def test_a_visible_pod_is_remembered() -> None:
    subject, now = ends()
    subject.add(1, "uid-1", visible=True)
    now.now = 1e6
    assert "uid-1" in subject


def test_the_time_to_live_starts_when_the_pod_leaves() -> None:
    subject, now = ends(ttl=60)
    subject.add(1, "uid-1", visible=True)
    now.now = 1e6
    assert subject.left("uid-1")
    now.now += 59
    assert "uid-1" in subject
    now.now += 2
    assert "uid-1" not in subject
    assert not subject.left("uid-1")


def test_a_pod_that_returns_is_visible_again() -> None:
    subject, now = ends(ttl=60)
    subject.add(1, "uid-1", visible=False)
    subject.remember("uid-1", visible=True)
    now.now = 1e6
    assert "uid-1" in subject


def test_a_visible_pod_is_not_forgotten_when_it_is_added_as_gone() -> None:
    subject, now = ends(ttl=60)
    subject.remember("uid-1", visible=True)
    subject.add(1, "uid-1", visible=False)
    now.now = 1e6
    assert "uid-1" in subject


def test_ended_executors_are_remembered_for_a_while() -> None:
    subject, now = ends(ttl=60)
    subject.add(1, None, visible=False)
    assert (subject.has_ended(1), subject.has_ended(2)) == (True, False)
    now.now = 61.0
    assert not subject.has_ended(1)


def test_the_memory_is_bounded_by_visible_pods_and_recent_ends() -> None:
    subject, now = ends(ttl=60)
    for number in range(10_000):
        now.now += 1
        subject.add(number, f"uid-{number}", visible=number % 1_000 == 0)
    assert len(subject) <= 10 + 60
