"""RequestPool: the only actor that writes to the API.

Whoever wants a pod made or deleted tells the pool, and hears one final, classified answer. The pool bounds how many
calls are under way and how many go out in a second, lets deletes overtake queued creates, and retries what may be
retried, by timer: each request for itself, all as one while there is no server (see `outages`). A create is repeated
under the same name until its answer is definitive: a lost answer must never become a second pod or a pod that nobody
knows of. It outlives the Allocator, whose restarts it survives through epochs. It decides nothing about a pod.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, assert_never, cast

from actors.budget import Budget
from actors.errors import ApiError, Cancelled, Conflict, TooManyRequests
from actors.messages import (
    AdoptPod,
    BeginEpoch,
    ConfirmPod,
    CreatePod,
    DeletePod,
    DeletePods,
    Drain,
    LabelPod,
    ListClaims,
    PodCreated,
    PodCreateDelayed,
    PodCreateFailed,
    PodsAppeared,
    PodsDeleted,
    ResumeWrites,
    SuspendWrites,
    ToRequestPool,
)
from actors.outages import Outage, lacks_server
from actors.refusals import Refusals
from actors.request_queue import RequestQueue
from actors.requests import Adopt, BulkDelete, ClaimList, Confirm, Create, Delete, Done, Label, Request, Retry
from actors.retries import retry_delay
from actors.runtime import Actor, Address, Backoff, Context
from actors.transitions import Transitions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.kube.api import Call, PodApi
    from actors.pods import Pod

__all__ = ["RequestPool"]

logger = logging.getLogger(__name__)

BACKOFF: Final = Backoff(
    initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), reset_after=timedelta(minutes=2)
)
"""Between tries of one request, with jitter up to the delay itself."""

UNWANTED: Final = "it is not wanted any more"
"""Why a create that nobody waits for is not tried again."""


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


class RequestPool(Actor):
    """At most `limit` calls under way and `rate` sent in a second; deletes, labels and reads first, then POSTs.

    POSTs leave one place free, unless there is only one: a delete does not wait for POSTs that hang.
    """

    def __init__(self, context: Context, *, api: PodApi, app_id: str, limit: int, rate: float | None = None) -> None:
        super().__init__(context)
        self._api = api
        self._app_id = app_id
        self._limit = limit
        self._budget = Budget(rate)
        self._outage = Outage()
        self._refusals = Refusals()
        self._epoch = 0
        self._serial = 0
        self._queue = RequestQueue()
        self._flying: dict[int, tuple[Request, Call]] = {}
        self._waiting: dict[int, tuple[Request, ApiError]] = {}
        """Requests between two tries, each on its own account."""
        self._open: dict[object, Request] = {}
        """By key: what was asked for and is not answered yet."""
        self._adopting: set[object] = set()
        """Keys of adoptions, of which some may be answered by now."""
        self._paused_until = 0.0
        """When creates may go out again, as a 429 has it (monotonic)."""
        self._transitions = Transitions()
        self._closed_to_creates = False
        self._suspended: str | None = None
        """Why nothing may be written now; None while it may."""
        self.at_end(self._give_up)

    def receive(self, message: object) -> object:  # noqa: C901, PLR0912 - one line a message
        """One case a message."""
        message = cast("ToRequestPool | _Answered | _RetryDue | _SendDue", message)
        match message:
            case CreatePod():
                self._create(message)
            case DeletePod():
                self._add(Delete(message))
            case DeletePods():
                self._delete_pods(message)
            case LabelPod():
                self._add(Label(message))
            case AdoptPod():
                self._add(Adopt(message))
            case ListClaims():
                self._add(ClaimList(message, self._app_id))
            case SuspendWrites(why):
                self._suspend(why)
            case ResumeWrites():
                self._suspended = None
            case ConfirmPod():
                self._add(Confirm(message))
            case PodsAppeared(pods):
                self._appeared(pods)
            case BeginEpoch():
                self._begin_epoch(message)
            case Drain(reply_to):
                self._drain(reply_to)
            case _Answered(serial, answer):
                self._answered(serial, answer)
            case _RetryDue(serial):
                self._retry(serial)
            case _SendDue():
                self._send_queued()
            case _:
                assert_never(message)
        return None

    def _give_up(self) -> None:
        """The end, of whatever kind: nobody is left to hear of what is under way."""
        for _, call in self._flying.values():
            call.cancel()

    # ── asked ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _create(self, message: CreatePod) -> None:
        if message.epoch < self._epoch:
            return
        if self._closed_to_creates:
            self._refuse(Create(message), "the fleet is being stopped")
        elif self._suspended is not None:
            self._refuse(Create(message), self._suspended)
        else:
            self._add(Create(message))

    def _add(self, request: Request) -> None:
        """Queue it, unless the same is open already, or was refused a moment ago, or it may not be sent."""
        if request.key in self._open or (request.writes and self._suspended is not None):
            return
        if self._refusals.hold_back(request, self.clock.monotonic()):
            return
        self._open[request.key] = request
        if isinstance(request, Adopt):
            self._adopting.add(request.key)
        self._serial += 1
        request.serial = self._serial
        self._queue.add(request)
        self._send_queued()

    def _delete_pods(self, message: DeletePods) -> None:
        """What is queued is not made, what is on the wire is deleted once it is answered, the rest by label."""
        ids = message.executor_ids
        for create in self._open_creates():
            if ids is None or create.message.executor_id in ids:
                create.doom = message
        self._drop_creates(lambda create: create.doom is not None, "it was deleted before it was created")
        if ids is None or ids:
            self._add(BulkDelete(message, self._app_id))
        elif message.reply_to is not None:
            message.reply_to.tell(PodsDeleted(ids, None))

    def _suspend(self, why: str) -> None:
        """Write nothing any more, not even what is on the wire and has not reached the server.

        Creates are refused, or looked up if they may have been carried out. What else waits is dropped: who asked asks
        again.
        """
        self._suspended = why
        self._drop_creates(lambda _: True, why)
        for request in [r for r in self._open.values() if r.writes and not isinstance(r, Create)]:
            if request.serial not in self._flying:
                self._drop(request)
        for request, call in list(self._flying.values()):
            if request.writes and not (isinstance(request, Create) and request.urgent):
                call.cancel()
        self._settle_transitions()

    def _appeared(self, pods: Mapping[int, Pod]) -> None:
        """A pod whose POST is not answered was made: it must not be asked for again, it may have ended meanwhile."""
        for executor_id, pod in pods.items():
            create = self._open.get(Create.key_of(executor_id))
            if not isinstance(create, Create):
                continue
            create.appeared = pod
            if create.serial not in self._flying:
                create.outcome = pod
                self._dequeue(create)
                self._finish(create, pod)
        self._settle_transitions()

    def _begin_epoch(self, message: BeginEpoch) -> None:
        self._epoch = message.epoch
        dropped = self._drop_creates(lambda create: create.message.epoch < message.epoch, "its Allocator is gone")
        self._transitions.begin(message, dropped)
        self._settle_transitions()
        self._send_queued()

    def _drain(self, reply_to: Address) -> None:
        self._closed_to_creates = True
        self._transitions.drain(reply_to)
        self._drop_creates(lambda _: True, "the fleet is being stopped")
        self._hasten()
        self._settle_transitions()
        self._send_queued()

    def _drop_creates(self, unwanted: Callable[[Create], bool], why: str) -> set[int]:
        """Forget those creates that surely have no pod: not sent yet, or waiting after an answer that refused them.

        For those that may have one nothing is POSTed again: a GET will tell.
        """
        waiting = [c for c in self._open_creates() if unwanted(c) and c.serial not in self._flying]
        dropped = [create for create in waiting if not create.may_exist]
        for create in waiting:
            if create.may_exist:
                self._queue.discard(create)
                create.only_look(why)
                if create.serial not in self._waiting:
                    self._queue.add(create)
            else:
                self._refuse(create, why)
        return {create.message.executor_id for create in dropped}

    def _dequeue(self, request: Request) -> None:
        """It is not sent any more, wherever it waits for that."""
        self._waiting.pop(request.serial, None)
        self.timers.cancel(("retry", request.serial))
        self._queue.discard(request)

    def _drop(self, request: Request) -> None:
        """Who asked for it asks again, if it is still wanted then."""
        self._open.pop(request.key, None)
        self._dequeue(request)

    def _refuse(self, create: Create, why: str) -> None:
        self._drop(create)
        self._fail(create, Cancelled(why))

    def _fail(self, create: Create, error: ApiError) -> None:
        """There is no such pod of ours."""
        message = create.message
        if self._suspended is not None:
            self._transitions.refused(message.executor_id)
        message.reply_to.tell(PodCreateFailed(message.executor_id, message.epoch, error))

    def _open_creates(self) -> list[Create]:
        return [request for request in self._open.values() if isinstance(request, Create)]

    # ── under way ────────────────────────────────────────────────────────────────────────────────────────────────

    def _send_queued(self) -> None:
        """All that there is room and budget for; while the server is away, one request a step."""
        while not self.timers.active("budget") and (request := self._next()) is not None:
            wait = self._budget.spend(self.clock.monotonic())
            if wait:
                self.timers.start("budget", wait, _SendDue())
                return
            self._queue.discard(request)
            self._send(request)

    def _next(self) -> Request | None:
        """What is to go out now."""
        if len(self._flying) >= self._limit:
            return None
        if self._outage.steps and (self._outage.probe is not None or self.timers.active("step")):
            return None
        waiting = self._queue.waiting(posts=self._may_post())
        return self._outage.choose(waiting) if self._outage.steps else next(waiting, None)

    def _may_post(self) -> bool:
        posts = sum(not request.urgent for request, _ in self._flying.values())
        return posts < max(self._limit - 1, 1) and not self.timers.active("creates") and not self._is_adopting()

    def _is_adopting(self) -> bool:
        """Pods that nobody owns may be collected any moment: they are adopted before any other is made."""
        self._adopting = {key for key in self._adopting if key in self._open}
        return bool(self._adopting)

    def _send(self, request: Request) -> None:
        serial, myself = request.serial, self.myself
        request.tries += 1
        if self._outage.steps:
            self._outage.probe = serial
        call = request.send(self._api, lambda answer: myself.tell(_Answered(serial, answer)))
        self._flying[serial] = (request, call)

    def _answered(self, serial: int, answer: object) -> None:
        flown = self._flying.pop(serial, None)
        if flown is None:
            return
        request, _ = flown
        posted = not request.urgent
        self._look_for_server(request, answer)
        match request.judge(answer):
            case Retry() if isinstance(request, Create) and request.appeared is not None:
                request.outcome = request.appeared
                self._finish(request, answer)
            case Retry(error):
                self._try_again(request, error, posted=posted)
            case Done():
                self._finish(request, answer)
        self._settle_transitions()
        self._send_queued()

    def _try_again(self, request: Request, error: ApiError | None, *, posted: bool) -> None:
        """Between two tries. A 429 on a POST pauses all POSTs; deletes go on, each on its own account."""
        if isinstance(request, Create) and not request.urgent and self._is_unwanted(request):
            if not request.may_exist:
                self._transitions.resolved(request.message, made=False)
                self._refuse(request, UNWANTED)
                return
            request.only_look(UNWANTED)
        elif request.writes and not isinstance(request, Create) and self._suspended is not None:
            self._drop(request)
            return
        if error is None:  # the next try is another question, not the same again
            self._queue.add_first(request)
            return
        if isinstance(request, Create):
            message = request.message
            message.reply_to.tell(PodCreateDelayed(message.executor_id, message.epoch, error))
        if self._outage.steps and lacks_server(error):
            self._strand(request)
            return
        delay = retry_delay(BACKOFF, request.failures, error, self.entropy)
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
        self._waiting[request.serial] = (request, error)
        self.timers.start(("retry", request.serial), delay, _RetryDue(request.serial))

    def _pause_creates(self, delay: timedelta) -> None:
        """Never shorter than an earlier answer asked for."""
        until = self.clock.monotonic() + delay.total_seconds()
        if until > self._paused_until:
            self._paused_until = until
            self.timers.start("creates", delay, _SendDue())

    def _retry(self, serial: int) -> None:
        request, _ = self._waiting.pop(serial)
        self._queue.add(request)
        self._send_queued()

    def _is_unwanted(self, create: Create) -> bool:
        """Nobody wants it POSTed again."""
        stale = create.message.epoch < self._epoch
        return stale or create.doom is not None or self._closed_to_creates or self._suspended is not None

    def _finish(self, request: Request, answer: object) -> None:
        self._open.pop(request.key, None)
        match request:
            case Create():
                self._created(request)
                return
            case BulkDelete():
                request.report()
            case Confirm() | ClaimList():
                request.report(answer)
            case _:
                pass
        self._refusals.note(request, answer, self.clock.monotonic(), self.entropy)

    def _created(self, create: Create) -> None:
        """Tell its Allocator; a pod of an earlier epoch is the new one's.

        Deleted is what was to be deleted meanwhile, and what a later try made once the pod of the first had ended.
        """
        message, outcome = create.message, create.outcome
        self._transitions.resolved(message, made=not isinstance(outcome, ApiError))
        if isinstance(outcome, ApiError):
            self._fail(create, outcome)
            return
        message.reply_to.tell(PodCreated(message.executor_id, message.epoch, outcome))
        made_again = create.appeared is not None and create.appeared.uid != outcome.uid
        if create.doom is not None or made_again:
            self._add(Delete.of(outcome, create.doom.grace if create.doom is not None else None))

    # ── without a server ─────────────────────────────────────────────────────────────────────────────────────────

    def _look_for_server(self, request: Request, answer: object) -> None:
        """Any answer ends an outage: what it held back goes out. A probe without one is followed by another step."""
        if isinstance(answer, Cancelled) and not self._outage.steps:
            return  # we gave it up ourselves
        if not lacks_server(answer):
            if self._outage.answered():
                self.timers.cancel("step")
                logger.info("the API server answers again: requests=%d", len(self._open))
        elif self._outage.failed(request.serial, answer):
            self._take_step(answer)

    def _take_step(self, error: ApiError) -> None:
        delay = self._outage.step(self.entropy)
        self.timers.start("step", delay, _SendDue())
        level, seconds = logging.WARNING if self._outage.steps == 1 else logging.DEBUG, delay.total_seconds()
        words = "no API server answers, one request a step looks for it: requests=%d step=%.1fs error=%s"
        logger.log(level, words, len(self._open), seconds, error)
        for request in self._without_server():
            del self._waiting[request.serial]
            self.timers.cancel(("retry", request.serial))
            self._strand(request)
        for request in list(self._queue.waiting(posts=False)):
            if isinstance(request, Confirm):  # it is tried a few times only, whoever's try it is
                request.tries += 1
                if isinstance(request.judge(error), Done):
                    self._queue.discard(request)
                    self._finish(request, error)

    def _strand(self, request: Request) -> None:
        """It waits for the server like everything else, and not for a failure of its own."""
        request.failures = 0
        self._queue.add(request)

    def _without_server(self) -> list[Request]:
        """Those that wait on their own account for want of a server."""
        return [request for request, error in self._waiting.values() if lacks_server(error)]

    def _hasten(self) -> None:
        """Somebody waits for the last word: what waits for a server looks for it again soon, not in half a minute."""
        for request in self._without_server():
            error = self._waiting[request.serial][1]
            request.failures = 1
            self._wait(request, error, retry_delay(BACKOFF, 0, error, self.entropy))
        self._outage.hasten()
        if self.timers.active("step"):
            self.timers.start("step", self._outage.step(self.entropy), _SendDue())

    def _settle_transitions(self) -> None:
        if self._transitions:
            self._transitions.settle(self._open_creates())
