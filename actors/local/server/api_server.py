"""`ApiServer`: the HTTPS server of the embedded cluster.

A client that can create a pod runs commands as the server's user. Therefore the server listens on 127.0.0.1 only,
speaks TLS only, and answers every request without the bearer token by 401, unknown paths included. The Host header must
be a loopback name, which stops a web page whose own name resolves to 127.0.0.1.

Any local user can connect, so a connection that has not shown the token may neither last nor be one of many, and what
it sends is worth at most one line of the log, at DEBUG.

It runs on a daemon thread with its own event loop; `stop` leaves no thread, task or socket.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import weakref
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http import HttpProcessingError

from actors.local.schema.statuses import ApiStatus, internal_error
from actors.local.server.responses import status_response
from actors.local.server.routes import Routes
from actors.runtime import start_thread
from actors.text import get_logger
from actors.text.http_log import HttpLog

if TYPE_CHECKING:
    import ssl
    import threading
    from collections.abc import Sequence

    from aiohttp.typedefs import Handler, Middleware

    from actors.local.server.credentials import ServerCredentials
    from actors.local.server.pod_logs import LogSource
    from actors.local.store.object_store import ObjectStore
    from actors.runtime import Clock, Entropy

__all__ = ["MAX_STRANGERS", "STRANGER_SECONDS", "ApiServer"]

logger = get_logger(__name__)

_ADDRESS: Final = "127.0.0.1"
_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_MAX_BODY: Final = 3 * 1024 * 1024
"""A real server's limit: etcd's request limit and some overhead."""
_BOOKMARK_SECONDS: Final = 60.0
"""A real server's watch cache sends one about once a minute."""
_SHUTDOWN_SECONDS: Final = 1.0
"""For cancelled handlers to end; they wait for nothing."""


MAX_STRANGERS: Final = 64
"""Connections that have not shown the token. For one more, the oldest is closed: who has the token shows it within
milliseconds. A process may have 1,024 files open by default."""
STRANGER_SECONDS: Final = 10.0
"""For the TLS handshake and the headers of the first request."""
_BACKLOG: Final = 128
_NO_FILES_SECONDS: Final = 1.0
"""Between two tries to accept while the process cannot open another file."""


class ApiServer:
    """Serves one object store.

    Args:
        store: the objects.
        logs: finds the files that `pods/log` reads.
        credentials: the token to require and the certificate to present.
        clock: for ages in tables.
        entropy: for the duration of watches.
        port: 0 for any free one.
        middlewares: run for authorised requests, outermost first; inject faults here.
    """

    def __init__(
        self,
        store: ObjectStore,
        logs: LogSource,
        credentials: ServerCredentials,
        clock: Clock,
        entropy: Entropy,
        *,
        port: int = 0,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._store = store
        self._routes = Routes(store, logs, clock, entropy)
        self._credentials = credentials
        self._authorization = f"bearer {credentials.token}".encode()
        self._requested_port = port
        self._middlewares = (self._guard, _statuses, *middlewares)
        self._port = 0
        self._connections: _Connections | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._handlers: set[asyncio.Task[object]] = set()
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    @property
    def url(self) -> str:
        """The address, after `start`."""
        return f"https://{_ADDRESS}:{self._port}"

    def start(self) -> None:
        """Start, and return when the server listens. Raises OSError if it cannot, for example if the port is taken."""
        listening: Future[None] = Future()
        self._thread = start_thread(partial(self._run, listening), "executor-pods/api-server")
        try:
            listening.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every stream and handler and close every socket. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        self._loop = self._stopping = None

    # ── The thread ────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, listening: Future[None]) -> None:
        try:
            asyncio.run(self._serve(listening))
        except BaseException as error:  # raised in `start`
            if listening.done():
                logger.exception("API server died")
            else:
                listening.set_exception(error)

    async def _serve(self, listening: Future[None]) -> None:
        link = _Link(self._middlewares, self._routes.handle)
        application = web.Application(client_max_size=_MAX_BODY, middlewares=[link.through_middlewares])
        application.router.add_route("*", "/{path:.*}", link.handle, expect_handler=_expect_later)
        runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            logger=HttpLog(logger, HttpProcessingError),
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        await runner.setup()
        try:
            assert runner.server is not None
            listener = _listen(self._requested_port)
            self._connections = _Connections(listener, runner.server, self._credentials.tls)
            self._port = listener.getsockname()[1]
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            listening.set_result(None)
            await self._until_stopped(self._stopping)
        finally:
            if self._connections is not None:
                await self._connections.close()
            await self._close_connections(runner)
            await runner.cleanup()
            link.close()

    async def _close_connections(self, runner: web.AppRunner) -> None:
        """End all handlers, then all connections: a client that keeps its connection open must not delay `stop`.

        The server forgets a connection when it begins to close it, while TLS may still wait for the client.
        """
        connections = runner.server.connections if runner.server is not None else ()
        transports = {*self._transports, *(each.transport for each in connections)}
        for task in self._handlers:
            task.cancel()
        if self._handlers:
            await asyncio.wait(self._handlers, timeout=_SHUTDOWN_SECONDS)
        for transport in transports:
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)  # lets each protocol release its lost connection

    async def _until_stopped(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                async with asyncio.timeout(_BOOKMARK_SECONDS):
                    await stopping.wait()
            except TimeoutError:
                self._store.bookmark()

    # ── Before routing ────────────────────────────────────────────────────────────────────────────────────────────

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse every request without the token; the answer reveals nothing."""
        if isinstance(request.transport, asyncio.Transport):
            self._transports.add(request.transport)
        scheme, space, token = request.headers.get("Authorization", "").partition(" ")
        given = f"{scheme.lower()}{space}{token}".encode(errors="surrogateescape")
        if not hmac.compare_digest(given, self._authorization):
            return status_response(ApiStatus(401, "Unauthorized", "Unauthorized"))
        if self._connections is not None:
            self._connections.token_shown(request.protocol)
        name = request.headers.get("Host", "").lower()
        name = name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]
        if name not in _LOOPBACK_NAMES:
            return status_response(ApiStatus(403, "Forbidden", "the Host header must name this machine's loopback"))
        if (expected := request.headers.get("Expect", "").lower()) == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif expected:
            return status_response(
                ApiStatus(417, "ExpectationFailed", "the only supported expectation is 100-continue")
            )
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            return await handler(request)
        finally:
            self._handlers.discard(task)


class _Connections:
    """Accepts connections, and closes those that do not show the token in time or are too many."""

    def __init__(self, listener: socket.socket, protocols: web.Server, tls: ssl.SSLContext) -> None:
        self._listener = listener
        self._protocols = protocols
        self._tls = tls
        self._strangers: dict[asyncio.Task[None], None] = {}
        """Those that have not shown the token, oldest first."""
        self._shown: dict[asyncio.BaseProtocol, asyncio.Event] = {}
        self._accepting = asyncio.create_task(self._accept())

    def token_shown(self, protocol: asyncio.BaseProtocol) -> None:
        """Let a connection stay, for as long as it is used."""
        if (shown := self._shown.get(protocol)) is not None:
            shown.set()

    async def close(self) -> None:
        """Accept no more, and close who has not shown the token."""
        tasks = [self._accepting, *self._strangers]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._listener.close()

    async def _accept(self) -> None:
        loop, warned = asyncio.get_running_loop(), False
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                if not warned:
                    logger.warning("no connection accepted: error=%s", error.strerror)
                warned = True
                await asyncio.sleep(_NO_FILES_SECONDS)
                continue
            warned = False
            if len(self._strangers) >= MAX_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.cancel()
            stranger = asyncio.create_task(self._meet(connection))
            self._strangers[stranger] = None
            stranger.add_done_callback(lambda task: self._strangers.pop(task, None))
            await asyncio.sleep(0)  # a flood of connections leaves the loop to others, too

    async def _meet(self, connection: socket.socket) -> None:
        """Serve a connection; close it if it does not show the token in time."""
        protocol, shown = self._protocols(), asyncio.Event()
        self._shown[protocol] = shown
        transport: asyncio.BaseTransport | None = None
        try:
            async with asyncio.timeout(STRANGER_SECONDS):
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: protocol, connection, ssl=self._tls
                )
                await shown.wait()
        except OSError:  # also a timeout and a failed handshake
            pass
        finally:
            del self._shown[protocol]
            if isinstance(transport, asyncio.Transport) and not shown.is_set():
                transport.abort()
            elif transport is None:
                connection.close()


class _Link:
    """The only object through which an aiohttp application refers to its server.

    Aiohttp caches a thousand applications per process. Without this indirection each would keep a whole store alive.
    """

    def __init__(self, middlewares: Sequence[Middleware], handler: Handler) -> None:
        self._middlewares = middlewares
        self._handler: Handler | None = handler

    def close(self) -> None:
        """Release the server: no more requests come."""
        self._middlewares, self._handler = (), None

    @web.middleware
    async def through_middlewares(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Call all middlewares, even for a request that no route matches."""
        for middleware in reversed(self._middlewares):
            handler = partial(middleware, handler=handler)
        return await handler(request)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Call the server's handler."""
        if self._handler is None:
            raise web.HTTPServiceUnavailable
        return await self._handler(request)


async def _expect_later(request: web.Request) -> None:
    """Do nothing: aiohttp would answer an `Expect` header before the token is checked. `_guard` answers it."""


@web.middleware
async def _statuses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every refusal and every failure with a `Status`."""
    try:
        return await handler(request)
    except ApiStatus as status:
        return status_response(status)
    except web.HTTPRequestEntityTooLarge:
        message = f"Request entity too large: limit is {_MAX_BODY}"
        return status_response(ApiStatus(413, "RequestEntityTooLarge", message))
    except (web.HTTPException, ConnectionError):
        raise
    except Exception:  # a bug in one answer must not break the connection
        logger.exception("request not answered: method=%s path=%s", request.method, request.path)
        return status_response(internal_error("internal error of the embedded cluster; see its log"))


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_ADDRESS, port))
        listener.listen(_BACKLOG)
        listener.settimeout(0)
    except BaseException:
        listener.close()
        raise
    return listener
