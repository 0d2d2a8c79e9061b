"""Traffic: when the RequestPool's requests go out, and when those that failed go out again.

A plain object in the RequestPool's hands, which says what is to be sent and judges the answers. Here is what they wait
for: a place, the budget, a 429's pause of POSTs, a backoff of their own, or, while there is no server, all for one and
the same answer (see `outages`). Nothing here knows what a request is for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors.errors import Cancelled, Conflict, TooManyRequests
from actors.kube.retries import lacks_server, retry_delay
from actors.requests.circuit_breaker import CircuitBreaker
from actors.requests.request_queue import RequestQueue
from actors.requests.token_bucket import TokenBucket
from actors.runtime import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import ApiError
    from actors.kube.api import Call
    from actors.metrics.counts import PoolCounts
    from actors.requests.kinds import Request
    from actors.runtime import Actor

__all__ = ["BACKOFF", "Dispatcher", "TrafficTimer"]

logger = logging.getLogger(__name__)

BACKOFF: Final = Backoff(
    initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), reset_after=timedelta(minutes=2)
)
"""Between tries of one request, with jitter up to the delay itself."""


@dataclass(frozen=True, slots=True)
class _RetryDue:
    """Request number `serial` has waited long enough."""

    serial: int


@dataclass(frozen=True, slots=True)
class _SendDue:
    """What queued requests waited for is over: a 429's pause of creates, a step of an outage, an empty budget."""


TrafficTimer: TypeAlias = _RetryDue | _SendDue
"""What comes back to `Dispatcher.due` by a timer."""


class Dispatcher:
    """At most `limit` calls under way and `rate` sent in a second; deletes, labels and reads first, then POSTs.

    POSTs leave one place free, unless there is only one: a delete does not wait for POSTs that hang.

    Args:
        pool: whose timers and clock are used.
        send: puts a request on the wire.
        may_post: whether POSTs may go out at all.
        counts: where to say what waits.
    """

    def __init__(
        self,
        pool: Actor,
        *,
        limit: int,
        rate: float | None,
        send: Callable[[Request], Call],
        may_post: Callable[[], bool],
        counts: PoolCounts,
    ) -> None:
        self._timers = pool.timers
        self._clock = pool.clock
        self._entropy = pool.entropy
        self._limit = limit
        self._budget = TokenBucket(rate)
        self._put_on_the_wire = send
        self._posts_allowed = may_post
        self._counts = counts
        self._outage = CircuitBreaker()
        self._queue = RequestQueue()
        self._flying: dict[int, tuple[Request, Call]] = {}
        self._waiting: dict[int, tuple[Request, ApiError]] = {}
        """Requests between two tries, each on its own account."""
        self._paused_until = 0.0
        """When creates may go out again, as a 429 has it (monotonic)."""

    # ── what is there ────────────────────────────────────────────────────────────────────────────────────────────

    def count(self) -> None:
        """For whoever looks at us from outside."""
        self._counts.queued, self._counts.waiting = len(self._queue), len(self._waiting)
        self._counts.outage = self._outage.steps > 0

    def is_flying(self, request: Request) -> bool:
        """Whether it is on the wire."""
        return request.serial in self._flying

    def flying(self) -> list[tuple[Request, Call]]:
        """Everything that is on the wire."""
        return list(self._flying.values())

    def urgent(self) -> list[Request]:
        """What is queued and goes before POSTs."""
        return list(self._queue.waiting(posts=False))

    # ── what changes it ──────────────────────────────────────────────────────────────────────────────────────────

    def add(self, request: Request) -> None:
        """It is to be sent."""
        self._queue.add(request)

    def add_first(self, request: Request) -> None:
        """It is to be sent before everything else: half of it is done."""
        self._queue.add_first(request)

    def sort_anew(self, request: Request, change: Callable[[], None]) -> None:
        """Have it changed while it is queued, or waits for its next try: it may be urgent then, and was not before."""
        self._queue.discard(request)
        change()
        if request.serial not in self._waiting:
            self._queue.add(request)

    def remove(self, request: Request) -> None:
        """It is not sent any more, wherever it waits for that."""
        self._waiting.pop(request.serial, None)
        self._timers.cancel(("retry", request.serial))
        self._queue.discard(request)

    def landed(self, serial: int) -> Request | None:
        """Its call is completed; None if that is known."""
        request, _ = self._flying.pop(serial, (None, None))
        return request

    def go(self) -> None:
        """Send all that there is room and budget for; while the server is away, one request a step."""
        while not self._timers.active("budget") and (request := self._next()) is not None:
            wait = self._budget.spend(self._clock.monotonic())
            if wait:
                self._timers.start("budget", wait, _SendDue())
                return
            self._queue.discard(request)
            request.tries += 1
            if self._outage.steps:
                self._outage.probe = request.serial
            self._flying[request.serial] = (request, self._put_on_the_wire(request))

    def due(self, timer: TrafficTimer) -> None:
        """One case a timer."""
        match timer:
            case _RetryDue(serial):
                request, _ = self._waiting.pop(serial)
                self._queue.add(request)
            case _SendDue():
                pass
            case _:
                assert_never(timer)
        self.go()

    def try_later(self, request: Request, error: ApiError, *, posted: bool) -> None:
        """It failed for what may pass. A 429 on a POST pauses all POSTs; deletes go on, each on its own account."""
        self._counts.retries.add(request.kind, type(error).__name__)
        if self._outage.steps and lacks_server(error):
            self._strand(request)
            return
        delay = retry_delay(BACKOFF, request.failures, error, self._entropy)
        unusual = request.failures == 0 and not isinstance(error, TooManyRequests | Conflict | Cancelled)
        level, seconds = logging.WARNING if unusual else logging.DEBUG, delay.total_seconds()
        logger.log(level, "a request is tried again: request=%s delay=%.1fs error=%s", request, seconds, error)
        request.failures += 1
        if posted and isinstance(error, TooManyRequests):
            self._pause_creates(delay)
            if not request.urgent:
                self._queue.add(request)
                return
        self._wait(request, error, delay)

    def look_for_server(self, request: Request, answer: object) -> ApiError | None:
        """Any answer ends an outage: what it held back goes out. A probe without one is followed by another step.

        Answers with what a step is taken for, if one is.
        """
        if isinstance(answer, Cancelled) and not self._outage.steps:
            return None  # we gave it up ourselves
        if not lacks_server(answer):
            if self._outage.answered():
                self._timers.cancel("step")
                logger.info("the API server answers again: requests=%d", self._open())
            return None
        if not self._outage.failed(request.serial, answer):
            return None
        self._take_step(answer)
        return answer

    def hasten(self) -> None:
        """Somebody waits for the last word: what waits for a server looks for it again soon, not in half a minute."""
        for request in self._without_server():
            error = self._waiting[request.serial][1]
            request.failures = 1
            self._wait(request, error, retry_delay(BACKOFF, 0, error, self._entropy))
        self._outage.hasten()
        if self._timers.active("step"):
            self._timers.start("step", self._outage.step(self._entropy), _SendDue())

    # ── how ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> Request | None:
        """What is to go out now."""
        if len(self._flying) >= self._limit:
            return None
        if self._outage.steps and (self._outage.probe is not None or self._timers.active("step")):
            return None
        waiting = self._queue.waiting(posts=self._may_post())
        return self._outage.choose(waiting) if self._outage.steps else next(waiting, None)

    def _may_post(self) -> bool:
        posts = sum(not request.urgent for request, _ in self._flying.values())
        return posts < max(self._limit - 1, 1) and not self._timers.active("creates") and self._posts_allowed()

    def _wait(self, request: Request, error: ApiError, delay: timedelta) -> None:
        self._waiting[request.serial] = (request, error)
        self._timers.start(("retry", request.serial), delay, _RetryDue(request.serial))

    def _pause_creates(self, delay: timedelta) -> None:
        """Never shorter than an earlier answer asked for."""
        until = self._clock.monotonic() + delay.total_seconds()
        if until > self._paused_until:
            self._paused_until = until
            self._timers.start("creates", delay, _SendDue())

    def _take_step(self, error: ApiError) -> None:
        delay = self._outage.step(self._entropy)
        self._timers.start("step", delay, _SendDue())
        for request in self._without_server():
            del self._waiting[request.serial]
            self._timers.cancel(("retry", request.serial))
            self._strand(request)
        level, seconds = logging.WARNING if self._outage.steps == 1 else logging.DEBUG, delay.total_seconds()
        words = "no API server answers, one request a step looks for it: requests=%d step=%.1fs error=%s"
        logger.log(level, words, self._open(), seconds, error)

    def _open(self) -> int:
        """How many requests there are, with the one whose answer is looked at."""
        return len(self._queue) + len(self._waiting) + len(self._flying) + 1

    def _strand(self, request: Request) -> None:
        """It waits for the server like everything else, and not for a failure of its own."""
        request.failures = 0
        self._queue.add(request)

    def _without_server(self) -> list[Request]:
        """Those that wait on their own account for want of a server."""
        return [request for request, error in self._waiting.values() if lacks_server(error)]
