"""The order in which the RequestPool sends what it was asked for. Pure: whether something may go out is not known here.

Whatever frees room or only looks goes first, in the order in which it was queued; then POSTs, in the order in which
they were asked for, so that one that is tried again is older than the others.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.requests.kinds import Request

__all__ = ["RequestQueue"]


class RequestQueue:
    """Requests that wait for room, for a budget or for a server."""

    def __init__(self) -> None:
        self._urgent: deque[Request] = deque()
        self._posts: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._posts)

    def add(self, request: Request) -> None:
        """Put it where it belongs."""
        if request.urgent:
            self._urgent.append(request)
        else:
            insort(self._posts, request, key=lambda post: post.serial)

    def add_first(self, request: Request) -> None:
        """Before everything else: half of it is done."""
        self._urgent.appendleft(request)

    def discard(self, request: Request) -> None:
        """Take it out, wherever it is, if it is there."""
        for queue in (self._urgent, self._posts):
            with suppress(ValueError):
                queue.remove(request)
                return

    def waiting(self, *, posts: bool) -> Iterator[Request]:
        """Everything in its order, with or without the POSTs."""
        return chain(self._urgent, self._posts if posts else ())
