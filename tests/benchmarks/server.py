"""A server that does nothing but send pods as fast as it can: `python -m tests.benchmarks.server --pods N`.

It speaks as much HTTP as clients of pods need. Its first line on stdout is its port; from then on a line of JSON on
stdin is a command, answered with a line of JSON. Each watch event is an HTTP chunk of its own, as an API server sends
them, unless they are to be joined. It keeps no history: a watch goes on from now, and one that asks for an older
version is told that it is Gone.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.benchmarks.pods import APP_ID, FIRST_VERSION, NAMESPACE, PodBytes

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"

READ_EVENTS: Final = 25
"""Events that one write holds while the stream goes as fast as it can: what a socket's buffer takes at once."""

TICK: Final = 0.002
"""Seconds between two writes of a stream of a given rate, at the most."""

GZIP_FROM: Final = 128 * 1024
"""A real API server compresses lists from this size on, at level 1."""

STATUS: Final = {200: "OK", 201: "Created", 404: "Not Found", 409: "Conflict"}

_DISCOVERY: Final[dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.4"},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "shortNames": ["po"],
                "verbs": ["create", "delete", "get", "list", "patch", "watch"],
            }
        ],
    },
}


@dataclass(slots=True)
class Kept:
    """A pod, as the server has it."""

    version: int
    phase: str = "Running"


@dataclass(slots=True)
class Counts:
    """What came, and when (monotonic, which on Linux all processes share)."""

    posts: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    deletes: int = 0
    lists: int = 0
    ended: dict[int, float] = field(default_factory=dict)
    """Executor id → when the event was sent that says so."""


class Server:
    """The pods, who watches them, and the commands."""

    def __init__(self, pods: int, *, latency: float, gzipped: bool, starts: bool, joined: bool) -> None:
        self.bytes = PodBytes()
        self.version = FIRST_VERSION
        self.pods = {number: Kept(FIRST_VERSION) for number in range(1, pods + 1)}
        self.joined = joined
        self.heartbeats = [self._framed(number, "Running", "MODIFIED") for number in self.pods]
        self.next_heartbeat = 0
        self.latency = latency
        self.gzipped = gzipped
        self.starts = starts
        self.counts = Counts()
        self.watchers: set[Connection] = set()
        self.lists: dict[str, tuple[int, list[bytes]]] = {}
        self.zipped: dict[tuple[int, int, int], bytes] = {}

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def beat(self, count: int) -> bytes:
        """The next `count` events: running pods in turn, which are still running. Those that are not sit it out."""
        pieces: list[bytes] = []
        pods, beats = self.pods, self.heartbeats
        at, version = self.next_heartbeat, self.version
        for _ in range(count):
            number = at + 1
            at = number if number < len(beats) else 0
            kept = pods.get(number)
            if kept is None or kept.phase != "Running":
                continue
            version += 1
            kept.version = version
            before, after = beats[number - 1]
            pieces += (before, b"%d" % version, after)
        self.next_heartbeat, self.version = at, version
        events = b"".join(pieces)
        return b"%x\r\n%b\r\n" % (len(events), events) if self.joined and events else events

    def change(self, number: int, phase: str, kind: str) -> bytes:
        """The event of one pod that changes, or goes."""
        self.version += 1
        if kind == "DELETED":
            del self.pods[number]
        else:
            self.pods[number] = Kept(self.version, phase)
        before, after = self.bytes.around(number, phase, kind)
        event = b"%b%d%b" % (before, self.version, after)
        return b"%x\r\n%b\r\n" % (len(event), event)

    def _framed(self, number: int, phase: str, kind: str) -> tuple[bytes, bytes]:
        before, after = self.bytes.around(number, phase, kind)
        if self.joined:
            return before, after
        size = len(before) + len(str(FIRST_VERSION)) + len(after)
        return b"%x\r\n%b" % (size, before), after + b"\r\n"

    def send(self, events: bytes) -> None:
        """To everyone who watches."""
        for watcher in self.watchers:
            watcher.transport.write(events)

    async def flush(self) -> None:
        """Until everyone can take more."""
        for watcher in tuple(self.watchers):
            await watcher.writable.wait()

    async def stream(self, count: int) -> dict[str, float]:
        """So many events as fast as they are taken, then the end of the last executor."""
        began = time.monotonic()
        while count > 0:
            self.send(self.beat(min(READ_EVENTS, count)))
            count -= READ_EVENTS
            await self.flush()
            await asyncio.sleep(0)
        last = max(self.pods)
        self.counts.ended[last] = time.monotonic()
        self.send(self.change(last, "Failed", "MODIFIED"))
        await self.flush()
        return {"began": began, "sent": time.monotonic(), "last": last}

    async def pace(self, seconds: float, rate: float, ends: float) -> dict[str, float]:
        """`rate` events a second, `ends` of them ends of executors, evenly."""
        began = time.monotonic()
        sent = ended = 0
        candidates = iter(sorted(self.pods))
        while (now := time.monotonic() - began) < seconds:
            due_ends = int(now * ends)
            while ended < due_ends:
                ended += 1
                number = next(candidates)
                self.counts.ended[number] = time.monotonic()
                self.send(self.change(number, "Failed", "MODIFIED"))
            due = int(now * (rate - ends))
            if due > sent:
                self.send(self.beat(due - sent))
                sent = due
            await self.flush()
            await asyncio.sleep(min(TICK, 1 / rate))
        return {"began": began, "events": sent + ended}

    # ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def obey(self, command: dict[str, Any]) -> object:
        """A line of stdin."""
        what = command.pop("do")
        if what == "stream":
            return await self.stream(**command)
        if what == "pace":
            return await self.pace(**command)
        if what == "watched":
            while len(self.watchers) < command.get("by", 1):  # noqa: ASYNC110 - a benchmark's server may look
                await asyncio.sleep(0.005)
            return {}
        assert what == "counts", what
        counts = self.counts
        return {
            "posts": counts.posts,
            "answered": counts.answered,
            "most_in_flight": counts.most_in_flight,
            "deletes": counts.deletes,
            "lists": counts.lists,
            "ended": counts.ended,
            "cpu": time.process_time(),
        }

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def page(self, query: dict[str, str], *, gzipped: bool) -> tuple[bytes, bool]:
        """A page of a list of one version, as of its first page; its body, and whether that is compressed."""
        self.counts.lists += 1
        limit = int(query.get("limit", 0)) or len(self.pods) + 1
        token = query.get("continue", "")
        if token:
            version, at = (int(part) for part in token.split("-"))
            items = self.lists[str(version)][1]
        else:
            version, at = self.version, 0
            ids = sorted(self.pods)
            items = [self.bytes.item(number, self.pods[number].version, self.pods[number].phase) for number in ids]
            self.lists = {str(version): (version, items)}
        left = len(items) - at - limit
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if left > 0:
            metadata |= {"continue": f"{version}-{at + limit}", "remainingItemCount": left}
        body = b'{"kind":"PodList","apiVersion":"v1","metadata":%b,"items":[%b]}' % (
            json.dumps(metadata).encode(),
            b",".join(items[at : at + limit]),
        )
        if not gzipped or not self.gzipped or len(body) < GZIP_FROM:
            return body, False
        key = (version, at, limit)
        if key not in self.zipped:
            self.zipped[key] = gzip.compress(body, compresslevel=1)
        return self.zipped[key], True

    def warm_up(self) -> None:
        """Compress the pages of the usual size beforehand: a server is not what is measured."""
        token = ""
        while True:
            body, _ = self.page({"limit": "500", "continue": token}, gzipped=True)
            metadata = gzip.decompress(body)[:300] if body[:2] == b"\x1f\x8b" else body[:300]
            if b'"continue"' not in metadata:
                break
            token = metadata.partition(b'"continue": "')[2].partition(b'"')[0].decode()
        self.counts.lists = 0

    def created(self, body: bytes) -> tuple[int, bytes]:
        """A POST of a pod: there at once, and, if pods start here, running."""
        number = int(json.loads(body)["metadata"]["labels"]["executor-pods/executor-id"])
        if number in self.pods:
            return 409, _status(409, "AlreadyExists")
        self.send(self.change(number, "Pending", "ADDED"))
        answer = self.bytes.whole(number, self.version, "Pending")
        if self.starts:
            self.send(self.change(number, "Running", "MODIFIED"))
        return 201, answer

    def deleted(self, path: str) -> tuple[int, bytes]:
        """A DELETE of a pod: gone at once."""
        self.counts.deletes += 1
        number = int(path.rpartition("-")[2])
        kept = self.pods.get(number)
        if kept is None:
            return 404, _status(404, "NotFound")
        self.send(self.change(number, kept.phase, "DELETED"))
        return 200, b'{"kind":"Status","apiVersion":"v1","status":"Success"}'


class Connection(asyncio.Protocol):
    """One connection: requests one after another, until one is a watch."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.received = b""
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=256 * 1024)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.watchers.discard(self)
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            first, *lines = self.received[:end].decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            size = int(headers.get("content-length", 0))
            if len(self.received) < end + 4 + size:
                return
            body = self.received[end + 4 : end + 4 + size]
            self.received = self.received[end + 4 + size :]
            method, target, _ = first.split(" ")
            self.request(method, target, headers, body)

    def request(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = url.path.rstrip("/")
        server = self.server
        if method == "GET" and path == PODS and query.get("watch", "").lower() in {"1", "true"}:
            self.watch(query)
        elif method == "GET" and path == PODS:
            page, zipped = server.page(query, gzipped="gzip" in headers.get("accept-encoding", ""))
            self.answer(200, page, zipped=zipped)
        elif method == "GET" and path in _DISCOVERY:
            self.answer(200, json.dumps(_DISCOVERY[path]).encode())
        elif method == "POST" and path == PODS:
            self.post(body)
        elif method == "POST" and path.endswith("selfsubjectaccessreviews"):
            self.answer(201, b'{"status":{"allowed":true}}')
        elif method == "DELETE" and path.startswith(f"{PODS}/"):
            self.answer(*server.deleted(path))
        elif method == "PATCH" and path.startswith(f"{PODS}/"):
            number = int(path.rpartition("-")[2])
            kept = server.pods.get(number)
            if kept is None:
                self.answer(404, _status(404, "NotFound"))
            else:
                self.answer(200, server.bytes.whole(number, kept.version, kept.phase))
        else:
            self.answer(404, _status(404, "NotFound"))

    def post(self, body: bytes) -> None:
        counts, loop = self.server.counts, asyncio.get_running_loop()
        counts.posts.append(time.monotonic())
        counts.in_flight += 1
        counts.most_in_flight = max(counts.most_in_flight, counts.in_flight)
        if self.server.latency:
            loop.call_later(self.server.latency, self.create, body)
        else:
            self.create(body)

    def create(self, body: bytes) -> None:
        counts = self.server.counts
        self.answer(*self.server.created(body))
        counts.in_flight -= 1
        counts.answered.append(time.monotonic())

    def watch(self, query: dict[str, str]) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        version = query.get("resourceVersion", "")
        if version not in {"", "0", str(self.server.version)}:
            gone = b'{"type":"ERROR","object":%b}\n' % _status(410, "Expired")
            self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(gone), gone))
            return
        self.server.watchers.add(self)

    def answer(self, code: int, body: bytes, *, zipped: bool = False) -> None:
        encoding = b"Content-Encoding: gzip\r\n" if zipped else b""
        self.transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
            % (code, STATUS[code].encode(), encoding, len(body))
            + body
        )


def _status(code: int, reason: str) -> bytes:
    return json.dumps(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    ).encode()


async def serve(server: Server) -> None:
    """Until stdin ends."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=128)
    print(listening.sockets[0].getsockname()[1], flush=True)
    commands = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        print(json.dumps(await server.obey(json.loads(line))), flush=True)


def main() -> None:
    """Take the arguments."""
    parser = argparse.ArgumentParser(description=f"Serves the pods of fleet {APP_ID!r}.")
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that a POST takes")
    parser.add_argument("--gzip", action="store_true", help="compress lists, as a real server does")
    parser.add_argument("--starts", action="store_true", help="pods that are created run at once")
    parser.add_argument("--joined", action="store_true", help="many events in one HTTP chunk")
    arguments = parser.parse_args()
    server = Server(
        arguments.pods,
        latency=arguments.latency,
        gzipped=arguments.gzip,
        starts=arguments.starts,
        joined=arguments.joined,
    )
    if arguments.gzip and arguments.pods:
        server.warm_up()
    gc.freeze()
    asyncio.run(serve(server))


if __name__ == "__main__":
    main()
