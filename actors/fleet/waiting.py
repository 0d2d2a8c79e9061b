"""Waits, written once for threads and for event loops.

What a door does is a generator of `Pause`s (`Steps`). `run` carries it out in a thread that blocks, `run_async` in a
coroutine. Only who waits differs; an exception of the wait, such as Ctrl-C or a cancellation, is raised at the pause.

A thread waits on a `SimpleQueue`: unlike a `Condition`, no lock stays locked when Ctrl-C comes in the middle.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from actors.runtime import ActorSystem, Moment

__all__ = ["Pause", "Steps", "Waitable", "Waiter", "run", "run_async"]

T = TypeVar("T")

LONGEST_SLEEP: Final = 0.5
"""Seconds. Ctrl-C is only noticed between two sleeps if it comes just before one, or is delivered to another thread."""


class Waiter(Protocol):
    """Somebody who waits."""

    def wake(self) -> None:
        """Look again. May be called by any thread, often, and late."""


class Waitable:
    """Something that changes in one thread, and that others wait for.

    The waiters are the keys of a dictionary: adding, removing and listing them are single steps for all threads.
    """

    def __init__(self) -> None:
        self._waiters: dict[Waiter, None] = {}

    def add(self, waiter: Waiter) -> None:
        """Wake this waiter at each change."""
        self._waiters[waiter] = None

    @contextlib.contextmanager
    def waited_by(self, waiter: Waiter) -> Iterator[None]:
        """Wake this waiter at each change within the context."""
        self.add(waiter)
        try:
            yield
        finally:
            self._waiters.pop(waiter, None)

    def changed(self) -> None:
        """Wake all who wait."""
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.wake()


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until a condition holds; the generator is sent whether it does."""

    until: Callable[[], bool]
    source: Waitable
    """What the condition depends on."""
    limit: timedelta | None = None
    """How long to wait at most."""


Steps: TypeAlias = Generator[Pause, bool, T]


def run(steps: Steps[T], system: ActorSystem) -> T:
    """Carry the steps out, and block this thread at each pause."""
    error: BaseException | None = None
    while True:
        try:
            pause = next(steps) if error is None else steps.throw(error)
            while True:
                pause = steps.send(_wait(pause, system))
        except StopIteration as end:
            value: T = end.value
            return value
        except BaseException as raised:
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:  # they have ended with it
                raise
            error = raised  # they raise it at their pause, and may clean up


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


def _wait(pause: Pause, system: ActorSystem) -> bool:
    if system.wait is not None:
        return system.wait(pause.until, pause.limit)
    waiter, end = _ThreadWaiter(), _end(pause, system)
    with pause.source.waited_by(waiter):
        while not pause.until():
            left = _left(end, system)
            if left is not None and left <= 0:
                return False
            waiter.sleep(left)
    return True


async def _wait_async(pause: Pause, system: ActorSystem) -> bool:
    if system.wait is not None and asyncio.get_running_loop().time() != system.clock.monotonic():
        raise RuntimeError("this fleet lives in virtual time: run the program with Kit.run, not with asyncio.run")
    waiter, end = _LoopWaiter(), _end(pause, system)
    with pause.source.waited_by(waiter):
        while not pause.until():
            left = _left(end, system)
            if left is not None and left <= 0:
                return False
            await waiter.sleep(left)
    return True


def _end(pause: Pause, system: ActorSystem) -> Moment | None:
    return None if pause.limit is None else system.clock.monotonic() + pause.limit.total_seconds()


def _left(end: Moment | None, system: ActorSystem) -> float | None:
    return None if end is None else end - system.clock.monotonic()


@final
class _ThreadWaiter:
    """A thread that waits."""

    def __init__(self) -> None:
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        if self._wakes.empty():
            self._wakes.put(None)

    def sleep(self, seconds: float | None) -> None:
        """Return at the next wake, after a time, or earlier."""
        with contextlib.suppress(Empty):
            self._wakes.get(timeout=LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP))


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
