"""Numbers in place of pods that the other side has: the observer gives them, the driver's process looks them up.

The observer's `HttpPodApi` returns the same `Pod` for one that is unchanged, so a poll of an unchanged fleet crosses as
a list of numbers. A number whose pod is gone is forgotten on both sides. Forgetting too early costs one more crossing,
and loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from actors.kube.api import PodPage, WatchEvents
from actors.kube.deduplication import SharedParts
from actors.kube.observer.columns import TextColumn, numbers_of, pack_numbers
from actors.kube.observer.frames import Events, Forget, Page
from actors.pods.pod import Pod, PodEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.pods.pod import EventType

__all__ = ["KnownPods", "PodNumbers"]


class _Numbered(msgspec.Struct, gc=False):
    number: int
    pod: Pod
    lists: int
    """How many LISTs had begun when it was seen last."""


@final
class PodNumbers:
    """The observer's side. Not thread-safe: what it returns must be sent in the order in which it was returned."""

    def __init__(self) -> None:
        self._by_uid: dict[str, _Numbered] = {}
        self._next = 1
        self._lists = 0
        self._nameless: list[int] = []
        """Numbers of pods without a UID: each is another one, every time."""

    def begin_list(self) -> int:
        """Count a LIST whose first page is being requested, and return its place."""
        self._lists += 1
        return self._lists

    def page(self, serial: int, page: PodPage) -> Page:
        """Return a page as it crosses."""
        numbers: list[int] = []
        news: list[tuple[int, Pod]] = []
        for pod in page.pods:
            number, is_new = self._number(pod)
            numbers.append(number)
            if is_new:
                news.append((number, pod))
        return Page(
            serial,
            pack_numbers(numbers),
            news,
            TextColumn.of([page.version_of(place) for place in range(len(page.pods))]),
            page.resource_version,
            page.continue_token,
            page.malformed,
            page.pages,
        )

    def lacked(self, pods: Iterable[Pod]) -> int:
        """Return how many of these pods the other side lacks as they are."""
        known = self._by_uid
        return sum((last := known.get(pod.metadata.uid)) is None or last.pod is not pod for pod in pods)

    def events(self, serial: int, read: WatchEvents) -> Events:
        """Return events as they cross."""
        crossing: list[tuple[EventType, int, Pod | None]] = []
        for event in read.events:
            number, is_new = self._number(event.pod)
            crossing.append((event.type, number, event.pod if is_new else None))
            if event.type == "DELETED":
                self._by_uid.pop(event.pod.metadata.uid, None)
        return Events(serial, crossing, read.resource_version, read.malformed, read.initial_events_end, read.unchanged)

    def end_list(self, place: int) -> Forget | None:
        """Forget the pods that were not seen since this LIST began: it is complete, and they are gone."""
        gone = {uid: each.number for uid, each in self._by_uid.items() if each.lists < place}
        for uid in gone:
            del self._by_uid[uid]
        numbers, self._nameless = [*gone.values(), *self._nameless], []
        return Forget(numbers) if numbers else None

    def _number(self, pod: Pod) -> tuple[int, bool]:
        """Return a pod's number, and whether the other side lacks it as it is."""
        uid = pod.metadata.uid
        known = self._by_uid.get(uid)
        if known is None:
            number, self._next = self._next, self._next + 1
            if uid:
                self._by_uid[uid] = _Numbered(number, pod, self._lists)
            else:
                self._nameless.append(number)
            return number, True
        known.lists = self._lists
        if known.pod is pod:
            return known.number, False
        known.pod = pod
        return known.number, True


@final
class KnownPods:
    """The side of the driver's process. Not thread-safe: frames are read by one thread."""

    def __init__(self) -> None:
        self._pods: dict[int, Pod] = {}
        self._parts = SharedParts()

    def page(self, page: Page) -> PodPage:
        """Return the page that has crossed."""
        for number, pod in page.news:
            self._take(number, pod)
        found = tuple(map(self._pods.__getitem__, numbers_of(page.numbers)))
        return PodPage(found, page.resource_version, page.continue_token, page.malformed, page.versions, page.pages)

    def events(self, read: Events) -> WatchEvents:
        """Return the events that have crossed."""
        events = []
        for type_, number, pod in read.events:
            if pod is not None:
                self._take(number, pod)
            events.append(PodEvent(type_, self._pods[number]))
            if type_ == "DELETED":
                del self._pods[number]
        return WatchEvents(
            tuple(events), read.resource_version, read.malformed, read.initial_events_end, read.unchanged
        )

    def forget(self, frame: Forget) -> None:
        """Forget pods that are gone."""
        for number in frame.numbers:
            self._pods.pop(number, None)

    def _take(self, number: int, pod: Pod) -> None:
        self._parts.share(pod, self._pods.get(number))
        self._pods[number] = pod
