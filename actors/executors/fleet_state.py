"""What the Backend knows of its fleet: `Executors` and `Kills` change it, others read it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from actors.executors.leases import LeaseBook
from actors.executors.ledger import Ledger
from actors.messages import HeldPod, ProfileStatus
from actors.messages.executor import ENDED_KEPT
from actors.messages.internal import Freshness, SetTotalExpectedExecutors, Source, StartFailureRecord
from actors.pods import ids
from actors.pods.state import PodTerminating

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

    from actors.messages import ExecutorRemoved, Victims
    from actors.messages.internal import CreationBlocked, ExecutorsObserved, LedgerEntry
    from actors.pods.pod import Pod
    from actors.pods.state import PodState
    from actors.runtime import Moment

__all__ = ["EndedExecutor", "FleetState", "ScaleDown"]


class EndedExecutor(NamedTuple):
    """An executor whose end the driver was notified of."""

    entry: LedgerEntry
    pod: Pod | None
    """Its pod as it was last observed."""
    removal: ExecutorRemoved


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """How a profile's running excess is ended, from `ScaleExecutors` until the profile's next target."""

    victims: Victims
    grace: timedelta | None
    since: Moment


@dataclass(slots=True)
class FleetState:
    """One fleet, for one incarnation of its driver."""

    totals: dict[str, int]
    """The target of each profile."""
    pod_prefix: str
    ledger: Ledger = field(default_factory=Ledger)
    adopts: bool = True
    """Executors that this driver did not request may be other drivers'. False once the lease is ours and all were
    listed: then their pods are a stranger's."""
    states: Mapping[int, PodState] = field(default_factory=dict)
    """The newest snapshot's states. The Backend keeps pods only here."""
    sources: dict[Source, Freshness] = field(default_factory=dict)
    """What each source reported last."""
    finalized: dict[int, HeldPod] = field(default_factory=dict)
    """The pods that finalizers hold, and those that they will hold when their grace period is over."""
    changed: dict[int, EndedExecutor | None] | None = None
    """The executors that have changed since they were published, with their ends; None while nobody follows."""
    leases: LeaseBook = field(default_factory=LeaseBook)
    """Who has which executor, in the profiles with a pool. `Leasing` changes it."""
    unlooked: dict[int, EndedExecutor | None] = field(default_factory=dict)
    """The executors that have changed since `Leasing` looked at them, with their ends; none without a pool."""
    profiles: Mapping[str, ProfileStatus] = field(default_factory=dict)
    """What the Allocator counted last."""
    ending: frozenset[int] | None = frozenset()
    """The executors that a stop deletes; None means all."""
    ended: deque[EndedExecutor] = field(default_factory=lambda: deque(maxlen=ENDED_KEPT))
    """The last executors that ended, the newest last."""
    starts: StartFailureRecord = field(default_factory=StartFailureRecord)
    """What the Allocator knows of failed starts, kept for its next incarnation."""
    memory_steps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The memory steps that the Allocator reported, kept in the same way."""
    scale_downs: dict[str, ScaleDown] = field(default_factory=dict)
    """How the running excess of a profile is ended. Without one, only the driver ends it."""
    hold: ScaleDown | None = None
    """How all running executors are ended, from `HoldFleet` until `ResumeFleet`; the targets are 0 meanwhile."""

    def enter(self, ledger: Ledger, *executor_ids: int) -> None:
        """Take the next ledger, in which these executors may look another way."""
        self.ledger = ledger
        self._note(executor_ids)

    def _note(self, executor_ids: Iterable[int]) -> None:
        """Remember that executors have changed, for whom it concerns."""
        for changed in self._changes():
            for executor_id in executor_ids:
                changed.setdefault(executor_id)

    def _changes(self) -> list[dict[int, EndedExecutor | None]]:
        changes = [] if self.changed is None else [self.changed]
        return [*changes, self.unlooked] if self.leases.profiles else changes

    def ends(self, ended: EndedExecutor) -> None:
        """Remember an end that the driver is notified of."""
        self.ended.append(ended)
        for changed in self._changes():
            executor_id = ended.entry.executor_id
            changed.pop(executor_id, None)  # so that it is the last one
            changed[executor_id] = ended

    def observe(self, message: ExecutorsObserved) -> None:
        """Take the states of the newest snapshot."""
        before, self.states = self.states, message.states
        changed = message.changed if message.changed is not None else {*before, *self.states}
        for executor_id in changed:
            state = self.states.get(executor_id)
            if state is not None and (held := _finalized(executor_id, state.pod)) is not None:
                self.finalized[executor_id] = held
            elif self.finalized:
                self.finalized.pop(executor_id, None)
        entries = self.ledger.entries
        if self._changes():
            alive = ((executor_id, entries.get(executor_id)) for executor_id in changed)
            self._note([executor_id for executor_id, entry in alive if entry is not None and entry.removed_at is None])

    def block(self, message: CreationBlocked, at: datetime) -> None:
        """Note that a profile's creation is blocked or unblocked, which the Allocator's next counts say too."""
        status = self.profiles.get(message.profile)
        if status is not None:
            since = None if message.cause is None else status.blocked_since or at
            blocked = replace(status, blocked=message.cause, blocked_by=message.blocked_by, blocked_since=since)
            self.profiles = {**self.profiles, message.profile: blocked}

    def forgive(self) -> None:
        """Forget failed starts, as the driver sets a target. No Allocator may run now that could forget them."""
        counts = self.starts.counts
        if self.starts.failed is not None:  # else the Allocator forgets nothing either
            counts = {name: count.cleared() for name, count in counts.items()}
        self.starts = StartFailureRecord(counts, forgiven=self.starts.forgiven + 1)

    def target(
        self, *, retired: frozenset[int] = frozenset(), decided: frozenset[int] = frozenset()
    ) -> SetTotalExpectedExecutors:
        """Return the target as the Allocator receives it, with executors that retire now, or that were decided on."""
        totals, at_once = dict(self.totals), frozenset(self.scale_downs)
        if self.hold is not None:
            totals = dict.fromkeys({*self.totals, *self.profiles, *self._profiles()}, 0)
            at_once = frozenset(totals)
        return SetTotalExpectedExecutors(totals, self.starts.forgiven, at_once, retired, decided)

    def excess_rules(self) -> tuple[Mapping[str, ScaleDown], Mapping[str, int]]:
        """Return how running excess is ended, by profile, and the targets above which executors are excess."""
        if self.hold is None:
            return self.scale_downs, self.totals
        return dict.fromkeys(self._profiles(), self.hold), {}

    def _profiles(self) -> set[str]:
        """Return the profiles of all executors, which may be others than the settings'."""
        return {entry.profile for entry in self.ledger.entries.values()}

    def counts(self) -> Mapping[str, ProfileStatus]:
        """Return what the Allocator counted last; before its first count, the targets."""
        counted = self.profiles or {name: ProfileStatus(target=total) for name, total in self.totals.items()}
        if self.hold is None:
            return counted
        return {name: replace(status, target=self.totals.get(name, 0)) for name, status in counted.items()}

    def is_excluded(self, executor_id: int) -> bool:
        """Whether the connection of an executor must be refused."""
        return self.is_ending(executor_id) or self.ledger.is_excluded(executor_id)

    def is_ending(self, executor_id: int) -> bool:
        """Whether a stop ends the executor, or has ended it."""
        return self.ending is None or executor_id in self.ending

    def is_ours(self, executor_id: int) -> bool:
        """Whether the pod of such an id is taken for an executor."""
        return self.adopts or executor_id in self.ledger.entries or self.ledger.allocated(executor_id)

    def to_delete(self) -> frozenset[int]:
        """Return the executors whose pods are to be deleted, also if the fleet is left: killed ones, and ended ones.

        An executor that was told removed may live on where its deletion was refused, or no server has answered.
        """
        entries = self.ledger.entries.values()
        told = (e for e in entries if e.removed_at is not None and e.is_known and e.pod_in(self.states) is not None)
        living = (e.executor_id for e in told if not isinstance(self.states[e.executor_id], PodTerminating))
        return self.ledger.killed_ids().union(i for i in living if not self.states[i].final)

    def known_pods(self, only: frozenset[int] | None) -> tuple[str, ...]:
        """Return the names of the pods that may exist, requested ones included; None means of all executors."""
        entries = sorted(self.ledger.entries.values(), key=lambda entry: entry.executor_id)
        return tuple(
            self.pod_name(entry)
            for entry in entries
            if entry.removed_at is None and (only is None or entry.executor_id in only)
        )

    def pod_of(self, executor_id: int) -> Pod | None:
        """Return an executor's pod in the newest snapshot, None if it is not there."""
        entry = self.ledger.entries.get(executor_id)
        return None if entry is None else entry.pod_in(self.states)

    def pod_name(self, entry: LedgerEntry) -> str:
        """Return the name of an executor's pod. An adopted pod may have another prefix than ours."""
        pod = entry.pod_in(self.states)
        return pod.name if pod is not None else ids.pod_name(self.pod_prefix, entry.executor_id)


def _finalized(executor_id: int, pod: Pod) -> HeldPod | None:
    """Return a pod that its finalizers will hold once its grace period is over, None if they will not."""
    finalizers, since = pod.metadata.finalizers, pod.metadata.deletion_timestamp
    return HeldPod(executor_id, pod.name, finalizers, since) if finalizers and since is not None else None
