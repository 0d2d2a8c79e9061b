"""The Kubernetes API over HTTP: requests and their answers."""

from __future__ import annotations

import gzip
import json
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from aiohttp import web

from actors.local.kubelet.container_run import LogFile
from actors.local.server import api_server as server
from actors.local.server import watch_stream
from actors.local.store.object_store import ApiStatus
from tests.unit.local.server_kit import PODS, SAFETY_SECONDS, TABLE, Endpoint, manifest, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aiohttp.typedefs import Handler

    from actors.local.store.history import Subscription


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Endpoint]:
    yield from served(tmp_path)


# ── Objects ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_is_created_read_changed_and_deleted(api: Endpoint) -> None:
    created = api.request("POST", PODS, manifest("a"))
    assert (created.status, created.json["kind"], created.json["apiVersion"]) == (201, "Pod", "v1")
    assert api.request("GET", f"{PODS}/a").json == created.json
    patch = {"metadata": {"labels": {"x": "y"}}}
    patched = api.request("PATCH", f"{PODS}/a", patch, content_type="application/merge-patch+json")
    assert patched.json["metadata"]["labels"] == {"x": "y"}
    replaced = api.request("PUT", f"{PODS}/a", patched.json | {"metadata": patched.json["metadata"] | {"labels": {}}})
    assert "labels" not in replaced.json["metadata"]
    deleted = api.request("DELETE", f"{PODS}/a", {"preconditions": {"uid": created.json["metadata"]["uid"]}})
    assert (deleted.status, deleted.json["kind"]) == (200, "Pod")
    gone = api.request("GET", f"{PODS}/a")
    assert (gone.status, gone.json["reason"], gone.json["details"]) == (404, "NotFound", {"name": "a", "kind": "pods"})


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/json-patch+json", [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]),
        ("application/merge-patch+json", {"metadata": {"labels": {"x": "y"}}}),
        ("application/strategic-merge-patch+json; charset=utf-8", {"metadata": {"labels": {"x": "y"}}}),
    ],
)
def test_each_patch_type_is_applied(api: Endpoint, content_type: str, patch: Any) -> None:
    api.store.create("pods", "default", manifest("a"))
    answer = api.request("PATCH", f"{PODS}/a", patch, content_type=content_type)
    assert (answer.status, answer.json["metadata"]["labels"]) == (200, {"x": "y"})


@pytest.mark.parametrize("content_type", ["application/apply-patch+yaml", "application/json", "text/plain"])
def test_another_patch_type_is_415(api: Endpoint, content_type: str) -> None:
    api.store.create("pods", "default", manifest("a"))
    answer = api.request("PATCH", f"{PODS}/a", {"a": 1}, content_type=content_type)
    assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")


def test_status_changes_through_its_own_path_only(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    patch = {"status": {"phase": "Running"}}
    merge = "application/merge-patch+json"
    assert api.request("PATCH", f"{PODS}/a", patch, content_type=merge).json["status"]["phase"] == "Pending"
    assert api.request("PATCH", f"{PODS}/a/status", patch, content_type=merge).json["status"]["phase"] == "Running"
    assert api.request("GET", f"{PODS}/a/status").json["status"]["phase"] == "Running"


def test_a_binding_gives_a_pod_its_node(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    binding = {"kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    assert api.request("POST", f"{PODS}/a/binding", binding).status == 201
    assert api.request("GET", f"{PODS}/a").json["spec"]["nodeName"] == "n"
    assert api.request("POST", f"{PODS}/a/binding", {"target": {}}).status == 400


def test_deletions_take_their_options_from_the_body_or_the_query(api: Endpoint) -> None:
    for name in ("a", "b"):
        api.store.create("pods", "default", manifest(name))
        api.store.bind("default", name, "n")
    assert (
        api.request("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 7}).json["metadata"]["deletionGracePeriodSeconds"]
        == 7
    )
    assert api.request("DELETE", f"{PODS}/b?gracePeriodSeconds=0").status == 200
    assert api.request("GET", f"{PODS}/b").status == 404
    conflict = api.request("DELETE", f"{PODS}/a", {"preconditions": {"uid": "another"}})
    assert (conflict.status, conflict.json["reason"]) == (409, "Conflict")


@pytest.mark.parametrize("policy", ["Orphan", "Foreground"])
def test_an_unsupported_propagation_is_refused_and_nothing_is_deleted(api: Endpoint, policy: str) -> None:
    api.store.create("pods", "default", manifest("a"))
    assert api.request("DELETE", f"{PODS}/a", {"propagationPolicy": policy}).status == 501
    assert api.request("GET", f"{PODS}/a").status == 200
    assert api.request("DELETE", f"{PODS}/a", {"propagationPolicy": "Background"}).status == 200


def test_a_dry_binding_gives_no_node(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    binding = {"kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "n"}}
    assert api.request("POST", f"{PODS}/a/binding?dryRun=All", binding).status == 201
    assert "nodeName" not in api.request("GET", f"{PODS}/a").json["spec"]


def test_delete_collection_answers_what_it_deletes(api: Endpoint) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        api.store.create("pods", "default", manifest(name, app=label))
    answer = api.request("DELETE", f"{PODS}?labelSelector=app%3Dx").json
    assert (answer["kind"], [each["metadata"]["name"] for each in answer["items"]]) == ("PodList", ["a", "b"])
    assert [each["metadata"]["name"] for each in api.request("GET", PODS).json["items"]] == ["c"]


def test_an_unknown_field_is_a_warning_or_with_strict_a_400(api: Endpoint) -> None:
    pod = manifest("a")
    pod["spec"]["containerz"] = []
    assert api.request("POST", f"{PODS}?fieldValidation=Strict", pod).status == 400
    created = api.request("POST", PODS, pod)
    assert created.headers["Warning"] == '299 - "unknown field \\"spec.containerz\\""'


def test_refusals_carry_the_stores_status_and_retry_after(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    assert api.request("POST", PODS, manifest("a")).json["reason"] == "AlreadyExists"
    early = api.request("GET", f"{PODS}?resourceVersion=999999")
    assert (early.status, early.headers["Retry-After"]) == (504, "1")


@pytest.mark.parametrize("body", [b"{", b"[1]", b'"a"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_pod_is_400(api: Endpoint, body: bytes) -> None:
    answer = api.request("POST", PODS, body)
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


def test_a_body_of_another_format_is_415(api: Endpoint) -> None:
    answer = api.request("POST", PODS, b"k8s\0", content_type="application/vnd.kubernetes.protobuf")
    assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")


def test_an_answer_in_another_format_is_406_unless_json_is_accepted(api: Endpoint) -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    assert api.request("GET", PODS, headers={"Accept": protobuf}).status == 406
    assert api.request("GET", PODS, headers={"Accept": f"{protobuf},application/json"}).json["kind"] == "PodList"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/apis/apps/v1/deployments", 404),
        ("GET", f"{PODS}/a/nope", 404),
        ("GET", "/api/v1/pods/a", 404),
        ("POST", "/api/v1/pods", 405),
        ("DELETE", "/api/v1/pods", 405),
        ("PUT", PODS, 405),
        ("POST", f"{PODS}/a", 405),
        ("DELETE", f"{PODS}/a/status", 405),
        ("POST", "/version", 405),
        ("POST", f"{PODS}/a/exec?command=ls", 501),
        ("GET", f"{PODS}/a/attach", 501),
        ("POST", f"{PODS}/a/portforward", 501),
        ("GET", f"{PODS}/a/proxy", 501),
    ],
)
def test_unsupported_requests_are_refused(api: Endpoint, method: str, path: str, status: int) -> None:
    answer = api.request(method, path, manifest("a") if method in {"POST", "PUT"} else None)
    assert (answer.status, answer.json["kind"], answer.json["code"]) == (status, "Status", status)


def test_the_paths_of_other_resources_work_alike(api: Endpoint) -> None:
    assert api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}}).status == 201
    lease = "/apis/coordination.k8s.io/v1/namespaces/other/leases"
    assert api.request("POST", lease, {"metadata": {"name": "l"}, "spec": {}}).status == 201
    assert api.request("GET", "/apis/coordination.k8s.io/v1/leases").json["kind"] == "LeaseList"
    assert api.request("DELETE", f"{lease}/l").json["status"] == "Success"


def test_middlewares_run_only_for_authorised_requests(tmp_path: Path) -> None:
    @web.middleware
    async def shed_load(request: web.Request, handler: Handler) -> web.StreamResponse:
        raise ApiStatus(429, "TooManyRequests", "please try again later", retry_after=1)

    for api in served(tmp_path, shed_load):
        shed = api.request("GET", PODS)
        assert (shed.status, shed.headers["Retry-After"]) == (429, "1")
        assert api.request("GET", PODS, headers={"Authorization": "Bearer wrong"}).status == 401


def test_a_bug_behind_one_request_is_a_500_for_it_alone(
    api: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(api.store, "get", broken)
        assert api.request("GET", f"{PODS}/a").status == 500
    assert "request not answered" in caplog.text
    assert api.token not in caplog.text
    assert api.request("GET", f"{PODS}/a").status == 404


# ── Lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_comes_in_pages(api: Endpoint) -> None:
    for name in "abc":
        api.store.create("pods", "default", manifest(name))
    first = api.request("GET", f"{PODS}?limit=2").json
    assert first["metadata"]["remainingItemCount"] == 1
    second = api.request("GET", f"{PODS}?limit=2&continue={first['metadata']['continue']}").json
    assert [each["metadata"]["name"] for each in second["items"]] == ["c"]
    assert "continue" not in second["metadata"]
    assert "kind" not in second["items"][0]


@pytest.mark.parametrize(
    "query", ["limit=x", "watch=true&timeoutSeconds=x", "labelSelector=%3D%3D", "fieldSelector=a.b%3Dc"]
)
def test_a_query_that_cannot_be_understood_is_400(api: Endpoint, query: str) -> None:
    answer = api.request("GET", f"{PODS}?{query}")
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


def test_a_list_is_compressed_from_128_kib_on_when_the_client_takes_it(api: Endpoint) -> None:
    def get() -> tuple[str | None, bytes]:
        response = api.open("GET", PODS, headers={"Accept-Encoding": "gzip"})
        return response.headers.get("Content-Encoding"), response.read(decode_content=False)

    api.store.create("pods", "default", manifest("a"))
    assert get()[0] is None
    for number in range(400):
        api.store.create("pods", "default", manifest(f"p{number}"))
    encoding, body = get()
    assert encoding == "gzip"
    assert len(json.loads(gzip.decompress(body))["items"]) == 401
    assert "Content-Encoding" not in api.request("GET", PODS).headers


def test_pods_as_a_table_have_the_real_columns(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    table = api.request("GET", PODS, headers={"Accept": TABLE}).json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(each["name"], each["priority"]) for each in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ]
    (row,) = table["rows"]
    cells = row["cells"]
    assert cells[:4] == ["a", "0/1", "Pending", "0"]
    assert cells[5:] == ["<none>"] * 4
    assert row["object"]["kind"] == "PartialObjectMetadata"
    whole = api.request("GET", f"{PODS}/a?includeObject=Object", headers={"Accept": TABLE}).json
    assert whole["rows"][0]["object"]["spec"]["containers"][0]["name"] == "executor"


def test_a_resource_without_columns_of_its_own_is_a_table_of_name_and_age(api: Endpoint) -> None:
    table = api.request("GET", "/api/v1/namespaces/default/serviceaccounts", headers={"Accept": TABLE}).json
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Age"]


# ── Watches ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("word", ["true", "True", "1"])
def test_a_watch_sends_the_existing_objects_then_every_change(api: Endpoint, word: str) -> None:
    api.store.create("pods", "default", manifest("a"))
    watch = api.watch(f"{PODS}?watch={word}")
    event = watch.next()
    assert (event["type"], event["object"]["kind"], event["object"]["metadata"]["name"]) == ("ADDED", "Pod", "a")
    api.store.create("pods", "default", manifest("b"))
    assert (watch.next()["type"]) == "ADDED"
    api.store.delete("pods", "default", "a")
    assert [watch.next()["type"] for _ in range(2)] == ["MODIFIED", "DELETED"]
    watch.close()


def test_a_watch_from_a_version_sends_later_changes_and_ends_cleanly_in_time(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    version = api.store.resource_version
    api.store.create("pods", "default", manifest("b"))
    events = api.watch(f"{PODS}?watch=1&resourceVersion={version}&timeoutSeconds=1").rest()
    assert [each["object"]["metadata"]["name"] for each in events] == ["b"]


def test_a_watch_from_before_the_window_is_one_error_event_and_the_end(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    api.store.expire()
    (event,) = api.watch(f"{PODS}?watch=1&resourceVersion=1").rest()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_initial_events_end_with_an_annotated_bookmark(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    asked = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true"
    refused = api.request("GET", f"{PODS}?{asked}")
    assert (refused.status, refused.json["reason"]) == (422, "Invalid")
    watch = api.watch(f"{PODS}?{asked}&resourceVersionMatch=NotOlderThan")
    assert watch.next()["type"] == "ADDED"
    bookmark = watch.next()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    watch.close()


def test_bookmarks_are_sent_on_request(api: Endpoint) -> None:
    with_bookmarks = api.watch(f"{PODS}?watch=1&allowWatchBookmarks=true")
    without = api.watch(f"{PODS}?watch=1")
    api.store.bookmark()
    assert with_bookmarks.next()["type"] == "BOOKMARK"
    api.store.create("pods", "default", manifest("a"))
    assert without.next()["type"] == "ADDED"
    with_bookmarks.close()
    without.close()


def test_bookmarks_are_sent_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_BOOKMARK_SECONDS", 0.01)
    for api in served(tmp_path):
        watch = api.watch(f"{PODS}?watch=1&allowWatchBookmarks=true")
        assert watch.next()["type"] == "BOOKMARK"
        watch.close()


def test_a_watch_of_tables_has_its_header_once(api: Endpoint) -> None:
    response = api.open("GET", f"{PODS}?watch=1&timeoutSeconds=1", headers={"Accept": TABLE})
    api.store.create("pods", "default", manifest("a"))
    api.store.create("pods", "default", manifest("b"))
    first, second = (json.loads(line)["object"] for line in response.read().splitlines())
    assert len(first["columnDefinitions"]) == 9
    assert second["columnDefinitions"] == []
    assert second["rows"][0]["cells"][0] == "b"


def test_a_client_that_does_not_read_is_disconnected_and_no_other(
    api: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_stream, "_QUEUED", 50)
    stuck = api.open("GET", f"{PODS}?watch=1")
    reading = api.watch("/api/v1/namespaces?watch=1&resourceVersion=" + api.store.resource_version)
    pod = manifest("a")
    pod["metadata"]["annotations"] = {"padding": "x" * 100_000}
    api.store.create("pods", "default", pod)
    merge = "application/merge-patch+json"
    for number in range(400):  # 40 MB: more than any socket's buffers hold
        patch = {"metadata": {"labels": {"n": str(number)}}}
        assert api.request("PATCH", f"{PODS}/a", patch, content_type=merge).status == 200
    api.store.create("namespaces", None, {"metadata": {"name": "other"}})
    assert reading.next()["object"]["metadata"]["name"] == "other"
    with pytest.raises(urllib3.exceptions.ProtocolError):
        stuck.read()
    stuck.close()
    reading.close()


@pytest.fixture
def forgotten(api: Endpoint, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the server cancels the subscription of a watch."""
    event = threading.Event()
    subscribe = api.store.watch

    def watched(*args: Any, **options: Any) -> Subscription:
        subscription = subscribe(*args, **options)
        cancel = subscription.cancel

        def cancel_and_tell() -> None:
            cancel()
            event.set()

        monkeypatch.setattr(subscription, "cancel", cancel_and_tell)
        return subscription

    monkeypatch.setattr(api.store, "watch", watched)
    return event


def test_a_watch_whose_client_has_disconnected_is_cancelled(api: Endpoint, forgotten: threading.Event) -> None:
    watch = api.watch(f"{PODS}?watch=1&resourceVersion=1")
    assert not forgotten.is_set()
    watch.close()
    assert forgotten.wait(SAFETY_SECONDS)


CLOSE = b"\x88\x80abcd"
"""A WebSocket's close frame without a code, masked as a client's frames are."""


@pytest.mark.parametrize("last", [CLOSE, b"\x82\xff" + b"\xff" * 8 + b"abcd", b""])
def test_a_websocket_whose_client_closes_says_too_much_or_is_gone_is_cancelled(
    api: Endpoint, forgotten: threading.Event, last: bytes
) -> None:
    with api.connect() as stream:
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: https://x\r\n"
        key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        head = f"Host: localhost\r\nAuthorization: Bearer {api.token}\r\n{upgrade}{key}\r\n"
        stream.sendall(f"GET {PODS}?watch=1 HTTP/1.1\r\n{head}".encode())
        assert stream.recv(12) == b"HTTP/1.1 101"
        assert not forgotten.is_set()
        if last:
            stream.sendall(last)
            assert forgotten.wait(SAFETY_SECONDS)
    assert forgotten.wait(SAFETY_SECONDS)


# ── Logs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def log(api: Endpoint, tmp_path: Path) -> LogFile:
    pod = api.store.create("pods", "default", manifest("a"))
    log = LogFile(tmp_path / "log", complete=True)
    log.path.write_text("one\ntwo\nthree\n")
    api.logs.files[pod["metadata"]["uid"], "executor"] = log
    return log


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "one\ntwo\nthree\n"),
        ("?container=executor&follow=true", "one\ntwo\nthree\n"),
        ("?tailLines=2", "two\nthree\n"),
        ("?tailLines=0", ""),
        ("?tailLines=9", "one\ntwo\nthree\n"),
        ("?limitBytes=5", "one\nt"),
        ("?tailLines=1&limitBytes=2", "th"),
    ],
)
def test_a_log_comes_from_where_the_client_wants_it(api: Endpoint, log: LogFile, query: str, text: str) -> None:
    answer = api.request("GET", f"{PODS}/a/log{query}")
    assert (answer.status, answer.headers["Content-Type"], answer.body.decode()) == (200, "text/plain", text)


def test_the_tail_of_a_long_log_is_found_across_blocks(api: Endpoint, log: LogFile) -> None:
    lines = [f"{number} " + "x" * 50_000 for number in range(10)]
    log.path.write_text("\n".join(lines))  # the last one without a newline, as a killed process leaves it
    answer = api.request("GET", f"{PODS}/a/log?tailLines=3")
    assert answer.body.decode() == "\n".join(lines[-3:])


def test_following_a_log_sends_new_output_until_the_container_has_ended(api: Endpoint, log: LogFile) -> None:
    log.complete = False
    response = api.open("GET", f"{PODS}/a/log?follow=true&tailLines=1")
    assert response.read(6) == b"three\n"
    with log.path.open("a") as file:
        file.write("four\n")
    assert response.read(5) == b"four\n"
    with log.path.open("a") as file:
        file.write("five\n")
    log.complete = True
    assert response.read() == b"five\n"


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("?container=nope", 400, "container nope is not valid for pod a"),
        ("?previous=true", 400, 'previous terminated container "executor" in pod "a" not found'),
        ("?timestamps=true", 400, "timestamps"),
        ("?sinceSeconds=5", 400, "sinceSeconds"),
        ("?tailLines=-1", 422, "tailLines"),
        ("?limitBytes=0", 422, "limitBytes"),
    ],
)
def test_a_missing_log_is_refused_with_the_reason(
    api: Endpoint, log: LogFile, query: str, status: int, words: str
) -> None:
    answer = api.request("GET", f"{PODS}/a/log{query}")
    assert answer.status == status
    assert words in answer.json["message"]


def test_a_container_that_has_not_started_has_no_log_yet(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    answer = api.request("GET", f"{PODS}/a/log")
    assert answer.json["message"] == 'container "executor" in pod "a" is waiting to start: ContainerCreating'


def test_a_log_of_a_pod_with_several_containers_needs_a_name(api: Endpoint) -> None:
    pod = manifest("a")
    pod["spec"]["containers"].append({"name": "side", "image": "none"})
    api.store.create("pods", "default", pod)
    answer = api.request("GET", f"{PODS}/a/log")
    assert answer.json["message"] == "a container name must be specified for pod a, choose one of: [executor side]"


def test_the_age_in_a_table_is_counted_by_the_servers_clock(api: Endpoint) -> None:
    api.store.create("pods", "default", manifest("a"))
    row = api.request("GET", f"{PODS}/a", headers={"Accept": TABLE}).json["rows"][0]
    created = datetime.fromisoformat(row["object"]["metadata"]["creationTimestamp"])
    age = (datetime.now(UTC) - created).total_seconds()
    assert 0 <= int(row["cells"][4].removesuffix("s")) <= age
