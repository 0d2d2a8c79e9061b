"""`serve`: the page's HTTP server, a thread with an event loop of its own.

Anybody who reaches the port may connect. So all is bounded: connections and their lives, headers and bodies, how long a
viewer may take to read. A bound that is met ends one connection, and no other.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, final

from actors.errors import SettingsError, needs_extra
from actors.page.site import HEADERS, MOST_VIEWERS, Answer, Asked, Site, Stream
from actors.runtime import elapsed, start_thread
from actors.text import get_logger
from actors.text.http_log import HttpLog

with needs_extra("page", "the page"):
    from aiohttp import web
    from aiohttp.http import HttpProcessingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.runtime import Clock, Moment

__all__ = ["LARGEST_BODY", "MOST_CONNECTIONS", "READ_WITHIN_SECONDS", "REQUEST_WITHIN", "serve"]

logger = get_logger(__name__)

MOST_CONNECTIONS: Final = MOST_VIEWERS + 32
"""Connections at once. A further one cuts the one that is no viewer's, and for the longest has not come or asked."""

REQUEST_WITHIN: Final = timedelta(seconds=30)
"""The longest life of a connection that is no viewer's. A browser makes another one when it needs it."""

READ_WITHIN_SECONDS: Final = 30.0
"""How long a viewer may take to read one event of the stream. Then it is cut, and may come back."""

CHECK_SECONDS: Final = 5.0
"""How often connections are checked."""

LARGEST_BODY: Final = 1024 * 1024
"""A million ids fit."""

LONGEST_LINE: Final = 8190
"""Bytes of a header."""

MOST_HEADERS: Final = 64

BACKLOG: Final = 128
"""Connections that wait in the kernel."""

ACCEPTED_AT_ONCE: Final = 8
"""Connections, far fewer than `MOST_CONNECTIONS`: a probe is read before those that come after it could cut it."""

SEND_BUFFER: Final = 256 * 1024
"""Bytes that the system keeps for a viewer who does not read, of a connection. It would take up to 4 MiB."""

STOP_SECONDS: Final = 1.0
"""For cancelled handlers to end; they wait for nothing."""


@contextmanager
def serve(
    address: str, port: int, make: Callable[[], Site], clock: Clock, *, read_within: float = READ_WITHIN_SECONDS
) -> Iterator[int]:
    """Serve a site until the context ends; yield the port.

    Args:
        address: to listen on.
        port: 0 for any free one.
        make: makes the site, in the loop of the server.
        clock: measures the lives of connections.
        read_within: see `READ_WITHIN_SECONDS`.

    Raises:
        SettingsError: the address is not one of this machine, or the port is in use.
        NoThread: no thread can be started.
    """
    try:
        listener = _listen(address, port)
    except OSError as error:
        raise SettingsError(f"the page cannot be served at {address} port {port}: {error.strerror}") from None
    except UnicodeError:  # of the name's encoding: a part of it is empty, too long, or no text
        raise SettingsError(f"the page cannot be served at {address} port {port}: it is no host's name") from None
    server = _Server(listener, make, clock, read_within)
    with ExitStack() as undo:
        undo.callback(listener.close)
        thread = start_thread(server.run, "executor-pods/page")
        undo.pop_all()
    try:
        server.ready.result()
        yield listener.getsockname()[1]
    finally:
        server.stop()
        thread.join()


def _listen(address: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return listener


@final
class _Server:
    """The server in its thread."""

    def __init__(self, listener: socket.socket, make: Callable[[], Site], clock: Clock, read_within: float) -> None:
        self.ready: Future[None] = Future()
        """Set when it serves."""
        self._listener = listener
        self._make = make
        self._clock = clock
        self._read_within = read_within
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def run(self) -> None:
        """Serve until `stop`."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # raised in `serve`
            if self.ready.done():
                logger.exception("the page's server died")
            else:
                self.ready.set_exception(error)
        finally:
            self._listener.close()

    def stop(self) -> None:
        """End. Called by another thread."""
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # it has died
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        site = self._site = self._make()
        connections = self._connections = _Connections(
            self._handle,
            clock=self._clock,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            logger=HttpLog(logger, HttpProcessingError),
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
            max_headers=MOST_HEADERS,
            auto_decompress=False,
            lingering_time=0.0,  # of a body that is too large nothing more is read
        )

        server = await self._loop.create_server(connections, sock=self._listener, backlog=ACCEPTED_AT_ONCE)
        self._listener.listen(BACKLOG)  # `backlog` is also how many the loop accepts at once
        try:
            self.ready.set_result(None)
            while not self._stopping.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await self._stopping.wait()
                connections.cut_old()
        finally:
            server.close()
            site.close()
            await connections.shutdown(STOP_SECONDS)

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._connections.has_asked(request.protocol)
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.method, request.path, request.query, headers)
        if self._site.takes_body(asked):
            try:
                asked = replace(asked, body=await request.read())
            except web.HTTPRequestEntityTooLarge:
                response = _response(Answer(413, b'{"error": "a body has at most %d bytes"}' % LARGEST_BODY))
                response.force_close()
                return response
        try:
            answer = await self._site.answer(asked)
        except Exception:  # a bug in one answer must not break the connection
            logger.exception("request not answered: path=%s", request.path)
            answer = Answer(500, b'{"error": "internal error of the page; see the log of the driver"}')
        if isinstance(answer, Answer):
            return _response(answer)
        return await self._send(answer, request)

    async def _send(self, stream: Stream, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        response.force_close()
        parts = stream.parts
        self._connections.streams(request.protocol)
        try:
            await response.prepare(request)
            if request.method != "HEAD":
                async for part in parts:
                    async with asyncio.timeout(self._read_within):
                        await response.write(part)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            await parts.aclose()
        return response


class _Connections(web.Server):
    """The connections: few, and all short but those of viewers."""

    def __init__(self, handler: Callable[..., Any], *, clock: Clock, **options: Any) -> None:
        super().__init__(handler, **options)
        self._clock = clock
        self._open: dict[web.RequestHandler, tuple[asyncio.Transport, Moment]] = {}
        """Each connection that is no viewer's, and since when it is open. Who came or asked last is the last."""
        self._streams: set[web.RequestHandler] = set()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Make room for a connection: the first one has had its time."""
        super().connection_made(handler, transport)
        self._open[handler] = (transport, self._clock.monotonic())
        while len(self._open) + len(self._streams) > MOST_CONNECTIONS:
            self._cut(next(iter(self._open)))

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection that has ended."""
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)
        self._streams.discard(handler)

    def has_asked(self, handler: web.RequestHandler) -> None:
        """Let a connection be answered: those that only came, however many, go before it."""
        if (known := self._open.pop(handler, None)) is not None:
            self._open[handler] = known

    def streams(self, handler: web.RequestHandler) -> None:
        """Let a connection stay: it is a viewer's."""
        if self._open.pop(handler, None) is not None:
            self._streams.add(handler)

    def cut_old(self) -> None:
        """Cut the connections that live too long."""
        now = self._clock.monotonic()
        for handler, (_, since) in [*self._open.items()]:
            if elapsed(since, now) > REQUEST_WITHIN:
                self._cut(handler)

    def _cut(self, handler: web.RequestHandler) -> None:
        transport, _ = self._open.pop(handler)
        transport.abort()


def _response(answer: Answer) -> web.Response:
    headers = {**HEADERS, "Content-Type": answer.content_type, **answer.headers}
    return web.Response(status=answer.status, headers=headers, body=answer.body)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY)
