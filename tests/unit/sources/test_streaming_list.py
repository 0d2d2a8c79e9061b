"""WatchSource with `source.streaming_list`: the watch begins with the LIST, or pages replace it."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.errors import ApiError, BadRequest, Forbidden, Gone, Invalid, TooManyRequests, Unauthorized, Unavailable
from actors.kube.api import PodPage
from actors.kube.retries import REFLECTOR
from actors.messages.internal import (
    Freshness,
    Relist,
    ReplaceSnapshot,
    Source,
    StartWatching,
    StreamAbandoned,
    UpdatePods,
)
from actors.settings import ApiSettings, Settings, SourceSettings
from actors.sources.watch_source import ABANDON_AFTER, HEALTHY_LIFETIME
from tests.unit.builders import event, pod
from tests.unit.sources.test_watch_source import World

if TYPE_CHECKING:
    from actors.pods.pod import Pod
    from actors.testing import Kit
    from actors.testing.manual_api import ManualCall

REQUEST = timedelta(seconds=10)
"""`backend.request_timeout`: how long a list that streams may be silent."""
SILENCE = timedelta(seconds=70)
MOMENT = timedelta(microseconds=1)
NO_PROGRESS = Unavailable("the required storage feature RequestWatchProgress is disabled", status=500)
"""What a server with an old etcd says, as an event of the watch."""


@pytest.fixture
def world(kit: Kit) -> World:
    return World(kit, Settings(app_id="app", source=SourceSettings(streaming_list=True)))


def started(world: World) -> ManualCall:
    """Start, and return the stream that begins with a LIST."""
    world.tell(StartWatching())
    return world.api.take("watch")


def sent(world: World, stream: ManualCall, *pods: Pod, version: int, mark: bool = False) -> None:
    """Send one read of the stream."""
    stream.send(*(event("ADDED", each) for each in pods), version=str(version), initial_events_end=mark)
    world.kit.settle()


def lists(world: World) -> int:
    return sum(call.operation == "list" for call in world.api.calls)


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_the_setting_no_watch_asks_for_initial_events(kit: Kit) -> None:
    world = World(kit)
    stream = world.watching("10")
    assert stream.request.send_initial_events is False
    assert lists(world) == 1


def test_the_watch_begins_with_the_list_and_no_list_is_requested(world: World) -> None:
    stream = started(world)
    assert (stream.request.selector, stream.request.resource_version) == ("a=b", "")
    assert stream.request.send_initial_events is True
    assert lists(world) == 0


def test_a_list_of_endless_initial_events_ends_with_the_setting_that_bounds_it(kit: Kit) -> None:
    streaming = SourceSettings(streaming_list=True)
    world = World(kit, Settings(app_id="app", source=streaming, api=ApiSettings(max_pods=2)))
    stream = started(world)
    for executor_id in (1, 2, 3):
        sent(world, stream, pod(executor_id, version=executor_id), version=executor_id)
    assert stream.cancelled
    error = world.backend.take_all(Freshness)[-1].error
    assert isinstance(error, Unavailable)
    assert "more than 2 pods (api.max_pods)" in error.message


def test_the_list_is_sent_once_at_its_end_mark_and_later_events_as_updates(world: World, kit: Kit) -> None:
    stream = started(world)
    asked_at = kit.clock.monotonic()
    sent(world, stream, pod(1, version=9), version=9)
    kit.advance(timedelta(seconds=2))
    sent(world, stream, pod(2, version=4), version=4)
    world.store.expect_nothing()
    sent(world, stream, version=20, mark=True)
    told = world.store.take(ReplaceSnapshot)
    assert told.stream is not None
    assert told == ReplaceSnapshot(
        (pod(1, version=9), pod(2, version=4)), "20", asked_at, consistent=True, stream=told.stream
    )
    world.send(stream, 21)
    assert world.store.take(UpdatePods) == UpdatePods((event("MODIFIED", pod(version=21)),), "21", told.stream)
    assert (lists(world), world.api.open()) == (0, (stream,)), "the same connection continues"


def test_what_changes_before_the_end_mark_is_in_the_list_as_it_is_then(world: World, kit: Kit) -> None:
    stream = started(world)
    sent(world, stream, pod(1, version=3), pod(2, version=4), pod(3, version=5), version=5)
    stream.send(
        event("MODIFIED", pod(1, version=6, terminating=True)),
        event("DELETED", pod(2, version=7, terminating=True)),
        event("DELETED", pod(3, version=8, terminating=True)),
        event("ADDED", pod(3, version=9, uid="again")),
        event("DELETED", pod(4, version=10)),
        version="10",
    )
    sent(world, stream, version=20, mark=True)
    assert [(p.uid, p.resource_version) for p in world.store.take(ReplaceSnapshot).pods] == [
        ("uid-1", "6"),
        ("again", "9"),
    ]
    world.store.expect_nothing()


def test_a_watch_past_the_mark_is_resumed_from_its_version_without_another_list(world: World, kit: Kit) -> None:
    stream = started(world)
    sent(world, stream, version=20, mark=True)
    kit.advance(HEALTHY_LIFETIME)
    world.end(stream)
    resumed = world.api.take("watch").request
    assert (resumed.resource_version, resumed.send_initial_events) == ("20", False)


def test_a_stream_that_ends_before_its_list_starts_over_after_a_backoff(world: World, kit: Kit) -> None:
    stream = started(world)
    for error in (Unavailable("reset by peer"), None, Gone("too old", status=410)):
        sent(world, stream, pod(1, version=9), version=9)
        kit.advance(HEALTHY_LIFETIME)
        world.end(stream, error)
        assert world.wait_for("watch") >= REFLECTOR.initial
        stream = world.api.take("watch")
        assert (stream.request.resource_version, stream.request.send_initial_events) == ("", True)
    world.store.expect_nothing()
    sent(world, stream, pod(2, version=30), version=30)
    sent(world, stream, version=40, mark=True)
    assert [p.uid for p in world.store.take(ReplaceSnapshot).pods] == ["uid-2"], "no pods of the broken streams"


def test_a_relist_streams_again_under_another_number(world: World) -> None:
    stream = started(world)
    sent(world, stream, version=20, mark=True)
    first = world.store.take(ReplaceSnapshot).stream
    world.tell(Relist())
    world.wait_for("watch")
    again = world.api.take("watch")
    assert again.request.send_initial_events is True
    sent(world, again, version=30, mark=True)
    assert (world.store.take(ReplaceSnapshot).stream or 0) > (first or 0)


def test_a_relist_in_the_middle_of_a_list_abandons_it(world: World, kit: Kit) -> None:
    stream = started(world)
    sent(world, stream, pod(1, version=9), version=9)
    world.source.tell(Relist())
    stream.send(version="20", initial_events_end=True)  # on its way when the connection is closed
    kit.settle()
    assert stream.cancelled
    world.store.expect_nothing()


# ── servers that cannot ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "in_stream"),
    [
        (Invalid("sendInitialEvents is forbidden for watch", status=422), False),
        (BadRequest("unknown parameter", status=400), False),
        (NO_PROGRESS, True),
    ],
)
def test_a_server_without_support_is_asked_for_pages_at_once_and_for_good_and_that_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture, error: ApiError, in_stream: bool
) -> None:
    caplog.set_level(logging.INFO, "actors.sources.watch_source")
    started(world).end(error, in_stream=in_stream)
    world.kit.settle()
    assert [call.operation for call in world.api.open()] == ["list"], "at once, without a backoff"
    assert world.backend.take_all(Freshness) == [], "no error is reported"
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"], "the start, and why pages"
    assert str(error) in caplog.text
    stream = world.listed("10")
    assert stream.request.send_initial_events is False
    world.end(stream, Gone("too old", status=410))
    world.wait_for("list")
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "INFO"]


@pytest.mark.parametrize(
    ("error", "in_stream"),
    [
        (Unauthorized("who are you", status=401), False),
        (Forbidden("pods is forbidden: cannot watch", status=403), False),
        (TooManyRequests("slow", status=429), False),
        (TooManyRequests("slow", status=429), True),
        (Unavailable("bad gateway", status=502), False),
        (Unavailable("internal", status=500), False),
        (Unavailable("reset by peer"), False),
    ],
)
def test_any_other_error_is_reported_and_the_list_streams_again_after_a_backoff(
    world: World, error: ApiError, in_stream: bool
) -> None:
    started(world).end(error, in_stream=in_stream)
    world.kit.settle()
    assert world.backend.take(Freshness) == Freshness(Source.WATCH, None, error)
    assert REFLECTOR.initial <= world.wait_for("watch") <= 2 * REFLECTOR.initial
    assert world.api.take("watch").request.send_initial_events is True
    assert lists(world) == 0


def test_an_error_event_after_the_list_is_no_sign_of_missing_support(world: World) -> None:
    stream = started(world)
    sent(world, stream, version=20, mark=True)
    stream.end(Unavailable("internal", status=500), in_stream=True)
    world.kit.settle()
    world.wait_for("watch")
    assert lists(world) == 0


def test_a_silent_list_is_abandoned_for_pages(world: World, kit: Kit) -> None:
    """A server that ignores the option sends all pods and then only changes, without a mark."""
    stream = started(world)
    for number in range(1, 4):
        kit.advance(REQUEST - MOMENT)
        sent(world, stream, pod(number, version=number), version=number)
    kit.advance(REQUEST - MOMENT)
    assert not stream.cancelled
    kit.advance(MOMENT)
    assert stream.cancelled
    assert isinstance(world.backend.take_all(Freshness)[-1].error, Unavailable)
    assert REFLECTOR.initial <= world.wait_for("list") <= 2 * REFLECTOR.initial
    world.store.expect_nothing()


def test_after_the_list_silence_is_measured_as_of_any_watch(world: World, kit: Kit) -> None:
    stream = started(world)
    sent(world, stream, version=20, mark=True)
    kit.advance(SILENCE - MOMENT)
    assert not stream.cancelled
    kit.advance(MOMENT)
    assert stream.cancelled


# ── freshness, giving up ─────────────────────────────────────────────────────────────────────────────────────────


def test_events_before_the_mark_are_fresh_data_but_no_full_sync(world: World, kit: Kit) -> None:
    error = Unavailable("no route")
    started(world).end(error)
    kit.settle()
    world.backend.take(Freshness)
    world.wait_for("watch")
    stream, asked_at = world.api.take("watch"), kit.clock.monotonic()
    kit.advance(timedelta(seconds=3))
    sent(world, stream, pod(1, version=9), version=9)
    assert world.backend.take(Freshness) == Freshness(Source.WATCH, None, error, asked_at + 3)
    sent(world, stream, version=20, mark=True)
    assert world.backend.take(Freshness) == Freshness(Source.WATCH, asked_at, None, asked_at + 3)


def test_a_list_under_way_continues_when_the_stream_before_it_is_abandoned(world: World, kit: Kit) -> None:
    stream = started(world)
    sent(world, stream, version=20, mark=True)
    number = world.store.take(ReplaceSnapshot).stream
    world.end(stream, Unavailable("no route"))
    failing_since = kit.clock.elapsed
    world.tell(Relist())
    while kit.clock.elapsed < failing_since + ABANDON_AFTER - timedelta(seconds=125):
        world.wait_for("watch")
        world.end(world.api.take("watch"), Unavailable("no route"))
    world.wait_for("watch")
    last = world.api.take("watch")
    while not (abandoned := world.store.take_all(StreamAbandoned)):
        sent(world, last, pod(1, version=9), version=9)
        kit.advance(timedelta(seconds=5))
    assert abandoned == [StreamAbandoned(number or 0)]
    assert not last.cancelled
    sent(world, last, version=30, mark=True)
    assert [p.uid for p in world.store.take(ReplaceSnapshot).pods] == ["uid-1"]


def test_pages_do_not_stream_after_the_list_was_answered_by_pages(world: World, kit: Kit) -> None:
    """A late page of an abandoned LIST does not belong to the streaming one."""
    started(world).end(Invalid("forbidden for watch", status=422))
    kit.settle()
    page = world.api.take("list")
    page.answer(PodPage((pod(1),), "7"))
    kit.settle()
    assert world.store.take(ReplaceSnapshot).pods == (pod(1),)
    assert world.api.take("watch").request.resource_version == "7"
