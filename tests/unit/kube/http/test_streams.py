"""Watches: events, how they are batched, and the end of a stream."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import ApiError, Cancelled, Gone, TooManyRequests, Unavailable
from actors.kube import WatchEnded, WatchEvents
from actors.kube.http import streams
from actors.kube.http.bounds import AnswerBounds
from actors.kube.http.streams import Stream
from tests.unit.kube.http.test_cancel import Stall
from tests.unit.kube.http.test_pod_api import LOSSES, PODS, pod
from tests.unit.kube.scripted import SAFETY, Peer, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube import Call
    from actors.kube.http.pod_api import HttpPodApi
    from tests.unit.kube.conftest import Client

MINUTES = timedelta(minutes=5)


class Sink:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self._heard: SimpleQueue[WatchEvents | WatchEnded] = SimpleQueue()
        self.malformed = 0

    def __call__(self, what: WatchEvents | WatchEnded) -> None:
        self._heard.put(what)

    def is_empty(self) -> bool:
        return self._heard.empty()

    def events(self) -> WatchEvents:
        what = self._heard.get(timeout=SAFETY)
        assert isinstance(what, WatchEvents), what
        return what

    def ended(self) -> WatchEnded:
        what = self._heard.get(timeout=SAFETY)
        assert isinstance(what, WatchEnded), what
        assert self._heard.empty()
        return what

    def end(self) -> ApiError | None:
        return self.ended().error

    def all(self) -> tuple[list[tuple[str, str]], str, ApiError | None]:
        """Every event's type and pod, the last version, and the end."""
        events: list[tuple[str, str]] = []
        version = ""
        while isinstance(what := self._heard.get(timeout=SAFETY), WatchEvents):
            events += [(event.type, event.pod.name) for event in what.events]
            version = what.resource_version
            self.malformed += what.malformed
        return events, version, what.error


def watch(api: HttpPodApi, sink: Sink, version: str = "4") -> Call:
    return api.watch(kube.Watch("a=b", version, timeout=MINUTES), sink)


def line(kind: str, obj: object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


BOOKMARK = {"kind": "Pod", "metadata": {"resourceVersion": "77"}}
EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 4 (9)"}


def test_a_watch_asks_for_bookmarks_and_a_time_and_no_compression(server: ScriptedServer, client: Client) -> None:
    def end(peer: Peer) -> None:
        peer.stream()
        peer.finish()

    server.then(end)
    sink = Sink()
    watch(client.connect(), sink)
    assert sink.end() is None
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("GET", PODS)
    assert asked.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": "a=b",
        "resourceVersion": "4",
        "timeoutSeconds": "300",
    }
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["authorization"] == "Bearer secret-token"


def test_events_come_as_they_are_read_and_bookmarks_move_the_version(server: ScriptedServer, client: Client) -> None:
    told = threading.Semaphore(0)

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.chunk(line("ADDED", pod("a", 5)) + line("MODIFIED", pod("a", 6)))
        told.acquire()
        peer.event("BOOKMARK", BOOKMARK)
        told.acquire()
        peer.event("DELETED", pod("a", 80))
        peer.finish()

    server.then(stream)
    sink = Sink()
    watch(client.connect(), sink)
    first = sink.events()
    assert [(event.type, event.pod.name) for event in first.events] == [("ADDED", "a"), ("MODIFIED", "a")]
    assert first.resource_version == "6"
    told.release()
    assert sink.events() == WatchEvents((), "77", urgent=False)
    told.release()
    assert sink.events().resource_version == "80"
    assert sink.end() is None


@pytest.mark.parametrize(
    ("size", "held", "together"),
    [(streams.READ_SIZE, streams.READS_HELD, ["abc"]), (64, 16, ["abc"]), (64, 0, ["a", "b", "c"])],
)
def test_events_that_arrive_together_are_delivered_together_though_each_is_its_own_chunk(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch, size: int, held: int, together: list[str]
) -> None:
    """Over as many reads as it takes, up to a number."""
    monkeypatch.setattr(streams, "READ_SIZE", size)
    monkeypatch.setattr(streams, "READS_HELD", held)
    lines = [line("DELETED", pod(name, version)) for version, name in enumerate("abc", 5)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in lines)
    server.then(
        lambda peer: peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    )
    sink = Sink()
    watch(client.connect(), sink)
    told = [sink.events() for _ in together]
    assert ["".join(event.pod.name for event in each.events) for each in told] == together
    assert sink.end() is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
@pytest.mark.parametrize("chunked", [True, False])
def test_lines_may_be_cut_anywhere(server: ScriptedServer, client: Client, size: int, chunked: bool) -> None:
    data = line("ADDED", pod("ä", 5)) + b"\n" + line("DELETED", pod("b", 6)) + line("BOOKMARK", BOOKMARK)

    def stream(peer: Peer) -> None:
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        if chunked:
            peer.stream()
            for piece in pieces:
                peer.chunk(piece)
            peer.finish()
        else:
            peer.head(200, {"Connection": "close"})
            for piece in pieces:
                peer.send(piece)

    server.then(stream)
    sink = Sink()
    watch(client.connect(), sink)
    assert sink.all() == ([("ADDED", "ä"), ("DELETED", "b")], "77", None)


def test_a_last_line_without_an_end_counts(server: ScriptedServer, client: Client) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        peer.chunk(line("ERROR", EXPIRED).strip())
        peer.finish()

    server.then(stream)
    sink = Sink()
    watch(client.connect(), sink)
    assert type(sink.end()) is Gone


def test_an_error_event_is_the_end(server: ScriptedServer, client: Client) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        peer.chunk(line("ADDED", pod("a", 5)) + line("ERROR", EXPIRED) + line("ADDED", pod("b", 6)))
        peer.finish()

    server.then(stream)
    sink = Sink()
    watch(client.connect(), sink)
    assert [event.pod.name for event in sink.events().events] == ["a"]
    error = sink.end()
    assert type(error) is Gone
    assert (error.status, error.reason, error.message) == (410, "Expired", EXPIRED["message"])


@pytest.mark.parametrize(
    "obj", [{}, {"code": "x"}, {"kind": "Status", "code": 500, "message": "etcdserver: no leader"}]
)
def test_an_error_event_that_says_little_is_unavailable(server: ScriptedServer, client: Client, obj: object) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ERROR", obj)

    server.then(stream)
    sink = Sink()
    watch(client.connect(bounds=AnswerBounds(one_object=100_000)), sink)
    assert type(sink.end()) is Unavailable


def test_an_event_that_cannot_be_decoded_harms_no_other(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    bad = pod("bad", 6, labels="none")

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.chunk(line("ADDED", pod("a", 5)) + line("MODIFIED", bad) + line("MODIFIED", bad))
        peer.chunk(line("MODIFIED", bad))
        peer.chunk(line("NEWFANGLED", pod("x", 7)))
        peer.chunk(line("ADDED", 3))
        peer.finish()

    server.then(stream)
    sink = Sink()
    watch(client.connect(), sink)
    events, version, error = sink.all()
    assert (events, version, error) == ([("ADDED", "a")], "7", None)
    assert sink.malformed == 5
    assert len([record for record in caplog.records if "pod=bad" in record.getMessage()]) == 1


@pytest.mark.parametrize("garbage", [b"{\n", b"<html>\n", b"[" * 5000 + b"\n", b'"x"\n{}\n', b"{}\n"])
def test_what_is_no_event_ends_the_stream(server: ScriptedServer, client: Client, garbage: bytes) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ADDED", pod("a", 5))
        peer.chunk(garbage)
        peer.finish()

    server.then(stream)
    sink = Sink()
    watch(client.connect(), sink)
    events, version, error = sink.all()
    assert (events, version) == ([("ADDED", "a")], "5")
    assert type(error) is Unavailable
    assert server.name in error.message


def test_a_line_without_an_end_ends_the_stream(server: ScriptedServer, client: Client) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        while not peer.gone(0):
            peer.chunk(b" " * 10_000)

    server.then(stream)
    sink = Sink()
    watch(client.connect(bounds=AnswerBounds(one_object=100_000)), sink)
    assert type(sink.end()) is Unavailable


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.__name__ not in {"half_the_headers", "no_gzip"}])
def test_a_stream_that_is_cut_is_unavailable(
    server: ScriptedServer, client: Client, loss: Callable[[Peer], None]
) -> None:
    server.then(loss)
    sink = Sink()
    watch(client.connect(bounds=AnswerBounds(one_object=100_000)), sink)
    assert type(sink.end()) is Unavailable


def test_a_refusal_is_the_end(server: ScriptedServer, client: Client) -> None:
    server.answers(429, {"kind": "Status", "message": "storage is initializing"}, {"Retry-After": "3"})
    sink = Sink()
    watch(client.connect(), sink)
    error = sink.end()
    assert type(error) is TooManyRequests
    assert error.retry_after == timedelta(seconds=3)


@pytest.mark.parametrize("in_stream", [True, False])
def test_an_error_event_differs_from_a_refusal(server: ScriptedServer, client: Client, in_stream: bool) -> None:
    status = {"kind": "Status", "code": 500, "message": "RequestWatchProgress is disabled"}

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ERROR", status)

    if in_stream:
        server.then(stream)
    else:
        server.answers(500, status)
    sink = Sink()
    client.connect().watch(kube.Watch("a=b", "", timeout=MINUTES, send_initial_events=True), sink)
    ended = sink.ended()
    assert (type(ended.error), ended.in_stream) == (Unavailable, in_stream)


def test_initial_events_are_delivered_apart_from_later_events_of_the_same_read(
    server: ScriptedServer, client: Client
) -> None:
    mark = {"kind": "Pod", "metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.chunk(line("ADDED", pod("a", 5)) + line("BOOKMARK", mark) + line("DELETED", pod("a", 10)))
        peer.finish()

    server.then(stream)
    sink = Sink()
    client.connect().watch(kube.Watch("a=b", "", timeout=MINUTES, send_initial_events=True), sink)
    told = [sink.events(), sink.events()]
    assert [(each.resource_version, each.initial_events_end) for each in told] == [("9", True), ("10", False)]
    assert [[event.type for event in each.events] for each in told] == [["ADDED"], ["DELETED"]]


def stream_head(peer: Peer) -> None:
    peer.stream()


def half_an_event(peer: Peer) -> None:
    peer.stream()
    peer.chunk(b'{"type":')


def nothing(_: Peer) -> None:
    """Not even headers."""


def a_closing_stream(peer: Peer) -> None:
    peer.head(200, {"Connection": "close"})


@pytest.mark.parametrize("begin", [nothing, stream_head, half_an_event, a_closing_stream])
def test_a_cancelled_watch_ends_at_once_and_lets_go(
    server: ScriptedServer, client: Client, begin: Callable[[Peer], None]
) -> None:
    stall = Stall(begin=begin)
    server.then(stall)
    sink = Sink()
    call = watch(client.connect(), sink)
    assert stall.reached.wait(SAFETY)
    call.cancel()
    assert type(sink.end()) is Cancelled
    assert stall.freed.wait(SAFETY)
    call.cancel()


def test_a_sink_may_cancel_its_own_watch(server: ScriptedServer, client: Client) -> None:
    heard: SimpleQueue[Any] = SimpleQueue()
    calls: SimpleQueue[Call] = SimpleQueue()

    def sink(what: WatchEvents | WatchEnded) -> None:
        heard.put(what)
        if isinstance(what, WatchEvents):
            calls.get(timeout=SAFETY).cancel()
            heard.put("cancelled")

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.chunk(line("ADDED", pod("a", 5)))
        peer.chunk(line("ADDED", pod("b", 6)))
        peer.gone()

    server.then(stream)
    calls.put(client.connect().watch(kube.Watch("", "4", timeout=MINUTES), sink))
    assert isinstance(heard.get(timeout=SAFETY), WatchEvents)
    assert isinstance(heard.get(timeout=SAFETY), WatchEnded)
    assert heard.get(timeout=SAFETY) == "cancelled"
    assert server.done.get(timeout=SAFETY)
    assert heard.empty()


def test_events_read_before_a_cancel_are_not_delivered_after_it(server: ScriptedServer, client: Client) -> None:
    stall = Stall(begin=stream_head)
    server.then(stall)
    sink = Sink()
    call = watch(client.connect(), sink)
    assert isinstance(call, Stream)
    call.cancel()
    call.deliver(WatchEvents((), "5"))
    assert type(sink.end()) is Cancelled


def test_headers_that_do_not_come_in_time_end_the_stream(server: ScriptedServer, client: Client) -> None:
    api, timers = client.connect_by_hand()
    stall = Stall()
    server.then(stall)
    sink = Sink()
    watch(api, sink)
    assert stall.reached.wait(SAFETY)
    timers.fire_next()
    error = sink.end()
    assert type(error) is Unavailable
    assert error.message == f"{server.name} gave no full answer in 10 s"
    assert stall.freed.wait(SAFETY)


def test_silence_after_the_headers_does_not(server: ScriptedServer, client: Client) -> None:
    api, timers = client.connect_by_hand()

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("DELETED", pod("a", 5))
        peer.gone()

    server.then(stream)
    sink = Sink()
    call = watch(api, sink)
    sink.events()
    assert timers.pending == 0, "a stream that was answered has no limit"
    call.cancel()


def test_a_sink_that_raises_still_gets_the_later_events(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    heard: SimpleQueue[Any] = SimpleQueue()

    def sink(what: WatchEvents | WatchEnded) -> None:
        heard.put(what)
        raise SystemExit

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ADDED", pod("a", 5))
        peer.finish()

    server.then(stream)
    client.connect().watch(kube.Watch("", "4", timeout=MINUTES), sink)
    assert isinstance(heard.get(timeout=SAFETY), WatchEvents)
    assert heard.get(timeout=SAFETY) == WatchEnded(None)
    client.close()
    assert "reply raised" in caplog.text


def test_streams_do_not_take_the_calls_workers(server: ScriptedServer, client: Client) -> None:
    api = client.connect(workers=1)
    stalls = [Stall(begin=stream_head) for _ in range(3)]
    for stall in stalls:
        server.then(stall)
        watch(api, Sink())
        assert stall.reached.wait(SAFETY)
    server.answers(200, pod("a"))
    answers: SimpleQueue[Any] = SimpleQueue()
    api.send(kube.Get("a"), answers.put)
    assert answers.get(timeout=SAFETY).name == "a"


# ── reads without news ───────────────────────────────────────────────────────────────────────────────────────────────


def running(name: str, version: int) -> dict[str, Any]:
    """A pod that runs, at a version."""
    shown: dict[str, Any] = pod(name)
    shown["metadata"] |= {"uid": name, "resourceVersion": str(version)}
    shown["status"]["phase"] = "Running"
    return shown


def test_reads_without_news_come_with_the_next_one_that_has_some(server: ScriptedServer, client: Client) -> None:
    """A busy fleet has a thousand a second, and each delivery takes the interpreter from the driver."""

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ADDED", running("a", 5))
        for version in range(6, 10):
            peer.event("MODIFIED", running("a", version))
        peer.event("DELETED", running("a", 11))
        peer.event("BOOKMARK", BOOKMARK)
        peer.finish()

    server.then(stream)
    api, timers = client.connect_by_hand()
    sink = Sink()
    watch(api, sink)
    reads: list[WatchEvents] = []
    while "DELETED" not in [event.type for read in reads for event in read.events]:
        reads.append(sink.events())
    assert all(read.events for read in reads)
    assert sum(read.unchanged for read in reads) == 4
    if reads[-1].resource_version == "11":
        assert sink.events() == WatchEvents((), "77", urgent=False), "the end of a stream holds nothing back"
    assert sink.end() is None
    assert timers.pending <= 2


def test_one_timer_is_enough_however_often_news_come_between(server: ScriptedServer, client: Client) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("DELETED", running("a", 5))
        peer.gone()

    server.then(stream)
    api, timers = client.connect_by_hand()
    sink = Sink()
    call = watch(api, sink)
    assert isinstance(call, Stream)
    news, before = sink.events(), timers.pending
    for _ in range(5):
        call._hand_over(WatchEvents((), "6", urgent=False))
        call._hand_over(news)
        assert sink.events() == news
    assert timers.pending == before + 1
    call.cancel()
    assert isinstance(sink.end(), Cancelled)


def test_a_read_without_news_comes_soon_by_itself(server: ScriptedServer, client: Client) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("BOOKMARK", BOOKMARK)
        peer.gone()

    server.then(stream)
    api, timers = client.connect_by_hand()
    sink = Sink()
    call = watch(api, sink)
    while timers.next_due() != streams.QUIET:
        pass
    assert sink.is_empty()
    timers.fire_next()
    assert sink.events() == WatchEvents((), "77", urgent=False)
    call.cancel()
    assert isinstance(sink.end(), Cancelled)


def test_reads_with_which_no_pod_ends_come_soon_together_and_before_a_later_end(
    server: ScriptedServer, client: Client
) -> None:
    goes_on = threading.Event()

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ADDED", running("a", 5))
        assert goes_on.wait(SAFETY)
        peer.event("ADDED", running("b", 6))
        peer.event("DELETED", running("a", 7))
        peer.gone()

    server.then(stream)
    api, timers = client.connect_by_hand()
    sink = Sink()
    call = watch(api, sink)
    while timers.next_due() != streams.CALM:
        pass
    assert sink.is_empty()
    timers.fire_next()
    assert [(each.type, each.pod.name) for each in sink.events().events] == [("ADDED", "a")]
    goes_on.set()
    assert [(each.type, each.pod.name) for each in sink.events().events] == [("ADDED", "b"), ("DELETED", "a")]
    call.cancel()
    assert isinstance(sink.end(), Cancelled)


def test_many_events_are_not_held_back(server: ScriptedServer, client: Client) -> None:
    many = streams.MOST_HELD + 1

    def stream(peer: Peer) -> None:
        peer.stream()
        for number in range(many):
            peer.event("ADDED", running(f"pod-{number}", 5 + number))
        peer.gone()

    server.then(stream)
    api, _ = client.connect_by_hand()
    sink = Sink()
    call = watch(api, sink)
    assert len(sink.events().events) == many
    call.cancel()
    assert isinstance(sink.end(), Cancelled)


def test_what_is_held_back_comes_before_the_loss_of_the_connection(server: ScriptedServer, client: Client) -> None:
    goes_on = threading.Event()

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ADDED", running("a", 5))
        assert goes_on.wait(SAFETY)
        peer.cut()

    server.then(stream)
    api, timers = client.connect_by_hand()
    sink = Sink()
    watch(api, sink)
    while timers.next_due() != streams.CALM:
        pass
    goes_on.set()
    assert [(each.type, each.pod.name) for each in sink.events().events] == [("ADDED", "a")]
    assert isinstance(sink.end(), Unavailable)
