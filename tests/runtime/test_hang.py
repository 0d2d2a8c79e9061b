"""A child that hangs is fenced and replaced. Real threads, because only a thread can hang; virtual time."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.runtime import Actor, ActorDeadError, ActorSystem, Address, Backoff, ChildSpec, Context, Hung
from actors.testing import ManualClock, ManualTimers
from tests.runtime.stage import SAFETY, Boss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.runtime import Supervisor

SECOND = timedelta(seconds=1)
WAIT = timedelta(seconds=SAFETY)
HANG_TIMEOUT = 30 * SECOND


class Sleeper(Actor):
    """Blocks where it is told to, until it is let go; what it does then is the question."""

    def __init__(self, context: Context, play: Play) -> None:
        super().__init__(context)
        self._play = play

    def receive(self, message: Any) -> object:
        if message == "die":
            raise ValueError("x")
        if message in {"hang", "hang and fail"}:
            self._play.entered.set()
            assert self._play.leave.wait(SAFETY)
            self.timers.start("late", timedelta(0), "late")
            if message == "hang and fail":
                raise ValueError("late failure")
        return self.context.incarnation

    def stopped(self) -> None:
        if self._play.hang_in_stopped:
            self._play.entered.set()
            assert self._play.leave.wait(SAFETY)


class Play:
    """A boss, its child that can hang, virtual time under free threads."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.system = ActorSystem(self.clock, self.timers)
        self.entered, self.leave = threading.Event(), threading.Event()
        self.hang_in_stopped = False
        self.journal: list[str] = []
        made: list[Boss] = []

        def make(context: Context) -> Boss:
            made.append(Boss(context, self.journal, HANG_TIMEOUT))
            return made[0]

        self.address = self.system.spawn(make, name="boss", owner=None)
        self.boss = made[0]
        backoff = Backoff(initial=SECOND, jitter=0.0)
        self.child: Address = self.do(
            lambda supervisor: supervisor.start(ChildSpec("sleeper", lambda c: Sleeper(c, self), backoff=backoff))
        )

    def do(self, action: Callable[[Supervisor], Any]) -> Any:
        return self.address.ask(action, WAIT)

    def hang(self, message: str = "hang") -> threading.Thread:
        """Make the child hang, and return its thread."""
        self.child.tell(message)
        assert self.entered.wait(SAFETY)
        assert self.child.life is not None
        assert self.child.life.thread is not None
        return self.child.life.thread

    def advance(self, by: timedelta) -> None:
        """From timer to timer; after each, the boss has handled what it brought, and what follows from that."""
        target = self.clock.elapsed + by
        while (due := self.timers.next_due()) is not None and due <= target:
            self.timers.fire_next()
            self.do(lambda _: None)
            self.do(lambda _: None)
        self.clock.move_to(target)


@pytest.fixture
def play() -> Iterator[Play]:
    play = Play()
    yield play
    play.leave.set()
    play.do(lambda supervisor: supervisor.stop_all())
    play.address.stop()


def test_a_child_that_is_busy_for_too_long_is_replaced(play: Play) -> None:
    play.hang()
    play.advance(HANG_TIMEOUT)
    assert play.child.incarnation == 1
    play.advance(HANG_TIMEOUT / 4 + SECOND)
    assert play.child.incarnation == 2
    assert play.child.ask("who?", WAIT) == 2


def test_a_child_that_works_or_waits_is_left_alone(play: Play) -> None:
    for _ in range(10):
        play.advance(HANG_TIMEOUT)
        assert play.child.ask("who?", WAIT) == 1


def test_the_stack_of_the_one_that_hangs_is_logged(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    play.hang()
    play.advance(2 * HANG_TIMEOUT)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.name == "actors.runtime.supervisor"
    assert "an actor hangs and its thread is abandoned: actor=sleeper message=str busy=37.5s" in record.getMessage()
    assert "self._play.leave.wait(SAFETY)" in record.getMessage()


def test_who_asked_the_one_that_hangs_is_answered(play: Play) -> None:
    asked = play.child.request("hang")
    waiting = play.child.request("who?")
    assert play.entered.wait(SAFETY)
    play.advance(2 * HANG_TIMEOUT)
    for future in (asked, waiting):
        with pytest.raises(ActorDeadError, match="sleeper-1 ended before it answered"):
            future.get(timeout=SAFETY)


@pytest.mark.parametrize("message", ["hang", "hang and fail"])
def test_one_that_wakes_up_late_is_not_heard_of_again(
    play: Play, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    thread = play.hang(message)
    play.advance(2 * HANG_TIMEOUT)
    assert play.child.incarnation == 2
    play.leave.set()
    thread.join(SAFETY)
    assert not thread.is_alive()
    play.advance(10 * HANG_TIMEOUT)
    assert play.child.incarnation == 2, "its end was reported once"
    assert play.boss.escalated == []
    abandoned = [r for r in caplog.records if "has ended after all" in r.getMessage()]
    assert len(abandoned) == (1 if message == "hang and fail" else 0)


def test_nothing_is_restarted_while_one_that_depends_on_it_has_not_ended(play: Play) -> None:
    dependent = play.do(lambda supervisor: supervisor.start(ChildSpec("dependent", lambda c: Sleeper(c, play))))
    dependent.tell("hang")
    assert play.entered.wait(SAFETY)
    play.child.tell("die")
    assert play.child.life is not None
    assert play.child.life.thread is not None
    play.child.life.thread.join(SAFETY)
    play.do(lambda _: None)
    play.advance(5 * SECOND)
    assert (play.child.incarnation, dependent.incarnation) == (1, 1)
    thread = dependent.life.thread
    play.leave.set()
    thread.join(SAFETY)
    play.do(lambda _: None)
    assert (play.child.incarnation, dependent.incarnation) == (2, 2)


def test_one_that_hangs_too_often_is_given_up(play: Play) -> None:
    spec = ChildSpec("other", lambda c: Sleeper(c, play), limit=1)
    other = play.do(lambda supervisor: supervisor.start(spec))
    other.tell("hang")
    assert play.entered.wait(SAFETY)
    play.advance(2 * HANG_TIMEOUT)
    ((name, cause),) = play.boss.escalated
    assert name == "other"
    assert isinstance(cause, Hung)
    assert str(cause) == "other was busy with str for 37.5s"


def test_one_that_hangs_while_it_stops_does_not_hold_up_the_stop(play: Play) -> None:
    play.hang_in_stopped = True
    play.do(lambda supervisor: supervisor.stop_all())
    assert play.entered.wait(SAFETY)
    assert play.do(lambda supervisor: supervisor.children()) == ("sleeper",)
    play.advance(2 * HANG_TIMEOUT)
    assert play.do(lambda supervisor: supervisor.children()) == ()
    assert play.timers.pending == 0
