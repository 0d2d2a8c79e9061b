"""The start of a Backend: its order, and what ends it.

Errors that waiting may heal are waited out, for as long as `backend.start_timeout`. What is made of the API's answers
is pure; `Startup` asks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from actors import kube
from actors.backend.driver_pod import DriverPod, DriverPodMessage
from actors.backend.rbac import LIST_PODS, Reviews, Right, lacking, needed
from actors.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from actors.messages import BackendStarted, KeepLease, Relist, StartPolling, StartWatching, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from actors.executors.executors import Executors
    from actors.executors.kills import Kills
    from actors.kube.api import PodApi
    from actors.lease.write_permission import WritePermission
    from actors.messages import Freshness, Source, ToDriver
    from actors.runtime import Actor, Address, ChildSpec, Supervisor
    from actors.settings import Settings

__all__ = ["Outcome", "Startup", "opened", "out_of_time"]

logger = logging.getLogger(__name__)

Outcome: TypeAlias = bool | ApiError
"""Whether the start is done, or the error that ends it."""


@dataclass(frozen=True, slots=True)
class _Reviewed:
    """What the server says of one of our rights."""

    right: Right
    answer: bool | ApiError


class _TimedOut:
    """`backend.start_timeout` is over."""


class Startup:
    """One start of one Backend, and of each of its children, which may start again.

    Args:
        specs: the children, in the order of their start, given the driver's pod as an `owner`.
        sources: what each source said last; it changes.
        fail: called with the error that ends the start, or the fleet: the driver's pod is gone.
    """

    def __init__(
        self,
        backend: Actor,
        settings: Settings,
        api: PodApi,
        *,
        supervisor: Supervisor,
        specs: Callable[..., Iterable[ChildSpec]],
        driver_pod: DriverPod,
        sources: Mapping[Source, Freshness],
        permission: WritePermission,
        executors: Executors,
        kills: Kills,
        tell: Callable[[ToDriver], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._backend = backend
        self._api = api
        self._app_id = settings.app_id
        self._timeout = settings.backend.start_timeout
        self._reviews = Reviews(needed(settings))
        self._supervisor = supervisor
        self._specs = specs
        self._driver_pod = driver_pod
        self._sources = sources
        self._permission = permission
        self._executors = executors
        self._kills = kills
        self._tell = tell
        self._fail = fail
        self._has_children = False
        self.is_done = False
        """The fleet was listed and our rights are known: the driver has heard of it."""
        self._is_allocator_new = False
        """The Allocator has started and knows nothing yet."""
        self._is_over = False

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Who handles what."""
        return {
            **dict.fromkeys(DriverPod.handles, self._driver_pod_changed),
            _Reviewed: self._reviewed,
            _TimedOut: self._timed_out,
        }

    def begin(self) -> None:
        """Time runs."""
        self._backend.timers.start("start", self._timeout, _TimedOut())
        self._driver_pod.begin()
        self.advance()

    def advance(self) -> None:
        """Take the start as far as it can go now. Whatever a step waits for calls this again when it has come.

        1. GET the driver's pod, if there is one: it owns the executors (`DriverPod.begin`).
        2. Start the children, each with its first messages (`introduce`): the sources begin to list, the lease keeper
           to acquire the lease.
        3. Ask for our rights, all at once. Wait for the answers, and for a source to say `Freshness` with a full sync.
        4. Tell the driver `BackendStarted`, and LifecycleManager the ledger: `LedgerLoaded`.
        5. Wait until executors may be created: `LeaseHeld` has come, and the driver's pod is ready.
        6. Send LifecycleManager `TakeOver`. It has the pods adopted that it observes, and says `TakenOver`.
        7. Then send the Allocator `LedgerLoaded` and `SetTotalExpectedExecutors` (`Executors`). It sends the pool
           `BeginEpoch`, and on `EpochBegun` requests executors: `ExecutorsRequested`, `CreatePod`.

        Steps 6 and 7 come again at each start of the Allocator, and when the lease comes back.
        """
        if self._is_over:
            return
        if self._driver_pod.failure is not None:
            self._fail(self._driver_pod.failure)
            return
        if not self._driver_pod.is_found:
            return
        if not self._has_children:
            self._start_children()
        if self._driver_pod.is_ready:
            self._permission.driver_pod_ready()
        if not self.is_done:
            outcome = opened(self._reviews, self._sources.values(), self._api.namespace)
            if isinstance(outcome, ApiError):
                self._fail(outcome)
            if outcome is not True:
                return
            self._be_done()
        if self._is_allocator_new and self._permission.may_create:
            self._is_allocator_new = False
            self._executors.introduce_allocator()
        self._permission.begin_to_tell()

    def introduce(self, name: str) -> None:
        """Send a child its first messages, at each of its starts."""
        child = self._supervisor.address(name)
        match name:
            case names.POOL:
                self._permission.introduce_pool()
            case names.LIFECYCLE if self.is_done:
                self._executors.introduce_lifecycle_manager()
            case names.ALLOCATOR:
                self._is_allocator_new = True
                self.advance()
            case names.POLL:
                child.tell(StartPolling())
            case names.WATCH:
                child.tell(StartWatching())
            case names.LEASE:
                child.tell(KeepLease())
            case _:
                pass

    def restart_allocator(self) -> None:
        """Another driver may have written: what the Allocator knows holds no more, nor what was listed before."""
        self._is_allocator_new = False
        self._executors.hold_allocator()
        self._supervisor.restart(names.ALLOCATOR)
        if self._permission.may_write:
            self._supervisor.address(names.WATCH).tell(Relist())

    def end(self) -> None:
        """Nobody waits for it any more."""
        self._is_over = True
        self._backend.timers.cancel("start")

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_children(self) -> None:
        """Those that come up again find the reviews' answers here."""
        self._has_children = True
        for spec in self._specs(owner=self._driver_pod.owner):
            self._supervisor.start(spec)
        for right in self._reviews.awaited:
            review = kube.ReviewAccess(right.verb, right.resource)
            self._api.send(review, partial(_tell_answer, self._backend.myself, right))

    def _be_done(self) -> None:
        self.is_done = True
        self._backend.timers.cancel("start")
        if self._reviews.error is not None:
            logger.info("our rights cannot be reviewed, going on as if we had them: error=%s", self._reviews.error)
        self._tell(BackendStarted(self._app_id, self._api.namespace))
        self._executors.begin()
        self._kills.begin()
        self._executors.introduce_lifecycle_manager()

    # ── what the steps wait for ──────────────────────────────────────────────────────────────────────────────────

    def _driver_pod_changed(self, message: DriverPodMessage) -> None:
        if not self._is_over:
            self._driver_pod.handle(message)
            self.advance()

    def _reviewed(self, message: _Reviewed) -> None:
        self._reviews = self._reviews.answered(message.right, message.answer)
        self.advance()

    def _timed_out(self, _: _TimedOut) -> None:
        outcome = out_of_time(self._reviews, self._sources.values(), self._api.namespace, self._timeout)
        if error := self._driver_pod.error or (outcome if isinstance(outcome, ApiError) else None):
            self._fail(error)
            return
        self._reviews = self._reviews.abandoned()
        self.advance()


def _tell_answer(backend: Address, right: Right, answer: bool | ApiError) -> None:
    backend.tell(_Reviewed(right, answer))


def opened(reviews: Reviews, sources: Iterable[Freshness], namespace: str) -> Outcome:
    """What is to be made of the answers so far."""
    words = tuple(sources)
    synced = any(word.synced_at is not None for word in words)
    errors = [] if synced else [word.error for word in words if word.error is not None]
    for error in errors:
        if isinstance(error, Unauthorized | NotFound | BadRequest):
            return error
    if reviews.awaited:  # so that all that is missing is said at once
        return False
    refused = next((error for error in errors if isinstance(error, Forbidden)), None)
    missing = {*reviews.missing, *((LIST_PODS,) if refused is not None else ())}
    return lacking(missing, namespace, said=refused) if missing else synced


def out_of_time(reviews: Reviews, sources: Iterable[Freshness], namespace: str, timeout: timedelta) -> Outcome:
    """The same when there is no more waiting: a review that is not answered is no reason to fail, a list is."""
    words = tuple(sources)
    outcome = opened(reviews.abandoned(), words, namespace)
    if outcome is not False:
        return outcome
    errors = [word.error for word in words if word.error is not None]
    return errors[-1] if errors else Unavailable(f"the API did not answer a list within {timeout.total_seconds():g} s")
