"""RequestPool: the only actor that writes to the API.

Whoever wants a pod made or deleted tells the pool, and hears one final, classified answer. What may be tried again is,
by timer: that is the `Dispatcher`'s. A create is repeated under the same name until its answer is
definitive: a lost answer must never become a second pod or a pod that nobody knows of. It outlives the Allocator, whose
restarts it survives through epochs; what it was asked for and takes with it when it ends itself, its successor says is
lost. It decides nothing about a pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never, cast

from actors.errors import ApiError, Cancelled
from actors.kube.api import DeleteOptions
from actors.messages import (
    NOT_DESIRED,
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
    PodCreateFailed,
    PodsDeleted,
    PodsObserved,
    ResumeWrites,
    SuspendWrites,
    ToRequestPool,
    WithdrawPods,
)
from actors.metrics.counts import PoolCounts
from actors.requests.create import Create
from actors.requests.dispatcher import Dispatcher, DispatcherEvent
from actors.requests.epochs import Epochs
from actors.requests.kinds import BulkDelete, ClaimList, Confirm, adopt, delete, label
from actors.runtime import Actor, Address, Context

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from actors.kube.api import PodApi
    from actors.pods.pod import Pod

__all__ = ["RequestPool"]

DRAINING: Final = "the fleet is being stopped"
"""Why a create is cancelled."""


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
        self._app_id = app_id
        self._dispatcher = Dispatcher(self, api, limit=limit, rate=rate, counts=counts or PoolCounts())
        self._creates: dict[int, Create] = {}
        """By executor id: creates that are not answered yet."""
        self._epoch = 0
        self._epochs = Epochs()
        self._draining = False
        self._suspended: str | None = None
        """Why nothing may be written now; None while it may."""
        self.at_end(self._dispatcher.give_up)

    def receive(self, message: object) -> object:  # noqa: C901, PLR0912 - one line a message
        """One case a message. What follows from it is reported before anything more is sent."""
        message = cast("ToRequestPool | DispatcherEvent", message)
        match message:
            case CreatePod():
                self._create(message)
            case DeletePod():
                self._dispatcher.submit(delete(message))
            case DeletePods():
                self._delete_pods(message)
            case LabelPod():
                self._dispatcher.submit(label(message))
            case AdoptPod():
                self._dispatcher.submit(adopt(message))
            case ListClaims():
                self._dispatcher.submit(ClaimList(message, self._app_id))
            case ConfirmPod():
                self._dispatcher.submit(Confirm(message))
            case SuspendWrites(why):
                self._suspended = why
                self._cancel(self._creates.values(), why)
                self._dispatcher.suspend()
            case ResumeWrites():
                self._suspended = None
                self._dispatcher.resume()
            case WithdrawPods(executor_ids):
                self._withdraw(executor_ids)
            case PodsObserved(pods):
                self._observed(pods)
            case BeginEpoch():
                self._begin_epoch(message)
            case Drain(reply_to):
                self._drain(reply_to)
            case _ if isinstance(message, DispatcherEvent):
                self._dispatcher.handle(message)
            case _:
                assert_never(message)
        self._report()
        self._dispatcher.send()
        return None

    def _create(self, message: CreatePod) -> None:
        if message.epoch < self._epoch or message.executor_id in self._creates:
            return
        self._epochs.asked(message)
        create = self._creates[message.executor_id] = Create(message)
        why = DRAINING if self._draining else self._suspended
        if why is None:
            self._dispatcher.submit(create)
        else:
            create.outcome = Cancelled(why)
            self._created(create)

    def _delete_pods(self, message: DeletePods) -> None:
        """What is queued is not made, what is on the wire is deleted once it is answered, the rest by label."""
        ids = message.executor_ids
        creates = [create for executor_id, create in self._creates.items() if ids is None or executor_id in ids]
        for create in creates:
            create.delete_when_made = True
        self._cancel(creates, "it was deleted before it was created")
        if ids is None or ids:
            self._dispatcher.submit(BulkDelete(message, self._app_id))
        elif message.reply_to is not None:
            message.reply_to.tell(PodsDeleted(ids, None))

    def _withdraw(self, executor_ids: Collection[int]) -> None:
        """What is on the wire is left to its answer; who asked asks again if that is to be tried again."""
        creates = [create for executor_id, create in self._creates.items() if executor_id in executor_ids]
        waiting = [create for create in creates if not self._dispatcher.is_sent(create)]
        for create in waiting:
            create.withdrawn = True
        self._cancel(waiting, NOT_DESIRED)

    def _observed(self, pods: Mapping[int, Pod]) -> None:
        """A pod whose POST is not answered was made: it must not be asked for again, it may have ended meanwhile."""
        for executor_id, pod in pods.items():
            if (create := self._creates.get(executor_id)) is not None:
                create.observed = pod
                self._dispatcher.reconsider(create)

    def _begin_epoch(self, message: BeginEpoch) -> None:
        self._epoch = message.epoch
        self._epochs.begin(message)
        earlier = (create for create in self._creates.values() if create.message.epoch < message.epoch)
        self._cancel(earlier, "its Allocator is gone")

    def _drain(self, reply_to: Address) -> None:
        self._draining = True
        self._epochs.drain(reply_to)
        self._cancel(self._creates.values(), DRAINING)
        self._dispatcher.hasten()

    def _cancel(self, creates: Iterable[Create], why: str) -> None:
        """POST these no more. Those that may have a pod are looked up, and those on the wire once they are answered."""
        for create in creates:
            create.cancelled = Cancelled(why)
            self._dispatcher.reconsider(create)

    def _report(self) -> None:
        """Tell who asked for what has ended, and who waits for creates to be resolved."""
        for request, answer in self._dispatcher.take_finished():
            if isinstance(request, Create):
                self._created(request)
            else:
                request.report(answer)
        if self._epochs:
            self._epochs.settle([create.message.epoch for create in self._creates.values()])

    def _created(self, create: Create) -> None:
        """Tell its Allocator; a pod of an earlier epoch is the new one's.

        Deleted is what was to be deleted meanwhile, and what a later try made once the pod of the first had ended.
        """
        message, outcome = create.message, create.outcome
        del self._creates[message.executor_id]
        if isinstance(outcome, ApiError):
            self._epochs.no_pod(message)
            if self._suspended is not None:
                self._epochs.refused(message.executor_id)
            message.reply_to.tell(PodCreateFailed(message.executor_id, message.epoch, outcome))
            return
        message.reply_to.tell(PodCreated(message.executor_id, message.epoch, outcome, create.withdrawn))
        made_again = create.observed is not None and create.observed.uid != outcome.uid
        if create.delete_when_made or made_again:
            self._dispatcher.submit(delete(DeletePod(outcome.name, DeleteOptions(uid=outcome.uid))))
