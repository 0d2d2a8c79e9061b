"""`executor-pods run --metrics-port`: serves metrics over HTTP, for Prometheus or curl."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, start_http_server

from actors.errors import SettingsError
from actors.metrics.prometheus import PrometheusMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["serve_metrics"]


@contextmanager
def serve_metrics(address: str, port: int) -> Iterator[tuple[PrometheusMetrics, str]]:
    """Serve until the context ends; yield the metrics for the Backend, and the page's URL.

    The page also has the metrics of the process: CPU, memory, open files, garbage collection.

    Raises:
        SettingsError: the address is not one of this machine, or the port is in use.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    metrics = PrometheusMetrics(registry)
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        raise SettingsError(f"metrics cannot be served at {address} port {port}: {error.strerror}") from None
    try:
        host = f"[{address}]" if ":" in address else address
        yield metrics, f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
