"""The LifecycleManager between probes, message by message."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.executors.ledger import Ledger
from actors.lifecycle.lifecycle_manager import LifecycleManager
from actors.messages.internal import (
    AddSubscriber,
    AdoptionEnded,
    AdoptPod,
    BatchDone,
    ConfirmPod,
    ConnectionLost,
    DeletePod,
    DrainEnded,
    EndedForgotten,
    ExecutorDecommissioned,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorsAbandoned,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsScaledDown,
    ForgetEnded,
    LabelPod,
    LedgerEntry,
    LedgerLoaded,
    PodConfirmed,
    RemoveExecutor,
    StuckObserved,
    TakenOver,
    TakeOver,
    WithdrawRequests,
)
from actors.pods.id_map import IdMap
from actors.pods.loss import SCALED_DOWN, LossKind, LossReason
from actors.pods.pod import ContainerStatus, OwnerReference, Pod, PodStatus
from actors.pods.state import PodPending, PodRunning, PodTerminating, PodUnknown
from actors.pods.stuck import StuckKind
from tests.unit.builders import pod
from tests.unit.views import (
    RULES,
    View,
    failed,
    going,
    labelled,
    pending,
    running,
    settings,
    succeeded,
    unschedulable,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.pods.pod import Pod
    from actors.runtime import Address
    from actors.testing import Kit

SECOND = timedelta(seconds=1)


def kill(rig: Rig, executor_id: int, *, after: float = 0.0) -> ExecutorKilled:
    """The driver's kill, now."""
    return ExecutorKilled(executor_id, rig.kit.clock.now(), rig.now + after)


class Rig:
    """A LifecycleManager with probes as store, pool and backend, and a view of a cluster."""

    def __init__(
        self, kit: Kit, *, start: bool = True, owners: tuple[dict[str, Any], ...] = (), **executor: Any
    ) -> None:
        self.kit = kit
        self.store, self.pool, self.backend = (kit.probe(name) for name in ("store", "pool", "backend"))
        self.view = View()
        self.settings = settings(executor=executor)
        self.manager = self.spawn(owners)
        if start:
            self.know()

    def spawn(self, owners: tuple[dict[str, Any], ...] = ()) -> Address:
        make = partial(
            LifecycleManager,
            namespace="default",
            settings=self.settings,
            rules=RULES,
            store=self.store.address,
            pool=self.pool.address,
            backend=self.backend.address,
            owners=owners,
        )
        return self.kit.spawn(make, name="lifecycle-manager")

    @property
    def now(self) -> float:
        return self.kit.clock.monotonic()

    def tell(self, message: object) -> None:
        self.manager.tell(message)
        self.kit.settle()

    def know(self, *entries: LedgerEntry, ran: Sequence[int] = ()) -> None:
        """Send the ledger, and the pods that were last observed running."""
        shown = {executor_id: PodRunning(running(executor_id)) for executor_id in ran}
        self.tell(LedgerLoaded(IdMap({entry.executor_id: entry for entry in entries}), 1, observed=shown))

    def restart(self, *entries: LedgerEntry, ran: Sequence[int] = ()) -> None:
        """Start the next incarnation with this ledger; its first batch has every pod."""
        self.manager.stop()
        self.kit.settle()
        self.manager = self.spawn()
        self.know(*entries, ran=ran)
        self.tell(self.view.everything(self.now))

    def round(self, *pods: Pod, synced: bool = False) -> None:
        """Send a batch with these pods, after a full sync that was requested just now if `synced`."""
        self.view.show(*pods)
        if synced:
            self.view.sync(self.now)
        self.tell(self.view.batch(self.now))

    def seen(self) -> list[tuple[int, str]]:
        return [(seen.executor_id, type(seen.state).__name__) for seen in self.backend.take_all(ExecutorSeen)]

    def expect_no_reports(self) -> None:
        """Assert that the Backend gets nothing but the observed states."""
        self.backend.take_all(ExecutorsObserved)
        self.backend.expect_nothing()

    def removed(self) -> dict[int, LossReason]:
        """Return the ends reported since the last call, each once."""
        reports = self.backend.take_all(RemoveExecutor)
        assert len({remove.executor_id for remove in reports}) == len(reports), f"an end was reported twice: {reports}"
        return {remove.executor_id: remove.reason for remove in reports}

    def deleted(self) -> list[str]:
        """Return the deletions requested since the last call."""
        deletes = self.pool.take_all(DeletePod)
        assert all(delete.options.uid for delete in deletes), f"a pod is deleted without a UID: {deletes}"
        return [delete.name for delete in deletes]

    def confirm(self, found: Pod | None) -> None:
        """Answer the confirmation that was requested."""
        requested = self.pool.take(ConfirmPod)
        requested.reply_to.tell(PodConfirmed(requested.executor_id, requested.uid, found))
        self.kit.settle()


@pytest.fixture
def rig(kit: Kit) -> Callable[..., Rig]:
    return partial(Rig, kit)


def entry(executor_id: int, **known: Any) -> LedgerEntry:
    """Return the entry of an executor that the driver was notified of."""
    return LedgerEntry(executor_id, "default", **{"uid": f"uid-{executor_id}", "notified_at": 0.0, **known})


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_subscribes_at_the_event_processing_interval_once_it_has_the_ledger(rig: Callable[..., Rig]) -> None:
    subject = rig(start=False, event_processing_interval=timedelta(seconds=7))
    subject.store.expect_nothing()
    subject.know()
    subscribed = AddSubscriber(subject.manager, timedelta(seconds=7), follows_starts=True)
    assert subject.store.take(AddSubscriber) == subscribed


def test_every_batch_is_answered(rig: Callable[..., Rig]) -> None:
    subject = rig()
    batch = subject.view.batch(subject.now)
    subject.tell(batch)
    assert subject.store.take(BatchDone) == BatchDone(subject.manager, batch.seq)


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_state_is_reported_once_when_it_begins(rig: Callable[..., Rig]) -> None:
    subject = rig()
    for shown in (pending(1), pending(1), running(1), running(1), going(running(1)), going(running(1))):
        subject.round(shown)
        subject.round()
    assert subject.seen() == [(1, "PodPending"), (1, "PodRunning"), (1, "PodTerminating")]


def test_a_full_sync_without_changes_reports_nothing(rig: Callable[..., Rig]) -> None:
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


def test_a_failed_executor_is_reported_with_its_exit_code_and_its_pod_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.round(failed(1, 3))
    reason = subject.removed()[1]
    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.EXITED, 3, True)
    assert subject.deleted() == ["app-exec-1"]


def test_a_succeeded_executor_is_reported_and_its_pod_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(succeeded(1))
    assert subject.removed()[1].exit_code == 0
    assert subject.deleted() == ["app-exec-1"]


def test_an_end_is_reported_once_and_the_pod_deleted_in_every_round_that_still_has_it(rig: Callable[..., Rig]) -> None:
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


def test_a_deleted_pod_is_reported_and_not_deleted_again(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1)
    subject.round()
    assert subject.removed()[1].kind is LossKind.DELETED
    subject.round(synced=True)
    assert (subject.removed(), subject.deleted()) == ({}, [])


def test_an_executor_that_starts_and_ends_between_two_rounds_is_reported(rig: Callable[..., Rig]) -> None:
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


def test_a_pod_that_leaves_as_we_labelled_it_inactive_is_not_reported_again(rig: Callable[..., Rig]) -> None:
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
    ids=["nobody requested", "the driver requested", "its deletion had begun"],
)
def test_a_success_is_logged_at_info_unless_the_end_was_requested(
    rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture, end: Pod, killed: bool, level: str
) -> None:
    subject = rig()
    subject.round(running(1))
    if killed:
        subject.tell(kill(subject, 1))
    with caplog.at_level(logging.DEBUG, "actors.lifecycle.lifecycle_manager"):
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
    subject.expect_no_reports()


# ── without a deletion ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_that_leaves_without_a_deletion_is_confirmed_before_its_end_is_reported(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1, deleted=False)
    subject.round()
    assert subject.removed() == {}
    subject.confirm(None)
    assert subject.removed()[1].kind is LossKind.DELETED


def test_a_relabelled_pod_is_reported_as_released_and_left_alone(rig: Callable[..., Rig]) -> None:
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
def test_a_released_pod_that_returns_is_deleted_and_not_reported_again(
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
    assert subject.deleted() == ["app-exec-1"], "in every round that still has it"
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


def test_a_registered_executor_without_a_pod_in_two_full_syncs_is_missing(rig: Callable[..., Rig]) -> None:
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
    assert reason.message == (
        "executor 1 is missing: the cluster has had no pod of it for 10 s and reported no end; it registered 30 s ago"
    )


def test_a_missing_executor_that_never_registered_is_reported_so(rig: Callable[..., Rig]) -> None:
    subject = rig(start=False)
    subject.know(entry(1))
    for _ in range(2):
        subject.kit.advance(31 * SECOND)
        subject.round(synced=True)
    assert "no pod of it for 31 s and reported no end; it never registered" in subject.removed()[1].message


def test_one_full_sync_without_it_does_not_make_one_missing(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.tell(ExecutorRegistered(1, subject.now))
    subject.kit.advance(timedelta(minutes=5))
    subject.round(synced=True)
    subject.round()
    subject.round(synced=True)  # requested at the same moment
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


def test_a_missing_executor_is_reported_with_its_last_observed_pod(rig: Callable[..., Rig]) -> None:
    subject = rig(start=False)
    subject.know(entry(1), ran=[1])
    for _ in range(3):
        subject.kit.advance(timedelta(minutes=1))
        subject.round(synced=True)
    assert "app-exec-1" in subject.removed()[1].message


def test_an_executor_that_is_observed_again_after_a_full_sync_without_it_is_not_missing(
    rig: Callable[..., Rig],
) -> None:
    subject = rig()
    subject.tell(ExecutorRegistered(1, subject.now))
    subject.kit.advance(timedelta(minutes=1))
    subject.round(synced=True)
    subject.round(running(1))
    subject.kit.advance(timedelta(minutes=1))
    subject.round(synced=True)
    assert subject.removed() == {}


def test_an_executor_that_is_being_confirmed_is_not_missing(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.end(1, deleted=False)
    for _ in range(3):
        subject.kit.advance(timedelta(minutes=1))
        subject.round(synced=True)
    assert subject.removed() == {}
    subject.confirm(None)
    assert subject.removed()[1].kind is LossKind.DELETED


def test_a_disconnected_executor_is_not_reported_as_ended(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.tell(ConnectionLost(1, subject.now))
    subject.round(synced=True)
    assert (subject.removed(), subject.deleted()) == ({}, [])


# ── terminating ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_that_outlives_its_grace_period_is_lost_with_its_node(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1), grace=30))
    subject.kit.advance(timedelta(seconds=89))
    subject.round()
    assert subject.removed() == {}
    subject.kit.advance(SECOND)
    subject.round()
    assert subject.removed()[1].kind is LossKind.NODE_LOST


@pytest.mark.parametrize("drain_timeout", [None, "60s"])
def test_a_drained_executor_whose_pod_somebody_else_deleted_is_not_deleted_again(
    rig: Callable[..., Rig], drain_timeout: str | None
) -> None:
    subject = rig(drain_timeout=drain_timeout)
    subject.round(running(1), running(2))
    subject.round(going(running(1), grace=90))
    subject.tell(DrainEnded(1))
    subject.tell(DrainEnded(2))
    subject.round(synced=True)
    assert set(subject.deleted()) == {"app-exec-2"}


def test_a_pod_whose_grace_period_is_shortened_may_still_use_the_longer_one(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1), grace=90))
    subject.kit.advance(SECOND)
    subject.round(going(running(1), grace=1))
    subject.kit.advance(timedelta(seconds=148))
    subject.round()
    assert subject.removed() == {}
    subject.kit.advance(SECOND)
    subject.round()
    assert subject.removed()[1].kind is LossKind.NODE_LOST


def test_another_pod_of_that_name_has_its_own_grace_period(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1), grace=900))
    subject.view.end(1)
    subject.round()
    subject.removed()
    subject.round(going(running(1, uid="another"), grace=30))
    subject.kit.advance(timedelta(seconds=90))
    subject.round()
    assert [reason.kind for reason in subject.removed().values()] == [LossKind.NODE_LOST]


def test_one_whose_deletion_a_restored_cluster_took_back_is_not_lost_with_its_node(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1), grace=30))
    subject.round(running(1))
    subject.kit.advance(timedelta(minutes=5))
    subject.round()
    assert subject.removed() == {}


def test_the_end_of_a_pod_that_was_lost_with_its_node_is_not_reported_again(rig: Callable[..., Rig]) -> None:
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


def test_a_pod_that_ends_within_its_grace_period_is_reported_with_its_own_end(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1), grace=30))
    subject.kit.advance(timedelta(seconds=80))
    subject.view.end(1)
    subject.round()
    assert subject.removed()[1].kind is LossKind.DELETED
    subject.kit.advance(timedelta(minutes=5))
    subject.round()
    assert subject.removed() == {}


def test_an_executor_that_is_abandoned_while_it_terminates_is_not_reported(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(going(running(1)))
    subject.tell(ExecutorsAbandoned((1,), "its id is an earlier one's"))
    subject.kit.advance(timedelta(minutes=5))
    subject.round()
    assert (subject.removed(), subject.deleted()) == ({}, [])


# ── killed, abandoned ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shown", [pending(1), running(1)])
def test_a_killed_executors_pod_is_deleted_in_every_round_until_it_terminates(
    rig: Callable[..., Rig], shown: Pod
) -> None:
    subject = rig()
    subject.round(shown)
    subject.tell(kill(subject, 1))
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
    subject.tell(kill(subject, 1))
    subject.round(pending(1))
    assert subject.deleted() == ["app-exec-1"]


def test_a_pod_of_an_abandoned_id_is_deleted_when_it_is_observed_and_never_reported(
    rig: Callable[..., Rig],
) -> None:
    subject = rig()
    subject.tell(ExecutorsAbandoned((1,), "it was not seen"))
    subject.round(pending(1))
    subject.round(running(1))
    assert subject.deleted() == ["app-exec-1"] * 2
    subject.round(failed(1))
    assert subject.deleted() == ["app-exec-1"]
    subject.view.end(1)
    subject.round()
    subject.expect_no_reports()


def test_an_observed_pod_whose_executor_is_abandoned_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.tell(ExecutorsAbandoned((1,), "its id is an earlier one's"))
    subject.round()
    assert subject.deleted() == ["app-exec-1"]


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_end_is_not_reported_again_as_long_as_its_pod_is_in_the_snapshot(rig: Callable[..., Rig]) -> None:
    subject = rig(removed_executors_ttl=SECOND)
    subject.round(failed(1))
    subject.removed()
    subject.kit.advance(timedelta(hours=1))
    subject.round(failed(1), synced=True)
    subject.view.end(1)
    subject.round()
    assert subject.removed() == {}


def test_an_end_is_not_reported_again_for_a_while_after_its_pod_is_gone(rig: Callable[..., Rig]) -> None:
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


def test_after_a_restart_no_end_is_reported_again_and_ended_pods_are_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(failed(1))
    assert (list(subject.removed()), subject.deleted()) == ([1], ["app-exec-1"])
    subject.restart(entry(1, removed_at=subject.now))
    assert (subject.removed(), subject.deleted()) == ({}, ["app-exec-1"])


def test_that_nothing_was_observed_is_not_reported_before_a_list_says_so(rig: Callable[..., Rig]) -> None:
    subject = rig(start=False)
    subject.know(ran=(1, 2))
    subject.round()
    assert subject.backend.take_all(ExecutorsObserved) == []
    subject.round(synced=True)
    assert [dict(message.states) for message in subject.backend.take_all(ExecutorsObserved)] == [{}]


def test_the_end_of_an_executor_that_was_scaled_down_before_it_was_reported_is_our_doing_after_a_restart_too(
    rig: Callable[..., Rig],
) -> None:
    at = datetime.now(UTC)
    ledger = Ledger().begun().requested((1,), "default", at).scaled_down({1: "uid-1"})
    subject = rig(start=False)
    subject.know(*ledger.entries.values())
    subject.round(going(pending(1)), synced=True)
    subject.view.end(1)
    subject.round()
    removed = subject.backend.take(RemoveExecutor)
    assert (removed.reason.kind, SCALED_DOWN in removed.reason.message) == (LossKind.KILLED_BY_DRIVER, True)


def test_an_executor_that_was_scaled_down_before_it_was_reported_and_is_gone_is_removed(
    rig: Callable[..., Rig],
) -> None:
    at = datetime.now(UTC)
    ledger = Ledger().begun().requested((1,), "default", at).scaled_down({1: "uid-1"})
    subject = rig(start=False)
    subject.know(*ledger.entries.values())
    subject.round(synced=True)
    subject.kit.advance(timedelta(minutes=1))
    subject.round(synced=True)
    removed = subject.backend.take(RemoveExecutor)
    assert (removed.executor_id, removed.uid) == (1, "uid-1")
    assert ledger.removed(1, removed.uid, removed.reason, 2.0, at)[1] == (), "the driver never knew of it"


def test_the_observed_states_are_reported_when_any_of_them_has_changed(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1), pending(2))
    assert sorted(subject.backend.take(ExecutorsObserved).states) == [1, 2]
    subject.round()
    subject.round(synced=True)
    assert subject.backend.take_all(ExecutorsObserved) == []
    subject.view.end(2)
    subject.round()
    assert sorted(subject.backend.take(ExecutorsObserved).states) == [1]


def test_after_a_restart_live_executors_are_reported_again(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.seen()
    subject.restart(entry(1), ran=[1])
    assert subject.seen() == [(1, "PodRunning")]


def test_after_a_restart_killed_and_abandoned_executors_are_still_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1), running(2))
    subject.restart(entry(1, killed=kill(subject, 1)), entry(2, abandoned=True, uid=None, removed_at=subject.now))
    assert sorted(subject.deleted()) == ["app-exec-1", "app-exec-2"]


def test_after_a_restart_an_executor_that_ended_unobserved_is_missing(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.lose(1)
    subject.view = View()
    subject.restart(entry(1), ran=[1])
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


def test_the_reported_states_are_those_of_the_snapshot(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(pending(1), running(2), going(running(3)))
    states = {seen.executor_id: type(seen.state) for seen in subject.backend.take_all(ExecutorSeen)}
    assert states == {1: PodPending, 2: PodRunning, 3: PodTerminating}


# ── stuck, disconnected, scaled down, decommissioned, adopted ────────────────────────────────────────────────────


def stuck(subject: Rig) -> list[tuple[int, str]]:
    return [(report.executor_id, report.stuck.reason) for report in subject.backend.take_all(StuckObserved)]


def test_a_stuck_pod_is_reported_once_per_cause(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(waiting(1, "ErrImagePull"))
    assert stuck(subject) == [(1, "ErrImagePull")]
    subject.round(waiting(1, "ImagePullBackOff"))
    assert stuck(subject) == []
    subject.round(waiting(1, "CreateContainerConfigError"))
    assert stuck(subject) == [(1, "CreateContainerConfigError")]
    subject.round(running(1))
    assert stuck(subject) == []


def test_a_running_pod_in_a_crash_loop_is_reported_as_stuck_once(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    for _ in range(2):
        crashing = waiting(1, "CrashLoopBackOff", "back-off 40s")
        subject.round(msgspec.structs.replace(running(1), status=phased(crashing, "Running")))
        subject.round(running(1))
    [stuck] = subject.backend.take_all(StuckObserved)
    assert (stuck.executor_id, stuck.stuck.kind, stuck.stuck.message) == (
        1,
        StuckKind.CRASHING,
        "executor: back-off 40s",
    )
    assert subject.backend.take_all(RemoveExecutor) == []


def phased(subject: Pod, phase: str) -> PodStatus:
    """Its status in another phase."""
    assert subject.status is not None
    return msgspec.structs.replace(subject.status, phase=phase)


def test_a_gated_pod_is_never_reported_as_stuck(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(unschedulable(1, "gated", gated=True))
    subject.kit.advance(timedelta(hours=1))
    subject.round()
    assert stuck(subject) == []


def test_a_pod_that_does_not_start_within_the_stuck_timeout_is_reported(rig: Callable[..., Rig]) -> None:
    subject = rig(stuck_timeout="5m")
    subject.round(waiting(1, "ContainerCreating"))
    subject.kit.advance(timedelta(minutes=5) - SECOND)
    subject.round()
    assert stuck(subject) == []
    subject.kit.advance(SECOND)
    subject.round()
    subject.round()
    assert stuck(subject) == [(1, "ContainerCreating")]


def test_unschedulable_is_reported_when_it_lasts(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(unschedulable(1, "waiting for the claim to be made"))
    subject.kit.advance(timedelta(seconds=9))
    subject.round(unschedulable(1, "0/5 nodes are available"))
    assert stuck(subject) == []
    subject.kit.advance(SECOND)
    subject.round()
    (report,) = subject.backend.take_all(StuckObserved)
    assert (report.executor_id, report.uid, report.stuck.message) == (1, "uid-1", "0/5 nodes are available")
    subject.kit.advance(timedelta(hours=1))
    subject.round(unschedulable(1, "0/6 nodes are available"))
    subject.kit.advance(timedelta(hours=1))
    subject.round()
    assert stuck(subject) == []


@pytest.mark.parametrize("then", [pending(1), waiting(1, "ContainerCreating"), running(1)], ids=["no word", "node", ""])
def test_one_that_no_node_took_for_a_moment_is_not_stuck(rig: Callable[..., Rig], then: Pod) -> None:
    subject = rig()
    subject.round(unschedulable(1, "waiting for the claim to be made"))
    subject.kit.advance(SECOND)
    subject.round(then)
    subject.kit.advance(timedelta(seconds=20))
    subject.round(unschedulable(1, "again"))
    subject.kit.advance(timedelta(seconds=9))
    subject.round()
    assert stuck(subject) == []


def test_an_executor_that_stays_disconnected_is_removed_although_its_pod_is_alive(rig: Callable[..., Rig]) -> None:
    subject = rig(disconnect_timeout="2m")
    subject.round(running(1), running(2))
    for executor_id in (1, 2):
        subject.tell(ConnectionLost(executor_id, subject.now))
    subject.kit.advance(timedelta(minutes=1))
    subject.tell(ExecutorRegistered(2, subject.now))
    subject.kit.advance(timedelta(minutes=1))
    subject.round()
    removed = subject.backend.take(RemoveExecutor)
    assert (removed.executor_id, removed.uid, removed.reason.kind) == (1, "uid-1", LossKind.DISCONNECTED)
    assert subject.deleted() == ["app-exec-1"]
    subject.round(going(running(1)))
    subject.view.end(1)
    subject.round()
    assert subject.backend.take_all(RemoveExecutor) == [], "its end is reported once"


def test_the_newest_status_of_a_running_pod_counts_though_it_is_no_change(rig: Callable[..., Rig]) -> None:
    subject = rig(disconnect_timeout="2m")
    subject.round(running(1))
    subject.tell(ConnectionLost(1, subject.now))
    subject.backend.take_all(object)
    status = PodStatus("Running", container_statuses=(ContainerStatus("executor", restart_count=3),))
    subject.round(msgspec.structs.replace(running(1), status=status))
    assert subject.backend.take(ExecutorsObserved).states[1].pod.status == status
    subject.backend.expect_nothing()
    subject.kit.advance(timedelta(minutes=2))
    subject.round()
    last = subject.backend.take(RemoveExecutor).pod
    assert last is not None
    assert last.status == status


def test_an_executor_that_ends_before_the_disconnect_timeout_is_reported_with_its_own_reason(
    rig: Callable[..., Rig],
) -> None:
    subject = rig(disconnect_timeout="2m")
    subject.round(running(1))
    subject.tell(ConnectionLost(1, subject.now))
    subject.round(failed(1, 137))
    assert subject.backend.take(RemoveExecutor).reason.exit_code == 137
    subject.kit.advance(timedelta(minutes=3))
    subject.round()
    assert subject.backend.take_all(RemoveExecutor) == []


def test_an_excess_pending_executor_is_reported_as_scaled_down(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(pending(1), pending(2))
    subject.tell(ExecutorsScaledDown({1: "uid-1"}))
    subject.view.end(1, 2)
    subject.round()
    reasons = {report.executor_id: report.reason for report in subject.backend.take_all(RemoveExecutor)}
    assert {i: reason.kind for i, reason in reasons.items()} == {
        1: LossKind.KILLED_BY_DRIVER,
        2: LossKind.NEVER_STARTED,
    }
    assert "was scaled down" in reasons[1].message


@pytest.mark.parametrize(("code", "kind"), [(0, LossKind.KILLED_BY_DRIVER), (3, LossKind.EXITED)])
def test_a_decommissioned_executor_that_finishes_is_reported_so_and_one_that_fails_is_not(
    rig: Callable[..., Rig], code: int, kind: LossKind
) -> None:
    subject = rig()
    subject.round(running(1))
    subject.tell(ExecutorDecommissioned(1))
    subject.round(succeeded(1) if code == 0 else failed(1, code))
    reason = subject.backend.take(RemoveExecutor).reason
    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (kind, code, kind is LossKind.EXITED)


def test_a_deleted_pod_that_never_ran_is_reported_as_never_started_with_what_it_waited_for(
    rig: Callable[..., Rig],
) -> None:
    """A kubelet takes it back when the pod is deleted, and then reports an end that nobody saw."""
    subject = rig()
    waits = {1: waiting(1, "InvalidImageName", "invalid reference format"), 2: waiting(2, "ImagePullBackOff")}
    subject.round(*waits.values())
    subject.round(*map(going, waits.values()))
    subject.round(*(going(waiting(i, "ContainerCreating")) for i in waits))
    subject.round(*(going(failed(i, 137, reason="ContainerStatusUnknown")) for i in waits))
    subject.view.end(1, 2)
    subject.round()
    reasons = {report.executor_id: report.reason for report in subject.backend.take_all(RemoveExecutor)}
    assert {i: (r.kind, r.exit_code) for i, r in reasons.items()} == dict.fromkeys(waits, (LossKind.NEVER_STARTED, -1))
    assert "it waited: InvalidImageName: executor: invalid reference format" in reasons[1].message
    assert "it waited: ImagePullBackOff: executor" in reasons[2].message


def test_a_killed_one_is_left_until_its_time_is_over(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.tell(kill(subject, 1, after=5.0))
    subject.kit.advance(timedelta(seconds=4.9))
    subject.round()
    assert subject.deleted() == []
    subject.kit.advance(timedelta(seconds=0.1))
    subject.round()
    assert subject.deleted() == ["app-exec-1"]


def test_pods_of_an_earlier_incarnation_get_the_new_drivers_pod_as_their_owner(kit: Kit) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "new"}
    subject = Rig(kit, owners=(owner,))
    subject.round(running(1, owner_uid="old"), running(2), running(3, owner_uid="new"), failed(4))
    adopted = subject.pool.take_all(AdoptPod)
    assert adopted == [AdoptPod(f"app-exec-{number}", f"uid-{number}", (owner,)) for number in (1, 2)]


def test_a_missing_executors_pod_that_appears_later_is_deleted_and_not_reported(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.view.lose(1)
    subject.view = View()
    for _ in range(2):
        subject.kit.advance(timedelta(minutes=1))
        subject.view.sync(subject.now)
        subject.round()
    assert subject.backend.take(RemoveExecutor).reason.kind is LossKind.MISSING
    subject.seen()
    subject.round(running(1))
    assert (subject.seen(), subject.deleted()) == ([], ["app-exec-1"])


# ── late messages, repeated requests ─────────────────────────────────────────────────────────────────────────────────


def test_messages_about_an_executor_whose_end_was_reported_are_ignored(rig: Callable[..., Rig]) -> None:
    subject = rig(disconnect_timeout="2m")
    subject.round(running(1))
    subject.round(failed(1))
    subject.view.end(1)
    subject.round()
    subject.backend.take_all()
    subject.tell(ExecutorRegistered(1, subject.now))
    subject.tell(kill(subject, 1))
    subject.tell(ExecutorDecommissioned(1))
    subject.tell(ConnectionLost(1, subject.now))
    for _ in range(4):
        subject.kit.advance(timedelta(minutes=1))
        subject.round(synced=True)
    subject.expect_no_reports()


def test_an_executor_that_ran_before_it_was_scaled_down_is_reported_with_its_own_end(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(pending(1))
    subject.tell(ExecutorsScaledDown({1: "uid-1"}))
    subject.round(running(1))
    subject.view.end(1)
    subject.round()
    assert subject.removed()[1].kind is LossKind.DELETED


def test_a_killed_one_that_is_missing_was_ended_by_the_driver(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(running(1))
    subject.restart(entry(1, killed=kill(subject, 1)), ran=[1])
    subject.view = View()
    for _ in range(3):
        subject.kit.advance(timedelta(minutes=1))
        subject.round(synced=True)
    assert subject.removed()[1].kind is LossKind.KILLED_BY_DRIVER


def test_a_killed_executor_that_stays_disconnected_is_not_reported_as_disconnected(
    rig: Callable[..., Rig],
) -> None:
    subject = rig(disconnect_timeout="2m")
    subject.round(running(1))
    subject.tell(kill(subject, 1))
    subject.tell(ConnectionLost(1, subject.now))
    subject.kit.advance(timedelta(minutes=3))
    subject.round()
    assert subject.removed() == {}
    assert subject.deleted() == ["app-exec-1"]


def test_disconnected_executors_keep_their_timeouts_over_a_restart(rig: Callable[..., Rig]) -> None:
    subject = rig(disconnect_timeout="2m")
    subject.round(*(running(executor_id) for executor_id in range(1, 21)))
    away = [entry(i, disconnected_at=subject.now + 20 - i) for i in range(1, 21)]
    subject.kit.advance(timedelta(minutes=1))
    subject.restart(*away)
    subject.kit.advance(timedelta(seconds=62))
    subject.round()
    assert sorted(subject.removed()) == [18, 19, 20]


def test_a_pod_that_returns_after_it_was_gone_is_remembered_as_long_as_it_is_in_the_snapshot(
    rig: Callable[..., Rig],
) -> None:
    subject = rig(removed_executors_ttl=timedelta(minutes=3))
    subject.round(failed(1))
    subject.view.end(1)
    subject.round()
    subject.removed()
    subject.view = View()
    subject.round(failed(1))
    subject.kit.advance(timedelta(hours=1))
    subject.round(failed(1, 4))
    assert subject.removed() == {}


def test_the_ended_executors_that_are_gone_are_reported_after_the_first_full_sync(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.round(failed(1), running(2))
    subject.tell(ForgetEnded(frozenset({1, 3})))
    assert subject.backend.take_all(EndedForgotten) == []
    subject.round(synced=True)
    subject.tell(ForgetEnded(frozenset({1, 3})))
    assert subject.backend.take(EndedForgotten).executor_ids == {3}
    subject.view.end(1)
    subject.round()
    subject.tell(ForgetEnded(frozenset({1, 3})))
    assert subject.backend.take(EndedForgotten).executor_ids == {1, 3}


def test_an_executor_that_was_removed_as_disconnected_is_remembered_as_long_as_it_is_in_the_snapshot(
    rig: Callable[..., Rig],
) -> None:
    subject = rig(disconnect_timeout="2m", removed_executors_ttl=timedelta(minutes=3))
    subject.round(running(1))
    subject.tell(ConnectionLost(1, subject.now))
    subject.kit.advance(timedelta(minutes=2))
    subject.round()
    subject.backend.take_all()
    subject.kit.advance(timedelta(hours=1))
    subject.round(going(running(1)))
    subject.view.end(1)
    subject.round()
    subject.expect_no_reports()


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────────

MARKS: dict[str, Any] = {
    "kill_label": "state=killed",
    "decommission_label": "state=leaving",
    "decommission_deletion_cost": -1,
}


def label_requests(subject: Rig) -> list[tuple[str, str, dict[str, str]]]:
    requested = subject.pool.take_all(LabelPod)
    return [(mark.name, mark.uid, {**mark.labels, **mark.annotations}) for mark in requested]


def test_a_running_executor_that_is_killed_is_labelled_at_once_and_once(rig: Callable[..., Rig]) -> None:
    subject = rig(**MARKS)
    subject.round(running(1), running(2))
    subject.tell(kill(subject, 1, after=5.0))
    assert label_requests(subject) == [("app-exec-1", "uid-1", {"state": "killed"})]
    subject.round(running(1))
    subject.tell(kill(subject, 1, after=5.0))
    assert label_requests(subject) == []


@pytest.mark.parametrize("mark", [*MARKS])
def test_a_label_without_an_observed_effect_is_requested_again_at_each_full_sync(
    rig: Callable[..., Rig], mark: str
) -> None:
    subject = rig(**{mark: MARKS[mark]})
    subject.round(running(1), running(2), synced=True)
    subject.tell(kill(subject, 1, after=500.0))
    subject.tell(ExecutorDecommissioned(1))
    first = label_requests(subject)
    assert len(first) == 1
    subject.round()
    assert label_requests(subject) == []
    subject.round(synced=True)
    assert label_requests(subject) == first
    subject.tell(TakeOver(1))
    assert label_requests(subject) == first
    subject.view.end(1)
    subject.round(synced=True)
    assert label_requests(subject) == []


def test_nothing_is_requested_for_a_pod_that_may_have_left_the_fleet(kit: Kit) -> None:
    """As long as the API does not say whether it lives."""
    subject = Rig(kit, owners=(OWNER,), **MARKS, disconnect_timeout=timedelta(seconds=10))
    subject.round(running(1), running(2), synced=True)
    subject.tell(kill(subject, 1))
    subject.tell(ExecutorDecommissioned(2))
    subject.tell(ConnectionLost(2, subject.now))
    subject.view.end(1, 2, deleted=False)
    subject.round()
    assert {request.executor_id for request in subject.pool.take_all(ConfirmPod)} == {1, 2}
    assert subject.pool.take(WithdrawRequests).pods == {"app-exec-1": "uid-1", "app-exec-2": "uid-2"}
    subject.pool.take_all()
    for _ in range(3):
        subject.kit.advance(timedelta(seconds=30))
        subject.round(synced=True)
    subject.tell(TakeOver(1))
    assert subject.pool.take_all() == []
    assert subject.removed() == {}


def test_a_pod_that_is_deleted_at_once_or_terminating_is_not_labelled(rig: Callable[..., Rig]) -> None:
    subject = rig(**MARKS)
    subject.round(pending(1), going(running(2)))
    subject.tell(kill(subject, 1))
    subject.tell(ExecutorDecommissioned(2))
    assert label_requests(subject) == []


def test_a_decommissioned_executor_gets_its_deletion_cost_as_soon_as_it_is_observed(
    rig: Callable[..., Rig],
) -> None:
    subject = rig(**MARKS)
    subject.tell(ExecutorDecommissioned(1))
    assert label_requests(subject) == []
    subject.round(pending(1))
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-1"}
    assert label_requests(subject) == [("app-exec-1", "uid-1", {"state": "leaving", **cost})]


def test_after_a_restart_a_label_that_is_not_observed_is_requested_again(rig: Callable[..., Rig]) -> None:
    subject = rig(**MARKS)
    subject.round(running(1))
    subject.restart(entry(1, decommissioned=True), ran=[1])
    assert [name for name, _, _ in label_requests(subject)] == ["app-exec-1"]


# ── taking over ──────────────────────────────────────────────────────────────────────────────────────────────────────

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "new"}


def test_the_fleet_is_taken_over_after_the_first_full_sync(kit: Kit) -> None:
    subject = Rig(kit, owners=(OWNER,))
    subject.tell(TakeOver(1))
    subject.round(running(1))
    assert subject.backend.take_all(TakenOver) == [], "nothing was listed yet"
    subject.round(running(2), synced=True)
    assert [adopt.name for adopt in subject.pool.take_all(AdoptPod)][:2] == ["app-exec-1", "app-exec-2"]
    assert subject.backend.take(TakenOver) == TakenOver(1)


def test_with_a_lease_adoption_ends_after_a_full_sync_since_it_is_ours(kit: Kit) -> None:
    subject = Rig(kit, owners=(OWNER,))
    subject.round(running(1), synced=True)
    kit.advance(SECOND)
    subject.tell(TakeOver(1, since=subject.now))
    assert subject.backend.take(TakenOver) == TakenOver(1)
    assert subject.backend.take_all(AdoptionEnded) == [], "that list may lack the last holder's newest pods"
    subject.backend.take_all()
    subject.round(running(2), synced=True)
    told = [type(message) for message in subject.backend.take_all()]
    assert told.index(ExecutorSeen) < told.index(AdoptionEnded)
    subject.round(running(3), synced=True)
    assert subject.backend.take_all(AdoptionEnded) == []


def test_adoptions_that_were_requested_without_the_lease_are_requested_again_at_the_takeover(kit: Kit) -> None:
    subject = Rig(kit, owners=(OWNER,))
    subject.round(running(1), running(2), running(3), synced=True)
    subject.round(running(1, owner_uid="new"))
    subject.view.end(2)
    subject.round()
    subject.pool.take_all()
    subject.tell(TakeOver(4))
    assert [adopt.name for adopt in subject.pool.take_all(AdoptPod)] == ["app-exec-3"]
    assert subject.backend.take(TakenOver) == TakenOver(4)


def test_an_adoption_without_an_observed_effect_is_requested_again_at_each_full_sync(kit: Kit) -> None:
    subject = Rig(kit, owners=(OWNER,))
    subject.round(running(1), synced=True)
    subject.pool.take_all()
    subject.round()
    assert subject.pool.take_all(AdoptPod) == []
    subject.round(synced=True)
    assert len(subject.pool.take_all(AdoptPod)) == 1
    subject.round(running(1, owner_uid="new"), synced=True)
    assert subject.pool.take_all(AdoptPod) == []


RING = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "driver-7", "uid": "rs-new"}


def owned(executor_id: int, *uids: str) -> Pod:
    """A running pod with these owners."""
    subject = running(executor_id)
    owners = tuple(OwnerReference(uid=uid) for uid in uids)
    metadata = msgspec.structs.replace(subject.metadata, owner_references=owners)
    return msgspec.structs.replace(subject, metadata=metadata)


def test_a_pod_that_lacks_one_of_several_owners_gets_all(kit: Kit) -> None:
    subject = Rig(kit, owners=(OWNER, RING))
    subject.round(owned(1, "old", "rs-old"), owned(2, "rs-new"), owned(3, "rs-new", "new"), owned(4, "new"))
    adopted = [AdoptPod(f"app-exec-{number}", f"uid-{number}", (OWNER, RING)) for number in (1, 2, 4)]
    assert subject.pool.take_all(AdoptPod) == adopted


def test_an_owner_that_a_pod_has_lost_comes_back_with_a_full_sync_only(kit: Kit) -> None:
    """The garbage collector takes it off again at once if that owner is gone."""
    subject = Rig(kit, owners=(OWNER, RING))
    subject.round(owned(1, "new", "rs-new"), synced=True)
    for _ in range(5):
        subject.round(owned(1, "rs-new"))
        subject.round(owned(1, "new", "rs-new"))
    subject.round(owned(1, "rs-new"))
    assert subject.pool.take_all(AdoptPod) == []
    subject.round(synced=True)
    assert subject.pool.take_all(AdoptPod) == [AdoptPod("app-exec-1", "uid-1", (OWNER, RING))]


def test_a_terminating_pod_is_not_adopted(kit: Kit) -> None:
    subject = Rig(kit, owners=(OWNER,))
    subject.round(going(running(1)), synced=True)
    assert subject.pool.take_all(AdoptPod) == []


def test_without_a_driver_pod_nothing_is_adopted_but_the_takeover_is_reported(
    rig: Callable[..., Rig],
) -> None:
    subject = rig()
    subject.round(running(1, owner_uid="old"), synced=True)
    subject.tell(TakeOver(2))
    assert subject.pool.take_all(AdoptPod) == []
    assert subject.backend.take(TakenOver) == TakenOver(2)
