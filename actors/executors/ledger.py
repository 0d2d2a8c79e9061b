"""The ledger: what each event of an executor changes in the Backend's record, and what the driver is notified of.

Pure: every method returns the next ledger, with the message for the driver if there is one. Thanks to the ledger each
end is reported exactly once, whatever restarts: only an end that is not recorded yet is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from actors.messages import ExecutorPending, ExecutorRemoved, ExecutorRunning, ExecutorTerminating
from actors.messages.internal import LedgerEntries, LedgerEntry
from actors.pods.id_map import IdMap
from actors.pods.id_ranges import IdRanges
from actors.pods.ids import believed
from actors.pods.loss import LossKind, LossReason, never_started, scaled_down
from actors.pods.pod import DEFAULT_PROFILE
from actors.pods.state import PodPending, PodRunning, PodTerminating
from actors.runtime import elapsed
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from actors.messages import Suspected, ToDriver
    from actors.messages.internal import ExecutorKilled
    from actors.pods.pod import Pod
    from actors.pods.state import PodState
    from actors.pods.stuck import StuckKind
    from actors.runtime import Moment

__all__ = ["Ledger", "ends", "why_terminating"]

_NO_STEPS: Final[Mapping[int, int]] = MappingProxyType({})


class Ledger(msgspec.Struct, frozen=True):
    """The executors of one incarnation of a driver, and the ids that it allocated."""

    entries: LedgerEntries = msgspec.field(default_factory=IdMap)
    next_id: int = 1
    """Above every id that any driver of this `app_id` allocated, which the lease records. Without a lease, ids of
    previous drivers are known by their pods: one whose pod was gone before this driver began may be allocated again."""
    last_id: int | None = None
    """The last id that this driver requested, or that was known when it began; None until then. Higher ones are another
    driver's, which held the lease in between."""
    requested_ids: IdRanges = IdRanges()
    """All ids that this driver requested, however long ago."""
    created: int = 0
    """Pods that this driver requested, without those that the API refused to create."""
    registered_now: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many of each profile are registered, counted as entries change: no question iterates over the ledger."""
    counted: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many of each profile count toward its target (`LedgerEntry.counts`), counted in the same way."""

    def requested(
        self, executor_ids: Iterable[int], profile: str, at: datetime, memory_steps: Mapping[int, int] = _NO_STEPS
    ) -> Ledger:
        """Add requested executors. Their ids are never used again."""
        ids = tuple(executor_ids)
        new = [i for i in ids if i not in self.entries]  # an Allocator that hung and was replaced may repeat itself
        entries = {i: LedgerEntry(i, profile, memory_step=memory_steps.get(i, 0), since=at) for i in new}
        return structs.replace(
            self,
            entries=self.entries.with_changes(entries),
            next_id=max(self.next_id, max(ids) + 1),
            last_id=max(self.last_id or 0, *ids),
            requested_ids=self.requested_ids.union(IdRanges.of(ids)),
            created=self.created + len(new),
            counted=_more(self.counted, profile, len(new)),
        )

    @property
    def has_begun(self) -> bool:
        """Whether this driver writes, or has written: executors are its own."""
        return self.last_id is not None

    def begun(self) -> Ledger:
        """This driver writes from now on. At its first time, all known executors are previous drivers'."""
        return self if self.has_begun else structs.replace(self, last_id=self.next_id - 1)

    def resumed_from(self, last_id: int) -> Ledger:
        """Allocate no id up to this one: some driver has."""
        return structs.replace(self, next_id=max(self.next_id, last_id + 1))

    def allocated(self, executor_id: int) -> bool:
        """Whether this driver requested an executor of this id."""
        return executor_id in self.requested_ids

    def seen(
        self, executor_id: int, state: PodState, now: Moment, at: datetime
    ) -> tuple[Ledger, ToDriver | None, bool]:
        """An executor is alive in the snapshot. Return the next ledger, the driver's message, and whether it is ours.

        If not, its id is abandoned, or belongs to an executor of this driver that has ended: its pod must be deleted.
        `at` is `now` in UTC.
        """
        entry = self.entries.get(executor_id)
        if entry is None:
            if self.allocated(executor_id):
                return self, None, False
            entry = LedgerEntry(executor_id, state.pod.profile, memory_step=state.pod.memory_step)
        if entry.removed_at is not None:  # its pod reappeared, or another pod
            return self, None, False
        message = _changed(entry, state)
        running_at = entry.running_at
        if isinstance(message, ExecutorRunning):
            running_at = now if self.allocated(executor_id) else now - _ran_for(state, at)
        running = entry.running or isinstance(message, ExecutorRunning)
        terminating = entry.terminating or isinstance(state, PodTerminating)
        is_new = not entry.terminating and (entry.uid is None or terminating or running is not entry.running)
        changed = structs.replace(
            entry,
            uid=state.pod.uid,
            notified_at=entry.notified_at if message is None else _first(entry.notified_at, now),
            running=running,
            running_at=running_at,
            terminating=terminating,
            since=at if is_new else entry.since,
            scaled_down=entry.scaled_down and isinstance(state, PodPending | PodTerminating),
        )
        return self._with(changed), message, True

    def killed(
        self, kill: ExecutorKilled, now: Moment, pod: Pod | None = None
    ) -> tuple[Ledger, ExecutorKilled, ToDriver | None]:
        """The driver kills an executor that has not ended. A repeated kill can only bring its deletion forward.

        The driver is notified of the first kill, and whenever the deletion comes forward.
        """
        entry, earlier, at = self.entries[kill.executor_id], self.entries[kill.executor_id].killed, kill.at
        is_news = not entry.terminating or entry.notified_at is None
        if earlier is not None:
            is_news = is_news or kill.delete_at < earlier.delete_at
            retired, delete_at = earlier.retired or kill.retired, min(earlier.delete_at, kill.delete_at)
            kill = replace(earlier, delete_at=delete_at, retired=retired)
        message = None
        if is_news:
            message = _terminating(entry, pod, at + elapsed(now, kill.delete_at), _why_killed(kill), kill.retired)
        changed = structs.replace(
            entry,
            killed=kill,
            terminating=True,
            notified_at=_first(entry.notified_at, now),
            since=entry.since if entry.terminating else at,
        )
        return self._with(changed), kill, message

    def killed_ids(self) -> frozenset[int]:
        """Return the killed executors that have not ended, without retired ones that may still drain."""
        entries = self.entries.values()
        killed = (e for e in entries if e.killed is not None and (e.drained or not e.killed.retired))
        return frozenset(e.executor_id for e in killed if e.removed_at is None)

    def drained(self, executor_id: int) -> Ledger | None:
        """A terminating executor is drained. None if it is not terminating."""
        entry = self.current(executor_id)
        return self._with(structs.replace(entry, drained=True)) if entry is not None and entry.terminating else None

    def decommissioned(self, executor_id: int) -> Ledger:
        """The driver lets an executor finish, which has not ended."""
        return self._with(structs.replace(self.entries[executor_id], decommissioned=True))

    def marked(self, executor_id: int, *, busy: bool) -> Ledger:
        """An executor is busy or idle, as the driver says."""
        entry = self.current(executor_id)
        return self if entry is None or entry.busy == busy else self._with(structs.replace(entry, busy=busy))

    def scaled_down(self, pods: Mapping[int, str]) -> Ledger:
        """The Allocator deletes these executors as excess (id → the pod's UID), unless they run meanwhile."""
        ledger = self
        for executor_id, uid in pods.items():
            entry = ledger.current(executor_id)
            if entry is not None and entry.uid in (None, uid) and not entry.running:
                ledger = ledger._with(structs.replace(entry, scaled_down=True, uid=uid))
        return ledger

    def current(self, executor_id: int) -> LedgerEntry | None:
        """Return the entry of an executor that has neither ended nor been abandoned."""
        entry = self.entries.get(executor_id)
        return entry if entry is not None and entry.removed_at is None else None

    def stuck(self, executor_id: int, uid: str, kind: StuckKind) -> Ledger | None:
        """An executor is stuck. None if that was reported, or if it has ended or has another pod."""
        entry = self.current(executor_id)
        if entry is None or entry.uid != uid or kind in entry.stuck:
            return None
        return self._with(structs.replace(entry, stuck=entry.stuck | {kind}))

    def removed(
        self,
        executor_id: int,
        uid: str | None,
        reason: LossReason,
        now: Moment,
        at: datetime,
        *,
        pod: Pod | None = None,
        earlier: Pod | None = None,
    ) -> tuple[Ledger, tuple[ToDriver, ...]]:
        """An executor has ended. The driver is notified once, by `ends`.

        `pod` is the last one, `earlier` what was observed before: a pod that ended may have lost its node and IP.
        It is not notified of an abandoned executor, of another pod with the same id, or of an executor that ended
        before this driver began.
        """
        entry = self.entries.get(executor_id)
        if entry is None:
            return structs.replace(self, next_id=max(self.next_id, believed(executor_id) + 1)), ()
        other_pod = entry.uid is not None and uid is not None and entry.uid != uid
        if entry.removed_at is not None or other_pod:
            return self, ()
        ledger = self._with(structs.replace(entry, uid=uid or entry.uid, removed_at=now, since=at))
        return ledger, ends(entry, reason, pod, earlier)

    def abandoned(
        self,
        executor_id: int,
        reason: str,
        now: Moment,
        at: datetime,
        *,
        created: bool = True,
        pod: Pod | None = None,
    ) -> tuple[Ledger, tuple[ToDriver, ...]]:
        """The Allocator has abandoned an executor. The driver is notified only if it knows it."""
        entry = self.current(executor_id)
        if entry is None:
            return self, ()
        ledger = self._with(structs.replace(entry, abandoned=True, removed_at=now, since=at))
        if not created:
            ledger = structs.replace(ledger, created=ledger.created - 1)
        if not entry.is_known:
            return ledger, ()
        loss = scaled_down(executor_id) if entry.running else never_started(executor_id, reason)
        if entry.killed is not None:
            loss = LossReason(LossKind.KILLED_BY_DRIVER, loss.exit_code, loss.caused_by_app, loss.message)
        return ledger, ends(entry, loss, pod)

    def registered(self, executor_id: int, now: Moment) -> Ledger | None:
        """An executor has connected. None if it is excluded."""
        entry = self.current(executor_id)
        if entry is None or entry.scaled_down:
            return None
        connected = structs.replace(entry, registered_at=now, active=True, disconnected_at=None, suspected=None)
        return self._with(connected)

    def disconnected(self, executor_id: int, now: Moment, suspected: Suspected | None = None) -> Ledger | None:
        """An executor's connection is lost: it is inactive. None if it is unknown or has ended."""
        entry = self.current(executor_id)
        if entry is None:
            return None
        lost = structs.replace(
            entry,
            active=False,
            disconnected_at=_first(entry.disconnected_at, now),
            suspected=suspected or entry.suspected,
            disconnects=entry.disconnects + 1,
        )
        return self._with(lost)

    def forgotten(self, before: Moment) -> Ledger:
        """Drop this driver's executors that ended before a moment: their ids are known by their numbers.

        Keep other drivers': otherwise one whose pod is still in the snapshot would be taken for new.
        """
        return self.without(i for i in self._ended(before) if self.allocated(i))

    def others_ended(self, before: Moment) -> frozenset[int]:
        """Return another driver's executors that ended before a moment: while it writes, their number grows.

        Executors of previous drivers are not included: their number is fixed once this driver writes.
        """
        ended = self._ended(before)
        return frozenset(i for i in ended if self.last_id is None or i > self.last_id)

    def without(self, executor_ids: Iterable[int]) -> Ledger:
        """Drop these executors, which have ended."""
        ids = [executor_id for executor_id in executor_ids if executor_id in self.entries]
        if not ids:
            return self
        return structs.replace(self, entries=self.entries.with_changes(dict.fromkeys(ids)))

    def _ended(self, before: Moment) -> list[int]:
        entries = self.entries.values()
        return [e.executor_id for e in entries if e.removed_at is not None and e.removed_at < before]

    def present(self) -> list[LedgerEntry]:
        """Return the executors that the driver knows and that have not ended, by id."""
        entries = (entry for entry in self.entries.values() if entry.is_present)
        return sorted(entries, key=lambda entry: entry.executor_id)

    def is_active(self, executor_id: int) -> bool:
        """Whether the driver knows it, and it is not ended, killed, scaled down or disconnected."""
        entry = self.current(executor_id)
        if entry is None or entry.scaled_down:
            return False
        return entry.is_known and entry.active and entry.killed is None

    def is_excluded(self, executor_id: int) -> bool:
        """Whether it is abandoned, scaled down, ended or unknown: its connection must be refused."""
        entry = self.current(executor_id)
        return entry is None or entry.scaled_down

    def registered_count(self, profile: str = DEFAULT_PROFILE) -> int:
        """Return how many of a profile are registered now."""
        return self.registered_now.get(profile, 0)

    def _with(self, entry: LedgerEntry) -> Ledger:
        next_id = max(self.next_id, believed(entry.executor_id) + 1)
        before = self.entries.get(entry.executor_id)
        registered = entry.is_registered - (before is not None and before.is_registered)
        counted = entry.counts - (before is not None and before.counts)
        return structs.replace(
            self,
            entries=self.entries.with_changes({entry.executor_id: entry}),
            next_id=next_id,
            registered_now=_more(self.registered_now, entry.profile, registered),
            counted=_more(self.counted, entry.profile, counted),
        )


def _more(counts: Mapping[str, int], profile: str, more: int) -> Mapping[str, int]:
    return {**counts, profile: counts.get(profile, 0) + more} if more else counts


def _first(earlier: Moment | None, now: Moment) -> Moment:
    return now if earlier is None else earlier


def ends(entry: LedgerEntry, reason: LossReason, *pods: Pod | None) -> tuple[ToDriver, ...]:
    """Return the driver's messages about an end: `ExecutorRemoved`, for executors that the driver was notified of.

    If it was not notified of the executor before, `ExecutorPending` comes first. If there is no pod for that, it is not
    notified, unless it has registered the executor. `pods` has the last observed one first: a pod that ended may have
    lost its node and IP.
    """
    known = [pod for pod in pods if pod is not None]
    node = ip = None
    for pod in known:
        node, ip = node or pod.node, ip or pod.ip
    end = ExecutorRemoved(entry.executor_id, reason, entry.profile, node, ip)
    if entry.notified_at is None and known:
        return ExecutorPending(entry.executor_id, known[0]), end
    return (end,) if entry.is_known else ()


def _terminating(
    entry: LedgerEntry, pod: Pod | None, deadline: datetime | None, reason: str, retiring: bool = False
) -> ExecutorTerminating:
    node, ip = (None, None) if pod is None else (pod.node, pod.ip)
    return ExecutorTerminating(entry.executor_id, deadline, reason, entry.profile, node, ip, retiring)


def why_terminating(entry: LedgerEntry, pod: Pod | None) -> str | None:
    """Return why an executor is terminating, as its `ExecutorTerminating` says it; None if nobody knows."""
    if entry.killed is not None:
        return _why_killed(entry.killed)
    return None if pod is None else _why_deleted(pod)


def _why_killed(kill: ExecutorKilled) -> str:
    return f"executor {kill.executor_id} {kill.message}"


def _why_deleted(pod: Pod) -> str:
    return f"pod {one_line(pod.name)} is being deleted"


def _ran_for(state: PodState, at: datetime) -> float:
    """Return the seconds since its pod was started, 0 if unknown or if two clocks disagree."""
    started = state.pod.start_time
    return 0.0 if started is None else max(0.0, (at - started).total_seconds())


def _changed(entry: LedgerEntry, state: PodState) -> ToDriver | None:
    """Return the driver's message about a live executor: each of pending, running and terminating once.

    The driver is not notified that an executor terminates which it does not know, such as a previous driver's.
    """
    match state:
        case PodPending() if entry.notified_at is None:
            return ExecutorPending(entry.executor_id, state.pod)
        case PodRunning() if not entry.running and not entry.terminating:
            return ExecutorRunning(entry.executor_id, state.pod)
        case PodTerminating() if not entry.terminating and entry.is_known:
            deadline = state.pod.metadata.deletion_timestamp
            return _terminating(entry, state.pod, deadline, _why_deleted(state.pod))
        case _:
            return None
