"""What a listener needs of a fleet: may this executor register, and note that its connection is lost.

A `Fleet`, whose methods wait, and an `AsyncFleet`, whose methods are awaited, fit as they stand. A Backend has a
`BackendDoor`. A listener calls a door from its event loop, so what waits is called in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from actors.messages import ExecutorDisconnected, RegisterExecutor

if TYPE_CHECKING:
    from actors.messages import Suspected
    from actors.runtime import Address

__all__ = ["AsyncDoor", "BackendDoor", "Door", "awaitable"]

ANSWER_LIMIT: Final = 10.0
"""Seconds that the Backend has to answer. It answers within milliseconds, unless it hangs."""


class Door(Protocol):
    """A door for threads, such as a `Fleet`. `register` is called one at a time, and in order."""

    def register(self, executor_id: int) -> bool:
        """Register an executor that has connected. False if it is excluded and must be refused. It may wait."""

    def disconnected(self, executor_id: int, suspected: Suspected | None) -> None:
        """A registered executor's connection is lost; see `ExecutorDisconnected`. It must not wait."""


class AsyncDoor(Protocol):
    """A door for asyncio, such as an `AsyncFleet` or a `BackendDoor`: as `Door`, and `register` is awaited."""

    async def register(self, executor_id: int) -> bool:
        """Register an executor; see `Door.register`."""

    def disconnected(self, executor_id: int, suspected: Suspected | None) -> None:
        """A registered executor's connection is lost."""


class BackendDoor:
    """The door of a Backend."""

    def __init__(self, backend: Address) -> None:
        self._backend = backend

    async def register(self, executor_id: int) -> bool:
        """Answers what `IsExecutorExcluded` would, the other way round, and registers in the same step."""
        answer: bool = await asyncio.to_thread(self._backend.ask, RegisterExecutor(executor_id), ANSWER_LIMIT)
        return answer

    def disconnected(self, executor_id: int, suspected: Suspected | None) -> None:
        """Tell the Backend."""
        self._backend.tell(ExecutorDisconnected(executor_id, suspected))


class _InThread:
    """A `Door` as an `AsyncDoor`: it waits in a thread, and the event loop goes on."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.disconnected = door.disconnected

    async def register(self, executor_id: int) -> bool:
        accepted: Any = await asyncio.to_thread(self._door.register, executor_id)
        if inspect.isawaitable(accepted):  # of a function around a coroutine function, which is none itself
            accepted = await accepted
        return bool(accepted)


def awaitable(door: AsyncDoor | Door) -> AsyncDoor:
    """Return the door as one whose `register` is awaited.

    Raises:
        TypeError: it is no door.
    """
    for name in ("register", "disconnected"):
        if isinstance(door, type) or not callable(getattr(door, name, None)):
            raise TypeError(
                f"door = {door!r}: has no method {name!r}; give a Fleet, an AsyncFleet, or BackendDoor(backend)"
            )
    if inspect.iscoroutinefunction(door.disconnected):
        raise TypeError(f"door = {door!r}: disconnected is a coroutine function, and must be a plain one")
    return cast("AsyncDoor", door) if inspect.iscoroutinefunction(door.register) else _InThread(cast("Door", door))
