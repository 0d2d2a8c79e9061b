"""Any exception ends an actor and no other, and its owner is notified once."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pykka
import pytest

from actors.errors import ActorCrashed, Refused
from actors.runtime import Actor, ActorDeadError, Context, StoppedByHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.runtime.stage import Stage


class Custom(BaseException):
    """A BaseException that is neither an Exception nor built in."""


DEADLY: list[Callable[[], BaseException]] = [
    lambda: ValueError("x"),
    lambda: SystemExit(3),
    KeyboardInterrupt,
    Custom,
    GeneratorExit,
]
deadly = pytest.mark.parametrize("make", DEADLY, ids=lambda make: type(make()).__name__)


class Mortal(Actor):
    """Raises in one of its hooks and counts calls of `stopped`."""

    def __init__(self, context: Context, hook: str, error: BaseException | None, stops: list[str]) -> None:
        super().__init__(context)
        self._hook = hook
        self._error = error
        self._stops = stops

    def started(self) -> None:
        self._fail("started")
        if self._hook == "timer":
            self.timers.start("t", timedelta(0), "due")

    def receive(self, message: Any) -> object:
        if message == "die":
            self._fail("receive")
        elif message == "due":
            self._fail("timer")
        return message

    def stopped(self) -> None:
        self._stops.append(self.name)
        self._fail("stopped")

    def _fail(self, hook: str) -> None:
        if self._hook == hook and self._error is not None:
            raise self._error


class Play:
    """An actor that fails, another one, and a host's actor, which must both survive."""

    def __init__(self, stage: Stage, hook: str = "", error: BaseException | None = None) -> None:
        self.stage = stage
        self.stops: list[str] = []
        self.host = pykka.ThreadingActor.start()
        self.bystander = stage.spawn(lambda c: Mortal(c, "", None, []), name="bystander")
        self.mortal = stage.spawn(lambda c: Mortal(c, hook, error, self.stops), name="mortal", owned=True)

    def check(self, cause: BaseException | type[BaseException] | None, *, stops: int) -> None:
        (told,) = self.stage.ended(self.mortal)
        assert told.incarnation == 1
        assert told.cause is cause or (isinstance(cause, type) and isinstance(told.cause, cause))
        assert self.mortal.ref not in pykka.ActorRegistry.get_all()
        assert self.mortal.ref is not None
        assert not self.mortal.ref.is_alive()
        assert len(self.stops) == stops
        assert self.stage.ask(self.bystander, "here?") == "here?"
        assert self.host.is_alive()
        self.host.stop()


@deadly
def test_an_actor_that_fails_while_it_starts_is_reported_once(stage: Stage, make: Callable[[], BaseException]) -> None:
    error = make()
    Play(stage, "started", error).check(error, stops=0)


@deadly
def test_an_actor_that_fails_on_a_tell_is_reported_once(stage: Stage, make: Callable[[], BaseException]) -> None:
    error = make()
    play = Play(stage, "receive", error)
    play.mortal.tell("die")
    play.check(error, stops=0)


@deadly
def test_an_actor_that_fails_on_an_ask_is_reported_once_and_the_caller_gets_the_error(
    stage: Stage, make: Callable[[], BaseException]
) -> None:
    error = make()
    play = Play(stage, "receive", error)
    with pytest.raises(type(error) if isinstance(error, Exception) else ActorCrashed) as caught:
        stage.ask(play.mortal, "die")
    assert error in (caught.value, caught.value.__cause__)
    play.check(error, stops=0)


@deadly
def test_an_actor_that_fails_on_a_timer_is_reported_once(stage: Stage, make: Callable[[], BaseException]) -> None:
    error = make()
    play = Play(stage, "timer", error)
    if stage._kit is not None:
        stage._kit.advance(timedelta(0))
    play.check(error, stops=0)


@deadly
def test_an_actor_that_fails_while_it_stops_is_reported_once(stage: Stage, make: Callable[[], BaseException]) -> None:
    error = make()
    play = Play(stage, "stopped", error)
    play.mortal.stop()
    play.check(error, stops=1)


@deadly
def test_a_host_that_stops_an_actor_gets_no_error_of_it(stage: Stage, make: Callable[[], BaseException]) -> None:
    error = make()
    play = Play(stage, "stopped", error)
    assert play.mortal.ref is not None
    stopped = play.mortal.ref.stop(block=False)
    stage.settle()
    assert stopped.get(timeout=30) is True
    play.check(error, stops=1)


def test_an_orderly_stop_comes_after_earlier_messages_and_has_no_cause(stage: Stage) -> None:
    play = Play(stage)
    future = play.mortal.request("before")
    play.mortal.stop()
    late = play.mortal.request("after")
    play.check(None, stops=1)
    assert future.get(timeout=0) == "before"
    with pytest.raises(ActorDeadError):
        late.get(timeout=0)


def test_an_actor_can_stop_itself_in_order(stage: Stage) -> None:
    class Quitter(Mortal):
        def receive(self, _message: Any) -> object:
            self.stop()
            return "bye"

    play = Play(stage)
    quitter = stage.spawn(lambda c: Quitter(c, "", None, play.stops), name="quitter", owned=True)
    assert stage.ask(quitter, "go") == "bye"
    assert [told.cause for told in stage.ended(quitter)] == [None]
    play.mortal.stop()
    play.check(None, stops=2)


def test_a_stop_by_the_host_says_so(stage: Stage) -> None:
    play = Play(stage)
    assert play.mortal.ref is not None
    stopped = play.mortal.ref.stop(block=False)
    stage.settle()
    assert stopped.get(timeout=30) is True
    play.check(StoppedByHost, stops=1)


def test_two_stops_stop_once(stage: Stage) -> None:
    play = Play(stage)
    assert play.mortal.ref is not None
    play.mortal.stop()
    by_host = play.mortal.ref.stop(block=False)
    play.mortal.stop()
    play.check(None, stops=1)
    by_host.get(timeout=30)


def test_a_refused_ask_is_an_error_for_the_caller_and_the_actor_keeps_running(stage: Stage) -> None:
    refusal = Refused("not now")
    play = Play(stage, "receive", refusal)
    with pytest.raises(Refused) as caught:
        stage.ask(play.mortal, "die")
    assert caught.value is refusal
    assert stage.ask(play.mortal, "alive?") == "alive?"
    play.mortal.stop()
    play.check(None, stops=1)


def test_a_refused_tell_is_a_warning_and_the_actor_keeps_running(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    play = Play(stage, "receive", Refused("not now"))
    play.mortal.tell("die")
    assert stage.ask(play.mortal, "alive?") == "alive?"
    assert [(r.levelno, r.getMessage()) for r in caplog.records if r.name == "actors.runtime.actor"] == [
        (logging.WARNING, "message refused: actor=mortal message=str reason=not now")
    ]
    play.mortal.stop()
    play.check(None, stops=1)


def test_a_refusal_while_it_stops_ends_the_actor_all_the_same(stage: Stage) -> None:
    refusal = Refused("no")
    play = Play(stage, "stopped", refusal)
    play.mortal.stop()
    play.check(refusal, stops=1)


def test_a_crash_is_logged_once_with_its_traceback(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("boom")
    play = Play(stage, "receive", error)
    play.mortal.tell("die")
    play.check(error, stops=0)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert (record.name, record.getMessage()) == (
        "actors.runtime.actor",
        "actor crashed: actor=mortal-1 message=str",
    )
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_messages_that_wait_in_the_mailbox_of_a_crashed_actor_are_answered_or_counted(stage: Stage) -> None:
    class Reader(Mortal):
        """Fills its own mailbox before it crashes."""

        def receive(self, message: Any) -> object:
            if message == "go":
                self.asked = self.address.request("question")
                self.address.tell("one")
                self.address.tell("two")
                futures.append(self.asked)
                raise ValueError("x")
            return message

    futures: list[Any] = []
    reader = stage.spawn(lambda c: Reader(c, "", None, []), name="reader", owned=True)
    reader.tell("go")
    stage.ended(reader)
    assert stage.system.letters.total == 2
    with pytest.raises(ActorDeadError, match="reader-1 ended before it answered str"):
        futures[0].get(timeout=0)


def test_callbacks_at_the_end_of_an_actor_run_before_its_owner_is_notified(stage: Stage) -> None:
    class Careful(Mortal):
        def started(self) -> None:
            def fail() -> None:
                raise ValueError("at end")

            self.at_end(fail)
            self.at_end(lambda: owner.tell("cleaned"))

    owner = stage.owner
    careful = stage.spawn(lambda c: Careful(c, "receive", ValueError("x"), []), name="careful", owned=True)
    careful.tell("die")
    (told,) = stage.ended(careful)
    assert stage.ask(owner, "all") == ["cleaned", told]


def test_hooks_of_pykka_are_sealed() -> None:
    for hook in ("on_start", "on_receive", "on_stop", "on_failure", "_handle_receive", "_handle_failure"):
        assert getattr(getattr(Actor, hook), "__final__", False), hook
