"""The actor: takes requests, and answers each once, with what the `Dispatcher` makes of it.

A create is repeated under the same name until its answer is definitive: a lost answer must never become a second pod,
or an unknown one. The pool outlives the Allocator, whose restarts it survives through epochs. Requests that end with
the pool itself are reported as lost by its next incarnation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from msgspec import structs

from actors import kube
from actors.errors import ApiError, Cancelled
from actors.kube.api import DeleteOptions
from actors.kube.retries import MAX_RETRY_AFTER
from actors.messages import internal
from actors.metrics.counts import PoolCounts
from actors.pods.ids import id_in_name
from actors.requests.create import Create
from actors.requests.dispatcher import Dispatcher, DispatcherEvent
from actors.requests.epochs import Epochs
from actors.requests.kinds import BulkDelete, ClaimDelete, ClaimList, Confirm, FindAndDelete, PodDelete, adopt, label
from actors.runtime import Actor, Address, Context
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import timedelta

    from actors.kube.api import PodApi
    from actors.pods.pod import Pod

__all__ = ["RequestPool"]

logger = get_logger(__name__)

DELETED: Final = "it was deleted before it was created"
STALE: Final = "the Allocator that requested it has ended"
DRAINING: Final = "the fleet is being stopped"
"""Why a create is cancelled."""

MAX_UNSEEN: Final = 10_000
"""Pods to look up at a stop. More than a fleet requests at a time; only refused deletions can add up to so many."""


class RequestPool(Actor):
    """Keeps at most `limit` calls in flight and sends at most `rate` a second."""

    def __init__(
        self,
        context: Context,
        *,
        api: PodApi,
        app_id: str,
        limit: int,
        repeat_interval: timedelta,
        rate: float | None = None,
        counts: PoolCounts | None = None,
        max_retry_after: timedelta = MAX_RETRY_AFTER,
    ) -> None:
        super().__init__(context)
        self._app_id = app_id
        self._dispatcher = Dispatcher(
            self,
            api,
            limit=limit,
            rate=rate,
            counts=counts or PoolCounts(),
            repeat_interval=repeat_interval,
            max_retry_after=max_retry_after,
        )
        self._creates: dict[int, Create] = {}
        """By executor id: creates without a final answer."""
        self._epoch = 0
        self._epochs = Epochs()
        self._unseen: dict[str, internal.UnseenPod] = {}
        """See `Drained`; oldest first, without those whose deletion the API has accepted."""
        self._draining = False
        self._suspended: str | None = None
        """Why writes are suspended; None while they are allowed."""
        self.at_end(self._dispatcher.close)

    def receive(self, message: internal.ToRequestPool | DispatcherEvent) -> object:  # noqa: C901, PLR0912 - one line a message
        """Handle one message, report what has ended, and send what may be sent."""
        match message:
            case internal.CreatePod():
                self._create(message)
            case internal.DeletePod():
                self._delete_pod(message)
            case internal.DeletePods():
                self._dispatcher.withdraw(message.pods)
                self._dispatcher.submit(BulkDelete(message, self._app_id))
            case internal.LabelPod():
                self._dispatcher.submit(label(message))
            case internal.AdoptPod():
                self._dispatcher.submit(adopt(message))
            case internal.ListClaims():
                self._dispatcher.submit(ClaimList(message, self._app_id))
            case internal.DeleteClaim():
                self._dispatcher.submit(ClaimDelete(message))
            case internal.ConfirmPod():
                self._dispatcher.submit(Confirm(message))
            case internal.SuspendWrites(why):
                self._suspended = why
                self._cancel(self._creates.values(), why)
                self._dispatcher.suspend()
            case internal.AllowWrites(until):
                self._suspended = None
                self._dispatcher.allow(until)
            case internal.WithdrawPods(executor_ids):
                self._withdraw(executor_ids)
            case internal.WithdrawRequests(pods):
                self._dispatcher.withdraw(pods)
            case internal.PodsObserved(pods):
                self._observed(pods)
            case internal.BeginEpoch():
                self._begin_epoch(message)
            case internal.Drain(reply_to):
                self._drain(reply_to)
            case _ if isinstance(message, DispatcherEvent):
                self._dispatcher.handle(message)
            case _:
                assert_never(message)
        self._report()
        self._dispatcher.send()
        return None

    def _create(self, message: internal.CreatePod) -> None:
        if message.epoch < self._epoch or message.executor_id in self._creates:
            return
        self._epochs.requested(message)
        create = self._creates[message.executor_id] = Create(message)
        why = DRAINING if self._draining else self._suspended
        if why is None:
            self._dispatcher.submit(create)
        else:
            create.outcome = Cancelled(why)
            self._created(create)

    def _delete_pod(self, message: internal.DeletePod) -> None:
        """Delete one pod by its UID. If that is unknown, end its create, or look the pod up."""
        if message.options.uid is not None:
            self._dispatcher.submit(PodDelete(message))
        elif (create := self._creates.get(id_in_name(message.name) or 0)) is not None and create.name == message.name:
            create.delete_when_made = message.options
            self._cancel([create], DELETED)
        elif (unseen := self._unseen.get(message.name)) is not None:
            options = structs.replace(message.options, uid=unseen.uid)
            self._dispatcher.submit(PodDelete(replace(message, options=options)))
        else:
            self._dispatcher.submit(FindAndDelete(message, self._app_id))

    def _withdraw(self, executor_ids: Collection[int]) -> None:
        """Cancel creates that are not in flight. The Allocator repeats its message if the others are to be retried."""
        creates = [create for executor_id, create in self._creates.items() if executor_id in executor_ids]
        waiting = [create for create in creates if not self._dispatcher.is_in_flight(create)]
        for create in waiting:
            create.withdrawn = True
        self._cancel(waiting, internal.NOT_DESIRED)

    def _observed(self, pods: Mapping[int, Pod]) -> None:
        """End the creates of observed pods: a further POST could make a second one, as the first may have ended."""
        for executor_id, pod in pods.items():
            self._unseen.pop(pod.name, None)
            if (create := self._creates.get(executor_id)) is not None:
                create.observed = pod
                self._dispatcher.reconsider(create)

    def _begin_epoch(self, message: internal.BeginEpoch) -> None:
        self._epoch = message.epoch
        self._epochs.begin(message)
        earlier = (create for create in self._creates.values() if create.message.epoch < message.epoch)
        self._cancel(earlier, STALE)

    def _drain(self, reply_to: Address) -> None:
        self._draining = True
        self._epochs.drain(reply_to)
        for create in self._creates.values():
            create.needs_verification = False
        self._cancel(self._creates.values(), DRAINING)
        self._dispatcher.retry_soon()

    def _cancel(self, creates: Iterable[Create], why: str) -> None:
        """Stop these creates. Those that may have made a pod are verified, those in flight once they are answered."""
        for create in creates:
            create.cancelled = Cancelled(why)
            self._dispatcher.reconsider(create)

    def _report(self) -> None:
        """Report the final answers, then what only they were waited for: an epoch, a drain."""
        for request, answer in self._dispatcher.take_finished():
            if isinstance(request, Create):
                self._created(request)
            else:
                request.report(answer)
                if isinstance(request.call, kube.Delete) and not isinstance(answer, ApiError):
                    self._unseen.pop(request.call.name, None)
        if self._epochs:
            self._epochs.settle([create.message.epoch for create in self._creates.values()], self._unseen)

    def _created(self, create: Create) -> None:
        """Report a create to its Allocator, or to that one's successor.

        Delete the pod if that was requested, or if a later try made it after the first one's pod had ended.
        """
        message, outcome = create.message, create.outcome
        del self._creates[message.executor_id]
        if isinstance(outcome, ApiError):
            self._epochs.no_pod(message)
            if self._suspended is not None:
                self._epochs.refused(message.executor_id)
            message.reply_to.tell(internal.PodCreateFailed(message.executor_id, message.epoch, outcome))
            if create.altered is not None:
                self._note_unseen(create, create.altered)
                self._delete(create.altered, DeleteOptions())
            return
        if create.observed is None:
            self._note_unseen(create, outcome)
        logger.debug("executor created: executor=%d pod=%s", message.executor_id, outcome.name)
        message.reply_to.tell(internal.PodCreated(message.executor_id, message.epoch, outcome, create.withdrawn))
        made_again = create.observed is not None and create.observed.uid != outcome.uid
        if create.delete_when_made is not None or made_again:
            self._delete(outcome, create.delete_when_made or DeleteOptions())

    def _note_unseen(self, create: Create, pod: Pod) -> None:
        if len(self._unseen) >= MAX_UNSEEN:
            del self._unseen[next(iter(self._unseen))]
        self._unseen[pod.name] = internal.UnseenPod(create.message.executor_id, pod.uid)

    def _delete(self, pod: Pod, options: DeleteOptions) -> None:
        self._dispatcher.submit(PodDelete(internal.DeletePod(pod.name, structs.replace(options, uid=pod.uid))))
