"""Graceful deletion, finalizers, preconditions, owners, namespaces: as a real API server does them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.local.bench import Bench, manifest, refusal


def _owned(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    pod = manifest(name)
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        for owner in owners
    ]
    return pod


def test_an_unbound_pod_is_deleted_at_once(bench: Bench) -> None:
    bench.pod("a")
    seen = bench.watch()
    answer = bench.delete("a")
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert answer["metadata"]["deletionTimestamp"] == "2024-01-01T00:00:00Z"
    assert seen.events == [("MODIFIED", "a"), ("DELETED", "a")]
    assert refusal(lambda: bench.get("a")).code == 404


def test_a_bound_pod_stays_until_its_kubelet_deletes_it(bench: Bench) -> None:
    bench.pod("a", node="n", phase="Running")
    answer = bench.delete("a")
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    assert answer["metadata"]["deletionTimestamp"] == "2024-01-01T00:00:30Z"
    assert answer["metadata"]["generation"] == 2
    assert bench.get("a")["status"]["phase"] == "Running"
    bench.delete("a", grace=0)
    assert bench.names() == []


def test_a_second_delete_changes_nothing(bench: Bench) -> None:
    bench.pod("a", node="n")
    first = bench.delete("a")
    bench.advance(timedelta(seconds=5))
    assert bench.delete("a") == first
    assert bench.delete("a", grace=50) == first


def test_a_deletion_can_be_made_shorter_counting_from_its_begin(bench: Bench) -> None:
    bench.pod("a", node="n")
    bench.delete("a")
    bench.advance(timedelta(seconds=3))
    metadata = bench.delete("a", grace=5)["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 5
    assert metadata["deletionTimestamp"] == "2024-01-01T00:00:05Z"
    assert metadata["generation"] == 2


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_deleted_at_once(bench: Bench, phase: str) -> None:
    bench.pod("a", node="n", phase=phase)
    bench.delete("a")
    assert bench.names() == []


def test_a_forced_delete_removes_a_running_pod(bench: Bench) -> None:
    bench.pod("a", node="n", phase="Running")
    seen = bench.watch()
    bench.delete("a", grace=0)
    assert seen.types == ["MODIFIED", "DELETED"]
    assert seen.messages[-1].object["status"]["phase"] == "Running"


def test_the_pods_own_grace_counts_when_the_request_names_none(bench: Bench) -> None:
    bench.pod("a", node="n", terminationGracePeriodSeconds=7)
    assert bench.delete("a")["metadata"]["deletionGracePeriodSeconds"] == 7


def test_another_uid_or_version_than_the_precondition_is_a_conflict(bench: Bench) -> None:
    uid = bench.pod("a")["metadata"]["uid"]
    status = refusal(lambda: bench.store.delete("pods", "default", "a", uid="other"))
    assert (status.code, status.reason, status.details) == (409, "Conflict", {"name": "a", "kind": "Pod"})
    assert status.message == (
        f'Operation cannot be fulfilled on Pod "a": the UID in the precondition (other) does not match the UID in '
        f"record ({uid}). The object might have been deleted and then recreated"
    )
    assert refusal(lambda: bench.store.delete("pods", "default", "a", resource_version="1")).code == 409
    bench.store.delete("pods", "default", "a", uid=uid)
    assert bench.names() == []


def test_deleting_a_missing_object_is_not_found(bench: Bench) -> None:
    assert refusal(lambda: bench.delete("a")).code == 404


def test_a_finalizer_keeps_a_pod_until_it_is_removed(bench: Bench) -> None:
    sent = manifest("a")
    sent["metadata"]["finalizers"] = ["example.org/keep"]
    bench.store.create("pods", "default", sent)
    assert bench.delete("a", grace=0)["metadata"]["deletionTimestamp"]
    assert bench.names() == ["a"]
    seen = bench.watch()
    bench.patch("a", {"metadata": {"finalizers": None}})
    assert bench.names() == []
    assert seen.events == [("DELETED", "a")]


def test_other_kinds_wait_for_their_finalizers_too(bench: Bench) -> None:
    made = {"metadata": {"name": "c", "finalizers": ["example.org/keep"]}}
    bench.store.create("configmaps", "default", made)
    first = bench.store.delete("configmaps", "default", "c")
    assert first["metadata"]["deletionGracePeriodSeconds"] == 0
    assert bench.store.delete("configmaps", "default", "c") == first
    bench.store.patch("configmaps", "default", "c", {"metadata": {"finalizers": None}}, "merge")
    assert refusal(lambda: bench.store.get("configmaps", "default", "c")).code == 404


def test_a_negative_grace_in_the_request_is_one_second(bench: Bench) -> None:
    bench.pod("a", node="n")
    assert bench.delete("a", grace=-7)["metadata"]["deletionGracePeriodSeconds"] == 1


def test_a_finalizer_removed_early_does_not_end_the_grace(bench: Bench) -> None:
    sent = manifest("a", nodeName="n")
    sent["metadata"]["finalizers"] = ["example.org/keep"]
    bench.store.create("pods", "default", sent)
    bench.delete("a")
    bench.patch("a", {"metadata": {"finalizers": None}})
    assert bench.names() == ["a"]
    bench.delete("a", grace=0)
    assert bench.names() == []


def test_no_finalizer_is_added_to_a_terminating_object(bench: Bench) -> None:
    bench.pod("a", node="n")
    bench.delete("a")
    status = refusal(lambda: bench.patch("a", {"metadata": {"finalizers": ["example.org/late"]}}))
    assert status.code == 422
    assert "no new finalizers can be added if the object is being deleted" in status.message


def test_a_new_pod_of_the_same_name_has_another_uid(bench: Bench) -> None:
    first = bench.pod("a")
    bench.delete("a")
    assert bench.pod("a")["metadata"]["uid"] != first["metadata"]["uid"]


def test_other_kinds_are_deleted_at_once_and_answered_with_success(bench: Bench) -> None:
    made = bench.store.create("configmaps", "default", {"metadata": {"name": "c"}})
    answer = bench.store.delete("configmaps", "default", "c")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "c", "kind": "configmaps", "uid": made["metadata"]["uid"]}


def test_a_collection_is_deleted_by_its_labels(bench: Bench) -> None:
    for number in range(4):
        bench.pod(f"p{number}", labels={"number": str(number)})
    bench.pod("bound", node="n", labels={"number": "9"})
    gone = bench.store.delete_collection("pods", "default", label_selector="number in (1,3,9)")
    assert [pod["metadata"]["name"] for pod in gone.items] == ["bound", "p1", "p3"]
    assert bench.names() == ["bound", "p0", "p2"]


def test_dependents_are_deleted_with_their_owner(bench: Bench) -> None:
    owner = bench.pod("owner")
    bench.store.create("pods", "default", _owned("bound", owner))
    bench.store.bind("default", "bound", "n")
    bench.store.create("pods", "default", _owned("unbound", owner))
    bench.delete("owner")
    assert bench.names() == ["bound"]
    assert bench.get("bound")["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_dependent_of_two_owners_is_deleted_with_the_last(bench: Bench) -> None:
    first, second = bench.pod("first"), bench.pod("second")
    bench.store.create("pods", "default", _owned("child", first, second))
    bench.delete("first")
    assert bench.names() == ["child", "second"]
    bench.delete("second")
    assert bench.names() == []


def test_dependents_of_dependents_are_deleted_too(bench: Bench) -> None:
    owner = bench.pod("owner")
    child = bench.store.create("pods", "default", _owned("child", owner))
    bench.store.create("pods", "default", _owned("grandchild", child))
    bench.delete("owner")
    assert bench.names() == []


def test_a_dependent_of_a_deleted_owner_is_collected(bench: Bench) -> None:
    owner = bench.pod("owner")
    bench.delete("owner")
    seen = bench.watch()
    assert bench.store.create("pods", "default", _owned("late", owner))["metadata"]["name"] == "late"
    assert seen.types == ["ADDED", "MODIFIED", "DELETED"]


def test_an_owner_in_another_namespace_is_no_owner(bench: Bench) -> None:
    bench.store.create("namespaces", None, {"metadata": {"name": "other"}})
    stranger = bench.store.create("pods", "other", manifest("stranger"))
    bench.store.create("pods", "default", _owned("child", stranger))
    assert bench.names() == []


def test_an_object_without_its_owner_reference_stays(bench: Bench) -> None:
    owner = bench.pod("owner")
    bench.store.create("pods", "default", _owned("child", owner))
    bench.patch("child", {"metadata": {"ownerReferences": None}})
    bench.delete("owner")
    assert bench.names() == ["child"]


def test_an_object_whose_new_owners_do_not_exist_is_deleted(bench: Bench) -> None:
    bench.pod("child", node="n")
    gone = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "gone"}
    bench.patch("child", {"metadata": {"ownerReferences": [gone]}})
    deleted = bench.get("child")
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30
    assert bench.status("child", {"phase": "Running"})["metadata"]["deletionGracePeriodSeconds"] == 30


def test_an_owner_that_is_gone_is_taken_off_an_object_that_another_one_owns(bench: Bench) -> None:
    first, other = bench.pod("first"), bench.pod("other")
    child = _owned("child", first, other)
    references = child["metadata"]["ownerReferences"]
    bench.store.create("pods", "default", child)
    seen = bench.watch()
    bench.delete("first")
    assert bench.get("child")["metadata"]["ownerReferences"] == references[1:]
    bench.patch("child", {"metadata": {"ownerReferences": references}})
    assert bench.get("child")["metadata"]["ownerReferences"] == references[1:]
    assert seen.types[-3:] == ["MODIFIED"] * 3, "without the first owner, with it, and without it again"
    bench.delete("other")
    assert bench.names() == []


def test_a_deletion_that_has_begun_keeps_its_owners(bench: Bench) -> None:
    first, other = bench.pod("first"), bench.pod("other")
    bench.store.create("pods", "default", _owned("child", first, other))
    bench.store.bind("default", "child", "n")
    bench.delete("child")
    bench.delete("first")
    assert len(bench.get("child")["metadata"]["ownerReferences"]) == 2


def test_a_namespace_is_deleted_with_its_content(bench: Bench) -> None:
    bench.store.create("namespaces", None, {"metadata": {"name": "team"}})
    bench.store.create("pods", "team", manifest("a"))
    bench.store.create("configmaps", "team", {"metadata": {"name": "c"}})
    bench.store.delete("namespaces", None, "team")
    assert refusal(lambda: bench.store.get("namespaces", None, "team")).code == 404
    assert bench.store.list("pods", None).items == []


def test_a_namespace_waits_for_its_pods_and_takes_nothing_new(bench: Bench) -> None:
    bench.store.create("namespaces", None, {"metadata": {"name": "team"}})
    bench.store.create("pods", "team", manifest("a", nodeName="n"))
    answer = bench.store.delete("namespaces", None, "team")
    assert answer["status"]["phase"] == "Terminating"
    status = refusal(lambda: bench.store.create("pods", "team", manifest("b")))
    assert (status.code, status.reason) == (403, "Forbidden")
    assert "unable to create new content in namespace team because it is being terminated" in status.message
    bench.store.delete("pods", "team", "a", grace_period_seconds=0)
    assert refusal(lambda: bench.store.get("namespaces", None, "team")).code == 404


def test_the_first_namespaces_are_not_deleted(bench: Bench) -> None:
    status = refusal(lambda: bench.store.delete("namespaces", None, "default"))
    assert (status.code, status.message) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


def test_an_eviction_names_another_uid_and_is_a_conflict(bench: Bench) -> None:
    pod = bench.pod("a", node="n")
    problem = refusal(lambda: bench.store.evict("default", "a", uid="other"))
    assert (problem.code, problem.reason) == (409, "Conflict")
    assert bench.get("a") == pod
    bench.store.evict("default", "a", uid=pod["metadata"]["uid"])
    assert bench.get("a")["metadata"]["deletionGracePeriodSeconds"] == 30


def test_an_eviction_keeps_other_conditions(bench: Bench) -> None:
    bench.pod("a")
    bench.store.bind("default", "a", "n")
    bench.store.evict("default", "a")
    conditions = bench.get("a")["status"]["conditions"]
    assert [each["type"] for each in conditions] == ["PodScheduled", "DisruptionTarget"]
