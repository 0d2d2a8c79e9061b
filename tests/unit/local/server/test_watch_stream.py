"""A stream whose client closes the connection."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

from aiohttp import ClientConnectionResetError
from aiohttp.abc import AbstractStreamWriter
from aiohttp.test_utils import make_mocked_request

from actors.local.server.watch_stream import WatchQueue, stream_watch
from actors.local.store.object_store import WatchMessage


def test_a_client_that_hangs_up_in_the_middle_of_a_line_is_no_failure_of_the_server() -> None:
    async def watch() -> int:
        writer = AsyncMock(AbstractStreamWriter)
        writer.write.side_effect = ClientConnectionResetError("Cannot write to closing transport")
        queue = WatchQueue(asyncio.get_running_loop(), disconnect=lambda: None)
        queue.put(WatchMessage("ADDED", {}))
        request = make_mocked_request("GET", "/", writer=writer)
        await stream_watch(request, queue, 30, lambda message: message.object)
        return int(writer.write.await_count)

    assert asyncio.run(watch()) == 1
