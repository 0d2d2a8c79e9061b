"""The meter passes requests and answers on unchanged, and counts each once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Ambiguous, Cancelled, Gone, NotFound
from actors.kube.api import PodPage, WatchEnded, WatchEvents
from actors.kube.metered import ApiCounts, MeteredPodApi
from actors.testing.manual_api import ManualPodApi
from tests.unit.kube.test_fence import REQUESTS, put

if TYPE_CHECKING:
    from actors.kube.api import Call, Operation, PodApi
    from actors.testing import Kit
    from actors.testing.manual_api import ManualCall

PAGE = PodPage((), "7")


class Metered:
    """An API whose calls stay open until a test answers them, behind a meter."""

    def __init__(self, kit: Kit, inner: PodApi | None = None) -> None:
        self.inner = ManualPodApi("jobs")
        self.counts = ApiCounts()
        self.api = MeteredPodApi(inner or self.inner, self.counts, kit.clock)
        self.answers: list[Any] = []

    def send(self, operation: Operation) -> Call:
        return put(self.api, operation, self.answers.append)


@pytest.fixture
def metered(kit: Kit) -> Metered:
    return Metered(kit)


@pytest.mark.parametrize("operation", REQUESTS)
def test_a_request_passes_unchanged_and_is_counted_when_it_completes(
    operation: Operation, metered: Metered, kit: Kit
) -> None:
    metered.send(operation)
    assert metered.counts.in_flight() == {operation: 1}
    assert metered.counts.results.read() == {}
    (call,) = metered.inner.calls
    assert call.request is REQUESTS[operation]
    kit.advance(timedelta(seconds=0.2))
    if operation == "watch":
        call.end()
    else:
        call.answer(PAGE)
    assert metered.answers == [WatchEnded(None) if operation == "watch" else PAGE]
    assert metered.counts.in_flight() == {operation: 0}
    assert metered.counts.results.read() == {(operation, "ok"): 1}
    if operation == "watch":
        assert metered.counts.durations() == {}, "it lasts as long as it does"
    else:
        assert metered.counts.durations()[operation].read()[1] == pytest.approx(0.2)


def test_malformed_pods_are_counted_by_operation(metered: Metered) -> None:
    metered.send("list")
    metered.send("watch")
    listing, watching = metered.inner.calls
    listing.answer(PodPage((), "7", malformed=2))
    watching.send(version="8")
    assert metered.counts.unreadable.read() == {("list",): 2, ("watch",): 0}
    watching.send(version="9", malformed=1)
    watching.send(version="10", malformed=3)
    assert metered.counts.unreadable.read() == {("list",): 2, ("watch",): 4}


@pytest.mark.parametrize("operation", REQUESTS)
def test_an_error_is_counted_by_its_class(operation: Operation, metered: Metered) -> None:
    metered.send(operation)
    metered.send(operation)
    for call, error in zip(metered.inner.calls, (NotFound("no"), Ambiguous("no answer")), strict=True):
        if operation == "watch":
            call.end(error)
        else:
            call.answer(error)
    assert metered.counts.results.read() == {(operation, "NotFound"): 1, (operation, "Ambiguous"): 1}


@pytest.mark.parametrize("operation", REQUESTS)
def test_a_cancelled_call_is_counted_as_cancelled(operation: Operation, metered: Metered) -> None:
    metered.send(operation).cancel()
    assert metered.counts.results.read() == {(operation, Cancelled.__name__): 1}
    assert metered.counts.in_flight() == {operation: 0}


def test_events_of_a_watch_are_passed_on_and_do_not_complete_it(metered: Metered) -> None:
    metered.send("watch")
    (call,) = metered.inner.calls
    call.send(version="8")
    assert metered.answers == [WatchEvents((), "8")]
    assert metered.counts.in_flight() == {"watch": 1}
    call.end(Gone("too old", status=410))
    assert metered.counts.results.read() == {("watch", "Gone"): 1}


@pytest.mark.parametrize("operation", ["create", "watch"])
def test_a_call_that_could_not_be_sent_is_not_under_way(operation: Operation, kit: Kit) -> None:
    class NoThreads(ManualPodApi):
        def send(self, *_: Any, **__: Any) -> ManualCall:
            raise RuntimeError("can't start new thread")

        def watch(self, *_: Any, **__: Any) -> ManualCall:
            raise RuntimeError("can't start new thread")

    metered = Metered(kit, NoThreads("jobs"))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        metered.send(operation)
    assert metered.counts.in_flight() == {operation: 0}
    assert metered.counts.results.read() == {(operation, "RuntimeError"): 1}


def test_the_meter_has_the_namespace_of_its_api_and_closes_it(metered: Metered) -> None:
    assert metered.api.namespace == "jobs"
    metered.send("create")
    metered.api.close()
    assert [type(answer) for answer in metered.answers] == [Cancelled]
