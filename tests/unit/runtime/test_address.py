"""`Address`: it outlives its actors, and `tell` never raises."""

from __future__ import annotations

import math
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pykka
import pytest

from actors.runtime import Actor, ActorDeadError, ActorSystem, Address, Context, Timeout
from actors.runtime.mailbox import DeadLetters
from tests.unit.runtime.stage import SAFETY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.testing import Kit

WAIT = timedelta(seconds=SAFETY)


class Echo(Actor):
    """Answers with its incarnation, or runs the message."""

    def receive(self, message: Any) -> object:
        return message(self) if callable(message) else (self.context.incarnation, message)


@pytest.fixture
def host() -> Iterator[pykka.ActorRef[Any]]:
    """A driver that is a plain Pykka actor."""

    class Driver(pykka.ThreadingActor):
        use_daemon_thread = True

        def __init__(self) -> None:
            super().__init__()
            self.received: list[object] = []

        def on_receive(self, message: Any) -> Any:
            if message == "all":
                return self.received
            self.received.append(message)
            return None

    ref = Driver.start()
    yield ref
    ref.stop()


def test_an_address_can_be_shared_before_its_actor_is_spawned(kit: Kit) -> None:
    address = kit.system.address("echo")
    assert not address.is_alive()
    assert (address.depth, address.incarnation, address.ref) == (0, 0, None)
    address.tell("early")
    address.stop()
    assert kit.system.letters.total == 1
    with pytest.raises(ActorDeadError, match="echo has not been started"):
        kit.ask(address, "early")

    assert kit.system.spawn(Echo, name="echo", owner=None, address=address) is address
    assert kit.ask(address, "now") == (1, "now")


def test_an_address_survives_a_restart_and_equals_only_itself(kit: Kit) -> None:
    address = kit.spawn(Echo, name="echo")
    known = {address: "first"}
    address.stop()
    kit.settle()
    assert not address.is_alive()
    kit.system.spawn(Echo, name="echo", owner=None, address=address)
    assert kit.ask(address, "again") == (2, "again")
    assert known[address] == "first"
    assert address != kit.system.address("echo")


def test_a_message_between_two_incarnations_is_a_dead_letter(kit: Kit) -> None:
    address = kit.spawn(Echo, name="echo")
    address.stop()
    kit.settle()
    address.tell("nobody gets this")
    assert kit.system.letters.total == 1
    with pytest.raises(ActorDeadError):
        kit.ask(address, "nor this")


def test_an_address_has_at_most_one_live_actor(kit: Kit) -> None:
    address = kit.spawn(Echo, name="echo")
    with pytest.raises(RuntimeError, match="echo is already alive"):
        kit.system.spawn(Echo, name="echo", owner=None, address=address)
    assert kit.ask(address, "first") == (1, "first")


def test_a_completion_of_the_last_incarnation_does_not_reach_the_next(kit: Kit) -> None:
    address = kit.spawn(Echo, name="echo")
    first: Address = kit.ask(address, lambda me: me.myself)
    assert kit.ask(first, "to me alone") == (1, "to me alone")
    address.stop()
    kit.settle()
    kit.system.spawn(Echo, name="echo", owner=None, address=address)
    first.tell("late")
    kit.settle()
    assert kit.system.letters.total == 1
    assert address.is_alive()
    assert not first.is_alive()


def test_an_ask_that_gets_no_answer_in_time_says_who_and_what() -> None:
    system, leave = ActorSystem(), threading.Event()
    address = system.spawn(Echo, name="echo", owner=None)
    address.tell(lambda _: leave.wait(SAFETY))
    with pytest.raises(Timeout, match=r"echo did not answer str within 0:00:00\.010000"):
        address.ask("hello?", timedelta(milliseconds=10))
    leave.set()
    assert address.ask("hello?", WAIT) == (1, "hello?")
    assert address.ask("in seconds", SAFETY) == (1, "in seconds")
    with pytest.raises(TypeError, match=r"^a timeout is a timedelta or a number of seconds, not '5s'$"):
        address.ask("hello?", "5s")  # type: ignore[arg-type]  # this is wrong
    for endless in (math.inf, 1e300, timedelta.max):
        assert address.ask("hello?", endless) == (1, "hello?")
    with pytest.raises(TypeError, match=r"^a timeout is a timedelta or a number of seconds, not nan$"):
        address.ask("hello?", math.nan)
    address.stop()
    system.close()


def test_depth_counts_waiting_messages(kit: Kit) -> None:
    address = kit.spawn(Echo, name="echo")
    address.tell("one")
    address.tell("two")
    assert address.depth == 2
    kit.settle()
    assert address.depth == 0


def test_a_host_can_use_the_ref_of_pykka(kit: Kit) -> None:
    address = kit.spawn(Echo, name="echo")
    assert address.ref is not None
    assert kit.ask(address.ref, "by ref") == (1, "by ref")


def test_dead_letters_are_logged_by_their_type_only(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="actors.runtime.mailbox")
    kit.system.address("echo").tell("a secret")
    assert [record.getMessage() for record in caplog.records] == ["dead letter: receiver=echo message=str"]


def test_an_address_tells_and_asks_an_actor_of_the_host(host: pykka.ActorRef[Any]) -> None:
    address = Address.to(host)
    assert address.name == "Driver"
    assert address.is_alive()
    address.tell("hello")
    assert address.ask("all", WAIT) == ["hello"]
    assert address.depth == 0
    assert address.ref is host


def test_telling_a_dead_actor_of_the_host_raises_nothing(host: pykka.ActorRef[Any]) -> None:
    letters = DeadLetters()
    address = Address.to(host, letters)
    address.stop()
    assert host.actor_stopped.wait(SAFETY)
    assert not address.is_alive()
    address.tell("late")
    address.stop()
    assert letters.total == 1
    with pytest.raises(ActorDeadError):
        address.ask("late", WAIT)


def test_a_driver_that_is_an_actor_of_ours_works_through_an_address(kit: Kit) -> None:
    address = kit.spawn(Echo, name="echo")
    assert address.ref is not None
    foreign = Address.to(address.ref)
    assert kit.ask(foreign, "hi") == (1, "hi")
    address.tell("one")
    assert foreign.depth == address.depth == 1


def test_an_actor_can_tell_itself_by_its_address_while_it_starts(kit: Kit) -> None:
    class Eager(Echo):
        def __init__(self, context: Context) -> None:
            super().__init__(context)
            self.received: list[str] = []

        def started(self) -> None:
            self.address.tell(lambda me: me.received.append("told"))

    address = kit.spawn(Eager, name="eager")
    assert kit.ask(address, lambda me: me.received) == ["told"]
