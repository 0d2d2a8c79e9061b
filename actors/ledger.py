"""The ledger's rules: what each thing that happens to an executor means for the Backend's book, and for the driver.

Pure: every function takes the book and answers with the next one, and what is to be told. The book is what makes "told
exactly once" hold whatever restarts: an executor's end is told when its entry says that it was not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from immutables import Map

from actors.loss import LossKind, LossReason, never_started
from actors.messages import (
    DEFAULT_PROFILE,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    LedgerEntry,
)
from actors.pods import PodPending, PodRunning, PodTerminating

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.messages import Ledger, ToDriver
    from actors.pods import PodState

__all__ = ["Book"]


@dataclass(frozen=True, slots=True)
class Book:
    """The executors of one driver's life, and the ids it has given out."""

    entries: Ledger = field(default_factory=Map)
    next_id: int = 1
    first_id: int | None = None
    """The first id that this life requested; lower ones are an earlier life's, whose executors are taken over."""

    def requested(self, executor_ids: Iterable[int], profile: str) -> Book:
        """Ids are given out: from now on they are never used again."""
        ids = tuple(executor_ids)
        entries = self.entries.mutate()
        for executor_id in ids:
            if executor_id not in entries:  # an Allocator that hung and was replaced may wake up and repeat itself
                entries[executor_id] = LedgerEntry(executor_id, profile)
        first = min(ids) if self.first_id is None else self.first_id
        return replace(self, entries=entries.finish(), next_id=max(self.next_id, max(ids) + 1), first_id=first)

    def seen(self, executor_id: int, state: PodState, now: float) -> tuple[Book, ToDriver | None, bool]:
        """A snapshot shows an executor alive: the next book, what the driver hears, and whether it is one of ours.

        One that is not ours has an id that this life gave out and that is done with, or given up: its pod must go.
        """
        entry = self.entries.get(executor_id)
        if entry is None:
            if self.first_id is not None and self.first_id <= executor_id < self.next_id:
                return self, None, False
            entry = LedgerEntry(executor_id, state.pod.profile)
        if entry.given_up or entry.removed_at is not None:  # its pod, back, or another one
            return self, None, False
        told = _news(entry, state)
        changed = replace(
            entry,
            uid=state.pod.uid,
            pod=state.pod,
            told_at=now if told is not None and entry.told_at is None else entry.told_at,
            running=entry.running or isinstance(told, ExecutorRunning),
            terminating=entry.terminating or isinstance(told, ExecutorTerminating),
        )
        return self._with(changed), told, True

    def killed(self, executor_id: int, now: float) -> tuple[Book, ToDriver | None] | None:
        """The driver asks for an executor's end; None if there is no such executor, or it has ended."""
        entry = self.entries.get(executor_id)
        if entry is None or entry.removed_at is not None or entry.given_up:
            return None
        told = None if entry.terminating else ExecutorTerminating(executor_id, None, "killed by the driver")
        told_at = now if entry.told_at is None else entry.told_at
        return self._with(replace(entry, killed=True, terminating=True, told_at=told_at)), told

    def removed(
        self, executor_id: int, uid: str | None, reason: LossReason, now: float
    ) -> tuple[Book, ExecutorRemoved | None]:
        """An executor has ended. The driver hears it unless it did already, or the executor was never its business.

        That is one that was given up, another pod of that id, or one of an earlier life that had ended before this
        life began. One that ended before anybody saw it alive is told: the driver asked for it and should know why.
        """
        entry = self.entries.get(executor_id)
        if entry is None:
            return replace(self, next_id=max(self.next_id, executor_id + 1)), None
        other_pod = entry.uid is not None and uid is not None and entry.uid != uid
        if entry.removed_at is not None or entry.given_up or other_pod:
            return self, None
        book = self._with(replace(entry, uid=uid or entry.uid, removed_at=now))
        return book, ExecutorRemoved(executor_id, reason)

    def given_up(self, executor_id: int, why: str, now: float) -> tuple[Book, ExecutorRemoved | None]:
        """The Allocator waits no longer. The driver hears it only if it had heard of this executor before."""
        entry = self.entries.get(executor_id)
        if entry is None or entry.removed_at is not None or entry.given_up:
            return self, None
        book = self._with(replace(entry, given_up=True, removed_at=now))
        if entry.told_at is None:
            return book, None
        reason = never_started(executor_id, why)
        if entry.killed:
            reason = LossReason(LossKind.KILLED_BY_DRIVER, reason.exit_code, reason.caused_by_app, reason.message)
        return book, ExecutorRemoved(executor_id, reason)

    def registered(self, executor_id: int, now: float) -> Book | None:
        """The driver has its connection; None if there is no such executor, or it has ended."""
        entry = self.entries.get(executor_id)
        if entry is None or entry.removed_at is not None:
            return None
        told_at = now if entry.told_at is None else entry.told_at
        return self._with(replace(entry, registered_at=now, active=True, told_at=told_at))

    def disconnected(self, executor_id: int) -> Book | None:
        """Its connection is gone: inactive; None if there is no such executor, or it has ended."""
        entry = self.entries.get(executor_id)
        if entry is None or entry.removed_at is not None:
            return None
        return self._with(replace(entry, active=False))

    def forgotten(self, before: float) -> Book:
        """Without those that ended before a moment (monotonic)."""
        old = [e.executor_id for e in self.entries.values() if e.removed_at is not None and e.removed_at < before]
        if not old:
            return self
        entries = self.entries.mutate()
        for executor_id in old:
            del entries[executor_id]
        return replace(self, entries=entries.finish())

    def present(self) -> list[LedgerEntry]:
        """Executors that the driver was told of and that have not ended, by id."""
        entries = (entry for entry in self.entries.values() if entry.told_at is not None and entry.removed_at is None)
        return sorted(entries, key=lambda entry: entry.executor_id)

    def is_active(self, executor_id: int) -> bool:
        """Told of, not ended, not being killed, not disconnected."""
        entry = self.entries.get(executor_id)
        return (
            entry is not None
            and entry.told_at is not None
            and entry.removed_at is None
            and entry.active
            and not entry.killed
        )

    def registered_count(self, profile: str = DEFAULT_PROFILE) -> int:
        """How many of a profile are registered now."""
        return sum(
            entry.registered_at is not None and entry.removed_at is None and entry.active and entry.profile == profile
            for entry in self.entries.values()
        )

    def _with(self, entry: LedgerEntry) -> Book:
        next_id = max(self.next_id, entry.executor_id + 1)
        return replace(self, entries=self.entries.set(entry.executor_id, entry), next_id=next_id)


def _news(entry: LedgerEntry, state: PodState) -> ToDriver | None:
    """What the driver hears of a live executor: each of pending, running and terminating once.

    One that is first seen as it is about to go is told only if the driver asked for it: of an earlier life's it need
    not hear for the first time that it ends.
    """
    match state:
        case PodPending() if entry.told_at is None:
            return ExecutorPending(entry.executor_id, state.pod)
        case PodRunning() if not entry.running and not entry.terminating:
            return ExecutorRunning(entry.executor_id, state.pod)
        case PodTerminating() if not entry.terminating and entry.told_at is not None:
            deadline = state.pod.metadata.deletion_timestamp
            return ExecutorTerminating(entry.executor_id, deadline, f"pod {state.pod.name} is being deleted")
        case _:
            return None
