"""Dispatcher: owns a request from its submission to its final answer.

A request waits for a free slot, for the rate limit, for the end of a 429's pause of POSTs, or for a backoff of its own.
During an outage all requests wait together (see `circuit_breaker`). It never decides what to request: the
RequestPool does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import msgspec

from actors.errors import Cancelled, Conflict, NotSent, TooManyRequests, Unavailable
from actors.kube.retries import MAX_RETRY_AFTER, lacks_server, retry_delay
from actors.requests.carried_out import CarriedOut
from actors.requests.circuit_breaker import STEPS_AT_STOP, CircuitBreaker
from actors.requests.concurrency_limit import ConcurrencyLimit
from actors.requests.kinds import BLOCKING_TRIES, Done, Lane, Retry
from actors.requests.refusals import Refusals
from actors.requests.request_queue import RequestQueue
from actors.requests.token_bucket import TokenBucket
from actors.runtime import Backoff, Deadline, elapsed, later
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from actors.errors import ApiError
    from actors.kube.api import Call, PodApi
    from actors.metrics.counts import PoolCounts
    from actors.requests.kinds import Request
    from actors.runtime import Actor, Moment

__all__ = ["BACKOFF", "Dispatcher", "DispatcherEvent"]

logger = get_logger(__name__)

BACKOFF: Final = Backoff(
    initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), reset_after=timedelta(minutes=2)
)
"""The delay between two tries of one request, plus jitter of up to the same length."""

AT_STOP: Final = replace(BACKOFF, maximum=STEPS_AT_STOP.maximum)
"""The same during a stop."""

FIRST_WITHIN: Final = timedelta(seconds=15)
"""How long POSTs wait for requests that go first, all together: a server that hangs or refuses them must not stop
creation."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """The call of request `serial` has completed."""

    serial: int
    answer: object


@dataclass(frozen=True, slots=True)
class _RetryDue:
    """The backoff of request `serial` is over."""

    serial: int


@dataclass(frozen=True, slots=True)
class _SendDue:
    """Queued requests may be sent again: a 429's pause of POSTs, a step of an outage or a rate limit is over."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request in flight."""

    request: Request
    call: Call
    at: Moment
    ticket: int
    """See `ConcurrencyLimit`; 0 unless it is a POST."""


DispatcherEvent: TypeAlias = _Answered | _RetryDue | _SendDue
"""What the RequestPool receives and passes to `Dispatcher.handle`."""


class Dispatcher:
    """Keeps at most `limit` calls in flight and sends at most `rate` a second, shared fairly by the kinds of calls.

    Each kind leaves one slot free, unless there is only one, so that a delete does not wait for POSTs that hang. Of
    POSTs fewer are in flight if the server does not keep up (see `concurrency_limit`).

    Args:
        pool: the actor whose timers, clock and mailbox are used.
        api: receives the requests.
        counts: receives the number of waiting requests.
        repeat_interval: how often a request is repeated that has no observed effect.
    """

    def __init__(
        self,
        pool: Actor,
        api: PodApi,
        *,
        limit: int,
        rate: float | None,
        counts: PoolCounts,
        repeat_interval: timedelta,
        max_retry_after: timedelta = MAX_RETRY_AFTER,
    ) -> None:
        self._pool = pool
        self._timers = pool.timers
        self._clock = pool.clock
        self._entropy = pool.entropy
        self._api = api
        self._limit = limit
        self._most = max(limit - 1, 1)
        """The most calls of one kind."""
        self._posts = ConcurrencyLimit(self._most)
        self._counts = counts
        self._budget = TokenBucket(rate)
        self._backoff = BACKOFF
        self._max_retry_after = max_retry_after
        self._outage = CircuitBreaker(max_retry_after)
        self._refusals = Refusals()
        self._carried_out = CarriedOut(repeat_interval)
        self._serial = 0
        self._open: dict[object, Request] = {}
        """By key: requests without a final answer."""
        self._queue = RequestQueue()
        self._in_flight: dict[int, _Sent] = {}
        """By serial."""
        self._retries: dict[int, tuple[Request, ApiError]] = {}
        """By serial: requests that wait for their own backoff, with the error that caused it."""
        self._finished: list[tuple[Request, object]] = []
        self._blocking_posts: set[object] = set()
        """Keys of open requests that block POSTs."""
        self._going_first: set[object] = set()
        """Keys of open requests that go before POSTs, while the timer "first" runs."""
        self._paused_until: Moment = 0.0
        """The end of the pause after a 429."""
        self._next_step_at: Moment = 0.0
        """The end of the current step of an outage."""
        self._suspended = False
        self._deadline: Deadline | None = None
        """The end of the permission to write."""

    # ── from the pool ────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: Request) -> None:
        """Queue a request, unless the same is open, was refused a moment ago, was carried out, or must not be sent."""
        if request.writes and self._suspended:
            return
        if (same := self._open.get(request.key)) is not None:
            same.join(request)
            if request.goes_first:
                self._let_first(same)
            return
        now = self._clock.monotonic()
        if self._refusals.holds_back(request, now) or self._carried_out.holds_back(request, now):
            return
        self._serial += 1
        request.serial = self._serial
        self._open[request.key] = request
        if request.blocks_posts:
            self._blocking_posts.add(request.key)
        if request.goes_first:
            self._let_first(request)
        self._queue.add(request)

    def _let_first(self, request: Request) -> None:
        """Have POSTs wait for a request. The first of several begins the wait, which later ones do not prolong."""
        if not self._going_first:
            self._timers.start("first", FIRST_WITHIN, _SendDue())
        self._going_first.add(request.key)

    def is_in_flight(self, request: Request) -> bool:
        """Return whether a call of this request has no answer yet."""
        return request.serial in self._in_flight

    def reconsider(self, request: Request) -> None:
        """Apply a change to a request that is not in flight: it may end or send a GET. Else its answer decides."""
        if self.is_in_flight(request):
            return
        if isinstance(request.settle(Retry()), Done):
            self._remove(request)
            self._finish(request, None)
        elif request.serial not in self._retries:
            self._queue.discard(request)
            self._queue.add(request)

    def withdraw(self, pods: Mapping[str, str]) -> None:
        """Send nothing more that writes to these pods, name → UID, and forget them. Creates are not concerned."""
        self._carried_out.forget(pods)
        named = [request for request in self._open.values() if request.name in pods]
        for request in named:
            if request.lane not in {Lane.DELETE, Lane.PATCH} or request.uid not in {None, pods[request.name]}:
                continue
            if self.is_in_flight(request):
                request.is_last_try = True
            else:
                self._remove(request)
                self._end(request)

    def handle(self, event: DispatcherEvent) -> None:
        """Handle one event."""
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
        """Return the requests that have ended since the last call, each with its final answer."""
        finished, self._finished = self._finished, []
        return finished

    def send(self) -> None:
        """Send as much as slots and rate allow; during an outage, one probe per step."""
        while not self._timers.active("budget") and (request := self._next()) is not None:
            wait = self._budget.spend(self._clock.monotonic())
            if wait:
                self._timers.start("budget", wait, _SendDue())
                break
            self._queue.sent(request)
            request.tries += 1
            if self._outage.steps:
                self._outage.probe = request.serial
            ticket = self._posts.sent() if request.lane is Lane.POST else 0
            self._in_flight[request.serial] = _Sent(request, self._call(request), self._clock.monotonic(), ticket)
        self._counts.queued, self._counts.waiting = len(self._queue), len(self._retries)
        self._counts.outage = self._outage.steps > 0

    def retry_soon(self) -> None:
        """Restart the backoff of all requests, and let none become long: a stop cannot wait a minute.

        From now on no `Retry-After` counts: a stop may take less long than that, and no request is retried after it.
        """
        self._backoff, self._max_retry_after = AT_STOP, timedelta()
        self._refusals.hasten()
        for request, error in list(self._retries.values()):
            request.failures = 1
            self._back_off(request, error, self._delay(0, error))
        self._outage.hasten()
        if self._timers.active("step"):
            self._timers.start("step", self._outage.step(self._entropy), _SendDue())

    def suspend(self) -> None:
        """Stop writing: drop what waits, and cancel what is in flight and may not have reached the server.

        Senders repeat dropped requests if they still need them.
        """
        self._suspended = True
        waiting = [request for request in self._open.values() if not self.is_in_flight(request)]
        for request in [request for request in waiting if request.writes]:
            self._remove(request)
            self._end(request)
        for sent in self._in_flight.values():
            if sent.request.writes:
                sent.call.cancel()

    def allow(self, until: Moment | None) -> None:
        """Allow writes, until this moment if there is one. The thread that sends a write looks at the clock."""
        self._suspended = False
        self._deadline = None if until is None else Deadline(until, self._clock)

    def close(self) -> None:
        """Cancel the calls in flight when the actor ends: their answers have no receiver."""
        self._counts.clear()
        for sent in self._in_flight.values():
            sent.call.cancel()

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> Request | None:
        """Return the request to send now, if any may be sent."""
        waiting = self._queue.lanes()
        if not waiting or len(self._in_flight) >= self._limit:
            return None
        if self._outage.steps and (self._outage.probe is not None or self._timers.active("step")):
            return None
        lanes = [lane for lane in waiting if self._may_send(lane)]
        return self._outage.choose(self._queue.waiting(lanes)) if self._outage.steps else self._queue.next(lanes)

    def _may_send(self, lane: Lane) -> bool:
        if lane is not Lane.POST:
            return self._queue.in_flight(lane) < self._most
        blocked = self._blocking_posts and self._outage.steps < BLOCKING_TRIES
        waits = self._going_first and self._timers.active("first")
        paused = blocked or waits or self._timers.active("posts")
        return not paused and self._queue.in_flight(lane) < self._posts.now

    def _call(self, request: Request) -> Call:
        serial, myself, call = request.serial, self._pool.myself, request.call
        if request.writes and self._deadline is not None:
            call = msgspec.structs.replace(call, deadline=self._deadline)
        return self._api.send(call, lambda answer: myself.tell(_Answered(serial, answer)))

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _answered(self, serial: int, answer: object) -> None:
        sent = self._in_flight.pop(serial, None)
        if sent is None:
            return
        request, lane = sent.request, sent.request.lane
        if lane is Lane.POST:
            self._adapt(sent, answer)
        self._queue.answered(lane)
        self._update_outage(request, answer)
        match request.judge(answer):
            case Done():
                self._finish(request, answer)
            case Retry() if request.is_last_try or (request.writes and self._suspended):
                self._end(request)
            case Retry(error):
                self._try_again(request, error, posted=lane is Lane.POST)

    def _adapt(self, sent: _Sent, answer: object) -> None:
        """Adapt the number of POSTs in flight to an answer, unless no server gave it."""
        match answer:
            case TooManyRequests():
                self._posts.refused(sent.ticket)
            case Unavailable() | Cancelled() | NotSent():
                pass
            case _:
                in_flight = self._queue.in_flight(Lane.POST)
                self._posts.answered(sent.ticket, sent.at, self._clock.monotonic(), in_flight=in_flight)

    def _finish(self, request: Request, answer: object) -> None:
        self._end(request)
        now = self._clock.monotonic()
        self._refusals.note(request, answer, now, self._entropy)
        if not request.is_last_try:
            self._carried_out.note(request, answer, now)
        self._finished.append((request, answer))

    def _end(self, request: Request) -> None:
        del self._open[request.key]
        self._blocking_posts.discard(request.key)
        self._going_first.discard(request.key)

    def _remove(self, request: Request) -> None:
        """Remove a request from wherever it waits."""
        self._retries.pop(request.serial, None)
        self._timers.cancel(("retry", request.serial))
        self._queue.discard(request)

    def _try_again(self, request: Request, error: ApiError | None, *, posted: bool) -> None:
        """Send the next step at once, or the same request after a backoff. A 429 on a POST pauses all POSTs."""
        if error is None:
            self._queue.add_first(request)
            return
        self._counts.retries.add(request.kind, type(error).__name__)
        if request.tries >= BLOCKING_TRIES:
            self._blocking_posts.discard(request.key)
        if self._outage.steps and lacks_server(error):
            request.delayed(error, self._date(self._next_step_at))
            self._await_server(request)
            return
        delay = self._delay(request.failures, error)
        unusual = request.failures == 0 and not isinstance(error, TooManyRequests | Conflict | Cancelled | NotSent)
        level, seconds = logging.WARNING if unusual else logging.DEBUG, delay.total_seconds()
        logger.log(level, "retry scheduled: request=%s delay=%.1fs error=%s", request, seconds, error)
        request.failures += 1
        until = later(self._clock.monotonic(), delay)
        if posted and isinstance(error, TooManyRequests):
            self._pause_posts(delay)
            if request.lane is Lane.POST:
                request.delayed(error, self._date(self._paused_until))
                self._queue.add(request)
                return
        request.delayed(error, self._date(until))
        self._back_off(request, error, delay)

    def _delay(self, failures: int, error: ApiError) -> timedelta:
        return retry_delay(self._backoff, failures, error, self._entropy, self._max_retry_after)

    def _date(self, moment: Moment) -> datetime:
        return self._clock.now() + elapsed(self._clock.monotonic(), moment)

    def _back_off(self, request: Request, error: ApiError, delay: timedelta) -> None:
        self._retries[request.serial] = (request, error)
        self._timers.start(("retry", request.serial), delay, _RetryDue(request.serial))

    def _pause_posts(self, delay: timedelta) -> None:
        """Pause POSTs. A later 429 never shortens the pause."""
        until = later(self._clock.monotonic(), delay)
        if until > self._paused_until:
            self._paused_until = until
            self._timers.start("posts", delay, _SendDue())

    # ── outages ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _update_outage(self, request: Request, answer: object) -> None:
        """Any answer of the server ends an outage. A probe that fails is followed by the next step."""
        if isinstance(answer, Cancelled | NotSent) and not self._outage.steps:
            return  # no server was asked, or we cancelled the call ourselves
        if not lacks_server(answer):
            if self._outage.answered():
                self._timers.cancel("step")
                logger.info("API server reachable again: requests=%d", len(self._open))
        elif self._outage.failed(request.serial, answer):
            self._take_step(answer)

    def _take_step(self, error: ApiError) -> None:
        delay = self._outage.step(self._entropy)
        self._next_step_at = later(self._clock.monotonic(), delay)
        self._timers.start("step", delay, _SendDue())
        for request in self._unanswered():
            self._remove(request)
            self._await_server(request)
        level, seconds = logging.WARNING if self._outage.steps == 1 else logging.DEBUG, delay.total_seconds()
        text = "API server unreachable, sending one probe at a time: requests=%d delay=%.1fs error=%s"
        logger.log(level, text, len(self._open), seconds, error)
        for request in list(self._queue.waiting([Lane.READ])):
            if request.max_tries is not None:  # a step counts as a try, whichever request was the probe
                request.tries += 1
                if isinstance(request.judge(error), Done):
                    self._remove(request)
                    self._finish(request, error)

    def _await_server(self, request: Request) -> None:
        """Queue a request without a backoff of its own: it waits for the server like all others."""
        request.failures = 0
        self._queue.add(request)

    def _unanswered(self) -> list[Request]:
        """Return the requests in backoff because no server answered them."""
        return [request for request, error in self._retries.values() if lacks_server(error)]
