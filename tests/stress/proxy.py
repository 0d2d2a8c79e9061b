"""A proxy that breaks connections between a client and the embedded cluster's server, byte by byte, by seed.

It ends the client's TLS with a certificate of its own and opens a connection to the server for each request. So it can
do what no wrapper of a `PodApi` can: cut in the middle of a character, answer half a header, accept and say nothing.
One thread, one event loop; everything it decides comes from one `Random`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar

from actors.local.server.credentials import ServerCredentials, new_credentials, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from random import Random

    from actors.runtime import Clock

__all__ = ["CircuitBreaker", "Odds", "Proxy"]

T = TypeVar("T")

CircuitBreaker: TypeAlias = Literal["refuses", "is silent"]
"""Nobody listens; or connections are accepted, read, and never answered."""

LOOPBACK: Final = "127.0.0.1"
SAFETY: Final = 30.0
"""Seconds for the loop to do what it is asked to."""

RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""

LONGEST_LINE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Odds:
    """How probable each fault is: the first group of a request, the second of each chunk of a watch."""

    too_many: float = 0.0
    """429 with `Retry-After: 1`."""
    broken: float = 0.0
    """500, 503, or a page of a gateway that is no `Status`."""
    expired: float = 0.0
    """410: as a status to a list, as an ERROR event to a watch."""
    hang: float = 0.0
    """Half-open: the request is read, nothing is ever answered or closed."""
    refuse: float = 0.0
    """The connection is closed or reset before any answer."""
    lose: float = 0.0
    """The server answers; a part of the answer, perhaps none, arrives before the connection breaks."""
    delay: float = 0.0

    cut: float = 0.0
    """A reset, or an end, in the middle of a chunk."""
    freeze: float = 0.0
    """Half-open."""
    stall: float = 0.0
    """Everything from here on comes later, in order."""
    expire: float = 0.0
    """An ERROR event with 410, then the end."""
    fail: float = 0.0
    """An ERROR event with 500, then the end."""
    finish: float = 0.0
    """A clean end, long before its time."""
    scatter: float = 0.0
    """No fault: the chunk comes in other chunks, their borders anywhere."""

    longest_delay: float = 2.0
    """Seconds."""
    longest_stall: float = 6.0
    """Seconds."""


CALM: Final = Odds()
_OF_REQUESTS: Final = ("too_many", "broken", "expired", "hang", "refuse", "lose", "delay")
_OF_CHUNKS: Final = ("cut", "freeze", "stall", "expire", "fail", "finish", "scatter")
assert {*_OF_REQUESTS, *_OF_CHUNKS} < {field.name for field in fields(Odds)}


class Proxy:
    """Between whoever reads `kubeconfig` and a server. A context manager."""

    def __init__(self, server: str, credentials: ServerCredentials, random: Random, clock: Clock) -> None:
        """`server` is the URL of the real one, whose credentials these are."""
        self.odds = CALM
        """Can be replaced at any time."""
        self.faults: Counter[str] = Counter()
        """What was done so far, by name."""
        self.on_request: Callable[[bytes], object] = lambda _: None
        """Called in our thread with the first line of each request that has arrived."""
        self.connections: list[float] = []
        """When each was accepted."""
        self._server_port = int(server.rsplit(":", 1)[1])
        self._trust = ssl.create_default_context(cadata=credentials.authority.decode())
        self._credentials = replace(new_credentials(), token=credentials.token)
        self._random = random
        self._clock = clock
        self._outage: CircuitBreaker | None = None
        self._port = 0
        self._listener: socket.socket | None = None
        self._open: dict[asyncio.Task[None], socket.socket] = {}
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), name="proxy", daemon=True)
        self._thread.start()
        ready.result(SAFETY)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(SAFETY)
        assert not self._thread.is_alive(), "the proxy does not end"

    def write_kubeconfig(self, path: Path) -> None:
        """A kubeconfig that leads here, and trusts us."""
        write_kubeconfig(path, f"https://{LOOPBACK}:{self._port}", self._credentials, "default")

    def outage(self, kind: CircuitBreaker) -> None:
        """From now on nobody gets through. Connections that are open break, or go silent for good."""
        self._do(self._begin_outage(kind))

    def end_outage(self) -> None:
        """Listen again."""
        self._do(self._listen(None))

    # ── its thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _do(self, what: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(SAFETY)

    async def _run(self, ready: Future[None]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await self._listen(None)
        ready.set_result(None)
        await self._stopping.wait()
        self._close_listener()
        await self._end_connections()

    async def _listen(self, outage: CircuitBreaker | None) -> None:
        """Accept by hand: `asyncio.Server` loses a connection that it accepts while it is being closed (gh-109564)."""
        self._outage = outage
        if self._listener is None:
            self._listener = socket.create_server((LOOPBACK, self._port))
            self._listener.settimeout(0)
            self._port = self._listener.getsockname()[1]
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _begin_outage(self, kind: CircuitBreaker) -> None:
        if kind == "is silent":
            await self._listen(kind)
            return
        self._outage = kind
        self._close_listener()
        await self._end_connections()

    async def _end_connections(self) -> None:
        for sock in self._open.values():
            _reset(sock)
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):
            sock, _ = listener.accept()
            self.connections.append(self._clock.monotonic())
            task = self._loop.create_task(self._serve(sock))
            self._open[task] = sock
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task).close()

    async def _serve(self, sock: socket.socket) -> None:
        """One connection, as long as its client keeps it."""
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        protocol = asyncio.StreamReaderProtocol(reader)
        context = None if self._outage else self._credentials.tls
        with suppress(OSError, asyncio.IncompleteReadError):
            accepting = self._loop.create_task(self._loop.connect_accepted_socket(lambda: protocol, sock, ssl=context))
            transport, _ = await _opened(accepting, lambda ends: ends[0], partial(_shut_down, sock))
            try:
                if context is None:
                    await _until_gone(reader)
                    return
                writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
                while (request := await _read_request(reader)) is not None:
                    self.on_request(request.line)
                    if not await self._while_it_is_there(reader, _Exchange(self, request, writer, sock)):
                        break
            finally:
                transport.abort()
                await asyncio.sleep(0)  # it is told of its end, and lets go of the socket

    async def _while_it_is_there(self, reader: asyncio.StreamReader, exchange: _Exchange) -> bool:
        """Answer, unless the client goes before; whether it may send another request."""
        answer = asyncio.create_task(exchange.answer())
        gone = asyncio.create_task(_until_gone(reader))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            return answer.done() and answer.result()
        finally:
            for task in (answer, gone):
                task.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    # ── for an exchange ──────────────────────────────────────────────────────────────────────────────────────────

    def draw(self, *kinds: str) -> str | None:
        """At most one of these faults."""
        dice = self._random.random()
        for kind in kinds:
            dice -= getattr(self.odds, kind)
            if dice < 0:
                self.faults[kind] += 1
                return kind
        return None

    def fraction(self) -> float:
        """Of anything."""
        return self._random.random()

    def is_silent(self) -> bool:
        """What is answered from now on reaches nobody."""
        return self._outage is not None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server."""
        opening = asyncio.create_task(
            asyncio.open_connection(
                LOOPBACK, self._server_port, ssl=self._trust, server_hostname=LOOPBACK, limit=LONGEST_LINE
            )
        )
        return await _opened(opening, lambda ends: ends[1].transport)


@dataclass(frozen=True, slots=True)
class _Request:
    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def watches(self) -> bool:
        return b"watch=true" in self.line


class _Exchange:
    """One request, its answer, and what goes wrong with it."""

    def __init__(self, proxy: Proxy, request: _Request, writer: asyncio.StreamWriter, sock: socket.socket) -> None:
        self._proxy = proxy
        self._request = request
        self._writer = writer
        self._socket = sock

    async def answer(self) -> bool:
        """Whether the connection can be used again."""
        proxy = self._proxy
        match proxy.draw(*_OF_REQUESTS):
            case "too_many":
                return await self._refuse(429, "TooManyRequests", "Retry-After: 1\r\n")
            case "broken":
                return await self._break()
            case "expired" if self._request.watches:
                await self._send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                return await self._error_event(410, "Expired")
            case "expired":
                return await self._refuse(410, "Expired")
            case "hang":
                await _for_ever()
            case "refuse":
                return self._hang_up()
            case "delay":
                await asyncio.sleep(proxy.fraction() * proxy.odds.longest_delay)
            case "lose":
                return await self._forward(loses=True)
            case _:
                pass
        return await self._forward(loses=False)

    # ── what the server would not say ────────────────────────────────────────────────────────────────────────────

    async def _break(self) -> bool:
        match int(self._proxy.fraction() * 3):
            case 0:
                return await self._refuse(500, "InternalError")
            case 1:
                return await self._refuse(503, "ServiceUnavailable")
            case _:
                page = b"<html>Bad Gateway</html>"
                await self._send(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page))
                return True

    async def _refuse(self, code: int, reason: str, header: str = "") -> bool:
        body = json.dumps(_status(code, reason)).encode()
        head = f"HTTP/1.1 {code} No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{header}\r\n"
        await self._send(head.encode() + body)
        return True

    async def _error_event(self, code: int, reason: str) -> bool:
        event = json.dumps({"type": "ERROR", "object": _status(code, reason)}).encode() + b"\n"
        await self._send(_chunk(event) + b"0\r\n\r\n")
        return False

    def _hang_up(self) -> bool:
        if self._proxy.fraction() < 0.5:
            _reset(self._socket)
        return False

    # ── what it does say ─────────────────────────────────────────────────────────────────────────────────────────

    async def _forward(self, *, loses: bool) -> bool:
        reader, writer = await self._proxy.connect()
        try:
            writer.write(self._request.head + self._request.body)
            await writer.drain()
            if self._request.watches and not loses:
                return await self._stream(reader)
            head, _, body = (await self._whole(reader)).partition(b"\r\n\r\n")
            answer = head.replace(b"\r\nConnection: close", b"") + b"\r\n\r\n" + body
            if loses:
                await self._send(answer[: int(self._proxy.fraction() * len(answer))])
                return self._hang_up()
            await self._send(answer)
            return True
        finally:
            writer.transport.abort()

    async def _whole(self, reader: asyncio.StreamReader) -> bytes:
        """All that the server says; of a watch, its first words."""
        return await (reader.read(LONGEST_LINE) if self._request.watches else reader.read(-1))

    async def _stream(self, reader: asyncio.StreamReader) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        await self._send(head)
        if b"chunked" not in head:
            await self._send(await reader.read(-1))
            return False
        while size := int(await reader.readline(), 16):
            data = (await reader.readexactly(size + 2))[:-2]
            if not await self._pass_on(data):
                return False
        await self._send(b"0\r\n\r\n")
        return False

    async def _pass_on(self, data: bytes) -> bool:
        """Whether the stream goes on after this chunk."""
        proxy = self._proxy
        border = int(proxy.fraction() * len(data))
        match proxy.draw(*_OF_CHUNKS):
            case "cut":
                await self._send(_chunk(data)[:border])
                return self._hang_up()
            case "freeze":
                await _for_ever()
            case "stall":
                await asyncio.sleep(proxy.fraction() * proxy.odds.longest_stall)
            case "expire":
                return await self._error_event(410, "Expired")
            case "fail":
                return await self._error_event(500, "InternalError")
            case "finish":
                await self._send(b"0\r\n\r\n")
                return False
            case "scatter" if border:
                await self._send(_chunk(data[:border]))
                data = data[border:]
            case _:
                pass
        await self._send(_chunk(data))
        return True

    async def _send(self, data: bytes) -> None:
        if self._proxy.is_silent():
            await _for_ever()
        self._writer.write(data)
        await self._writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """The next request of a connection, to be sent on one that serves no other; None when there is none any more."""
    with suppress(asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(b"connection:")]
        lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
        body = await reader.readexactly(lengths[0] if lengths else 0)
        return _Request(b"\r\n".join([*lines, b"Connection: close", b"", b""]), body)
    return None


async def _until_gone(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(LONGEST_LINE):
            pass


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _opened(
    opening: asyncio.Task[T], transport_of: Callable[[T], Any], end: Callable[[], None] = lambda: None
) -> T:
    """Return a new connection. If cancelled, end it and await its handshake: asyncio leaks what is cancelled in it."""
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        end()
        while not opening.done():  # the proxy's end may cancel it once more
            with suppress(asyncio.CancelledError):
                await asyncio.wait({opening})
        with suppress(OSError):
            transport_of(opening.result()).abort()
        raise


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _reset(sock: socket.socket) -> None:
    """Whatever is on its way when it is closed is lost, and the client is told so."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _status(code: int, reason: str) -> dict[str, object]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{reason} (injected)",
        "reason": reason,
        "code": code,
    }
