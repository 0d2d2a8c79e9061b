"""The page on a real socket: many viewers, slow ones, cut connections, and requests without bounds."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import threading
import urllib.request
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from actors.errors import SettingsError
from actors.messages import BackendStarted
from actors.page.hosts import check_page
from actors.page.page import serve_page
from actors.page.server import LARGEST_BODY, MOST_CONNECTIONS
from actors.page.site import MOST_VIEWERS
from tests.unit.changes import changed, executor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.page.page import Page

TOKEN = "a-token-of-24-characters"
TICK = 0.005
"""Seconds between two looks for news, so that no test waits long."""
LIMIT = 30
"""Seconds that only a failure reaches."""


@pytest.fixture
def page() -> Iterator[Page]:
    with serve_page(0, "etl", token=TOKEN, tick=TICK) as served:
        served.feed(BackendStarted("etl", "batch"))
        yield served


def connect(page: Page) -> socket.socket:
    url = urlsplit(page.url)
    assert url.hostname is not None
    return socket.create_connection((url.hostname, url.port or 0), timeout=LIMIT)


@contextmanager
def answered(page: Page, request: bytes) -> Iterator[bytes]:
    """All that is answered to these bytes, until the server ends the connection."""
    with connect(page) as peer:
        peer.sendall(request)
        yield b"".join(iter(lambda: peer.recv(65536), b""))


def request(path: str, *, host: str = "localhost", more: str = "") -> bytes:
    return f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n".encode()


class Viewer:
    """Reads a stream."""

    def __init__(self, page: Page, stack: ExitStack, query: str = "") -> None:
        self.peer = stack.enter_context(connect(page))
        self.peer.sendall(request(f"api/v1/stream{query}"))
        self._file = stack.enter_context(self.peer.makefile("rb"))
        self.status = self._file.readline()

    def until(self, event: str) -> Any:
        """The data of the next event of this name."""
        while (line := self._file.readline()) and line.strip() != f"event: {event}".encode():
            pass
        while line and not line.startswith(b"data: "):
            line = self._file.readline()
        return json.loads(line.removeprefix(b"data: "))


def test_every_answer_has_headers_that_let_no_text_act(page: Page) -> None:
    for path in ("", "livez", "api/v1/status", "nothing", "metrics", "static/page.js"):
        with answered(page, request(path)) as answer:
            head = answer.partition(b"\r\n\r\n")[0].decode()
            assert "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'" in head
            assert "X-Content-Type-Options: nosniff" in head
            assert "'unsafe" not in head
            assert "Access-Control" not in head


def test_probes_and_metrics_are_served(page: Page) -> None:
    with urllib.request.urlopen(f"{page.url}livez", timeout=LIMIT) as answer:
        assert answer.read() == b"ok"
    with urllib.request.urlopen(f"{page.url}metrics", timeout=LIMIT) as answer:
        assert b"process_resident_memory_bytes" in answer.read()


def test_a_host_header_that_lies_is_refused(page: Page) -> None:
    for host in ("evil.example.com", "127.0.0.1.evil.example.com"):
        with answered(page, request("api/v1/status", host=host)) as answer:
            assert answer.startswith(b"HTTP/1.1 421 ")


def test_a_request_of_another_size_or_kind_is_refused_and_harms_nobody(page: Page) -> None:
    gigabyte = f"POST /api/v1/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2**30}\r\n\r\n".encode()
    with connect(page) as peer:
        peer.sendall(gigabyte)
        sent = 0
        try:
            while sent < 2**30:
                sent += peer.send(b"x" * 2**16)
        except OSError:
            pass  # it was cut, or answered and closed
    assert sent < 64 * LARGEST_BODY
    for bad in (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2**20 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X%d: y\r\n" % each for each in range(999)) + b"\r\n",
        b"GET /" + b"x" * 2**20 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 100,
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        b"GET http://evil.example.com/ HTTP/1.1\r\nHost: evil.example.com\r\nConnection: close\r\n\r\n",
    ):
        with connect(page) as peer:
            try:
                peer.sendall(bad)
                peer.shutdown(socket.SHUT_WR)
                answer = peer.recv(64)
            except OSError:
                answer = b""
            assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    with answered(page, request("livez")) as answer:
        assert answer.endswith(b"ok")


def test_fifty_viewers_are_told_the_same_and_one_more_is_refused(page: Page) -> None:
    with ExitStack() as stack:
        viewers = [Viewer(page, stack) for _ in range(MOST_VIEWERS)]
        assert {viewer.status for viewer in viewers} == {b"HTTP/1.1 200 OK\r\n"}
        assert Viewer(page, stack).status.startswith(b"HTTP/1.1 503 ")
        page.feed(changed(1, executor(1)))
        told = [viewer.until("change") for viewer in viewers]
        assert {len(change["executors"]) for change in told} == {1}


def test_a_viewer_that_goes_makes_room(page: Page) -> None:
    for _ in range(3):
        with ExitStack() as stack:
            for _ in range(MOST_VIEWERS):
                assert Viewer(page, stack).status == b"HTTP/1.1 200 OK\r\n"
        with ExitStack() as stack:  # all were cut; the next ones are let in as soon as that was noticed
            while Viewer(page, stack).status != b"HTTP/1.1 200 OK\r\n":
                page.feed(changed(1, executor(1)))


def test_a_viewer_that_does_not_read_costs_no_memory_and_is_cut() -> None:
    with serve_page(0, "etl", tick=TICK, read_within=0.05) as page, ExitStack() as stack:
        asleep = stack.enter_context(connect(page))
        asleep.sendall(request("api/v1/stream"))
        awake = Viewer(page, stack)
        told = 0
        for _ in range(20):
            for each in range(1, 400):
                page.feed(changed(each, executor(each)))
            told += len(json.dumps(awake.until("change")))
        waiting = 0
        while part := asleep.recv(65536):  # until the connection ends
            waiting += len(part)
        assert waiting < told / 2


def test_connections_that_say_nothing_lock_nobody_out(page: Page) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(page)) for _ in range(MOST_CONNECTIONS + 20)]
        with answered(page, request("livez")) as answer:
            assert answer.endswith(b"ok")
        assert idle[0].recv(1) == b""  # the oldest one was cut


def test_a_connection_that_asks_stays_while_those_that_say_nothing_go(page: Page) -> None:
    def alive() -> None:
        """Come after all that have come, be answered, and go."""
        with answered(page, request("livez")) as answer:
            assert answer.endswith(b"ok")

    def asks(peer: socket.socket) -> bytes:
        peer.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"ok") and (part := peer.recv(65536)):
            answer += part
        return answer

    with ExitStack() as stack:
        first = stack.enter_context(connect(page))
        idle = [stack.enter_context(connect(page)) for _ in range(MOST_CONNECTIONS - 2)]
        alive()
        assert asks(first)
        idle += [stack.enter_context(connect(page)) for _ in range(2)]
        alive()
        assert idle[0].recv(1) == b""
        assert asks(first)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Host: localhost\r\n", 401),
        ("Host: localhost\r\nAuthorization: Bearer wrong\r\nContent-Type: application/json\r\n", 401),
        (f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n", 415),
        (f"Host: evil.example.com\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n", 421),
    ],
)
def test_nobody_who_may_not_act_can_make_the_page_wait_for_a_body(page: Page, head: str, status: int) -> None:
    for path in ("api/v1/hold", "api/v1/scale"):
        started = f"POST /{path} HTTP/1.1\r\n{head}Content-Length: {LARGEST_BODY}\r\n\r\n".encode()
        with answered(page, started) as answer:
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())


def test_a_request_for_what_takes_no_body_is_answered_before_its_body(page: Page) -> None:
    started = f"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGEST_BODY}\r\n\r\n".encode()
    with answered(page, started) as answer:
        assert answer.endswith(b"ok")


def test_a_page_leaves_nothing() -> None:
    before = set(threading.enumerate())
    for _ in range(5):
        with serve_page(0, "etl", tick=TICK) as page, ExitStack() as stack:
            Viewer(page, stack)
            connection = http.client.HTTPConnection("127.0.0.1", urlsplit(page.url).port, timeout=LIMIT)
            connection.request("GET", "/livez")
            assert connection.getresponse().read() == b"ok"
            stack.callback(connection.close)
    gc.collect()
    assert {thread for thread in set(threading.enumerate()) - before if "page" in thread.name} == set()


def test_a_page_that_cannot_be_served_says_so(page: Page) -> None:
    port = urlsplit(page.url).port
    with pytest.raises(SettingsError, match=f"cannot be served at 127.0.0.1 port {port}: Address already in use"):
        serve_page(f"127.0.0.1:{port}", "etl").__enter__()
    with pytest.raises(SettingsError, match="at least 16 printable characters"):
        serve_page(0, "etl", token="short".center(20)).__enter__()


@pytest.mark.parametrize(
    ("where", "address"),
    [
        (8080, ("127.0.0.1", 8080)),
        ("8080", ("127.0.0.1", 8080)),
        ("0.0.0.0:8080", ("0.0.0.0", 8080)),
        ("[::]:80", ("::", 80)),
        ("driver.local:80", ("driver.local", 80)),
    ],
)
def test_where_the_page_is_may_be_a_port_or_an_address(where: int | str, address: tuple[str, int]) -> None:
    assert check_page(where, None) == address


@pytest.mark.parametrize("where", ["", "x", "1.2.3.4", "::1:80x", "a:70000", True, 1.5, None, -1, 70000, "fe80::1:80"])
def test_any_other_place_is_refused(where: Any) -> None:
    with pytest.raises(SettingsError, match=r"^page = .*must be a port"):
        check_page(where, None)
