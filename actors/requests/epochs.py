"""What the RequestPool answers only once no create that concerns it is open: an epoch that begins, a drain.

A plain value in the RequestPool's hands, which says what became of each create; an answer is due once, and never while
one may still make a pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.messages import Drained, EpochBegun

if TYPE_CHECKING:
    from collections.abc import Collection

    from actors.messages import BeginEpoch, CreatePod
    from actors.runtime import Address

__all__ = ["Epochs"]


class Epochs:
    """False while nobody waits for an answer: then the creates need not be looked through."""

    def __init__(self) -> None:
        self._begin: BeginEpoch | None = None
        """The newest, which answers for those before it, too."""
        self._dropped: set[int] = set()
        self._refused: set[int] = set()
        """Ids whose create was refused as nothing may be written: who asked may be gone, the next epoch hears it."""
        self._lost: frozenset[int] = frozenset()
        """Ids that the newest Allocator waits for and that were asked for before this pool began."""
        self._first: int | None = None
        """The lowest id that was asked for here for the first time: ids are given out in their order."""
        self._again: set[int] = set()
        """Lower ones, that were asked for here again."""
        self._draining: Address | None = None

    def __bool__(self) -> bool:
        return self._begin is not None or self._draining is not None

    def begin(self, message: BeginEpoch) -> None:
        """A new Allocator."""
        self._begin = message
        self._again &= message.requested
        self._lost = frozenset(i for i in message.requested - self._again if self._first is None or i < self._first)
        self._dropped |= self._refused
        self._refused.clear()

    def asked(self, create: CreatePod) -> None:
        """This create's answer is ours to give."""
        if create.again:
            self._again.add(create.executor_id)
        elif self._first is None or create.executor_id < self._first:
            self._first = create.executor_id

    def drain(self, reply_to: Address) -> None:
        """The fleet is being stopped."""
        self._draining = reply_to

    def refused(self, executor_id: int) -> None:
        """This create was refused, as nothing may be written."""
        self._refused.add(executor_id)

    def no_pod(self, create: CreatePod) -> None:
        """This create made no pod: for the new Allocator to hear, if it was an earlier one's."""
        if self._begin is not None and create.epoch < self._begin.epoch:
            self._dropped.add(create.executor_id)

    def settle(self, epochs: Collection[int]) -> None:
        """Answer what no create stands in the way of; `epochs` are those of the creates that are open."""
        if self._begin is not None and all(epoch >= self._begin.epoch for epoch in epochs):
            begin, self._begin = self._begin, None
            begin.reply_to.tell(EpochBegun(begin.epoch, frozenset(self._dropped), self._lost))
            self._dropped.clear()
        if self._draining is not None and not epochs:
            drained, self._draining = self._draining, None
            drained.tell(Drained())
