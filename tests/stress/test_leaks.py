"""A hundred backends in one process, ended in each of the ways there are: the process is as it was before them.

Neither thread, open file nor object is left after any wave of ten, and the memory is that of the first twenty. And a
store that is told a million events, in virtual time, has the memory of the first ten thousand (`STRESS_EVENTS`).
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from actors.messages.internal import AddSubscriber, BatchDone, ReplaceSnapshot, SnapshotBatch, UpdatePods
from actors.runtime import Actor
from actors.settings.model import Settings
from actors.store.snapshot_store import SnapshotStore
from actors.testing import Kit
from tests.stress.lives import AT_ONCE, WAYS, nothing_left, resident_mebibytes
from tests.unit.builders import event, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.pods.pod import Pod, PodEvent
    from actors.runtime import Address, Context

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc"),
]

LIVES: Final = 100
WARM_UP: Final = 20
"""Lives until modules are imported, caches filled, and the allocator has its arenas."""
LOOKS: Final = 3
"""At the memory, at the beginning and at the end; the lowest counts."""
SLACK_MEBIBYTES: Final = 4.0
"""For sixty lives more: what an allocator does not give back. A Backend that is kept takes some hundred KiB."""

EVENTS: Final = int(os.environ.get("STRESS_EVENTS", "1000000"))
FIRST_EVENTS: Final = 10_000
FLEET: Final = 50
FEW_BLOCKS: Final = 5_000
"""Of Python's allocator; a pod has some ten."""
STORM_EVENTS: Final = 100_000
STORM_READS: Final = 100
"""Moments of the second at which what has come is merged."""
STEP: Final = timedelta(milliseconds=100)
MOMENT: Final = timedelta(milliseconds=1)
SLOW: Final = timedelta(seconds=5)
STEPS_BETWEEN_LISTS: Final = 20


@pytest.fixture
def unlogged() -> Iterator[None]:
    """Pytest keeps each record, with what its error was raised in: fifteen KiB a life without an API."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize("way", WAYS)
def test_a_hundred_lives_leave_the_memory_where_it_was(way: str, tmp_path: Path) -> None:
    """What is kept is there each time; what threads that are just ending still have comes and goes."""
    taken = []
    for _ in range(LIVES // AT_ONCE):
        nothing_left(tmp_path, WAYS[way])
        taken.append(resident_mebibytes())
    print(f"\nMiB after each {AT_ONCE}: {[round(each, 1) for each in taken]}")
    warm = taken[WARM_UP // AT_ONCE - 1 :]
    assert min(warm[-LOOKS:]) - min(warm[:LOOKS]) <= SLACK_MEBIBYTES


def test_a_million_events_end_with_the_memory_of_the_first_ten_thousand() -> None:
    with Kit() as kit:
        years = Years(kit)
        years.until(FIRST_EVENTS)
        blocks, mebibytes = sys.getallocatedblocks(), resident_mebibytes()
        ends = [subscriber.ends for subscriber in years.subscribers]
        years.until(EVENTS)
        for subscriber, first in zip(years.subscribers, ends, strict=True):
            assert subscriber.ends > first + FLEET, "the whole fleet was replaced"
        more_mebibytes, more_blocks = resident_mebibytes() - mebibytes, sys.getallocatedblocks() - blocks
        print(
            f"\n{years.events} events, {years.subscribers[0].ends} ends: {more_blocks:+} blocks to {blocks}, "
            f"{more_mebibytes:+.1f} MiB to {mebibytes:.1f}"
        )
        assert more_blocks <= FEW_BLOCKS
        assert more_mebibytes <= SLACK_MEBIBYTES


def test_a_storm_of_a_hundred_thousand_events_in_one_second_leaves_nothing_behind() -> None:
    with Kit() as kit:
        years = Years(kit)
        years.until(FIRST_EVENTS)
        before, batches = sys.getallocatedblocks(), [subscriber.batches for subscriber in years.subscribers]
        years.storm(STORM_EVENTS)
        quick, slow = (each.batches - was for each, was in zip(years.subscribers, batches, strict=True))
        more = sys.getallocatedblocks() - before
        print(f"\n{STORM_EVENTS} events in a second: {quick} batches, {slow} for who is slow, {more:+} blocks")
        assert slow <= 1, "it answered none yet"
        assert 1 < quick <= STORM_READS
        assert more <= FEW_BLOCKS


class Subscriber(Actor):
    """Takes its time with each batch, and keeps nothing of it."""

    def __init__(self, context: Context, store: Address, takes: timedelta) -> None:
        super().__init__(context)
        self.ends = self.batches = 0
        self._store = store
        self._takes = takes

    def started(self) -> None:
        self._store.tell(AddSubscriber(self.address, STEP))

    def receive(self, message: object) -> object:
        match message:
            case SnapshotBatch(seq=seq, ended=ended):
                self.ends += len(ended)
                self.batches += 1
                self.timers.start("done", self._takes, BatchDone(self.address, seq))
            case BatchDone():
                self._store.tell(message)
            case _:
                raise TypeError(f"a subscriber does not know {type(message).__name__}")
        return None


class Years:
    """A store in virtual time. Its watch brings news of every pod at each step; then the oldest is replaced, and at
    times all are listed."""

    def __init__(self, kit: Kit) -> None:
        self.events = 0
        self._kit = kit
        self._version = 0
        self._first = 1
        settings = Settings(app_id="app")
        self._store = kit.spawn(
            lambda context: SnapshotStore(
                context,
                settings=settings,
                rules=settings.pod_rules,
                watch_source=kit.system.address("watch-source"),
                poll_source=kit.system.address("poll-source"),
            ),
            name="snapshot-store",
        )
        self.subscribers: list[Subscriber] = []
        for takes in (MOMENT, SLOW):
            kit.spawn(partial(self._subscriber, takes=takes), name=f"subscriber-{takes}")
        self._list(stream=1)

    def until(self, events: int) -> None:
        """Until so many have been told."""
        while self.events < events:
            for step in range(STEPS_BETWEEN_LISTS):
                changed = [event("MODIFIED", self._pod(number)) for number in self._ids()]
                gone = event("DELETED", self._pod(self._first, terminating=True))
                self._first += 1
                self._tell(*changed, gone, event("ADDED", self._pod(self._first + FLEET - 1)))
                if step == 0:
                    self._list(stream=None)
                self._kit.advance(STEP)
                self._kit.trace.clear()  # the kit's own memory

    def storm(self, events: int) -> None:
        """So many within a second, as the pods change on and on, in reads of a few; then all are read."""
        for _ in range(STORM_READS):
            changed = [event("MODIFIED", self._pod(number)) for number in self._ids()]
            for start in range(0, events // STORM_READS, len(changed)):
                self._tell(*changed[: events // STORM_READS - start])
                changed = [event("MODIFIED", self._pod(number)) for number in self._ids()]
            self._kit.advance(timedelta(seconds=1) / STORM_READS)
            self._kit.trace.clear()

    def _subscriber(self, context: Context, takes: timedelta) -> Subscriber:
        self.subscribers.append(Subscriber(context, self._store, takes))
        return self.subscribers[-1]

    def _ids(self) -> range:
        return range(self._first, self._first + FLEET)

    def _pod(self, number: int, *, terminating: bool = False) -> Pod:
        self._version += 1
        return pod(number, version=self._version, terminating=terminating)

    def _tell(self, *events: PodEvent) -> None:
        self.events += len(events)
        self._store.tell(UpdatePods(events, str(self._version), 1))

    def _list(self, stream: int | None) -> None:
        """Asked for and answered at once; nothing has changed since the last event."""
        pods = tuple(self._pod(number) for number in self._ids())
        now = self._kit.clock.monotonic()
        self._store.tell(ReplaceSnapshot(pods, str(self._version), now, consistent=True, stream=stream))
