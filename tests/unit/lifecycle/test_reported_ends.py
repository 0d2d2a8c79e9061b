"""Whose end was told, and how long that is remembered."""

from __future__ import annotations

from datetime import timedelta

from actors.lifecycle.reported_ends import ReportedEnds


class Now:
    """A clock that stands where a test puts it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ends(ttl: float = 60.0) -> tuple[ReportedEnds, Now]:
    now = Now()
    return ReportedEnds(timedelta(seconds=ttl), now), now


def test_one_that_is_visible_is_remembered_however_long() -> None:
    subject, now = ends()
    subject.tell(1, "uid-1", visible=True)
    now.now = 1e6
    assert "uid-1" in subject


def test_its_time_runs_from_when_it_leaves() -> None:
    subject, now = ends(ttl=60)
    subject.tell(1, "uid-1", visible=True)
    now.now = 1e6
    assert subject.left("uid-1")
    now.now += 59
    assert "uid-1" in subject
    now.now += 2
    assert "uid-1" not in subject
    assert not subject.left("uid-1")


def test_one_that_is_shown_again_is_visible_again() -> None:
    subject, now = ends(ttl=60)
    subject.tell(1, "uid-1", visible=False)
    subject.remember("uid-1", visible=True)
    now.now = 1e6
    assert "uid-1" in subject


def test_a_late_word_that_it_is_gone_does_not_make_a_visible_one_forgotten() -> None:
    subject, now = ends(ttl=60)
    subject.remember("uid-1", visible=True)
    subject.tell(1, "uid-1", visible=False)
    now.now = 1e6
    assert "uid-1" in subject


def test_executors_are_known_to_have_ended_for_a_while() -> None:
    subject, now = ends(ttl=60)
    subject.tell(1, None, visible=False)
    assert (subject.has_ended(1), subject.has_ended(2)) == (True, False)
    now.now = 61.0
    assert not subject.has_ended(1)


def test_what_is_remembered_is_bounded_by_what_is_visible_and_what_ended_lately() -> None:
    subject, now = ends(ttl=60)
    for number in range(10_000):
        now.now += 1
        subject.tell(number, f"uid-{number}", visible=number % 1_000 == 0)
    assert len(subject) <= 10 + 60
