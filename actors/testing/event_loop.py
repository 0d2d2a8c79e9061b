"""An asyncio event loop in the virtual time of a kit.

Its `time()` is the kit's clock. Where a real loop waits for its next timer or for a socket, this one lets the kit's
time pass, from timer to timer, until one of its own is due or an actor has called `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import selectors
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar, final

from actors.testing.dispatcher import NotInVirtualTime

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Executor

    from actors.testing.manual import ManualClock

__all__ = ["run"]

R = TypeVar("R")

_REFUSAL: Final = (
    "a program in Kit.run uses a socket, a pipe or a process, which take real time: replace it in the test"
)

_REFUSED: Final = (
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "subprocess_exec",
    "subprocess_shell",
)
"""What opens a socket, a pipe or a process, refused before it does. The selector refuses the rest."""


class VirtualTime(Protocol):
    """The part of `Kit` that the loop uses."""

    clock: ManualClock

    def wait_until(self, predicate: Callable[[], bool], timeout: timedelta | None = None) -> bool:
        """Let virtual time pass."""


def run(program: Coroutine[Any, Any, R], time: VirtualTime) -> R:
    """Run the program to its end, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=lambda: _Loop(time)) as runner:
        return runner.run(program)


@final
class _Selector(selectors.DefaultSelector):
    """Waits in virtual time. Watches nothing but the pipe by which `call_soon_threadsafe` wakes the loop."""

    def __init__(self, time: VirtualTime, waiting: Callable[[], str]) -> None:
        super().__init__()
        self._time = time
        self._waiting = waiting

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map():  # the pipe comes first
            raise NotInVirtualTime(_REFUSAL)
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events: list[tuple[selectors.SelectorKey, int]] = []

        def is_woken() -> bool:
            events[:] = super(_Selector, self).select(0)
            return bool(events)

        # rounded up: a moment that is reached only almost would be waited for again
        limit = None if timeout is None else timedelta(microseconds=ceil(max(timeout, 0.0) * 1e6))
        try:
            self._time.wait_until(is_woken, limit)
        except AssertionError as error:
            raise type(error)(f"{error}; waiting are {self._waiting()}") from None
        return events


@final
class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, time: VirtualTime) -> None:
        self._virtual = time.clock
        super().__init__(_Selector(time, self._waiting))

    def time(self) -> float:
        return self._virtual.monotonic()

    def run_in_executor(  # type: ignore[override]  # no thread, so the answer is there at once
        self, executor: Executor | None, func: Callable[..., R], *args: Any
    ) -> asyncio.Future[R]:
        """Call the function at once: a second thread would not run in virtual time."""
        del executor
        future: asyncio.Future[R] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)
        return future

    def _waiting(self) -> str:
        """Return the tasks that have not ended, and where each of them waits."""
        tasks = sorted(asyncio.all_tasks(self), key=asyncio.Task.get_name)
        return "; ".join(f"{task.get_name()} at {' > '.join(_places(task.get_coro()))}" for task in tasks) or "no task"


async def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotInVirtualTime(_REFUSAL)


for _name in _REFUSED:
    setattr(_Loop, _name, _refuse)


def _places(awaited: Any) -> Iterator[str]:
    """Return where a coroutine waits, and where the one that it awaits does, and so on."""
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        code = frame.f_code
        yield f"{code.co_name} ({code.co_filename}:{frame.f_lineno})"
        awaited = awaited.cr_await
