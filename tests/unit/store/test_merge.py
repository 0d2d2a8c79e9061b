"""The merge rules, one by one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from actors.messages.internal import ReplaceSnapshot
from actors.pods.id_ranges import IdRanges
from actors.pods.pod import EXECUTOR_ID_LABEL, Pod, PodEvent
from actors.pods.state import PodDeleted, PodFailed, PodPending, PodRules, PodRunning
from actors.store.history import SEEN_GRANULE, SEEN_KEPT, History, Merged, highest_before, see
from actors.store.lists import SECOND_LOOK, abandon_stream, apply_list
from actors.store.merge import Merge
from tests.unit.builders import apply_events, event, pod

if TYPE_CHECKING:
    from actors.pods.pod import EventType
    from actors.pods.snapshot import Ended


@dataclass
class Store:
    """A history and the time; each call is one message."""

    history: History = field(default_factory=lambda: History(PodRules()))
    now: float = 100.0
    merged: Merged = field(init=False)

    def events(self, *events: PodEvent, version: int | str | None = None, stream: int = 1) -> Merged:
        self.now += 1
        at = events[-1].pod.resource_version if version is None else str(version)
        return self._take(apply_events(self.history, events, at, stream, now=self.now))

    def list(
        self,
        version: int | str,
        *pods: Pod,
        stream: int | None = None,
        consistent: bool = True,
        asked: float | None = None,
    ) -> Merged:
        """Apply a LIST that was requested just now, or at another moment if given."""
        self.now += 1
        at = self.now - 0.5 if asked is None else asked
        return self._take(
            apply_list(self.history, ReplaceSnapshot(pods, str(version), at, consistent, stream), self.now)
        )

    def twice(self, version: int | str, *pods: Pod, stream: int | None = None, asked: float | None = None) -> Merged:
        """Apply a LIST, and another one with the same pods so long later that it confirms what the first one says.

        `asked` is when the first one was requested.
        """
        first = self.list(version, *pods, stream=stream, asked=asked)
        assert (first.reset, first.applied, first.look_again) == (False, False, True), "nobody believes one list"
        self.now += SECOND_LOOK.total_seconds()
        return self.list(version, *pods, stream=None if stream is None else stream + 1)

    def give_up(self, stream: int) -> Merged:
        return self._take(abandon_stream(self.history, stream))

    def _take(self, merged: Merged) -> Merged:
        self.history, self.merged = merged.history, merged
        return merged

    @property
    def shown(self) -> dict[int, tuple[str, str]]:
        """UID and version by executor id."""
        states = self.history.snapshot.states
        return {number: (state.pod.uid, state.pod.resource_version) for number, state in states.items()}


def watched(version: int, *pods: Pod) -> Store:
    """A store whose stream 1 started from a list at `version`."""
    store = Store()
    store.list(version, *pods, stream=1)
    return store


def uids(ended: tuple[Ended, ...]) -> list[str]:
    return [each.uid for each in ended]


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_pod_appears_and_a_later_event_changes_it() -> None:
    store = watched(1)

    first = store.events(event("ADDED", pod(1, version=2, phase="Pending")))
    assert first.appeared == {1}
    assert first.changed == {1}
    assert isinstance(store.history.snapshot.states[1], PodPending)

    second = store.events(event("MODIFIED", pod(1, version=3)))
    assert second.appeared == frozenset()
    assert second.changed == {1}
    assert isinstance(store.history.snapshot.states[1], PodRunning)


def test_an_event_at_or_below_the_known_version_of_its_pod_is_dropped() -> None:
    store = watched(5, pod(1, version=5))

    for version in (4, 5):
        merged = store.events(event("MODIFIED", pod(1, version=version, phase="Pending")))
        assert merged.changed == frozenset()
    assert store.shown == {1: ("uid-1", "5")}


def test_an_event_of_an_older_stream_is_dropped() -> None:
    store = watched(1)
    store.list(2, stream=2)

    merged = store.events(event("ADDED", pod(1, version=3)), stream=1)

    assert not merged.applied
    assert store.shown == {}


def test_a_deleted_event_ends_a_pod_and_leaves_a_tombstone_against_late_events() -> None:
    store = watched(1, pod(1, version=1))

    merged = store.events(event("DELETED", pod(1, version=5, terminating=True)))
    assert uids(merged.ended) == ["uid-1"]
    assert isinstance(merged.ended[0].state, PodDeleted)
    assert merged.ended[0].confirmed

    late = store.list(4, pod(1, version=3), asked=store.now - 1)
    assert (late.appeared, store.shown) == (frozenset(), {})


def test_a_deleted_event_of_a_pod_that_neither_ended_nor_terminates_is_not_confirmed() -> None:
    store = watched(1, pod(1, version=1))

    assert not store.events(event("DELETED", pod(1, version=2))).ended[0].confirmed


def test_a_deleted_event_of_an_ended_pod_keeps_its_final_state() -> None:
    store = watched(1, pod(1, version=1, phase="Failed"))

    ended = store.events(event("DELETED", pod(1, version=2, phase="Running"))).ended[0]

    assert isinstance(ended.state, PodFailed)
    assert ended.confirmed


@pytest.mark.parametrize("is_told_of_the_deletion", [True, False])
def test_a_pod_that_was_observed_to_end_before_its_deletion_has_ended_first(is_told_of_the_deletion: bool) -> None:
    store = watched(1, pod(1, version=1, phase="Failed"))
    if is_told_of_the_deletion:
        store.events(event("MODIFIED", pod(1, version=2, phase="Failed", terminating=True)))

    state = store.events(event("DELETED", pod(1, version=3, phase="Failed", terminating=True))).ended[0].state

    assert isinstance(state, PodFailed)
    assert state.ended_first


def test_a_pod_that_ends_after_its_deletion_began_has_not_ended_first() -> None:
    store = watched(1, pod(1, version=1, terminating=True))
    store.events(event("MODIFIED", pod(1, version=2, phase="Failed", terminating=True)))

    state = store.events(event("DELETED", pod(1, version=3, phase="Failed", terminating=True))).ended[0].state

    assert isinstance(state, PodFailed)
    assert not state.ended_first


def test_a_final_state_that_only_the_deleted_event_has_is_kept() -> None:
    store = watched(1, pod(1, version=1))

    ended = store.events(event("DELETED", pod(1, version=2, phase="Failed", terminating=True))).ended[0]

    assert isinstance(ended.state, PodFailed)


def test_a_pod_known_by_its_deleted_event_alone_appeared_and_ended() -> None:
    store = watched(1)

    merged = store.events(event("DELETED", pod(1, version=2, terminating=True)))

    assert merged.appeared == {1}
    assert uids(merged.ended) == ["uid-1"]
    assert merged.changed == frozenset()


def test_a_final_pod_stays_in_the_snapshot_as_long_as_the_cluster_lists_it() -> None:
    store = watched(1, pod(1, version=1, phase="Failed"))

    assert store.list(2, pod(1, version=1, phase="Failed")).ended == ()
    assert uids(store.list(3, stream=2).ended) == ["uid-1"]


def test_a_pod_that_matches_our_selector_again_is_in_the_snapshot_again() -> None:
    """Its labels were removed and restored: DELETED, then ADDED, of one UID."""
    store = watched(1, pod(1, version=1))
    store.events(event("DELETED", pod(1, version=2)))

    merged = store.events(event("ADDED", pod(1, version=3)))

    assert merged.appeared == {1}
    assert store.shown == {1: ("uid-1", "3")}
    assert "uid-1" not in store.history.tombstones
    assert uids(store.events(event("DELETED", pod(1, version=4, terminating=True))).ended) == ["uid-1"]


def test_a_list_with_a_pod_that_matches_our_selector_again_proves_no_reset() -> None:
    store = watched(1, pod(1, version=1))
    store.events(event("DELETED", pod(1, version=2)))

    merged = store.list(3, pod(1, version=3))

    assert not merged.look_again
    assert store.shown == {1: ("uid-1", "3")}


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_below_the_floor_is_dropped_whole_and_only_a_watch_is_asked_to_list_again() -> None:
    store = Store()
    store.list(5, pod(1, version=5))
    asked = store.now - 1

    poll = store.list(4, pod(1, version=2), pod(2, version=3), asked=asked)
    assert (poll.applied, poll.relist, store.shown) == (False, False, {1: ("uid-1", "5")})

    watch = store.list(4, pod(2, version=3), asked=asked, stream=7)
    assert (watch.applied, watch.relist) == (False, True)


def test_the_stream_of_a_list_that_was_dropped_does_not_count() -> None:
    """It starts below the floor: once tombstones are gone, it would report ends again."""
    store = watched(2)
    store.list(9)

    store.list(4, stream=2, asked=store.now - 1)

    assert not store.events(event("ADDED", pod(1, version=10)), stream=2).applied
    store.list(9, stream=3)
    assert store.events(event("ADDED", pod(1, version=10)), stream=3).applied


def test_a_version_above_the_lists_stays_and_otherwise_the_list_decides() -> None:
    store = watched(1, pod(1, version=1), pod(2, version=1))
    asked = store.now
    store.events(event("MODIFIED", pod(1, version=5)), event("ADDED", pod(3, version=6)))

    store.list(3, pod(1, version=2), pod(2, version=3), asked=asked)

    assert store.shown == {1: ("uid-1", "5"), 2: ("uid-2", "3"), 3: ("uid-3", "6")}


def test_a_pod_missing_from_a_list_leaves_at_once_and_its_end_is_reported_with_its_deleted_event() -> None:
    store = watched(1, pod(1, version=1))

    absent = store.list(5)
    assert (store.shown, absent.ended) == ({}, ())

    told = store.events(event("DELETED", pod(1, version=3, phase="Failed", terminating=True)))
    assert uids(told.ended) == ["uid-1"]
    assert isinstance(told.ended[0].state, PodFailed)
    assert store.list(6).ended == ()


def test_an_absent_pod_ends_when_the_stream_has_passed_the_list() -> None:
    store = watched(1, pod(1, version=1))
    store.list(5)

    assert store.events(version=4).ended == ()
    assert uids(store.events(version=5).ended) == ["uid-1"]
    assert store.events(version=6).ended == ()


def test_an_absent_pod_ends_with_the_next_list_if_that_comes_first() -> None:
    store = watched(1, pod(1, version=1))
    store.list(5)

    assert uids(store.list(6).ended) == ["uid-1"]
    assert store.list(7).ended == ()


def test_an_absent_pod_ends_at_once_where_no_stream_can_have_its_deleted_event() -> None:
    polled = Store()
    polled.list(1, pod(1, version=1))
    assert uids(polled.list(2).ended) == ["uid-1"]

    restarted = watched(1, pod(1, version=1))
    assert uids(restarted.list(2, stream=2).ended) == ["uid-1"]


def test_a_late_event_of_an_absent_pod_is_its_last_state_and_does_not_bring_it_back() -> None:
    store = watched(1, pod(1, version=1))
    store.list(5)

    merged = store.events(event("MODIFIED", pod(1, version=3, phase="Failed")))
    assert (merged.ended, store.shown) == ((), {})

    (ended,) = store.events(version=5).ended
    assert isinstance(ended.state, PodFailed)
    assert ended.state.pod.resource_version == "3"


def test_an_absent_pod_that_comes_back_later_than_the_list_is_alive() -> None:
    store = watched(1, pod(1, version=1))
    store.list(5)

    store.events(event("ADDED", pod(1, version=6)))

    assert store.shown == {1: ("uid-1", "6")}
    assert store.list(7, pod(1, version=6)).ended == ()


def test_an_absent_pod_that_a_list_has_again_is_alive() -> None:
    store = watched(1, pod(1, version=1))
    store.list(5)

    merged = store.list(7, pod(1, version=6))

    assert (merged.ended, merged.reset, store.shown) == ((), False, {1: ("uid-1", "6")})


def test_a_list_with_an_absent_pod_as_it_was_is_from_a_cache_or_proves_a_reset() -> None:
    cached = watched(1, pod(1, version=1))
    cached.list(5)
    merged = cached.list(6, pod(1, version=1), consistent=False)
    assert (merged.reset, cached.shown) == (False, {})

    restored = watched(1, pod(1, version=1))
    restored.list(5)
    merged = restored.twice(6, pod(1, version=1))
    assert (merged.reset, restored.shown) == (True, {1: ("uid-1", "1")})


def test_an_absent_pod_keeps_its_place_for_when_it_comes_back() -> None:
    store = watched(2, pod(1, version=1))
    store.list(5, copy_of(1, version=4))

    merged = store.events(event("ADDED", pod(1, version=6)), version=6)

    assert (merged.ended, store.shown) == ((), {1: ("uid-1", "6")})


def test_an_absent_pod_whose_place_is_taken_when_it_comes_back_has_ended() -> None:
    """Within one step, late events of another pod of its name make the store forget whose place it is."""
    store = watched(2, pod(1, version=1))
    store.list(9)
    another = pod(1, version=3, uid="another")
    gone = pod(1, version=4, uid="another", terminating=True)

    merged = store.events(
        event("ADDED", another),
        event("DELETED", gone),
        event("ADDED", copy_of(1, version=10)),
        event("ADDED", pod(1, version=11)),
        version=5,
    )

    assert uids(merged.ended) == ["another", "uid-1"]
    assert [each.uid for each in merged.malformed] == ["uid-1"]
    assert store.shown == {1: ("copy", "10")}


def test_a_malformed_event_of_an_absent_pod_is_not_its_last_state() -> None:
    store = watched(1, pod(1, version=1))
    store.list(5)
    store.events(event("MODIFIED", malformed_pod("uid-1", 3)))

    (ended,) = store.events(version=5).ended
    assert ended.state.pod.resource_version == "1"


def test_a_late_event_of_a_pod_that_is_malformed_in_the_list_reports_no_end() -> None:
    store = watched(1)
    store.list(9, malformed_pod("bad", 8))

    merged = store.events(event("ADDED", pod(1, version=5, uid="bad")), version=10)

    assert merged.appeared == frozenset()
    assert (merged.ended, store.shown) == ((), {})


def test_an_event_below_the_floor_does_not_add_an_unknown_pod() -> None:
    """It was created and deleted between two observations; its DELETED event is still to come."""
    store = watched(1)
    store.list(9)

    merged = store.events(event("ADDED", pod(1, version=3)))
    assert merged.appeared == {1}
    assert (merged.ended, store.shown) == ((), {})

    assert uids(store.events(event("DELETED", pod(1, version=8, terminating=True))).ended) == ["uid-1"]


def test_a_stale_list_from_a_cache_takes_no_pod_back_in_time() -> None:
    store = watched(1, pod(1, version=1))
    store.events(event("MODIFIED", pod(1, version=5)))

    merged = store.list(3, pod(1, version=1), consistent=False)

    assert not merged.look_again
    assert store.shown == {1: ("uid-1", "5")}


def test_only_a_consistent_list_is_a_full_sync_and_the_newest_counts() -> None:
    store = Store()
    store.list(1, consistent=False)
    assert store.history.snapshot.full_sync_at is None

    store.list(2, asked=50.0)
    store.list(2, asked=40.0)
    assert store.history.snapshot.full_sync_at == 50.0


def test_ends_inferred_from_a_list_are_in_the_order_of_ids() -> None:
    store = Store()
    store.list(1, *(pod(number, version=1) for number in (7, 3, 11, 5)))

    assert [ended.executor_id for ended in store.list(2).ended] == [3, 5, 7, 11]


# ── one name, one id ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_later_pod_of_the_same_name_ends_the_earlier_one() -> None:
    store = watched(1, pod(1, version=1, uid="old"))

    merged = store.events(event("ADDED", pod(1, version=5, uid="new")))

    assert uids(merged.ended) == ["old"]
    assert merged.appeared == {1}
    assert store.shown == {1: ("new", "5")}
    assert store.events(event("DELETED", pod(1, version=4, uid="old"))).ended == ()


def test_an_earlier_pod_of_the_same_name_does_not_replace_the_later_one() -> None:
    store = watched(1, pod(1, version=5, uid="new"))
    asked = store.now
    store.events(event("MODIFIED", pod(1, version=6, uid="new")))

    store.list(5, pod(1, version=2, uid="old"), asked=asked)

    assert store.shown == {1: ("new", "6")}


@pytest.mark.parametrize("by", ["poll", "watch"])
def test_a_later_pod_of_the_same_name_ends_an_absent_one_before_it_takes_its_place(by: str) -> None:
    """A subscriber that saw the later pod first would take it for the executor, and the end for that of another."""
    store = watched(1, pod(1, version=1, uid="old"))

    if by == "watch":
        assert uids(store.list(4).ended) == [], "its DELETED event may come"
        merged = store.events(event("ADDED", pod(1, version=5, uid="new")))
    else:
        merged = store.list(5, pod(1, version=5, uid="new"))

    assert (uids(merged.ended), set(merged.appeared), set(merged.changed)) == (["old"], {1}, {1})
    assert store.shown == {1: ("new", "5")}
    late = store.events(event("DELETED", pod(1, version=3, uid="old", terminating=True)), version=6)
    assert (late.ended, store.shown) == ((), {1: ("new", "5")})


def test_a_copy_waits_for_the_end_of_an_absent_pod() -> None:
    store = watched(1, pod(1, version=1))

    first = store.list(5, copy_of(1, version=4))
    assert ([each.name for each in first.malformed], first.ended, store.shown) == (["copy-exec-1"], (), {})
    ended = store.list(6, copy_of(1, version=4))
    assert (uids(ended.ended), store.shown) == (["uid-1"], {1: ("copy", "4")})


def copy_of(number: int, *, version: int, phase: str = "Running") -> Pod:
    """A pod of another name and UID with this executor's label."""
    subject = pod(number, version=version, uid="copy", phase=phase)
    metadata = msgspec.structs.replace(subject.metadata, name=f"copy-exec-{number}")
    return msgspec.structs.replace(subject, metadata=metadata)


def test_a_second_pod_with_the_same_executor_id_is_set_aside_and_reported_once() -> None:
    store = watched(1, pod(1, version=1))

    first = store.events(event("ADDED", copy_of(1, version=2)))
    assert [each.name for each in first.malformed] == ["copy-exec-1"]

    listed = store.list(3, copy_of(1, version=2), pod(1, version=1))
    assert (listed.malformed, listed.reset, store.shown) == ((), False, {1: ("uid-1", "1")})


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
def test_changes_of_a_copy_are_never_reported_as_the_executors(kind: EventType) -> None:
    store = watched(1, pod(1, version=1))
    store.list(5, pod(1, version=1), copy_of(1, version=2))

    merged = store.events(event(kind, copy_of(1, version=3)), version=9)

    assert (merged.ended, merged.appeared, store.shown) == ((), frozenset(), {1: ("uid-1", "1")})


def test_when_the_first_one_has_ended_the_copy_takes_its_place() -> None:
    store = watched(2, pod(1, version=1), copy_of(1, version=2))
    store.events(event("DELETED", pod(1, version=3, terminating=True)))

    assert store.list(4, copy_of(1, version=2)).appeared == {1}
    assert store.shown == {1: ("copy", "2")}


# ── malformed pods ───────────────────────────────────────────────────────────────────────────────────────────────


def malformed_pod(uid: str, version: int) -> Pod:
    subject = pod(1, version=version, uid=uid)
    labels = {**subject.labels, EXECUTOR_ID_LABEL: "seven"}
    return msgspec.structs.replace(subject, metadata=msgspec.structs.replace(subject.metadata, shared_labels=labels))


def test_a_malformed_pod_is_set_aside_once_and_harms_no_other() -> None:
    store = Store()

    merged = store.list(3, malformed_pod("bad", 2), pod(2, version=1), stream=1)
    assert [each.uid for each in merged.malformed] == ["bad"]
    assert store.shown == {2: ("uid-2", "1")}

    assert store.events(event("MODIFIED", malformed_pod("bad", 4))).malformed == ()
    assert store.list(5, malformed_pod("bad", 4), pod(2, version=1)).malformed == ()


def test_a_malformed_pod_that_is_gone_is_forgotten() -> None:
    store = watched(1, malformed_pod("listed", 1))
    store.events(event("ADDED", malformed_pod("watched", 2)))

    store.events(event("DELETED", malformed_pod("watched", 3)))
    assert set(store.history.set_aside) == {"listed"}
    store.list(4)
    assert set(store.history.set_aside) == set()


def test_a_known_pod_keeps_its_executor_id_when_its_label_changes() -> None:
    store = watched(1, pod(1, version=1))

    store.events(event("MODIFIED", malformed_pod("uid-1", 2)))
    assert store.shown == {1: ("uid-1", "2")}
    assert store.list(3, malformed_pod("uid-1", 2)).ended == ()

    merged = store.events(event("DELETED", malformed_pod("uid-1", 4)))
    assert [(ended.executor_id, ended.uid) for ended in merged.ended] == [(1, "uid-1")]


def test_an_event_before_any_list_or_of_another_stream_than_the_lists_is_dropped() -> None:
    store = Store()
    assert not store.events(event("ADDED", pod(1, version=5))).applied
    store = watched(1, pod(1, version=1))
    assert not store.events(event("ADDED", pod(2, version=5)), stream=2).applied
    assert store.shown == {1: ("uid-1", "1")}


def test_the_position_of_a_stream_never_goes_back() -> None:
    store = watched(50, pod(1, version=1))
    store.events(version=40)
    assert store.history.progress.position == "50"


def test_a_version_of_absurd_length_harms_no_other_pod() -> None:
    store = watched(1, pod(1, version=1))
    store.events(event("ADDED", pod(2, version="9" * 5_000)), event("ADDED", pod(3, version=3)))
    assert set(store.shown) == {1, 2, 3}


# ── tombstones ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tombstone_goes_when_both_floor_and_position_have_passed_it() -> None:
    store = watched(1, pod(1, version=1), pod(2, version=1))
    store.events(event("DELETED", pod(1, version=5, terminating=True)))
    assert "uid-1" in store.history.tombstones

    store.list(4, pod(2, version=1), asked=store.now - 1)
    assert "uid-1" in store.history.tombstones, "the floor has not passed it"

    store.list(6, pod(2, version=1))
    assert "uid-1" not in store.history.tombstones


def test_a_tombstone_stays_while_the_stream_is_behind_it() -> None:
    store = watched(1, pod(1, version=1))
    store.list(5)
    store.list(6)
    assert "uid-1" in store.history.tombstones

    assert store.events(event("DELETED", pod(1, version=3, terminating=True))).ended == ()
    store.events(version=6)
    store.list(7)
    assert "uid-1" not in store.history.tombstones


def test_an_abandoned_stream_holds_no_tombstones() -> None:
    store = watched(1, pod(1, version=1), pod(2, version=1))
    store.list(5, pod(2, version=1))
    store.list(6)

    merged = store.give_up(1)

    assert uids(merged.ended) == ["uid-2"]
    assert "uid-1" not in merged.history.tombstones
    assert not store.events(event("ADDED", pod(3, version=7)), stream=1).applied
    store.list(7, stream=2)
    assert store.events(event("ADDED", pod(3, version=8)), stream=2).applied


def test_abandoning_a_later_stream_ends_the_earlier_one_too() -> None:
    store = watched(1, pod(1, version=1))
    store.list(5)
    assert uids(store.give_up(7).ended) == ["uid-1"]


def test_abandoning_a_stream_before_the_current_one_changes_nothing() -> None:
    store = watched(1, pod(1, version=1))
    before = store.history

    assert not store.give_up(0).applied
    assert store.history is before


# ── resets ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_below_a_version_handled_before_its_request_proves_a_reset() -> None:
    store = watched(5, pod(1, version=5), pod(2, version=4))
    store.events(version=50)  # a bookmark counts too

    merged = store.twice(20, pod(1, version=3), pod(9, version=19))

    assert (merged.reset, merged.relist) == (True, True)
    assert store.shown == {1: ("uid-1", "3"), 9: ("uid-9", "19")}
    assert uids(merged.ended) == ["uid-2"]
    assert (store.history.progress.floor, store.history.snapshot.resource_version) == ("20", "20")


def test_a_list_with_a_pod_older_than_known_proves_a_reset() -> None:
    store = watched(5, pod(1, version=5))

    assert store.twice(30, pod(1, version=4)).reset
    assert store.shown == {1: ("uid-1", "4")}


def test_a_list_with_an_ended_pod_proves_a_reset() -> None:
    store = watched(1, pod(1, version=1))
    store.events(event("DELETED", pod(1, version=2, terminating=True)))

    merged = store.twice(30, pod(1, version=1))

    assert merged.reset
    assert store.shown == {1: ("uid-1", "1")}


def test_a_version_handled_after_the_lists_request_proves_nothing() -> None:
    store = watched(1, pod(1, version=1), pod(2, version=1))
    asked = store.now
    store.events(event("MODIFIED", pod(1, version=8)), event("DELETED", pod(2, version=9, terminating=True)))

    merged = store.list(4, pod(1, version=1), pod(2, version=1), asked=asked)

    assert not merged.look_again
    assert store.shown == {1: ("uid-1", "8")}


def test_a_list_later_than_a_change_that_it_lacks_proves_a_reset() -> None:
    """Otherwise a pod would go back in time without a reset."""
    store = watched(1, pod(1, version=1))
    asked = store.now
    store.events(event("MODIFIED", pod(1, version=8)))

    late = store.list(10, pod(1, version=7), asked=asked)
    assert (late.applied, late.reset, late.look_again) == (False, False, True)
    store.now += SECOND_LOOK.total_seconds()
    assert store.list(11, pod(1, version=7)).reset


def test_a_list_from_a_cache_never_proves_a_reset() -> None:
    store = watched(5, pod(1, version=5))
    store.events(event("DELETED", pod(1, version=6, terminating=True)))

    assert not store.list(4, consistent=False).look_again
    assert not store.list(30, pod(1, version=5), consistent=False).look_again
    assert store.shown == {}


def test_a_reset_forgets_every_version_tombstone_and_absence() -> None:
    store = watched(1, pod(1, version=1), pod(2, version=1), pod(3, version=1))
    store.events(event("DELETED", pod(1, version=50, terminating=True)))
    store.list(60, pod(2, version=1))
    assert "uid-3" in {ended.uid for ended in store.merged.ended} | set(store.history.absent)

    merged = store.twice(20, pod(2, version=1))

    assert merged.reset
    assert (dict(store.history.tombstones), dict(store.history.absent)) == ({}, {})
    assert not store.list(21, pod(1, version=21), pod(2, version=1)).look_again
    assert store.shown == {1: ("uid-1", "21"), 2: ("uid-2", "1")}


def test_after_a_reset_the_old_stream_is_dropped_and_the_watchs_next_list_counts() -> None:
    store = watched(50, pod(1, version=50))
    assert store.twice(20, pod(1, version=5)).reset

    assert not store.events(event("MODIFIED", pod(1, version=51)), stream=1).applied
    assert store.list(22, pod(1, version=5), stream=2).applied
    store.events(event("MODIFIED", pod(1, version=23)), stream=2)
    assert store.shown == {1: ("uid-1", "23")}


def test_a_list_requested_before_a_reset_was_detected_is_dropped() -> None:
    """It may be of the old history: its versions would make all of the new one look old."""
    store = watched(50, pod(1, version=50))
    asked = store.now
    assert store.twice(20, pod(1, version=5)).reset

    late = store.list(60, pod(1, version=55), asked=asked, stream=2)

    assert (late.applied, late.relist) == (False, True)
    assert store.shown == {1: ("uid-1", "5")}


def test_the_watchs_next_list_counts_after_any_number_of_resets() -> None:
    store = watched(50)
    assert store.twice(20).reset
    assert store.twice(10).reset

    assert not store.list(11, stream=2).relist
    assert store.events(event("ADDED", pod(1, version=12)), stream=2).applied


def test_a_list_with_an_older_streams_number_is_merged_as_a_poll_and_its_watch_lists_again() -> None:
    """A watch that was replaced while it hung still sends its messages."""
    store = Store()
    store.list(1, stream=5)

    merged = store.list(2, pod(1, version=2), stream=3)

    assert (merged.applied, merged.relist, store.shown) == (True, True, {1: ("uid-1", "2")})
    assert store.events(event("ADDED", pod(2, version=3)), stream=5).applied
    assert not store.events(event("ADDED", pod(3, version=4)), stream=3).applied


def test_a_watchs_own_list_that_proves_a_reset_is_not_requested_again() -> None:
    store = watched(50)

    merged = store.twice(20, stream=2)

    assert (merged.reset, merged.relist) == (True, False)
    assert store.events(event("ADDED", pod(1, version=21)), stream=3).applied


def test_versions_handled_at_one_moment_prove_nothing() -> None:
    """At one reading of the clock nobody can tell which came first."""
    store = watched(5, pod(1, version=5))
    store.events(event("MODIFIED", pod(1, version=9)))

    assert not store.list(8, pod(1, version=5), asked=store.now).look_again


# ── versions that are no numbers ─────────────────────────────────────────────────────────────────────────────────


def test_with_opaque_versions_the_last_message_wins_and_equal_ones_are_dropped() -> None:
    store = Store()
    store.list("a", pod(1).at_version("m"), stream=1)

    assert store.events(event("MODIFIED", pod(1, phase="Pending").at_version("m"))).changed == frozenset()
    assert store.events(event("MODIFIED", pod(1, phase="Pending").at_version("c"))).changed == {1}
    assert store.list("b", pod(1).at_version("k")).changed == {1}
    assert store.shown == {1: ("uid-1", "k")}


def test_ends_are_reported_and_forgotten_with_opaque_versions() -> None:
    store = Store()
    store.list("a", pod(1).at_version("m"), pod(2).at_version("n"), stream=1)

    assert uids(store.events(event("DELETED", pod(1, terminating=True).at_version("o"))).ended) == ["uid-1"]
    assert uids(store.list("b").ended) == ["uid-2"]
    store.list("c")
    store.list("d")
    assert not store.merged.look_again
    assert (dict(store.history.tombstones), dict(store.history.absent)) == ({}, {})


# ── what had been seen by when ───────────────────────────────────────────────────────────────────────────────────


# ── many reads in one step ───────────────────────────────────────────────────────────────────────────────────────────


def test_reads_in_one_step_report_what_each_would_report_alone() -> None:
    """A pod missing from the LIST ends as soon as the stream has passed it, and appears again as a new one."""
    store = watched(5, pod(1, version=5))
    store.list(50)
    step = Merge(store.history)
    assert step.read((), "50", 1, now=store.now)
    assert step.read((event("ADDED", pod(1, version=60)),), "60", 1, now=store.now)
    merged = step.finish()
    assert uids(merged.ended) == ["uid-1"]
    assert merged.changed == merged.appeared == frozenset({1})
    assert (merged.history.progress.position, merged.history.snapshot.resource_version) == ("60", "60")


def test_a_step_does_not_change_the_history_it_began_with() -> None:
    store = watched(5, pod(1, version=5))
    before = store.shown
    step = Merge(store.history)
    step.read((event("MODIFIED", pod(1, version=60)), event("ADDED", pod(2, version=61))), "61", 1, now=store.now)
    assert store.shown == before
    assert set(step.finish().history.snapshot.states) == {1, 2}
    assert store.shown == before


@pytest.mark.parametrize(
    ("change", "is_urgent"),
    [
        (event("MODIFIED", pod(1, version=60)), False),
        (event("ADDED", pod(2, version=60)), False),
        (event("MODIFIED", pod(1, version=60, phase="Failed")), True),
        (event("MODIFIED", pod(1, version=60, terminating=True)), True),
        (event("DELETED", pod(1, version=60, terminating=True)), True),
        (event("MODIFIED", pod(1, version=4, phase="Failed")), False),
    ],
)
def test_a_step_is_urgent_when_a_pod_ended_or_is_terminating(change: PodEvent, is_urgent: bool) -> None:
    store = watched(5, pod(1, version=5))
    assert store.events(change).urgent is is_urgent


@pytest.mark.parametrize(
    ("change", "is_urgent"),
    [
        (event("MODIFIED", pod(1, version=61, phase="Failed")), False),
        (event("MODIFIED", pod(1, version=61, phase="Failed", terminating=True)), False),
        (event("DELETED", pod(1, version=61, phase="Failed", terminating=True)), False),
        (event("DELETED", pod(2, version=61, phase="Failed", claims=("scratch",))), True),
    ],
)
def test_what_becomes_of_a_pod_whose_end_is_known_is_not_urgent_unless_it_leaves_a_claim(
    change: PodEvent, is_urgent: bool
) -> None:
    store = watched(5, pod(1, version=5), pod(2, version=5, claims=("scratch",)))
    store.events(event("MODIFIED", pod(1, version=60, phase="Failed")))
    store.events(event("MODIFIED", pod(2, version=60, phase="Failed", claims=("scratch",))))
    assert store.events(change).urgent is is_urgent


@pytest.mark.parametrize(
    ("change", "has_begun"),
    [
        (event("MODIFIED", pod(1, version=60)), True),
        (event("MODIFIED", pod(2, version=60)), False),
        (event("MODIFIED", pod(1, version=60, phase="Pending")), False),
        (event("MODIFIED", pod(1, version=60, phase="Failed")), False),
        (event("MODIFIED", pod(1, version=4)), False),
        (event("ADDED", pod(3, version=60)), True),
        (event("ADDED", pod(3, version=60, phase="Pending")), False),
        (event("DELETED", pod(1, version=60, terminating=True)), False),
    ],
)
def test_a_step_says_when_a_pod_begins_to_run(change: PodEvent, has_begun: bool) -> None:
    store = watched(5, pod(1, version=5, phase="Pending"), pod(2, version=4))
    assert store.merged.begun, "2 runs when it is seen first"
    assert store.events(change).begun is has_begun


def test_a_list_of_unchanged_pods_changes_nothing_and_proves_nothing() -> None:
    store = watched(5, pod(1, version=5), pod(2, version=4))
    states = store.history.snapshot.states
    merged = store.list(50, pod(1, version=5), states[2].pod)
    assert (merged.applied, merged.changed, merged.ended, merged.urgent) == (True, frozenset(), (), False)
    assert store.history.snapshot.states == states
    assert store.history.snapshot.states[1] is states[1]


def test_the_last_version_of_a_granule_counts_from_its_own_moment_on() -> None:
    first, last = 100.0 + SEEN_GRANULE / 4, 100.0 + SEEN_GRANULE / 2
    seen = see(see((), "7", first), "8", last)

    assert highest_before(seen, last) == 0
    assert highest_before(seen, last + SEEN_GRANULE / 100) == 8
    assert highest_before(see(seen, "9", last + SEEN_GRANULE), last + SEEN_GRANULE) == 8


def test_handled_versions_are_kept_within_bounds_and_never_dated_earlier() -> None:
    seen: tuple[tuple[float, int], ...] = ()
    for step in range(10_000):
        seen = see(seen, str(step + 1), now=step * 0.05)
        assert len(seen) <= SEEN_KEPT

    for moment in range(500):
        assert highest_before(seen, float(moment)) <= moment / 0.05 + 1
    assert highest_before(seen, 500.0) >= 9_990
    assert highest_before(seen, 440.0) > 0, "a list that takes a minute still finds something"


# ── strangers ────────────────────────────────────────────────────────────────────────────────────────────────────


def closed(version: int, *known: int) -> Store:
    """A store of a driver that has taken over, and whose executors have these ids."""
    store = Store(History(PodRules(), adopts=False, known=IdRanges.of(known)))
    store.list(version, stream=1)
    return store


def test_a_pod_of_an_unknown_id_is_a_strangers_and_is_told_once() -> None:
    store = closed(1, 1)
    first = store.events(event("ADDED", pod(7, version=2)))
    assert ([each.name for each in first.strange], first.changed, first.appeared) == (
        ["app-exec-7"],
        frozenset(),
        frozenset({7}),
    )
    again = store.events(event("MODIFIED", pod(7, version=3)))
    listed = store.list(4, pod(7, version=3))
    assert (again.strange, listed.strange, store.shown) == ((), (), {})


def test_a_strangers_pod_stays_one_when_its_id_is_known_later_and_until_it_is_gone() -> None:
    store = closed(1)
    store.events(event("ADDED", pod(7, version=2)))
    store.history = replace(store.history, known=IdRanges.of([7]), adopts=True)
    assert store.events(event("MODIFIED", pod(7, version=3))).strange == ()
    gone = store.events(event("DELETED", pod(7, version=4)))
    assert (gone.ended, gone.appeared, store.shown, store.history.strangers) == ((), frozenset(), {}, {})
    store.events(event("ADDED", pod(7, uid="ours", version=5)))
    assert store.shown == {7: ("ours", "5")}


def test_a_strangers_pod_that_a_list_lacks_is_forgotten() -> None:
    store = closed(1)
    store.list(3, pod(7, version=2))
    assert store.history.strangers == {"uid-7": 7}
    store.list(4)
    assert store.history.strangers == {}
