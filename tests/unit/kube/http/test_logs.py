"""A container's log, and the server's clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from actors import kube
from actors.errors import BadRequest, Cancelled, NotFound, Unavailable
from tests.unit.kube.conftest import Client, ask

if TYPE_CHECKING:
    from tests.unit.kube.scripted import Peer, ScriptedServer


def test_a_log_is_yielded_as_it_comes(server: ScriptedServer, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.stream()
        peer.chunk(b"one\n")
        assert server.done.empty()
        peer.chunk(b"two\n")
        peer.finish()

    server.then(script)
    read = client.connect().read_log("a b", container="c", follow=True, previous=True, tail=3)
    assert b"".join(read) == b"one\ntwo\n"
    assert server.asked[0].target.partition("?")[0] == "/api/v1/namespaces/ns/pods/a%20b/log"
    assert server.asked[0].query == {"container": "c", "follow": "true", "previous": "true", "tailLines": "3"}


def test_a_reader_may_stop_in_the_middle(server: ScriptedServer, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.stream()
        peer.chunk(b"one\n")
        assert peer.gone()

    server.then(script)
    read = client.connect().read_log("a", follow=True)
    assert next(read) == b"one\n"
    read.close()


def test_closing_the_client_ends_a_log_that_another_thread_reads(server: ScriptedServer, client: Client) -> None:
    api = client.connect()

    def script(peer: Peer) -> None:
        peer.stream()
        peer.chunk(b"one\n")
        assert peer.gone()

    server.then(script)
    read = api.read_log("a", follow=True)
    assert next(read) == b"one\n"
    closing = threading.Thread(target=api.close)
    closing.start()
    with pytest.raises(Unavailable):
        next(read)
    closing.join()
    with pytest.raises(Cancelled, match="the client is closed"):
        next(api.read_log("a"))


def test_a_refusal_is_one_of_our_errors(server: ScriptedServer, client: Client) -> None:
    server.answers(404, {"kind": "Status", "message": 'pods "a" not found', "reason": "NotFound"})
    with pytest.raises(NotFound, match='pods "a" not found'):
        next(client.connect().read_log("a"))
    with pytest.raises(BadRequest):
        client.connect().read_log("../a")


def test_a_lost_connection_is_unavailable(server: ScriptedServer, client: Client) -> None:
    def script(peer: Peer) -> None:
        peer.stream()
        peer.chunk(b"one\n")
        peer.cut()

    server.then(script)
    with pytest.raises(Unavailable, match="was cut"):
        list(client.connect().read_log("a"))


def test_a_server_that_does_not_begin_is_given_up_after_the_limit(server: ScriptedServer, client: Client) -> None:
    api, timers = client.connect_by_hand()

    def script(peer: Peer) -> None:
        timers.fire_next()
        assert peer.gone()

    server.then(script)
    with pytest.raises(Unavailable, match="gave no full answer in 10 s"):
        next(api.read_log("a"))


def test_the_servers_clock_is_that_of_its_newest_answer(server: ScriptedServer, client: Client) -> None:
    api = client.connect()
    assert api.server_now() is None
    for date in ("Sun, 01 Mar 2026 12:00:00 GMT", "never", "Mon, 99 Foo 2026 12:00:00 GMT"):
        server.answers(200, {"metadata": {}, "items": []}, {"Date": date})
        assert ask(lambda reply: api.send(kube.ListPage(kube.PODS), reply)) == kube.ObjectPage(())
        now = api.server_now()
        assert (now is None) == ("Mar" not in date)
        if now is not None:
            assert timedelta(0) <= now - datetime(2026, 3, 1, 12, tzinfo=UTC) < timedelta(hours=1)
