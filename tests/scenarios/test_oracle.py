"""What counts as showing all there is: the proxied fleets wait for it, so it must come true, and not too soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.messages.internal import ReplaceSnapshot
from actors.pods.state import PodRules
from actors.store.history import History
from actors.store.lists import apply_list
from tests.scenarios.oracle import listed, shows_all_there_is
from tests.unit.builders import labels, pod_name
from tests.unit.local.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.pods.snapshot import PodsSnapshot

RUNS, WAITS = 1, 2


@pytest.fixture
def bench() -> Bench:
    """With one pod that runs and one that waits."""
    bench = Bench()
    for number, phase in ((RUNS, "Running"), (WAITS, "Pending")):
        _make(bench, number, phase)
    return bench


def _make(bench: Bench, number: int, phase: str | None = None) -> None:
    bench.pod(pod_name(number), phase=phase, labels=labels(number))


def _annotate(bench: Bench, number: int) -> None:
    bench.patch(pod_name(number), {"metadata": {"annotations": {"seen": "yes"}}})


def _fail(bench: Bench, number: int) -> None:
    bench.status(pod_name(number), {"phase": "Failed"})


def _remove(bench: Bench, number: int) -> None:
    bench.delete(pod_name(number), grace=0)


def _replace(bench: Bench, number: int) -> None:
    _remove(bench, number)
    _make(bench, number)


def _snapshot(bench: Bench) -> PodsSnapshot:
    page = listed(bench.store)
    whole = ReplaceSnapshot(page.pods, page.resource_version, 0.0, consistent=True, stream=1)
    merged = apply_list(History(PodRules()), whole, 0.0)
    return merged.history.snapshot


def test_a_snapshot_shows_the_store_that_it_is_of(bench: Bench) -> None:
    snapshot = _snapshot(bench)
    assert len(snapshot.states) == 2
    assert shows_all_there_is(snapshot, bench.store)


def test_a_pod_that_runs_may_be_at_the_version_from_which_on_it_has_looked_the_same(bench: Bench) -> None:
    snapshot = _snapshot(bench)
    _annotate(bench, RUNS)
    assert shows_all_there_is(snapshot, bench.store)


@pytest.mark.parametrize(
    ("change", "number"), [(_annotate, WAITS), (_fail, RUNS), (_fail, WAITS), (_remove, RUNS), (_replace, RUNS)]
)
def test_whatever_else_changed_is_seen(bench: Bench, change: Callable[[Bench, int], None], number: int) -> None:
    snapshot = _snapshot(bench)
    change(bench, number)
    assert not shows_all_there_is(snapshot, bench.store)


def test_a_pod_that_is_new_is_seen(bench: Bench) -> None:
    snapshot = _snapshot(bench)
    _make(bench, 3)
    assert not shows_all_there_is(snapshot, bench.store)
