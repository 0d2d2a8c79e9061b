"""Leases, whatever is lost and whoever crashes: nobody shares an executor, all are served in turn, the pool comes back.

A seed draws what holders do, losses of every kind, crashes of actors, and how late things are seen.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors.messages import (
    AcquireExecutor,
    AcquireRefused,
    CancelAcquire,
    ExecutorAcquired,
    ExecutorRemoved,
    ExecutorTerminating,
    GetExecutors,
    GetFleetStatus,
    KillExecutors,
    LeaseExpired,
    LeaseLost,
    ReleaseExecutor,
    RenewLease,
    SetWarm,
)
from tests.scenarios.seeds import PAUSES, crash_one, lag, seeds
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.pods.loss import LossReason

STEPS: Final = 30
WARM, MOST, MOST_LEASES = 3, 6, 2


class Holders:
    """A driver whose tasks lease executors. It knows who waits and who has what from what it is told."""

    def __init__(self, seed: int, **executor: Any) -> None:
        self.random = Random(seed)
        shape = {"instances": 0, "warm": WARM, "max_executors": MOST, "failures_validity_interval": "1s", **executor}
        self.world = World(seed, executor=shape, allocation={"idle_timeout": "5s"})
        self.world.invariants.retarget(MOST)
        self.waiting: list[int] = []
        self.held: dict[int, int] = {}
        self.answered: set[int] = set()
        self.times: Counter[int] = Counter()
        self.ending: set[int] = set()
        self.ended: dict[int, LossReason] = {}
        self.read = 0

    # ── what it is told ──────────────────────────────────────────────────────────────────────────────────────────

    def news(self) -> Iterable[object]:
        heard = self.world.heard(object)
        news, self.read = heard[self.read :], len(heard)
        return news

    def catch_up(self) -> None:
        """Take in what was told, and check it."""
        for message in self.news():
            match message:
                case ExecutorAcquired(lease, executor):
                    self.answers(lease)
                    assert executor.id not in self.held.values(), f"executor {executor.id} has two leases"
                    assert executor.ip is not None
                    assert executor.id not in self.ending, "an executor is leased that ends"
                    self.times[executor.id] += 1
                    assert self.times[executor.id] <= MOST_LEASES
                    self.held[lease] = executor.id
                case AcquireRefused(lease):
                    self.answers(lease, is_refused=True)
                case LeaseLost(lease, executor_id, reason):
                    assert self.held.pop(lease) == executor_id
                    assert self.ended[executor_id] == reason
                case LeaseExpired(lease, executor_id):
                    assert self.held.pop(lease) == executor_id
                case ExecutorTerminating(executor_id):
                    self.ending.add(executor_id)
                case ExecutorRemoved(executor_id, reason):
                    self.ending.add(executor_id)
                    self.ended[executor_id] = reason
                case _:
                    pass

    def answers(self, lease: int, *, is_refused: bool = False) -> None:
        """A request is answered: once, and granted only if none waits that is older."""
        assert lease not in self.answered
        self.answered.add(lease)
        if lease in self.waiting:
            assert is_refused or self.waiting[0] == lease, "another one waits for longer"
            self.waiting.remove(lease)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self) -> None:
        draw = self.random.choice
        timeout, ttl = draw((None, None, 0, 1, 5)), draw((None, None, 2, 10))
        message = AcquireExecutor(
            timeout=None if timeout is None else timedelta(seconds=timeout),
            ttl=None if ttl is None else timedelta(seconds=ttl),
        )
        lease = self.world.ask(message)
        self.waiting.append(lease)  # before the news: it may have been granted at once
        self.catch_up()

    def release(self) -> None:
        for lease in self.some(self.held):
            if self.world.ask(ReleaseExecutor(lease, reuse=self.random.random() < 0.5)):
                self.held.pop(lease)
            self.catch_up()
            assert lease not in self.held

    def cancel(self) -> None:
        for lease in self.some([*self.waiting, *self.held]):
            if self.world.ask(CancelAcquire(lease)):
                self.held.pop(lease, None)
            self.catch_up()
            assert lease not in self.held
            assert lease not in self.waiting

    def renew(self) -> None:
        for lease in self.some(self.held):
            is_held = self.world.ask(RenewLease(lease, timedelta(seconds=3)))
            self.catch_up()
            assert is_held == (lease in self.held)

    def set_warm(self) -> None:
        self.world.ask(SetWarm(self.random.randint(0, 4)))

    def lose(self) -> None:
        if running := self.world.pods("Running"):
            pod = self.random.choice(running)["metadata"]["name"]
            self.world.invariants.taken_by_others(pod)
            kubelet, store = self.world.kubelet, self.world.store
            ways = (
                lambda: kubelet.exit(pod, self.random.choice((0, 1))),
                lambda: kubelet.oom(pod),
                lambda: kubelet.evict(pod),
                lambda: store.delete("pods", "default", pod),
            )
            self.random.choice(ways)()

    def kill(self) -> None:
        alive = [each.id for each in self.world.ask(GetExecutors()).alive]
        self.world.ask(KillExecutors(tuple(self.some(alive)), adjust_target=self.random.random() < 0.5))

    def crash(self) -> None:
        crash_one(self.random, self.world)

    def lag(self) -> None:
        lag(self.random, self.world)

    def some(self, numbers: Iterable[int]) -> list[int]:
        known = sorted(numbers)
        return self.random.sample(known, min(len(known), self.random.randint(0, 2)))

    def target(self) -> int:
        total: int = self.world.ask(GetFleetStatus()).profiles["default"].target
        return total

    def run(self) -> None:
        self.world.advance(2)
        asks, gives = (self.acquire, self.acquire, self.acquire), (self.release, self.release, self.cancel, self.renew)
        for _ in range(STEPS):
            self.random.choice((*asks, *gives, self.set_warm, self.lose, self.kill, self.crash, self.lag))()
            self.world.advance(self.random.choice(PAUSES))
            self.catch_up()
            assert self.target() <= MOST

    def rest(self) -> None:
        """Nothing disturbs any more: all that wait are served in turn, and the pool is as large as it should be."""
        self.world.api.lag = timedelta()
        self.world.ask(SetWarm(WARM))
        while self.waiting or self.held:
            before = len(self.answered), len(self.held)
            for lease in sorted(self.held):
                self.held.pop(lease)
                self.world.ask(ReleaseExecutor(lease))
                self.catch_up()
            self.world.advance(30)
            self.catch_up()
            assert (len(self.answered), len(self.held)) != before, "nobody is served any more"
        self.world.advance(60)
        assert self.target() == WARM
        assert WARM - 1 <= self.world.running() <= WARM, "at most one that is too old is being replaced"
        leases = [self.world.ask(AcquireExecutor(timeout=timedelta(seconds=2))) for _ in range(WARM)]
        self.waiting += leases
        self.world.advance(2)
        self.catch_up()
        assert sorted(self.held) == leases, "warm executors are ready"


@pytest.mark.parametrize("seed", seeds(4, of=1_000))
def test_nobody_shares_an_executor_and_the_pool_comes_back(seed: int) -> None:
    holders = Holders(seed, max_leases=MOST_LEASES, max_age="20s")
    with holders.world:
        holders.run()
        holders.rest()


def test_executors_that_an_earlier_driver_may_have_leased_are_replaced() -> None:
    holders = Holders(0)
    world = holders.world
    with world:
        world.advance(2)
        holders.acquire()
        world.advance(2)
        world.stop(delete_pods=False)
        world.restart()
        world.advance(60)
        earlier = [removal for removal in world.heard(ExecutorRemoved) if removal.executor_id <= WARM + 1]
        assert len(earlier) == WARM + 1
        assert all("was ended, as an earlier driver may have leased it" in each.reason.message for each in earlier)
        assert world.running() == WARM
        granted = world.ask(AcquireExecutor())
        (acquired,) = world.heard(ExecutorAcquired)
        assert acquired.lease == granted
        assert acquired.executor.id > WARM + 1


def test_a_burst_is_served_and_its_executors_stay_until_they_were_idle_for_a_while() -> None:
    holders = Holders(0)
    world = holders.world
    with world:
        world.advance(2)
        leases = [world.ask(AcquireExecutor()) for _ in range(MOST)]
        world.advance(3)
        assert [each.lease for each in world.heard(ExecutorAcquired)] == leases
        for lease in leases:
            world.ask(ReleaseExecutor(lease, reuse=True))
        world.advance(4)
        assert (world.running(), world.heard(ExecutorTerminating)) == (MOST, [])
        world.advance(10)
        assert world.running() == WARM
