"""A part of a running backend hangs, is given up and replaced, and wakes up when its replacement works.

Real threads, because only a thread can hang, in virtual time. All take turns but the one that hangs: it is left behind.
A part hangs before it does anything with what it was told.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from actors.backend.shutdown import stop_limit
from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import BackendFailed, BackendStopped
from actors.messages.internal.names import ALLOCATOR, LEASE, LIFECYCLE, POLL, POOL, STORE, WATCH
from actors.runtime import SupervisorMessage
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.runtime import Actor

PARTS = [POOL, STORE, LIFECYCLE, ALLOCATOR, POLL, WATCH, LEASE]
SAFETY = 30.0
"""Seconds until a test that would hang fails instead."""
MOMENTS = 600
"""Tenths of a virtual second within which each actor gets each message."""

HANG_TIMEOUT = "30s"
REPLACED_WITHIN = 45
"""Seconds: 1¼ of the timeout, and the longest first backoff."""


class Hang:
    """Makes one actor block in the middle of a message, in its own thread, until it is let go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gate = threading.Event()
        self.thread: threading.Thread | None = None
        """What hangs."""

    def await_message(self, name: str, of: str) -> None:
        """Hang the actor of this name as soon as it is told a message of this type."""
        actor = self._living(name)
        handle = actor.receive

        def receive(message: object) -> object:
            if self.thread is None and type(message).__name__ == of:
                self._block(actor)
            return handle(message)

        actor.receive = receive  # type: ignore[method-assign]  # its own, of this one life

    def await_stop(self, name: str) -> None:
        """Hang the actor of this name as soon as it is stopped."""
        actor = self._living(name)
        actor.stopped = partial(self._block, actor)  # type: ignore[method-assign]  # its own, of this one life

    def _living(self, name: str) -> Actor:
        (actor,) = [actor for actor in self._world.kit.dispatcher.actors if actor.name == name]
        return actor

    def _block(self, actor: Actor) -> None:
        self.thread = actor.handle.thread
        self._world.kit.dispatcher.leave_behind()
        assert self._gate.wait(SAFETY)

    def await_begin(self) -> None:
        """Let time pass until the actor hangs."""
        for _ in range(MOMENTS):
            if self.thread is not None:
                return
            self._world.advance(0.1)
        raise AssertionError(f"no such message in {MOMENTS} tenths of a second")

    def let_go(self) -> None:
        """Wake it up, and wait until its thread has come to its end."""
        self._gate.set()
        assert self.thread is not None
        self.thread.join(SAFETY)
        assert not self.thread.is_alive()


@pytest.fixture
def world() -> Iterator[World]:
    executor = {"instances": 3, "event_processing_interval": "50ms"}  # so that some rounds fall into each stop
    with World(threads=True, executor=executor, backend={"lease": True, "hang_timeout": HANG_TIMEOUT}) as world:
        world.advance(20)
        assert world.running() == 3
        yield world


@pytest.fixture
def hang(world: World) -> Hang:
    return Hang(world)


def grow(world: World) -> None:
    world.target(5)


def lose_one(world: World) -> None:
    world.kubelet.exit("app-exec-2", 1)


def lose_the_stream(world: World) -> None:
    world.api.cut()


def wait(world: World) -> None:
    world.advance(40)


MESSAGES = {
    "allocator": "SnapshotBatch",
    "lifecycle-manager": "SnapshotBatch",
    "snapshot-store": "_IntervalOver",
    "watch-source": "_Received",
    "poll-source": "_PollDue",
}
"""What each is told again and again."""

CASES: list[tuple[str, str, Callable[[World], None]]] = [
    ("request-pool", "CreatePod", grow),
    ("request-pool", "DeletePod", lose_one),
    ("allocator", "SetTotalExpectedExecutors", grow),
    ("lifecycle-manager", "SnapshotBatch", lose_one),
    ("snapshot-store", "_IntervalOver", wait),
    ("snapshot-store", "UpdatePods", lose_one),
    ("poll-source", "_PollDue", wait),
    ("watch-source", "_Received", lose_the_stream),
    ("lease-keeper", "_Read", wait),
]


@pytest.mark.parametrize(("part", "message", "provoke"), CASES, ids=[f"{part} {what}" for part, what, _ in CASES])
def test_an_actor_that_hangs_is_replaced_and_does_nothing_when_it_wakes_up(
    part: str, message: str, provoke: Callable[[World], None], world: World, hang: Hang
) -> None:
    hang.await_message(part, message)
    provoke(world)
    world.advance(5)
    assert hang.thread is not None, "it hangs"
    world.advance(REPLACED_WITHIN)
    assert world.lives(part)
    assert hang.thread.is_alive(), "it hangs still"
    calls, handled = len(world.api.asked), len(world.kit.trace)
    hang.let_go()
    world.kit.settle()
    assert world.kit.trace[handled:] == [], "nobody hears of it"
    assert world.api.asked[calls:] == [], "it sends nothing"
    world.target(5)
    world.advance(40)
    assert world.running() == 5
    assert world.heard(BackendFailed) == []
    assert world.stop() == BackendStopped()
    assert world.pods() == []


@pytest.mark.parametrize("part", ["allocator", "lifecycle-manager", "snapshot-store", "watch-source", "poll-source"])
def test_a_part_that_hangs_keeps_no_stop_from_deleting_the_fleet_in_time(part: str, world: World, hang: Hang) -> None:
    hang.await_message(part, MESSAGES[part])
    hang.await_begin()
    assert world.stop(within=stop_limit(world.settings).total_seconds()) == BackendStopped()
    assert world.pods() == []
    assert [actor.name for actor in world.kit.dispatcher.actors] == ["driver", "onlooker"]
    hang.let_go()


STAGES = [
    ("request-pool", "Drain"),
    ("request-pool", "DeletePods"),
    ("request-pool", "_Answered"),
    ("lease-keeper", "ReleaseLease"),
    ("snapshot-store", "_IntervalOver"),
    ("lifecycle-manager", "SnapshotBatch"),
]
"""What each is told while all are stopped."""


def stops_in_time(world: World) -> None:
    """The fleet is gone, and whoever does not hang."""
    assert world.stop(within=stop_limit(world.settings).total_seconds()) == BackendStopped()
    assert world.pods() == []
    assert [actor.name for actor in world.kit.dispatcher.actors] == ["driver", "onlooker"]


@pytest.mark.parametrize(("part", "message"), STAGES, ids=[f"{part} {what}" for part, what in STAGES])
def test_a_part_that_hangs_in_the_middle_of_a_stop_leaves_nothing_behind(
    part: str, message: str, world: World, hang: Hang
) -> None:
    hang.await_message(part, message)
    stops_in_time(world)
    assert hang.thread is not None, "it has hung"
    hang.let_go()


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_hangs_when_it_is_stopped_leaves_nothing_behind(part: str, world: World, hang: Hang) -> None:
    hang.await_stop(part)
    stops_in_time(world)
    assert hang.thread is not None, "it has hung"
    hang.let_go()


def crash_backend(world: World) -> None:
    """Make it die of what it cannot handle; the driver hears of what."""
    world.address("backend").tell(SupervisorMessage())
    world.kit.settle()
    (failed,) = world.heard(BackendFailed)
    assert isinstance(failed.cause, TypeError)
    assert not world.heard(BackendStopped), "one last word"
    assert [actor.name for actor in world.kit.dispatcher.actors] == ["driver", "onlooker"]


def test_a_backend_that_crashes_takes_back_what_is_on_the_wire_and_ends_with_its_parts() -> None:
    with World(latency=timedelta(seconds=2)) as world:
        world.advance(10)
        world.target(3)
        world.advance(0.5)
        assert [what for _, what in world.api.asked].count("create") == 3, "on the wire"
        crash_backend(world)
        calls = len(world.api.asked)
        world.advance(60)
        assert world.pods() == []
        assert world.api.asked[calls:] == []


def test_a_backend_that_crashes_leaves_its_fleet_as_it_is(world: World) -> None:
    crash_backend(world)
    world.advance(60)
    assert world.running() == 3
    assert world.removals() == {}


def test_a_pool_that_hangs_while_its_backend_crashes_writes_nothing_when_it_wakes_up(
    world: World, hang: Hang, caplog: pytest.LogCaptureFixture
) -> None:
    hang.await_message("request-pool", "CreatePod")
    world.target(5)
    world.advance(5)
    crash_backend(world)
    assert "actor hangs, thread abandoned: actor=request-pool message=CreatePod" in caplog.text
    calls = len(world.api.asked)
    hang.let_go()
    world.advance(60)
    assert world.api.asked[calls:] == []
    assert world.running() == 3


def test_the_stream_of_a_watch_source_that_hangs_is_closed_when_it_is_replaced(world: World, hang: Hang) -> None:
    open_calls = len(world.api.calls.open())
    hang.await_message("watch-source", "_Received")
    lose_one(world)
    world.advance(REPLACED_WITHIN)
    assert hang.thread is not None
    assert hang.thread.is_alive(), "it hangs still"
    assert world.lives("watch-source")
    assert len(world.api.calls.open()) == open_calls
    hang.let_go()
    assert len(world.api.calls.open()) == open_calls


@pytest.mark.parametrize("hangs", [True, False])
def test_a_stop_that_takes_too_long_keeps_the_lease_while_a_part_may_still_write(hangs: bool) -> None:
    slow = {"instances": 2, "template_patch": {"spec": {"terminationGracePeriodSeconds": 600}}}
    with World(threads=True, executor=slow, backend={"lease": True, "shutdown_timeout": "20s"}) as world:
        world.kubelet.script = lambda _: Run(stop_delay=timedelta(minutes=9))
        world.advance(10)
        hang = Hang(world)
        if hangs:
            hang.await_stop("request-pool")
        assert world.stop(within=20) == BackendStopped()
        holder = world.store.get("leases", "default", "executor-pods-app")["spec"]["holderIdentity"]
        assert (hang.thread is not None, holder != "") == (hangs, hangs)
        if hangs:
            hang.let_go()
