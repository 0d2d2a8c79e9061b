"""Backend: the facade. What a driver starts, talks to and stops.

It builds and supervises the other actors, owns the ledger and what the driver is told, and answers queries from what
it was last told. The last word that a driver hears is `BackendStopped` or `BackendFailed`, once, however the backend
ends. It calls the API itself only to review its rights at the start and to see, while stopping, whether the fleet is
gone; and no handler waits.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

from actors import executor_pod, parts
from actors.driver_door import checked_ids, checked_totals, fleet_status, joined
from actors.errors import ApiError, Refused
from actors.ledger import Book
from actors.loss import stopped_with_fleet
from actors.messages import (
    DEFAULT_PROFILE,
    AllocationBlocked,
    AllocationUnblocked,
    AllocatorStatus,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    CreationBlocked,
    DeletePods,
    DisconnectExecutor,
    ExecutorDisconnected,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorRemoved,
    ExecutorSeen,
    ExecutorsGivenUp,
    ExecutorsKnown,
    ExecutorsRequested,
    FleetFailed,
    FleetStatus,
    Freshness,
    FromDriver,
    FromInside,
    GetExecutorIds,
    GetFleetStatus,
    HasEnoughExecutors,
    IsExecutorActive,
    KillExecutors,
    LedgerEntry,
    ProfileStatus,
    RegisterExecutor,
    RemoveExecutor,
    RequestTotalExecutors,
    SetTotalExpectedExecutors,
    Source,
    StartFailuresExceeded,
    StopBackend,
    ToDriver,
)
from actors.opening import Outcome, opened, out_of_time
from actors.parts import ALLOCATOR, LIFECYCLE, POLL, POOL, WATCH
from actors.rights import Reviews, Right, needed
from actors.runtime import (
    Actor,
    ActorRef,
    ActorSystem,
    Address,
    Context,
    StoppedByHost,
    Supervisor,
    SupervisorMessage,
)
from actors.stopping import Stopping, StoppingMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.kube.api import PodApi
    from actors.settings import Settings

__all__ = ["Backend"]

logger = logging.getLogger(__name__)

OWNER_CHECK: Final = timedelta(seconds=1)
"""Pykka tells nobody of a death, so the driver's is looked for."""


class _OwnerCheckDue:
    """Time to see whether the driver lives."""


class _StartTimedOut:
    """No full sync came within `backend.start_timeout`."""


class _ForgetDue:
    """Time to forget executors that ended long ago."""


@dataclass(frozen=True, slots=True)
class _Reviewed:
    """What the server says of one of our rights."""

    right: Right
    answer: bool | ApiError


class Backend(Actor):
    """Keeps a fleet of executor pods at the size the driver asks for. Made by `Backend.start`."""

    @classmethod
    def start(  # type: ignore[override]  # Pykka's takes anything and returns its bare ref
        cls,
        settings: Settings,
        owner: ActorRef[Any] | Address,
        api: PodApi | None = None,
        *,
        system: ActorSystem | None = None,
    ) -> Address:
        """Start a backend for `owner`, the driver's actor, which is told everything from then on.

        Without `api`, the kubeconfig's current context is used, or the pod's own account. The backend closes the API
        client when it ends. What needs the API is answered later: `BackendStarted` or `BackendFailed`.

        Raises:
            SettingsError: settings, pod template or kubeconfig are wrong; nothing was started.
        """
        executor_pod.check_template(settings)
        if api is None:
            from actors import kube  # noqa: PLC0415 - a driver that brings its own API does not pay for the client

            api = kube.connect(
                namespace=settings.namespace,
                request_timeout=settings.backend.request_timeout,
                max_connections=settings.allocation.max_requests_in_flight,
            )
        ours = isinstance(owner, Address)  # an actor of this runtime hears `Terminated` too, as owners do
        driver = owner if isinstance(owner, Address) else Address.to(owner)
        runs_on = system or ActorSystem()
        make = partial(cls, settings=settings, driver=driver, api=api, owns_system=system is None)
        return runs_on.spawn(make, name="backend", owner=driver if ours else None)

    def __init__(
        self, context: Context, *, settings: Settings, driver: Address, api: PodApi, owns_system: bool = False
    ) -> None:
        super().__init__(context)
        self._settings = settings
        self._driver = driver
        self._api = api
        self._book = Book()
        self._totals: dict[str, int] = {DEFAULT_PROFILE: settings.executor.instances}
        self._profiles: Mapping[str, ProfileStatus] = {}
        self._sources: dict[Source, Freshness] = {}
        self._reviews = Reviews(needed(settings))
        self._has_started = False
        """The fleet was listed and our rights are known: the driver has heard of it, and pods may be made."""
        self._stopping: Stopping | None = None
        self._ended: ToDriver | None = None
        """The last word to the driver, once it is said."""
        self._owns_system = owns_system
        self._supervisor = Supervisor(self, self._escalated, settings.backend.hang_timeout)  # ends all with us
        self.at_end(self._close)

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def started(self) -> None:
        """Start everything, in the order in which things depend on each other."""
        logger.info("the backend starts: app_id=%s namespace=%s", self._settings.app_id, self._api.namespace)
        with self._crashes_told():
            for spec in parts.specs(
                self._settings,
                self._api,
                backend=self.address,
                address=self._address,
                introduce={
                    POOL: self._introduce_pool,
                    LIFECYCLE: self._introduce_lifecycle_manager,
                    ALLOCATOR: self._introduce_allocator,
                },
            ):
                self._supervisor.start(spec)
            self._review_rights()
        self.timers.every("owner", OWNER_CHECK, _OwnerCheckDue())
        self.timers.start("start", self._settings.backend.start_timeout, _StartTimedOut())
        self.timers.every("forget", self._settings.executor.removed_executors_ttl, _ForgetDue())

    def _close(self) -> None:
        """The end, of whatever kind: the supervisor has told every actor of ours to end; no connection is left."""
        self._api.close()
        if self._owns_system:
            self.context.system.close()
        self._end(BackendStopped())  # nobody has said why: the host stopped us

    @contextmanager
    def _crashes_told(self) -> Iterator[None]:
        """What we die of is what the driver should hear."""
        try:
            yield
        except Refused:
            raise
        except BaseException as error:
            self._end(BackendFailed(error))
            raise

    def _introduce_pool(self, _: Address) -> None:
        if self._stopping is not None:
            self._stopping.pool_restarted()

    def _introduce_lifecycle_manager(self, child: Address) -> None:
        if self._has_started:  # without the ledger it does nothing
            child.tell(ExecutorsKnown(self._book.entries, self._book.next_id))

    def _introduce_allocator(self, child: Address) -> None:
        if self._has_started:  # the same
            child.tell(ExecutorsKnown(self._book.entries, self._book.next_id))
            child.tell(SetTotalExpectedExecutors(dict(self._totals)))

    def _escalated(self, name: str, cause: BaseException) -> None:
        """A part cannot be kept alive, or the host does not want it to be."""
        if isinstance(cause, StoppedByHost):
            logger.info("the host stops a part of the backend, so all of it ends: part=%s", name)
            self._end(BackendStopped())
            self.stop()
            return
        logger.error("a part of the backend cannot be kept alive: part=%s cause=%r", name, cause)
        self._fail(cause)

    def _fail(self, cause: BaseException) -> None:
        """Tell the driver and end; the fleet is left as it is."""
        if self._stopping is not None:
            self._stopping.give_up(cause)
            return
        self._end(BackendFailed(cause))
        self.stop()

    def _end(self, last_word: BackendStopped | BackendFailed) -> None:
        if self._ended is None:
            self._ended = last_word
            self._driver.tell(last_word)

    def _tell(self, message: ToDriver | None) -> None:
        if message is not None and self._ended is None:
            self._driver.tell(message)

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, message: object) -> object:
        """From the driver, from inside, or about the children."""
        with self._crashes_told():
            return self._receive(message)

    def _receive(self, message: object) -> object:  # noqa: C901 - one line a message
        match message:
            case SupervisorMessage():
                self._supervisor.handle(message)
                if self._stopping is not None:
                    self._stopping.child_ended()
            case _ if isinstance(message, StoppingMessage):
                if self._stopping is not None:
                    self._stopping.handle(message)
            case _OwnerCheckDue():
                self._check_owner()
            case _Reviewed(right, answer):
                self._reviews = self._reviews.answered(right, answer)
                self._opened(self._outcome())
            case _StartTimedOut():
                self._start_timed_out()
            case _ForgetDue():
                ttl = self._settings.executor.removed_executors_ttl.total_seconds()
                self._book = self._book.forgotten(self.clock.monotonic() - ttl)
            case _ if isinstance(message, FromInside):
                self._from_inside(message)
            case _ if isinstance(message, FromDriver):
                return self._from_driver(message)
            case _:
                raise Refused(f"the backend does not know the message {type(message).__name__}")
        return None

    def _from_inside(self, message: FromInside) -> None:
        match message:
            case ExecutorsRequested(executor_ids, profile):
                self._book = self._book.requested(executor_ids, profile)
            case ExecutorSeen():
                self._seen(message)
            case RemoveExecutor():
                self._removed(message)
            case ExecutorsGivenUp():
                self._given_up(message)
            case AllocatorStatus(profiles):
                self._profiles = profiles
            case CreationBlocked(profile, cause):
                self._tell(AllocationUnblocked(profile) if cause is None else AllocationBlocked(profile, cause))
            case StartFailuresExceeded(cause):
                self._tell(FleetFailed(cause))
            case Freshness():
                self._freshness(message)
            case _:
                assert_never(message)

    def _from_driver(self, message: FromDriver) -> object:
        match message:
            case RequestTotalExecutors(totals):
                self._retarget(totals)
            case KillExecutors(executor_ids, adjust_target):
                return self._kill(executor_ids, adjust_target=adjust_target)
            case RegisterExecutor(executor_id):
                return self._register(executor_id)
            case DisconnectExecutor(executor_id):
                self._disconnect(executor_id)
            case GetExecutorIds():
                return tuple(e.executor_id for e in self._book.present() if self._book.is_active(e.executor_id))
            case IsExecutorActive(executor_id):
                return self._book.is_active(executor_id)
            case HasEnoughExecutors():
                wanted = self._settings.executor.instances * self._settings.backend.min_registered_ratio
                return self._book.registered_count() >= wanted
            case GetFleetStatus():
                return self._status()
            case StopBackend(delete_pods):
                self._begin_stop(delete_pods)
            case _:
                assert_never(message)
        return None

    # ── from inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def _seen(self, seen: ExecutorSeen) -> None:
        self._book, told, ours = self._book.seen(seen.executor_id, seen.state, self.clock.monotonic())
        self._tell(told)
        if not ours:
            why = "its id was given up, or given to an executor that has ended"
            logger.warning("a pod came up late, deleting it: executor=%d uid=%s", seen.executor_id, seen.uid)
            self._address(LIFECYCLE).tell(ExecutorsGivenUp((seen.executor_id,), why))

    def _removed(self, removed: RemoveExecutor) -> None:
        now = self.clock.monotonic()
        self._book, told = self._book.removed(removed.executor_id, removed.uid, removed.reason, now)
        if told is not None:
            logger.info("removed: executor=%d reason=%s", told.executor_id, told.reason.message)
            self._tell(told)

    def _given_up(self, given_up: ExecutorsGivenUp) -> None:
        self._address(LIFECYCLE).tell(given_up)
        for executor_id in given_up.executor_ids:
            self._book, told = self._book.given_up(executor_id, given_up.why, self.clock.monotonic())
            logger.info("given up: executor=%d why=%s", executor_id, given_up.why)
            self._tell(told)

    def _freshness(self, freshness: Freshness) -> None:
        self._sources[freshness.source] = joined(self._sources.get(freshness.source), freshness)
        self._opened(self._outcome())

    def _check_owner(self) -> None:
        if not self._driver.is_alive():
            logger.warning("the driver is gone: the backend ends, the fleet is left as it is")
            self.stop()

    # ── the start ────────────────────────────────────────────────────────────────────────────────────────────────

    def _review_rights(self) -> None:
        """Ask for all at once, beside the first list. Parts that come up again find the answers here."""
        for right in self._reviews.awaited:
            self._api.may(right.verb, right.resource, partial(_tell_answer, self.myself, right))

    def _outcome(self) -> Outcome:
        return opened(self._reviews, self._sources.values(), self._api.namespace)

    def _opened(self, outcome: Outcome) -> None:
        """Begin with the fleet, end, or wait on."""
        if self._has_started or self._ended is not None or self._stopping is not None:
            return
        match outcome:
            case True:
                self._begin()
            case False:
                pass
            case ApiError():
                logger.error("the backend cannot start: %s", outcome)
                self._fail(outcome)

    def _begin(self) -> None:
        self._has_started = True
        self.timers.cancel("start")
        if self._reviews.error is not None:
            logger.info("our rights cannot be reviewed, going on as if we had them: error=%s", self._reviews.error)
        self._tell(BackendStarted(self._settings.app_id, self._api.namespace))
        self._introduce_lifecycle_manager(self._address(LIFECYCLE))
        self._introduce_allocator(self._address(ALLOCATOR))

    def _start_timed_out(self) -> None:
        timeout, sources = self._settings.backend.start_timeout, self._sources.values()
        self._opened(out_of_time(self._reviews, sources, self._api.namespace, timeout))

    # ── from the driver ──────────────────────────────────────────────────────────────────────────────────────────

    def _retarget(self, totals: int | Mapping[str, int]) -> None:
        self._totals = checked_totals(totals)
        self._address(ALLOCATOR).tell(SetTotalExpectedExecutors(dict(self._totals)))

    def _kill(self, executor_ids: tuple[int, ...], *, adjust_target: bool) -> tuple[int, ...]:
        """Tell the driver at once, and delete by label: that also meets those whose POST is still on its way."""
        now = self.clock.monotonic()
        killed: list[LedgerEntry] = []
        for executor_id in checked_ids(executor_ids):
            entry = self._book.entries.get(executor_id)
            done = self._book.killed(executor_id, now)
            if entry is None or done is None:
                logger.warning("cannot kill, there is no such executor: executor=%s", executor_id)
                continue
            self._book, told = done
            self._tell(told)
            for name in (LIFECYCLE, ALLOCATOR):
                self._address(name).tell(ExecutorKilled(executor_id))
            killed.append(entry)
        taken_back = [entry.profile for entry in killed if not entry.killed]  # an executor counts once
        if adjust_target and taken_back:
            for profile in taken_back:
                self._totals[profile] = max(0, self._totals.get(profile, 0) - 1)
            self._address(ALLOCATOR).tell(SetTotalExpectedExecutors(dict(self._totals)))
        ids = tuple(entry.executor_id for entry in killed)
        if ids:
            logger.info("killing executors: ids=%s adjust_target=%s", list(ids), adjust_target)
            self._address(POOL).tell(DeletePods(frozenset(ids)))
        return ids

    def _register(self, executor_id: int) -> bool:
        now = self.clock.monotonic()
        book = self._book.registered(executor_id, now)
        if book is None:
            logger.warning("an executor registers that is none of ours: executor=%s", executor_id)
            return False
        self._book = book
        for name in (LIFECYCLE, ALLOCATOR):
            self._address(name).tell(ExecutorRegistered(executor_id, now))
        return True

    def _disconnect(self, executor_id: int) -> None:
        book = self._book.disconnected(executor_id)
        if book is not None:
            self._book = book
            self._address(LIFECYCLE).tell(ExecutorDisconnected(executor_id, self.clock.monotonic()))

    def _status(self) -> FleetStatus:
        return fleet_status(
            self._settings.app_id,
            self._api.namespace,
            book=self._book,
            profiles=self._profiles,
            sources=self._sources,
            now=self.clock.monotonic(),
            stopping=self._stopping is not None,
        )

    # ── the stop ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_stop(self, delete_pods: bool | None) -> None:
        if self._stopping is not None:
            return
        delete = self._settings.backend.delete_on_stop if delete_pods is None else delete_pods
        logger.info("the backend stops: delete_pods=%s", delete)
        for key in ("start", "owner"):  # a driver may tell us to stop as the last thing it does
            self.timers.cancel(key)
        self._stopping = Stopping(
            self,
            supervisor=self._supervisor,
            api=self._api,
            app_id=self._settings.app_id,
            delete_pods=delete,
            timeout=self._settings.backend.shutdown_timeout,
            pool=self._address(POOL),
            writers=(WATCH, POLL, ALLOCATOR),
            known_pods=self._known_pods,
            finished=partial(self._stop_finished, deleted=delete),
        )
        self._stopping.begin()

    def _known_pods(self) -> tuple[str, ...]:
        """Every pod that may exist: also those that were requested and not seen."""
        entries = sorted(self._book.entries.values(), key=lambda entry: entry.executor_id)
        return tuple(self._pod_name(entry) for entry in entries if entry.removed_at is None)

    def _pod_name(self, entry: LedgerEntry) -> str:
        if entry.pod is not None:  # of an earlier life, perhaps, which had another prefix
            return entry.pod.name
        return executor_pod.name(self._settings.pod_prefix, entry.executor_id)

    def _stop_finished(self, left_behind: tuple[str, ...], *, deleted: bool) -> None:
        """The last words: each executor that went with the fleet, then the end."""
        if deleted:
            for entry in self._book.present():
                if self._pod_name(entry) not in left_behind:
                    self._tell(ExecutorRemoved(entry.executor_id, stopped_with_fleet(entry.executor_id)))
        if left_behind:
            logger.warning("the backend has stopped, pods may be left: pods=%s", list(left_behind))
        self._end(BackendStopped(left_behind))
        self.stop()

    def _address(self, name: str) -> Address:
        return self._supervisor.address(name)


def _tell_answer(backend: Address, right: Right, answer: bool | ApiError) -> None:
    backend.tell(_Reviewed(right, answer))
