"""The rules by which what the sources see is merged into the snapshot, word by word.

Watch and list come late, out of step with each other, and sometimes from the past. The rules say of any two words about
a pod which is the later one, so that no pod goes back in time and each end is told once. A step goes from one `History`
to the next, both immutable; only the step itself, a `Merge`, takes in more while it lasts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from immutables import Map

from actors.kube.resource_version import is_later, is_old, passed
from actors.pods.pod import executor_id
from actors.pods.snapshot import Ended, SnapshotEdit
from actors.pods.state import PodDeleted, PodTerminating, classify, malformed
from actors.store.history import Absent, History, Merged, Tombstone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from actors.pods.pod import Pod, PodEvent
    from actors.pods.state import PodState
    from actors.runtime import Moment

__all__ = ["Merge"]


class Merge:
    """One step from a history to the next: one list, or any number of reads of a watch stream.

    A step costs something for each part of the snapshot that it changes, a word within it next to nothing: so the
    store keeps one open until somebody wants to see the snapshot. It is mutable, belongs to whoever made it, shows
    nothing of what it holds before `finish`, and is gone then: what others see is never changed.
    """

    def __init__(self, history: History, now: Moment = math.inf) -> None:
        self._history = history
        self._now = now
        self.progress = replace(history.progress)
        self._edit = SnapshotEdit(history.snapshot)
        self._known = history.known.mutate()
        self._absent = history.absent.mutate()
        self._tombstones = history.tombstones.mutate()
        self._set_aside = history.set_aside.mutate()
        self._changed: set[int] = set()
        self._appeared: set[int] = set()
        self._ended: list[Ended] = []
        self.malformed: list[Pod] = []
        """See `Merged.malformed`."""
        self.urgent = False
        """See `Merged.urgent`."""

    # ── reads of a watch stream ──────────────────────────────────────────────────────────────────────────────────

    def read(self, events: Sequence[PodEvent], resource_version: str, stream: int, now: Moment) -> bool:
        """Merge what one read of a watch stream brought; no events mean a bookmark. Answers whether it counts.

        Dropped is what comes from any other stream than the current one, which is the one that the last list of a watch
        started, if it has not been given up.
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
        """One watched change."""
        pod = event.pod
        uid = pod.metadata.uid
        number = self._known.get(uid)
        if number is not None:
            if not self._is_newer(pod, number):
                return
            if event.type == "DELETED":
                self._end_observed(number, event, self._remove(uid, number))
            else:
                self._put(number, pod)
        elif (absent := self._absent.get(uid)) is not None:
            self._absent_event(event, absent)
        elif not self._is_before_tombstone(pod):
            self._new_event(event)

    def _absent_event(self, event: PodEvent, absent: Absent) -> None:
        """The last word on one that the list no longer shows, or its return, if it is later than that list."""
        pod = event.pod
        if event.type == "DELETED":
            del self._absent[pod.uid]
            self._end_observed(absent.executor_id, event, absent.state)
        elif self._valid_id(pod) is None:
            return
        elif not self._is_before_list(pod):
            self._add_again(pod, absent)
        elif not is_old(pod.resource_version, absent.state.pod.resource_version):
            self._absent[pod.uid] = replace(absent, state=classify(pod, self._history.rules))

    def _new_event(self, event: PodEvent) -> None:
        """Of a pod that is not there. A word that the newest list comes after brings it not back: it has gone since."""
        pod, number = event.pod, self._valid_id(event.pod)
        is_usable = number is not None and not self._is_copy(number, pod)
        if event.type == "DELETED":
            self._set_aside.pop(pod.uid, None)
        if number is None or not is_usable:
            return
        if event.type == "DELETED":
            self._appeared.add(number)
            self._end_observed(number, event, None)
        elif not self._is_before_list(pod):
            self._add(number, pod)
        elif pod.uid not in self._set_aside:  # else the list shows it, malformed as it is by then
            self._appeared.add(number)
            self._tombstones.pop(pod.uid, None)
            self._absent[pod.uid] = Absent(number, classify(pod, self._history.rules))

    def _is_before_list(self, pod: Pod) -> bool:
        """Whether the newest list comes after this word, so that its absence there is the later one."""
        floor = self.progress.floor
        return floor is not None and is_old(pod.resource_version, floor)

    def _is_before_tombstone(self, pod: Pod) -> bool:
        """Whether it ended and this word is from before: a pod that comes back to our selector does so later."""
        tombstone = self._tombstones.get(pod.uid)
        return tombstone is not None and not is_later(pod.resource_version, tombstone.version)

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────

    def list(self, listed: set[str], differing: Iterable[Pod], version: str) -> None:
        """UID by UID: what the store has above the list's version stays; else the list decides, absence included.

        `listed` are the UIDs of its pods, `differing` those of them that are not just as they are known.
        """
        self._infer_ends({uid: absent for uid, absent in self._history.absent.items() if uid not in listed})
        for uid, number in self._history.known.items():
            if uid not in listed and not is_later(self._edit.states[number].pod.resource_version, version):
                self._absent[uid] = Absent(number, self._remove(uid, number))
        for pod in differing:
            self._listed(pod)
        self._forget_set_aside(listed)
        self.progress.floor = version
        self.purge()

    def reset_to(self, pods: Sequence[Pod], version: str) -> None:
        """The list is all there is. What it does not show has ended, and no word on that is on its way."""
        listed = {pod.uid for pod in pods}
        gone = {uid: absent for uid, absent in self._history.absent.items() if uid not in listed}
        for uid, number in self._history.known.items():
            if uid not in listed:
                gone[uid] = Absent(number, self._remove(uid, number))
        self._absent = Map[str, Absent]().mutate()
        self._infer_ends(gone)
        for pod in pods:
            known = self._known.get(pod.uid)
            if known is not None:  # at a version of the history that is over: the list has the later word
                self._put(known, pod)
            else:
                self._listed(pod)
        self._forget_set_aside(listed)
        self.progress.floor = version

    def _listed(self, pod: Pod) -> None:
        known, absent = self._known.get(pod.uid), self._absent.get(pod.uid)
        if known is not None:
            if self._is_newer(pod, known):
                self._put(known, pod)
            return
        number = self._valid_id(pod)
        if number is None:
            return
        if absent is not None:
            if not self._is_before_list(pod):
                self._add_again(pod, absent)
        elif not self._is_before_tombstone(pod):
            self._add(number, pod)

    def _forget_set_aside(self, listed: set[str]) -> None:
        """Forget malformed pods that are gone."""
        for uid in self._history.set_aside:
            if uid not in listed:
                self._set_aside.pop(uid, None)

    def purge(self) -> None:
        """Forget the tombstones that floor and position, if there is one, have both passed. O(tombstones), per list."""
        for uid, tombstone in self._history.tombstones.items():
            if self.progress.stream_has_passed(tombstone.version) and passed(self.progress.floor, tombstone.version):
                self._tombstones.pop(uid, None)

    # ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> Merged:
        """The next history, once everything has been handed in."""
        self._end_absent()
        progress = self.progress
        snapshot = self._edit.finish(progress.version, progress.full_sync_at)
        history = History(
            self._history.rules,
            snapshot,
            progress,
            self._known.finish(),
            self._absent.finish(),
            self._tombstones.finish(),
            self._set_aside.finish(),
        )
        return Merged(
            history,
            changed=frozenset(number for number in self._changed if number in snapshot.states),
            appeared=frozenset(self._appeared),
            ended=tuple(self._ended),
            malformed=tuple(self.malformed),
            urgent=self.urgent,
        )

    def _end_absent(self) -> None:
        """The end of those of which the stream will not tell it any more."""
        if len(self._absent) and self.progress.stream_has_passed(self.progress.floor):
            absent = self._absent.finish()
            self._absent = absent.mutate()
            self._infer_ends(absent)

    def _infer_ends(self, absent: Mapping[str, Absent]) -> None:
        """The end of these: their DELETED events will not come, or too late. In the order of their executor ids."""
        for uid, one in sorted(absent.items(), key=lambda item: item[1].executor_id):
            self._absent.pop(uid, None)
            self._add_end(Ended(one.executor_id, uid, _end_state(one.state)))
            if self.progress.floor is not None:
                self._add_tombstone(uid, self.progress.floor)

    def _add_again(self, pod: Pod, absent: Absent) -> None:
        """It is back, unless another pod has its executor id by now."""
        del self._absent[pod.uid]
        if not self._add(absent.executor_id, pod):
            self._infer_ends({pod.uid: absent})

    def _valid_id(self, pod: Pod) -> int | None:
        """The pod's executor id; None if it is malformed, which is noted."""
        if malformed(pod) is not None:
            self._put_aside(pod)
            return None
        return executor_id(pod)

    def _is_newer(self, pod: Pod, number: int) -> bool:
        """Whether a word on a pod in the snapshot comes after the last one on it.

        It does if it comes after all that is known of any pod: then that one, which is in no cache, is not looked at.
        """
        version = pod.metadata.resource_version
        if is_later(version, self.progress.newest):
            return True
        return not is_old(version, self._edit.states[number].pod.resource_version)

    def _is_copy(self, number: int, pod: Pod) -> bool:
        """Whether a pod of another name has this executor id (a copied label): the first keeps it while it lives."""
        holder = self._edit.states.get(number)
        if holder is None or holder.pod.name == pod.name:
            return False
        self._put_aside(pod)
        return True

    def _put_aside(self, pod: Pod) -> None:
        if pod.uid not in self._set_aside:
            self._set_aside[pod.uid] = None
            self.malformed.append(pod)

    def _add(self, number: int, pod: Pod) -> bool:
        """The pod comes into the snapshot; False if it cannot, because another one has its place."""
        holder = self._edit.states.get(number)
        if self._is_copy(number, pod) or (holder is not None and not self._replace_holder(number, holder, pod)):
            return False
        self._appeared.add(number)
        self._known[pod.uid] = number
        self._tombstones.pop(pod.uid, None)
        self._set_aside.pop(pod.uid, None)
        self._put(number, pod)
        return True

    def _put(self, number: int, pod: Pod) -> None:
        """A pod in the snapshot is as this says now."""
        state = classify(pod, self._history.rules)
        self._edit.put(number, state)
        self._changed.add(number)
        if is_later(pod.metadata.resource_version, self.progress.newest):
            self.progress.newest = pod.metadata.resource_version
        if state.final or isinstance(state, PodTerminating):
            self.urgent = True

    def _replace_holder(self, number: int, holder: PodState, pod: Pod) -> bool:
        """Of two pods of one name only the later one can be there: the holder, if it is the earlier, ended unseen."""
        uid = holder.pod.uid
        if is_old(pod.resource_version, holder.pod.resource_version):
            return False
        self._add_end(Ended(number, uid, _end_state(self._remove(uid, number))))
        self._add_tombstone(uid, pod.resource_version)
        return True

    def _remove(self, uid: str, number: int) -> PodState:
        """Take a pod out of the snapshot; its last state."""
        state = self._edit.states[number]
        self._edit.drop(number)
        del self._known[uid]
        return state

    def _end_observed(self, number: int, event: PodEvent, before: PodState | None) -> None:
        """A DELETED event, after the state `before`.

        A pod that had ended keeps that as its last word, even if the event's object is from before its end. Without a
        deletion, on one that had not ended, it may only have left our selector.
        """
        state = classify(event.pod, self._history.rules)
        if before is not None and before.final and not state.final:
            state = before
        confirmed = state.final or event.pod.terminating
        self._add_end(Ended(number, event.pod.uid, _end_state(state), confirmed=confirmed))
        self._add_tombstone(event.pod.uid, event.pod.resource_version)

    def _add_end(self, ended: Ended) -> None:
        self._ended.append(ended)
        self.urgent = True

    def _add_tombstone(self, uid: str, version: str) -> None:
        self._tombstones[uid] = Tombstone(version, self._now)


def _end_state(state: PodState) -> PodState:
    """How a pod that is gone ended: by itself if that was the last word on it, else deleted."""
    return state if state.final else PodDeleted(state.pod)
