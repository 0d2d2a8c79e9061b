"""The Allocator between probes, message by message."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from actors.allocation.allocator import Allocator
from actors.errors import AlreadyExists, ApiError, Cancelled, Forbidden, Invalid, QuotaExceeded, Unavailable
from actors.manifests.executor_pod import ExecutorManifests
from actors.messages.internal import (
    AddSubscriber,
    AllocatorStatus,
    BatchDone,
    BeginEpoch,
    CreatePod,
    CreationBlocked,
    DeletePod,
    EpochBegun,
    ExecutorDecommissioned,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorsAbandoned,
    ExecutorsRequested,
    ExecutorsScaledDown,
    LedgerEntry,
    LedgerLoaded,
    PodCreated,
    PodCreateDelayed,
    PodCreateFailed,
    PodsObserved,
    SetTotalExpectedExecutors,
    StartFailureCount,
    StartFailureRecord,
    StartFailuresExceeded,
    WithdrawPods,
)
from actors.pods.id_map import IdMap
from actors.settings import ProfileSettings
from tests.unit.views import View, evicted, failed, going, pending, running, settings, succeeded, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.pods.pod import Pod
    from actors.runtime import Address
    from actors.testing import Kit

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def kill(rig: Rig, executor_id: int) -> ExecutorKilled:
    """The driver kills an executor now."""
    return ExecutorKilled(executor_id, rig.kit.clock.now(), rig.now)


class Rig:
    """An Allocator with probes for store, pool and backend, and a view of a cluster."""

    owners: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Of executors and claims."""

    def __init__(
        self, kit: Kit, *, executor: dict[str, Any] | None = None, profiles: tuple[str, ...] = (), **allocation: Any
    ) -> None:
        self.kit = kit
        self.wanted = 0
        self.store, self.pool, self.lifecycle, self.backend = (
            kit.probe(name) for name in ("store", "pool", "lifecycle", "backend")
        )
        self.view = View()
        shapes = {name: ProfileSettings() for name in profiles}
        driver = self.owners[0]["name"] if self.owners else None
        fleet = settings(executor=executor, allocation=allocation, driver_pod_name=driver)
        self.settings = fleet.model_copy(update={"profiles": shapes})
        self.epoch = 0
        self.allocator = self.spawn()

    def spawn(self) -> Address:
        make = partial(
            Allocator,
            settings=self.settings,
            manifests=ExecutorManifests(self.settings, namespace="default", owners=self.owners),
            store=self.store.address,
            pool=self.pool.address,
            lifecycle=self.lifecycle.address,
            backend=self.backend.address,
        )
        return self.kit.spawn(make, name="allocator")

    @property
    def now(self) -> float:
        return self.kit.clock.monotonic()

    def tell(self, message: object) -> None:
        self.allocator.tell(message)
        self.kit.settle()

    def know(self, *entries: LedgerEntry, next_id: int = 1) -> None:
        self.tell(LedgerLoaded(IdMap({entry.executor_id: entry for entry in entries}), next_id))

    def begin(
        self,
        *,
        dropped: frozenset[int] = frozenset(),
        lost: frozenset[int] = frozenset(),
    ) -> None:
        """The pool has begun the requested epoch."""
        asked = self.pool.take(BeginEpoch)
        self.epoch = asked.epoch
        asked.reply_to.tell(EpochBegun(asked.epoch, dropped, lost))
        self.kit.settle()

    def want(self, total: int) -> None:
        self.wanted += 1
        self.tell(SetTotalExpectedExecutors({"default": total}, self.wanted))

    def round(self, *, synced: bool = False, heard_at: float | None = None) -> None:
        """Send a batch, after a full sync that is requested and answered now if `synced`."""
        if synced:
            self.view.sync(self.now)
        self.tell(self.view.batch(self.now, heard_at=heard_at))

    def start(self, total: int = 0) -> Rig:
        """Tell the Allocator everything that it needs before its first request."""
        self.know()
        self.begin()
        self.want(total)
        self.round(synced=True)
        return self

    def requests(self) -> list[CreatePod]:
        """The creates that the pool was told and that were not taken yet."""
        return self.pool.take_all(CreatePod)

    def requested(self) -> list[int]:
        return [create.executor_id for create in self.requests()]

    def created(self, *creates: CreatePod) -> None:
        """Their POSTs are answered: the pods exist."""
        for create in creates:
            create.reply_to.tell(PodCreated(create.executor_id, create.epoch, pending(create.executor_id)))
        self.kit.settle()

    def refused(self, error: ApiError, *creates: CreatePod) -> None:
        for create in creates:
            create.reply_to.tell(PodCreateFailed(create.executor_id, create.epoch, error))
        self.kit.settle()

    def answered(self) -> list[int]:
        """Have all requested pods created, and return their ids."""
        creates = self.requests()
        self.created(*creates)
        return [create.executor_id for create in creates]

    def deleted(self) -> list[str]:
        return [delete.name for delete in self.pool.take_all(DeletePod)]


@pytest.fixture
def rig(kit: Kit) -> Callable[..., Rig]:
    return partial(Rig, kit)


# ── the start ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_requested_before_the_epoch_began_is_enough_when_no_executor_was_requested_before(kit: Kit) -> None:
    rig = Rig(kit)
    rig.know()
    rig.want(2)
    kit.advance(timedelta(milliseconds=3))
    rig.view.sync(rig.now)
    kit.advance(timedelta(milliseconds=3))
    rig.begin()
    rig.round()
    assert rig.requested() == [1, 2], "the next full sync is a whole polling interval away"


def test_a_list_requested_before_the_epoch_began_is_not_enough_while_a_request_may_be_open(kit: Kit) -> None:
    rig = Rig(kit)
    rig.know(LedgerEntry(1, "default"), next_id=2)
    rig.want(2)
    kit.advance(timedelta(milliseconds=3))
    rig.view.sync(rig.now)
    kit.advance(timedelta(milliseconds=3))
    rig.begin()
    rig.round()
    assert rig.requested() == []


def test_it_subscribes_at_its_batch_delay_once_the_pool_has_begun_its_epoch(rig: Callable[..., Rig]) -> None:
    subject = rig(batch_delay=timedelta(seconds=3))
    subject.know()
    subject.store.expect_nothing()
    subject.begin()
    assert subject.store.take(AddSubscriber) == AddSubscriber(subject.allocator, timedelta(seconds=3))


def test_it_requests_nothing_before_it_has_a_target(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know()
    subject.begin()
    subject.round(synced=True)
    assert subject.requested() == []
    subject.want(2)
    assert subject.requested() == [1, 2]


def test_it_requests_nothing_before_it_has_the_ledger_and_the_pool_its_epoch(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.want(2)
    subject.round(synced=True)
    assert subject.requested() == []
    subject.know(next_id=8)
    subject.round(synced=True)
    assert subject.requested() == []
    subject.begin()
    subject.round(synced=True)
    assert subject.requested() == [8, 9]


def test_it_requests_nothing_before_a_full_sync_requested_after_its_start(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.view.sync(subject.now - 0.001)
    subject.know()
    subject.begin()
    subject.want(2)
    subject.round()
    assert subject.requested() == []
    subject.round(synced=True)
    assert subject.requested() == [1, 2]


def test_it_tells_the_backend_which_ids_it_uses_before_their_posts(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    assert subject.backend.take(ExecutorsRequested) == ExecutorsRequested((1, 2), "default")
    line = next(i for i, line in enumerate(subject.kit.trace) if "ExecutorsRequested" in line)
    assert all("CreatePod" not in before for before in subject.kit.trace[:line])


def test_the_pods_it_requests_carry_their_ids(rig: Callable[..., Rig]) -> None:
    create = rig().start(1).requests()[0]
    assert create.manifest["metadata"]["name"] == "app-exec-1"
    assert create.manifest["metadata"]["labels"]["executor-pods/executor-id"] == "1"


def test_every_batch_is_answered(rig: Callable[..., Rig]) -> None:
    subject = rig()
    batch = subject.view.batch(subject.now)
    subject.tell(batch)
    assert subject.store.take(BatchDone) == BatchDone(subject.allocator, batch.seq)


def test_a_changed_target_starts_a_round_at_once(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.want(3)
    assert subject.requested() == [2, 3]


# ── requests that were lost with a pool ──────────────────────────────────────────────────────────────────────────────


def after_a_pool_crashed(rig: Callable[..., Rig], count: int, **allocation: Any) -> Rig:
    """An Allocator that requested `count` executors, of which the new pool knows nothing."""
    subject = rig(**allocation)
    subject.know(*(LedgerEntry(i, "default") for i in range(1, count + 1)), next_id=count + 1)
    subject.want(count)
    subject.begin(lost=frozenset(range(1, count + 1)))
    return subject


def test_it_tells_the_pool_which_executors_are_requested(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know(LedgerEntry(1, "default"), LedgerEntry(2, "default", uid="uid-2"), next_id=3)
    assert subject.pool.take(BeginEpoch).requested == {1}


def test_a_registered_executor_without_a_pod_is_not_requested_again(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know(LedgerEntry(1, "default", registered_at=5.0), next_id=2)
    subject.begin(lost=frozenset())
    subject.want(1)
    subject.round(synced=True)
    assert subject.requested() == [2], "its pod has existed, and is gone: it has ended"


def test_a_lost_executor_is_requested_again_under_its_id_before_any_new_one(rig: Callable[..., Rig]) -> None:
    subject = after_a_pool_crashed(rig, 3, batch_size=2)
    subject.want(4)
    subject.round(synced=True)
    first = subject.requests()
    assert [(create.executor_id, create.again) for create in first] == [(1, True), (2, True)]
    subject.created(*first)
    again = subject.requests()
    assert [(create.executor_id, create.again) for create in again] == [(3, True)]
    subject.created(*again)
    assert [(create.executor_id, create.again) for create in subject.requests()] == [(4, False)]
    assert subject.backend.take(ExecutorsRequested).executor_ids == (4,)
    subject.round()
    assert subject.requests() == []


def test_a_lost_executor_that_is_observed_is_not_requested_again(rig: Callable[..., Rig]) -> None:
    subject = after_a_pool_crashed(rig, 2)
    subject.view.show(pending(1))
    subject.round(synced=True)
    creates = subject.requests()
    assert [create.executor_id for create in creates] == [2]
    assert subject.pool.take_all(PodsObserved) == []
    subject.created(*creates)
    subject.want(3)
    assert subject.requested() == [3], "the answer that was awaited has come"


def test_a_lost_executor_is_not_abandoned_while_nothing_can_be_created(rig: Callable[..., Rig]) -> None:
    subject = after_a_pool_crashed(rig, 1)
    subject.round(synced=True)
    subject.requests()
    subject.kit.advance(10 * MINUTE)
    subject.round(synced=True)
    assert subject.backend.take_all(ExecutorsAbandoned) == []


def test_a_lost_excess_executor_is_abandoned_at_once_and_deleted_if_it_appears(rig: Callable[..., Rig]) -> None:
    subject = after_a_pool_crashed(rig, 3)
    subject.want(1)
    subject.round(synced=True)
    assert subject.requested() == [3]
    assert subject.deleted() == ["app-exec-1", "app-exec-2"]
    assert subject.backend.take(ExecutorsAbandoned).executor_ids == (1, 2)


def test_a_lost_executor_waits_for_the_end_of_the_one_that_it_replaces(rig: Callable[..., Rig]) -> None:
    """A decommissioned executor is replaced when it is gone, also if the target was lowered to its replacement."""
    subject = after_a_pool_crashed(rig, 3)
    subject.tell(ExecutorDecommissioned(1))
    subject.want(1)
    subject.view.show(running(1))
    subject.round(synced=True)
    assert subject.backend.take(ExecutorsAbandoned).executor_ids == (2,)
    assert subject.requested() == []
    subject.view.end(1)
    subject.round()
    assert subject.requested() == [3]


def test_a_lost_executor_that_was_killed_is_abandoned_at_once_and_replaced(rig: Callable[..., Rig]) -> None:
    subject = after_a_pool_crashed(rig, 2)
    subject.tell(kill(subject, 1))
    subject.round(synced=True)
    assert subject.deleted() == ["app-exec-1"]
    assert subject.requested() == [2]


# ── withdrawn requests ───────────────────────────────────────────────────────────────────────────────────────────────


def test_excess_requests_without_an_answer_are_withdrawn_the_newest_first(rig: Callable[..., Rig]) -> None:
    subject = rig().start(5)
    creates = subject.requests()
    subject.created(*creates[:2])
    subject.want(3)
    assert subject.pool.take(WithdrawPods).executor_ids == {4, 5}
    subject.round()
    assert subject.pool.take(WithdrawPods).executor_ids == {4, 5}, "an in-flight one may have been queued again"
    subject.refused(Cancelled("it is no longer desired"), *creates[3:])
    subject.round()
    assert subject.pool.take_all(WithdrawPods) == []
    assert subject.requests() == []
    assert subject.deleted() == []


def test_excess_requests_are_withdrawn_though_the_snapshot_is_stale(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    subject.requests()
    heard_at = subject.now
    subject.kit.advance(timedelta(minutes=3))
    subject.want(0)
    subject.round(heard_at=heard_at)
    assert subject.pool.take(WithdrawPods).executor_ids == {1, 2}
    assert subject.deleted() == []


def test_a_withdrawn_executor_that_was_created_is_abandoned_and_deleted_at_once(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    (create,) = subject.requests()
    subject.want(0)
    create.reply_to.tell(PodCreated(1, create.epoch, pending(1, uid="made"), withdrawn=True))
    subject.kit.settle()
    assert subject.backend.take(ExecutorsAbandoned).executor_ids == (1,)
    assert subject.pool.take(DeletePod).options.uid == "made"
    subject.want(1)
    assert subject.requested() == [2], "if the target rises again, another one is created"


@pytest.mark.parametrize("registered", [False, True])
def test_a_withdrawn_executor_observed_before_its_answer_is_deleted_unless_it_registered(
    rig: Callable[..., Rig], registered: bool
) -> None:
    subject = rig().start(1)
    (create,) = subject.requests()
    subject.want(0)
    subject.view.show(running(1, uid="made"))
    subject.round()
    if registered:
        subject.tell(ExecutorRegistered(1, subject.now))
    create.reply_to.tell(PodCreated(1, create.epoch, running(1, uid="made"), withdrawn=True))
    subject.kit.settle()
    deleted = subject.pool.take_all(DeletePod)
    assert [delete.options.uid for delete in deleted] == ([] if registered else ["made"])
    scaled_down = subject.backend.take_all(ExecutorsScaledDown)
    assert [message.pods for message in scaled_down] == ([] if registered else [{1: "made"}])


@pytest.mark.parametrize("observed", [False, True])
def test_a_withdrawn_executor_that_was_created_and_is_desired_again_stays(
    rig: Callable[..., Rig], observed: bool
) -> None:
    subject = rig().start(1)
    (create,) = subject.requests()
    subject.want(0)
    subject.want(1)
    if observed:
        subject.view.show(running(1, uid="made"))
        subject.round()
    create.reply_to.tell(PodCreated(1, create.epoch, running(1, uid="made"), withdrawn=True))
    subject.kit.settle()
    assert subject.deleted() == []
    assert subject.backend.take_all(ExecutorsAbandoned) == []
    assert subject.requested() == []


def test_killed_executors_count_as_excess_and_no_other_is_withdrawn(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    subject.requests()
    subject.tell(kill(subject, 2))
    subject.want(1)
    assert subject.pool.take_all(WithdrawPods) == []


# ── staleness ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_does_nothing_while_the_snapshot_is_stale_and_says_so_once(
    rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    subject = rig().start(0)
    heard_at = subject.now
    subject.want(2)
    subject.answered()
    subject.kit.advance(timedelta(seconds=90, milliseconds=1))
    subject.view.show(failed(1))
    subject.round(heard_at=heard_at)
    subject.round(heard_at=heard_at)
    assert (subject.requested(), subject.deleted()) == ([], [])
    assert [record.levelname for record in caplog.records if "stale" in record.message] == ["WARNING"]


def test_it_continues_when_a_source_reports_again_and_says_so_once(
    rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    subject = rig().start(0)
    heard_at = subject.now
    subject.kit.advance(timedelta(minutes=5))
    subject.round(heard_at=heard_at)
    subject.want(2)
    assert subject.requested() == []
    subject.round()
    subject.round()
    assert subject.requested() == [1, 2]
    assert [record.levelname for record in caplog.records if "snapshot" in record.message] == ["WARNING", "INFO"]


# ── pacing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_with_pacing_batch_the_next_batch_waits_for_requested_executors(rig: Callable[..., Rig]) -> None:
    subject = rig(pacing="batch", batch_size=2).start(5)
    assert subject.answered() == [1, 2]
    subject.view.show(running(1))
    subject.round()
    assert subject.requested() == []
    subject.view.show(running(2))
    subject.round()
    assert subject.requested() == [3, 4]


def test_with_pacing_batch_pending_executors_do_not_block_the_next_batch(rig: Callable[..., Rig]) -> None:
    """Spark counts them as executors, since SPARK-33262."""
    subject = rig(pacing="batch", batch_size=2).start(5)
    assert subject.answered() == [1, 2]
    subject.view.show(pending(1))
    subject.round()
    assert subject.requested() == [], "the other was not observed"
    subject.view.show(pending(2))
    subject.round()
    assert subject.answered() == [3, 4]


def test_with_pacing_batch_one_that_could_not_be_created_does_not_block_the_next(rig: Callable[..., Rig]) -> None:
    subject = rig(pacing="batch", batch_size=2).start(4)
    one, two = subject.requests()
    subject.created(one)
    subject.refused(AlreadyExists("taken", status=409), two)
    subject.view.show(running(1))
    subject.kit.advance(MINUTE)
    subject.round()
    assert subject.requested() == [3, 4]


def test_with_pacing_batch_one_that_failed_does_not_block_the_next(rig: Callable[..., Rig]) -> None:
    subject = rig(pacing="batch", batch_size=2, executor={"min_run_time": SECOND}).start(4)
    subject.answered()
    subject.view.show(running(1), failed(2, ran=MINUTE))
    subject.round()
    assert subject.requested() == [3, 4]


def test_with_pacing_batch_a_batch_never_grows(rig: Callable[..., Rig]) -> None:
    subject = rig(pacing="batch", batch_size=2).start(50)
    sizes = []
    for _ in range(3):
        ids = subject.answered()
        sizes.append(len(ids))
        subject.view.show(*map(running, ids))
        subject.round()
    assert sizes == [2, 2, 2]


def test_pipelined_the_next_batch_goes_out_when_the_last_is_answered(rig: Callable[..., Rig]) -> None:
    subject = rig(batch_size=2, max_batch_size=2).start(5)
    one, two = subject.requests()
    subject.created(one)
    subject.round()
    assert subject.requested() == []
    subject.created(two)
    assert subject.requested() == [3, 4]


def test_pipelined_batches_double_while_creation_succeeds(rig: Callable[..., Rig]) -> None:
    subject = rig(batch_size=2, max_batch_size=7).start(100)
    assert [len(subject.answered()) for _ in range(4)] == [2, 4, 7, 7]


def test_pipelined_batches_fall_back_when_a_creation_fails(rig: Callable[..., Rig]) -> None:
    subject = rig(batch_size=2, max_batch_size=16).start(100)
    subject.answered()
    first, *rest = subject.requests()
    subject.refused(AlreadyExists("taken", status=409), first)
    subject.created(*rest)
    assert [len(subject.answered()) for _ in range(2)] == [2, 4]


def test_a_pod_that_is_observed_before_its_post_is_answered_counts_as_created(rig: Callable[..., Rig]) -> None:
    subject = rig(batch_size=2, max_batch_size=16).start(100)
    one, two = subject.requests()
    subject.view.show(pending(1), pending(2))
    subject.round()
    assert subject.requested() == [3, 4, 5, 6]
    assert sorted(subject.pool.take(PodsObserved).pods) == [1, 2]
    subject.created(one, two)
    assert subject.requested() == []


def test_no_more_are_pending_than_the_limit_allows(rig: Callable[..., Rig]) -> None:
    subject = rig(max_pending_pods=3).start(10)
    assert subject.answered() == [1, 2, 3]
    subject.view.show(pending(1), running(2))
    subject.round()
    assert subject.requested() == [4]


def test_no_more_of_a_profile_are_pending_than_its_limit_allows(rig: Callable[..., Rig]) -> None:
    subject = rig(max_pending_pods_per_profile=2).start(10)
    assert subject.answered() == [1, 2]
    subject.view.show(running(1), running(2))
    subject.round()
    assert subject.requested() == [3, 4]


# ── replacement ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", [failed(1, ran=MINUTE), succeeded(1, ran=MINUTE), going(running(1))])
def test_one_that_ends_or_terminates_is_replaced_in_the_same_round_under_a_new_id(
    rig: Callable[..., Rig], end: Pod
) -> None:
    subject = rig().start(2)
    subject.answered()
    subject.view.show(running(1), running(2))
    subject.round()
    subject.view.show(end)
    subject.round()
    assert subject.requested() == [3]


def test_one_that_was_deleted_is_replaced_in_the_same_round(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.view.show(running(1))
    subject.round()
    subject.view.end(1)
    subject.round()
    assert subject.requested() == [2]


def test_with_policy_failed_a_terminating_one_is_replaced_when_it_has_ended(rig: Callable[..., Rig]) -> None:
    subject = rig(pod_replacement_policy="Failed").start(1)
    subject.answered()
    subject.view.show(running(1))
    subject.round()
    subject.view.show(going(running(1)))
    subject.round()
    assert subject.requested() == []
    subject.view.end(1)
    subject.round()
    assert subject.requested() == [2]


def test_ids_resume_from_the_highest_in_the_snapshot(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know()
    subject.begin()
    subject.want(3)
    subject.view.show(running(4), failed(9))
    subject.round(synced=True)
    assert subject.requested() == [10, 11]


def test_an_id_is_never_used_again(rig: Callable[..., Rig]) -> None:
    subject = rig().start(3)
    subject.refused(AlreadyExists("taken", status=409), *subject.requests())
    assert subject.requested() == [4, 5, 6]


# ── the creation timeout ─────────────────────────────────────────────────────────────────────────────────────────────


def test_one_that_is_not_observed_in_time_is_abandoned_deleted_and_replaced_in_the_same_round(
    rig: Callable[..., Rig],
) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.kit.advance(timedelta(seconds=59))
    subject.round(synced=True)
    assert subject.requested() == []
    subject.kit.advance(SECOND)
    subject.round()
    assert subject.deleted() == ["app-exec-1"]
    assert subject.backend.take(ExecutorsAbandoned).executor_ids == (1,)
    assert subject.requested() == [2]


def test_backend_and_lifecycle_manager_are_notified_of_an_abandoned_executor_before_its_delete(
    rig: Callable[..., Rig],
) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.kit.advance(MINUTE)
    subject.round(synced=True)
    assert subject.lifecycle.take(ExecutorsAbandoned) == subject.backend.take(ExecutorsAbandoned)
    lines = [line.split()[-1] for line in subject.kit.trace]
    both = [place for place, name in enumerate(lines) if name == "ExecutorsAbandoned"]
    assert len(both) == 2
    assert max(both) < lines.index("DeletePod")


def test_an_abandoned_executor_is_deleted_by_the_uid_of_the_created_pod(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.kit.advance(MINUTE)
    subject.round(synced=True)
    assert subject.pool.take(DeletePod).options.uid == "uid-1"


def test_a_batch_delay_of_its_own_makes_the_creation_timeout_longer(rig: Callable[..., Rig]) -> None:
    subject = rig(creation_timeout=SECOND, batch_delay=timedelta(seconds=4)).start(1)
    subject.answered()
    subject.kit.advance(timedelta(seconds=19))
    subject.round(synced=True)
    assert subject.deleted() == []
    subject.kit.advance(SECOND)
    subject.round(synced=True)
    assert subject.deleted() == ["app-exec-1"]


def test_one_is_not_abandoned_before_a_full_sync_requested_after_its_answer(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.kit.advance(timedelta(minutes=5))
    subject.round()
    assert (subject.deleted(), subject.requested()) == ([], [])
    subject.round(synced=True)
    assert subject.requested() == [2]


def test_one_whose_post_is_not_answered_is_not_abandoned(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    assert subject.requested() == [1]
    subject.kit.advance(timedelta(minutes=5))
    subject.round(synced=True)
    assert (subject.deleted(), subject.requested()) == ([], [])


def test_an_abandoned_executor_that_appears_late_does_not_count(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.kit.advance(MINUTE)
    subject.round(synced=True)
    assert subject.answered() == [2]
    subject.view.show(running(1), running(2))
    subject.round()
    subject.kit.advance(MINUTE)
    subject.round(synced=True)
    assert subject.requested() == []
    subject.view.end(2)
    subject.round()
    assert subject.requested() == [3], "the late one was counted"


# ── excess ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_excess_executors_are_deleted_requested_first_then_pending_oldest_first(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    subject.answered()
    subject.view.show(pending(1), running(2))
    subject.round()
    subject.want(3)
    subject.answered()
    subject.kit.advance(MINUTE)
    subject.want(1)
    deleted = [(delete.name, delete.goes_first) for delete in subject.pool.take_all(DeletePod)]
    assert deleted == [("app-exec-3", True), ("app-exec-1", False)], "the pending one counts until it is gone"
    assert subject.backend.take(ExecutorsAbandoned).executor_ids == (3,)


def test_a_pending_one_is_deleted_only_in_the_observed_version(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.view.show(pending(1))
    subject.round()
    subject.kit.advance(MINUTE)
    subject.want(0)
    options = subject.pool.take(DeletePod).options
    assert (options.uid, options.resource_version) == ("uid-1", "2")


def test_none_younger_than_the_idle_timeout_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig(idle_timeout=timedelta(seconds=7)).start(1)
    subject.answered()
    subject.view.show(pending(1))
    subject.round()
    subject.kit.advance(timedelta(seconds=6))
    subject.want(0)
    assert subject.deleted() == []
    subject.kit.advance(SECOND)
    subject.round()
    assert subject.deleted() == ["app-exec-1"]


def test_none_that_is_registered_or_runs_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    subject.answered()
    subject.view.show(pending(1), running(2))
    subject.round()
    subject.tell(ExecutorRegistered(1, subject.now))
    subject.kit.advance(timedelta(minutes=10))
    subject.want(0)
    assert subject.deleted() == []


def test_a_profile_that_is_not_named_has_a_target_of_zero(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.view.show(pending(1))
    subject.round()
    subject.kit.advance(MINUTE)
    subject.tell(SetTotalExpectedExecutors({}))
    assert subject.deleted() == ["app-exec-1"]


def test_a_killed_executor_is_the_excess_and_no_other_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    subject.answered()
    subject.view.show(pending(1), running(2))
    subject.round()
    subject.kit.advance(MINUTE)
    subject.tell(kill(subject, 2))
    subject.want(1)
    assert subject.deleted() == []
    subject.view.show(going(running(2)))
    subject.round()
    assert (subject.deleted(), subject.requested()) == ([], [])
    subject.view.end(2)
    subject.round()
    assert (subject.deleted(), subject.requested()) == ([], [])


def test_a_killed_one_is_not_replaced_before_it_terminates(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.view.show(running(1))
    subject.round()
    subject.tell(kill(subject, 1))
    subject.round()
    assert subject.requested() == []
    subject.view.show(going(running(1)))
    subject.round()
    assert subject.requested() == [2]


def test_when_more_are_killed_than_the_excess_no_other_is_deleted(rig: Callable[..., Rig]) -> None:
    subject = rig().start(6)
    subject.answered()
    subject.view.show(*map(pending, (1, 2, 3)), *map(running, (4, 5, 6)))
    subject.round()
    subject.kit.advance(MINUTE)
    subject.tell(kill(subject, 4))
    subject.tell(kill(subject, 5))
    subject.tell(kill(subject, 6))
    subject.want(5)
    assert subject.deleted() == []


def test_backend_and_lifecycle_manager_are_notified_of_excess_pending_executors_before_their_delete(
    rig: Callable[..., Rig],
) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.view.show(pending(1))
    subject.round()
    subject.kit.advance(MINUTE)
    subject.want(0)
    for probe in (subject.backend, subject.lifecycle):
        assert probe.take(ExecutorsScaledDown) == ExecutorsScaledDown({1: "uid-1"})
    lines = [line.split()[-1] for line in subject.kit.trace]
    both = [place for place, name in enumerate(lines) if name == "ExecutorsScaledDown"]
    assert len(both) == 2
    assert max(both) < lines.index("DeletePod")


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────

QUOTA = QuotaExceeded("exceeded quota: q", status=403, reason="Forbidden")
NO_ROOM = "the namespace has no room: exceeded quota: q"


def test_a_refusal_is_reported_once(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    subject.refused(QUOTA, *subject.requests())
    assert subject.backend.take_all(CreationBlocked) == [CreationBlocked("default", NO_ROOM, "QuotaExceeded")]
    subject.kit.advance(2 * SECOND)
    subject.round()
    subject.refused(QUOTA, *subject.requests())
    assert subject.backend.take_all(CreationBlocked) == []


def test_another_cause_is_reported(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.refused(QUOTA, *subject.requests())
    subject.backend.take(CreationBlocked)
    subject.kit.advance(2 * SECOND)
    subject.round()
    subject.refused(Invalid("spec.containers: Required", status=422, reason="Invalid"), *subject.requests())
    assert subject.backend.take(CreationBlocked).cause == "the manifest is invalid: spec.containers: Required"


def test_two_causes_of_one_http_status_are_distinguished(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.refused(QUOTA, *subject.requests())
    subject.backend.take(CreationBlocked)
    subject.kit.advance(2 * SECOND)
    subject.round()
    subject.refused(Forbidden("pods is forbidden", status=403, reason="Forbidden"), *subject.requests())
    assert subject.backend.take(CreationBlocked).cause == "the API server does not allow it: pods is forbidden"


def test_the_end_of_a_block_is_reported_once(rig: Callable[..., Rig]) -> None:
    subject = rig(batch_size=1, max_batch_size=1).start(3)
    subject.refused(QUOTA, *subject.requests())
    subject.backend.take(CreationBlocked)
    subject.kit.advance(2 * SECOND)
    subject.round()
    subject.answered()
    subject.answered()
    assert subject.backend.take_all(CreationBlocked) == [CreationBlocked("default", None)]


def test_a_partly_refused_batch_does_not_end_a_block(rig: Callable[..., Rig]) -> None:
    subject = rig().start(3)
    one, two, three = subject.requests()
    subject.created(one)
    subject.refused(QUOTA, two)
    subject.created(three)
    assert subject.backend.take_all(CreationBlocked) == [CreationBlocked("default", NO_ROOM, "QuotaExceeded")]


def test_a_refused_creation_is_retried_with_backoff_each_time_under_a_new_id(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    waits: list[int] = []
    for expected in range(1, 5):
        creates = subject.requests()
        assert [create.executor_id for create in creates] == [expected]
        subject.refused(QUOTA, *creates)
        waits.append(0)
        while not any(isinstance(message, CreatePod) for message in subject.pool.received):
            subject.kit.advance(timedelta(milliseconds=100))
            subject.round()
            waits[-1] += 1
    for wait, seconds in zip(waits, (1, 2, 4, 8), strict=True):
        assert 10 * seconds <= wait <= 12 * seconds + 1, waits


@pytest.mark.parametrize("error", [AlreadyExists("taken", status=409), Cancelled("it was killed")])
def test_a_taken_name_or_a_withdrawn_request_is_no_block(rig: Callable[..., Rig], error: ApiError) -> None:
    subject = rig().start(1)
    subject.refused(error, *subject.requests())
    assert subject.backend.take_all(CreationBlocked) == []
    assert subject.backend.take(ExecutorsAbandoned).executor_ids == (1,)
    assert subject.requested() == [2]


def test_the_status_says_why_creation_is_blocked(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.refused(QUOTA, *subject.requests())
    assert subject.backend.take_all(AllocatorStatus)[-1].profiles["default"].blocked == NO_ROOM


def test_after_a_refusal_one_is_requested_and_then_as_many_as_get_through(rig: Callable[..., Rig]) -> None:
    subject = rig(batch_size=8, max_batch_size=64).start(100)
    subject.refused(QUOTA, *subject.requests())
    sizes = []
    for _ in range(5):
        subject.kit.advance(MINUTE)
        subject.round()
        creates = subject.requests()
        sizes.append(len(creates))
        subject.refused(QUOTA, *creates)
    assert sizes == [1, 1, 1, 1, 1]
    subject.kit.advance(2 * MINUTE)
    subject.round()
    assert [len(subject.answered()) for _ in range(5)] == [1, 2, 4, 8, 16]


def delay(subject: Rig, executor_id: int, error: ApiError, *, epoch: int | None = None) -> None:
    """The pool retries a create."""
    subject.tell(
        PodCreateDelayed(executor_id, subject.epoch if epoch is None else epoch, error, subject.kit.clock.now())
    )


def reported_blocks(subject: Rig) -> list[str | None]:
    return [blocked.cause for blocked in subject.backend.take_all(CreationBlocked)]


DOWN = Unavailable("down", status=503)


def test_a_retried_request_is_reported_when_it_lasts_until_it_is_answered(
    rig: Callable[..., Rig],
) -> None:
    subject = rig().start(1)
    (create,) = subject.requests()
    delay(subject, 1, DOWN)
    subject.kit.advance(4 * SECOND)
    subject.round()
    assert reported_blocks(subject) == []
    subject.kit.advance(SECOND)
    subject.round()
    subject.round()
    assert reported_blocks(subject) == ["the API server is not available: down; next try at 00:00:00 UTC"]
    subject.created(create)
    assert reported_blocks(subject) == [None]


def test_an_error_of_the_server_is_reported_for_each_profile_that_waits(rig: Callable[..., Rig]) -> None:
    subject = rig(profiles=("large",)).start()
    subject.tell(SetTotalExpectedExecutors({"default": 1, "large": 1}))
    first = subject.requests()[0]
    delay(subject, first.executor_id, DOWN)
    subject.kit.advance(5 * SECOND)
    subject.round()
    assert [blocked.profile for blocked in subject.backend.take_all(CreationBlocked)] == ["default", "large"]


def test_a_delay_of_an_earlier_epoch_is_ignored(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    delay(subject, 1, DOWN, epoch=subject.epoch - 1)
    subject.kit.advance(MINUTE)
    subject.round()
    assert reported_blocks(subject) == []


def test_a_stale_snapshot_is_reported_where_executors_are_missing(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.view.show(running(1))
    subject.round()
    heard_at = subject.now
    subject.kit.advance(2 * MINUTE)
    subject.round(heard_at=heard_at)
    assert reported_blocks(subject) == []
    subject.want(2)
    (cause,) = reported_blocks(subject)
    assert "no source has reported" in str(cause)
    subject.round()
    assert reported_blocks(subject) == [None]
    assert subject.requested() == [2]


def test_the_limit_of_created_pods_is_reported_once_and_its_end_when_nothing_is_missing(
    rig: Callable[..., Rig],
) -> None:
    subject = rig(max_created=3).start(3)
    subject.answered()
    assert reported_blocks(subject) == []
    subject.want(5)
    for _ in range(3):
        subject.round()
    assert subject.requested() == []
    assert reported_blocks(subject) == ["allocation.max_created = 3: this driver has created so many pods"]
    subject.want(3)
    assert reported_blocks(subject) == [None]


def test_a_restarted_one_continues_the_count_of_created_pods(rig: Callable[..., Rig]) -> None:
    subject = rig(max_created=5)
    subject.tell(LedgerLoaded(IdMap(), 9, created=4))
    subject.begin()
    subject.want(3)
    subject.round(synced=True)
    assert subject.requested() == [9]


# ── start failures ───────────────────────────────────────────────────────────────────────────────────────────────────


def fail(subject: Rig, executor_id: int, end: Pod) -> None:
    """An executor runs and ends like this."""
    subject.view.show(running(executor_id))
    subject.round()
    subject.view.show(end)
    subject.round()


def test_start_failures_slow_creation_down_from_a_second_to_five_minutes(rig: Callable[..., Rig]) -> None:
    subject = rig(executor={"max_failures": 99}).start(1)
    waits = []
    for executor_id in range(1, 12):
        assert subject.answered() == [executor_id]
        fail(subject, executor_id, failed(executor_id))
        seconds = 0
        while not any(isinstance(message, CreatePod) for message in subject.pool.received):
            subject.kit.advance(SECOND)
            subject.round()
            seconds += 1
        waits.append(seconds)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@pytest.mark.parametrize("end", [failed(1, ran=MINUTE), evicted(1), going(failed(1))])
def test_one_that_ran_long_enough_or_was_evicted_does_not_slow_creation_down(rig: Callable[..., Rig], end: Pod) -> None:
    subject = rig().start(1)
    subject.answered()
    fail(subject, 1, end)
    assert subject.requested() == [2]


def test_one_that_was_registered_does_not_slow_creation_down(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    subject.answered()
    subject.tell(ExecutorRegistered(1, subject.now))
    fail(subject, 1, failed(1))
    assert subject.requested() == [2]


def test_what_ended_before_its_first_round_does_not_slow_creation_down(rig: Callable[..., Rig]) -> None:
    subject = rig(executor={"max_failures": 0})
    subject.know()
    subject.begin()
    subject.want(1)
    subject.view.show(failed(1), failed(2))
    subject.round(synced=True)
    assert subject.requested() == [3]
    assert subject.backend.take_all(StartFailuresExceeded) == []


def test_one_that_registers_before_it_is_observed_running_resets_the_wait(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    subject.answered()
    fail(subject, 1, failed(1))
    subject.view.show(pending(2))
    subject.round()
    assert subject.requested() == []
    subject.tell(ExecutorRegistered(2, subject.now))
    subject.round()
    assert subject.requested() == [3]


def test_one_that_registers_again_does_not_reset_the_wait(rig: Callable[..., Rig]) -> None:
    subject = rig().start(2)
    subject.answered()
    subject.view.show(running(2))
    subject.round()
    subject.tell(ExecutorRegistered(2, subject.now))
    fail(subject, 1, failed(1))
    subject.tell(ExecutorRegistered(2, subject.now))
    subject.round()
    assert subject.requested() == []


def test_above_max_failures_creation_stops_and_the_driver_is_notified_once(rig: Callable[..., Rig]) -> None:
    subject = rig(executor={"max_failures": 1}).start(3)
    subject.answered()
    for executor_id in (1, 2, 3):
        fail(subject, executor_id, failed(executor_id))
    subject.kit.advance(timedelta(hours=1))
    subject.round()
    assert subject.requested() == []
    told = subject.backend.take_all(StartFailuresExceeded)
    assert len(told) == 1
    assert told[0].cause == (
        "2 executors failed to start (2 of profile 'default'), more than executor.max_failures allows (1)"
    )


def test_without_a_setting_the_limit_is_twice_the_target_and_at_least_three(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    for executor_id in (1, 2, 3, 4):
        subject.answered()
        assert subject.backend.take_all(StartFailuresExceeded) == []
        fail(subject, executor_id, failed(executor_id))
        subject.kit.advance(MINUTE)
        subject.round()
    assert len(subject.backend.take_all(StartFailuresExceeded)) == 1


def test_failures_that_are_older_than_the_interval_do_not_count(rig: Callable[..., Rig]) -> None:
    subject = rig(executor={"max_failures": 1, "failures_validity_interval": MINUTE}).start(1)
    for executor_id in (1, 2):
        subject.answered()
        fail(subject, executor_id, failed(executor_id))
        subject.kit.advance(2 * MINUTE)
        subject.round()
    assert subject.backend.take_all(StartFailuresExceeded) == []


def test_a_target_that_the_driver_sets_after_the_fleet_failed_starts_creation_again(rig: Callable[..., Rig]) -> None:
    subject = rig(executor={"max_failures": 0}).start(1)
    subject.answered()
    fail(subject, 1, failed(1))
    subject.backend.take(StartFailuresExceeded)
    subject.want(1)
    assert subject.requested() == [2]


def test_a_target_that_the_driver_did_not_set_forgives_nothing(rig: Callable[..., Rig]) -> None:
    subject = rig(executor={"max_failures": 0}).start(2)
    subject.answered()
    fail(subject, 1, failed(1))
    subject.tell(SetTotalExpectedExecutors({"default": 2}))
    subject.kit.advance(timedelta(hours=1))
    subject.round()
    assert subject.requested() == []


def test_a_restarted_one_knows_which_target_has_forgiven_already(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.tell(LedgerLoaded(IdMap(), 2, starts=StartFailureRecord(failed="images are missing", forgiven=3)))
    subject.begin()
    subject.tell(SetTotalExpectedExecutors({"default": 1}, forgiven=3))
    subject.round(synced=True)
    assert subject.requested() == []
    assert subject.backend.take_all(AllocatorStatus)[-1].starts.forgiven == 3
    subject.tell(SetTotalExpectedExecutors({"default": 1}, forgiven=4))
    assert subject.requested() == [2]
    assert subject.backend.take_all(AllocatorStatus)[-1].starts == StartFailureRecord(forgiven=4)


def test_a_restarted_one_continues_the_count_of_start_failures(rig: Callable[..., Rig]) -> None:
    first = rig(executor={"max_failures": 1}).start(1)
    first.answered()
    fail(first, 1, failed(1))
    record = first.backend.take_all(AllocatorStatus)[-1].starts
    assert record.counts["default"].rounds == 1
    subject = rig(executor={"max_failures": 1})
    subject.tell(LedgerLoaded(IdMap(), 2, starts=record))
    subject.begin()
    subject.tell(SetTotalExpectedExecutors({"default": 1}))
    subject.round(synced=True)
    assert subject.requested() == [], "it waits as the one before it would have"
    subject.kit.advance(SECOND)
    subject.round()
    assert subject.answered() == [2]
    fail(subject, 2, failed(2))
    assert len(subject.backend.take_all(StartFailuresExceeded)) == 1


def test_a_restarted_one_continues_the_count_of_short_lived_executors(rig: Callable[..., Rig]) -> None:
    subject = rig()
    counts = StartFailureCount(waves=2, waves_until=subject.now + 10, newest=1)
    record = StartFailureRecord({"default": counts, "quiet": StartFailureCount()})
    subject.tell(LedgerLoaded(IdMap(), 2, starts=record))
    subject.begin()
    subject.want(1)
    subject.round(synced=True)
    assert subject.requested() == []
    status = subject.backend.take_all(AllocatorStatus)[-1]
    assert status.profiles["default"].blocked_by == "cut_short"
    assert status.starts.counts == {"default": counts}, "nothing is kept where nothing failed"
    subject.kit.advance(10 * SECOND)
    subject.round()
    assert subject.requested() == [2]


def test_a_restarted_one_does_not_report_again_that_the_fleet_has_failed(rig: Callable[..., Rig]) -> None:
    first = rig(executor={"max_failures": 0}).start(1)
    first.answered()
    fail(first, 1, failed(1))
    record = first.backend.take_all(AllocatorStatus)[-1].starts
    subject = rig(executor={"max_failures": 0})
    subject.tell(LedgerLoaded(IdMap(), 2, starts=record))
    subject.begin()
    subject.tell(SetTotalExpectedExecutors({"default": 1}))
    subject.kit.advance(MINUTE)
    subject.round(synced=True)
    assert subject.requested() == []
    assert subject.backend.take_all(StartFailuresExceeded) == []
    status = subject.backend.take_all(AllocatorStatus)[-1].profiles["default"]
    assert (status.blocked, status.start_failures) == (record.failed, 1)
    assert status.blocked_since == record.failed_since


# ── stuck ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def stuck(subject: Rig, executor_id: int = 1) -> None:
    """The executor can never start, and its time is up."""
    subject.view.show(waiting(executor_id, "InvalidImageName"))
    subject.round()
    subject.kit.advance(5 * MINUTE)


def test_a_stuck_executor_is_deleted_in_the_observed_version_and_counts_as_a_start_failure(
    rig: Callable[..., Rig],
) -> None:
    subject = rig(executor={"max_failures": 0}).start(1)
    subject.answered()
    stuck(subject)
    subject.round()
    options = subject.pool.take(DeletePod).options
    assert (options.uid, options.resource_version) == ("uid-1", "2")
    assert subject.backend.take_all(StartFailuresExceeded) == [], "it is not gone yet"
    subject.view.show(going(waiting(1, "InvalidImageName")))
    subject.view.end(1)
    subject.round()
    assert len(subject.backend.take_all(StartFailuresExceeded)) == 1


def test_a_stuck_executor_that_starts_after_all_is_no_start_failure_when_it_is_deleted_later(
    rig: Callable[..., Rig],
) -> None:
    subject = rig(executor={"max_failures": 0}).start(1)
    subject.answered()
    stuck(subject)
    subject.round()
    assert subject.deleted() == ["app-exec-1"]
    subject.view.show(running(1))
    subject.round()
    subject.view.end(1)
    subject.round()
    assert subject.backend.take_all(StartFailuresExceeded) == []


def test_when_creation_has_stopped_no_executor_is_replaced(rig: Callable[..., Rig]) -> None:
    subject = rig(executor={"max_failures": 0}).start(2)
    subject.answered()
    fail(subject, 2, failed(2))
    stuck(subject)
    subject.round()
    assert subject.deleted() == []


@pytest.mark.parametrize("ask", ["kill", "decommission"])
def test_a_killed_or_decommissioned_executor_that_ends_by_itself_is_no_start_failure(
    rig: Callable[..., Rig], ask: str
) -> None:
    subject = rig(executor={"max_failures": 0}).start(1)
    subject.answered()
    subject.view.show(running(1))
    subject.round()
    subject.tell(kill(subject, 1) if ask == "kill" else ExecutorDecommissioned(1))
    subject.view.show(succeeded(1))
    subject.round()
    subject.view.end(1)
    subject.round()
    assert subject.backend.take_all(StartFailuresExceeded) == []


# ── restart ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_restarted_one_counts_requested_executors(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know(LedgerEntry(1, "default"), LedgerEntry(2, "default"), next_id=3)
    subject.begin()
    subject.want(2)
    subject.round(synced=True)
    assert subject.requested() == []
    subject.kit.advance(MINUTE)
    subject.round(synced=True)
    assert (subject.deleted(), subject.requested()) == (["app-exec-1", "app-exec-2"], [3, 4])


def test_a_restarted_one_requests_anew_what_the_pool_has_dropped(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know(LedgerEntry(1, "default"), LedgerEntry(2, "default"), next_id=3)
    subject.begin(dropped=frozenset({2}))
    assert subject.backend.take(ExecutorsAbandoned).executor_ids == (2,)
    subject.want(2)
    subject.round(synced=True)
    assert subject.requested() == [3]


def test_a_restarted_one_does_not_count_a_late_pod_of_an_abandoned_executor(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know(LedgerEntry(1, "default", abandoned=True, removed_at=subject.now), next_id=2)
    subject.begin()
    subject.want(1)
    subject.view.show(running(1))
    subject.round(synced=True)
    assert subject.requested() == [2]


def test_a_restarted_one_does_not_wait_for_one_that_came_and_went(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know(LedgerEntry(1, "default"), next_id=2)
    subject.begin()
    subject.want(1)
    subject.view.show(running(1))
    subject.view.batch(subject.now)  # went to the one before
    subject.view.end(1)
    subject.round(synced=True)
    assert subject.requested() == [2]


def test_a_restarted_one_still_spares_the_registered_and_the_killed(rig: Callable[..., Rig]) -> None:
    subject = rig()
    subject.know(
        LedgerEntry(1, "default", uid="uid-1", notified_at=0.0, registered_at=0.0),
        LedgerEntry(2, "default", uid="uid-2", notified_at=0.0, killed=kill(subject, 2)),
        LedgerEntry(3, "default", uid="uid-3", notified_at=0.0),
        next_id=4,
    )
    subject.begin()
    subject.want(1)
    subject.view.show(pending(1), pending(2), pending(3))
    subject.round(synced=True)
    subject.kit.advance(MINUTE)
    subject.round(synced=True)
    assert subject.deleted() == ["app-exec-3"]


def test_an_answer_to_an_earlier_epoch_is_ignored(rig: Callable[..., Rig]) -> None:
    subject = rig().start(1)
    create = subject.requests()[0]
    subject.tell(PodCreateFailed(1, create.epoch - 1, QUOTA))
    assert subject.backend.take_all(CreationBlocked) == []
    assert subject.requested() == []


# ── the status ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_status_is_reported_when_it_changes_and_only_then(rig: Callable[..., Rig]) -> None:
    subject = rig().start(4)
    subject.answered()
    subject.view.show(pending(1), running(2), going(running(3)))
    subject.round()
    status = subject.backend.take_all(AllocatorStatus)[-1].profiles["default"]
    counts = (status.target, status.requested, status.pending, status.running, status.terminating)
    assert counts == (4, 2, 1, 1, 1)
    subject.round()
    subject.round()
    assert subject.backend.take_all(AllocatorStatus) == []
