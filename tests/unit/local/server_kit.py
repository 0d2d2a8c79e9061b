"""A served store, and a client that adds nothing to a request."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import urllib3

from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import ServerCredentials, new_credentials
from actors.local.store.object_store import ObjectStore
from actors.runtime import Entropy, SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from aiohttp.typedefs import Middleware

    from actors.local.kubelet.container_run import LogFile

SAFETY_SECONDS = 30.0

PODS = "/api/v1/namespaces/default/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def manifest(name: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [{"name": "executor", "image": "none"}]}}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Logs:
    """Log files by pod UID and container, as a kubelet would find them."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], LogFile] = {}

    def log(self, uid: str, container: str, *, previous: bool = False) -> LogFile | None:
        return None if previous else self.files.get((uid, container))


class Endpoint:
    """A served store. `request` sends the token by default."""

    def __init__(self, credentials: ServerCredentials, authority: Path, middlewares: Sequence[Middleware] = ()) -> None:
        self.store = ObjectStore(SystemClock(), Entropy())
        self.logs = Logs()
        self.token = credentials.token
        self.server = ApiServer(self.store, self.logs, credentials, SystemClock(), Entropy(), middlewares=middlewares)
        self.pool = urllib3.PoolManager(ca_certs=str(authority), retries=False, timeout=SAFETY_SECONDS)

    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> urllib3.BaseHTTPResponse:
        """The answer, its body unread."""
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type} | dict(headers or {})
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return self.pool.request(
            method, self.server.url + path, body=data, headers=sent, preload_content=False, decode_content=True
        )

    def request(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        response = self.open(method, path, body, **options)
        answer = Answer(response.status, response.headers, response.read())
        response.release_conn()
        return answer

    def watch(self, path: str) -> Watch:
        return Watch(self.open("GET", path))

    def connect(self) -> ssl.SSLSocket:
        """A connection without a client library."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = ("127.0.0.1", int(self.server.url.rpartition(":")[2]))
        return context.wrap_socket(socket.create_connection(address, SAFETY_SECONDS))

    def close(self) -> None:
        self.server.stop()
        self.pool.clear()


def served(directory: Path, *middlewares: Middleware) -> Iterator[Endpoint]:
    """A served store for one test."""
    credentials = new_credentials()
    authority = directory / "authority.pem"
    authority.write_bytes(credentials.authority)
    api = Endpoint(credentials, authority, middlewares)
    api.server.start()
    try:
        yield api
    finally:
        api.close()


class Watch:
    """The lines of a stream, one at a time."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        assert response.status == 200
        self._response = response
        self._lines = self._split()

    def next(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(next(self._lines))
        return event

    def rest(self) -> list[dict[str, Any]]:
        """All lines until the server ends the stream."""
        return [json.loads(line) for line in self._lines]

    def close(self) -> None:
        self._response.close()

    def _split(self) -> Iterator[bytes]:
        pending = b""
        # Not by urllib3's own generator: if it is collected half-way, it returns its connection to the pool,
        # and waits forever if its thread is just taking one from there.
        while chunk := self._response.read1(64 * 1024, decode_content=True):
            *lines, pending = (pending + chunk).split(b"\n")
            yield from lines
        assert pending == b""
