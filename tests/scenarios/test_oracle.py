"""What counts as showing all there is: the proxied fleets wait for it, so it must come true, and not too soon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from actors.history import History
from actors.intake import apply_list
from actors.kube import decode
from actors.local.store import ObjectStore
from actors.pods import PodRules
from actors.runtime import Entropy
from actors.testing.manual import ManualClock
from tests.scenarios.churn import NAMESPACE
from tests.scenarios.oracle import SELECTOR, shows_all_there_is
from tests.unit.builders import labels, pod_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.snapshot import PodsSnapshot

RUNS, WAITS = 1, 2


@pytest.fixture
def store() -> ObjectStore:
    """With one pod that runs and one that waits."""
    store = ObjectStore(ManualClock(), Entropy(0))
    for number, phase in ((RUNS, "Running"), (WAITS, "Pending")):
        _make(store, number)
        _patch(store, number, {"status": {"phase": phase}}, subresource="status")
    return store


def _make(store: ObjectStore, number: int) -> None:
    pod = {
        "metadata": {"name": pod_name(number), "labels": labels(number)},
        "spec": {"containers": [{"name": "executor", "image": "worker"}]},
    }
    store.create("pods", NAMESPACE, pod)


def _patch(store: ObjectStore, number: int, patch: dict[str, Any], **where: Any) -> None:
    store.patch("pods", NAMESPACE, pod_name(number), patch, "merge", **where)


def _annotate(store: ObjectStore, number: int) -> None:
    _patch(store, number, {"metadata": {"annotations": {"seen": "yes"}}})


def _fail(store: ObjectStore, number: int) -> None:
    _patch(store, number, {"status": {"phase": "Failed"}}, subresource="status")


def _remove(store: ObjectStore, number: int) -> None:
    store.delete("pods", NAMESPACE, pod_name(number), grace_period_seconds=0)


def _replace(store: ObjectStore, number: int) -> None:
    _remove(store, number)
    _make(store, number)


def _snapshot(store: ObjectStore) -> PodsSnapshot:
    there = store.list("pods", NAMESPACE, label_selector=SELECTOR)
    body = json.dumps({"metadata": {"resourceVersion": there.resource_version}, "items": there.items}).encode()
    page = decode.pod_page(body, decode.Complaints(), decode.Sharing())
    merged = apply_list(
        History.new(PodRules()), page.pods, page.resource_version, requested_at=0, consistent=True, stream=1, now=0
    )
    return merged.history.snapshot


def test_a_snapshot_shows_the_store_that_it_is_of(store: ObjectStore) -> None:
    snapshot = _snapshot(store)
    assert len(snapshot.states) == 2
    assert shows_all_there_is(snapshot, store)


def test_a_pod_that_runs_may_be_at_the_version_from_which_on_it_has_looked_the_same(store: ObjectStore) -> None:
    snapshot = _snapshot(store)
    _annotate(store, RUNS)
    assert shows_all_there_is(snapshot, store)


@pytest.mark.parametrize(
    ("change", "number"), [(_annotate, WAITS), (_fail, RUNS), (_fail, WAITS), (_remove, RUNS), (_replace, RUNS)]
)
def test_whatever_else_changed_is_seen(store: ObjectStore, change: Callable[..., None], number: int) -> None:
    snapshot = _snapshot(store)
    change(store, number)
    assert not shows_all_there_is(snapshot, store)


def test_a_pod_that_is_new_is_seen(store: ObjectStore) -> None:
    snapshot = _snapshot(store)
    _make(store, 3)
    assert not shows_all_there_is(snapshot, store)
