"""A server that sends our credential back: it gets into no error and no line of the log."""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import pytest

from actors import kube
from actors.errors import ApiError
from actors.kube.auth.connection import Connection
from actors.kube.auth.secrets import Secrets
from actors.kube.http import wire
from tests.unit.kube.conftest import Client, ask
from tests.unit.kube.http.test_pod_api import READ, WRITE, page, pod
from tests.unit.kube.http.test_streams import Sink, watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from urllib3 import ProxyManager

    from tests.unit.kube.scripted import Peer, ScriptedServer

TOKEN = "secret-token-of-many-characters"
PASSWORD = "open, sesame"


def echoed(asked: Any) -> str:
    return str(asked.headers["authorization"])


def as_status(peer: Peer) -> None:
    echo = echoed(peer.asked)
    causes = [{"field": echo, "message": echo}]
    peer.answer(403, {"kind": "Status", "reason": echo, "message": f"no: {echo}", "details": {"causes": causes}})


def as_escaped_status(peer: Peer) -> None:
    text = "".join(f"\\u{ord(character):04x}" for character in echoed(peer.asked))
    peer.answer(500, b'{"kind":"Status","message":"' + text.encode() + b'"}')


def as_page(peer: Peer) -> None:
    peer.answer(502, f"<html>{'x' * 140}{echoed(peer.asked)}{'x' * 140}".encode())


def as_reason(peer: Peer) -> None:
    peer.send(f"HTTP/1.1 500 {echoed(peer.asked)}\r\nContent-Length: 0\r\n\r\n".encode())


def as_refusal(peer: Peer) -> None:
    peer.answer(401, {"kind": "Status", "message": echoed(peer.asked)})


def as_answer(peer: Peer) -> None:
    peer.answer(200, {"metadata": {"name": 3}, echoed(peer.asked): 1, "kind": echoed(peer.asked)})


def as_broken_header(peer: Peer) -> None:
    peer.send(f"HTTP/1.1 500 No\r\nX: y\r\n{echoed(peer.asked)}\r\nContent-Length: 0\r\n\r\n".encode())


def secrets(text: str) -> list[str]:
    """What of our credentials is in a text, whole or nearly so."""
    encoded = base64.b64encode(f"ali:{PASSWORD}".encode()).decode()
    return [secret for secret in (TOKEN[:12], PASSWORD, encoded[:12]) if secret in text]


@pytest.mark.parametrize("user", [{"token": TOKEN}, {"username": "ali", "password": PASSWORD}], ids=["token", "basic"])
@pytest.mark.parametrize(
    "echo", [as_status, as_escaped_status, as_page, as_reason, as_refusal, as_answer, as_broken_header]
)
@pytest.mark.parametrize("call", [READ[1], WRITE[0]])
def test_no_error_has_the_credential(
    server: ScriptedServer,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    call: Any,
    echo: Callable[[Peer], None],
    user: dict[str, Any],
) -> None:
    caplog.set_level(logging.DEBUG)
    server.then(echo)
    error = ask(lambda reply: call(client.connect(**user), reply))
    assert isinstance(error, ApiError)
    assert secrets(f"{error} {error!r} {error.reason} {error.causes} {caplog.text}") == []


def test_no_end_of_a_watch_and_no_line_of_the_log_has_the_credential(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def stream(peer: Peer) -> None:
        echo = echoed(peer.asked)
        peer.stream()
        peer.event(echo, pod(echo))
        peer.event("ADDED", pod(echo, labels={echo: 3}))
        peer.event("ERROR", {"kind": "Status", "code": 500, "message": echo, "reason": echo})

    server.then(stream)
    sink = Sink()
    watch(client.connect(token=TOKEN), sink)
    _, _, error = sink.all()
    assert isinstance(error, ApiError)
    assert secrets(f"{error} {error.reason} {caplog.text}") == []
    assert "<redacted>" in caplog.text


def test_no_line_about_a_bad_pod_has_the_credential(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    server.then(lambda peer: peer.answer(200, page(pod(echoed(peer.asked), labels=3))))
    answer = ask(lambda reply: client.connect(token=TOKEN).send(kube.List(""), reply))
    assert answer.malformed == 1
    assert secrets(caplog.text) == []


def test_a_token_that_was_replaced_is_a_secret_still(server: ScriptedServer, client: Client, tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    api = client.connect(tokenFile=str(file))
    server.then(lambda peer: file.write_text("another-token") and peer.answer(401, {}))  # type: ignore[func-returns-value]
    server.then(lambda peer: peer.answer(500, {"kind": "Status", "message": f"{TOKEN} {echoed(peer.asked)}"}))
    error = ask(lambda reply: api.send(kube.Get("a"), reply))
    assert error.message == "<redacted> Bearer <redacted>"


def test_the_password_of_a_proxy_is_a_secret_and_a_short_one_is_left_in_every_word() -> None:
    connection = Connection("https://one.example", proxy="http://me:p%40ss-word@proxy.example:3128")
    found = Secrets()
    found.add("Bearer abc", connection)
    assert found.redacted("p%40ss-word p@ss-word abcdef") == "<redacted> <redacted> abcdef"


@pytest.mark.parametrize(
    "account", ["a-token-as-user", "a-token-as-user:", "m%C3%A9:p%40ss-word", "me%3Ayou:p:ss-word"]
)
def test_what_a_proxy_gets_is_a_secret(account: str) -> None:
    connection = Connection("https://one.example", proxy=f"http://{account}@proxy.example:3128")
    basic = cast("ProxyManager", wire._manager(connection)).proxy_headers["Proxy-Authorization"].removeprefix("Basic ")
    known = Secrets()
    known.add(None, connection)
    assert known.redacted(f"you sent {basic}") == "you sent <redacted>"
    secret = unquote(account).removesuffix(":").removeprefix("mé:").removeprefix("me:you:")
    assert known.redacted(f"{secret} is wrong") == "<redacted> is wrong"
