"""The listener with a fleet behind its door: a Backend and an `AsyncFleet` in virtual time, a door for threads."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors import AsyncFleet, Backend, ExecutorRemoved, Fleet, KillExecutors, LossKind, RegisterExecutor, Settings
from actors.registration.door import BackendDoor, awaitable
from actors.registration.executor import BEAT_EVERY, LOST_DRIVER_LIMIT, SILENCE_LIMIT, End
from actors.registration.listener import START_LIMIT
from actors.testing import FakeCluster, Kit
from tests.unit.registration.virtual import Driver, hello, settle

if TYPE_CHECKING:
    from actors.runtime import Address


SETTINGS = Settings(
    app_id="etl", executor={"instances": 2, "image": "any"}, backend={"lease": False}, source={"streaming_list": False}
)


class KitDoor(BackendDoor):
    """Asks in virtual time: in a thread, the question would wait for actors that have no turn."""

    def __init__(self, kit: Kit, backend: Address) -> None:
        super().__init__(backend)
        self._kit = kit

    async def register(self, executor_id: int) -> bool:
        return bool(self._kit.ask(self._backend, RegisterExecutor(executor_id)))


async def double(work: int) -> int:
    return 2 * work


def test_executors_of_a_backend_register_and_one_that_it_has_replaced_is_refused(kit: Kit) -> None:
    cluster, probe = FakeCluster(kit), kit.probe("driver")
    backend = Backend.start(SETTINGS, probe.address, cluster.api, system=kit.system)

    async def main() -> None:
        driver = Driver(door=KitDoor(kit, backend))
        await asyncio.sleep(START_LIMIT)
        running = [asyncio.ensure_future(driver.executor(double, number).run()) for number in (1, 2)]
        stranger = driver.peer(hello(99))
        await asyncio.sleep(1)
        assert driver.events == [("connected", 1), ("connected", 2)]
        assert stranger.types == ["refused"]
        for connection in driver.connections:
            connection.stop()
        assert await asyncio.gather(*running) == [End.STOPPED] * 2
        backend.tell(KillExecutors((2,)))
        await asyncio.sleep(60)
        again = asyncio.ensure_future(driver.executor(double, 2).run())
        assert await again is End.REFUSED

    kit.run(main())


def test_a_driver_that_starts_again_finds_the_executors_of_the_last_one(kit: Kit) -> None:
    cluster, first = FakeCluster(kit), kit.probe("first")
    Backend.start(SETTINGS, first.address, cluster.api, system=kit.system)
    kit.advance(timedelta(seconds=5))
    kit.advance(timedelta(seconds=5))
    first.address.stop()
    kit.advance(timedelta(seconds=5))
    second = kit.probe("second")
    backend = Backend.start(SETTINGS, second.address, cluster.connect(), system=kit.system)

    async def main() -> None:
        driver = Driver(door=KitDoor(kit, backend))  # while the Backend does not know a single executor
        running = [asyncio.ensure_future(driver.executor(double, number).run()) for number in (1, 2)]
        await asyncio.sleep(START_LIMIT)
        assert sorted(driver.events) == [("connected", 1), ("connected", 2)]
        for connection in driver.connections:
            connection.stop()
        assert await asyncio.gather(*running) == [End.STOPPED] * 2

    kit.run(main())


def test_an_async_fleet_is_a_door_as_it_stands(kit: Kit) -> None:
    cluster = FakeCluster(kit)

    async def main() -> None:
        async with AsyncFleet(SETTINGS, pod_api=cluster.api, system=kit.system) as fleet:
            driver = Driver(door=fleet)
            peer, stranger = driver.peer(hello(1)), driver.peer(hello(99))
            await asyncio.sleep(5)
            assert driver.events == [("connected", 1)]
            assert stranger.types == []
            assert fleet.executors[1].registered
            peer.transport.abort()
            await asyncio.sleep(5)
            assert not fleet.executors[1].registered

    kit.run(main())


class ThreadDoor:
    """A door as that of a `Fleet`: its `register` waits. It notes in which thread."""

    def __init__(self) -> None:
        self.registered: set[int] = set()
        self.threads: list[threading.Thread] = []
        self.is_empty = asyncio.Event()

    def register(self, executor_id: int) -> bool:
        self.threads.append(threading.current_thread())
        if executor_id == 99:
            return False
        self.registered.add(executor_id)
        return True

    def disconnected(self, executor_id: int, suspected: object) -> None:
        self.registered.discard(executor_id)
        self.is_empty.set()


def test_a_fleet_for_threads_is_a_door_as_it_stands_and_does_not_hold_up_the_listener() -> None:
    door, told = ThreadDoor(), asyncio.Event()

    async def main() -> None:
        driver = Driver(door=awaitable(door))
        hear = driver.hear

        def heard(event: Any) -> None:
            hear(event)
            told.set()

        driver.listener._tell = heard
        peer = driver.peer(hello(1))
        await told.wait()
        assert driver.events == [("connected", 1)]
        assert door.registered == {1}
        assert threading.current_thread() not in door.threads
        told.clear()
        peer.transport.abort()
        await told.wait()
        await door.is_empty.wait()
        await driver.listener.close()

    asyncio.run(main())


def test_both_fleets_are_doors() -> None:
    asynchronous = AsyncFleet(SETTINGS)
    assert awaitable(asynchronous) is asynchronous
    assert asyncio.iscoroutinefunction(awaitable(Fleet(SETTINGS)).register)


def test_a_function_around_a_coroutine_function_registers() -> None:
    door = ThreadDoor()

    class Around:
        def register(self, executor_id: int) -> Any:
            return self.later(executor_id)

        async def later(self, executor_id: int) -> bool:
            return door.register(executor_id)

        disconnected = door.disconnected

    assert asyncio.run(awaitable(Around()).register(1)) is True
    assert asyncio.run(awaitable(Around()).register(99)) is False


class NoDoor:
    async def register(self, _: int) -> bool:
        return True


class DoorToAwait(NoDoor):
    async def disconnected(self, _: int, __: object) -> None: ...


@pytest.mark.parametrize(
    ("door", "words"),
    [
        (None, "has no method 'register'; give a Fleet, an AsyncFleet, or BackendDoor"),
        (Fleet, "has no method 'register'; give a Fleet"),
        (NoDoor(), "has no method 'disconnected'"),
        (DoorToAwait(), "disconnected is a coroutine function"),
    ],
)
def test_what_is_no_door_is_refused_before_anybody_connects(door: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        awaitable(door)


def test_a_driver_that_lives_gives_up_an_executor_before_that_ends_by_itself() -> None:
    notices = SILENCE_LIMIT + BEAT_EVERY
    assert notices + Settings().executor.disconnect_timeout.total_seconds() < LOST_DRIVER_LIMIT


def test_an_executor_that_stays_away_is_removed(kit: Kit) -> None:
    cluster, probe = FakeCluster(kit), kit.probe("driver")
    backend = Backend.start(SETTINGS, probe.address, cluster.api, system=kit.system)

    async def main() -> None:
        driver = Driver(door=KitDoor(kit, backend))
        await asyncio.sleep(5)
        peer = driver.peer(hello(2))
        await settle()
        await asyncio.sleep(5)
        peer.transport.abort()
        await asyncio.sleep(LOST_DRIVER_LIMIT + 60)
        removed = [message for message in probe.received if isinstance(message, ExecutorRemoved)]
        assert [(each.executor_id, each.reason.kind) for each in removed] == [(2, LossKind.DISCONNECTED)]

    kit.run(main())
