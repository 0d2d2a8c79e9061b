"""Each part crashes at each of its first fifty messages, before and after it; and then any two parts in one run.

In virtual time. `STRESS_SEED` draws the order of messages in the runs with two crashes, and their moments; a case that
fails is printed with all that reproduces it. `-s` shows how many there were.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from actors.runtime import Entropy
from tests.scenarios.crashes import (
    BACKEND,
    PARTS,
    SOURCES,
    Plan,
    backend_falls,
    backend_falls_while_stopping,
    part_is_given_up,
    survived,
)
from tests.stress.rig import chosen_seed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.stress

FIRST = range(1, 51)
PAIRS = 20
"""Runs of each two parts, in either order."""


@pytest.fixture(scope="module")
def cases() -> Iterator[Counter[str]]:
    """How many there were of each kind, printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    print(f"\ncrashes: {counts.total()} cases: {dict(counts)}")


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_crashes_at_each_of_its_first_fifty_messages(part: str, late: bool, cases: Counter[str]) -> None:
    wrong = [words for number in FIRST for words in survived(Plan(part, frozenset({number}), late=late))]
    cases["one part crashes"] += len(FIRST)
    assert wrong == []


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_the_backend_crashes_at_each_of_its_first_fifty_messages(late: bool, cases: Counter[str]) -> None:
    wrong = [words for number in FIRST for words in backend_falls(Plan(BACKEND, frozenset({number}), late=late))]
    cases["the backend crashes"] += len(FIRST)
    assert wrong == []


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_the_backend_crashes_at_each_message_of_its_stop(late: bool, cases: Counter[str]) -> None:
    plans = [Plan(BACKEND, frozenset({number}), late=late, while_stopping=True) for number in FIRST]
    wrong = [words for plan in plans for words in backend_falls_while_stopping(plan)]
    cases["the backend crashes while it stops"] += sum(plan.crashes for plan in plans)
    assert wrong == []


@pytest.mark.parametrize("part", [part for part in PARTS if part not in SOURCES])
def test_a_part_is_given_up_from_each_of_its_first_fifty_messages_on(part: str, cases: Counter[str]) -> None:
    wrong = [words for number in FIRST for words in part_is_given_up(part, number)]
    cases["a part is given up"] += len(FIRST)
    assert wrong == []


@pytest.mark.parametrize("part", PARTS)
def test_two_parts_crash_in_one_run(part: str, cases: Counter[str]) -> None:
    dice = Entropy(chosen_seed()).fork(part)
    runs = [(_two(part, other, dice), int(dice.uniform(0, 1 << 32))) for other in PARTS for _ in range(PAIRS)]
    wrong = [words for plans, seed in runs for words in survived(*plans, seed=seed)]
    cases["two parts crash"] += len(runs)
    assert wrong == []


def _two(part: str, other: str, dice: Entropy) -> list[Plan]:
    numbers, late = [int(dice.uniform(1, 51)) for _ in range(2)], dice.choice((False, True))
    if part == other:
        return [Plan(part, frozenset(numbers), late=late)]
    return [Plan(name, frozenset({number}), late=late) for name, number in zip((part, other), numbers, strict=True)]
