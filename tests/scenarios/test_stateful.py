"""Allocator, LifecycleManager and Backend together, while driver, cluster and network do anything at any time.

`chaos` says what must hold, `machine` what can happen, `planted` which bugs must be found.
`EXECUTOR_PODS_PROFILE=deep` tries thousands of lives, other ones each time.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from actors.pods.loss import LossKind
from tests.scenarios.chaos import Broken, Chaos
from tests.scenarios.machine import FleetMachine
from tests.scenarios.planted import BUGS, SIGNS

if TYPE_CHECKING:
    from tests.scenarios.planted import Bug

DEEP = os.environ.get("EXECUTOR_PODS_PROFILE") == "deep"

LIVES = settings(
    max_examples=1_000 if DEEP else 10,
    stateful_step_count=60 if DEEP else 40,
    deadline=None,
    derandomize=not DEEP,
    database=None,
    suppress_health_check=list(HealthCheck),
)

SEARCH = settings(LIVES, max_examples=100, stateful_step_count=30, derandomize=True, phases=(Phase.generate,))
"""Within so many lives each planted bug must be found; most show in the first ten."""


SEEDS = range(random.getrandbits(32), 1 << 33)[:5] if DEEP else range(5)
"""Hypothesis stays near what it has tried: several beginnings come to more than one of as many lives."""


def test_no_invariant_breaks_whatever_happens() -> None:
    FleetMachine.lives.clear()
    for number in SEEDS:
        machine = type(FleetMachine.__name__, (FleetMachine,), {})  # the seed sticks to the class
        run_state_machine_as_test(seed(number)(machine), settings=LIVES)
    never = {kind.name for kind in LossKind} - {LossKind.MISSING.name} - FleetMachine.lives.keys()
    assert not never, f"a machine that never comes to the hard cases proves nothing: {FleetMachine.lives}"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.kind}-{bug.broken.__name__}".replace("_", "-"))
def test_a_planted_bug_is_found_by_what_it_breaks(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chaos, "heed", SIGNS[bug.kind])
    with bug.planted(), pytest.raises(Broken):
        run_state_machine_as_test(FleetMachine, settings=SEARCH)
