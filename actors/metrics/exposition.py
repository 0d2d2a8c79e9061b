"""The page of Prometheus: a fleet's metrics, and those of the process: CPU, memory, open files, garbage collection.

Imported only on request, as `actors.metrics.prometheus` is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.errors import needs_extra
from actors.metrics.prometheus import PrometheusMetrics

with needs_extra("metrics", "/metrics"):
    from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.metrics.counts import Metrics

__all__ = ["exposition", "process_registry"]


def process_registry(metrics: PrometheusMetrics) -> CollectorRegistry:
    """Return a registry with these metrics and those of the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(metrics)
    return registry


def exposition(given: Metrics | None) -> tuple[Metrics, Callable[[], bytes] | None]:
    """Return metrics for a Backend, and what renders them; None if the given ones are somebody else's.

    Rendering asks the Backend, and waits for its answer.
    """
    metrics = given or PrometheusMetrics()
    if not isinstance(metrics, PrometheusMetrics):
        return metrics, None
    registry = process_registry(metrics)
    return metrics, lambda: generate_latest(registry)
