"""The driver's side of the registration protocol, in virtual time and without a socket."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import struct
import sys
from typing import Any

import pytest

from actors.registration.executor import BEAT, BEAT_EVERY, LONGEST_LINE, SILENCE_LIMIT, LineReader, encode
from actors.registration.listener import (
    HELLO_LIMIT,
    LONGEST_HELLO,
    MOST_STRANGERS,
    MOST_UNSENT,
    START_LIMIT,
    STRANGERS_SHARE,
    Listener,
    most_strangers,
)
from tests.unit.registration.virtual import Driver, Fleet, answer, hello, run, settle


def test_an_executor_is_registered_before_it_is_welcome() -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer(hello(3))
        await settle()
        assert driver.fleet.calls == [("register", 3)]
        assert peer.types == ["welcome"]
        assert driver.events == [("connected", 3)]

    run(main())


def test_work_is_sent_and_its_answer_is_told_once() -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer(hello(3), piece=1)
        await settle()
        driver.connections[0].send(7, {"seed": 1})
        await settle()
        assert peer.heard[-1] == {"type": "work", "work_id": 7, "work": {"seed": 1}}
        peer.say(answer(7, 49), answer(7, 50), answer(8, 64))
        await settle()
        assert driver.events == [("connected", 3), ("answered", 3, 7, 49)]

    run(main())


def test_lines_may_come_in_any_pieces() -> None:
    async def main() -> None:
        for piece in (1, 2, 5, 100):
            driver = Driver()
            driver.peer(hello(3), {"type": "beat"}, piece=piece)
            await asyncio.sleep(0)
            await settle()
            assert driver.events == [("connected", 3)]

    run(main())


def test_an_excluded_executor_is_refused_once_the_fleet_is_known() -> None:
    async def main() -> None:
        driver = Driver()
        driver.fleet.excluded = {3}
        early = driver.peer(hello(3))
        await settle()
        assert early.is_lost  # it comes again: the fleet may not know yet what its predecessor left
        assert early.types == []
        await asyncio.sleep(START_LIMIT)
        late = driver.peer(hello(3))
        await settle()
        assert late.is_lost
        assert late.types == ["refused"]
        assert driver.events == []

    run(main())


def test_a_wrong_token_is_refused_and_the_fleet_is_not_asked() -> None:
    async def main() -> None:
        driver = Driver()
        for token in ("", "righ", "right ", "wrong", "\ud800", "ü" * 50):
            peer = driver.peer(hello(3, token))
            await settle()
            assert (peer.types, peer.is_lost) == (["refused"], True)
        assert driver.fleet.calls == []

    run(main())


@pytest.mark.parametrize("token", ["", "\n"])
def test_a_listener_needs_a_token(token: str) -> None:
    with pytest.raises(ValueError, match="the token is empty"):
        Listener(token, print)


HOSTILE: dict[str, bytes] = {
    "no JSON": b"GET / HTTP/1.1\r\n",
    "no object": b"[]\n",
    "no number": b'{"type": NaN}\n',
    "no UTF-8": b'{"type": "\xff"}\n',
    "UTF-16": '{"type": "beat"}\n'.encode("utf-16"),
    "too deep": b"[" * 2000 + b"\n",
    "a number of many digits": b'{"type": ' + b"9" * 4000 + b"5" * 90 + b"}\n",
    "no type": b"{}\n",
    "an unknown type": b'{"type": "shell"}\n',
    "an answer before the hello": encode(answer(1)),
    "a beat before the hello": BEAT,
    "an id of zero": encode(hello(0)),
    "a negative id": encode(hello(-3)),
    "a huge id": encode(hello(10**18)),
    "an id that is a word": encode(hello("3")),
    "an id that is a fraction": encode(hello(3.0)),
    "an id that is true": encode(hello(executor_id=True)),
    "an id that is a list": encode(hello([3])),
    "a token that is a number": encode(hello(3, 1)),
    "a long hello": encode(hello(3, process="x" * LONGEST_HELLO)),
    "a line without end": b"x" * (LONGEST_HELLO + 1),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_a_stranger_says_ends_its_connection_and_nothing_else(data: bytes) -> None:
    async def main() -> None:
        driver = Driver()
        good = driver.peer(hello(1))
        bad = driver.peer()
        bad.transport.write(data)
        await settle()
        assert bad.is_lost
        assert bad.heard == []
        assert not good.is_lost
        assert driver.events == [("connected", 1)]

    run(main())


LATER: dict[str, bytes] = {
    "a second hello": encode(hello(3)),
    "the hello of another": encode(hello(4)),
    "work for the driver": encode({"type": "work", "work_id": 1, "work": 1}),
    "an answer without an id": b'{"type": "answer"}\n',
    "an answer to a list": encode(answer([1])),
    "an answer to true": encode(answer(work_id=True)),
    "a line too long": b"x" * (LONGEST_LINE + 1),
    "a long line with an end": b" " * LONGEST_LINE + b"{}\n",
}


@pytest.mark.parametrize("data", LATER.values(), ids=LATER.keys())
def test_what_an_executor_says_wrong_disconnects_it(data: bytes) -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer(hello(3))
        await settle()
        driver.connections[0].send(1, "work")
        await settle()
        peer.transport.piece = len(data)
        peer.transport.write(data + encode(answer(1)))
        await settle()
        assert peer.is_lost
        assert driver.events == [("connected", 3), ("disconnected", 3)]
        assert driver.fleet.calls == [("register", 3), ("disconnected", 3)]

    run(main())


def test_what_comes_after_the_end_of_a_connection_is_dropped() -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer(hello(3))
        await settle()
        (connection,) = driver.connections
        connection.send(1, "work")
        await settle()
        peer.transport.abort()
        await settle()
        connection.data_received(encode(answer(1)))
        connection.send(2, "more")
        connection.stop()
        await settle()
        assert driver.events == [("connected", 3), ("disconnected", 3)]

    run(main())


def test_a_silent_executor_is_disconnected_and_one_that_beats_is_not() -> None:
    async def main() -> None:
        driver = Driver()
        silent, alive = driver.peer(hello(1)), driver.peer(hello(2))
        await settle()
        silent.transport.peer.is_cut = silent.transport.is_cut = True  # half open: its node is gone
        for _ in range(int((SILENCE_LIMIT + BEAT_EVERY) / BEAT_EVERY)):
            await asyncio.sleep(BEAT_EVERY)
            alive.say({"type": "beat"})
            await settle()
        assert driver.events == [("connected", 1), ("connected", 2), ("disconnected", 1)]
        assert driver.fleet.registered == {2}
        assert driver.fleet.suspected == [None], "the kernel does not tell; the fleet compares"
        assert alive.heard.count({"type": "beat"}) == (SILENCE_LIMIT + BEAT_EVERY) / BEAT_EVERY

    run(main())


class Kernel:
    """The driver's, which last got data and an acknowledgement so many seconds ago."""

    def __init__(self, data: float, acknowledgement: float) -> None:
        self._info = struct.pack("=52xII", int(data * 1000), int(acknowledgement * 1000))

    def getsockopt(self, *_: int) -> bytes:
        return self._info


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
@pytest.mark.parametrize(
    ("kernel", "seen", "suspected"),
    [
        (Kernel(SILENCE_LIMIT, 2.0), "10.0.0.7", "hang"),
        (Kernel(SILENCE_LIMIT, 2.0), "127.0.0.6", None),
        (Kernel(SILENCE_LIMIT, SILENCE_LIMIT), "10.0.0.7", "network"),
    ],
    ids=["it acknowledges", "a sidecar acknowledges", "nobody acknowledges"],
)
def test_the_fleet_is_told_why_an_executor_is_silent(kernel: Kernel, seen: str, suspected: str | None) -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer()
        peer.transport.peer.facts = {"socket": kernel, "peername": (seen, 4711)}
        peer.say({**hello(1), "from": ["10.0.0.7", 4711]})
        await asyncio.sleep(SILENCE_LIMIT + BEAT_EVERY)
        assert driver.fleet.suspected == [suspected]

    run(main())


def test_an_executor_that_closes_its_connection_does_not_hang() -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer(hello(1))
        await settle()
        peer.transport.abort()
        await settle()
        assert driver.fleet.suspected == ["network"]

    run(main())


def test_an_executor_that_breaks_the_protocol_is_suspected_of_nothing() -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer(hello(1))
        await settle()
        peer.say({"type": "nonsense"})
        await settle()
        assert driver.fleet.suspected == [None]

    run(main())


def test_a_stranger_that_sends_a_byte_now_and_then_has_no_longer_than_a_silent_one() -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer()
        for _ in range(int(2 * HELLO_LIMIT)):
            peer.transport.write(b" ")
            await asyncio.sleep(1)
        assert peer.is_lost

    run(main())


@pytest.mark.parametrize(
    ("descriptors", "most"),
    [
        (1024, 1024 // STRANGERS_SHARE),
        (256, 256 // STRANGERS_SHARE),
        (2, 1),
        (1_000_000, MOST_STRANGERS),
        (resource.RLIM_INFINITY, MOST_STRANGERS),
    ],
)
def test_strangers_leave_the_fleet_most_of_the_descriptors(
    descriptors: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert most_strangers() == most

    async def main() -> None:
        driver = Driver()
        strangers = [driver.peer() for _ in range(min(most, 300) + 5)]
        driver.peer(hello(3))
        await settle()
        assert sum(not peer.is_lost for peer in strangers) <= most
        assert driver.events == [("connected", 3)]

    run(main())


def test_strangers_are_few_and_the_oldest_goes_first() -> None:
    async def main() -> None:
        driver = Driver()
        most = most_strangers()
        strangers = [driver.peer() for _ in range(most + 5)]
        driver.peer(hello(3))
        await settle()
        assert [peer.is_lost for peer in strangers] == [True] * 6 + [False] * (most - 1)
        assert driver.events == [("connected", 3)]

    run(main())


def test_an_executor_that_does_not_read_is_lost_before_it_costs_memory() -> None:
    async def main() -> None:
        driver = Driver()
        peer = driver.peer(hello(3))
        await settle()
        (connection,) = driver.connections
        peer.transport.peer.is_stuck = True
        work = "x" * (LONGEST_LINE - 100)
        for number in range(MOST_UNSENT // LONGEST_LINE + 2):
            connection.send(number, work)
        await settle()
        assert driver.events == [("connected", 3), ("disconnected", 3)]
        assert peer.transport.peer.get_write_buffer_size() <= MOST_UNSENT

    run(main())


def test_the_same_process_takes_its_connection_over() -> None:
    async def main() -> None:
        driver = Driver()
        old = driver.peer(hello(3, process="a"))
        await settle()
        new = driver.peer(hello(3, process="a"))
        await settle()
        assert old.is_lost
        assert new.types == ["welcome"]
        assert driver.events == [("connected", 3), ("disconnected", 3), ("connected", 3)]
        assert driver.fleet.registered == {3}
        new.transport.abort()
        await settle()
        assert driver.fleet.calls == [("register", 3), ("register", 3), ("disconnected", 3)]

    run(main())


def test_another_process_with_the_id_of_a_connected_executor_is_refused() -> None:
    async def main() -> None:
        driver = Driver()
        first = driver.peer(hello(3, process="a"))
        second = driver.peer(hello(3, process="b"))
        await settle()
        assert (first.types, second.types) == (["welcome"], ["refused"])
        assert not first.is_lost
        first.transport.abort()
        third = driver.peer(hello(3, process="b"))
        await settle()
        assert third.types == ["welcome"]
        assert driver.fleet.registered == {3}

    run(main())


def test_an_executor_that_goes_while_the_fleet_is_asked_is_not_left_registered() -> None:
    async def main() -> None:
        driver = Driver()
        driver.fleet.answers_within = 1.0
        peer = driver.peer(hello(3))
        await settle()
        peer.transport.abort()
        await asyncio.sleep(2)
        assert driver.fleet.calls == [("register", 3), ("disconnected", 3)]
        assert driver.events == []

    run(main())


def test_a_fleet_that_does_not_answer_costs_a_connection_and_not_the_listener(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        driver = Driver()
        driver.fleet.error = TimeoutError("backend did not answer")
        peer = driver.peer(hello(3))
        await settle()
        assert (peer.types, peer.is_lost) == ([], True)
        driver.fleet.error = None
        driver.peer(hello(3))
        await settle()
        assert driver.events == [("connected", 3)]

    run(main())
    assert "fleet did not answer" in caplog.text


def test_a_driver_that_fails_to_hear_does_not_stop_the_listener(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        driver = Driver()
        driver.listener._tell = lambda _: 1 / 0
        peers = driver.peer(hello(1)), driver.peer(hello(2))
        await settle()
        for peer in peers:
            peer.transport.abort()
        await settle()
        driver.listener._tell = driver.hear
        driver.peer(hello(3))
        await settle()
        assert driver.events == [("connected", 3)]
        assert driver.fleet.registered == {3}

    run(main())
    assert "driver was not told" in caplog.text


def test_a_work_that_is_no_line_is_its_senders_error() -> None:
    async def main() -> None:
        driver = Driver()
        driver.peer(hello(3))
        await settle()
        (connection,) = driver.connections
        for work in ("x" * LONGEST_LINE, float("nan")):
            with pytest.raises(ValueError, match=r"too long|JSON"):
                connection.send(1, work)
        with pytest.raises(TypeError):
            connection.send(1, object())

    run(main())


def test_a_listener_can_be_closed_before_it_serves_and_twice() -> None:
    async def main() -> None:
        await Listener("token", print).close()
        listener = Listener("token", print)
        await listener.serve(Fleet(), socket.create_server(("127.0.0.1", 0)))
        await listener.close()
        await listener.close()

    asyncio.run(main())


def test_a_reader_keeps_at_most_one_line() -> None:
    reader = LineReader(100)
    assert list(reader.feed(b'{"a": 1}\n{"b"')) == [{"a": 1}]
    assert list(reader.feed(b": 2}\n\n"[:-1])) == [{"b": 2}]
    line = json.dumps({"c": "x" * 80}).encode()
    found: list[Any] = []
    for byte in line + b"\n":
        found += reader.feed(bytes([byte]))
    assert found == [{"c": "x" * 80}]
