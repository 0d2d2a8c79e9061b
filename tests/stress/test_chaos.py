"""Thousands of short lives in virtual time, in which everything goes wrong that can.

Fifty seeds are part of the default suite, the rest is not. `STRESS_SEED` is the first seed, `STRESS_SEEDS` how many
are lived, `STRESS_PROCESSES` how many processes live them. A seed that breaks something is printed with its steps, and
breaks it each time.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import pytest

from actors.pods.loss import LossKind
from tests.scenarios.chaos import Chaos
from tests.scenarios.machine import FleetMachine
from tests.scenarios.planted import BUGS, SIGNS
from tests.stress.chaos_run import DRAWS, live, lives, run

if TYPE_CHECKING:
    from tests.scenarios.planted import Bug
    from tests.stress.chaos_run import Tally

FIRST: Final = int(os.environ.get("STRESS_SEED", "0"))

SEEDS: Final = int(os.environ.get("STRESS_SEEDS", "10000"))

PROCESSES: Final = int(os.environ.get("STRESS_PROCESSES", "0")) or os.cpu_count() or 1

FEW: Final = 50
"""Of the default suite."""

ON_THREADS: Final = 200

WITHIN: Final = 200
"""So many seeds find each planted bug; most find it in the first three."""

ENOUGH: Final = 500
"""Lives in which everything must have happened at least once."""


def test_every_rule_of_the_machine_is_drawn() -> None:
    public = {name for name, value in vars(FleetMachine).items() if callable(value) and not name.startswith("_")}
    assert DRAWS.keys() == public - {"teardown"} | {"anything_may_fail"}


def test_no_invariant_breaks_in_fifty_lives() -> None:
    check(run(range(FEW)))


@pytest.mark.stress
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.kind}-{bug.broken.__name__}".replace("_", "-"))
def test_a_planted_bug_is_found_by_some_seed(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = SIGNS[bug.kind]
    monkeypatch.setattr(Chaos, "heed", sign)
    with bug.planted():
        found = next((life for life in lives(range(WITHIN)) if re.search(sign, life.violation, re.MULTILINE)), None)
    assert found is not None, f"no seed of {WITHIN} finds it"


def test_a_seed_draws_the_same_life_in_another_process_and_on_threads() -> None:
    seeds = range(4)
    here = [live(seed) for seed in seeds]
    assert len({life.trace for life in here}) == len(seeds)
    assert [live(seed, threads=True) for seed in seeds] == here
    assert list(lives(seeds, processes=1)) == here


@pytest.mark.stress
def test_no_invariant_breaks_in_thousands_of_lives() -> None:
    check(run(range(FIRST, FIRST + SEEDS), processes=PROCESSES))


@pytest.mark.stress
def test_no_invariant_breaks_on_real_threads() -> None:
    check(run(range(FIRST, FIRST + min(SEEDS, ON_THREADS)), threads=True, processes=PROCESSES))


def check(tally: Tally) -> None:
    """Nothing broke, and there was enough that could have."""
    print(f"\n{tally}")
    assert [life.seed for life in tally.failed] == []
    if tally.counts["lives"] >= ENOUGH:
        assert {kind.name for kind in LossKind} <= tally.counts.keys()
        assert tally.steps.keys() == DRAWS.keys()
