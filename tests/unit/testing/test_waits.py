"""Waits in virtual time: `Kit.wait_until` and asyncio programs in `Kit.run`."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.runtime import Actor, Context
from actors.testing import Kit, NotInVirtualTime

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SECOND = timedelta(seconds=1)


class Ticker(Actor):
    """Calls a function at an interval."""

    def __init__(self, context: Context, tick: Callable[[], object], interval: timedelta = SECOND) -> None:
        super().__init__(context)
        self._tick = tick
        self._interval = interval

    def started(self) -> None:
        self.timers.every("tick", self._interval, "tick")

    def receive(self, _: object) -> object:
        return self._tick()


@pytest.fixture
def ticks(kit: Kit) -> list[float]:
    """The moments of an actor that ticks every second."""
    moments: list[float] = []
    kit.spawn(lambda context: Ticker(context, lambda: moments.append(kit.clock.monotonic())), name="ticker")
    return moments


# ── wait_until ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wait_ends_at_the_moment_when_its_predicate_holds(kit: Kit, ticks: list[float]) -> None:
    assert kit.wait_until(lambda: len(ticks) == 3)
    assert kit.clock.elapsed == 3 * SECOND
    assert kit.wait_until(lambda: len(ticks) == 3, timedelta(0))


def test_a_wait_with_a_limit_ends_there(kit: Kit, ticks: list[float]) -> None:
    assert not kit.wait_until(lambda: False, 2.5 * SECOND)
    assert kit.clock.elapsed == 2.5 * SECOND
    assert len(ticks) == 2
    assert not kit.wait_until(lambda: False, -SECOND)
    assert kit.clock.elapsed == 2.5 * SECOND


def test_a_limit_passes_where_nothing_else_happens(kit: Kit) -> None:
    assert not kit.wait_until(lambda: False, SECOND)
    assert kit.wait_until(lambda: kit.clock.elapsed >= 2 * SECOND, SECOND)


def test_a_wait_for_what_never_happens_is_an_error(kit: Kit) -> None:
    with pytest.raises(AssertionError, match="no message is under way and no timer is scheduled any more"):
        kit.wait_until(lambda: False)


def test_a_wait_without_a_limit_does_not_last_for_ever(kit: Kit) -> None:
    kit.spawn(lambda context: Ticker(context, lambda: None, timedelta(minutes=1)), name="ticker")
    with pytest.raises(AssertionError, match="this wait has lasted 1:00:00 of virtual time: give it a timeout"):
        kit.wait_until(lambda: False)
    assert kit.clock.elapsed == timedelta(hours=1)


def test_the_system_of_a_kit_waits_as_the_kit_does(kit: Kit, ticks: list[float]) -> None:
    assert kit.system.wait is not None
    assert kit.system.wait(lambda: len(ticks) == 2, 5 * SECOND)


def test_a_function_is_called_at_a_later_moment(kit: Kit) -> None:
    called: list[timedelta] = []
    kit.after(lambda: called.append(kit.clock.elapsed), SECOND, milliseconds=500)
    kit.advance(minutes=1)
    assert called == [1.5 * SECOND]


# ── run ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_program_sleeps_in_virtual_time_beside_the_actors(kit: Kit, ticks: list[float]) -> None:
    async def program() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    begun = time.perf_counter()
    assert kit.run(program()) == 1000.0 + 3600
    assert time.perf_counter() - begun < 60
    assert kit.clock.elapsed == 3600 * SECOND
    assert len(ticks) == 3600


def test_an_actor_wakes_a_program(kit: Kit) -> None:
    async def program() -> timedelta:
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        kit.spawn(lambda context: Ticker(context, lambda: loop.call_soon_threadsafe(rung.set)), name="ticker")
        await rung.wait()
        return kit.clock.elapsed

    assert kit.run(program()) == SECOND


def test_the_timeouts_of_a_program_are_virtual(kit: Kit, ticks: list[float]) -> None:
    async def program() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 90.1)

    kit.run(program())
    assert kit.clock.elapsed == 90.1 * SECOND
    assert len(ticks) == 90


def test_two_runs_of_a_program_are_the_same() -> None:
    async def program(kit: Kit) -> list[str]:
        said: list[str] = []

        async def say(word: str, every: float) -> None:
            while kit.clock.elapsed < 10 * SECOND:
                await asyncio.sleep(every)
                said.append(f"{word} {kit.clock.monotonic()}")

        await asyncio.gather(say("a", 0.3), say("b", 0.7), say("c", 0.1))
        return said

    def run() -> list[str]:
        with Kit() as kit:
            return kit.run(program(kit))

    first = run()
    assert len(first) > 100
    assert first == run()


def test_work_for_another_thread_is_done_at_once(kit: Kit) -> None:
    async def program() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 42)

    assert kit.run(program()) == 42


def test_a_program_that_waits_for_what_never_happens_is_told_where(kit: Kit) -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def program() -> None:
        await inner()

    with pytest.raises(AssertionError, match=r"no timer .* waiting are Task-\d+ at program \(.*test_waits.*\) > inner"):
        kit.run(program())


async def serve() -> None:
    await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)


async def execute() -> None:
    await asyncio.create_subprocess_exec("true")


async def read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0)
        await asyncio.get_running_loop().sock_recv(ours, 1)


@pytest.mark.parametrize("program", [serve, execute, read])
def test_what_takes_real_time_in_a_program_is_an_error_that_says_so(
    kit: Kit, program: Callable[[], Coroutine[None, None, None]]
) -> None:
    with pytest.raises(NotInVirtualTime, match="uses a socket, a pipe or a process"):
        kit.run(program())


def test_what_a_program_raises_reaches_the_test(kit: Kit) -> None:
    async def program() -> None:
        await asyncio.sleep(1)
        raise KeyError("found")

    with pytest.raises(KeyError, match="found"):
        kit.run(program())
