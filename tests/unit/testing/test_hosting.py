"""The host's own Pykka actors in an open kit: what runs in virtual time, and what is refused in clear words."""

from __future__ import annotations

import queue
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pykka
import pytest

from actors import (
    Backend,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    FleetStatus,
    GetFleetStatus,
    RequestTotalExecutors,
    Settings,
    StopBackend,
)
from actors.runtime import Actor, ActorSystem, Context, installed_system
from actors.testing import Crash, FakeCluster, Kit, NotInVirtualTime

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = timedelta(seconds=1)


class Driver(pykka.ThreadingActor):
    """Written for production: it knows nothing of a kit."""

    def __init__(self, instances: int = 2) -> None:
        super().__init__()
        self.settings = Settings(executor={"image": "any", "instances": instances})
        self.running: set[int] = set()
        self.stopped = False

    def on_start(self) -> None:
        self.backend = Backend.start(self.settings, owner=self.actor_ref)

    def on_receive(self, message: Any) -> Any:
        match message:
            case ExecutorRunning(executor_id):
                self.running.add(executor_id)
            case ExecutorRemoved(executor_id):
                self.running.discard(executor_id)
            case BackendStopped():
                self.stopped = True
                self.stop()
            case "scale", int(total):
                self.backend.tell(RequestTotalExecutors(total))
            case "status":
                return self.backend.ask(GetFleetStatus(), SECOND)
            case "end":
                self.backend.tell(StopBackend())
            case _:
                pass
        return None


@pytest.fixture
def cluster(kit: Kit) -> FakeCluster:
    return FakeCluster(kit)


# ── drivers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plain_driver_runs_in_virtual_time(kit: Kit, cluster: FakeCluster) -> None:
    threads = threading.active_count()
    driver = kit.start(Driver, instances=3)
    kit.advance(minutes=1)
    assert driver.running == {1, 2, 3}
    cluster.fail(2)
    kit.advance(minutes=1)
    assert driver.running == {1, 3, 4}
    driver.actor_ref.tell("end")
    kit.advance(minutes=1)
    assert driver.stopped
    assert not driver.actor_ref.is_alive()
    assert threading.active_count() == threads


def test_a_driver_that_its_program_starts_runs_in_the_kit_too(kit: Kit, cluster: FakeCluster) -> None:
    ref = Driver.start()
    ref.tell(("scale", 3))
    kit.advance(seconds=10)
    assert ref.proxy().running.get() == {1, 2, 3}
    status: Any = ref.ask("status")
    assert status.profiles["default"].running == 3
    assert len(cluster.pods) == 3


def test_an_ask_from_the_test_is_answered_by_running_the_actors(kit: Kit, cluster: FakeCluster) -> None:
    driver = kit.start(Driver)
    kit.advance(seconds=5)
    status: FleetStatus = driver.backend.ask(GetFleetStatus(), timeout=1)
    assert status.profiles["default"].running == 2
    assert driver.actor_ref.stop()
    assert not driver.actor_ref.is_alive()


def test_an_answer_that_does_not_come_is_a_timeout_in_virtual_time(kit: Kit) -> None:
    class Later(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return promise

    promise: pykka.ThreadingFuture[int] = pykka.ThreadingFuture()
    later = Later.start()
    kit.dispatcher.pause(kit.dispatcher.everyone)
    with pytest.raises(pykka.Timeout, match=r"^3600 seconds$"):
        later.ask("question", timeout=3600)
    assert kit.clock.elapsed == timedelta(hours=1)
    with pytest.raises(AssertionError, match="this wait never ends"):
        later.ask("question")
    kit.dispatcher.resume()
    assert later.ask("question") is promise


def test_a_backend_gets_the_system_of_the_open_kit_and_its_seed(cluster: FakeCluster) -> None:
    def app_id() -> str:
        with Kit() as kit:
            FakeCluster(kit)
            assert installed_system() is kit.system
            driver = kit.start(Driver)
            status: FleetStatus = driver.backend.ask(GetFleetStatus(), 1)
            return status.app_id

    first = app_id()
    assert first.startswith("fleet-")
    assert first == app_id()


def test_a_system_that_is_given_counts(kit: Kit, cluster: FakeCluster) -> None:
    other = Kit()
    backend = Backend.start(Settings(executor={"image": "any"}), kit.probe().address, cluster.api, system=other.system)
    assert "backend" not in [actor.name for actor in kit.dispatcher.actors]
    assert "backend" in [actor.name for actor in other.dispatcher.actors]
    backend.stop()
    other.close()


def test_no_kit_is_open_no_system_is_installed() -> None:
    assert installed_system() is None
    kit = Kit()
    assert installed_system() is None
    with kit, Kit() as other:
        assert installed_system() is other.system
    assert installed_system() is None


def test_a_backend_without_a_cluster_is_an_error(kit: Kit) -> None:
    with pytest.raises(NotInVirtualTime, match=r"cannot use a real API server: make a FakeCluster\(kit\) first"):
        kit.start(Driver)


def test_only_an_open_kit_runs_actors_of_the_host() -> None:
    with pytest.raises(RuntimeError, match=r"use `with Kit\(\) as kit:`, without threads"):
        Kit().start(Driver)
    with Kit(threads=True) as kit, pytest.raises(RuntimeError, match="without threads"):
        kit.start(Driver)


def test_actors_of_other_threads_are_none_of_the_kits(kit: Kit) -> None:
    answers: list[object] = []

    class Echo(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return message, threading.current_thread() is threading.main_thread()

    def elsewhere() -> None:
        echo = Echo.start()
        answers.append(echo.ask("hello"))
        echo.stop()
        time.sleep(0)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert answers == [("hello", False)]
    assert kit.trace == []


# ── helpers of a driver ──────────────────────────────────────────────────────────────────────────────────────────────


class Helper(pykka.ThreadingActor):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        self.heard.append(message)
        return len(self.heard)


class Doing(pykka.ThreadingActor):
    """Does what the test says when it gets a message."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__()
        self.action = action
        self.done: Any = None

    def on_receive(self, message: Any) -> Any:
        if message == "do":
            self.done = self.action()
        return message


def doing(kit: Kit, action: Callable[[], Any]) -> Doing:
    actor = kit.start(Doing, action)
    actor.actor_ref.tell("do")
    kit.settle()
    return actor


def test_a_driver_starts_asks_and_stops_actors_of_its_own(kit: Kit) -> None:
    def action() -> tuple[Any, Any]:
        helper = Helper.start()
        helper.tell("one")
        return helper.ask("two"), helper.stop()

    assert doing(kit, action).done == (2, True)


def test_an_actor_that_waits_for_its_own_asker_is_told_so(kit: Kit) -> None:
    actor: Doing = kit.start(Doing, lambda: actor.actor_ref.ask("me"))
    actor.actor_ref.tell("do")
    kit.settle()
    crash = kit.crashes.pop()
    assert isinstance(crash.cause, NotInVirtualTime)
    assert str(crash.cause) == (
        "Doing waits until Doing answers str. It does not while Doing waits: in a Kit, one actor runs at a time"
    )


def test_a_timer_of_an_actor_runs_in_virtual_time(kit: Kit) -> None:
    helper = kit.start(Helper)

    def action() -> threading.Timer:
        threading.Timer(60, helper.actor_ref.tell, ["rang"]).start()
        cancelled = threading.Timer(30, helper.actor_ref.tell, ["cancelled"])
        cancelled.start()
        cancelled.cancel()
        return cancelled

    doing(kit, action)
    kit.advance(seconds=59)
    assert helper.heard == []
    kit.advance(seconds=1)
    assert helper.heard == ["rang"]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: time.sleep(1), "Doing sleeps: in a Kit, its sleep would stop every actor"),
        (lambda: threading.Thread(target=print).start(), "Doing starts a thread: what it does takes real time"),
        (lambda: queue.Queue[int]().get(), "Doing waits for another thread"),
        (lambda: threading.Event().wait(), "Doing waits for another thread"),
        (lambda: pykka.ThreadingFuture[int]().get(), "Doing waits for another thread"),
    ],
)
def test_what_takes_real_time_in_an_actor_is_refused(kit: Kit, action: Callable[[], Any], words: str) -> None:
    actor = doing(kit, action)
    crash = kit.crashes.pop()
    assert isinstance(crash.cause, NotInVirtualTime)
    assert str(crash.cause).startswith(words)
    assert not actor.actor_ref.is_alive()


def test_a_sleep_in_on_start_is_refused_and_raised_by_the_start(kit: Kit) -> None:
    class Sleeper(pykka.ThreadingActor):
        def on_start(self) -> None:
            time.sleep(10)

    with pytest.raises(NotInVirtualTime, match="Sleeper sleeps"):
        kit.start(Sleeper)


def test_a_program_that_sleeps_lets_virtual_time_pass(kit: Kit, cluster: FakeCluster) -> None:
    driver = kit.start(Driver)
    time.sleep(60)
    assert kit.clock.elapsed == timedelta(minutes=1)
    assert driver.running == {1, 2}


def test_a_thread_of_the_test_runs_as_ever(kit: Kit) -> None:
    done = threading.Event()
    threading.Thread(target=done.set).start()
    assert done.wait(30)
    assert kit.clock.elapsed == timedelta(0)


def test_what_is_replaced_while_a_kit_is_open_is_put_back() -> None:
    def now() -> list[object]:
        return [
            *(vars(pykka.ThreadingActor)[name] for name in ("_create_actor_inbox", "_start_actor_loop")),
            pykka.Actor._handle_failure,
            time.sleep,
            threading.Thread.start,
            threading.Condition.wait,
        ]

    before = now()
    outer, inner = Kit(), Kit()
    outer.__enter__()
    inner.__enter__()
    assert not set(now()) & set(before)
    outer.__exit__(None, None, None)
    assert not set(now()) & set(before)
    inner.__exit__(None, None, None)
    assert now() == before


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crash_is_noted_with_its_actor(kit: Kit) -> None:
    doing(kit, lambda: 1 // 0)
    crash = kit.crashes.pop()
    assert isinstance(crash, Crash)
    assert str(crash) == "Doing: ZeroDivisionError('integer division or modulo by zero')"


def test_a_crash_that_no_test_expects_fails_it_at_the_end() -> None:
    kit = Kit()
    words = r"^actors crashed; .* out of kit.crashes:\n  Doing: ZeroDivisionError\(.*\)\n  Doing: KeyError\('found'\)$"
    kit.__enter__()
    doing(kit, lambda: 1 // 0)
    doing(kit, lambda: {"lost": 1}["found"])
    with pytest.raises(AssertionError, match=words) as caught:
        kit.__exit__(None, None, None)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_crash_that_a_test_expects_does_not_nor_does_one_of_a_test_that_fails() -> None:
    with Kit() as kit:
        doing(kit, lambda: 1 // 0)
        kit.crashes.clear()
    kit = Kit()
    with pytest.raises(KeyError), kit:
        raise KeyError(doing(kit, lambda: 1 // 0))


def test_a_crash_of_our_own_actor_counts_too() -> None:
    class Failing(Actor):
        def receive(self, message: Any) -> object:
            raise ValueError(message)

    with Kit() as kit:
        kit.spawn(Failing, name="failing").tell("boom")
        kit.settle()
        assert [str(crash) for crash in kit.crashes] == ["failing: ValueError('boom')"]
        kit.crashes.clear()


def test_an_actor_of_the_host_is_stopped_with_the_kit() -> None:
    ended: list[str] = []

    class Ending(pykka.ThreadingActor):
        def on_stop(self) -> None:
            ended.append("stopped")

    registered = pykka.ActorRegistry.get_all()
    with Kit() as kit:
        kit.start(Ending)
    assert ended == ["stopped"]
    assert pykka.ActorRegistry.get_all() == registered


def test_a_test_that_fails_leaves_no_actor_of_the_host() -> None:
    registered = pykka.ActorRegistry.get_all()
    kit = Kit()
    with pytest.raises(ZeroDivisionError), kit:
        raise ZeroDivisionError(helper := kit.start(Helper))
    assert not helper.actor_ref.is_alive()
    assert pykka.ActorRegistry.get_all() == registered


class Alarm(Actor):
    """Rings as soon as time passes by itself."""

    def __init__(self, context: Context, rang: threading.Event) -> None:
        super().__init__(context)
        self._rang = rang

    def started(self) -> None:
        self.timers.start("ring", timedelta(0), "ring")

    def receive(self, _: object) -> object:
        self._rang.set()
        return None


def test_a_real_system_is_real_in_an_open_kit(kit: Kit) -> None:
    system = ActorSystem()
    rang = threading.Event()
    alarm = system.spawn(lambda context: Alarm(context, rang), name="alarm", owner=None)
    assert rang.wait(30)
    alarm.stop()
    system.close()
