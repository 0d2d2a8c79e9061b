"""The serial dispatcher: the same order of messages every time, with threads and without."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from actors.runtime import Actor, Address, Backoff, ChildSpec, Context
from actors.testing import Kit, Runaway
from tests.unit.runtime.stage import Boss

SECOND = timedelta(seconds=1)


class Chatter(Actor):
    """Answers each message with one to a random peer, for a number of rounds."""

    def __init__(self, context: Context, peers: list[Address], received: list[tuple[str, str, int]]) -> None:
        super().__init__(context)
        self._peers = peers
        self._received = received
        self._said = 0

    def started(self) -> None:
        self.timers.every("talk", SECOND, ("timer", 0, 3))

    def receive(self, message: Any) -> object:
        if message == "die":
            raise SystemExit(1)
        sender, number, rounds = message
        self._received.append((sender, self.name, number))
        if rounds:
            for _ in range(2):
                self._said += 1
                self.entropy.choice(self._peers).tell((self.name, self._said, rounds - 1))
        return None


def supervision(seed: int | None, *, threads: bool) -> tuple[str, ...]:
    """Run five actors with two crashes and a restart; return the trace."""
    with Kit(seed, threads=threads) as kit:
        made: list[Boss] = []

        def make(context: Context) -> Boss:
            made.append(Boss(context, [], 30 * SECOND))
            return made[0]

        boss = kit.spawn(make, name="boss")
        supervisor = made[0].supervisor
        peers = [supervisor.address(f"chatter-{number}") for number in range(5)]
        received: list[tuple[str, str, int]] = []
        for peer in peers:
            spec = ChildSpec(
                peer.name, lambda context: Chatter(context, peers, received), backoff=Backoff(initial=SECOND)
            )
            kit.ask(boss, lambda supervisor, spec=spec: supervisor.start(spec))
        kit.advance(3 * SECOND)
        peers[3].tell("die")
        kit.advance(5 * SECOND)
        peers[1].tell("die")
        kit.advance(10 * SECOND)
        kit.crashes.clear()
        return tuple(kit.trace)


def test_every_run_gives_one_and_the_same_trace() -> None:
    traces = {supervision(None, threads=False) for _ in range(40)}
    assert len(traces) == 1
    assert len(traces.pop()) > 1000


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_real_threads_give_the_same_trace_as_none(seed: int | None) -> None:
    assert supervision(seed, threads=True) == supervision(seed, threads=False)


def test_a_seed_reproduces_its_order_and_another_gives_another() -> None:
    traces = [supervision(seed, threads=False) for seed in range(10)]
    assert len(set(traces)) == 10
    assert traces == [supervision(seed, threads=False) for seed in range(10)]


class Scribe(Actor):
    """Records its messages."""

    def __init__(self, context: Context, received: list[str]) -> None:
        super().__init__(context)
        self._received = received

    def receive(self, message: Any) -> object:
        self._received.append(f"{self.name} {message}")
        return None


@pytest.mark.parametrize("threads", [False, True])
def test_without_a_seed_the_oldest_message_is_next(threads: bool) -> None:
    with Kit(threads=threads) as kit:
        received: list[str] = []
        one, other = (kit.spawn(lambda c: Scribe(c, received), name=name) for name in ("one", "other"))
        one.tell(1)
        other.tell(2)
        other.tell(3)
        one.tell(4)
        kit.settle()
        assert received == ["one 1", "other 2", "other 3", "one 4"]


def test_with_any_seed_each_mailbox_stays_in_order() -> None:
    orders = set()
    for seed in range(20):
        with Kit(seed) as kit:
            received: list[str] = []
            one, other = (kit.spawn(partial(Scribe, received=received), name=name) for name in ("one", "other"))
            for number in range(3):
                one.tell(number)
                other.tell(number)
            kit.settle()
            for name in ("one", "other"):
                mine = [line for line in received if line.startswith(f"{name} ")]
                assert mine == [f"{name} 0", f"{name} 1", f"{name} 2"]
            orders.add(tuple(received))
    assert len(orders) > 5


@pytest.mark.parametrize("threads", [False, True])
def test_only_one_actor_runs_at_a_time(threads: bool) -> None:
    running: list[str] = []

    class Exclusive(Scribe):
        def receive(self, message: Any) -> object:
            assert running == []
            running.append(self.name)
            for peer in peers:
                if message:
                    peer.tell(message - 1)
            running.remove(self.name)
            return None

    with Kit(threads=threads) as kit:
        peers = [kit.spawn(lambda c: Exclusive(c, []), name=name) for name in "abc"]
        peers[0].tell(3)
        kit.settle()
        assert all(peer.is_alive() for peer in peers)


def test_without_threads_there_are_none() -> None:
    before = set(threading.enumerate())
    with Kit() as kit:
        kit.spawn(lambda c: Scribe(c, []), name="scribe")
        assert set(threading.enumerate()) <= before


def test_the_trace_says_when_who_and_what(kit: Kit) -> None:
    class Ticker(Scribe):
        def started(self) -> None:
            self.timers.start("t", SECOND, 1.5)

    ticker = kit.spawn(lambda c: Ticker(c, []), name="ticker")
    ticker.tell("hello")
    kit.advance(SECOND)
    assert kit.trace == [
        "1000.000000 ticker-1 <- _Started",
        "1000.000000 ticker-1 <- str",
        "1001.000000 ticker-1 <- timer float",
    ]


def test_endless_messages_are_an_error_that_names_the_actors() -> None:
    class Circle(Actor):
        def receive(self, message: Any) -> object:
            self.address.tell(message)
            return None

    with Kit(runaway_after=100) as kit:
        circle = kit.spawn(Circle, name="circle")
        circle.tell("round")
        with pytest.raises(Runaway, match="100 messages at one moment") as caught:
            kit.settle()
    assert str(caught.value).count("circle-1 <- str") == 30


def test_a_busy_time_is_no_runaway_as_long_as_the_clock_moves() -> None:
    class Ticker(Actor):
        def started(self) -> None:
            self.timers.every("t", SECOND, "tick")

        def receive(self, _message: Any) -> object:
            return None

    with Kit(runaway_after=10) as kit:
        kit.spawn(Ticker, name="ticker")
        kit.advance(100 * SECOND)
        assert len(kit.trace) == 101


@pytest.mark.usefixtures("expect_crashes")
def test_settling_from_within_an_actor_is_a_mistake(kit: Kit) -> None:
    class Impatient(Actor):
        def receive(self, _message: Any) -> object:
            kit.settle()
            return None

    impatient = kit.spawn(Impatient, name="impatient")
    with pytest.raises(RuntimeError, match="from within an actor"):
        kit.ask(impatient, "go")


@pytest.mark.parametrize("threads", [False, True])
def test_an_actor_that_starts_another_and_dies_leaves_it_running(threads: bool) -> None:
    class Founder(Actor):
        def receive(self, _message: Any) -> object:
            heir.append(self.context.system.spawn(lambda c: Scribe(c, received), name="heir", owner=None))
            heir[0].tell("yours")
            raise ValueError("done")

    heir: list[Address] = []
    received: list[str] = []
    with Kit(threads=threads) as kit:
        founder = kit.spawn(Founder, name="founder")
        founder.tell("go")
        kit.settle()
        assert not founder.is_alive()
        assert received == ["heir yours"]
        assert [crash.actor for crash in kit.crashes] == ["founder"]
        kit.crashes.clear()


def test_an_actor_whose_start_is_interrupted_runs_or_is_gone_as_its_address_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def interrupted_late(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    def interrupted_early(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    received: list[str] = []
    with Kit(threads=True) as kit:
        for interrupted in (interrupted_late, interrupted_early):
            address = kit.system.address(interrupted.__name__)
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    kit.system.spawn(lambda c: Scribe(c, received), name=address.name, owner=None, address=address)
            runs = address.is_alive()
            for _ in range(2):
                address.tell("word")
            kit.settle()
            assert received == [f"{address.name} word"] * (2 * runs)
            received.clear()
