"""One watch, over a chunked body or a WebSocket: passes messages from the store's threads to one client.

It never blocks the store. The store calls `WatchQueue.put` on the thread that made a change; the stream writes what has
gathered. A client that reads too slowly fills its queue and is disconnected: it must list again, as it would have to
anyway.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from actors.local.schema.statuses import ApiStatus, bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actors.local.store.history import WatchMessage

__all__ = ["WatchQueue", "check_upgrade", "stream_watch"]

_QUEUED: Final = 10_000
"""Messages that a client may lag behind: as many as the store keeps, so it could not resume from further back."""
_LINES_A_WRITE: Final = 200
"""The loop serves other requests between two writes."""
_MAX_RECEIVED: Final = 64 * 1024
"""Bytes of a frame from a client, which has nothing to say; a longer one ends its watch."""
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


def check_upgrade(request: web.Request) -> bool:
    """Return whether a watch is asked for over WebSocket.

    Raises:
        ApiStatus: without an `Origin`, or with a choice of subprotocols, as on a real server.
    """
    if not _is_upgrade(request):
        return False
    if not request.headers.get("Origin"):
        raise ApiStatus(403, "Forbidden", "a WebSocket needs an Origin header")
    if len(_protocols(request)) > 1:
        raise bad_request("a WebSocket for a watch takes at most one subprotocol")
    return True


def _is_upgrade(request: web.Request) -> bool:
    connection = request.headers.get("Connection", "").lower()
    return "upgrade" in connection and request.headers.get("Upgrade", "").lower() == "websocket"


def _protocols(request: web.Request) -> list[str]:
    sent = ",".join(request.headers.getall("Sec-WebSocket-Protocol", []))
    return [name.strip() for name in sent.split(",") if name.strip()]


async def stream_watch(
    request: web.Request,
    queue: WatchQueue,
    seconds: float,
    render: Callable[[WatchMessage], Mapping[str, Any]],
) -> web.StreamResponse:
    """Write messages as JSON until `seconds` have passed or an ERROR is written; then end the stream.

    A chunked body has one message a line, a WebSocket one a text frame.
    """
    stream: _Body | _Frames = _Frames(request) if _is_upgrade(request) else _Body(request)
    try:
        async with asyncio.timeout(seconds):
            await stream.open()
            over = False
            while not over:
                messages = await queue.take()
                lines = [{"type": each.type, "object": render(each)} for each in messages]
                await stream.write([msgspec.json.encode(line) for line in lines])
                over = messages[-1].type == "ERROR"
    except TimeoutError:
        pass
    except ConnectionError:
        return stream.response  # the client has closed the connection, which is how most watches end
    finally:
        stream.release()
    await stream.close()
    return stream.response


class _Body:
    """A chunked body: one message a line."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self.response.enable_chunked_encoding()

    async def open(self) -> None:
        await self.response.prepare(self._request)

    async def write(self, messages: Sequence[bytes]) -> None:
        await self.response.write(b"".join(message + b"\n" for message in messages))

    def release(self) -> None:
        """Nothing runs beside a body."""

    async def close(self) -> None:
        """End the body cleanly."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.response.write_eof()
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()


class _Frames:
    """A WebSocket: one message a text frame. It ends with its connection, without a close frame, as a real server's."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response = web.WebSocketResponse(protocols=_protocols(request), compress=False, max_msg_size=_MAX_RECEIVED)
        self._receiving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.response.prepare(self._request)
        self._receiving = asyncio.create_task(self._receive())

    async def write(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            await self.response.send_str(message.decode())

    def release(self) -> None:
        """Stop to read what the client says."""
        if self._receiving is not None:
            self._receiving.cancel()

    async def close(self) -> None:
        """Close the connection, once what was written is sent."""
        if self._request.transport is not None:
            self._request.transport.close()

    async def _receive(self) -> None:
        """Answer pings and ignore what else the client says, until it closes: that cancels the handler."""
        while not self.response.closed:
            await self.response.receive()
        if self._request.transport is not None:
            self._request.transport.abort()  # a TLS connection that is only closed waits for its client
