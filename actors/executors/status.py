"""The answers to `GetFleetStatus` and `GetExecutors`. Pure."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from actors.executors.ledger import why_terminating
from actors.messages import (
    Executor,
    ExecutorState,
    FleetExecutors,
    FleetStatus,
    HeldPod,
    ProfileStatus,
    SourceStatus,
)
from actors.messages.internal import Freshness, Source, StartFailureRecord
from actors.pods.pod import restarts
from actors.pods.stuck import StuckKind, crashes_in_place, does_not_start, why_gated, why_stuck
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

    from actors.executors.fleet_state import EndedExecutor
    from actors.executors.ledger import Ledger
    from actors.messages.internal import LedgerEntry, StartFailureCount
    from actors.pods.pod import Pod
    from actors.pods.state import PodState
    from actors.runtime import Moment

__all__ = ["ended_executor", "fleet_executors", "fleet_status", "held_pods", "joined", "living_executor"]

NO_FAILURES: Final = StartFailureRecord()
"""No executor has failed to start."""


def joined(earlier: Freshness | None, later: Freshness) -> Freshness:
    """Return a source's later `Freshness`, with the earlier times that a restarted source no longer knows."""
    if earlier is None:
        return later
    synced_at, heard_at = _latest(earlier.synced_at, later.synced_at), _latest(earlier.heard_at, later.heard_at)
    return replace(later, synced_at=synced_at, heard_at=heard_at)


def _latest(*moments: Moment | None) -> Moment | None:
    return max((moment for moment in moments if moment is not None), default=None)


def fleet_status(
    app_id: str,
    namespace: str,
    *,
    ledger: Ledger,
    profiles: Mapping[str, ProfileStatus],
    totals: Mapping[str, int],
    sources: Mapping[Source, Freshness],
    now: Moment,
    stopping: bool,
    may_write: bool = True,
    lease_held: bool = False,
    held: tuple[HeldPod, ...] = (),
    on_hold: bool = False,
    starts: StartFailureRecord = NO_FAILURES,
    at: datetime | None = None,
) -> FleetStatus:
    """Build the answer from what is known at `now`, which is `at` in UTC."""
    counts = {
        profile: replace(
            status,
            target=totals.get(profile, 0),
            registered=ledger.registered_count(profile),
            backoff_until=_backoff_until(starts.counts.get(profile), now, at),
        )
        for profile, status in profiles.items()
    }
    nothing = {source: Freshness(source, None, None) for source in Source}
    freshness = {source.value: _source_status(last, now) for source, last in {**nothing, **sources}.items()}
    return FleetStatus(
        app_id,
        namespace,
        counts,
        freshness,
        stopping=stopping,
        may_write=may_write,
        lease_held=lease_held,
        held=held,
        on_hold=on_hold,
        failed=starts.failed,
    )


def _backoff_until(count: StartFailureCount | None, now: Moment, at: datetime | None) -> datetime | None:
    """Return when the wait of a profile ends whose executors ended early, None if it is over."""
    until = now if count is None else max(count.until, count.waves_until)
    return None if at is None or until <= now else at + elapsed(now, until)


def held_pods(finalized: Iterable[HeldPod], at: datetime) -> tuple[HeldPod, ...]:
    """Return the pods that finalizers hold at `at`, the longest held first."""
    held = (pod for pod in finalized if pod.since <= at)
    return tuple(sorted(held, key=operator.attrgetter("since", "executor_id")))


def _source_status(freshness: Freshness, now: Moment) -> SourceStatus:
    return SourceStatus(
        synced=freshness.synced_at is not None and freshness.error is None,
        since_full_sync=_age(freshness.synced_at, now),
        since_heard=_age(freshness.heard_at, now),
        error=None if freshness.error is None else str(freshness.error),
    )


def _age(moment: Moment | None, now: Moment) -> timedelta | None:
    return None if moment is None else elapsed(moment, now)


def fleet_executors(
    entries: Iterable[LedgerEntry], states: Mapping[int, PodState], ended: Iterable[EndedExecutor], at: datetime
) -> FleetExecutors:
    """Build the answer from the ledger, the newest snapshot and the last ends, at `at`."""
    living = sorted((entry for entry in entries if entry.removed_at is None), key=operator.attrgetter("executor_id"))
    return FleetExecutors(
        tuple(living_executor(entry, states, at) for entry in living),
        tuple(ended_executor(each) for each in ended),
    )


def living_executor(entry: LedgerEntry, states: Mapping[int, PodState], at: datetime) -> Executor:
    """Return an executor that has not ended as a value, at `at`."""
    pod, state = entry.pod_in(states), entry.state
    reason, stuck = _why(entry, state, pod, at)
    return Executor(
        entry.executor_id,
        entry.profile,
        state,
        None if pod is None else pod.name,
        None if pod is None else pod.node,
        None if pod is None else pod.ip,
        entry.since,
        entry.is_registered,
        0 if pod is None else restarts(pod),
        reason,
        None,
        entry.killed is not None and entry.killed.retired,
        stuck,
        None if pod is None else pod.made_container,
    )


def ended_executor(ended: EndedExecutor) -> Executor:
    """Return an executor that has ended as a value."""
    entry, pod, removal = ended
    return Executor(
        entry.executor_id,
        entry.profile,
        entry.state,
        None if pod is None else pod.name,
        removal.node,
        removal.ip,
        entry.since,
        entry.is_registered,
        0 if pod is None else restarts(pod),
        removal.reason.message,
        removal.reason,
        container=None if pod is None else pod.made_container,
    )


def _why(entry: LedgerEntry, state: ExecutorState, pod: Pod | None, at: datetime) -> tuple[str | None, str | None]:
    """Return why a living executor is terminating, gated or stuck, and the API's reason if it is stuck."""
    if state is ExecutorState.TERMINATING:
        return why_terminating(entry, pod), None
    if entry.scaled_down:
        return f"executor {entry.executor_id} is in excess of the target and is being deleted", None
    waits = state is ExecutorState.PENDING
    if pod is None or not (waits or (entry.stuck and crashes_in_place(pod))):
        return None, None
    if (gated := why_gated(pod)) is not None or not entry.stuck:
        return gated, None
    stuck = why_stuck(pod)
    if stuck is None and StuckKind.SLOW in entry.stuck:
        stuck = does_not_start(pod, at - entry.since)
    return (None, None) if stuck is None else (": ".join(filter(None, (stuck.reason, stuck.message))), stuck.reason)
