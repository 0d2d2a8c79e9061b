"""What the Backend does with messages about executors: update the ledger, notify the driver and the other actors.

A plain object of the Backend. `Kills` handles what the driver ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.executors.fleet_state import EndedExecutor
from actors.executors.status import fleet_executors
from actors.messages import (
    ExecutorDisconnected,
    ExecutorRemoved,
    ExecutorStuck,
    FleetExecutors,
    FleetFailed,
    GetExecutorIds,
    GetExecutors,
    HasEnoughExecutors,
    IsExecutorActive,
    IsExecutorExcluded,
    RegisterExecutor,
    RequestTotalExecutors,
)
from actors.messages.internal import (
    AdoptionEnded,
    AllocatorStatus,
    CloseAdoption,
    ConnectionLost,
    EndedForgotten,
    ExecutorRegistered,
    ExecutorsAbandoned,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsRequested,
    ExecutorsScaledDown,
    ForgetEnded,
    IdsAllocated,
    LedgerLoaded,
    OpenAdoption,
    RemoveExecutor,
    StartFailuresExceeded,
    StuckObserved,
    TakenOver,
    TakeOver,
)
from actors.messages.internal.names import ALLOCATOR, LEASE, LIFECYCLE, STORE
from actors.pods.id_ranges import IdRanges
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.executors.fleet_context import FleetContext
    from actors.executors.ledger import Ledger
    from actors.executors.replacement import Replacement
    from actors.messages import ToDriver
    from actors.pods.loss import LossReason
    from actors.pods.pod import Pod
    from actors.runtime import Moment

__all__ = ["Executors"]

logger = get_logger(__name__)


MAX_UNKNOWN: Final = 1000
"""Ids that are remembered as warned of; after that, each is warned of again."""


@dataclass(frozen=True, slots=True)
class _ForgetDue:
    """Time to forget executors that ended longer than `executor.removed_executors_ttl` ago."""


class Executors:
    """The executors of one fleet."""

    def __init__(self, context: FleetContext, replacement: Replacement) -> None:
        self._timers = context.backend.timers
        self._clock = context.backend.clock
        self._settings = context.settings
        self._state = context.state
        self._children = context.children
        self._tell = context.tell
        self._counts = context.counts
        self._replacement = replacement
        self._unknown: set[int] = set()
        """Ids of which a registration was refused with a warning."""
        self._take_over = TakeOver(0)
        """The last one. Only its answer counts."""

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {
            AdoptionEnded: self._adoption_ended,
            AllocatorStatus: self._counted,
            EndedForgotten: self._forgotten,
            ExecutorSeen: self._seen,
            ExecutorsAbandoned: self._abandoned,
            ExecutorsObserved: self._observed,
            ExecutorsRequested: self._requested,
            ExecutorsScaledDown: self._scaled_down,
            RemoveExecutor: self._removed,
            StartFailuresExceeded: self._start_failures_exceeded,
            StuckObserved: self._stuck,
            TakenOver: self._taken_over,
            _ForgetDue: self._forget,
            # from the driver:
            ExecutorDisconnected: self._disconnect,
            GetExecutorIds: self._active_ids,
            GetExecutors: self._values,
            HasEnoughExecutors: self._has_enough,
            IsExecutorActive: self._is_active,
            IsExecutorExcluded: self._is_excluded,
            RegisterExecutor: self._register,
            RequestTotalExecutors: self._retarget,
        }

    # ── the start ───────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Start the timers: the fleet is managed from now on."""
        self._timers.every("forget", self._settings.executor.removed_executors_ttl, _ForgetDue())

    def introduce_lifecycle_manager(self) -> None:
        """Send LifecycleManager the ledger and the last states."""
        ledger = self._state.ledger
        self._children[LIFECYCLE].tell(
            LedgerLoaded(ledger.entries, ledger.next_id, ledger.created, observed=self._state.states)
        )

    def introduce_store(self) -> None:
        """Tell the store which pods are executors, if not all are that look like it."""
        if not self._state.adopts:
            ledger = self._state.ledger
            self._children[STORE].tell(CloseAdoption(ledger.requested_ids.union(IdRanges.of(ledger.entries))))

    @property
    def had_drivers(self) -> bool:
        """Whether some driver has requested executors, this one or another."""
        return self._state.ledger.next_id > 1

    def introduce_allocator(self, alone_since: Moment | None) -> None:
        """Have existing pods adopted first; `TakenOver` then sends the Allocator the ledger and the target.

        `alone_since` is when no other driver could create pods any more; None without a lease, when any may.
        """
        self._take_over = TakeOver(self._take_over.serial + 1, alone_since)
        self._children[LIFECYCLE].tell(self._take_over)

    def hold_allocator(self) -> None:
        """Ignore the answer to the last `TakeOver`: the lease may be another driver's."""
        self._take_over = TakeOver(self._take_over.serial + 1)
        self._state.adopts = True
        self._children[STORE].tell(OpenAdoption())

    def _taken_over(self, message: TakenOver) -> None:
        if message.serial != self._take_over.serial:  # the Allocator was restarted since, or must wait
            return
        ledger = self._state.ledger = self._state.ledger.begun()
        starts, steps = self._state.starts, self._state.memory_steps
        decides = self._replacement.profiles
        self._children[ALLOCATOR].tell(
            LedgerLoaded(ledger.entries, ledger.next_id, ledger.created, starts, steps, decides=decides)
        )
        self._children[ALLOCATOR].tell(self._state.target())

    def _adoption_ended(self, message: AdoptionEnded) -> None:
        if message.serial == self._take_over.serial:
            self._state.adopts = False
            self.introduce_store()

    def resume_ids(self, last_id: int) -> None:
        """Continue after the last id in the lease. Have a higher one, and the targets, recorded there."""
        self._state.ledger = self._state.ledger.resumed_from(last_id)
        self._record_in_lease()

    def _record_in_lease(self) -> None:
        if self._settings.uses_lease:
            self._children[LEASE].tell(IdsAllocated(self._state.ledger.next_id - 1, dict(self._state.totals)))

    # ── from the children ───────────────────────────────────────────────────────────────────────────────────────

    def _counted(self, status: AllocatorStatus) -> None:
        self._state.profiles, self._state.memory_steps = status.profiles, status.memory_steps
        if status.starts.forgiven == self._state.starts.forgiven:  # else it was sent before the last target arrived
            self._state.starts = status.starts

    def _start_failures_exceeded(self, message: StartFailuresExceeded) -> None:
        self._tell(FleetFailed(message.cause))

    def _requested(self, message: ExecutorsRequested) -> None:
        ids, profile, steps = message.executor_ids, message.profile, message.memory_steps
        self._state.enter(self._state.ledger.requested(ids, profile, self._clock.now(), steps), *ids)
        self._counts.requested.add(self._counts.label(profile), by=len(ids))
        if steps:
            self._counts.more_memory.add(self._counts.label(profile), by=len(steps))
        self._record_in_lease()

    def _observed(self, message: ExecutorsObserved) -> None:
        self._state.observe(message)

    def _seen(self, seen: ExecutorSeen) -> None:
        now, at = self._clock.monotonic(), self._clock.now()
        ledger, report, ours = self._state.ledger.seen(seen.executor_id, seen.state, now, at)
        self._state.enter(ledger, seen.executor_id)
        self._tell(report)
        if not ours:
            reason = "its id was abandoned, or belongs to an executor that has ended"
            logger.warning("late pod observed, deleting it: executor=%d uid=%s", seen.executor_id, seen.uid)
            self._children[LIFECYCLE].tell(ExecutorsAbandoned((seen.executor_id,), reason))

    def _stuck(self, message: StuckObserved) -> None:
        stuck = message.stuck
        ledger = self._state.ledger.stuck(message.executor_id, message.uid, stuck.kind)
        if ledger is not None:
            self._state.enter(ledger, message.executor_id)
            pod, profile = message.pod, ledger.entries[message.executor_id].profile
            node, ip = (None, None) if pod is None else (pod.node, pod.ip)
            self._tell(ExecutorStuck(message.executor_id, stuck.reason, stuck.message, stuck.since, profile, node, ip))

    def _removed(self, removed: RemoveExecutor) -> None:
        now = self._clock.monotonic()
        if self.remove(removed.executor_id, removed.uid, removed.reason, removed.pod):
            logger.info("executor removed: executor=%d reason=%s", removed.executor_id, removed.reason.message)
            if removed.since is not None:
                self._counts.reaction.observe(now - removed.since)

    def remove(self, executor_id: int, uid: str | None, reason: LossReason, pod: Pod | None = None) -> bool:
        """Enter the end of an executor. Return whether the driver is notified of it."""
        now, at, earlier = self._clock.monotonic(), self._clock.now(), self._state.pod_of(executor_id)
        ledger, reports = self._state.ledger.removed(executor_id, uid, reason, now, at, pod=pod, earlier=earlier)
        self._end(ledger, executor_id, reports, pod or earlier)
        return bool(reports)

    def _abandoned(self, message: ExecutorsAbandoned) -> None:
        now, at = self._clock.monotonic(), self._clock.now()
        for executor_id in message.executor_ids:
            pod = self._state.pod_of(executor_id)
            ledger, reports = self._state.ledger.abandoned(
                executor_id, message.reason, now, at, created=message.created, pod=pod
            )
            logger.info("executor abandoned: executor=%d reason=%s", executor_id, message.reason)
            self._end(ledger, executor_id, reports, pod)

    def _end(self, ledger: Ledger, executor_id: int, reports: Iterable[ToDriver], pod: Pod | None) -> None:
        """Enter an end, notify the driver, remember the end for `GetExecutors`, and decide what follows from it."""
        self._state.enter(ledger, executor_id)
        entry = ledger.entries.get(executor_id)
        for report in reports:
            if entry is not None and isinstance(report, ExecutorRemoved):
                removal = self._replacement.decide(entry, report)
                if removal.lowered_target:
                    self._record_in_lease()
                self._tell(removal)
                self._state.ends(EndedExecutor(entry, pod, removal))
            else:
                self._tell(report)
        if entry is not None and entry.profile in self._replacement.profiles:
            self._children[ALLOCATOR].tell(self._state.target(decided=frozenset((executor_id,))))

    def _scaled_down(self, message: ExecutorsScaledDown) -> None:
        self._state.enter(self._state.ledger.scaled_down(message.pods), *message.pods)

    def _forget(self, _: _ForgetDue) -> None:
        """Forget our executors. For another driver's, ask LifecycleManager whether their pods are gone."""
        before = self._clock.monotonic() - self._settings.executor.removed_executors_ttl.total_seconds()
        self._state.ledger = self._state.ledger.forgotten(before)
        others = self._state.ledger.others_ended(before)
        if others:
            self._children[LIFECYCLE].tell(ForgetEnded(others))

    def _forgotten(self, message: EndedForgotten) -> None:
        self._state.ledger = self._state.ledger.without(message.executor_ids)

    # ── from the driver ─────────────────────────────────────────────────────────────────────────────────────────

    def _retarget(self, message: RequestTotalExecutors) -> bool:
        others = self._state.totals.keys() - message.by_profile
        kept = others if message.keep_others else others & self._state.leases.profiles
        self._state.totals = {name: self._state.totals[name] for name in kept} | message.by_profile
        for name in self._state.scale_downs.keys() - kept:
            del self._state.scale_downs[name]
        self._state.forgive()
        self._children[ALLOCATOR].tell(self._state.target())
        return True

    def _register(self, message: RegisterExecutor) -> bool:
        now = self._clock.monotonic()
        excluded = self._state.is_excluded(message.executor_id)
        ledger = None if excluded else self._state.ledger.registered(message.executor_id, now)
        if ledger is None:
            self._warn_of_unknown(message.executor_id)
            return False
        self._state.enter(ledger, message.executor_id)
        logger.debug("executor registered: executor=%d", message.executor_id)
        for name in (LIFECYCLE, ALLOCATOR):
            self._children[name].tell(ExecutorRegistered(message.executor_id, now))
        return True

    def _warn_of_unknown(self, executor_id: int) -> None:
        """Warn once: an executor of an earlier driver may try again every second. At a stop that is no news."""
        if self._state.is_ending(executor_id) or executor_id in self._unknown:
            return
        if len(self._unknown) >= MAX_UNKNOWN:
            self._unknown.clear()
        self._unknown.add(executor_id)
        logger.warning("unknown or ended executor registered: executor=%.40r", executor_id)

    def _disconnect(self, message: ExecutorDisconnected) -> None:
        now = self._clock.monotonic()
        ledger = self._state.ledger.disconnected(message.executor_id, now, message.suspected)
        if ledger is not None:
            self._state.enter(ledger, message.executor_id)
            self._children[LIFECYCLE].tell(ConnectionLost(message.executor_id, now, message.suspected))

    def _active_ids(self, _: GetExecutorIds) -> tuple[int, ...]:
        ledger = self._state.ledger
        return tuple(entry.executor_id for entry in ledger.present() if ledger.is_active(entry.executor_id))

    def _values(self, _: GetExecutors) -> FleetExecutors:
        state = self._state
        return fleet_executors(state.ledger.entries.values(), state.states, state.ended, self._clock.now())

    def _is_active(self, message: IsExecutorActive) -> bool:
        return self._state.ledger.is_active(message.executor_id)

    def _is_excluded(self, message: IsExecutorExcluded) -> bool:
        return self._state.is_excluded(message.executor_id)

    def _has_enough(self, _: HasEnoughExecutors) -> bool:
        initial = self._settings.initial_totals
        registered = sum(self._state.ledger.registered_count(profile) for profile in initial)
        return registered >= sum(initial.values()) * self._settings.backend.min_registered_ratio
