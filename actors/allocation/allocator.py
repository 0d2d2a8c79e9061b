"""Allocator: keeps each profile at its target by requesting executors, and deletes those that are too many.

Level-triggered: each round compares the newest snapshot, and what was requested and not seen yet, with the target. It
never blocks: POSTs go out through the RequestPool and come back as messages. It neither creates nor deletes before it
has a target, the ledger, and a full sync that was asked for after its own start, nor while the snapshot is stale. What
it decides is in `actors.allocation.decisions` and the values beside it; it never reports an executor's end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, assert_never, cast

from actors.allocation.creation_block import CreationBlock
from actors.allocation.creator import Creator
from actors.allocation.deleter import Deleter
from actors.allocation.executor_tracker import ExecutorTracker
from actors.allocation.profile import Profile, Profiles
from actors.allocation.start_failures import StartFailures
from actors.allocation.volumes import Volumes
from actors.errors import AlreadyExists, ApiError, Conflict
from actors.messages import (
    NOT_DESIRED,
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
    ProfileStatus,
    SetTotalExpectedExecutors,
    SnapshotBatch,
    StartFailureCount,
    StartFailureRecord,
    StartFailuresExceeded,
    ToAllocator,
)
from actors.pods.state import PodPending, PodRunning, PodTerminating, PodUnknown
from actors.runtime import Actor, Address, Context, Moment, elapsed
from actors.settings.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.kube.api import Manifest
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
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
        manifests: ExecutorManifests,
        store: Address,
        pool: Address,
        backend: Address,
    ) -> None:
        super().__init__(context)
        self._settings = settings.allocation
        self._stale_after = settings.source.stale_after
        self._validity_interval = settings.executor.failures_validity_interval
        self._store = store
        self._pool = pool
        self._backend = backend
        self._epoch = context.incarnation
        self._born_at = self.clock.monotonic()
        self._epoch_at: Moment | None = None
        """When the pool had begun this epoch; a full sync asked for before says nothing of ours."""
        self._totals: Mapping[str, int] | None = None
        self._profiles = Profiles(settings)
        self._tracker = ExecutorTracker(settings)
        self._volumes = Volumes(settings, manifests)
        self._starts = StartFailures(settings, self._tracker, self._profiles)
        self._deleter = Deleter(
            clock=self.clock,
            tracker=self._tracker,
            starts=self._starts,
            manifests=manifests,
            pool=pool,
            backend=backend,
        )
        self._creator = Creator(
            settings=settings.allocation,
            clock=self.clock,
            epoch=self._epoch,
            reply_to=self.myself,
            tracker=self._tracker,
            profiles=self._profiles,
            volumes=self._volumes,
            manifests=manifests,
            pool=pool,
            backend=backend,
        )
        self._latest: SnapshotBatch | None = None
        self._has_acted = False
        self._stale = False
        self._failed: CreationBlock | None = None
        """Too many executors failed to start: creation has stopped until the driver sets another target."""
        self._reported = AllocatorStatus({})

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
        if known.starts.failed is not None:
            self._failed = CreationBlock("start_failures", known.starts.failed, since=known.starts.failed_since)
        for name, counts in known.starts.counts.items():
            self._profiles[name].starts = counts
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
        if forgives and self._failed is not None:
            logger.info("creation goes on: the driver has set a target after the fleet failed")
            self._failed = None
            for profile in self._profiles.values():
                profile.forgive()
        self._totals = dict(totals)
        for name in {*self._profiles, *totals}:
            self._profiles[name].target = totals.get(name, 0)
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
            self._deleter.take_back((executor_id,), NOT_DESIRED)
        if self._profiles[new.profile].answered(None, now=self.clock.monotonic(), entropy=self.entropy):
            self._round()

    def _create_failed(self, answer: PodCreateFailed) -> None:
        new = self._tracker.newly.get(answer.executor_id)
        if answer.epoch != self._epoch or new is None:
            return
        self._creator.created -= 1
        self._volumes.refused(answer.executor_id, taken=isinstance(answer.error, AlreadyExists))
        self._deleter.forget([answer.executor_id], f"it could not be created: {answer.error}", created=False)
        profile = self._profiles[new.profile]
        before = profile.refusal
        is_last = profile.answered(answer.error, now=self.clock.monotonic(), entropy=self.entropy)
        if profile.refusal is not before:
            logger.warning("executors cannot be created: profile=%s error=%s", profile.name, answer.error)
            self._report_block(profile, None, lacks_some=True)
        if is_last:
            self._round()

    def _create_delayed(self, delay: PodCreateDelayed) -> None:
        """The pool tries again. What is wrong with the server, and not with one request, concerns all that wait."""
        new = self._tracker.newly.get(delay.executor_id)
        if delay.epoch != self._epoch or new is None:
            return
        for profile in self._profiles.values():
            if profile.name == new.profile or (profile.awaited and not isinstance(delay.error, Conflict)):
                profile.delayed(delay.error, self.clock.monotonic())

    def _claims_listed(self, claims: Sequence[Manifest] | ApiError) -> None:
        """What executors may take over, in this one round."""
        self._creator.count_on(self._volumes.listed(claims, self.clock.now()))
        self._round()
        self._volumes.used_up()

    def _report_block(self, profile: Profile, fleet: CreationBlock | None, *, lacks_some: bool) -> None:
        """Backend hears why creation stands still when that begins, changes or ends."""
        if profile.report(fleet, lacks_some=lacks_some, now=self.clock.monotonic(), at=self.clock.now()):
            if profile.block is None:
                logger.info("executors can be created again: profile=%s", profile.name)
            self._backend.tell(CreationBlocked(profile.name, profile.block.message if profile.block else None))

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
                self._profiles[new.profile].answered(None, now=self.clock.monotonic(), entropy=self.entropy)
        if unanswered:
            self._pool.tell(PodsObserved(unanswered))

    def _follow(self, batch: SnapshotBatch) -> None:
        """Keep what is known of single executors in step with what changed."""
        now = self.clock.monotonic()
        tracker = self._tracker
        early = self._starts.follow(batch, now)
        if self._has_acted:  # what ended before is an earlier life's, or was counted before our restart
            for name, count in early.failed.items():
                self._start_failed(self._profiles[name], count, now)
            for name, executor_ids in early.cut_short.items():
                self._cut_short(self._profiles[name], executor_ids, now)
        tracker.follow(batch, now)
        self._volumes.follow(batch, tracker.may_appear)
        for name in {ended.state.pod.profile for ended in batch.ended}:
            self._profiles[name].ended(now)

    def _start_failed(self, profile: Profile, count: int, now: Moment) -> None:
        exceeds = profile.start_failed(count, now=now, entropy=self.entropy)
        wait = profile.starts.until - now
        logger.info(
            "executors ended before they were of use: profile=%s count=%d wait=%.1fs", profile.name, count, wait
        )
        if exceeds and self._failed is None:
            interval = self._validity_interval
            within = f" within {format_duration(interval)}" if interval is not None else ""
            seen = len(profile.starts.times)
            cause = f"{seen} executors of profile {profile.name!r} ended before they were of use{within}"
            self._failed = CreationBlock("start_failures", cause, since=self.clock.now())
            logger.warning("the fleet has failed, creation stops: %s", cause)
            self._backend.tell(StartFailuresExceeded(cause))

    def _cut_short(self, profile: Profile, executor_ids: Sequence[int], now: Moment) -> None:
        if profile.cut_short(executor_ids, newest=self._creator.next_id - 1, now=now, entropy=self.entropy):
            words = "others ended executors before they were of use: profile=%s ids=%s wait=%.1fs"
            logger.info(words, profile.name, list(executor_ids), max(0.0, profile.starts.waves_until - now))

    def _round(self) -> None:
        batch, totals = self._latest, self._totals
        if batch is None or totals is None or not self._is_synced(batch):
            return
        snapshot, stale = batch.snapshot, self._is_stale(batch)
        if not stale:
            self._has_acted = True
            self._deleter.give_up_overdue(snapshot)
            self._deleter.drop_lost()
            if self._failed is None:
                self._deleter.replace_stuck(snapshot)
        missing = self._tracker.missing(snapshot, totals)
        self._deleter.delete_surplus(missing, snapshot, stale=stale)
        if not stale and self._failed is None:
            self._creator.request(missing, snapshot)
            missing = self._tracker.missing(snapshot, totals)
        self._report_all_blocks(missing)
        self._report_status(sorted(missing), snapshot)

    def _is_synced(self, batch: SnapshotBatch) -> bool:
        """Whether the snapshot knows of all that was requested before our start."""
        synced_at = batch.snapshot.full_sync_at
        return synced_at is not None and self._epoch_at is not None and synced_at >= self._epoch_at

    def _is_stale(self, batch: SnapshotBatch) -> bool:
        """Whether nothing was heard of the cluster for so long that the snapshot may not be acted on."""
        heard_at = batch.heard_at if batch.heard_at is not None else self._born_at
        age = elapsed(heard_at, self.clock.monotonic())
        stale = age > self._stale_after
        if stale and not self._stale:
            logger.warning("the snapshot is stale, creating and deleting nothing: age=%.0fs", age.total_seconds())
        elif self._stale and not stale:
            logger.info("the snapshot is fresh again")
        self._stale = stale
        return stale

    def _report_all_blocks(self, missing: Mapping[str, int]) -> None:
        """Where executors are missing, what holds all of them up; where none is, nothing does."""
        fleet = None
        if self._stale:
            message = "nothing was heard of the cluster for too long: what there is may not be there any more"
            fleet = CreationBlock("stale", message)
        elif self._creator.limit_reached():
            limit = self._settings.max_created
            message = f"allocation.max_created = {limit}: so many pods were created in this driver's life"
            fleet = CreationBlock("max_created", message)
        for name in sorted({*missing, *self._profiles}):
            self._report_block(self._profiles[name], fleet, lacks_some=missing.get(name, 0) > 0)

    def _report_status(self, names: Sequence[str], snapshot: PodsSnapshot) -> None:
        """Backend hears the counts when they change."""
        statuses = {name: self._status(self._profiles[name], snapshot) for name in names}
        counts = {
            name: profile.starts for name, profile in self._profiles.items() if profile.starts != StartFailureCount()
        }
        failed, since = (self._failed.message, self._failed.since) if self._failed is not None else (None, None)
        status = AllocatorStatus(statuses, StartFailureRecord(counts, failed, since))
        if status != self._reported:
            self._reported = status
            self._backend.tell(status)

    def _status(self, profile: Profile, snapshot: PodsSnapshot) -> ProfileStatus:
        block = self._failed or profile.block
        return ProfileStatus(
            target=profile.target,
            requested=self._tracker.newly.count(profile.name),
            pending=snapshot.count(PodPending, profile=profile.name),
            running=snapshot.count(PodRunning, PodUnknown, profile=profile.name),
            terminating=snapshot.count(PodTerminating, profile=profile.name),
            start_failures=profile.start_failures(self.clock.monotonic()),
            blocked=block.message if block is not None else None,
            blocked_since=block.since if block is not None else None,
            blocked_by=block.cause if block is not None else None,
        )
