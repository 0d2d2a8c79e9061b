"""The connection to the server: DNS, proxies, certificates, and when the client is imported."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from urllib3.connection import HTTPConnection

from actors import kube
from actors.errors import Ambiguous, Cancelled, NotSent, Unavailable, Untrusted
from actors.kube.auth.connection import Connection
from actors.kube.http import wire
from actors.kube.http.wire import Cord, Transport, Wire, WireCut
from actors.local.server.credentials import new_credentials
from actors.pods.pod import Pod
from actors.runtime import Deadline, SystemClock
from tests.unit.kube.conftest import LIMIT, Client, ask, our_threads
from tests.unit.kube.http.test_cancel import Stall
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.scripted import SAFETY, Peer, ScriptedServer, write_kubeconfig

HEADERS = 64 * 1024

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_importing_the_package_loads_no_client() -> None:
    program = "import sys, actors.kube; print(sorted({'kubernetes', 'urllib3'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=SAFETY)
    assert done.stdout == "[]\n"


# ── Names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_that_cannot_be_resolved_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", fail)
    api = kube.connect(write_kubeconfig(tmp_path / "k", "http://api.example:80", {"token": "t"}))
    error = ask(lambda reply: api.send(kube.Create({}), reply))
    api.close()
    assert type(error) is Unavailable
    assert error.message == "the name of api.example:80 cannot be resolved: Name or service not known"


def test_every_address_of_a_name_is_tried(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        refusing = other.getsockname()
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", to) for to in (refusing, ("127.0.0.1", server.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: client.connect().send(kube.Get("a"), reply)), Pod)


def test_an_address_that_is_dead_leaves_time_for_the_next(
    server: ScriptedServer, client: Client, deaf: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", to) for to in (deaf.getsockname(), ("127.0.0.1", server.port))
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    server.answers(200, pod("a"))
    api = client.connect(limit=timedelta(seconds=4))
    assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)


def test_a_hanging_resolver_blocks_no_caller_and_nothing_is_sent_after_it(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = our_threads()
    resolving, go_on = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> Any:
        resolving.set()
        go_on.wait(SAFETY)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr("actors.kube.http.pod_api.JOIN_LIMIT", timedelta(0))
    api, timers = client.connect_by_hand(workers=2)
    answers: SimpleQueue[Any] = SimpleQueue()
    api.send(kube.Create({}), answers.put)
    assert resolving.wait(SAFETY)
    timers.fire_next()
    error = answers.get_nowait()
    assert type(error) is Unavailable
    assert error.message == f"there was no connection to {server.name} in 10 s"
    resolving.clear()
    call = api.send(kube.Create({}), answers.put)
    assert resolving.wait(SAFETY)
    call.cancel()
    assert type(answers.get_nowait()) is Cancelled
    with caplog.at_level(logging.WARNING):
        api.close()
    assert "threads left behind: threads=executor-pods/kube-call-1, executor-pods/kube-call-2" in caplog.text
    go_on.set()
    for thread in our_threads() - before:
        thread.join(SAFETY)
    assert server.asked == []


# ── Deadlines ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Countdown(SystemClock):
    """Stands still for so many looks, then a deadline passes: the process was stopped between two looks."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def monotonic(self) -> float:
        self._looks -= 1
        return 0.0 if self._looks >= 0 else 2.0


@pytest.mark.parametrize("looks", [0, 1, 2])
@pytest.mark.parametrize("connected", [False, True])
def test_the_deadline_of_a_write_is_looked_at_before_it_is_sent_in_one_piece(
    server: ScriptedServer, client: Client, looks: int, connected: bool
) -> None:
    api = client.connect(workers=1)
    if connected:
        server.answers(200, pod("a"))
        ask(lambda reply: api.send(kube.Get("a"), reply))
        server.asked.clear()
    server.answers(201, pod("a"))
    request = kube.Create({"kind": "Pod"}, deadline=Deadline(1.0, Countdown(looks)))
    answer = ask(lambda reply: api.send(request, reply))
    if looks == 2:
        assert isinstance(answer, Pod)
        return
    assert type(answer) is NotSent
    assert answer.message == "the create was not sent: the permission to write had ended"
    server.answers(201, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Create({"kind": "Pod"}), reply)), Pod), "another connection"
    for _ in range(connected + 1):
        server.done.get(timeout=SAFETY)
    assert [asked.body for asked in server.asked] == [b'{"kind":"Pod"}']


def test_a_write_whose_deadline_passes_while_its_credential_is_renewed_is_not_sent_again(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    api = client.connect(tokenFile=str(token))

    def refuse(peer: Peer) -> None:
        token.write_text("new")
        peer.answer(401, {"kind": "Status", "message": "Unauthorized"})

    server.then(refuse)
    request = kube.Delete("a", deadline=Deadline(1.0, Countdown(2)))
    assert type(ask(lambda reply: api.send(request, reply))) is NotSent
    assert len(server.asked) == 1


# ── Proxies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def behind_proxy(folder: Path, proxy: ScriptedServer, cluster: str, account: str = "") -> Path:
    path = write_kubeconfig(folder / "k", cluster, {"token": "t"}, namespace="ns")
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["proxy-url"] = f"http://{account}{proxy.name}"
    path.write_text(json.dumps(config))
    return path


def test_a_proxy_is_asked_for_the_server(server: ScriptedServer, tmp_path: Path) -> None:
    api = kube.connect(behind_proxy(tmp_path, server, "http://api.example"))
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)
    api.close()
    assert server.asked[0].target == "http://api.example/api/v1/namespaces/ns/pods/a"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_gets_the_user_and_password_of_its_url(server: ScriptedServer, tmp_path: Path, scheme: str) -> None:
    api = kube.connect(behind_proxy(tmp_path, server, f"{scheme}://api.example", "bob:p%40ss%3Aw%C3%B6rd@"))
    server.answers(407, b"no")
    server.answers(407, b"no")
    for _ in range(2):
        ask(lambda reply: api.send(kube.Get("a"), reply))
    api.close()
    sent = {asked.headers["proxy-authorization"] for asked in server.asked}
    assert sent == {f"Basic {base64.b64encode('bob:p@ss:wörd'.encode()).decode()}"}
    assert not any("bob" in asked.target for asked in server.asked)


def test_a_proxy_that_makes_no_tunnel_is_named_as_the_one_that_failed(server: ScriptedServer, tmp_path: Path) -> None:
    api = kube.connect(behind_proxy(tmp_path, server, "https://api.example"))
    server.answers(403, b"no")
    error = ask(lambda reply: api.send(kube.Create({}), reply))
    api.close()
    assert type(error) is Unavailable, "the server never saw it"
    assert error.message == "the proxy on the way to api.example failed: Tunnel connection failed: 403 Words"
    assert [asked.method for asked in server.asked] == ["CONNECT"]


def test_a_tunnel_that_stalls_can_be_cancelled(server: ScriptedServer, tmp_path: Path) -> None:
    stall = Stall()
    server.then(stall)
    api = kube.connect(behind_proxy(tmp_path, server, "https://api.example"))
    answers: SimpleQueue[Any] = SimpleQueue()
    call = api.send(kube.Create({}), answers.put)
    assert stall.reached.wait(SAFETY)
    call.cancel()
    assert type(answers.get_nowait()) is Cancelled
    assert stall.freed.wait(SAFETY)
    api.close()


def test_a_connection_made_another_way_can_be_cut_too(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class OwnWay(HTTPConnection):
        """As a SOCKS proxy's connection: it connects by itself."""

        def _new_conn(self) -> socket.socket:
            made.append(self)
            return super()._new_conn()

    class OwnWayPool(urllib3.HTTPConnectionPool):
        ConnectionCls = OwnWay

    transport = Transport(Connection(f"http://{server.name}"), LIMIT, HEADERS)
    monkeypatch.setitem(transport._manager.pool_classes_by_scheme, "http", wire._wired(OwnWayPool, HEADERS))
    stall = Stall()
    server.then(stall)
    held = Wire()

    def cut() -> None:
        stall.reached.wait(SAFETY)
        held.cancel()

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(urllib3.exceptions.ProtocolError):
        transport.send(held, "GET", f"http://{server.name}/", {}, None)
    cutter.join(SAFETY)
    held.release()
    transport.close()
    assert len(made) == 1


def test_the_connections_of_all_threads_are_of_one_class() -> None:
    """The interpreter speeds code up that meets objects of few classes."""
    pools = [Transport(Connection("https://api.example"), LIMIT, HEADERS)._manager.pool_classes_by_scheme for _ in "12"]
    assert pools[0] == pools[1]


@pytest.mark.parametrize("step", [Wire.begin, Wire.sending, lambda held: held.attach(Cord(os.dup(0)))])
def test_a_wire_that_was_cut_goes_no_step_further(step: Callable[[Wire], None]) -> None:
    held = Wire()
    held.cancel()
    with pytest.raises(WireCut):
        step(held)
    assert not held.started
    assert not held.sent


def test_a_wire_that_was_cut_sends_nothing(server: ScriptedServer) -> None:
    transport = Transport(Connection(f"http://{server.name}"), LIMIT, HEADERS)
    held = Wire()
    held.cancel()
    with pytest.raises(WireCut):
        transport.send(held, "POST", f"http://{server.name}/", {}, b"{}")
    transport.close()
    assert server.asked == []


# ── Certificates ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_certificate_of_an_unknown_authority_is_not_accepted(tmp_path: Path) -> None:
    credentials = new_credentials()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            sock, _ = listener.accept()
            with sock, pytest.raises(OSError, match=r"(?i)alert|eof|reset"):
                credentials.tls.wrap_socket(sock, server_side=True).recv(1)

        greeting = threading.Thread(target=greet)
        greeting.start()
        name = f"127.0.0.1:{listener.getsockname()[1]}"
        api = kube.connect(write_kubeconfig(tmp_path / "k", f"https://{name}", {"token": "t"}))
        error = ask(lambda reply: api.send(kube.Create({}), reply))
        api.close()
        greeting.join(SAFETY)
    assert type(error) is Untrusted
    assert error.message.startswith(f"there is no TLS connection to {name}: its certificate is not accepted: ")


def test_a_server_without_tls_is_reported(server: ScriptedServer, tmp_path: Path) -> None:
    api = kube.connect(write_kubeconfig(tmp_path / "k", f"https://{server.name}", {"token": "t"}))
    error = ask(lambda reply: api.send(kube.Create({}), reply))
    api.close()
    assert type(error) is Unavailable
    assert "TLS" in error.message or "was cut" in error.message


def test_a_connection_reset_before_the_answer_is_ambiguous_for_a_write_only(
    server: ScriptedServer, client: Client
) -> None:
    api = client.connect()
    kinds: list[tuple[Callable[[Any], Any], type]] = [
        (lambda reply: api.send(kube.Create({}), reply), Ambiguous),
        (lambda reply: api.send(kube.Get("a"), reply), Unavailable),
    ]
    for call, expected in kinds:
        server.then(Peer.cut)
        assert type(ask(call)) is expected
