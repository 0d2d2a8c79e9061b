"""The executor's side: connect to the driver, say the id, do the work that comes, answer, and end in order.

It needs the standard library and nothing else: copy this file into the executors' image, or import it from there.

    sys.exit(run(function))                     # calls function(work) in a thread, one at a time
    await Executor(coroutine_function).run()    # awaits it in the running loop, which it must not block

It sends heartbeats and expects the driver's. It connects again when the connection is lost. It ends when it is refused
or told to stop, or has heard no driver for `LOST_DRIVER_LIMIT`.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import random
import secrets
import signal
import ssl
import sys
import threading
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

BEAT_EVERY: Final = 10.0
"""Seconds between two heartbeats, in both directions: 100 lines a second from 1,000 executors."""

SILENCE_LIMIT: Final = 3 * BEAT_EVERY
"""Seconds without a byte after which a connection counts as lost. Two heartbeats may be late or missing."""

CONNECT_LIMIT: Final = 5.0
"""Seconds that one attempt to connect may take. The kernel would try for two minutes."""

RETRY_AFTER: Final = (0.5, 5.0)
"""Seconds until the next attempt, drawn between these: the executors of a driver that starts again come one by one."""

LOST_DRIVER_LIMIT: Final = 180.0
"""Seconds since it last heard its driver, or since its start, after which an executor ends.

Longer than a driver that lives needs to delete the pod: `SILENCE_LIMIT`, its turn and `executor.disconnect_timeout`.
An executor that ended before that, with an exit code of its own, would be blamed for a network that is cut. It leaves
a new driver time to start.
"""

LONGEST_LINE: Final = 2**20
"""Bytes of a line. Work and answers that are larger belong into a file or a store, and their names here."""


class ProtocolError(Exception):
    """The peer sent what the protocol does not have. The connection ends."""


class End(IntEnum):
    """Why an executor ended. The values are exit codes."""

    STOPPED = 0
    """The driver told it to stop, or SIGTERM came."""
    REFUSED = 3
    """The driver does not want it: its token is wrong, or the fleet has replaced it."""
    DRIVER_LOST = 4
    """It heard no driver for `LOST_DRIVER_LIMIT`."""


# ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode(message: Mapping[str, Any]) -> bytes:
    """Return one line.

    Raises:
        TypeError: a value is not JSON.
        ValueError: the line is longer than `LONGEST_LINE`, or a number is not finite.
    """
    line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    if len(line) > LONGEST_LINE:
        raise ValueError(f"a line of {len(line)} bytes is too long: at most {LONGEST_LINE}; pass a file's name instead")
    return line


def _answer(work_id: int, answer: Any) -> bytes:
    """Return the line of an answer.

    Raises:
        ValueError: JSON cannot say the answer, or it is too long.
    """
    try:
        return encode({"type": "answer", "work_id": work_id, "answer": answer})
    except (TypeError, ValueError) as error:
        raise ValueError(f"the answer to work {work_id} cannot be sent as JSON: {error}") from None


BEAT: Final = encode({"type": "beat"})


class LineReader:
    """Turns bytes into JSON objects. It keeps less than one line of `longest` bytes."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self.longest = longest
        self._rest = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the objects that are complete.

        Raises:
            ProtocolError: a line is too long or is no JSON object.
        """
        self._rest += data
        while (end := self._rest.find(b"\n", self._searched)) >= 0:
            line = bytes(self._rest[: end + 1])
            del self._rest[: end + 1]
            self._searched = 0
            self._check_length(len(line))
            yield _decoded(line)
        self._searched = len(self._rest)
        self._check_length(self._searched)

    def _check_length(self, length: int) -> None:
        if length > self.longest:
            raise ProtocolError(f"a line is longer than {self.longest} bytes")


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ProtocolError("a line is no JSON") from None
    if not isinstance(message, dict):
        raise ProtocolError("a line is no JSON object")
    return message


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


# ── the executor ─────────────────────────────────────────────────────────────────────────────────────────────────


def run(handle: Callable[[Any], Any], env: Mapping[str, str] = os.environ) -> End:
    """Work until the executor ends; return why. Call it in the main thread: it handles SIGTERM.

    `handle` is called with one work at a time, in one thread of its own, and returns the answer. Both are JSON. What it
    raises, this raises: the executor crashes, and the driver learns the exit code.
    """

    async def main() -> End:
        executor = Executor(_InThread(handle), env)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, executor.stop)
        return await executor.run()

    return asyncio.run(main())


class Executor:
    """One executor, for the running loop.

    Args:
        handle: awaited with one work at a time, returns the answer. Cancelled when the connection is lost, because the
            driver gives the work to another executor then.
        env: has `DRIVER_ADDRESS`, `EXECUTOR_ID` and `DRIVER_TOKEN`; with `DRIVER_CA`, the file of a CA, TLS is used.
        connect: opens a connection for a protocol; by default to `DRIVER_ADDRESS`.
    """

    def __init__(
        self,
        handle: Callable[[Any], Awaitable[Any]],
        env: Mapping[str, str] = os.environ,
        connect: Callable[[Callable[[], asyncio.Protocol]], Awaitable[tuple[Any, Any]]] | None = None,
    ) -> None:
        self._handle = handle
        self._connect = connect or _connector(env)
        self._hello = {
            "type": "hello",
            "executor_id": int(_value(env, "EXECUTOR_ID")),
            "token": _value(env, "DRIVER_TOKEN").strip(),  # a Secret made of a file ends with a newline
            "process": secrets.token_hex(16),  # a second process with this id is refused while this one is connected
        }
        self._stop = asyncio.Event()
        self._link: _Link | None = None

    def stop(self) -> None:
        """Finish the work in hand, answer it, and end: the driver gives the rest to others. For the loop's thread."""
        self._stop.set()
        if self._link is not None:
            self._link.wake()

    async def run(self) -> End:
        """Work until the executor ends; return why."""
        now = asyncio.get_running_loop().time
        heard_at = now()
        while not self._stop.is_set():
            link = _Link(self._hello, now)
            try:
                async with asyncio.timeout(CONNECT_LIMIT):
                    await self._connect(lambda link=link: link)  # type: ignore[misc]  # mypy infers no default's type
            except OSError as error:  # TimeoutError is one
                print(f"cannot connect to the driver: {type(error).__name__}: {error}", file=sys.stderr)
            else:
                await self._serve(link)
                if link.refusal is not None:
                    print(f"refused by the driver: {link.refusal!r}", file=sys.stderr)
                    return End.REFUSED
                if link.is_welcome:
                    heard_at = link.heard_at
            if not self._stop.is_set() and now() - heard_at >= LOST_DRIVER_LIMIT:
                print(f"no driver for {LOST_DRIVER_LIMIT:.0f} s", file=sys.stderr)
                return End.DRIVER_LOST
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), random.uniform(*RETRY_AFTER))  # noqa: S311 - no secret
        return End.STOPPED

    async def _serve(self, link: _Link) -> None:
        """Do the work of one connection, until it ends or the executor stops."""
        self._link = link
        try:
            while not self._stop.is_set() and not link.lost.done():
                given = await link.works.get()
                if given is None:  # woken
                    if link.is_told_to_stop:
                        self._stop.set()
                    continue
                await self._do(link, *given)
        finally:
            self._link = None
            link.close()
            await asyncio.wait({link.lost}, timeout=CONNECT_LIMIT)
            link.abort()

    async def _do(self, link: _Link, work_id: int, work: Any) -> None:
        """Do a work and answer it, or cancel it when the connection is lost. Raises what `handle` raises."""
        doing = asyncio.ensure_future(self._handle(work))
        try:
            await asyncio.wait({doing, link.lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            doing.cancel()  # does nothing if it is done
        await asyncio.wait({doing})
        if not doing.cancelled():
            link.write(_answer(work_id, doing.result()))


class _Link(asyncio.Protocol):
    """One connection to the driver."""

    def __init__(self, hello: Mapping[str, Any], now: Callable[[], float]) -> None:
        self.works: asyncio.Queue[tuple[int, Any] | None] = asyncio.Queue()
        """None wakes who waits."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_welcome = False
        self.is_told_to_stop = False
        self.refusal: str | None = None
        self.heard_at = self._since = now()
        self._hello = hello
        self._now = now
        self._lines = LineReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        own = transport.get_extra_info("sockname")  # tells the driver whether somebody stands between
        self.write(encode({**self._hello, "from": list(own[:2]) if isinstance(own, tuple) else None}))
        first = random.uniform(0, BEAT_EVERY)  # noqa: S311 - a thousand that connect at once do not beat at once
        self._beat = asyncio.get_running_loop().call_later(first, self._beat_due)

    def connection_lost(self, _: Exception | None) -> None:
        self._beat.cancel()
        self.lost.set_result(None)
        self.wake()

    def wake(self) -> None:
        self.works.put_nowait(None)

    def write(self, line: bytes) -> None:
        self._transport.write(line)

    def close(self) -> None:
        """End the connection once everything is sent."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._now()
        try:
            for message in self._lines.feed(data):
                self._take(message)
        except ProtocolError as error:
            print(f"the driver's address is not a driver's: {error}", file=sys.stderr)
            self.abort()

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "beat"}:
                pass
            case {"type": "welcome"}:
                self.is_welcome = True
            case {"type": "work", "work_id": int(work_id), "work": work} if self.is_welcome:
                self.works.put_nowait((work_id, work))
            case {"type": "stop"}:
                self.is_told_to_stop = True
                self.wake()
            case {"type": "refused", "reason": str(reason)}:
                self.refusal = reason
                self.close()
            case _:
                raise ProtocolError(f"no such message: {str(message)[:100]!r}")

    def _beat_due(self) -> None:
        known_at = self.heard_at if self.is_welcome else self._since
        if self._now() - known_at >= SILENCE_LIMIT:
            self.abort()
            return
        self.write(BEAT)
        self._beat = asyncio.get_running_loop().call_later(BEAT_EVERY, self._beat_due)


def _connector(env: Mapping[str, str]) -> Callable[[Callable[[], asyncio.Protocol]], Awaitable[tuple[Any, Any]]]:
    host, _, port = _value(env, "DRIVER_ADDRESS").rpartition(":")
    authority = env.get("DRIVER_CA")
    context = ssl.create_default_context(cafile=authority) if authority else None

    def connect(make: Callable[[], asyncio.Protocol]) -> Awaitable[tuple[Any, Any]]:
        return asyncio.get_running_loop().create_connection(make, host.strip("[]"), int(port), ssl=context)

    return connect


def _value(env: Mapping[str, str], name: str) -> str:
    if not env.get(name):
        raise SystemExit(f"{name} is not set: an executor finds it in its environment")
    return env[name]


class _InThread:
    """Calls a function in one thread, one work at a time. A work in hand runs to its end, also when it is cancelled."""

    def __init__(self, handle: Callable[[Any], Any]) -> None:
        self._handle = handle
        self._works: queue.SimpleQueue[tuple[Any, asyncio.Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="work", daemon=True).start()

    async def __call__(self, work: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self._works.put((work, answer))
        return await answer

    def _run(self) -> None:
        while True:
            work, answer = self._works.get()
            if answer.cancelled():
                continue
            value = error = None
            try:
                value = self._handle(work)
            except BaseException as raised:  # noqa: BLE001 - also `sys.exit`: the main thread raises it
                error = raised
            with suppress(RuntimeError):  # the loop has ended
                answer.get_loop().call_soon_threadsafe(_resolve, answer, value, error)


def _resolve(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)
