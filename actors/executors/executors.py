"""What the Backend does with messages about executors: keep the ledger, notify the driver and the other actors.

A plain object of the Backend. Executors that the driver ends are the matter of `Kills`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.executors.checks import checked_totals
from actors.messages import (
    AllocatorStatus,
    ConnectionLost,
    EndedForgotten,
    ExecutorDisconnected,
    ExecutorRegistered,
    ExecutorsAbandoned,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsRequested,
    ExecutorsScaledDown,
    ExecutorStuck,
    FleetFailed,
    ForgetEnded,
    GetExecutorIds,
    HasEnoughExecutors,
    IdsAllocated,
    IsExecutorActive,
    IsExecutorExcluded,
    LedgerLoaded,
    RegisterExecutor,
    RemoveExecutor,
    RequestTotalExecutors,
    SetTotalExpectedExecutors,
    StartFailureRecord,
    StartFailuresExceeded,
    StuckObserved,
    TakenOver,
    TakeOver,
)
from actors.messages.names import ALLOCATOR, LEASE, LIFECYCLE
from actors.metrics.counts import BackendCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.executors.fleet_state import FleetState
    from actors.messages import ToDriver
    from actors.runtime import Actor, Address
    from actors.settings import Settings

__all__ = ["Executors"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _ForgetDue:
    """Time to forget executors that ended long ago."""


class Executors:
    """One fleet, for one driver's life.

    Args:
        backend: whose timers and clock are used.
        state: what is known of the fleet.
        children: the parts of the Backend, by name.
        tell: the driver.
    """

    def __init__(
        self,
        backend: Actor,
        settings: Settings,
        *,
        state: FleetState,
        children: Mapping[str, Address],
        tell: Callable[[ToDriver | None], None],
        counts: BackendCounts | None = None,
    ) -> None:
        self._timers = backend.timers
        self._clock = backend.clock
        self._settings = settings
        self._state = state
        self._children = children
        self._tell = tell
        self._counts = counts or BackendCounts()
        self._takeovers = 0
        """How often the Allocator was to begin, or was held back."""

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Who handles what."""
        return {
            AllocatorStatus: self._counted,
            EndedForgotten: self._forgotten,
            ExecutorSeen: self._seen,
            ExecutorsAbandoned: self._abandoned,
            ExecutorsObserved: self._observed,
            ExecutorsRequested: self._requested,
            ExecutorsScaledDown: self._children[LIFECYCLE].tell,
            RemoveExecutor: self._removed,
            StartFailuresExceeded: self._start_failures_exceeded,
            StuckObserved: self._stuck,
            TakenOver: self._taken_over,
            _ForgetDue: self._forget,
            # from the driver
            ExecutorDisconnected: self._disconnect,
            GetExecutorIds: self._active_ids,
            HasEnoughExecutors: self._has_enough,
            IsExecutorActive: self._is_active,
            IsExecutorExcluded: self._is_excluded,
            RegisterExecutor: self._register,
            RequestTotalExecutors: self._retarget,
        }

    # ── the start ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """The fleet is being kept from now on."""
        self._timers.every("forget", self._settings.executor.removed_executors_ttl, _ForgetDue())

    def introduce_lifecycle_manager(self) -> None:
        """What it must know at its start."""
        ledger = self._state.ledger
        self._children[LIFECYCLE].tell(
            LedgerLoaded(ledger.entries, ledger.next_id, ledger.created, observed=self._state.states)
        )

    def introduce_allocator(self) -> None:
        """The same, and how many executors are wanted; but first of all comes the adoption of what there is."""
        self._takeovers += 1
        self._children[LIFECYCLE].tell(TakeOver(self._takeovers))

    def hold_allocator(self) -> None:
        """It is not to begin, should it have been about to."""
        self._takeovers += 1

    def _taken_over(self, message: TakenOver) -> None:
        if message.serial != self._takeovers:  # the Allocator was restarted meanwhile, or is to wait
            return
        ledger = self._state.ledger = self._state.ledger.begun()
        starts = self._state.starts
        self._children[ALLOCATOR].tell(LedgerLoaded(ledger.entries, ledger.next_id, ledger.created, starts))
        self._children[ALLOCATOR].tell(SetTotalExpectedExecutors(dict(self._state.totals)))

    def count_on(self, last_id: int) -> None:
        """The lease is ours, and has that as the last id; of higher ones it is to hear."""
        self._state.ledger = self._state.ledger.counted_on(last_id)
        if self._state.ledger.next_id > last_id + 1:
            self._record_last_id()

    def _record_last_id(self) -> None:
        if self._settings.uses_lease:
            self._children[LEASE].tell(IdsAllocated(self._state.ledger.next_id - 1))

    # ── from inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def _counted(self, status: AllocatorStatus) -> None:
        self._state.profiles, self._state.starts = status.profiles, status.starts

    def _start_failures_exceeded(self, message: StartFailuresExceeded) -> None:
        self._tell(FleetFailed(message.cause))

    def _requested(self, message: ExecutorsRequested) -> None:
        self._state.ledger = self._state.ledger.requested(message.executor_ids, message.profile)
        self._counts.requested.add(message.profile, by=len(message.executor_ids))
        self._record_last_id()

    def _observed(self, message: ExecutorsObserved) -> None:
        self._state.states = message.states

    def _seen(self, seen: ExecutorSeen) -> None:
        now, at = self._clock.monotonic(), self._clock.now()
        self._state.ledger, told, ours = self._state.ledger.seen(seen.executor_id, seen.state, now, at)
        self._tell(told)
        if not ours:
            why = "its id was given up, or given to an executor that has ended"
            logger.warning("a pod came up late, deleting it: executor=%d uid=%s", seen.executor_id, seen.uid)
            self._children[LIFECYCLE].tell(ExecutorsAbandoned((seen.executor_id,), why))

    def _stuck(self, told: StuckObserved) -> None:
        stuck = told.stuck
        ledger = self._state.ledger.stuck(told.executor_id, told.uid, stuck.kind)
        if ledger is not None:
            self._state.ledger = ledger
            self._tell(ExecutorStuck(told.executor_id, stuck.reason, stuck.message, stuck.since))

    def _removed(self, removed: RemoveExecutor) -> None:
        now, ledger = self._clock.monotonic(), self._state.ledger
        self._state.ledger, told = ledger.removed(removed.executor_id, removed.uid, removed.reason, now)
        if told is not None:
            logger.info("removed: executor=%d reason=%s", told.executor_id, told.reason.message)
            self._tell(told)
            if removed.since is not None:
                self._counts.reaction.observe(now - removed.since)

    def _abandoned(self, message: ExecutorsAbandoned) -> None:
        self._children[LIFECYCLE].tell(message)
        now = self._clock.monotonic()
        for executor_id in message.executor_ids:
            ledger = self._state.ledger
            self._state.ledger, told = ledger.abandoned(executor_id, message.reason, now, created=message.created)
            logger.info("given up: executor=%d why=%s", executor_id, message.reason)
            self._tell(told)

    def _forget(self, _: _ForgetDue) -> None:
        """Of another driver's executors those that are not shown any more, for which LifecycleManager is asked."""
        before = self._clock.monotonic() - self._settings.executor.removed_executors_ttl.total_seconds()
        self._state.ledger = self._state.ledger.forgotten(before)
        others = self._state.ledger.others_ended(before)
        if others:
            self._children[LIFECYCLE].tell(ForgetEnded(others))

    def _forgotten(self, message: EndedForgotten) -> None:
        self._state.ledger = self._state.ledger.without(message.executor_ids)

    # ── from the driver ──────────────────────────────────────────────────────────────────────────────────────────

    def _retarget(self, message: RequestTotalExecutors) -> None:
        totals = self._state.totals = checked_totals(message.totals, self._settings.profile_names)
        self._state.starts = StartFailureRecord()  # should there be no Allocator now to forgive what failed
        self._children[ALLOCATOR].tell(SetTotalExpectedExecutors(dict(totals), forgives=True))

    def _register(self, message: RegisterExecutor) -> bool:
        now = self._clock.monotonic()
        ledger = self._state.ledger.registered(message.executor_id, now)
        if ledger is None:
            logger.warning("an executor registers that is none of ours: executor=%s", message.executor_id)
            return False
        self._state.ledger = ledger
        for name in (LIFECYCLE, ALLOCATOR):
            self._children[name].tell(ExecutorRegistered(message.executor_id, now))
        return True

    def _disconnect(self, message: ExecutorDisconnected) -> None:
        now = self._clock.monotonic()
        ledger = self._state.ledger.disconnected(message.executor_id, now)
        if ledger is not None:
            self._state.ledger = ledger
            self._children[LIFECYCLE].tell(ConnectionLost(message.executor_id, now))

    def _active_ids(self, _: GetExecutorIds) -> tuple[int, ...]:
        ledger = self._state.ledger
        return tuple(entry.executor_id for entry in ledger.present() if ledger.is_active(entry.executor_id))

    def _is_active(self, message: IsExecutorActive) -> bool:
        return self._state.ledger.is_active(message.executor_id)

    def _is_excluded(self, message: IsExecutorExcluded) -> bool:
        return self._state.ledger.is_excluded(message.executor_id)

    def _has_enough(self, _: HasEnoughExecutors) -> bool:
        initial = self._settings.initial_totals
        registered = sum(self._state.ledger.registered_count(profile) for profile in initial)
        return registered >= sum(initial.values()) * self._settings.backend.min_registered_ratio
