"""A claim that is being deleted stays while a pod on a node uses it, as with the claims' controller."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.local.bench import Bench, manifest, refusal

CLAIMS = "persistentvolumeclaims"
SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def claim(bench: Bench, name: str, **metadata: Any) -> dict[str, Any]:
    return bench.store.create(CLAIMS, "default", {"metadata": {"name": name} | metadata, "spec": SPEC})


def user(bench: Bench, name: str, *claims: str, node: str | None = "n") -> dict[str, Any]:
    pod = manifest(name)
    pod["spec"]["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    if node is not None:
        pod["spec"]["nodeName"] = node
    return bench.store.create("pods", "default", pod)


def claims(bench: Bench) -> list[str]:
    return [each["metadata"]["name"] for each in bench.store.list(CLAIMS, "default").items]


def test_an_unused_claim_is_deleted_at_once(bench: Bench) -> None:
    claim(bench, "a")
    seen: list[str] = []
    bench.store.watch(CLAIMS, "default", lambda message: seen.append(message.type), resource_version="0")
    answer = bench.store.delete(CLAIMS, "default", "a")
    assert answer["kind"] == "PersistentVolumeClaim"
    assert answer["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert answer["metadata"]["deletionTimestamp"]
    assert claims(bench) == []
    assert seen == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


def test_a_used_claim_is_deleted_with_its_last_pod(bench: Bench) -> None:
    for name in ("used", "other"):
        claim(bench, name)
    for name in ("first", "second"):
        user(bench, name, "used")
    user(bench, "third", "other")
    bench.store.delete(CLAIMS, "default", "used")
    bench.delete("first", grace=0)
    assert claims(bench) == ["other", "used"]
    assert bench.store.get(CLAIMS, "default", "used")["metadata"]["deletionTimestamp"]
    bench.delete("second", grace=0)
    assert claims(bench) == ["other"]


def test_a_pod_that_ended_still_keeps_its_claim_and_one_on_no_node_does_not(bench: Bench) -> None:
    claim(bench, "a")
    user(bench, "ended", "a")
    user(bench, "waiting", "a", node=None)
    bench.store.patch("pods", "default", "ended", {"status": {"phase": "Succeeded"}}, "merge", subresource="status")
    bench.store.delete(CLAIMS, "default", "a")
    assert claims(bench) == ["a"]
    bench.delete("ended")
    assert claims(bench) == []


def test_another_finalizer_keeps_an_unused_claim(bench: Bench) -> None:
    claim(bench, "a", finalizers=["example.com/keep"])
    bench.store.delete(CLAIMS, "default", "a")
    assert bench.store.get(CLAIMS, "default", "a")["metadata"]["finalizers"] == ["example.com/keep"]
    bench.store.patch(CLAIMS, "default", "a", {"metadata": {"finalizers": None}}, "merge")
    assert claims(bench) == []


def test_claims_of_a_deleted_driver_are_collected(bench: Bench) -> None:
    driver = bench.pod("driver")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver["metadata"]["uid"]}
    claim(bench, "a", ownerReferences=[owner])
    bench.delete("driver")
    assert claims(bench) == []


def test_a_namespace_is_deleted_with_its_claims_after_their_pods(bench: Bench) -> None:
    bench.store.create("namespaces", None, {"metadata": {"name": "jobs"}})
    bench.store.create(CLAIMS, "jobs", {"metadata": {"name": "a"}, "spec": SPEC})
    pod = manifest("user")
    pod["spec"] |= {"nodeName": "n", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]}
    bench.store.create("pods", "jobs", pod)
    bench.store.delete("namespaces", None, "jobs")
    assert [each["metadata"]["name"] for each in bench.store.list(CLAIMS, "jobs").items] == ["a"]
    bench.store.delete("pods", "jobs", "user", grace_period_seconds=0)
    assert refusal(lambda: bench.store.get("namespaces", None, "jobs")).code == 404
    assert bench.store.list(CLAIMS, "jobs").items == []


@pytest.mark.parametrize("size", ["2Gi", "512Mi"])
def test_a_bound_claim_cannot_be_resized(bench: Bench, size: str) -> None:
    claim(bench, "a")
    bench.store.patch(CLAIMS, "default", "a", {"status": {"phase": "Bound"}}, "merge", subresource="status")
    patch = {"spec": {"resources": {"requests": {"storage": size}}}}
    problem = refusal(lambda: bench.store.patch(CLAIMS, "default", "a", patch, "merge"))
    assert (problem.code, problem.reason) == (403, "Forbidden")
    assert "only dynamically provisioned pvc can be resized" in problem.message
