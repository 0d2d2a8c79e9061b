"""Many executors that connect at once to one driver, over TCP. With `-s` it prints what they cost."""

from __future__ import annotations

import asyncio
import gc
import resource
import secrets
import socket
import time
import tracemalloc
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors.registration.executor import End, Executor
from actors.registration.listener import (
    Answered,
    Connected,
    Connection,
    Disconnected,
    Listener,
    ListenerThread,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors import Suspected
    from actors.registration.listener import Event

SAFETY_SECONDS = 60.0
"""What hangs ends the test after this; no test waits for it."""


class Everybody:
    """A fleet that registers whoever comes."""

    def __init__(self) -> None:
        self.registered: set[int] = set()

    async def register(self, executor_id: int) -> bool:
        self.registered.add(executor_id)
        return True

    def disconnected(self, executor_id: int, suspected: Suspected | None) -> None:
        self.registered.remove(executor_id)


@contextmanager
def files(needed: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def double(work: Any) -> Any:
    return 2 * work


async def work(count: int, address: str, token: str) -> list[End]:
    """So many executors, from their start to their end."""
    env = {"DRIVER_ADDRESS": address, "DRIVER_TOKEN": token}
    executors = [Executor(double, env | {"EXECUTOR_ID": str(each)}) for each in range(1, count + 1)]
    return await asyncio.gather(*(executor.run() for executor in executors))


def drive(told: SimpleQueue[Event], count: int) -> dict[type, int]:
    """Give each executor one work, and stop it when it has answered; how many of each event came."""
    seen = {Connected: 0, Answered: 0, Disconnected: 0}
    began = time.perf_counter()
    while seen[Disconnected] < count:
        event = told.get(timeout=SAFETY_SECONDS)
        seen[type(event)] += 1
        match event:
            case Connected(connection):
                connection.send(connection.executor_id, connection.executor_id)
                if seen[Connected] == count:
                    each = tracemalloc.get_traced_memory()[0] // count
                    took = time.perf_counter() - began
                    print(f"{count} executors: connected after {took:.2f} s, {each} bytes each, both sides")
            case Answered(connection, work_id, answer):
                assert answer == 2 * work_id == 2 * connection.executor_id
                connection.stop()
            case Disconnected():
                pass
    return seen


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.stress)])
def test_executors_that_come_at_once_connect_work_and_end_and_nothing_of_them_stays(count: int) -> None:
    told: SimpleQueue[Event] = SimpleQueue()
    fleet, token = Everybody(), secrets.token_urlsafe()
    sock = socket.create_server(("127.0.0.1", 0))
    address = "{}:{}".format(*sock.getsockname())

    async def both() -> tuple[list[End], dict[type, int]]:
        return await asyncio.gather(work(count, address, token), asyncio.to_thread(drive, told, count))

    with files(2 * count + 500):
        tracemalloc.start()
        try:
            with ListenerThread(Listener(token, told.put), fleet, sock):
                ends, seen = asyncio.run(both())
        finally:
            tracemalloc.stop()
    assert set(ends) == {End.STOPPED}
    assert seen == {Connected: count, Answered: count, Disconnected: count}
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, Connection)] == []
