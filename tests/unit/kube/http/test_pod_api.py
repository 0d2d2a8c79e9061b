"""The requests of `HttpPodApi`, and how it decodes the answers."""

from __future__ import annotations

import gzip
import json
import logging
import threading
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import (
    Ambiguous,
    ApiError,
    BadRequest,
    Cancelled,
    NotFound,
    SettingsError,
    TooManyRequests,
    Unavailable,
)
from actors.kube import DeleteOptions, PodPage
from actors.kube.http.pod_api import HttpPodApi
from actors.pods.pod import Pod
from tests.unit.kube.conftest import Client, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.kube.scripted import Peer, ScriptedServer

PODS = "/api/v1/namespaces/ns/pods"


def pod(name: str, version: int = 5, **metadata: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "resourceVersion": str(version), **metadata}, "status": {}}


def page(*pods: object, **metadata: Any) -> dict[str, Any]:
    return {"kind": "PodList", "metadata": {"resourceVersion": "9", **metadata}, "items": list(pods)}


READ: list[Callable[[HttpPodApi, Any], Any]] = [
    lambda api, reply: api.send(kube.Get("a"), reply),
    lambda api, reply: api.send(kube.List("x=y"), reply),
]
WRITE: list[Callable[[HttpPodApi, Any], Any]] = [
    lambda api, reply: api.send(kube.Create({"metadata": {"name": "a"}}), reply),
    lambda api, reply: api.send(kube.Delete("a", DeleteOptions()), reply),
    lambda api, reply: api.send(kube.DeleteCollection("x=y"), reply),
    lambda api, reply: api.send(kube.Patch("a", {}), reply),
]

# ── What is sent ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_asks_for_a_page_and_takes_it_compressed(server: ScriptedServer, client: Client) -> None:
    body = gzip.compress(json.dumps(page(pod("a"), **{"continue": "more"})).encode())
    server.answers(200, body, {"Content-Encoding": "gzip"})
    answer = ask(lambda reply: client.connect().send(kube.List("a=b,c in (d,e)", limit=7, resource_version="0"), reply))
    assert isinstance(answer, PodPage)
    assert [found.name for found in answer.pods] == ["a"]
    assert (answer.resource_version, answer.continue_token) == ("9", "more")
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("GET", PODS)
    assert asked.query == {"labelSelector": "a=b,c in (d,e)", "limit": "7", "resourceVersion": "0"}
    assert asked.headers["accept-encoding"] == "gzip"


def test_the_next_page_is_asked_for_by_its_token_alone(server: ScriptedServer, client: Client) -> None:
    server.answers(200, page())
    ask(lambda reply: client.connect().send(kube.List("", continue_token="t/+=", resource_version="3"), reply))
    assert server.asked[0].query == {"labelSelector": "", "limit": "500", "continue": "t/+="}


def test_a_create_posts_the_manifest_with_the_token_and_our_name(server: ScriptedServer, client: Client) -> None:
    server.answers(201, pod("a"))
    manifest = MappingProxyType({"metadata": MappingProxyType({"name": "a"}), "spec": {"n": [1]}})
    answer = ask(lambda reply: client.connect().send(kube.Create(manifest), reply))
    assert isinstance(answer, Pod)
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("POST", PODS)
    assert asked.json == {"metadata": {"name": "a"}, "spec": {"n": [1]}}
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["authorization"] == "Bearer secret-token"
    assert asked.headers["user-agent"].startswith("executor-pods/")


def test_a_delete_sends_preconditions_and_whole_seconds_of_grace(server: ScriptedServer, client: Client) -> None:
    server.answers(200, {})
    options = DeleteOptions(uid="u", resource_version="3", grace=timedelta(seconds=1.2))
    assert ask(lambda reply: client.connect().send(kube.Delete("a", options), reply)) is None
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("DELETE", f"{PODS}/a")
    assert asked.json == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 2,
        "preconditions": {"uid": "u", "resourceVersion": "3"},
    }


def test_a_bulk_delete_goes_by_selector(server: ScriptedServer, client: Client) -> None:
    server.answers(200, page())
    assert ask(lambda reply: client.connect().send(kube.DeleteCollection("a in (1,2)"), reply)) is None
    asked = server.asked[0]
    assert (asked.method, asked.path, asked.query) == ("DELETE", PODS, {"labelSelector": "a in (1,2)"})
    assert asked.json == {"kind": "DeleteOptions", "apiVersion": "v1"}


@pytest.mark.parametrize("selector", ["", " "])
def test_a_bulk_delete_without_a_selector_is_never_sent(server: ScriptedServer, client: Client, selector: str) -> None:
    answer = ask(lambda reply: client.connect().send(kube.DeleteCollection(selector), reply))
    assert type(answer) is BadRequest
    assert server.asked == []


def test_a_patch_is_a_merge_patch(server: ScriptedServer, client: Client) -> None:
    server.answers(200, pod("a"))
    ask(lambda reply: client.connect().send(kube.Patch("a", {"metadata": {"labels": {"x": None}}}), reply))
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("PATCH", f"{PODS}/a")
    assert asked.headers["content-type"] == "application/merge-patch+json"
    assert asked.json == {"metadata": {"labels": {"x": None}}}


def test_a_name_is_quoted(server: ScriptedServer, client: Client) -> None:
    server.answers(404, {})
    ask(lambda reply: client.connect().send(kube.Get("a?b %2f#"), reply))
    assert server.asked[0].target == f"{PODS}/a%3Fb%20%252f%23"


@pytest.mark.parametrize("namespace", ["", "..", "a/b", "\ud800", "['a']"])
def test_a_namespace_that_would_lead_elsewhere_is_refused(client: Client, namespace: str) -> None:
    access = client.connect().access
    with pytest.raises(SettingsError, match="namespace"):
        HttpPodApi(access, namespace=namespace, request_timeout=timedelta(seconds=1), max_connections=1)


def test_a_manifest_that_is_no_json_is_an_error_for_its_sender(client: Client) -> None:
    with pytest.raises(TypeError):
        client.connect().send(kube.Create({"x": object()}), lambda _: None)


def test_a_connection_is_used_again(server: ScriptedServer, client: Client) -> None:
    api = client.connect()
    for _ in range(3):
        server.answers(200, pod("a"))
        ask(lambda reply: api.send(kube.Get("a"), reply))
    assert {asked.connection for asked in server.asked} == {1}


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(server: ScriptedServer, client: Client) -> None:
    def answer_and_close(peer: Peer) -> None:
        peer.answer(200, pod("a"))
        peer.keep = False

    api = client.connect()
    server.then(answer_and_close)
    ask(lambda reply: api.send(kube.Get("a"), reply))
    server.done.get(timeout=30)
    server._threads[1].join()
    server.answers(201, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Create({}), reply)), Pod)


# ── What is answered ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_item_that_is_no_pod_is_left_out_counted_and_logged_once(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    api = client.connect()
    bad = pod("bad", labels="none")
    for _ in range(2):
        server.answers(200, page(pod("a"), bad, {"metadata": 3}, pod("b")))
        answer = ask(lambda reply: api.send(kube.List(""), reply))
        assert [found.name for found in answer.pods] == ["a", "b"]
        assert answer.malformed == 2
    told = [record.getMessage() for record in caplog.records if "undecodable pod" in record.getMessage()]
    assert len(told) == 2
    assert "pod=bad" in told[0]
    assert "$.metadata.labels" in told[0]


def test_a_status_says_what_was_wrong(server: ScriptedServer, client: Client) -> None:
    status = {"kind": "Status", "reason": "NotFound", "message": 'pods "a" not found', "code": 404}
    server.answers(404, status)
    error = ask(lambda reply: client.connect().send(kube.Get("a"), reply))
    assert type(error) is NotFound
    assert (error.message, error.reason, error.status) == ('pods "a" not found', "NotFound", 404)


def test_a_proxys_page_is_quoted_in_part(server: ScriptedServer, client: Client) -> None:
    server.answers(502, b"<html>\n  <b>Bad Gateway</b>" + b" " * 500 + b"x" * 500)
    error = ask(lambda reply: client.connect().send(kube.Create({}), reply))
    assert type(error) is Unavailable
    assert error.status == 502
    assert error.message.startswith(f"{server.name} answered 502 Words: <html> <b>Bad Gateway</b> xxx")
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("99999", 99_999),
        ("9" * 400, 31_536_000),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 31_536_000),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
    ],
)
def test_retry_after_is_passed_on(server: ScriptedServer, client: Client, header: str, seconds: int) -> None:
    server.answers(429, {"kind": "Status", "message": "slow down"}, {"Retry-After": header})
    error = ask(lambda reply: client.connect().send(kube.Create({}), reply))
    assert type(error) is TooManyRequests
    assert error.retry_after == timedelta(seconds=seconds)


def test_a_retry_after_that_says_nothing_is_none(server: ScriptedServer, client: Client) -> None:
    server.answers(429, b"", {"Retry-After": "soon"})
    assert ask(lambda reply: client.connect().send(kube.Create({}), reply)).retry_after is None


def test_a_redirect_is_not_followed(server: ScriptedServer, client: Client) -> None:
    server.answers(302, b"", {"Location": f"http://{server.name}/elsewhere"})
    error = ask(lambda reply: client.connect().send(kube.Get("a"), reply))
    assert type(error) is ApiError
    assert error.status == 302
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_nothing_is_tried_twice(server: ScriptedServer, client: Client, status: int) -> None:
    server.answers(status, b"", {"Retry-After": "0"})
    assert ask(lambda reply: client.connect().send(kube.Delete("a", DeleteOptions()), reply)).status == status
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"<html>", b"{}", b'{"metadata":{"name":"\xff"}}', b"[" * 10_000])
@pytest.mark.parametrize("call", [*READ, WRITE[0], WRITE[3]])
def test_a_success_that_cannot_be_read_is_no_success(
    server: ScriptedServer, client: Client, call: Callable[[HttpPodApi, Any], Any], body: bytes
) -> None:
    server.answers(200, body)
    error = ask(lambda reply: call(client.connect(), reply))
    assert type(error) is (Ambiguous if call in WRITE else Unavailable)
    assert server.name in error.message


# ── What is lost ─────────────────────────────────────────────────────────────────────────────────────────────────────


def cut(peer: Peer) -> None:
    peer.cut()


def half_an_answer(peer: Peer) -> None:
    peer.head(200, {"Content-Length": "1000"})
    peer.send(b'{"metadata":')


def half_a_chunk(peer: Peer) -> None:
    peer.head(200, {"Transfer-Encoding": "chunked"})
    peer.send(b"ff\r\n{")


def half_the_headers(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")


def no_http(peer: Peer) -> None:
    peer.send(b"SSH-2.0-OpenSSH_9.2\r\n")


def no_gzip(peer: Peer) -> None:
    peer.answer(200, b"not compressed", {"Content-Encoding": "gzip"})


def no_chunks(peer: Peer) -> None:
    peer.head(200, {"Transfer-Encoding": "chunked"})
    peer.send(b"what?\r\n")


LOSSES = [cut, half_an_answer, half_a_chunk, half_the_headers, no_http, no_gzip, no_chunks]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("call", READ)
def test_a_lost_answer_to_a_question_is_unavailable(
    server: ScriptedServer, client: Client, call: Callable[[HttpPodApi, Any], Any], loss: Callable[[Peer], None]
) -> None:
    server.then(loss)
    error = ask(lambda reply: call(client.connect(), reply))
    assert type(error) is Unavailable
    assert server.name in error.message


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("call", WRITE)
def test_a_lost_answer_to_a_write_is_ambiguous(
    server: ScriptedServer, client: Client, call: Callable[[HttpPodApi, Any], Any], loss: Callable[[Peer], None]
) -> None:
    server.then(loss)
    error = ask(lambda reply: call(client.connect(), reply))
    assert type(error) is Ambiguous
    assert server.name in error.message
    assert "secret-token" not in repr(error)


@pytest.mark.parametrize("call", WRITE)
def test_a_write_that_was_never_sent_is_unavailable(
    server: ScriptedServer, client: Client, call: Callable[[HttpPodApi, Any], Any]
) -> None:
    api = client.connect()
    server.stop_listening()
    error = ask(lambda reply: call(api, reply))
    assert type(error) is Unavailable
    assert error.message == f"cannot connect to {api.access.server}: Connection refused"


def test_the_next_call_after_a_loss_works(server: ScriptedServer, client: Client) -> None:
    api = client.connect(workers=1)
    for loss in LOSSES:
        server.then(loss)
        assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Unavailable)
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)


# ── Replies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_a_reply_that_raises_harms_no_other(
    server: ScriptedServer, client: Client, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(_: object) -> None:
        raise error

    api = client.connect(workers=1)
    server.answers(200, pod("a"))
    server.answers(200, pod("a"))
    with caplog.at_level(logging.ERROR):
        api.send(kube.Get("a"), raises)
        assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)
    assert "reply raised" in caplog.text


def test_an_answered_call_has_no_limit_left(server: ScriptedServer, client: Client) -> None:
    api, timers = client.connect_by_hand()
    server.answers(200, pod("a"))
    ask(lambda reply: api.send(kube.Get("a"), reply))
    assert timers.pending == 0


def test_a_reply_may_call_and_close(server: ScriptedServer, client: Client) -> None:
    api = client.connect()
    closed = threading.Event()

    def then_close(_: object) -> None:
        api.close()
        closed.set()

    def call_again(_: object) -> None:
        api.send(kube.Get("b"), then_close)

    server.answers(200, pod("a"))
    server.answers(200, pod("b"))
    api.send(kube.Get("a"), call_again)
    assert closed.wait(30)
    assert type(ask(lambda reply: api.send(kube.Get("c"), reply))) is Cancelled


def test_a_sender_that_got_an_error_gets_no_answer_too(client: Client) -> None:
    api = client.connect()
    answers: list[object] = []
    with pytest.raises(TypeError):
        api.send(kube.Create({"x": object()}), answers.append)
    api.close()
    assert answers == []


def test_requests_are_answered_though_a_handler_of_the_program_raises_at_each_line_of_urllib3(
    server: ScriptedServer, client: Client
) -> None:
    lines: list[str] = []

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name.startswith("urllib3"):
                lines.append(record.getMessage())
                raise OSError(28, "No space left on device")

    handler, log = Raising(), logging.getLogger("urllib3")
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        server.answers(200, pod("a"))
        assert isinstance(ask(lambda reply: client.connect().send(kube.Get("a"), reply)), Pod)
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    assert any("Starting new HTTP" in line for line in lines)
