"""What a client that has the token sends to the embedded cluster: answers, and never an error of its own."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.local.schema.resources import RESOURCES
from actors.local.schema.statuses import ApiStatus
from actors.local.store.patches import json_patch
from tests.fuzz.material import DEEP, scalars, spoiled, spoiled_bytes, values
from tests.unit.local.server_kit import PODS, SAFETY_SECONDS, TABLE, Endpoint, manifest, served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.local.server_kit import Answer

ONE_SERVER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
"""It is the same for all examples of a test: what one leaves behind, the next one meets."""

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "namespace": "default",
        "labels": {"k": "v"},
        "annotations": {"n": "x"},
        "finalizers": [],
    },
    "spec": {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "executor",
                "image": "i",
                "command": ["sh"],
                "env": [
                    {"name": "E", "value": "v"},
                    {"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                ],
                "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
                "ports": [{"containerPort": 80, "name": "http"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "executor", "ready": True, "restartCount": 0, "state": {"running": {}}}],
    },
}
QUOTA: dict[str, Any] = {
    "metadata": {"name": "q"},
    "spec": {"hard": {"pods": "10", "requests.cpu": "5", "count/pods": "9"}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "resourcequotas": QUOTA,
    "persistentvolumeclaims": {
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "configmaps": {"metadata": {"name": "m"}, "data": {"k": "v"}},
    "secrets": {"metadata": {"name": "s"}, "data": {"k": "dg=="}, "stringData": {"a": "b"}},
    "nodes": {"metadata": {"name": "n"}, "spec": {"taints": []}, "status": {"capacity": {"cpu": "1"}}},
    "namespaces": {"metadata": {"name": "space"}},
    "events": {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"},
        "reason": "r",
        "count": 1,
    },
    "leases": {"metadata": {"name": "l"}, "spec": {"holderIdentity": "h", "leaseDurationSeconds": 3}},
    "serviceaccounts": {"metadata": {"name": "t"}},
}
DELETION: dict[str, Any] = {
    "gracePeriodSeconds": 0,
    "preconditions": {"uid": "u", "resourceVersion": "1"},
    "propagationPolicy": "Background",
    "dryRun": [],
}
JSON_PATCH: list[Any] = [
    {"op": "test", "path": "/metadata/name", "value": "a"},
    {"op": "add", "path": "/metadata/labels/x", "value": "y"},
    {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
    {"op": "remove", "path": "/metadata/labels/k"},
]
SELECTORS = (
    "a=b",
    "a!=b",
    "a in (b,c)",
    "a notin (",
    "!a",
    "a,,b",
    "status.phase=Running",
    "metadata.name!=a",
    "=",
    "(",
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    yield from served(tmp_path_factory.mktemp("api"))


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "actors.local")


def collection(plural: str) -> str:
    resource = RESOURCES[plural]
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}{'/namespaces/default' if resource.namespaced else ''}/{plural}"


def checked(api: Endpoint, answer: Answer) -> Answer:
    """It is an answer of the API, and what failed was not the server."""
    assert answer.status != 500 or "error of the embedded cluster" not in answer.json["message"], answer.body
    assert 200 <= answer.status < 600
    assert api.token.encode() not in answer.body
    if answer.status >= 400:
        assert answer.json["kind"] == "Status", answer.body
        assert answer.json["code"] == answer.status
    return answer


def still_serves(api: Endpoint) -> None:
    """Whatever got in can be read again, in each way that there is."""
    for plural in RESOURCES:
        for headers in ({}, {"Accept": TABLE}):
            assert checked(api, api.request("GET", collection(plural), headers=headers)).status == 200


@ONE_SERVER
@given(spoiled_bytes(POD))
@example(DEEP)
@example(b'{"metadata":{"name":"a\xff"}}')
@example(b"\xff")
def test_any_pod_is_created_or_refused(api: Endpoint, body: bytes) -> None:
    answer = checked(api, api.request("POST", PODS, body))
    if answer.status == 201:
        still_serves(api)
        checked(api, api.request("DELETE", f"{PODS}/{answer.json['metadata']['name']}?gracePeriodSeconds=0"))


@ONE_SERVER
@given(
    st.sampled_from(sorted(OTHERS)).flatmap(lambda plural: st.tuples(st.just(plural), spoiled(OTHERS[plural]) | values))
)
def test_any_other_object_is_created_or_refused(api: Endpoint, made: tuple[str, Any]) -> None:
    plural, body = made
    data = json.dumps(body).encode("utf-8", "surrogatepass")
    answer = checked(api, api.request("POST", collection(plural), data))
    if answer.status == 201:
        checked(api, api.request("POST", PODS, manifest("counted")))
        still_serves(api)
        checked(api, api.request("DELETE", f"{PODS}/counted?gracePeriodSeconds=0"))
        checked(api, api.request("DELETE", f"{collection(plural)}/{answer.json['metadata']['name']}"))


@ONE_SERVER
@given(
    st.sampled_from(("json", "merge", "strategic")),
    st.sampled_from(("", "/status")),
    spoiled(JSON_PATCH, 2) | spoiled(POD) | values,
)
def test_any_patch_is_applied_or_refused(api: Endpoint, kind: str, subresource: str, patch: Any) -> None:
    checked(api, api.request("POST", PODS, manifest("patched")))
    media = {"json": "json-patch", "merge": "merge-patch", "strategic": "strategic-merge-patch"}[kind]
    data = json.dumps(patch).encode("utf-8", "surrogatepass")
    path = f"{PODS}/patched{subresource}"
    answer = checked(api, api.request("PATCH", path, data, content_type=f"application/{media}+json"))
    if answer.status == 200:
        still_serves(api)
        checked(api, api.request("DELETE", f"{PODS}/patched?gracePeriodSeconds=0"))
        checked(
            api,
            api.request(
                "PATCH",
                f"{PODS}/patched",
                {"metadata": {"finalizers": None}},
                content_type="application/merge-patch+json",
            ),
        )


def test_a_patch_that_copies_itself_over_and_over_is_refused() -> None:
    """Each copy doubles the document."""
    document = {"a": {"text": "x" * 60}}
    copies = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]
    assert len(json_patch(document, copies[:10])["a"]) == 11
    with pytest.raises(ApiStatus) as refused:
        json_patch(document, copies[:16])  # 4 MiB; all of them would be 64 TiB
    assert refused.value.code == 422
    with pytest.raises(ApiStatus):
        json_patch(document, copies)


@pytest.mark.parametrize("depth", [50, 400, 1_000, 20_000])
@pytest.mark.parametrize("start", ["[", '{"a":'])
def test_a_document_that_is_nested_without_end_is_refused(api: Endpoint, depth: int, start: str) -> None:
    checked(api, api.request("POST", PODS, manifest("nested")))
    nested = start * depth + "1" + ("]" if start == "[" else "}") * depth
    for around in ("%s", '{"metadata":{"name":"x","labels":%s}}', '{"metadata":{"name":"x"},"spec":{"affinity":%s}}'):
        body = (around % nested).encode()
        for plural in RESOURCES:
            checked(api, api.request("POST", collection(plural), body))
        checked(api, api.request("PUT", f"{PODS}/nested", body))
        checked(api, api.request("DELETE", f"{PODS}/nobody", body))
        checked(api, api.request("POST", f"{PODS}/nested/eviction", body))
        for kind in ("json-patch", "merge-patch", "strategic-merge-patch"):
            checked(api, api.request("PATCH", f"{PODS}/nested", body, content_type=f"application/{kind}+json"))
    operation = f'[{{"op":"add","path":"/metadata/annotations","value":{nested}}}]'.encode()
    checked(api, api.request("PATCH", f"{PODS}/nested", operation, content_type="application/json-patch+json"))
    still_serves(api)


def test_a_small_body_that_unpacks_to_a_large_one_is_refused(api: Endpoint) -> None:
    packed = gzip.compress(json.dumps(manifest("a") | {"padding": "x" * (16 * 1024 * 1024)}).encode())
    assert len(packed) < 100_000
    answer = api.request("POST", PODS, packed, headers={"Content-Encoding": "gzip"})
    assert answer.status in {400, 413, 415}


def test_an_expectation_is_met_after_the_token_and_no_sooner(api: Endpoint) -> None:
    for expectation in ("100-continue", "anything"):
        refused = api.pool.request("GET", f"{api.server.url}/api", headers={"Expect": expectation})
        assert (refused.status, refused.json()["reason"]) == (401, "Unauthorized")
    assert api.request("GET", "/api", headers={"Expect": "anything"}).status == 417
    assert api.request("POST", PODS, manifest("expected"), headers={"Expect": "100-continue"}).status == 201


@ONE_SERVER
@given(
    st.sampled_from(("GET", "DELETE", "POST", "PUT")),
    st.sampled_from(("", "/victim", "/victim/eviction", "/victim/binding", "/victim/log", "/victim/status")),
    spoiled(DELETION) | spoiled(POD) | values,
)
def test_any_body_for_any_part_of_a_pod_is_answered(api: Endpoint, method: str, part: str, body: Any) -> None:
    checked(api, api.request("POST", PODS, manifest("victim")))
    checked(api, api.request(method, PODS + part, json.dumps(body).encode("utf-8", "surrogatepass")))


@ONE_SERVER
@given(
    st.sampled_from(("GET", "DELETE", "PATCH", "POST")),
    st.dictionaries(
        st.sampled_from(
            (
                "limit",
                "continue",
                "resourceVersion",
                "resourceVersionMatch",
                "labelSelector",
                "fieldSelector",
                "includeObject",
                "dryRun",
                "fieldValidation",
                "gracePeriodSeconds",
                "propagationPolicy",
                "tailLines",
                "limitBytes",
                "sinceTime",
                "sinceSeconds",
                "container",
                "previous",
                "timestamps",
            )
        ),
        st.sampled_from(SELECTORS) | scalars.map(str) | st.text(max_size=30),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(("", "/seen", "/seen/log", "/seen/status")),
)
@example("GET", {"continue": "W1tb" * 50_0}, "")
@example("GET", {"continue": "é"}, "")
def test_any_query_is_answered(api: Endpoint, method: str, query: dict[str, str], part: str) -> None:
    checked(api, api.request("POST", PODS, manifest("seen")))
    words = "&".join(f"{name}={quote(value, safe='', errors='surrogatepass')}" for name, value in query.items())
    checked(api, api.request(method, f"{PODS}{part}?{words}", {} if method != "GET" else None))


@ONE_SERVER
@given(
    st.dictionaries(
        st.sampled_from(
            (
                "resourceVersion",
                "resourceVersionMatch",
                "labelSelector",
                "fieldSelector",
                "sendInitialEvents",
                "allowWatchBookmarks",
                "timeoutSeconds",
            )
        ),
        st.sampled_from((*SELECTORS, "NotOlderThan", "true")) | scalars.map(str) | st.text(max_size=9),
        max_size=4,
    )
)
def test_any_watch_is_refused_or_begins(api: Endpoint, query: dict[str, str]) -> None:
    words = "&".join(f"{name}={quote(value, safe='', errors='surrogatepass')}" for name, value in query.items())
    response = api.open("GET", f"{PODS}?watch=true&{words}")
    if response.status == 200:
        response.close()
        return
    assert response.status in {400, 410, 422, 500}
    assert b"error of the embedded cluster" not in response.read()
    response.release_conn()


@ONE_SERVER
@given(st.lists(st.sampled_from(("Host", "Accept", "Content-Type", "Expect", "X")), max_size=3), st.data())
def test_any_header_is_answered(api: Endpoint, names: list[str], data: st.DataObject) -> None:
    text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30) | st.sampled_from(
        (
            "application/json;as",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            ";;=,,",
            "localhost",
            "[",
            "[::1",
            "*/*;=",
        )
    )
    headers = {name: data.draw(text) for name in names}
    checked(api, api.request("GET", PODS, headers=headers))


@given(st.binary(max_size=200), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=20)
def test_any_bytes_on_the_wire_leave_the_server_serving(
    api: Endpoint, caplog: pytest.LogCaptureFixture, data: bytes, start: bool
) -> None:
    head = b"GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + api.token.encode() + b"\r\n"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = int(api.server.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), SAFETY_SECONDS) as raw,
        context.wrap_socket(raw) as stream,
    ):
        stream.sendall((head if start else b"") + data + b"\r\n\r\n")
    assert api.request("GET", "/api").status == 200
    assert api.token not in caplog.text
