"""The fleet as the driver knows it: the book of executors, the targets, and what is told to whom of them.

A plain object of the Backend, which hands it the messages that are about executors, from the driver and from inside.
Starting, stopping and supervising are the Backend's own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, assert_never

from actors.executors.checks import checked_ids, checked_totals
from actors.executors.kills import ROLLED, DeleteDue, Kills
from actors.executors.ledger import Ledger
from actors.executors.roll import POLICIES, candidates, choose, lacks
from actors.manifests import executor_pod
from actors.messages import (
    ConnectionLost,
    DecommissionExecutors,
    EndedForgotten,
    ExecutorDisconnected,
    ExecutorRegistered,
    ExecutorRemoved,
    ExecutorsAbandoned,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsRequested,
    ExecutorsScaledDown,
    ExecutorStuck,
    ForgetEnded,
    GetExecutorIds,
    HasEnoughExecutors,
    IdsAllocated,
    IsExecutorActive,
    IsExecutorExcluded,
    KillExecutors,
    LedgerLoaded,
    ProfileStatus,
    RegisterExecutor,
    RemoveExecutor,
    RequestTotalExecutors,
    SetTotalExpectedExecutors,
    StartFailureRecord,
    StuckObserved,
    TakenOver,
    TakeOver,
)
from actors.messages.names import ALLOCATOR, LEASE, LIFECYCLE
from actors.metrics.counts import BackendCounts
from actors.pods.loss import stopped_with_fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.executors.roll import RollPolicy
    from actors.messages import AllocatorStatus, LedgerEntry, ToDriver
    from actors.pods.state import PodState
    from actors.runtime import Actor, Address
    from actors.settings.model import Settings

__all__ = ["AboutExecutors", "Executors", "ExecutorsTimer"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _RollDue:
    """Time to replace the next executor."""


@dataclass(frozen=True, slots=True)
class _ForgetDue:
    """Time to forget executors that ended long ago."""


ExecutorsTimer: TypeAlias = DeleteDue | _RollDue | _ForgetDue
"""What comes back to `Executors.due` by a timer."""

_FromInside: TypeAlias = (
    ExecutorsRequested
    | ExecutorSeen
    | StuckObserved
    | ExecutorsScaledDown
    | TakenOver
    | RemoveExecutor
    | ExecutorsAbandoned
    | EndedForgotten
    | ExecutorsObserved
)
_FromDriver: TypeAlias = (
    RequestTotalExecutors
    | KillExecutors
    | DecommissionExecutors
    | RegisterExecutor
    | ExecutorDisconnected
    | GetExecutorIds
    | IsExecutorActive
    | IsExecutorExcluded
    | HasEnoughExecutors
)
AboutExecutors: TypeAlias = _FromInside | _FromDriver


class Executors:
    """One fleet, for one driver's life.

    Args:
        backend: whose timers and clock are used.
        address: a part of the Backend by its name.
        tell: the driver.
        policy: who is rolled next; by default as `roll.policy` has it.
    """

    def __init__(
        self,
        backend: Actor,
        settings: Settings,
        *,
        address: Callable[[str], Address],
        tell: Callable[[ToDriver | None], None],
        policy: RollPolicy | None = None,
        counts: BackendCounts | None = None,
    ) -> None:
        self._timers = backend.timers
        self._clock = backend.clock
        self._settings = settings
        self._executor = settings.executor
        self._address = address
        self._tell = tell
        self._policy = policy or POLICIES[settings.roll.policy]
        self._counts = counts or BackendCounts()
        self._totals = settings.initial_totals
        self._takeovers = 0
        """How often the Allocator was to begin, or was held back."""
        self.book = Ledger()
        """Every executor."""
        self._endings = Kills(
            backend,
            settings.executor,
            book=lambda: self.book,
            keep=self._keep,
            take_back=self._take_back,
            address=address,
            tell=tell,
        )
        self._shown: Mapping[int, PodState] = {}
        """The newest snapshot's states: pods are kept there, and nowhere else."""
        self.profiles: Mapping[str, ProfileStatus] = {}
        """What the Allocator counted last."""
        self._starts = StartFailureRecord()
        """What the Allocator knows of failed starts, kept for the next one."""

    def begin(self) -> None:
        """The fleet is being kept from now on."""
        self._timers.every("forget", self._executor.removed_executors_ttl, _ForgetDue())
        if self._settings.roll.interval is not None:
            self._timers.every("roll", self._settings.roll.interval, _RollDue())

    def introduce_lifecycle_manager(self, child: Address) -> None:
        """What it must know at its start."""
        book = self.book
        child.tell(LedgerLoaded(book.entries, book.next_id, book.created, shown=self._shown))

    def introduce_allocator(self) -> None:
        """The same, and how many executors are wanted; but first of all comes the adoption of what there is."""
        self._takeovers += 1
        self._address(LIFECYCLE).tell(TakeOver(self._takeovers))

    def hold_allocator(self) -> None:
        """It is not to begin, should it have been about to."""
        self._takeovers += 1

    def count_on(self, last_id: int) -> None:
        """The lease is ours, and has that as the last id; of higher ones it is to hear."""
        self.book = self.book.counted_on(last_id)
        if self.book.next_id > last_id + 1:
            self._ids_given_out()

    def _ids_given_out(self) -> None:
        if self._settings.uses_lease:
            self._address(LEASE).tell(IdsAllocated(self.book.next_id - 1))

    def _taken_over(self, serial: int) -> None:
        if serial != self._takeovers:  # the Allocator was restarted meanwhile, or is to wait
            return
        self.book = self.book.begun()
        child = self._address(ALLOCATOR)
        child.tell(LedgerLoaded(self.book.entries, self.book.next_id, self.book.created, self._starts))
        child.tell(SetTotalExpectedExecutors(dict(self._totals)))

    def counted(self, status: AllocatorStatus) -> None:
        """The Allocator's counts have changed."""
        self.profiles, self._starts = status.profiles, status.starts

    def counts(self) -> Mapping[str, ProfileStatus]:
        """What the Allocator counted last, or of one that has not begun to, what is wanted."""
        return self.profiles or {name: ProfileStatus(target=total) for name, total in self._totals.items()}

    def _keep(self, book: Ledger) -> None:
        self.book = book

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, message: AboutExecutors) -> object:
        """One case a message; the answer to a question."""
        if isinstance(message, _FromInside):
            self._from_inside(message)
            return None
        return self._from_driver(message)

    def _from_inside(self, message: _FromInside) -> None:
        match message:
            case ExecutorsRequested(executor_ids, profile):
                self.book = self.book.requested(executor_ids, profile)
                self._counts.requested.add(profile, by=len(executor_ids))
                self._ids_given_out()
            case ExecutorSeen():
                self._seen(message)
            case StuckObserved():
                self._stuck(message)
            case ExecutorsScaledDown():
                self._address(LIFECYCLE).tell(message)
            case TakenOver(serial):
                self._taken_over(serial)
            case RemoveExecutor():
                self._removed(message)
            case ExecutorsAbandoned():
                self._given_up(message)
            case EndedForgotten(executor_ids):
                self.book = self.book.without(executor_ids)
            case ExecutorsObserved(states):
                self._shown = states
            case _:
                assert_never(message)

    def _from_driver(self, message: _FromDriver) -> object:
        match message:
            case RequestTotalExecutors(totals):
                self._retarget(totals)
            case KillExecutors(executor_ids, adjust_target):
                return self._endings.kill(checked_ids(executor_ids), adjust_target=adjust_target)
            case DecommissionExecutors(executor_ids):
                return self._endings.decommission(checked_ids(executor_ids))
            case RegisterExecutor(executor_id):
                return self._register(executor_id)
            case ExecutorDisconnected(executor_id):
                self._disconnect(executor_id)
            case GetExecutorIds():
                return tuple(e.executor_id for e in self.book.present() if self.book.is_active(e.executor_id))
            case IsExecutorActive(executor_id):
                return self.book.is_active(executor_id)
            case IsExecutorExcluded(executor_id):
                return self.book.is_excluded(executor_id)
            case HasEnoughExecutors():
                return self._has_enough()
            case _:
                assert_never(message)
        return None

    def due(self, timer: ExecutorsTimer, *, may_write: bool) -> None:
        """One case a timer."""
        match timer:
            case DeleteDue(executor_ids):
                if may_write:
                    self._endings.delete(executor_ids)
            case _RollDue():
                if may_write:
                    self._roll()
            case _ForgetDue():
                self._forget()
            case _:
                assert_never(timer)

    def _forget(self) -> None:
        """Of another driver's executors those that are not shown any more, for which LifecycleManager is asked."""
        before = self._clock.monotonic() - self._executor.removed_executors_ttl.total_seconds()
        self.book = self.book.forgotten(before)
        others = self.book.others_ended(before)
        if others:
            self._address(LIFECYCLE).tell(ForgetEnded(others))

    # ── from inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def _seen(self, seen: ExecutorSeen) -> None:
        self.book, told, ours = self.book.seen(seen.executor_id, seen.state, self._clock.monotonic(), self._clock.now())
        self._tell(told)
        if not ours:
            why = "its id was given up, or given to an executor that has ended"
            logger.warning("a pod came up late, deleting it: executor=%d uid=%s", seen.executor_id, seen.uid)
            self._address(LIFECYCLE).tell(ExecutorsAbandoned((seen.executor_id,), why))

    def _stuck(self, told: StuckObserved) -> None:
        stuck = told.stuck
        book = self.book.stuck(told.executor_id, told.uid, stuck.kind)
        if book is not None:
            self.book = book
            self._tell(ExecutorStuck(told.executor_id, stuck.reason, stuck.message, stuck.since))

    def _removed(self, removed: RemoveExecutor) -> None:
        now = self._clock.monotonic()
        self.book, told = self.book.removed(removed.executor_id, removed.uid, removed.reason, now)
        if told is not None:
            logger.info("removed: executor=%d reason=%s", told.executor_id, told.reason.message)
            self._tell(told)
            if removed.since is not None:
                self._counts.reaction.observe(now - removed.since)

    def _given_up(self, abandoned: ExecutorsAbandoned) -> None:
        self._address(LIFECYCLE).tell(abandoned)
        now = self._clock.monotonic()
        for executor_id in abandoned.executor_ids:
            self.book, told = self.book.abandoned(executor_id, abandoned.why, now, created=abandoned.created)
            logger.info("given up: executor=%d why=%s", executor_id, abandoned.why)
            self._tell(told)

    # ── from the driver ──────────────────────────────────────────────────────────────────────────────────────────

    def _retarget(self, totals: int | Mapping[str, int]) -> None:
        self._totals = checked_totals(totals, self._settings.profile_names)
        self._starts = StartFailureRecord()  # should there be no Allocator now to forgive what failed
        self._address(ALLOCATOR).tell(SetTotalExpectedExecutors(dict(self._totals), forgives=True))

    def _has_enough(self) -> bool:
        initial = self._settings.initial_totals
        registered = sum(self.book.registered_count(profile) for profile in initial)
        return registered >= sum(initial.values()) * self._settings.backend.min_registered_ratio

    def _take_back(self, profiles: list[str]) -> None:
        """The target falls with them: an executor counts once."""
        for profile in profiles:
            self._totals[profile] = max(0, self._totals.get(profile, 0) - 1)
        if profiles:
            self._address(ALLOCATOR).tell(SetTotalExpectedExecutors(dict(self._totals)))

    def _register(self, executor_id: int) -> bool:
        now = self._clock.monotonic()
        book = self.book.registered(executor_id, now)
        if book is None:
            logger.warning("an executor registers that is none of ours: executor=%s", executor_id)
            return False
        self.book = book
        for name in (LIFECYCLE, ALLOCATOR):
            self._address(name).tell(ExecutorRegistered(executor_id, now))
        return True

    def _disconnect(self, executor_id: int) -> None:
        now = self._clock.monotonic()
        book = self.book.disconnected(executor_id, now)
        if book is not None:
            self.book = book
            self._address(LIFECYCLE).tell(ConnectionLost(executor_id, now))

    # ── rolling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _roll(self) -> None:
        """Replace one executor, unless the last one's replacement does not run yet: the fleet never shrinks by two."""
        among = candidates(self.book.entries.values(), self._shown, self._clock.monotonic())
        lacking = lacks(among, self._totals, self.profiles)
        if lacking is not None:
            logger.info("not rolling, the fleet is not whole: profile=%s", lacking)
            return
        try:
            chosen = choose(among, self._policy)
        except Exception:
            logger.exception("the roll policy failed, nobody is replaced")
            return
        if chosen is not None:
            logger.info("rolling: executor=%d pod=%s", chosen.executor_id, chosen.pod.name)
            self._endings.decommission((chosen.executor_id,))
            self._endings.kill((chosen.executor_id,), words=ROLLED)

    # ── the stop ─────────────────────────────────────────────────────────────────────────────────────────────────

    def killed(self) -> frozenset[int]:
        """Those whose end the driver asked for and that have not ended: they go though the fleet be left."""
        entries = self.book.entries.values()
        return frozenset(e.executor_id for e in entries if e.killed is not None and e.removed_at is None)

    def known_pods(self, only: frozenset[int] | None = None) -> tuple[str, ...]:
        """Every pod that may exist, of these or of all: also those that were requested and not seen."""
        entries = sorted(self.book.entries.values(), key=lambda entry: entry.executor_id)
        return tuple(self._pod_name(e) for e in entries if e.removed_at is None and _is_among(e, only))

    def _pod_name(self, entry: LedgerEntry) -> str:
        pod = entry.pod_in(self._shown)
        if pod is not None:  # of an earlier life, perhaps, which had another prefix
            return pod.name
        return executor_pod.name(self._settings.pod_prefix, entry.executor_id)

    def tell_the_ends(self, only: frozenset[int] | None, left_behind: tuple[str, ...]) -> None:
        """The last words: of each of these, or of all, that went with the fleet."""
        for entry in self.book.present():
            if _is_among(entry, only) and self._pod_name(entry) not in left_behind:
                reason = stopped_with_fleet(entry.executor_id, entry.killed.words if entry.killed is not None else None)
                self._tell(ExecutorRemoved(entry.executor_id, reason))


def _is_among(entry: LedgerEntry, only: frozenset[int] | None) -> bool:
    return only is None or entry.executor_id in only
