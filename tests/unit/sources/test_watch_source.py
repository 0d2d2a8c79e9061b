"""WatchSource between two probes: the store and the backend."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.errors import ApiError, Forbidden, Gone, Refused, TooManyRequests, Unavailable
from actors.kube.api import PodPage
from actors.kube.retries import REFLECTOR as BACKOFF
from actors.messages.internal import (
    Freshness,
    Relist,
    ReplaceSnapshot,
    RetryNow,
    Source,
    StartWatching,
    StreamAbandoned,
    UpdatePods,
)
from actors.runtime import Terminated
from actors.settings.model import Settings
from actors.sources.watch_source import ABANDON_AFTER, HEALTHY_LIFETIME, LIFETIME, STABLE_LIFETIME, WatchSource
from actors.testing.manual_api import ManualPodApi
from tests.unit.builders import event, pod

if TYPE_CHECKING:
    from actors.kube.api import Operation
    from actors.testing import Kit
    from actors.testing.manual_api import ManualCall

SILENCE = timedelta(seconds=70)
MOMENT = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
TWICE = "Cannot start the watcher twice."
SHORTEST = BACKOFF.initial
"""Of the first backoff; jitter makes it up to twice as long."""


class World:
    def __init__(self, kit: Kit, settings: Settings | None = None) -> None:
        self.kit = kit
        self.settings = settings or Settings(app_id="app")
        self.api = ManualPodApi()
        self.store = kit.probe("store")
        self.backend = kit.probe("backend")
        self.owner = kit.probe("owner")
        self.source = kit.system.address("watch-source")
        self.spawn()

    def spawn(self) -> None:
        """Start the source, or its next incarnation."""
        self.kit.system.spawn(
            lambda context: WatchSource(
                context,
                settings=self.settings,
                api=self.api,
                selector="a=b",
                store=self.store.address,
                backend=self.backend.address,
            ),
            name="watch-source",
            owner=self.owner.address,
            address=self.source,
        )

    def tell(self, message: object) -> None:
        self.source.tell(message)
        self.kit.settle()

    def watching(self, version: str = "10") -> ManualCall:
        """Start, LIST, and return the stream that follows."""
        self.tell(StartWatching())
        return self.listed(version)

    def listed(self, version: str) -> ManualCall:
        """Answer the LIST under way, drop its messages, and return the stream that follows."""
        self.api.take("list").answer(PodPage((), version))
        self.kit.settle()
        self.store.take(ReplaceSnapshot)
        self.backend.take(Freshness)
        return self.api.take("watch")

    def send(self, stream: ManualCall, version: int) -> None:
        stream.send(event("MODIFIED", pod(version=version)), version=str(version))
        self.kit.settle()

    def end(self, stream: ManualCall, error: ApiError | None = None) -> None:
        stream.end(error)
        self.kit.settle()

    def fail(self, error: ApiError) -> None:
        """Fail the LIST under way."""
        self.api.take("list").answer(error)
        self.kit.settle()

    def wait_for(self, verb: Operation) -> timedelta:
        """Advance to the next such call."""
        start = self.kit.clock.elapsed
        while not self.api.open(verb):
            due = self.kit.timers.next_due()
            assert due is not None, f"no {verb} is under way and no timer is set"
            self.kit.advance(due - self.kit.clock.elapsed)
        return self.kit.clock.elapsed - start


@pytest.fixture
def world(kit: Kit) -> World:
    return World(kit)


# ── list, then watch ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_asked_before_watching_is_started(world: World, kit: Kit) -> None:
    kit.settle()
    world.tell(Relist())
    kit.advance(timedelta(minutes=1))
    assert world.api.calls == []


def test_it_lists_at_once_and_then_watches_from_the_lists_version(world: World, kit: Kit) -> None:
    world.tell(StartWatching())
    asked_at = kit.clock.monotonic()
    kit.advance(timedelta(seconds=2))
    world.api.take("list").answer(PodPage((pod(1),), "10"))
    kit.settle()
    replaced = world.store.take(ReplaceSnapshot)
    assert (replaced.pods, replaced.resource_version, replaced.requested_at) == ((pod(1),), "10", asked_at)
    assert replaced.consistent
    assert replaced.stream is not None
    assert world.backend.take(Freshness) == Freshness(Source.WATCH, asked_at, None, kit.clock.monotonic())
    stream = world.api.take("watch")
    assert (stream.request.selector, stream.request.resource_version) == ("a=b", "10")


def test_events_are_sent_with_the_streams_version_and_number(world: World, kit: Kit) -> None:
    world.tell(StartWatching())
    world.api.take("list").answer(PodPage((), "10"))
    kit.settle()
    number = world.store.take(ReplaceSnapshot).stream
    happened = (event("ADDED", pod(1, version=11)), event("DELETED", pod(2, version=12)))
    world.api.take("watch").send(*happened, version="12")
    kit.settle()
    assert world.store.take(UpdatePods) == UpdatePods(happened, "12", number)  # type: ignore[arg-type]


def test_a_bookmark_is_sent_as_an_update_without_events(world: World, kit: Kit) -> None:
    world.watching().send(version="15")
    kit.settle()
    told = world.store.take(UpdatePods)
    assert (told.events, told.resource_version) == ((), "15")


def test_a_connections_lifetime_is_drawn_between_5_and_10_minutes(world: World) -> None:
    stream = world.watching()
    lives = []
    for _ in range(20):
        lives.append(stream.request.timeout)
        world.kit.advance(HEALTHY_LIFETIME)
        world.end(stream)
        stream = world.api.take("watch")
    assert timedelta(minutes=5) == LIFETIME[0] <= min(lives) < max(lives) <= LIFETIME[1] == timedelta(minutes=10)


# ── resuming ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_that_ends_cleanly_is_resumed_at_once_from_its_last_event(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    world.send(stream, 12)
    kit.advance(HEALTHY_LIFETIME)
    world.end(stream)
    assert [call.request.resource_version for call in world.api.open()] == ["12"]
    world.backend.expect_nothing()


def test_a_stream_is_resumed_from_its_last_bookmark(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    world.send(stream, 12)
    stream.send(version="40")
    kit.advance(HEALTHY_LIFETIME)
    world.end(stream)
    assert world.api.take("watch").request.resource_version == "40"


def test_a_stream_without_events_is_resumed_from_the_lists_version(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    kit.advance(HEALTHY_LIFETIME)
    world.end(stream)
    assert world.api.take("watch").request.resource_version == "10"


def test_a_resumed_stream_keeps_its_number(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    world.send(stream, 11)
    kit.advance(HEALTHY_LIFETIME)
    world.end(stream)
    world.send(world.api.take("watch"), 12)
    first, second = world.store.take_all(UpdatePods)
    assert first.stream == second.stream


def test_clean_ends_that_come_at_once_are_backed_off(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    pauses = []
    for _ in range(5):
        kit.advance(HEALTHY_LIFETIME - MOMENT)
        world.end(stream)
        assert world.api.open() == ()
        pauses.append(world.wait_for("watch"))
        stream = world.api.take("watch")
    assert all(pause >= BACKOFF.initial * 2**tried for tried, pause in enumerate(pauses))
    world.backend.expect_nothing()


@pytest.mark.parametrize(
    "error", [Unavailable("reset by peer"), Unavailable("bad gateway", status=502), TooManyRequests("slow", status=429)]
)
def test_a_broken_stream_is_resumed_after_a_backoff_and_not_listed_anew(world: World, error: ApiError) -> None:
    stream = world.watching("10")
    world.send(stream, 12)
    world.end(stream, error)
    assert world.backend.take(Freshness).error is error
    assert SHORTEST <= world.wait_for("watch") <= 2 * SHORTEST
    assert world.api.open()[0].request.resource_version == "12"
    assert len([call for call in world.api.calls if call.operation == "list"]) == 1


def test_the_backoff_doubles_to_half_a_minute_with_jitter(world: World) -> None:
    stream = world.watching()
    pauses = []
    for _ in range(10):
        world.end(stream, Unavailable("no route"))
        pauses.append(world.wait_for("watch").total_seconds())
        stream = world.api.take("watch")
    floors = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0, 30.0]
    assert all(floor <= pause <= 2 * floor for floor, pause in zip(floors, pauses, strict=True))
    assert len(set(pauses[6:])) == 4, "jitter"


def test_a_connection_of_two_minutes_resets_the_backoff(world: World, kit: Kit) -> None:
    world.tell(StartWatching())
    for _ in range(6):
        world.fail(Unavailable("no route"))
        world.wait_for("list")
    stream = world.listed("10")
    for version in (11, 12, 13):
        kit.advance(timedelta(seconds=40))
        world.send(stream, version)
    world.end(stream, Unavailable("reset by peer"))
    assert world.wait_for("watch") <= 2 * SHORTEST


@pytest.mark.parametrize("failures", [1, 5])
def test_a_connection_shorter_than_the_delay_before_it_does_not_reset_the_backoff(
    world: World, kit: Kit, failures: int
) -> None:
    world.tell(StartWatching())
    for _ in range(failures):
        world.fail(Unavailable("no route"))
        waited = world.wait_for("list")
    stream = world.listed("10")
    kit.advance(max(STABLE_LIFETIME, waited) - MOMENT)
    world.end(stream, Unavailable("reset by peer"))
    assert world.wait_for("watch") >= 2**failures * SHORTEST


@pytest.mark.parametrize("failures", [1, 5])
def test_a_connection_longer_than_the_delay_before_it_resets_the_backoff(world: World, kit: Kit, failures: int) -> None:
    world.tell(StartWatching())
    for _ in range(failures):
        world.fail(Unavailable("no route"))
        waited = world.wait_for("list")
    stream = world.listed("10")
    kit.advance(max(STABLE_LIFETIME, waited) + MOMENT)
    world.end(stream, Unavailable("reset by peer"))
    assert world.wait_for("watch") <= 2 * SHORTEST


@pytest.mark.parametrize("kind", [TooManyRequests, Unavailable])
def test_a_retry_after_that_is_longer_than_the_backoff_is_honoured(
    world: World, kind: type[TooManyRequests | Unavailable]
) -> None:
    wanted = timedelta(seconds=20)
    world.end(world.watching(), kind("slow down", status=503, retry_after=wanted))
    assert wanted <= world.wait_for("watch") <= 1.5 * wanted


def test_a_retry_after_that_is_shorter_than_the_backoff_does_not_shorten_it(world: World) -> None:
    stream = world.watching()
    slow_down = TooManyRequests("slow down", status=429, retry_after=timedelta(seconds=1))
    for _ in range(5):
        world.end(stream, slow_down)
        world.wait_for("watch")
        stream = world.api.take("watch")
    world.end(stream, slow_down)
    assert world.wait_for("watch") >= timedelta(seconds=25)


@pytest.mark.parametrize(
    ("start_timeout", "longest"),
    [(SECOND, SHORTEST), (30 * SECOND, 2 * SECOND), (timedelta(hours=1), 30 * SECOND)],
)
def test_the_backoff_before_the_first_list_is_a_small_part_of_the_time_that_a_start_may_take(
    kit: Kit, start_timeout: timedelta, longest: timedelta
) -> None:
    world = World(kit, Settings(app_id="app", backend={"start_timeout": start_timeout}))
    world.tell(StartWatching())
    for _ in range(10):
        world.fail(TooManyRequests("storage is (re)initializing", status=429, retry_after=SHORTEST))
        pause = world.wait_for("list")
    assert longest <= pause <= 2 * longest


def test_a_retry_after_is_honoured_before_the_first_list(world: World) -> None:
    wanted = timedelta(seconds=20)
    world.tell(StartWatching())
    world.fail(TooManyRequests("storage is (re)initializing", status=429, retry_after=wanted))
    assert wanted <= world.wait_for("list") <= 1.5 * wanted


def test_a_failed_list_is_reported_and_requested_again(world: World) -> None:
    world.tell(StartWatching())
    error = Forbidden("pods is forbidden: cannot list", status=403)
    world.fail(error)
    assert world.backend.take(Freshness) == Freshness(Source.WATCH, None, error)
    world.wait_for("list")
    world.store.expect_nothing()


# ── relisting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_version_that_is_gone_is_listed_anew_after_a_backoff_under_a_new_number(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    world.send(stream, 12)
    old = world.store.take(UpdatePods).stream
    world.end(stream, Gone("too old resource version", status=410))
    assert SHORTEST <= world.wait_for("list") <= 2 * SHORTEST
    world.api.take("list").answer(PodPage((), "90"))
    kit.settle()
    number = world.store.take(ReplaceSnapshot).stream
    assert number is not None
    assert number > old
    assert world.api.take("watch").request.resource_version == "90"


def test_the_store_can_ask_for_a_new_list(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    world.send(stream, 12)
    old = world.store.take(UpdatePods).stream
    world.tell(Relist())
    assert stream.cancelled
    assert SHORTEST <= world.wait_for("list") <= 2 * SHORTEST
    world.api.take("list").answer(PodPage((), "5"))
    kit.settle()
    assert (world.store.take(ReplaceSnapshot).stream or 0) > old
    world.backend.take(Freshness)
    assert [call.request.resource_version for call in world.api.open()] == ["5"]


def test_a_list_that_was_under_way_when_the_store_asked_for_one_is_abandoned(world: World) -> None:
    world.tell(StartWatching())
    early = world.api.take("list")
    world.tell(Relist())
    assert early.cancelled
    assert world.api.open() == ()
    world.wait_for("list")
    world.listed("20")
    world.kit.advance(timedelta(seconds=10))
    assert [call.operation for call in world.api.calls] == ["list", "list", "watch"]


def test_a_new_list_after_a_long_connection_does_not_wait_for_old_failures(world: World, kit: Kit) -> None:
    world.tell(StartWatching())
    for _ in range(6):
        world.fail(Unavailable("no route"))
        world.wait_for("list")
    stream = world.listed("10")
    for version in (11, 12, 13):
        kit.advance(timedelta(seconds=40))
        world.send(stream, version)
    world.tell(Relist())
    assert world.wait_for("list") <= 2 * SHORTEST


def test_lists_that_the_store_rejects_repeatedly_back_off(world: World) -> None:
    world.watching("10")
    for tried in range(5):
        world.tell(Relist())
        assert world.wait_for("list") >= SHORTEST * 2**tried
        world.listed("10")


# ── dead connections ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_without_a_byte_for_the_inactivity_timeout_is_closed_and_resumed(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    kit.advance(SILENCE - MOMENT)
    assert not stream.cancelled
    kit.advance(MOMENT)
    assert stream.cancelled
    assert isinstance(world.backend.take(Freshness).error, Unavailable)
    world.wait_for("watch")
    assert world.api.take("watch").request.resource_version == "10"


def test_every_byte_starts_the_inactivity_timeout_anew(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    for version in range(11, 15):
        kit.advance(SILENCE - MOMENT)
        stream.send(version=str(version))
    kit.advance(SILENCE - MOMENT)
    assert not stream.cancelled
    kit.advance(MOMENT)
    assert stream.cancelled


def test_silence_counts_only_while_a_connection_is_open(world: World, kit: Kit) -> None:
    world.watching("10")
    world.tell(Relist())
    world.wait_for("list")
    kit.advance(2 * SILENCE)
    assert [call.operation for call in world.api.open()] == ["list"]
    world.backend.expect_nothing()


def test_messages_of_a_closed_connection_are_dropped(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    world.source.tell(Relist())
    stream.send(event("ADDED", pod(version=11)), version="11")  # on its way when the connection is closed
    kit.settle()
    assert stream.cancelled
    world.store.expect_nothing()
    world.wait_for("list")
    assert len(world.api.calls) == 3, "list, watch, list: the end of the old stream is ignored"


def test_an_error_and_a_recovery_are_each_reported_once(world: World) -> None:
    stream = world.watching("10")
    synced_at = world.kit.clock.monotonic()
    world.end(stream, Unavailable("reset by peer"))
    assert world.backend.take(Freshness).error is not None
    world.wait_for("watch")
    stream = world.api.take("watch")
    world.backend.expect_nothing()
    world.send(stream, 11)
    assert world.backend.take(Freshness) == Freshness(Source.WATCH, synced_at, None, world.kit.clock.monotonic())
    world.send(stream, 12)
    world.backend.expect_nothing()


def test_errors_of_one_kind_are_one_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "actors.sources.watch_source")
    world.tell(StartWatching())
    for _ in range(3):
        world.fail(Unavailable("no route"))
        world.wait_for("list")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"], "the start, and the error"
    world.listed("10")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]


# ── freshness ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unchanged_freshness_is_reported_at_most_once_a_second(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    begin = kit.clock.monotonic()
    for read in range(1, 2501):
        kit.advance(timedelta(milliseconds=1))
        stream.send(event("MODIFIED", pod(version=10 + read)), version=str(10 + read))
    kit.settle()
    told = [word.heard_at for word in world.backend.take_all(Freshness)]
    assert told == [begin + 1.0, begin + 2.0]
    assert len(world.store.take_all(UpdatePods)) == 2500


def test_every_bookmark_of_a_quiet_watch_is_reported_as_fresh_data(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    synced_at = kit.clock.monotonic()
    for minute in range(1, 4):
        kit.advance(timedelta(minutes=1))
        stream.send(version=str(10 + minute))
        kit.settle()
        assert world.backend.take(Freshness) == Freshness(Source.WATCH, synced_at, None, synced_at + 60.0 * minute)


def test_a_clean_end_clears_the_error_but_is_no_fresh_data(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    heard_at = kit.clock.monotonic()
    world.end(stream, Unavailable("reset by peer"))
    world.backend.take(Freshness)
    world.wait_for("watch")
    stream = world.api.take("watch")
    kit.advance(timedelta(seconds=30))
    world.end(stream)
    assert world.backend.take(Freshness) == Freshness(Source.WATCH, heard_at, None, heard_at)


@pytest.mark.usefixtures("expect_crashes")
def test_a_crashed_source_fails_until_the_next_incarnation_has_listed(world: World, kit: Kit) -> None:
    world.watching("10")
    synced_at = kit.clock.monotonic()
    world.tell(object())
    ended = world.backend.take(Freshness)
    assert (ended.synced_at, str(ended.error)) == (synced_at, "the watch has ended")
    world.spawn()
    world.tell(StartWatching())
    assert world.backend.take(Freshness).error is not None, "a source that hung did not report its end"
    kit.advance(timedelta(seconds=3))
    world.api.take("list").answer(PodPage((pod(1),), "10", "next"))
    kit.settle()
    page = world.backend.take(Freshness)
    assert (page.error is None, page.heard_at) == (False, synced_at + 3)
    world.api.take("list").answer(PodPage((), "10"))
    kit.settle()
    assert world.backend.take(Freshness) == Freshness(Source.WATCH, synced_at, None, synced_at + 3)


# ── giving a stream up ───────────────────────────────────────────────────────────────────────────────────────────────


def cannot_resume(world: World, stream: ManualCall, until: timedelta) -> None:
    """Make every retry fail from now on."""
    end = world.kit.clock.elapsed + until
    stream.end(Unavailable("no route"))
    world.kit.settle()
    while (due := world.kit.timers.next_due()) is not None and due <= end:
        world.kit.advance(due - world.kit.clock.elapsed)
        for call in world.api.open():
            world.api.take(call.operation)
            if call.operation == "watch":
                call.end(Unavailable("no route"))
            else:
                call.answer(Unavailable("no route"))
        world.kit.settle()
    world.kit.advance(end - world.kit.clock.elapsed)


def test_a_stream_that_cannot_be_resumed_for_5_minutes_is_abandoned_and_the_next_starts_from_a_list(
    world: World,
) -> None:
    stream = world.watching("10")
    world.send(stream, 11)
    number = world.store.take(UpdatePods).stream
    cannot_resume(world, stream, ABANDON_AFTER - MOMENT)
    world.store.expect_nothing()
    assert len([call for call in world.api.calls if call.operation == "list"]) == 1
    world.kit.advance(MOMENT)
    assert world.store.take(StreamAbandoned) == StreamAbandoned(number)
    world.wait_for("list")


def test_a_stream_is_abandoned_once_however_long_nothing_works(world: World) -> None:
    stream = world.watching("10")
    cannot_resume(world, stream, 5 * ABANDON_AFTER)
    world.store.take(StreamAbandoned)
    world.store.expect_nothing()


def test_a_stream_that_is_gone_and_whose_list_fails_is_abandoned_too(world: World) -> None:
    stream = world.watching("10")
    world.end(stream, Gone("too old resource version", status=410))
    world.wait_for("list")
    world.fail(Unavailable("no route"))
    start = world.kit.clock.elapsed
    while world.kit.clock.elapsed < start + ABANDON_AFTER:
        world.store.expect_nothing()
        world.wait_for("list")
        world.fail(Unavailable("no route"))
    world.store.take(StreamAbandoned)


def test_a_stream_that_was_resumed_in_time_is_not_abandoned(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    cannot_resume(world, stream, ABANDON_AFTER - timedelta(minutes=1))
    world.wait_for("watch")
    stream = world.api.take("watch")
    for version in range(11, 20):
        stream.send(version=str(version))
        kit.advance(timedelta(minutes=1))
    assert {type(message) for message in world.store.take_all()} == {UpdatePods}


def test_a_connection_without_data_until_the_stream_is_abandoned_is_replaced_by_a_list(world: World, kit: Kit) -> None:
    stream = world.watching("10")
    cannot_resume(world, stream, ABANDON_AFTER - timedelta(seconds=45))
    world.wait_for("watch")
    silent = world.api.take("watch")
    while not world.store.take_all(StreamAbandoned):
        kit.advance(timedelta(seconds=1))
    assert silent.cancelled
    assert [call.operation for call in world.api.open()] == ["list"]


# ── starting, crashing, stopping ─────────────────────────────────────────────────────────────────────────────────────


def test_a_second_start_is_an_error_for_who_asks(world: World, kit: Kit) -> None:
    stream = world.watching()
    with pytest.raises(Refused, match=TWICE):
        kit.ask(world.source, StartWatching())
    assert world.api.open() == (stream,), "the first start counts"
    world.owner.expect_nothing()


def test_a_second_start_by_tell_is_logged_and_changes_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    stream = world.watching()
    world.tell(StartWatching())
    assert [(record.levelname, TWICE in record.getMessage()) for record in caplog.records] == [("WARNING", True)]
    assert world.api.open() == (stream,)
    world.owner.expect_nothing()


@pytest.mark.usefixtures("expect_crashes")
def test_an_unknown_message_crashes_it_and_its_owner_is_notified(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("can't start new thread")

    def watch(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(world.api, "watch", watch)
    world.tell(StartWatching())
    world.api.take("list").answer(PodPage((), "10"))
    world.kit.settle()
    assert world.owner.take(Terminated) == Terminated("watch-source", 1, error)


def test_stream_numbers_grow_over_restarts(world: World, kit: Kit) -> None:
    numbers = []
    for _ in range(3):
        stream = world.watching()
        for version in (11, 12):
            world.send(stream, version)
            numbers.append(world.store.take(UpdatePods).stream)
            world.tell(Relist())
            world.wait_for("list")
            stream = world.listed("10")
        world.source.stop()
        kit.settle()
        world.spawn()
    assert numbers == sorted(set(numbers))


@pytest.mark.usefixtures("expect_crashes")
def test_a_restarted_source_whose_first_list_fails_abandons_the_earlier_stream(world: World, kit: Kit) -> None:
    world.watching("10")
    world.tell(object())
    world.owner.take(Terminated)
    world.spawn()
    world.tell(StartWatching())
    start = kit.clock.elapsed
    while kit.clock.elapsed < start + ABANDON_AFTER:
        world.store.expect_nothing()
        world.fail(Unavailable("no route"))
        world.wait_for("list")
    assert world.store.take(StreamAbandoned).stream > 1 << 32


def test_a_restarted_source_receives_nothing_from_the_earlier_connection(world: World, kit: Kit) -> None:
    old = world.watching()
    sink = old.reply
    world.source.stop()
    kit.settle()
    world.spawn()
    world.watching("50")
    sink(old)  # its incarnation is dead
    kit.settle()
    world.store.expect_nothing()
    assert [call.request.resource_version for call in world.api.open()] == ["50"]


def test_a_stop_closes_the_connection_at_once(world: World, kit: Kit) -> None:
    stream = world.watching()
    world.source.stop()
    kit.settle()
    assert stream.cancelled
    assert world.api.open() == ()
    assert world.owner.take(Terminated).cause is None


# ── retry after a poll ───────────────────────────────────────────────────────────────────────────────────────────────


AWAY = Unavailable("connection refused")


def failing(world: World, *, tries: int, error: ApiError = AWAY) -> None:
    """Fail so many connections in a row; the next one waits."""
    stream = world.watching()
    for _ in range(tries - 1):
        world.end(stream, error)
        while not world.api.open("watch"):
            world.kit.advance(timedelta(milliseconds=100))
        stream = world.api.take("watch")
    world.end(stream, error)
    assert world.api.open("watch") == ()


def test_a_watch_that_waits_for_a_server_retries_at_once_when_there_is_one(world: World) -> None:
    failing(world, tries=4)
    world.tell(RetryNow())
    stream = world.api.take("watch")
    assert stream.request.resource_version == "10"
    world.tell(RetryNow())
    world.kit.advance(timedelta(seconds=40))
    assert world.api.open("watch") == (stream,), "it is connected: no second retry"


def test_a_retry_after_a_poll_is_a_step_of_the_backoff(world: World) -> None:
    failing(world, tries=3)
    world.tell(RetryNow())
    world.end(world.api.take("watch"), AWAY)
    world.kit.advance(8 * SHORTEST - MOMENT)
    assert world.api.open("watch") == ()
    world.kit.advance(8 * SHORTEST + MOMENT)
    assert len(world.api.open("watch")) == 1


def test_a_list_that_waits_for_a_server_is_requested_at_once_when_there_is_one(world: World) -> None:
    world.tell(StartWatching())
    world.api.take("list").answer(AWAY)
    world.kit.settle()
    world.tell(RetryNow())
    assert len(world.api.open("list")) == 1


@pytest.mark.parametrize(
    "error",
    [
        Gone("too old", status=410),
        TooManyRequests("slow down", status=429),
        Forbidden("no", status=403),
        Unavailable("not ready", status=503, retry_after=timedelta(seconds=20)),
        Unavailable("internal error", status=500),
    ],
    ids=lambda error: type(error).__name__ + str(error.status),
)
def test_a_watch_that_waits_for_anything_else_keeps_waiting(world: World, error: ApiError) -> None:
    failing(world, tries=1, error=error)
    world.tell(RetryNow())
    assert (world.api.open("watch"), world.api.open("list")) == ((), ())


def test_before_it_was_started_it_tries_nothing(world: World) -> None:
    world.tell(RetryNow())
    assert (world.api.open("watch"), world.api.open("list")) == ((), ())
