"""What goes through the meter is what went in, and it is counted once, however it ends."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Ambiguous, Cancelled, Gone, NotFound
from actors.kube.api import PodPage, WatchEnded, WatchEvents
from actors.kube.metered import ApiCounts, MeteredPodApi
from actors.testing.manual_api import ManualPodApi
from tests.unit.kube.test_fence import CALLS

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Call, Manifest, PodApi
    from actors.testing import Kit
    from actors.testing.manual_api import ManualCall, Verb

PAGE = PodPage((), "7")


class Metered:
    """An API whose calls stay open until a test answers them, behind a meter."""

    def __init__(self, kit: Kit, inner: PodApi | None = None) -> None:
        self.inner = ManualPodApi("jobs")
        self.counts = ApiCounts()
        self.api = MeteredPodApi(inner or self.inner, self.counts, kit.clock)
        self.answers: list[Any] = []

    def send(self, verb: Verb) -> Call:
        return CALLS[verb](self.api, self.answers.append)


@pytest.fixture
def metered(kit: Kit) -> Metered:
    return Metered(kit)


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_goes_through_as_it_is_and_is_counted_when_it_is_answered(
    verb: Verb, metered: Metered, kit: Kit
) -> None:
    plain = ManualPodApi("jobs")
    CALLS[verb](plain, metered.answers.append)
    metered.send(verb)
    assert metered.counts.in_flight() == {verb: 1}
    assert metered.counts.results.read() == {}
    (call,) = metered.inner.calls
    assert (call.verb, call.arguments) == (plain.calls[0].verb, plain.calls[0].arguments)
    kit.advance(timedelta(seconds=0.2))
    if verb == "watch":
        call.end()
    else:
        call.answer(PAGE)
    assert metered.answers == [WatchEnded(None) if verb == "watch" else PAGE]
    assert metered.counts.in_flight() == {verb: 0}
    assert metered.counts.results.read() == {(verb, "ok"): 1}
    if verb == "watch":
        assert metered.counts.durations() == {}, "it lasts as long as it does"
    else:
        assert metered.counts.durations()[verb].read()[1] == pytest.approx(0.2)


def test_pods_that_could_not_be_decoded_are_counted_by_what_showed_them(metered: Metered) -> None:
    metered.send("list")
    metered.send("watch")
    listing, watching = metered.inner.calls
    listing.answer(PodPage((), "7", malformed=2))
    watching.send(version="8")
    assert metered.counts.unreadable.read() == {("list",): 2, ("watch",): 0}
    watching.send(version="9", malformed=1)
    watching.send(version="10", malformed=3)
    assert metered.counts.unreadable.read() == {("list",): 2, ("watch",): 4}


@pytest.mark.parametrize("verb", CALLS)
def test_an_error_is_counted_by_its_class(verb: Verb, metered: Metered) -> None:
    metered.send(verb)
    metered.send(verb)
    for call, error in zip(metered.inner.calls, (NotFound("no"), Ambiguous("no answer")), strict=True):
        if verb == "watch":
            call.end(error)
        else:
            call.answer(error)
    assert metered.counts.results.read() == {(verb, "NotFound"): 1, (verb, "Ambiguous"): 1}


@pytest.mark.parametrize("verb", CALLS)
def test_one_that_is_cancelled_is_counted_as_that(verb: Verb, metered: Metered) -> None:
    metered.send(verb).cancel()
    assert metered.counts.results.read() == {(verb, Cancelled.__name__): 1}
    assert metered.counts.in_flight() == {verb: 0}


def test_what_a_watch_brings_is_handed_on_and_counts_as_no_end(metered: Metered) -> None:
    metered.send("watch")
    (call,) = metered.inner.calls
    call.send(version="8")
    assert metered.answers == [WatchEvents((), "8")]
    assert metered.counts.in_flight() == {"watch": 1}
    call.end(Gone("too old", status=410))
    assert metered.counts.results.read() == {("watch", "Gone"): 1}


@pytest.mark.parametrize("verb", ["create", "watch"])
def test_one_that_could_not_be_sent_is_not_under_way_for_ever(verb: Verb, kit: Kit) -> None:
    class NoThreads(ManualPodApi):
        def create(self, manifest: Manifest, reply: Callable[[Any], None]) -> ManualCall:
            raise RuntimeError("can't start new thread")

        def watch(self, *_: Any, **__: Any) -> ManualCall:
            raise RuntimeError("can't start new thread")

    metered = Metered(kit, NoThreads("jobs"))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        metered.send(verb)
    assert metered.counts.in_flight() == {verb: 0}
    assert metered.counts.results.read() == {(verb, "RuntimeError"): 1}


def test_it_is_of_the_namespace_that_it_meters_and_closes_it(metered: Metered) -> None:
    assert metered.api.namespace == "jobs"
    metered.send("get")
    metered.api.close()
    assert [type(answer) for answer in metered.answers] == [Cancelled]
