"""The merge rules against random histories of a cluster: see `merge_model` for what can happen and what is checked.

`EXECUTOR_PODS_PROFILE=deep` tries a hundred thousand histories instead of two hundred.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.kube.resource_version import passed
from actors.pods.pod import executor_id
from actors.store import lists as resets
from actors.store.history import Progress
from actors.store.merge import Merge, last_seen
from tests.unit.store.merge_model import STEPS, Script, Violation, run

if TYPE_CHECKING:
    from collections.abc import Callable

settings.register_profile("quick", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", settings.get_profile("quick"), max_examples=100_000)
BUDGET = settings.get_profile(os.environ.get("EXECUTOR_PODS_PROFILE", "quick"))

SCRIPTS = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 255)), min_size=20, max_size=80)

ENOUGH = 10_000
"""Histories among which each planted bug must be found; the shyest shows in one of about four thousand."""


@BUDGET
@given(SCRIPTS)
def test_nothing_false_is_reported_and_nothing_is_lost_however_late_list_and_watch_are(script: Script) -> None:
    run(script, restores=False)


@BUDGET
@given(SCRIPTS)
def test_a_restored_cluster_is_found_by_the_second_list_that_proves_it_and_by_no_other(
    script: Script,
) -> None:
    run(script, restores=True)


def random_script(seed: int) -> Script:
    """Plain random numbers: a script costs less than a tenth of what Hypothesis takes to draw it."""
    chance = random.Random(seed)
    return [(chance.randrange(len(STEPS) * 7), chance.randrange(256)) for _ in range(chance.randrange(5, 60))]


def test_the_histories_contain_resets_and_many_events() -> None:
    """A model that never reaches the hard cases would prove nothing."""
    worlds = [run(random_script(seed)) for seed in range(300)]

    assert sum(world.resets for world in worlds) >= 10
    assert sum(len(world.epochs[0].log) for world in worlds) >= 1_000


def search(*, restores: bool, begin: int = 0) -> None:
    """Play histories until one reveals a bug."""
    for seed in range(begin, begin + ENOUGH):
        run(random_script(seed), restores=restores)


# ── bugs planted in the rules, which the model must find ─────────────────────────────────────────────────────────


def purge_by_floor_alone(self: Any) -> None:
    for uid, tombstone in self._history.tombstones.items():
        if passed(self.progress.floor, tombstone.version):
            self._tombstones.pop(uid, None)


def purge_by_position_alone(self: Any) -> None:
    for uid, tombstone in self._history.tombstones.items():
        if self.progress.stream_has_passed(tombstone.version):
            self._tombstones.pop(uid, None)


def never_purge(self: Any) -> None:
    pass


def bury_nothing(self: Any, uid: str, version: str) -> None:
    pass


def ignore_the_floor(self: Any, pod: Any) -> bool:
    return False


def tell_absence_at_once(self: Any, version: str | None) -> bool:
    return True


def show_whatever_a_list_shows(self: Any, pod: Any) -> None:
    self._absent.pop(pod.uid, None)
    number = executor_id(pod)
    assert number is not None
    if (last := last_seen(self._edit.get, pod)) is not None:
        self._put(number, pod, last[1])
    else:
        self._add(number, pod)


@pytest.mark.parametrize(
    ("rules", "rule", "bug", "begin"),
    [
        (Merge, "purge", purge_by_floor_alone, 0),
        (Merge, "purge", purge_by_position_alone, 3_500),
        (Merge, "purge", never_purge, 0),
        (Merge, "_add_tombstone", bury_nothing, 0),
        (Merge, "_is_before_list", ignore_the_floor, 1_650),
        (Progress, "stream_has_passed", tell_absence_at_once, 0),
        (Merge, "_listed", show_whatever_a_list_shows, 500),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_model_finds_a_bug_in_a_rule(
    rules: type, rule: str, bug: Callable[..., object], begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search begins shortly before the first history that shows the bug."""
    monkeypatch.setattr(rules, rule, bug)

    with pytest.raises(Violation):
        search(restores=False, begin=begin)


@pytest.mark.parametrize(
    ("proof", "bug"),
    [
        ("highest_before", lambda seen, moment: 0),
        ("highest_before", lambda seen, moment: max((number for _, number in seen), default=0)),
        ("_confirms", lambda doubt, listed: True),
        ("_contradicts", lambda history, pod, version, requested_at: pod.uid in history.tombstones),
    ],
    ids=["no-version-proves", "what-came-after-the-question-proves", "one-list-proves", "a-stale-list-proves"],
)
def test_the_model_finds_a_bug_in_the_proofs(
    proof: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resets, proof, bug)

    with pytest.raises(Violation):
        search(restores=True)
