"""`PodCluster`: a Dask cluster whose workers are executors of a fleet."""

from __future__ import annotations

import asyncio
import atexit
import math
import tempfile
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, cast

import dask.config
from dask.utils import parse_bytes, parse_timedelta
from distributed import Scheduler
from distributed.core import Status, rpc
from distributed.deploy.adaptive import Adaptive
from distributed.deploy.cluster import Cluster
from distributed.security import Security

from actors.dask.adaptive import on_a_fleet
from actors.dask.draining import abort, cheapest, drain
from actors.dask.link import TOPIC, Link
from actors.dask.status import fleet_table
from actors.dask.workers import group_values, tls_options
from actors.errors import Unreachable
from actors.fleet import AsyncFleet
from actors.messages import ExecutorState
from actors.pods.pod import DEFAULT_PROFILE
from actors.runtime import Entropy
from actors.settings.loading import pod_ip
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
    from datetime import timedelta
    from os import PathLike

    from actors.messages import Executor, FleetStatus

__all__ = ["PodCluster"]

logger = get_logger(__name__)

MOST_LINES: Final = 1000
"""Lines that `get_logs` keeps of the fleet."""

CONNECT_PATIENCE: Final = 30.0
"""Seconds that an executor may run without a connection while no other one is connected: as long as Dask tries once."""

AT_ONCE: Final = "1ms"
"""The grace of an executor whose worker has not connected: it has nothing to do."""

STATUS_LIMIT: Final = 5.0
"""Seconds that a worker, once registered, may take to say that it runs. It takes milliseconds."""


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
        image: of the workers. It must have the packages that this process has.
        nthreads: of a worker; None: the CPUs in `resources`, rounded up, or 1.
        memory_limit: of a worker, as Dask has it; None: the memory in `resources`, or what Dask finds.
        resources: of the worker's container, as in the setting `executor.resources`.
        env: environment variables of the workers.
        pod_template: the setting `executor.pod_template`.
        template_patch: the setting `executor.template_patch`.
        worker_groups: more kinds of workers by name, each with `n_workers`, any of the arguments from `image` to
            `template_patch`, `worker_options`, and the settings of a profile. They inherit what they do not set.
        worker_command: what runs `dask worker`, to which its arguments are added; None: Python, with Dask's module.
        worker_options: more options of `dask worker` by name: `{"lifetime": "1h", "resources": "GPU=1"}`.
        nanny: let a nanny process watch each worker. The fleet replaces pods in any case.
        drain_timeout: how long a worker that is scaled down may finish its tasks and give its results away; None: as
            long as it takes.
        host: the address that the scheduler listens on; None: POD_IP, or what Dask finds; loopback with `local`.
        port: of the scheduler; 0: any free one.
        protocol: of the scheduler, such as "tls".
        security: certificates, as files that the pods have at the same paths.
        dashboard_address: of the scheduler's dashboard; None: no dashboard.
        idle_timeout: close the cluster after so long without work.
        settings: any other settings of the fleet: `{"allocation": {"batch_size": 50}}`.
        kubeconfig: as in `Fleet`.
        context: as in `Fleet`.
        local: run the workers as processes of this machine, on an embedded cluster.
        asynchronous: the cluster is used with `await`, in the running event loop.
        loop: the event loop.
        quiet: do not print the fleet's events. They are logged in any case.
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
        security: Security | None = None,
        dashboard_address: str | None = ":8787",
        idle_timeout: str | float | timedelta | None = None,
        settings: Mapping[str, Any] | None = None,
        kubeconfig: str | PathLike[str] | None = None,
        context: str | None = None,
        local: bool = False,
        asynchronous: bool = False,
        loop: Any = None,
        quiet: bool = True,
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
        limit = _configured(drain_timeout=drain_timeout)["drain_timeout"]
        self._drain_timeout: float | None = parse_timedelta(limit)
        self._dashboard_address = dashboard_address
        self.security = security or Security()
        self._cluster_of_kube: dict[str, Any] = {"local": local, "kubeconfig": kubeconfig, "context": context}
        self._local = local
        self._wanted = {DEFAULT_PROFILE: self._base["n_workers"] or 0} | {
            group: values.get("n_workers") or 0 for group, values in self._groups.items()
        }
        """By worker group: how many workers there should be."""
        self._retiring: set[int] = set()
        """Workers that give their work away before they end. The fleet's target has them, too, until then."""
        self.scheduler: Scheduler | None = None
        self._fleet: AsyncFleet | None = None
        self._link: Link | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[tuple[str, ...]] | None = None
        super().__init__(
            asynchronous=asynchronous,
            loop=loop,
            quiet=quiet,
            name=self._fleet_values["name"] or f"dask-{Entropy().token(6)}",
        )
        self._cluster_manager_logs: deque[Any] = deque(maxlen=MOST_LINES)
        if not self.called_from_running_loop:
            self._loop_runner.start()
            try:
                self.sync(self._start)
            except BaseException:
                self.close()
                raise
            atexit.register(self.close)

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
        self._changing = asyncio.Lock()
        try:
            self.scheduler = scheduler = await self._new_scheduler()
            self._link = link = Link(scheduler, said=self._log, before_close=self._stop_fleet, settle=self._settle)
            self._fleet = fleet = AsyncFleet(**self._settings(), **self._cluster_of_kube, on_event=link.on_event)
            link.attach(fleet)
            scheduler.add_plugin(link)
            await fleet.start()
            arguments = self.security.get_connection_args("client")
            self.scheduler_comm = rpc(scheduler.address, connection_args=arguments)
            await super()._start()
        except BaseException:
            await self._close()
            raise
        link.spawn(self._close_with_scheduler())

    async def _new_scheduler(self) -> Scheduler:
        serving = self._serving
        host = serving["host"] or ("127.0.0.1" if self._local else pod_ip())
        return await Scheduler(
            host=host,
            port=serving["port"] or 0,
            protocol=serving["protocol"],
            security=self.security,
            dashboard=self._dashboard_address is not None,
            dashboard_address=self._dashboard_address or f"{host or ''}:0",
            idle_timeout=serving["idle_timeout"],
        )

    def _settings(self) -> dict[str, Any]:
        """Return the values of the fleet's settings."""
        assert self.scheduler is not None
        protocol, _, address = self.scheduler.address.partition("://")
        options = dict(self._base["worker_options"] or {})
        if self._local:
            self._scratch = tempfile.TemporaryDirectory(prefix="executor-pods-dask-", ignore_cleanup_errors=True)
            options.setdefault("local-directory", self._scratch.name)
        base = {**self._base, "worker_options": options}
        more = {
            "base": base,
            "protocol": protocol,
            "nanny": self._nanny,
            "local": self._local,
            "tls": tls_options(self.security.get_tls_config_for_role("worker")),
        }
        values = dict(self._fleet_values["settings"] or {})
        executor = {**group_values(base, **more), **values.pop("executor", {})}
        profiles = {name: group_values(group, **more) for name, group in self._groups.items()}
        if self._fleet_values["namespace"] is not None:
            values["namespace"] = self._fleet_values["namespace"]
        if self._fleet_values["name"] is None:  # nobody else has a generated name
            values["backend"] = {"lease": False, **values.get("backend", {})}
        return {
            "driver_address": address,
            "app_id": self.name,
            **values,
            "executor": executor,
            "profiles": {**values.get("profiles", {}), **profiles},
        }

    async def _close_with_scheduler(self) -> None:
        """Close the cluster when the scheduler closes itself, as after `idle_timeout`."""
        assert self.scheduler is not None
        await self.scheduler.finished()
        self._end_soon()

    def close(self, timeout: float | None = None) -> Any:
        """End the workers and the scheduler, and delete the pods."""
        atexit.unregister(self.close)
        waiting = super().close(timeout)
        if not self.asynchronous:
            self._loop_runner.stop()
        return waiting

    def _end_soon(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        return self._ending

    async def _close(self) -> None:
        await asyncio.shield(self._end_soon())

    async def _end(self) -> None:
        self.status = Status.closing
        with suppress(AttributeError):
            self._adaptive.stop()
        if self._link is not None:
            await self._link.detach()
        try:
            await self._stop_fleet()
        finally:
            if self.scheduler is not None:
                await self.scheduler.close()
            await super()._close()
            if self._scratch is not None:
                self._scratch.cleanup()

    async def _stop_fleet(self) -> None:
        """Stop the fleet, once. It must be first: a worker that the scheduler closes and that gets SIGTERM may hang."""
        if self._stopping is None and self._fleet is not None and self.scheduler is not None:
            self._stopping = asyncio.ensure_future(self._stop_workers(self.scheduler, self._fleet))
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _stop_workers(self, scheduler: Scheduler, fleet: AsyncFleet) -> tuple[str, ...]:
        await abort(scheduler, list(scheduler.aliases))
        _forget_work(scheduler)
        return await fleet.stop()

    # ── how many ────────────────────────────────────────────────────────────────────────────────────────────────

    def scale(
        self,
        n: int | None = None,
        *,
        memory: str | int | None = None,
        cores: int | None = None,
        worker_group: str = DEFAULT_PROFILE,
    ) -> Any:
        """Set how many workers there should be. Returns at once; those in excess give their work away, then end.

        Args:
            n: so many.
            memory: as many as have so much memory together, as "500 GB".
            cores: as many as have so many threads together.
            worker_group: of which kind; the others keep their number.

        Raises:
            ValueError: there is no such group, or no number is given.
        """
        return self.sync(self._scale, self._number(n, memory, cores, worker_group), worker_group)

    def scale_down(self, workers: Iterable[Any]) -> Any:
        """Retire these workers, by name or address, and want as many fewer. Returns when they are retired."""
        return self.sync(self._scale_down, workers)

    def adapt(self, Adaptive: type[Adaptive] = Adaptive, **kwargs: Any) -> Adaptive:  # noqa: N803 - Dask's name
        """Let Dask decide how many workers there are; see `distributed.deploy.Adaptive`.

        It counts the workers of all groups, adds those of the default group, and ends idle ones of each.
        """
        return super().adapt(on_a_fleet(Adaptive), **kwargs)

    def _number(self, n: int | None, memory: str | int | None, cores: int | None, group: str) -> int:
        if group not in self._wanted:
            raise ValueError(f"worker_group = {group!r}: there is no such group; there are {', '.join(self._wanted)}")
        numbers = [] if n is None else [n]
        for amount, option in (
            (None if memory is None else parse_bytes(memory), "--memory-limit"),
            (cores, "--nthreads"),
        ):
            if amount is not None:
                numbers.append(math.ceil(amount / self._per_worker(group, option)))
        if not numbers:
            raise ValueError("scale needs a number of workers, memory= or cores=")
        return max(numbers)

    def _per_worker(self, group: str, option: str) -> int:
        assert self._fleet is not None
        args = self._fleet.settings.profile(group).args or ()
        value = args[args.index(option) + 1]
        if value == "auto":
            raise ValueError("scale(memory=...) needs memory_limit, or memory in resources")
        return int(parse_bytes(value))

    async def _scale(self, n: int, group: str = DEFAULT_PROFILE) -> None:
        """Set the number of one group; the workers in excess are retired beside."""
        retiring = await self._want({group: n})
        assert self._link is not None
        self._link.spawn(self._retire(retiring))

    async def _scale_all(self, n: int) -> None:
        """Set the number of all workers: those of other groups than the default one stay."""
        others = sum(number for group, number in self._wanted.items() if group != DEFAULT_PROFILE)
        await self._scale(max(0, n - others))

    async def _scale_down(self, workers: Iterable[Any]) -> None:
        """Retire workers by name or address. Names of `plan` that no worker has yet count, too."""
        assert self.scheduler is not None
        plan = {name: group for group, names in self._planned().items() for name in names}
        names = {_name(self.scheduler, each) for each in workers} & plan.keys()
        fewer = Counter(plan[name] for name in names)
        totals = {group: max(0, self._wanted[group] - number) for group, number in fewer.items()}
        await self._retire(await self._want(totals, {name for name in names if isinstance(name, int)}))

    async def _want(self, totals: Mapping[str, int], victims: Collection[int] = ()) -> frozenset[int]:
        """Set the numbers of some groups. Returns the workers that must be retired, `victims` first."""
        assert self.scheduler is not None
        assert self._link is not None
        async with self._changing:
            if wrong := [n for n in totals.values() if isinstance(n, bool) or not isinstance(n, int) or n < 0]:
                raise ValueError(f"n = {wrong[0]!r}: must be a whole number of workers")
            self._wanted.update(totals)
            connected = self._link.connected()
            retiring: set[int] = set()
            for group, number in totals.items():
                here = [each.id for each in self._staying(group) if each.id in connected]
                chosen = [each for each in here if each in victims]
                others = cheapest(self.scheduler, [each for each in here if each not in victims], len(here))
                retiring.update([*chosen, *others][: max(0, len(here) - number)])
            self._retiring |= retiring
            await self._apply()
        return frozenset(retiring)

    async def _apply(self) -> None:
        """Tell the fleet its targets. It ends at once what is in excess and not connected, and nothing else."""
        assert self._fleet is not None
        assert self._link is not None
        executors = self._fleet.executors
        leaving = Counter(executors[each].profile for each in self._retiring if each in executors)
        connected = self._link.connected()

        def key(executor: Executor) -> int | None:
            return None if executor.id in connected else -executor.id

        totals = {group: n + leaving[group] for group, n in self._wanted.items()}
        await self._fleet.scale(totals, victims=key, grace=AT_ONCE)

    async def _retire(self, ids: Collection[int]) -> None:
        """Let workers give their work away, then end their executors."""
        if not ids:
            return
        assert self._fleet is not None
        assert self.scheduler is not None
        try:
            async with asyncio.timeout(self._drain_timeout):
                if kept := await drain(self.scheduler, ids):
                    self._log(f"no other worker can take the results of workers {_list(kept)}")
        except TimeoutError:
            self._log(f"workers {_list(ids)} are still busy after drain_timeout, and end now")
        async with self._changing:
            await self._fleet.kill(ids, replace=False)
            self._retiring.difference_update(ids)
            await self._apply()
        await abort(self.scheduler, ids)
        # It ends by itself, within the grace of a kill: without SIGTERM, see `_stop_fleet`.
        for address in [self.scheduler.aliases.get(each) for each in ids]:
            if address is not None:
                await self.scheduler.remove_worker(address, stimulus_id="executor-pods-retired", expected=True)

    async def _settle(self) -> None:
        """Retire what is in excess: a worker may connect before the fleet observes its pod, and counts only then."""
        assert self._link is not None
        connected = self._link.connected()
        if any(
            sum(each.id in connected for each in self._staying(group)) > wanted
            for group, wanted in self._wanted.items()
        ):
            await self._retire(await self._want(dict(self._wanted)))

    def _staying(self, group: str) -> list[Executor]:
        """Return the executors of a group that are to stay."""
        executors = self._fleet.executors.values() if self._fleet is not None else ()
        return [
            each
            for each in executors
            if each.profile == group and each.id not in self._retiring and each.state is not ExecutorState.TERMINATING
        ]

    # ── what Adaptive asks ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def plan(self) -> set[Any]:
        """The names of the workers that should exist, as many as are wanted; `"group/0"` for one without a pod."""
        return {name for names in self._planned().values() for name in names}

    @property
    def requested(self) -> set[Any]:
        """The same: the fleet requests what is wanted."""
        return self.plan

    def _planned(self) -> dict[str, list[Any]]:
        connected = self._link.connected() if self._link is not None else frozenset()
        planned = {}
        for group, wanted in self._wanted.items():
            names: list[Any] = sorted(
                (each.id for each in self._staying(group)), key=lambda name: name not in connected
            )
            names += [f"{group}/{number}" for number in range(wanted - len(names))]
            planned[group] = names[:wanted]
        return planned

    # ── waiting ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _wait_for_workers(self, n_workers: int = 0, timeout: Any = None) -> None:  # noqa: ASYNC109 - Dask's
        """Wait until so many workers are connected.

        Raises:
            Unreachable: that cannot come true, in the words of the pods or of the API.
            WaitTimeout: the time is over. It is a `TimeoutError`.
        """
        clock = asyncio.get_running_loop().time
        limit = parse_timedelta(timeout) if timeout is not None else None
        end = math.inf if limit is None else clock() + limit
        while True:
            while self._is_adaptive() and sum(self._wanted.values()) < n_workers and clock() < end:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
            await self._registered(n_workers, None if limit is None else f"{max(0.0, end - clock()):.3f}s")
            try:
                await super()._wait_for_workers(n_workers, timeout=min(STATUS_LIMIT, max(0.01, end - clock())))
            except TimeoutError:
                if clock() >= end:
                    raise
            else:
                return

    def _is_adaptive(self) -> bool:
        return self._adaptive is not None and self._adaptive.state in {"starting", "running"}

    async def _registered(self, number: int, limit: str | None) -> None:
        assert self._fleet is not None
        waits = [
            asyncio.ensure_future(self._fleet.wait_for(registered=number, timeout=limit)),
            asyncio.ensure_future(self._silence()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _silence(self) -> None:
        """Wait until executors have run for long and none has connected; then raise."""
        assert self._fleet is not None
        assert self._link is not None
        while (silence := self._link.silence()) < CONNECT_PATIENCE:  # noqa: ASYNC110 - nothing happens
            await asyncio.sleep(min(1.0, CONNECT_PATIENCE - silence))
        raise Unreachable(
            f"executors have run for {silence:.0f} s and no worker has connected: they were given the address "
            f"{self._fleet.settings.driver_address} of the scheduler, which must be reachable from their pods"
        )

    # ── what is ─────────────────────────────────────────────────────────────────────────────────────────────────

    def fleet_status(self) -> FleetStatus:
        """Return the fleet's own status; see `Fleet.status`. To be awaited if the cluster is asynchronous."""
        assert self._fleet is not None
        return cast("FleetStatus", self.sync(self._fleet.status))

    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """Return the fleet's last events: when, and what. A client has them by `get_events("executor-pods")`."""
        return [] if self.scheduler is None else list(self.scheduler.get_events(TOPIC))

    def _repr_html_(self, cluster_status: str | None = None) -> str:
        if (
            cluster_status is None
            and self._fleet is not None
            and self._link is not None
            and self.status == Status.running
        ):
            cluster_status = fleet_table(
                self._wanted, self._fleet.executors.values(), self._link.connected(), self._link.blocked
            )
        return str(super()._repr_html_(cluster_status))


def _configured(**given: Any) -> dict[str, Any]:
    """Return these arguments; those that are None as Dask's configuration has them."""
    return {
        name: dask.config.get(f"executor-pods.{name}", default=None) if value is None else value
        for name, value in given.items()
    }


def _forget_work(scheduler: Scheduler) -> None:
    """Release all results: the scheduler would compute again what it loses with each worker that ends."""
    for name, client in list(scheduler.clients.items()):
        keys = [task.key for task in client.wants_what]
        scheduler.client_releases_keys(keys=keys, client=name, stimulus_id="executor-pods-close")


def _name(scheduler: Scheduler, worker: Any) -> Any:
    """Return a worker's name: an executor's id may come as text, and a worker by its address."""
    if worker in scheduler.workers:
        return scheduler.workers[worker].name
    return int(worker) if isinstance(worker, str) and worker.isdecimal() else worker


def _list(ids: Collection[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
