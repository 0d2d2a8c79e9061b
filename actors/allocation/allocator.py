"""Allocator: keeps each profile at its target by requesting executors, and deletes those that are too many.

Level-triggered: each round compares the newest snapshot, and what was requested and not seen yet, with the target. It
never blocks: POSTs go out through the RequestPool and come back as messages. It neither creates nor deletes before it
has a target, the ledger, and a full sync that was asked for after its own start, nor while the snapshot is stale. What
it decides is in `actors.allocation.decisions` and the values beside it; it never reports an executor's end.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never, cast

from actors.allocation.creator import Creator
from actors.allocation.decisions import LIVE, LIVE_OR_GOING
from actors.allocation.deleter import UNWANTED, Deleter
from actors.allocation.executor_tracker import ExecutorTracker
from actors.allocation.start_failures import StartFailures
from actors.allocation.volumes import Volumes
from actors.errors import AlreadyExists, ApiError, Conflict
from actors.messages import (
    AddSubscriber,
    AllocatorStatus,
    BatchDone,
    BeginEpoch,
    ClaimsListed,
    CreationBlocked,
    EpochBegun,
    ExecutorDecommissioned,
    ExecutorKilled,
    ExecutorRegistered,
    LedgerLoaded,
    PodCreated,
    PodCreateDelayed,
    PodCreateFailed,
    PodsObserved,
    SetTotalExpectedExecutors,
    SnapshotBatch,
    StartFailuresExceeded,
    ToAllocator,
)
from actors.runtime import Actor, Address, Context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.kube.api import Manifest
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
    from actors.pods.state import PodRules
    from actors.settings.model import Settings

__all__ = ["Allocator"]

logger = logging.getLogger(__name__)


class Allocator(Actor):
    """Subscribes to the store at `allocation.batch_delay` once it has the ledger and the pool has begun its epoch."""

    def __init__(
        self,
        context: Context,
        *,
        settings: Settings,
        rules: PodRules,
        manifests: ExecutorManifests,
        store: Address,
        pool: Address,
        backend: Address,
    ) -> None:
        super().__init__(context)
        self._settings = settings.allocation
        self._stale_after = settings.source.stale_after
        self._store = store
        self._pool = pool
        self._backend = backend
        self._epoch = context.incarnation
        self._born_at = self.clock.monotonic()
        self._epoch_at: float | None = None
        """When the pool had begun this epoch (monotonic); a full sync asked for before says nothing of ours."""
        self._totals: Mapping[str, int] | None = None
        self._tracker = ExecutorTracker(LIVE_OR_GOING if self._settings.pod_replacement_policy == "Failed" else LIVE)
        self._volumes = Volumes(settings, manifests)
        self._starts = StartFailures(rules, settings.executor)
        self._deleter = Deleter(
            settings,
            self.clock,
            tracker=self._tracker,
            starts=self._starts,
            manifests=manifests,
            pool=pool,
            backend=backend,
        )
        self._creator = Creator(
            settings.allocation,
            self.clock,
            epoch=self._epoch,
            tracker=self._tracker,
            starts=self._starts,
            volumes=self._volumes,
            manifests=manifests,
            pool=pool,
            backend=backend,
            reply_to=self.myself,
        )
        self._latest: SnapshotBatch | None = None
        self._has_acted = False
        self._stale = False
        self._told = AllocatorStatus({})

    def receive(self, message: object) -> object:  # noqa: C901 - one line a message
        """One case a message."""
        message = cast("ToAllocator", message)
        match message:
            case SnapshotBatch():
                self._on_batch(message)
            case SetTotalExpectedExecutors(totals, forgives):
                self._retarget(totals, forgives=forgives)
            case ExecutorRegistered(executor_id):
                self._on_registered(executor_id)
            case ExecutorKilled(executor_id):
                self._tracker.killed.add(executor_id)
            case ExecutorDecommissioned(executor_id):
                self._tracker.decommissioned.add(executor_id)
            case PodCreated():
                self._created(message)
            case PodCreateFailed():
                self._create_failed(message)
            case PodCreateDelayed():
                self._create_delayed(message)
            case LedgerLoaded():
                self._learn(message)
            case EpochBegun():
                self._epoch_begun(message)
            case ClaimsListed(claims):
                self._claims_listed(claims)
            case _:
                assert_never(message)
        return None

    # ── the start ────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, known: LedgerLoaded) -> None:
        """Take the ledger up. What was requested and never seen counts as newly created until the truth is known."""
        self._creator.count_on(known.next_id)
        self._creator.created = known.created
        self._tracker.learn(known.ledger.values(), self.clock.monotonic())
        self._starts.learn(known.starts)
        self._pool.tell(BeginEpoch(self._epoch, self.myself, frozenset(self._tracker.newly)))

    def _epoch_begun(self, begun: EpochBegun) -> None:
        """No POST of an earlier incarnation is open any more: what is unseen now was answered, or is lost.

        Where nothing else is unseen, a full sync that was asked for since our start will do, which the watch may have
        done before this answer came: what is lost is asked for again, and a name is never made twice.
        """
        now, newly = self.clock.monotonic(), self._tracker.newly
        dropped = sorted(begun.dropped & newly.keys())
        self._creator.created -= len(dropped)
        self._deleter.forget(dropped, "its request was dropped", created=False)
        self._epoch_at = now if newly.keys() - begun.lost else self._born_at
        for executor_id in newly:
            if executor_id in begun.lost:
                newly.lose(executor_id)
            else:
                newly.answered(executor_id, now, None)
        self._store.tell(AddSubscriber(self.address, self._settings.batch_delay))

    def _retarget(self, totals: Mapping[str, int], *, forgives: bool) -> None:
        if totals != self._totals:
            logger.info("the target is set: totals=%s", dict(totals))
        if forgives and self._starts.forgive():
            logger.info("creation goes on: the driver has set a target after the fleet failed")
        self._totals = dict(totals)
        self._round()

    def _on_registered(self, executor_id: int) -> None:
        """An executor is in use: a success, the first time."""
        profile = self._profile_of(executor_id)
        if profile is not None and executor_id not in self._tracker.registered:
            self._starts.proved(executor_id, profile)
        self._tracker.registered.add(executor_id)

    def _profile_of(self, executor_id: int) -> str | None:
        """The profile of an executor that was requested or is shown."""
        if executor_id in self._tracker.newly:
            return self._tracker.newly[executor_id].profile
        state = self._latest.snapshot.states.get(executor_id) if self._latest is not None else None
        return state.pod.profile if state is not None else None

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _created(self, answer: PodCreated) -> None:
        executor_id, new = answer.executor_id, self._tracker.newly.get(answer.executor_id)
        if answer.epoch != self._epoch:
            return
        if new is None:
            if answer.withdrawn and self._profile_of(executor_id) is not None:
                self._deleter.take_back_shown(executor_id, answer.pod)
            return
        self._tracker.newly.answered(executor_id, self.clock.monotonic(), answer.pod)
        if answer.withdrawn:
            self._deleter.take_back((executor_id,), UNWANTED)
        if self._creator.creation(new.profile).created():
            self._round()

    def _create_failed(self, answer: PodCreateFailed) -> None:
        new = self._tracker.newly.get(answer.executor_id)
        if answer.epoch != self._epoch or new is None:
            return
        self._creator.created -= 1
        self._volumes.refused(answer.executor_id, taken=isinstance(answer.error, AlreadyExists))
        self._deleter.forget([answer.executor_id], f"it could not be created: {answer.error}", created=False)
        creation, now = self._creator.creation(new.profile), self.clock.monotonic()
        is_last, news = creation.not_created(answer.error, now=now, entropy=self.entropy)
        if news:
            logger.warning("executors cannot be created: profile=%s error=%s", new.profile, answer.error)
            self._tell_blocked(new.profile)
        if is_last:
            self._round()

    def _create_delayed(self, delay: PodCreateDelayed) -> None:
        """The pool tries again. What is wrong with the server, and not with one request, concerns all that wait."""
        new = self._tracker.newly.get(delay.executor_id)
        if delay.epoch != self._epoch or new is None:
            return
        for profile, creation in self._creator.creations.items():
            if profile == new.profile or (creation.awaited and not isinstance(delay.error, Conflict)):
                creation.creation_block.put_off(delay.error, self.clock.monotonic())

    def _claims_listed(self, claims: Sequence[Manifest] | ApiError) -> None:
        """What executors may take over, in this one round."""
        self._creator.count_on(self._volumes.listed(claims, self.clock.now()))
        self._round()
        self._volumes.used_up()

    def _tell_blocked(self, profile: str, others: str | None = None, sort: str | None = None) -> None:
        """Backend hears why creation stands still when that begins, changes or ends."""
        creation_block = self._creator.creation(profile).creation_block
        if creation_block.tell(others, now=self.clock.monotonic(), at=self.clock.now(), sort=sort):
            if creation_block.told is None:
                logger.info("executors can be created again: profile=%s", profile)
            self._backend.tell(CreationBlocked(profile, creation_block.told))

    # ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_batch(self, batch: SnapshotBatch) -> None:
        self._see(batch)
        self._creator.count_on(max(batch.appeared, default=0) + 1)
        self._follow(batch)
        self._latest = batch
        self._round()
        self._store.tell(BatchDone(self.address, batch.seq))

    def _see(self, batch: SnapshotBatch) -> None:
        """What appeared is newly created no more. Where the watch was faster than the answer, the pool hears of it."""
        shown = {ended.executor_id: ended.state.pod for ended in batch.ended}
        shown |= {i: state.pod for i in batch.appeared if (state := batch.snapshot.states.get(i)) is not None}
        unanswered: dict[int, Pod] = {}
        for executor_id in sorted(shown.keys() & self._tracker.newly.keys()):
            new = self._tracker.newly.take(executor_id)
            if new.answered_at is None and not new.lost and self._epoch_at is not None:
                unanswered[executor_id] = shown[executor_id]
                self._creator.creation(new.profile).created()
        if unanswered:
            self._pool.tell(PodsObserved(unanswered))

    def _follow(self, batch: SnapshotBatch) -> None:
        """Keep what is known of single executors in step with what changed."""
        now = self.clock.monotonic()
        tracker = self._tracker
        early = self._starts.follow(batch, tracker.registered, now, is_asked_to_go=tracker.is_asked_to_go)
        if self._has_acted:  # what ended before is an earlier life's, or was counted before our restart
            for profile, count in early.failed.items():
                self._start_failed(profile, count, now)
            for profile, executor_ids in early.cut_short.items():
                self._cut_short(profile, executor_ids, now)
        tracker.follow(batch, now)
        self._volumes.follow(
            batch, lambda executor_id: executor_id in tracker.newly or executor_id in tracker.abandoned
        )
        for profile in {ended.state.pod.profile for ended in batch.ended}:
            self._creator.creation(profile).creation_block.hasten(now)

    def _start_failed(self, profile: str, count: int, now: float) -> None:
        target = (self._totals or {}).get(profile, 0)
        wait, stops = self._starts.failed(
            profile, count, target=target, now=now, at=self.clock.now(), entropy=self.entropy
        )
        logger.info("executors ended before they were of use: profile=%s count=%d wait=%.1fs", profile, count, wait)
        if stops and self._starts.exceeded is not None:
            logger.warning("the fleet has failed, creation stops: %s", self._starts.exceeded)
            self._backend.tell(StartFailuresExceeded(self._starts.exceeded))

    def _cut_short(self, profile: str, executor_ids: Sequence[int], now: float) -> None:
        newest, entropy = self._creator.next_id - 1, self.entropy
        wait = self._starts.cut_short(profile, executor_ids, newest=newest, now=now, entropy=entropy)
        if wait is not None:
            words = "others ended executors before they were of use: profile=%s ids=%s wait=%.1fs"
            logger.info(words, profile, list(executor_ids), wait)

    def _round(self) -> None:
        batch, totals = self._latest, self._totals
        if batch is None or totals is None or not self._is_synced(batch):
            return
        snapshot, stale = batch.snapshot, self._is_stale(batch)
        if not stale:
            self._has_acted = True
            self._deleter.give_up_overdue(snapshot)
            self._deleter.drop_lost()
            self._deleter.replace_stuck(snapshot)
        missing = self._tracker.missing(snapshot, totals)
        self._deleter.delete_surplus(missing, snapshot, stale=stale)
        if not stale:
            self._creator.request(missing, totals, snapshot)
            missing = self._tracker.missing(snapshot, totals)
        self._tell_all_blocked(missing)
        self._tell_status(snapshot)

    def _is_synced(self, batch: SnapshotBatch) -> bool:
        """Whether the snapshot knows of all that was requested before our start."""
        synced_at = batch.snapshot.full_sync_at
        return synced_at is not None and self._epoch_at is not None and synced_at >= self._epoch_at

    def _is_stale(self, batch: SnapshotBatch) -> bool:
        """Whether nothing was heard of the cluster for so long that the snapshot may not be acted on."""
        now = self.clock.monotonic()
        age = timedelta(seconds=now - (batch.heard_at if batch.heard_at is not None else self._born_at))
        stale = age > self._stale_after
        if stale and not self._stale:
            logger.warning("the snapshot is stale, creating and deleting nothing: age=%.0fs", age.total_seconds())
        elif self._stale and not stale:
            logger.info("the snapshot is fresh again")
        self._stale = stale
        return stale

    def _tell_all_blocked(self, missing: Mapping[str, int]) -> None:
        """Where executors are missing, what holds all of them up; where none is, nothing does."""
        all_wait, sort_of_all = None, None
        if self._stale:
            sort_of_all = "stale"
            all_wait = "nothing was heard of the cluster for too long: what there is may not be there any more"
        elif self._creator.limit_reached():
            sort_of_all = "max_created"
            limit = self._settings.max_created
            all_wait = f"allocation.max_created = {limit}: so many pods were created in this driver's life"
        for profile in sorted({*missing, *self._creator.creations}):
            lacks_some = missing.get(profile, 0) > 0
            if not lacks_some:
                self._creator.creation(profile).satisfied()
            others, sort = all_wait, sort_of_all
            if others is None:
                others, sort = self._volumes.waits_for(profile, (self._totals or {}).get(profile, 0)), "claims"
            if others is None:
                others, sort = self._starts.waits_for(profile, self.clock.monotonic()), "cut_short"
            self._tell_blocked(profile, others if lacks_some else None, sort)

    def _tell_status(self, snapshot: PodsSnapshot) -> None:
        """Backend hears the counts when they change."""
        totals, now, starts = self._totals or {}, self.clock.monotonic(), self._starts
        profiles = {}
        for profile in self._tracker.profiles(snapshot, totals):
            creation_block = self._creator.creation(profile).creation_block
            profiles[profile] = replace(
                self._tracker.status(snapshot, profile, totals.get(profile, 0)),
                blocked=starts.exceeded or creation_block.told,
                blocked_since=starts.exceeded_since if starts.exceeded else creation_block.told_since,
                blocked_by="start_failures" if starts.exceeded else creation_block.told_sort,
                start_failures=starts.count(profile, now),
            )
        status = AllocatorStatus(profiles, starts.record())
        if status != self._told:
            self._told = status
            self._backend.tell(status)
