"""Watches: order, resuming, selectors, bookmarks, the window, backups."""

from __future__ import annotations

import threading
from itertools import pairwise

from actors.local.store.object_store import WatchMessage
from tests.unit.local.bench import Bench, manifest, refusal


def test_changes_come_in_order_with_their_versions(bench: Bench) -> None:
    seen = bench.watch()
    bench.pod("a")
    bench.label("a", x="1")
    bench.delete("a")
    assert seen.types == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    versions = [int(message.object["metadata"]["resourceVersion"]) for message in seen.messages]
    assert all(later == earlier + 1 for earlier, later in pairwise(versions))
    assert seen.messages[0].object["kind"] == "Pod"


def test_a_watch_resumes_where_it_was(bench: Bench) -> None:
    bench.pod("a")
    version = bench.store.resource_version
    bench.pod("b")
    bench.delete("a")
    assert bench.watch(resource_version=version).events == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_without_a_version_existing_objects_come_first(bench: Bench) -> None:
    bench.pod("a")
    bench.pod("b")
    for version in (None, "", "0"):
        seen = bench.watch(resource_version=version)
        assert seen.events == [("ADDED", "a"), ("ADDED", "b")]
    bench.pod("c")
    assert seen.events[-1] == ("ADDED", "c")


def test_initial_events_end_with_a_bookmark(bench: Bench) -> None:
    bench.pod("a")
    seen = bench.watch(resource_version=None, send_initial_events=True, bookmarks=True)
    assert seen.types == ["ADDED", "BOOKMARK"]
    metadata = seen.messages[-1].object["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert metadata["resourceVersion"] == bench.store.resource_version


def test_initial_events_from_a_version_not_reached_are_an_error(bench: Bench) -> None:
    seen = bench.watch(resource_version="999", send_initial_events=True)
    assert seen.types == ["ERROR"]
    assert seen.messages[0].object["code"] == 504


def test_a_version_outside_the_window_is_one_error_and_the_end(bench: Bench) -> None:
    bench.pod("a")
    version = bench.store.resource_version
    bench.pod("b")
    bench.store.expire()
    seen = bench.watch(resource_version=version)
    bench.pod("c")
    assert seen.types == ["ERROR"]
    status = seen.messages[0].object
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"] == f"too old resource version: {version} ({int(version) + 1})"


def test_the_current_version_is_always_inside_the_window(bench: Bench) -> None:
    bench.pod("a")
    bench.store.expire()
    seen = bench.watch()
    bench.pod("b")
    assert seen.events == [("ADDED", "b")]


def test_the_window_keeps_a_bounded_number_of_changes() -> None:
    bench = Bench(window=3)
    versions = []
    for number in range(5):
        bench.pod(f"p{number}")
        versions.append(bench.store.resource_version)
    assert bench.watch(resource_version=versions[0]).types == ["ERROR"]
    assert bench.watch(resource_version=versions[1]).events == [("ADDED", "p2"), ("ADDED", "p3"), ("ADDED", "p4")]


def test_a_watch_from_a_later_version_waits_for_it(bench: Bench) -> None:
    ahead = str(int(bench.store.resource_version) + 2)
    seen = bench.watch(resource_version=ahead, bookmarks=True)
    bench.pod("a")
    bench.store.bookmark()
    bench.pod("b")
    assert seen.messages == []
    bench.pod("c")
    assert seen.events == [("ADDED", "c")]


def test_a_malformed_version_is_an_internal_error(bench: Bench) -> None:
    assert refusal(lambda: bench.watch(resource_version="abc")).code == 500


def test_a_broken_selector_is_a_bad_request(bench: Bench) -> None:
    assert refusal(lambda: bench.watch(label_selector="a in")).code == 400


def test_a_pod_that_stops_to_match_is_reported_deleted_as_it_last_matched(bench: Bench) -> None:
    bench.pod("a", labels={"x": "1"})
    seen = bench.watch(label_selector="x=1")
    changed = bench.label("a", x="2")
    assert seen.types == ["DELETED"]
    shown = seen.messages[0].object["metadata"]
    assert shown["labels"] == {"x": "1"}
    assert shown["resourceVersion"] == changed["metadata"]["resourceVersion"]
    assert "deletionTimestamp" not in shown


def test_a_pod_that_begins_to_match_is_reported_added(bench: Bench) -> None:
    bench.pod("a", labels={"x": "2"})
    seen = bench.watch(label_selector="x=1")
    bench.label("a", x="3")
    bench.label("a", x="1")
    assert seen.types == ["ADDED"]


def test_a_pod_that_never_matched_is_never_reported(bench: Bench) -> None:
    seen = bench.watch(label_selector="x=1", field_selector="status.phase=Running")
    bench.pod("a", labels={"x": "1"})
    bench.delete("a")
    assert seen.messages == []


def test_a_field_selector_follows_the_phase(bench: Bench) -> None:
    seen = bench.watch(field_selector="status.phase=Running")
    bench.pod("a", node="n", phase="Running")
    bench.status("a", {"phase": "Failed"})
    assert seen.types == ["ADDED", "DELETED"]
    assert seen.messages[1].object["status"]["phase"] == "Running"


def test_other_namespaces_and_resources_are_not_reported(bench: Bench) -> None:
    bench.store.create("namespaces", None, {"metadata": {"name": "team"}})
    seen, everywhere = bench.watch(), bench.watch(namespace=None)
    bench.store.create("pods", "team", manifest("t"))
    bench.store.create("configmaps", "default", {"metadata": {"name": "c"}})
    assert seen.messages == []
    assert everywhere.events == [("ADDED", "t")]


def test_bookmarks_are_sent_on_request(bench: Bench) -> None:
    wants, does_not = bench.watch(bookmarks=True), bench.watch()
    bench.store.create("configmaps", "default", {"metadata": {"name": "c"}})
    bench.store.bookmark()
    assert does_not.messages == []
    assert wants.messages == [
        WatchMessage(
            "BOOKMARK",
            {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": bench.store.resource_version}},
        )
    ]


def test_a_bookmark_can_be_for_one_watch(bench: Bench) -> None:
    one, other = bench.watch(bookmarks=True), bench.watch(bookmarks=True)
    bench.store.bookmark(one.subscription)
    assert (one.types, other.types) == (["BOOKMARK"], [])


def test_a_cancelled_watch_receives_nothing(bench: Bench) -> None:
    seen = bench.watch()
    seen.subscription.cancel()
    seen.subscription.cancel()
    bench.pod("a")
    assert seen.messages == []


def test_a_listener_may_change_the_store_and_all_see_one_order(bench: Bench) -> None:
    def bind(message: WatchMessage) -> None:
        if message.type == "ADDED":
            bench.store.bind("default", message.object["metadata"]["name"], "n")

    first = bench.watch()
    bench.store.watch("pods", "default", bind, resource_version=bench.store.resource_version)
    last = bench.watch()
    bench.pod("a")
    assert first.types == last.types == ["ADDED", "MODIFIED"]


def test_a_failing_listener_is_cancelled_and_no_other(bench: Bench) -> None:
    calls: list[WatchMessage] = []

    def fails(message: WatchMessage) -> None:
        calls.append(message)
        raise RuntimeError("broken listener")

    bench.store.watch("pods", "default", fails, resource_version=bench.store.resource_version)
    seen = bench.watch()
    bench.pod("a")
    bench.pod("b")
    assert len(calls) == 1
    assert seen.events == [("ADDED", "a"), ("ADDED", "b")]


def test_many_threads_write_and_every_watch_sees_every_change_in_order(bench: Bench) -> None:
    seen = [bench.watch() for _ in range(3)]

    def write(writer: int) -> None:
        for number in range(50):
            bench.store.create("pods", "default", manifest(f"w{writer}-{number}"))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for each in seen:
        versions = [int(message.object["metadata"]["resourceVersion"]) for message in each.messages]
        assert len(versions) == 200
        assert versions == sorted(set(versions))


def test_a_restored_backup_looks_like_a_quiet_cluster(bench: Bench) -> None:
    kept = bench.pod("kept")
    backup = bench.store.snapshot()
    seen = bench.watch(bookmarks=True)
    bench.pod("lost")
    bench.pod("lost-too")
    bench.store.restore(backup)
    bench.store.bookmark()
    assert seen.events == [("ADDED", "lost"), ("ADDED", "lost-too")]
    assert bench.names() == ["kept"]
    assert bench.get("kept") == kept
    assert bench.store.resource_version == kept["metadata"]["resourceVersion"]


def test_after_a_restore_versions_are_used_again_and_the_old_window_is_gone(bench: Bench) -> None:
    before = bench.store.resource_version
    bench.pod("kept")
    backup = bench.store.snapshot()
    lost = bench.pod("lost")
    bench.store.restore(backup)
    assert bench.pod("new")["metadata"]["resourceVersion"] == lost["metadata"]["resourceVersion"]
    assert bench.watch(resource_version=before).types == ["ERROR"]
    assert bench.names() == ["kept", "new"]
