"""What a server answers to those who delete, and what then is there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.test_writing import pod

if TYPE_CHECKING:
    from tests.contract.raw import Raw

KEEP = "example.com/keep"


def test_a_pod_not_bound_to_a_node_is_answered_with_grace_0_and_gone_at_once(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    answer = raw.delete("pods/a")
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert answer.body["metadata"]["deletionTimestamp"]
    assert raw.get("pods/a").refusal == (404, "NotFound", 'pods "a" not found')


def test_a_bound_pod_stays_with_timestamp_and_grace_until_it_is_deleted_with_grace_0(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    answer = raw.delete("pods/a")
    assert (answer.status, answer.body["metadata"]["deletionGracePeriodSeconds"]) == (200, 30)
    metadata = raw.get("pods/a").body["metadata"]
    assert metadata["generation"] == 2, "the beginning of a deletion counts as a change"
    left = datetime.fromisoformat(metadata["deletionTimestamp"]) - datetime.fromisoformat(metadata["creationTimestamp"])
    assert timedelta(seconds=30) <= left <= timedelta(seconds=60), "it lies grace ahead"
    last = raw.delete("pods/a", {"gracePeriodSeconds": 0})
    assert (last.status, last.body["metadata"]["deletionGracePeriodSeconds"]) == (200, 0)
    assert raw.get("pods/a").status == 404


def test_a_second_delete_changes_nothing_and_is_no_error(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    first = raw.delete("pods/a").body["metadata"]
    for options in (None, {"gracePeriodSeconds": 60}):
        again = raw.delete("pods/a", options)
        assert (again.status, again.body["metadata"]) == (200, first)
    assert raw.get("pods/a").body["metadata"]["resourceVersion"] == first["resourceVersion"]


def test_a_deletion_can_be_made_shorter(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    first = raw.delete("pods/a").body["metadata"]["deletionTimestamp"]
    shorter = raw.delete("pods/a", {"gracePeriodSeconds": 5}).body["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert datetime.fromisoformat(first) - datetime.fromisoformat(shorter["deletionTimestamp"]) == timedelta(seconds=25)


def test_a_negative_grace_is_a_second(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    assert raw.delete("pods/a", {"gracePeriodSeconds": -1}).body["metadata"]["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_bound_pod_that_has_ended_is_gone_at_once(raw: Raw, phase: str) -> None:
    raw.made("pods", pod("a", node="n"))
    raw.patch("pods/a/status", {"status": {"phase": phase}})
    assert raw.delete("pods/a").body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert raw.get("pods/a").status == 404


@pytest.mark.parametrize(
    ("preconditions", "words"),
    [
        ({"uid": "other"}, "the UID in the precondition (other) does not match the UID in record"),
        ({"uid": ""}, "the UID in the precondition () does not match the UID in record"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match the ResourceVersion"),
    ],
)
@pytest.mark.parametrize("grace", [{}, {"gracePeriodSeconds": 0}])
def test_delete_with_another_precondition_is_409_of_kind_pod(
    raw: Raw, preconditions: dict[str, str], words: str, grace: dict[str, int]
) -> None:
    raw.made("pods", pod("a", node="n"))
    answer = raw.delete("pods/a", {"preconditions": preconditions} | grace)
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["details"] == {"name": "a", "kind": "Pod"}
    assert f'Operation cannot be fulfilled on Pod "a": {words}' in answer.body["message"]
    assert "deletionTimestamp" not in raw.get("pods/a").body["metadata"]


def test_delete_by_force_with_the_right_preconditions_is_taken(raw: Raw) -> None:
    metadata = raw.made("pods", pod("a", node="n"))["metadata"]
    wanted = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert raw.delete("pods/a", {"gracePeriodSeconds": 0, "preconditions": wanted}).status == 200
    assert raw.get("pods/a").status == 404


def test_delete_what_is_not_there_is_404(raw: Raw) -> None:
    assert raw.delete("pods/a").refusal == (404, "NotFound", 'pods "a" not found')


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gracePeriodSeconds": "x"}, "cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds"),
        ({"kind": "Pod", "apiVersion": "v1"}, 'no kind "Pod" is registered for version "v1"'),
    ],
)
def test_options_that_are_none_are_refused_and_delete_nothing(raw: Raw, options: dict[str, Any], words: str) -> None:
    raw.made("pods", pod("a"))
    answer = raw.delete("pods/a", options)
    assert answer.status >= 400
    assert words in answer.body["message"]
    assert raw.names("pods") == {"a"}


@pytest.mark.parametrize(
    "options", [{"propagationPolicy": "Perhaps"}, {"propagationPolicy": "Background", "orphanDependents": True}]
)
def test_a_propagation_that_makes_no_sense_is_422(raw: Raw, options: dict[str, Any]) -> None:
    raw.made("pods", pod("a"))
    answer = raw.delete("pods/a", options)
    assert (answer.status, [field for field, _ in answer.causes]) == (422, ["propagationPolicy"])
    assert raw.names("pods") == {"a"}


def test_a_finalizer_keeps_a_pod_until_the_last_is_taken_away(raw: Raw) -> None:
    raw.made("pods", pod("a", finalizers=[KEEP, "example.com/too"]))
    assert raw.delete("pods/a").status == 200
    kept = raw.get("pods/a").body["metadata"]
    assert (kept["deletionGracePeriodSeconds"], len(kept["finalizers"])) == (0, 2)
    assert raw.delete("pods/a", {"gracePeriodSeconds": 0}).status == 200, "not even by force"
    assert raw.patch("pods/a", {"metadata": {"finalizers": ["example.com/too"]}}).status == 200
    assert raw.get("pods/a").status == 200
    last = raw.patch("pods/a", {"metadata": {"finalizers": None}})
    assert (last.status, last.body["metadata"]["name"]) == (200, "a")
    assert raw.get("pods/a").status == 404


def test_a_bound_pod_without_its_finalizer_still_waits_for_its_kubelet(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n", finalizers=[KEEP]))
    raw.delete("pods/a")
    raw.patch("pods/a", {"metadata": {"finalizers": None}})
    assert raw.get("pods/a").status == 200
    raw.delete("pods/a", {"gracePeriodSeconds": 0})
    assert raw.get("pods/a").status == 404


def test_deletecollection_is_200_with_the_list_of_what_it_deletes_as_it_was(raw: Raw) -> None:
    for name, labels in (("a", {"app": "x"}), ("b", {"app": "x", "inactive": "true"}), ("c", {"app": "y"})):
        raw.made("pods", pod(name, node="n", labels=labels))
    answer = raw.delete("pods", labelSelector="app=x,!inactive")
    assert (answer.status, answer.body["kind"]) == (200, "PodList")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a"]
    assert "deletionTimestamp" not in answer.body["items"][0]["metadata"]
    going = {
        item["metadata"]["name"] for item in raw.get("pods").body["items"] if "deletionTimestamp" in item["metadata"]
    }
    assert going == {"a"}


def test_deletecollection_by_field_and_by_force(raw: Raw) -> None:
    for name in ("a", "b"):
        raw.made("pods", pod(name, node="n"))
    raw.patch("pods/a/status", {"status": {"phase": "Running"}})
    assert raw.delete("pods", {"gracePeriodSeconds": 0}, fieldSelector="status.phase=Running").status == 200
    assert raw.names("pods") == {"b"}


def test_deletecollection_of_nothing_is_an_empty_list(raw: Raw) -> None:
    assert raw.delete("pods", labelSelector="app=x").body["items"] == []


def test_deletecollection_with_a_broken_selector_is_400_and_deletes_nothing(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    assert raw.delete("pods", labelSelector="app in x").status == 400
    assert raw.names("pods") == {"a"}


def test_deletecollection_at_an_exact_version_takes_only_what_there_was_at_that_version(raw: Raw) -> None:
    for name in ("a", "b", "c"):
        raw.made("pods", pod(name, labels={"app": "x"}))
    version = raw.get("pods").body["metadata"]["resourceVersion"]
    raw.made("pods", pod("late", labels={"app": "x"}))
    raw.delete("pods/b", {"gracePeriodSeconds": 0})
    exact = {"labelSelector": "app=x", "resourceVersion": version, "resourceVersionMatch": "Exact"}
    answer = raw.delete("pods", {"gracePeriodSeconds": 0}, **exact)
    assert (answer.status, answer.body["kind"]) == (200, "PodList")
    assert raw.names("pods") == {"late"}, "what was gone by then is no error"


@pytest.mark.parametrize(("version", "status"), [("0", 422), ("", 422), ("x", 400), (str(2**60), 504)])
def test_deletecollection_at_a_version_that_cannot_be_listed_deletes_nothing(
    raw: Raw, version: str, status: int
) -> None:
    raw.made("pods", pod("a", labels={"app": "x"}))
    answer = raw.delete("pods", labelSelector="app=x", resourceVersion=version, resourceVersionMatch="Exact")
    assert answer.status == status
    assert raw.names("pods") == {"a"}


def test_deletecollection_with_a_precondition_holds_each_to_it(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    answer = raw.delete("pods", {"preconditions": {"uid": "other"}})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert raw.names("pods") == {"a"}


# ── Eviction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def eviction(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}} | fields


def test_an_evicted_pod_gets_a_condition_that_says_so_and_then_a_graceful_deletion(raw: Raw) -> None:
    made = raw.made("pods", pod("a", node="n"))
    watch = raw.watch("pods", resourceVersion=made["metadata"]["resourceVersion"])
    answer = raw.post("pods/a/eviction", eviction("a"))
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    assert answer.body["code"] == 201
    marked, deleted = watch.next(), watch.next()
    watch.close()
    assert (marked["type"], deleted["type"]) == ("MODIFIED", "MODIFIED")
    assert "deletionTimestamp" not in marked["object"]["metadata"]
    condition = marked["object"]["status"]["conditions"][0]
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": None,
    }
    assert deleted["object"]["metadata"]["deletionGracePeriodSeconds"] == 30
    assert deleted["object"]["status"] == raw.get("pods/a").body["status"]


def test_a_second_eviction_changes_nothing_and_a_shorter_one_shortens(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    raw.post("pods/a/eviction", eviction("a"))
    version = raw.get("pods/a").body["metadata"]["resourceVersion"]
    assert raw.post("pods/a/eviction", eviction("a")).status == 201
    assert raw.get("pods/a").body["metadata"]["resourceVersion"] == version
    raw.post("pods/a/eviction", eviction("a", deleteOptions={"gracePeriodSeconds": 3}))
    assert raw.get("pods/a").body["metadata"]["deletionGracePeriodSeconds"] == 3
    raw.post("pods/a/eviction", eviction("a", deleteOptions={"gracePeriodSeconds": 0}))
    assert raw.get("pods/a").status == 404


@pytest.mark.parametrize("made", [pod("a"), pod("a", finalizers=[KEEP])])
def test_an_evicted_pod_on_no_node_is_deleted_at_once(raw: Raw, made: dict[str, Any]) -> None:
    raw.made("pods", made)
    assert raw.post("pods/a/eviction", eviction("a")).status == 201
    left = raw.get("pods/a")
    if "finalizers" not in made["metadata"]:
        assert left.status == 404
    else:
        assert left.body["metadata"]["deletionGracePeriodSeconds"] == 0
        assert left.body["status"]["conditions"][0]["reason"] == "EvictionByEvictionAPI"


def test_an_evicted_pod_that_has_ended_is_gone_at_once(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    raw.patch("pods/a/status", {"status": {"phase": "Succeeded"}})
    assert raw.post("pods/a/eviction", eviction("a")).status == 201
    assert raw.get("pods/a").status == 404


def test_an_eviction_takes_over_a_condition_of_its_type(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    raw.patch("pods/a/status", {"status": {"conditions": [{"type": "DisruptionTarget", "status": "False"}]}})
    raw.post("pods/a/eviction", eviction("a"))
    conditions = raw.get("pods/a").body["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [("DisruptionTarget", "True")]


def test_an_eviction_with_another_precondition_is_409_and_does_nothing(raw: Raw) -> None:
    # not the UID: a real server asks itself for ten seconds before it says the same of one
    made = raw.made("pods", pod("a", node="n"))
    answer = raw.post("pods/a/eviction", eviction("a", deleteOptions={"preconditions": {"resourceVersion": "1"}}))
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert answer.body["details"] == {"name": "a", "kind": "Pod"}
    assert raw.get("pods/a").body == made


def test_a_dry_eviction_says_yes_and_does_nothing(raw: Raw) -> None:
    made = raw.made("pods", pod("a", node="n"))
    assert raw.post("pods/a/eviction", eviction("a", deleteOptions={"dryRun": ["All"]})).status == 201
    assert raw.get("pods/a").body == made


def test_an_eviction_of_a_pod_that_is_not_there_is_404(raw: Raw) -> None:
    assert raw.post("pods/a/eviction", eviction("a")).refusal == (404, "NotFound", 'pods "a" not found')


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (eviction("b"), "name in URL does not match name in Eviction object"),
        ({}, "name in URL does not match name in Eviction object"),
        (pod("a"), 'Pod in version "v1" cannot be handled as a Eviction'),
        (eviction("a", metadata={"name": "a", "namespace": "other"}), "the namespace of the provided object does not"),
        (eviction("a", deleteOptions={"gracePeriodSeconds": "x"}), 'Eviction in version "v1" cannot be handled as a'),
    ],
)
def test_what_is_no_eviction_of_this_pod_is_400_and_does_nothing(raw: Raw, body: dict[str, Any], words: str) -> None:
    made = raw.made("pods", pod("a", node="n"))
    answer = raw.post("pods/a/eviction", body)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert words in answer.body["message"]
    assert raw.get("pods/a").body == made


def test_an_eviction_with_an_unknown_field_is_taken_with_a_warning(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    answer = raw.post("pods/a/eviction", eviction("a", deleteOptions={"soon": True}))
    assert (answer.status, answer.warnings) == (201, ('299 - "unknown field \\"deleteOptions.soon\\""',))
