"""A server that does nothing but send pods as fast as it can: `python -m tests.benchmarks.server --pods N`.

It speaks as much HTTP as clients of pods need. Its first line on stdout is its port. From then on each line of JSON on
stdin is a command, answered with a line of JSON. Each watch event is an HTTP chunk of its own, as an API server sends
them, unless they are joined. It keeps no history: a watch begins now, and a watch of an older version gets 410 Gone.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.benchmarks.pods import APP_ID, NAMESPACE
from tests.benchmarks.served import Served, failure

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"

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
            },
            {
                "name": "namespaces",
                "singularName": "namespace",
                "namespaced": False,
                "kind": "Namespace",
                "verbs": ["get", "list", "watch"],
            },
        ],
    },
}


class Server:
    """The pods, their watches, and the commands."""

    def __init__(self, pods: int, *, latency: float, **kinds: bool) -> None:
        """`kinds`: see `Served`."""
        self.latency = latency
        self.served = Served(pods, self.send, **kinds)
        self.watchers: set[Connection] = set()

    def send(self, events: bytes) -> None:
        """Write to every watch."""
        for watcher in self.watchers:
            watcher.transport.write(events)

    async def flushed(self) -> None:
        """Wait until every watch can take more."""
        for watcher in tuple(self.watchers):
            await watcher.writable.wait()

    async def obey(self, command: dict[str, Any]) -> object:
        """Carry out a line of stdin."""
        what = command.pop("do")
        if what == "stream":
            return await self.served.stream(**command, flushed=self.flushed)
        if what == "pace":
            return await self.served.pace(**command, flushed=self.flushed)
        if what == "watched":
            while not self.watchers:  # noqa: ASYNC110 - a benchmark's server may look
                await asyncio.sleep(0.005)
            return {}
        assert what == "counts", what
        return asdict(self.served.counts)


class Connection(asyncio.Protocol):
    """Serve one connection: one request after another, until one is a watch."""

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
        served = self.server.served
        if method == "GET" and path == PODS and query.get("watch", "").lower() in {"1", "true"}:
            self.watch(query)
        elif method == "GET" and path == PODS:
            page, zipped = served.page(query, gzipped="gzip" in headers.get("accept-encoding", ""))
            self.answer(200, page, zipped=zipped)
        elif method == "GET" and path in _DISCOVERY:
            self.answer(200, json.dumps(_DISCOVERY[path]).encode())
        elif method == "POST" and path == PODS:
            self.post(body)
        elif method == "POST" and path.endswith("selfsubjectaccessreviews"):
            self.answer(201, b'{"status":{"allowed":true}}')
        elif method == "DELETE" and path.startswith(f"{PODS}/"):
            self.answer(*served.delete(int(path.rpartition("-")[2])))
        elif method == "PATCH" and path.startswith(f"{PODS}/"):
            self.answer(*served.show(int(path.rpartition("-")[2])))
        else:
            self.answer(404, failure(404, "NotFound"))

    def post(self, body: bytes) -> None:
        counts, loop = self.server.served.counts, asyncio.get_running_loop()
        counts.posts.append(time.monotonic())
        counts.in_flight += 1
        counts.most_in_flight = max(counts.most_in_flight, counts.in_flight)
        if self.server.latency:
            loop.call_later(self.server.latency, self.create, body)
        else:
            self.create(body)

    def create(self, body: bytes) -> None:
        counts = self.server.served.counts
        self.answer(*self.server.served.create(body))
        counts.in_flight -= 1
        counts.answered.append(time.monotonic())

    def watch(self, query: dict[str, str]) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        version = query.get("resourceVersion", "")
        if version not in {"", "0", str(self.server.served.version)}:
            gone = b'{"type":"ERROR","object":%b}\n' % failure(410, "Expired")
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


async def serve(server: Server) -> None:
    """Serve until stdin ends."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=128)
    print(listening.sockets[0].getsockname()[1], flush=True)
    commands = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        print(json.dumps(await server.obey(json.loads(line))), flush=True)


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(description=f"Serves the pods of fleet {APP_ID!r}.")
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that a POST takes")
    parser.add_argument("--gzip", action="store_true", help="compress lists, as a real server does")
    parser.add_argument("--starts", action="store_true", help="pods that are created run at once")
    parser.add_argument("--joined", action="store_true", help="many events in one HTTP chunk")
    parser.add_argument("--changed", action="store_true", help="each event is a change: a container restarted")
    parser.add_argument("--shuffled", action="store_true", help="the pods' events come in no order")
    arguments = parser.parse_args()
    server = Server(
        arguments.pods,
        latency=arguments.latency,
        gzipped=arguments.gzip,
        starts=arguments.starts,
        joined=arguments.joined,
        changed=arguments.changed,
        shuffled=arguments.shuffled,
    )
    if arguments.gzip and arguments.pods:
        server.served.warm_up()
    gc.freeze()
    asyncio.run(serve(server))


if __name__ == "__main__":
    main()
