"""Limits, cancelling and closing: a call completes at once in every state, and its thread is free."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import Ambiguous, Cancelled, Unavailable
from actors.kube import DeleteOptions
from actors.kube.calls import OpenCall
from actors.kube.http.wire import Wire
from actors.pods.pod import Pod
from tests.unit.kube.conftest import Client, ask, our_threads
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.scripted import SAFETY, Peer, ScriptedServer, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Stall:
    """Leaves a request in the middle, and knows when the client let go of it."""

    def __init__(self, *, begin: Callable[[Peer], None] = lambda _: None) -> None:
        self._begin = begin
        self.reached = threading.Event()
        self.freed = threading.Event()

    def __call__(self, peer: Peer) -> None:
        self._begin(peer)
        self.reached.set()
        if peer.gone():
            self.freed.set()


def in_the_headers(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nX-Half")


def in_the_body(peer: Peer) -> None:
    peer.head(200, {"Content-Length": "1000"})
    peer.send(b"{")


def before_the_headers(_: Peer) -> None:
    """Nothing comes."""


STALLS = [before_the_headers, in_the_headers, in_the_body]


@pytest.mark.parametrize("begin", STALLS)
def test_a_cancelled_call_is_answered_once_and_frees_its_worker(
    server: ScriptedServer, client: Client, begin: Callable[[Peer], None]
) -> None:
    api = client.connect(workers=1)
    stall = Stall(begin=begin)
    server.then(stall)
    answers: SimpleQueue[Any] = SimpleQueue()
    call = api.send(kube.Create({}), answers.put)
    assert stall.reached.wait(SAFETY)
    call.cancel()
    assert type(answers.get_nowait()) is Cancelled, "it is answered before cancel returns"
    assert stall.freed.wait(SAFETY)
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)
    call.cancel()
    assert answers.empty()


def test_a_call_on_a_connection_that_was_used_before_can_be_cancelled(server: ScriptedServer, client: Client) -> None:
    api = client.connect(workers=1)
    server.answers(200, pod("a"))
    ask(lambda reply: api.send(kube.Get("a"), reply))
    stall = Stall()
    server.then(stall)
    call = api.send(kube.Get("a"), lambda _: None)
    assert stall.reached.wait(SAFETY)
    call.cancel()
    assert stall.freed.wait(SAFETY)
    assert {asked.connection for asked in server.asked} == {1}


def test_a_call_that_is_cancelled_in_the_queue_is_never_sent(server: ScriptedServer, client: Client) -> None:
    api = client.connect(workers=1)
    stall = Stall()
    server.then(stall)
    answers: SimpleQueue[Any] = SimpleQueue()
    first = api.send(kube.Get("a"), answers.put)
    assert stall.reached.wait(SAFETY)
    queued = api.send(kube.Create({}), answers.put)
    queued.cancel()
    assert type(answers.get_nowait()) is Cancelled
    first.cancel()
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)
    assert [asked.method for asked in server.asked] == ["GET", "GET"]


@pytest.mark.parametrize("begin", STALLS)
def test_a_call_has_one_limit_to_the_last_byte(
    server: ScriptedServer, client: Client, begin: Callable[[Peer], None]
) -> None:
    api, timers = client.connect_by_hand(workers=1)
    answers: SimpleQueue[Any] = SimpleQueue()
    for expected in (Ambiguous, Unavailable):
        stall = Stall(begin=begin)
        server.then(stall)
        if expected is Ambiguous:
            api.send(kube.Create({}), answers.put)
        else:
            api.send(kube.Get("a"), answers.put)
        assert stall.reached.wait(SAFETY)
        timers.fire_next()
        error = answers.get_nowait()
        assert type(error) is expected
        assert f"{server.name} gave no full answer in 10 s" in error.message
        assert stall.freed.wait(SAFETY)


def test_a_slow_drip_does_not_stretch_the_limit(server: ScriptedServer, client: Client) -> None:
    dripped = threading.Semaphore(0)

    def drip(peer: Peer) -> None:
        peer.head(200, {"Content-Length": "100000"})
        while not peer.gone(0.001):
            peer.send(b" ")
            dripped.release()

    server.then(drip)
    api, timers = client.connect_by_hand()
    answers: SimpleQueue[Any] = SimpleQueue()
    api.send(kube.Get("a"), answers.put)
    for _ in range(20):
        assert dripped.acquire(timeout=SAFETY)
    assert answers.empty()
    timers.fire_next()
    assert type(answers.get_nowait()) is Unavailable
    assert server.done.get(timeout=SAFETY), "the drip has ended, as the connection has"


def test_the_limit_of_a_queued_call_counts_from_its_submission(server: ScriptedServer, client: Client) -> None:
    api, timers = client.connect_by_hand(workers=1)
    busy, go_on = threading.Event(), threading.Event()

    def keep_the_worker(_: object) -> None:
        busy.set()
        go_on.wait(SAFETY)

    server.answers(200, pod("a"))
    api.send(kube.Get("a"), keep_the_worker)
    assert busy.wait(SAFETY)
    answers: SimpleQueue[Any] = SimpleQueue()
    api.send(kube.Create({}), answers.put)
    timers.fire_next()
    error = answers.get_nowait()
    go_on.set()
    assert type(error) is Unavailable, "it was never sent"
    assert "was not sent" in error.message


def kubeconfig_of(listener: socket.socket, folder: Path) -> Path:
    host, port = listener.getsockname()
    return write_kubeconfig(folder / "deaf", f"http://{host}:{port}", {"token": "t"})


def test_a_call_is_cancelled_while_it_connects(deaf: socket.socket, tmp_path: Path) -> None:
    api = kube.connect(kubeconfig_of(deaf, tmp_path), namespace="ns", max_connections=1)
    answers: SimpleQueue[Any] = SimpleQueue()
    call = api.send(kube.Create({}), answers.put)
    assert isinstance(call, OpenCall)
    wire, _ = call._under_way
    assert isinstance(wire, Wire)
    assert _until(lambda: wire.started)
    call.cancel()
    assert type(answers.get_nowait()) is Cancelled
    api.close()  # and the fixture of all tests finds no thread that is left


def test_a_server_that_does_not_accept_is_unavailable_in_time(deaf: socket.socket, tmp_path: Path) -> None:
    api = kube.connect(kubeconfig_of(deaf, tmp_path), namespace="ns", request_timeout=timedelta(milliseconds=100))
    error = ask(lambda reply: api.send(kube.Delete("a", DeleteOptions()), reply))
    api.close()
    assert type(error) is Unavailable, "a write that was never sent"


def _until(condition: Callable[[], bool]) -> bool:
    """Wait for what nobody tells of: that a thread has got somewhere deep in the system."""
    pause = threading.Event()
    return any(condition() or pause.wait(0.005) for _ in range(6000))


def test_a_tls_handshake_that_stalls_can_be_cancelled(server: ScriptedServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path = write_kubeconfig(tmp_path / "tls", f"https://127.0.0.1:{silent.getsockname()[1]}", {"token": "t"})
        api = kube.connect(path, namespace="ns")
        answers: SimpleQueue[Any] = SimpleQueue()
        call = api.send(kube.Create({}), answers.put)
        accepted, _ = silent.accept()
        with accepted:
            assert accepted.recv(1), "the handshake has begun"
            call.cancel()
            assert type(answers.get_nowait()) is Cancelled
            while accepted.recv(4096):
                pass
        api.close()


def test_closing_completes_everything_with_cancelled(server: ScriptedServer, client: Client) -> None:
    before = our_threads()
    api = client.connect(workers=2)
    stalls = [Stall(), Stall(begin=in_the_body), Stall(begin=lambda peer: peer.stream())]
    server.then(stalls[0])
    answers: SimpleQueue[Any] = SimpleQueue()
    api.send(kube.Get("a"), answers.put)
    assert stalls[0].reached.wait(SAFETY)
    server.then(stalls[1])
    api.send(kube.Create({}), answers.put)
    assert stalls[1].reached.wait(SAFETY)
    api.send(kube.Delete("queued", DeleteOptions()), answers.put)
    server.then(stalls[2])
    api.watch(kube.Watch("", "1", timeout=timedelta(minutes=5)), answers.put)
    assert stalls[2].reached.wait(SAFETY)
    api.close()
    told = [answers.get_nowait() for _ in range(4)]
    assert {type(getattr(answer, "error", answer)) for answer in told} == {Cancelled}
    for stall in stalls:
        assert stall.freed.wait(SAFETY)
    assert our_threads() <= before
    assert len(server.asked) == 3
    api.close()
    assert answers.empty()


def test_a_cancel_never_hits_another_calls_connection(server: ScriptedServer, client: Client) -> None:
    api = client.connect(workers=1)
    server.answers(200, pod("a"))
    answers: SimpleQueue[Any] = SimpleQueue()
    first = api.send(kube.Get("a"), answers.put)
    assert isinstance(answers.get(timeout=SAFETY), Pod)
    go_on = threading.Event()

    def answer_late(peer: Peer) -> None:
        first.cancel()
        assert go_on.wait(SAFETY)
        peer.answer(200, pod("b"))

    server.then(answer_late)
    api.send(kube.Get("b"), answers.put)
    go_on.set()
    assert isinstance(answers.get(timeout=SAFETY), Pod)
    assert {asked.connection for asked in server.asked} == {1}


def test_calls_beyond_the_workers_wait_their_turn(server: ScriptedServer, client: Client) -> None:
    api = client.connect(workers=3)
    answers: SimpleQueue[Any] = SimpleQueue()
    for _ in range(50):
        server.answers(200, pod("a"))
    for _ in range(50):
        api.send(kube.Get("a"), answers.put)
    assert all(isinstance(answers.get(timeout=SAFETY), Pod) for _ in range(50))
    assert len({asked.connection for asked in server.asked}) <= 3


def test_a_call_is_unavailable_when_no_thread_can_be_started(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    api, timers = client.connect_by_hand()
    answers: SimpleQueue[Any] = SimpleQueue()
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", fail)
        api.send(kube.Create({}), answers.put)
        api.watch(kube.Watch("", "1", timeout=timedelta(minutes=5)), answers.put)
    told = [answers.get_nowait() for _ in range(2)]
    assert [type(getattr(answer, "error", answer)) for answer in told] == [Unavailable, Unavailable]
    assert timers.pending == 0
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)
    assert [asked.method for asked in server.asked] == ["GET"], "what was refused is not sent later"


def test_nothing_is_started_before_it_is_needed(client: Client) -> None:
    before = our_threads()
    client.connect()
    assert our_threads() <= before
