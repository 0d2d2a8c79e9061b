"""Answers that are hostile down to the byte: status lines, headers, chunks, gzip, bodies and watch lines.

Each call completes once, as documented; the client goes on; no error and no line of the log has a control character or
our credential.
"""

from __future__ import annotations

import copy
import gzip
import json
import logging
import tracemalloc
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors import kube
from actors.errors import ApiError
from actors.kube import PodPage, WatchEnded
from actors.kube.api import CLAIMS, PODS
from actors.kube.http.bounds import MIB, AnswerBounds
from actors.pods.pod import Pod
from tests.fuzz.material import places
from tests.fuzz.test_answers import CLAIM, LEASE, LIST, POD, STATUS
from tests.unit.kube.conftest import ask
from tests.unit.kube.scripted import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.kube.http.pod_api import HttpPodApi
    from tests.unit.kube.scripted import Peer

TOKEN: Final = "secret-token"
BOUNDS: Final = AnswerBounds(answer=256 * 1024, one_object=64 * 1024, headers=8192)
WITHIN: Final = timedelta(seconds=5)
"""The limit of a call. No answer here waits for it: each ends with its connection."""

DEEP: Final[Any] = json.loads("[" * 30 + "]" * 30)
EXTREMES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**400, 0.5, 1e308, -0.0, 410.0),
    *("", "\0", "\x1b[2J", "a\nb", "\u202e", "9" * 1000, "-1", "x" * 20_000, TOKEN, f"Bearer {TOKEN}", "NaN"),
    *("0000-00-00T00:00:00Z", "9999-12-31T23:59:59+14:00", "Expired", "Gone", "ADDED", "ERROR", "BOOKMARK"),
    *([], {}, [None], DEEP, {"": {}}, {"metadata": {}}),
)
BODIES: Final = (LIST, POD, STATUS, LEASE, {"items": [CLAIM]}, {"status": {"allowed": True}})
EVENTS: Final = (
    {"type": "ADDED", "object": POD},
    {"type": "ERROR", "object": STATUS},
    {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9", "annotations": {"k": "v"}}}},
)
RETRY_AFTER: Final = (
    *("1", "-1", "9" * 500, "1.5", "soon", "", "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 +9999"),
    *("Tue, 99 Foo 99999 99:99:99 +99999999999", "\x0b\x0c", "١٢٣", "0x10"),
)
LENGTHS: Final = ("0", "1", "-1", "9" * 18, "9" * 5000, "x", "5, 6", "", "1e3", "+5")
CHUNKS: Final = (b"-1", b"0x10", b"f" * 16, b"f" * 15, b"", b" ", b"1;" + b"x" * 5000, b"g", b"0")
STATUSES: Final = (*[200] * 10, 201, 204, 304, 301, 100, 101, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504, 99, 999)


def spoiled(dice: Random, document: Any) -> Any:
    """The document with some of its parts replaced by extremes."""
    result = copy.deepcopy(document)
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        *way, last = dice.choice(places(result)[1:] or [("metadata",)])
        owner = result
        for step in way:
            owner = owner[step]
        owner[last] = copy.deepcopy(dice.choice(EXTREMES))
        if not isinstance(result, dict) or not result:
            break
    return result


def body(dice: Random, *, watch: bool) -> bytes:
    if watch:
        lines = [json.dumps(spoiled(dice, dice.choice(EVENTS))).encode() for _ in range(dice.randrange(6))]
        whole = b"\n".join(lines) + dice.choice((b"\n", b"", b"\r\n", b"\n\n"))
    else:
        whole = json.dumps(spoiled(dice, dice.choice(BODIES))).encode()
    match dice.randrange(12):
        case 0:
            return whole[: dice.randrange(len(whole) + 1)]
        case 1:
            return dice.randbytes(dice.randrange(200))
        case 2:
            return whole + b" " * 300_000
        case 3:
            return b"[" * 20_000
        case 4:
            return whole.replace(b'"', b'"\\u0000', 3)
        case _:
            return whole


def chunked(dice: Random, content: bytes) -> bytes:
    pieces = []
    while content:
        size = dice.randrange(1, 5000)
        piece, content = content[:size], content[size:]
        pieces.append(b"%x\r\n%s\r\n" % (len(piece), piece))
    if not dice.randrange(4):
        pieces.insert(dice.randrange(len(pieces) + 1), dice.choice(CHUNKS) + dice.choice((b"\r\n", b"\n", b"")))
    end = (b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"", b"0\r\n" + b"X: y\r\n" * 2000)
    return b"".join(pieces) + dice.choice(end)


def answer(dice: Random, *, watch: bool) -> bytes:
    """One answer, as bytes."""
    content = body(dice, watch=watch)
    headers = []
    if not dice.randrange(4):
        headers.append(b"Content-Encoding: " + dice.choice((b"gzip", b"gzip", b"x-gzip", b"br", b"deflate", b"\xff")))
        if dice.randrange(4):
            content = gzip.compress(b" " * dice.choice((0, 0, 5_000_000)) + content, 1)
    if dice.randrange(3) == 0 and not watch:
        lying = not dice.randrange(3)
        headers.append(b"Content-Length: " + (dice.choice(LENGTHS) if lying else str(len(content))).encode())
    elif dice.randrange(5):
        headers.append(b"Transfer-Encoding: chunked")
        content = chunked(dice, content)
    if not dice.randrange(3):
        headers.append(b"Retry-After: " + dice.choice(RETRY_AFTER).encode())
    if not dice.randrange(20):
        headers.append(dice.choice((b"X: " + b"y" * 10_000, b"no colon", b": none", b"X: \x1b[2J", b"Y: z\r\n" * 150)))
    phrases = (b"OK", b"", TOKEN.encode(), b"\x1b[2J", b"\xff" * 50)
    status = b"HTTP/1.1 %d %s" % (dice.choice(STATUSES), dice.choice(phrases))
    if not dice.randrange(30):
        status = dice.choice((b"", b"HTTP/9.9 200", b"HTTP/1.1 -1 no", b"HTTP/1.0 200 OK", b"\0" * 100, b"x" * 10_000))
    return b"\r\n".join([status, *headers, b"", content])


CALLS: Final[tuple[tuple[kube.Request[Any], type | tuple[type, ...]], ...]] = (
    (kube.List("a=b"), PodPage),
    (kube.List("a=b", continue_token="t"), PodPage),
    (kube.Get("a"), Pod),
    (kube.Create({"metadata": {"name": "a"}}), Pod),
    (kube.Patch("a", {}), Pod),
    (kube.Delete("a"), type(None)),
    (kube.DeleteCollection("a=b"), type(None)),
    (kube.ReviewAccess("list", PODS), bool),
    (kube.GetObject(CLAIMS, "a"), dict),
    (kube.ListObjects(CLAIMS, "a=b"), (list, tuple)),
    (kube.ListPage(CLAIMS, "a=b"), kube.ObjectPage),
)


def send(data: bytes, peer: Peer) -> None:
    """A script. A client that has cut the connection is no failure."""
    peer.send(data)


def watched(api: HttpPodApi) -> ApiError | None:
    """How a watch ends, whatever it delivers before."""

    def call(reply: Callable[[Any], None]) -> kube.Call:
        def sink(said: Any) -> None:
            if isinstance(said, WatchEnded):
                reply(said.error)

        return api.watch(kube.Watch("a=b", "1", timedelta(minutes=5)), sink)

    error: ApiError | None = ask(call)
    return error


def check(error: ApiError) -> None:
    """An error is one of ours, on one line, short, and without our credential."""
    shown = f"{error} {error.reason} {error.causes}"
    assert shown.isprintable()
    assert len(shown) < 100_000
    assert TOKEN not in shown
    assert error.retry_after is None or timedelta() <= error.retry_after <= timedelta(days=365)


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """No line has our credential or a control character, and none is an error; then forget them."""
    assert TOKEN not in caplog.text
    assert all(character.isprintable() or character == "\n" for character in caplog.text)
    assert all(record.levelno < logging.ERROR for record in caplog.records)
    caplog.clear()


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 200), *(pytest.param(seed, 10_000, marks=pytest.mark.stress) for seed in range(1, 11))]
)
def test_any_bytes_are_an_answer_or_an_error_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int, count: int
) -> None:
    caplog.set_level(logging.INFO)
    dice = Random(seed)
    with ScriptedServer() as server:
        api = kube.connect(
            server.kubeconfig(tmp_path), namespace="ns", request_timeout=WITHIN, max_connections=1, bounds=BOUNDS
        )
        try:
            for number in range(count):
                if number == 1000:
                    tracemalloc.start()
                if number % 100 == 0:  # what the test itself keeps is no memory of the client
                    check_log(caplog)
                    server.asked.clear()
                    server.done = SimpleQueue()
                watch = not dice.randrange(4)
                data = answer(dice, watch=watch)
                server.scripts.clear()
                server.then(*[partial(send, data)] * 2)
                if watch:
                    found, kind = watched(api), CALLS[5][1]
                else:
                    request, kind = dice.choice(CALLS)
                    found = ask(partial(api.send, request))
                if isinstance(found, ApiError):
                    check(found)
                else:
                    assert isinstance(found, kind), f"seed={seed} number={number}"
            _, peak = tracemalloc.get_traced_memory()  # of the long runs: measuring doubles the time
            server.scripts.clear()
            server.then(*[lambda peer: peer.answer(200, POD)] * 2)
            # the first one may go out on the last connection, while the server closes that
            last = [ask(lambda reply: api.send(kube.Get("a"), reply)) for _ in range(2)]
            assert isinstance(last[1], Pod), "the worker goes on"
        finally:
            tracemalloc.stop()
            api.close()
    assert peak < 32 * MIB
    check_log(caplog)
