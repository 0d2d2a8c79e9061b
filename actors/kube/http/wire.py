"""Sockets that can be cut from another thread, whatever the thread that uses them is waiting for.

urllib3 offers no way to interrupt a connect, a TLS handshake, or the wait for headers. A `Wire` holds a second
descriptor of the request's socket from the moment it exists, before it connects; shutting that down wakes the user at
once. The descriptor is the wire's own, so that it outlives whatever urllib3 or ssl do to theirs, and never hits
another socket.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, final

import urllib3
from kubernetes.client.rest import RESTClientObject
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NameResolutionError, NewConnectionError

from actors.kube.http.chunks import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from kubernetes.client import Configuration
    from urllib3.connectionpool import HTTPConnectionPool

__all__ = ["Transport", "Wire", "WireCut"]

_current: ContextVar[Wire | None] = ContextVar("_current", default=None)
"""The wire of the request that this thread is sending; connections are made by urllib3, deep below."""


class WireCut(Exception):  # noqa: N818 - private to this package, says what happened
    """The wire was cut: whoever cut it has completed the call, there is nothing left to report."""


@final
class Wire:
    """The socket of one request, for as long as the request lasts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False
        self._connecting = False
        self._sent = False

    @property
    def started(self) -> bool:
        """A connection was looked for."""
        return self._connecting

    @property
    def sent(self) -> bool:
        """The server may have got the request, or a part of it."""
        return self._sent

    def cancel(self) -> None:
        """End the request, from any thread: nothing is sent from now on, and whoever waits for the socket wakes."""
        with self._lock:
            self._is_cut = True
            if self._socket is not None:
                with suppress(OSError):  # not connected, or no longer
                    self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """The request is over; the socket may go on to serve another one."""
        with self._lock:
            self._is_cut = True
            self._forget()

    def begin(self) -> None:
        """A connection is about to be looked for.

        Raises:
            WireCut: it was cut before.
        """
        with self._lock:
            self._check()
            self._connecting = True

    def attach(self, descriptor: int) -> None:
        """This is the socket now, connected or not.

        Raises:
            WireCut: it was cut before; the caller closes the socket.
        """
        with self._lock:
            self._check()
            self._forget()
            self._socket = socket.socket(fileno=os.dup(descriptor))

    def sending(self) -> None:
        """The request's first byte is about to be sent.

        Raises:
            WireCut: it was cut before, and must not be sent.
        """
        with self._lock:
            self._check()
            self._sent = True

    def again(self) -> None:
        """The request was not looked at, for its credential, and is going to be sent once more: it was not sent yet."""
        self._sent = False

    def _check(self) -> None:
        if self._is_cut:
            raise WireCut

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@final
class Transport:
    """The `kubernetes` package's way to its server (TLS, proxy, keep-alive), of one thread, with wires."""

    def __init__(self, configuration: Configuration, limit: timedelta) -> None:
        self._manager: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self._manager.pool_classes_by_scheme = {
            scheme: _wired(pool) for scheme, pool in self._manager.pool_classes_by_scheme.items()
        }
        # The call's own limit is what counts. This one shares it among the addresses of a name, see `_connected`.
        self._timeout = urllib3.Timeout(connect=limit.total_seconds(), read=None)

    def send(
        self, wire: Wire, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and wait for the answer's headers. One try, no redirects.

        Raises:
            WireCut: somebody else ended it.
            urllib3.exceptions.HTTPError: there was no answer.
        """
        wire.begin()
        token = _current.set(wire)
        try:
            return self._manager.request(
                method,
                url,
                body=body,
                headers=dict(headers),
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        finally:
            _current.reset(token)

    def close(self) -> None:
        """Close what connections are left."""
        self._manager.clear()


class _Wired(HTTPConnection):
    """A connection that tells the current wire of its socket."""

    response_class = Answer

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        try:
            _wire().attach(sock.fileno())
        except BaseException:
            sock.close()
            raise
        return sock

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Connect first, if need be: what fails before a byte is sent has changed nothing on the server."""
        wire = _wire()
        if self.sock is None:
            self.connect()
        else:
            wire.attach(self.sock.fileno())
        wire.sending()
        super().request(*args, **kwargs)


class _WiredDirect(_Wired):
    """The same, cuttable while it connects."""

    def _new_conn(self) -> socket.socket:
        try:
            found = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            # UnicodeError: no host name at all, such as one with an empty label
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
        """A socket connected to one of a name's addresses; each gets its share of the time, lest a dead one has all."""
        family, kind, protocol, _, target = address
        sock = socket.socket(family, kind, protocol)
        try:
            for option in self.socket_options or ():
                sock.setsockopt(*option)
            timeout = self.timeout
            sock.settimeout(timeout / share if isinstance(timeout, int | float) else None)
            _wire().attach(sock.fileno())
            sock.connect(target)
        except BaseException:
            sock.close()
            raise
        return sock


def _wire() -> Wire:
    wire = _current.get()
    assert wire is not None, "a connection is used outside of `Transport.send`"
    return wire


def _wired(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """The pool's class, its connections wired; a SOCKS proxy's keep their own way to connect."""
    connection: Any = pool.ConnectionCls
    base = _WiredDirect if connection._new_conn is HTTPConnection._new_conn else _Wired  # noqa: SLF001 - the seam of urllib3.contrib.socks
    wired: Final = type(f"Wired{connection.__name__}", (base, connection), {})
    return type(f"Wired{pool.__name__}", (pool,), {"ConnectionCls": wired})
