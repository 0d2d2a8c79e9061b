"""Spans by OpenTelemetry: one of each executor, from its request until it is registered.

Imported only on request: nothing else in the library needs `opentelemetry`. This needs the API only; without an SDK,
which the driver sets up, the spans go nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

from actors.errors import needs_extra
from actors.messages import BackendStopped, RegisterExecutor
from actors.messages.internal import ExecutorsAbandoned, ExecutorSeen, ExecutorsRequested, RemoveExecutor
from actors.pods.loss import LossKind
from actors.pods.state import PodPending, PodRunning

with needs_extra("otel", "OpenTelemetryTraces"):
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Status, StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

    from actors.metrics.counts import Traced
    from actors.pods.loss import LossReason
    from actors.pods.pod import Pod

__all__ = ["OpenTelemetryTraces"]

START: Final = "executor start"
END: Final = "executor end"


@final
class OpenTelemetryTraces:
    """The spans of all Backends of a process. Pass it to `Backend.start(..., traces=...)`.

    Args:
        tracer_provider: by default the global one.
        until: when a start is done. `"running"` is for executors that do not register.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, until: Literal["registered", "running"] = "registered"
    ) -> None:
        if until not in {"registered", "running"}:
            raise ValueError(f"until = {until!r}: must be 'registered' or 'running'")
        self._tracer = trace.get_tracer("executor-pods", tracer_provider=tracer_provider)
        self._until_running = until == "running"

    def begin(self, app_id: str, now: Callable[[], datetime]) -> Callable[[Traced], None]:
        """See `actors.metrics.counts.Traces`."""
        return _Spans(self._tracer, app_id, now, until_running=self._until_running).notice


class _Spans:
    """The spans of one Backend. At most one is open for each executor that it requested."""

    def __init__(self, tracer: Tracer, app_id: str, now: Callable[[], datetime], *, until_running: bool) -> None:
        self._tracer = tracer
        self._app_id = app_id
        self._now = now
        self._until_running = until_running
        self._open: dict[int, Span] = {}
        self._started: dict[int, SpanContext] = {}
        """Executors whose start is done, and that have not ended."""

    def notice(self, message: Traced) -> None:
        """Begin, change or end spans."""
        match message:
            case ExecutorsRequested(executor_ids, profile):
                self._requested(executor_ids, profile)
            case ExecutorSeen(executor_id, _, PodPending(pod)):
                self._observed(executor_id, "pending", pod)
            case ExecutorSeen(executor_id, _, PodRunning(pod)):
                self._observed(executor_id, "running", pod)
                if self._until_running:
                    self._done(executor_id)
            case RegisterExecutor(executor_id) if not self._until_running:
                self._done(executor_id)
            case RemoveExecutor(executor_id, _, reason):
                self._lost(executor_id, reason)
            case ExecutorsAbandoned(executor_ids, reason):
                for executor_id in executor_ids:
                    self._never_started(executor_id, reason)
            case BackendStopped():
                self._stopped()
            case _:
                pass

    def _requested(self, executor_ids: Iterable[int], profile: str) -> None:
        for executor_id in executor_ids:
            if executor_id not in self._open:  # an Allocator that hung and was replaced may repeat itself
                attributes = {**self._attributes(executor_id), "executor_pods.profile": profile}
                self._open[executor_id] = self._tracer.start_span(
                    START, context=Context(), attributes=attributes, start_time=self._time()
                )

    def _observed(self, executor_id: int, state: str, pod: Pod) -> None:
        if (span := self._open.get(executor_id)) is None:
            return
        span.set_attribute("k8s.pod.name", pod.name)
        span.set_attribute("k8s.pod.uid", pod.uid)
        if pod.node is not None:
            span.set_attribute("k8s.node.name", pod.node)
        span.add_event(state, timestamp=self._time())

    def _done(self, executor_id: int) -> None:
        if (span := self._open.pop(executor_id, None)) is not None:
            span.end(self._time())
            self._started[executor_id] = span.get_span_context()

    def _lost(self, executor_id: int, reason: LossReason) -> None:
        """End the span of an executor that was lost before its start was done, or add one about its end."""
        span = self._open.pop(executor_id, None)
        if span is None:
            if (started := self._started.pop(executor_id, None)) is None:
                return
            parent = trace.set_span_in_context(trace.NonRecordingSpan(started), Context())
            attributes = self._attributes(executor_id)
            span = self._tracer.start_span(END, context=parent, attributes=attributes, start_time=self._time())
        span.set_attribute("executor_pods.loss.kind", reason.kind.value)
        span.set_attribute("executor_pods.loss.exit_code", reason.exit_code)
        span.set_attribute("executor_pods.loss.caused_by_app", reason.caused_by_app)
        if reason.kind is not LossKind.KILLED_BY_DRIVER:
            span.set_status(Status(StatusCode.ERROR, reason.message))
        span.end(self._time())

    def _never_started(self, executor_id: int, why: str) -> None:
        if (span := self._open.pop(executor_id, None)) is not None:
            span.set_attribute("executor_pods.loss.kind", LossKind.NEVER_STARTED.value)
            span.set_status(Status(StatusCode.ERROR, why))
            span.end(self._time())

    def _stopped(self) -> None:
        """End what is open: the Backend ends."""
        for span in self._open.values():
            span.add_event("backend ended", timestamp=self._time())
            span.end(self._time())
        self._open.clear()
        self._started.clear()

    def _attributes(self, executor_id: int) -> dict[str, str | int]:
        return {"executor_pods.app_id": self._app_id, "executor_pods.executor_id": executor_id}

    def _time(self) -> int:
        """Return nanoseconds since the epoch."""
        return int(self._now().timestamp() * 1e9)
