"""What a server answers to those who list and watch: rows of what was asked of a real one, past the `PodApi`."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.test_writing import pod

if TYPE_CHECKING:
    from tests.contract.clusters import Cluster
    from tests.contract.raw import Raw

KEEP = "example.com/keep"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


def version(obj: dict[str, Any]) -> str:
    found: str = obj["metadata"]["resourceVersion"]
    return found


def aged(token: str, old: str) -> str:
    """A continue token as an earlier list would have had it."""
    said = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    said["rv"] = int(old)
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")


# ── GET and LIST ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_object_carries_its_kind_and_the_items_of_a_list_do_not(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    one, many = raw.get("pods/a").body, raw.get("pods").body
    assert (one["kind"], one["apiVersion"]) == ("Pod", "v1")
    assert (many["kind"], many["apiVersion"]) == ("PodList", "v1")
    assert not {"kind", "apiVersion"} & many["items"][0].keys()


def test_what_is_not_there_is_404_with_name_and_kind(raw: Raw) -> None:
    answer = raw.get("pods/a")
    assert answer.refusal == (404, "NotFound", 'pods "a" not found')
    assert answer.body["details"] == {"name": "a", "kind": "pods"}


def test_a_list_of_an_unknown_namespace_is_empty(raw: Raw) -> None:
    assert raw.names("/api/v1/namespaces/nowhere/pods") == set()


def test_list_with_limit_tells_where_to_go_on_and_how_many_remain(raw: Raw) -> None:
    for i in range(5):
        raw.made("pods", pod(f"p{i}"))
    pages = [raw.get("pods", limit="2").body]
    while token := pages[-1]["metadata"].get("continue"):
        pages.append(raw.get("pods", **{"limit": "2", "continue": token}).body)
    assert [[item["metadata"]["name"] for item in page["items"]] for page in pages] == [
        ["p0", "p1"],
        ["p2", "p3"],
        ["p4"],
    ]
    assert [page["metadata"].get("remainingItemCount") for page in pages] == [3, 1, None]
    assert len({version(page) for page in pages}) == 1


def test_list_with_limit_and_selector_does_not_say_how_many_remain(raw: Raw) -> None:
    for i in range(3):
        raw.made("pods", pod(f"p{i}", labels={"app": "x"}))
    metadata = raw.get("pods", limit="2", labelSelector="app=x").body["metadata"]
    assert metadata["continue"]
    assert "remainingItemCount" not in metadata


def test_a_continue_token_outlives_changes_and_shows_none(raw: Raw) -> None:
    for name in ("a", "b", "c"):
        raw.made("pods", pod(name))
    token = raw.get("pods", limit="1").body["metadata"]["continue"]
    raw.delete("pods/b")
    raw.made("pods", pod("d"))
    rest = raw.get("pods", **{"limit": "5", "continue": token}).body
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c"]


def test_a_continue_token_without_a_limit_brings_all_the_rest(raw: Raw) -> None:
    for name in ("a", "b", "c"):
        raw.made("pods", pod(name))
    token = raw.get("pods", limit="1").body["metadata"]["continue"]
    assert raw.names("pods", **{"continue": token}) == {"b", "c"}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"continue": "broken", "limit": "1"}, "invalid continue token: continue key is not valid: "),
        ({"labelSelector": "a in b"}, "unable to parse requirement: found 'b' expected: '('"),
        ({"labelSelector": "a=("}, "unable to parse requirement: found '(', expected: identifier"),
        ({"labelSelector": "!"}, "unable to parse requirement: found '', expected: identifier"),
        ({"labelSelector": "a b"}, "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ({"labelSelector": "a=b c"}, "found 'c', expected: ',' or 'end of string'"),
        ({"labelSelector": "a,"}, "found '', expected: identifier after ','"),
        ({"fieldSelector": "spec.shape=round"}, "field label not supported: spec.shape"),
        ({"fieldSelector": "status.phase"}, "invalid selector: 'status.phase'; can't understand 'status.phase'"),
        ({"resourceVersion": "abc"}, 'invalid resource version: resourceVersion: Invalid value: "abc": '),
    ],
)
def test_list_with_a_broken_parameter_is_400_with_its_own_message(raw: Raw, query: dict[str, str], words: str) -> None:
    answer = raw.get("pods", **query)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"].startswith(words)


def test_list_of_a_version_above_the_servers_is_504_with_cause_and_retry_after(raw: Raw) -> None:
    above = str(int(version(raw.get("pods").body)) + 1_000_000)
    answer = raw.get("pods", resourceVersion=above)
    assert (answer.status, answer.body["reason"], answer.retry_after) == (504, "Timeout", "1")
    assert answer.body["details"]["retryAfterSeconds"] == 1
    assert answer.body["details"]["causes"] == [
        {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    ]
    assert answer.body["message"].startswith(f"Timeout: Too large resource version: {above}, current: ")


def test_list_exactly_at_a_version_shows_what_was_there_then(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    then = version(raw.made("pods", pod("b")))
    raw.delete("pods/a")
    exact = raw.get("pods", resourceVersion=then, resourceVersionMatch="Exact").body
    assert version(exact) == then
    assert {item["metadata"]["name"] for item in exact["items"]} == {"a", "b"}


def test_list_not_older_than_a_version_shows_what_is_there_now(raw: Raw) -> None:
    then = version(raw.made("pods", pod("a")))
    raw.delete("pods/a")
    now = version(raw.made("pods", pod("b")))
    found = raw.get("pods", resourceVersion=now, resourceVersionMatch="NotOlderThan").body
    assert int(version(found)) >= int(now) > int(then)
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]


def test_list_exactly_at_a_version_outside_the_window_is_410(cluster: Cluster, raw: Raw) -> None:
    answer = raw.get("pods", resourceVersion=cluster.version_outside_the_window(), resourceVersionMatch="Exact")
    assert (answer.status, answer.body["reason"]) == (410, "Expired")


def test_a_continue_token_from_outside_of_the_window_is_410(cluster: Cluster, raw: Raw) -> None:
    for name in ("a", "b"):
        raw.made("pods", pod(name))
    token = raw.get("pods", limit="1").body["metadata"]["continue"]
    old = aged(token, cluster.version_outside_the_window())
    answer = raw.get("pods", **{"limit": "1", "continue": old})
    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    assert answer.body["message"].startswith("The provided continue parameter is too old")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"resourceVersionMatch": "Exact"}, "FieldValueForbidden"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, "FieldValueForbidden"),
        ({"resourceVersionMatch": "Perhaps", "resourceVersion": "1"}, "FieldValueNotSupported"),
    ],
)
def test_a_match_that_makes_no_sense_is_422(raw: Raw, query: dict[str, str], reason: str) -> None:
    answer = raw.get("pods", **query)
    assert (answer.status, answer.causes) == (422, [("resourceVersionMatch", reason)])
    assert answer.body["details"]["kind"] == "ListOptions"


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=bound", {"bound"}),
        ("metadata.name==bound", {"bound"}),
        ("metadata.name!=bound", {"running", "waiting"}),
        ("metadata.namespace={namespace}", {"bound", "running", "waiting"}),
        ("metadata.namespace!={namespace}", set()),
        ("spec.nodeName=n", {"bound"}),
        ("spec.nodeName!=n", {"running", "waiting"}),
        ("spec.nodeName=", {"waiting"}),
        ("spec.nodeName!=", {"bound", "running"}),
        ("status.phase=Running", {"running"}),
        ("status.phase!=Running", {"bound", "waiting"}),
        ("status.phase=Pending,spec.nodeName=n", {"bound"}),
        ("status.podIP=10.1.2.3", {"running"}),
        ("status.nominatedNodeName=", {"bound", "running", "waiting"}),
        ("spec.hostNetwork=false", {"bound", "running", "waiting"}),
        ("spec.restartPolicy=Never", set()),
        ("spec.schedulerName=default-scheduler", {"bound", "running", "waiting"}),
        ("", {"bound", "running", "waiting"}),
    ],
)
def test_list_by_field(raw: Raw, selector: str, names: set[str]) -> None:
    raw.made("pods", pod("bound", node="n"))
    raw.made("pods", pod("running", node="m"))
    raw.made("pods", pod("waiting"))
    raw.patch(
        "pods/running/status", {"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}}
    )
    assert raw.names("pods", fieldSelector=selector.format(namespace=raw.namespace)) == names


def test_a_field_of_another_kind_is_400(raw: Raw) -> None:
    answer = raw.get("leases", fieldSelector="spec.holderIdentity=x")
    known = 'only "metadata.name", "metadata.namespace"'
    assert answer.refusal == (400, "BadRequest", f'"spec.holderIdentity" is not a known field selector: {known}')


# ── WATCH ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("query", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}])
def test_watch_without_a_version_or_from_0_begins_with_what_there_is(raw: Raw, query: dict[str, str]) -> None:
    raw.made("pods", pod("a"))
    raw.made("pods", pod("b"))
    watch = raw.watch("pods", **query)
    assert {watch.told(), watch.told()} == {("ADDED", "a"), ("ADDED", "b")}
    raw.made("pods", pod("c"))
    assert watch.told() == ("ADDED", "c")
    watch.close()


def test_watch_from_outside_of_the_window_is_one_error_event_and_the_end(cluster: Cluster, raw: Raw) -> None:
    then = cluster.version_outside_the_window()
    watch = raw.watch("pods", resourceVersion=then)
    (event,) = watch.rest()
    watch.close()
    status = event["object"]
    assert (event["type"], status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {then} (")


def test_watch_from_a_version_of_the_window_tells_what_came_after_it(raw: Raw) -> None:
    first = version(raw.made("pods", pod("a")))
    raw.patch("pods/a", {"metadata": {"labels": {"x": "y"}}})
    raw.delete("pods/a")
    watch = raw.watch("pods", resourceVersion=first)
    told = [watch.told()[0]]
    while told[-1] != "DELETED":
        told.append(watch.told()[0])
    watch.close()
    assert told[0] == "MODIFIED"


def test_watch_with_a_selector_a_pod_that_stops_to_match_is_deleted_as_it_was(raw: Raw) -> None:
    made = raw.made("pods", pod("a", labels={"app": "x"}))
    watch = raw.watch("pods", labelSelector="app=x", resourceVersion=version(made))
    left = raw.patch("pods/a", {"metadata": {"labels": {"app": "y"}}}).body
    event = watch.next()
    assert (event["type"], event["object"]["metadata"]["labels"]) == ("DELETED", {"app": "x"})
    assert version(event["object"]) == version(left)
    raw.patch("pods/a", {"metadata": {"labels": {"app": "x"}}})
    assert watch.told() == ("ADDED", "a")
    watch.close()


def test_watch_by_field_sees_a_pod_come_and_go(raw: Raw) -> None:
    made = raw.made("pods", pod("a", node="n"))
    watch = raw.watch("pods", fieldSelector="status.phase=Running", resourceVersion=version(made))
    raw.patch("pods/a/status", {"status": {"phase": "Running"}})
    assert watch.told() == ("ADDED", "a")
    raw.patch("pods/a/status", {"status": {"phase": "Failed"}})
    event = watch.next()
    watch.close()
    assert (event["type"], event["object"]["status"]["phase"]) == ("DELETED", "Running")


def test_a_graceful_deletion_is_modified_and_then_deleted(raw: Raw) -> None:
    made = raw.made("pods", pod("a", node="n"))
    watch = raw.watch("pods", resourceVersion=version(made))
    raw.delete("pods/a")
    begun = watch.next()
    assert (begun["type"], begun["object"]["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 30)
    raw.delete("pods/a", {"gracePeriodSeconds": 0})
    shortened, gone = watch.next(), watch.next()
    watch.close()
    assert (shortened["type"], shortened["object"]["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 0)
    assert gone["type"] == "DELETED"
    assert int(version(gone["object"])) > int(version(shortened["object"]))


def test_a_forced_deletion_of_a_running_pod_still_says_running(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    running = raw.patch("pods/a/status", {"status": {"phase": "Running"}}).body
    watch = raw.watch("pods", resourceVersion=version(running))
    raw.delete("pods/a", {"gracePeriodSeconds": 0})
    event = watch.next()
    while event["type"] == "MODIFIED":
        event = watch.next()
    watch.close()
    assert (event["type"], event["object"]["status"]["phase"]) == ("DELETED", "Running")
    assert event["object"]["metadata"]["uid"] == running["metadata"]["uid"]


def test_the_last_finalizer_that_is_taken_away_is_a_deleted_event(raw: Raw) -> None:
    made = raw.made("pods", pod("a", finalizers=[KEEP]))
    watch = raw.watch("pods", resourceVersion=version(made))
    raw.delete("pods/a")
    assert watch.told() == ("MODIFIED", "a")
    raw.patch("pods/a", {"metadata": {"finalizers": None}})
    event = watch.next()
    while event["type"] == "MODIFIED":
        event = watch.next()
    watch.close()
    assert event["type"] == "DELETED"


def test_a_watch_of_one_namespace_delivers_nothing_of_another(cluster: Cluster, raw: Raw) -> None:
    other = cluster.new_namespace()
    watch = raw.watch("pods", resourceVersion=version(raw.get("pods").body))
    raw.made(f"/api/v1/namespaces/{other}/pods", pod("elsewhere"))
    raw.made("pods", pod("here"))
    assert watch.told() == ("ADDED", "here")
    watch.close()


def test_watch_with_initial_events_ends_them_with_an_annotated_bookmark(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    now = version(raw.made("pods", pod("b")))
    watch = raw.watch("pods", **INITIAL)
    assert {watch.told(), watch.told()} == {("ADDED", "a"), ("ADDED", "b")}
    mark = watch.next()
    assert (mark["type"], mark["object"]["kind"]) == ("BOOKMARK", "Pod")
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(version(mark["object"])) >= int(now)
    raw.made("pods", pod("c"))
    assert watch.told() == ("ADDED", "c")
    watch.close()


def test_watch_with_initial_events_of_nothing_is_the_bookmark_alone(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    watch = raw.watch("pods", labelSelector="app=none", **INITIAL)
    assert watch.next()["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    watch.close()


def test_watch_with_initial_events_and_without_bookmarks_has_no_mark(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    watch = raw.watch("pods", sendInitialEvents="true", resourceVersionMatch="NotOlderThan")
    assert watch.told() == ("ADDED", "a")
    raw.made("pods", pod("b"))
    assert watch.told() == ("ADDED", "b")
    watch.close()
