"""`Fleet`: a fleet of executor pods, for programs with threads; and `BaseFleet`, what it shares with `AsyncFleet`."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn, Self, Unpack, final

from actors.fleet.autoscaling import Autoscaler
from actors.fleet.callbacks import ActorCalls, called, is_coroutine_function
from actors.fleet.door import Door
from actors.fleet.leases.acquiring import Acquiring, acquire, acquire_message
from actors.fleet.output.access import follow, next_line, read_log
from actors.fleet.output.summary import as_html, as_line
from actors.fleet.plan import FleetPlan, duration, fleet_settings
from actors.fleet.waiting import run
from actors.page.plan import PagePlan
from actors.pods.pod import DEFAULT_PROFILE
from actors.runtime import installed_system

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from actors.executors.replacement import ReplaceRule
    from actors.fleet.autoscaling import Backlog
    from actors.fleet.callbacks import Calls
    from actors.fleet.door import Ids
    from actors.fleet.leases.lease import Lease, LeasedExecutor
    from actors.fleet.output.lines import LineBuffer, LogLine
    from actors.fleet.output.logs import LogStream
    from actors.fleet.plan import Duration, FleetValues
    from actors.fleet.stream import Event, EventBuffer
    from actors.kube.api import PodApi
    from actors.local.cluster import LocalCluster
    from actors.messages import Executor, FleetStatus, ProfileStatus, Suspected, Victims
    from actors.metrics.counts import Metrics, Traces
    from actors.runtime import ActorSystem
    from actors.settings import Settings

__all__ = ["BaseFleet", "Events", "Fleet", "Logs"]


class BaseFleet(ABC):
    """What `Fleet` and `AsyncFleet` have in common: their arguments, and all that waits for nothing."""

    def __init__(
        self,
        settings: Settings | str | os.PathLike[str] | None = None,
        /,
        *,
        local: bool | LocalCluster = False,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        on_event: Callable[[Event], object] | None = None,
        keep: bool | None = None,
        replace_if: ReplaceRule | None = None,
        max_events: int = 1000,
        metrics: Metrics | None = None,
        page: int | str | PagePlan | None = None,
        page_token: str | None = None,
        page_hosts: Sequence[str] = (),
        traces: Traces | None = None,
        pod_api: PodApi | None = None,
        system: ActorSystem | None = None,
        **values: Unpack[FleetValues],
    ) -> None:
        plan = FleetPlan(
            settings=fleet_settings(settings, values, local=local, arguments=BaseFleet.__init__.__kwdefaults__ or ()),
            local=local,
            kubeconfig=kubeconfig,
            context=context,
            keep=keep,
            replace_if=replace_if,
            max_events=max_events,
            metrics=metrics,
            page=PagePlan.of(page, page_token, page_hosts),
            traces=traces,
            pod_api=pod_api,
            system=system or installed_system(),
        )
        self._door = Door(plan)
        if on_event is not None:
            self._door.calls = self._calls(on_event)

    @abstractmethod
    def _calls(self, on_event: Callable[[Event], object]) -> Calls:
        """Return who calls `on_event`."""

    def __repr__(self) -> str:
        return as_line(type(self).__name__, self._door)

    def _repr_html_(self) -> str:
        """Return the fleet as a table, for notebooks."""
        return as_html(type(self).__name__, self._door)

    @property
    def app_id(self) -> str:
        """The application's id, which the labels of all its pods have."""
        return self._door.app_id

    @property
    def settings(self) -> Settings:
        """All settings of this fleet."""
        return self._door.settings

    @property
    def executors(self) -> Mapping[int, Executor]:
        """The executors whose pods exist or that registered, by id, as of the last change.

        The mapping cannot be changed, and does not change.
        """
        return self._door.executors()

    @property
    def profiles(self) -> Mapping[str, ProfileStatus]:
        """The numbers of each profile and what blocks it, as of the last change; `status` asks for them."""
        return self._door.profiles()

    @property
    def last_status(self) -> FleetStatus | None:
        """What `status` answers, as of the last change; None before there is any."""
        return self._door.last_status()

    @property
    def ended(self) -> tuple[Executor, ...]:
        """The last 200 executors that ended, the newest last."""
        return self._door.ended()

    @property
    def page_url(self) -> str | None:
        """Where the page is served, None if there is none."""
        return self._door.page_url

    # ── what is wanted, and what the program knows of its executors ───────────────────────────────────────────────

    def resume(self) -> None:
        """End a hold: executors are created again, up to the targets."""
        self._door.resume()

    def disconnected(self, executor_id: int, suspected: Suspected | None = None) -> None:
        """Note that an executor's connection is lost; `executors` has it in a moment. Its pod's events will say why.

        Args:
            executor_id: of the executor.
            suspected: "hang" or "network", if the program knows; None: the fleet compares it with the others, see
                `ExecutorDisconnected`.
        """
        self._door.disconnected(executor_id, suspected)

    def annotate(self, executor_id: int, /, **columns: object) -> None:
        """Show columns of the program's own for an executor on the page, such as `stage=3`. None clears one."""
        self._door.annotate(executor_id, columns)

    def mark_busy(self, executor_id: int) -> None:
        """Note that an executor has work: `scale(…, victims="idle")` lets it finish."""
        self._door.mark(executor_id, busy=True)

    def mark_idle(self, executor_id: int) -> None:
        """Note that an executor has no work, as after its start."""
        self._door.mark(executor_id, busy=False)


class Fleet(BaseFleet):
    """A fleet of executor pods, kept at its target until the program leaves it.

    ::

        with Fleet(image="registry.example/worker:1.4", instances=4) as fleet:
            fleet.wait_for(running=4, timeout="5m")
            fleet.scale(10)

    Entering raises what is wrong, within `backend.start_timeout`. Leaving stops the fleet in order and deletes its
    pods, however the program leaves: it returns, an exception passes, Ctrl-C comes. Executors have 4 s to end, or what
    `executor.stop_grace_period` says. With `backend.on_sigterm = "hand-over"`, SIGTERM leaves the pods to the next
    driver, and ends the program. All methods may be called by any thread. A process that was forked cannot use the
    fleet of its parent.

    Args:
        settings: `Settings(...)`, or the path of a TOML file; None: the environment's.
        local: start an embedded cluster, whose pods are processes of this machine; or a `LocalCluster` to start.
        kubeconfig: the file to read, instead of `KUBECONFIG`, `~/.kube/config` or the pod's own account.
        context: the kubeconfig's context, instead of its current one.
        on_event: called with each event, one after the other, in a thread of the fleet. What it raises is logged.
        keep: leave the pods alive when the program leaves; None: the setting `backend.delete_on_stop`.
        replace_if: called with the `ExecutorRemoved` of each loss; returns whether the executor is replaced, instead of
            what `replace` says. It must not use the fleet, which waits for it.
        max_events: how many events may wait for one reader. A slower one gets `EventsMissed`.
        metrics: gets the counters, see `actors.metrics`.
        page: serve a page with health endpoints at this port of the loopback, or at an address and a port, such as
            "0.0.0.0:8080"; 0 chooses a port.
        page_token: whoever shows it may scale, retire, kill, hold and resume through the page; None: nobody may.
        page_hosts: names under which the page is reached, besides addresses and names of the cluster.
        traces: gets what happens to each executor, see `actors.metrics`.
        pod_api: the cluster, for tests.
        system: the actor system, for tests.
        values: settings, and those of `executor` without its name: `image="…"`, `instances=4`, `namespace="batch"`.

    Raises:
        SettingsError: a setting is wrong; nothing was started.
    """

    def _calls(self, on_event: Callable[[Event], object]) -> Calls:
        if is_coroutine_function(on_event):
            raise TypeError("on_event is a coroutine function: give Fleet a plain one, or use AsyncFleet")
        return ActorCalls(called(on_event), self._door.system)

    # ── entering and leaving ────────────────────────────────────────────────────────────────────────────────────

    def start(self, *, wait: bool = True) -> None:
        """Start the fleet, as `with` does. Whoever starts it so must `stop` it.

        Args:
            wait: until it has started. False: return when kubeconfig and settings were read; `BackendStarted` or
                `BackendFailed` follows among the events.

        Raises:
            ExecutorPodsError: what is wrong: no kubeconfig, no such namespace, a missing right, an API that does not
                answer within `backend.start_timeout`. Nothing is left running.
        """
        run(self._door.enter(wait=wait), self._door.system)

    def stop(self, *, keep: bool | None = None, wait: bool = True) -> tuple[str, ...]:
        """Stop the fleet in order, as leaving `with` does. Returns the names of pods that may be left.

        Called in `on_event` it returns at once, and the fleet stops after that.

        Args:
            keep: leave the pods alive; None: as the fleet was told.
            wait: until nothing is left. False: return at once; the events tell how it goes on, up to `BackendStopped`,
                and another `stop` waits for the end.

        Raises:
            FleetEnded: the fleet had failed before, and nobody was told; or it did not stop in time.
        """
        return run(self._door.leave(keep=keep, wait=wait), self._door.system)

    def abandon(self) -> None:
        """End all that this process has of the fleet, at once, and leave the pods as they are.

        With `local`, the cluster ends too, and its pods with it. There is no last event.
        """
        run(self._door.abandon(), self._door.system)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._door.leave(error=error), self._door.system)

    # ── what is ─────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> FleetStatus:
        """Return the numbers of each profile, what blocks it, and how fresh our knowledge is."""
        return run(self._door.status(), self._door.system)

    def events(self) -> Events:
        """Return an iterator over the fleet's events; it ends after the last one.

        The first iterator has every event since the fleet was entered; another one those from now on. A reader that is
        more than `max_events` behind gets `EventsMissed`, and should then look at `executors`.
        """
        return Events(self._door, self._door.new_reader())

    def logs(self, executor_id: int, *, tail: int | None = None, container: str | None = None) -> str:
        """Return what an executor has printed so far; of a long log the last 16 MiB. Needs the right to get `pods/log`.

        Args:
            executor_id: one that lives, or that has ended and whose pod is still there.
            tail: how many lines from its end; None: all.
            container: of its pod; None: the executor's.

        Raises:
            ValueError: there is no such executor.
            NotFound: its pod is gone.
            ApiError: there is no log: its container has not started, or a right is missing.
        """
        return run(read_log(self._door, executor_id, tail, container), self._door.system)

    def follow_logs(self, executors: Ids | None = None, *, profile: str | None = None, tail: int | None = 10) -> Logs:
        """Return an iterator over the lines that executors print, as they come: `kubectl logs -f` for a fleet.

        It ends when the executors are gone, or with the fleet; and when you close it or forget it. A slow reader loses
        nothing: the executors' logs wait on their nodes, and 1,000 lines here. It reads 100 logs at once. Needs the
        right to get `pods/log`.

        ::

            for line in fleet.follow_logs(profile="gpu"):
                print(line)  # [3] what executor 3 has printed

        Args:
            executors: their ids, one or several; None: all, and those that begin to run.
            profile: those of this profile only; None: of all.
            tail: how many lines from before now of those that run now; None: all.

        Raises:
            ValueError: there is no such executor or profile.
        """
        return Logs(self._door, *follow(self._door, executors, profile, tail))

    # ── what is wanted ──────────────────────────────────────────────────────────────────────────────────────────

    def scale(
        self, totals: int | Mapping[str, int], *, victims: Victims = "newest", grace: Duration | None = None
    ) -> tuple[int, ...]:
        """Set the target, and end executors that are in excess of it: those first that do not run yet.

        Args:
            totals: executors of the profile "default", or of each profile named; others keep their target.
            victims: which running executors end first: "newest", "oldest", "idle" (only those not marked busy), or a
                function that returns a sort key for an `Executor`, None to keep it.
            grace: how long they have to end; None: `executor.kill_grace_period`.

        Returns:
            The executors that are ended now.
        """
        return run(self._door.scale(totals, victims, grace), self._door.system)

    def wait_for(
        self,
        *,
        running: int | None = None,
        registered: int | None = None,
        profile: str | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Wait until so many executors run, or are registered.

        Args:
            running: how many must run.
            registered: how many must be registered.
            profile: count this profile only; None: all.
            timeout: how long to wait; None: without limit.

        Raises:
            Unreachable: it cannot come true, in the words of the pods or of the API: there is no such image, the API
                refuses the pods, fewer executors are wanted. What may heal by itself is logged, and waited for.
            WaitTimeout: the time is over; the message says what holds the executors up. It is a `TimeoutError`.
            FleetEnded: the fleet has ended.
        """
        run(self._door.wait_for(running, registered, profile, timeout), self._door.system)

    def autoscale(
        self,
        look: Callable[[], Backlog],
        wanted: Callable[[int], int],
        *,
        every: Duration = timedelta(seconds=2),
        looks: int = 15,
        profile: str = DEFAULT_PROFILE,
    ) -> NoReturn:
        """Let the target follow a backlog, such as a queue of jobs, until the fleet ends. Only idle executors end.

        ::

            fleet.autoscale(lambda: (len(queue), busy_pods()), lambda jobs: min(20, jobs))

        Args:
            look: returns how many jobs wait, and the names of the pods whose executors have one. What it raises ends
                this call.
            wanted: returns how many executors so many jobs need, those that executors have included.
            every: the time between two looks.
            looks: the target is the most that so many last looks asked for: a pause of the queue ends nobody.
            profile: whose target follows.

        Raises:
            FleetEnded: the fleet has ended.
        """
        autoscaler = Autoscaler(self._door, wanted, every=duration("every", every), looks=looks, profile=profile)
        while True:
            run(autoscaler.follow(look()), self._door.system)

    def kill(self, executors: Ids, *, grace: Duration | None = None, replace: bool = True) -> tuple[int, ...]:
        """End executors: one id or several. Returns the ids that will be ended.

        Args:
            executors: their ids. Unknown ones, and those that have ended, do not count.
            grace: how long they have to end; None: `executor.kill_grace_period`.
            replace: replace them; otherwise each one that is not in excess lowers its profile's target by one.
        """
        return run(self._door.kill(executors, grace, replace=replace), self._door.system)

    def retire(self, executors: Ids, *, deadline: Duration | None = None, replace: bool = True) -> tuple[int, ...]:
        """Let executors drain: they no longer count. Returns the ids that retire.

        Args:
            executors: their ids. Unknown ones, and those that have ended, do not count.
            deadline: how long they may take; None: `executor.drain_timeout`, or else `executor.kill_grace_period`.
            replace: replace them at once; otherwise each lowers its profile's target, as with `kill`.
        """
        return run(self._door.retire(executors, deadline, replace=replace), self._door.system)

    def drained(self, executor_id: int) -> bool:
        """Say that a terminating executor has nothing left to lose: its pod is deleted now.

        False: it is not terminating. If somebody else has deleted its pod, the executor must end the pause itself: see
        `ExecutorDrained`.
        """
        return run(self._door.drained(executor_id), self._door.system)

    def hold(self, *, deadline: Duration | None = None) -> tuple[int, ...]:
        """Retire all executors and create none, until `resume`. Returns the ids that retire."""
        return run(self._door.hold(deadline), self._door.system)

    def decommission(self, executors: Ids) -> tuple[int, ...]:
        """Let executors finish: they are replaced only when they are gone. Returns the ids that are decommissioned."""
        return run(self._door.decommission(executors), self._door.system)

    # ── leases ──────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(
        self,
        profile: str = DEFAULT_PROFILE,
        *,
        timeout: Duration | None = None,
        ttl: Duration | None = None,
        holder: str = "",
        reuse: bool = False,
        reset: Callable[[LeasedExecutor], object] | None = None,
    ) -> Acquiring:
        """Lease a ready executor for a `with` block: nobody else has it. Whoever waits longest is served first.

        ::

            with fleet.acquire(timeout="30s") as executor:
                answer = call(executor.ip, task)

        At the end of the block the executor is ended, and another one takes its place. If it ended meanwhile, the end
        of the block raises `ExecutorLost`, also in place of an error of the block; `executor.lease.check()` raises it
        within the block.

        Args:
            profile: one with the setting `warm`.
            timeout: how long to wait; None: as long as the fleet lives.
            ttl: how long the lease lasts at most, unless it is renewed; None: until the end of the block.
            holder: who has it, for logs.
            reuse: offer the executor again, unless the block raised an error, or `max_leases` or `max_age` forbid it.
            reset: called with the executor before it is offered again. If it fails, the executor is ended. It implies
                `reuse`.

        Entering raises:
            WaitTimeout: the time is over; the message says what holds the executors up. It is a `TimeoutError`.
            Unreachable: the fleet has failed, or stops.
            Refused: the profile has no `warm`.
            FleetEnded: the fleet has ended.
        """
        return Acquiring(self._door, acquire_message(profile, timeout, ttl, holder), reset, reuse=reuse)

    def acquire_lease(
        self,
        profile: str = DEFAULT_PROFILE,
        *,
        timeout: Duration | None = None,
        ttl: Duration | None = None,
        holder: str = "",
    ) -> Lease:
        """Lease a ready executor until `release`, as `acquire` does for a block. `lease.executor` is the executor."""
        return run(acquire(self._door, acquire_message(profile, timeout, ttl, holder)), self._door.system)

    def release(self, lease: Lease, *, reuse: bool = False) -> bool:
        """End a lease: its executor is ended, or with `reuse` offered again. False: the lease had ended before."""
        return run(self._door.release(lease, reuse=reuse), self._door.system)

    def renew(self, lease: Lease, ttl: Duration | None = None) -> bool:
        """Let a lease last this long from now on; None: until it is released. False: it has ended."""
        return run(self._door.renew(lease, ttl), self._door.system)

    def warm(self, warm: int | Mapping[str, int]) -> None:
        """Set how many executors are kept ready beyond the leased ones: of the profile "default", or of each named.

        Args:
            warm: executors, at most `max_executors`.
        """
        run(self._door.warm(warm), self._door.system)

    # ── what the program knows of its executors ─────────────────────────────────────────────────────────────────

    def register(self, executor_id: int) -> bool:
        """Note that an executor has connected. False: it is excluded, see `is_excluded`, and must be refused.

        One that terminates is not excluded: it may hand over what it has. Give it no more work.
        """
        return run(self._door.register(executor_id), self._door.system)

    def is_excluded(self, executor_id: int) -> bool:
        """Return whether an executor must be refused if it connects: it has ended, or is unknown or not wanted."""
        return run(self._door.is_excluded(executor_id), self._door.system)


@final
class Events:
    """The events of a fleet, for one reader. Made by `Fleet.events`."""

    def __init__(self, door: Door, buffer: EventBuffer) -> None:
        self._door = door
        self._buffer = buffer

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.get()
        if event is None:
            raise StopIteration
        return event

    def get(self, timeout: Duration | None = None) -> Event | None:
        """Return the next event; None after the last one, or if none comes within `timeout`."""
        return run(self._door.next_event(self._buffer, duration("timeout", timeout)), self._door.system)


@final
class Logs:
    """Lines of executors, a `LogLine` each, for one reader. Made by `Fleet.follow_logs`."""

    def __init__(self, door: Door, stream: LogStream, buffer: LineBuffer) -> None:
        self._door = door
        self._buffer = buffer
        self.close = weakref.finalize(self, stream.close)
        """Read no more. Called by the garbage collector, too."""

    def __iter__(self) -> Iterator[LogLine]:
        return self

    def __next__(self) -> LogLine:
        line = self.get()
        if line is None:
            raise StopIteration
        return line

    def get(self, timeout: Duration | None = None) -> LogLine | None:
        """Return the next line; None after the last one, or if none comes within `timeout`.

        Raises:
            ApiError: why no line can come, such as a missing right.
        """
        return run(next_line(self._door, self._buffer, duration("timeout", timeout)), self._door.system)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
