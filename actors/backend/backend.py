"""Backend: the facade. A driver starts it, sends it messages, and stops it.

It builds its parts (executors, kills, start, stop, permission to write) and dispatches each message to one of them by
one table, in which other parts may listen. However it ends, the driver receives `BackendStopped` or `BackendFailed`
once, as the last message. It calls the API only to review its rights, to read the driver's pod, and to list the fleet
during a stop. No handler blocks.
"""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from actors.backend import children
from actors.backend.backend_ref import BackendRef
from actors.backend.connection import connect
from actors.backend.driver_channel import CrashReport, DriverChannel, DriverFunction
from actors.backend.driver_messages import FROM_DRIVER, checked
from actors.backend.driver_pod import DriverPod
from actors.backend.shutdown import PATIENCE, Shutdown
from actors.backend.startup import Startup
from actors.errors import Refused, SettingsError
from actors.executors.executors import Executors
from actors.executors.fleet_context import FleetContext
from actors.executors.fleet_state import FleetState
from actors.executors.kills import Kills
from actors.executors.leases import LeaseBook
from actors.executors.leasing import Leasing
from actors.executors.publication import Publication
from actors.executors.replacement import Replacement
from actors.executors.scaling import Scaling
from actors.executors.status import fleet_status, held_pods, joined
from actors.kube.metered import MeteredPodApi
from actors.lease.marks import NO_MARKS, own_marks
from actors.lease.write_permission import LeaseChange, LeaseOver, WritePermission
from actors.manifests import executor_pod
from actors.messages import BackendFailed, BackendStopped, FleetStatus, GetFleetStatus, StopBackend
from actors.messages.internal import (
    CreationBlocked,
    DriverLeaseAcquired,
    DriverLeaseLost,
    Freshness,
    LeaseHeld,
    LeaseNotHeld,
    Polled,
    RetryNow,
    Source,
)
from actors.messages.internal.names import POOL, RECORDER, WATCH
from actors.metrics.counts import FleetCounts
from actors.metrics.tracing import LONGEST_CALL, Tracing
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
    TookTooLong,
    installed_system,
)
from actors.settings import Settings
from actors.text import get_logger, log_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from actors.backend.children import Maker
    from actors.backend.process.fleet_process import FleetProcess
    from actors.executors.replacement import ReplaceRule
    from actors.executors.roll import RollPolicy
    from actors.kube.api import Manifest, PodApi
    from actors.lease.marks import Marks
    from actors.messages import FromDriver, ToDriver
    from actors.metrics.counts import Metrics, Traces

__all__ = ["Backend"]

logger = get_logger(__name__)

OWNER_CHECK: Final = timedelta(seconds=1)
"""How often to check that the driver is alive: Pykka has no death watch."""


class _OwnerCheckDue:
    """Time to check that the driver is alive."""


class Backend(Actor):
    """Keeps a fleet of executor pods at the target that the driver sets. Made by `Backend.start`."""

    @classmethod
    def start(  # type: ignore[override]  # Pykka's takes anything and returns its bare ref
        cls,
        settings: Settings,
        owner: ActorRef[Any] | Address | Callable[[ToDriver], object],
        api: PodApi | None = None,
        *,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        system: ActorSystem | None = None,
        roll_policy: RollPolicy | None = None,
        replace_if: ReplaceRule | None = None,
        metrics: Metrics | None = None,
        traces: Traces | None = None,
    ) -> BackendRef:
        """Start a backend for `owner`, the driver's actor, which receives all of the backend's messages.

        `owner` may also be a function. It is called with each message, one at a time, in a thread of its own: if it
        blocks, the messages wait, and the fleet goes on. What it raises is logged.

        The cluster is that of `context`, or of the current context, in the file `kubeconfig`, or in the files that
        kubectl reads; without such a file it is the pod's own. Tests give their own `api` instead. The backend closes
        the API client when it ends. This method does not call the API: `BackendStarted` or `BackendFailed` follows
        later. `roll_policy` replaces `roll.policy`. `replace_if` is called with the `ExecutorRemoved` of each loss and
        returns whether the executor is replaced, instead of what `replace` says in any profile. `metrics` receives the
        counters, and `traces` what happens to each executor, see `actors.metrics`. Without `system`, the backend has
        one of its own, or that of the open `Kit` of `actors.testing`.

        Raises:
            TimeoutError: `metrics` or `traces` blocks; nothing was started.
            NoThread: no thread can be started.
            TypeError: `settings`, `owner` or `replace_if` is something else, or `api` is given with `kubeconfig` or
                `context`.
            SettingsError: settings, pod template or kubeconfig are wrong; nothing was started.
        """
        if not isinstance(settings, Settings):
            raise TypeError(f"settings must be Settings(...) or Settings.load(path), not {type(settings).__name__}")
        if not (isinstance(owner, ActorRef | Address) or _is_function(owner)):
            raise TypeError(f"owner must be the driver's actor_ref, or a function, not {_kind_of(owner)}")
        if replace_if is not None and not _is_function(replace_if):
            raise TypeError(f"replace_if must be a function of an ExecutorRemoved, not {_kind_of(replace_if)}")
        if kubeconfig is not None and not os.fspath(kubeconfig):
            raise SettingsError("kubeconfig = '': must be the path of a file, or None for the files that kubectl reads")
        if api is not None and (kubeconfig is not None or context is not None):
            raise TypeError("api has a cluster of its own: give either api, or kubeconfig and context")
        given = system or installed_system()
        runs_on = given or ActorSystem()
        settings = settings.for_one_backend(runs_on.entropy)
        executor_pod.check_template(settings)
        if api is None and runs_on.connect is not None:
            api = runs_on.connect(settings.namespace, request_timeout=settings.backend.request_timeout)
        elif api is None:
            api = connect(settings, kubeconfig=None if kubeconfig is None else Path(kubeconfig), context=context)
        ours = isinstance(owner, Address)  # an actor of this runtime receives `Terminated` too, as owners do
        tracing = None if traces is None else Tracing.begin(traces, settings.app_id, runs_on)
        driver = _address_of(owner, runs_on)
        address = runs_on.address("backend")
        counts = FleetCounts(settings.app_id, settings.profile_names)
        counts.addresses = {"backend": address, "driver": driver}
        if metrics is not None:
            _export(metrics, counts, runs_on)  # before anything is started, which it may keep from it
        make = partial(
            cls,
            settings=settings,
            driver=driver,
            api=api,
            owns_system=given is None,
            roll_policy=roll_policy,
            replace_if=replace_if,
            counts=counts,
            marks=own_marks(api.namespace) if settings.uses_lease and runs_on.wait is None else NO_MARKS,
            tracing=tracing,
        )
        backend = runs_on.spawn(make, name="backend", owner=driver if ours else None, address=address)
        return BackendRef(backend, runs_on.letters)

    def __init__(
        self,
        context: Context,
        *,
        settings: Settings,
        driver: Address,
        api: PodApi,
        owns_system: bool,
        roll_policy: RollPolicy | None,
        replace_if: ReplaceRule | None,
        counts: FleetCounts,
        marks: Marks,
        tracing: Tracing | None,
    ) -> None:
        super().__init__(context)
        self._settings = settings
        self._driver = driver
        self._api = MeteredPodApi(api, counts.api, self.clock)
        self._process: FleetProcess | None = None
        """Where the children run that observe and write, if not here."""
        if settings.source.process:
            from actors.backend.process.fleet_process import process_for  # noqa: PLC0415 - few have one

            timers = context.system.timers
            self._process = process_for(settings, api, backend=self.myself, counts=counts, timers=timers)
        self._owns_system = owns_system
        self._counts = counts
        self._supervisor = Supervisor(self, self._escalated, settings.backend.hang_timeout)
        self._children = {name: self._supervisor.address(name) for name in children.names(settings)}
        self._tracing = tracing
        counts.letters = context.system.letters
        counts.addresses = {"backend": self.address, "driver": driver, **self._children}
        self._state = FleetState(settings.initial_totals, settings.pod_prefix, leases=LeaseBook(settings.pools))
        self._channel = DriverChannel(driver, self.clock, counts=counts.backend, recorder=self._children.get(RECORDER))
        self._crash_report = CrashReport(self._channel)
        tell = self._channel.tell
        self._permission = WritePermission(self, settings, pool=self._children[POOL], tell=tell)
        fleet = FleetContext(
            backend=self,
            settings=settings,
            state=self._state,
            children=self._children,
            tell=tell,
            why_not=self._permission.why_not,
            counts=counts.backend,
        )
        replacement = Replacement(settings, state=self._state, system=context.system, rule=replace_if)
        self._executors = Executors(fleet, replacement)
        self._kills = Kills(fleet, roll_policy)
        self._scaling = Scaling(fleet, self._kills)
        self._leasing = Leasing(fleet, self._kills)
        self._driver_pod = DriverPod(fleet, self._api)
        self._startup = Startup(
            fleet,
            self._api,
            supervisor=self._supervisor,
            specs=partial(
                children.specs,
                settings,
                self._api,
                identity=f"{settings.driver_pod_name or platform.node()}_{self.entropy.token(8)}",
                marks=marks,
                backend=self.address,
                children=self._children,
                counts=counts,
                introduce=self._introduce,
                place=self._place,
            ),
            driver_pod=self._driver_pod,
            permission=self._permission,
            executors=self._executors,
            kills=self._kills,
            fail=self._cannot_start,
        )
        self._shutdown = Shutdown(
            fleet,
            self._api,
            supervisor=self._supervisor,
            permission=self._permission,
            driver_pod=self._driver_pod,
            is_reached=self._is_reached,
            executors=self._executors,
            end=self._end,
        )
        self._publication = Publication(
            fleet, status=self._status, hold=self._channel.hold, release=self._channel.release
        )
        acts = (self._executors, self._kills, self._scaling, self._leasing)
        parts = (*acts, self._startup, self._shutdown, self._publication)
        self._table = _table(
            [self.handlers(), *(part.handlers() for part in parts)],
            [self._scaling.listeners(), self._leasing.listeners(), self._driver_pod.listeners()],
        )
        self.at_end(self._close)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message that no single part handles to its handler."""
        return {
            CreationBlocked: self._creation_blocked,
            Freshness: self._source_changed,
            GetFleetStatus: self._get_status,
            LeaseHeld: self._lease_changed,
            LeaseNotHeld: self._lease_changed,
            LeaseOver: self._lease_changed,
            Polled: self._hasten_watch,
            StopBackend: self._begin_stop,
            _OwnerCheckDue: self._check_owner,
        }

    def receive(self, message: object) -> object:
        """Handle one message of the driver, a child or the supervisor."""
        with self._crash_report:
            answer = self._receive(message)
            self._leasing.turn_ends()
            self._publication.turn_ends(message)
            return answer

    def _receive(self, message: object) -> object:
        if isinstance(message, SupervisorMessage):
            self._supervise(message)
            return None
        row = self._table.get(type(message))
        if row is None:
            raise Refused(f"the backend has no handler for {type(message).__name__}")
        if type(message) in FROM_DRIVER:
            message = checked(cast("FromDriver", message), self._settings.profile_names, self._settings.pool_names)
        answer = row.handle(message)
        for listen in row.listeners:
            listen(message)
        if self._tracing is not None and answer is not False:
            self._tracing.notice(message)
        return answer

    def _supervise(self, message: SupervisorMessage) -> None:
        if isinstance(message, Terminated):
            self._counts.backend.ended(message.name, message.cause)
        self._supervisor.handle(message)
        self._shutdown.advance()

    def _creation_blocked(self, message: CreationBlocked) -> None:
        self._state.block(message, self.clock.now())
        self._permission.creation_blocked(message)

    def _source_changed(self, message: Freshness) -> None:
        sources = self._state.sources
        sources[message.source] = joined(sources.get(message.source), message)
        self._startup.advance()

    def _hasten_watch(self, _: Polled) -> None:
        """A poll succeeded: if the watch backs off because its requests failed, let it retry now."""
        watch, freshness = self._children[WATCH], self._state.sources.get(Source.WATCH)
        if freshness is not None and freshness.error is not None and watch.is_alive():
            watch.tell(RetryNow())

    def _lease_changed(self, message: LeaseHeld | LeaseNotHeld | LeaseOver) -> None:
        if isinstance(message, LeaseHeld):
            self._executors.resume_ids(message.last_id)
        change = self._permission.handle(message)
        if change is not None:
            self._record_lease()
        if change is not None and self._shutdown.has_begun:
            self._shutdown.permission_changed()
        elif change is LeaseChange.FIRST_GRANT:
            self._startup.advance()
        elif change is LeaseChange.CHANGED_HANDS:
            self._startup.restart_allocator()

    def _record_lease(self) -> None:
        if not self._permission.may_write:
            self._channel.record(DriverLeaseLost(self._permission.why_not()))
        elif self._permission.lease_held:
            self._channel.record(DriverLeaseAcquired())

    def _check_owner(self, _: _OwnerCheckDue) -> None:
        if not self._driver.is_alive():
            logger.warning("driver died, backend ends, fleet is left as it is")
            self.stop()

    def _get_status(self, _: GetFleetStatus) -> FleetStatus:
        return self._status()

    def _status(self) -> FleetStatus:
        ledger, at = self._state.ledger, self.clock.now()
        return fleet_status(
            self._settings.app_id,
            self._api.namespace,
            ledger=ledger,
            profiles=self._permission.over(self._state.counts(), ledger.entries.values()),
            totals=self._state.totals,
            sources=self._state.sources,
            now=self.clock.monotonic(),
            stopping=self._shutdown.has_begun,
            may_write=self._permission.may_write,
            lease_held=self._permission.lease_held,
            held=held_pods(self._state.finalized.values(), at),
            on_hold=self._state.hold is not None,
            starts=self._state.starts,
            at=at,
        )

    # ── the start ───────────────────────────────────────────────────────────────────────────────────────────────

    def started(self) -> None:
        """Begin the start. `Startup.advance` has its order."""
        log_with(app_id=self._settings.app_id)
        logger.info("backend starting: app_id=%s namespace=%s", self._settings.app_id, self._api.namespace)
        with self._crash_report:
            self.timers.every("owner", OWNER_CHECK, _OwnerCheckDue())
            self._startup.begin()

    def _place(self, makers: Mapping[str, Maker], owners: tuple[Manifest, ...]) -> Mapping[str, Maker]:
        return makers if self._process is None else self._process.place(makers, owners)

    def _introduce(self, name: str) -> None:
        self._startup.introduce(name)
        if name == POOL:
            self._shutdown.pool_started()

    def _cannot_start(self, cause: Exception) -> None:
        # a sentence, because `executor-pods run` prints it to its user
        logger.error("the backend cannot %s: %s", "continue" if self._startup.is_done else "start", cause)
        self._fail(cause)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_stop(self, message: StopBackend) -> None:
        if self._shutdown.has_begun:
            return
        delete = self._settings.backend.delete_on_stop if message.delete_pods is None else message.delete_pods
        logger.info("backend stopping: delete_pods=%s", delete)
        self._channel.stop_begins()
        self._startup.end()
        self._permission.end_to_notify()
        for key in ("owner", "roll"):  # the driver may end right after it sent this
            self.timers.cancel(key)
        self._scaling.end()
        self._leasing.end()
        if self._process is not None:
            self._process.hurry(self._shutdown.limit * PATIENCE)
        self._shutdown.begin(delete=delete)

    def _is_reached(self) -> bool:
        """Whether the API has ever answered a request, other than with an error."""
        return self._counts.requests().any_succeeded() or any(
            last.heard_at is not None for last in self._state.sources.values()
        )

    def _escalated(self, name: str, cause: BaseException) -> None:
        """A child failed too often, or the host stopped it."""
        if isinstance(cause, StoppedByHost):
            logger.info("host stopped a child, backend ends: actor=%s", name)
            self._end(BackendStopped())
            return
        logger.error("child failed too often: actor=%s cause=%r", name, cause)
        self._fail(cause)

    def _fail(self, cause: BaseException) -> None:
        """End with `cause`, and leave the fleet as it is."""
        if self._shutdown.has_begun:
            self._shutdown.fail(cause)
        else:
            self._end(BackendFailed(cause))

    def _end(self, last: BackendStopped | BackendFailed) -> None:
        self._startup.end()
        self._publication.end()
        self._channel.end(last)
        self.stop()

    def _close(self) -> None:
        """Close the connections. All children were stopped before."""
        with ExitStack() as closing:  # runs every callback, even if another one fails
            closing.callback(self._channel.end, BackendStopped())  # sent only if the host stopped us
            if self._owns_system:
                closing.callback(self.context.system.close)
            closing.callback(self._api.close)
            if self._process is not None:
                closing.callback(self._process.close)
            if self._tracing is not None:
                closing.callback(self._tracing.close)


def _is_function(owner: object) -> bool:
    """Whether it can be called with messages. A class would be made anew for each, a coroutine never run."""
    return callable(owner) and not isinstance(owner, type) and not iscoroutinefunction(owner)


def _kind_of(owner: object) -> str:
    if isinstance(owner, type):
        return f"the class {owner.__name__}"
    return "a coroutine function" if iscoroutinefunction(owner) else type(owner).__name__


def _address_of(owner: ActorRef[Any] | Address | Callable[[ToDriver], object], system: ActorSystem) -> Address:
    match owner:
        case Address():
            return owner
        case ActorRef():
            return Address.to(owner, system.letters)
        case function:
            return Address.calling(DriverFunction(function, system), system.letters)


def _export(metrics: Metrics, counts: FleetCounts, system: ActorSystem) -> None:
    """Pass on the counters.

    Raises:
        TimeoutError: the exporter blocks.
        BaseException: the exporter raised it.
    """
    try:
        system.call_within(LONGEST_CALL, partial(metrics.add, counts))
    except TookTooLong as error:
        raise TimeoutError(f"the exporter of metrics does not take the fleet: {error}") from error


class _Row(NamedTuple):
    """Who receives a message."""

    handle: Callable[..., object]
    """Its answer is the Backend's."""
    listeners: tuple[Callable[..., object], ...]
    """They are called after that, in this order, unless it has raised an error."""


def _table(
    handlers: Iterable[Mapping[type, Callable[..., object]]], listeners: Iterable[Mapping[type, Callable[..., object]]]
) -> dict[type, _Row]:
    """Return who receives which message. Each message has one handler."""
    table: dict[type, _Row] = {}
    for part in handlers:
        if table.keys() & part.keys():
            raise TypeError("two handlers for one message")
        table |= {kind: _Row(handle, ()) for kind, handle in part.items()}
    for part in listeners:
        for kind, listen in part.items():
            table[kind] = table[kind]._replace(listeners=(*table[kind].listeners, listen))
    return table
