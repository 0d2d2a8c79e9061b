"""Answers without an end, or larger than they look: an error that names the bound, and little memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import DecodeError

from actors import kube
from actors.errors import Ambiguous, ApiError, Unavailable
from actors.kube import PodPage
from actors.kube.http.body import READ_SIZE, Inflater
from actors.kube.http.bounds import MIB, AnswerBounds
from actors.pods.pod import Pod
from tests.unit.kube.conftest import Client, ask
from tests.unit.kube.http.test_pod_api import READ, WRITE, page, pod
from tests.unit.kube.http.test_streams import Sink, watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.kube.scripted import Peer, ScriptedServer

BOUNDS = AnswerBounds(answer=4096, one_object=2048, headers=1024)
GZIP = {"Content-Encoding": "gzip"}
LARGEST = {**pod("a"), "x": "x" * 3000}


def bomb(size: int) -> bytes:
    """So many bytes as gzip. It is as small as gzip can make it."""
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(MIB)
    return b"".join([*(packer.compress(zeros) for _ in range(size // MIB)), packer.flush()])


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("call", "setting"), [(READ[0], "api.max_object_size"), (READ[1], "api.max_answer_size")])
@pytest.mark.parametrize("compressed", [True, False])
def test_an_answer_that_is_too_large_is_an_error_that_names_the_setting(
    server: ScriptedServer, client: Client, call: Callable[..., Any], setting: str, compressed: bool
) -> None:
    body = json.dumps(page(pod("a"), x="x" * 5000)).encode()
    server.answers(200, gzip.compress(body) if compressed else body, GZIP if compressed else {})
    error = ask(lambda reply: call(client.connect(bounds=BOUNDS), reply))
    assert type(error) is Unavailable
    most = BOUNDS.answer if "answer" in setting else BOUNDS.one_object
    assert error.message == f"{server.name} sent an answer of more than {most} bytes ({setting})"


def test_an_answer_of_just_the_bound_is_taken(server: ScriptedServer, client: Client) -> None:
    body = json.dumps(page(pod("a"))).encode()
    body += b" " * (BOUNDS.answer - len(body))
    for headers, data in (({}, body), (GZIP, gzip.compress(body))):
        server.answers(200, data, headers)
        found = ask(lambda reply: client.connect(bounds=BOUNDS).send(kube.List(""), reply))
        assert isinstance(found, PodPage)


def test_a_write_whose_answer_is_too_large_may_have_been_carried_out(server: ScriptedServer, client: Client) -> None:
    server.answers(201, LARGEST)
    error = ask(lambda reply: WRITE[0](client.connect(bounds=BOUNDS), reply))
    assert type(error) is Ambiguous
    assert "api.max_object_size" in error.message


@pytest.mark.parametrize("call", WRITE[1:3])
def test_a_delete_is_answered_whatever_the_size_of_what_it_deletes(
    server: ScriptedServer, client: Client, call: Callable[..., Any]
) -> None:
    api = client.connect(workers=1, bounds=BOUNDS)
    for _ in range(2):
        server.answers(200, page(*[pod("a")] * 1000))
        assert ask(lambda reply: call(api, reply)) is None
    assert {asked.connection for asked in server.asked} == {1}, "it was read to its end"


@pytest.mark.parametrize("size", [64, pytest.param(1024, marks=pytest.mark.stress)])
@pytest.mark.parametrize("status", [200, 500])
def test_a_bomb_takes_little_memory(server: ScriptedServer, client: Client, size: int, status: int) -> None:
    server.answers(status, bomb(size * MIB), GZIP)
    api = client.connect(bounds=AnswerBounds(answer=4 * MIB))
    tracemalloc.start()
    try:
        error = ask(lambda reply: api.send(kube.List(""), reply))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, ApiError)
    assert peak < 16 * MIB, f"{peak / MIB:.0f} MiB"


def test_an_endless_body_is_cut_at_the_bound(server: ScriptedServer, client: Client) -> None:
    def endless(peer: Peer) -> None:
        peer.stream()
        while not peer.gone(within=0):
            peer.chunk(b" " * 65536)

    server.then(endless)
    error = ask(lambda reply: client.connect().send(kube.Get("a"), reply))
    assert isinstance(error, ApiError)
    assert "api.max_object_size" in error.message


@pytest.mark.parametrize("size", [b"-1", b"-ffff", b"9" * 40], ids=["-1", "-ffff", "40 digits"])
def test_a_chunk_of_an_impossible_size_ends_the_answer(server: ScriptedServer, client: Client, size: bytes) -> None:
    def bad_chunk(peer: Peer) -> None:
        peer.stream()
        peer.send(size + b"\r\n" + b"{" * 1000)

    server.then(bad_chunk)
    error = ask(lambda reply: client.connect().send(kube.Get("a"), reply))
    assert type(error) is Unavailable


@pytest.mark.parametrize("length", ["9" * 18, "-5", "x", "5, 6", "9" * 5000])
def test_a_content_length_is_not_believed(server: ScriptedServer, client: Client, length: str) -> None:
    def answer(peer: Peer) -> None:
        peer.head(200, {"Content-Length": length})
        peer.send(json.dumps(pod("a")).encode())

    server.then(answer)
    found = ask(lambda reply: client.connect().send(kube.Get("a"), reply))
    assert isinstance(found, Pod | Unavailable)


def test_an_encoding_that_was_not_asked_for_is_an_error(server: ScriptedServer, client: Client) -> None:
    server.answers(200, b"x", {"Content-Encoding": "br"})
    error = ask(lambda reply: client.connect().send(kube.List(""), reply))
    assert error.message == f"{server.name} answered with a body that cannot be decompressed"


# ── headers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 " + b"x" * 2000,
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 2000,
        b"HTTP/1.1 200 OK\r\n" + b"X: 234567890abcdef\r\n" * 90,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    ],
    ids=["a long reason", "a long header", "many headers", "many answers that are none"],
)
def test_headers_without_an_end_are_an_error_that_names_the_setting(
    server: ScriptedServer, client: Client, head: bytes
) -> None:
    def send(peer: Peer) -> None:
        peer.send(head)
        peer.gone()

    server.then(send)
    error = ask(lambda reply: client.connect(bounds=BOUNDS).send(kube.Get("a"), reply))
    assert error.message == f"{server.name} sent headers of more than 1024 bytes (api.max_header_size)"


def test_headers_are_bounded_by_their_size_and_not_by_their_number(server: ScriptedServer, client: Client) -> None:
    server.answers(200, pod("a"), {f"X-{number}": "y" for number in range(200)})
    assert isinstance(ask(lambda reply: client.connect().send(kube.Get("a"), reply)), Pod)


def test_a_continue_token_that_fits_in_no_url_is_an_error(server: ScriptedServer, client: Client) -> None:
    server.answers(200, page(**{"continue": "t" * 100_000}))
    error = ask(lambda reply: client.connect().send(kube.List(""), reply))
    assert "continue token" in error.message


def test_a_large_page_of_nothing_is_refused_before_it_is_decoded(server: ScriptedServer, client: Client) -> None:
    server.answers(200, b'{"metadata":{"resourceVersion":"1"},"items":[' + b"1," * (5 * MIB) + b"1]}")
    error = ask(lambda reply: client.connect().send(kube.List(""), reply))
    assert "no list of pods" in error.message


# ── watches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("compressed", [True, False])
def test_a_watch_event_without_an_end_is_an_error_that_names_the_setting(
    server: ScriptedServer, client: Client, compressed: bool
) -> None:
    def endless(peer: Peer) -> None:
        peer.head(200, {"Transfer-Encoding": "chunked", **(GZIP if compressed else {})})
        data = bomb(64 * MIB) if compressed else b"x" * 5000
        peer.chunk(data)
        peer.gone()

    server.then(endless)
    sink = Sink()
    watch(client.connect(bounds=BOUNDS), sink)
    error = sink.end()
    assert type(error) is Unavailable
    assert error.message == f"{server.name} sent a watch event of more than 2048 bytes (api.max_object_size)"


def test_a_compressed_watch_is_read(server: ScriptedServer, client: Client) -> None:
    def events(peer: Peer) -> None:
        peer.head(200, {"Transfer-Encoding": "chunked", **GZIP})
        packer = zlib.compressobj(wbits=31)
        for kind, version in (("ADDED", 6), ("MODIFIED", 7)):
            line = json.dumps({"type": kind, "object": pod("a", version)}).encode() + b"\n"
            peer.chunk(packer.compress(line) + packer.flush(zlib.Z_SYNC_FLUSH))
        peer.finish()

    server.then(events)
    sink = Sink()
    watch(client.connect(), sink)
    assert sink.all() == ([("ADDED", "a"), ("MODIFIED", "a")], "7", None)


# ── gzip ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def inflated(pieces: list[bytes]) -> bytes:
    inflater = Inflater()
    content = [part for piece in pieces for part in inflater.feed(piece)]
    assert all(len(part) <= READ_SIZE for part in content)
    inflater.check_end()
    return b"".join(content)


@given(st.binary(max_size=3000), st.integers(0, 3), st.integers(1, 400), st.integers(1, 3))
def test_gzip_that_is_cut_anywhere_is_read(data: bytes, factor: int, step: int, members: int) -> None:
    data *= 10**factor
    packed = gzip.compress(data) * members
    assert inflated([packed[at : at + step] for at in range(0, len(packed), step)]) == data * members


@pytest.mark.parametrize("size", [READ_SIZE - 1, READ_SIZE, READ_SIZE + 1, 3 * READ_SIZE])
def test_content_of_just_a_piece_is_read(size: int) -> None:
    assert inflated([gzip.compress(b"x" * size)]) == b"x" * size


def test_bytes_after_the_last_member_are_ignored() -> None:
    assert inflated([gzip.compress(b"x") + b"garbage"]) == b"x"


@pytest.mark.parametrize("data", [b"", b"no", gzip.compress(b"x")[:-3]], ids=["empty", "text", "half"])
def test_what_is_no_gzip_or_half_of_it_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        inflated([data])
