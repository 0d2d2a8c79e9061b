"""Creating, reading, changing: each row was measured on a real API server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.local.bench import Bench, manifest, refusal


def test_a_new_pod_is_named_dated_numbered_and_pending(bench: Bench) -> None:
    pod = bench.store.create("pods", "default", manifest("a"))
    metadata = pod["metadata"]
    assert (pod["kind"], pod["apiVersion"]) == ("Pod", "v1")
    assert (metadata["name"], metadata["namespace"], metadata["generation"]) == ("a", "default", 1)
    assert metadata["creationTimestamp"] == "2024-01-01T00:00:00Z"
    assert metadata["resourceVersion"] == bench.store.resource_version
    assert len(metadata["uid"]) == 36
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_a_new_pod_gets_the_servers_defaults(bench: Bench) -> None:
    spec = bench.pod("a")["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert spec["containers"][0]["terminationMessagePolicy"] == "File"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("worker", "Always"),
        ("worker:latest", "Always"),
        ("host:5000/worker", "Always"),
        ("worker:1", "IfNotPresent"),
        ("worker@sha256:abc", "IfNotPresent"),
    ],
)
def test_the_image_decides_the_pull_policy(bench: Bench, image: str, policy: str) -> None:
    pod = bench.pod("a", containers=[{"name": "c", "image": image}])
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({}, "BestEffort"),
    ],
)
def test_resources_decide_the_quality_of_service(bench: Bench, resources: dict[str, Any], quality: str) -> None:
    pod = bench.pod("a", containers=[{"name": "c", "image": "i", "resources": resources}])
    assert pod["status"]["qosClass"] == quality


def test_a_clients_status_uid_and_time_are_ignored(bench: Bench) -> None:
    sent = manifest("a") | {"status": {"phase": "Running"}}
    sent["metadata"] |= {"uid": "mine", "creationTimestamp": "1999-01-01T00:00:00Z", "generation": 7}
    pod = bench.store.create("pods", "default", sent)
    assert pod["status"]["phase"] == "Pending"
    assert pod["metadata"]["uid"] != "mine"
    assert pod["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"
    assert pod["metadata"]["generation"] == 1


def test_generate_name_is_completed(bench: Bench) -> None:
    sent = manifest("")
    sent["metadata"] = {"generateName": "worker-"}
    names = {bench.store.create("pods", "default", sent)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("worker-") and len(name) == len("worker-") + 5 for name in names)


def test_versions_count_every_change_of_every_resource(bench: Bench) -> None:
    before = int(bench.store.resource_version)
    bench.pod("a")
    bench.store.create("configmaps", "default", {"metadata": {"name": "c"}, "data": {"k": "v"}})
    bench.label("a", x="y")
    assert int(bench.store.resource_version) == before + 3
    assert bench.get("a")["metadata"]["resourceVersion"] == str(before + 3)


def test_the_caller_may_reuse_what_it_sent(bench: Bench) -> None:
    sent = manifest("a", labels={"x": "1"})
    bench.store.create("pods", "default", sent)
    sent["metadata"]["labels"]["x"] = "2"
    sent["spec"]["containers"].clear()
    assert bench.get("a")["metadata"]["labels"] == {"x": "1"}
    assert len(bench.get("a")["spec"]["containers"]) == 1


def test_a_name_that_is_taken_is_a_conflict(bench: Bench) -> None:
    bench.pod("a")
    status = refusal(lambda: bench.store.create("pods", "default", manifest("a")))
    assert (status.code, status.reason, status.message) == (409, "AlreadyExists", 'pods "a" already exists')
    assert status.details == {"name": "a", "kind": "pods"}


def test_the_name_of_a_terminating_object_is_a_conflict_too(bench: Bench) -> None:
    bench.pod("a", node="n")
    bench.delete("a")
    status = refusal(lambda: bench.store.create("pods", "default", manifest("a")))
    assert (status.code, status.reason) == (409, "AlreadyExists")
    assert status.message == 'object is being deleted: pods "a" already exists'


def test_tolerations_of_an_unready_node_are_added_once(bench: Bench) -> None:
    mine = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    pod = bench.pod("a", tolerations=[{"key": "x"}, mine])
    keys = [toleration["key"] for toleration in pod["spec"]["tolerations"]]
    assert keys == ["x", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


def test_a_gated_pod_has_the_reason_in_its_status(bench: Bench) -> None:
    pod = bench.pod("a", schedulingGates=[{"name": "example.org/gate"}])
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"


def test_a_secrets_strings_are_kept_encoded(bench: Bench) -> None:
    secret = bench.store.create("secrets", "default", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    assert (secret["data"], secret["type"]) == ({"k": "dg=="}, "Opaque")
    assert "stringData" not in secret


def test_a_missing_object_is_not_found(bench: Bench) -> None:
    status = refusal(lambda: bench.get("a"))
    assert (status.code, status.reason, status.message) == (404, "NotFound", 'pods "a" not found')
    lease = refusal(lambda: bench.store.get("leases", "default", "a"))
    assert lease.message == 'leases.coordination.k8s.io "a" not found'
    assert lease.details == {"name": "a", "group": "coordination.k8s.io", "kind": "leases"}


def test_an_unknown_namespace_is_not_found(bench: Bench) -> None:
    status = refusal(lambda: bench.store.create("pods", "nope", manifest("a")))
    assert (status.code, status.message) == (404, 'namespaces "nope" not found')
    assert status.details == {"name": "nope", "kind": "namespaces"}


def test_another_namespace_in_the_object_than_in_the_request_is_refused(bench: Bench) -> None:
    sent = manifest("a")
    sent["metadata"]["namespace"] = "other"
    assert refusal(lambda: bench.store.create("pods", "default", sent)).code == 400


def test_a_version_in_a_new_object_is_refused(bench: Bench) -> None:
    sent = manifest("a")
    sent["metadata"]["resourceVersion"] = "5"
    status = refusal(lambda: bench.store.create("pods", "default", sent))
    assert (status.code, status.message) == (500, "resourceVersion should not be set on objects to be created")


def test_an_unknown_field_is_left_out_with_a_warning(bench: Bench) -> None:
    warnings: list[str] = []
    pod = bench.store.create("pods", "default", manifest("a", containerz=[1]), warnings=warnings)
    assert warnings == ['unknown field "spec.containerz"']
    assert "containerz" not in pod["spec"]


def test_a_strict_request_is_refused_for_an_unknown_field(bench: Bench) -> None:
    sent = manifest("a", containers=[{"name": "c", "image": "i", "imagee": "j"}], foo=1)
    status = refusal(lambda: bench.store.create("pods", "default", sent, field_validation="Strict"))
    assert status.code == 400
    assert status.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].imagee", unknown field "spec.foo"'
    )


def test_an_ignoring_request_gets_no_warning(bench: Bench) -> None:
    warnings: list[str] = []
    bench.store.create("pods", "default", manifest("a", foo=1), field_validation="Ignore", warnings=warnings)
    assert warnings == []


def test_an_unknown_field_validation_is_refused(bench: Bench) -> None:
    status = refusal(lambda: bench.store.create("pods", "default", manifest("a"), field_validation="Foo"))
    assert (status.code, status.reason) == (422, "Invalid")


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([], "the object provided is unrecognized (must be of type Pod)"),
        ({"metadata": []}, "cannot unmarshal array into Go struct field Pod.metadata of type v1.ObjectMeta"),
        (manifest("a", containers="x"), "string into Go struct field PodSpec.spec.containers of type []v1.Container"),
        (manifest("a", nodeName=3), "number into Go struct field PodSpec.spec.nodeName of type string"),
        (manifest("a", terminationGracePeriodSeconds=True), "cannot unmarshal bool into Go struct field"),
        (manifest("a") | {"kind": "Node"}, 'Node in version "v1" cannot be handled as a Pod'),
        (manifest("a") | {"apiVersion": "v2"}, 'no kind "Pod" is registered for version "v2"'),
        ({"metadata": {"name": "a", "labels": {"x": 1}}}, "ObjectMeta.metadata.labels of type"),
        (
            manifest("a", containers=[{"name": "c", "image": "i", "resources": {"limits": {"cpu": "many"}}}]),
            "quantities must match the regular expression",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_a_bad_request(bench: Bench, sent: Any, words: str) -> None:
    status = refusal(lambda: bench.store.create("pods", "default", sent))
    assert (status.code, status.reason) == (400, "BadRequest")
    assert words in status.message


def test_status_changes_only_through_its_own_path(bench: Bench) -> None:
    before = bench.pod("a")
    ignored = bench.patch("a", {"status": {"phase": "Running"}})
    assert ignored == before
    assert bench.status("a", {"phase": "Running"})["status"]["phase"] == "Running"


def test_the_status_path_changes_labels_but_not_the_spec(bench: Bench) -> None:
    bench.pod("a")
    patch = {"metadata": {"labels": {"x": "1"}}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    pod = bench.store.patch("pods", "default", "a", patch, "merge", subresource="status")
    assert pod["metadata"]["labels"] == {"x": "1"}
    assert "nodeName" not in pod["spec"]
    assert pod["status"]["phase"] == "Running"


def test_a_patch_that_changes_nothing_makes_no_version(bench: Bench) -> None:
    bench.pod("a", labels={"x": "1"})
    before, seen = bench.store.resource_version, bench.watch()
    bench.label("a", x="1")
    assert bench.store.resource_version == before
    assert seen.messages == []


def test_a_stale_version_in_a_patch_is_a_conflict(bench: Bench) -> None:
    old = bench.pod("a")["metadata"]["resourceVersion"]
    bench.label("a", x="1")
    status = refusal(lambda: bench.patch("a", {"metadata": {"resourceVersion": old, "labels": {"x": "2"}}}))
    assert (status.code, status.reason, status.details) == (409, "Conflict", {"name": "a", "kind": "pods"})
    assert "the object has been modified" in status.message


def test_the_current_version_in_a_patch_is_no_conflict(bench: Bench) -> None:
    version = bench.pod("a")["metadata"]["resourceVersion"]
    pod = bench.patch("a", {"metadata": {"resourceVersion": version, "labels": {"x": "2"}}})
    assert pod["metadata"]["labels"] == {"x": "2"}


def test_a_patch_that_would_give_a_field_another_type_is_unprocessable(bench: Bench) -> None:
    bench.pod("a")
    status = refusal(lambda: bench.patch("a", {"metadata": {"labels": {"x": 1}}}))
    assert (status.code, status.reason) == (422, "Invalid")
    assert "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string" in status.message


def test_a_patch_cannot_remove_the_name(bench: Bench) -> None:
    bench.pod("a")
    assert refusal(lambda: bench.patch("a", {"metadata": None})).code == 400


def test_a_patch_for_another_uid_is_invalid(bench: Bench) -> None:
    bench.pod("a")
    status = refusal(lambda: bench.patch("a", {"metadata": {"uid": "other", "labels": {"x": "2"}}}))
    assert (status.code, status.reason) == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "other": field is immutable' in status.message


@pytest.mark.parametrize("field", ["name", "namespace"])
def test_a_patch_cannot_rename(bench: Bench, field: str) -> None:
    bench.pod("a")
    assert refusal(lambda: bench.patch("a", {"metadata": {field: "other"}})).code == 400


@pytest.mark.parametrize(
    "spec", [{"nodeName": "other"}, {"terminationGracePeriodSeconds": 5}, {"restartPolicy": "Never"}]
)
def test_a_pods_spec_does_not_change(bench: Bench, spec: dict[str, Any]) -> None:
    bench.pod("a", node="n")
    status = refusal(lambda: bench.patch("a", {"spec": spec}))
    assert (status.code, status.reason) == (422, "Invalid")
    assert status.details is not None
    assert [cause["field"] for cause in status.details["causes"]] == ["spec"]


def test_a_pods_image_changes_and_is_counted_as_a_generation(bench: Bench) -> None:
    bench.pod("a")
    patch = {"spec": {"containers": [{"name": "main", "image": "worker:2"}]}}
    pod = bench.store.patch("pods", "default", "a", patch, "strategic")
    assert pod["spec"]["containers"][0]["image"] == "worker:2"
    assert pod["metadata"]["generation"] == 2


def test_containers_are_not_added(bench: Bench) -> None:
    bench.pod("a")
    patch = {"spec": {"containers": [{"name": "more", "image": "i"}]}}
    status = refusal(lambda: bench.store.patch("pods", "default", "a", patch, "strategic"))
    assert "pod updates may not add or remove containers" in status.message


def test_a_put_replaces_labels_and_keeps_what_the_server_owns(bench: Bench) -> None:
    pod = bench.pod("a", labels={"x": "1"})
    sent = {**pod, "metadata": {**pod["metadata"], "labels": {"y": "2"}, "creationTimestamp": "1999-01-01T00:00:00Z"}}
    replaced = bench.store.replace("pods", "default", "a", sent)
    assert replaced["metadata"]["labels"] == {"y": "2"}
    assert replaced["metadata"]["creationTimestamp"] == pod["metadata"]["creationTimestamp"]
    assert replaced["status"] == pod["status"]


def test_a_put_with_a_stale_version_or_another_uid_is_a_conflict(bench: Bench) -> None:
    pod = bench.pod("a")
    bench.label("a", x="1")
    assert refusal(lambda: bench.store.replace("pods", "default", "a", pod)).code == 409
    other = {**pod, "metadata": {"name": "a", "uid": "other"}}
    assert refusal(lambda: bench.store.replace("pods", "default", "a", other)).code == 409


def test_a_put_of_a_missing_object_is_not_found(bench: Bench) -> None:
    assert refusal(lambda: bench.store.replace("pods", "default", "a", manifest("a"))).code == 404


@pytest.mark.parametrize("path", ["status", "scale"])
def test_a_kind_without_a_path_has_none(bench: Bench, path: str) -> None:
    bench.store.create("configmaps", "default", {"metadata": {"name": "c"}})
    status = refusal(lambda: bench.store.patch("configmaps", "default", "c", {}, "merge", subresource=path))
    assert (status.code, status.message) == (404, "the server could not find the requested resource")


def test_a_nodes_status_is_kept_from_its_creation_and_changes_only_through_its_path(bench: Bench) -> None:
    bench.store.create("nodes", None, {"metadata": {"name": "n"}, "status": {"capacity": {"pods": "1"}}})
    patch = {"status": {"capacity": {"pods": "2"}}}
    through_main = bench.store.patch("nodes", None, "n", patch, "merge")
    assert through_main["status"] == {"capacity": {"pods": "1"}}
    assert bench.store.patch("nodes", None, "n", patch, "merge", subresource="status")["status"] == patch["status"]


def test_an_immutable_configmap_does_not_change(bench: Bench) -> None:
    made = {"metadata": {"name": "c"}, "data": {"k": "v"}, "immutable": True}
    bench.store.create("configmaps", "default", made)
    status = refusal(lambda: bench.store.patch("configmaps", "default", "c", {"data": {"k": "w"}}, "merge"))
    assert (status.code, status.reason) == (422, "Invalid")


def test_binding_gives_a_pod_its_node_once(bench: Bench) -> None:
    bench.pod("a")
    pod = bench.store.bind("default", "a", "n1")
    assert pod["spec"]["nodeName"] == "n1"
    assert [(each["type"], each["status"]) for each in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    status = refusal(lambda: bench.store.bind("default", "a", "n2"))
    assert (status.code, status.reason) == (409, "Conflict")


def test_binding_for_another_uid_is_a_conflict(bench: Bench) -> None:
    bench.pod("a")
    assert refusal(lambda: bench.store.bind("default", "a", "n1", uid="other")).code == 409


def test_events_are_forgotten_after_an_hour(bench: Bench) -> None:
    event = {"metadata": {"generateName": "e-"}, "involvedObject": {"kind": "Pod", "name": "a"}}
    bench.store.create("events", "default", event)
    bench.advance(timedelta(minutes=61))
    bench.store.create("events", "default", event)
    assert len(bench.store.list("events", "default").items) == 1


def test_a_full_store_refuses_new_objects_and_still_deletes() -> None:
    bench = Bench(max_objects=5)  # four are its namespaces
    bench.pod("a", node="n")
    status = refusal(lambda: bench.store.create("pods", "default", manifest("b")))
    assert (status.code, status.message) == (500, "etcdserver: mvcc: database space exceeded")
    bench.delete("a", grace=0)
    assert bench.pod("b")["metadata"]["name"] == "b"


def test_a_store_full_of_bytes_refuses_objects_and_still_deletes() -> None:
    measured = Bench()
    measured.pod("a", node="n")
    bench = Bench(max_bytes=measured.store._state._bytes)
    bench.pod("a", node="n")
    status = refusal(lambda: bench.label("a", more="bytes"))
    assert (status.code, status.message) == (500, "etcdserver: mvcc: database space exceeded")
    assert bench.delete("a")["metadata"]["deletionGracePeriodSeconds"] == 30
    bench.delete("a", grace=0)
    assert bench.pod("b")["metadata"]["name"] == "b"


def test_every_status_is_the_apis_json(bench: Bench) -> None:
    assert refusal(lambda: bench.get("a")).to_json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "a" not found',
        "reason": "NotFound",
        "details": {"name": "a", "kind": "pods"},
        "code": 404,
    }
