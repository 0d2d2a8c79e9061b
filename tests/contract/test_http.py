"""What only HTTP has: headers, bodies, media types, query parameters. Held against the servers, not the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.raw import Raw
from tests.contract.test_writing import pod

if TYPE_CHECKING:
    from tests.contract.clusters import RealCluster

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
COLUMNS = ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]
GZIP_FROM = 128 * 1024


# ── Who asks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wrong_token_is_401_unauthorized(http: Raw) -> None:
    answer = http.ask("GET", "pods", headers={"Authorization": "Bearer wrong"})
    assert answer.refusal == (401, "Unauthorized", "Unauthorized")


def test_no_token_is_403_as_anonymous(real: RealCluster) -> None:
    namespace = real.new_namespace()
    answer = Raw(real.door(), namespace).ask("GET", "pods", headers={"Authorization": ""})
    who = 'User "system:anonymous" cannot list resource "pods" in API group ""'
    assert answer.refusal == (403, "Forbidden", f'pods is forbidden: {who} in the namespace "{namespace}"')


def test_no_token_is_never_let_in(http: Raw) -> None:
    assert http.ask("GET", "pods", headers={"Authorization": ""}).status in {401, 403}


# ── Bodies ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [b"{", b"[1]", b'"a"', b"\xff", b""])
def test_post_broken_json_is_400(http: Raw, body: bytes) -> None:
    answer = http.post("pods", body)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"].startswith("the object provided is unrecognized (must be ")


@pytest.mark.parametrize("body", [b"{", b""])
def test_patch_broken_json_is_400(http: Raw, body: bytes) -> None:
    http.made("pods", pod("a"))
    assert http.patch("pods/a", body).status == 400


def test_delete_with_broken_options_is_refused_and_deletes_nothing(http: Raw) -> None:
    http.made("pods", pod("a"))
    answer = http.delete("pods/a", b"{")
    assert answer.status >= 400
    assert answer.body["message"].startswith("couldn't get version/kind; json parse error: ")
    assert http.names("pods") == {"a"}


def test_post_with_another_content_type_is_415_and_without_one_taken(http: Raw) -> None:
    answer = http.ask("POST", "pods", pod("a"), {"Content-Type": "text/plain"})
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")
    assert http.ask("POST", "pods", pod("a"), {"Content-Type": ""}).status == 201


def test_a_patch_of_plain_json_is_415(http: Raw) -> None:
    http.made("pods", pod("a"))
    assert http.patch("pods/a", {}, "application/json").status == 415


def test_a_warning_is_a_header_with_code_299(http: Raw) -> None:
    answer = http.post("pods", pod("a", spec={"containerz": []}))
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.containerz\\""'


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def listed(http: Raw, padding: int) -> tuple[bool, int]:
    """Whether a list of one padded pod was compressed, and the size of its JSON."""
    http.made("pods", pod("a", annotations={"padding": "x" * padding}))
    answer = http.ask("GET", "pods", headers={"Accept-Encoding": "gzip"})
    assert answer.status == 200
    return answer.headers.get("Content-Encoding") == "gzip", len(json.dumps(answer.body, separators=(",", ":")))


def test_a_large_list_is_compressed_for_who_wants_it(http: Raw) -> None:
    compressed, size = listed(http, 140_000)
    assert size > GZIP_FROM
    assert compressed
    assert http.get("pods").headers.get("Content-Encoding") is None


def test_a_small_list_is_not_compressed(http: Raw) -> None:
    compressed, size = listed(http, 120_000)
    assert size < GZIP_FROM
    assert not compressed


def test_a_watch_is_never_compressed(http: Raw) -> None:
    http.made("pods", pod("a", annotations={"padding": "x" * 140_000}))
    query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "1"}
    answer = http.ask("GET", "pods", headers={"Accept-Encoding": "gzip"}, query=query)
    assert answer.headers.get("Content-Encoding") is None
    assert answer.body["type"] == "ADDED"


@pytest.mark.parametrize("path", ["pods", "pods/a"])
def test_a_table_has_the_columns_that_kubectl_prints(http: Raw, path: str) -> None:
    http.made("pods", pod("a", node="n"))
    table = http.ask("GET", path, headers={"Accept": TABLE}).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == COLUMNS
    assert [column["priority"] for column in table["columnDefinitions"]] == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    (row,) = table["rows"]
    cells = dict(zip(COLUMNS, row["cells"], strict=True))
    assert cells.pop("Age").endswith("s")
    assert list(cells.values()) == ["a", "0/1", "Pending", "0", "<none>", "n", "<none>", "<none>"]
    assert (row["object"]["kind"], row["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "a")


def test_a_format_that_the_server_cannot_write_is_406(http: Raw) -> None:
    http.made("pods", pod("a"))
    answer = http.ask("GET", "pods/a", headers={"Accept": "text/plain"})
    assert (answer.status, answer.body["reason"]) == (406, "NotAcceptable")


# ── Query parameters ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("query", [{"limit": "x"}, {"timeoutSeconds": "x", "watch": "true"}])
def test_a_number_that_is_none_is_400(http: Raw, query: dict[str, str]) -> None:
    assert http.get("pods", **query).refusal == (400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax')


@pytest.mark.parametrize("word", ["true", "True", "1", "", "f"])
def test_any_value_of_the_option_asks_for_a_watch(http: Raw, word: str) -> None:
    http.made("pods", pod("a"))
    watch = http.watch("pods", watch=word, resourceVersion="0")
    assert watch.told() == ("ADDED", "a")
    watch.close()


@pytest.mark.parametrize("word", ["false", "False", "0"])
def test_but_false_and_0_ask_for_a_list(http: Raw, word: str) -> None:
    assert http.get("pods", watch=word).body["kind"] == "PodList"


def test_watch_with_a_malformed_version_is_500(http: Raw) -> None:
    answer = http.get("pods", watch="true", resourceVersion="abc")
    assert (answer.status, answer.body.get("reason")) == (500, None)
    assert answer.body["message"].startswith('resourceVersion: Invalid value: "abc": ')


@pytest.mark.parametrize("query", [{"labelSelector": "a in b"}, {"fieldSelector": "spec.shape=round"}])
def test_watch_with_a_broken_selector_is_400(http: Raw, query: dict[str, str]) -> None:
    assert http.get("pods", watch="true", **query).status == 400


@pytest.mark.parametrize(
    ("query", "reasons"),
    [
        ({"sendInitialEvents": "true"}, ["FieldValueForbidden"]),
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
            ["FieldValueForbidden", "FieldValueNotSupported"],
        ),
        ({"resourceVersionMatch": "NotOlderThan"}, ["FieldValueForbidden"]),
        ({"continue": "x"}, ["FieldValueForbidden"]),
    ],
)
def test_watch_with_options_that_do_not_go_together_is_422(
    http: Raw, query: dict[str, str], reasons: list[str]
) -> None:
    answer = http.get("pods", watch="true", **query)
    assert (answer.status, answer.body["details"]["kind"]) == (422, "ListOptions")
    assert answer.causes == [("resourceVersionMatch", reason) for reason in reasons]


def test_watch_for_a_second_is_a_clean_end_of_the_body_after_it(http: Raw) -> None:
    watch = http.watch("pods", resourceVersion="0", timeoutSeconds="1")
    assert watch.rest() == []
    watch.close()


def test_delete_takes_its_options_from_the_query_too_but_from_the_body_first(http: Raw) -> None:
    http.made("pods", pod("a", node="n"))
    assert http.delete("pods/a", gracePeriodSeconds="9").body["metadata"]["deletionGracePeriodSeconds"] == 9
    both = http.delete("pods/a", {"gracePeriodSeconds": 7}, gracePeriodSeconds="3")
    assert both.body["metadata"]["deletionGracePeriodSeconds"] == 7
    bad = http.delete("pods/a", gracePeriodSeconds="x")
    assert bad.refusal == (400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax')


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_dry_run_of_another_kind_than_all_is_422(http: Raw, method: str) -> None:
    made = http.made("pods", pod("a"))
    path, body = ("pods", pod("b")) if method == "POST" else ("pods/a", made if method == "PUT" else {})
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    answer = http.ask(method, path, None if method == "DELETE" else body, headers, {"dryRun": "Perhaps"})
    assert (answer.status, [field for field, _ in answer.causes]) == (422, ["dryRun"])
    assert http.names("pods") == {"a"}


def test_a_dry_eviction_by_query_does_nothing(http: Raw) -> None:
    made = http.made("pods", pod("a", node="n"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    assert http.post("pods/a/eviction", body, dryRun="All").status == 201
    assert http.get("pods/a").body == made


# ── Methods and paths ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "pods"),
        ("PATCH", "pods"),
        ("POST", "pods/a"),
        ("OPTIONS", "pods"),
        ("GET", "pods/a/binding"),
        ("GET", "pods/a/eviction"),
        ("PUT", "pods/a/eviction"),
        ("DELETE", "pods/a/eviction"),
        ("GET", REVIEWS),
        ("DELETE", REVIEWS),
    ],
)
def test_a_method_that_a_path_does_not_have_is_405(http: Raw, method: str, path: str) -> None:
    http.made("pods", pod("a"))
    answer = http.ask(method, path, {} if method in {"PUT", "PATCH", "POST"} else None)
    words = "the server does not allow this method on the requested resource"
    assert answer.refusal == (405, "MethodNotAllowed", words)


@pytest.mark.parametrize("path", ["nosuch/a", "pods/a/nosuch", "/apis/nosuch.example.com/v1/things", f"{REVIEWS}/a"])
def test_a_path_that_leads_nowhere_is_404(http: Raw, path: str) -> None:
    http.made("pods", pod("a"))
    assert http.get(path).status == 404


BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}


def test_a_binding_gives_a_pod_its_node_once(http: Raw) -> None:
    http.made("pods", pod("a"))
    bound = http.post("pods/a/binding", BINDING)
    assert (bound.status, bound.body["status"], bound.body["code"]) == (201, "Success", 201)
    assert http.get("pods/a").body["spec"]["nodeName"] == "n"
    again = http.post("pods/a/binding", BINDING)
    words = 'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n"'
    assert again.refusal == (409, "Conflict", words)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"metadata": {"name": "b"}}, 400),
        ({"metadata": {"name": "a", "uid": "other"}}, 409),
        ({"target": {"kind": "Pod", "name": "n"}}, 500),
        ({"target": {}}, 500),
    ],
)
def test_what_is_no_binding_of_this_pod_is_refused(http: Raw, changed: dict[str, Any], status: int) -> None:
    http.made("pods", pod("a"))
    assert http.post("pods/a/binding", BINDING | changed).status == status
    assert "nodeName" not in http.get("pods/a").body["spec"]


# ── Reviews of rights ────────────────────────────────────────────────────────────────────────────────────────────────


def review(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}


def test_a_review_of_an_administrators_right_is_201_and_yes(http: Raw) -> None:
    attributes = {"namespace": http.namespace, "verb": "deletecollection", "resource": "pods"}
    answer = http.post(REVIEWS, review(resourceAttributes=attributes))
    assert (answer.status, answer.body["kind"]) == (201, "SelfSubjectAccessReview")
    assert answer.body["spec"] == {"resourceAttributes": attributes}
    assert answer.body["status"]["allowed"] is True


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (review(), 422),
        (review(resourceAttributes={"verb": "get"}, nonResourceAttributes={"verb": "get", "path": "/"}), 422),
        ({}, 422),
        (pod("a"), 400),
    ],
)
def test_a_review_of_nothing_or_of_two_things_is_refused(http: Raw, body: dict[str, Any], status: int) -> None:
    assert http.post(REVIEWS, body).status == status


# ── Protobuf ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}


def field(number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(data)]) + data


def message(version: str, kind: str, *fields: bytes) -> bytes:
    """An object as kubectl encodes it, with the empty texts that it does not leave out."""
    envelope = field(1, field(1, version) + field(2, kind))
    return b"k8s\0" + envelope + field(2, b"".join(fields)) + field(3, "") + field(4, "")


def named(name: str) -> bytes:
    return field(1, field(1, name) + field(2, "") + field(3, "") + b"\x38\x00" + field(8, b""))


def test_a_review_in_protobuf_is_answered(http: Raw) -> None:
    about = field(1, http.namespace) + field(2, "create") + field(3, "") + field(5, "pods") + field(7, "")
    body = message("authorization.k8s.io/v1", "SelfSubjectAccessReview", field(2, field(1, about)))
    answer = http.ask("POST", REVIEWS, body, PROTOBUF)
    attributes = {"namespace": http.namespace, "verb": "create", "resource": "pods"}
    assert (answer.status, answer.body["spec"]) == (201, {"resourceAttributes": attributes})
    assert answer.body["status"]["allowed"] is True


def test_what_kubectl_creates_without_a_file_is_read(http: Raw) -> None:
    pair = field(1, "key") + field(2, "value")
    made = http.ask("POST", "configmaps", message("v1", "ConfigMap", named("a"), field(2, pair)), PROTOBUF)
    assert (made.status, made.body["metadata"]["name"], made.body["data"]) == (201, "a", {"key": "value"})
    made = http.ask("POST", "secrets", message("v1", "Secret", named("a"), field(2, pair), field(3, "t")), PROTOBUF)
    assert (made.status, made.body["type"], made.body["data"]) == (201, "t", {"key": "dmFsdWU="})
    made = http.ask("POST", "serviceaccounts", message("v1", "ServiceAccount", named("a")), PROTOBUF)
    assert (made.status, made.body["metadata"]["name"]) == (201, "a")


@pytest.mark.parametrize("cut", [1, 5, -3])
def test_a_message_that_is_cut_off_is_400(http: Raw, cut: int) -> None:
    body = message("v1", "ConfigMap", named("a"))[:cut]
    assert http.ask("POST", "configmaps", body, PROTOBUF).status == 400


def test_discovery_names_eviction_and_reviews_where_kubectl_looks_for_them(http: Raw) -> None:
    core = {each["name"]: each for each in http.get("/api/v1").body["resources"]}
    eviction = core["pods/eviction"]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    group = http.get("/apis/authorization.k8s.io/v1").body
    assert group["groupVersion"] == "authorization.k8s.io/v1"
    reviews = {each["name"]: each["verbs"] for each in group["resources"]}
    assert reviews["selfsubjectaccessreviews"] == ["create"]
