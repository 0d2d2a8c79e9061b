"""Programs that are no actors, written for production, in an open kit."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors import AsyncFleet, Fleet
from actors.errors import FleetEnded

if TYPE_CHECKING:
    from actors.testing import FakeCluster, Kit


def test_a_program_with_a_fleet_runs_in_virtual_time(kit: Kit, cluster: FakeCluster) -> None:
    with Fleet(image="any", instances=2) as fleet:
        fleet.wait_for(running=2)
        kit.after(lambda: cluster.fail(1), seconds=30)
        time.sleep(60)
        assert sorted(fleet.executors) == [2, 3]
    assert cluster.pods == {}
    assert timedelta(minutes=1) < kit.clock.elapsed < timedelta(minutes=2)


def test_a_program_with_an_async_fleet_runs_in_virtual_time(kit: Kit, cluster: FakeCluster) -> None:
    async def program() -> list[int]:
        async with AsyncFleet(image="any", instances=2) as fleet:
            await fleet.wait_for(running=2)
            kit.after(lambda: cluster.fail(1), seconds=30)
            await asyncio.sleep(60)
            return sorted(fleet.executors)

    assert kit.run(program()) == [2, 3]
    assert cluster.pods == {}


def test_a_program_without_a_cluster_is_an_error(kit: Kit) -> None:
    with pytest.raises(FleetEnded, match=r"make a FakeCluster\(kit\) first"), Fleet(image="any"):
        pass
