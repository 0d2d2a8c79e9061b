"""RequestPool: the only actor that writes to the API.

Whoever wants a pod made or deleted tells the pool, and hears one final, classified answer. What may be tried again is,
by timer, and when anything goes out is `Dispatcher`'s. A create is repeated under the same name until its answer is
definitive: a lost answer must never become a second pod or a pod that nobody knows of. It outlives the Allocator, whose
restarts it survives through epochs; what it was asked for and takes with it when it ends itself, its successor says is
lost. It decides nothing about a pod.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never, cast

from actors.errors import ApiError, Cancelled
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
    PodsDeleted,
    PodsObserved,
    ResumeWrites,
    SuspendWrites,
    ToRequestPool,
    WithdrawPods,
)
from actors.metrics.counts import PoolCounts
from actors.requests.dispatcher import Dispatcher, TrafficTimer
from actors.requests.epochs import Epochs
from actors.requests.kinds import Adopt, BulkDelete, ClaimList, Confirm, Create, Delete, Done, Label, Request, Retry
from actors.requests.refusals import Refusals
from actors.runtime import Actor, Address, Context

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from actors.kube.api import Call, PodApi
    from actors.pods.pod import Pod

__all__ = ["RequestPool"]

logger = logging.getLogger(__name__)

UNWANTED: Final = "it is not wanted any more"
"""Why a create that nobody waits for is not tried again."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """The call of request number `serial` completed."""

    serial: int
    answer: object


class RequestPool(Actor):
    """At most `limit` calls under way and `rate` sent in a second; deletes, labels and reads first, then POSTs."""

    def __init__(
        self,
        context: Context,
        *,
        api: PodApi,
        app_id: str,
        limit: int,
        rate: float | None = None,
        counts: PoolCounts | None = None,
    ) -> None:
        super().__init__(context)
        self._api = api
        self._counts = counts = counts or PoolCounts()
        self._app_id = app_id
        self._traffic = Dispatcher(
            self,
            limit=limit,
            rate=rate,
            send=self._send,
            may_post=lambda: not self._is_adopting(),
            counts=counts,
        )
        self._refusals = Refusals()
        self._epoch = 0
        self._serial = 0
        self._open: dict[object, Request] = {}
        """By key: what was asked for and is not answered yet."""
        self._adopting: set[object] = set()
        """Keys of adoptions, of which some may be answered by now."""
        self._transitions = Epochs()
        self._closed_to_creates = False
        self._suspended: str | None = None
        """Why nothing may be written now; None while it may."""
        self.at_end(self._give_up)

    def receive(self, message: object) -> object:  # noqa: C901, PLR0912 - one line a message
        """One case a message."""
        message = cast("ToRequestPool | _Answered | TrafficTimer", message)
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
            case WithdrawPods(executor_ids):
                self._withdraw(executor_ids)
            case PodsObserved(pods):
                self._appeared(pods)
            case BeginEpoch():
                self._begin_epoch(message)
            case Drain(reply_to):
                self._drain(reply_to)
            case _Answered(serial, answer):
                self._answered(serial, answer)
            case _ if isinstance(message, TrafficTimer):
                self._traffic.due(message)
            case _:
                assert_never(message)
        self._traffic.count()
        return None

    def _give_up(self) -> None:
        """The end, of whatever kind: nobody is left to hear of what is under way."""
        self._counts.rest()
        for _, call in self._traffic.flying():
            call.cancel()

    # ── asked ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _create(self, message: CreatePod) -> None:
        if message.epoch < self._epoch:
            return
        self._transitions.asked(message)
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
        self._traffic.add(request)
        self._traffic.go()

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

    def _withdraw(self, executor_ids: Collection[int]) -> None:
        """What is on the wire is left to its answer; who asked asks again if that is to be tried again."""
        creates = (create for create in self._open_creates() if create.message.executor_id in executor_ids)
        withdrawn = {create for create in creates if not create.withdrawn and not self._traffic.is_flying(create)}
        for create in withdrawn:
            create.withdrawn = True
        self._drop_creates(withdrawn.__contains__, UNWANTED)
        self._settle_transitions()
        self._traffic.go()

    def _suspend(self, why: str) -> None:
        """Write nothing any more, not even what is on the wire and has not reached the server.

        Creates are refused, or looked up if they may have been carried out. What else waits is dropped: who asked asks
        again.
        """
        self._suspended = why
        self._drop_creates(lambda _: True, why)
        for request in [r for r in self._open.values() if r.writes and not isinstance(r, Create)]:
            if not self._traffic.is_flying(request):
                self._drop(request)
        for request, call in self._traffic.flying():
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
            if not self._traffic.is_flying(create):
                create.outcome = pod
                self._traffic.remove(create)
                self._finish(create, pod)
        self._settle_transitions()

    def _begin_epoch(self, message: BeginEpoch) -> None:
        self._epoch = message.epoch
        dropped = self._drop_creates(lambda create: create.message.epoch < message.epoch, "its Allocator is gone")
        self._transitions.begin(message, dropped)
        self._settle_transitions()
        self._traffic.go()

    def _drain(self, reply_to: Address) -> None:
        self._closed_to_creates = True
        self._transitions.drain(reply_to)
        self._drop_creates(lambda _: True, "the fleet is being stopped")
        self._traffic.hasten()
        self._settle_transitions()
        self._traffic.go()

    def _drop_creates(self, unwanted: Callable[[Create], bool], why: str) -> set[int]:
        """Forget those creates that surely have no pod: not sent yet, or waiting after an answer that refused them.

        For those that may have one nothing is POSTed again: a GET will tell.
        """
        waiting = [c for c in self._open_creates() if unwanted(c) and not self._traffic.is_flying(c)]
        dropped = [create for create in waiting if not create.may_exist]
        for create in waiting:
            if create.may_exist:
                self._traffic.sort_anew(create, partial(create.only_look, why))
            else:
                self._refuse(create, why)
        return {create.message.executor_id for create in dropped}

    def _drop(self, request: Request) -> None:
        """Who asked for it asks again, if it is still wanted then."""
        self._open.pop(request.key, None)
        self._traffic.remove(request)

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

    def _is_adopting(self) -> bool:
        """Pods that nobody owns may be collected any moment: they are adopted before any other is made."""
        self._adopting = {key for key in self._adopting if key in self._open}
        return bool(self._adopting)

    def _send(self, request: Request) -> Call:
        serial, myself = request.serial, self.myself
        return request.send(self._api, lambda answer: myself.tell(_Answered(serial, answer)))

    def _answered(self, serial: int, answer: object) -> None:
        request = self._traffic.landed(serial)
        if request is None:
            return
        posted = not request.urgent
        if (error := self._traffic.look_for_server(request, answer)) is not None:
            self._confirm_no_more(error)
        match request.judge(answer):
            case Retry() if isinstance(request, Create) and request.appeared is not None:
                request.outcome = request.appeared
                self._finish(request, answer)
            case Retry(error):
                self._try_again(request, error, posted=posted)
            case Done():
                self._finish(request, answer)
        self._settle_transitions()
        self._traffic.go()

    def _try_again(self, request: Request, error: ApiError | None, *, posted: bool) -> None:
        """Unless nobody wants it any more."""
        if isinstance(request, Create) and not request.urgent and self._is_unwanted(request):
            if not request.may_exist:
                self._transitions.no_pod(request.message)
                self._refuse(request, UNWANTED)
                return
            request.only_look(UNWANTED)
        elif request.writes and not isinstance(request, Create) and self._suspended is not None:
            self._drop(request)
            return
        if error is None:  # the next try is another question, not the same again
            self._traffic.add_first(request)
            return
        if isinstance(request, Create):
            message = request.message
            message.reply_to.tell(PodCreateDelayed(message.executor_id, message.epoch, error))
        self._traffic.try_later(request, error, posted=posted)

    def _confirm_no_more(self, error: ApiError) -> None:
        """A look at a pod is tried a few times only: while there is no server, whoever's try it is."""
        for request in self._traffic.urgent():
            if isinstance(request, Confirm):
                request.tries += 1
                if isinstance(request.judge(error), Done):
                    self._traffic.remove(request)
                    self._finish(request, error)

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
        if isinstance(outcome, ApiError):
            self._transitions.no_pod(message)
            self._fail(create, outcome)
            return
        message.reply_to.tell(PodCreated(message.executor_id, message.epoch, outcome, create.withdrawn))
        made_again = create.appeared is not None and create.appeared.uid != outcome.uid
        if create.doom is not None or made_again:
            self._add(Delete.of(outcome))

    def _settle_transitions(self) -> None:
        if self._transitions:
            self._transitions.settle(self._open_creates())
