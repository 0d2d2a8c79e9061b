"""Short lives in virtual time, in which everything goes wrong that can: a seed each, and a bug to find in some.

Thousands more: tests/stress/test_chaos.py, where a seed that breaks something can be lived again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.scenarios.chaos import Chaos
from tests.scenarios.chaos_run import DRAWS, live, lives, run
from tests.scenarios.machine import FleetMachine
from tests.scenarios.planted import BUGS, SIGNS

if TYPE_CHECKING:
    from tests.scenarios.planted import Bug

FEW: Final = 6

WITHIN: Final = 200
"""So many seeds find each planted bug; most find it in the first three."""


def test_every_rule_of_the_machine_is_drawn() -> None:
    public = {name for name, value in vars(FleetMachine).items() if callable(value) and not name.startswith("_")}
    assert DRAWS.keys() == public - {"teardown"} | {"anything_may_fail"}


def test_no_invariant_breaks_in_a_few_lives() -> None:
    assert [life.seed for life in run(range(FEW)).failed] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.kind}-{bug.broken.__name__}".replace("_", "-"))
def test_a_planted_bug_is_found_by_what_it_breaks(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = SIGNS[bug.kind]
    monkeypatch.setattr(Chaos, "heed", sign)
    with bug.planted():
        found = next(
            (
                life
                for life in lives(range(bug.begins, bug.begins + WITHIN))
                if re.search(sign, life.violation, re.MULTILINE)
            ),
            None,
        )
    assert found is not None, f"no seed of {WITHIN} finds it"


def test_a_seed_draws_the_same_life_in_another_process_and_on_threads() -> None:
    seeds = range(2)
    here = [live(seed) for seed in seeds]
    assert len({life.trace for life in here}) == len(seeds)
    assert live(0, threads=True) == here[0]
    assert list(lives(seeds[1:], processes=1)) == here[1:]
