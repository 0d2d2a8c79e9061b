"""Where the scheduler of a cluster listens."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("distributed")

from distributed import rpc
from distributed.security import Security

from actors.dask.serving import new_scheduler
from actors.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from distributed import Scheduler

pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)  # tornado leaves a socket that it could not bind to the garbage collector

POD_IP = "127.0.0.2"
"""Loopback, too, but another address than `localhost`."""


@pytest.fixture(autouse=True)
def in_a_pod(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("POD_IP", POD_IP)
    yield
    gc.collect()


@asynccontextmanager
async def scheduler_with(**given: Any) -> AsyncIterator[Scheduler]:
    values = {
        "local": False,
        "host": None,
        "port": None,
        "protocol": None,
        "security": Security(),
        "dashboard_address": None,
        "idle_timeout": None,
    }
    scheduler = await new_scheduler(**values | given)
    try:
        yield scheduler
    finally:
        await scheduler.close()


def hosts(scheduler: Scheduler) -> list[str]:
    return [listener.get_host_port()[0] for listener in scheduler.listeners]


async def answers(scheduler: Scheduler, address: str) -> bool:
    async with rpc(address, connection_args=scheduler.security.get_connection_args("client")) as door:
        return bool((await door.identity())["id"] == scheduler.id)


@pytest.mark.parametrize("security", [False, True], ids=["tcp", "tls"])
def test_a_scheduler_is_reached_by_its_pods_address_and_by_a_port_forward(security: bool) -> None:
    if security:
        pytest.importorskip("cryptography")

    async def program() -> None:
        async with scheduler_with(security=Security.temporary() if security else Security()) as scheduler:
            protocol, port = "tls" if security else "tcp", scheduler.port
            assert scheduler.address == f"{protocol}://{POD_IP}:{port}", "what workers are given"
            assert await answers(scheduler, scheduler.address)
            assert await answers(scheduler, f"{protocol}://localhost:{port}")

    asyncio.run(program())


def test_a_port_that_is_taken_on_loopback_is_said_and_the_pods_address_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def program() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with scheduler_with(port=port) as scheduler:
                assert hosts(scheduler) == [POD_IP]
                assert await answers(scheduler, scheduler.address)
        assert f"the scheduler does not listen on 127.0.0.1:{port}, a port-forward fails: " in caplog.text

    asyncio.run(program())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"local": True}, ["127.0.0.1"]),
        ({"host": "127.0.0.3"}, ["127.0.0.3"]),
        ({"host": "tcp://127.0.0.3"}, ["127.0.0.3"]),
        ({"host": "127.0.0.3", "local": True}, ["127.0.0.3"]),
        ({"host": "::1"}, ["::1"]),
        ({"host": "[::1]"}, ["::1"]),
    ],
)
def test_a_scheduler_listens_where_it_is_told_and_nowhere_else(given: dict[str, Any], expected: list[str]) -> None:
    async def program() -> None:
        async with scheduler_with(**given) as scheduler:
            assert hosts(scheduler) == expected

    asyncio.run(program())


def test_a_pod_may_have_an_ipv6_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "::1")

    async def program() -> None:
        async with scheduler_with() as scheduler:
            assert hosts(scheduler) == ["::1", "127.0.0.1"]
            assert await answers(scheduler, f"tcp://127.0.0.1:{scheduler.port}")

    asyncio.run(program())


@pytest.mark.parametrize("given", [{"host": ""}, {"host": "0.0.0.0"}])
def test_an_empty_host_is_all_addresses_as_with_dasks_own_clusters(given: dict[str, Any]) -> None:
    async def program() -> None:
        async with scheduler_with(**given) as scheduler:
            assert await answers(scheduler, f"tcp://{POD_IP}:{scheduler.port}")
            assert await answers(scheduler, f"tcp://127.0.0.1:{scheduler.port}")

    asyncio.run(program())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"port": "x"}, "port = 'x': must be a whole number from 0, for any free one, to 65535"),
        ({"port": 99_999}, "port = 99999: must be a whole number"),
        ({"idle_timeout": "soon"}, "idle_timeout = 'soon': must be a number of seconds, or of units"),
        (
            {"host": "192.0.2.1"},
            "host = '192.0.2.1', port = None, protocol = None: the scheduler cannot listen there: ",
        ),
        ({"protocol": "tls"}, "protocol = 'tls': the scheduler cannot listen there: TLS expects a `ssl_context`"),
        ({"protocol": "smoke"}, "the scheduler cannot listen there: unknown address scheme 'smoke' (known schemes: ["),
    ],
)
def test_what_a_scheduler_cannot_listen_with_is_named(given: dict[str, Any], said: str) -> None:
    async def program() -> None:
        async with scheduler_with(**given):
            pass

    with pytest.raises(SettingsError) as raised:
        asyncio.run(program())
    assert said in str(raised.value)
