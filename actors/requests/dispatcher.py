"""Dispatcher: owns a request of the RequestPool from its submission to its final answer.

A plain object in the RequestPool's hands. Here is what requests wait for: a place, the budget, a 429's pause of POSTs,
a backoff of their own, or, while there is no server, all for one and the same answer (see `circuit_breaker`). Nothing
here knows what a request is for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors.errors import Cancelled, Conflict, TooManyRequests
from actors.kube.retries import lacks_server, retry_delay
from actors.requests.circuit_breaker import CircuitBreaker
from actors.requests.kinds import Done, Retry
from actors.requests.refusals import Refusals
from actors.requests.request_queue import RequestQueue
from actors.requests.token_bucket import TokenBucket
from actors.runtime import Backoff, later

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.kube.api import Call, PodApi
    from actors.metrics.counts import PoolCounts
    from actors.requests.kinds import Request
    from actors.runtime import Actor, Moment

__all__ = ["BACKOFF", "Dispatcher", "DispatcherEvent"]

logger = logging.getLogger(__name__)

BACKOFF: Final = Backoff(
    initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), reset_after=timedelta(minutes=2)
)
"""Between tries of one request, with jitter up to the delay itself."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """The call of request number `serial` completed."""

    serial: int
    answer: object


@dataclass(frozen=True, slots=True)
class _RetryDue:
    """Request number `serial` has waited long enough."""

    serial: int


@dataclass(frozen=True, slots=True)
class _SendDue:
    """What queued requests waited for is over: a 429's pause of creates, a step of an outage, an empty budget."""


DispatcherEvent: TypeAlias = _Answered | _RetryDue | _SendDue
"""What the pool receives for its `Dispatcher.handle`."""


class Dispatcher:
    """At most `limit` calls under way and `rate` sent in a second; deletes, labels and reads first, then POSTs.

    POSTs leave one place free, unless there is only one: a delete does not wait for POSTs that hang.

    Args:
        pool: whose timers, clock and mailbox are used.
        api: where requests go.
        counts: where to say what waits.
    """

    def __init__(self, pool: Actor, api: PodApi, *, limit: int, rate: float | None, counts: PoolCounts) -> None:
        self._pool = pool
        self._timers = pool.timers
        self._clock = pool.clock
        self._entropy = pool.entropy
        self._api = api
        self._limit = limit
        self._counts = counts
        self._budget = TokenBucket(rate)
        self._outage = CircuitBreaker()
        self._refusals = Refusals()
        self._serial = 0
        self._open: dict[object, Request] = {}
        """By key: what was submitted and has no final answer yet."""
        self._queue = RequestQueue()
        self._sent: dict[int, tuple[Request, Call]] = {}
        self._retries: dict[int, tuple[Request, ApiError]] = {}
        """Requests between two tries, each on its own account."""
        self._finished: list[tuple[Request, object]] = []
        self._holding_posts: set[object] = set()
        """Keys of open requests that hold POSTs back."""
        self._paused_until: Moment = 0.0
        """When creates may go out again, as a 429 has it."""
        self._suspended = False

    # ── in and out ───────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: Request) -> None:
        """Queue it, unless the same is open already, or was refused a moment ago, or it may not be sent."""
        if request.key in self._open or (request.writes and self._suspended):
            return
        if self._refusals.hold_back(request, self._clock.monotonic()):
            return
        self._serial += 1
        request.serial = self._serial
        self._open[request.key] = request
        if request.holds_posts:
            self._holding_posts.add(request.key)
        self._queue.add(request)

    def is_sent(self, request: Request) -> bool:
        """Whether its call is on the wire."""
        return request.serial in self._sent

    def reconsider(self, request: Request) -> None:
        """Something became known of it: if it is on the wire, its answer decides, else it may end or become urgent."""
        if self.is_sent(request):
            return
        if isinstance(request.settle(Retry()), Done):
            self._remove(request)
            self._finish(request, None)
        elif request.serial not in self._retries:
            self._queue.discard(request)
            self._queue.add(request)

    def handle(self, event: DispatcherEvent) -> None:
        """One case an event."""
        match event:
            case _Answered(serial, answer):
                self._answered(serial, answer)
            case _RetryDue(serial):
                request, _ = self._retries.pop(serial)
                self._queue.add(request)
            case _SendDue():
                pass
            case _:
                assert_never(event)

    def take_finished(self) -> list[tuple[Request, object]]:
        """The requests that have ended since this was called last, each with its final answer."""
        finished, self._finished = self._finished, []
        return finished

    def send(self) -> None:
        """Send all that there is room and budget for; while the server is away, one request a step."""
        while not self._timers.active("budget") and (request := self._next()) is not None:
            wait = self._budget.spend(self._clock.monotonic())
            if wait:
                self._timers.start("budget", wait, _SendDue())
                break
            self._queue.discard(request)
            request.tries += 1
            if self._outage.steps:
                self._outage.probe = request.serial
            self._sent[request.serial] = (request, self._put_on_the_wire(request))
        self._counts.queued, self._counts.waiting = len(self._queue), len(self._retries)
        self._counts.outage = self._outage.steps > 0

    def hasten(self) -> None:
        """Somebody waits for the last word: what waits for a server looks for it again soon, not in half a minute."""
        for request in self._without_server():
            error = self._retries[request.serial][1]
            request.failures = 1
            self._wait(request, error, retry_delay(BACKOFF, 0, error, self._entropy))
        self._outage.hasten()
        if self._timers.active("step"):
            self._timers.start("step", self._outage.step(self._entropy), _SendDue())

    def suspend(self) -> None:
        """Write nothing any more, not even what is on the wire and has not reached the server.

        What waits is dropped: who asked asks again.
        """
        self._suspended = True
        for request in [request for request in self._open.values() if request.writes and not self.is_sent(request)]:
            self._remove(request)
            self._close(request)
        for request, call in self._sent.values():
            if request.writes:
                call.cancel()

    def resume(self) -> None:
        """Write again."""
        self._suspended = False

    def give_up(self) -> None:
        """The end, of whatever kind: nobody is left to hear of what is under way."""
        self._counts.clear()
        for _, call in self._sent.values():
            call.cancel()

    # ── what goes out ────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> Request | None:
        """What is to go out now."""
        if not self._queue or len(self._sent) >= self._limit:
            return None
        if self._outage.steps and (self._outage.probe is not None or self._timers.active("step")):
            return None
        waiting = self._queue.waiting(posts=self._may_post())
        return self._outage.choose(waiting) if self._outage.steps else next(waiting, None)

    def _may_post(self) -> bool:
        posts = sum(not request.urgent for request, _ in self._sent.values())
        return posts < max(self._limit - 1, 1) and not self._timers.active("creates") and not self._holding_posts

    def _put_on_the_wire(self, request: Request) -> Call:
        serial, myself = request.serial, self._pool.myself
        return self._api.send(request.call, lambda answer: myself.tell(_Answered(serial, answer)))

    # ── what comes back ──────────────────────────────────────────────────────────────────────────────────────────

    def _answered(self, serial: int, answer: object) -> None:
        request, _ = self._sent.pop(serial, (None, None))
        if request is None:
            return
        posted = not request.urgent
        self._look_for_server(request, answer)
        match request.judge(answer):
            case Done():
                self._finish(request, answer)
            case Retry() if request.writes and self._suspended:
                self._close(request)
            case Retry(error):
                self._try_again(request, error, posted=posted)

    def _finish(self, request: Request, answer: object) -> None:
        self._close(request)
        self._refusals.note(request, answer, self._clock.monotonic(), self._entropy)
        self._finished.append((request, answer))

    def _close(self, request: Request) -> None:
        del self._open[request.key]
        self._holding_posts.discard(request.key)

    def _remove(self, request: Request) -> None:
        """It is not sent any more, wherever it waits for that."""
        self._retries.pop(request.serial, None)
        self._timers.cancel(("retry", request.serial))
        self._queue.discard(request)

    def _try_again(self, request: Request, error: ApiError | None, *, posted: bool) -> None:
        """At once if it did not fail. A 429 on a POST pauses all POSTs; deletes go on, each on its own account."""
        if error is None:
            self._queue.add_first(request)
            return
        request.delayed(error)
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

    def _wait(self, request: Request, error: ApiError, delay: timedelta) -> None:
        self._retries[request.serial] = (request, error)
        self._timers.start(("retry", request.serial), delay, _RetryDue(request.serial))

    def _pause_creates(self, delay: timedelta) -> None:
        """Never shorter than an earlier answer asked for."""
        until = later(self._clock.monotonic(), delay)
        if until > self._paused_until:
            self._paused_until = until
            self._timers.start("creates", delay, _SendDue())

    # ── without a server ─────────────────────────────────────────────────────────────────────────────────────────

    def _look_for_server(self, request: Request, answer: object) -> None:
        """Any answer ends an outage: what it held back goes out. A probe without one is followed by another step."""
        if isinstance(answer, Cancelled) and not self._outage.steps:
            return  # we gave it up ourselves
        if not lacks_server(answer):
            if self._outage.answered():
                self._timers.cancel("step")
                logger.info("the API server answers again: requests=%d", len(self._open))
        elif self._outage.failed(request.serial, answer):
            self._take_step(answer)

    def _take_step(self, error: ApiError) -> None:
        delay = self._outage.step(self._entropy)
        self._timers.start("step", delay, _SendDue())
        for request in self._without_server():
            self._remove(request)
            self._strand(request)
        level, seconds = logging.WARNING if self._outage.steps == 1 else logging.DEBUG, delay.total_seconds()
        words = "no API server answers, one request a step looks for it: requests=%d step=%.1fs error=%s"
        logger.log(level, words, len(self._open), seconds, error)
        for request in list(self._queue.waiting(posts=False)):
            if request.max_tries is not None:  # of those, each step is a try, whoever's it is
                request.tries += 1
                if isinstance(request.judge(error), Done):
                    self._remove(request)
                    self._finish(request, error)

    def _strand(self, request: Request) -> None:
        """It waits for the server like everything else, and not for a failure of its own."""
        request.failures = 0
        self._queue.add(request)

    def _without_server(self) -> list[Request]:
        """Those that wait on their own account for want of a server."""
        return [request for request, error in self._retries.values() if lacks_server(error)]
