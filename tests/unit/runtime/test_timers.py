"""Timers of an actor: messages of cancelled or replaced timers and of earlier incarnations never arrive."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Refused
from actors.runtime import Actor, Address, Context

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.testing import Kit

SECOND = timedelta(seconds=1)


class Sleeper(Actor):
    """Runs its messages and records those of its timers."""

    def __init__(self, context: Context, rang: list[object]) -> None:
        super().__init__(context)
        self.rang = rang

    def receive(self, message: Any) -> object:
        if callable(message):
            return message(self)
        self.rang.append(message)
        if message == "refuse":
            raise Refused("no")
        return None


@pytest.fixture
def rang() -> list[object]:
    return []


@pytest.fixture
def sleeper(kit: Kit, rang: list[object]) -> Address:
    return kit.spawn(lambda context: Sleeper(context, rang), name="sleeper")


def do(kit: Kit, sleeper: Address, action: Callable[[Sleeper], object]) -> Any:
    return kit.ask(sleeper, action)


def test_a_timer_sends_its_message_once_when_it_is_due(kit: Kit, sleeper: Address, rang: list[object]) -> None:
    do(kit, sleeper, lambda me: me.timers.start("k", SECOND, "due"))
    kit.advance(SECOND - timedelta(microseconds=1))
    assert rang == []
    assert do(kit, sleeper, lambda me: me.timers.active("k"))
    kit.advance(timedelta(microseconds=1))
    assert rang == ["due"]
    assert not do(kit, sleeper, lambda me: me.timers.active("k"))
    kit.advance(10 * SECOND)
    assert rang == ["due"]


def test_a_delay_that_is_not_positive_means_at_once(kit: Kit, sleeper: Address, rang: list[object]) -> None:
    do(kit, sleeper, lambda me: me.timers.start("k", -SECOND, "due"))
    kit.advance(timedelta(0))
    assert rang == ["due"]


def test_a_repeated_timer_sends_its_message_after_each_interval(kit: Kit, sleeper: Address, rang: list[object]) -> None:
    do(kit, sleeper, lambda me: me.timers.every("k", SECOND, "due"))
    kit.advance(3.5 * SECOND)
    assert rang == ["due"] * 3
    do(kit, sleeper, lambda me: me.timers.cancel("k"))
    kit.advance(10 * SECOND)
    assert rang == ["due"] * 3


def test_an_interval_counts_from_when_the_last_message_was_handled(
    kit: Kit, sleeper: Address, rang: list[object]
) -> None:
    """A slow actor gets fewer messages, not a queue of late ones."""
    do(kit, sleeper, lambda me: me.timers.every("k", SECOND, "due"))
    kit.clock.move_to(5 * SECOND)
    kit.timers.fire_next()
    kit.settle()
    assert rang == ["due"]
    assert kit.timers.next_due() == 6 * SECOND


@pytest.mark.usefixtures("expect_crashes")
def test_an_interval_must_be_positive(kit: Kit) -> None:
    sleeper = kit.spawn(lambda context: Sleeper(context, []), name="sleeper")
    with pytest.raises(ValueError, match="an interval must be positive, not 0:00:00"):
        do(kit, sleeper, lambda me: me.timers.every("k", timedelta(0), "due"))


def test_a_new_timer_replaces_the_one_of_its_key(kit: Kit, sleeper: Address, rang: list[object]) -> None:
    do(kit, sleeper, lambda me: me.timers.start("k", SECOND, "old"))
    do(kit, sleeper, lambda me: me.timers.start("other", SECOND, "other"))
    do(kit, sleeper, lambda me: me.timers.start("k", 2 * SECOND, "new"))
    assert kit.timers.pending == 2, "the old timer is cancelled"
    kit.advance(3 * SECOND)
    assert rang == ["other", "new"]


@pytest.mark.parametrize("action", ["cancel", "replace", "cancel all"])
def test_a_queued_message_of_a_cancelled_timer_is_not_handled(
    kit: Kit, sleeper: Address, rang: list[object], action: str
) -> None:
    def change(me: Sleeper) -> None:
        if action == "cancel":
            me.timers.cancel("k")
        elif action == "replace":
            me.timers.start("k", SECOND, "new")
        else:
            me.timers.cancel_all()

    do(kit, sleeper, lambda me: me.timers.start("k", SECOND, "old"))
    sleeper.tell(change)
    kit.timers.fire_next()
    assert sleeper.depth == 2, "the change, and then the timer's message"
    kit.settle()
    assert rang == []
    kit.advance(2 * SECOND)
    assert rang == (["new"] if action == "replace" else [])


def test_a_repeated_timer_can_be_cancelled_and_replaced_while_its_message_is_handled(
    kit: Kit, sleeper: Address
) -> None:
    calls: list[str] = []

    def last(me: Sleeper) -> None:
        calls.append("last")
        assert me.timers.active("k")
        me.timers.cancel("k")

    def first(me: Sleeper) -> None:
        calls.append("first")
        me.timers.every("k", 2 * SECOND, last)

    do(kit, sleeper, lambda me: me.timers.every("k", SECOND, first))
    kit.advance(10 * SECOND)
    assert calls == ["first", "last"]


def test_a_repeated_message_that_is_refused_comes_again(kit: Kit, sleeper: Address, rang: list[object]) -> None:
    do(kit, sleeper, lambda me: me.timers.every("k", SECOND, "refuse"))
    kit.advance(2 * SECOND)
    assert rang == ["refuse"] * 2


@pytest.mark.usefixtures("expect_crashes")
@pytest.mark.parametrize("orderly", [True, False])
def test_timers_end_with_their_incarnation(kit: Kit, sleeper: Address, rang: list[object], orderly: bool) -> None:
    def fail(_: Sleeper) -> None:
        raise ValueError("x")

    do(kit, sleeper, lambda me: me.timers.start("k", SECOND, "old"))
    do(kit, sleeper, lambda me: me.timers.every("e", SECOND, "old"))
    if orderly:
        sleeper.stop()
    else:
        sleeper.tell(fail)
    kit.settle()
    kit.system.spawn(lambda context: Sleeper(context, rang), name="sleeper", owner=None, address=sleeper)
    kit.advance(5 * SECOND)
    assert rang == []
    assert kit.timers.pending == 0
    assert kit.system.letters.total == 0


def test_a_timer_that_is_due_after_the_end_is_no_dead_letter(kit: Kit, sleeper: Address) -> None:
    sleeper.tell(lambda me: me.timers.start("k", timedelta(0), "late"))
    kit.settle()
    kit.timers.fire_next()
    assert sleeper.handle is not None
    sleeper.handle.end(None)
    assert kit.system.letters.total == 0
