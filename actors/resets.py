"""Resets: how a list proves that the cluster's history is another one than the one we know.

A cluster that was restored from a backup counts its versions on from the backup. Nothing tells a client: its watch is
silent until the count has come past where it was. Only a list shows it, and only a consistent one, as
one from a cache may be from any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.versions import highest_before, is_later, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.history import History
    from actors.pods import Pod

__all__ = ["proves_reset"]


def proves_reset(history: History, pods: Sequence[Pod], resource_version: str, requested_at: float) -> bool:
    """Whether a consistent list cannot be of the history we know.

    Judged by what was handled before it was asked for, it is below a version that we had seen, or shows a pod older
    than we knew it, or one that had ended. Judged by its own version, it shows a pod as it was before a change that the
    list comes after; of one history, no list does, whenever it was asked for.
    """
    version = number_of(resource_version)
    if version is None:
        return False
    return version < highest_before(history.seen, requested_at) or any(
        _contradicts(history, pod, resource_version, requested_at) for pod in pods
    )


def _contradicts(history: History, pod: Pod, list_version: str, requested_at: float) -> bool:
    """Whether the list shows this pod as it can no longer be."""
    known = history.known.get(pod.uid)
    if known is not None:  # at a version that is later than the list's: if it was seen in time, that is proof enough
        version = history.snapshot.states[known].pod.resource_version
        return is_later(version, pod.resource_version) and not is_later(version, list_version)
    tombstone = history.tombstones.get(pod.uid)
    if tombstone is not None and tombstone.at < requested_at:
        return number_of(tombstone.version) is not None and not is_later(pod.resource_version, tombstone.version)
    ended_by = tombstone.version if tombstone is not None else history.floor if pod.uid in history.absent else None
    return is_later(ended_by, pod.resource_version) and not is_later(ended_by, list_version)
