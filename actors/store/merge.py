"""The rules that merge events and LISTs into the snapshot, pod by pod.

Events and LISTs arrive late, in any order, and sometimes from a stale replica. The rules decide which observation of a
pod is the later one, so that no pod goes back in time and each end is reported once. A `Merge` is one step from one
immutable `History` to the next.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from actors.kube.resource_version import is_later, is_old, passed
from actors.pods.ids import id_in_name
from actors.pods.pod import APP_ID_LABEL, executor_id
from actors.pods.snapshot import Ended, SnapshotEdit
from actors.pods.state import (
    STRANGE,
    PodDeleted,
    PodFailed,
    PodRunning,
    PodSucceeded,
    begins,
    classify,
    is_urgent,
    malformed,
    runs_on,
    surely_runs_on,
)
from actors.store.history import Absent, History, Merged, Tombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from actors.pods.pod import Pod, PodEvent
    from actors.pods.state import PodState
    from actors.runtime import Moment

__all__ = ["Merge", "last_seen"]

UNSELECTED: Final = "unselected"
"""Stands for all pods that our selector does not match among the UIDs set aside: one is logged after each LIST."""


class Merge:
    """One step from a history to the next: one LIST, or any number of reads of a watch stream.

    Each step copies the parts of the snapshot that it changes, while an event within a step costs next to nothing: the
    store keeps a step open until a batch is due. A step is mutable and used up by `finish`; the history it began with
    never changes.
    """

    def __init__(self, history: History, now: Moment = math.inf) -> None:
        self._history = history
        self._now = now
        self.progress = history.progress.copy()
        self._edit = SnapshotEdit(history.snapshot)
        self._absent = dict(history.absent)
        self._absent_uids = {absent.executor_id: uid for uid, absent in history.absent.items()}
        """By executor id: pods of `_absent`, and some that are not absent any more."""
        self._tombstones = dict(history.tombstones)
        self._set_aside = set(history.set_aside)
        self._strangers = dict(history.strangers)
        self._changed: set[int] = set()
        self._appeared: set[int] = set()
        self._ended: list[Ended] = []
        self.malformed: list[Pod] = []
        """See `Merged.malformed`."""
        self.strange: list[Pod] = []
        """See `Merged.strange`."""
        self.urgent = False
        """See `Merged.urgent`."""
        self.begun = False
        """See `Merged.begun`."""

    # ── reads of a watch stream ──────────────────────────────────────────────────────────────────────────────────

    def read(self, events: Sequence[PodEvent], resource_version: str, stream: int, now: Moment) -> bool:
        """Merge one read of a watch stream; no events mean a bookmark. Return whether the read counts.

        Reads of other streams than the current one are dropped. The newest LIST of WatchSource starts the current
        stream.
        """
        progress = self.progress
        if stream != progress.stream or progress.position is None:
            return False
        self._now = now
        for event in events:
            self._event(event)
        if events:
            progress.event_at = now
        if not is_later(progress.position, resource_version):
            progress.position = resource_version
        progress.see(resource_version, now)
        self._end_absent()
        return True

    def _event(self, event: PodEvent) -> None:
        """Merge one event."""
        pod = event.pod
        number = pod.named_id or id_in_name(pod.metadata.name)
        state = self._edit.get(number) if number is not None else None
        if number is None or state is None or not _is_same(state.pod, pod):
            self._event_of_other(event)
        elif is_old(pod.resource_version, state.pod.resource_version):
            return
        elif event.type == "DELETED":
            self._end_observed(number, event, self._edit.drop(number))
        elif surely_runs_on(state, pod):
            self._edit.renew(number, PodRunning(pod))
        else:
            self._put(number, pod, state)

    def _event_of_other(self, event: PodEvent) -> None:
        """Merge an event about a pod that the snapshot does not have."""
        pod = event.pod
        if (absent := self._absent.get(pod.uid)) is not None:
            self._absent_event(event, absent)
        elif not self._is_before_tombstone(pod):
            self._new_event(event)

    def _absent_event(self, event: PodEvent, absent: Absent) -> None:
        """An event about an absent pod: its end, its last state, or its return if it is later than the LIST."""
        pod = event.pod
        if event.type == "DELETED":
            del self._absent[pod.uid]
            self._end_observed(absent.executor_id, event, absent.state)
        elif self._valid_id(pod) is None:
            return
        elif not self._is_before_list(pod):
            self._add_again(pod, absent)
        elif not is_old(pod.resource_version, absent.state.pod.resource_version):
            state = _after(absent.state, classify(pod, self._history.rules))
            self._absent[pod.uid] = replace(absent, state=state)

    def _new_event(self, event: PodEvent) -> None:
        """An event about a pod that the snapshot does not have.

        If the newest LIST is later than the event, the pod is gone: do not add it.
        """
        pod = event.pod
        number = self._id_of_ended(pod) if event.type == "DELETED" else self._valid_id(pod)
        is_usable = number is not None and not self._is_copy(number, self._edit.get(number), pod)
        if event.type == "DELETED":
            self._set_aside.discard(pod.uid)
            self._strangers.pop(pod.uid, None)
        if number is None or not is_usable:
            return
        if event.type == "DELETED":
            self._appeared.add(number)
            self._end_observed(number, event, None)
        elif not self._is_before_list(pod):
            self._add(number, pod)
        elif pod.uid not in self._set_aside:  # else the LIST has it, malformed by then
            self._appeared.add(number)
            self._tombstones.pop(pod.uid, None)
            self._set_absent(pod.uid, Absent(number, classify(pod, self._history.rules)))

    def _is_before_list(self, pod: Pod) -> bool:
        """Whether the newest LIST is later than this observation of the pod."""
        floor = self.progress.floor
        return floor is not None and is_old(pod.resource_version, floor)

    def _is_before_tombstone(self, pod: Pod) -> bool:
        """Whether the pod ended and this observation is older. A pod that matches our selector again is later."""
        tombstone = self._tombstones.get(pod.uid)
        return tombstone is not None and not is_later(pod.resource_version, tombstone.version)

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────

    def list(self, others: set[str], missing: Iterable[int], differing: Iterable[Pod], version: str) -> None:
        """Apply a LIST: it decides about each pod, also by absence, unless the store has a version above the LIST's.

        Args:
            others: the UIDs of all its pods that are not, as the same objects, in the snapshot.
            missing: the executors of the snapshot whose pods are not, as the same objects, in the LIST.
            differing: its pods that differ from the snapshot.
            version: its version.
        """
        self._infer_ends({uid: absent for uid, absent in self._history.absent.items() if uid not in others})
        for number in missing:
            pod = self._history.snapshot.states[number].pod
            if pod.uid not in others and not is_later(pod.resource_version, version):
                self._set_absent(pod.uid, Absent(number, self._edit.drop(number)))
        for pod in differing:
            self._listed(pod)
        self._forget_set_aside(others)
        self.progress.floor = version
        self.purge()

    def reset_to(self, pods: Sequence[Pod], version: str) -> None:
        """Apply the first LIST of a new history: pods that it lacks have ended, and no DELETED event will come."""
        listed = {pod.uid for pod in pods}
        gone = {uid: absent for uid, absent in self._history.absent.items() if uid not in listed}
        for number, state in self._history.snapshot.states.items():
            if state.pod.uid not in listed:
                gone[state.pod.uid] = Absent(number, self._edit.drop(number))
        self._absent = {}
        self._infer_ends(gone)
        for pod in pods:
            last = last_seen(self._edit.get, pod)
            if last is not None:  # its version is of the old history, so the LIST is later
                self._put(last[0], pod, last[1])
            else:
                self._listed(pod)
        self._forget_set_aside(listed)
        self.progress.floor = version

    def _listed(self, pod: Pod) -> None:
        last, absent = last_seen(self._edit.get, pod), self._absent.get(pod.uid)
        if last is not None:
            number, state = last
            if not is_old(pod.resource_version, state.pod.resource_version):
                self._put(number, pod, state)
            return
        new = self._valid_id(pod)
        if new is None:
            return
        if absent is not None:
            if not self._is_before_list(pod):
                self._add_again(pod, absent)
        elif not self._is_before_tombstone(pod):
            self._add(new, pod)

    def _forget_set_aside(self, listed: set[str]) -> None:
        """Forget the malformed pods and the strangers' ones that are gone."""
        self._set_aside -= self._history.set_aside - listed
        for uid in self._history.strangers.keys() - listed:
            self._strangers.pop(uid, None)

    def purge(self) -> None:
        """Forget the tombstones that both floor and position have passed. Costs O(tombstones) per LIST."""
        for uid, tombstone in self._history.tombstones.items():
            if self.progress.stream_has_passed(tombstone.version) and passed(self.progress.floor, tombstone.version):
                self._tombstones.pop(uid, None)

    # ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> Merged:
        """Finish the step and return its result."""
        self._end_absent()
        progress = self.progress
        snapshot = self._edit.finish(progress.version, progress.full_sync_at)
        history = History(
            self._history.rules,
            snapshot,
            progress,
            self._absent,
            self._tombstones,
            self._set_aside,
            self._history.adopts,
            self._history.known,
            self._strangers,
        )
        return Merged(
            history,
            changed=frozenset(number for number in self._changed if number in snapshot.states),
            appeared=frozenset(self._appeared),
            ended=tuple(self._ended),
            malformed=tuple(self.malformed),
            strange=tuple(self.strange),
            urgent=self.urgent,
            begun=self.begun,
        )

    def _end_absent(self) -> None:
        """End the absent pods whose DELETED events can no longer come."""
        if self._absent and self.progress.stream_has_passed(self.progress.floor):
            self._infer_ends(self._absent)

    def _infer_ends(self, absent: Mapping[str, Absent]) -> None:
        """Infer the end of these pods without their DELETED events, in the order of their executor ids."""
        for uid, one in sorted(absent.items(), key=lambda item: item[1].executor_id):
            self._absent.pop(uid, None)
            self._add_end(Ended(one.executor_id, uid, _end_state(one.state)))
            if self.progress.floor is not None:
                self._add_tombstone(uid, self.progress.floor)

    def _set_absent(self, uid: str, absent: Absent) -> None:
        self._absent[uid] = absent
        self._absent_uids[absent.executor_id] = uid

    def _add_again(self, pod: Pod, absent: Absent) -> None:
        """Put an absent pod back into the snapshot, unless another pod has its executor id."""
        del self._absent[pod.uid]
        if not self._add(absent.executor_id, pod, absent.state):
            self._infer_ends({pod.uid: absent})

    def _valid_id(self, pod: Pod) -> int | None:
        """Return the pod's executor id; None if the pod is malformed or a stranger's, which is recorded."""
        reason = malformed(pod, self._history.rules.app_id)
        if reason is not None:
            self._put_aside(pod, UNSELECTED if reason is STRANGE else pod.uid)
            return None
        number = executor_id(pod)
        if number is None or not self._is_strangers(number, pod.uid):
            return number
        if pod.uid not in self._strangers:
            self._strangers[pod.uid] = number
            self._appeared.add(number)
            self.strange.append(pod)
        return None

    def _id_of_ended(self, pod: Pod) -> int | None:
        """Return the executor id of a pod that was deleted or left our selector; None if it was none of our fleet."""
        app_id = self._history.rules.app_id
        is_strange = app_id is not None and pod.labels.get(APP_ID_LABEL, app_id) != app_id
        number = executor_id(pod) if not is_strange and malformed(pod) is None else None
        return None if number is None or self._is_strangers(number, pod.uid) else number

    def _is_strangers(self, number: int, uid: str) -> bool:
        """Whether a pod with this executor id, which the snapshot does not have, is a stranger's."""
        history = self._history
        return uid in self._strangers or not (history.adopts or number in history.known)

    def _is_copy(self, number: int, holder: PodState | None, pod: Pod) -> bool:
        """Whether a pod of another name has this executor id: its label was copied, and the first pod keeps the id."""
        if holder is None or holder.pod.name == pod.name:
            return False
        self._put_aside(pod, pod.uid)
        if not self._history.adopts:
            self._strangers[pod.uid] = number
        return True

    def _put_aside(self, pod: Pod, key: str) -> None:
        if key not in self._set_aside:
            self._set_aside.add(key)
            self.malformed.append(pod)

    def _add(self, number: int, pod: Pod, earlier: PodState | None = None) -> bool:
        """Add the pod to the snapshot. Return False if another pod has its place."""
        if not self._makes_room(number, pod):
            return False
        self._appeared.add(number)
        self._tombstones.pop(pod.uid, None)
        self._set_aside.discard(pod.uid)
        self._put(number, pod, self._edit.get(number), earlier)
        return True

    def _put(self, number: int, pod: Pod, before: PodState | None, earlier: PodState | None = None) -> None:
        """Set the state of a pod in the snapshot, `before` until now; `earlier` is its own while it was absent."""
        state = _after(earlier or before, classify(pod, self._history.rules))
        if runs_on(before, state):
            self._edit.renew(number, state)
            return
        self._edit.put(number, state, before)
        self._changed.add(number)
        self.begun = self.begun or begins(before, state)
        self.urgent = self.urgent or is_urgent(None if before is None else before.pod, pod, deleted=False)

    def _makes_room(self, number: int, pod: Pod) -> bool:
        """End the pod that has this executor id, absent or not, if it has the name of a later one: only one can exist.

        Return False if it keeps the id.
        """
        uid = self._absent_uids.get(number)
        absent = self._absent.get(uid) if uid is not None else None
        holder = self._edit.get(number) if absent is None else absent.state
        if holder is None:
            return True
        if self._is_copy(number, holder, pod) or is_old(pod.resource_version, holder.pod.resource_version):
            return False
        if absent is None:
            self._edit.drop(number)
        else:
            del self._absent[holder.pod.uid]
        self._add_end(Ended(number, holder.pod.uid, _end_state(holder)))
        self._add_tombstone(holder.pod.uid, pod.resource_version)
        return True

    def _end_observed(self, number: int, event: PodEvent, before: PodState | None) -> None:
        """End a pod by its DELETED event; `before` is its last state.

        A final state stays, even if the event's object is older. Without a deletion timestamp or a final state, the pod
        may only have left our selector: `confirmed` is False then.
        """
        state = _after(before, classify(event.pod, self._history.rules))
        if before is not None and before.final and not state.final:
            state = before
        confirmed = state.final or event.pod.terminating
        urgent = is_urgent(None if before is None else before.pod, event.pod, deleted=True)
        self._add_end(Ended(number, event.pod.uid, _end_state(state), confirmed=confirmed), urgent=urgent)
        self._add_tombstone(event.pod.uid, event.pod.resource_version)

    def _add_end(self, ended: Ended, *, urgent: bool = True) -> None:
        self._ended.append(ended)
        self.urgent = self.urgent or urgent

    def _add_tombstone(self, uid: str, version: str) -> None:
        self._tombstones[uid] = Tombstone(version, self._now)


def _after(before: PodState | None, state: PodState) -> PodState:
    """Return the state of a pod as it follows another one: an end remembers what was observed before."""
    if not isinstance(state, PodSucceeded | PodFailed) or before is None or before.pod.uid != state.pod.uid:
        return state
    if isinstance(before, PodSucceeded | PodFailed):
        ended_first = before.ended_first or not before.pod.terminating
        return msgspec.structs.replace(state, ended_first=ended_first, last_alive=before.last_alive)
    return msgspec.structs.replace(state, last_alive=before.pod)


def _end_state(state: PodState) -> PodState:
    """Return the final state of a pod that is gone: its last state if that was final, else deleted."""
    return state if state.final else PodDeleted(state.pod)


def last_seen(state_of: Callable[[int], PodState | None], pod: Pod) -> tuple[int, PodState] | None:
    """Return the id under which a snapshot has this pod, and its state there; None if it does not have it.

    The name has the id: somebody may change the label meanwhile.
    """
    number = pod.named_id or id_in_name(pod.metadata.name)
    state = state_of(number) if number is not None else None
    if number is None or state is None or not _is_same(state.pod, pod):
        return None
    return number, state


def _is_same(one: Pod, other: Pod) -> bool:
    """Whether two observations are of one pod. An event that changes no metadata has those of the one before."""
    return one.metadata is other.metadata or one.metadata.uid == other.metadata.uid
