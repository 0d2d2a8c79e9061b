"""`PodCluster`: a Dask cluster whose workers are executors of a fleet."""

from __future__ import annotations

import asyncio
import atexit
import math
import os
from collections import deque
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import dask.config
from dask.utils import parse_timedelta
from distributed.core import Status, rpc
from distributed.deploy.adaptive import Adaptive
from distributed.deploy.cluster import Cluster
from distributed.utils import NoOpAwaitable, silence_logging_cmgr

from actors.dask.dashboard import DashboardPage
from actors.dask.driver_image import with_driver_image
from actors.dask.link import TOPIC, Link
from actors.dask.serving import DASK_LOGGER, as_security, begin_the_end, new_scheduler
from actors.dask.status import fleet_table
from actors.dask.targets import Targets, at_least, at_most, how_many, on_a_fleet
from actors.dask.waiting import until_registered
from actors.dask.workers import fleet_values, tls_options
from actors.fleet.async_fleet import AsyncFleet
from actors.kube.auth.private_directory import private_directory
from actors.pods.pod import DEFAULT_PROFILE
from actors.runtime import Entropy
from actors.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
    from datetime import timedelta
    from os import PathLike

    from distributed import Scheduler
    from distributed.security import Security

    from actors.messages import Executor, FleetStatus

__all__ = ["PodCluster"]

MOST_LINES: Final = 1000
"""Lines that `get_logs` keeps of the fleet."""

STATUS_LIMIT: Final = 5.0
"""Seconds that a worker, once registered, may take to say that it runs. It takes milliseconds."""


class _Started(NamedTuple):
    """What a cluster that has started consists of, beside its scheduler."""

    fleet: AsyncFleet
    link: Link
    targets: Targets


class PodCluster(Cluster):
    """A Dask cluster whose workers are executors of a fleet: lost ones are replaced, and their ends are told.

    ::

        with PodCluster(n_workers=4, image="ghcr.io/acme/etl:7", resources={"requests": {"cpu": "2"}}) as cluster:
            client = cluster.get_client()
            cluster.adapt(minimum=2, maximum=40)

    The scheduler runs in this process, in the cluster's event loop. A worker's name is its executor's id. An argument
    that is not given comes from Dask's configuration, `executor-pods.<argument>`, if that has it.

    Args:
        n_workers: how many workers to start with.
        name: of the cluster, the fleet's `app_id`. A Lease of this name keeps a second cluster out. None: a
            generated one.
        namespace: of the pods; None: as the fleet finds it.
        image: of the workers. It must have the packages that this process has. None: that of the driver's own pod.
        nthreads: of a worker; None: the CPUs in `resources`, rounded up, or 1.
        memory_limit: of a worker, as Dask has it; None: the memory in `resources`, or what Dask finds; with `local`,
            a thread's share of this machine.
        resources: of the worker's container, as in the setting `executor.resources`.
        env: environment variables of the workers.
        pod_template: the setting `executor.pod_template`.
        template_patch: the setting `executor.template_patch`.
        worker_groups: more kinds of workers by name, each with `n_workers`, any of the arguments from `image` to
            `template_patch`, `worker_options`, and the settings of a profile. They inherit what they do not set.
        worker_command: what runs `dask worker`, to which its arguments are added; None: Python, with Dask's module.
        worker_options: more options of `dask worker` by name: `{"lifetime": "1h", "resources": "GPU=1"}`.
        nanny: let a nanny process watch each worker. The fleet replaces pods in any case.
        drain_timeout: how long a worker that must go may finish its tasks and give its results away, whoever ends it;
            0: not at all. None: 60 seconds.
        host: the address that the scheduler listens on; "": all of this machine's. None: POD_IP and loopback, or all
            if there is no POD_IP; with `local` only loopback.
        port: of the scheduler; 0: any free one.
        protocol: of the scheduler, such as "tls".
        security: certificates, as files that the pods have at the same paths; with `local` also in memory, and True
            makes new ones.
        dashboard_address: of the scheduler's dashboard; without a host: all of this machine's addresses, or with
            `local` only its loopback one. None: no dashboard.
        idle_timeout: end the cluster after so long without work.
        shutdown_on_close: end the cluster when it is closed, or left. False: it goes on, in this process, until
            `shutdown`, `client.shutdown()`, `idle_timeout` or the end of the program.
        settings: any other settings of the fleet: `{"allocation": {"batch_size": 50}}`.
        kubeconfig: as in `Fleet`.
        context: as in `Fleet`.
        local: run the workers as processes of this machine, on an embedded cluster.
        asynchronous: the cluster is used with `await`, in the running event loop.
        loop: the event loop.
        quiet: do not print the fleet's events. They are logged in any case.
        silence_logs: the level from which on Dask prints what it logs in this process; None: as Dask is configured.
    """

    def __init__(
        self,
        n_workers: int | None = None,
        *,
        name: str | None = None,
        namespace: str | None = None,
        image: str | None = None,
        nthreads: int | None = None,
        memory_limit: str | int | None = None,
        resources: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
        pod_template: Any = None,
        template_patch: Any = None,
        worker_groups: Mapping[str, Mapping[str, Any]] | None = None,
        worker_command: Sequence[str] | None = None,
        worker_options: Mapping[str, Any] | None = None,
        nanny: bool | None = None,
        drain_timeout: str | float | timedelta | None = None,
        host: str | None = None,
        port: int | None = None,
        protocol: str | None = None,
        security: Security | bool | None = None,
        dashboard_address: str | None = ":8787",
        idle_timeout: str | float | timedelta | None = None,
        shutdown_on_close: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        kubeconfig: str | PathLike[str] | None = None,
        context: str | None = None,
        local: bool = False,
        asynchronous: bool = False,
        loop: Any = None,
        quiet: bool = True,
        silence_logs: int | str | None = "warning",
    ) -> None:
        self._base = _configured(
            n_workers=n_workers,
            image=image,
            nthreads=nthreads,
            memory_limit=memory_limit,
            resources=resources,
            env=env,
            pod_template=pod_template,
            template_patch=template_patch,
            worker_command=worker_command,
            worker_options=worker_options,
        )
        self._groups = dict(_configured(worker_groups=worker_groups)["worker_groups"] or {})
        self._fleet_values = _configured(name=name, namespace=namespace, settings=settings)
        self._serving = _configured(host=host, port=port, protocol=protocol, idle_timeout=idle_timeout)
        self._nanny = bool(_configured(nanny=nanny)["nanny"])
        self._drain_timeout = _configured(drain_timeout=drain_timeout)["drain_timeout"]
        given = _configured(shutdown_on_close=shutdown_on_close)["shutdown_on_close"]
        self._shutdown_on_close = given is None or bool(given)
        self._dashboard_address = dashboard_address
        self.security = as_security(security)
        self._where: dict[str, Any] = {"kubeconfig": kubeconfig, "context": context}
        self._local = local
        self.scheduler: Scheduler | None = None
        self._parts: _Started | None = None
        self._silence_logs = silence_logs
        self._undo = ExitStack()
        self._process = os.getpid()
        self._ending: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[tuple[str, ...]] | None = None
        super().__init__(
            asynchronous=asynchronous,
            loop=loop,
            quiet=quiet,
            name=f"dask-{Entropy().token(6)}" if self._fleet_values["name"] is None else self._fleet_values["name"],
        )
        self._cluster_manager_logs: deque[Any] = deque(maxlen=MOST_LINES)
        if not self.called_from_running_loop:
            self._loop_runner.start()
            try:
                self.sync(self._start)
            except BaseException:
                self.close()
                raise
            atexit.register(self.shutdown)

    # ── start and end ───────────────────────────────────────────────────────────────────────────────────────────

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._started().__await__()

    async def _started(self) -> Self:
        if self.status == Status.created:
            await self._start()
        return self

    async def _start(self) -> None:
        """Start the scheduler, then the fleet, then what Dask's own class does. Undo all if a step fails."""
        self.status = Status.starting
        if self._silence_logs is not None:
            self._undo.enter_context(silence_logging_cmgr(self._silence_logs))
        try:
            self.scheduler = scheduler = await new_scheduler(
                local=self._local,
                security=self.security,
                dashboard_address=self._dashboard_address,
                **self._serving,
            )
            link = Link(scheduler, said=self._said, before_close=self._stop_fleet, failed=self._end_soon)
            settings = await self._settings(scheduler.address)
            fleet = AsyncFleet(
                settings,
                **self._where,
                local=self._local,
                on_event=link.on_event,
                page=DashboardPage(scheduler=scheduler),
            )
            targets = Targets(settings.initial_totals, scheduler=scheduler, fleet=fleet, link=link)
            self._parts = _Started(fleet, link, targets)
            link.attach(fleet, targets.total)
            scheduler.add_plugin(link)
            await fleet.start()
            link.begin()
            arguments = self.security.get_connection_args("client")
            self.scheduler_comm = rpc(scheduler.address, connection_args=arguments)
            await super()._start()
        except BaseException:
            await self._close()
            raise
        link.spawn(self._close_with(scheduler))

    def _said(self, line: str, alarm: bool) -> None:
        """Keep a line about the fleet. One that may say why the program waits is printed, as Dask prints its own."""
        self._log(line)
        if alarm:
            DASK_LOGGER.warning("%s: %s", self.name, line)

    def sync(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine function in the event loop, and wait unless the cluster is asynchronous; Dask's own.

        Raises:
            RuntimeError: a fork has copied the cluster into this process, which has no thread that would run it.
        """
        self._check_process()
        return super().sync(func, *args, **kwargs)

    def _check_process(self) -> None:
        if self._is_inherited():
            raise RuntimeError(
                f"this cluster belongs to process {self._process}: a process that was forked cannot use it, because "
                "threads are not forked; connect a client of its own, or start processes with the method spawn"
            )

    def _is_inherited(self) -> bool:
        return self._process != os.getpid()

    @property
    def _up(self) -> _Started:
        self._check_process()
        if self._parts is None:
            raise RuntimeError("the cluster has not started: await it, or use `async with`")
        if self.status == Status.closed:
            raise RuntimeError("the cluster is closed")
        return self._parts

    async def _settings(self, scheduler_address: str) -> Settings:
        """Return the fleet's settings."""
        base, name, values = self._base, self._fleet_values["name"], dict(self._fleet_values["settings"] or {})
        folder = None
        if self._local:
            folder = private_directory(self._undo)
            base = {**base, "worker_options": {"local-directory": str(folder), **(base["worker_options"] or {})}}
        if self._fleet_values["namespace"] is not None:
            values["namespace"] = self._fleet_values["namespace"]
        if name is None:  # nobody else has a generated name
            values["backend"] = {"lease": False, **values.get("backend", {})}
        all_values = fleet_values(
            {"app_id": self.name, **values},
            base=base,
            groups=self._groups,
            scheduler_address=scheduler_address,
            drain_timeout=self._drain_timeout,
            nanny=self._nanny,
            local=self._local,
            tls=tls_options(self.security.get_tls_config_for_role("worker"), folder),
        )
        settings = Settings.load(None, **all_values)
        return settings if self._local else await with_driver_image(settings, **self._where)

    async def _close_with(self, scheduler: Scheduler) -> None:
        """Close the cluster when the scheduler closes itself, as after `idle_timeout`."""
        await scheduler.finished()
        self._end_soon()

    def close(self, timeout: float | None = None) -> Any:
        """End the workers and the scheduler, and delete the pods; with `shutdown_on_close=False` do nothing."""
        if self._ends_when_closed() or self._is_inherited():
            return self.shutdown(timeout)
        return self.sync(self._close)

    def shutdown(self, timeout: float | None = None) -> Any:
        """End the workers and the scheduler, and delete the pods. In a forked child do nothing: its parent goes on."""
        if self._is_inherited():
            return NoOpAwaitable() if self.asynchronous else None
        self._shutdown_on_close = True
        waiting = super().close(timeout)
        if not self.asynchronous:
            self._loop_runner.stop()
        atexit.unregister(self.shutdown)  # not before: Ctrl-C may have ended the wait
        return waiting

    def _ends_when_closed(self) -> bool:
        return self._shutdown_on_close or self.status != Status.running

    def _end_soon(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        return self._ending

    async def _close(self) -> None:
        if self._ends_when_closed() and not self._is_inherited():
            await asyncio.shield(self._end_soon())

    async def _end(self) -> None:
        self.status = Status.closing
        with suppress(AttributeError):
            self._adaptive.stop()
        if self._parts is not None:
            await self._parts.link.detach()
        try:
            await self._stop_fleet()
        finally:
            if self.scheduler is not None:
                await self.scheduler.close()
            await super()._close()
            self._undo.close()

    async def _stop_fleet(self) -> None:
        """Stop the fleet, once: before the scheduler, whose workers would end first, and be replaced."""
        if self._stopping is None and self._parts is not None and self.scheduler is not None:
            self._stopping = asyncio.ensure_future(self._parts.fleet.stop())
            begin_the_end(self.scheduler)
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    # ── how many ────────────────────────────────────────────────────────────────────────────────────────────────

    def scale(
        self,
        n: int | None = None,
        *,
        memory: str | int | None = None,
        cores: int | None = None,
        worker_group: str = DEFAULT_PROFILE,
    ) -> Any:
        """Set how many workers there should be. Those in excess give their work away, then end.

        Returns at once. If the cluster is asynchronous, what it returns may be awaited, until the fleet knows.

        Args:
            n: so many.
            memory: as many as have so much memory together, as "500 GB".
            cores: as many as have so many threads together.
            worker_group: of which kind; the others keep their number.

        Raises:
            ValueError: there is no such group, or no number is given.
        """
        targets, fleet = self._up.targets, self._up.fleet
        if worker_group not in targets.wanted:
            known = ", ".join(targets.wanted)
            raise ValueError(f"worker_group = {worker_group!r}: there is no such group; there are {known}")
        number = how_many(n, memory, cores, fleet.settings.profile(worker_group).args or ())
        return self._act(lambda: targets.scale(number, worker_group))

    def scale_down(self, workers: Iterable[Any]) -> Any:
        """Want these workers no more, by name or address; they give their work away, then end. Returns as `scale`."""
        targets = self._up.targets
        return self._act(lambda: targets.scale_down(workers))

    def _act(self, change: Callable[[], Coroutine[Any, Any, None]]) -> Any:
        """Make the change at once, whether the caller awaits the answer or not, as with Dask's other clusters."""
        return self._up.link.spawn(change()) if self.asynchronous else self.sync(change)

    def adapt(
        self,
        Adaptive: type[Adaptive] = Adaptive,  # noqa: N803 - Dask's name
        *,
        minimum: int | None = None,
        maximum: float | None = None,
        minimum_cores: int | None = None,
        maximum_cores: int | None = None,
        minimum_memory: str | int | None = None,
        maximum_memory: str | int | None = None,
        **kwargs: Any,
    ) -> Adaptive:
        """Let Dask decide how many workers there are; see `distributed.deploy.Adaptive`.

        It counts the workers of all groups, adds those of the default group, and ends idle ones of each. The minimum
        and the maximum may also be threads or memory of workers of the default group; None: as Dask is configured.
        """
        args = self._up.fleet.settings.profile(DEFAULT_PROFILE).args or ()
        return super().adapt(
            on_a_fleet(Adaptive),
            minimum=at_least(minimum, minimum_memory, minimum_cores, args),
            maximum=at_most(maximum, maximum_memory, maximum_cores, args),
            **kwargs,
        )

    @property
    def workers(self) -> Mapping[Any, Executor | None]:
        """The workers that should exist, as many as are wanted, by name; `"default/0"` is one without a pod.

        Dask has its `plan` and `requested` from here, and how many the widget says are wanted.
        """
        if self._parts is None or self.status == Status.closed:
            return {}
        executors = self._parts.fleet.executors
        return {name: executors.get(name) for name in self._parts.targets.plan()}

    # ── waiting ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _wait_for_workers(self, n_workers: int = 0, timeout: Any = None) -> None:  # noqa: ASYNC109 - Dask's
        """Wait until so many workers are connected.

        Raises:
            Unreachable: that cannot come true, in the words of the pods or of the API.
            WaitTimeout: the time is over. It is a `TimeoutError`.
        """
        fleet, link, targets = self._up
        clock = asyncio.get_running_loop().time
        limit = parse_timedelta(timeout) if timeout is not None else None
        end = math.inf if limit is None else clock() + limit
        while True:
            while self._is_adaptive() and targets.total() < n_workers and clock() < end:  # noqa: ASYNC110 - Dask tells nobody
                await asyncio.sleep(0.05)
            left = None if limit is None else f"{max(0.0, end - clock()):.3f}s"
            await until_registered(fleet, link, n_workers, left)
            try:
                await super()._wait_for_workers(n_workers, timeout=min(STATUS_LIMIT, max(0.01, end - clock())))
            except TimeoutError:
                if clock() >= end:
                    raise
            else:
                return

    def _is_adaptive(self) -> bool:
        return self._adaptive is not None and self._adaptive.state in {"starting", "running"}

    # ── what is ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def page_url(self) -> str | None:
        """Where the fleet's page is, beside the dashboard's own; None before the cluster has started."""
        return None if self._parts is None else self._parts.fleet.page_url

    def fleet_status(self) -> FleetStatus:
        """Return the fleet's own status; see `Fleet.status`. To be awaited if the cluster is asynchronous."""
        return cast("FleetStatus", self.sync(self._up.fleet.status))

    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """Return the fleet's last events: when, and what. A client has them by `get_events("executor-pods")`."""
        return [] if self.scheduler is None else list(self.scheduler.get_events(TOPIC))

    def _repr_html_(self, cluster_status: str | None = None) -> str:
        if cluster_status is None and self._parts is not None and self.status == Status.running:
            fleet, link, targets = self._parts
            cluster_status = fleet_table(targets.wanted, fleet.executors.values(), link.connected(), fleet.profiles)
        return str(super()._repr_html_(cluster_status))


def _configured(**given: Any) -> dict[str, Any]:
    """Return these arguments; those that are None as Dask's configuration has them."""
    return {
        name: dask.config.get(f"executor-pods.{name}", default=None) if value is None else value
        for name, value in given.items()
    }
