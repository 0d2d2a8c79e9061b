"""Allocator, LifecycleManager and Backend together, while driver, cluster and network do anything at any time.

`chaos` says what must hold, `machine` what can happen. Hypothesis draws it and shortens what breaks; seeds draw it in
test_chaos.py. `EXECUTOR_PODS_PROFILE=deep` tries thousands of lives, other ones each time.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.scenarios.machine import FleetMachine

DEEP = os.environ.get("EXECUTOR_PODS_PROFILE") == "deep"

LIVES = settings(
    max_examples=1_000 if DEEP else 3,
    stateful_step_count=60 if DEEP else 40,
    deadline=None,
    derandomize=not DEEP,
    database=None,
    suppress_health_check=list(HealthCheck),
)

SEEDS = range(random.getrandbits(32), 1 << 33)[:5] if DEEP else range(2)
"""Hypothesis stays near what it has tried: several beginnings come to more than one of as many lives."""


def test_no_invariant_breaks_whatever_happens() -> None:
    for number in SEEDS:
        machine = type(FleetMachine.__name__, (FleetMachine,), {})  # the seed sticks to the class
        run_state_machine_as_test(seed(number)(machine), settings=LIVES)
