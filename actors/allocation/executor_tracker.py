"""Tracks single executors for the Allocator: requested, abandoned, registered, killed, decommissioned, or stuck.

A plain value, updated from each batch at the cost of what changed. With the newest snapshot it gives the numbers that a
round works with. It sends no message.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from actors.allocation.expectations import Expectations, Undecided
from actors.pods.state import PodPending, PodRunning, PodState, PodTerminating, PodUnknown
from actors.pods.stuck import never_heals
from actors.runtime import Moment, elapsed, later

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from actors.messages.internal import LedgerEntry, SnapshotBatch
    from actors.pods.snapshot import PodsSnapshot
    from actors.settings import Settings

__all__ = ["ExecutorTracker"]

_KINDS: Final[dict[str, tuple[type[PodState], ...]]] = {
    "TerminatingOrFailed": (PodPending, PodRunning, PodUnknown),
    "Failed": (PodPending, PodRunning, PodUnknown, PodTerminating),
}
"""By `pod_replacement_policy`, the states in which an executor counts toward its profile's target."""


class ExecutorTracker:
    """The executors of one Allocator."""

    def __init__(self, settings: Settings) -> None:
        self._kinds = _KINDS[settings.allocation.pod_replacement_policy]
        self.unseen_timeout = settings.allocation.unseen_timeout
        self._idle_timeout = settings.allocation.idle_timeout
        self._stuck_timeout = settings.executor.stuck_timeout
        self._remembered = settings.executor.removed_executors_ttl
        self.at_once: frozenset[str] = frozenset()
        """Profiles whose excess is deleted however young it is."""
        self.requested = Expectations()
        """Requested, and not in a snapshot yet."""
        self.undecided = Undecided()
        """Ended, and perhaps not to be replaced."""
        self.abandoned: dict[int, Moment] = {}
        """Ids whose pods do not count if they appear late, and when each was abandoned, earliest first."""
        self._late: set[int] = set()
        """Abandoned executors that are in the snapshot."""
        self.registered: set[int] = set()
        """Executors that the driver registered."""
        self.killed: set[int] = set()
        """Executors that the driver killed and that have not ended yet: part of the excess."""
        self.retired: set[int] = set()
        """Executors that the driver retired: they count as terminating ones."""
        self.decommissioned: set[int] = set()
        """Executors that the driver decommissioned: they count until they are gone."""
        self._pending_since: dict[int, Moment] = {}
        self._never_heal: dict[int, Moment] = {}
        """Pending executors that can never start, and since when, earliest first."""

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, entries: Iterable[LedgerEntry], now: Moment) -> None:
        """Load the ledger after a start. An executor that no snapshot has had counts as requested.

        Not if it has registered: then its pod existed, and is in the next list unless it is gone.
        """
        for entry in entries:
            if entry.abandoned:
                self.abandoned[entry.executor_id] = now
            self.undecided.add(entry.executor_id, entry.profile)
            if entry.removed_at is not None:
                self.undecided.decide((entry.executor_id,))
                continue
            if entry.uid is None and entry.registered_at is None:
                self.requested.add(entry.executor_id, entry.profile, now)
            if entry.registered_at is not None:
                self.registered.add(entry.executor_id)
            if entry.killed is not None and entry.killed.retired:
                self.retire((entry.executor_id,))
            elif entry.killed is not None:
                self.killed.add(entry.executor_id)
            if entry.decommissioned and entry.executor_id not in self.retired:
                self.decommissioned.add(entry.executor_id)

    def request(self, executor_id: int, profile: str, now: Moment) -> None:
        """Expect an executor that is requested now."""
        self.requested.add(executor_id, profile, now)
        self.undecided.add(executor_id, profile)

    def retire(self, executor_ids: Iterable[int]) -> None:
        """The driver retires these executors. What it wanted of them before no longer matters."""
        ids = frozenset(executor_ids)
        self.retired |= ids
        self.killed |= ids
        self.decommissioned -= ids
        if PodTerminating not in self._kinds:
            for executor_id in ids:
                self.undecided.end(executor_id)

    def follow(self, batch: SnapshotBatch, now: Moment) -> None:
        """Apply a batch; O(changes), except after a full sync."""
        states = batch.snapshot.states
        for executor_id in batch.changed:
            self._follow_one(executor_id, states.get(executor_id), now)
        for ended in batch.ended:
            if ended.executor_id not in states:
                self._pending_since.pop(ended.executor_id, None)
                self._never_heal.pop(ended.executor_id, None)
                self.undecided.end(ended.executor_id)
                for ids in (self._late, self.registered, self.killed, self.retired, self.decommissioned):
                    ids.discard(ended.executor_id)
        if batch.full_sync:  # forget what arrived about executors that had ended already
            self.undecided.synced(states.keys() | self.requested.keys())
            for ids in (self.registered, self.killed, self.retired, self.decommissioned):
                if ids:
                    ids.difference_update(ids.difference(states, self.requested))

    def _follow_one(self, executor_id: int, state: PodState | None, now: Moment) -> None:
        if isinstance(state, PodPending):
            self._pending_since.setdefault(executor_id, now)
        else:
            self._pending_since.pop(executor_id, None)
        if isinstance(state, PodPending) and never_heals(state.pod):
            self._never_heal.setdefault(executor_id, now)
        else:
            self._never_heal.pop(executor_id, None)
        if executor_id in self.abandoned:
            self._late.add(executor_id)
        if state is not None and not self.counts_toward_target(state):
            self.undecided.end(executor_id)

    def counts_toward_target(self, state: PodState) -> bool:
        """Whether an executor in this state counts toward its profile's target."""
        return isinstance(state, self._kinds)

    def is_being_ended(self, executor_id: int) -> bool:
        """Whether the driver or the Allocator has decided to end this executor."""
        return any(executor_id in ids for ids in (self.killed, self.decommissioned, self.abandoned))

    def abandon(self, executor_id: int, now: Moment) -> None:
        """Stop waiting for a requested executor."""
        self.requested.remove(executor_id)
        self.killed.discard(executor_id)
        self.retired.discard(executor_id)
        self.decommissioned.discard(executor_id)
        self.abandoned[executor_id] = now
        self.undecided.end(executor_id)

    def may_appear(self, executor_id: int) -> bool:
        """Whether the executor's pod may still appear."""
        return executor_id in self.requested or executor_id in self.abandoned

    def forget_abandoned(self, now: Moment) -> None:
        """Forget executors that were abandoned long ago, but not those whose pods have appeared."""
        while self.abandoned:
            executor_id, at = next(iter(self.abandoned.items()))
            if elapsed(at, now) <= self._remembered:
                return
            del self.abandoned[executor_id]
            if executor_id in self._late:
                self.abandoned[executor_id] = now

    # ── counts ───────────────────────────────────────────────────────────────────────────────────────────────────

    def missing(self, snapshot: PodsSnapshot, totals: Mapping[str, int]) -> dict[str, int]:
        """Return how many executors each profile lacks; negative where there are excess executors."""
        profiles = sorted({*totals, *snapshot.profiles(), *self.requested.profiles()})
        return {profile: totals.get(profile, 0) - self.expected(snapshot, profile) for profile in profiles}

    def expected(self, snapshot: PodsSnapshot, profile: str) -> int:
        """Return how many executors a profile has, with those that were requested, or are not decided on."""
        observed = snapshot.count(*self._kinds, profile=profile)
        observed -= _count(self._not_counted(), snapshot, profile, self._kinds)
        requested = self.requested.count(profile) - self._requested(self.undecided.decided, profile)
        return observed + self._finishing(snapshot, profile) + requested + self.undecided.count(profile)

    def being_ended(self, snapshot: PodsSnapshot, profile: str) -> int:
        """Return how many of the expected executors are in no excess: the driver has ended them, or they end anyway."""
        ending = (self.killed | self.decommissioned) - self.undecided.decided
        observed = _count(ending - self._not_counted(), snapshot, profile, self._kinds)
        ended = self._finishing(snapshot, profile) + self.undecided.count(profile)
        return self._requested(ending, profile) + observed + ended

    def _requested(self, ids: AbstractSet[int], profile: str) -> int:
        """Return how many of these executors of a profile are requested."""
        return sum(self.requested[i].profile == profile for i in ids & self.requested.keys())

    def _not_counted(self) -> AbstractSet[int]:
        """Return the executors that do not count although they are alive."""
        ids = self._late | self.undecided.decided
        return ids if PodTerminating in self._kinds else ids | self.retired

    def retiring(self, snapshot: PodsSnapshot, profile: str) -> int:
        """Return how many executors retire and are not terminating yet."""
        return _count(self.retired, snapshot, profile, _KINDS["TerminatingOrFailed"])

    def _finishing(self, snapshot: PodsSnapshot, profile: str) -> int:
        """Return how many decommissioned executors are terminating: they are not replaced before they are gone."""
        if PodTerminating in self._kinds:
            return 0  # they are counted already
        ids = {i for i in self.decommissioned - self._late - self.undecided.decided if not self.undecided.has_ended(i)}
        return _count(ids, snapshot, profile, (PodTerminating,))

    def pending(self, snapshot: PodsSnapshot, profile: str | None = None) -> int:
        """Return how many executors do not run yet, in one profile or in all."""
        requested = len(self.requested) if profile is None else self.requested.count(profile)
        return snapshot.count(PodPending, profile=profile) + requested

    # ── selections ───────────────────────────────────────────────────────────────────────────────────────────────

    def overdue(self, snapshot: PodsSnapshot, now: Moment) -> tuple[int, ...]:
        """Return the requested executors to abandon.

        Their POST was answered long ago, and a full sync requested after the answer does not have them.
        """
        synced_at = snapshot.full_sync_at
        if synced_at is None:
            return ()
        answered = self.requested.answered_by(later(now, -self.unseen_timeout))
        return tuple(i for i, at in answered if synced_at > at and i not in snapshot.states)

    def excess(
        self, excess: int, snapshot: PodsSnapshot, profile: str, now: Moment
    ) -> tuple[tuple[int, ...], dict[int, PodPending]]:
        """Return which of `excess` executors to delete: requested ones first, then pending ones, each the oldest first.

        Executors whose request is lost come before all others. Never chosen are executors younger than `idle_timeout`
        (unless `at_once` has their profile), spared ones, ones whose POST is not answered, and running ones: only the
        driver knows which it can spare.
        """
        spared, states = self._spared(), snapshot.states
        idle_timeout = timedelta() if profile in self.at_once else self._idle_timeout
        requested = sorted(
            (not each.lost, each.requested_at, executor_id)
            for executor_id, each in self.requested.items()
            if each.profile == profile
            and (each.lost or (each.answered_at is not None and elapsed(each.requested_at, now) >= idle_timeout))
            and executor_id not in spared
        )[:excess]
        oldest = sorted((since, executor_id) for executor_id, since in self._pending_since.items())
        pending = {
            executor_id: state
            for since, executor_id in oldest
            if elapsed(since, now) >= idle_timeout
            and executor_id not in spared
            and isinstance(state := states.get(executor_id), PodPending)
            and state.pod.profile == profile
        }
        return tuple(i for _, _, i in requested), dict(islice(pending.items(), excess - len(requested)))

    def unanswered(self, profile: str) -> list[int]:
        """Return the requested executors whose POST is not answered and which are not spared, the newest first."""
        spared = self._spared()
        requested = ((i, each) for i, each in self.requested.items() if each.profile == profile and i not in spared)
        return sorted((i for i, each in requested if each.answered_at is None and not each.lost), reverse=True)

    def lost(self) -> dict[str, list[int]]:
        """Return the executors whose request is lost, by profile."""
        ids: dict[str, list[int]] = {}
        for executor_id in self.requested.lost():
            ids.setdefault(self.requested[executor_id].profile, []).append(executor_id)
        return ids

    def lost_and_being_ended(self) -> tuple[int, ...]:
        """Return the lost executors that the driver has killed or decommissioned: they are not requested again."""
        return tuple(i for i in self.requested.lost() if i in self.killed or i in self.decommissioned)

    def _spared(self) -> AbstractSet[int]:
        """Return the executors that are never deleted as excess."""
        return self.registered | self.killed | self.decommissioned | self.abandoned.keys()

    def stuck(self, snapshot: PodsSnapshot, now: Moment) -> Iterator[tuple[int, PodState]]:
        """Yield the pending executors that can never start and have been pending for `stuck_timeout`."""
        for executor_id, since in self._never_heal.items():
            if elapsed(since, now) < self._stuck_timeout:
                return
            state = snapshot.states.get(executor_id)
            if state is not None and not any(
                executor_id in ids for ids in (self.registered, self.killed, self.abandoned)
            ):
                yield executor_id, state


def _count(ids: AbstractSet[int], snapshot: PodsSnapshot, profile: str, kinds: tuple[type[PodState], ...]) -> int:
    """Return how many of these executors are in one of the states `kinds` in the snapshot."""
    if not ids:  # nearly always
        return 0
    states = (snapshot.states.get(executor_id) for executor_id in ids)
    return sum(isinstance(state, kinds) and state.pod.profile == profile for state in states)
