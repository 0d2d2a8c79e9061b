"""RequestQueue: the order in which requests are sent. Pure: the Dispatcher decides when.

The kinds of calls wait in lanes of their own, so that many of one kind keep none of another waiting: the next request
is of the kind with the fewest calls in flight, then of the kind that was sent longest ago. POSTs are sent in the order
of their rank, so that profiles which compete for the last room of a quota get equally much, and then of their
submission, so that a retried POST goes before newer ones; others in the order in which they were queued.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING

from actors.requests.kinds import Lane

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from actors.requests.kinds import Request

__all__ = ["RequestQueue"]


class RequestQueue:
    """The requests that can be sent as soon as there is room, and how many of each kind are in flight."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, deque[Request]] = {lane: deque() for lane in Lane}
        """The lane that was sent longest ago first."""
        self._in_flight: Counter[Lane] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def add(self, request: Request) -> None:
        """Queue a request."""
        if request.lane is Lane.POST:
            insort(self._lanes[Lane.POST], request, key=lambda post: (post.rank, post.serial))
        else:
            self._lanes[request.lane].append(request)

    def add_first(self, request: Request) -> None:
        """Queue the next step of a request before others of its kind."""
        self._lanes[request.lane].appendleft(request)

    def discard(self, request: Request) -> None:
        """Remove a request, if it is queued."""
        for lane in self._lanes.values():
            with suppress(ValueError):
                lane.remove(request)
                return

    def in_flight(self, lane: Lane) -> int:
        """Return how many calls of this kind are in flight."""
        return self._in_flight.get(lane, 0)

    def lanes(self) -> list[Lane]:
        """Return the kinds of which requests are queued, the one that was sent longest ago first."""
        return [lane for lane, requests in self._lanes.items() if requests]

    def next(self, lanes: Sequence[Lane]) -> Request | None:
        """Return the request to send now, of these kinds, which are in the order of `lanes`."""
        if not lanes:
            return None
        chosen = lanes[0] if len(lanes) == 1 else min(lanes, key=self.in_flight)
        return self._lanes[chosen][0]

    def waiting(self, lanes: Iterable[Lane]) -> Iterator[Request]:
        """Yield the queued requests of these kinds."""
        for lane in lanes:
            yield from self._lanes[lane]

    def sent(self, request: Request) -> None:
        """Move a request out of the queue: its call is in flight."""
        lane = request.lane
        requests = self._lanes.pop(lane)
        requests.remove(request)
        self._lanes[lane] = requests
        self._in_flight[lane] += 1

    def answered(self, lane: Lane) -> None:
        """Record that a call of this kind is no longer in flight."""
        self._in_flight[lane] -= 1
