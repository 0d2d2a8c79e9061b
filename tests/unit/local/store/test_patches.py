"""JSON patch, merge patch and strategic merge patch, each against examples of its definition."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.local.schema.statuses import ApiStatus
from actors.local.store.patches import json_patch, merge_patch, strategic_merge_patch
from tests.unit.local.bench import Bench, refusal

DOCUMENT: dict[str, Any] = {"a": 1, "list": [1, 2, 3], "map": {"x": {"y": "z"}}, "a/b": {"m~n": 8}}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/b", "value": 2}, {"b": 2}),
        ({"op": "add", "path": "/list/1", "value": 9}, {"list": [1, 9, 2, 3]}),
        ({"op": "add", "path": "/list/-", "value": 9}, {"list": [1, 2, 3, 9]}),
        ({"op": "remove", "path": "/list/0"}, {"list": [2, 3]}),
        ({"op": "replace", "path": "/list/2", "value": None}, {"list": [1, 2, None]}),
        ({"op": "replace", "path": "/map/x/y", "value": "w"}, {"map": {"x": {"y": "w"}}}),
        ({"op": "move", "from": "/map/x", "path": "/moved"}, {"map": {}, "moved": {"y": "z"}}),
        ({"op": "copy", "from": "/list/0", "path": "/map/first"}, {"map": {"x": {"y": "z"}, "first": 1}}),
        ({"op": "test", "path": "/a~1b/m~0n", "value": 8}, {}),
        ({"op": "test", "path": "/map", "value": {"x": {"y": "z"}}}, {}),
    ],
)
def test_json_patch_operations(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    before = deepcopy(DOCUMENT)
    assert json_patch(DOCUMENT, [operation]) == DOCUMENT | expected
    assert before == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/a", "value": True},
        {"op": "remove", "path": "/nope"},
        {"op": "replace", "path": "/nope", "value": 1},
        {"op": "add", "path": "/nope/deeper", "value": 1},
        {"op": "add", "path": "/list/4", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "remove", "path": "/list/-"},
        {"op": "remove", "path": ""},
        {"op": "move", "from": "/map", "path": "/map/x/inside"},
        {"op": "add", "path": "no-slash", "value": 1},
        {"op": "add", "path": "/b"},
        {"op": "frobnicate", "path": "/a"},
        "nonsense",
    ],
)
def test_a_json_patch_that_does_not_fit_is_unprocessable(operation: Any) -> None:
    status = refusal(lambda: json_patch(DOCUMENT, [operation]))
    assert (status.code, status.reason) == (422, "Invalid")


def test_a_json_patch_is_all_or_nothing(bench: Bench) -> None:
    bench.pod("a", labels={"x": "1"})
    operations = [
        {"op": "replace", "path": "/metadata/labels/x", "value": "2"},
        {"op": "test", "path": "/metadata/name", "value": "b"},
    ]
    assert refusal(lambda: bench.store.patch("pods", "default", "a", operations, "json")).code == 422
    assert bench.get("a")["metadata"]["labels"] == {"x": "1"}


def test_patches_of_the_wrong_type_are_bad_requests(bench: Bench) -> None:
    bench.pod("a")
    store = bench.store
    assert refusal(lambda: store.patch("pods", "default", "a", {}, "json")).code == 400
    assert refusal(lambda: store.patch("pods", "default", "a", [], "merge")).code == 400
    assert refusal(lambda: store.patch("pods", "default", "a", [], "strategic")).code == 400


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples_of_the_rfc(document: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(document, patch) == expected


@given(JSON, JSON)
def test_a_merge_patch_applied_twice_is_applied_once(document: Any, patch: Any) -> None:
    before = deepcopy(document)
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once
    assert document == before


def _containers(*names: str) -> dict[str, Any]:
    return {"containers": [{"name": name, "image": f"{name}:1"} for name in names]}


def test_a_strategic_patch_merges_containers_by_name() -> None:
    patch = {"containers": [{"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"}]}
    merged = strategic_merge_patch(_containers("a", "b"), patch)
    assert [(each["name"], each["image"]) for each in merged["containers"]] == [
        ("a", "a:1"),
        ("b", "b:2"),
        ("c", "c:1"),
    ]


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("conditions", "type"),
        ("ownerReferences", "uid"),
        ("env", "name"),
        ("volumes", "name"),
        ("volumeMounts", "mountPath"),
    ],
)
def test_lists_with_a_merge_key_merge_by_it(field: str, key: str) -> None:
    document = {field: [{key: "one", "v": 1}, {key: "two", "v": 1}]}
    merged = strategic_merge_patch(document, {field: [{key: "two", "v": 2}]})
    assert merged == {field: [{key: "one", "v": 1}, {key: "two", "v": 2}]}


def test_lists_without_a_merge_key_are_replaced() -> None:
    document = {"tolerations": [{"key": "a"}], "args": ["x"]}
    assert strategic_merge_patch(document, {"tolerations": [{"key": "b"}], "args": ["y"]}) == {
        "tolerations": [{"key": "b"}],
        "args": ["y"],
    }


def test_finalizers_are_added_to_and_deleted_from() -> None:
    document = {"finalizers": ["a/x", "a/y"]}
    assert strategic_merge_patch(document, {"finalizers": ["a/z", "a/x"]}) == {"finalizers": ["a/z", "a/x", "a/y"]}
    assert strategic_merge_patch(document, {"$deleteFromPrimitiveList/finalizers": ["a/x"]}) == {"finalizers": ["a/y"]}


def test_directives_delete_and_replace() -> None:
    document = _containers("a", "b")
    assert strategic_merge_patch(document, {"containers": [{"name": "a", "$patch": "delete"}]}) == _containers("b")
    replaced = {"containers": [{"name": "z"}, {"$patch": "replace"}]}
    assert strategic_merge_patch(document, replaced) == {"containers": [{"name": "z"}]}
    assert strategic_merge_patch({"m": {"a": 1, "b": 2}}, {"m": {"$patch": "replace", "c": 3}}) == {"m": {"c": 3}}
    assert strategic_merge_patch({"m": {"a": 1, "b": 2}}, {"m": {"$retainKeys": ["b"], "b": 3}}) == {"m": {"b": 3}}


def test_an_order_directive_orders() -> None:
    patch = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b"}]}
    merged = strategic_merge_patch(_containers("a", "b", "c"), patch)
    assert [each["name"] for each in merged["containers"]] == ["b", "a", "c"]


def test_what_a_patch_adds_comes_before_what_it_does_not_name() -> None:
    document = {"conditions": [{"type": "Ready"}, {"type": "Initialized"}]}
    merged = strategic_merge_patch(document, {"conditions": [{"type": "PodScheduled"}]})
    assert [each["type"] for each in merged["conditions"]] == ["PodScheduled", "Ready", "Initialized"]


def test_null_removes_a_field() -> None:
    assert strategic_merge_patch({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None}}) == {"labels": {"b": "2"}}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"containers": [{"image": "d"}]}, "map: map[image:d] does not contain declared merge key: name"),
        ({"containers": [{"$patch": "foo", "name": "a"}]}, "unknown patch type: foo in map: map[$patch:foo name:a]"),
    ],
)
def test_a_malformed_strategic_patch_is_a_server_error(patch: dict[str, Any], message: str) -> None:
    status = refusal(lambda: strategic_merge_patch(_containers("a"), patch))
    assert (status.code, status.message) == (500, message)


@given(JSON, st.dictionaries(st.sampled_from(["containers", "a", "finalizers"]), JSON))
def test_a_strategic_patch_never_changes_its_document(document: Any, patch: dict[str, Any]) -> None:
    before = deepcopy(document)
    with suppress(ApiStatus):
        strategic_merge_patch(document, patch)
    assert document == before
