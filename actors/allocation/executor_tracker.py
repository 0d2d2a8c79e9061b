"""What the Allocator knows of single executors: who is unseen, given up, in use, taken back, let finish, or stuck.

A plain value in the Allocator's hands, kept in step with the snapshots at the cost of what changed. From it and the
newest snapshot follow the numbers that a round works with.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from actors.allocation.expectations import Expectations
from actors.pods.state import PodPending, PodRunning, PodState, PodTerminating, PodUnknown
from actors.pods.stuck import never_heals
from actors.runtime import Moment, elapsed, later

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from actors.messages import LedgerEntry, SnapshotBatch
    from actors.pods.snapshot import PodsSnapshot
    from actors.settings import Settings

__all__ = ["ExecutorTracker"]

_KINDS: Final[dict[str, tuple[type[PodState], ...]]] = {
    "TerminatingOrFailed": (PodPending, PodRunning, PodUnknown),
    "Failed": (PodPending, PodRunning, PodUnknown, PodTerminating),
}
"""By `pod_replacement_policy`, the states in which an executor counts toward its profile's target."""


class ExecutorTracker:
    """Of one Allocator."""

    def __init__(self, settings: Settings) -> None:
        self._kinds = _KINDS[settings.allocation.pod_replacement_policy]
        self.unseen_timeout = settings.allocation.unseen_timeout
        self._idle_timeout = settings.allocation.idle_timeout
        self._stuck_timeout = settings.executor.stuck_timeout
        self._remembered = settings.executor.removed_executors_ttl
        self.newly = Expectations()
        """Requested and not shown yet."""
        self.abandoned: dict[int, Moment] = {}
        """Ids whose pods do not count, should they come up, and when they were given up, earliest first."""
        self._late: set[int] = set()
        """Those of them that the snapshot shows."""
        self.registered: set[int] = set()
        """Those that the driver has taken up."""
        self.killed: set[int] = set()
        """Those that the driver has taken back and that have not ended yet: they are in excess already."""
        self.decommissioned: set[int] = set()
        """Those that the driver lets finish: they count until they are gone."""
        self._pending_since: dict[int, Moment] = {}
        self._never_heal: dict[int, Moment] = {}
        """Pending ones that wait for what will not come, and since when, earliest first."""

    # ── keeping in step ──────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, entries: Iterable[LedgerEntry], now: Moment) -> None:
        """Take the ledger up at a start. What was requested and never seen counts as newly created."""
        for entry in entries:
            if entry.abandoned:
                self.abandoned[entry.executor_id] = now
            if entry.removed_at is not None:
                continue
            if entry.uid is None:
                self.newly.requested(entry.executor_id, entry.profile, now)
            if entry.registered_at is not None:
                self.registered.add(entry.executor_id)
            if entry.killed is not None:
                self.killed.add(entry.executor_id)
            if entry.decommissioned:
                self.decommissioned.add(entry.executor_id)

    def follow(self, batch: SnapshotBatch, now: Moment) -> None:
        """Take a batch in; O(changes), but for a full sync."""
        states = batch.snapshot.states
        for executor_id in batch.changed:
            self._follow_one(executor_id, states.get(executor_id), now)
        for ended in batch.ended:
            if ended.executor_id not in states:
                self._pending_since.pop(ended.executor_id, None)
                self._never_heal.pop(ended.executor_id, None)
                for ids in (self._late, self.registered, self.killed, self.decommissioned):
                    ids.discard(ended.executor_id)
        if batch.full_sync:  # whatever was said of one that had ended already is forgotten here
            for ids in (self.registered, self.killed, self.decommissioned):
                if ids:
                    ids.difference_update(ids.difference(states, self.newly))

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

    def is_asked_to_go(self, executor_id: int) -> bool:
        """Its end is our doing, or is to be."""
        return any(executor_id in ids for ids in (self.killed, self.decommissioned, self.abandoned))

    def give_up(self, executor_id: int, now: Moment) -> None:
        """Wait no longer for a newly created one."""
        self.newly.take(executor_id)
        self.killed.discard(executor_id)
        self.decommissioned.discard(executor_id)
        self.abandoned[executor_id] = now

    def may_appear(self, executor_id: int) -> bool:
        """Whether its pod may come up yet."""
        return executor_id in self.newly or executor_id in self.abandoned

    def forget_given_up(self, now: Moment) -> None:
        """Those that nothing came up of for long. One that came up stays, and is looked at again later."""
        while self.abandoned:
            executor_id, at = next(iter(self.abandoned.items()))
            if elapsed(at, now) <= self._remembered:
                return
            del self.abandoned[executor_id]
            if executor_id in self._late:
                self.abandoned[executor_id] = now

    # ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def missing(self, snapshot: PodsSnapshot, totals: Mapping[str, int]) -> dict[str, int]:
        """How many executors each profile lacks, be one wanted, shown or unseen; negative where there are too many."""
        profiles = sorted({*totals, *snapshot.profiles(), *self.newly.profiles()})
        return {profile: totals.get(profile, 0) - self.expected(snapshot, profile) for profile in profiles}

    def expected(self, snapshot: PodsSnapshot, profile: str) -> int:
        """How many executors of a profile there are, or will be when what was requested has come up."""
        shown = snapshot.count(*self._kinds, profile=profile) - _count(self._late, snapshot, profile, self._kinds)
        return shown + self._finishing(snapshot, profile) + self.newly.count(profile)

    def going(self, snapshot: PodsSnapshot, profile: str) -> int:
        """How many of those that are expected the driver has taken back: they are in excess already."""
        going = self.killed | self.decommissioned
        unseen = sum(self.newly[i].profile == profile for i in going & self.newly.keys())
        shown = _count(going - self._late, snapshot, profile, self._kinds)
        return unseen + shown + self._finishing(snapshot, profile)

    def _finishing(self, snapshot: PodsSnapshot, profile: str) -> int:
        """How many were let finish and now terminate: they are not replaced before they are gone."""
        if PodTerminating in self._kinds:
            return 0  # they count anyway
        return _count(self.decommissioned - self._late, snapshot, profile, (PodTerminating,))

    def pending(self, snapshot: PodsSnapshot, profile: str | None = None) -> int:
        """How many do not run yet, of one profile or of all."""
        unseen = len(self.newly) if profile is None else self.newly.count(profile)
        return snapshot.count(PodPending, profile=profile) + unseen

    # ── whom ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def overdue(self, snapshot: PodsSnapshot, now: Moment) -> tuple[int, ...]:
        """Newly created ones to give up.

        Their POST was answered long ago, and a full sync that was asked for after the answer does not show them.
        """
        synced_at = snapshot.full_sync_at
        if synced_at is None:
            return ()
        answered = self.newly.answered_by(later(now, -self.unseen_timeout))
        return tuple(i for i, at in answered if synced_at > at and i not in snapshot.states)

    def surplus(
        self, excess: int, snapshot: PodsSnapshot, profile: str, now: Moment
    ) -> tuple[tuple[int, ...], dict[int, PodPending]]:
        """Whom to delete of `excess` executors too many: newly created ones first, then pending, oldest first.

        Never one that is younger than `idle_timeout`, that is spared, whose POST is not answered, or that runs: which
        of the running ones is of least use only the driver knows. One whose request is lost goes before all others.
        """
        spared, states = self._spared(), snapshot.states
        unseen = sorted(
            (not new.lost, new.requested_at, executor_id)
            for executor_id, new in self.newly.items()
            if new.profile == profile
            and (new.lost or (new.answered_at is not None and self._is_old_enough(new.requested_at, now)))
            and executor_id not in spared
        )[:excess]
        oldest = sorted((since, executor_id) for executor_id, since in self._pending_since.items())
        pending = {
            executor_id: state
            for since, executor_id in oldest
            if self._is_old_enough(since, now)
            and executor_id not in spared
            and isinstance(state := states.get(executor_id), PodPending)
            and state.pod.profile == profile
        }
        return tuple(executor_id for _, _, executor_id in unseen), dict(islice(pending.items(), excess - len(unseen)))

    def _is_old_enough(self, since: Moment, now: Moment) -> bool:
        return elapsed(since, now) >= self._idle_timeout

    def unanswered(self, profile: str) -> list[int]:
        """Newly created ones that may not be made yet, and need not be: the newest first."""
        spared = self._spared()
        unseen = ((i, new) for i, new in self.newly.items() if new.profile == profile and i not in spared)
        return sorted((i for i, new in unseen if new.answered_at is None and not new.lost), reverse=True)

    def lost(self) -> dict[str, list[int]]:
        """Newly created ones whose request is lost, by profile."""
        ids: dict[str, list[int]] = {}
        for executor_id in self.newly.lost():
            ids.setdefault(self.newly[executor_id].profile, []).append(executor_id)
        return ids

    def lost_and_ended(self) -> tuple[int, ...]:
        """Those of them that the driver has taken back, or lets finish: nobody is to ask for them again."""
        return tuple(i for i in self.newly.lost() if i in self.killed or i in self.decommissioned)

    def _spared(self) -> AbstractSet[int]:
        """Whoever is too many, these are not."""
        return self.registered | self.killed | self.decommissioned | self.abandoned.keys()

    def hopeless(self, snapshot: PodsSnapshot, now: Moment) -> Iterator[tuple[int, PodState]]:
        """Pending ones that have waited so long for what will not come."""
        for executor_id, since in self._never_heal.items():
            if elapsed(since, now) < self._stuck_timeout:
                return
            state = snapshot.states.get(executor_id)
            if state is not None and not any(
                executor_id in ids for ids in (self.registered, self.killed, self.abandoned)
            ):
                yield executor_id, state


def _count(ids: Iterable[int], snapshot: PodsSnapshot, profile: str, kinds: tuple[type[PodState], ...]) -> int:
    """How many of these executors the snapshot shows in one of `kinds`."""
    states = (snapshot.states.get(executor_id) for executor_id in ids)
    return sum(isinstance(state, kinds) and state.pod.profile == profile for state in states)
