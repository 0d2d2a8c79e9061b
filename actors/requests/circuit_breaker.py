"""CircuitBreaker: decides from the answers to requests whether there is an API server at all. Pure.

During an outage, requests that back off independently would send dozens a minute, and the last would notice the
server's return half a minute after the first. Therefore the pool backs off as one: it sends a single request per step,
a probe, until one is answered. The next probe is another request, as a request may fail for reasons of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.kube.retries import MAX_RETRY_AFTER, retry_delay
from actors.requests.kinds import Lane
from actors.runtime import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.errors import ApiError
    from actors.requests.kinds import Request
    from actors.runtime import Entropy


__all__ = ["STEPS", "STEPS_AT_STOP", "CircuitBreaker"]

OUTAGE_FAILURES: Final = 2
"""An outage begins when this many different requests fail in a row. A single one may fail for reasons of its own, such
as a DELETE that always times out, and must not block the others: its own backoff is as slow as the pool's.
"""

STEPS: Final = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=20), jitter=0.5)
"""The delay between two probes: 30 s at most with jitter, so that the server's return is noticed in time, and at most
three probes a minute. Any answer resets it: a server that flaps is not down.
"""

STEPS_AT_STOP: Final = replace(STEPS, maximum=timedelta(seconds=2))
"""The same during a stop, which has half a minute: a server that returns in the last seconds is noticed in time."""


class CircuitBreaker:
    """Tracks an outage. The requests in flight when it began count as one step, whenever they fail."""

    def __init__(self, max_retry_after: timedelta = MAX_RETRY_AFTER) -> None:
        self._max_retry_after = max_retry_after
        self._backoff = STEPS
        self.steps = 0
        """Steps taken since the outage began; 0 while the server answers."""
        self.error: ApiError | None = None
        """The error that caused the last step."""
        self.probe: int | None = None
        """Serial of the probe in flight."""
        self._failures: Counter[int] = Counter()
        """Failures by serial since the last answer. All failures before the first step count once."""

    def answered(self) -> bool:
        """Record an answer of the server; return whether it ends an outage."""
        ends_outage = self.steps > 0
        self.steps, self.probe = 0, None
        self._failures.clear()
        return ends_outage

    def failed(self, serial: int, error: ApiError) -> bool:
        """Record that no server answered a request; return whether a step is due: at the start and after each probe."""
        if self.steps == 0:
            self._failures[serial] = 1
            if len(self._failures) < OUTAGE_FAILURES:
                return False
        else:
            self._failures[serial] += 1
            if serial != self.probe:
                return False
        self.probe, self.error = None, error
        self.steps += 1
        return True

    def hasten(self) -> None:
        """Restart the backoff of an outage, as a stop begins. From now on all probes come soon, whatever is asked."""
        self.steps = min(self.steps, 1)
        self._backoff = STEPS_AT_STOP
        self._max_retry_after = timedelta()

    def step(self, entropy: Entropy) -> timedelta:
        """Return the delay until the next probe."""
        return retry_delay(self._backoff, self.steps - 1, self.error, entropy, self._max_retry_after)

    def choose(self, requests: Iterable[Request]) -> Request | None:
        """Choose the next probe: the request that failed least often, then one that is no POST, then the oldest."""
        return min(requests, key=lambda r: (self._failures[r.serial], r.lane is Lane.POST, r.serial), default=None)
