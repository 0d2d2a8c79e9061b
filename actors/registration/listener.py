"""The driver's side: accept executors, ask the fleet whether they may register, hand out work, notice who is lost.

It tells the driver three things, by a function such as an actor's `tell` or a queue's `put_nowait`: `Connected`, then
any number of `Answered`, then `Disconnected`, in this order for each connection. Nothing comes from a connection after
`Disconnected`, and each work is answered at most once: the driver takes back what it gave and has no answer to.

What comes from the network may be wrong at any time: a line that the protocol does not have ends its connection, and
nothing else.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from actors.registration.door import awaitable
from actors.registration.executor import (
    BEAT,
    BEAT_EVERY,
    LONGEST_LINE,
    SILENCE_LIMIT,
    LineReader,
    ProtocolError,
    encode,
)
from actors.registration.silence import heard, is_same_address, why_silent
from actors.text import get_logger

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from actors.messages import Suspected
    from actors.registration.door import AsyncDoor, Door

logger = get_logger(__name__)

TURNS: Final = 10
"""Parts of `BEAT_EVERY`. Heartbeats are sent to one part of the executors in each."""

HELLO_LIMIT: Final = BEAT_EVERY
"""Seconds that a connection has to say who it is."""

LONGEST_HELLO: Final = 4096
"""Bytes: what a stranger may make the driver keep."""

MOST_STRANGERS: Final = 1000
"""Connections that have not said who they are, see `most_strangers`. One more ends the oldest: an executor says it at
once."""

STRANGERS_SHARE: Final = 4
"""Strangers get one of so many of the process's file descriptors. The fleet and its executors need the others."""

MOST_UNSENT: Final = 2**23
"""Bytes for an executor that does not read. One more line, and its connection counts as lost."""

START_LIMIT: Final = 30.0
"""Seconds since the listener's start in which no executor is refused for good: it is turned away, and comes again.

A Backend that starts again learns only within seconds of `BackendStarted` which executors its predecessor left.
"""

HIGHEST_ID: Final = 10**18 - 1


def most_strangers() -> int:
    """Return how many connections may be open that have not said who they are: this process has few descriptors."""
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return MOST_STRANGERS
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MOST_STRANGERS
    return min(MOST_STRANGERS, max(1, descriptors // STRANGERS_SHARE))


@dataclass(frozen=True, slots=True)
class Connected:
    """An executor is registered and ready for work."""

    connection: Connection


@dataclass(frozen=True, slots=True)
class Answered:
    """An executor's answer to a work that this connection was given. Comes at most once for each."""

    connection: Connection
    work_id: int
    answer: Any


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The last that comes from a connection. The executor may connect again, or be gone."""

    connection: Connection


Event: TypeAlias = Connected | Answered | Disconnected


class Connection(asyncio.Protocol):
    """One connection of an executor. A driver uses `executor_id`, `send` and `stop`, from any thread."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.executor_id = 0
        """0 until it has said who it is."""
        self.process = ""
        """Drawn by each process: tells an executor that connects again from another that claims its id."""
        self.may_be_registered = False
        """With the fleet, by this connection: the fleet was asked, and has not said no."""
        self.has_ended = False
        self.suspected: Suspected | None = None
        """Why it has ended, if that can be told."""
        self._said_from: object = None
        """The address that the executor has of itself."""
        self.heard_at = listener.now()
        self._works: set[int] = set()
        """Those without an answer."""
        self._lines = LineReader(LONGEST_HELLO)

    def __repr__(self) -> str:
        return f"<Connection of executor {self.executor_id}>"

    # ── for the driver ──────────────────────────────────────────────────────────────────────────────────────────

    def send(self, work_id: int, work: Any) -> None:
        """Give the executor a work, unless the connection has ended: `Disconnected` comes then, or has come.

        Raises:
            TypeError, ValueError: the work is not JSON, or is too long.
        """
        line = encode({"type": "work", "work_id": work_id, "work": work})
        self._listener.call(self._send, work_id, line)

    def stop(self) -> None:
        """Tell the executor to do the works that it was given, answer them and end."""
        self._listener.call(self.write, encode({"type": "stop"}))

    def _send(self, work_id: int, line: bytes) -> None:
        if not self.has_ended:
            self._works.add(work_id)
            self.write(line)

    # ── for the listener ────────────────────────────────────────────────────────────────────────────────────────

    def write(self, line: bytes) -> None:
        """Send a line, unless the connection has ended. An executor that has not read much of the last ones is lost."""
        if self.has_ended:
            return
        if self._transport.get_write_buffer_size() + len(line) > MOST_UNSENT:
            self.suspected = self._why_silent()
            self.end("it does not read")
        else:
            self._transport.write(line)

    def welcome(self) -> None:
        """Say that the executor is registered, and that work may come."""
        self.write(encode({"type": "welcome"}))

    def refuse(self, reason: str) -> None:
        """Say that the executor shall not come again, and end."""
        if self.has_ended:
            return
        level = logging.INFO if self.executor_id else logging.DEBUG  # a stranger may come a thousand times a second
        logger.log(level, "executor refused: executor=%d reason=%s", self.executor_id, reason)
        self._transport.write(encode({"type": "refused", "reason": reason}))
        self._transport.close()
        self._end()

    def end_silent(self) -> None:
        """End because nothing is heard any more."""
        self.suspected = self._why_silent()
        self.end("it is silent")

    def _why_silent(self) -> Suspected | None:
        """Return why nothing comes though the connection is open, as far as the kernel tells."""
        last = heard(self._transport.get_extra_info("socket"))
        return why_silent(last, is_direct=is_same_address(self._transport.get_extra_info("peername"), self._said_from))

    def end(self, why: str) -> None:
        """End without another word. The executor may come again."""
        if not self.has_ended:
            logger.debug("connection ended: executor=%d why=%s", self.executor_id, why)
            self._transport.abort()
            self._end()

    def _end(self) -> None:
        self.has_ended = True
        self._works.clear()
        self._listener.ended(self)

    # ── from the loop ───────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.arrived(self)

    def connection_lost(self, _: Exception | None) -> None:
        """The connection is closed, by whom ever.

        A process that hangs closes nothing. If it has ended, its pod says so; if it lives, it cannot come back.
        """
        if not self.has_ended:
            self.suspected = "network"
            self._end()

    def data_received(self, data: bytes) -> None:
        """Take what has come: any part of a line, or many lines."""
        if self.executor_id:  # a stranger has its limit, whatever it sends
            self.heard_at = self._listener.now()
        try:
            for message in self._lines.feed(data):
                self._take(message)
                if self.has_ended:
                    return
        except ProtocolError as error:
            self.end(str(error))

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "hello", "executor_id": int(executor_id), "token": str(token), "process": str(process)} if (
                not self.executor_id and type(executor_id) is int and 0 < executor_id <= HIGHEST_ID
            ):
                if self._listener.is_token(token):
                    self.executor_id, self.process = executor_id, process
                    self._said_from = message.get("from")
                    self._lines.longest = LONGEST_LINE
                    self._listener.said_hello(self)
                else:
                    self.refuse("the token is wrong")
            case {"type": "beat"} if self.executor_id:
                pass
            case {"type": "answer", "work_id": int(work_id), "answer": answer} if (
                self.executor_id and type(work_id) is int
            ):
                if work_id in self._works:
                    self._works.remove(work_id)
                    self._listener.tell(Answered(self, work_id, answer))
                else:
                    logger.debug("answer dropped, no such work: executor=%d work=%.40r", self.executor_id, work_id)
            case _:
                raise ProtocolError("no such message")


class Listener:
    """The executors' connections, for the running loop. `ListenerThread` is for drivers without one.

    Args:
        token: what executors find as `DRIVER_TOKEN`, such as `secrets.token_urlsafe()`, without white space around it.
        tell: called in the loop with each `Connected`, `Answered` and `Disconnected`. It must not block.
    """

    def __init__(self, token: str, tell: Callable[[Event], object]) -> None:
        if not token.strip():
            raise ValueError("the token is empty: use secrets.token_urlsafe(), and give it to the executors")
        self._tell = tell
        self._server: asyncio.Server | None = None
        self._token = token.strip().encode()
        self._open: dict[Connection, None] = {}
        """All that have not ended, in the order in which they came."""
        self._strangers: dict[Connection, None] = {}
        """Those that have not said who they are."""
        self._most_strangers = most_strangers()
        self._known: dict[int, Connection] = {}
        """By executor id: the connection that was told to the driver and has not ended."""
        self._changed: asyncio.Queue[Connection] = asyncio.Queue()
        """Connections that said hello or ended, in this order. The fleet is asked or told about one at a time."""

    async def serve(self, door: AsyncDoor | Door, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Begin to accept executors at a listening socket (`socket.create_server`). It is closed with the listener.

        Begin within `with Fleet(...)`, or when the driver receives `BackendStarted`: before, no executor is known. Who
        connects waits.

        Args:
            door: a `Fleet`, an `AsyncFleet`, or a `BackendDoor`.
            sock: listens.
            tls: of a server; None: no TLS.

        Raises:
            TypeError: the door is none.
        """
        self._begin(awaitable(door))
        limit = HELLO_LIMIT if tls is not None else None
        self._server = await self._loop.create_server(
            lambda: Connection(self), sock=sock, ssl=tls, ssl_handshake_timeout=limit
        )
        sock.listen(MOST_STRANGERS)  # wait in the kernel; `backlog` would also have the loop accept so many at once

    async def close(self) -> None:
        """End all connections. The driver is told nothing more; executors look for the next driver."""
        self._tell = lambda _: None
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._beat.cancel()
        self._settling.cancel()
        for connection in list(self._open):
            connection.end("the listener is closed")
        await asyncio.wait({self._settling})

    def _begin(self, door: AsyncDoor) -> None:
        self._loop = asyncio.get_running_loop()
        self._door = door
        self._refuses_from = self.now() + START_LIMIT
        self._settling = self._loop.create_task(self._settle_all())
        self._turn = 0
        self._beat = self._loop.call_later(BEAT_EVERY / TURNS, self._beat_due)

    # ── for the connections ─────────────────────────────────────────────────────────────────────────────────────

    def now(self) -> float:
        """Return the loop's time."""
        return self._loop.time()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop's thread."""
        with suppress(RuntimeError):  # the loop has ended, and all connections with it
            self._loop.call_soon_threadsafe(function, *arguments)

    def is_token(self, token: str) -> bool:
        """Whether it is the fleet's, in a time that says nothing about how much of it is right."""
        return hmac.compare_digest(token.encode(errors="replace"), self._token)

    def arrived(self, connection: Connection) -> None:
        """Somebody has connected."""
        self._open[connection] = None
        self._strangers[connection] = None
        if len(self._strangers) > self._most_strangers:
            next(iter(self._strangers)).end("too many connections that do not say who they are")

    def said_hello(self, connection: Connection) -> None:
        """Its token is right."""
        del self._strangers[connection]
        self._changed.put_nowait(connection)

    def ended(self, connection: Connection) -> None:
        """A connection has ended, by whatever way. Called once for each."""
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)
        if self._known.get(connection.executor_id) is connection:
            del self._known[connection.executor_id]
            self.tell(Disconnected(connection))
        if connection.may_be_registered:
            self._changed.put_nowait(connection)

    def tell(self, event: Event) -> None:
        """Tell the driver. Its failure is not the executors'."""
        try:
            self._tell(event)
        except Exception as error:  # noqa: BLE001 - such as pykka.ActorDeadError
            logger.warning("driver was not told: event=%r error=%r", event, error)

    # ── one after the other ─────────────────────────────────────────────────────────────────────────────────────

    async def _settle_all(self) -> None:
        while True:
            connection = await self._changed.get()
            try:
                await self._settle(connection)
            except Exception as error:  # noqa: BLE001 - whatever a fleet's door raises
                logger.warning("fleet did not answer: executor=%d error=%r", connection.executor_id, error)
                connection.end("the fleet did not answer")
            await asyncio.sleep(0)  # others have their turn, though a thousand come at once

    async def _settle(self, connection: Connection) -> None:
        """Make the fleet's registration of an executor follow its connection."""
        executor_id = connection.executor_id
        if connection.has_ended:
            if connection.may_be_registered and executor_id not in self._known:
                self._door.disconnected(executor_id, connection.suspected)
            return
        known = self._known.get(executor_id)
        if known is not None and known.process != connection.process:
            connection.refuse("another process with this executor id is connected")
            return
        connection.may_be_registered = True
        if not await self._door.register(executor_id):
            connection.may_be_registered = False
            if self.now() < self._refuses_from:
                connection.end("the fleet does not know it yet")
            else:
                connection.refuse("the fleet has no such executor, or has replaced it")
            return
        if connection.has_ended:  # while the fleet was asked: it is told in its turn
            return
        known = self._known.get(executor_id)
        if known is not None:
            known.may_be_registered = False  # it is this connection's now
            known.end("its executor has connected again")
        self._known[executor_id] = connection
        connection.welcome()
        self.tell(Connected(connection))

    def _beat_due(self) -> None:
        """End who is silent. Each executor has one turn in `BEAT_EVERY`: a thousand lines at once would take long."""
        self._beat = self._loop.call_later(BEAT_EVERY / TURNS, self._beat_due)
        self._turn = (self._turn + 1) % TURNS
        now = self.now()
        for connection in list(self._open):
            is_stranger = connection in self._strangers
            if now - connection.heard_at >= (HELLO_LIMIT if is_stranger else SILENCE_LIMIT):
                connection.end_silent()
            elif not is_stranger and connection.executor_id % TURNS == self._turn:
                connection.write(BEAT)


class ListenerThread:
    """Runs a listener in a thread of its own, for drivers that are no coroutines. `tell` is called in that thread."""

    def __init__(
        self, listener: Listener, door: AsyncDoor | Door, sock: socket.socket, tls: ssl.SSLContext | None = None
    ) -> None:
        self._begun: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(listener, door, sock, tls)), name="listener", daemon=True
        )
        self._thread.start()
        self._begun.result()

    def close(self) -> None:
        """End all connections and the thread."""
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _run(
        self, listener: Listener, door: AsyncDoor | Door, sock: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        self._loop, self._closed = asyncio.get_running_loop(), asyncio.Event()
        try:
            await listener.serve(door, sock, tls)
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._begun.set_exception(error)
            return
        self._begun.set_result(None)
        await self._closed.wait()
        await listener.close()
