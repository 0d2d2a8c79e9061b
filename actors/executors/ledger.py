"""The ledger's rules: what each thing that happens to an executor means for the Backend's book, and for the driver.

Pure: every function takes the book and answers with the next one, and what is to be told. The book is what makes "told
exactly once" hold whatever restarts: an executor's end is told when its entry says that it was not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from immutables import Map

from actors.messages import (
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    LedgerEntry,
)
from actors.pods.loss import LossKind, LossReason, never_started
from actors.pods.pod import DEFAULT_PROFILE
from actors.pods.state import PodPending, PodRunning, PodTerminating

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from actors.messages import ExecutorKilled, LedgerEntries, ToDriver
    from actors.pods.state import PodState
    from actors.pods.stuck import StuckKind
    from actors.runtime import Moment

__all__ = ["Ledger"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The executors of one driver's life, and the ids it has given out."""

    entries: LedgerEntries = field(default_factory=Map)
    next_id: int = 1
    """Above every id that was ever given out, in whatever life: the lease remembers them. Without a lease an earlier
    life's are known by its pods: one whose pod was gone before this life began may be given out again."""
    first_id: int | None = None
    """The first id that this life could give out; lower ones are an earlier life's, whose executors are taken over."""
    last_id: int = 0
    """The last id that this life requested; higher ones are another driver's, from when it wrote in our place."""
    created: int = 0
    """Pods that were requested in this life, without those that the API refused to make."""
    registered_now: Map[str, int] = field(default_factory=Map)
    """How many of each profile are registered, counted as entries change: a question must not cost the whole book."""

    def requested(self, executor_ids: Iterable[int], profile: str) -> Ledger:
        """Ids are given out: from now on they are never used again."""
        ids = tuple(executor_ids)
        entries = self.entries.mutate()
        new = [i for i in ids if i not in entries]  # an Allocator that hung and was replaced may repeat itself
        for executor_id in new:
            entries[executor_id] = LedgerEntry(executor_id, profile)
        return replace(
            self,
            entries=entries.finish(),
            next_id=max(self.next_id, max(ids) + 1),
            first_id=min(ids) if self.first_id is None else self.first_id,
            last_id=max(self.last_id, *ids),
            created=self.created + len(new),
        )

    def begun(self) -> Ledger:
        """This life writes from now on, if it did not before: whatever is known by now is an earlier life's."""
        return self if self.first_id is not None else replace(self, first_id=self.next_id, last_id=self.next_id - 1)

    def counted_on(self, last_id: int) -> Ledger:
        """Ids up to this one were given out, by whomever."""
        return replace(self, next_id=max(self.next_id, last_id + 1))

    def gave_out(self, executor_id: int) -> bool:
        """This life requested an executor of this id."""
        return self.first_id is not None and self.first_id <= executor_id <= self.last_id

    def seen(
        self, executor_id: int, state: PodState, now: Moment, at: datetime | None = None
    ) -> tuple[Ledger, ToDriver | None, bool]:
        """A snapshot shows an executor alive: the next book, what the driver hears, and whether it is one of ours.

        One that is not ours has an id that this life gave out and that is done with, or given up: its pod must go. `at`
        is the same moment as `now`, in UTC: for how long one has run that is taken over its pod says.
        """
        entry = self.entries.get(executor_id)
        if entry is None:
            if self.gave_out(executor_id):
                return self, None, False
            entry = LedgerEntry(executor_id, state.pod.profile)
        if entry.removed_at is not None:  # its pod, back, or another one
            return self, None, False
        told = _news(entry, state)
        running_at = entry.running_at
        if isinstance(told, ExecutorRunning):
            running_at = now if self.gave_out(executor_id) or at is None else now - _ran_for(state, at)
        changed = replace(
            entry,
            uid=state.pod.uid,
            notified_at=now if told is not None and entry.notified_at is None else entry.notified_at,
            running=entry.running or isinstance(told, ExecutorRunning),
            running_at=running_at,
            terminating=entry.terminating or isinstance(told, ExecutorTerminating),
        )
        return self._with(changed), told, True

    def killed(self, kill: ExecutorKilled, now: Moment) -> tuple[Ledger, ExecutorKilled, ToDriver | None] | None:
        """The driver asks for an executor's end; None if there is no such executor, or it has ended.

        The kill that counts is the first.
        """
        entry = self.current(kill.executor_id)
        if entry is None:
            return None
        words = f"executor {kill.executor_id} {kill.message}"
        told = None if entry.terminating else ExecutorTerminating(kill.executor_id, None, words)
        kill = entry.killed or kill
        return (
            self._with(replace(entry, killed=kill, terminating=True, notified_at=_first(entry.notified_at, now))),
            kill,
            told,
        )

    def killed_ids(self) -> frozenset[int]:
        """Those whose end the driver asked for and that have not ended."""
        entries = self.entries.values()
        return frozenset(e.executor_id for e in entries if e.killed is not None and e.removed_at is None)

    def decommissioned(self, executor_id: int) -> Ledger | None:
        """The driver lets an executor finish; None if there is no such executor, or it has ended."""
        entry = self.current(executor_id)
        return None if entry is None else self._with(replace(entry, decommissioned=True))

    def current(self, executor_id: int) -> LedgerEntry | None:
        """Return the entry of an executor that has neither ended nor been abandoned."""
        entry = self.entries.get(executor_id)
        return entry if entry is not None and entry.removed_at is None else None

    def stuck(self, executor_id: int, uid: str, kind: StuckKind) -> Ledger | None:
        """Something keeps an executor from running; None if that was told, or it has ended, or is another pod."""
        entry = self.current(executor_id)
        if entry is None or entry.uid != uid or kind in entry.stuck:
            return None
        return self._with(replace(entry, stuck=entry.stuck | {kind}))

    def removed(
        self, executor_id: int, uid: str | None, reason: LossReason, now: Moment
    ) -> tuple[Ledger, ExecutorRemoved | None]:
        """An executor has ended. The driver hears it unless it did already, or the executor was never its business.

        That is one that was given up, another pod of that id, or one of an earlier life that had ended before this
        life began. One that ended before anybody saw it alive is told: the driver asked for it and should know why.
        """
        entry = self.entries.get(executor_id)
        if entry is None:
            return replace(self, next_id=max(self.next_id, executor_id + 1)), None
        other_pod = entry.uid is not None and uid is not None and entry.uid != uid
        if entry.removed_at is not None or other_pod:
            return self, None
        book = self._with(replace(entry, uid=uid or entry.uid, removed_at=now))
        return book, ExecutorRemoved(executor_id, reason)

    def abandoned(
        self, executor_id: int, why: str, now: Moment, *, created: bool = True
    ) -> tuple[Ledger, ExecutorRemoved | None]:
        """The Allocator waits no longer. The driver hears it only if it had heard of this executor before."""
        entry = self.current(executor_id)
        if entry is None:
            return self, None
        book = self._with(replace(entry, abandoned=True, removed_at=now))
        if not created:
            book = replace(book, created=book.created - 1)
        if entry.notified_at is None:
            return book, None
        reason = never_started(executor_id, why)
        if entry.killed is not None:
            reason = LossReason(LossKind.KILLED_BY_DRIVER, reason.exit_code, reason.caused_by_app, reason.message)
        return book, ExecutorRemoved(executor_id, reason)

    def registered(self, executor_id: int, now: Moment) -> Ledger | None:
        """The driver has its connection; None if there is no such executor, or it has ended."""
        entry = self.current(executor_id)
        if entry is None:
            return None
        notified_at = _first(entry.notified_at, now)
        return self._with(replace(entry, registered_at=now, active=True, disconnected_at=None, notified_at=notified_at))

    def disconnected(self, executor_id: int, now: Moment) -> Ledger | None:
        """Its connection is gone: inactive; None if there is no such executor, or it has ended."""
        entry = self.current(executor_id)
        if entry is None:
            return None
        since = _first(entry.disconnected_at, now)
        return self._with(replace(entry, active=False, disconnected_at=since, disconnects=entry.disconnects + 1))

    def forgotten(self, before: Moment) -> Ledger:
        """Without those that ended before a moment.

        An id that this life gave out is known by its number; those of an earlier life, or of another driver, are kept,
        lest one whose pod is still to be seen is taken for new.
        """
        return self.without(i for i in self._ended(before) if self.gave_out(i))

    def others_ended(self, before: Moment) -> frozenset[int]:
        """Another driver's executors that ended before a moment: while it writes they come to no end.

        Those of an earlier life are no more than there were when this one began to write.
        """
        ended = self._ended(before)
        return frozenset(i for i in ended if self.first_id is None or i > self.last_id)

    def without(self, executor_ids: Iterable[int]) -> Ledger:
        """Without these, which have ended."""
        ids = [executor_id for executor_id in executor_ids if executor_id in self.entries]
        if not ids:
            return self
        entries = self.entries.mutate()
        for executor_id in ids:
            del entries[executor_id]
        return replace(self, entries=entries.finish())

    def _ended(self, before: Moment) -> list[int]:
        entries = self.entries.values()
        return [e.executor_id for e in entries if e.removed_at is not None and e.removed_at < before]

    def present(self) -> list[LedgerEntry]:
        """Executors that the driver was told of and that have not ended, by id."""
        entries = (entry for entry in self.entries.values() if entry.is_present)
        return sorted(entries, key=lambda entry: entry.executor_id)

    def is_active(self, executor_id: int) -> bool:
        """Told of, not ended, not being killed, not disconnected."""
        entry = self.current(executor_id)
        return entry is not None and entry.notified_at is not None and entry.active and entry.killed is None

    def is_excluded(self, executor_id: int) -> bool:
        """Given up, ended, or none of ours: should it call, it must be turned away."""
        return self.current(executor_id) is None

    def registered_count(self, profile: str = DEFAULT_PROFILE) -> int:
        """How many of a profile are registered now."""
        return self.registered_now.get(profile, 0)

    def _with(self, entry: LedgerEntry) -> Ledger:
        next_id = max(self.next_id, entry.executor_id + 1)
        more = _is_registered(entry) - _is_registered(self.entries.get(entry.executor_id))
        counts = self.registered_now
        if more:
            counts = counts.set(entry.profile, counts.get(entry.profile, 0) + more)
        entries = self.entries.set(entry.executor_id, entry)
        return replace(self, entries=entries, next_id=next_id, registered_now=counts)


def _first(earlier: Moment | None, now: Moment) -> Moment:
    return now if earlier is None else earlier


def _is_registered(entry: LedgerEntry | None) -> bool:
    return entry is not None and entry.registered_at is not None and entry.removed_at is None and entry.active


def _ran_for(state: PodState, at: datetime) -> float:
    """Seconds since its pod was started, as far as that is known; two clocks may disagree."""
    started = state.pod.status.start_time if state.pod.status is not None else None
    return 0.0 if started is None else max(0.0, (at - started).total_seconds())


def _news(entry: LedgerEntry, state: PodState) -> ToDriver | None:
    """What the driver hears of a live executor: each of pending, running and terminating once.

    One that is first seen as it is about to go is told only if the driver asked for it: of an earlier life's it need
    not hear for the first time that it ends.
    """
    match state:
        case PodPending() if entry.notified_at is None:
            return ExecutorPending(entry.executor_id, state.pod)
        case PodRunning() if not entry.running and not entry.terminating:
            return ExecutorRunning(entry.executor_id, state.pod)
        case PodTerminating() if not entry.terminating and entry.notified_at is not None:
            deadline = state.pod.metadata.deletion_timestamp
            return ExecutorTerminating(entry.executor_id, deadline, f"pod {state.pod.name} is being deleted")
        case _:
            return None
