"""Whether there is a server at all, judged by what the RequestPool's requests are answered. Pure.

While there is none, requests that each back off for themselves would be dozens a minute, and the last would find out
half a minute after the first that the server is back. So the pool backs off as one: it sends a single request a step, a
probe, until there is an answer. After a probe that fails another request is next, for a request may fail for reasons
of its own.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.kube.retries import retry_delay
from actors.runtime import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.errors import ApiError
    from actors.requests.kinds import Request
    from actors.runtime import Entropy


__all__ = ["STEPS", "CircuitBreaker"]

ENOUGH: Final = 2
"""So many requests that fail in a row make an outage. One alone may fail for reasons of its own, such as a DELETE that
always times out, and must not hold the others up; its own backoff is as slow as the pool's.
"""


STEPS: Final = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=20), jitter=0.5)
"""Between two probes: with the jitter 30 s at most, so that a server that is back is noticed in time, and three a
minute at most. A server that answers again starts it anew: whoever flaps is not away.
"""


class CircuitBreaker:
    """Whether the server is away. What was under way when it went counts for one step, however it comes back."""

    def __init__(self) -> None:
        self.steps = 0
        """How many steps the pool has taken since the server went away; 0 while it is there."""
        self.error: ApiError | None = None
        """What the pool took its last step for."""
        self.probe: int | None = None
        """Serial of the probe under way."""
        self._failures: Counter[int] = Counter()
        """By serial: how often a request failed since the last answer; what came before the first step counts once."""

    def answered(self) -> bool:
        """There is a server. Says whether that is news."""
        is_news = self.steps > 0
        self.steps, self.probe = 0, None
        self._failures.clear()
        return is_news

    def failed(self, serial: int, error: ApiError) -> bool:
        """No server for this request. Says whether the pool is to take a step: at the begin, and with each probe."""
        if self.steps == 0:
            self._failures[serial] = 1
            if len(self._failures) < ENOUGH:
                return False
        else:
            self._failures[serial] += 1
            if serial != self.probe:
                return False
        self.probe, self.error = None, error
        self.steps += 1
        return True

    def hasten(self) -> None:
        """Begin the steps anew, if the server is away: somebody waits for it."""
        self.steps = min(self.steps, 1)

    def step(self, entropy: Entropy) -> timedelta:
        """How long to wait now before the next probe."""
        return retry_delay(STEPS, self.steps - 1, self.error, entropy)

    def choose(self, requests: Iterable[Request]) -> Request | None:
        """The next probe: the one that failed least often, of those an urgent one, of those the oldest."""
        return min(requests, key=lambda r: (self._failures[r.serial], not r.urgent, r.serial), default=None)
