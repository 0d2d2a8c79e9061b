"""The listener with a Backend behind its door, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from actors import AsyncFleet, Backend, ExecutorRemoved, KillExecutors, LossKind, RegisterExecutor, Settings
from actors.examples.registration.executor import BEAT_EVERY, LOST_DRIVER_LIMIT, SILENCE_LIMIT, End
from actors.examples.registration.listener import START_LIMIT, BackendDoor
from actors.testing import FakeCluster, Kit
from tests.unit.examples.virtual import Driver, hello, settle

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
