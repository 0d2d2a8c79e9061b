"""`Door`: what `Fleet` and `AsyncFleet` do, as steps that a thread or an event loop carries out.

Entering spawns a `FleetOwner` and waits until the fleet was listed and no right is missing. Leaving stops it and waits
until nothing is left. Whatever interrupts the entering, Ctrl-C and a cancellation included, leaves in order.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast, final

from actors.backend.backend import Backend
from actors.backend.connection import connect
from actors.backend.driver_messages import checked
from actors.backend.shutdown import stop_limit
from actors.errors import ExecutorPodsError, FleetEnded
from actors.fleet.goals import Goal
from actors.fleet.output.logs import SharedLogApi
from actors.fleet.owner import CatchUp, DoorState, FleetOwner, LeaveFleet
from actors.fleet.plan import duration, grace_of
from actors.fleet.sigterm import Sigterm
from actors.fleet.stream import Event, EventBuffer
from actors.fleet.waiting import SHORTEST, Pause, Waitable, next_of, run
from actors.manifests.executor_pod import check_template
from actors.messages import (
    BackendFailed,
    DecommissionExecutors,
    ExecutorBusy,
    ExecutorDisconnected,
    ExecutorDrained,
    ExecutorIdle,
    FleetStatus,
    GetFleetStatus,
    HoldFleet,
    IsExecutorExcluded,
    KillExecutors,
    RegisterExecutor,
    ReleaseExecutor,
    RenewLease,
    ResumeFleet,
    RetireExecutors,
    ScaleExecutors,
    SetWarm,
)
from actors.runtime import ActorDeadError, ActorSystem, Address, Future, elapsed, later
from actors.runtime.mailbox import Reply
from actors.settings.durations import format_duration
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from actors.fleet.callbacks import Calls
    from actors.fleet.leases.lease import Lease
    from actors.fleet.output.logs import LogApi
    from actors.fleet.plan import Duration, FleetPlan
    from actors.fleet.waiting import Buffer, Steps
    from actors.messages import Executor, FromDriver, ProfileStatus, Question, Suspected, Victims
    from actors.settings import Settings

__all__ = ["Door", "Ids"]

logger = get_logger(__name__)

A = TypeVar("A")
C = TypeVar("C")
T = TypeVar("T")

Ids = int | Iterable[int]
"""One executor id, or several."""

ANSWER_LIMIT: Final = timedelta(seconds=60)
"""How long a question to the Backend may take. It answers in milliseconds; if it hangs, it is replaced or fails."""

MARGIN: Final = timedelta(seconds=10)
"""What starting and stopping may take beyond the fleet's own limits: loading packages, closing connections."""


@final
class _Thread(threading.local):
    chooses_for: Door | None = None
    """Whose function that chooses this thread is in. It may use other fleets."""


_thread: Final = _Thread()


class Door:
    """The part that both kinds of fleet share."""

    def __init__(self, plan: FleetPlan) -> None:
        self.plan: Final = plan
        self.system: Final = plan.system or ActorSystem()
        self._settings = plan.settings.for_one_backend(self.system.entropy)
        self.state: Final = DoorState(self.system.clock)
        self.keep = plan.keep
        self._first = [EventBuffer(plan.max_events)]
        """Until the first reader takes it."""
        self.state.add_reader(self._first[0])
        self._connect_for_logs: Callable[[], LogApi] | None = None
        """Set when the Backend is started."""
        self.calls: Calls | None = None
        """Calls `on_event`; set before the fleet is entered."""
        self._sigterm = Sigterm(self._hand_over)
        self._owner: Address | None = None
        self._process: int | None = None
        self._failure_is_known = False

    # ── entering and leaving ────────────────────────────────────────────────────────────────────────────────────

    def enter(self, *, wait: bool = True) -> Steps[None]:
        """Start the fleet. Leave it again if that fails.

        Args:
            wait: until it has started; else only until there is a Backend, whose events tell what becomes of it.

        Raises:
            ExecutorPodsError: what is wrong.
        """
        if self._owner is not None:
            raise RuntimeError("a fleet is entered once; make another one")
        check_template(self.settings)  # the limit of the stop depends on the templates
        self._process = os.getpid()
        self._owner = self.system.address("fleet")
        limit = self.settings.backend.start_timeout + MARGIN
        try:
            if self.settings.backend.hands_over and not self.plan.local:  # a local cluster ends with the program
                self._sigterm.take()
            self._leave_at_exit()
            if self.calls is not None:
                buffer = EventBuffer(self.plan.max_events)
                self.state.add_reader(buffer)
                self.calls.start(buffer, self.state.touch)
            self.system.spawn(
                lambda context: FleetOwner(context, state=self.state, start=self._start),
                name="fleet",
                owner=None,
                address=self._owner,
            )
            is_there = self._has_started if wait else self._has_backend
            yield Pause(lambda: is_there() or self.state.has_failed, self.state, limit)
            if wait or not is_there():
                self._check_started(limit)
            self._leave_at_exit()
        except BaseException as error:
            yield from self.leave(error=error)
            raise

    def leave(
        self, *, keep: bool | None = None, wait: bool = True, error: BaseException | None = None
    ) -> Steps[tuple[str, ...]]:
        """Stop the fleet, and wait until nothing is left of it. Returns the pods that may be left.

        The first interrupt (Ctrl-C, a cancellation) is raised when the fleet has stopped. The second one is raised at
        once, and leaves behind what is left.

        Args:
            keep: leave the pods; None: as the fleet was told, else the setting `backend.delete_on_stop`.
            wait: until nothing is left; else only begin.
            error: it is on its way to the user: raise none beside it.

        Raises:
            FleetEnded: the fleet had failed before, and nobody was told; or the stop took too long.
        """
        if self._owner is None or self._is_inherited():
            return ()
        self.keep = self.keep if keep is None else keep
        self._owner.tell(LeaveFleet(None if self.keep is None else not self.keep))
        if not wait:
            return ()
        if _thread.chooses_for is self or (self.calls is not None and self.calls.is_current()):
            return ()  # the fleet waits for the caller
        if not self._owner.is_alive():  # it may never have run
            self.state.end()
        if isinstance(error, GeneratorExit):  # a coroutine that is closed cannot wait
            return ()
        yield from self._until_over(may_be_left=not isinstance(error, Exception | None))
        self._forget_process()
        if error is not None:
            return self.state.left_behind
        if not self.state.is_over:
            limit = format_duration(self._stop_limit)
            raise FleetEnded(f"the fleet did not stop within {limit}: pods of app_id {self.app_id} may be left")
        if self.state.failure is not None and not self._failure_is_known:
            raise self._error()
        return self.state.left_behind

    def abandon(self) -> Steps[None]:
        """End all that this process has of the fleet, and leave the pods as they are. An embedded cluster ends too."""
        if self._owner is None or self._is_inherited():
            return
        self._forget_process()
        self._owner.stop()
        yield Pause(lambda: self.state.is_over, self.state, MARGIN)

    def _until_over(self, *, may_be_left: bool) -> Steps[None]:
        """Wait until nothing is left. An interrupt is raised at once if the fleet may be left, else at the end."""
        try:
            yield Pause(lambda: self.state.is_over, self.state, self._stop_limit)
            if self.calls is not None and not (yield Pause(self.calls.is_done, self.state, MARGIN)):
                logger.warning("on_event is still busy, it is left behind")
                self.calls.cancel()
        except GeneratorExit:
            raise
        except BaseException:
            if may_be_left:
                self._forget_process()
                logger.warning("interrupted while the fleet stops, pods may be left: app_id=%s", self.app_id)
                raise
            logger.warning("interrupted, the fleet stops first; a second interrupt leaves it: app_id=%s", self.app_id)
            yield from self._until_over(may_be_left=True)
            self._forget_process()
            raise

    @property
    def _stop_limit(self) -> timedelta:
        return stop_limit(self.settings) + MARGIN

    def _check_started(self, limit: timedelta) -> None:
        self.check_alive()
        if not self._has_started():
            raise FleetEnded(f"the fleet did not start within {format_duration(limit)}")

    def _leave_at_exit(self) -> None:
        """Leave when the interpreter exits, unless somebody has before.

        Called again when the fleet has started: what was loaded meanwhile removes its files after that.
        """
        if self.system.wait is None:
            self._forget_at_exit()
            atexit.register(self._exit)

    def _forget_at_exit(self) -> None:
        atexit.unregister(self._exit)

    def _forget_process(self) -> None:
        """Leave no trace in the process."""
        self._forget_at_exit()
        self._sigterm.give_back()

    def _hand_over(self) -> None:
        """SIGTERM came, and the program is about to leave."""
        self.keep = True

    def _exit(self) -> None:
        run(self.leave(error=SystemExit()), self.system)

    def _start(self, owner: Address, closing: ExitStack) -> Address:
        """Start the Backend, in the owner's thread."""
        if self.plan.system is None:
            closing.callback(self.system.close)
        metrics = self.plan.metrics
        if self.plan.page is not None:
            page = closing.enter_context(self.plan.page.serve(self.app_id, self.system.clock, metrics))
            self.state.page, metrics = page, page.metrics
            logger.info("page served: url=%s", page.url)
        kubeconfig, context = self.plan.kubeconfig, self.plan.context
        if self.plan.local:
            from actors.local.cluster import LocalCluster  # noqa: PLC0415 - only a local fleet needs it

            local = self.plan.local
            cluster = local if isinstance(local, LocalCluster) else LocalCluster(namespace=self.settings.namespace)
            closing.enter_context(cluster)
            kubeconfig, context = cluster.kubeconfig_path, None
        self._connect_for_logs = partial(self._log_api, kubeconfig, context)
        backend = Backend.start(
            self.settings,
            owner,
            self.plan.pod_api,
            kubeconfig=kubeconfig,
            context=context,
            system=self.system,
            replace_if=None if self.plan.replace_if is None else self._choosing(self.plan.replace_if),
            metrics=metrics,
            traces=self.plan.traces,
        )
        closing.callback(backend.stop)  # has an effect only if the fleet is abandoned
        if self.state.page is not None:
            self.state.page.backend = backend
        return backend

    def _log_api(self, kubeconfig: str | os.PathLike[str] | None, context: str | None) -> LogApi:
        """Return a client of its own for logs: closing it ends those that are read. Reads files, so for a thread."""
        if self.plan.pod_api is not None:
            return SharedLogApi(self.plan.pod_api)
        path = None if kubeconfig is None else Path(kubeconfig)
        return cast("LogApi", connect(self.settings, kubeconfig=path, context=context))

    def log_client(self) -> Callable[[], LogApi]:
        """Return a function that makes a client for logs, to be called in a thread.

        Raises:
            RuntimeError: the fleet has not started, or lives in virtual time.
        """
        if self.system.wait is not None:
            raise RuntimeError("logs are read in real time: a test with a Kit has none")
        if self._connect_for_logs is None:
            raise RuntimeError("the fleet has not started yet")
        return self._connect_for_logs

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def settings(self) -> Settings:
        """All settings of this fleet. A generated `app_id` is the fleet's once it has started."""
        started = self.state.started
        if started is not None and started.app_id != self._settings.app_id:
            self._settings = self._settings.of_fleet(started.app_id)
        return self._settings

    @property
    def app_id(self) -> str:
        """The application of this fleet."""
        return self.settings.app_id

    def check(self) -> None:
        """Check that the fleet may be used here and now.

        Raises:
            RuntimeError: it was not entered, or a fork has copied it into another process.
        """
        if self._owner is None:
            raise RuntimeError("the fleet was not entered: write `with Fleet(...) as fleet:`")
        if self._is_inherited():
            raise RuntimeError(
                f"this fleet belongs to process {self._process}: a process that was forked cannot use it, because "
                "threads are not forked; make a fleet of its own, or start processes with the method spawn"
            )

    def check_alive(self) -> None:
        """Check that the fleet has not ended.

        Raises:
            FleetEnded: it has, or why it has failed.
        """
        if self.state.has_failed:
            raise self._error()

    def _check_waiting(self) -> None:
        if _thread.chooses_for is self:
            raise RuntimeError("`victims` and `replace_if` must not use the fleet, which waits for them")

    @property
    def page_url(self) -> str | None:
        """Where the page is served."""
        return None if self.state.page is None else self.state.page.url

    def executors(self) -> Mapping[int, Executor]:
        """Return the executors that live, by id."""
        self.check()
        return self.state.view.executors()

    def profiles(self) -> Mapping[str, ProfileStatus]:
        """Return the status of each profile."""
        self.check()
        return self.state.view.profiles

    def last_status(self) -> FleetStatus | None:
        """Return the status as of the last change."""
        self.check()
        return self.state.view.status_now()

    def ended(self) -> tuple[Executor, ...]:
        """Return the executors that ended last."""
        self.check()
        return tuple(self.state.view.ended.copy())

    def __reduce__(self) -> NoReturn:
        raise TypeError("a fleet cannot be pickled: it lives in its process, and others make one of their own")

    def new_reader(self) -> EventBuffer:
        """Return a buffer of events: the first one has every event, another one those from now on."""
        self.check()
        with suppress(IndexError):
            return self._first.pop()
        buffer = EventBuffer(self.plan.max_events)
        self.state.add_reader(buffer)
        return buffer

    def next_event(self, buffer: EventBuffer, limit: timedelta | None) -> Steps[Event | None]:
        """Return the next event; None at the end, or after `limit`."""
        self.check()
        self._check_waiting()
        events: Buffer[Event] = buffer
        event, _ = yield from next_of(buffer, events, limit, self.system.clock)
        if isinstance(event, BackendFailed):
            self._failure_is_known = True
        return event

    def _is_inherited(self) -> bool:
        return self._process is not None and self._process != os.getpid()

    def _has_started(self) -> bool:
        return self.state.started is not None and self.state.view.status is not None

    def _has_backend(self) -> bool:
        return self.state.backend is not None

    def _error(self) -> BaseException:
        """Return the error for a fleet that has ended."""
        failure = self.state.failure
        self._failure_is_known = failure is not None
        if isinstance(failure, ExecutorPodsError):
            return failure.with_traceback(None)  # where our own threads found it helps nobody
        error = FleetEnded(f"the fleet has failed: {failure!r}" if failure is not None else "the fleet has ended")
        error.__cause__ = failure
        return error

    # ── acts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, message: Question[A], unheard: Callable[[A], object] | None = None) -> Steps[A]:
        """Ask the Backend, and wait for the answer. If the wait is interrupted, `unheard` is called with it later.

        Raises:
            Refused: a value is not allowed, or the fleet may not write now.
            FleetEnded: the fleet has ended, or ends before it answers.
        """
        self.check()
        self._check_waiting()
        if self.state.is_over:
            raise self._error()
        backend = self.state.backend
        if backend is None:
            raise RuntimeError("the fleet has not started yet")
        asked = backend.request(message)
        try:
            reply = yield from self._answered(asked, type(message).__name__)
        except BaseException:
            if unheard is not None:
                _when_answered(cast("Reply", asked), unheard)
            raise
        try:
            return cast("A", reply.get(timeout=0))
        except ActorDeadError:
            yield Pause(lambda: self.state.has_failed, self.state, MARGIN)  # its last message says why
            raise self._error() from None

    @staticmethod
    def _answered(reply: Future[Any], name: str) -> Steps[Reply]:
        """Wait until a question was answered."""
        assert isinstance(reply, Reply)
        answered = Waitable()
        reply.when_set(answered.changed)
        if not (yield Pause(lambda: reply.is_set, answered, ANSWER_LIMIT)):
            raise FleetEnded(f"the fleet did not answer {name} within {format_duration(ANSWER_LIMIT)}")
        return reply

    def _act(self, message: Question[A]) -> Steps[A]:
        """Ask for what changes the fleet, and wait until the view has the change."""
        answer = yield from self.ask(message)
        yield from self._catch_up()
        return answer

    def _catch_up(self) -> Steps[None]:
        """Wait until the view has all that the Backend has answered to whomever: it was sent before the answer."""
        assert self._owner is not None
        yield from self._answered(self._owner.request(CatchUp()), CatchUp.__name__)

    def tell(self, message: FromDriver) -> None:
        """Tell the Backend something, without waiting.

        Raises:
            Refused: a value is not allowed.
        """
        self.check()
        settings = self.settings
        message = checked(message, settings.profile_names, settings.pool_names)  # no answer would tell the caller
        if self.state.backend is not None:
            self.state.backend.tell(message)

    def scale(
        self, totals: int | Mapping[str, int], victims: Victims, grace: Duration | None
    ) -> Steps[tuple[int, ...]]:
        """Set the target, and end the excess."""
        chosen = self._choosing(victims) if callable(victims) else victims
        return (yield from self._act(ScaleExecutors(totals, chosen, grace_of("grace", grace))))

    def _choosing(self, choose: Callable[[T], C]) -> Callable[[T], C]:
        """Return a function of the program's that cannot use this fleet, which would wait for itself."""

        def chosen(what: T) -> C:
            before, _thread.chooses_for = _thread.chooses_for, self
            try:
                return choose(what)
            finally:
                _thread.chooses_for = before

        return chosen

    def kill(self, executors: Ids, grace: Duration | None, *, replace: bool) -> Steps[tuple[int, ...]]:
        """End executors."""
        return (yield from self._act(KillExecutors(_ids(executors), not replace, grace_of("grace", grace))))

    def retire(self, executors: Ids, deadline: Duration | None, *, replace: bool) -> Steps[tuple[int, ...]]:
        """Let executors drain, and end them at the deadline."""
        return (yield from self._act(RetireExecutors(_ids(executors), grace_of("deadline", deadline), not replace)))

    def drained(self, executor_id: int) -> Steps[bool]:
        """Say that a terminating executor is drained."""
        return (yield from self._act(ExecutorDrained(executor_id)))

    def hold(self, deadline: Duration | None) -> Steps[tuple[int, ...]]:
        """Retire all executors and create none."""
        return (yield from self._act(HoldFleet(grace_of("deadline", deadline))))

    def resume(self) -> None:
        """End the hold."""
        self.tell(ResumeFleet())

    def decommission(self, executors: Ids) -> Steps[tuple[int, ...]]:
        """Let executors finish."""
        return (yield from self._act(DecommissionExecutors(_ids(executors))))

    def register(self, executor_id: int) -> Steps[bool]:
        """Register an executor that has connected."""
        return (yield from self._act(RegisterExecutor(executor_id)))

    def disconnected(self, executor_id: int, suspected: Suspected | None) -> None:
        """Note that an executor's connection is lost."""
        self.tell(ExecutorDisconnected(executor_id, suspected))

    def mark(self, executor_id: int, *, busy: bool) -> None:
        """Note whether an executor has work."""
        self.tell(ExecutorBusy(executor_id) if busy else ExecutorIdle(executor_id))

    def annotate(self, executor_id: int, columns: Mapping[str, object]) -> None:
        """Pass columns of the user's own to the page."""
        self.check()
        if self.state.page is not None:
            self.state.page.annotate(executor_id, **columns)

    def release(self, lease: Lease, *, reuse: bool) -> Steps[bool]:
        """End a lease."""
        try:
            return (yield from self._act(ReleaseExecutor(lease.id, reuse)))
        finally:
            self.state.leases.release(lease.id)

    def renew(self, lease: Lease, ttl: Duration | None) -> Steps[bool]:
        """Let a lease last longer."""
        return (yield from self._act(RenewLease(lease.id, grace_of("ttl", ttl))))

    def warm(self, warm: int | Mapping[str, int]) -> Steps[None]:
        """Set how many executors are warm."""
        yield from self._act(SetWarm(warm))

    def is_excluded(self, executor_id: int) -> Steps[bool]:
        """Return whether an executor must be refused."""
        return (yield from self.ask(IsExecutorExcluded(executor_id)))

    def status(self) -> Steps[FleetStatus]:
        """Return what the Backend knows."""
        return (yield from self.ask(GetFleetStatus()))

    def wait_for(
        self, running: int | None, registered: int | None, profile: str | None, timeout: Duration | None
    ) -> Steps[None]:
        """Wait until so many executors run and are registered. See `Goal`, which judges."""
        self.check()
        self._check_waiting()
        names = self.settings.profile_names
        if profile is not None and profile not in names:
            raise ValueError(f"profile = {profile!r}: there is no such profile; there are {', '.join(names)}")
        goal = Goal(running=running, registered=registered, profiles=names if profile is None else (profile,))
        limit = duration("timeout", timeout)
        now, view = self.system.clock.monotonic, self.state.view
        end = None if limit is None else later(now(), limit)
        said = set[object]()
        yield from self._catch_up()
        while True:
            change = self.state.change  # before all that is judged by it
            if goal.is_reached(view):
                return
            if self.state.has_failed:
                raise self._error()
            waits = [goal.check(view, now())]
            if limit is not None and end is not None:
                if now() >= end:
                    raise goal.timed_out(view, limit)
                waits.append(elapsed(now(), end))
            for same, words in goal.held_up(view, now()).items():
                if same not in said:
                    said.add(same)
                    logger.warning("waiting for executors, held up: app_id=%s cause=%s", self.app_id, words)
            pause = min((wait for wait in waits if wait is not None), default=None)
            pause = None if pause is None else max(pause, SHORTEST)
            yield Pause(partial(self.state.has_changed, change), self.state, pause)


def _when_answered(reply: Reply, call: Callable[[Any], object]) -> None:
    """Call a function once with the answer to a question, if it is answered."""
    calls = [call]

    def answered() -> None:
        with suppress(IndexError, ActorDeadError, ExecutorPodsError):  # called before, or there is no answer
            calls.pop()(reply.get(timeout=0))

    reply.when_set(answered)
    if reply.is_set:
        answered()


def _ids(executors: Ids) -> tuple[int, ...]:
    """Return the ids. What cannot be any is for the Backend to refuse."""
    if isinstance(executors, int | str | bytes) or not isinstance(executors, Iterable):
        return (cast("int", executors),)
    return tuple(executors)
