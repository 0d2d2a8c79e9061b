"""`ApiServer`: the HTTP door of the embedded cluster.

It listens on 127.0.0.1 only, speaks TLS only, and answers nothing, not even a path that does not exist, without the
bearer token: whoever can create a pod here runs commands as the user who started it. The Host header must be a loopback
name, so that a web page cannot reach it by a name of its own that resolves to 127.0.0.1.

It runs on a daemon thread with its own event loop; `stop` leaves no thread, task or socket.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import threading
import weakref
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web

from actors.local.schema.statuses import ApiStatus, internal_error
from actors.local.server.responses import status_response
from actors.local.server.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp.typedefs import Handler, Middleware

    from actors.local.server.credentials import ServerCredentials
    from actors.local.server.pod_logs import LogSource
    from actors.local.store.object_store import ObjectStore
    from actors.runtime import Clock, Entropy

__all__ = ["ApiServer"]

logger = logging.getLogger(__name__)

_ADDRESS: Final = "127.0.0.1"
_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_MAX_BODY: Final = 3 * 1024 * 1024
"""What a real server takes (`DefaultMaxRequestBodyBytes`-ish: etcd's request limit and some)."""
_BOOKMARK_SECONDS: Final = 60.0
"""A real server's watch cache sends one about once a minute."""
_SHUTDOWN_SECONDS: Final = 1.0
"""For answers to notice that they are cancelled; they have nothing to wait for."""


class ApiServer:
    """Serves one object store.

    Args:
        store: what it serves.
        logs: where `pods/log` finds what containers wrote.
        credentials: the token it wants and the certificate it shows.
        clock: for ages in tables.
        entropy: for the length of watches.
        port: 0 for any free one.
        middlewares: run for authorised requests, outermost first: the place for injected faults.
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
        self._wanted_port = port
        self._middlewares = (self._guard, _statuses, *middlewares)
        self._port = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._answering: set[asyncio.Task[object]] = set()
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    @property
    def url(self) -> str:
        """Where it listens, once started."""
        return f"https://{_ADDRESS}:{self._port}"

    def start(self) -> None:
        """Return when it listens. Raises OSError if it cannot, as when the port is taken."""
        listening: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name="executor-pods/api-server", daemon=True
        )
        self._thread.start()
        try:
            listening.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cut every stream, finish or give up every answer, close every socket. A second call is nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        self._loop = self._stopping = None

    # ── The thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, listening: Future[None]) -> None:
        try:
            asyncio.run(self._serve(listening))
        except BaseException as error:  # whoever starts the server gets it
            if listening.done():
                logger.exception("API server died")
            else:
                listening.set_exception(error)

    async def _serve(self, listening: Future[None]) -> None:
        door = _Door(self._middlewares, self._routes.handle)
        application = web.Application(client_max_size=_MAX_BODY, middlewares=[door.enter])
        application.router.add_route("*", "/{path:.*}", door.handle, expect_handler=_after_the_guard)
        runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        await runner.setup()
        try:
            listener = _listen(self._wanted_port)
            await web.SockSite(runner, listener, ssl_context=self._credentials.tls).start()
            self._port = listener.getsockname()[1]
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            listening.set_result(None)
            await self._until_stopped(self._stopping)
        finally:
            await self._cut_everything(runner)
            await runner.cleanup()
            door.close()

    async def _cut_everything(self, runner: web.AppRunner) -> None:
        """End all answers, then all connections: a client that does not say goodbye must not hold up the end.

        The server forgets a connection once it has begun to close it; the last TLS words may then still be open.
        """
        connections = runner.server.connections if runner.server is not None else ()
        transports = {*self._transports, *(each.transport for each in connections)}
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering, timeout=_SHUTDOWN_SECONDS)
        for transport in transports:
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)  # Each is told of the loss of its connection, and lets go of it.

    async def _until_stopped(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                async with asyncio.timeout(_BOOKMARK_SECONDS):
                    await stopping.wait()
            except TimeoutError:
                self._store.bookmark()

    # ── Before any request is looked at ──────────────────────────────────────────────────────────────────────────

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Nobody gets past this without the token; what is refused is told nothing."""
        if isinstance(request.transport, asyncio.Transport):
            self._transports.add(request.transport)
        scheme, space, token = request.headers.get("Authorization", "").partition(" ")
        given = f"{scheme.lower()}{space}{token}".encode(errors="surrogateescape")
        if not hmac.compare_digest(given, self._authorization):
            return status_response(ApiStatus(401, "Unauthorized", "Unauthorized"))
        name = request.headers.get("Host", "").lower()
        name = name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]
        if name not in _LOOPBACK_NAMES:
            return status_response(ApiStatus(403, "Forbidden", "the Host header must name this machine's loopback"))
        if (expected := request.headers.get("Expect", "").lower()) == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif expected:
            return status_response(ApiStatus(417, "ExpectationFailed", "the only expectation met is 100-continue"))
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            return await handler(request)
        finally:
            self._answering.discard(task)


class _Door:
    """All that an application holds of its server.

    Aiohttp keeps applications in a cache of the process, a thousand of them: with the server, each would keep a store
    and all that ever happened in it.
    """

    def __init__(self, middlewares: Sequence[Middleware], handler: Handler) -> None:
        self._middlewares = middlewares
        self._handler: Handler | None = handler

    def close(self) -> None:
        """Let go of the server: there are no more requests."""
        self._middlewares, self._handler = (), None

    @web.middleware
    async def enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Through all middlewares, also with a request that no route takes."""
        for middleware in reversed(self._middlewares):
            handler = partial(middleware, handler=handler)
        return await handler(request)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """What the server answers."""
        if self._handler is None:
            raise web.HTTPServiceUnavailable
        return await self._handler(request)


async def _after_the_guard(request: web.Request) -> None:
    """Aiohttp would answer an `Expect` header before anybody has asked for the token: the guard does, afterwards."""


@web.middleware
async def _statuses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal and every failure becomes a `Status`."""
    try:
        return await handler(request)
    except ApiStatus as status:
        return status_response(status)
    except web.HTTPRequestEntityTooLarge:
        message = f"the request is larger than {_MAX_BODY} bytes"
        return status_response(ApiStatus(413, "RequestEntityTooLarge", message))
    except (web.HTTPException, ConnectionError):
        raise
    except Exception:  # a bug in one answer must not become a broken connection
        logger.exception("request not answered: method=%s path=%s", request.method, request.path)
        return status_response(internal_error("an error of the embedded cluster; its log says more"))


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_ADDRESS, port))
    except BaseException:
        listener.close()
        raise
    return listener
