"""`InProcessPodApi` keeps the contract of `PodApi` and answers as the HTTP client does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors import kube
from actors.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Cancelled,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    QuotaExceeded,
    Unavailable,
)
from actors.kube.api import DeleteOptions, PodPage, WatchEnded, WatchEvents
from actors.local.inprocess import InProcessPodApi
from actors.pods.pod import Pod
from tests.unit.local.bench import Bench, manifest

HOUR = timedelta(hours=1)


class Replies(list[Any]):
    """What a call, or a watch, was told."""

    def __call__(self, answer: Any) -> None:
        self.append(answer)

    @property
    def only(self) -> Any:
        """The one answer."""
        (answer,) = self
        return answer

    @property
    def pods(self) -> list[tuple[str, str]]:
        """Type and name of every watched event."""
        events = [event for message in self if isinstance(message, WatchEvents) for event in message.events]
        return [(event.type, event.pod.name) for event in events]


@pytest.fixture
def api(bench: Bench) -> InProcessPodApi:
    """Without latency."""
    return InProcessPodApi(bench.store, "default", bench.timers)


@pytest.fixture
def slow(bench: Bench) -> InProcessPodApi:
    """100 ms there and back."""
    return InProcessPodApi(bench.store, "default", bench.timers, timedelta(milliseconds=100))


def test_without_latency_a_call_is_answered_before_it_returns(api: InProcessPodApi) -> None:
    created, got = Replies(), Replies()
    api.send(kube.Create(manifest("a", labels={"x": "1"})), created)
    api.send(kube.Get("a"), got)
    assert isinstance(created.only, Pod)
    assert got.only == created.only
    assert (got.only.name, got.only.labels, got.only.status.phase) == ("a", {"x": "1"}, "Pending")


def test_a_list_is_a_page_of_pods(api: InProcessPodApi, bench: Bench) -> None:
    for name in "abc":
        bench.pod(name, labels={"app": "x"})
    bench.pod("other")
    first, second = Replies(), Replies()
    api.send(kube.List("app=x", limit=2), first)
    page = first.only
    assert isinstance(page, PodPage)
    assert [pod.name for pod in page.pods] == ["a", "b"]
    assert page.resource_version == bench.store.resource_version
    api.send(kube.List("app=x", limit=2, continue_token=page.continue_token), second)
    assert [pod.name for pod in second.only.pods] == ["c"]
    assert second.only.continue_token == ""


def test_errors_are_the_librarys_own(api: InProcessPodApi, bench: Bench) -> None:
    bench.pod("a")
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    replies = Replies()
    api.send(kube.Create(manifest("a")), replies)
    api.send(kube.Create(manifest("A_")), replies)
    api.send(kube.Create(manifest("b", containers=1)), replies)
    api.send(kube.Get("nope"), replies)
    api.send(kube.Delete("a", DeleteOptions(uid="other")), replies)
    api.send(kube.List("a in"), replies)
    api.send(kube.List("", resource_version="999"), replies)
    bench.store.create("resourcequotas", "default", quota)
    api.send(kube.Create(manifest("b")), replies)
    kinds = [AlreadyExists, Invalid, BadRequest, NotFound, Conflict, BadRequest, Unavailable, QuotaExceeded]
    assert [type(reply) for reply in replies] == kinds
    assert replies[1].causes[0][0] == "metadata.name"
    assert replies[6].retry_after == timedelta(seconds=1)
    assert all(isinstance(reply, ApiError) and reply.status >= 400 for reply in replies)


def test_delete_passes_its_options_on(api: InProcessPodApi, bench: Bench) -> None:
    pod = bench.pod("a", node="n")
    replies = Replies()
    metadata = pod["metadata"]
    options = DeleteOptions(metadata["uid"], metadata["resourceVersion"], timedelta(seconds=5))
    api.send(kube.Delete("a", options), replies)
    assert replies.only is None
    assert bench.get("a")["metadata"]["deletionGracePeriodSeconds"] == 5


def test_a_collection_is_deleted_by_selector(api: InProcessPodApi, bench: Bench) -> None:
    bench.pod("a", labels={"app": "x"}, node="n")
    bench.pod("b")
    replies = Replies()
    api.send(kube.DeleteCollection("app=x"), replies)
    assert replies.only is None
    assert bench.get("a")["metadata"]["deletionGracePeriodSeconds"] == 30
    assert bench.names() == ["a", "b"]


def test_a_patch_is_a_merge_patch(api: InProcessPodApi, bench: Bench) -> None:
    bench.pod("a", labels={"x": "1", "y": "2"})
    replies = Replies()
    api.send(kube.Patch("a", {"metadata": {"labels": {"x": None, "z": "3"}}}), replies)
    assert replies.only.labels == {"y": "2", "z": "3"}


def test_a_watch_delivers_events_and_ends_cleanly_after_its_timeout(api: InProcessPodApi, bench: Bench) -> None:
    seen = Replies()
    api.watch(kube.Watch("app=x", bench.store.resource_version, timeout=timedelta(seconds=30)), seen)
    bench.pod("a", labels={"app": "x"})
    bench.label("a", app="y")
    assert seen.pods == [("ADDED", "a"), ("DELETED", "a")]
    assert seen[-1].resource_version == bench.store.resource_version
    bench.advance(timedelta(seconds=30))
    assert seen[-1] == WatchEnded(None)
    count = len(seen)
    bench.pod("b", labels={"app": "x"})
    assert len(seen) == count
    assert bench.timers.pending == 0


def test_unchanged_pods_are_left_out_of_a_watch_and_a_list_has_their_versions(
    api: InProcessPodApi, bench: Bench
) -> None:
    bench.pod("runs", phase="Running")
    bench.pod("waits")
    listed, seen, again, other = Replies(), Replies(), Replies(), Replies()
    api.send(kube.List(""), listed)
    api.watch(kube.Watch("", listed.only.resource_version, timeout=HOUR), seen)
    for name in ("runs", "waits"):
        bench.patch(name, {"metadata": {"annotations": {"a": "b"}}})
    version = bench.get("runs")["metadata"]["resourceVersion"]
    assert [(what.unchanged, what.resource_version == version) for what in seen] == [(1, True), (0, False)]
    assert seen.pods == [("MODIFIED", "waits")]
    api.send(kube.List(""), again)
    runs = again.only.pods[0]
    assert runs is listed.only.pods[0]
    assert again.only.listed_versions[0] == version
    api.watch(kube.Watch("", listed.only.resource_version, timeout=HOUR), other)
    assert other.pods == [("MODIFIED", "runs"), ("MODIFIED", "waits")], "an earlier connection may have lost it"


def test_bookmarks_come_once_a_minute(api: InProcessPodApi, bench: Bench) -> None:
    seen = Replies()
    api.watch(kube.Watch("", bench.store.resource_version, timeout=HOUR), seen)
    bench.store.create("configmaps", "default", {"metadata": {"name": "c"}})
    bench.advance(timedelta(minutes=2, seconds=1))
    assert seen == [WatchEvents((), bench.store.resource_version)] * 2


def test_an_old_version_ends_the_watch_as_gone(api: InProcessPodApi, bench: Bench) -> None:
    bench.pod("a")
    bench.store.expire()
    seen = Replies()
    api.watch(kube.Watch("", "1", timeout=HOUR), seen)
    assert isinstance(seen.only, WatchEnded)
    assert isinstance(seen.only.error, Gone)
    assert bench.timers.pending == 0


def test_a_broken_selector_ends_the_watch(api: InProcessPodApi) -> None:
    seen = Replies()
    api.watch(kube.Watch("a in", "1", timeout=HOUR), seen)
    assert isinstance(seen.only.error, BadRequest)


def test_a_cancelled_watch_ends_once_and_delivers_nothing_more(api: InProcessPodApi, bench: Bench) -> None:
    seen = Replies()
    watch = api.watch(kube.Watch("", bench.store.resource_version, timeout=HOUR), seen)
    watch.cancel()
    watch.cancel()
    bench.pod("a")
    assert isinstance(seen.only.error, Cancelled)
    assert bench.timers.pending == 0


def test_a_watch_can_be_cancelled_by_its_own_sink(api: InProcessPodApi, bench: Bench) -> None:
    seen = Replies()

    def sink(message: WatchEvents | WatchEnded) -> None:
        seen(message)
        watch.cancel()

    watch = api.watch(kube.Watch("", bench.store.resource_version, timeout=HOUR), sink)
    bench.pod("a")
    bench.pod("b")
    assert [type(message) for message in seen] == [WatchEvents, WatchEnded]


def test_latency_delays_the_request_and_the_answer(slow: InProcessPodApi, bench: Bench) -> None:
    replies = Replies()
    slow.send(kube.Create(manifest("a")), replies)
    assert bench.names() == []
    bench.advance(timedelta(milliseconds=50))
    assert (bench.names(), replies) == (["a"], [])
    bench.advance(timedelta(milliseconds=50))
    assert replies.only.name == "a"


def test_an_answer_with_latency_is_of_the_moment_the_server_got_the_request(
    slow: InProcessPodApi, bench: Bench
) -> None:
    replies = Replies()
    slow.send(kube.List(""), replies)
    bench.advance(timedelta(milliseconds=60))
    bench.pod("late")
    bench.advance(timedelta(milliseconds=60))
    assert replies.only.pods == ()


def test_latency_delays_events_and_keeps_their_order(slow: InProcessPodApi, bench: Bench) -> None:
    seen = Replies()
    slow.watch(kube.Watch("", bench.store.resource_version, timeout=HOUR), seen)
    for name in "abc":
        bench.pod(name)
    assert seen == []
    bench.advance(timedelta(milliseconds=150))
    assert seen.pods == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


def test_events_on_their_way_to_a_cancelled_watch_do_not_arrive(slow: InProcessPodApi, bench: Bench) -> None:
    seen = Replies()
    watch = slow.watch(kube.Watch("", bench.store.resource_version, timeout=HOUR), seen)
    bench.advance(timedelta(milliseconds=100))
    bench.pod("a")
    watch.cancel()
    bench.advance(timedelta(seconds=1))
    assert isinstance(seen.only.error, Cancelled)


def test_a_call_cancelled_on_its_way_never_happens(slow: InProcessPodApi, bench: Bench) -> None:
    replies = Replies()
    call = slow.send(kube.Create(manifest("a")), replies)
    call.cancel()
    call.cancel()
    bench.advance(timedelta(seconds=1))
    assert isinstance(replies.only, Cancelled)
    assert bench.names() == []


def test_a_call_cancelled_on_its_way_back_has_happened(slow: InProcessPodApi, bench: Bench) -> None:
    replies = Replies()
    call = slow.send(kube.Create(manifest("a")), replies)
    bench.advance(timedelta(milliseconds=60))
    call.cancel()
    bench.advance(timedelta(seconds=1))
    assert isinstance(replies.only, Cancelled)
    assert bench.names() == ["a"]


def test_cancelling_what_was_answered_is_nothing(api: InProcessPodApi) -> None:
    replies = Replies()
    api.send(kube.Create(manifest("a")), replies).cancel()
    assert isinstance(replies.only, Pod)


def test_close_cancels_what_is_open_and_what_comes_later(slow: InProcessPodApi, bench: Bench) -> None:
    replies, seen, later = Replies(), Replies(), Replies()
    slow.send(kube.Create(manifest("a")), replies)
    slow.watch(kube.Watch("", "0", timeout=HOUR), seen)
    slow.close()
    slow.send(kube.Get("a"), later)
    slow.watch(kube.Watch("", "0", timeout=HOUR), later)
    bench.advance(timedelta(seconds=1))
    assert isinstance(replies.only, Cancelled)
    assert isinstance(seen.only.error, Cancelled)
    assert isinstance(later[0], Cancelled)
    assert isinstance(later[1].error, Cancelled)
    assert bench.names() == []
    assert bench.timers.pending == 0


def test_latency_needs_timers(bench: Bench) -> None:
    with pytest.raises(ValueError, match="latency needs timers"):
        InProcessPodApi(bench.store, "default", None, timedelta(seconds=1))


def test_a_pod_with_an_unusable_field_is_read_without_it(api: InProcessPodApi, bench: Bench) -> None:
    bench.pod("bad")
    seen = Replies()
    api.watch(kube.Watch("", bench.store.resource_version, timeout=HOUR), seen)
    bench.status("bad", {"startTime": "yesterday"})
    replies = Replies()
    api.send(kube.List(""), replies)
    api.send(kube.Get("bad"), replies)
    found = [*replies[0].pods, replies[1], seen.only.events[0].pod]
    assert [(pod.name, pod.start_time) for pod in found] == [("bad", None)] * 3


def test_after_a_restore_a_version_used_again_is_not_taken_for_the_old_one(api: InProcessPodApi, bench: Bench) -> None:
    bench.pod("a")
    backup = bench.store.snapshot()
    replies = Replies()
    bench.label("a", x="before")
    api.send(kube.Get("a"), replies)
    bench.store.restore(backup)
    bench.label("a", x="after")
    api.send(kube.Get("a"), replies)
    assert replies[0].resource_version == replies[1].resource_version
    assert [pod.labels["x"] for pod in replies] == ["before", "after"]


def test_what_lists_and_watches_show_is_decoded_once(api: InProcessPodApi, bench: Bench) -> None:
    bench.pod("a")
    replies, seen = Replies(), Replies()
    api.send(kube.List(""), replies)
    api.watch(kube.Watch("", "0", timeout=HOUR), seen)
    assert replies.only.pods[0] is seen.only.events[0].pod


def test_a_pod_that_is_asked_for_says_more_than_lists_show(api: InProcessPodApi, bench: Bench) -> None:
    bench.pod("a")
    bench.status("a", {"conditions": [{"type": "Ready", "status": "True"}]})
    listed, got, again = Replies(), Replies(), Replies()
    api.send(kube.Get("a"), got)
    api.send(kube.List(""), listed)
    api.send(kube.Get("a"), again)
    assert listed.only.pods[0].status.conditions is None
    assert [(each.type, each.status) for each in got.only.status.conditions] == [("Ready", "True")]
    assert again.only == got.only
