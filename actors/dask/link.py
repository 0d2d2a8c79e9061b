"""`Link`: tells the fleet what the scheduler knows of workers, and the scheduler what the fleet knows of their pods.

A worker's name is its executor's id. Workers that somebody else started under other names are none of the fleet's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from actors.dask.draining import drain
from actors.dask.news import news
from actors.errors import FleetEnded
from actors.fleet.stream import EventsMissed
from actors.messages import (
    AllocationBlocked,
    BackendFailed,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
)
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from distributed import Scheduler
    from distributed.scheduler import WorkerState

    from actors.fleet.async_fleet import AsyncFleet
    from actors.fleet.stream import Event
    from actors.messages import Suspected

__all__ = ["TOPIC", "Link"]

logger = get_logger(__name__)

TOPIC: Final = "executor-pods"
"""The topic under which the scheduler logs the fleet's events: `client.get_events("executor-pods")`."""

STREAM_LIMIT: Final = 2.0
"""Seconds that a worker's stream may take to open after it was added. It takes milliseconds; if the worker has ended
meanwhile it never opens, and the scheduler would keep that worker."""

DRAIN_RETRY: Final = 0.2
"""Seconds until a worker is drained again whose results no other worker could take: a new one may have connected."""


_SUSPECTED: Final[Mapping[str, Suspected]] = {"check-worker-ttl": "hang", "handle-worker-cleanup": "network"}
"""What follows from how the scheduler names its reason to remove a worker: it sent no heartbeat for
`distributed.scheduler.worker-ttl`, though its kernel acknowledged what came, or Dask would have closed the connection
within half a minute (`distributed.comm.timeouts.tcp`); or its connection was closed, which no hung process does."""


class Link(SchedulerPlugin):
    """Between one scheduler and one fleet, both in the same event loop.

    Args:
        scheduler: in this process.
        said: called with one line about each event, and whether that needs a person's attention.
        before_close: awaited before the scheduler closes, whoever closes it.
        failed: called when the fleet can not go on: nothing is replaced any more.
    """

    name = "executor-pods"

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        said: Callable[[str, bool], None],
        before_close: Callable[[], Awaitable[None]],
        failed: Callable[[], object],
    ) -> None:
        self._scheduler = scheduler
        self._said = said
        self._before_close = before_close
        self._failed = failed
        self._has_failed = False
        """No executor is created until a target is set."""
        self._fleet: AsyncFleet | None = None
        self._wanted: Callable[[], int] = int
        self._begun = asyncio.Event()
        self._ids: dict[str, int] = {}
        """By worker address: the executor's id."""
        self._suspected: dict[int, frozenset[Any]] = {}
        """By executor whose connection was lost before its end was known: the tasks that the scheduler suspects."""
        self._ended: dict[int, bool] = {}
        """By executor whose end was known before its connection was lost: whether the application caused it."""
        self._running_since: dict[int, float] = {}
        """By executor that runs: since when, in the loop's time."""
        self._drains: dict[int, asyncio.Task[Any]] = {}
        """By terminating executor: its drain, which may be over."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._said_stuck: set[str] = set()
        """Why executors are stuck that people were told of. A hundred with one wrong image are told of once."""

    def attach(self, fleet: AsyncFleet, wanted: Callable[[], int]) -> None:
        """Tell this fleet. `wanted` returns how many workers there should be, without those that terminate."""
        self._fleet, self._wanted = fleet, wanted

    def begin(self) -> None:
        """The fleet has started. Workers of an earlier program, which have connected meanwhile, are asked about now."""
        self._begun.set()

    async def detach(self) -> None:
        """Tell nobody any more, and wait for what is being told."""
        self._fleet = None
        self._begun.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def connected(self) -> frozenset[int]:
        """Return the executors whose workers are connected."""
        return frozenset(self._ids.values())

    def silence(self) -> float:
        """Return for how many seconds an executor has run while no worker was connected, at most."""
        if self._ids or not self._running_since:
            return 0.0
        return asyncio.get_running_loop().time() - min(self._running_since.values())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside. An error is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._fleet is not None:
            logger.error("a step of the Dask cluster failed: error=%s", error, exc_info=error)

    # ── from the scheduler ──────────────────────────────────────────────────────────────────────────────────────

    async def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Register a worker that has connected. The scheduler gives it no task before that.

        One that is not wanted, or that must go already, never gets any: nothing is lost with it.
        """
        ws = scheduler.workers[worker]
        if not isinstance(ws.name, int) or isinstance(ws.name, bool) or self._fleet is None:
            return
        self._ids[worker] = ws.name
        scheduler.handle_worker_status_change(Status.paused, ws, "executor-pods-connected")
        await self._begun.wait()
        if self._fleet is not None:
            with suppress(FleetEnded):
                await self._register(self._fleet, ws)

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Note that a worker's connection is lost."""
        executor_id = self._ids.pop(worker, None)
        if executor_id is None or self._fleet is None:
            return
        removal = _last_removal(scheduler, worker)
        by_app = self._ended.pop(executor_id, None)
        if removal.get("expected"):
            return
        keys = frozenset(removal.get("processing-tasks", ()))
        if by_app is None:
            self._suspected[executor_id] = keys
        elif not by_app:
            self._acquit(keys)
        if executor_id in self._fleet.executors:
            self._fleet.disconnected(executor_id, _suspected(str(removal.get("stimulus_id"))))

    async def before_close(self) -> None:
        """Stop the fleet."""
        await self._before_close()

    async def _register(self, fleet: AsyncFleet, ws: WorkerState) -> None:
        executor_id, worker = ws.name, ws.address
        if not await fleet.register(executor_id):
            self.note("refused", f"worker {executor_id} at {worker} is refused: it is not wanted", executor=executor_id)
            self.spawn(self._refuse(worker))
            return
        self.note("connected", f"worker {executor_id} has connected from {worker}", executor=executor_id)
        executor = fleet.executors.get(executor_id)
        if executor is not None and executor.state is ExecutorState.TERMINATING:
            self._drain_soon(executor_id)
        else:
            self._scheduler.handle_worker_status_change(Status.running, worker, "executor-pods-registered")

    async def _refuse(self, worker: str) -> None:
        """Remove a worker; first it must know that it goes: it says itself that it is running, and would get tasks."""
        await drain(self._scheduler, worker)
        await self._remove(worker, "refused", expected=True)

    # ── from the fleet ──────────────────────────────────────────────────────────────────────────────────────────

    def on_event(self, event: Event) -> None:
        """Handle one event of the fleet."""
        if (values := news(event)) is not None:
            self.note(**values, alarm=self._is_alarming(event))
        match event:
            case ExecutorTerminating(executor_id):
                self._drain_soon(executor_id)
            case ExecutorRemoved(executor_id, loss):
                self._removed(executor_id, by_app=loss.caused_by_app)
            case ExecutorRunning(executor_id):
                self._running_since[executor_id] = asyncio.get_running_loop().time()
                self._said_stuck.clear()
            case EventsMissed():
                self._catch_up()
            case _:
                pass
        self._judge(event)

    def _is_alarming(self, event: Event) -> bool:
        """Whether an event tells why a program may wait for ever."""
        match event:
            case ExecutorStuck(reason=reason):
                is_new = reason not in self._said_stuck
                self._said_stuck.add(reason)
                return is_new
            case _:
                return isinstance(event, AllocationBlocked | BackendFailed | FleetFailed)

    def note(self, action: str, message: str, *, alarm: bool = False, **more: Any) -> None:
        """Log something, here and in the scheduler's own log of events."""
        logger.info("%s: action=%s", message, action)
        self._said(message, alarm)
        self._scheduler.log_event(TOPIC, {"action": action, "message": message, **more})

    def _drain_soon(self, executor_id: int) -> None:
        """Let a terminating executor drain, unless it does already."""
        earlier = self._drains.get(executor_id)
        if earlier is None or earlier.done():
            self._drains[executor_id] = self.spawn(self._drain(executor_id))

    async def _drain(self, executor_id: int) -> None:
        """Have an executor's worker give its work away, then end both. The fleet ends them at the deadline, anyway."""
        worker = self._scheduler.aliases.get(executor_id)
        while worker is not None and not await drain(self._scheduler, worker):
            if not self._wanted():
                self.note("kept", f"no worker can take the results of worker {executor_id}", executor=executor_id)
                break
            await asyncio.sleep(DRAIN_RETRY)
        if worker is not None:
            await self._remove(worker, "drained", expected=True)
        if self._fleet is not None:
            await self._fleet.drained(executor_id)

    def _removed(self, executor_id: int, *, by_app: bool) -> None:
        self._running_since.pop(executor_id, None)
        keys = self._suspected.pop(executor_id, frozenset())
        if not by_app:
            self._acquit(keys)
        drained = self._drains.pop(executor_id, None)
        worker = self._scheduler.aliases.get(executor_id)
        if worker is not None:
            self._ended[executor_id] = by_app
            ws = self._scheduler.workers[worker]
            if drained is not None and not drained.done() and (ws.has_what or ws.processing):
                message = f"worker {executor_id} has ended before its work was given away"
                self.note("undrained", message, executor=executor_id)
            self.spawn(self._remove(worker, "executor-removed", expected=not by_app))

    def _judge(self, event: Event) -> None:
        """End the cluster if what is submitted would wait for ever: no executor is there, and none is created."""
        match event:
            case ExecutorPending():
                self._has_failed = False
            case FleetFailed():
                self._has_failed = True
            case _:
                pass
        nobody_comes = self._has_failed and self._fleet is not None and not self._fleet.executors
        if nobody_comes or isinstance(event, BackendFailed):
            self._failed()

    def _acquit(self, keys: frozenset[Any]) -> None:
        """Take the suspicion back that these tasks have ended their worker."""
        for key in keys:
            task = self._scheduler.tasks.get(key)
            if task is not None and task.suspicious:
                task.suspicious -= 1
                task.prefix.suspicious -= 1

    async def _remove(self, worker: str, why: str, *, expected: bool) -> None:
        """Remove a worker once the scheduler is done with adding it: it could not add one that is gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STREAM_LIMIT):
                while (stream := self._scheduler.stream_comms.get(worker)) is not None and stream.comm is None:  # noqa: ASYNC110 - Dask tells nobody
                    await asyncio.sleep(0.01)
        await self._scheduler.remove_worker(worker, stimulus_id=f"executor-pods-{why}", expected=expected)

    def _catch_up(self) -> None:
        """Look at all workers after events were missed: their executors may terminate, or have ended."""
        assert self._fleet is not None
        alive = self._fleet.executors
        for executor_id in self.connected():
            if executor_id not in alive:
                self._removed(executor_id, by_app=False)
            elif alive[executor_id].state is ExecutorState.TERMINATING:
                self._drain_soon(executor_id)


def _suspected(stimulus_id: str) -> Suspected | None:
    return next((why for name, why in _SUSPECTED.items() if stimulus_id.startswith(name)), None)


def _last_removal(scheduler: Scheduler, worker: str) -> dict[str, Any]:
    """Return what the scheduler has just logged about a worker that it removed."""
    for _, event in reversed(scheduler.get_events(worker)):
        if isinstance(event, dict) and event.get("action") == "remove-worker":
            return event
    return {}
