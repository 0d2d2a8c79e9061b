"""SnapshotStore between probes: when it sends batches, and what they contain. test_merge has the merge rules."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from actors.messages.internal import (
    AddSubscriber,
    BatchDone,
    LookAgain,
    Relist,
    ReplaceSnapshot,
    SnapshotBatch,
    StreamAbandoned,
    UpdatePods,
)
from actors.pods.pod import EXECUTOR_ID_LABEL, ContainerStatus, ObjectMeta, Pod, PodEvent, PodStatus
from actors.pods.state import PodDeleted, PodFailed, PodPending, PodRules, PodRunning
from actors.settings.model import Settings
from actors.store.snapshot_store import START_INTERVAL, SnapshotStore
from tests.unit.builders import event, pod

if TYPE_CHECKING:
    from actors.testing import Kit, Probe

INTERVAL = timedelta(seconds=1)
MIN_ROUND = timedelta(milliseconds=10)
MOMENT = timedelta(microseconds=1)
STREAM = 1


class Subscriber:
    """Receives batches and confirms them."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.probe: Probe = world.kit.probe(name)

    def subscribe(self, interval: timedelta = INTERVAL, *, follows_starts: bool = False) -> SnapshotBatch:
        """Subscribe, and handle the first batch."""
        self._world.tell(AddSubscriber(self.probe.address, interval, follows_starts))
        return self.handle()

    def take(self) -> SnapshotBatch:
        """Return the batch that arrived; it stays outstanding."""
        return self.probe.take(SnapshotBatch)

    def done(self, batch: SnapshotBatch) -> None:
        self._world.tell(BatchDone(self.probe.address, batch.seq))

    def handle(self) -> SnapshotBatch:
        batch = self.take()
        self.done(batch)
        return batch

    def has_nothing(self) -> bool:
        return not self.probe.received


class World:
    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.watch, self.poll = kit.probe("watch-source"), kit.probe("poll-source")
        self.store = kit.spawn(
            lambda context: SnapshotStore(
                context,
                settings=Settings(app_id="app"),
                rules=PodRules(),
                watch_source=self.watch.address,
                poll_source=self.poll.address,
            ),
            name="snapshot-store",
        )
        self.one = Subscriber(self, "one")
        self.two = Subscriber(self, "two")

    def tell(self, message: object) -> None:
        self.store.tell(message)
        self.kit.settle()

    def list(self, *pods: Pod, version: int, stream: int | None = STREAM, consistent: bool = True) -> None:
        now = self.kit.clock.monotonic()
        self.tell(ReplaceSnapshot(pods, str(version), now, consistent=consistent, stream=stream))

    def update(self, *events: PodEvent, version: int | None = None, stream: int = STREAM) -> None:
        reached = str(version) if version is not None else events[-1].pod.resource_version
        self.tell(UpdatePods(events, reached, stream))

    def delete(self, executor_id: int, version: int) -> None:
        self.update(event("DELETED", pod(executor_id, version=version, terminating=True)))


@pytest.fixture
def world(kit: Kit) -> World:
    return World(kit)


def told(batch: SnapshotBatch) -> tuple[set[int], set[int], list[int], bool]:
    """Return what a batch reports: changed, appeared, ended, full sync."""
    return set(batch.changed), set(batch.appeared), [ended.executor_id for ended in batch.ended], batch.full_sync


def later(kit: Kit) -> None:
    """Advance past `min_round_interval`, well within an interval."""
    kit.advance(MIN_ROUND)


# ── the first batch ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_subscriber_gets_a_batch_at_once_though_nothing_is_known_yet(world: World) -> None:
    first = world.one.subscribe()
    assert dict(first.snapshot.states) == {}
    assert told(first) == (set(), set(), [], False)
    assert first.heard_at is None


def test_the_first_batch_has_all_pods_as_appeared(world: World, kit: Kit) -> None:
    world.list(pod(1), pod(2, phase="Pending"), version=10)
    first = world.one.subscribe()
    assert {i: type(state) for i, state in first.snapshot.states.items()} == {1: PodRunning, 2: PodPending}
    assert first.changed == first.appeared == {1, 2}
    assert first.full_sync
    assert first.snapshot.full_sync_at == first.heard_at == kit.clock.monotonic()


def test_the_first_batch_has_no_earlier_ends(world: World) -> None:
    world.list(pod(1), pod(2), version=10)
    world.delete(1, 11)
    assert world.one.subscribe().ended == ()


def test_the_first_full_sync_is_sent_at_once(world: World, kit: Kit) -> None:
    world.one.subscribe(timedelta(minutes=1))
    later(kit)
    world.list(version=10)
    assert world.one.handle().full_sync


# ── the interval ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_batches_come_every_interval_changed_or_not(world: World, kit: Kit) -> None:
    world.one.subscribe()
    for _ in range(3):
        kit.advance(INTERVAL - MOMENT)
        assert world.one.has_nothing()
        kit.advance(MOMENT)
        assert told(world.one.handle()) == (set(), set(), [], False)


def test_a_change_waits_for_the_interval(world: World, kit: Kit) -> None:
    world.list(pod(1, phase="Pending"), version=10)
    world.one.subscribe()
    world.update(event("MODIFIED", pod(1, version=11)))
    kit.advance(INTERVAL - MOMENT)
    assert world.one.has_nothing()
    kit.advance(MOMENT)
    batch = world.one.handle()
    assert batch.changed == {1}
    assert isinstance(batch.snapshot.states[1], PodRunning)


def test_each_subscriber_has_an_interval_of_its_own(world: World, kit: Kit) -> None:
    world.one.subscribe(timedelta(seconds=1))
    world.two.subscribe(timedelta(seconds=5))
    received = []
    for _ in range(10):
        kit.advance(timedelta(seconds=1))
        received.append(tuple(len(subscriber.probe.received) for subscriber in (world.one, world.two)))
        for subscriber in (world.one, world.two):
            for batch in subscriber.probe.take_all(SnapshotBatch):
                subscriber.done(batch)
    assert received == [(1, 0)] * 4 + [(1, 1)] + [(1, 0)] * 4 + [(1, 1)]


def test_no_change_is_sent_twice(world: World, kit: Kit) -> None:
    world.list(pod(1), pod(2), version=10)
    world.one.subscribe()
    world.update(event("ADDED", pod(3, version=11)), event("MODIFIED", pod(2, version=12, phase="Unknown")))
    world.delete(1, 13)
    later(kit)
    assert told(world.one.handle()) == ({2, 3}, {3}, [1], False)
    kit.advance(INTERVAL)
    assert told(world.one.handle()) == (set(), set(), [], False)


def test_what_only_shows_of_a_running_pod_is_in_the_next_snapshot_and_no_change(world: World, kit: Kit) -> None:
    world.list(pod(1), pod(2), version=10)
    world.one.subscribe()
    restarted = pod(1, version=11)
    status = PodStatus("Running", container_statuses=(ContainerStatus("executor", restart_count=1),))
    world.update(event("MODIFIED", replace(restarted, status=status)))
    kit.advance(INTERVAL)
    batch = world.one.handle()
    assert told(batch) == (set(), set(), [], False)
    assert batch.snapshot.states[1].pod.status == status


def test_every_subscriber_receives_every_change(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe(timedelta(seconds=1))
    world.two.subscribe(timedelta(seconds=3))
    world.update(event("ADDED", pod(2, version=11)))
    kit.advance(timedelta(seconds=1))
    assert world.one.handle().appeared == {2}
    kit.advance(timedelta(seconds=2))
    assert world.two.handle().appeared == {2}


def test_a_full_sync_without_a_change_is_reported_once(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe()
    world.list(pod(1), version=11)
    kit.advance(INTERVAL)
    batch = world.one.handle()
    assert batch.full_sync
    assert batch.changed == set()
    kit.advance(INTERVAL)
    assert not world.one.handle().full_sync


def test_a_full_sync_is_not_lost_when_events_follow(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe()
    world.list(pod(1), version=11)
    world.update(event("ADDED", pod(2, version=12)))
    kit.advance(INTERVAL)
    assert told(world.one.handle()) == ({2}, {2}, [], True)


def test_a_list_from_the_servers_cache_is_no_full_sync(world: World, kit: Kit) -> None:
    world.one.subscribe()
    world.list(pod(1), version=10, consistent=False)
    kit.advance(INTERVAL)
    batch = world.one.handle()
    assert batch.appeared == {1}
    assert not batch.full_sync
    assert batch.snapshot.full_sync_at is None


# ── at once ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_end_sends_everyone_a_batch_at_once(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe()
    world.two.subscribe(timedelta(minutes=1))
    later(kit)
    world.update(event("ADDED", pod(2, version=11)))
    world.delete(1, 12)
    assert world.one.handle().appeared == world.two.handle().appeared == {2}
    kit.advance(INTERVAL - MOMENT)
    assert world.one.has_nothing(), "each batch restarts the interval"
    kit.advance(MOMENT)
    world.one.handle()


def test_an_end_is_sent_at_once(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe()
    later(kit)
    world.delete(1, 11)
    [ended] = world.one.handle().ended
    assert (ended.executor_id, ended.uid, type(ended.state)) == (1, "uid-1", PodDeleted)


@pytest.mark.parametrize("how", ["Failed", "Succeeded"])
def test_a_final_pod_that_still_exists_is_sent_at_once(world: World, kit: Kit, how: str) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe()
    later(kit)
    world.update(event("MODIFIED", pod(1, version=11, phase=how)))
    batch = world.one.handle()
    assert batch.changed == {1}
    assert batch.ended == ()


def test_a_terminating_pod_is_sent_at_once(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe()
    later(kit)
    world.update(event("MODIFIED", pod(1, version=11, terminating=True)))
    assert world.one.handle().changed == {1}


def test_after_an_end_not_sooner_than_the_minimum_after_the_last_round(world: World, kit: Kit) -> None:
    assert Settings(app_id="app").store.min_round_interval == MIN_ROUND
    world.list(pod(1), pod(2), pod(3), version=10)
    world.one.subscribe()
    later(kit)
    world.delete(1, 11)
    assert [ended.executor_id for ended in world.one.handle().ended] == [1]
    world.delete(2, 12)
    kit.advance(MIN_ROUND - MOMENT)
    world.delete(3, 13)
    assert world.one.has_nothing()
    kit.advance(MOMENT)
    assert [ended.executor_id for ended in world.one.handle().ended] == [2, 3]
    kit.advance(INTERVAL - MOMENT)
    assert world.one.has_nothing(), "one batch had both"


def test_those_who_follow_starts_hear_of_one_at_once_and_of_more_ten_times_a_second(world: World, kit: Kit) -> None:
    world.list(*(pod(number, phase="Pending") for number in (1, 2, 3)), version=10)
    world.one.subscribe(follows_starts=True)
    world.two.subscribe()
    kit.advance(START_INTERVAL)
    world.update(event("MODIFIED", pod(1, version=11)))
    assert world.one.handle().changed == {1}
    world.update(event("MODIFIED", pod(2, version=12)))
    kit.advance(START_INTERVAL - MOMENT)
    world.list(pod(1, version=11), pod(2, version=12), pod(3, version=13), version=13)
    assert world.one.has_nothing()
    kit.advance(MOMENT)
    assert world.one.handle().changed == {2, 3}
    assert world.two.has_nothing()


def test_an_end_does_not_wait_with_the_starts(world: World, kit: Kit) -> None:
    world.list(pod(1), pod(2, phase="Pending"), version=10)
    world.one.subscribe(follows_starts=True)
    world.update(event("MODIFIED", pod(2, version=11)))
    world.delete(1, 12)
    assert world.one.has_nothing()
    later(kit)
    batch = world.one.handle()
    assert ([ended.executor_id for ended in batch.ended], set(batch.changed)) == ([1], {2})
    kit.advance(INTERVAL - MOMENT)
    assert world.one.has_nothing(), "one batch had both"


def test_an_end_that_was_sent_with_another_batch_needs_none_of_its_own(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe()
    world.delete(1, 11)
    assert [ended.executor_id for ended in world.one.subscribe().ended] == [1]
    kit.advance(INTERVAL - MOMENT)
    assert world.one.has_nothing()


def test_an_end_does_not_add_rounds_to_those_of_a_short_interval(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe(timedelta(milliseconds=10))
    world.delete(1, 11)
    kit.advance(timedelta(milliseconds=10))
    assert len(world.one.handle().ended) == 1
    kit.advance(timedelta(milliseconds=10) - MOMENT)
    assert world.one.has_nothing()


def test_a_new_subscription_has_its_own_interval_at_once(world: World, kit: Kit) -> None:
    world.one.done(world.one.subscribe(100 * INTERVAL))
    world.one.done(world.one.subscribe(INTERVAL))
    kit.advance(INTERVAL)
    world.one.take()


# ── one batch outstanding ────────────────────────────────────────────────────────────────────────────────────────


def test_no_batch_is_sent_while_one_is_outstanding(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    world.one.take()
    world.delete(1, 11)
    kit.advance(10 * INTERVAL)
    assert world.one.has_nothing()


def test_what_happened_while_a_batch_was_outstanding_comes_as_one_when_it_is_done(world: World, kit: Kit) -> None:
    world.list(pod(1), pod(2), version=10)
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    outstanding = world.one.take()
    world.update(event("ADDED", pod(3, version=11)))
    world.delete(1, 12)
    world.update(event("MODIFIED", pod(2, version=13, phase="Failed")))
    kit.advance(3 * INTERVAL)
    world.one.done(outstanding)
    batch = world.one.handle()
    assert told(batch) == ({2, 3}, {3}, [1], False)
    assert isinstance(batch.snapshot.states[2], PodFailed)
    kit.advance(INTERVAL - MOMENT)
    assert world.one.has_nothing()


def test_a_batch_that_is_done_is_followed_by_none_when_none_was_due(world: World, kit: Kit) -> None:
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    outstanding = world.one.take()
    kit.advance(INTERVAL - MOMENT)
    world.one.done(outstanding)
    assert world.one.has_nothing()


def test_done_counts_only_for_the_outstanding_batch_and_once(world: World, kit: Kit) -> None:
    first = world.one.subscribe()
    kit.advance(INTERVAL)
    second = world.one.take()
    assert second.seq > first.seq
    kit.advance(INTERVAL)
    world.one.done(first)
    assert world.one.has_nothing(), "the second batch is still outstanding"
    world.one.done(second)
    third = world.one.take()
    world.one.done(second)
    kit.advance(INTERVAL)
    assert world.one.has_nothing(), "the third batch is still outstanding"
    world.one.done(third)
    world.one.handle()


def test_done_from_one_who_never_subscribed_is_nothing(world: World) -> None:
    world.tell(BatchDone(world.two.probe.address, 1))
    assert world.store.is_alive()


def test_a_slow_subscriber_does_not_slow_the_other(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    world.two.subscribe()
    later(kit)
    world.delete(1, 11)
    assert len(world.two.handle().ended) == 1
    kit.advance(INTERVAL)
    world.two.handle()


# ── what a batch adds up to ──────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_created_and_deleted_between_two_batches_appeared_and_ended(world: World, kit: Kit) -> None:
    world.list(version=10)
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    outstanding = world.one.take()
    world.update(event("ADDED", pod(1, version=11)))
    world.delete(1, 12)
    kit.advance(INTERVAL)
    world.one.done(outstanding)
    batch = world.one.handle()
    assert told(batch) == (set(), {1}, [1], False)
    assert 1 not in batch.snapshot.states


def test_a_pod_replaced_under_its_id_ended_and_changed(world: World, kit: Kit) -> None:
    world.list(pod(1, uid="old"), version=10)
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    outstanding = world.one.take()
    world.update(event("DELETED", pod(1, uid="old", version=11, terminating=True)))
    world.update(event("ADDED", pod(1, uid="new", version=12)))
    kit.advance(INTERVAL)
    world.one.done(outstanding)
    batch = world.one.handle()
    assert batch.changed == {1}
    assert [ended.uid for ended in batch.ended] == ["old"]
    assert batch.snapshot.states[1].pod.uid == "new"


def test_a_late_end_does_not_hide_the_next_pod_under_the_same_id(world: World, kit: Kit) -> None:
    world.list(pod(1, uid="first", version=3), version=10)
    world.one.subscribe()
    world.list(pod(1, uid="second", version=15), version=20, stream=None)
    world.update(event("DELETED", pod(1, uid="first", version=14, terminating=True)))
    kit.advance(INTERVAL)
    batch = world.one.handle()
    assert [ended.uid for ended in batch.ended] == ["first"]
    assert batch.snapshot.states[1].pod.uid == "second"
    assert batch.changed == {1}, "the second pod is a change"


def test_ends_come_oldest_first_each_once(world: World, kit: Kit) -> None:
    world.list(*(pod(i) for i in range(1, 6)), version=10)
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    outstanding = world.one.take()
    for version, executor_id in enumerate((4, 2, 5), start=11):
        world.delete(executor_id, version)
    world.list(pod(1), pod(3), version=20, stream=None)
    kit.advance(INTERVAL)
    world.one.done(outstanding)
    assert [ended.executor_id for ended in world.one.handle().ended] == [4, 2, 5]


def test_a_batch_has_the_moment_of_the_last_data_from_a_source(world: World, kit: Kit) -> None:
    world.list(version=10)
    world.one.subscribe()
    kit.advance(timedelta(milliseconds=300))
    heard_at = kit.clock.monotonic()
    world.update(version=11)
    kit.advance(INTERVAL)
    assert world.one.handle().heard_at == heard_at


def test_a_dropped_list_does_not_count_as_fresh_data(world: World, kit: Kit) -> None:
    asked_at = kit.clock.monotonic()
    world.list(version=10, stream=None)
    heard_at = kit.clock.monotonic()
    world.one.subscribe()
    kit.advance(timedelta(milliseconds=300))
    world.tell(ReplaceSnapshot((), "9", asked_at, consistent=True))
    kit.advance(INTERVAL)
    batch = world.one.handle()
    assert (batch.heard_at, batch.full_sync) == (heard_at, False)


@pytest.mark.parametrize("stream", [STREAM - 1, None])
def test_neither_an_old_stream_nor_a_list_from_a_cache_counts_as_fresh_data(
    world: World, kit: Kit, stream: int | None
) -> None:
    world.list(version=10)
    heard_at = kit.clock.monotonic()
    world.one.subscribe()
    kit.advance(timedelta(milliseconds=300))
    if stream is None:
        world.list(pod(1), version=11, stream=None, consistent=False)
    else:
        world.update(version=11, stream=stream)
    kit.advance(INTERVAL)
    assert world.one.handle().heard_at == heard_at


# ── subscribing again ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_subscription_of_an_address_replaces_the_earlier_one(world: World, kit: Kit) -> None:
    world.one.subscribe(timedelta(seconds=1))
    world.one.subscribe(timedelta(seconds=5))
    kit.advance(timedelta(seconds=5) - MOMENT)
    assert world.one.has_nothing()
    kit.advance(MOMENT)
    world.one.handle()
    assert world.one.has_nothing()


def test_a_new_subscription_receives_the_ends_that_the_earlier_one_did_not_confirm(world: World, kit: Kit) -> None:
    world.list(pod(1), pod(2), pod(3), version=10)
    world.one.subscribe()
    later(kit)
    world.delete(2, 11)
    unconfirmed = world.one.take()
    assert [ended.executor_id for ended in unconfirmed.ended] == [2]
    world.delete(1, 12)
    first = world.one.subscribe()
    assert [ended.executor_id for ended in first.ended] == [2, 1]
    assert first.changed == first.appeared == {3}
    assert first.full_sync
    kit.advance(INTERVAL)
    assert world.one.handle().ended == ()


def test_a_new_subscription_does_not_receive_the_ends_that_the_earlier_one_confirmed(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10)
    world.one.subscribe()
    later(kit)
    world.delete(1, 11)
    world.one.handle()
    assert world.one.subscribe().ended == ()


def test_done_of_an_earlier_subscriptions_batch_does_not_count_for_the_new_one(world: World, kit: Kit) -> None:
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    old = world.one.take()
    world.tell(AddSubscriber(world.one.probe.address, INTERVAL))
    world.one.take()
    world.one.done(old)
    kit.advance(INTERVAL)
    assert world.one.has_nothing()


# ── the sources ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_of_the_watch_below_the_newest_is_dropped_and_requested_again(world: World, kit: Kit) -> None:
    asked_at = kit.clock.monotonic()
    kit.advance(timedelta(seconds=1))
    world.list(pod(1), version=10, stream=None)
    world.tell(ReplaceSnapshot((), "9", asked_at, consistent=True, stream=STREAM))
    assert world.watch.take(Relist) == Relist()
    assert set(world.one.subscribe().snapshot.states) == {1}


def test_a_list_of_the_poll_below_the_newest_is_dropped_silently(world: World, kit: Kit) -> None:
    asked_at = kit.clock.monotonic()
    kit.advance(timedelta(seconds=1))
    world.list(pod(1), version=10)
    world.tell(ReplaceSnapshot((), "9", asked_at, consistent=True))
    world.watch.expect_nothing()
    assert set(world.one.subscribe().snapshot.states) == {1}


def test_a_reset_is_logged_once_and_the_watch_lists_again(
    world: World, kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    world.list(pod(1, version=95), version=100)
    world.one.subscribe()
    kit.advance(timedelta(milliseconds=500))
    caplog.set_level(logging.INFO)
    world.list(pod(7, version=3), version=5, stream=None)
    look = world.poll.take(LookAgain)
    world.watch.expect_nothing()
    kit.advance(look.after)
    while not world.one.has_nothing():
        world.one.handle()
    world.list(pod(7, version=3), version=6, stream=None)
    assert world.watch.take(Relist) == Relist()
    world.poll.expect_nothing()
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]
    kit.advance(MIN_ROUND)
    batch = world.one.handle()
    assert set(batch.snapshot.states) == {7}
    assert [ended.executor_id for ended in batch.ended] == [1]


def test_events_of_an_older_stream_change_nothing(world: World) -> None:
    world.list(version=10, stream=1)
    world.list(version=20, stream=2)
    world.update(event("ADDED", pod(1, version=21)), stream=1)
    assert set(world.one.subscribe().snapshot.states) == set()


def test_abandoning_a_stream_reports_the_ends_that_waited_for_it(world: World, kit: Kit) -> None:
    world.list(pod(1), version=10, stream=1)
    world.one.subscribe()
    world.list(version=20, stream=None)
    kit.advance(INTERVAL)
    batch = world.one.handle()
    assert set(batch.snapshot.states) == set()
    assert batch.ended == (), "its DELETED event may still come"
    world.tell(StreamAbandoned(1))
    later(kit)
    [ended] = world.one.handle().ended
    assert ended.executor_id == 1


def test_a_malformed_pod_is_set_aside_logged_once_and_harms_no_other(
    world: World, kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    broken = pod(2, uid="broken")
    assert isinstance(broken.metadata.shared_labels, dict)
    broken.metadata.shared_labels[EXECUTOR_ID_LABEL] = "two"
    for version in (10, 11):
        world.list(pod(1), broken, version=version)
    assert set(world.one.subscribe().snapshot.states) == {1}
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert broken.name in record.getMessage()
    assert "'two'" in record.getMessage()


def test_a_second_pod_of_an_executor_id_is_set_aside_and_its_reason_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    original = pod(1)
    copied = ObjectMeta(name="copy-exec-1", uid="copy", shared_labels=original.metadata.shared_labels)
    world.list(original, Pod(metadata=copied, status=original.status, resource_version="9"), version=10)
    assert world.one.subscribe().snapshot.states[1].pod.uid == "uid-1"
    assert "another pod has its executor id" in caplog.text
