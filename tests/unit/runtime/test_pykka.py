"""What plain Pykka does, row by row of what was found out about it, and that our actors do not.

A row that fails in its first half means that Pykka has changed: see whether our part of it is still needed.
"""

from __future__ import annotations

import gc
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from pykka import ActorRegistry

from actors.errors import ActorCrashed, Refused
from actors.runtime import Actor, ActorSystem, Address, Context, StoppedByHost
from tests.unit.runtime.stage import SAFETY, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = timedelta(seconds=SAFETY)


class Plain(pykka.ThreadingActor):
    """A plain actor that fails in one hook and records which hooks ran."""

    use_daemon_thread = True

    def __init__(self, place: str, error: BaseException, hooks: list[str]) -> None:
        super().__init__()
        self._place = place
        self._error = error
        self._hooks = hooks
        self._fail("__init__")

    def on_start(self) -> None:
        self._fail("on_start")

    def on_receive(self, message: Any) -> Any:
        if message == "thread":
            return threading.current_thread()
        self._fail("on_receive")
        return message

    def on_stop(self) -> None:
        self._hooks.append("on_stop")
        self._fail("on_stop")

    def on_failure(self, *_: Any) -> None:
        self._hooks.append("on_failure")

    def _fail(self, place: str) -> None:
        if self._place == place:
            raise self._error


class Ours(Actor):
    """The same as an actor of ours."""

    def __init__(self, context: Context, place: str, error: BaseException, hooks: list[str]) -> None:
        super().__init__(context)
        self._place = place
        self._error = error
        self._hooks = hooks
        self._fail("__init__")

    def started(self) -> None:
        self._fail("started")

    def receive(self, message: Any) -> Any:
        self._fail("receive")
        return message

    def stopped(self) -> None:
        self._hooks.append("stopped")
        self._fail("stopped")

    def _fail(self, place: str) -> None:
        if self._place == place:
            raise self._error


@pytest.fixture
def hooks() -> list[str]:
    return []


@pytest.fixture
def free() -> Iterator[Stage]:
    with Stage("loop") as stage:
        yield stage


def ours(stage: Stage, place: str, error: BaseException, hooks: list[str]) -> Address:
    return stage.spawn(lambda context: Ours(context, place, error, hooks), name="ours", owned=True)


def ended(ref: pykka.ActorRef[Any]) -> None:
    """Wait until a plain actor has stopped."""
    assert ref.actor_stopped.wait(SAFETY)


def test_init_that_raises_reaches_the_one_who_starts_it_and_leaves_nothing(free: Stage, hooks: list[str]) -> None:
    before = ActorRegistry.get_all()
    with pytest.raises(ValueError, match="x"):
        Plain.start("__init__", ValueError("x"), hooks)
    with pytest.raises(ValueError, match="x"):
        ours(free, "__init__", ValueError("x"), hooks)
    assert ActorRegistry.get_all() == before
    assert free.ask(free.owner, "all") == []


def test_on_start_that_raises_runs_no_hook_and_is_reported_by_ours(free: Stage, hooks: list[str]) -> None:
    ref = Plain.start("on_start", ValueError("x"), hooks)
    ended(ref)
    assert ref not in ActorRegistry.get_all()
    assert hooks == []

    error = ValueError("x")
    assert [told.cause for told in free.ended(ours(free, "started", error, hooks))] == [error]


def test_on_start_that_exits_leaves_a_zombie_and_not_with_ours(
    free: Stage, hooks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)  # pytest's hook keeps references
    running = set(threading.enumerate())
    ref = Plain.start("on_start", SystemExit(1), hooks)
    for thread in set(threading.enumerate()) - running:
        thread.join(SAFETY)
    assert ref.is_alive()
    assert ref in ActorRegistry.get_all()
    with pytest.raises(pykka.Timeout):
        ref.ask("question", timeout=0.01)
    gc.collect()  # the actor and its error refer to each other
    assert not Address.to(ref).is_alive(), "an address knows better"
    ActorRegistry.unregister(ref)

    address = ours(free, "started", SystemExit(1), hooks)
    free.ended(address)
    assert address.ref not in ActorRegistry.get_all()


def test_a_tell_that_fails_skips_on_stop_and_is_reported_by_ours(free: Stage, hooks: list[str]) -> None:
    ref = Plain.start("on_receive", ValueError("x"), hooks)
    thread: Any = ref.ask("thread", timeout=SAFETY)
    ref.tell("fail")
    thread.join(SAFETY)
    assert hooks == ["on_failure"]

    error = ValueError("x")
    address = ours(free, "receive", error, hooks)
    address.tell("fail")
    assert [told.cause for told in free.ended(address)] == [error]


def test_an_ask_that_fails_leaves_the_actor_alive_and_kills_ours(free: Stage, hooks: list[str]) -> None:
    ref = Plain.start("on_receive", ValueError("x"), hooks)
    with pytest.raises(ValueError, match="x"):
        ref.ask("fail", timeout=SAFETY)
    assert ref.is_alive()
    assert hooks == []
    ref.stop()

    error = ValueError("x")
    address = ours(free, "receive", error, hooks)
    with pytest.raises(ValueError, match="x"):
        address.ask("fail", WAIT)
    assert [told.cause for told in free.ended(address)] == [error]


def test_an_exit_stops_every_actor_of_the_process_and_with_ours_only_itself(free: Stage, hooks: list[str]) -> None:
    bystander = pykka.ThreadingActor.start()
    ActorRegistry.unregister(free.owner.ref)  # type: ignore[arg-type]  # so that Pykka does not stop ours here
    ref = Plain.start("on_receive", SystemExit(1), hooks)
    asked = ref.ask("fail", block=False)
    ended(bystander)
    ended(ref)
    with pytest.raises(pykka.Timeout):
        asked.get(timeout=0.01)
    ActorRegistry.register(free.owner.ref)  # type: ignore[arg-type]

    bystander = pykka.ThreadingActor.start()
    address = ours(free, "receive", SystemExit(1), hooks)
    with pytest.raises(ActorCrashed):
        address.ask("fail", WAIT)
    free.ended(address)
    assert bystander.is_alive()
    bystander.stop()


def test_on_stop_that_raises_is_not_a_failure_and_with_ours_it_is(free: Stage, hooks: list[str]) -> None:
    ref = Plain.start("on_stop", ValueError("x"), hooks)
    assert ref.stop(timeout=SAFETY)
    assert hooks == ["on_stop"]

    error = ValueError("x")
    address = ours(free, "stopped", error, hooks)
    address.stop()
    assert [told.cause for told in free.ended(address)] == [error]


def test_a_tell_to_the_dead_raises_in_its_sender_and_is_counted_with_ours(free: Stage, hooks: list[str]) -> None:
    ref = pykka.ThreadingActor.start()
    ref.stop()
    with pytest.raises(pykka.ActorDeadError):
        ref.tell("late")

    address = ours(free, "", ValueError(), hooks)
    address.stop()
    free.ended(address)
    address.tell("late")
    assert free.system.letters.total == 1


def test_queued_tells_are_dropped_silently_at_death_and_counted_with_ours(free: Stage, hooks: list[str]) -> None:
    address = ours(free, "", ValueError(), hooks)
    address.stop()
    free.ended(address)
    assert free.system.letters.total == 0

    class Sleeper(Ours):
        def receive(self, message: Any) -> Any:
            entered.set()
            assert leave.wait(SAFETY)
            raise ValueError("x")

    entered, leave = threading.Event(), threading.Event()
    sleeper = free.spawn(lambda c: Sleeper(c, "", ValueError(), hooks), name="sleeper", owned=True)
    sleeper.tell("first")
    assert entered.wait(SAFETY)
    sleeper.tell("second")
    sleeper.tell("third")
    assert sleeper.depth == 2
    leave.set()
    free.ended(sleeper)
    assert free.system.letters.total == 2


def test_the_threads_of_pykka_are_not_daemons_and_ours_are(free: Stage, hooks: list[str]) -> None:
    assert pykka.ThreadingActor.use_daemon_thread is False
    address = ours(free, "", ValueError(), hooks)
    free.ask(address, "now?")
    assert address.handle is not None
    assert address.handle.thread is not None
    assert address.handle.thread.daemon
    assert address.handle.thread.name == "executor-pods/actors"


def test_stop_all_of_the_host_stops_ours_with_their_hooks_and_says_so(free: Stage, hooks: list[str]) -> None:
    before = [ref for ref in ActorRegistry.get_all() if ref is not free.owner.ref]
    for ref in [*before, free.owner.ref]:
        ActorRegistry.unregister(ref)  # type: ignore[arg-type]  # the owner must live to hear of it
    address = ours(free, "", ValueError(), hooks)
    assert ActorRegistry.stop_all(timeout=SAFETY) == [True]
    (told,) = free.ended(address)
    assert isinstance(told.cause, StoppedByHost)
    assert hooks == ["stopped"]
    for ref in [*before, free.owner.ref]:
        ActorRegistry.register(ref)  # type: ignore[arg-type]


def test_what_comes_through_a_proxy_of_pykka_is_refused(free: Stage, hooks: list[str]) -> None:
    address = ours(free, "", ValueError(), hooks)
    assert address.ref is not None
    with pytest.raises(Refused, match="ours takes messages, not calls through a proxy"):
        address.ref.ask(pykka.messages.ProxyCall(("receive",), ("x",), {}), timeout=SAFETY)
    with pytest.raises(Refused):
        address.ref.ask(pykka.messages.ProxyGetAttr(("name",)), timeout=SAFETY)
    with pytest.raises(Refused):
        address.ref.ask(pykka.messages.ProxySetAttr(("name",), "y"), timeout=SAFETY)
    assert address.ask("still here?", WAIT) == "still here?"


def test_our_actors_are_not_started_in_the_way_of_pykka() -> None:
    with pytest.raises(TypeError, match=r"Ours is started by ActorSystem\.spawn"):
        Ours.start()


def test_an_actor_that_gets_no_thread_leaves_nothing_and_its_maker_knows(
    free: Stage, hooks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before, system = ActorRegistry.get_all(), ActorSystem()
    address = system.address("ours")
    waiting: list[pykka.Future[Any]] = []

    def factory(context: Context) -> Ours:
        actor = Ours(context, "", ValueError(), hooks)
        waiting.append(actor.myself.request("soon"))
        return actor

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            system.spawn(factory, name="ours", owner=free.owner, address=address)
    assert ActorRegistry.get_all() == before
    assert not address.is_alive()
    assert free.ask(free.owner, "all") == []
    with pytest.raises(pykka.ActorDeadError):
        waiting[0].get(timeout=0)

    system.spawn(factory, name="ours", owner=free.owner, address=address)
    assert address.ask("now?", WAIT) == "now?"
    address.stop()
    system.close()
    assert [told.incarnation for told in free.ended(address)] == [2]


def test_two_systems_live_beside_each_other() -> None:
    first, second = ActorSystem(), ActorSystem()
    make: Callable[[Context], Actor] = lambda c: Ours(c, "", ValueError(), [])  # noqa: E731
    one, other = (system.spawn(make, name="same", owner=None) for system in (first, second))
    one.stop()
    assert other.ask("alive?", WAIT) == "alive?"
    other.stop()
    first.close()
    second.close()
