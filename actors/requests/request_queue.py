"""RequestQueue: the order in which requests are sent. Pure: the Dispatcher decides when.

Urgent requests (deletes, labels, reads) go first, in the order in which they were queued. POSTs follow in the order of
their submission, so that a retried POST goes before newer ones.
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
    """The requests that can be sent as soon as there is room."""

    def __init__(self) -> None:
        self._urgent: deque[Request] = deque()
        self._posts: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._posts)

    def add(self, request: Request) -> None:
        """Queue a request."""
        if request.urgent:
            self._urgent.append(request)
        else:
            insort(self._posts, request, key=lambda post: post.serial)

    def add_first(self, request: Request) -> None:
        """Queue the next step of a request before everything else."""
        self._urgent.appendleft(request)

    def discard(self, request: Request) -> None:
        """Remove a request, if it is queued."""
        for queue in (self._urgent, self._posts):
            with suppress(ValueError):
                queue.remove(request)
                return

    def waiting(self, *, posts: bool) -> Iterator[Request]:
        """Return the queued requests in order, with or without the POSTs."""
        return chain(self._urgent, self._posts if posts else ())
