"""The answer to `GetFleetStatus`. Pure."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING

from actors.messages import FleetStatus, HeldPod, ProfileStatus, SourceStatus
from actors.messages.internal import Freshness, Source
from actors.pods.pod import held_since
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from actors.executors.ledger import Ledger
    from actors.pods.state import PodState
    from actors.runtime import Moment

__all__ = ["fleet_status", "held_pods", "joined"]


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
    sources: Mapping[Source, Freshness],
    now: Moment,
    stopping: bool,
    may_write: bool = True,
    lease_held: bool = False,
    held: tuple[HeldPod, ...] = (),
) -> FleetStatus:
    """Build the answer from what is known at `now`."""
    counts = {
        profile: replace(status, registered=ledger.registered_count(profile)) for profile, status in profiles.items()
    }
    nothing = {source: Freshness(source, None, None) for source in Source}
    freshness = {source.value: _source_status(last, now) for source, last in {**nothing, **sources}.items()}
    return FleetStatus(
        app_id, namespace, counts, freshness, stopping=stopping, may_write=may_write, lease_held=lease_held, held=held
    )


def held_pods(states: Mapping[int, PodState], at: datetime) -> tuple[HeldPod, ...]:
    """Return the pods that finalizers hold at `at`, the longest held first."""
    held = (
        HeldPod(executor_id, state.pod.name, state.pod.metadata.finalizers or (), since)
        for executor_id, state in states.items()
        if (since := held_since(state.pod, at)) is not None
    )
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
