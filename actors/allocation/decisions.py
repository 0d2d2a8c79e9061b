"""What the Allocator decides, as pure functions: whom to give up, whom to delete, how many to request.

Nothing here sends a message or reads a clock; `now` and ages are handed in.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.pods.state import PodPending, PodRunning, PodState, PodTerminating, PodUnknown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from actors.allocation.expectations import Expectations
    from actors.pods.snapshot import PodsSnapshot

__all__ = ["LIVE", "LIVE_OR_GOING", "counted", "overdue", "shares", "slots", "surplus"]

LIVE: Final = (PodPending, PodRunning, PodUnknown)
"""What counts toward a target with `pod_replacement_policy = "TerminatingOrFailed"`."""

LIVE_OR_GOING: Final = (*LIVE, PodTerminating)
"""What counts with `"Failed"`: an executor is replaced when it has ended, not before."""


def counted(
    executor_ids: Iterable[int], snapshot: PodsSnapshot, profile: str, kinds: tuple[type[PodState], ...]
) -> int:
    """How many of these executors the snapshot shows in one of `kinds`."""
    states = (snapshot.states.get(executor_id) for executor_id in executor_ids)
    return sum(isinstance(state, kinds) and state.pod.profile == profile for state in states)


def overdue(unseen: Expectations, snapshot: PodsSnapshot, *, now: float, timeout: timedelta) -> tuple[int, ...]:
    """Newly created executors to give up.

    Their POST was answered `timeout` ago, and a full sync that was asked for after the answer does not show them.
    """
    synced_at = snapshot.full_sync_at
    if synced_at is None:
        return ()
    return tuple(
        executor_id
        for executor_id in unseen.answered_by(now - timeout.total_seconds())
        if (at := unseen[executor_id].answered_at) is not None and synced_at > at and executor_id not in snapshot.states
    )


def surplus(
    excess: int,
    newly: Expectations,
    snapshot: PodsSnapshot,
    pending_since: Mapping[int, float],
    *,
    profile: str,
    spared: Collection[int],
    now: float,
    idle_timeout: timedelta,
) -> tuple[tuple[int, ...], tuple[tuple[int, PodPending], ...]]:
    """Whom to delete when there are `excess` executors too many: newly created ones first, then pending, oldest first.

    Never one that is younger than `idle_timeout`, that is `spared`, whose POST is not answered, or that runs: which of
    the running ones is of least use only the driver knows. One whose request is lost goes before all others.
    """

    def old_enough(since: float) -> bool:
        return timedelta(seconds=now - since) >= idle_timeout

    unseen = sorted(
        (not new.lost, new.requested_at, executor_id)
        for executor_id, new in newly.items()
        if new.profile == profile
        and (new.lost or (new.answered_at is not None and old_enough(new.requested_at)))
        and executor_id not in spared
    )[:excess]
    pending = sorted(
        (since, executor_id)
        for executor_id, since in pending_since.items()
        if old_enough(since) and executor_id not in spared
    )
    states = ((executor_id, snapshot.states.get(executor_id)) for _, executor_id in pending)
    waiting = [(i, state) for i, state in states if isinstance(state, PodPending) and state.pod.profile == profile]
    return tuple(executor_id for _, _, executor_id in unseen), tuple(waiting[: excess - len(unseen)])


def slots(limit: int | None, used: int) -> int | None:
    """What a limit on pods leaves, None without a limit."""
    return None if limit is None else max(0, limit - used)


def shares(wanted: Mapping[str, int], free: int | None) -> dict[str, int]:
    """How many of the free slots each profile gets that wants any.

    Evenly, the remainder one each to the first; what a profile does not want goes to the others, in the same way.
    """
    if free is None:
        return dict(wanted)
    given = dict.fromkeys(wanted, 0)
    while free > 0 and (short := [profile for profile, want in wanted.items() if want > given[profile]]):
        share = free // len(short)
        if share == 0:  # the remainder: to those that have least, in their order
            short, share = sorted(short, key=given.__getitem__)[:free], 1
        for profile in short:
            more = min(wanted[profile] - given[profile], share)
            given[profile] += more
            free -= more
    return given
