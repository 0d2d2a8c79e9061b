"""Lists: order, selectors, pages, versions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.local.bench import Bench, manifest, refusal


@pytest.fixture
def five(bench: Bench) -> Bench:
    """Pods p0 to p4: even ones are `parity=even`, p4 also runs on a node."""
    for number in range(4):
        bench.pod(f"p{number}", labels={"parity": "even" if number % 2 == 0 else "odd", "n": str(number)})
    bench.pod("p4", labels={"parity": "even", "n": "4", "last": ""}, node="n1", phase="Running")
    return bench


def test_items_come_in_the_order_of_their_names_without_kind(bench: Bench) -> None:
    for name in ("b", "c", "a"):
        bench.pod(name)
    answer = bench.store.list("pods", "default")
    assert [pod["metadata"]["name"] for pod in answer.items] == ["a", "b", "c"]
    assert all("kind" not in pod and "apiVersion" not in pod for pod in answer.items)
    assert answer.resource_version == bench.store.resource_version


def test_a_namespace_is_listed_alone_and_all_of_them_together(bench: Bench) -> None:
    bench.store.create("namespaces", None, {"metadata": {"name": "team"}})
    bench.store.create("pods", "team", manifest("t"))
    bench.pod("d")
    assert bench.names() == ["d"]
    assert [pod["metadata"]["name"] for pod in bench.store.list("pods", None).items] == ["d", "t"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("parity=odd", "p1 p3"),
        ("parity==odd", "p1 p3"),
        ("parity!=odd", "p0 p2 p4"),
        ("missing!=odd", "p0 p1 p2 p3 p4"),
        ("n in (1, 2,9)", "p1 p2"),
        ("n notin (1,2)", "p0 p3 p4"),
        ("missing notin (1)", "p0 p1 p2 p3 p4"),
        ("last", "p4"),
        ("!last", "p0 p1 p2 p3"),
        ("last=", "p4"),
        ("n>2", "p3 p4"),
        ("n<1", "p0"),
        ("parity>1", ""),
        ("parity=even,n!=0", "p2 p4"),
        ("n in (1,2),parity=odd", "p1"),
        ("in in (x)", ""),
        ("", "p0 p1 p2 p3 p4"),
    ],
)
def test_label_selectors(five: Bench, selector: str, names: str) -> None:
    assert five.names(label_selector=selector) == names.split()


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a in", "unable to parse requirement: found '' expected: '('"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("a in (1,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("x/y/z=1", "with an optional DNS subdomain prefix"),
        ("a>b", "integer"),
        ("-a-=1", "name part must consist of alphanumeric characters"),
        ("a=-b-", "a valid label must be an empty string or consist of"),
    ],
)
def test_a_broken_label_selector_is_a_bad_request(five: Bench, selector: str, message: str) -> None:
    status = refusal(lambda: five.names(label_selector=selector))
    assert (status.code, status.reason) == (400, "BadRequest")
    assert message in status.message


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=p1", "p1"),
        ("metadata.name!=p1", "p0 p2 p3 p4"),
        ("metadata.namespace=default", "p0 p1 p2 p3 p4"),
        ("metadata.namespace=other", ""),
        ("status.phase=Running", "p4"),
        ("status.phase!=Running", "p0 p1 p2 p3"),
        ("spec.nodeName=", "p0 p1 p2 p3"),
        ("spec.nodeName==n1", "p4"),
        ("spec.nodeName=n1,status.phase=Pending", ""),
        ("spec.restartPolicy=Always,metadata.name=p0", "p0"),
    ],
)
def test_field_selectors(five: Bench, selector: str, names: str) -> None:
    assert five.names(field_selector=selector) == names.split()


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("foo=bar", "field label not supported: foo"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("status.phase", "invalid selector: 'status.phase'; can't understand 'status.phase'"),
    ],
)
def test_a_broken_field_selector_is_a_bad_request(five: Bench, selector: str, message: str) -> None:
    status = refusal(lambda: five.names(field_selector=selector))
    assert (status.code, status.message) == (400, message)


def test_pages_follow_each_other_and_count_what_remains(five: Bench) -> None:
    first = five.store.list("pods", "default", limit=2)
    assert ([pod["metadata"]["name"] for pod in first.items], first.remaining) == (["p0", "p1"], 3)
    second = five.store.list("pods", "default", limit=2, continue_token=first.continue_token)
    third = five.store.list("pods", "default", limit=2, continue_token=second.continue_token)
    assert [pod["metadata"]["name"] for pod in second.items + third.items] == ["p2", "p3", "p4"]
    assert (third.continue_token, third.remaining) == ("", None)


def test_with_a_selector_what_remains_is_not_counted(five: Bench) -> None:
    page = five.store.list("pods", "default", limit=1, label_selector="parity=even")
    assert (len(page.items), page.remaining) == (1, None)
    rest = five.names(limit=5, label_selector="parity=even", continue_token=page.continue_token)
    assert rest == ["p2", "p4"]


def test_later_pages_show_the_list_as_of_its_first_page(five: Bench) -> None:
    first = five.store.list("pods", "default", limit=1)
    five.delete("p1")
    five.label("p2", n="changed")
    five.pod("p11")
    rest = five.store.list("pods", "default", continue_token=first.continue_token)
    assert [pod["metadata"]["name"] for pod in rest.items] == ["p1", "p2", "p3", "p4"]
    assert rest.items[1]["metadata"]["labels"]["n"] == "2"
    assert rest.resource_version == first.resource_version


def test_a_token_outside_the_window_is_expired(five: Bench) -> None:
    first = five.store.list("pods", "default", limit=1)
    five.pod("later")
    five.store.expire()
    status = refusal(lambda: five.names(continue_token=first.continue_token))
    assert (status.code, status.reason) == (410, "Expired")
    assert "continue parameter is too old" in status.message


@pytest.mark.parametrize("token", ["abc", "e30", "!!!", "eyJ2IjoieCJ9"])
def test_a_broken_token_is_a_bad_request(five: Bench, token: str) -> None:
    status = refusal(lambda: five.names(continue_token=token))
    assert (status.code, status.reason) == (400, "BadRequest")
    assert status.message.startswith("invalid continue token: continue key is not valid")


def test_a_list_of_an_exact_version_has_that_version(five: Bench) -> None:
    version = five.store.resource_version
    five.delete("p0")
    five.status("p4", {"phase": "Failed"})
    shown = five.store.list("pods", "default", resource_version=version, resource_version_match="Exact")
    phases = [(pod["metadata"]["name"], pod["status"]["phase"]) for pod in shown.items]
    assert phases == [("p0", "Pending"), ("p1", "Pending"), ("p2", "Pending"), ("p3", "Pending"), ("p4", "Running")]
    assert shown.resource_version == version


def test_a_list_from_any_or_an_older_version_is_current(five: Bench) -> None:
    version = five.store.resource_version
    five.delete("p0")
    assert five.names(resource_version="0", limit=1) == ["p1", "p2", "p3", "p4"]
    assert five.names(resource_version=version, resource_version_match="NotOlderThan") == ["p1", "p2", "p3", "p4"]


def test_a_version_that_the_server_has_not_reached_is_too_large(five: Bench) -> None:
    status = refusal(lambda: five.names(resource_version="99999"))
    assert (status.code, status.reason, status.retry_after) == (504, "Timeout", 1)
    assert status.details == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    }
    assert status.to_json()["details"]["retryAfterSeconds"] == 1


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resource_version": "abc"}, 400),
        ({"resource_version": "-1"}, 400),
        ({"resource_version_match": "Exact"}, 422),
        ({"resource_version": "0", "resource_version_match": "Exact"}, 422),
        ({"resource_version": "5", "resource_version_match": "Foo"}, 422),
    ],
)
def test_invalid_versions_are_refused(five: Bench, query: dict[str, Any], code: int) -> None:
    assert refusal(lambda: five.names(**query)).code == code


def test_a_token_goes_with_no_version(five: Bench) -> None:
    token = five.store.list("pods", "default", limit=1).continue_token
    assert refusal(lambda: five.names(continue_token=token, resource_version="5")).code == 400


def test_nodes_are_selected_by_whether_they_take_pods(bench: Bench) -> None:
    bench.store.create("nodes", None, {"metadata": {"name": "open"}})
    bench.store.create("nodes", None, {"metadata": {"name": "closed"}, "spec": {"unschedulable": True}})
    answer = bench.store.list("nodes", None, field_selector="spec.unschedulable=false")
    assert [node["metadata"]["name"] for node in answer.items] == ["open"]
