"""Numbers in place of pods, from one side to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from actors.kube.api import PodPage, WatchEvents
from actors.kube.deduplication import MAX_SHARED
from actors.kube.observer.frames import Forget, from_observer, pack
from actors.kube.observer.pod_table import KnownPods, PodNumbers
from actors.pods.pod import ContainerStatus, PodStatus
from tests.unit.builders import event, pod

if TYPE_CHECKING:
    from actors.pods.pod import Pod


class Sides:
    """Both sides, and all that crosses between them, as bytes."""

    def __init__(self) -> None:
        self.numbers = PodNumbers()
        self.known = KnownPods()
        self.size = 0
        """Bytes of the last frame."""

    def page(self, *pods: Pod, **more: Any) -> PodPage:
        page = PodPage(pods, "9", **more)
        crossed = from_observer(self._bytes(pack(self.numbers.page(1, page))))
        return self.known.page(crossed)

    def events(self, read: WatchEvents) -> WatchEvents:
        return self.known.events(from_observer(self._bytes(pack(self.numbers.events(1, read)))))

    def end_list(self, place: int) -> Forget | None:
        forget = self.numbers.end_list(place)
        if forget is not None:
            self.known.forget(forget)
        return forget

    def _bytes(self, frame: bytes) -> bytes:
        self.size = len(frame)
        return frame[4:]


@pytest.fixture
def sides() -> Sides:
    return Sides()


def test_a_page_crosses_as_it_is(sides: Sides) -> None:
    pods = (pod(1, version=3), pod(2, version=4, phase="Pending"))
    page = sides.page(*pods, continue_token="more", malformed=2, versions=["17", "4"])
    assert page == PodPage(pods, "9", "more", 2, page.versions)
    assert [page.version_of(place) for place in range(2)] == ["17", "4"]


def test_a_page_without_pods_crosses(sides: Sides) -> None:
    assert sides.page().pods == ()


def test_an_unchanged_pod_crosses_as_a_number_and_is_the_same_object(sides: Sides) -> None:
    pods = [pod(number, version=3) for number in range(1, 501)]
    first = sides.page(*pods)
    again = sides.page(*pods)
    assert all(one is other for one, other in zip(first.pods, again.pods, strict=True))
    assert sides.size < 20 * len(pods)


def test_a_changed_pod_crosses_anew(sides: Sides) -> None:
    sides.page(pod(1, version=3))
    changed = pod(1, version=4)
    assert sides.page(changed).pods == (changed,)
    assert sides.page(changed).pods == (changed,)


def test_events_cross_as_they_are(sides: Sides) -> None:
    known = pod(1, version=3)
    sides.page(known)
    for read in (
        WatchEvents((event("ADDED", pod(2, version=5)),), "5", malformed=1, initial_events_end=True, unchanged=4),
        WatchEvents((event("MODIFIED", known),), "5"),
        WatchEvents((event("DELETED", pod(2, version=6, terminating=True)), event("DELETED", known)), "6"),
        WatchEvents((), "7"),
    ):
        assert sides.events(read) == read


def test_what_a_pod_has_in_common_with_its_last_version_is_kept_once(sides: Sides) -> None:
    first = sides.page(pod(1, version=3)).pods[0]
    second = sides.page(pod(1, version=4)).pods[0]
    assert second.metadata.labels is first.metadata.labels
    assert second.status is first.status


def test_a_deleted_pod_is_forgotten_on_both_sides(sides: Sides) -> None:
    sides.page(pod(1))
    sides.events(WatchEvents((event("DELETED", pod(1, version=4)),), "4"))
    assert (sides.numbers._by_uid, sides.known._pods) == ({}, {})


def test_a_pod_that_a_whole_list_lacks_is_forgotten_on_both_sides(sides: Sides) -> None:
    first = sides.numbers.begin_list()
    sides.page(pod(1), pod(2))
    assert sides.end_list(first) is None
    second = sides.numbers.begin_list()
    sides.page(pod(2))
    sides.events(WatchEvents((event("ADDED", pod(3)),), "9"))
    sides.end_list(second)
    assert set(sides.numbers._by_uid) == {"uid-2", "uid-3"}
    assert len(sides.known._pods) == 2


def test_of_two_lists_at_once_each_forgets_what_it_proves_gone(sides: Sides) -> None:
    watch = sides.numbers.begin_list()
    sides.page(pod(1))
    poll = sides.numbers.begin_list()
    sides.page(pod(2))
    assert sides.end_list(watch) is None
    sides.end_list(poll)
    assert set(sides.numbers._by_uid) == {"uid-2"}
    assert sides.page(pod(1)).pods == (pod(1),), "it crosses again"


def test_pods_without_a_uid_are_not_taken_for_one_another(sides: Sides) -> None:
    def nameless(number: int) -> Pod:
        return replace(pod(number), metadata=replace(pod(number).metadata, uid=""))

    place = sides.numbers.begin_list()
    pods = (nameless(1), nameless(2))
    assert sides.page(*pods).pods == pods
    assert sides.events(WatchEvents((event("DELETED", nameless(3)),), "9")).events[0].pod == nameless(3)
    sides.end_list(place)
    assert sides.known._pods == {}


def test_values_that_no_two_pods_share_do_not_pile_up(sides: Sides) -> None:
    for count in range(2 * MAX_SHARED):
        changed = pod(1, version=count + 3)
        status = replace(changed.status or PodStatus(), container_statuses=(ContainerStatus("main", count),))
        sides.events(WatchEvents((event("MODIFIED", replace(changed, status=status)),), "9"))
    assert len(sides.known._parts._shared) <= MAX_SHARED + 8
