"""Resets: what proves that a cluster was restored from a backup, and what only looks like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.store.history import SEEN_GRANULE, highest_before
from actors.store.lists import SECOND_LOOK
from tests.unit.builders import event, pod
from tests.unit.store.test_merge import Store, copy_of, uids, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.pods.pod import EventType, Pod
    from actors.store.history import Merged


def exited(store: Store) -> None:
    store.events(event("DELETED", pod(1, version=50, terminating=True)))


# ── a list below a version that was seen ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "see",
    [
        pytest.param(lambda store: store.events(event("MODIFIED", pod(1, version=50))), id="event"),
        pytest.param(lambda store: store.events(version=50), id="bookmark"),
        pytest.param(lambda store: store.list(50, pod(1, version=5)), id="list"),
        pytest.param(lambda store: store.list(50, pod(1, version=5), consistent=False), id="list from a cache"),
        pytest.param(exited, id="end"),
    ],
)
def test_a_list_below_any_version_handled_before_its_request(see: Callable[[Store], object]) -> None:
    store = watched(5, pod(1, version=5))
    see(store)
    merged = store.twice(40, pod(3, version=30))
    assert merged.reset
    assert set(store.shown) == {3}


@pytest.mark.parametrize("stream", [None, 2], ids=["poll", "watch"])
def test_a_list_that_proves_a_reset_but_was_requested_before_the_last_event_is_requested_again(
    stream: int | None,
) -> None:
    """The event may be of the new history already, and of a pod that is newer than the LIST."""
    store = watched(5, pod(1, version=5))
    store.events(event("MODIFIED", pod(1, version=50)))
    asked = store.now + 0.5
    store.now += 1
    store.events(event("ADDED", pod(2, version=30)), version=50)
    doubted = store.list(20, pod(1, version=5), asked=asked)
    assert (doubted.applied, doubted.look_again, doubted.relist) == (False, True, False)
    store.now += SECOND_LOOK.total_seconds()
    asked = store.now + 0.5
    store.now += 1
    store.events(event("MODIFIED", pod(2, version=31)), version=50)
    late = store.list(30, pod(1, version=5), pod(2, version=30), asked=asked, stream=stream)
    assert (late.applied, late.reset, late.relist, late.ended) == (False, False, True, ())
    assert set(store.shown) == {1, 2}
    assert store.list(31, pod(1, version=5), pod(2, version=31), stream=3).reset
    assert store.shown == {1: ("uid-1", "5"), 2: ("uid-2", "31")}


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
def test_a_list_requested_right_after_a_version_was_handled_proves_as_much_as_a_later_one(
    kind: EventType,
) -> None:
    store = watched(5, pod(1, version=5))
    store.events(event(kind, pod(1, version=50)))
    assert store.twice(40, pod(1, version=5), asked=store.now + SEEN_GRANULE / 100).reset


def test_a_tombstone_proves_a_reset_that_the_handled_versions_are_too_coarse_for() -> None:
    """Handled versions are kept per tenth of a second, tombstones with their exact moment."""
    store = watched(5, pod(1, version=5))
    store.now += SEEN_GRANULE / 4
    exited(store)
    asked = store.now + SEEN_GRANULE / 4
    store.now += SEEN_GRANULE / 2 - 1
    store.events(version=51)
    assert highest_before(store.history.progress.seen, asked) < 40
    assert store.twice(40, pod(1, version=5), asked=asked).reset


@pytest.mark.parametrize("version", [50, 51])
def test_a_list_at_or_above_all_handled_versions_proves_nothing(version: int) -> None:
    store = watched(5, pod(1, version=5))
    store.events(version=50)
    assert not store.list(version, pod(1, version=5)).look_again


def test_a_list_below_a_version_handled_after_its_request_is_late_and_no_proof() -> None:
    store = watched(5, pod(1, version=5))
    asked = store.now + 0.5
    store.now += 1
    store.events(version=50)
    assert not store.list(40, pod(1, version=5), asked=asked).look_again


# ── a list that has moved past us ────────────────────────────────────────────────────────────────────────────────


def test_a_newer_list_with_a_pod_older_than_known() -> None:
    store = watched(5, pod(1, version=5), pod(2, version=4))
    store.events(event("MODIFIED", pod(1, version=50)))
    merged = store.twice(1000, pod(1, version=5))
    assert merged.reset
    assert store.shown == {1: ("uid-1", "5")}
    assert "uid-2" in uids(merged.ended)


def test_a_newer_list_with_an_ended_pod() -> None:
    store = watched(5, pod(1, version=5))
    exited(store)
    assert store.twice(1000, pod(1, version=5)).reset
    assert store.shown == {1: ("uid-1", "5")}


def test_a_newer_list_with_an_absent_pod_whose_end_is_not_reported_yet() -> None:
    store = watched(5, pod(1, version=5))
    store.list(50)
    assert "uid-1" in store.history.absent, "its DELETED event may still come"
    assert store.twice(1000, pod(1, version=5)).reset


def test_a_pod_that_was_set_aside_and_takes_its_place_now_proves_nothing() -> None:
    store = watched(5, pod(1, version=1), copy_of(1, version=2))
    exited(store)
    listed = store.list(60, copy_of(1, version=2))
    assert listed.appeared == {1}
    assert not listed.look_again


def test_a_newer_list_without_any_of_these_is_merged_as_any_other() -> None:
    """Pods that it lacks have ended, which is true in either history."""
    store = watched(5, pod(1, version=5), pod(2, version=50))
    merged = store.list(1000, pod(1, version=5), pod(3, version=60))
    assert not merged.look_again
    assert set(store.shown) == {1, 3}


@pytest.mark.parametrize("shown", [pod(1, version=5), pod(1, version=49)], ids=["as it was", "after its last word"])
def test_a_late_list_with_a_pod_that_changed_or_ended_since_proves_nothing(shown: Pod) -> None:
    """The watch was faster: change and end were handled after the LIST was requested."""
    for change in (event("MODIFIED", pod(1, version=50)), event("DELETED", pod(1, version=50, terminating=True))):
        store = watched(5, pod(1, version=5))
        asked = store.now + 0.5
        store.now += 1
        store.events(change)
        merged = store.list(49, shown, asked=asked)
        assert not merged.look_again
        assert store.shown == ({1: ("uid-1", "50")} if change.type == "MODIFIED" else {})


# ── one list is not believed ─────────────────────────────────────────────────────────────────────────────────────


def behind(store: Store) -> Merged:
    """A list of an API server that lacks pod 2 and the newest version of pod 1."""
    return store.list(40, pod(1, version=5))


def known() -> Store:
    store = watched(5, pod(1, version=5))
    store.events(event("MODIFIED", pod(1, version=49)), event("ADDED", pod(2, version=50)))
    return store


def test_a_list_of_a_server_that_is_behind_changes_nothing_and_the_next_one_is_applied() -> None:
    store = known()
    shown = store.shown
    merged = behind(store)
    assert (merged.applied, merged.reset, merged.ended, merged.relist, merged.look_again) == (
        False, False, (), False, True,
    )  # fmt: skip
    assert store.shown == shown
    assert store.list(50, pod(1, version=49), pod(2, version=50)).applied
    store.now += SECOND_LOOK.total_seconds()
    assert behind(store).look_again, "the list between them was of the known history: this is a first one again"
    assert store.shown == shown


def test_a_second_list_that_comes_too_soon_confirms_nothing() -> None:
    store = known()
    assert behind(store).look_again
    for _ in range(4):
        merged = behind(store)
        assert (merged.reset, merged.look_again) == (False, True)
    store.now += SECOND_LOOK.total_seconds()
    assert behind(store).reset


def test_a_second_list_that_was_requested_too_soon_confirms_nothing_however_late_it_comes() -> None:
    store = known()
    behind(store)
    asked = store.now + 0.5
    store.now += 10 * SECOND_LOOK.total_seconds()
    assert not store.list(40, pod(1, version=5), asked=asked).reset


def test_a_second_list_that_is_older_than_the_first_confirms_nothing() -> None:
    """Two servers are behind, or the cluster was restored twice: the next one tells."""
    store = known()
    behind(store)
    store.now += SECOND_LOOK.total_seconds()
    assert not store.list(30, pod(1, version=5)).reset
    store.now += SECOND_LOOK.total_seconds()
    assert store.list(31, pod(1, version=5)).reset


@pytest.mark.parametrize(
    "goes_on",
    [
        pytest.param(lambda store, version: store.events(version=version), id="bookmark"),
        pytest.param(lambda store, version: store.events(event("MODIFIED", pod(2, version=version))), id="event"),
        pytest.param(lambda store, version: store.list(version, pod(1, version=49), consistent=False), id="cache"),
    ],
)
def test_no_list_of_a_server_that_is_behind_is_believed_while_newer_versions_come(
    goes_on: Callable[[Store, int], object],
) -> None:
    store = known()
    for version in (51, 52, 53):
        behind(store)
        goes_on(store, version)
        store.now += SECOND_LOOK.total_seconds()
        assert not behind(store).reset
    assert 1 in store.shown


def test_a_watch_that_repeats_what_is_known_refutes_no_reset() -> None:
    store = known()
    behind(store)
    store.events(version=50)
    store.now += SECOND_LOOK.total_seconds()
    assert behind(store).reset


def test_newer_versions_do_not_refute_a_list_that_has_moved_past_us() -> None:
    """No server that is behind has it: a pod is older in it than in a version that the list is later than."""
    store = known()
    assert store.list(1000, pod(1, version=5), pod(2, version=50)).look_again
    store.events(version=1001)
    store.now += SECOND_LOOK.total_seconds()
    assert store.list(1002, pod(1, version=5), pod(2, version=50)).reset


@pytest.mark.parametrize("first", [None, 2], ids=["poll", "watch"])
@pytest.mark.parametrize("second", [None, 3], ids=["poll", "watch"])
def test_lists_of_both_sources_confirm_each_other(first: int | None, second: int | None) -> None:
    store = known()
    doubted = store.list(40, pod(1, version=5), stream=first)
    assert (doubted.look_again, doubted.relist) == (True, first is not None)
    store.now += SECOND_LOOK.total_seconds()
    assert store.list(40, pod(1, version=5), stream=second).reset


# ── lists from a cache, lists from before ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "version", "shown"),
    [
        pytest.param(lambda store: store.events(version=50), 40, (pod(1, version=5),), id="below what was seen"),
        pytest.param(
            lambda store: store.events(event("MODIFIED", pod(1, version=50))),
            1000,
            (pod(1, version=5),),
            id="older pod",
        ),
        pytest.param(exited, 1000, (pod(1, version=5),), id="ended pod"),
        pytest.param(lambda store: store.list(50), 1000, (pod(1, version=5),), id="absent pod"),
    ],
)
def test_a_list_from_a_cache_proves_nothing_that_a_consistent_one_would(
    change: Callable[[Store], object], version: int, shown: tuple[Pod, ...]
) -> None:
    consistent, cached = (watched(5, pod(1, version=5)) for _ in range(2))
    for store in (consistent, cached):
        change(store)
    synced_at = cached.history.snapshot.full_sync_at
    assert consistent.twice(version, *shown).reset
    assert not cached.list(version, *shown, consistent=False).look_again
    assert cached.history.snapshot.full_sync_at == synced_at


@pytest.mark.parametrize("stream", [None, 2], ids=["poll", "watch"])
def test_lists_requested_before_the_reset_was_detected_are_dropped_and_the_next_is_not(stream: int | None) -> None:
    store = watched(50, pod(1, version=50))
    asked = store.now + 0.5
    store.now += 1
    assert store.twice(20, pod(1, version=5)).reset
    late = store.list(60, pod(1, version=55), pod(2, version=56), asked=asked, stream=stream)
    assert (late.applied, late.reset, late.relist) == (False, False, stream is not None)
    assert store.shown == {1: ("uid-1", "5")}
    assert store.list(21, pod(1, version=5), pod(2, version=21), stream=stream).applied
    assert set(store.shown) == {1, 2}


def test_a_reset_reports_the_end_of_each_missing_pod_once() -> None:
    store = watched(5, pod(1, version=5), pod(2, version=5), pod(3, version=5))
    ended = list(store.events(event("DELETED", pod(1, version=50, terminating=True))).ended)
    ended += store.list(60, pod(3, version=5)).ended
    ended += store.twice(20, pod(3, version=5)).ended
    ended += store.list(21, pod(3, version=5), stream=2).ended
    ended += store.events(version=70, stream=2).ended
    assert sorted(uids(tuple(ended))) == ["uid-1", "uid-2"]
