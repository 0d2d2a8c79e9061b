"""Which executors ended early: by their own doing, or because others ended them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from actors.allocation.executor_tracker import ExecutorTracker
from actors.allocation.profile import Profiles
from actors.allocation.start_failures import ENDED_BY_ITSELF, EarlyEnds, StartFailures, was_start_failure
from actors.pods.loss_kind import LossKind
from actors.pods.pod import ContainerState, ContainerStatus, Pod, PodStatus, TerminatedState
from actors.pods.state import PodDeleted, PodFailed, PodState, PodSucceeded
from actors.runtime import Entropy
from tests.unit.views import RULES, View, evicted, failed, going, pending, running, settings, succeeded, waiting

TEN = timedelta(seconds=10)

BY_OTHERS = {
    *(LossKind.EVICTED, LossKind.PREEMPTED, LossKind.NODE_LOST, LossKind.DELETED, LossKind.KILLED_BY_DRIVER),
    *(LossKind.MISSING, LossKind.DISCONNECTED, LossKind.RELEASED),
}
"""The kinds after which the next executor may well start."""


def ended_between(started: datetime | None, finished: datetime | None) -> Pod:
    end = TerminatedState(exit_code=128, reason="StartError", started_at=started, finished_at=finished)
    status = ContainerStatus(name="executor", state=ContainerState(terminated=end))
    return msgspec.structs.replace(failed(1), status=PodStatus(phase="Failed", container_statuses=(status,)))


def refused_by_node() -> Pod:
    """A pod that the kubelet did not admit: none of its containers ever ran."""
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
        "an end before the start",
    ],
)
def test_a_start_failure_ended_early_by_itself(state: PodState, counts: bool) -> None:
    assert was_start_failure(state, RULES, min_run_time=TEN) is counts


class Rig:
    """Start failures that follow a view."""

    def __init__(self) -> None:
        subject = settings(executor={"min_run_time": TEN})
        self.view = View()
        self.tracker = ExecutorTracker(subject)
        profiles = Profiles(subject)
        self.profile = profiles["default"]
        self.starts = StartFailures(subject, self.tracker, profiles)

    def follow(self, now: float) -> EarlyEnds:
        return self.starts.follow(self.view.batch(now), now)

    def fail(self, now: float) -> None:
        """Another executor failed to start."""
        self.profile.add_start_failures(1, most=99, now=now, entropy=Entropy(0))


def test_each_kind_of_loss_counts_or_is_the_doing_of_others() -> None:
    assert sorted([*ENDED_BY_ITSELF, *BY_OTHERS]) == sorted(LossKind)


def test_an_end_is_counted_once_though_it_is_in_several_batches() -> None:
    rig = Rig()
    rig.view.show(running(1))
    rig.view.show(failed(1))
    assert rig.follow(0.0).failed == {"default": 1}
    rig.view.show(failed(1))
    assert rig.follow(1.0).failed == {}
    rig.view.end(1)
    assert rig.follow(2.0).failed == {}


def test_one_that_came_and_went_between_two_batches_is_counted() -> None:
    rig = Rig()
    rig.view.show(running(1))
    rig.view.show(failed(1))
    rig.view.end(1)
    assert rig.follow(0.0).failed == {"default": 1}


def test_a_registered_one_is_not_counted() -> None:
    rig = Rig()
    rig.view.show(failed(1))
    rig.tracker.registered.add(1)
    assert rig.follow(0.0).failed == {}


def test_one_that_has_run_long_enough_resets_the_wait() -> None:
    rig = Rig()
    rig.view.show(running(1))
    rig.follow(0.0)
    rig.fail(5.0)
    rig.follow(9.9)
    assert rig.profile.starts.rounds == 1
    rig.follow(10.0)
    assert rig.profile.starts.rounds == 0


def test_a_success_in_the_batch_of_a_failure_does_not_undo_the_failure() -> None:
    rig = Rig()
    rig.view.show(running(1))
    rig.follow(0.0)
    rig.view.show(failed(2))
    assert rig.follow(10.0).failed == {"default": 1}


def test_one_that_is_being_ended_is_not_counted() -> None:
    rig = Rig()
    rig.view.show(succeeded(1), running(2))
    rig.tracker.killed.update((1, 2))
    assert rig.follow(0.0).failed == {}
    rig.view.show(failed(2))
    rig.view.end(2)
    assert rig.follow(1.0).failed == {}


def test_a_deleted_stuck_executor_is_counted_once_before_it_is_replaced() -> None:
    """A terminating executor is replaced at once, so its failure counts then, not when its node has ended it."""
    rig = Rig()
    rig.view.show(waiting(1, "InvalidImageName"))
    rig.follow(0.0)
    assert (rig.starts.replaced("uid-1"), rig.starts.replaced("uid-1")) == (True, False)
    rig.view.show(going(waiting(1, "InvalidImageName")))
    assert rig.follow(1.0).failed == {"default": 1}
    rig.view.show(going(failed(1, 137, reason="ContainerStatusUnknown")))
    rig.view.end(1)
    assert rig.follow(2.0).failed == {}
    assert rig.starts.replaced("uid-1"), "nothing is kept of one that is gone"


def test_one_that_others_delete_before_it_runs_is_no_failure_but_short_lived() -> None:
    rig = Rig()
    rig.view.show(waiting(1, "ImagePullBackOff"))
    rig.follow(0.0)
    rig.view.show(going(waiting(1, "ImagePullBackOff")), going(failed(1, 137, reason="ContainerStatusUnknown")))
    early = rig.follow(1.0)
    assert (early.failed, early.short_lived) == ({}, {"default": [1]})


@pytest.mark.parametrize("state", [running(1), waiting(1, "ContainerCreating")], ids=["running", "starting"])
def test_a_stuck_executor_that_survives_its_deletion_is_not_counted(state: Pod) -> None:
    rig = Rig()
    rig.view.show(waiting(1, "ErrImageNeverPull"))
    rig.follow(0.0)
    rig.starts.replaced("uid-1")
    rig.view.show(state)
    rig.follow(1.0)
    rig.view.end(1)
    assert rig.follow(2.0).failed == {}


# ── short-lived executors ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "shown",
    [(going(running(1)),), (going(pending(1)),), (evicted(1),), ()],
    ids=["being deleted", "being deleted before it ran", "evicted", "gone at once"],
)
def test_one_that_is_deleted_or_evicted_early_is_short_lived_once(shown: tuple[Pod, ...]) -> None:
    rig = Rig()
    rig.view.show(running(1))
    rig.follow(0.0)
    rig.view.show(*shown)
    early = [rig.follow(1.0)]
    rig.view.end(1)
    early.append(rig.follow(9.0))
    assert [ends.failed for ends in early] == [{}, {}]
    assert sorted(map(str, (ends.short_lived for ends in early))) == ["{'default': [1]}", "{}"]


@pytest.mark.parametrize("why", ["it ran long enough", "it was registered", "we asked for it", "there were too many"])
def test_one_that_ran_long_enough_registered_or_was_ended_by_us_is_not_short_lived(why: str) -> None:
    rig = Rig()
    rig.view.show(running(1))
    rig.follow(0.0)
    if why == "there were too many":
        rig.starts.scaled_down(running(1).uid)
    rig.view.show(going(running(1)))
    at = 10.0 if why == "it ran long enough" else 9.0
    if why == "it was registered":
        rig.tracker.registered.add(1)
    elif why == "we asked for it":
        rig.tracker.killed.add(1)
    early = rig.follow(at)
    assert (early.failed, early.short_lived) == ({}, {})


def test_a_terminating_executor_does_not_reset_the_wait() -> None:
    rig = Rig()
    rig.view.show(running(1))
    rig.follow(0.0)
    rig.fail(0.0)
    rig.view.show(going(running(1)))
    rig.follow(1.0)
    rig.follow(60.0)
    assert rig.profile.starts.rounds == 1
