"""The driver's side of the registration protocol under any order of any bytes, losses, refusals and silences."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.registration.executor import BEAT, BEAT_EVERY, End, LineReader, ProtocolError, encode
from actors.registration.listener import Answered, Connected, Connection, Disconnected
from tests.unit.registration.virtual import TOKEN, Driver, answer, hello, run, settle

if TYPE_CHECKING:
    from tests.unit.registration.virtual import Peer

IDS = st.integers(1, 3)
PEERS = st.integers(0, 5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MESSAGES = st.one_of(
    st.builds(hello, IDS | JSON, st.sampled_from((TOKEN, TOKEN, "wrong")) | JSON, st.sampled_from("ab") | JSON),
    st.builds(answer, st.integers(0, 3) | JSON, JSON),
    st.just({"type": "beat"}),
    st.fixed_dictionaries({"type": st.sampled_from(("hello", "answer", "beat", "work", "stop", "welcome")) | JSON}),
)
BYTES = st.one_of(
    st.binary(max_size=200),
    st.lists(MESSAGES.map(encode), max_size=4).map(b"".join),
    MESSAGES.map(encode).flatmap(lambda line: st.integers(0, len(line)).map(lambda end: line[:end])),
    st.sampled_from((b"\n", b"{", b"[" * 5000, b'"\\ud800"\n', b"\xff\xfe\n", BEAT * 50)),
)
STEPS = st.one_of(
    st.tuples(st.just("executor"), IDS, st.sampled_from("ab")),
    st.tuples(st.just("stranger"), BYTES),
    st.tuples(st.just("say"), PEERS, BYTES),
    st.tuples(st.just("answer"), PEERS, st.integers(0, 3)),
    st.tuples(st.just("work"), PEERS, st.integers(0, 3)),
    st.tuples(st.just("stop"), PEERS),
    st.tuples(st.just("lose"), PEERS),
    st.tuples(st.just("cut"), PEERS),
    st.tuples(st.just("exclude"), IDS),
    st.tuples(st.just("slow"), st.sampled_from((0.0, 0.0, 1.0))),
    st.tuples(st.just("fail"), st.booleans()),
    st.tuples(st.just("pass"), st.sampled_from((0.0, 1.0, BEAT_EVERY, 4 * BEAT_EVERY))),
)


class World:
    """A driver, and everybody who has connected to it."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.peers: list[Peer] = []
        self.given: Counter[tuple[Connection, int]] = Counter()
        self.errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.errors.append(context))

    async def take(self, step: tuple[Any, ...]) -> None:
        driver = self.driver
        match step:
            case ("executor", executor_id, process):
                self.peers.append(driver.peer(hello(executor_id, process=process)))
            case ("stranger", data):
                self.peers.append(driver.peer())
                self.peers[-1].transport.write(data)
            case ("exclude", executor_id):
                driver.fleet.excluded.add(executor_id)
            case ("slow", seconds):
                driver.fleet.answers_within = seconds
            case ("fail", fails):
                driver.fleet.error = RuntimeError("the backend is dead") if fails else None
            case ("pass", seconds):
                await asyncio.sleep(seconds)
            case ("work", number, work_id) if driver.connections:
                connection = driver.connections[-1 - number % len(driver.connections)]
                self.given[connection, work_id] += 1
                connection.send(work_id, "work")
            case ("stop", number) if driver.connections:
                driver.connections[-1 - number % len(driver.connections)].stop()
            case (kind, number, *rest) if self.peers:
                end = self.peers[-1 - number % len(self.peers)].transport
                match kind:
                    case "say":
                        end.write(rest[0])
                    case "answer":
                        end.write(encode(answer(rest[0])))
                    case "lose":
                        end.abort()
                    case _:
                        end.is_cut = end.peer.is_cut = True

    def check(self) -> None:
        """What a driver may rely on."""
        told: dict[Connection, list[type]] = {}
        answered: Counter[tuple[Connection, int]] = Counter()
        open_ids: set[int] = set()
        for event in self.driver.told:
            connection = event.connection
            told.setdefault(connection, []).append(type(event))
            match event:
                case Connected():
                    assert connection.executor_id not in open_ids, "an executor has two connections"
                    open_ids.add(connection.executor_id)
                case Answered(_, work_id, _):
                    answered[connection, work_id] += 1
                    assert type(work_id) is int
                case Disconnected():
                    open_ids.remove(connection.executor_id)
        for kinds in told.values():
            assert kinds[0] is Connected
            assert kinds.count(Connected) == 1
            assert Disconnected not in kinds[:-1], "something came from a connection that had ended"
        assert answered <= self.given, "an answer to what was not asked, or twice"
        assert set(self.driver.listener._known) == open_ids
        assert self.errors == []


@settings(max_examples=25)
@given(st.lists(STEPS, max_size=30))
def test_whatever_comes_the_driver_is_told_a_story_that_makes_sense(steps: list[tuple[Any, ...]]) -> None:
    async def main() -> None:
        world = World()
        for step in steps:
            await world.take(step)
            await settle()
            world.check()
        fleet, listener = world.driver.fleet, world.driver.listener
        fleet.answers_within, fleet.error = 0.0, None
        await asyncio.sleep(2)
        await settle()
        assert fleet.registered == set(listener._known)
        await asyncio.sleep(10 * BEAT_EVERY)  # everybody is silent
        await settle()
        world.check()
        assert fleet.registered == set()
        assert not listener._open
        assert not listener._strangers
        assert not listener._known
        assert listener._changed.empty()

    run(main())


@given(st.lists(BYTES, max_size=10), st.integers(1, 20))
def test_a_reader_finds_the_same_lines_however_they_are_cut(chunks: list[bytes], piece: int) -> None:
    data = b"".join(chunks)

    def read(pieces: list[bytes]) -> list[Any]:
        reader, found = LineReader(4096), list[Any]()
        try:
            for part in pieces:
                found.extend(reader.feed(part))
        except ProtocolError:
            found.append(ProtocolError)
        return found

    whole = read([data])
    parts = read([data[start : start + piece] for start in range(0, len(data), piece)])
    assert parts == whole


@given(st.lists(BYTES, min_size=1, max_size=5))
def test_whatever_a_false_driver_says_the_executor_ends_in_order(chunks: list[bytes]) -> None:
    async def main() -> None:
        driver = Driver()
        executor = driver.executor(echo)
        running = asyncio.ensure_future(executor.run())
        await settle()
        for chunk in chunks:
            if driver.ends:
                driver.ends[-1].peer.write(chunk)
            await asyncio.sleep(BEAT_EVERY)
        executor.stop()
        assert await running in {End.STOPPED, End.REFUSED}

    run(main())


async def echo(work: Any) -> Any:
    return work


@pytest.mark.parametrize("kind", ["lines without end", "beats", "strangers", "registrations"])
def test_nobody_makes_the_driver_keep_much(kind: str) -> None:
    async def main() -> tuple[int, int]:
        driver = Driver()
        peer = driver.peer(hello(3))
        await settle()
        driver.told.clear()
        tracemalloc.start()
        before, most = tracemalloc.get_traced_memory()[0], 0
        for number in range(150):
            match kind:
                case "lines without end":
                    driver.peer(hello(4)).transport.write(b"x" * 10_000)
                case "beats":
                    peer.transport.write(BEAT * 30)
                case "strangers":
                    driver.peer().transport.write(b"x" * 4000)
                case _:
                    driver.peer(hello(5 + number)).transport.abort()
            await settle()
            driver.told.clear()
            driver.fleet.calls.clear()
            most = max(most, tracemalloc.get_traced_memory()[0] - before)
        await asyncio.sleep(10 * BEAT_EVERY)
        driver.told.clear()
        await settle()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return most, after

    most, after = run(main())
    assert after < 200_000, (most, after)
    assert most < 5_000_000, (most, after)


@pytest.mark.stress
@settings(max_examples=5_000)
@given(st.lists(STEPS, max_size=60))
def test_whatever_comes_for_long(steps: list[tuple[Any, ...]]) -> None:
    test_whatever_comes_the_driver_is_told_a_story_that_makes_sense.hypothesis.inner_test(steps)  # type: ignore[attr-defined]  # Hypothesis adds it
