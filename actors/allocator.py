"""Allocator: keeps each profile at its target by requesting executors, and deletes those that are too many.

Level-triggered: each round compares the newest snapshot, and what was requested and not seen yet, with the target. It
never blocks: POSTs go out through the RequestPool and come back as messages. It neither creates nor deletes before it
has a target, the ledger, and a full sync that was asked for after its own start, nor while the snapshot is stale. What
it decides is in `actors.allocation`, pure; it never reports an executor's end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeAlias, assert_never, cast

from actors.allocation import (
    LIVE,
    LIVE_OR_GOING,
    Answers,
    BatchSize,
    Blockade,
    NewlyCreated,
    counted,
    overdue,
    slots,
    surplus,
)
from actors.errors import AlreadyExists, ApiError, Cancelled
from actors.kube.api import DeleteOptions, Manifest
from actors.messages import (
    AddSubscriber,
    AllocatorStatus,
    BatchDone,
    BeginEpoch,
    CreatePod,
    CreationBlocked,
    DeletePod,
    EpochBegun,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorsGivenUp,
    ExecutorsKnown,
    ExecutorsRequested,
    PodCreated,
    PodCreateFailed,
    PodsAppeared,
    ProfileStatus,
    SetTotalExpectedExecutors,
    SnapshotBatch,
    StartFailuresExceeded,
    ToAllocator,
)
from actors.pods import Pod, PodPending, PodRules, PodRunning, PodTerminating, PodUnknown
from actors.runtime import Actor, Address, Context
from actors.starts import Starts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.settings import Settings
    from actors.snapshot import PodsSnapshot

__all__ = ["Allocator", "BuildPod", "NameOf"]

logger = logging.getLogger(__name__)


class BuildPod(Protocol):
    """Makes the manifest of one executor's pod."""

    def __call__(self, executor_id: int, profile: str) -> Manifest:
        """A v1 Pod as JSON."""


NameOf: TypeAlias = Callable[[int], str]
"""The name of an executor's pod."""


class Allocator(Actor):
    """Subscribes to the store at `allocation.batch_delay` once it has the ledger and the pool has begun its epoch."""

    def __init__(
        self,
        context: Context,
        *,
        settings: Settings,
        rules: PodRules,
        build: BuildPod,
        name_of: NameOf,
        store: Address,
        pool: Address,
        backend: Address,
    ) -> None:
        super().__init__(context)
        self._settings = settings.allocation
        self._executor = settings.executor
        self._stale_after = settings.source.stale_after
        self._creation_timeout = self._settings.unseen_timeout
        self._kinds = LIVE_OR_GOING if self._settings.pod_replacement_policy == "Failed" else LIVE
        self._build = build
        self._name_of = name_of
        self._store = store
        self._pool = pool
        self._backend = backend
        self._epoch = context.incarnation
        self._born_at = self.clock.monotonic()
        self._epoch_at: float | None = None
        """When the pool had begun this epoch (monotonic); a full sync asked for before says nothing of ours."""
        self._totals: Mapping[str, int] | None = None
        self._next_id = 1
        self._newly: dict[int, NewlyCreated] = {}
        self._given_up: dict[int, float] = {}
        """Ids whose pods do not count, should they come up, and when they were given up (monotonic)."""
        self._registered: set[int] = set()
        self._killed: set[int] = set()
        """Executors that the driver has taken back and that have not ended yet: they are in excess already."""
        self._pending_since: dict[int, float] = {}
        self._starts = Starts(rules, min_run_time=self._executor.min_run_time)
        self._answers: dict[str, Answers] = {}
        self._sizes: dict[str, BatchSize] = {}
        self._blockades: dict[str, Blockade] = {}
        self._failed = False
        self._latest: SnapshotBatch | None = None
        self._has_acted = False
        self._stale = False
        self._told: Mapping[str, ProfileStatus] = {}

    def receive(self, message: object) -> object:
        """One case a message."""
        message = cast("ToAllocator", message)
        match message:
            case SnapshotBatch():
                self._on_batch(message)
            case SetTotalExpectedExecutors(totals):
                self._retarget(totals)
            case ExecutorRegistered(executor_id):
                self._on_registered(executor_id)
            case ExecutorKilled(executor_id):
                self._killed.add(executor_id)
            case PodCreated():
                self._created(message)
            case PodCreateFailed():
                self._create_failed(message)
            case ExecutorsKnown():
                self._learn(message)
            case EpochBegun():
                self._epoch_begun(message)
            case _:
                assert_never(message)
        return None

    # ── the start ────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn(self, known: ExecutorsKnown) -> None:
        """Take the ledger up. What was requested and never seen counts as newly created until the truth is known."""
        self._next_id = max(self._next_id, known.next_id)
        for entry in known.ledger.values():
            if entry.given_up:
                self._given_up[entry.executor_id] = self.clock.monotonic()
            if entry.removed_at is not None:
                continue
            if entry.uid is None:
                self._newly[entry.executor_id] = NewlyCreated(entry.profile, self.clock.monotonic())
            if entry.registered_at is not None:
                self._registered.add(entry.executor_id)
            if entry.killed:
                self._killed.add(entry.executor_id)
        self._pool.tell(BeginEpoch(self._epoch, self.myself))

    def _epoch_begun(self, begun: EpochBegun) -> None:
        """No POST of an earlier incarnation is open any more: what is unseen now was answered.

        Where nothing is unseen none was open before either: then a full sync that was asked for since our start will
        do, which the watch may have done before this answer came.
        """
        now = self.clock.monotonic()
        self._epoch_at = now if self._newly else self._born_at
        self._forget(sorted(begun.dropped & self._newly.keys()), "its request was dropped")
        for new in self._newly.values():
            new.answered_at = now
        self._store.tell(AddSubscriber(self.address, self._settings.batch_delay))

    def _retarget(self, totals: Mapping[str, int]) -> None:
        if totals != self._totals:
            logger.info("the target is set: totals=%s", dict(totals))
        if self._failed:
            logger.info("creation goes on: the driver has set a target after the fleet failed")
            self._failed = False
            self._starts.forgive()
        self._totals = dict(totals)
        self._round()

    def _on_registered(self, executor_id: int) -> None:
        """An executor is in use: a success, the first time."""
        profile = self._profile_of(executor_id)
        if profile is not None and executor_id not in self._registered:
            self._starts.proved(executor_id, profile)
        self._registered.add(executor_id)

    def _profile_of(self, executor_id: int) -> str | None:
        """The profile of an executor that was requested or is shown."""
        if executor_id in self._newly:
            return self._newly[executor_id].profile
        state = self._latest.snapshot.states.get(executor_id) if self._latest is not None else None
        return state.pod.profile if state is not None else None

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _created(self, answer: PodCreated) -> None:
        new = self._newly.get(answer.executor_id)
        if answer.epoch == self._epoch and new is not None:
            new.answered_at, new.pod = self.clock.monotonic(), answer.pod
            if self._is_batch_answered(new.profile, created=1):
                self._round()

    def _create_failed(self, answer: PodCreateFailed) -> None:
        new = self._newly.get(answer.executor_id)
        if answer.epoch != self._epoch or new is None:
            return
        self._forget([answer.executor_id], f"it could not be created: {answer.error}")
        refused = not isinstance(answer.error, AlreadyExists | Cancelled)
        if refused:
            self._refused(new.profile, answer.error)
        if self._is_batch_answered(new.profile, failed=1, refused=int(refused)):
            self._round()

    def _refused(self, profile: str, error: ApiError) -> None:
        """Slow down, and say why once a cause."""
        blockade = self._blockade(profile)
        kind = f"{type(error).__name__}/{error.reason}"  # a full quota and a missing right are both "Forbidden"
        if blockade.refused(kind, str(error), now=self.clock.monotonic(), entropy=self.entropy):
            logger.warning("executors cannot be created: profile=%s error=%s", profile, error)
            self._backend.tell(CreationBlocked(profile, str(error)))

    def _is_batch_answered(self, profile: str, *, created: int = 0, failed: int = 0, refused: int = 0) -> bool:
        """Count an answer. After the last of a batch the next may go out; its size follows from how this one went."""
        answers = self._answers.setdefault(profile, Answers())
        answers.count(created=created, failed=failed, refused=refused)
        if failed:
            self._size(profile).failed()
        if answers.awaited > 0:
            return False
        if not answers.failed:
            self._size(profile).succeeded()
        if answers.created and not answers.refused and self._blockade(profile).lifted():
            logger.info("executors can be created again: profile=%s", profile)
            self._backend.tell(CreationBlocked(profile, None))
        self._answers[profile] = Answers()
        return True

    # ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_batch(self, batch: SnapshotBatch) -> None:
        self._see(batch)
        self._next_id = max(self._next_id, max(batch.appeared, default=0) + 1)
        self._follow(batch)
        self._latest = batch
        self._round()
        self._store.tell(BatchDone(self.address, batch.seq))

    def _see(self, batch: SnapshotBatch) -> None:
        """What appeared is newly created no more. Where the watch was faster than the answer, the pool hears of it."""
        shown = {ended.executor_id: ended.state.pod for ended in batch.ended}
        shown |= {i: state.pod for i in batch.appeared if (state := batch.snapshot.states.get(i)) is not None}
        unanswered: dict[int, Pod] = {}
        for executor_id in sorted(shown.keys() & self._newly.keys()):
            new = self._newly.pop(executor_id)
            if new.answered_at is None and self._epoch_at is not None:
                unanswered[executor_id] = shown[executor_id]
                self._is_batch_answered(new.profile, created=1)
        if unanswered:
            self._pool.tell(PodsAppeared(unanswered))

    def _follow(self, batch: SnapshotBatch) -> None:
        """Keep what is known of single executors in step with what changed; O(changes)."""
        now = self.clock.monotonic()
        for executor_id in batch.changed:
            if isinstance(batch.snapshot.states.get(executor_id), PodPending):
                self._pending_since.setdefault(executor_id, now)
            else:
                self._pending_since.pop(executor_id, None)
        failures = self._starts.follow(batch, self._registered, now)
        if self._has_acted:  # what ended before is an earlier life's, or was counted before our restart
            for profile, count in failures.items():
                self._start_failed(profile, count)
        for ended in batch.ended:
            if ended.executor_id not in batch.snapshot.states:
                self._pending_since.pop(ended.executor_id, None)
                self._registered.discard(ended.executor_id)
                self._killed.discard(ended.executor_id)
        if batch.full_sync:  # whatever was said of one that had ended already is forgotten here
            present = batch.snapshot.states
            self._registered = {i for i in self._registered if i in present or i in self._newly}
            self._killed = {i for i in self._killed if i in present or i in self._newly}

    def _start_failed(self, profile: str, count: int) -> None:
        target = (self._totals or {}).get(profile, 0)
        limit = self._executor.failures_allowed(target)
        failures = self._starts.of(profile)
        now, interval = self.clock.monotonic(), self._executor.failures_validity_interval
        seen = failures.failed(count, now=now, keep=limit, interval=interval, entropy=self.entropy)
        logger.info(
            "executors ended before they were of use: profile=%s count=%d wait=%.1fs",
            profile,
            count,
            failures.until - now,
        )
        if seen >= limit and not self._failed:
            self._failed = True
            within = f" within {interval}" if interval is not None else ""
            cause = f"{seen} executors of profile {profile!r} ended before they were of use{within}"
            logger.warning("the fleet has failed, creation stops: %s", cause)
            self._backend.tell(StartFailuresExceeded(cause))

    def _round(self) -> None:
        batch, totals = self._latest, self._totals
        if batch is None or totals is None or not self._is_fresh(batch):
            return
        self._has_acted = True
        self._give_up_overdue(batch.snapshot)
        for profile in sorted({*totals, *batch.snapshot.profiles(), *(new.profile for new in self._newly.values())}):
            missing = totals.get(profile, 0) - self._expected(batch.snapshot, profile)
            if missing < 0:
                self._delete_surplus(profile, -missing - self._going(batch.snapshot, profile), batch.snapshot)
            elif missing > 0:
                self._request(profile, missing, batch.snapshot)
        self._tell_status(batch.snapshot)

    def _is_fresh(self, batch: SnapshotBatch) -> bool:
        """Whether the snapshot may be acted on: synced since our start, and not stale."""
        synced_at = batch.snapshot.full_sync_at
        if synced_at is None or self._epoch_at is None or synced_at < self._epoch_at or batch.heard_at is None:
            return False
        age = timedelta(seconds=self.clock.monotonic() - batch.heard_at)
        stale = age > self._stale_after
        if stale and not self._stale:
            logger.warning("the snapshot is stale, creating and deleting nothing: age=%.0fs", age.total_seconds())
        self._stale = stale
        return not stale

    def _expected(self, snapshot: PodsSnapshot, profile: str) -> int:
        """How many executors of a profile there are, or will be when what was requested has come up."""
        shown = snapshot.count(*self._kinds, profile=profile) - counted(self._given_up, snapshot, profile, self._kinds)
        return shown + self._unseen(profile)

    def _unseen(self, profile: str) -> int:
        return sum(new.profile == profile for new in self._newly.values())

    def _going(self, snapshot: PodsSnapshot, profile: str) -> int:
        """How many of those that are expected were killed: they are in excess already."""
        unseen = sum(self._newly[i].profile == profile for i in self._killed & self._newly.keys())
        return unseen + counted(self._killed - self._given_up.keys(), snapshot, profile, self._kinds)

    def _give_up_overdue(self, snapshot: PodsSnapshot) -> None:
        """Those that never appeared are deleted, in case they do, and their number is requested anew in this round."""
        now = self.clock.monotonic()
        ids = overdue(self._newly, snapshot, now=now, timeout=self._creation_timeout)
        if ids:
            seconds = self._creation_timeout.total_seconds()
            logger.warning("executors were not seen after their creation, giving them up: ids=%s", list(ids))
            self._take_back(ids, f"no pod was seen within {seconds:g} s after its creation")
        expired = now - self._executor.removed_executors_ttl.total_seconds()
        for executor_id in [i for i, at in self._given_up.items() if at < expired and i not in snapshot.states]:
            del self._given_up[executor_id]

    def _take_back(self, executor_ids: tuple[int, ...], why: str) -> None:
        """Give ids up, and delete what may exist of them. Backend hears of it before the DELETE."""
        pods = [(self._name_of(executor_id), self._newly[executor_id].pod) for executor_id in executor_ids]
        self._forget(executor_ids, why)
        for name, pod in pods:
            self._pool.tell(DeletePod(name, DeleteOptions(uid=pod.uid if pod is not None else None)))

    def _forget(self, executor_ids: Iterable[int], why: str) -> None:
        ids = tuple(executor_ids)
        for executor_id in ids:
            del self._newly[executor_id]
            self._killed.discard(executor_id)
            self._given_up[executor_id] = self.clock.monotonic()
        if ids:
            self._backend.tell(ExecutorsGivenUp(ids, why))

    def _delete_surplus(self, profile: str, excess: int, snapshot: PodsSnapshot) -> None:
        unseen, pending = surplus(
            excess,
            self._newly,
            snapshot,
            self._pending_since,
            profile=profile,
            spared=self._registered | self._killed | self._given_up.keys(),
            now=self.clock.monotonic(),
            idle_timeout=self._settings.idle_timeout,
        )
        if unseen or pending:
            logger.info(
                "deleting executors that are too many: profile=%s newly_created=%d pending=%d",
                profile,
                len(unseen),
                len(pending),
            )
        self._take_back(unseen, "it is not wanted any more")
        for state in pending:
            options = DeleteOptions(uid=state.pod.uid, resource_version=state.pod.resource_version)
            self._pool.tell(DeletePod(state.pod.name, options))

    def _request(self, profile: str, missing: int, snapshot: PodsSnapshot) -> None:
        now = self.clock.monotonic()
        if self._failed or now < self._blockade(profile).until or now < self._starts.of(profile).until:
            return
        if not self._may_request(profile, snapshot):
            return
        newly = self._unseen(profile)
        limits = (
            slots(self._settings.max_pending_pods, snapshot.count(PodPending) + len(self._newly)),
            slots(self._settings.max_pending_pods_per_profile, snapshot.count(PodPending, profile=profile) + newly),
        )
        count = min(missing, self._size(profile).current, *(limit for limit in limits if limit is not None))
        if count <= 0:
            return
        ids = tuple(range(self._next_id, self._next_id + count))
        self._next_id += count
        logger.info("requesting executors: profile=%s ids=%d-%d missing=%d", profile, ids[0], ids[-1], missing)
        self._answers.setdefault(profile, Answers()).awaited += count
        self._backend.tell(ExecutorsRequested(ids, profile))
        for executor_id in ids:
            self._newly[executor_id] = NewlyCreated(profile, now)
            self._pool.tell(CreatePod(executor_id, self._epoch, self._build(executor_id, profile), self.myself))

    def _may_request(self, profile: str, snapshot: PodsSnapshot) -> bool:
        """`pacing = "batch"`: none of the last batch is unseen or pending. `"pipelined"`: its POSTs are answered."""
        if self._settings.pacing == "batch":
            return not self._unseen(profile) and snapshot.count(PodPending, profile=profile) == 0
        return profile not in self._answers or not self._answers[profile].awaited

    def _tell_status(self, snapshot: PodsSnapshot) -> None:
        """Backend hears the counts when they change."""
        totals = self._totals or {}
        status = {
            profile: ProfileStatus(
                target=totals.get(profile, 0),
                newly_created=self._unseen(profile),
                pending=snapshot.count(PodPending, profile=profile),
                running=snapshot.count(PodRunning, PodUnknown, profile=profile),
                terminating=snapshot.count(PodTerminating, profile=profile),
                blocked=self._blockade(profile).cause,
            )
            for profile in sorted({*totals, *snapshot.profiles()})
        }
        if status != self._told:
            self._told = status
            self._backend.tell(AllocatorStatus(status))

    def _size(self, profile: str) -> BatchSize:
        maximum = self._settings.batch_size if self._settings.pacing == "batch" else self._settings.max_batch_size
        return self._sizes.setdefault(profile, BatchSize(self._settings.batch_size, maximum))

    def _blockade(self, profile: str) -> Blockade:
        return self._blockades.setdefault(profile, Blockade())
