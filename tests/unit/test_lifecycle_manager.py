"""The LifecycleManager between probes, message by message."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from immutables import Map

from actors.lifecycle_manager import LifecycleManager
from actors.loss import LossKind, LossReason
from actors.messages import (
    AddSubscriber,
    BatchDone,
    ConfirmPod,
    DeletePod,
    ExecutorDisconnected,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorSeen,
    ExecutorsGivenUp,
    ExecutorsKnown,
    LabelPod,
    LedgerEntry,
    PodConfirmed,
    RemoveExecutor,
)
from actors.pods import Pod, PodPending, PodRunning, PodTerminating, PodUnknown
from tests.unit.builders import pod
from tests.unit.views import RULES, View, failed, going, labelled, pending, running, settings, succeeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.runtime import Address
    from actors.testing import Kit

SECOND = timedelta(seconds=1)


class Rig:
    """A LifecycleManager, probes in the places of store, pool and backend, and a view of a cluster."""

    def __init__(self, kit: Kit, *, start: bool = True, **executor: Any) -> None:
        self.kit = kit
        self.store, self.pool, self.backend = (kit.probe(name) for name in ("store", "pool", "backend"))
        self.view = View()
        self.settings = settings(executor=executor)
        self.manager = self.spawn()
        if start:
            self.know()

    def spawn(self) -> Address:
        make = partial(
            LifecycleManager,
            settings=self.settings,
            rules=RULES,
            store=self.store.address,
            pool=self.pool.address,
            backend=self.backend.address,
        )
        return self.kit.spawn(make, name="lifecycle-manager")

    @property
    def now(self) -> float:
        return self.kit.clock.monotonic()

    def tell(self, message: object) -> None:
        self.manager.tell(message)
        self.kit.settle()

    def know(self, *entries: LedgerEntry) -> None:
        self.tell(ExecutorsKnown(Map({entry.executor_id: entry for entry in entries}), 1))

    def restart(self, *entries: LedgerEntry) -> None:
        """Another one takes over, with this ledger; the first batch shows it everything."""
        self.manager.stop()
        self.kit.settle()
        self.manager = self.spawn()
        self.know(*entries)
        self.tell(self.view.everything(self.now))

    def round(self, *pods: Pod, synced: bool = False) -> None:
        """A batch that shows these pods, after a full sync that was asked for just now if `synced`."""
        self.view.show(*pods)
        if synced:
            self.view.sync(self.now)
        self.tell(self.view.batch(self.now))

    def seen(self) -> list[tuple[int, str]]:
        return [(seen.executor_id, type(seen.state).__name__) for seen in self.backend.take_all(ExecutorSeen)]

    def removed(self) -> dict[int, LossReason]:
        """Whose end was told since the last look, each once."""
        told = self.backend.take_all(RemoveExecutor)
        assert len({remove.executor_id for remove in told}) == len(told), f"an end was told twice: {told}"
        return {remove.executor_id: remove.reason for remove in told}

    def deleted(self) -> list[str]:
        """Whose deletion was asked for since the last look."""
        deletes = self.pool.take_all(DeletePod)
        assert all(delete.options.uid for delete in deletes), f"a pod is deleted whatever its UID: {deletes}"
        return [delete.name for delete in deletes]

    def confirm(self, found: Pod | None) -> None:
        """The GET that was asked for is answered."""
        asked = self.pool.take(ConfirmPod)
        asked.reply_to.tell(PodConfirmed(asked.executor_id, asked.uid, found))
        self.kit.settle()


@pytest.fixture
def rig(kit: Kit) -> Callable[..., Rig]:
    return partial(Rig, kit)


def entry(executor_id: int, **known: Any) -> LedgerEntry:
    """An executor that the driver was told of."""
    return LedgerEntry(executor_id, "default", **{"uid": f"uid-{executor_id}", "told_at": 0.0, **known})


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_subscribes_at_the_event_processing_interval_once_it_has_the_ledger(rig: Callable[..., Rig]) -> None:
    subject = rig(start=False, event_processing_interval=timedelta(seconds=7))
    subject.store.expect_nothing()
    subject.know()
    assert subject.store.take(AddSubscriber) == AddSubscriber(subject.manager, timedelta(seconds=7))


def test_every_batch_is_answered(rig: Callable[..., Rig]) -> None:
    subject = rig()
    batch = subject.view.batch(subject.now)
    subject.tell(batch)
    assert subject.store.take(BatchDone) == BatchDone(subject.manager, batch.seq)


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_state_is_told_once_when_it_begins(rig: Callable[..., Rig]) -> None:
    subject = rig()
    for shown in (pending(1), pending(1), running(1), running(1), going(running(1)), going(running(1))):
        subject.round(shown)
        subject.round()
    assert subject.seen() == [(1, "PodPending"), (1, "PodRunning"), (1, "PodTerminating")]


def test_a_full_sync_that_shows_what_is_known_tells_nothing(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.seen()
    subject.round(synced=True)
    assert subject.seen() == []


def test_an_unknown_phase_counts_as_alive(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(pod(1, phase="Confused"))
    assert subject.seen() == [(1, "PodUnknown")]
    assert subject.removed() == {}


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failed_one_is_told_with_its_exit_code_and_its_pod_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.round(failed(1, 3))
    reason = subject.removed()[1]
    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.EXITED, 3, True)
    assert subject.deleted() == ["app-exec-1"]


def test_a_succeeded_one_is_told_and_its_pod_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(succeeded(1))
    assert subject.removed()[1].exit_code == 0
    assert subject.deleted() == ["app-exec-1"]


def test_an_end_is_told_once_and_the_api_asked_in_every_round_that_still_shows_it(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(failed(1))
    subject.round()
    subject.round(failed(1), synced=True)
    assert list(subject.removed()) == [1]
    assert subject.deleted() == ["app-exec-1"] * 3
    subject.view.end(1)
    subject.round()
    subject.round(synced=True)
    assert (subject.removed(), subject.deleted()) == ({}, [])


def test_a_deleted_one_is_told_and_not_deleted_again(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1)
    subject.round()
    assert subject.removed()[1].kind is LossKind.DELETED
    subject.round(synced=True)
    assert (subject.removed(), subject.deleted()) == ({}, [])


def test_one_that_came_and_went_between_two_rounds_is_told(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.view.show(running(1))
    subject.view.end(1)
    subject.round()
    assert list(subject.removed()) == [1]


def test_without_delete_on_termination_the_pod_is_labelled_inactive(rig: Callable[..., Rig]) -> None:
    subject = rig(delete_on_termination=False)
    subject.round(failed(1))
    assert subject.deleted() == []
    label = subject.pool.take(LabelPod)
    assert (label.name, label.uid, dict(label.labels)) == ("app-exec-1", "uid-1", {"executor-pods/inactive": "true"})


def test_one_that_was_labelled_inactive_and_so_left_is_not_told_again(rig: Callable[..., Rig]) -> None:
    subject = rig(delete_on_termination=False)
    subject.round(failed(1))
    subject.removed()
    subject.view.end(1, deleted=False)
    subject.round()
    subject.round(synced=True)
    assert subject.removed() == {}
    assert subject.pool.take_all(ConfirmPod) == []


@pytest.mark.parametrize(
    ("end", "killed", "level"),
    [(succeeded(1), False, "INFO"), (succeeded(1), True, "DEBUG"), (going(succeeded(1)), False, "DEBUG")],
    ids=["nobody asked", "the driver asked", "its deletion had begun"],
)
def test_a_success_is_for_the_operator_when_nobody_asked_for_the_end(
    rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture, end: Pod, killed: bool, level: str
) -> None:
    subject = rig()
    subject.round(running(1))
    if killed:
        subject.tell(ExecutorKilled(1))
    with caplog.at_level(logging.DEBUG, "actors.lifecycle_manager"):
        subject.round(end)
    assert [record.levelname for record in caplog.records if "succeeded" in record.message] == [level]


def test_an_unknown_phase_is_a_warning_once_and_no_end(
    rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    subject = rig()
    for _ in range(3):
        subject.round(pod(1, phase="Confused"))
    assert [record.levelname for record in caplog.records if "phase=Confused" in record.message] == ["WARNING"]
    assert isinstance(subject.backend.take(ExecutorSeen).state, PodUnknown)
    subject.backend.expect_nothing()


# ── without a deletion ───────────────────────────────────────────────────────────────────────────────────────────────


def test_one_that_leaves_without_a_deletion_is_looked_for_before_its_end_is_told(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1, deleted=False)
    subject.round()
    assert subject.removed() == {}
    subject.confirm(None)
    assert subject.removed()[1].kind is LossKind.DELETED


def test_one_that_lives_on_outside_is_told_as_released_and_not_touched_again(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1, deleted=False)
    subject.round()
    subject.confirm(running(1))
    assert subject.removed()[1].kind is LossKind.RELEASED
    subject.round(synced=True)
    subject.round(synced=True)
    assert (subject.removed(), subject.deleted()) == ({}, [])


@pytest.mark.parametrize("looked_for", [False, True])
def test_one_that_is_back_from_outside_is_told_as_released_once_and_deleted_as_its_replacement_has_come(
    rig: Callable[..., Rig], looked_for: bool
) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1, deleted=False)
    subject.round()
    if looked_for:
        subject.round(running(1))
        subject.confirm(running(1))
    else:
        subject.confirm(running(1))
        subject.round(running(1))
    assert {i: reason.kind for i, reason in subject.removed().items()} == {1: LossKind.RELEASED}
    subject.deleted()
    subject.round()
    assert subject.deleted() == ["app-exec-1"], "in every round that still shows it"
    subject.view.end(1)
    subject.round(synced=True)
    assert (subject.removed(), subject.deleted()) == ({}, [])


def test_one_that_is_found_terminating_was_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1, deleted=False)
    subject.round()
    subject.confirm(going(running(1)))
    assert subject.removed()[1].kind is LossKind.DELETED


def test_one_that_was_set_aside_before_its_end_was_seen_has_ended(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1, deleted=False)
    subject.round()
    subject.confirm(labelled(running(1), inactive="true"))
    assert subject.removed()[1].kind is LossKind.DELETED


# ── missing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_that_registered_and_of_which_two_full_syncs_show_no_trace_is_missing(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.tell(ExecutorRegistered(1, subject.now))
    subject.kit.advance(timedelta(seconds=20))
    subject.round(synced=True)
    subject.kit.advance(timedelta(seconds=9))
    subject.round(synced=True)
    assert subject.removed() == {}, "it has been known for less than missing_pod_detect_delta"
    subject.kit.advance(SECOND)
    subject.round(synced=True)
    reason = subject.removed()[1]
    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.MISSING, -1, False)


def test_one_full_sync_without_it_does_not_make_one_missing(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.tell(ExecutorRegistered(1, subject.now))
    subject.kit.advance(timedelta(minutes=5))
    subject.round(synced=True)
    subject.round()
    subject.round(synced=True)  # asked for at the same moment
    assert subject.removed() == {}
    subject.kit.advance(SECOND)
    subject.round(synced=True)
    assert list(subject.removed()) == [1]


def test_one_is_not_missing_without_a_full_sync(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.tell(ExecutorRegistered(1, subject.now))
    for _ in range(3):
        subject.kit.advance(timedelta(minutes=5))
        subject.round()
    assert subject.removed() == {}


def test_one_that_is_missing_is_told_with_what_was_last_known_of_it(rig: Callable[..., Rig]) -> None:
    subject = rig(start=False)
    subject.know(entry(1, pod=running(1)))
    for _ in range(3):
        subject.kit.advance(timedelta(minutes=1))
        subject.round(synced=True)
    assert "app-exec-1" in subject.removed()[1].message


def test_one_that_is_shown_again_after_a_full_sync_without_it_is_not_missing(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.tell(ExecutorRegistered(1, subject.now))
    subject.kit.advance(timedelta(minutes=1))
    subject.round(synced=True)
    subject.round(running(1))
    subject.kit.advance(timedelta(minutes=1))
    subject.round(synced=True)
    assert subject.removed() == {}


def test_one_that_is_looked_for_is_not_missing(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1, deleted=False)
    for _ in range(3):
        subject.kit.advance(timedelta(minutes=1))
        subject.round(synced=True)
    assert subject.removed() == {}
    subject.confirm(None)
    assert subject.removed()[1].kind is LossKind.DELETED


def test_a_disconnected_one_is_not_told_as_gone(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.tell(ExecutorDisconnected(1, subject.now))
    subject.round(synced=True)
    assert (subject.removed(), subject.deleted()) == ({}, [])


# ── terminating ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_that_outlives_its_grace_by_far_is_lost_with_its_node(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1), grace=30))
    subject.kit.advance(timedelta(seconds=89))
    subject.round()
    assert subject.removed() == {}
    subject.kit.advance(SECOND)
    subject.round()
    assert subject.removed()[1].kind is LossKind.NODE_LOST


def test_the_end_of_one_that_was_lost_with_its_node_is_not_told_again(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1), grace=30))
    subject.kit.advance(timedelta(minutes=5))
    subject.round()
    subject.removed()
    subject.round(going(failed(1)))
    subject.round()
    subject.view.end(1)
    subject.round()
    assert subject.removed() == {}


def test_one_that_ends_within_its_time_is_told_with_its_own_end(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1), grace=30))
    subject.kit.advance(timedelta(seconds=80))
    subject.view.end(1)
    subject.round()
    assert subject.removed()[1].kind is LossKind.DELETED
    subject.kit.advance(timedelta(minutes=5))
    subject.round()
    assert subject.removed() == {}


def test_one_that_is_given_up_while_it_terminates_is_not_told(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1)))
    subject.tell(ExecutorsGivenUp((1,), "its id is an earlier one's"))
    subject.kit.advance(timedelta(minutes=5))
    subject.round()
    assert (subject.removed(), subject.deleted()) == ({}, [])


# ── killed, given up ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shown", [pending(1), running(1)])
def test_a_killed_ones_deletion_is_asked_for_in_every_round_until_it_goes(rig: Callable[..., Rig], shown: Pod) -> None:
    subject = rig()
    subject.round(shown)
    subject.tell(ExecutorKilled(1))
    subject.round()
    subject.round()
    assert subject.deleted() == ["app-exec-1"] * 2
    subject.round(going(running(1)))
    subject.round()
    assert subject.deleted() == []
    subject.view.end(1)
    subject.round()
    assert subject.removed()[1].kind is LossKind.KILLED_BY_DRIVER


def test_one_that_was_killed_before_it_came_up_is_deleted_on_sight(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.tell(ExecutorKilled(1))
    subject.round(pending(1))
    assert subject.deleted() == ["app-exec-1"]


def test_what_comes_up_under_an_id_that_was_given_up_is_deleted_on_sight_and_never_told(
    rig: Callable[..., Rig],
) -> None:
    subject = rig()
    subject.tell(ExecutorsGivenUp((1,), "it was not seen"))
    subject.round(pending(1))
    subject.round(running(1))
    assert subject.deleted() == ["app-exec-1"] * 2
    subject.round(failed(1))
    assert subject.deleted() == ["app-exec-1"]
    subject.view.end(1)
    subject.round()
    subject.backend.expect_nothing()


def test_one_that_is_given_up_while_it_is_shown_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.tell(ExecutorsGivenUp((1,), "its id is an earlier one's"))
    subject.round()
    assert subject.deleted() == ["app-exec-1"]


# ── what is remembered ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_end_is_not_told_again_while_its_pod_is_shown_however_long(rig: Callable[..., Rig]) -> None:
    subject = rig(removed_executors_ttl=SECOND)
    subject.round(failed(1))
    subject.removed()
    subject.kit.advance(timedelta(hours=1))
    subject.round(failed(1), synced=True)
    subject.view.end(1)
    subject.round()
    assert subject.removed() == {}


def test_an_end_is_not_told_again_for_a_while_after_its_pod_is_gone(rig: Callable[..., Rig]) -> None:
    subject = rig(removed_executors_ttl=timedelta(minutes=3))
    subject.round(failed(1))
    subject.view.end(1)
    subject.round()
    subject.removed()
    subject.kit.advance(timedelta(minutes=2))
    late = View()
    late.show(failed(1))
    subject.tell(late.batch(subject.now))
    assert subject.removed() == {}
    assert subject.deleted()[-1] == "app-exec-1"


def test_a_restarted_one_tells_no_end_again_and_clears_what_is_left_away(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(failed(1))
    assert (list(subject.removed()), subject.deleted()) == ([1], ["app-exec-1"])
    subject.restart(entry(1, removed_at=subject.now))
    assert (subject.removed(), subject.deleted()) == ({}, ["app-exec-1"])


def test_a_restarted_one_tells_what_is_alive_anew(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.seen()
    subject.restart(entry(1, pod=running(1)))
    assert subject.seen() == [(1, "PodRunning")]


def test_a_restarted_one_still_deletes_the_killed_and_the_given_up(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1), running(2))
    subject.restart(entry(1, killed=True), entry(2, given_up=True, uid=None, removed_at=subject.now))
    assert subject.deleted() == ["app-exec-1", "app-exec-2"]


def test_a_restarted_one_finds_missing_what_ended_unseen_meanwhile(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.lose(1)
    subject.view = View()
    subject.restart(entry(1, pod=running(1)))
    for _ in range(2):
        subject.kit.advance(timedelta(minutes=1))
        subject.round(synced=True)
    assert subject.removed()[1].kind is LossKind.MISSING


# ── one bad pod ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_whose_executor_container_is_unknown_harms_no_other(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(pod(1, phase="Failed"), running(2), failed(3))
    assert sorted(subject.removed()) == [1, 3]
    assert subject.seen() == [(2, "PodRunning")]


def test_the_states_that_are_told_are_those_of_the_snapshot(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(pending(1), running(2), going(running(3)))
    states = {seen.executor_id: type(seen.state) for seen in subject.backend.take_all(ExecutorSeen)}
    assert states == {1: PodPending, 2: PodRunning, 3: PodTerminating}
