"""Chunks that are cut at random, compared with `http.client`."""

from __future__ import annotations

import io
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse, IncompleteRead
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.kube.http.chunks import LONGEST_HEAD, SIZES_KEPT, Answer, Chunks
from tests.unit.kube.certificates import Authority
from tests.unit.kube.scripted import SAFETY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADERS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

CONTENTS = st.lists(
    st.binary(min_size=1, max_size=40) | st.sampled_from([b"\r\n", b"\r\n5\r\n", b"0\r\n\r\n"]), max_size=6
)

EXTENSIONS = st.sampled_from([b"", b" ", b"\t", b";", b";a=b", b' ; a="b c"', b";a;b"])

SIZES = st.sampled_from([b"%x", b"%X", b"0%x", b"%08x"])

TRAILERS = st.sampled_from([b"", b"A: b\r\n", b"A: b\r\nC: d\r\n"])


class Wire:
    """A socket that brings what a server sent, piece by piece, and then its end."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(cast("io.RawIOBase", _Pieces(self._pieces)))

    def gettimeout(self) -> None:
        """None of its pieces is waited for."""

    def settimeout(self, _seconds: float | None) -> None:
        """See `gettimeout`."""


class _Pieces(io.RawIOBase):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._pieces.pop(0) if self._pieces else b""
        part, rest = piece[: len(buffer)], piece[len(buffer) :]
        buffer[: len(part)] = part
        if rest:
            self._pieces.insert(0, rest)
        return len(part)


def answer_of(kind: type[HTTPResponse], *pieces: bytes) -> HTTPResponse:
    answer = kind(cast("socket.socket", Wire(*pieces)), method="GET")
    answer.begin()
    return answer


def reads(answer: HTTPResponse, size: int = 65536) -> list[bytes]:
    return list(iter(lambda: answer.read1(size), b""))


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """In chunks, as a server may write them."""
    chunks = [
        (draw(SIZES) % len(content)) + draw(EXTENSIONS) + b"\r\n" + content + b"\r\n" for content in draw(CONTENTS)
    ]
    return b"".join(
        (*chunks, draw(st.sampled_from([b"0", b"000"])), draw(EXTENSIONS), b"\r\n", draw(TRAILERS), b"\r\n")
    )


@given(bodies(), st.data(), st.sampled_from([1, 2, 7, 65536]))
def test_what_is_read_is_what_http_client_reads_wherever_it_was_cut(
    body: bytes, data: st.DataObject, size: int
) -> None:
    whole = HEADERS + body
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [whole[start:end] for start, end in pairwise([0, *cuts, len(whole)])]
    assert b"".join(reads(answer_of(Answer, *pieces), size)) == b"".join(reads(answer_of(HTTPResponse, whole)))


def test_what_is_read_does_not_depend_on_the_byte_where_it_was_cut() -> None:
    whole = HEADERS + b"3\r\nabc\r\n1;x=y\r\n\n\r\n0\r\nA: b\r\n\r\n"
    for at in range(len(whole)):
        assert b"".join(reads(answer_of(Answer, whole[:at], whole[at:]))) == b"abc\n"
    assert b"".join(reads(answer_of(Answer, *(bytes([byte]) for byte in whole)))) == b"abc\n"


def test_all_that_has_come_is_read_at_once() -> None:
    answer = answer_of(Answer, HEADERS, b"2\r\nab\r\n2\r\ncd\r\n2\r\ne", b"f\r\n0\r\n\r\n")
    assert reads(answer) == [b"abcde", b"f"]


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Both ends of a connection, the client's first."""
    authority = Authority("an authority")
    contexts = ssl.create_default_context(cadata=authority.pem.decode()), authority.server(tmp_path)
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    theirs = listener.accept()[0]
    listener.close()
    with ThreadPoolExecutor() as pool:
        shaken = pool.submit(contexts[1].wrap_socket, theirs, server_side=True)
        client = contexts[0].wrap_socket(ours, server_hostname="127.0.0.1")
        server = shaken.result(SAFETY)
    with client, server:
        yield client, server


def test_records_that_have_come_are_read_at_once_too(tls: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    client, server = tls
    for record in (HEADERS, b"2\r\nab\r\n", b"2\r\ncd\r\n"):
        server.sendall(record)
    answer = Answer(client, method="GET")
    answer.begin()
    assert answer.read1(65536) == b"abcd", "without waiting for more, though more may come"
    assert client.gettimeout() is None, "the next read waits"
    server.sendall(b"2\r\nef\r\n0\r\n\r\n")
    assert reads(answer) == [b"ef"]
    answer.close()


def test_records_are_read_up_to_the_size_that_was_asked_for(tls: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    client, server = tls
    for record in (HEADERS, b"4\r\nabcd\r\n", b"4\r\nefgh\r\n0\r\n\r\n"):
        server.sendall(record)
    answer = Answer(client, method="GET")
    answer.begin()
    assert b"".join(found := reads(answer, 8)) == b"abcdefgh"
    assert max(map(len, found)) <= 8
    answer.close()


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, ours first."""
    if request.param == "tls":
        yield request.getfixturevalue("tls")
    else:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            yield ours, theirs


def test_what_has_come_beyond_one_read_is_known_without_waiting(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    server.sendall(HEADERS)
    answer = Answer(client, method="GET")
    answer.begin()
    server.sendall(b"8\r\nabcdefgh\r\n")
    assert answer.read1(7) == b"abcd", "and the head"
    assert answer.ahead == b"efgh"
    assert answer.read1(7) == b"efgh"
    assert answer.ahead == b"", "of the end of a chunk nothing can be read"
    assert client.gettimeout() is None, "the next read waits"
    server.sendall(b"2\r\nij\r\n0\r\n\r\n")
    assert reads(answer, 7) == [b"ij"]
    answer.close()


def test_a_broken_connection_is_reported_after_the_events_before_it(tls: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    client, server = tls
    server.sendall(HEADERS)
    server.sendall(b"2\r\nab\r\n")
    os.write(server.fileno(), b"this is no record at all")
    answer = Answer(client, method="GET")
    answer.begin()
    assert answer.read1(65536) == b"ab"
    with pytest.raises((OSError, IncompleteRead)):
        answer.read1(65536)
    answer.close()


def test_headers_are_found_by_a_name_of_any_case_and_joined_if_there_are_several() -> None:
    head = b"HTTP/1.1 200 OK\r\nretry-AFTER: 7\r\nWarning: one\r\n  and more\r\nno header\r\nWARNING:two \r\n\r\n"
    headers = answer_of(Answer, head).headers
    assert headers.get("Retry-After") == "7"
    assert headers.get("Warning") == "one and more, two"
    assert headers.get("Date", "unknown") == "unknown"
    assert headers.get("no header") is None


def test_several_encodings_of_an_answer_are_none_that_is_known() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert not answer_of(Answer, head).chunked


def test_what_came_with_the_headers_is_not_lost() -> None:
    assert reads(answer_of(Answer, HEADERS + b"2\r\nab\r\n", b"0\r\n\r\n")) == [b"ab"]


@given(bodies(), st.data())
def test_a_body_that_is_cut_short_is_no_whole_one(body: bytes, data: st.DataObject) -> None:
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(IncompleteRead):
        reads(answer_of(Answer, HEADERS + cut))


HOSTILE = [b"-1", b"+1", b"0x1", b"1_0", b" 1", b"", b"\n", b"1\n", b"g", b"f" * 16, b"1 1", b"1" * LONGEST_HEAD]


@pytest.mark.parametrize("size", HOSTILE)
@pytest.mark.parametrize("before", [b"", b"1\r\na\r\n"])
def test_a_size_that_is_none_is_refused(size: bytes, before: bytes) -> None:
    with pytest.raises(IncompleteRead):
        Chunks().feed(before + size + b"\r\nabc\r\n")


def test_a_chunk_that_goes_on_after_its_end_is_refused() -> None:
    with pytest.raises(IncompleteRead):
        Chunks().feed(b"1\r\nab\r\n")


@pytest.mark.parametrize("begin", [b"", b"1;", b"0\r\nA: "])
def test_an_endless_head_is_refused_before_it_fills_the_memory(begin: bytes) -> None:
    chunks = Chunks()
    chunks.feed(begin)
    for _ in range(LONGEST_HEAD // 100 - 1):
        assert chunks.feed(b"1" * 100) == b""
    with pytest.raises(IncompleteRead):
        chunks.feed(b"1" * 200)


def test_few_and_short_heads_are_remembered() -> None:
    chunks = Chunks()
    for size in range(1, SIZES_KEPT + 10):
        assert chunks.feed(b"%x\r\n%b\r\n" % (size, b"x" * size)) == b"x" * size
    assert len(chunks._sizes) == SIZES_KEPT
    for size in (SIZES_KEPT, SIZES_KEPT + 9):
        assert chunks.feed(b"%x\r\n%b\r\n" % (size, b"y" * size)) == b"y" * size
    long = Chunks()
    assert long.feed(b"1%b\r\nx\r\n" % (b" " * 100)) == b"x"
    assert not long._sizes


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"\r\n", b"1", b"0\r\n"]), max_size=8))
@example([b"ffffffffffffff\r\n", b"a"])
def test_no_bytes_make_more_than_they_are(pieces: list[bytes]) -> None:
    chunks = Chunks()
    try:
        content = b"".join(chunks.feed(piece) for piece in pieces)
    except IncompleteRead:
        return
    assert len(content) <= sum(map(len, pieces))
    assert len(chunks._held) <= LONGEST_HEAD


def test_an_answer_that_is_not_in_chunks_is_read_as_ever() -> None:
    sized = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"
    assert reads(answer_of(Answer, sized)) == [b"abc"]
    until_the_end = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcd"
    assert b"".join(reads(answer_of(Answer, until_the_end, b"ef"))) == b"abcdef"
