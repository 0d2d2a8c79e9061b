"""Sockets that another thread can cut, whatever their own thread waits for.

urllib3 cannot interrupt a connect, a TLS handshake, or the wait for headers. A `Wire` holds the `Cord` of the request's
socket, from before it connects; shutting that one down wakes the waiting thread at once.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, final

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NameResolutionError, NewConnectionError
from urllib3.util import parse_url
from urllib3.util.ssl_ import create_urllib3_context

from actors.kube.auth.proxies import split_account
from actors.kube.http.chunks import Answer
from actors.text import guard_logs_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from urllib3.connectionpool import HTTPConnectionPool

    from actors.kube.auth.connection import Connection
    from actors.runtime import Deadline

    Headers: TypeAlias = Mapping[str, str | tuple[str, ...]]
    """A tuple is a header of several lines."""

__all__ = ["Cord", "Transport", "Wire", "WireCut", "WireLate"]

guard_logs_of(
    "urllib3.connection", "urllib3.connectionpool", "urllib3.poolmanager", "urllib3.response", "urllib3.util.retry"
)

_current: ContextVar[Wire | None] = ContextVar("_current", default=None)
"""The wire of the request that this thread sends: urllib3 makes connections far below, without a parameter for it."""


class WireCut(Exception):  # noqa: N818 - private to this package, says what happened
    """The wire was cut by the thread that completed the call; nothing is left to report."""


class WireLate(Exception):  # noqa: N818 - private to this package, says what happened
    """The request's deadline has passed; the server did not get all of it, and cannot carry it out."""


@final
class Wire:
    """The socket of one request, while the request lasts. Nothing is sent after the request's deadline."""

    def __init__(self, deadline: Deadline | None = None) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._cord: Cord | None = None
        self._is_cut = False
        self._connecting = False
        self._sent = False

    @property
    def started(self) -> bool:
        """A worker has begun to connect."""
        return self._connecting

    @property
    def sent(self) -> bool:
        """The server may have received the request, or a part of it."""
        return self._sent

    def cancel(self) -> None:
        """Cut the wire, from any thread: nothing more is sent, and a thread that waits for the socket wakes."""
        with self._lock:
            self._is_cut = True
            if self._cord is not None:
                self._cord.cut()

    def release(self) -> None:
        """Release the socket: the request is over, and another one may use the connection."""
        with self._lock:
            self._is_cut = True
            self._cord = None

    def begin(self) -> None:
        """Note that the worker is about to connect.

        Raises:
            WireCut: the wire was cut.
        """
        with self._lock:
            self._check()
            self._connecting = True

    def attach(self, cord: Cord) -> None:
        """Take the request's socket, connected or not.

        Raises:
            WireCut: the wire was cut; the caller closes the socket.
        """
        with self._lock:
            self._check()
            self._cord = cord

    def sending(self) -> None:
        """Note that the first byte of the request is about to be sent.

        Raises:
            WireCut: the wire was cut; the request must not be sent.
            WireLate: the deadline has passed.
        """
        with self._lock:
            self._check()
            self.check_deadline()
            self._sent = True

    def check_deadline(self) -> None:
        """Check that more bytes may be sent.

        Raises:
            WireLate: the deadline has passed.
        """
        if self._deadline is not None and self._deadline.passed:
            raise WireLate

    def again(self) -> None:
        """Note that the server refused the credential, so that the request counts as not sent."""
        self._sent = False

    def _check(self) -> None:
        if self._is_cut:
            raise WireCut


@final
class Cord:
    """A second descriptor of a socket: any thread can shut that down with it, whatever urllib3 or ssl do to theirs.

    The connection has one, and lends it to the wire of each request: a descriptor for each request would cost system
    calls, and at each of them another thread may take the interpreter. It is closed once nobody refers to it.
    """

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is closed with this."""
        self._descriptor = descriptor

    def __del__(self) -> None:
        with suppress(ConnectionResetError):  # the last one, on systems that say so
            os.close(self._descriptor)

    def cut(self) -> None:
        """Shut the socket down."""
        with suppress(OSError):  # not connected yet, or no longer
            _shut_down(self._descriptor)


def _shut_down(descriptor: int) -> None:
    """Shut the socket of a descriptor down, which stays the caller's, although Ctrl-C may interrupt this anywhere.

    Raises:
        OSError: it is not connected.
    """
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.shutdown(socket.SHUT_RDWR)


_KEEP_ALIVE: Final = {"SO_KEEPALIVE": 1, "TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 9}
"""client-go's keep-alive: a probe after 30 s of silence, then every 15 s; after nine the connection is dead.
`TCP_KEEPALIVE` is the name of `TCP_KEEPIDLE` on macOS."""


@final
class Transport:
    """One thread's connection (TLS, proxy, keep-alive), with wires.

    urllib3 makes the connection and sends its first request. Later ones go past it, which halves what they cost.
    """

    def __init__(self, connection: Connection, limit: timedelta, most_headers: int) -> None:
        self._manager = _manager(connection)
        self._manager.pool_classes_by_scheme = {
            scheme: _wired(pool, most_headers) for scheme, pool in self._manager.pool_classes_by_scheme.items()
        }
        # The call has its own limit. This one is shared among the addresses of a name, see `_connected`.
        self._timeout = urllib3.Timeout(connect=limit.total_seconds(), read=None)
        self._host = _host(connection.url)
        self._is_forwarded = bool(connection.proxy) and not connection.url.startswith("https")
        """A proxy reads the requests, so each one's head is for it."""
        self._answer: Answer | None = None
        """The last answer: it knows its connection."""

    def send(self, wire: Wire, method: str, url: str, headers: Headers, body: bytes | None) -> Answer:
        """Send a request once, without redirects, and wait for the headers of the answer.

        Raises:
            WireCut: another thread completed the call.
            WireLate: the deadline has passed, and the server has at most a part of the request.
            urllib3.exceptions.HTTPError: there was no connection, or no answer.
            http.client.HTTPException, OSError: there was no answer.
        """
        wire.begin()
        token = _current.set(wire)
        headers = {"Host": self._host, **headers}
        try:
            connection = self._idle()
            if connection is None:
                self.drop()
                self._answer = cast("Answer", self._first(method, url, headers, body))
            else:
                self._answer = _next(connection, method, _target(url), headers, body)
        finally:
            _current.reset(token)
        return self._answer

    def drop(self) -> None:
        """Close the connection. The next request makes another one."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()
            if answer.sent_over is not None:
                answer.sent_over.close()

    def close(self) -> None:
        """Close the connection."""
        self.drop()
        self._manager.clear()

    def _idle(self) -> _Wired | None:
        """Return the connection if it can be used again."""
        if self._is_forwarded or self._answer is None or not self._answer.isclosed():
            return None
        connection = self._answer.sent_over
        return connection if connection is not None and connection.is_connected else None

    def _first(self, method: str, url: str, headers: Headers, body: bytes | None) -> urllib3.BaseHTTPResponse:
        return self._manager.urlopen(
            method,
            url,
            body=body,
            headers=headers,
            timeout=self._timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )


def _next(connection: _Wired, method: str, target: str, headers: Headers, body: bytes | None) -> Answer:
    """Send a further request."""
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # the server may have answered before it hung up
            connection.request(method, target, headers=headers, body=body)
        return connection.getresponse()
    except BaseException:
        connection.close()
        raise


@lru_cache(maxsize=16)
def _target(url: str) -> str:
    """Return the path and query as urllib3 sends them. The URL of POSTs is always the same."""
    return parse_url(url).request_uri


class _Wired(HTTPConnection):
    """A connection that gives its socket to the current wire, and sends and reads heads itself.

    urllib3 and `http.client` need four times as long for that, and the driver's interpreter waits meanwhile.
    """

    response_class: type[Answer]
    _asked_for: str
    """The method of the request whose answer is read next."""
    _cord: Cord | None = None
    """Of the socket."""

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        try:
            self._attach(sock)
        except BaseException:
            self._cord = None
            sock.close()
            raise
        return sock

    def _attach(self, sock: socket.socket) -> None:
        self._cord = Cord(os.dup(sock.fileno()))
        _wire().attach(self._cord)

    def close(self) -> None:
        """Close the connection. The wire of an answer that is not read to its end can still be cut."""
        self._cord = None
        super().close()

    def connect(self) -> None:
        """Connect. From then on the call's limit counts, and none of the socket's."""
        super().connect()
        self.sock.settimeout(None)

    def request(  # type: ignore[override]  # the pool passes options for an answer that decodes, which ours never does
        self, method: str, url: str, *, headers: Headers, body: bytes | None = None, **_: Any
    ) -> None:
        """Send the request in one piece: each system call hands the interpreter to another thread.

        Connects first if necessary: a failure before the first byte has changed nothing on the server.

        Raises:
            ValueError: the head would be no head.
        """
        wire = _wire()
        if self.sock is None:
            self.connect()
        elif self._cord is not None:
            wire.attach(self._cord)
        wire.sending()
        self._asked_for = method
        self.send(_head(method, url, headers, body) + (body or b""))

    def send(self, data: Any) -> None:
        """Send a request, or that to a proxy. Before it the process may have been stopped for long."""
        _wire().check_deadline()
        super().send(data)

    def getresponse(self) -> Answer:  # type: ignore[override]  # the pool only hands it on
        """Wait for the head of the answer."""
        answer = self.response_class(self.sock, method=self._asked_for)
        try:
            answer.begin()
        except BaseException:
            answer.close()
            raise
        answer.sent_over = self
        if answer.will_close:
            self.close()  # the answer keeps the socket until it is read
        return answer


class _WiredDirect(_Wired):
    """A wired connection that can be cut while it connects."""

    def _new_conn(self) -> socket.socket:
        try:
            found = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            # UnicodeError: not a host name, such as one with an empty label
            cause = error if isinstance(error, socket.gaierror) else socket.gaierror(str(error))
            raise NameResolutionError(self.host, self, cause) from error
        failure: OSError = OSError("the name has no address")
        for address in found:
            try:
                return self._connected(address, share=len(found))
            except OSError as error:
                failure = error
        raise NewConnectionError(self, failure.strerror or str(failure)) from failure

    def _connected(self, address: Any, *, share: int) -> socket.socket:
        """Connect to one address of a name. Each gets its share of the time: a dead one must not use it all."""
        family, kind, protocol, _, target = address
        sock = socket.socket(family, kind, protocol)
        try:
            for option in self.socket_options or ():
                sock.setsockopt(*option)
            timeout = self.timeout
            sock.settimeout(timeout / share if isinstance(timeout, int | float) else None)
            self._attach(sock)
            sock.connect(target)
        except BaseException:
            self._cord = None
            sock.close()
            raise
        return sock


def _head(method: str, url: str, headers: Headers, body: bytes | None) -> bytes:
    """Return the head of a request.

    Raises:
        ValueError: a line would be several, or has characters that none may have.
    """
    sized = () if body is None and method == "GET" else (f"Content-Length: {len(body or b'')}",)
    pairs = ((name, each) for name, value in headers.items() for each in ((value,) if type(value) is str else value))
    lines = (f"{method} {url} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs), *sized)
    head = "\r\n".join(lines)
    if head.count("\r") != len(lines) - 1 or head.count("\n") != len(lines) - 1:
        raise ValueError("a header has several lines")
    return f"{head}\r\n\r\n".encode("latin-1")


def _host(url: str) -> str:
    """Return the value of the header `Host`: without the zone of an IPv6 address, which only this machine knows."""
    parts = parse_url(url)
    host = re.sub(r"%.*\]", "]", parts.host or "")
    return host if parts.port is None else f"{host}:{parts.port}"


def _manager(connection: Connection) -> urllib3.PoolManager:
    options: dict[str, Any] = {"maxsize": 1, "socket_options": _socket_options()}
    if connection.url.startswith("https"):
        # As client-go does, but not Python 3.13 by default: accept CAs that lack extensions of RFC 5280.
        required = ssl.CERT_REQUIRED if connection.verify else ssl.CERT_NONE
        context = create_urllib3_context(cert_reqs=required, verify_flags=ssl.VERIFY_X509_PARTIAL_CHAIN)
        if connection.verify and not connection.ca:
            context.load_default_certs()
        options |= {
            "ssl_context": context,
            "cert_reqs": required,
            "ca_certs": connection.ca,
            "cert_file": connection.certificate,
            "key_file": connection.key,
        }
        if connection.server_name:
            options["server_hostname"] = connection.server_name
    if not connection.proxy:
        return urllib3.PoolManager(**options)
    proxy, account = split_account(connection.proxy)
    if proxy.startswith("socks"):
        from urllib3.contrib.socks import SOCKSProxyManager  # noqa: PLC0415 - needs PySocks, which few have

        user, password = (account.user, account.password) if account is not None else ("", "")
        return SOCKSProxyManager(proxy, username=user or None, password=password or None, **options)
    headers = {"Proxy-Authorization": f"Basic {account.basic}"} if account is not None else {}
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)


def _socket_options() -> list[tuple[int, int, int]]:
    options = [
        (socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _KEEP_ALIVE.items()
        if hasattr(socket, name)
    ]
    return [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *options]


def _wire() -> Wire:
    wire = _current.get()
    assert wire is not None, "a connection is used outside of `Transport.send`"
    return wire


@lru_cache(maxsize=16)
def _wired(pool: type[HTTPConnectionPool], most_headers: int) -> type[HTTPConnectionPool]:
    """Return the pool class with wired connections. The connections of a SOCKS proxy keep their own way to connect.

    All connections share the classes: code that meets objects of many classes is not sped up by the interpreter.
    """
    answer = type("BoundAnswer", (Answer,), {"most_headers": most_headers})
    connection: Any = pool.ConnectionCls
    base = _WiredDirect if connection._new_conn is HTTPConnection._new_conn else _Wired  # noqa: SLF001 - the seam of urllib3.contrib.socks
    wired: Final = type(f"Wired{connection.__name__}", (base, connection), {"response_class": answer})
    return type(f"Wired{pool.__name__}", (pool,), {"ConnectionCls": wired})
