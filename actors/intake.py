"""Intake: which of the sources' words count. Lists that come from the past, streams that are over, and resets.

What a list or a stream that counts says of single pods is `actors.merge`'s. All of it is pure: a function takes the
`History` and answers with the next one and with what changed.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from immutables import Map

from actors.history import History, Merged
from actors.merge import Merge
from actors.resets import proves_reset
from actors.versions import is_later

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.pods import Pod

__all__ = ["apply_list", "give_up_stream"]

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def apply_list(
    history: History,
    pods: Sequence[Pod],
    resource_version: str,
    *,
    requested_at: float,
    consistent: bool,
    stream: int | None,
    now: float,
    moved: Mapping[str, str] = _NONE,
) -> Merged:
    """Merge the answer to a list of all executor pods, `stream` being the watch that starts from it, if one does.

    By UID, `moved` are the versions of those of the pods that are shown at a later one than they say.
    """
    if requested_at <= history.reset_at:
        return _drop_list(history, stream)
    news = _unlike(history, pods, moved)
    if consistent and proves_reset(history, news, resource_version, requested_at):
        if requested_at < history.event_at:  # it may lack what the watch has shown since: let the next one tell
            return replace(_drop_list(history, stream), relist=True)
        pods = [_as_shown(pod, moved) for pod in pods]
        return _reset(history, pods, resource_version, requested_at=requested_at, stream=stream, now=now)
    if is_later(history.floor, resource_version):
        return _drop_list(history, stream)
    outdated = stream is not None and stream < history.stream
    merge = Merge(history, now)
    if stream is not None and not outdated:
        merge.position, merge.stream = resource_version, stream
    merge.list(pods, news, resource_version)
    merge.see(resource_version)
    if consistent:
        merge.synced(requested_at)
    return replace(merge.finish(), relist=outdated)


def give_up_stream(history: History, stream: int) -> Merged:
    """The watch stream could not be resumed: it no longer counts, and nothing it had still to say will come.

    Nor does one before it: a source that crashed cannot give its own up, its successor does.
    """
    return _end_stream(history, stream) if stream >= history.stream else Merged(history, applied=False)


def _unlike(history: History, pods: Sequence[Pod], moved: Mapping[str, str]) -> list[Pod]:
    """Those of which a list says anything else than we know. In a poll these are few: the others cost next to nothing.

    A word that is no news about a pod in the snapshot neither changes anything nor proves anything.
    """
    known, states = history.known, history.snapshot.states
    unlike: list[Pod] = []
    for pod in pods:
        number = known.get(pod.metadata.uid)
        last = states[number].pod if number is not None else None
        if last is pod:
            continue
        shown = _as_shown(pod, moved)
        if last is None or last.resource_version != shown.resource_version:
            unlike.append(shown)
    return unlike


def _as_shown(pod: Pod, moved: Mapping[str, str]) -> Pod:
    version = moved.get(pod.metadata.uid)
    return pod if version is None else pod.at_version(version)


def _drop_list(history: History, stream: int | None) -> Merged:
    """A list from the past tells nothing. A watch that starts from it would not either, and its forerunner is over."""
    if stream is None or stream < history.stream:
        return Merged(history, applied=False, relist=stream is not None)
    return replace(_end_stream(history, stream), applied=False, relist=True)


def _end_stream(history: History, stream: int) -> Merged:
    """Up to this number no stream counts any more."""
    merge = Merge(history)
    merge.position, merge.stream = None, stream + 1
    merge.purge()
    return merge.finish()


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
        newest="0",
        tombstones=Map(),
        seen=(),
        reset_at=now,
    )
    merge = Merge(forgotten, now)
    merge.start_over(pods, resource_version)
    merge.see(resource_version)
    merge.synced(requested_at)
    starts = stream is not None and stream >= history.stream
    if stream is not None and starts:
        merge.position, merge.stream = resource_version, stream
    elif history.position is not None:
        merge.stream += 1
    return replace(merge.finish(), reset=True, relist=not starts)
