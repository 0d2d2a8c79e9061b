"""The loop: one thread for all actors, and another one beside an actor that blocks."""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pykka._envelope import Envelope

from actors.errors import Refused
from actors.runtime import Actor, ActorDeadError, ActorSystem, Address, Context, Terminated, loop
from actors.runtime.handle import Hung
from actors.runtime.mailbox import Reply
from actors.runtime.threads import call_within
from actors.testing import Kit
from tests.unit.runtime.stage import SAFETY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

WAIT = timedelta(seconds=SAFETY)

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


class Worker(Actor):
    """Notes what it received and in which thread; blocks on request, until it is released."""

    def __init__(self, context: Context, room: Room) -> None:
        super().__init__(context)
        self._room = room
        self.received: list[object] = []
        self._inside = threading.Lock()

    def receive(self, message: Any) -> object:
        assert self._inside.acquire(blocking=False), "two threads run one actor"
        try:
            return self._received(message)
        finally:
            self._inside.release()

    def _received(self, message: Any) -> object:
        match message:
            case "all":
                return self.received
            case "thread":
                return threading.current_thread()
            case "block":
                self._room.entered.release()
                assert self._room.leave.wait(SAFETY)
            case "for ever":
                self.myself.tell("for ever")
            case "soon":
                self.timers.start("soon", timedelta(milliseconds=1), "due")
            case "who am I?":
                before = WHO.get()
                WHO.set(self.name)
                return before
            case _ if callable(message):
                message()
            case _:
                pass
        self.received.append(message)
        return None


class Room:
    """A system with workers."""

    def __init__(self) -> None:
        self.system = ActorSystem()
        self.entered, self.leave = threading.Semaphore(0), threading.Event()
        self._workers: list[Address] = []

    def worker(self, name: str) -> Address:
        address = self.system.spawn(lambda context: Worker(context, self), name=name, owner=None)
        self._workers.append(address)
        return address

    def block(self, worker: Address) -> None:
        worker.tell("block")
        assert self.entered.acquire(timeout=SAFETY)

    def empty(self) -> None:
        """Stop all workers and wait for the end of the thread."""
        self.leave.set()
        threads = {worker.handle.thread for worker in self._workers if worker.handle is not None}
        for worker in self._workers:
            worker.stop()
        for thread in threads - {None}:
            assert thread is not None
            thread.join(SAFETY)
            assert not thread.is_alive()
        self.system.close()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setattr(loop, "LOOK_EVERY", 0.01)
    room = Room()
    yield room
    room.empty()


@pytest.fixture
def patient(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:  # after `room`, which sets it, too
    """No thread takes over from one that a busy machine holds up."""
    monkeypatch.setattr(loop, "LOOK_EVERY", SAFETY)


@pytest.mark.usefixtures("patient")
def test_all_actors_of_a_system_share_a_thread_and_those_of_another_do_not(room: Room) -> None:
    first, second = room.worker("first"), room.worker("second")
    assert first.ask("thread", WAIT) is second.ask("thread", WAIT)
    other = Room()
    assert other.worker("first").ask("thread", WAIT) is not first.ask("thread", WAIT)
    other.empty()


def test_an_actor_that_blocks_holds_up_no_other_for_long(room: Room) -> None:
    blocked, other = room.worker("blocked"), room.worker("other")
    room.block(blocked)
    assert other.ask("thread", WAIT) is not blocked.handle.thread  # type: ignore[union-attr]  # it runs
    other.tell("soon")
    while "due" not in other.ask("all", WAIT):
        pass


def test_what_a_blocked_actor_is_told_meanwhile_it_receives_afterwards_in_order(room: Room) -> None:
    blocked, other = room.worker("blocked"), room.worker("other")
    room.block(blocked)
    for number in range(10):
        blocked.tell(number)
        other.ask(number, WAIT)
    room.leave.set()
    assert blocked.ask("all", WAIT) == ["block", *range(10)]
    assert blocked.ask("thread", WAIT) is other.ask("thread", WAIT), "the former thread is gone"


def test_several_actors_may_block(room: Room) -> None:
    workers = [room.worker(f"worker-{number}") for number in range(4)]
    for worker in workers[:-1]:
        room.block(worker)
    assert workers[-1].ask("all", WAIT) == []
    room.leave.set()
    for worker in workers[:-1]:
        assert worker.ask("all", WAIT) == ["block"]


def test_without_another_thread_the_actors_wait_for_the_one_that_blocks(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Event()

    def no_more(_: threading.Thread) -> None:
        tried.set()
        raise RuntimeError("can't start new thread")

    blocked, other = room.worker("blocked"), room.worker("other")
    room.block(blocked)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        assert tried.wait(SAFETY)
        room.leave.set()
        assert other.ask("all", WAIT) == []
    assert "no thread for the actors beside one that blocks: actor=blocked-1" in caplog.text


def test_an_actor_without_an_end_of_messages_holds_up_neither_timers_nor_others(room: Room) -> None:
    endless, other = room.worker("endless"), room.worker("other")
    endless.tell("for ever")
    other.tell("soon")
    while "due" not in other.ask("all", WAIT):
        pass
    endless.stop()


def test_the_thread_ends_with_the_last_actor_and_begins_with_the_next(room: Room) -> None:
    first = room.worker("first")
    thread = first.ask("thread", WAIT)
    first.stop()
    thread.join(SAFETY)
    assert not thread.is_alive()
    assert room.worker("second").ask("thread", WAIT) is not thread


def test_context_variables_are_those_of_the_actor(room: Room) -> None:
    token = WHO.set("the maker")
    first = room.worker("first")
    WHO.reset(token)
    second = room.worker("second")
    assert [first.ask("who am I?", WAIT) for _ in range(2)] == ["the maker", "first"]
    assert second.ask("who am I?", WAIT) == "nobody"


def test_the_state_of_an_actor_that_has_ended_is_freed(room: Room) -> None:
    first = room.worker("first")
    room.worker("second")
    assert first.handle is not None
    first.stop()
    assert first.handle.ref.actor_stopped.wait(SAFETY)
    assert getattr(first.handle.mailbox, "actor", None) is None


def test_what_waits_until_the_loop_rests_is_called_after_the_messages_that_wait(room: Room) -> None:
    order: list[str] = []
    first, second = room.worker("first"), room.worker("second")

    def both() -> None:
        second.tell(lambda: order.append("message"))
        loop.at_rest(lambda: order.append("rest"))

    first.ask(both, WAIT)
    assert second.ask("all", WAIT) is not None
    assert first.ask("all", WAIT) is not None
    assert order == ["message", "rest"]
    loop.at_rest(lambda: order.append("no actor's thread: at once"))
    assert order[-1] == "no actor's thread: at once"


def test_what_waits_until_the_loop_rests_is_not_held_up_without_end(room: Room) -> None:
    rested = threading.Event()
    endless, other = room.worker("endless"), room.worker("other")
    endless.tell("for ever")
    other.tell(lambda: loop.at_rest(rested.set))
    assert rested.wait(SAFETY)
    endless.stop()


def test_what_asks_again_to_be_called_when_the_loop_rests_holds_up_no_message(room: Room) -> None:
    rests, heard = threading.Event(), threading.Event()
    worker = room.worker("worker")

    def again() -> None:
        rests.set()
        if not heard.is_set():
            loop.at_rest(again)

    worker.tell(lambda: loop.at_rest(again))
    assert rests.wait(SAFETY)
    worker.tell(heard.set)
    was_heard = heard.wait(SAFETY)
    heard.set()
    assert was_heard


def test_an_actor_beside_which_the_others_go_on_waits_for_no_rest_of_theirs(room: Room) -> None:
    blocked, other = room.worker("blocked"), room.worker("other")
    called: list[bool] = []

    def block() -> None:
        room.entered.release()
        assert room.leave.wait(SAFETY)
        loop.at_rest(lambda: called.append(True))
        called.append(False)

    blocked.tell(block)
    assert room.entered.acquire(timeout=SAFETY)
    other.ask("thread", WAIT)
    room.leave.set()
    blocked.ask("all", WAIT)
    assert called == [True, False]


def test_what_a_timer_tells_after_the_message_of_an_actor_that_was_given_up_arrives(room: Room) -> None:
    given_up, other = room.worker("given up"), room.worker("other")
    assert given_up.handle is not None
    told = threading.Event()

    def give_up() -> None:
        room.system.timers.schedule(timedelta(), lambda: other.tell(told.set))
        given_up.handle.end(Hung("for a test"), abandon=True)  # type: ignore[union-attr]  # it runs

    given_up.tell(give_up)
    assert told.wait(SAFETY)


def test_a_message_to_an_actor_that_has_ended_is_not_kept(room: Room) -> None:
    ended = room.worker("ended")
    assert ended.handle is not None
    ended.stop()
    assert ended.handle.ref.actor_stopped.wait(SAFETY)
    thread = ended.handle.thread
    assert thread is not None
    thread.join(SAFETY)
    mailbox = ended.handle.mailbox
    references = sys.getrefcount(mailbox)
    for _ in range(100):
        ended.tell("nobody reads this")
    assert sys.getrefcount(mailbox) == references


@pytest.mark.usefixtures("tight_switching")
def test_no_message_is_lost_or_handled_twice_while_threads_take_over(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOOK_EVERY", 0.0005)
    workers = [room.worker(f"worker-{number}") for number in range(4)]
    sent: list[object] = []
    for number in range(600):
        message = partial(time.sleep, 0.002) if number % 60 == 0 else number
        sent.append(message)
        for worker in workers:
            worker.tell(message)
    for worker in workers:
        assert worker.ask("all", WAIT) == sent


def test_a_thread_whose_start_was_interrupted_runs_no_actor(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        if thread.name == "executor-pods/actors":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            room.worker("first")
    assert room.worker("second").ask("thread", WAIT) not in started
    for thread in started:
        thread.join(SAFETY)
        assert not thread.is_alive()


def test_a_message_whose_sender_was_interrupted_is_handled_at_once(room: Room) -> None:
    """Otherwise each later message would cause the one before it to be handled, for ever."""
    worker = room.worker("a")
    assert worker.handle is not None
    mailbox = worker.handle.mailbox
    mailbox._queue = Interrupted(mailbox._queue)  # type: ignore[assignment]  # a queue all the same
    handled = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        worker.tell(handled.set)
    assert handled.wait(SAFETY)


def test_who_fails_when_it_is_answered_holds_up_no_actor(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    worker = room.worker("a")
    assert worker.handle is not None
    thread = worker.ask("thread", WAIT)
    reply = Reply()
    reply.when_set(partial(fail, ZeroDivisionError("who asked")))
    worker.handle.mailbox.put(Envelope(partial(fail, Refused("no")), reply))
    assert worker.ask("thread", WAIT) is thread
    assert "the answer to a message failed: actor=a-1" in caplog.text


# ── what may block ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_may_block_runs_beside_the_actors_with_their_context_and_answers_or_raises(room: Room) -> None:
    worker = room.worker("worker")
    found: list[tuple[threading.Thread, str]] = []
    raised: list[bool] = []

    def ask() -> None:
        WHO.set("the actor")
        found.append(call_within(WAIT, lambda: (threading.current_thread(), WHO.get())))
        for error in (ZeroDivisionError(), SystemExit(3)):
            try:
                call_within(WAIT, partial(fail, error))
            except BaseException as caught:  # noqa: BLE001 - also a `sys.exit`
                raised.append(caught is error)

    worker.ask(ask, WAIT)
    [(thread, who)] = found
    assert thread is not worker.ask("thread", WAIT)
    assert (who, raised) == ("the actor", [True, True])


def test_what_blocks_holds_up_an_actor_for_its_limit_only(room: Room) -> None:
    worker = room.worker("worker")
    with pytest.raises(TimeoutError, match=r"it took longer than 0\.01 s"):
        worker.ask(partial(call_within, timedelta(seconds=0.01), partial(room.leave.wait, SAFETY)), WAIT)


def test_in_virtual_time_what_may_block_is_called_at_once() -> None:
    with Kit() as kit:
        assert kit.system.call_within(WAIT, threading.current_thread) is threading.current_thread()
    assert ActorSystem().call_within(WAIT, threading.current_thread) is not threading.current_thread()


# ── a thread that dies ──────────────────────────────────────────────────────────────────────────────────────────


def kills_the_thread_in(function: str) -> Callable[[], None]:
    """Return what ends its thread when a function of the loop is called next, as a trace function of a program can."""

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == function:
            raise SystemExit("a trace function")

    return lambda: sys.settrace(trace)


@pytest.fixture
def untraced() -> None:
    """Nothing, but where a debugger or coverage traces: it would replace the test's function."""
    if sys.gettrace() is not None:
        pytest.skip("this thread is traced already")


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("function", ["_turn_of", "_rest", "_next", "take"])
def test_another_thread_goes_on_with_all_that_waits_when_the_actors_thread_dies(
    room: Room, function: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = room.worker("first"), room.worker("second")
    thread = first.ask("thread", WAIT)
    second.tell("soon")
    first.tell(kills_the_thread_in(function))
    for number in range(10):
        first.tell(number)
    thread.join(SAFETY)
    assert not thread.is_alive()
    assert first.ask("thread", WAIT) is not thread
    assert first.ask("all", WAIT)[-10:] == list(range(10))
    second.tell("soon")
    while "due" not in second.ask("all", WAIT):
        pass
    assert "the actors' thread has failed" in caplog.text


@pytest.mark.usefixtures("untraced", "patient")
def test_an_actor_whose_loop_fails_within_a_message_is_lost_and_no_other(room: Room) -> None:
    owner, other = room.worker("owner"), room.worker("other")
    lost = room.system.spawn(lambda context: Worker(context, room), name="lost", owner=owner)
    thread = other.ask("thread", WAIT)
    lost.tell(kills_the_thread_in("is_set"))
    with pytest.raises(ActorDeadError):
        lost.ask("all", WAIT)
    assert other.ask("thread", WAIT) is thread
    (terminated,) = owner.ask("all", WAIT)
    assert isinstance(terminated, Terminated)
    assert isinstance(terminated.cause, SystemExit)


# ── what the program's logging raises ───────────────────────────────────────────────────────────────────────────


class Failing(logging.Handler):
    """Raises at each record."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self._error = error

    def emit(self, _: logging.LogRecord) -> None:
        raise self._error("a handler")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("error", [OSError, SystemExit, KeyboardInterrupt])
def test_an_actor_starts_answers_crashes_and_ends_whatever_a_handler_of_all_logs_raises(
    room: Room, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Pykka logs too, each start and end at DEBUG."""
    caplog.set_level(logging.DEBUG)
    owner, handler = room.worker("owner"), Failing(error)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        spawned: list[Address] = []
        for name in ("other", "crashes"):
            spawn = partial(room.system.spawn, lambda context: Worker(context, room), name=name, owner=owner)
            owner.ask(lambda spawn=spawn: spawned.append(spawn()), WAIT)  # Ctrl-C is for the main thread only
        other, crashes = spawned
        thread = other.ask("thread", WAIT)
        with pytest.raises(Refused, match="not now"):
            other.ask(partial(fail, Refused("not now")), WAIT)
        other.tell(partial(fail, Refused("not now")))
        with pytest.raises(ZeroDivisionError):
            crashes.ask(partial(fail, ZeroDivisionError()), WAIT)
        other.tell(partial(loop.at_rest, partial(fail, ZeroDivisionError())))
        assert other.ask("thread", WAIT) is thread
        other.stop()
        while len([message for message in owner.ask("all", WAIT) if isinstance(message, Terminated)]) < 2:
            pass
    finally:
        root.removeHandler(handler)


class Interrupted:
    """A queue whose next writer is interrupted after it has put what it puts."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._interrupts = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put(self, item: object) -> None:
        self._queue.put(item)
        if self._interrupts:
            self._interrupts = False
            raise KeyboardInterrupt


def fail(error: BaseException) -> None:
    raise error
