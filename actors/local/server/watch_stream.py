"""One watch over HTTP: passes messages from the store's threads to one client, without ever blocking the store.

The store calls `WatchQueue.put` on the thread that made a change; the stream writes what has gathered. A client that
reads too slowly fills its queue and is disconnected: it must list again, as it would have to anyway.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.local.store.history import WatchMessage

__all__ = ["WatchQueue", "stream_watch"]

_QUEUED: Final = 10_000
"""Messages that a client may lag behind: as many as the store keeps, so it could not resume from further back."""
_LINES_A_WRITE: Final = 200
"""The loop serves other requests between two writes."""
_CLOSE_SECONDS: Final = 5.0
"""For a client to read the end of its stream; one that stopped reading never will."""


class WatchQueue:
    """Messages on their way to one client. `put` may be called on any thread, the other methods on the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disconnect: Callable[[], None]) -> None:
        self._loop = loop
        self._disconnect = disconnect
        self._lock = threading.Lock()
        self._messages: deque[WatchMessage] = deque()
        self._capacity: float = float("inf")
        self._woken = False
        self._arrived = asyncio.Event()

    def put(self, message: WatchMessage) -> None:
        """Add a message, or disconnect a client that is too far behind."""
        with self._lock:
            if self._capacity < 0:
                return
            if len(self._messages) >= self._capacity:
                self._capacity = -1
                self._messages.clear()
                wake: Callable[[], None] | None = self._disconnect
            else:
                self._messages.append(message)
                wake = None if self._woken else self._arrived.set
                self._woken = True
        if wake is not None:
            with suppress(RuntimeError):  # the loop has ended, and this stream with it
                self._loop.call_soon_threadsafe(wake)

    def limit(self) -> None:
        """Limit the client's lag from now on. The messages so far (the initial list) are bounded by the store."""
        with self._lock:
            self._capacity = len(self._messages) + _QUEUED

    async def take(self) -> list[WatchMessage]:
        """Return the next messages, at least one."""
        await self._arrived.wait()
        with self._lock:
            count = min(len(self._messages), _LINES_A_WRITE)
            taken = [self._messages.popleft() for _ in range(count)]
            if not self._messages:
                self._woken = False
                self._arrived.clear()
        return taken


async def stream_watch(
    request: web.Request,
    queue: WatchQueue,
    seconds: float,
    render: Callable[[WatchMessage], Mapping[str, Any]],
) -> web.StreamResponse:
    """Write messages as JSON lines until `seconds` have passed or an ERROR is written; then end the body cleanly."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            over = False
            while not over:
                messages = await queue.take()
                lines = [{"type": each.type, "object": render(each)} for each in messages]
                await response.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
                over = messages[-1].type == "ERROR"
    except TimeoutError:
        pass
    except ConnectionError:
        return response  # the client has closed the connection, which is how most watches end
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response
