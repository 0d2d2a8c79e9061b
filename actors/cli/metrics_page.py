"""`executor-pods run --metrics-port`: serves metrics over HTTP, for Prometheus or curl.

Anybody who reaches the port may connect. Connections are few and short, so that idle ones and endless requests neither
fill the memory nor lock out Prometheus.
"""

from __future__ import annotations

import io
import socket
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from actors.errors import SettingsError, needs_extra
from actors.runtime import SystemClock, elapsed, start_thread

with needs_extra("metrics", "--metrics-port"):
    from prometheus_client import CollectorRegistry, make_wsgi_app

    from actors.metrics.exposition import process_registry
    from actors.metrics.prometheus import PrometheusMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.runtime import Clock, Moment

__all__ = ["MOST_CONNECTIONS", "REQUEST_WITHIN", "serve_metrics"]

MOST_CONNECTIONS: Final = 16
"""Connections at once, with a thread each. A further one cuts the oldest: a scrape takes milliseconds, so the oldest is
idle. `http.client` bounds the headers of each: 100 of 64 KiB."""

REQUEST_WITHIN: Final = timedelta(seconds=30)
"""The longest life of a connection, which serves one request. Prometheus waits for ten seconds by default."""


@contextmanager
def serve_metrics(address: str, port: int, *, clock: Clock | None = None) -> Iterator[tuple[PrometheusMetrics, str]]:
    """Serve until the context ends; yield the metrics for the Backend, and the page's URL.

    The page also has the metrics of the process: CPU, memory, open files, garbage collection.

    Raises:
        SettingsError: the address is not one of this machine, or the port is in use.
    """
    metrics = PrometheusMetrics()
    try:
        server = _serve(address, port, process_registry(metrics), clock or SystemClock())
    except OSError as error:
        raise SettingsError(f"metrics cannot be served at {address} port {port}: {error.strerror}") from None
    except UnicodeError:  # of the name's encoding: a part of it is empty, too long, or no text
        raise SettingsError(f"metrics cannot be served at {address} port {port}: it is no host's name") from None
    with ExitStack() as undo:
        undo.callback(server.server_close)
        thread = start_thread(server.serve_forever, "executor-pods/metrics")
        undo.pop_all()
    try:
        host = f"[{address}]" if ":" in address else address
        yield metrics, f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _serve(address: str, port: int, registry: CollectorRegistry, clock: Clock) -> _Server:
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]

    class Server(_Server):
        address_family = family

    server = make_server(address, port, make_wsgi_app(registry), Server, _Handler)
    server.clock = clock
    return server


class _Handler(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass

    def get_stderr(self) -> TextIO:
        """Discard the traceback of a request that breaks the page: any peer can send one."""
        return io.StringIO()


class _Server(ThreadingMixIn, WSGIServer):
    """Cuts the oldest connection if there are too many, and each one that lives too long."""

    daemon_threads = True
    request_queue_size = 4 * MOST_CONNECTIONS  # so that a burst of connections delays no scrape
    clock: Clock

    def __init__(self, *args: Any, **options: Any) -> None:
        self._open: dict[socket.socket, Moment] = {}
        """Since when each connection is open, the oldest first."""
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        for oldest in [*self._open][: max(0, len(self._open) - MOST_CONNECTIONS + 1)]:
            self._cut(oldest)
        self._open[request] = self.clock.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection at its end."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut what lives too long. Called twice a second."""
        now = self.clock.monotonic()
        for request, since in [*self._open.items()]:
            if elapsed(since, now) > REQUEST_WITHIN:
                self._cut(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the peer has gone, or was cut."""

    def _cut(self, request: socket.socket) -> None:
        """Wake the thread that reads from a connection; it closes it."""
        self._open.pop(request, None)
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)
