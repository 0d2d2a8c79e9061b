"""`AsyncFleet`: a fleet of executor pods, for programs on asyncio."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn, Self, final

from actors.fleet.autoscaling import Autoscaler
from actors.fleet.callbacks import called
from actors.fleet.event_loop import TaskCalls, run_async
from actors.fleet.fleet import BaseFleet
from actors.fleet.leases.acquiring import RESET_FAILED, acquire, acquire_message, give_back
from actors.fleet.output.access import follow, next_line, read_log
from actors.fleet.plan import duration
from actors.kube.auth import discovery as _discovery  # noqa: F401 - loaded later, in a thread, it would hold up the event loop
from actors.kube.http import pod_api as _pod_api  # noqa: F401 - as above
from actors.pods.pod import DEFAULT_PROFILE
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import TracebackType

    from actors.fleet.autoscaling import Backlog
    from actors.fleet.callbacks import Calls
    from actors.fleet.door import Door, Ids
    from actors.fleet.leases.lease import Lease, LeasedExecutor
    from actors.fleet.output.lines import LineBuffer, LogLine
    from actors.fleet.output.logs import LogStream
    from actors.fleet.plan import Duration
    from actors.fleet.stream import Event, EventBuffer
    from actors.messages import AcquireExecutor, FleetStatus, Victims

__all__ = ["AsyncAcquiring", "AsyncEvents", "AsyncFleet", "AsyncLogs"]

logger = get_logger(__name__)


class AsyncFleet(BaseFleet):
    """`Fleet` for asyncio: the same arguments, methods and errors; what waits there is awaited here.

    ::

        async with AsyncFleet(image="registry.example/worker:1.4", instances=4) as fleet:
            await fleet.wait_for(running=4, timeout="5m")
            async for event in fleet.events():
                ...

    Nothing here blocks the event loop: files are read and packages loaded in a thread of the fleet. A cancellation
    while the fleet is entered or used stops it in order. `on_event` is called in the loop, and awaited if it is a
    coroutine function.
    """

    def _calls(self, on_event: Callable[[Event], object]) -> Calls:
        return TaskCalls(called(on_event), lambda buffer: AsyncEvents(self._door, buffer).get())

    # ── entering and leaving ────────────────────────────────────────────────────────────────────────────────────

    async def start(self, *, wait: bool = True) -> None:
        """Start the fleet; see `Fleet.start`."""
        await run_async(self._door.enter(wait=wait), self._door.system)

    async def stop(self, *, keep: bool | None = None, wait: bool = True) -> tuple[str, ...]:
        """Stop the fleet in order; see `Fleet.stop`."""
        return await run_async(self._door.leave(keep=keep, wait=wait), self._door.system)

    async def abandon(self) -> None:
        """End all that this process has of the fleet, and leave the pods; see `Fleet.abandon`."""
        await run_async(self._door.abandon(), self._door.system)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_async(self._door.leave(error=error), self._door.system)

    # ── what is ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def status(self) -> FleetStatus:
        """Return the numbers of each profile, what blocks it, and how fresh our knowledge is."""
        return await run_async(self._door.status(), self._door.system)

    def events(self) -> AsyncEvents:
        """Return an iterator over the fleet's events, for `async for`; see `Fleet.events`."""
        return AsyncEvents(self._door, self._door.new_reader())

    async def logs(self, executor_id: int, *, tail: int | None = None, container: str | None = None) -> str:
        """Return what an executor has printed so far; see `Fleet.logs`."""
        return await run_async(read_log(self._door, executor_id, tail, container), self._door.system)

    def follow_logs(
        self, executors: Ids | None = None, *, profile: str | None = None, tail: int | None = 10
    ) -> AsyncLogs:
        """Return an iterator over the lines that executors print, for `async for`; see `Fleet.follow_logs`."""
        return AsyncLogs(self._door, *follow(self._door, executors, profile, tail))

    # ── what is wanted ──────────────────────────────────────────────────────────────────────────────────────────

    async def scale(
        self, totals: int | Mapping[str, int], *, victims: Victims = "newest", grace: Duration | None = None
    ) -> tuple[int, ...]:
        """Set the target, and end the excess; see `Fleet.scale`."""
        return await run_async(self._door.scale(totals, victims, grace), self._door.system)

    async def wait_for(
        self,
        *,
        running: int | None = None,
        registered: int | None = None,
        profile: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109 - the same argument as Fleet's, with the same words at its end
    ) -> None:
        """Wait until so many executors run, or are registered; see `Fleet.wait_for`."""
        await run_async(self._door.wait_for(running, registered, profile, timeout), self._door.system)

    async def autoscale(
        self,
        look: Callable[[], Backlog | Awaitable[Backlog]],
        wanted: Callable[[int], int],
        *,
        every: Duration = timedelta(seconds=2),
        looks: int = 15,
        profile: str = DEFAULT_PROFILE,
    ) -> NoReturn:
        """Let the target follow a backlog until the fleet ends; see `Fleet.autoscale`.

        `look` may be a coroutine function. It must not block the event loop.
        """
        autoscaler = Autoscaler(self._door, wanted, every=duration("every", every), looks=looks, profile=profile)
        while True:
            backlog = look()
            found = await backlog if isinstance(backlog, Awaitable) else backlog
            await run_async(autoscaler.follow(found), self._door.system)

    async def kill(self, executors: Ids, *, grace: Duration | None = None, replace: bool = True) -> tuple[int, ...]:
        """End executors; see `Fleet.kill`."""
        return await run_async(self._door.kill(executors, grace, replace=replace), self._door.system)

    async def retire(
        self, executors: Ids, *, deadline: Duration | None = None, replace: bool = True
    ) -> tuple[int, ...]:
        """Let executors drain; see `Fleet.retire`."""
        return await run_async(self._door.retire(executors, deadline, replace=replace), self._door.system)

    async def drained(self, executor_id: int) -> bool:
        """Say that a terminating executor is drained; see `Fleet.drained`."""
        return await run_async(self._door.drained(executor_id), self._door.system)

    async def hold(self, *, deadline: Duration | None = None) -> tuple[int, ...]:
        """Retire all executors and create none; see `Fleet.hold`."""
        return await run_async(self._door.hold(deadline), self._door.system)

    async def decommission(self, executors: Ids) -> tuple[int, ...]:
        """Let executors finish; see `Fleet.decommission`."""
        return await run_async(self._door.decommission(executors), self._door.system)

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
    ) -> AsyncAcquiring:
        """Lease a ready executor for an `async with` block; see `Fleet.acquire`. `reset` may return an awaitable."""
        return AsyncAcquiring(self._door, acquire_message(profile, timeout, ttl, holder), reset, reuse=reuse)

    async def acquire_lease(
        self,
        profile: str = DEFAULT_PROFILE,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - as above
        ttl: Duration | None = None,
        holder: str = "",
    ) -> Lease:
        """Lease a ready executor until `release`; see `Fleet.acquire_lease`."""
        return await run_async(acquire(self._door, acquire_message(profile, timeout, ttl, holder)), self._door.system)

    async def release(self, lease: Lease, *, reuse: bool = False) -> bool:
        """End a lease; see `Fleet.release`."""
        return await run_async(self._door.release(lease, reuse=reuse), self._door.system)

    async def renew(self, lease: Lease, ttl: Duration | None = None) -> bool:
        """Let a lease last this long from now on; see `Fleet.renew`."""
        return await run_async(self._door.renew(lease, ttl), self._door.system)

    async def warm(self, warm: int | Mapping[str, int]) -> None:
        """Set how many executors are kept ready; see `Fleet.warm`."""
        await run_async(self._door.warm(warm), self._door.system)

    # ── what the program knows of its executors ─────────────────────────────────────────────────────────────────

    async def register(self, executor_id: int) -> bool:
        """Note that an executor has connected; see `Fleet.register`."""
        return await run_async(self._door.register(executor_id), self._door.system)

    async def is_excluded(self, executor_id: int) -> bool:
        """Return whether an executor must be refused if it connects; see `Fleet.is_excluded`."""
        return await run_async(self._door.is_excluded(executor_id), self._door.system)


@final
class AsyncAcquiring:
    """Acquires an executor for an `async with` block. Made by `AsyncFleet.acquire`."""

    def __init__(
        self,
        door: Door,
        message: AcquireExecutor,
        reset: Callable[[LeasedExecutor], object] | None,
        *,
        reuse: bool,
    ) -> None:
        self._door = door
        self._message = message
        self._reset = reset
        self._reuse = reuse or reset is not None
        self._lease: Lease | None = None

    async def __aenter__(self) -> LeasedExecutor:
        if self._lease is not None:
            raise RuntimeError("this executor was acquired already; call fleet.acquire again")
        self._lease = await run_async(acquire(self._door, self._message), self._door.system)
        return self._lease.executor

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None
        reuse = False
        try:
            reuse = self._reuse and error is None and await self._is_reset(self._lease.executor)
        finally:
            await run_async(give_back(self._door, self._lease, error, reuse=reuse), self._door.system)

    async def _is_reset(self, executor: LeasedExecutor) -> bool:
        try:
            done = None if self._reset is None else self._reset(executor)
            if isinstance(done, Awaitable):
                await done
        except Exception:
            logger.exception(RESET_FAILED, executor.id)
            return False
        return True


@final
class AsyncEvents:
    """The events of a fleet, for one reader. Made by `AsyncFleet.events`."""

    def __init__(self, door: Door, buffer: EventBuffer) -> None:
        self._door = door
        self._buffer = buffer

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def get(self, timeout: Duration | None = None) -> Event | None:  # noqa: ASYNC109 - as above
        """Return the next event; None after the last one, or if none comes within `timeout`."""
        return await run_async(self._door.next_event(self._buffer, duration("timeout", timeout)), self._door.system)


@final
class AsyncLogs:
    """Lines of executors, a `LogLine` each, for one reader. Made by `AsyncFleet.follow_logs`."""

    def __init__(self, door: Door, stream: LogStream, buffer: LineBuffer) -> None:
        self._door = door
        self._buffer = buffer
        self.close = weakref.finalize(self, stream.close)
        """Read no more. Called by the garbage collector, too."""

    def __aiter__(self) -> AsyncIterator[LogLine]:
        return self

    async def __anext__(self) -> LogLine:
        line = await self.get()
        if line is None:
            raise StopAsyncIteration
        return line

    async def get(self, timeout: Duration | None = None) -> LogLine | None:  # noqa: ASYNC109 - as above
        """Return the next line; see `Logs.get`."""
        return await run_async(next_line(self._door, self._buffer, duration("timeout", timeout)), self._door.system)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
