"""What `AsyncFleet` needs of asyncio, which takes long to import: a thread's `Fleet` does without.

`run_async` carries out the steps of a door in a coroutine. `TaskCalls` calls `on_event` in a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, TypeVar, final

from actors.fleet.waiting import end_of, seconds_left
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.fleet.stream import Event, EventBuffer
    from actors.fleet.waiting import Pause, Steps
    from actors.runtime import ActorSystem

__all__ = ["TaskCalls", "run_async"]

logger = get_logger(__name__)

T = TypeVar("T")


async def run_async(steps: Steps[T], system: ActorSystem) -> T:
    """Carry the steps out, and suspend this coroutine at each pause."""
    error: BaseException | None = None
    while True:
        try:
            pause = next(steps) if error is None else steps.throw(error)
            while True:
                pause = steps.send(await _wait_async(pause, system))
        except StopIteration as end:
            value: T = end.value
            return value
        except BaseException as raised:
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:  # they have ended with it
                raise
            error = raised  # they raise it at their pause, and may clean up


async def _wait_async(pause: Pause, system: ActorSystem) -> bool:
    if system.wait is not None and asyncio.get_running_loop().time() != system.clock.monotonic():
        raise RuntimeError("this fleet lives in virtual time: run the program with Kit.run, not with asyncio.run")
    waiter, end = _LoopWaiter(), end_of(pause, system)
    with pause.source.waited_by(waiter):
        while not pause.until():
            left = seconds_left(end, system)
            if left is not None and left <= 0:
                return False
            await waiter.sleep(left)
    return True


@final
class _LoopWaiter:
    """A coroutine that waits. `wake` comes from other threads: one call into the loop serves all until it has run."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_called = False
        self._is_woken = False
        self._sleep: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_called = False
        self._is_woken = True
        self._resume()

    def _resume(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    async def sleep(self, seconds: float | None) -> None:
        """Return at the next wake, or after a time."""
        if not self._is_woken:
            self._sleep = self._loop.create_future()
            timer = None if seconds is None else self._loop.call_later(seconds, self._resume)
            try:
                await self._sleep
            finally:
                self._sleep = None
                if timer is not None:
                    timer.cancel()
        self._is_woken = False


@final
class TaskCalls:
    """Calls from a task of the running event loop. A coroutine function is awaited.

    Args:
        call: the user's callback.
        read: waits for the next event of a buffer; None at the end.
    """

    def __init__(self, call: Callable[[Event], object], read: Callable[[EventBuffer], Awaitable[Event | None]]) -> None:
        self._call = call
        self._read = read
        self._task: asyncio.Task[None] | None = None

    def start(self, buffer: EventBuffer, done: Callable[[], None]) -> None:
        """See `Calls`."""
        self._task = asyncio.create_task(self._run(buffer))
        self._task.add_done_callback(lambda _: done())

    def is_done(self) -> bool:
        """See `Calls`."""
        return self._task is None or self._task.done() or self._task.get_loop().is_closed()

    def is_current(self) -> bool:
        """See `Calls`."""
        with contextlib.suppress(RuntimeError):  # this thread runs no loop
            return self._task is not None and asyncio.current_task() is self._task
        return False

    def cancel(self) -> None:
        """See `Calls`."""
        if self._task is not None:
            with contextlib.suppress(RuntimeError):  # its loop was closed meanwhile
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def _run(self, buffer: EventBuffer) -> None:
        task = asyncio.current_task()
        assert task is not None
        while (event := await self._read(buffer)) is not None:
            try:
                result = self._call(event)
                if inspect.isawaitable(result):
                    await result
            except asyncio.CancelledError:
                if task.cancelling():
                    raise
                logger.exception("on_event failed: event=%s", type(event).__name__)  # it awaited what was cancelled
            except Exception:
                logger.exception("on_event failed: event=%s", type(event).__name__)
