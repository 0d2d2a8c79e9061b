"""Thousands of short lives in virtual time, in which everything goes wrong that can.

`STRESS_SEED` is the first seed, `STRESS_SEEDS` how many are lived, `STRESS_PROCESSES` how many processes live them. A
seed that breaks something is printed with its steps, and breaks it each time. A few: tests/scenarios/test_chaos.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from actors.pods.loss import LossKind
from tests.scenarios.chaos_run import DRAWS, run

if TYPE_CHECKING:
    from tests.scenarios.chaos_run import Tally

pytestmark = pytest.mark.stress

FIRST: Final = int(os.environ.get("STRESS_SEED", "0"))

SEEDS: Final = int(os.environ.get("STRESS_SEEDS", "10000"))

PROCESSES: Final = int(os.environ.get("STRESS_PROCESSES", "0")) or os.cpu_count() or 1

ON_THREADS: Final = 200

ENOUGH: Final = 500
"""Lives in which everything must have happened at least once."""


def test_no_invariant_breaks_in_thousands_of_lives() -> None:
    check(run(range(FIRST, FIRST + SEEDS), processes=PROCESSES))


def test_no_invariant_breaks_on_real_threads() -> None:
    check(run(range(FIRST, FIRST + min(SEEDS, ON_THREADS)), threads=True, processes=PROCESSES))


def check(tally: Tally) -> None:
    """Nothing broke, and there was enough that could have."""
    print(f"\n{tally}")
    assert [life.seed for life in tally.failed] == []
    if tally.counts["lives"] >= ENOUGH:
        assert {kind.name for kind in LossKind} <= tally.counts.keys()
        assert tally.steps.keys() == DRAWS.keys()
