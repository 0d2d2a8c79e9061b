"""Spans of executors, as the OpenTelemetry SDK exports them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from actors import Fleet, OpenTelemetryTraces
from actors.messages import BackendStopped, ExecutorRemoved, ExecutorRunning, RegisterExecutor
from actors.messages.internal import ExecutorsAbandoned, ExecutorSeen, ExecutorsRequested, RemoveExecutor
from actors.pods.loss import LossKind, LossReason
from actors.pods.state import PodPending, PodRunning
from actors.testing import FakeCluster, Kit
from tests.unit.builders import pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.trace import ReadableSpan

    from actors.metrics.counts import Traced

BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
LOST = LossReason(LossKind.OOM_KILLED, 137, caused_by_app=True, message="executor 1 was killed")
ENDED = LossReason(LossKind.KILLED_BY_DRIVER, 0, caused_by_app=False, message="executor 1 was ended by the driver")


class Rig:
    """A tracer between the messages of a Backend and the SDK's exporter."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = OpenTelemetryTraces(provider, **options)
        self.now = BEGIN
        self._notice = self.traces.begin("etl", lambda: self.now)

    def tell(self, *messages: Traced, after: float = 0) -> None:
        self.now += timedelta(seconds=after)
        for message in messages:
            self._notice(message)

    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def span(self) -> ReadableSpan:
        (span,) = self.spans()
        return span


def seconds(span: ReadableSpan) -> float:
    assert span.end_time is not None
    assert span.start_time is not None
    return (span.end_time - span.start_time) / 1e9


def running(executor_id: int) -> ExecutorSeen:
    return ExecutorSeen(executor_id, "uid", PodRunning(pod(executor_id)))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_span_lasts_from_the_request_of_an_executor_until_it_is_registered(rig: Rig) -> None:
    rig.tell(ExecutorsRequested((1,), "large"))
    rig.tell(ExecutorSeen(1, "uid", PodPending(pod(1))), after=1)
    rig.tell(running(1), after=2)
    assert rig.spans() == []
    rig.tell(RegisterExecutor(1), after=3)
    span = rig.span()
    assert (span.name, seconds(span), span.start_time) == ("executor start", 6, BEGIN.timestamp() * 1e9)
    assert span.attributes == {
        "executor_pods.app_id": "etl",
        "executor_pods.executor_id": 1,
        "executor_pods.profile": "large",
        "k8s.pod.name": pod(1).name,
        "k8s.pod.uid": pod(1).uid,
    }
    assert [(event.name, event.timestamp / 1e9 - BEGIN.timestamp()) for event in span.events] == [
        ("pending", 1),
        ("running", 3),
    ]
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None


def test_where_executors_do_not_register_it_lasts_until_they_run() -> None:
    rig = Rig(until="running")
    rig.tell(ExecutorsRequested((1,), "default"))
    rig.tell(running(1), after=3)
    rig.tell(running(1), RegisterExecutor(1), after=3)
    assert seconds(rig.span()) == 3


def test_an_executor_that_is_lost_before_it_registers_has_one_span_with_the_loss(rig: Rig) -> None:
    rig.tell(ExecutorsRequested((1,), "default"), running(1))
    rig.tell(RemoveExecutor(1, "uid", LOST), RemoveExecutor(1, "uid", LOST), after=4)
    span = rig.span()
    assert seconds(span) == 4
    assert span.attributes is not None
    assert span.attributes["executor_pods.loss.kind"] == "OOM_KILLED"
    assert span.attributes["executor_pods.loss.exit_code"] == 137
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "executor 1 was killed")


def test_the_loss_of_one_that_was_registered_is_a_span_of_the_same_trace(rig: Rig) -> None:
    rig.tell(ExecutorsRequested((1,), "default"), RegisterExecutor(1))
    rig.tell(RemoveExecutor(1, "uid", LOST), RemoveExecutor(1, "uid", LOST), after=600)
    start, end = rig.spans()
    assert (end.name, seconds(end), end.status.status_code) == ("executor end", 0, StatusCode.ERROR)
    assert start.context is not None
    assert end.parent is not None
    assert (end.parent.trace_id, end.parent.span_id) == (start.context.trace_id, start.context.span_id)


def test_an_end_that_the_driver_requested_is_no_error(rig: Rig) -> None:
    rig.tell(ExecutorsRequested((1,), "default"), RegisterExecutor(1), RemoveExecutor(1, "uid", ENDED))
    assert [span.status.status_code for span in rig.spans()] == [StatusCode.UNSET, StatusCode.UNSET]


def test_an_executor_that_was_abandoned_has_a_span_that_says_why(rig: Rig) -> None:
    rig.tell(ExecutorsRequested((1, 2), "default"), ExecutorsAbandoned((1,), "not observed"))
    span = rig.span()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "not observed")
    rig.tell(RemoveExecutor(1, "uid", LOST))
    assert len(rig.spans()) == 1


def test_executors_of_an_earlier_driver_have_no_span(rig: Rig) -> None:
    rig.tell(running(7), RegisterExecutor(7), RemoveExecutor(7, "uid", LOST))
    assert rig.spans() == []


def test_an_executor_that_is_requested_twice_has_one_span(rig: Rig) -> None:
    rig.tell(ExecutorsRequested((1,), "default"), ExecutorsRequested((1,), "default"), RegisterExecutor(1))
    rig.tell(BackendStopped())
    assert len(rig.spans()) == 1


def test_the_end_of_the_backend_ends_what_is_open_and_nothing_is_left(rig: Rig) -> None:
    rig.tell(ExecutorsRequested((1, 2), "default"), RegisterExecutor(1))
    rig.tell(BackendStopped(), after=5)
    assert [(seconds(span), len(span.events)) for span in rig.spans()] == [(0, 0), (5, 1)]
    rig.tell(BackendStopped(), RemoveExecutor(1, "uid", LOST))
    assert len(rig.spans()) == 2


def test_a_wrong_moment_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 'registered' or 'running'"):
        OpenTelemetryTraces(until="started")  # type: ignore[arg-type]  # what a user may write


# ── with a Backend ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fleet_traces_its_executors_and_what_it_does_not_let_in_is_no_end_of_a_span(kit: Kit) -> None:
    rig, cluster = Rig(), FakeCluster(kit)
    with Fleet(pod_api=cluster.api, image="any", instances=2, traces=rig.traces) as fleet:
        fleet.wait_for(running=2, timeout=timedelta(minutes=1))
        assert not fleet.register(9)
        for _ in range(2):
            assert fleet.register(1)
        cluster.oom(1)
        kit.wait_until(lambda: len(rig.spans()) == 2, timedelta(minutes=1))
    start, end, *rest = rig.spans()
    assert start.attributes is not None
    assert start.attributes["executor_pods.executor_id"] == 1
    assert seconds(start) > 0, "of the virtual clock"
    assert (end.name, end.status.status_code) == ("executor end", StatusCode.ERROR)
    assert {span.name for span in rest} == {"executor start"}


class Broken:
    """Traces that fail."""

    def begin(self, _app_id: str, _now: Callable[[], datetime]) -> Callable[[object], object]:
        def fail(_: object) -> None:
            raise ConnectionError("the collector is away")

        return fail


def test_traces_that_fail_are_logged_and_the_fleet_goes_on(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(kit)
    told: list[object] = []
    fleet = Fleet(pod_api=cluster.api, image="any", instances=1, traces=Broken(), on_event=told.append)
    with fleet:
        fleet.wait_for(running=1, timeout=timedelta(minutes=1))
        cluster.oom(1)
        kit.wait_until(lambda: any(isinstance(each, ExecutorRemoved) for each in told), timedelta(minutes=1))
    assert any(isinstance(each, ExecutorRunning) for each in told)
    assert "the exporter of traces failed: message=ExecutorsRequested" in caplog.text
