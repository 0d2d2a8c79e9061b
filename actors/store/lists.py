"""Decides whether a LIST counts: outdated LISTs, abandoned streams, and resets of the cluster. Pure.

A reset means that the cluster was restored from a backup and its versions went back. An API server that is behind
answers as a restored one does, so one LIST is not believed: see `_doubted`. `actors.store.merge` has the rules for
single pods.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.kube.resource_version import is_later, number_of
from actors.runtime import elapsed
from actors.store.history import Doubt, Merged, Progress, highest_before
from actors.store.merge import Merge, last_seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actors.messages.internal import ReplaceSnapshot
    from actors.pods.pod import Pod
    from actors.runtime import Moment
    from actors.store.history import History

__all__ = ["SECOND_LOOK", "abandon_stream", "apply_list"]

SECOND_LOOK: Final = timedelta(seconds=5)
"""A reset is believed if a LIST that was requested so long after the first one contradicts the history, too. An API
server that is behind, as after a pause or while etcd elects a leader, has caught up by then; a restore takes longer."""


def apply_list(history: History, listed: ReplaceSnapshot, now: Moment) -> Merged:
    """Merge the answer to a LIST of all executor pods."""
    progress, version, stream = history.progress, listed.resource_version, listed.stream
    if listed.requested_at <= progress.reset_at:
        return _drop_list(history, stream)
    others, missing = _compared(history, listed.pods)
    differing = _differing(history, listed, others)
    if listed.consistent and _contradicts_history(history, listed, differing):
        if not _confirms(progress.doubt, listed):
            return _doubted(history, listed, now)
        if listed.requested_at < progress.event_at:  # the LIST may lack later events
            return replace(_drop_list(history, stream), relist=True)
        return _reset(history, listed, now)
    if is_later(progress.floor, version):
        return _drop_list(history, stream)
    outdated = stream is not None and stream < progress.stream
    merge = Merge(history, now)
    if stream is not None and not outdated:
        merge.progress.position, merge.progress.stream = version, stream
    merge.list({listed.pods[place].metadata.uid for place in others}, missing, differing, version)
    merge.progress.see(version, now)
    if listed.consistent:
        merge.progress.synced(listed.requested_at)
        merge.progress.doubt = None
    return replace(merge.finish(), relist=outdated)


def abandon_stream(history: History, stream: int) -> Merged:
    """End a watch stream that could not be resumed: none of its events will come any more.

    This ends all earlier streams too: a source that crashed cannot abandon its own.
    """
    return _end_stream(history, stream) if stream >= history.progress.stream else Merged(history, applied=False)


def _compared(history: History, pods: Sequence[Pod]) -> tuple[list[int], list[int]]:
    """Return the places of the pods that are no objects of the snapshot, and the executors whose objects are missing.

    A poll has few of them, and looks into no other pod: the client returns the same object for an unchanged one.
    """
    observed = {id(state.pod): number for number, state in history.snapshot.states.items()}
    others = [place for place, pod in enumerate(pods) if id(pod) not in observed]
    return others, sorted([observed[each] for each in observed.keys() - map(id, pods)])


def _differing(history: History, listed: ReplaceSnapshot, others: Iterable[int]) -> list[Pod]:
    """Return the pods at those of these places that differ from the snapshot.

    A pod at the version of the snapshot neither changes nor proves anything.
    """
    as_listed = [_as_listed(listed, place) for place in others]
    return [
        pod
        for pod in as_listed
        if (last := _last(history, pod)) is None or last.resource_version != pod.resource_version
    ]


def _last(history: History, pod: Pod) -> Pod | None:
    """Return the pod as the snapshot has it, None if it does not."""
    last = last_seen(history.snapshot.states.get, pod)
    return None if last is None else last[1].pod


def _as_listed(listed: ReplaceSnapshot, place: int) -> Pod:
    """Return a pod at its listed version.

    For an unchanged pod the client returns the known `Pod`, and its listed version beside it. Only the store can tell
    whether it has that object: if the client copied each one, every poll would report all running pods as changed.
    """
    pod = listed.pods[place]
    version = pod.resource_version if listed.versions is None else listed.versions[place]
    return pod if version == pod.resource_version else pod.at_version(version)


def _drop_list(history: History, stream: int | None) -> Merged:
    """Drop an outdated LIST. A watch that starts from this LIST is useless too, and the stream before has ended."""
    if stream is None or stream < history.progress.stream:
        return Merged(history, applied=False, relist=stream is not None)
    return replace(_end_stream(history, stream), applied=False, relist=True)


def _end_stream(history: History, stream: int) -> Merged:
    """End all streams up to this number."""
    merge = Merge(history)
    merge.progress.position, merge.progress.stream = None, stream + 1
    merge.purge()
    return merge.finish()


def _confirms(doubt: Doubt | None, listed: ReplaceSnapshot) -> bool:
    """Whether a LIST that contradicts the history, as one did before, comes from a history that goes on, too."""
    return (
        doubt is not None
        and elapsed(doubt.at, listed.requested_at) >= SECOND_LOOK
        and not is_later(doubt.version, listed.resource_version)
    )


def _doubted(history: History, listed: ReplaceSnapshot, now: Moment) -> Merged:
    """Drop a LIST that contradicts the history, and ask for another one.

    If an API server was behind, the next LIST is of the known history again, or the watch goes on with newer versions.
    """
    merged, version = _drop_list(history, listed.stream), listed.resource_version
    progress = merged.history.progress.copy()
    if progress.doubt is None or is_later(progress.doubt.version, version):
        progress.doubt = Doubt(now, version, behind=is_later(progress.version, version))
    return replace(merged, history=replace(merged.history, progress=progress), look_again=True)


def _reset(history: History, listed: ReplaceSnapshot, now: Moment) -> Merged:
    """Forget all versions and tombstones and apply the LIST: pods that it lacks have ended.

    The current stream belongs to the old history and ends. A LIST requested before now may belong to it too and will be
    dropped.
    """
    known, stream = history.progress, listed.stream
    starts = stream is not None and stream >= known.stream
    progress = Progress(stream=known.stream, event_at=known.event_at, reset_at=now)
    if stream is not None and starts:
        progress.position, progress.stream = listed.resource_version, stream
    elif known.position is not None:
        progress.stream += 1
    merge = Merge(replace(history, progress=progress, tombstones={}), now)
    merge.reset_to([_as_listed(listed, place) for place in range(len(listed.pods))], listed.resource_version)
    merge.progress.see(listed.resource_version, now)
    merge.progress.synced(listed.requested_at)
    return replace(merge.finish(), reset=True, relist=not starts)


def _contradicts_history(history: History, listed: ReplaceSnapshot, differing: Iterable[Pod]) -> bool:
    """Whether a consistent LIST contradicts the known history.

    A consistent LIST cannot be below a version that was handled before its request, nor contain a pod that ended before
    it. And no LIST contains a pod as it was before a change that the LIST itself is later than.
    """
    version, requested_at = number_of(listed.resource_version), listed.requested_at
    if version is None:
        return False
    return version < highest_before(history.progress.seen, requested_at) or any(
        _contradicts(history, pod, listed.resource_version, requested_at) for pod in differing
    )


def _contradicts(history: History, pod: Pod, list_version: str, requested_at: Moment) -> bool:
    """Whether the pod in the LIST is older than the history allows."""
    last = _last(history, pod)
    if last is not None:  # a version above the LIST's proves a reset by `highest_before`, if handled in time
        version = last.resource_version
        return is_later(version, pod.resource_version) and not is_later(version, list_version)
    tombstone = history.tombstones.get(pod.uid)
    if tombstone is not None and tombstone.at < requested_at:
        return number_of(tombstone.version) is not None and not is_later(pod.resource_version, tombstone.version)
    floor = history.progress.floor if pod.uid in history.absent else None
    ended_by = tombstone.version if tombstone is not None else floor
    return is_later(ended_by, pod.resource_version) and not is_later(ended_by, list_version)
