"""The rules by which what the sources see is merged into the snapshot.

Watch and list come late, out of step with each other, and sometimes from the past. The rules say of any two words about
a pod which is the later one, so that no pod goes back in time and each end is told once. All of it is pure: a function
takes the `History` and answers with the next one and with what changed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from immutables import Map

from actors.history import Absent, History, Known, Merged, Tombstone
from actors.pods import PodDeleted, classify, executor_id, malformed
from actors.resets import proves_reset
from actors.snapshot import Ended, SnapshotEdit
from actors.versions import is_later, is_old, passed, see

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.pods import Pod, PodEvent, PodState

__all__ = ["History", "Merged", "apply_events", "apply_list", "give_up_stream"]


def apply_events(
    history: History, events: Sequence[PodEvent], resource_version: str, stream: int, now: float
) -> Merged:
    """Merge what one read of a watch stream brought; no events mean a bookmark.

    Dropped is what comes from any other stream than the current one, which is the one that the last list of a watch
    started, if it has not been given up.
    """
    if stream != history.stream or history.position is None:
        return Merged(history, applied=False)
    merge = _Merge(history, now)
    for event in events:
        merge.event(event)
    if not is_later(merge.position, resource_version):
        merge.position = resource_version
    merge.see(resource_version)
    return merge.finish(stream=stream)


def apply_list(
    history: History,
    pods: Sequence[Pod],
    resource_version: str,
    *,
    requested_at: float,
    consistent: bool,
    stream: int | None,
    now: float,
) -> Merged:
    """Merge the answer to a list of all executor pods, `stream` being the watch that starts from it, if one does."""
    if requested_at <= history.reset_at:
        return _drop_list(history, stream)
    if consistent and proves_reset(history, pods, resource_version, requested_at):
        return _reset(history, pods, resource_version, requested_at=requested_at, stream=stream, now=now)
    if is_later(history.floor, resource_version):
        return _drop_list(history, stream)
    outdated = stream is not None and stream < history.stream
    starts = stream is not None and not outdated
    merge = _Merge(history, now)
    if starts:
        merge.position = resource_version
    merge.list(pods, resource_version)
    merge.see(resource_version)
    if consistent:
        merge.synced(requested_at)
    return replace(merge.finish(stream=stream if starts else None), relist=outdated)


def give_up_stream(history: History, stream: int) -> Merged:
    """The watch stream could not be resumed: it no longer counts, and nothing it had still to say will come.

    Nor does one before it: a source that crashed cannot give its own up, its successor does.
    """
    return _end_stream(history, stream) if stream >= history.stream else Merged(history, applied=False)


def _drop_list(history: History, stream: int | None) -> Merged:
    """A list from the past tells nothing. A watch that starts from it would not either, and its forerunner is over."""
    if stream is None or stream < history.stream:
        return Merged(history, applied=False, relist=stream is not None)
    return replace(_end_stream(history, stream), applied=False, relist=True)


def _end_stream(history: History, stream: int) -> Merged:
    """Up to this number no stream counts any more."""
    merge = _Merge(history, now=math.inf)  # ends told now are of an earlier list's: no list is judged by this moment
    merge.position = None
    merge.purge()
    return merge.finish(stream=stream + 1)


def _reset(
    history: History, pods: Sequence[Pod], resource_version: str, *, requested_at: float, stream: int | None, now: float
) -> Merged:
    """Forget every version and tombstone and take the list. What it does not show has ended.

    The current stream is of the old history, and ends. A list asked for before now may be: it will be dropped.
    """
    forgotten = replace(
        history,
        snapshot=replace(history.snapshot, resource_version="", full_sync_at=None),
        floor=None,
        position=None,
        known=Map({uid: replace(known, version="") for uid, known in history.known.items()}),
        tombstones=Map(),
        seen=(),
        reset_at=now,
    )
    merge = _Merge(forgotten, now)
    merge.start_over(pods, resource_version)
    merge.see(resource_version)
    merge.synced(requested_at)
    starts = stream is not None and stream >= history.stream
    merge.position = resource_version if starts else None
    following = history.stream if history.position is None else history.stream + 1
    merged = merge.finish(stream=stream if starts else following)
    return replace(merged, reset=True, relist=not starts)


# ── one merge ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Merge:
    """One step from a history to the next. Mutable, and gone when the step is done."""

    def __init__(self, history: History, now: float) -> None:
        self._history = history
        self._now = now
        self._edit = SnapshotEdit(history.snapshot)
        self._known = history.known.mutate()
        self._absent = history.absent.mutate()
        self._tombstones = history.tombstones.mutate()
        self._set_aside = history.set_aside.mutate()
        self._seen = history.seen
        self._floor = history.floor
        self.position = history.position
        self._version = history.snapshot.resource_version
        self._full_sync_at = history.snapshot.full_sync_at
        self._changed: set[int] = set()
        self._appeared: set[int] = set()
        self._ended: list[Ended] = []
        self._malformed: list[Pod] = []

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def event(self, event: PodEvent) -> None:
        """One watched change."""
        pod = event.pod
        known, absent = self._known.get(pod.uid), self._absent.get(pod.uid)
        if known is not None:
            if not is_old(pod.resource_version, known.version):
                self._known_event(event, known)
        elif absent is not None:
            self._absent_event(event, absent)
        elif not self._is_buried(pod):
            self._new_event(event)

    def _known_event(self, event: PodEvent, known: Known) -> None:
        if event.type == "DELETED":
            self._end(known.executor_id, event, self._hide(event.pod.uid, known))
        else:  # it keeps its executor id, whatever somebody does to its label
            self._show(known.executor_id, event.pod)

    def _absent_event(self, event: PodEvent, absent: Absent) -> None:
        """The last word on one that the list no longer shows, or its return, if it is later than that list."""
        pod = event.pod
        if event.type == "DELETED":
            del self._absent[pod.uid]
            self._end(absent.executor_id, event, absent.state)
        elif self._usable(pod) is None:
            return
        elif not self._is_in_list(pod):
            self._return(pod, absent)
        elif not is_old(pod.resource_version, absent.state.pod.resource_version):
            self._absent[pod.uid] = replace(absent, state=classify(pod, self._history.rules))

    def _new_event(self, event: PodEvent) -> None:
        """Of a pod that is not there. A word that the newest list comes after brings it not back: it has gone since."""
        pod, number = event.pod, self._usable(event.pod)
        is_usable = number is not None and not self._is_copy(number, pod)
        if event.type == "DELETED":
            self._set_aside.pop(pod.uid, None)
        if number is None or not is_usable:
            return
        if event.type == "DELETED":
            self._appeared.add(number)
            self._end(number, event, None)
        elif not self._is_in_list(pod):
            self._show(number, pod)
        elif pod.uid not in self._set_aside:  # else the list shows it, malformed as it is by then
            self._appeared.add(number)
            self._tombstones.pop(pod.uid, None)
            self._absent[pod.uid] = Absent(number, classify(pod, self._history.rules))

    def _is_in_list(self, pod: Pod) -> bool:
        """Whether the newest list comes after this word, so that its absence there is the later one."""
        return self._floor is not None and is_old(pod.resource_version, self._floor)

    def _is_buried(self, pod: Pod) -> bool:
        """Whether it ended and this word is from before: a pod that comes back to our selector does so later."""
        tombstone = self._tombstones.get(pod.uid)
        return tombstone is not None and not is_later(pod.resource_version, tombstone.version)

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────

    def list(self, pods: Sequence[Pod], version: str) -> None:
        """UID by UID: what the store has above the list's version stays; else the list decides, absence included."""
        shown = {pod.uid for pod in pods}
        self._tell({uid: absent for uid, absent in self._history.absent.items() if uid not in shown})
        for uid, known in self._history.known.items():
            if uid not in shown and not is_later(known.version, version):
                self._absent[uid] = Absent(known.executor_id, self._hide(uid, known))
        self._take(pods)
        self._floor = version
        self.purge()

    def start_over(self, pods: Sequence[Pod], version: str) -> None:
        """The list is all there is. What it does not show has ended, and no word on that is on its way."""
        shown = {pod.uid for pod in pods}
        gone = {uid: absent for uid, absent in self._history.absent.items() if uid not in shown}
        for uid, known in self._history.known.items():
            if uid not in shown:
                gone[uid] = Absent(known.executor_id, self._hide(uid, known))
        self._absent = Map[str, Absent]().mutate()
        self._tell(gone, bury=False)
        self._take(pods)
        self._floor = version

    def _take(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._listed(pod)
        for uid in set(self._history.set_aside).difference(pod.uid for pod in pods):
            self._set_aside.pop(uid, None)

    def _listed(self, pod: Pod) -> None:
        known, absent = self._known.get(pod.uid), self._absent.get(pod.uid)
        if known is not None:
            if not is_old(pod.resource_version, known.version):
                self._show(known.executor_id, pod)
            return
        number = self._usable(pod)
        if number is None:
            return
        if absent is not None:
            if not self._is_in_list(pod):
                self._return(pod, absent)
        elif not self._is_buried(pod):
            self._show(number, pod)

    def purge(self) -> None:
        """Forget the tombstones that floor and position, if there is one, have both passed. O(tombstones), per list."""
        for uid, tombstone in self._history.tombstones.items():
            if self._has_passed(tombstone.version) and passed(self._floor, tombstone.version):
                self._tombstones.pop(uid, None)

    # ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def see(self, version: str) -> None:
        """Remember how far we have seen, and when."""
        self._seen = see(self._seen, version, self._now)
        if not is_later(self._version, version):
            self._version = version

    def synced(self, requested_at: float) -> None:
        """A consistent list that was asked for then is in the snapshot."""
        self._full_sync_at = max(requested_at, requested_at if self._full_sync_at is None else self._full_sync_at)

    def finish(self, *, stream: int | None) -> Merged:
        """The next history, once everything has been handed in; None leaves the current stream as it is."""
        if len(self._absent) and self._has_passed(self._floor):
            absent = self._absent.finish()
            self._absent = absent.mutate()
            self._tell(absent)
        snapshot = self._edit.finish(self._version, self._full_sync_at)
        history = replace(
            self._history,
            snapshot=snapshot,
            floor=self._floor,
            position=self.position,
            stream=self._history.stream if stream is None else stream,
            known=self._known.finish(),
            absent=self._absent.finish(),
            tombstones=self._tombstones.finish(),
            set_aside=self._set_aside.finish(),
            seen=self._seen,
        )
        return Merged(
            history,
            changed=frozenset(number for number in self._changed if number in snapshot.states),
            appeared=frozenset(self._appeared),
            ended=tuple(self._ended),
            malformed=tuple(self._malformed),
        )

    def _has_passed(self, version: str | None) -> bool:
        """Whether the stream, if there is one, can bring no more words up to this version."""
        return self.position is None or passed(self.position, version)

    def _tell(self, absent: Mapping[str, Absent], *, bury: bool = True) -> None:
        """The end of these: their DELETED events will not come, or too late. In the order of their executor ids."""
        for uid, one in sorted(absent.items(), key=lambda item: item[1].executor_id):
            self._absent.pop(uid, None)
            self._ended.append(Ended(one.executor_id, uid, _ended(one.state), observed=False))
            if bury and self._floor is not None:
                self._bury(uid, self._floor)

    def _return(self, pod: Pod, absent: Absent) -> None:
        """It is back, unless another pod has its executor id by now."""
        del self._absent[pod.uid]
        if not self._show(absent.executor_id, pod):
            self._tell({pod.uid: absent})

    def _usable(self, pod: Pod) -> int | None:
        """The pod's executor id; None if it is malformed, which is noted."""
        if malformed(pod) is not None:
            self._put_aside(pod)
            return None
        return executor_id(pod)

    def _is_copy(self, number: int, pod: Pod) -> bool:
        """Whether a pod of another name has this executor id (a copied label): the first keeps it while it lives."""
        holder = self._edit.get(number)
        if holder is None or holder.pod.name == pod.name:
            return False
        self._put_aside(pod)
        return True

    def _put_aside(self, pod: Pod) -> None:
        if pod.uid not in self._set_aside:
            self._set_aside[pod.uid] = None
            self._malformed.append(pod)

    def _show(self, number: int, pod: Pod) -> bool:
        """The pod is in the snapshot, in this state; False if it cannot be, because another one has its place."""
        holder = self._edit.get(number)
        if holder is None or holder.pod.uid != pod.uid:
            if self._is_copy(number, pod) or (holder is not None and not self._displace(number, holder, pod)):
                return False
            self._appeared.add(number)
        self._edit.put(number, classify(pod, self._history.rules))
        self._known[pod.uid] = Known(number, pod.resource_version, self._now)
        self._tombstones.pop(pod.uid, None)
        self._set_aside.pop(pod.uid, None)
        self._changed.add(number)
        return True

    def _displace(self, number: int, holder: PodState, pod: Pod) -> bool:
        """Of two pods of one name only the later one can be there: the holder, if it is the earlier, ended unseen."""
        known = self._known[holder.pod.uid]
        if is_old(pod.resource_version, known.version):
            return False
        ended = _ended(self._hide(holder.pod.uid, known))
        self._ended.append(Ended(number, holder.pod.uid, ended, observed=False))
        self._bury(holder.pod.uid, pod.resource_version)
        return True

    def _hide(self, uid: str, known: Known) -> PodState:
        """Take a pod out of the snapshot; its last state."""
        state = self._edit.get(known.executor_id)
        assert state is not None, "what is known is in the snapshot"
        self._edit.drop(known.executor_id)
        del self._known[uid]
        return state

    def _end(self, number: int, event: PodEvent, before: PodState | None) -> None:
        """A DELETED event, after the state `before`.

        A pod that had ended keeps that as its last word, even if the event's object is from before its end. Without a
        deletion, on one that had not ended, it may only have left our selector.
        """
        state = classify(event.pod, self._history.rules)
        if before is not None and before.final and not state.final:
            state = before
        confirmed = state.final or event.pod.terminating
        self._ended.append(Ended(number, event.pod.uid, _ended(state), observed=True, confirmed=confirmed))
        self._bury(event.pod.uid, event.pod.resource_version)

    def _bury(self, uid: str, version: str) -> None:
        self._tombstones[uid] = Tombstone(version, self._now)


def _ended(state: PodState) -> PodState:
    """How a pod that is gone ended: by itself if that was the last word on it, else deleted."""
    return state if state.final else PodDeleted(state.pod)
