"""A network in memory between the two sides of the registration protocol, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from actors.registration.executor import Executor, LineReader, encode
from actors.registration.listener import Answered, Connected, Connection, Disconnected, Listener
from actors.testing import Kit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from actors.messages import Suspected
    from actors.registration.door import AsyncDoor
    from actors.registration.listener import Event

T = TypeVar("T")

TOKEN = "right"


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test in virtual time."""
    with Kit() as kit:
        return kit.run(main)


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(20):
        await asyncio.sleep(0)


class End(asyncio.Transport):
    """One end of a connection. Writes are delivered in pieces of `piece` bytes."""

    def __init__(self, protocol: asyncio.Protocol, piece: int = 2**16) -> None:
        super().__init__()
        self.protocol = protocol
        self.peer: End
        self.piece = piece
        self.is_cut = False
        """Half open: nothing arrives any more, and neither end is told."""
        self.is_stuck = False
        """The peer does not read."""
        self.facts: dict[str, Any] = {}
        """What `get_extra_info` knows."""
        self._unsent = 0
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.facts.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self.is_cut:
            return
        if self.is_stuck:
            self._unsent += len(data)
            return
        loop = asyncio.get_running_loop()
        for start in range(0, len(data), self.piece):
            loop.call_soon(self.peer.receive, bytes(data[start : start + self.piece]))

    def receive(self, data: bytes) -> None:
        if not self._is_closing:
            self.protocol.data_received(data)

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self.protocol.connection_lost, None)
            if not self.is_cut:
                loop.call_soon(self.peer.abort)


def joined(one: asyncio.Protocol, other: asyncio.Protocol, piece: int = 2**16) -> tuple[End, End]:
    """Connect two protocols."""
    near, far = End(one, piece), End(other, piece)
    near.peer, far.peer = far, near
    other.connection_made(far)
    one.connection_made(near)
    return near, far


class Peer(asyncio.Protocol):
    """An executor's side that says exactly what a test lets it say."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.is_lost = False
        self._lines = LineReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, End)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += self._lines.feed(data)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_lost = True

    def say(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.transport.write(encode(message))

    @property
    def types(self) -> list[str]:
        return [message["type"] for message in self.heard if message["type"] != "beat"]


class Fleet:
    """The fleet behind the door."""

    def __init__(self) -> None:
        self.excluded: set[int] = set()
        self.registered: set[int] = set()
        self.calls: list[tuple[str, int]] = []
        self.suspected: list[Suspected | None] = []
        self.answers_within = 0.0
        self.error: Exception | None = None

    async def register(self, executor_id: int) -> bool:
        await asyncio.sleep(self.answers_within)
        if self.error is not None:
            self.registered.add(executor_id)  # a Backend that answers too late has registered it all the same
            raise self.error
        self.calls.append(("register", executor_id))
        if executor_id in self.excluded:
            return False
        self.registered.add(executor_id)
        return True

    def disconnected(self, executor_id: int, suspected: Suspected | None) -> None:
        self.calls.append(("disconnected", executor_id))
        self.suspected.append(suspected)
        self.registered.discard(executor_id)


class Driver:
    """A driver and its listener."""

    def __init__(self, token: str = TOKEN, door: AsyncDoor | None = None) -> None:
        self.fleet = Fleet()
        self.told: list[Event] = []
        self.listener = Listener(token, self.hear)
        self.listener._begin(door or self.fleet)
        self.is_away = False
        self.ends: list[End] = []
        """The executors' ends of their connections."""

    def hear(self, event: Event) -> None:
        self.told.append(event)

    def peer(self, *messages: dict[str, Any], piece: int = 2**16) -> Peer:
        """Somebody connects, and says this."""
        peer = Peer()
        joined(peer, Connection(self.listener), piece)
        peer.say(*messages)
        return peer

    async def connect(self, make: Callable[[], asyncio.Protocol]) -> tuple[End, asyncio.Protocol]:
        """An `Executor`'s function to connect."""
        if self.is_away:
            raise ConnectionRefusedError("nobody listens")
        protocol = make()
        near, _ = joined(protocol, Connection(self.listener))
        self.ends.append(near)
        return near, protocol

    def executor(self, handle: Callable[[Any], Awaitable[Any]], executor_id: int = 3, token: str = TOKEN) -> Executor:
        env = {"EXECUTOR_ID": str(executor_id), "DRIVER_TOKEN": token}
        return Executor(handle, env, self.connect)

    @property
    def connections(self) -> list[Connection]:
        return [event.connection for event in self.told if isinstance(event, Connected)]

    @property
    def events(self) -> list[tuple[Any, ...]]:
        """What the driver was told, in short."""
        return [_short(event) for event in self.told]


def _short(event: Event) -> tuple[Any, ...]:
    match event:
        case Connected(connection):
            return ("connected", connection.executor_id)
        case Answered(connection, work_id, answer):
            return ("answered", connection.executor_id, work_id, answer)
        case Disconnected(connection):
            return ("disconnected", connection.executor_id)


def hello(executor_id: Any = 3, token: Any = TOKEN, process: Any = "a") -> dict[str, Any]:
    return {"type": "hello", "executor_id": executor_id, "token": token, "process": process}


def answer(work_id: Any, value: Any = None) -> dict[str, Any]:
    return {"type": "answer", "work_id": work_id, "answer": value}
