"""`dryRun=All`, which `kubectl --dry-run=server` sends: checked and answered as if it were done, and not done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.test_services import config
from tests.contract.test_writing import pod, without_version

if TYPE_CHECKING:
    from tests.contract.raw import Raw

DRY = {"dryRun": "All"}


def without_managers(obj: dict[str, Any]) -> dict[str, Any]:
    return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def test_a_dry_post_answers_the_object_without_a_version_and_stores_nothing(raw: Raw) -> None:
    answer = raw.post("pods", pod("a"), **DRY)
    assert (answer.status, answer.body["kind"], answer.body["spec"]["restartPolicy"]) == (201, "Pod", "Always")
    assert answer.body["metadata"]["uid"]
    assert "resourceVersion" not in answer.body["metadata"]
    assert raw.names("pods") == set()


def test_a_dry_post_gives_a_name(raw: Raw) -> None:
    answer = raw.post("pods", pod("", generateName="g-"), **DRY)
    assert answer.body["metadata"]["name"].startswith("g-")
    assert raw.names("pods") == set()


def test_a_dry_post_is_refused_as_a_real_one_would_be(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    assert raw.post("pods", pod("a"), **DRY).refusal == (409, "AlreadyExists", 'pods "a" already exists')
    assert raw.post("pods", pod("Not_A_Name"), **DRY).causes == [("metadata.name", "FieldValueInvalid")]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_dry_change_answers_the_changed_object_with_the_version_that_stays(raw: Raw, method: str) -> None:
    made = raw.made("pods", pod("a"))
    labels = {"metadata": {"labels": {"x": "y"}}}
    whole = without_version(made, labels={"x": "y"})
    answer = raw.put("pods/a", whole, **DRY) if method == "PUT" else raw.patch("pods/a", labels, **DRY)
    assert answer.status == 200
    changed = made | {"metadata": made["metadata"] | {"labels": {"x": "y"}}}
    assert without_managers(answer.body) == without_managers(changed)
    assert raw.get("pods/a").body == made


def test_a_dry_change_of_a_status_changes_nothing(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    answer = raw.patch("pods/a/status", {"status": {"phase": "Running"}}, **DRY)
    assert (answer.body["status"]["phase"], answer.body["metadata"]["resourceVersion"]) == (
        "Running",
        made["metadata"]["resourceVersion"],
    )
    assert raw.get("pods/a").body == made


def test_a_dry_change_of_a_stale_version_is_409(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    stale = made | {"metadata": made["metadata"] | {"resourceVersion": "1"}}
    assert raw.put("pods/a", stale, **DRY).status == 409


@pytest.mark.parametrize(("node", "grace"), [("n", 30), (None, 0)])
@pytest.mark.parametrize("by_body", [True, False])
def test_a_dry_delete_answers_the_deletion_that_it_does_not_begin(
    raw: Raw, node: str | None, grace: int, *, by_body: bool
) -> None:
    made = raw.made("pods", pod("a", node=node))
    answer = raw.delete("pods/a", {"dryRun": ["All"]}) if by_body else raw.delete("pods/a", **DRY)
    metadata = answer.body["metadata"]
    assert (answer.status, metadata["deletionGracePeriodSeconds"]) == (200, grace)
    assert metadata["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert raw.get("pods/a").body == made


def test_a_dry_delete_without_grace_is_answered_as_a_real_one(raw: Raw) -> None:
    raw.made("configmaps", config("a"))
    assert raw.delete("configmaps/a", **DRY).body["status"] == "Success"
    assert raw.names("configmaps") == {"a"}
    assert raw.delete("configmaps/a", {"dryRun": ["All"], "preconditions": {"uid": "other"}}).status == 409


def test_a_dry_delete_of_a_collection_answers_what_would_go(raw: Raw) -> None:
    for name in ("a", "b"):
        raw.made("pods", pod(name, labels={"x": name}))
    answer = raw.delete("pods", labelSelector="x=a", **DRY)
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a"]
    assert raw.names("pods") == {"a", "b"}


def test_nobody_sees_a_dry_run(raw: Raw) -> None:
    version = raw.get("pods").body["metadata"]["resourceVersion"]
    raw.post("pods", pod("a"), **DRY)
    raw.made("pods", pod("b"))
    watch = raw.watch("pods", resourceVersion=version)
    assert watch.told() == ("ADDED", "b")
    watch.close()
