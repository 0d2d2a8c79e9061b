"""Epochs: answers `BeginEpoch` and `Drain` once no earlier create can still make a pod. Pure.

Each incarnation of the Allocator begins an epoch. Its answer tells it which executors of its predecessor have no pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.messages.internal import Drained, EpochBegun

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from actors.messages.internal import BeginEpoch, CreatePod, UnseenPod
    from actors.runtime import Address

__all__ = ["Epochs"]


class Epochs:
    """The answers that are due. False while there are none: then `settle` need not be called."""

    def __init__(self) -> None:
        self._begin: BeginEpoch | None = None
        """The newest one. It replaces those before it."""
        self._dropped: set[int] = set()
        """Ids of earlier epochs whose create made no pod."""
        self._refused: set[int] = set()
        """Ids whose create failed while writes were suspended. Their Allocator may be gone: tell the next one."""
        self._lost: frozenset[int] = frozenset()
        """Ids that the newest Allocator waits for and that it requested from an earlier incarnation of this pool."""
        self._first: int | None = None
        """The lowest id that was requested here first. Ids are allocated in ascending order."""
        self._again: set[int] = set()
        """Lower ids, which were requested here again."""
        self._draining: Address | None = None

    def __bool__(self) -> bool:
        return self._begin is not None or self._draining is not None

    def begin(self, message: BeginEpoch) -> None:
        """Begin the epoch of a new Allocator."""
        self._begin = message
        self._again &= message.requested
        self._lost = frozenset(i for i in message.requested - self._again if self._first is None or i < self._first)
        self._dropped |= self._refused
        self._refused.clear()

    def requested(self, create: CreatePod) -> None:
        """Record that this incarnation of the pool answers for this create."""
        if create.again:
            self._again.add(create.executor_id)
        elif self._first is None or create.executor_id < self._first:
            self._first = create.executor_id

    def drain(self, reply_to: Address) -> None:
        """Answer `Drained` once no create is open."""
        self._draining = reply_to

    def refused(self, executor_id: int) -> None:
        """Record that this create failed while writes were suspended."""
        self._refused.add(executor_id)

    def no_pod(self, create: CreatePod) -> None:
        """Record that this create made no pod. Matters only for creates of earlier epochs."""
        if self._begin is not None and create.epoch < self._begin.epoch:
            self._dropped.add(create.executor_id)

    def settle(self, epochs: Collection[int], unseen: Mapping[str, UnseenPod]) -> None:
        """Send the answers that no create blocks. `epochs` are those of all open creates, `unseen` is for `Drained`."""
        if self._begin is not None and all(epoch >= self._begin.epoch for epoch in epochs):
            begin, self._begin = self._begin, None
            begin.reply_to.tell(EpochBegun(begin.epoch, frozenset(self._dropped), self._lost))
            self._dropped.clear()
        if self._draining is not None and not epochs:
            drained, self._draining = self._draining, None
            drained.tell(Drained(dict(unseen)))
