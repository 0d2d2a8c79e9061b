"""Random sequences of what sets a target and what ends executors: the target is always what was said last.

A seed draws the driver's messages (scale, targets, kills with and without `adjust_target`, busy and idle executors),
losses, and how late pods start and are seen. At the end the fleet settles at its target.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors.kube import Create
from actors.local.kubelet.scripted_kubelet import Run, StayWaiting
from actors.messages import (
    ExecutorBusy,
    ExecutorIdle,
    ExecutorState,
    GetExecutors,
    GetFleetStatus,
    KillExecutors,
    RegisterExecutor,
    RequestTotalExecutors,
    ScaleExecutors,
)
from actors.pods.pod import PROFILE_LABEL
from tests.scenarios.fleets import name
from tests.scenarios.seeds import PAUSES, lag, seeds
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube import Request
    from actors.messages import Executor

STEPS: Final = 16
PROFILES: Final = ("default", "gpu")
MOST: Final = 8
ENDING: Final = (ExecutorState.TERMINATING, ExecutorState.ENDED)


class Sequence:
    """One fleet, and what the driver has said of it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.target = {"default": 3, "gpu": 1}
        self.busy: set[int] = set()
        lowest = {"instances": 1, "image": "worker:1"}
        self.world = World(seed, executor={"instances": 3, "kill_grace_period": "1s"}, profiles={"gpu": lowest})
        self.world.invariants.retarget(self.target)
        self.world.kubelet.script = lambda _: self.plan()
        self.world.api.on_request = self.note

    def note(self, request: Request[Any]) -> None:
        """The backend asks for a pod of a profile."""
        if isinstance(request, Create):
            metadata = request.manifest["metadata"]
            self.world.invariants.asked_for(metadata["name"], metadata["labels"][PROFILE_LABEL])

    def plan(self) -> Run | StayWaiting:
        """What becomes of a pod."""
        if self.random.random() < 0.1:
            return StayWaiting()
        return Run(start_delay=timedelta(seconds=self.random.choice((0.01, 0.7, 3.0))))

    def executors(self, profile: str | None = None) -> list[Executor]:
        """The living ones that nobody ends, as the driver is told of them."""
        alive = self.world.ask(GetExecutors()).alive
        return [each for each in alive if each.state not in ENDING and profile in (None, each.profile)]

    def in_use(self, profile: str) -> list[Executor]:
        return [each for each in self.executors(profile) if each.registered or each.state is ExecutorState.RUNNING]

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def scale(self) -> None:
        profile, total = self.random.choice(PROFILES), self.random.randint(0, MOST)
        victims, may_go = self.policy()
        self.aim({**self.target, profile: total})
        among = self.in_use(profile)
        ended = self.world.ask(ScaleExecutors({profile: total}, victims, timedelta(seconds=1)))
        candidates = [each.id for each in among if may_go(each)]
        assert len(ended) == max(0, min(len(among) - total, len(candidates))), "neither too few nor too many"
        assert set(ended) <= {*candidates}

    def policy(self) -> tuple[Any, Callable[[Executor], bool]]:
        """An order of victims, and whom it may choose."""
        odd = self.random.randint(0, 1)
        return self.random.choice(
            [
                ("newest", lambda _: True),
                ("oldest", lambda _: True),
                ("idle", lambda each: each.id not in self.busy),
                (lambda each: each.id, lambda _: True),
                (lambda each: None if each.id % 2 == odd else -each.id, lambda each: each.id % 2 != odd),
            ]
        )

    def set_all(self) -> None:
        totals = {profile: self.random.randint(0, MOST) for profile in PROFILES if self.random.random() < 0.7}
        self.aim({profile: totals.get(profile, 0) for profile in PROFILES})
        self.world.backend.tell(RequestTotalExecutors(totals))

    def set_some(self) -> None:
        totals = {self.random.choice(PROFILES): self.random.randint(0, MOST)}
        self.aim({**self.target, **totals})
        self.world.backend.tell(RequestTotalExecutors(totals, keep_others=True))

    def kill(self) -> None:
        ids = [each.id for each in self.executors()]
        self.world.ask(KillExecutors(tuple(self.random.sample(ids, min(len(ids), 2)))))

    def kill_for_good(self) -> None:
        """Each lowers the target by one, unless it is in excess."""
        before = self.executors()
        chosen = {each.id for each in self.random.sample(before, self.random.randint(0, min(len(before), 3)))}
        self.world.ask(KillExecutors(tuple(chosen), adjust_target=True))
        after = self.said()
        for profile in PROFILES:
            there = [each.id for each in before if each.profile == profile]
            killed, total = len(chosen & {*there}), self.target[profile]
            assert max(0, total - killed) <= after[profile] <= total
            if len(there) <= total:
                assert after[profile] == total - killed
        self.aim(after)

    def lose(self) -> None:
        running = self.world.pods("Running")
        if running:
            pod = self.random.choice(running)["metadata"]["name"]
            self.world.invariants.taken_by_others(pod)
            kubelet = self.world.kubelet
            self.random.choice((lambda: kubelet.exit(pod, 1), lambda: kubelet.oom(pod), lambda: kubelet.evict(pod)))()

    def work(self) -> None:
        for each in self.executors():
            if self.random.random() < 0.5:
                self.busy.add(each.id)
                self.world.backend.tell(ExecutorBusy(each.id))

    def rest(self) -> None:
        for executor_id in sorted(self.busy):
            if self.random.random() < 0.5:
                self.busy.discard(executor_id)
                self.world.backend.tell(ExecutorIdle(executor_id))

    def connect(self) -> None:
        for each in self.executors():
            if each.state is ExecutorState.RUNNING and self.random.random() < 0.5:
                self.world.backend.tell(RegisterExecutor(each.id))

    def lag(self) -> None:
        lag(self.random, self.world)

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def aim(self, totals: dict[str, int]) -> None:
        """The driver is about to say so. What was requested before may come up, and counts under the target of then."""
        for each in self.executors():
            if each.state is ExecutorState.REQUESTED:
                self.world.invariants.asked_for(name(each.id), each.profile)
        self.target = totals
        self.world.invariants.retarget(totals)

    def said(self) -> dict[str, int]:
        profiles = self.world.ask(GetFleetStatus()).profiles
        return {profile: profiles[profile].target if profile in profiles else 0 for profile in PROFILES}

    def run(self) -> None:
        steps = (self.scale, self.scale, self.scale, self.set_all, self.set_some, self.kill, self.kill_for_good)
        others = (self.lose, self.work, self.rest, self.connect, self.lag)
        self.world.advance(2)
        for _ in range(STEPS):
            self.random.choice(steps + others)()
            self.world.kit.settle()
            assert self.said() == self.target
            self.world.advance(self.random.choice(PAUSES))
            assert self.said() == self.target
        self.settle_down()

    def settle_down(self) -> None:
        """The last word is to scale; nobody is busy, and every pod starts."""
        self.world.api.lag = timedelta()
        self.world.kubelet.script = lambda _: Run()
        self.world.ask(ScaleExecutors(self.target, "idle", timedelta(seconds=1)))
        for executor_id in self.busy:
            self.world.backend.tell(ExecutorIdle(executor_id))
        self.world.advance(120)
        assert self.said() == self.target
        for profile in PROFILES:
            ids = [each.id for each in self.executors(profile)]
            assert len(ids) == self.target[profile]
            assert {name(executor_id) for executor_id in ids} <= {pod["metadata"]["name"] for pod in self.world.pods()}
        assert len(self.world.pods()) == sum(self.target.values())


@pytest.mark.parametrize("seed", seeds(4, of=1_000))
def test_the_target_is_what_was_said_last_and_is_reached(seed: int) -> None:
    sequence = Sequence(seed)
    with sequence.world:
        sequence.run()
