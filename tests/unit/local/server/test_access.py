"""Access to the HTTP server, and its end."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest
import urllib3

from actors.local.schema.resources import RESOURCES
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials
from actors.local.server.discovery import DISCOVERY, HEALTH_PATHS
from actors.runtime import Entropy, SystemClock
from tests.unit.local.server_kit import PODS, SAFETY_SECONDS, Endpoint, manifest, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    assert api.request("POST", PODS, pod).status == 413


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
    server = ApiServer(api.store, api.logs, new_credentials(), SystemClock(), Entropy(), port=taken)
    with pytest.raises(OSError, match="in use"):
        server.start()
    assert set(threading.enumerate()) <= before
