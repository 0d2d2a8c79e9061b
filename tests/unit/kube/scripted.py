"""An HTTP server whose behaviour a test scripts, down to the byte and the socket."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

SAFETY = 30.0
"""Seconds until a test that would hang fails instead."""


@dataclass
class Asked:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {key: value[0] for key, value in parse_qs(urlsplit(self.target).query, keep_blank_values=True).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Peer:
    """The server's end of a connection, in the middle of a request."""

    sock: socket.socket
    asked: Asked
    keep: bool = False
    """The connection serves another request after this one."""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.head(status, {"Content-Length": str(len(content)), **(headers or {})})
        self.send(content)
        self.keep = True

    def head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Words", *(f"{name}: {value}" for name, value in headers.items())]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def stream(self) -> None:
        """The head of a watch."""
        self.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, kind: str, obj: object) -> None:
        self.chunk(json.dumps({"type": kind, "object": obj}).encode() + b"\n")

    def finish(self) -> None:
        """The clean end of a chunked body."""
        self.send(b"0\r\n\r\n")
        self.keep = True

    def gone(self, within: float = SAFETY) -> bool:
        """The client has closed its end, or does so soon."""
        readable, _, _ = select.select([self.sock], [], [], within)
        return bool(readable) and self.sock.recv(1) == b""

    def cut(self) -> None:
        """Reset the connection."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()


@dataclass
class ScriptedServer:
    """Serves each request by the next script. A request without one is a failure."""

    tls: ssl.SSLContext | None = None
    """What connections begin with from now on, if anything."""
    scripts: deque[Callable[[Peer], None]] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    done: SimpleQueue[str] = field(default_factory=SimpleQueue)
    """What the scripts that have ended report: their name, or how they failed."""
    _threads: list[threading.Thread] = field(default_factory=list)
    _sockets: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_listening()
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SAFETY)
            assert not thread.is_alive(), "a script does not end"
        for sock in self._sockets:
            sock.close()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop_listening(self) -> None:
        """Refuse connections from now on."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def then(self, *scripts: Callable[[Peer], None]) -> None:
        """Serve the next requests like this."""
        self.scripts.extend(scripts)

    def answers(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        """Answer the next request with this."""
        self.then(lambda peer: peer.answer(status, body, headers))

    def kubeconfig(self, folder: Path, **user: Any) -> Path:
        """A kubeconfig that leads here."""
        scheme = "http" if self.tls is None else "https"
        return write_kubeconfig(folder / "kubeconfig", f"{scheme}://{self.name}", user or {"token": "secret-token"})

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            number += 1
            self._spawn(lambda sock=sock, number=number: self._serve(sock, number))  # type: ignore[misc]

    def _shakes_hands(self, sock: ssl.SSLSocket) -> bool:
        """If not, the client has time to read why: closing at once would cut it short."""
        try:
            sock.do_handshake()
        except OSError as error:
            self.done.put(repr(error))
            with suppress(OSError):
                while socket.socket.recv(sock, 4096):
                    pass
            sock.close()
            return False
        return True

    def _serve(self, sock: socket.socket, number: int) -> None:
        if self.tls is not None:
            sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            self._sockets.append(sock)
            if not self._shakes_hands(sock):
                return
        reader = sock.makefile("rb")
        try:
            while (asked := _read_request(reader, number)) is not None:
                self.asked.append(asked)
                peer = Peer(sock, asked)
                script = self.scripts.popleft()
                script(peer)
                self.done.put("served")
                if not peer.keep:
                    break
        except (OSError, IndexError) as error:
            self.done.put(repr(error))
        finally:
            reader.close()
            sock.close()


def write_kubeconfig(
    path: Path, server: str, user: dict[str, Any], *, namespace: str | None = None, **cluster: Any
) -> Path:
    """A kubeconfig with one context, `test`."""
    context = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    path.write_text(json.dumps(config))
    return path


def _read_request(reader: Any, connection: int) -> Asked | None:
    try:
        line = reader.readline().decode()
        if not line:
            return None
        method, target, _ = line.split(" ", 2)
        headers: dict[str, str] = {}
        while (header := reader.readline().decode().strip()) != "":
            key, _, value = header.partition(":")
            before = f"{headers[key.lower()]}, " if key.lower() in headers else ""
            headers[key.lower()] = before + value.strip()
        return Asked(method, target, headers, reader.read(int(headers.get("content-length", 0))), connection)
    except (OSError, ValueError):
        return None
