"""Backend: the facade. What a driver starts, talks to and stops.

It builds and supervises the other actors, decides when they may begin and when they must wait, and answers queries from
what it was last told; what concerns single executors is the `Executors`'s. The last word that a driver hears is
`BackendStopped` or `BackendFailed`, once, however the backend ends. It calls the API itself only to review its rights
and look at the driver's pod at the start, and to see, while stopping, whether the fleet is gone; and no handler waits.
"""

from __future__ import annotations

import logging
import platform
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

from actors.backend import children as parts
from actors.backend.driver_channel import DriverChannel
from actors.backend.driver_pod import DriverPod, DriverPodMessage
from actors.backend.shutdown import Shutdown, ShutdownMessage
from actors.backend.startup import Startup, StartupMessage
from actors.errors import Refused
from actors.executors.executors import AboutExecutors, Executors, ExecutorsTimer
from actors.executors.status import fleet_status, joined
from actors.kube.metered import MeteredPodApi
from actors.lease.write_permission import LeaseOver, WritePermission
from actors.manifests import executor_pod
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    AllocatorStatus,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    CreationBlocked,
    DecommissionExecutors,
    FleetFailed,
    FleetStatus,
    Freshness,
    FromDriver,
    FromInside,
    GetFleetStatus,
    KillExecutors,
    LeaseHeld,
    LeaseNotHeld,
    Polled,
    Relist,
    RetryNow,
    Source,
    StartFailuresExceeded,
    StopBackend,
)
from actors.messages.names import ALLOCATOR, LEASE, LIFECYCLE, POLL, POOL, STORE, WATCH
from actors.metrics.counts import FleetCounts
from actors.runtime import (
    Actor,
    ActorRef,
    ActorSystem,
    Address,
    Context,
    StoppedByHost,
    Supervisor,
    SupervisorMessage,
    Terminated,
)

if TYPE_CHECKING:
    from actors.executors.roll import RollPolicy
    from actors.kube.api import Manifest, PodApi
    from actors.metrics.counts import Metrics
    from actors.settings.model import Settings

__all__ = ["Backend"]

logger = logging.getLogger(__name__)

OWNER_CHECK: Final = timedelta(seconds=1)
"""Pykka tells nobody of a death, so the driver's is looked for."""


class _OwnerCheckDue:
    """Time to see whether the driver lives."""


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
        roll_policy: RollPolicy | None = None,
        metrics: Metrics | None = None,
    ) -> Address:
        """Start a backend for `owner`, the driver's actor, which is told everything from then on.

        Without `api`, the kubeconfig's current context is used, or the pod's own account. The backend closes the API
        client when it ends. What needs the API is answered later: `BackendStarted` or `BackendFailed`. `roll_policy`
        chooses whom `roll.interval` replaces, in place of `roll.policy`; it is called in the backend's thread.
        `metrics` is handed what is counted, see `actors.metrics`.

        Raises:
            SettingsError: settings, pod template or kubeconfig are wrong; nothing was started.
        """
        executor_pod.check_template(settings)
        if api is None:
            from actors import kube  # noqa: PLC0415 - a driver that brings its own API does not pay for the client

            api = kube.connect(
                namespace=settings.namespace,
                request_timeout=settings.backend.request_timeout,
                max_connections=settings.allocation.connections,
            )
        ours = isinstance(owner, Address)  # an actor of this runtime hears `Terminated` too, as owners do
        runs_on = system or ActorSystem()
        driver = owner if isinstance(owner, Address) else Address.to(owner, runs_on.letters)
        counts = FleetCounts(settings.app_id, settings.profile_names)
        make = partial(
            cls,
            settings=settings,
            driver=driver,
            api=api,
            owns_system=system is None,
            roll_policy=roll_policy,
            counts=counts,
        )
        backend = runs_on.spawn(make, name="backend", owner=driver if ours else None)
        if metrics is not None:
            metrics.add(counts)
        return backend

    def __init__(
        self,
        context: Context,
        *,
        settings: Settings,
        driver: Address,
        api: PodApi,
        owns_system: bool = False,
        roll_policy: RollPolicy | None = None,
        counts: FleetCounts | None = None,
    ) -> None:
        super().__init__(context)
        self._counts = counts or FleetCounts(settings.app_id, settings.profile_names)
        self._settings = settings
        self._driver = driver
        self._api = MeteredPodApi(api, self._counts.api, self.clock)
        self._sources: dict[Source, Freshness] = {}
        self._has_started = False
        """The fleet was listed and our rights are known: the driver has heard of it."""
        self._stopping: Shutdown | None = None
        self._line = DriverChannel(
            driver,
            self.clock,
            counts=self._counts.backend,
            profile_of=lambda executor_id: self._fleet.book.entries[executor_id].profile,
            ending=lambda: self._opening.end(),  # noqa: PLW0108 - it is made below
        )
        self._owns_system = owns_system
        self._supervisor = Supervisor(self, self._escalated, settings.backend.hang_timeout)  # ends all with us
        self._fleet = Executors(
            self,
            settings,
            address=self._address,
            tell=self._line.tell,
            policy=roll_policy,
            counts=self._counts.backend,
        )
        self._permission = WritePermission(
            self,
            settings,
            pool=self._address(POOL),
            tell=self._line.tell,
            go_on=self._go_on,
            lease_changed=self._lease_changed,
        )
        self._driver_pod = self._make_driver_pod()
        self._opening = Startup(
            self,
            self._api,
            settings,
            sources=self._sources.values,
            before=lambda: self._driver_pod.error if self._driver_pod is not None else None,
            done=self._begin,
            failed=self._cannot_start,
        )
        self._counts.letters = context.system.letters
        names = (POOL, STORE, LIFECYCLE, ALLOCATOR, POLL, WATCH, *((LEASE,) if settings.uses_lease else ()))
        self._counts.addresses = {
            "backend": self.address,
            "driver": driver,
            **{name: self._address(name) for name in names},
        }
        self.at_end(self._close)

    def _make_driver_pod(self) -> DriverPod | None:
        if self._settings.driver_pod_name is None:
            return None
        return DriverPod(
            self,
            self._api,
            self._settings.driver_pod_name,
            ready_timeout=self._settings.backend.driver_ready_timeout,
            found=self._start_parts,
            ready=self._permission.driver_pod_ready,
            failed=self._cannot_start,
        )

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def started(self) -> None:
        """Start everything; what executors belong to must be known before."""
        logger.info("the backend starts: app_id=%s namespace=%s", self._settings.app_id, self._api.namespace)
        with self._line.crashes_told():
            self.timers.every("owner", OWNER_CHECK, _OwnerCheckDue())
            self._opening.begin()
            if self._driver_pod is not None:
                self._driver_pod.look()
            else:
                self._start_parts(None)

    def _start_parts(self, owner: Manifest | None) -> None:
        """In the order in which things depend on each other."""
        for spec in parts.specs(
            self._settings,
            self._api,
            owner=owner,
            identity=f"{self._settings.driver_pod_name or platform.node()}_{self.entropy.token(8)}",
            backend=self.address,
            counts=self._counts,
            address=self._address,
            introduce={
                POOL: self._introduce_pool,
                LIFECYCLE: self._introduce_lifecycle_manager,
                ALLOCATOR: self._introduce_allocator,
            },
        ):
            self._supervisor.start(spec)
        self._opening.review_rights()

    def _close(self) -> None:
        """The end, of whatever kind: the supervisor has told every actor of ours to end; no connection is left."""
        with ExitStack() as last:  # each of these, whatever becomes of the others
            last.callback(self._line.end, BackendStopped())  # nobody has said why: the host stopped us
            if self._owns_system:
                last.callback(self.context.system.close)
            last.callback(self._api.close)

    def _introduce_pool(self, child: Address) -> None:
        self._permission.introduce_pool(child)
        if self._stopping is not None:
            self._stopping.pool_restarted()

    def _introduce_lifecycle_manager(self, child: Address) -> None:
        if self._has_started:  # without the ledger it does nothing
            self._fleet.introduce_lifecycle_manager(child)

    def _introduce_allocator(self, _: Address) -> None:
        if self._has_started and self._permission.may_create:  # the same
            self._fleet.introduce_allocator()

    def _escalated(self, name: str, cause: BaseException) -> None:
        """A part cannot be kept alive, or the host does not want it to be."""
        if isinstance(cause, StoppedByHost):
            logger.info("the host stops a part of the backend, so all of it ends: part=%s", name)
            self._line.end(BackendStopped())
            self.stop()
            return
        logger.error("a part of the backend cannot be kept alive: part=%s cause=%r", name, cause)
        self._fail(cause)

    def _fail(self, cause: BaseException) -> None:
        """Tell the driver and end; the fleet is left as it is."""
        if self._stopping is not None:
            self._stopping.give_up(cause)
            return
        self._line.end(BackendFailed(cause))
        self.stop()

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, message: object) -> object:
        """From the driver, from inside, or about the children."""
        with self._line.crashes_told():
            return self._receive(message)

    def _receive(self, message: object) -> object:  # noqa: C901, PLR0912 - one line a message
        match message:
            case SupervisorMessage():
                if isinstance(message, Terminated):
                    self._counts.backend.ended(message.name, message.cause)
                self._supervisor.handle(message)
                if self._stopping is not None:
                    self._stopping.child_ended()
            case _ if isinstance(message, ShutdownMessage):
                if self._stopping is not None:
                    self._stopping.handle(message)
            case _ if isinstance(message, ExecutorsTimer):
                self._fleet.due(message, may_write=self._permission.may_write)
            case _ if isinstance(message, DriverPodMessage):
                if self._driver_pod is not None and self._stopping is None:
                    self._driver_pod.handle(message)
            case _OwnerCheckDue():
                self._check_owner()
            case LeaseOver():
                self._permission.handle(message)
            case _ if isinstance(message, StartupMessage):
                self._opening.handle(message)
            case _ if isinstance(message, FromInside):
                self._from_inside(message)
                if self._driver_pod is not None:
                    self._driver_pod.suspect(message)
            case _ if isinstance(message, FromDriver):
                return self._from_driver(message)
            case _:
                raise Refused(f"the backend does not know the message {type(message).__name__}")
        return None

    def _from_inside(self, message: FromInside) -> None:
        match message:
            case AllocatorStatus():
                self._fleet.counted(message)
            case CreationBlocked(profile, cause) if self._permission.may_create:
                self._line.tell(AllocationUnblocked(profile) if cause is None else AllocationBlocked(profile, cause))
            case CreationBlocked():
                pass  # by the Allocator before: since then more than that stands in the way
            case StartFailuresExceeded(cause):
                self._line.tell(FleetFailed(cause))
            case Freshness():
                self._sources[message.source] = joined(self._sources.get(message.source), message)
                self._opening.look()
            case Polled():
                self._hasten_watch()
            case LeaseHeld():
                self._fleet.count_on(message.last_id)
                self._permission.handle(message)
            case LeaseNotHeld():
                self._permission.handle(message)
            case _ if isinstance(message, AboutExecutors):
                self._fleet.handle(message)
            case _:
                assert_never(message)

    def _hasten_watch(self) -> None:
        """A poll got through: if the watch waits for a server, it need not wait on."""
        watch, freshness = self._address(WATCH), self._sources.get(Source.WATCH)
        if freshness is not None and freshness.error is not None and watch.is_alive():
            watch.tell(RetryNow())

    def _from_driver(self, message: FromDriver) -> object:
        match message:
            case GetFleetStatus():
                return self._status()
            case StopBackend(delete_pods):
                self._begin_stop(delete_pods)
                return None
            case KillExecutors() | DecommissionExecutors() if not self._permission.may_write:
                raise Refused(f"executors cannot be ended now: {self._permission.why_not}")
            case _ if isinstance(message, AboutExecutors):
                return self._fleet.handle(message)
            case _:
                assert_never(message)

    def _check_owner(self) -> None:
        if not self._driver.is_alive():
            logger.warning("the driver is gone: the backend ends, the fleet is left as it is")
            self.stop()

    def _status(self) -> FleetStatus:
        return fleet_status(
            self._settings.app_id,
            self._api.namespace,
            book=self._fleet.book,
            profiles=self._permission.over(self._fleet.counts(), self._fleet.book.entries.values()),
            sources=self._sources,
            now=self.clock.monotonic(),
            stopping=self._stopping is not None,
            may_write=self._permission.may_write,
            lease_held=self._permission.lease_held,
        )

    # ── the start ────────────────────────────────────────────────────────────────────────────────────────────────

    def _cannot_start(self, cause: Exception) -> None:
        logger.error("the backend cannot %s: %s", "go on" if self._has_started else "start", cause)
        self._fail(cause)

    def _begin(self) -> None:
        self._has_started = True
        self._line.tell(BackendStarted(self._settings.app_id, self._api.namespace))
        self._fleet.begin()
        self._introduce_lifecycle_manager(self._address(LIFECYCLE))
        self._introduce_allocator(self._address(ALLOCATOR))
        self._permission.begin_to_tell()

    # ── who writes ──────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        if self._stopping is not None:
            self._permit_stop(self._stopping)
        else:
            self._introduce_allocator(self._address(ALLOCATOR))

    def _lease_changed(self) -> None:
        """Another driver may have written: what the Allocator knows holds no more, nor what was listed before."""
        if self._stopping is not None:
            self._permit_stop(self._stopping)
            return
        self._fleet.hold_allocator()
        self._supervisor.restart(ALLOCATOR)
        if self._permission.may_write:
            self._address(WATCH).tell(Relist())

    def _permit_stop(self, stopping: Shutdown) -> None:
        if self._permission.may_write:
            stopping.may_write()
        else:
            stopping.may_not_write(self._permission.holder)

    # ── the stop ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_stop(self, delete_pods: bool | None) -> None:
        if self._stopping is not None:
            return
        backend = self._settings.backend
        delete = backend.delete_on_stop if delete_pods is None else delete_pods
        only = None if delete else self._fleet.killed()
        logger.info("the backend stops: delete_pods=%s", delete)
        self._line.stop_begins()
        self._opening.end()
        for key in ("owner", "roll"):  # a driver may tell us to stop as the last thing it does
            self.timers.cancel(key)
        self._stopping = Shutdown(
            self,
            supervisor=self._supervisor,
            api=self._api,
            app_id=self._settings.app_id,
            only=only,
            delete_inactive=delete and backend.delete_inactive_on_stop,
            timeout=backend.shutdown_timeout,
            pool=self._address(POOL),
            lease=LEASE if self._settings.uses_lease else None,
            writers=(WATCH, POLL, ALLOCATOR),
            known_pods=partial(self._fleet.known_pods, only),
            finished=partial(self._stop_finished, only),
        )
        self._permission.end_to_tell()
        self._permit_stop(self._stopping)
        self._stopping.begin()

    def _stop_finished(self, only: frozenset[int] | None, left_behind: tuple[str, ...], deleted: bool) -> None:
        """The last words: each executor that went with the fleet, then the end."""
        if deleted:
            self._fleet.tell_the_ends(only, left_behind)
        if left_behind:
            logger.warning("the backend has stopped, pods may be left: pods=%s", list(left_behind))
        self._line.end(BackendStopped(left_behind))
        self.stop()

    def _address(self, name: str) -> Address:
        return self._supervisor.address(name)
