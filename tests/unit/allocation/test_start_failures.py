"""Which executors count as start failures, and how long creation waits for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from actors.allocation.start_failures import ProfileStartFailures, ShortLived, StartFailures, was_start_failure
from actors.pods.pod import ContainerState, ContainerStatus, Pod, PodStatus, TerminatedState
from actors.pods.state import PodDeleted, PodFailed, PodState, PodSucceeded
from actors.runtime import Entropy
from actors.settings import ExecutorSettings
from tests.unit.views import RULES, View, evicted, failed, going, pending, running, succeeded, waiting

TEN = timedelta(seconds=10)


def ended_between(started: datetime | None, finished: datetime | None) -> Pod:
    end = TerminatedState(exit_code=128, reason="StartError", started_at=started, finished_at=finished)
    status = ContainerStatus(name="executor", state=ContainerState(terminated=end))
    return msgspec.structs.replace(failed(1), status=PodStatus(phase="Failed", container_statuses=(status,)))


def refused_by_node() -> Pod:
    """The kubelet did not admit it: no container of it ever ran."""
    status = PodStatus(phase="Failed", reason="OutOfcpu", message="Pod was rejected: Node didn't have enough resource")
    return msgspec.structs.replace(failed(1), status=status)


NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        (PodFailed(failed(1, 1, ran=timedelta(seconds=9))), True),
        (PodFailed(failed(1, 1, ran=TEN)), False),
        (PodSucceeded(succeeded(1)), True),
        (PodFailed(failed(1, 137, reason="OOMKilled")), True),
        (PodFailed(evicted(1)), False),
        (PodFailed(refused_by_node()), True),
        (PodDeleted(going(running(1))), False),
        (PodFailed(ended_between(None, None)), True),
        (PodFailed(ended_between(datetime(1970, 1, 1, tzinfo=UTC), NOW)), True),
        (PodFailed(ended_between(NOW.replace(tzinfo=None), NOW + TEN)), True),
        (PodFailed(ended_between(NOW + TEN, NOW)), True),
    ],
    ids=[
        "soon",
        "ran long enough",
        "succeeded soon",
        "out of memory",
        "evicted",
        "refused by its node",
        "deleted",
        "no timestamps",
        "never started, with the container runtime's zero time",
        "timestamps that cannot be compared",
        "an end before the start",
    ],
)
def test_a_start_failure_ended_early_by_its_own_doing(state: PodState, counts: bool) -> None:
    assert was_start_failure(state, RULES, min_run_time=TEN) is counts


def test_the_wait_doubles_from_a_second_to_five_minutes_and_a_success_resets_it() -> None:
    failures, entropy = ProfileStartFailures(), Entropy(0)

    def wait() -> float:
        now = 1000.0 + failures.until
        failures.failed(1, now=now, keep=99, interval=None, entropy=entropy)
        return failures.until - now

    assert [wait() for _ in range(11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    failures.succeeded()
    assert failures.until == 0.0
    assert wait() == 1


def test_only_failures_within_the_interval_are_counted() -> None:
    failures, entropy = ProfileStartFailures(), Entropy(0)
    counts = [
        failures.failed(1, now=now, keep=99, interval=timedelta(minutes=1), entropy=entropy)
        for now in (0.0, 60.0, 61.0, 200.0)
    ]
    assert counts == [1, 2, 2, 1]


def test_no_more_failures_are_remembered_than_are_needed() -> None:
    failures = ProfileStartFailures()
    for now in range(1000):
        failures.failed(5, now=float(now), keep=7, interval=None, entropy=Entropy(0))
    assert len(failures.times) == 7


def starts() -> StartFailures:
    return StartFailures(RULES, ExecutorSettings(image="worker:1", min_run_time=TEN))


def test_an_end_is_counted_once_though_it_is_shown_and_then_told() -> None:
    subject, view = starts(), View()
    view.show(running(1))
    view.show(failed(1))
    assert subject.follow(view.batch(0.0), (), 0.0).failed == {"default": 1}
    view.show(failed(1))
    assert subject.follow(view.batch(1.0), (), 1.0).failed == {}
    view.end(1)
    assert subject.follow(view.batch(2.0), (), 2.0).failed == {}


def test_one_that_came_and_went_between_two_batches_is_counted() -> None:
    subject, view = starts(), View()
    view.show(running(1))
    view.show(failed(1))
    view.end(1)
    assert subject.follow(view.batch(0.0), (), 0.0).failed == {"default": 1}


def test_a_registered_one_is_not_counted() -> None:
    subject, view = starts(), View()
    view.show(failed(1))
    assert subject.follow(view.batch(0.0), {1}, 0.0).failed == {}


def test_one_that_has_run_long_enough_resets_the_wait() -> None:
    subject, view = starts(), View()
    view.show(running(1))
    subject.follow(view.batch(0.0), (), 0.0)
    subject.of("default").failed(1, now=5.0, keep=99, interval=None, entropy=Entropy(0))
    subject.follow(view.batch(9.9), (), 9.9)
    assert subject.of("default").rounds == 1
    subject.follow(view.batch(10.0), (), 10.0)
    assert subject.of("default").rounds == 0


def test_a_success_in_the_batch_that_shows_a_failure_does_not_undo_the_failure() -> None:
    subject, view = starts(), View()
    view.show(running(1))
    subject.follow(view.batch(0.0), (), 0.0)
    view.show(failed(2))
    assert subject.follow(view.batch(10.0), (), 10.0).failed == {"default": 1}


def test_those_that_end_while_creation_waits_do_not_make_it_wait_longer() -> None:
    failures, entropy = ProfileStartFailures(), Entropy(0)
    for now in (10.0, 10.1, 10.9):
        failures.failed(1, now=now, keep=99, interval=None, entropy=entropy)
    assert (failures.until, failures.rounds, len(failures.times)) == (11.0, 1, 3)
    failures.failed(1, now=11.0, keep=99, interval=None, entropy=entropy)
    assert failures.until == 13.0


def test_one_that_was_asked_to_go_is_not_counted() -> None:
    subject, view = starts(), View()
    view.show(succeeded(1), running(2))
    assert subject.follow(view.batch(0.0), (), 0.0, is_asked_to_go={1, 2}.__contains__).failed == {}
    view.show(failed(2))
    view.end(2)
    assert subject.follow(view.batch(1.0), (), 1.0, is_asked_to_go={2}.__contains__).failed == {}


def test_one_that_is_deleted_as_it_would_never_run_is_counted_when_it_is_gone() -> None:
    subject, view = starts(), View()
    view.show(waiting(1, "InvalidImageName"))
    subject.follow(view.batch(0.0), (), 0.0)
    assert (subject.replaced("uid-1"), subject.replaced("uid-1")) == (True, False)
    view.show(going(waiting(1, "InvalidImageName")))
    assert subject.follow(view.batch(1.0), (), 1.0).failed == {}
    view.end(1)
    assert subject.follow(view.batch(2.0), (), 2.0).failed == {"default": 1}
    assert subject.replaced("uid-1"), "nothing is kept of one that is gone"


@pytest.mark.parametrize("state", [running(1), waiting(1, "ContainerCreating")], ids=["running", "starting"])
def test_one_that_survives_that_deletion_because_it_got_on_is_not(state: Pod) -> None:
    subject, view = starts(), View()
    view.show(waiting(1, "CreateContainerConfigError"))
    subject.follow(view.batch(0.0), (), 0.0)
    subject.replaced("uid-1")
    view.show(state)
    subject.follow(view.batch(1.0), (), 1.0)
    view.end(1)
    assert subject.follow(view.batch(2.0), (), 2.0).failed == {}


def test_what_was_counted_outlives_a_restart() -> None:
    first, entropy, at = starts(), Entropy(0), datetime(2024, 1, 1, tzinfo=UTC)
    first.of("quiet").succeeded()
    for now in (10.0, 20.0):
        first.failed("default", 1, target=1, now=now, at=at, entropy=entropy)
    second = starts()
    second.learn(first.record())
    assert second.record() == first.record()
    assert sorted(second.record().tallies) == ["default"], "nothing is kept where nothing failed"
    assert (second.count("default", 30.0), second.may_go_on("default", 21.9)) == (2, False)
    assert second.failed("default", 1, target=1, now=30.0, at=at, entropy=entropy) == (4.0, True)
    third = starts()
    third.learn(second.record())
    assert not third.may_go_on("other", 999.0)
    assert (third.exceeded, third.exceeded_since) == (second.exceeded, at)
    assert third.forgive()
    assert third.may_go_on("default", 30.0)
    assert not third.forgive(), "there is nothing to forgive any more"


# ── what others end ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "shown",
    [(going(running(1)),), (going(pending(1)),), (evicted(1),), ()],
    ids=["being deleted", "being deleted before it ran", "evicted", "gone at once"],
)
def test_one_that_others_end_before_it_was_of_use_was_cut_short_once(shown: tuple[Pod, ...]) -> None:
    subject, view = starts(), View()
    view.show(running(1))
    subject.follow(view.batch(0.0), (), 0.0)
    view.show(*shown)
    early = [subject.follow(view.batch(1.0), (), 1.0)]
    view.end(1)
    early.append(subject.follow(view.batch(9.0), (), 9.0))
    assert [ends.failed for ends in early] == [{}, {}]
    assert sorted(map(str, (ends.cut_short for ends in early))) == ["{'default': [1]}", "{}"]


@pytest.mark.parametrize("why", ["it ran long enough", "it was registered", "we asked for it", "there were too many"])
def test_one_whose_end_is_no_harm_or_our_own_was_not_cut_short(why: str) -> None:
    subject, view = starts(), View()
    view.show(running(1))
    subject.follow(view.batch(0.0), (), 0.0)
    if why == "there were too many":
        subject.taken_back(running(1).uid)
    view.show(going(running(1)))
    at = 10.0 if why == "it ran long enough" else 9.0
    registered = {1} if why == "it was registered" else set()
    asked = {1} if why == "we asked for it" else set()
    early = subject.follow(view.batch(at), registered, at, is_asked_to_go=asked.__contains__)
    assert (early.failed, early.cut_short) == ({}, {})


def test_one_that_is_about_to_go_proves_nothing_any_more() -> None:
    subject, view = starts(), View()
    view.show(running(1))
    subject.follow(view.batch(0.0), (), 0.0)
    subject.failed("default", 1, target=99, now=0.0, at=NOW, entropy=Entropy(0))
    view.show(going(running(1)))
    subject.follow(view.batch(1.0), (), 1.0)
    subject.follow(view.batch(60.0), (), 60.0)
    assert subject.of("default").rounds == 1


def test_the_first_time_is_not_waited_for_and_then_each_time_twice_as_long() -> None:
    cut_short, now, waits = ShortLived(), 1000.0, []
    for executor_id in range(1, 12):
        assert cut_short.came([executor_id], newest=executor_id, now=now, entropy=Entropy(0))
        waits.append(max(0.0, cut_short.until - now))
        now += 400
    assert waits == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    cut_short.succeeded()
    assert cut_short.came([99], newest=99, now=now, entropy=Entropy(0))
    assert cut_short.until == 0.0


def test_those_that_were_made_before_are_the_rest_of_what_went() -> None:
    cut_short = ShortLived()
    assert cut_short.came([3, 7], newest=9, now=1.0, entropy=Entropy(0))
    assert not cut_short.came([8, 9], newest=20, now=2.0, entropy=Entropy(0))
    assert not cut_short.came([1], newest=20, now=3.0, entropy=Entropy(0))
    assert cut_short.until == 0.0
    assert cut_short.came([9, 10], newest=20, now=4.0, entropy=Entropy(0)), "one that was made in their place"
    assert cut_short.until == 5.0


def test_how_often_others_ended_some_outlives_a_restart() -> None:
    first, second = starts(), starts()
    for executor_id, now in ((1, 100.0), (2, 200.0)):
        first.cut_short("default", [executor_id], newest=executor_id, now=now, entropy=Entropy(0))
    second.learn(first.record())
    assert not second.may_go_on("default", 200.9)
    assert second.waits_for("default", 200.9) is not None
    assert second.may_go_on("default", 201.0)
    assert second.cut_short("default", [3], newest=3, now=300.0, entropy=Entropy(0)) == 2.0
