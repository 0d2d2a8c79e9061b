"""The actor: compares the target with the newest snapshot and the requested executors, round by round.

It never blocks: the RequestPool sends the POSTs, and their answers come back as messages. It neither creates nor
deletes before it has a target, the ledger, and a full sync requested after its own start, nor while the snapshot is
stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from actors.allocation.creation_block import CreationBlock
from actors.allocation.creator import Creator
from actors.allocation.deleter import Deleter
from actors.allocation.executor_tracker import ExecutorTracker
from actors.allocation.memory_steps import MemorySteps
from actors.allocation.profile import Profile, Profiles
from actors.allocation.round_log import RoundLog
from actors.allocation.start_failures import StartFailures
from actors.allocation.volumes import Volumes
from actors.errors import AlreadyExists, Altered, ApiError, Conflict
from actors.messages import ProfileStatus, internal
from actors.pods.ids import believed
from actors.pods.state import PodPending, PodRunning, PodTerminating, PodUnknown
from actors.runtime import Actor, Address, Context, Moment, elapsed
from actors.settings.durations import format_duration
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.kube.api import Manifest
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
    from actors.settings.model import Settings

__all__ = ["Allocator"]

logger = get_logger(__name__)


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
        lifecycle: Address,
        backend: Address,
    ) -> None:
        super().__init__(context)
        self._settings = settings.allocation
        self._stale_after = settings.source.stale_after
        self._failures_allowed = settings.executor.failures_allowed
        self._validity_interval = settings.executor.failures_validity_interval
        self._store = store
        self._pool = pool
        self._backend = backend
        self._epoch = context.incarnation
        self._started_at = self.clock.monotonic()
        self._epoch_at: Moment | None = None
        """When the pool had begun this epoch. A full sync requested before that does not have this epoch's pods."""
        self._totals: Mapping[str, int] | None = None
        self._profiles = Profiles(settings)
        self._tracker = ExecutorTracker(settings)
        self._volumes = Volumes(settings, manifests)
        self._memory = MemorySteps(settings, self._tracker, manifests)
        self._starts = StartFailures(settings, self._tracker, self._profiles)
        self._deleter = Deleter(
            clock=self.clock,
            tracker=self._tracker,
            starts=self._starts,
            manifests=manifests,
            pool=pool,
            lifecycle=lifecycle,
            backend=backend,
            draining=settings.draining,
        )
        self._creator = Creator(
            settings=settings.allocation,
            clock=self.clock,
            epoch=self._epoch,
            reply_to=self.myself,
            tracker=self._tracker,
            profiles=self._profiles,
            volumes=self._volumes,
            memory=self._memory,
            manifests=manifests,
            store=store,
            pool=pool,
            backend=backend,
        )
        self._latest: internal.SnapshotBatch | None = None
        self._has_acted = False
        self._lacks_some = True
        """The last round has left executors that were not requested."""
        self._stale = False
        self._failed: CreationBlock | None = None
        """Set when too many executors failed to start: creation stops until the driver sets a target."""
        self._forgiven = 0
        """See `StartFailureRecord`."""
        self._reported = internal.AllocatorStatus({})
        self._log = RoundLog(self.clock)

    def receive(self, message: internal.ToAllocator) -> object:  # noqa: C901 - one line a message
        """Handle one message."""
        match message:
            case internal.SnapshotBatch():
                self._on_batch(message)
            case internal.SetTotalExpectedExecutors():
                self._retarget(message)
            case internal.ExecutorRegistered(executor_id):
                self._on_registered(executor_id)
            case internal.ExecutorKilled(executor_id):
                self._tracker.killed.add(executor_id)
            case internal.ExecutorDecommissioned(executor_id):
                self._tracker.decommissioned.add(executor_id)
            case internal.PodCreated():
                self._created(message)
            case internal.PodCreateFailed():
                self._create_failed(message)
            case internal.PodCreateDelayed():
                self._create_delayed(message)
            case internal.LedgerLoaded():
                self._load_ledger(message)
            case internal.EpochBegun():
                self._epoch_begun(message)
            case internal.ClaimsListed(claims):
                self._claims_listed(claims)
            case _:
                assert_never(message)
        return None

    # ── the start ────────────────────────────────────────────────────────────────────────────────────────────────

    def _load_ledger(self, known: internal.LedgerLoaded) -> None:
        """Load the ledger. Executors that were never observed count as requested until a full sync shows the truth."""
        self._creator.resume_from(known.next_id)
        self._creator.created = known.created
        self._tracker.undecided.profiles = known.decides
        self._tracker.load(known.ledger.values(), self.clock.monotonic())
        self._memory.load(known.memory_steps, known.ledger.values())
        self._forgiven = known.starts.forgiven
        if known.starts.failed is not None:
            self._failed = CreationBlock("start_failures", known.starts.failed, since=known.starts.failed_since)
        for name, counts in known.starts.counts.items():
            self._profiles[name].starts = counts
        self._pool.tell(internal.BeginEpoch(self._epoch, self.myself, frozenset(self._tracker.requested)))

    def _epoch_begun(self, begun: internal.EpochBegun) -> None:
        """Note which requests of earlier incarnations were answered, dropped or lost: none of them is open any more.

        If all requested executors are lost, a full sync requested since our start is recent enough, which the watch may
        have done before this message: lost requests are sent again, and one name is never created twice.
        """
        now, requested = self.clock.monotonic(), self._tracker.requested
        dropped = sorted(begun.dropped & requested.keys())
        self._creator.created -= len(dropped)
        self._deleter.abandon(dropped, "its request was dropped", created=False)
        self._epoch_at = now if requested.keys() - begun.lost else self._started_at
        for executor_id in requested:
            if executor_id in begun.lost:
                requested.lose(executor_id)
            else:
                requested.answered(executor_id, now, None)
        self._store.tell(internal.AddSubscriber(self.address, self._settings.batch_delay))

    def _retarget(self, message: internal.SetTotalExpectedExecutors) -> None:
        totals = message.totals
        if totals != self._totals:
            logger.info("target set: totals=%s", dict(totals))
        if message.forgiven > self._forgiven:
            self._forgiven = message.forgiven
            self._forgive()
        self._totals = dict(totals)
        self._tracker.at_once = message.at_once
        self._tracker.retire(message.retired)
        self._tracker.undecided.decide(message.decided)
        for name in {*self._profiles, *totals}:
            self._profiles[name].target = totals.get(name, 0)
        self._round()

    def _forgive(self) -> None:
        """Try again, if the fleet has failed."""
        if self._failed is not None:
            logger.info("creation resumed: the driver set a target after the fleet failed")
            self._failed = None
            for profile in self._profiles.values():
                profile.forgive()

    def _on_registered(self, executor_id: int) -> None:
        """Note that the driver has registered an executor. The first time, its start was a success."""
        profile = self._profile_of(executor_id)
        if profile is not None and executor_id not in self._tracker.registered:
            self._starts.succeeded(executor_id, profile)
        self._tracker.registered.add(executor_id)

    def _profile_of(self, executor_id: int) -> str | None:
        """Return the profile of an executor that was requested or is in the snapshot."""
        if executor_id in self._tracker.requested:
            return self._tracker.requested[executor_id].profile
        state = self._latest.snapshot.states.get(executor_id) if self._latest is not None else None
        return state.pod.profile if state is not None else None

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _created(self, answer: internal.PodCreated) -> None:
        executor_id, requested = answer.executor_id, self._tracker.requested.get(answer.executor_id)
        if answer.epoch != self._epoch:
            return
        if requested is None:
            name = self._profile_of(executor_id)
            if answer.withdrawn and name is not None and self._has_excess(name):
                self._deleter.delete_withdrawn(executor_id, answer.pod)
            return
        self._tracker.requested.answered(executor_id, self.clock.monotonic(), answer.pod)
        if answer.withdrawn and self._has_excess(requested.profile):
            self._deleter.abandon_and_delete((executor_id,), internal.NOT_DESIRED)
        profile = self._profiles[requested.profile]
        for other in self._profiles.sharing_quota_with(profile):
            other.hasten(self.clock.monotonic())
        follows = profile.answered(None, now=self.clock.monotonic(), entropy=self.entropy)
        if follows and (self._lacks_some or profile.block is not None):
            self._round()

    def _has_excess(self, profile: str) -> bool:
        """Whether a profile still has too many executors, without those that are being ended."""
        if self._latest is None or self._totals is None:
            return False
        snapshot = self._latest.snapshot
        desired = self._totals.get(profile, 0) + self._tracker.being_ended(snapshot, profile)
        return self._tracker.expected(snapshot, profile) > desired

    def _create_failed(self, answer: internal.PodCreateFailed) -> None:
        requested = self._tracker.requested.get(answer.executor_id)
        if answer.epoch != self._epoch:
            return
        now = self.clock.monotonic()
        if requested is None:
            if isinstance(answer.error, Altered) and (name := self._profile_of(answer.executor_id)) is not None:
                self._profiles[name].refused(answer.error, now=now, entropy=self.entropy)  # observed before the answer
            return
        self._creator.created -= 1
        if not isinstance(answer.error, Altered):  # that pod has them until it is deleted
            self._volumes.refused(answer.executor_id, taken=isinstance(answer.error, AlreadyExists))
        self._deleter.abandon([answer.executor_id], f"it could not be created: {answer.error}", created=False)
        profile = self._profiles[requested.profile]
        before = profile.refusal
        follows = profile.answered(answer.error, now=now, entropy=self.entropy)
        if profile.refusal is not before:
            logger.warning("creation refused: profile=%s error=%s", profile.name, answer.error)
            self._report_block(profile, None, lacks_some=True)
        if follows:
            self._round()

    def _create_delayed(self, delay: internal.PodCreateDelayed) -> None:
        """Note that the pool retries a create. An error of the server, not of one request, concerns all profiles."""
        requested = self._tracker.requested.get(delay.executor_id)
        if delay.epoch != self._epoch or requested is None:
            return
        for profile in self._profiles.values():
            if profile.name == requested.profile or (profile.awaited and not isinstance(delay.error, Conflict)):
                profile.delayed(delay.error, self.clock.monotonic(), delay.retry_at)

    def _claims_listed(self, claims: Sequence[Manifest] | ApiError) -> None:
        """Start a round in which executors may reuse the listed claims."""
        self._creator.resume_from(self._volumes.listed(claims, self.clock.now()))
        self._round()
        self._volumes.drop_list()

    def _report_block(self, profile: Profile, fleet: CreationBlock | None, *, lacks_some: bool) -> None:
        """Tell the Backend when a profile's block begins, changes or ends."""
        if profile.report(fleet, lacks_some=lacks_some, now=self.clock.monotonic(), at=self.clock.now()):
            if profile.block is None:
                logger.info("creation unblocked: profile=%s", profile.name)
                self._backend.tell(internal.CreationBlocked(profile.name, None))
            else:
                self._backend.tell(internal.CreationBlocked(profile.name, profile.block.message, profile.block.cause))

    # ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_batch(self, batch: internal.SnapshotBatch) -> None:
        self._note_observed(batch)
        self._creator.resume_from(max(map(believed, batch.appeared), default=0) + 1)
        self._follow(batch)
        self._latest = batch
        self._round()
        self._store.tell(internal.BatchDone(self.address, batch.seq))

    def _note_observed(self, batch: internal.SnapshotBatch) -> None:
        """Stop expecting observed executors, and tell the pool of them: the POSTs of some may not be answered."""
        observed = {ended.executor_id: ended.state.pod for ended in batch.ended}
        observed |= {i: state.pod for i in batch.appeared if (state := batch.snapshot.states.get(i)) is not None}
        seen: dict[int, Pod] = {}
        for executor_id in sorted(observed.keys() & self._tracker.requested.keys()):
            removed = self._tracker.requested.remove(executor_id)
            if removed.lost or self._epoch_at is None:
                continue
            seen[executor_id] = observed[executor_id]
            if removed.answered_at is None:
                self._profiles[removed.profile].answered(None, now=self.clock.monotonic(), entropy=self.entropy)
        if seen:
            self._pool.tell(internal.PodsObserved(seen))

    def _follow(self, batch: internal.SnapshotBatch) -> None:
        """Apply a batch to what is known of single executors and their claims."""
        now = self.clock.monotonic()
        tracker = self._tracker
        early = self._starts.follow(batch, now)
        if self._has_acted:  # earlier ends are those of a previous driver, or were counted before our restart
            for name, count in early.failed.items():
                self._start_failed(self._profiles[name], count, now)
            for name, executor_ids in early.short_lived.items():
                self._short_lived(self._profiles[name], executor_ids, now)
        self._memory.follow(batch, counts=self._has_acted)
        tracker.follow(batch, now)
        self._volumes.follow(batch, tracker.may_appear)
        if batch.ended:
            for profile in self._profiles.values():
                profile.hasten(now)

    def _start_failed(self, profile: Profile, count: int, now: Moment) -> None:
        limit = self._failures_allowed(sum((self._totals or {}).values()))
        profile.add_start_failures(count, most=limit + 1, now=now, entropy=self.entropy)
        wait = profile.starts.until - now
        logger.info("executors failed to start: profile=%s count=%d wait=%.1fs", profile.name, count, wait)
        if self._failed is None:
            self._fail_above(limit, now)

    def _fail_above(self, limit: int, now: Moment) -> None:
        """Stop creation if more executors failed to start than may, as Spark does: those of all profiles count."""
        failures = {name: count for name, each in self._profiles.items() if (count := each.start_failures(now))}
        if sum(failures.values()) <= limit:
            return
        interval = self._validity_interval
        within = f" within {format_duration(interval)}" if interval is not None else ""
        whose = ", ".join(f"{count} of profile {name!r}" for name, count in sorted(failures.items()))
        cause = (
            f"{sum(failures.values())} executors failed to start{within} ({whose}), "
            f"more than executor.max_failures allows ({limit})"
        )
        self._failed = CreationBlock("start_failures", cause, since=self.clock.now())
        logger.warning("fleet failed, creation stopped: cause=%s", cause)
        self._backend.tell(internal.StartFailuresExceeded(cause))

    def _never_seen(self, profile: Profile, executor_ids: Sequence[int]) -> None:
        if count := profile.add_never_seen(executor_ids, newest=self._creator.next_id - 1):
            self._start_failed(profile, count, self.clock.monotonic())

    def _short_lived(self, profile: Profile, executor_ids: Sequence[int], now: Moment) -> None:
        if profile.add_short_lived(executor_ids, newest=self._creator.next_id - 1, now=now, entropy=self.entropy):
            wait = max(0.0, profile.starts.waves_until - now)
            logger.info("short-lived executors: profile=%s ids=%s wait=%.1fs", profile.name, list(executor_ids), wait)

    def _round(self) -> None:
        batch, totals = self._latest, self._totals
        if batch is None or totals is None or not self._is_synced(batch):
            return
        snapshot, stale = batch.snapshot, self._is_stale(batch)
        if not stale:
            self._has_acted = True
            for name, executor_ids in self._deleter.abandon_overdue(snapshot).items():
                self._never_seen(self._profiles[name], executor_ids)
            self._deleter.abandon_lost()
            if self._failed is None:
                self._deleter.replace_stuck(snapshot)
        missing = self._tracker.missing(snapshot, totals)
        self._deleter.delete_excess(missing, snapshot, stale=stale)
        if not stale and self._failed is None:
            self._creator.request(missing, snapshot)
            missing = self._tracker.missing(snapshot, totals)
        self._lacks_some = any(count > 0 for count in missing.values())
        self._memory.settle(missing, snapshot)
        self._report_all_blocks(missing)
        self._report_status(missing, snapshot)
        self._log.waits(self._tracker.requested)
        self._profiles.forget_strangers(missing)

    def _is_synced(self, batch: internal.SnapshotBatch) -> bool:
        """Whether the snapshot has every pod that was created before our start."""
        synced_at = batch.snapshot.full_sync_at
        return synced_at is not None and self._epoch_at is not None and synced_at >= self._epoch_at

    def _is_stale(self, batch: internal.SnapshotBatch) -> bool:
        """Whether no source has reported for so long that no decision may depend on the snapshot."""
        heard_at = batch.heard_at if batch.heard_at is not None else self._started_at
        age = elapsed(heard_at, self.clock.monotonic())
        stale = age > self._stale_after
        if stale and not self._stale:
            logger.warning("snapshot stale, nothing is created or deleted: age=%.0fs", age.total_seconds())
        elif self._stale and not stale:
            logger.info("snapshot fresh again")
        self._stale = stale
        return stale

    def _report_all_blocks(self, missing: Mapping[str, int]) -> None:
        """Report for each profile what blocks creation. A profile that lacks no executor is not blocked."""
        fleet = None
        if self._stale:
            message = "no source has reported for too long: the snapshot may be out of date"
            fleet = CreationBlock("stale", message)
        elif self._creator.limit_reached():
            limit = self._settings.max_created
            message = f"allocation.max_created = {limit}: this driver has created so many pods"
            fleet = CreationBlock("max_created", message)
        for name in sorted({*missing, *self._profiles}):
            self._report_block(self._profiles[name], fleet, lacks_some=missing.get(name, 0) > 0)

    def _report_status(self, missing: Mapping[str, int], snapshot: PodsSnapshot) -> None:
        """Tell the Backend the counts when they change."""
        statuses = {name: self._status(self._profiles[name], snapshot) for name in sorted(missing)}
        counts = {
            name: profile.starts
            for name, profile in self._profiles.items()
            if profile.starts != internal.StartFailureCount()
        }
        failed, since = (self._failed.message, self._failed.since) if self._failed is not None else (None, None)
        starts = internal.StartFailureRecord(counts, failed, since, self._forgiven)
        status = internal.AllocatorStatus(statuses, starts, self._memory.record())
        if status != self._reported:
            self._reported = status
            self._log.counts(statuses, missing)
            self._backend.tell(status)

    def _status(self, profile: Profile, snapshot: PodsSnapshot) -> ProfileStatus:
        block = self._failed or profile.block
        return ProfileStatus(
            target=profile.target,
            requested=self._tracker.requested.count(profile.name),
            pending=snapshot.count(PodPending, profile=profile.name),
            running=snapshot.count(PodRunning, PodUnknown, profile=profile.name),
            terminating=snapshot.count(PodTerminating, profile=profile.name),
            retiring=self._tracker.retiring(snapshot, profile.name),
            start_failures=profile.start_failures(self.clock.monotonic()),
            blocked=block.message if block is not None else None,
            blocked_since=block.since if block is not None else None,
            blocked_by=block.cause if block is not None else None,
            more_memory=self._memory.count(profile.name),
        )
