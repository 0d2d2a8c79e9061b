"""The start of a Backend: its order, and the errors that end it.

Errors that may pass are retried until `backend.start_timeout`. `Startup` sends the requests; pure functions judge the
answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from actors import kube
from actors.backend.deletion.remaining_pods import LOST_REQUESTS
from actors.backend.driver_pod import DriverPod, DriverPodMessage
from actors.backend.rbac import LIST_PODS, Reviews, Right, lacking, needed
from actors.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from actors.kube.api import LEASES
from actors.kube.retries import Patience, requested_wait, retry_delay
from actors.lease.record import lease_name
from actors.messages import BackendStarted
from actors.messages.internal import KeepLease, LookAgain, Relist, StartPolling, StartWatching, names
from actors.runtime import Backoff, elapsed, later
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.executors.executors import Executors
    from actors.executors.fleet_context import FleetContext
    from actors.executors.kills import Kills
    from actors.kube.api import PodApi
    from actors.lease.write_permission import WritePermission
    from actors.messages.internal import Freshness
    from actors.runtime import Address, ChildSpec, Supervisor

__all__ = ["Outcome", "Startup", "opened", "out_of_time"]

logger = get_logger(__name__)

READ_NAMESPACE: Final = Right("get", kube.NAMESPACES)
"""Not needed, and never reviewed: the request itself is answered. A Role cannot grant it where it is of use, because in
a namespace that does not exist there is none."""

ASK_EVERY: Final = timedelta(seconds=1)
"""How often a right that is missing is reviewed again, while that is not believed yet."""

_PACE: Final = Backoff(initial=ASK_EVERY, maximum=ASK_EVERY, jitter=0)

Outcome: TypeAlias = bool | ApiError
"""Whether rights and first list are complete, or the error that ends the start."""


@dataclass(frozen=True, slots=True)
class _Reviewed:
    """The server's answer about one of our rights."""

    right: Right
    answer: bool | ApiError


@dataclass(frozen=True, slots=True)
class _NamespaceRead:
    """The server's answer about our namespace."""

    answer: kube.Manifest | ApiError


@dataclass(frozen=True, slots=True)
class _AskDue:
    """Time to ask again about this right."""

    right: Right


class _TimedOut:
    """`backend.start_timeout` is over."""


class Startup:
    """The start of one Backend, and every restart of its children.

    Args:
        context: see `FleetContext`.
        specs: returns the specs of the children for the `owners` of the executors.
        fail: called with the error that ends the backend.
    """

    def __init__(
        self,
        context: FleetContext,
        api: PodApi,
        *,
        supervisor: Supervisor,
        specs: Callable[..., Iterable[ChildSpec]],
        driver_pod: DriverPod,
        permission: WritePermission,
        executors: Executors,
        kills: Kills,
        fail: Callable[[Exception], None],
    ) -> None:
        settings = context.settings
        self._backend = context.backend
        self._api = api
        self._app_id = settings.app_id
        self._timeout = settings.backend.start_timeout
        self._max_retry_after = settings.api.max_retry_after
        self._reviews = Reviews((*needed(settings), READ_NAMESPACE))
        self._supervisor = supervisor
        self._specs = specs
        self._driver_pod = driver_pod
        self._sources = context.state.sources
        self._permission = permission
        self._executors = executors
        self._kills = kills
        self._tell = context.tell
        self._fail = fail
        self._patience = Patience()
        self._has_children = False
        self.is_done = False
        """The fleet was listed, our rights are known, and the driver was notified."""
        self._is_takeover_due = False
        """The Allocator has started, and `TakeOver` was not sent for it yet."""
        self._is_over = False

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {
            **dict.fromkeys(DriverPod.handles, self._driver_pod_changed),
            _NamespaceRead: self._namespace_read,
            _Reviewed: self._reviewed,
            _AskDue: self._ask_due,
            _TimedOut: self._timed_out,
        }

    def begin(self) -> None:
        """Begin `backend.start_timeout`, and take the first steps."""
        self._backend.timers.start("start", self._timeout, _TimedOut())
        self._driver_pod.begin()
        self.advance()

    def advance(self) -> None:
        """Take the next steps of the start, as far as possible now. Called again whenever something arrives.

        1. GET the driver's pod, if there is one. It will own the executors.
        2. Start the children, each with its first messages (`introduce`). The sources begin to list, and the lease
           keeper begins to acquire the lease.
        3. Ask the server to review all our rights, and for our namespace: a LIST of one that does not exist is empty.
           Wait for its answers, and for a `Freshness` with a full sync.
        4. Send `BackendStarted` to the driver and `LedgerLoaded` to LifecycleManager.
        5. Wait until executors may be created: `LeaseHeld` was received, and the driver's pod is ready.
        6. Send `TakeOver` to LifecycleManager. It requests the adoption of existing pods and answers `TakenOver`.
           With a lease, `AdoptionEnded` follows after another list (`_take_over`): what comes later is a stranger's.
        7. Send `LedgerLoaded` and `SetTotalExpectedExecutors` to the Allocator (`Executors.handlers`, `TakenOver`). The
           Allocator sends `BeginEpoch` to the RequestPool; after `EpochBegun` and a full sync it requests executors:
           `ExecutorsRequested` to the Backend, `CreatePod` to the RequestPool.

        Steps 6 and 7 are repeated at each start of the Allocator, which is restarted when the lease was lost.
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
            self._fail_if_it_lasts(outcome)
            if outcome is not True:
                return
            self._begin_fleet()
        if self._is_takeover_due and self._permission.may_create:
            self._is_takeover_due = False
            self._take_over()
        self._permission.begin_to_notify()

    def introduce(self, name: str) -> None:
        """Send a child its first messages, at each of its starts."""
        child = self._supervisor.address(name)
        match name:
            case names.POOL:
                self._permission.introduce_pool()
            case names.STORE:
                self._executors.introduce_store()
            case names.LIFECYCLE if self.is_done:
                self._executors.introduce_lifecycle_manager()
            case names.ALLOCATOR:
                self._is_takeover_due = True
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
        """Another driver may have written: what the Allocator knows and what was listed before is outdated."""
        why = self._permission.why_not() or "the lease was not ours for a while"
        logger.info("restarting the allocator, what it knows is outdated: reason=%s", why)
        self._is_takeover_due = False
        self._executors.hold_allocator()
        self._supervisor.restart(names.ALLOCATOR)
        if self._permission.may_write:
            self._supervisor.address(names.WATCH).tell(Relist())

    def end(self) -> None:
        """Take no more steps."""
        self._is_over = True
        self._backend.timers.cancel("start")

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_children(self) -> None:
        """Start all children and send all requests. This happens once: a restarted child needs no new review."""
        self._has_children = True
        for spec in self._specs(owners=self._driver_pod.owners):
            self._supervisor.start(spec)
        for right in self._reviews.awaited:
            self._ask(right)

    def _ask(self, right: Right) -> None:
        myself = self._backend.myself
        if right == READ_NAMESPACE:
            read = kube.GetObject(kube.NAMESPACES, self._api.namespace)
            self._api.send(read, lambda answer: myself.tell(_NamespaceRead(answer)))
        else:
            of_one = right.resource == LEASES and right.verb != "create"  # which names no object
            review = kube.ReviewAccess(right.verb, right.resource, lease_name(self._app_id) if of_one else "")
            self._api.send(review, partial(_tell_answer, myself, right))

    def _ask_again(self, right: Right, error: ApiError | None = None) -> None:
        """Ask after `ASK_EVERY`, or after the server's Retry-After if that is longer."""
        delay = retry_delay(_PACE, 0, error, self._backend.entropy, self._max_retry_after)
        self._backend.timers.start(f"ask {right}", delay, _AskDue(right))

    def _ask_due(self, message: _AskDue) -> None:
        if not self._is_over and not self.is_done:
            self._ask(message.right)

    def _begin_fleet(self) -> None:
        self.is_done = True
        self._backend.timers.cancel("start")
        if self._reviews.error is not None:
            logger.info("rights not reviewed, assuming that we have them: error=%s", self._reviews.error)
        logger.info("backend started: app_id=%s namespace=%s", self._app_id, self._api.namespace)
        self._tell(BackendStarted(self._app_id, self._api.namespace))
        self._executors.begin()
        self._kills.begin()
        self._executors.introduce_lifecycle_manager()

    def _take_over(self) -> None:
        """Take the fleet over. With a lease, list what its last holder has left, also by requests under way."""
        since = self._permission.granted_at
        if since is not None and self._executors.had_drivers:
            since = later(since, LOST_REQUESTS)
        self._executors.introduce_allocator(since)
        if since is not None:
            left = elapsed(self._backend.clock.monotonic(), since)
            self._supervisor.address(names.POLL).tell(LookAgain(max(left, timedelta())))

    def _fail_if_it_lasts(self, outcome: Outcome) -> None:
        if not isinstance(outcome, ApiError):
            self._patience.renew()
        elif self._patience.ends(self._backend.clock.monotonic()):
            self._fail(outcome)

    # ── what the steps wait for ─────────────────────────────────────────────────────────────────────────────────

    def _driver_pod_changed(self, message: DriverPodMessage) -> None:
        if not self._is_over:
            self._driver_pod.handle(message)
            self.advance()

    def _reviewed(self, message: _Reviewed) -> None:
        right, answer = message.right, message.answer
        if isinstance(answer, ApiError) and requested_wait(answer) is not None:
            self._ask_again(right, answer)
            return
        self._reviews = self._reviews.answered(right, answer)
        if right in self._reviews.missing:
            self._ask_again(right)
        self.advance()

    def _namespace_read(self, message: _NamespaceRead) -> None:
        """Fail if there is no such namespace. Whether we may read it does not matter."""
        namespace, answer = self._api.namespace, message.answer
        if isinstance(answer, ApiError) and requested_wait(answer) is not None:
            self._ask_again(READ_NAMESPACE, answer)
            return
        if isinstance(answer, NotFound) and f'namespaces "{namespace}" not found' in answer.message:
            if not self._is_over:
                self._fail(NotFound(f"there is no namespace {namespace!r}; create it, or set namespace", status=404))
            return
        self._reviews = self._reviews.answered(READ_NAMESPACE, True)  # noqa: FBT003 - as the answer of a review
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
    """Judge the answers so far."""
    last = tuple(sources)
    synced = any(freshness.synced_at is not None for freshness in last)
    errors = [] if synced else [freshness.error for freshness in last if freshness.error is not None]
    for error in errors:
        if isinstance(error, Unauthorized | NotFound | BadRequest):
            return error
    if reviews.awaited:  # to name all missing rights in one error
        return False
    refused = next((error for error in errors if isinstance(error, Forbidden)), None)
    missing = {*reviews.missing, *((LIST_PODS,) if refused is not None else ())}
    return lacking(missing, namespace, said=refused) if missing else synced


def out_of_time(reviews: Reviews, sources: Iterable[Freshness], namespace: str, timeout: timedelta) -> Outcome:
    """Judge the answers at the end of `timeout`: a missing review is no error, a missing list is one."""
    last = tuple(sources)
    outcome = opened(reviews.abandoned(), last, namespace)
    if outcome is not False:
        return outcome
    errors = [freshness.error for freshness in last if freshness.error is not None]
    return errors[-1] if errors else Unavailable(f"the API did not answer a list within {timeout.total_seconds():g} s")
