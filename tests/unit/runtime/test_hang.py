"""A child that hangs is fenced and replaced. Real threads, because only a thread can hang; virtual time."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pykka
import pytest

from actors.runtime import Actor, ActorDeadError, ActorSystem, Address, Backoff, ChildSpec, Context, Hung
from actors.testing import ManualClock, ManualTimers
from tests.unit.runtime.stage import SAFETY, Boss, Recorder

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
        if message == "hang soon":
            self.timers.start("soon", SECOND, "hang")
        if message in {"hang", "hang and fail"}:
            self._play.entered.set()
            assert self._play.leave.wait(SAFETY)
            self.timers.start("late", timedelta(0), "late")
            for listener in self._play.listeners:
                listener.tell(f"late word of {self}")
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
        self.listeners: list[Address] = []
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
        assert self.child.handle is not None
        assert self.child.handle.thread is not None
        return self.child.handle.thread

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
    assert "actor hangs, thread abandoned: actor=sleeper message=str busy=37.5s" in record.getMessage()
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
    abandoned = [r for r in caplog.records if "ended after all" in r.getMessage()]
    assert len(abandoned) == (1 if message == "hang and fail" else 0)


class Listener(pykka.ThreadingActor):
    """The host's own."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[object] = []

    def on_receive(self, message: Any) -> object:
        if message == "all":
            return self.heard
        self.heard.append(message)
        return None


def test_what_one_that_wakes_up_late_tells_is_a_dead_letter(play: Play) -> None:
    ours, hosts = play.system.spawn(Recorder, name="recorder", owner=None), Listener.start()
    play.listeners = [ours, play.child, Address.to(hosts, play.system.letters)]
    thread = play.hang()
    play.advance(2 * HANG_TIMEOUT)
    assert play.child.incarnation == 2
    letters = play.system.letters.total
    play.leave.set()
    thread.join(SAFETY)
    assert play.system.letters.total == letters + len(play.listeners)
    assert ours.ask("all", WAIT) == []
    assert hosts.ask("all", timeout=SAFETY) == []
    ours.stop()
    hosts.stop()


def test_one_that_was_slow_and_not_given_up_is_heard(play: Play) -> None:
    ours = play.system.spawn(Recorder, name="recorder", owner=None)
    play.listeners = [ours]
    play.hang()
    play.advance(HANG_TIMEOUT)
    play.leave.set()
    assert play.child.ask("who?", WAIT) == 1
    assert ours.ask("all", WAIT) == ["late word of sleeper-1"]
    ours.stop()


def test_what_is_to_be_done_at_the_end_of_a_life_is_done_when_it_is_fenced(play: Play) -> None:
    ends: list[str] = []

    def fail() -> None:
        raise ValueError("x")

    def make(context: Context) -> Sleeper:
        actor = Sleeper(context, play)
        actor.handle.at_end(fail)
        actor.handle.at_end(lambda: ends.append(str(actor)))
        return actor

    spec = ChildSpec("other", make, isolated=True, backoff=Backoff(initial=SECOND, jitter=0.0))
    other = play.do(lambda supervisor: supervisor.start(spec))
    other.tell("hang")
    assert play.entered.wait(SAFETY)
    thread = other.handle.thread
    play.advance(2 * HANG_TIMEOUT)
    assert ends == ["other-1"], "though it hangs still"
    assert other.incarnation == 2
    play.leave.set()
    thread.join(SAFETY)
    assert ends == ["other-1"], "once"


def test_nothing_is_restarted_while_one_that_depends_on_it_has_not_ended(play: Play) -> None:
    dependent = play.do(lambda supervisor: supervisor.start(ChildSpec("dependent", lambda c: Sleeper(c, play))))
    dependent.tell("hang")
    assert play.entered.wait(SAFETY)
    play.child.tell("die")
    assert play.child.handle is not None
    assert play.child.handle.thread is not None
    play.child.handle.thread.join(SAFETY)
    play.do(lambda _: None)
    play.advance(5 * SECOND)
    assert (play.child.incarnation, dependent.incarnation) == (1, 1)
    thread = dependent.handle.thread
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


def test_one_that_is_to_stop_is_not_waited_for_as_long(play: Play) -> None:
    play.hang()
    play.do(lambda supervisor: supervisor.stop("sleeper"))
    play.advance(HANG_TIMEOUT / 4)
    assert play.child.is_alive()
    play.advance(HANG_TIMEOUT / 4)
    assert not play.child.is_alive()
    assert play.do(lambda supervisor: supervisor.children()) == ()


def test_when_there_is_no_time_nobody_is_waited_for_as_long(play: Play) -> None:
    play.hang()
    play.advance(2 * SECOND)
    play.do(lambda supervisor: supervisor.hurry(4 * SECOND))
    play.advance(4 * SECOND)
    assert play.child.is_alive()
    play.advance(SECOND)
    assert not play.child.is_alive()
    play.advance(SECOND)
    assert play.child.incarnation == 2


def test_one_that_is_to_stop_is_given_no_more_time_for_that_there_is_no_time(play: Play) -> None:
    play.do(lambda supervisor: supervisor.hurry(4 * HANG_TIMEOUT))
    play.hang()
    play.do(lambda supervisor: supervisor.stop("sleeper"))
    play.advance(HANG_TIMEOUT / 2)
    assert not play.child.is_alive()


def suspend(play: Play, by: timedelta) -> None:
    """Time passes while the whole process does nothing; then whatever was due comes, late."""
    play.clock.move_to(play.clock.elapsed + by)
    play.advance(timedelta(0))


@pytest.mark.parametrize("before", [timedelta(0), SECOND, HANG_TIMEOUT / 2])
@pytest.mark.parametrize("is_to_stop", [False, True])
def test_one_that_was_busy_while_the_process_was_suspended_has_not_hung(
    play: Play, before: timedelta, is_to_stop: bool
) -> None:
    play.advance(HANG_TIMEOUT)
    play.hang()
    if is_to_stop:
        before = min(before, SECOND)
        play.do(lambda supervisor: supervisor.stop("sleeper"))
    play.advance(before)
    suspend(play, timedelta(hours=8))
    assert play.child.is_alive()
    assert play.child.incarnation == 1
    if not is_to_stop:
        suspend(play, timedelta(hours=8))
        play.leave.set()
        assert play.child.ask("who?", WAIT) == 1


def test_one_that_hangs_on_when_the_process_goes_on_is_given_up(play: Play) -> None:
    play.hang()
    suspend(play, timedelta(hours=8))
    play.advance(HANG_TIMEOUT + SECOND)
    assert play.child.incarnation == 2


def test_one_that_hangs_when_its_owner_ends_is_reported_and_not_heard(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    owner = play.system.spawn(lambda c: Boss(c, play.journal, HANG_TIMEOUT), name="owner", owner=None)
    ours = play.system.spawn(Recorder, name="recorder", owner=None)
    play.listeners = [ours]
    spec = ChildSpec("other", lambda c: Sleeper(c, play))
    other = owner.ask(lambda supervisor: supervisor.start(spec), WAIT)
    other.tell("hang")
    assert play.entered.wait(SAFETY)
    thread = other.handle.thread
    play.advance(2 * SECOND)
    owner.stop()
    assert owner.handle is not None
    assert owner.handle.thread is not None
    owner.handle.thread.join(SAFETY)
    assert not other.is_alive()
    assert "thread abandoned: actor=other message=str busy=2.0s" in caplog.text
    play.leave.set()
    thread.join(SAFETY)
    assert not thread.is_alive()
    assert ours.ask("all", WAIT) == []
    ours.stop()


def test_one_that_hangs_on_a_timer_is_reported_with_what_the_timer_brought(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    play.child.tell("hang soon")
    assert play.child.ask("who?", WAIT) == 1
    play.advance(SECOND)
    assert play.entered.wait(SAFETY)
    play.advance(2 * HANG_TIMEOUT)
    assert "thread abandoned: actor=sleeper message=str" in caplog.text


def test_one_that_hangs_while_it_stops_does_not_hold_up_the_stop(play: Play) -> None:
    play.hang_in_stopped = True
    play.do(lambda supervisor: supervisor.stop_all())
    assert play.entered.wait(SAFETY)
    assert play.do(lambda supervisor: supervisor.children()) == ("sleeper",)
    play.advance(2 * HANG_TIMEOUT)
    assert play.do(lambda supervisor: supervisor.children()) == ()
    assert play.timers.pending == 0
