"""Losses that are not replaced: the target falls by exactly what was lost, and nothing is created and taken back.

A seed draws losses of every kind, the driver's kills and retirements, crashes of actors, and how late things are seen.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors.kube import Create
from actors.messages import (
    ExecutorRemoved,
    ExecutorState,
    GetExecutors,
    GetFleetStatus,
    KillExecutors,
    RetireExecutors,
)
from actors.pods.loss_kind import LossKind
from actors.pods.pod import PROFILE_LABEL
from tests.scenarios.fleets import name
from tests.scenarios.seeds import PAUSES, crash_one, lag, seeds
from tests.scenarios.world import World

if TYPE_CHECKING:
    from actors.kube import Request

STEPS: Final = 14
START: Final = {"default": 6, "some": 5, "all": 3}
REPLACED: Final = {
    "default": frozenset[LossKind](),
    "some": frozenset({LossKind.EVICTED, LossKind.OOM_KILLED}),
    "all": frozenset(LossKind),
}
ENDING: Final = (ExecutorState.TERMINATING, ExecutorState.ENDED)


class Losses:
    """One fleet of three profiles, and what was created for it."""

    def __init__(self, seed: int, *, drains: bool) -> None:
        self.random = Random(seed)
        profiles: Any = {
            "some": {"instances": START["some"], "replace": [*REPLACED["some"]]},
            "all": {"instances": START["all"], "replace": "always"},
        }
        executor: dict[str, Any] = {"instances": START["default"], "replace": "never", "kill_grace_period": "1s"}
        executor |= {"failures_validity_interval": "1s"}
        if drains:
            executor["drain_timeout"] = "3s"
        self.world = World(seed, executor=executor, profiles=profiles, allocation={"batch_size": 20})
        self.world.invariants.retarget(START)
        self.created: dict[str, str] = {}
        """The profile of each pod that was requested."""
        self.world.api.on_request = self.note

    def note(self, request: Request[Any]) -> None:
        """The backend asks for a pod of a profile."""
        if isinstance(request, Create):
            metadata = request.manifest["metadata"]
            self.created[metadata["name"]] = metadata["labels"][PROFILE_LABEL]
            self.world.invariants.asked_for(metadata["name"], metadata["labels"][PROFILE_LABEL])

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def lose(self) -> None:
        if running := self.world.pods("Running"):
            for pod in self.random.sample(running, self.random.randint(1, min(3, len(running)))):
                self.lose_one(pod["metadata"]["name"])

    def lose_one(self, pod: str) -> None:
        self.world.invariants.taken_by_others(pod)
        kubelet, store = self.world.kubelet, self.world.store
        ways = (
            lambda: kubelet.exit(pod, self.random.choice((0, 1))),
            lambda: kubelet.oom(pod),
            lambda: kubelet.evict(pod),
            lambda: store.delete("pods", "default", pod),
        )
        self.random.choice(ways)()

    def some_ids(self) -> tuple[int, ...]:
        alive = [each.id for each in self.world.ask(GetExecutors()).alive if each.state not in ENDING]
        return tuple(self.random.sample(alive, min(len(alive), self.random.randint(0, 2))))

    def kill(self) -> None:
        self.world.ask(KillExecutors(self.some_ids()))

    def retire(self) -> None:
        ids = self.some_ids()
        for executor_id in ids:
            self.world.invariants.retires(name(executor_id))
        self.world.ask(RetireExecutors(ids, deadline=timedelta(seconds=self.random.choice((0.5, 2)))))

    def crash(self) -> None:
        crash_one(self.random, self.world)

    def lag(self) -> None:
        lag(self.random, self.world)

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def said(self) -> dict[str, int]:
        profiles = self.world.ask(GetFleetStatus()).profiles
        return {profile: profiles[profile].target for profile in START}

    def run(self) -> None:
        self.world.advance(2)
        for _ in range(STEPS):
            self.random.choice((self.lose, self.lose, self.kill, self.retire, self.crash, self.lag))()
            self.world.advance(self.random.choice(PAUSES))
        self.world.api.lag = timedelta()
        self.world.advance(120)
        self.check()

    def check(self) -> None:
        removals = self.world.heard(ExecutorRemoved)
        for removal in removals:
            assert removal.lowered_target == (removal.reason.kind not in REPLACED[removal.profile])
        lowered = Counter(removal.profile for removal in removals if removal.lowered_target)
        assert self.said() == {profile: START[profile] - lowered[profile] for profile in START}
        replaced = Counter(removal.profile for removal in removals if not removal.lowered_target)
        created = Counter(self.created.values())
        alive = {pod["metadata"]["name"]: pod["metadata"]["labels"][PROFILE_LABEL] for pod in self.world.pods()}
        known = {*alive, *(name(removal.executor_id) for removal in removals)}
        untold = Counter(profile for pod, profile in self.created.items() if pod not in known)  # came and went unseen
        for profile in START:
            assert Counter(alive.values())[profile] == self.said()[profile]
            more = replaced[profile] + untold[profile]
            assert created[profile] == START[profile] + more, "nothing is created and taken back"


@pytest.mark.parametrize("drains", [False, True], ids=["ends", "drains"])
@pytest.mark.parametrize("seed", seeds(4, of=1_000))
def test_the_target_falls_by_what_was_lost_and_nothing_is_created_and_taken_back(seed: int, drains: bool) -> None:
    losses = Losses(seed, drains=drains)
    with losses.world:
        losses.run()
