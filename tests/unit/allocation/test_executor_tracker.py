"""What the Allocator knows of single executors, kept in step with what is shown."""

from __future__ import annotations

import msgspec
import pytest

from actors.allocation.executor_tracker import ExecutorTracker
from actors.messages.internal import LedgerEntry
from actors.pods.pod import PROFILE_LABEL, Pod
from actors.pods.snapshot import PodsSnapshot
from tests.unit.views import View, failed, going, pending, running, settings, waiting


class Rig:
    """A tracker that follows a view."""

    def __init__(self, *, replaced_when_gone: bool = False) -> None:
        policy = "Failed" if replaced_when_gone else "TerminatingOrFailed"
        self.tracker = ExecutorTracker(settings(allocation={"pod_replacement_policy": policy}))
        self.view = View()

    def follow(self, now: float = 0.0, *, synced: bool = False) -> None:
        if synced:
            self.view.sync(now)
        self.batch = self.view.batch(now)
        self.tracker.follow(self.batch, now)

    def created(self, executor_id: int, *, requested_at: float, answered_at: float, profile: str = "default") -> None:
        self.tracker.requested.add(executor_id, profile, requested_at)
        self.tracker.requested.answered(executor_id, answered_at, None)

    def expected(self, profile: str = "default") -> int:
        return self.tracker.expected(self.batch.snapshot, profile)

    def being_ended(self, profile: str = "default") -> int:
        return self.tracker.being_ended(self.batch.snapshot, profile)

    def stuck(self, now: float) -> list[int]:
        return [i for i, _ in self.tracker.stuck(self.batch.snapshot, now)]


@pytest.mark.parametrize(("replaced_when_gone", "expected"), [(False, 2), (True, 3)])
def test_a_terminating_executor_counts_only_when_replacements_wait_for_its_end(
    replaced_when_gone: bool, expected: int
) -> None:
    rig = Rig(replaced_when_gone=replaced_when_gone)
    rig.view.show(pending(1), running(2), going(running(3)))
    rig.follow()
    assert (rig.expected(), rig.expected("gpu")) == (expected, 0)


def of_profile(pod: Pod, profile: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, shared_labels={**pod.labels, PROFILE_LABEL: profile})
    return msgspec.structs.replace(pod, metadata=metadata)


def test_each_profile_counts_its_own_observed_and_requested_executors() -> None:
    rig = Rig()
    rig.view.show(running(1), of_profile(pending(2), "large"), failed(3))
    rig.tracker.requested.add(4, "large", 0.0)
    rig.follow()
    assert (rig.expected(), rig.expected("large"), rig.expected("none")) == (1, 2, 0)
    snapshot = rig.batch.snapshot
    assert (rig.tracker.pending(snapshot), rig.tracker.pending(snapshot, "default")) == (2, 0)


@pytest.mark.parametrize("replaced_when_gone", [False, True])
def test_a_decommissioned_executor_counts_until_it_is_gone(replaced_when_gone: bool) -> None:
    rig = Rig(replaced_when_gone=replaced_when_gone)
    rig.view.show(running(1))
    rig.tracker.decommissioned.add(1)
    rig.follow()
    assert (rig.expected(), rig.being_ended()) == (1, 1)
    rig.view.show(going(running(1)))
    rig.follow()
    assert (rig.expected(), rig.being_ended()) == (1, 1)
    rig.view.end(1)
    rig.follow()
    assert (rig.expected(), rig.being_ended()) == (0, 0)
    assert rig.tracker.decommissioned == set()


def test_a_killed_executor_that_is_only_requested_counts_as_being_ended() -> None:
    rig = Rig()
    rig.tracker.requested.add(1, "default", 0.0)
    rig.tracker.killed.add(1)
    rig.follow()
    assert (rig.expected(), rig.being_ended()) == (1, 1)
    rig.tracker.abandon(1, 0.0)
    assert (rig.expected(), rig.being_ended()) == (0, 0)


def test_an_abandoned_executor_does_not_count_while_it_is_observed_and_is_forgotten_later() -> None:
    rig = Rig()
    rig.tracker.requested.add(1, "default", 0.0)
    rig.tracker.abandon(1, 0.0)
    rig.view.show(running(1))
    rig.follow(1.0)
    assert rig.expected() == 0
    rig.tracker.forget_abandoned(181.0)
    assert (rig.expected(), 1 in rig.tracker.abandoned) == (0, True)
    rig.view.end(1)
    rig.follow(182.0)
    rig.tracker.forget_abandoned(361.0)
    assert 1 in rig.tracker.abandoned
    rig.tracker.forget_abandoned(361.1)
    assert rig.tracker.abandoned == {}


def test_the_ledger_says_which_executors_are_requested_registered_decommissioned_or_abandoned() -> None:
    tracker = ExecutorTracker(settings())
    tracker.load(
        (
            LedgerEntry(1, "default"),
            LedgerEntry(2, "default", uid="u", registered_at=1.0),
            LedgerEntry(3, "default", uid="u", decommissioned=True),
            LedgerEntry(4, "default", abandoned=True, removed_at=1.0),
            LedgerEntry(5, "default", uid="u", registered_at=1.0, removed_at=2.0),
        ),
        9.0,
    )
    assert (sorted(tracker.requested), tracker.registered, tracker.decommissioned, tracker.abandoned) == (
        [1],
        {2},
        {3},
        {4: 9.0},
    )


def test_nothing_is_kept_of_those_that_are_gone() -> None:
    rig = Rig()
    rig.view.show(pending(1), waiting(2, "InvalidImageName"))
    rig.follow()
    for ids in (rig.tracker.registered, rig.tracker.killed, rig.tracker.decommissioned):
        ids.update((1, 2, 99))
    rig.view.end(1, 2)
    rig.follow(1.0, synced=True)
    tracker = rig.tracker
    assert (tracker.registered, tracker.killed, tracker.decommissioned) == (set(), set(), set())
    assert (tracker._pending_since, tracker._never_heal, tracker._late) == ({}, {}, set())


def test_a_pending_executor_that_can_never_start_is_stuck_after_the_timeout() -> None:
    rig = Rig()
    rig.view.show(waiting(1, "InvalidImageName"), waiting(2, "ErrImagePull"), pending(3))
    rig.follow()
    rig.view.show(waiting(4, "ErrImageNeverPull"))
    rig.follow(10.0)
    rig.view.show(waiting(1, "InvalidImageName", "in other words"))
    rig.follow(20.0)
    assert (rig.stuck(299.9), rig.stuck(300.0), rig.stuck(310.0)) == ([], [1], [1, 4])


def test_an_executor_that_makes_progress_before_the_timeout_is_not_stuck() -> None:
    rig = Rig()
    rig.view.show(waiting(1, "ErrImageNeverPull"))
    rig.follow()
    rig.view.show(waiting(1, "ContainerCreating"))
    rig.follow(100.0)
    assert rig.stuck(300.0) == []
    rig.view.show(waiting(1, "ErrImageNeverPull"))
    rig.follow(400.0)
    assert (rig.stuck(699.0), rig.stuck(700.0)) == ([], [1])


@pytest.mark.parametrize("kept", ["registered", "killed", "abandoned"])
def test_a_registered_killed_or_abandoned_executor_is_not_stuck(kept: str) -> None:
    rig = Rig()
    rig.view.show(waiting(1, "InvalidImageName"))
    rig.follow()
    if kept == "abandoned":
        rig.tracker.abandoned[1] = 0.0
    else:
        getattr(rig.tracker, kept).add(1)
    assert rig.stuck(999.0) == []


# ── overdue ──────────────────────────────────────────────────────────────────────────────────────────────────────


def overdue(rig: Rig, *, synced_at: float, now: float) -> tuple[int, ...]:
    """The overdue executors after a full sync requested at `synced_at`; the creation timeout is a minute."""
    rig.follow(synced_at, synced=True)
    return rig.tracker.overdue(rig.batch.snapshot, now)


def test_one_whose_request_is_not_answered_is_never_overdue() -> None:
    rig = Rig()
    rig.tracker.requested.add(1, "default", 0.0)
    assert overdue(rig, synced_at=999.0, now=1000.0) == ()


def test_one_is_overdue_when_the_timeout_has_passed_since_the_answer() -> None:
    rig = Rig()
    rig.created(1, requested_at=0.0, answered_at=10.0)
    assert overdue(rig, synced_at=11.0, now=69.9) == ()
    assert overdue(rig, synced_at=11.0, now=70.0) == (1,)


def test_one_is_not_overdue_before_a_full_sync_requested_after_the_answer() -> None:
    rig = Rig()
    rig.created(1, requested_at=0.0, answered_at=10.0)
    assert rig.tracker.overdue(PodsSnapshot.EMPTY, 500.0) == ()
    assert overdue(rig, synced_at=10.0, now=500.0) == ()


def test_one_in_the_snapshot_is_not_overdue() -> None:
    rig = Rig()
    rig.view.show(pending(1))
    rig.created(1, requested_at=0.0, answered_at=10.0)
    assert overdue(rig, synced_at=11.0, now=500.0) == ()


# ── excess ───────────────────────────────────────────────────────────────────────────────────────────────────────


def chosen(
    excess: int, answered: dict[int, float], pending_since: dict[int, float], *, spared: tuple[int, ...] = ()
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The excess at 100 s of executors answered, or pending, since these moments; the idle timeout is a minute."""
    rig = Rig()
    for executor_id, at in answered.items():
        rig.created(executor_id, requested_at=at, answered_at=at)
    for executor_id, since in sorted(pending_since.items(), key=lambda item: item[1]):
        rig.view.show(pending(executor_id))
        rig.follow(since)
    rig.tracker.registered.update(spared)
    rig.view.show(running(90), running(91))
    rig.follow(100.0)
    requested, waiting = rig.tracker.excess(excess, rig.batch.snapshot, "default", 100.0)
    return requested, tuple(waiting)


def test_requested_executors_are_chosen_before_pending_ones_and_the_oldest_first() -> None:
    assert chosen(3, {8: 20.0, 7: 10.0}, {2: 5.0, 1: 6.0}) == ((7, 8), (2,))
    assert chosen(1, {8: 20.0, 7: 10.0}, {2: 5.0, 1: 6.0}) == ((7,), ())


def test_no_more_than_the_excess_is_chosen() -> None:
    assert chosen(0, {7: 0.0}, {1: 0.0}) == ((), ())


def test_one_younger_than_the_idle_timeout_is_not_chosen() -> None:
    assert chosen(2, {7: 40.1}, {1: 40.1, 2: 40.0}) == ((), (2,))


def test_a_spared_one_is_not_chosen() -> None:
    assert chosen(2, {7: 0.0}, {1: 0.0, 2: 0.0}, spared=(1, 7)) == ((), (2,))


def test_a_running_one_is_never_chosen() -> None:
    assert chosen(5, {}, {}) == ((), ())


def test_one_whose_post_is_not_answered_or_of_another_profile_is_not_chosen() -> None:
    rig = Rig()
    rig.tracker.requested.add(7, "default", 0.0)
    rig.created(8, requested_at=0.0, answered_at=0.0, profile="gpu")
    rig.view.show(of_profile(pending(1), "gpu"))
    rig.follow()
    assert rig.tracker.excess(3, rig.batch.snapshot, "default", 100.0) == ((), {})
