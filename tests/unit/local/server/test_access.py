"""Access to the HTTP server, and its end."""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from actors.local.schema.resources import RESOURCES
from actors.local.server import api_server as server
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials
from actors.local.server.discovery import DISCOVERY, HEALTH_PATHS
from actors.runtime import Entropy, SystemClock
from tests.unit.local.server_kit import PODS, SAFETY_SECONDS, Endpoint, manifest, served

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Endpoint]:
    yield from served(tmp_path)


def every_path() -> Iterator[str]:
    """One of each route, and some unknown paths."""
    yield from ("/", "/nope", "/apis/nope/v1/pods", "/api/v1/watch/pods")
    yield from DISCOVERY
    yield from HEALTH_PATHS
    for resource in RESOURCES.values():
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        collection = f"{root}{'/namespaces/default' if resource.namespaced else ''}/{resource.plural}"
        yield from (f"{root}/{resource.plural}", f"{root}/{resource.plural}?watch=true")
        yield from (collection, f"{collection}/a", f"{collection}?watch=true")
        yield from (f"{collection}/a/{sub}" for sub in (*resource.subresources, "exec", "proxy", "nope"))


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic {token}", "{token}", "bearer{token}"]
)
def test_no_route_answers_anything_without_the_token(api: Endpoint, authorization: str | None) -> None:
    text = (authorization or "").format(token=api.token)
    headers = {"Authorization": text} if authorization is not None else {}
    pod = manifest("a")
    for path in every_path():
        for method in METHODS if authorization is None else ("GET", "POST"):
            answer = api.pool.request(method, api.server.url + path, headers=headers, json=pod)
            assert answer.status == 401, (method, path)
            if method != "HEAD":
                assert answer.json()["reason"] == "Unauthorized"
    assert api.store.list("pods", None).items == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_taken_in_any_case_as_a_real_server_takes_it(api: Endpoint, scheme: str) -> None:
    answer = api.pool.request("GET", f"{api.server.url}/api", headers={"Authorization": f"{scheme} {api.token}"})
    assert answer.status == 200


def test_every_route_answers_a_status_or_an_object_with_the_token(api: Endpoint) -> None:
    for path in every_path():
        if "watch=true" in path:
            continue
        for method in ("GET", "OPTIONS"):
            answer = api.request(method, path)
            assert answer.status in {200, 404, 405, 501}, (method, path)
            if answer.status != 200:
                assert answer.json["kind"] == "Status"
                assert answer.json["code"] == answer.status


def test_a_host_header_that_is_no_loopback_name_is_refused(api: Endpoint) -> None:
    for name in ("evil.example.com", "evil.example.com:443", "127.0.0.1.evil.example.com", "[::2]:1", ""):
        assert api.request("GET", "/api", headers={"Host": name}).status == 403, name
    for name in ("localhost", "localhost:1", "127.0.0.1:9", "[::1]", "[::1]:8"):
        assert api.request("GET", "/api", headers={"Host": name}).status == 200, name


def test_it_listens_on_loopback_only_and_speaks_tls_only(api: Endpoint) -> None:
    host, port = api.server.url.removeprefix("https://").split(":")
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port)), SAFETY_SECONDS) as plain:
        plain.sendall(f"GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n\r\n".encode())
        assert not plain.recv(1000).startswith(b"HTTP")


def test_its_certificate_is_good_for_its_names_only(api: Endpoint, tmp_path: Path) -> None:
    port = int(api.server.url.rpartition(":")[2])
    context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("localhost", "127.0.0.1", "::1"):
        with (
            socket.create_connection(("127.0.0.1", port), SAFETY_SECONDS) as raw,
            context.wrap_socket(raw, server_hostname=name),
        ):
            pass
    with (
        socket.create_connection(("127.0.0.1", port), SAFETY_SECONDS) as raw,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        context.wrap_socket(raw, server_hostname="example.com")


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", "..%2f..%2fnodes", "a%2fb", "%00", "a%0ab", "-x", "x" * 300])
def test_a_name_that_could_be_a_path_is_not_found(api: Endpoint, name: str) -> None:
    with socket.create_connection(("127.0.0.1", int(api.server.url.rpartition(":")[2])), SAFETY_SECONDS) as raw:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(raw) as stream:  # without a client library: they normalise such paths
            head = f"Host: localhost\r\nAuthorization: Bearer {api.token}\r\nConnection: close\r\n\r\n"
            stream.sendall(f"GET {PODS}/{name}/log HTTP/1.1\r\n{head}".encode())
            assert stream.recv(12) == b"HTTP/1.1 404"


def test_a_body_beyond_the_limit_is_refused(api: Endpoint) -> None:
    pod = manifest("a") | {"padding": "x" * (3 * 1024 * 1024)}
    answer = api.request("POST", PODS, pod)
    assert answer.status == 413
    assert answer.json["message"] == "Request entity too large: limit is 3145728"


def test_credentials_show_neither_token_nor_key(api: Endpoint) -> None:
    credentials = new_credentials()
    assert credentials.token not in repr(credentials)
    assert api.token not in repr(api.server)


def test_stop_ends_streams_and_leaves_no_thread_and_no_socket(tmp_path: Path, api: Endpoint) -> None:
    before = set(threading.enumerate())
    credentials = new_credentials()
    authority = tmp_path / "other.pem"
    authority.write_bytes(credentials.authority)
    other = Endpoint(credentials, authority)
    other.server.start()
    stream = other.open("GET", "/api/v1/pods?watch=true")
    other.request("GET", "/api")  # A second connection, kept alive.
    other.server.stop()
    with pytest.raises(urllib3.exceptions.ProtocolError):
        stream.read()
    stream.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(urllib3.exceptions.HTTPError):
        other.request("GET", "/api")
    other.server.stop()
    other.pool.clear()


def test_a_port_that_is_taken_is_an_error_of_start(api: Endpoint) -> None:
    before = set(threading.enumerate())
    taken = int(api.server.url.rpartition(":")[2])
    other = ApiServer(api.store, api.logs, new_credentials(), SystemClock(), Entropy(), port=taken)
    with pytest.raises(OSError, match="in use"):
        other.start()
    assert set(threading.enumerate()) <= before


# ── Who has not shown the token ──────────────────────────────────────────────────────────────────────────────────────


def address(api: Endpoint) -> tuple[str, int]:
    return "127.0.0.1", int(api.server.url.rpartition(":")[2])


def test_idle_connections_without_the_token_make_room_for_who_has_it(
    api: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        raw = [
            stack.enter_context(socket.create_connection(address(api), SAFETY_SECONDS))
            for _ in range(server.MAX_STRANGERS)
        ]
        tls = [stack.enter_context(api.connect()) for _ in range(3)]
        assert api.request("GET", "/api").status == 200
        assert [is_closed(connection) for connection in raw[:4]] == [True] * 4
        tls[-1].settimeout(0)  # the newest have their time
        with pytest.raises(ssl.SSLWantReadError):
            tls[-1].recv(1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [None, b"", b"GET /api HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_connection_that_does_not_show_the_token_in_time_is_closed(
    api: Endpoint, monkeypatch: pytest.MonkeyPatch, said: bytes | None
) -> None:
    with api.connect() as before:
        head = f"Host: localhost\r\nAuthorization: Bearer {api.token}\r\n\r\n"
        before.sendall(f"GET /healthz HTTP/1.1\r\n{head}".encode())
        assert before.recv(12) == b"HTTP/1.1 200"
        monkeypatch.setattr(server, "STRANGER_SECONDS", 0.1)
        if said is None:
            with socket.create_connection(address(api), SAFETY_SECONDS) as raw:  # no TLS handshake
                assert is_closed(raw)
        else:
            with suppress(ConnectionError, ssl.SSLError), api.connect() as stranger:  # perhaps too slow for a handshake
                stranger.sendall(said)
                assert is_closed(stranger)
        before.sendall(f"GET /healthz HTTP/1.1\r\n{head}".encode())  # one that has shown it stays open
        while b"ok" not in before.recv(4096):
            pass


def test_a_refused_token_does_not_keep_a_connection_open(api: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STRANGER_SECONDS", 0.1)
    with suppress(ConnectionError, ssl.SSLError), api.connect() as stranger:  # perhaps too slow for a handshake
        stranger.sendall(b"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n")
        while stranger.recv(4096):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="lists the open files of a process as Linux does")
def test_a_process_that_cannot_open_another_file_says_so_once_and_goes_on(
    api: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Semaphore(0)
    monkeypatch.setattr(server, "_NO_FILES_SECONDS", 0.001)
    accept = socket.socket.accept

    def accepted(listener: socket.socket) -> tuple[socket.socket, Any]:
        try:
            return accept(listener)
        except OSError as error:
            if error.errno == errno.EMFILE:
                tried.release()
            raise

    monkeypatch.setattr(socket.socket, "accept", accepted)
    before = getrlimit(RLIMIT_NOFILE)
    with socket.socket() as client, ExitStack() as stack:
        stack.callback(setrlimit, RLIMIT_NOFILE, before)
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        setrlimit(RLIMIT_NOFILE, (highest + 8, before[1]))
        with suppress(OSError):
            while True:
                stack.callback(os.close, os.dup(client.fileno()))
        client.connect(address(api))
        for _ in range(3):
            assert tried.acquire(timeout=SAFETY_SECONDS)
        stack.close()
        assert api.request("GET", "/api").status == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "no connection accepted: error=Too many open files"
    ]


MALFORMED = (
    b"\0\xff\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: " + b"a" * 20_000 + b"\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n\xff",
    b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
)


@pytest.mark.parametrize("said", MALFORMED)
@pytest.mark.parametrize("tls", [True, False])
def test_a_malformed_request_is_at_most_one_quiet_line(
    api: Endpoint,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    said: bytes,
    *,
    tls: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    with api.connect() if tls else socket.create_connection(address(api), SAFETY_SECONDS) as stranger:
        stranger.sendall(said)
        answer = b""
        with suppress(ConnectionError):
            answer = stranger.recv(12)
        assert answer[9:12] in ((b"400", b"401") if tls else (b"",)) or not tls
    assert api.request("GET", "/api").status == 200
    lines = [record for record in caplog.records if not record.name.startswith("urllib3")]
    assert [record for record in lines if record.levelno >= logging.INFO or record.exc_info] == []
    assert len([record for record in lines if record.name.startswith("actors")]) <= 1
    assert "Traceback" not in capfd.readouterr().err
