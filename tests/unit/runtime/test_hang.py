"""A hanging child is fenced and replaced. Real threads, because only a thread can hang, in virtual time."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pykka
import pytest

from actors.runtime import Actor, ActorDeadError, ActorSystem, Address, Backoff, ChildSpec, Context, Hung, loop
from actors.testing import ManualClock, ManualTimers
from tests.unit.runtime.stage import SAFETY, Boss, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.runtime import Supervisor

SECOND = timedelta(seconds=1)
WAIT = timedelta(seconds=SAFETY)
HANG_TIMEOUT = 30 * SECOND


class Sleeper(Actor):
    """Blocks on request until it is released, and then does what the test checks."""

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
    """A supervisor with a child that can hang, in virtual time and free threads."""

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
        """Make the child hang and return its thread."""
        self.child.tell(message)
        assert self.entered.wait(SAFETY)
        assert self.child.handle is not None
        assert self.child.handle.thread is not None
        return self.child.handle.thread

    def advance(self, by: timedelta) -> None:
        """Advance from timer to timer; after each one the boss has handled its message and what follows."""
        target = self.clock.elapsed + by
        while (due := self.timers.next_due()) is not None and due <= target:
            self.timers.fire_next()
            self.do(lambda _: None)
            self.do(lambda _: None)
        self.clock.move_to(target)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    monkeypatch.setattr(loop, "LOOK_EVERY", 0.01)
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


def test_the_stack_of_a_hanging_child_is_logged(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    play.hang()
    play.advance(2 * HANG_TIMEOUT)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.name == "actors.runtime.supervisor"
    assert "actor hangs, thread abandoned: actor=sleeper message=str busy=37.5s" in record.getMessage()
    assert "self._play.leave.wait(SAFETY)" in (record.exc_text or "")


def test_an_ask_to_a_hanging_child_is_answered(play: Play) -> None:
    asked = play.child.request("hang")
    waiting = play.child.request("who?")
    assert play.entered.wait(SAFETY)
    play.advance(2 * HANG_TIMEOUT)
    for future in (asked, waiting):
        with pytest.raises(ActorDeadError, match="sleeper-1 ended before it answered"):
            future.get(timeout=SAFETY)


@pytest.mark.parametrize("message", ["hang", "hang and fail"])
def test_a_fenced_child_that_wakes_up_reports_nothing_more(
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
    """A plain Pykka actor of the host."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self.received: list[object] = []

    def on_receive(self, message: Any) -> object:
        if message == "all":
            return self.received
        self.received.append(message)
        return None


def test_messages_of_a_fenced_child_that_wakes_up_are_dead_letters(play: Play) -> None:
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


def test_messages_of_a_slow_child_that_was_not_fenced_arrive(play: Play) -> None:
    ours = play.system.spawn(Recorder, name="recorder", owner=None)
    play.listeners = [ours]
    play.hang()
    play.advance(HANG_TIMEOUT)
    play.leave.set()
    assert play.child.ask("who?", WAIT) == 1
    assert ours.ask("all", WAIT) == ["late word of sleeper-1"]
    ours.stop()


def test_callbacks_of_a_handle_run_when_its_actor_is_fenced(play: Play) -> None:
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
    assert ends == ["other-1"], "although it still hangs"
    assert other.incarnation == 2
    play.leave.set()
    thread.join(SAFETY)
    assert ends == ["other-1"], "once"


def test_a_child_is_not_restarted_before_all_that_depend_on_it_have_ended(play: Play) -> None:
    dependent = play.do(lambda supervisor: supervisor.start(ChildSpec("dependent", lambda c: Sleeper(c, play))))
    dependent.tell("hang")
    assert play.entered.wait(SAFETY)
    play.child.tell("die")
    assert play.child.handle is not None
    assert play.child.handle.ref.actor_stopped.wait(SAFETY)
    play.do(lambda _: None)
    play.advance(5 * SECOND)
    assert (play.child.incarnation, dependent.incarnation) == (1, 1)
    ended = dependent.handle.ref.actor_stopped
    play.leave.set()
    assert ended.wait(SAFETY)
    play.do(lambda _: None)
    assert (play.child.incarnation, dependent.incarnation) == (2, 2)


def test_a_child_that_hangs_too_often_is_escalated(play: Play) -> None:
    spec = ChildSpec("other", lambda c: Sleeper(c, play), limit=1)
    other = play.do(lambda supervisor: supervisor.start(spec))
    other.tell("hang")
    assert play.entered.wait(SAFETY)
    play.advance(2 * HANG_TIMEOUT)
    ((name, cause),) = play.boss.escalated
    assert name == "other"
    assert isinstance(cause, Hung)
    assert str(cause) == "other was busy with str for 37.5s"


def test_a_retired_child_that_hangs_is_fenced_sooner(play: Play) -> None:
    play.hang()
    play.do(lambda supervisor: supervisor.stop("sleeper"))
    play.advance(HANG_TIMEOUT / 4)
    assert play.child.is_alive()
    play.advance(HANG_TIMEOUT / 4)
    assert not play.child.is_alive()
    assert play.do(lambda supervisor: supervisor.children()) == ()


def test_hurry_fences_any_hanging_child_sooner(play: Play) -> None:
    play.hang()
    play.advance(2 * SECOND)
    play.do(lambda supervisor: supervisor.hurry(4 * SECOND))
    play.advance(4 * SECOND)
    assert play.child.is_alive()
    play.advance(SECOND)
    assert not play.child.is_alive()
    play.advance(SECOND)
    assert play.child.incarnation == 2


def test_hurry_gives_a_retired_child_no_more_time(play: Play) -> None:
    play.do(lambda supervisor: supervisor.hurry(4 * HANG_TIMEOUT))
    play.hang()
    play.do(lambda supervisor: supervisor.stop("sleeper"))
    play.advance(HANG_TIMEOUT / 2)
    assert not play.child.is_alive()


def suspend(play: Play, by: timedelta) -> None:
    """Let time pass while the whole process is suspended; due timers fire late."""
    play.clock.move_to(play.clock.elapsed + by)
    play.advance(timedelta(0))


@pytest.mark.parametrize("before", [timedelta(0), SECOND, HANG_TIMEOUT / 2])
@pytest.mark.parametrize("is_to_stop", [False, True])
def test_a_child_that_was_busy_while_the_process_was_suspended_has_not_hung(
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


def test_a_child_that_hangs_after_the_process_resumed_is_fenced(play: Play) -> None:
    play.hang()
    suspend(play, timedelta(hours=8))
    play.advance(HANG_TIMEOUT + SECOND)
    assert play.child.incarnation == 2


def test_a_child_that_hangs_when_its_owner_ends_is_reported_and_its_messages_dropped(
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
    assert owner.handle.ref.actor_stopped.wait(SAFETY)
    assert not other.is_alive()
    assert "thread abandoned: actor=other message=str busy=2.0s" in caplog.text
    play.leave.set()
    thread.join(SAFETY)
    assert not thread.is_alive()
    assert ours.ask("all", WAIT) == []
    ours.stop()


def test_a_child_that_hangs_on_a_timer_is_reported_with_the_timers_message(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    play.child.tell("hang soon")
    assert play.child.ask("who?", WAIT) == 1
    play.advance(SECOND)
    assert play.entered.wait(SAFETY)
    play.advance(2 * HANG_TIMEOUT)
    assert "thread abandoned: actor=sleeper message=str" in caplog.text


def test_a_child_that_hangs_while_it_stops_does_not_block_the_stop(play: Play) -> None:
    play.hang_in_stopped = True
    play.do(lambda supervisor: supervisor.stop_all())
    assert play.entered.wait(SAFETY)
    assert play.do(lambda supervisor: supervisor.children()) == ("sleeper",)
    play.advance(2 * HANG_TIMEOUT)
    assert play.do(lambda supervisor: supervisor.children()) == ()
    assert play.timers.pending == 0
