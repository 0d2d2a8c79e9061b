"""How creation goes in one profile: how many are requested at a time, what that waits for, and why it stands still.

A plain value in the Allocator's hands: it counts requests out and answers in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.allocation.creation_block import CreationBlock
from actors.errors import AlreadyExists, ApiError, Cancelled

if TYPE_CHECKING:
    from actors.runtime import Entropy

__all__ = ["BatchPacing", "BatchSize"]


@dataclass(slots=True)
class BatchSize:
    """How many executors to request at a time: doubles while creation succeeds, falls back when it fails.

    Slow start, as the Job and ReplicaSet controllers have it: a cluster that refuses is not asked 500 times over.
    """

    initial: int
    maximum: int
    current: int = 0

    def __post_init__(self) -> None:
        self.current = self.initial

    def succeeded(self) -> None:
        """Every POST of a batch made a pod."""
        self.current = min(self.current * 2, self.maximum)

    def failed(self) -> None:
        """A POST of a batch made none."""
        self.current = min(self.current, self.initial)

    def refused(self) -> None:
        """For a cause that concerns the next one too: one is enough to see whether it has passed."""
        self.current = 1


class BatchPacing:
    """Of one profile. A batch is what was requested in one round; the next one goes out when it is answered."""

    def __init__(self, batch_size: int, max_batch_size: int) -> None:
        self.size = BatchSize(batch_size, max_batch_size)
        self.creation_block = CreationBlock()
        self.awaited = 0
        """POSTs of the newest batch that are not answered."""
        self._failed = False
        """Of those answered, one made no pod."""
        self._refused = False
        """And for a cause that concerns the next one too, unlike a name that was taken."""

    def requested(self, count: int) -> None:
        """A batch goes out."""
        self.awaited += count

    def created(self) -> bool:
        """One more is answered: the pod is there. Says whether it was the last of its batch."""
        self.creation_block.answered()
        return self._is_last()

    def not_created(self, error: ApiError, *, now: float, entropy: Entropy) -> tuple[bool, bool]:
        """One more is answered: there is no pod. Says whether it was the last of its batch, and whether that is news.

        A name that is taken and a request that was withdrawn say nothing of the next one.
        """
        self.creation_block.answered()
        self._failed = True
        news = False
        if not isinstance(error, AlreadyExists | Cancelled):
            self._refused = True
            news = self.creation_block.refused(error, now=now, entropy=entropy)
        return self._is_last(), news

    def satisfied(self) -> None:
        """Nothing more is wanted."""
        if not self.awaited:
            self.creation_block.rest()

    def _is_last(self) -> bool:
        """After the last answer of a batch the next one may go out; its size follows from how this one went.

        A blockade that one POST has got through may stand again for the next: it is over when as many have got through
        as are requested where nothing is wrong, or when nothing is missing any more.
        """
        self.awaited -= 1
        if self._refused:
            self.size.refused()
        elif self._failed:
            self.size.failed()
        if self.awaited > 0:
            return False
        if not self._failed:
            self.creation_block.got_through(enough=self.size.current >= self.size.initial)
            self.size.succeeded()
        self._failed = self._refused = False
        return True
