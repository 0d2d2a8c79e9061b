"""The executor's side of the registration protocol, in virtual time and without a socket."""

from __future__ import annotations

import ast
import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from actors.registration import executor as module
from actors.registration.executor import (
    LOST_DRIVER_LIMIT,
    RETRY_AFTER,
    SILENCE_LIMIT,
    End,
    Executor,
)
from actors.registration.listener import START_LIMIT
from tests.unit.registration.virtual import TOKEN, Driver, run, settle


async def square(work: Any) -> Any:
    return work**2


def now() -> float:
    return asyncio.get_running_loop().time()


async def for_ever(_: Any) -> Any:
    await asyncio.get_running_loop().create_future()


def test_it_connects_works_and_stops_when_it_is_told_to() -> None:
    async def main() -> None:
        driver = Driver()
        running = asyncio.ensure_future(driver.executor(square).run())
        await settle()
        (connection,) = driver.connections
        connection.send(1, 7)
        connection.send(2, 8)
        connection.stop()
        assert await running is End.STOPPED
        assert driver.events == [
            ("connected", 3),
            ("answered", 3, 1, 49),
            ("answered", 3, 2, 64),
            ("disconnected", 3),
        ]

    run(main())


def test_at_sigterm_it_answers_what_it_does_and_leaves_the_rest() -> None:
    async def main() -> None:
        driver = Driver()

        async def slow(work: Any) -> Any:
            await asyncio.sleep(1)
            return work

        executor = driver.executor(slow)
        running = asyncio.ensure_future(executor.run())
        await settle()
        driver.connections[0].send(1, "in hand")
        driver.connections[0].send(2, "not begun")
        await settle()
        executor.stop()
        assert await running is End.STOPPED
        await settle()
        assert driver.events == [("connected", 3), ("answered", 3, 1, "in hand"), ("disconnected", 3)]

    run(main())


def test_sigterm_ends_it_while_it_waits_for_work_and_while_it_looks_for_a_driver() -> None:
    async def main() -> None:
        for is_away in (False, True):
            driver = Driver()
            driver.is_away = is_away
            executor = driver.executor(square)
            running = asyncio.ensure_future(executor.run())
            await settle()
            executor.stop()
            assert await running is End.STOPPED

    run(main())


def test_it_ends_when_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        driver, began = Driver(), now()
        assert await driver.executor(square, token="wrong").run() is End.REFUSED
        assert "refused by the driver: 'the token is wrong'" in capsys.readouterr().err
        driver.fleet.excluded = {3}
        assert await driver.executor(square).run() is End.REFUSED
        assert now() - began == pytest.approx(START_LIMIT, abs=RETRY_AFTER[1])

    run(main())


def test_it_connects_again_and_is_given_new_work() -> None:
    async def main() -> None:
        driver = Driver()
        running = asyncio.ensure_future(driver.executor(square).run())
        await settle()
        driver.ends[0].abort()
        await asyncio.sleep(RETRY_AFTER[1])
        driver.connections[1].send(1, 7)
        driver.connections[1].stop()
        assert await running is End.STOPPED
        assert driver.events == [
            ("connected", 3),
            ("disconnected", 3),
            ("connected", 3),
            ("answered", 3, 1, 49),
            ("disconnected", 3),
        ]

    run(main())


def test_work_is_cancelled_when_its_connection_is_lost() -> None:
    async def main() -> None:
        driver = Driver()
        cancelled = []

        async def handle(work: Any) -> Any:
            try:
                return await for_ever(work)
            finally:
                cancelled.append(work)

        executor = driver.executor(handle)
        running = asyncio.ensure_future(executor.run())
        await settle()
        driver.connections[0].send(1, "work")
        await settle()
        driver.ends[0].abort()
        await settle()
        assert cancelled == ["work"]
        executor.stop()
        assert await running is End.STOPPED

    run(main())


def test_it_ends_when_it_has_heard_no_driver_for_long_enough() -> None:
    async def main() -> None:
        driver, began = Driver(), now()
        driver.is_away = True
        assert await driver.executor(square).run() is End.DRIVER_LOST
        assert now() - began == pytest.approx(LOST_DRIVER_LIMIT, abs=RETRY_AFTER[1])

    run(main())


def test_it_ends_when_its_driver_is_gone_without_a_word_even_while_it_works() -> None:
    async def main() -> None:
        driver = Driver()
        running = asyncio.ensure_future(driver.executor(for_ever).run())
        await settle()
        driver.connections[0].send(1, "work")
        await asyncio.sleep(1000)
        assert not running.done()
        lost_at = now()
        driver.is_away = driver.ends[0].is_cut = driver.ends[0].peer.is_cut = True
        assert await running is End.DRIVER_LOST
        took = now() - lost_at
        assert took == pytest.approx(LOST_DRIVER_LIMIT, abs=RETRY_AFTER[1] + SILENCE_LIMIT / 3)

    run(main())


def test_a_peer_that_never_says_welcome_is_no_driver() -> None:
    async def main() -> None:
        driver, began = Driver(), now()
        driver.fleet.answers_within = float(10**6)
        assert await driver.executor(square).run() is End.DRIVER_LOST
        assert now() - began < LOST_DRIVER_LIMIT + 2 * SILENCE_LIMIT

    run(main())


def test_what_its_function_raises_ends_it() -> None:
    async def crash(_: Any) -> Any:
        raise LookupError("a bug")

    async def main() -> None:
        driver = Driver()
        running = asyncio.ensure_future(driver.executor(crash).run())
        await settle()
        driver.connections[0].send(1, "work")
        with pytest.raises(LookupError, match="a bug"):
            await running
        await settle()
        assert driver.events == [("connected", 3), ("disconnected", 3)]

    run(main())


@pytest.mark.parametrize(("answer", "why"), [({1}, "type set is not JSON"), (float("nan"), "not JSON compliant")])
def test_an_answer_that_json_cannot_say_is_named_with_its_work(answer: Any, why: str) -> None:
    async def handle(_: Any) -> Any:
        return answer

    async def main() -> None:
        driver = Driver()
        running = asyncio.ensure_future(driver.executor(handle).run())
        await settle()
        driver.connections[0].send(7, "work")
        with pytest.raises(ValueError, match=f"the answer to work 7 cannot be sent as JSON: .*{why}"):
            await running

    run(main())


def test_cancelling_it_cancels_its_work() -> None:
    async def main() -> None:
        driver = Driver()
        running = asyncio.ensure_future(driver.executor(for_ever).run())
        await settle()
        driver.connections[0].send(1, "work")
        await settle()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asyncio.all_tasks() == {asyncio.current_task(), driver.listener._settling}

    run(main())


def test_white_space_around_the_token_does_not_matter() -> None:
    async def main() -> None:
        driver = Driver(f"{TOKEN}\n")
        running = asyncio.ensure_future(driver.executor(square, token=f" {TOKEN}\r\n").run())
        await settle()
        assert driver.events == [("connected", 3)]
        running.cancel()

    run(main())


@pytest.mark.parametrize("name", ["DRIVER_ADDRESS", "EXECUTOR_ID", "DRIVER_TOKEN"])
def test_a_variable_that_is_not_set_is_named(name: str) -> None:
    env = {"DRIVER_ADDRESS": "driver:7077", "EXECUTOR_ID": "3", "DRIVER_TOKEN": "right"}
    del env[name]
    with pytest.raises(SystemExit, match=f"{name} is not set"):
        Executor(square, env)


def test_it_needs_the_standard_library_only() -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == set()
