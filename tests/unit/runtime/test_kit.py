"""The test-kit: virtual time, probes, and a clean end."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from pykka import ActorRegistry

from actors.runtime import Actor, Context
from actors.testing import Kit, ManualClock, ManualTimers

SECOND = timedelta(seconds=1)


class Teller(Actor):
    """Sends the time to a probe whenever its timer fires."""

    def __init__(self, context: Context, probe: Any) -> None:
        super().__init__(context)
        self._probe = probe

    def started(self) -> None:
        self.timers.every("tell", SECOND, "ring")

    def receive(self, message: Any) -> object:
        self._probe.tell(self.clock.monotonic())
        return message

    def stopped(self) -> None:
        self._probe.tell("stopped")


def test_advancing_goes_from_timer_to_timer_and_settles_after_each(kit: Kit) -> None:
    probe = kit.probe()
    kit.spawn(lambda c: Teller(c, probe.address), name="teller")
    kit.advance(3.5 * SECOND)
    assert probe.take_all() == [1001.0, 1002.0, 1003.0]
    assert kit.clock.monotonic() == 1003.5
    kit.advance(0.5 * SECOND)
    assert probe.take(float) == 1004.0


def test_small_steps_add_up_to_the_moment_a_timer_is_due(kit: Kit) -> None:
    probe = kit.probe()
    kit.spawn(lambda c: Teller(c, probe.address), name="teller")
    for _ in range(10):
        kit.advance(timedelta(milliseconds=100))
    assert probe.take(float) == 1001.0


def test_a_probe_hands_out_what_it_was_told_by_type(kit: Kit) -> None:
    probe = kit.probe("driver")
    for message in ("a", 1, "b", 2.5):
        probe.address.tell(message)
    kit.settle()
    assert probe.take(int) == 1
    assert probe.take_all(str) == ["a", "b"]
    assert probe.received == [2.5]
    with pytest.raises(AssertionError, match=r"driver expected str, it has 2\.5"):
        probe.take(str)
    with pytest.raises(AssertionError, match=r"driver expected nothing, it has 2\.5"):
        probe.expect_nothing()
    assert probe.take_all() == [2.5]
    probe.expect_nothing()
    with pytest.raises(AssertionError, match="driver expected str, it has nothing"):
        probe.take(str)


def test_a_probe_answers_as_it_was_told_to(kit: Kit) -> None:
    probe = kit.probe()
    assert kit.ask(probe.address, "anything") is None
    probe.reply_with(lambda message: f"re: {message}")
    assert kit.ask(probe.address, "question") == "re: question"
    assert probe.take_all() == ["anything", "question"]


@pytest.mark.usefixtures("expect_crashes")
def test_an_ask_raises_what_the_actor_raised_or_says_that_it_gave_no_answer(kit: Kit) -> None:
    class Failing(Actor):
        def receive(self, message: Any) -> object:
            raise ValueError(message)

    failing = kit.spawn(Failing, name="failing")
    with pytest.raises(ValueError, match="boom"):
        kit.ask(failing, "boom")

    class Elsewhere:
        """An actor of the host, outside the kit."""

        def ask(self, _message: object, *, block: bool) -> Any:
            assert not block
            return kit.probe().address.handle.ref.actor_class._create_future()  # type: ignore[union-attr]

    with pytest.raises(AssertionError, match="gave no reply to 'hello'"):
        kit.ask(Elsewhere(), "hello")  # type: ignore[arg-type]


def test_actors_are_found_by_name_while_they_live(kit: Kit) -> None:
    probe = kit.probe("driver")
    assert kit.address("driver") is probe.address
    probe.address.stop()
    kit.settle()
    with pytest.raises(LookupError, match="there is no actor 'driver', only \\[\\]"):
        kit.address("driver")


@pytest.mark.parametrize("threads", [False, True])
def test_the_end_stops_in_order_what_is_left_the_last_started_first(threads: bool) -> None:
    registered, running = ActorRegistry.get_all(), set(threading.enumerate())
    kit = Kit(threads=threads)
    probe = kit.probe()
    for name in ("one", "other"):
        kit.spawn(lambda c: Teller(c, probe.address), name=name)
    kit.close()
    assert [line.split()[1] for line in kit.trace if line.endswith("Stop")] == ["other-1", "one-1", "driver-1"]
    assert ActorRegistry.get_all() == registered
    assert set(threading.enumerate()) <= running
    assert kit.timers.pending == 0


@pytest.mark.parametrize("threads", [False, True])
def test_a_test_that_fails_leaves_nothing_either_and_keeps_its_error(threads: bool) -> None:
    registered, running = ActorRegistry.get_all(), set(threading.enumerate())

    def fail() -> None:
        with Kit(threads=threads) as kit:
            kit.spawn(lambda c: Teller(c, kit.system.address("nobody")), name="teller")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ActorRegistry.get_all() == registered
    assert set(threading.enumerate()) <= running


def test_one_that_will_not_stop_is_ended(kit: Kit) -> None:
    class Undead(Actor):
        def stopped(self) -> None:
            kit.system.spawn(Undead, name="undead", owner=None)

    kit.spawn(Undead, name="undead")
    kit.close()
    assert kit.dispatcher.actors == ()


def test_manual_timers_fire_in_the_order_they_are_due_then_scheduled() -> None:
    clock = ManualClock()
    timers = ManualTimers(clock)
    rang: list[str] = []
    timers.schedule(2 * SECOND, lambda: rang.append("third"))
    timers.schedule(SECOND, lambda: rang.append("first"))
    timers.schedule(SECOND, lambda: rang.append("second"))
    cancelled = timers.schedule(SECOND, lambda: rang.append("cancelled"))
    cancelled.cancel()
    assert timers.pending == 3
    while timers.next_due() is not None:
        timers.fire_next()
    assert rang == ["first", "second", "third"]
    assert clock.elapsed == 2 * SECOND
    with pytest.raises(LookupError, match="no timer is pending"):
        timers.fire_next()


def test_the_fixture_gives_a_kit_without_threads_that_runs_the_oldest_message_first(kit: Kit) -> None:
    assert not kit.dispatcher.threads
    assert kit.trace == []
