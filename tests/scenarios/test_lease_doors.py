"""Leases through `Fleet` and `AsyncFleet`, in virtual time: each scenario runs on both, with one outcome."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from actors.errors import ExecutorLost, FleetEnded, Refused, Unreachable, WaitTimeout
from actors.local.kubelet.scripted_kubelet import StayUnscheduled
from actors.messages import ExecutorAcquired, ExecutorRemoved, LeaseLost
from actors.pods.loss import LossKind
from tests.scenarios.doors import KINDS, Stage

both = pytest.mark.parametrize("kind", KINDS)


def alive(stage: Stage) -> list[int]:
    return sorted(executor_id for executor_id, phase in stage.cluster.phases.items() if phase == "Running")


async def heard(fleet: Any, kind: type) -> None:
    """Wait until an event of this kind comes."""
    async for event in fleet.events():
        if isinstance(event, kind):
            return


@both
def test_a_block_has_an_executor_that_is_replaced_at_once_and_ended_afterwards(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(warm=2) as fleet:
            async with fleet.acquire(timeout="30s") as executor:
                assert (executor.id, executor.lease.executor.ip) == (1, executor.ip)
                await fleet.wait_for(running=3)
                assert alive(stage) == [1, 2, 3]
            await heard(fleet, ExecutorRemoved)
            assert alive(stage) == [2, 3]

    stage.run(program())
    assert stage.cluster.pods == {}
    assert stage.cluster.most_alive == 3


@both
def test_the_end_of_a_block_says_that_its_executor_was_lost_and_why(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(warm=1) as fleet:
            with pytest.raises(ExecutorLost) as lost:  # noqa: PT012 - the block is what raises it
                async with fleet.acquire() as executor:
                    executor.lease.check()
                    stage.cluster.oom(executor.id)
                    await heard(fleet, LeaseLost)
                    with pytest.raises(ExecutorLost):
                        executor.lease.check()
                    raise ConnectionResetError("the sandbox is gone")
            assert str(lost.value) == lost.value.reason.message
            assert lost.value.reason.kind is LossKind.OOM_KILLED
            assert isinstance(lost.value.__cause__, ConnectionResetError)
            assert not await fleet.release(executor.lease)

    stage.run(program())


@both
def test_an_executor_is_offered_again_after_it_was_reset_and_ended_if_that_fails(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage, resets = Stage(kind), list[int]()

    def reset(executor: Any) -> None:
        resets.append(executor.id)
        if len(resets) == 2:
            raise OSError("the disk is full")

    async def program() -> list[int]:
        used = []
        async with stage.fleet(warm=0, max_executors=1) as fleet:
            for _ in range(3):
                async with fleet.acquire(reset=reset) as executor:
                    used.append(executor.id)
        return used

    assert stage.run(program()) == [1, 1, 2]
    assert resets == [1, 1, 2]
    assert "reset failed, the executor is not offered again: executor=1" in caplog.text


@both
def test_a_block_that_failed_does_not_give_its_executor_to_others(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(warm=0, max_executors=1) as fleet:
            with pytest.raises(ValueError, match="a bug"):
                async with fleet.acquire(reuse=True):
                    raise ValueError("a bug")
            async with fleet.acquire() as executor:
                assert executor.id == 2

    stage.run(program())


@both
def test_who_waits_too_long_reads_what_holds_it_up(kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: StayUnscheduled())

    async def program() -> None:
        stage.cluster.quota(0)
        async with stage.fleet(warm=0) as fleet:
            with pytest.raises(WaitTimeout, match=r"no executor of profile 'default' was ready in time: .*quota"):
                await fleet.acquire_lease(timeout=5)
            with pytest.raises(ValueError, match="timeout = 'soon'"):
                await fleet.acquire_lease(timeout="soon")
            with pytest.raises(Refused, match=r"AcquireExecutor.profile has 'gpu': must be a profile with `warm`"):
                await fleet.acquire_lease("gpu")
            with pytest.raises(Refused, match="its target follows its leases; SetWarm sets how many are warm"):
                await fleet.scale(4)

    stage.run(program())


@both
def test_a_lease_without_a_block_is_renewed_and_released(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(warm=1) as fleet:
            lease = await fleet.acquire_lease(ttl="10s", holder="a test")
            assert await fleet.renew(lease)
            assert await fleet.release(lease)
            short = await fleet.acquire_lease(ttl="10s")
            with pytest.raises(WaitTimeout):
                await fleet.wait_for(registered=1, timeout="11s")
            with pytest.raises(ExecutorLost, match=f"the lease of executor {short.executor.id} has expired"):
                short.check()
            assert not await fleet.renew(short, "10s")

    stage.run(program())


@both
def test_warm_executors_may_be_more_or_fewer_at_any_time(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(warm=0) as fleet:
            await fleet.warm(3)
            await fleet.wait_for(running=3)
            await fleet.warm({"default": 1})
            assert fleet.profiles["default"].target == 1
            with pytest.raises(WaitTimeout):
                await fleet.wait_for(running=1, registered=1, timeout="70s")
            assert len(alive(stage)) == 1

    stage.run(program())


@both
def test_readers_of_events_get_losses_and_not_the_answers_to_the_program(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> list[type]:
        async with stage.fleet(warm=1) as fleet:
            events = fleet.events()
            lease = await fleet.acquire_lease()
            stage.cluster.fail(lease.executor.id)
            await fleet.wait_for(running=1)
            with pytest.raises(WaitTimeout):
                await fleet.wait_for(registered=1, timeout="1s")
        return [type(event) async for event in events]

    seen = stage.run(program())
    assert ExecutorAcquired not in seen
    assert seen.index(LeaseLost) == seen.index(ExecutorRemoved) + 1


@both
def test_a_lease_of_a_fleet_that_has_ended_cannot_be_given_back(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(warm=1) as fleet:
            with pytest.raises(FleetEnded):
                async with fleet.acquire():
                    await fleet.stop()
            with pytest.raises(FleetEnded):
                await fleet.acquire_lease()

    stage.run(program())


def test_a_cancelled_wait_blocks_nobody_and_a_stop_ends_all_waits() -> None:
    stage = Stage("asyncio")

    async def program() -> None:
        async with stage.fleet(warm=0, max_executors=1) as fleet:
            held = await fleet.acquire_lease()
            waits = [asyncio.create_task(fleet.acquire_lease()) for _ in range(4)]
            await fleet.status()
            waits[0].cancel()
            await fleet.status()
            assert await fleet.release(held)
            second = await waits[1]
            waits[2].cancel()
            await fleet.release(second, reuse=True)
            third = await waits[3]
            assert second.executor.id == third.executor.id
            last = asyncio.create_task(fleet.acquire_lease())
            await fleet.status()
            await fleet.stop()
            with pytest.raises(Unreachable, match="the fleet stops"):
                await last
            assert [wait.cancelled() for wait in waits] == [True, False, True, False]

    stage.run(program())


def test_a_wait_that_is_cancelled_before_it_is_answered_leases_nothing() -> None:
    stage = Stage("asyncio")

    async def program() -> None:
        async with stage.fleet(warm=1, max_executors=1) as fleet:
            await fleet.wait_for(running=1)
            task = asyncio.create_task(fleet.acquire_lease())
            await asyncio.sleep(0)
            task.cancel()
            lease = await fleet.acquire_lease(timeout=timedelta(seconds=1))
            assert lease.executor.id == 1
            assert task.cancelled()

    stage.run(program())
