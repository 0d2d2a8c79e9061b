"""`PodApi`'s objects of other kinds, leases and claims, and its question what our account may do."""

from __future__ import annotations

from typing import Any

import pytest

from actors.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from actors.kube import CLAIMS, LEASES, NAMESPACES, PODS, Resource
from tests.contract.asking import Asking, manifest

ACQUIRED = "2026-01-02T03:04:05.000000Z"
RENEWED = "2026-01-02T03:04:06.789012Z"
HELD = {
    "holderIdentity": "driver-1",
    "leaseDurationSeconds": 15,
    "acquireTime": ACQUIRED,
    "renewTime": ACQUIRED,
    "leaseTransitions": 0,
}
SIZE: dict[str, Any] = {"requests": {"storage": "1Gi"}}
ASKED: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": SIZE, "storageClassName": "fast"}


def lease(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def claim(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def version(obj: Any) -> str:
    found: str = obj["metadata"]["resourceVersion"]
    return found


# ── Rights ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        *((verb, PODS) for verb in ("get", "list", "watch", "create", "patch", "delete", "deletecollection")),
        ("patch", LEASES),
        ("list", CLAIMS),
    ],
)
def test_an_administrator_may_do_everything(admin: Asking, verb: str, resource: Resource) -> None:
    assert admin.may(verb, resource) is True


# ── The namespace ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_namespace_can_be_read_and_one_that_does_not_exist_is_not_found(admin: Asking) -> None:
    namespace = admin.api.namespace
    found = admin.get_object(NAMESPACES, namespace)
    assert (found["kind"], found["metadata"]["name"], found["status"]["phase"]) == ("Namespace", namespace, "Active")
    error = admin.get_object(NAMESPACES, "nowhere")
    assert type(error) is NotFound
    assert error.message == 'namespaces "nowhere" not found'


# ── Leases ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lease_is_kept_as_it_was_sent_with_its_microseconds(admin: Asking) -> None:
    created = admin.create_object(LEASES, lease("a", **HELD))
    assert created["spec"] == HELD
    assert (created["kind"], created["apiVersion"]) == ("Lease", "coordination.k8s.io/v1")
    assert version(created).isdecimal()
    assert admin.get_object(LEASES, "a") == created


def test_a_moment_is_told_in_utc(admin: Asking) -> None:
    created = admin.create_object(LEASES, lease("a", renewTime="2026-01-02T05:04:06.789012+02:00"))
    assert created["spec"] == {"renewTime": RENEWED}


def test_a_lease_that_is_not_there_is_not_found(admin: Asking) -> None:
    for error in (admin.get_object(LEASES, "a"), admin.patch_object(LEASES, "a", {"spec": {}})):
        assert type(error) is NotFound
        assert 'leases.coordination.k8s.io "a" not found' in error.message


def test_a_lease_that_another_client_created_first_already_exists(admin: Asking) -> None:
    admin.create_object(LEASES, lease("a", **HELD))
    error = admin.create_object(LEASES, lease("a"))
    assert type(error) is AlreadyExists
    assert admin.get_object(LEASES, "a")["spec"] == HELD


def test_a_lease_is_renewed_with_the_version_that_was_read(admin: Asking) -> None:
    created = admin.create_object(LEASES, lease("a", **HELD))
    patch = {"metadata": {"resourceVersion": version(created)}, "spec": {"renewTime": RENEWED}}
    renewed = admin.patch_object(LEASES, "a", patch)
    assert renewed["spec"] == HELD | {"renewTime": RENEWED}
    assert int(version(renewed)) > int(version(created))


def test_of_two_who_read_the_same_version_one_gets_a_conflict(admin: Asking) -> None:
    read = {"resourceVersion": version(admin.create_object(LEASES, lease("a", **HELD)))}
    first, second = ({"metadata": read, "spec": {"holderIdentity": who}} for who in ("driver-2", "driver-3"))
    assert admin.patch_object(LEASES, "a", first)["spec"]["holderIdentity"] == "driver-2"
    error = admin.patch_object(LEASES, "a", second)
    assert type(error) is Conflict
    assert error.status == 409
    assert admin.get_object(LEASES, "a")["spec"]["holderIdentity"] == "driver-2"


def test_a_lease_of_another_uid_is_a_conflict(admin: Asking) -> None:
    admin.create_object(LEASES, lease("a", **HELD))
    assert type(admin.patch_object(LEASES, "a", {"metadata": {"uid": "other"}})) is Conflict


def test_a_lease_can_be_given_back(admin: Asking) -> None:
    admin.create_object(LEASES, lease("a", **HELD))
    given = admin.patch_object(LEASES, "a", {"spec": {"holderIdentity": None, "renewTime": None}})
    assert given["spec"] == {key: HELD[key] for key in ("acquireTime", "leaseDurationSeconds", "leaseTransitions")}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds"),
        ({"leaseTransitions": -1}, "spec.leaseTransitions"),
    ],
)
def test_a_lease_of_no_time_is_invalid(admin: Asking, spec: dict[str, int], field: str) -> None:
    admin.create_object(LEASES, lease("there", **HELD))
    for error in (admin.create_object(LEASES, lease("a", **spec)), admin.patch_object(LEASES, "there", {"spec": spec})):
        assert type(error) is Invalid
        assert [cause for cause, _ in error.causes] == [field]


@pytest.mark.parametrize("moment", ["yesterday", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5Z"])
def test_a_moment_without_six_digits_of_a_second_is_refused(admin: Asking, moment: str) -> None:
    admin.create_object(LEASES, lease("there", **HELD))
    error = admin.create_object(LEASES, lease("a", renewTime=moment))
    assert type(error) is BadRequest
    assert f'parsing time "{moment}" as "2006-01-02T15:04:05.000000Z07:00"' in error.message
    patched = admin.patch_object(LEASES, "there", {"spec": {"renewTime": moment}})
    assert type(patched) is Invalid
    assert admin.get_object(LEASES, "there")["spec"] == HELD


def test_a_moment_on_a_day_that_does_not_exist_is_refused(admin: Asking) -> None:
    error = admin.create_object(LEASES, lease("a", renewTime="2026-02-30T03:04:05.000000Z"))
    assert type(error) is BadRequest
    assert error.message.endswith('parsing time "2026-02-30T03:04:05.000000Z": day out of range')


def test_what_a_lease_does_not_have_is_left_out(admin: Asking) -> None:
    assert admin.create_object(LEASES, lease("a", colour="red"))["spec"] == {}


# ── Claims ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_is_pending_with_what_it_asks_for(admin: Asking) -> None:
    created = admin.create_object(CLAIMS, claim("a", **ASKED))
    assert created["spec"] == ASKED | {"volumeMode": "Filesystem"}
    assert created["status"] == {"phase": "Pending"}
    assert created["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert admin.get_object(CLAIMS, "a") == created


def test_claims_are_listed_by_selector(admin: Asking) -> None:
    assert len(admin.list_objects(CLAIMS)) == 0
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        admin.create_object(CLAIMS, claim(name, {"app": app}, **ASKED))
    found = admin.list_objects(CLAIMS, "app=x")
    assert [each["metadata"]["name"] for each in found] == ["a", "c"]
    assert found[0]["spec"]["resources"] == SIZE
    assert len(admin.list_objects(CLAIMS)) == 3
    assert type(admin.list_objects(CLAIMS, "app in x")) is BadRequest


def test_whole_objects_are_listed_page_by_page_and_of_all_namespaces(admin: Asking) -> None:
    app = admin.api.namespace
    for name in "abc":
        admin.create_object(CLAIMS, claim(name, {"app": app}, **ASKED))
    first = admin.list_page(CLAIMS, f"app={app}", limit=2, everywhere=True)
    assert [each["metadata"]["name"] for each in first.items] == ["a", "b"]
    rest = admin.list_page(CLAIMS, f"app={app}", limit=2, everywhere=True, continue_token=first.continue_token)
    assert [each["metadata"]["name"] for each in rest.items] == ["c"]
    assert rest.continue_token == ""
    found = admin.list_page(CLAIMS, field_selector="metadata.name=b").items
    assert [(each["metadata"]["name"], each["spec"]["resources"]) for each in found] == [("b", SIZE)]
    assert type(admin.list_page(CLAIMS, "app in x")) is BadRequest


def test_a_claim_of_a_pod_keeps_its_owner(admin: Asking) -> None:
    driver = admin.created(manifest("driver"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver.uid}
    owned = claim("a", **ASKED)
    owned["metadata"]["ownerReferences"] = [owner]
    assert admin.create_object(CLAIMS, owned)["metadata"]["ownerReferences"] == [owner]


def test_a_claim_whose_name_is_taken_already_exists(admin: Asking) -> None:
    admin.create_object(CLAIMS, claim("a", **ASKED))
    assert type(admin.create_object(CLAIMS, claim("a", **ASKED))) is AlreadyExists


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({}, ["spec.accessModes", "spec.resources[storage]"]),
        ({"accessModes": ["ReadWriteOnce"]}, ["spec.resources[storage]"]),
        ({"resources": SIZE}, ["spec.accessModes"]),
        ({"resources": SIZE, "accessModes": []}, ["spec.accessModes"]),
        ({"resources": SIZE, "accessModes": ["Anyhow"]}, ["spec.accessModes"]),
        ({"resources": SIZE, "accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}, ["spec.accessModes"]),
        (ASKED | {"resources": {"requests": {"storage": "0"}}}, ["spec.resources[storage]"]),
        (ASKED | {"resources": {"requests": {"storage": "-1Gi"}}}, ["spec.resources[storage]"]),
        (ASKED | {"volumeMode": "Tape"}, ["spec.volumeMode"]),
        (ASKED | {"storageClassName": "Not_A_Name"}, ["spec.storageClassName"]),
    ],
)
def test_a_claim_that_lacks_something_is_invalid(admin: Asking, spec: dict[str, Any], fields: list[str]) -> None:
    error = admin.create_object(CLAIMS, claim("a", **spec))
    assert type(error) is Invalid
    assert (error.status, error.reason) == (422, "Invalid")
    assert [field for field, _ in error.causes] == fields
    assert len(admin.list_objects(CLAIMS)) == 0


@pytest.mark.parametrize(
    "spec", [ASKED | {"accessModes": "ReadWriteOnce"}, ASKED | {"resources": {"requests": {"storage": "x"}}}]
)
def test_a_claim_of_another_shape_is_a_bad_request(admin: Asking, spec: dict[str, Any]) -> None:
    assert type(admin.create_object(CLAIMS, claim("a", **spec))) is BadRequest


def test_a_claims_labels_change_and_its_size_does_not(admin: Asking) -> None:
    admin.create_object(CLAIMS, claim("a", **ASKED))
    labelled = admin.patch_object(CLAIMS, "a", {"metadata": {"labels": {"x": "y"}}})
    assert labelled["metadata"]["labels"] == {"x": "y"}
    for spec in ({"resources": {"requests": {"storage": "2Gi"}}}, {"accessModes": ["ReadWriteMany"]}):
        error = admin.patch_object(CLAIMS, "a", {"spec": spec})
        assert type(error) is Invalid
        assert [field for field, _ in error.causes] == ["spec"]


def test_a_claim_is_bound_once(admin: Asking) -> None:
    admin.create_object(CLAIMS, claim("a", **ASKED))
    assert admin.patch_object(CLAIMS, "a", {"spec": {"volumeName": "v1"}})["spec"]["volumeName"] == "v1"
    assert type(admin.patch_object(CLAIMS, "a", {"spec": {"volumeName": "v2"}})) is Invalid


def test_the_owner_of_a_claim_can_be_changed_with_its_uid_as_a_precondition(admin: Asking) -> None:
    created = admin.create_object(CLAIMS, claim("a", **ASKED))
    driver = admin.created(manifest("driver"))
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver.uid}]
    uid = created["metadata"]["uid"]
    patched = admin.patch_object(CLAIMS, "a", {"metadata": {"uid": uid, "ownerReferences": owners}})
    assert patched["metadata"]["ownerReferences"] == owners
    refused = admin.patch_object(CLAIMS, "a", {"metadata": {"uid": "other", "ownerReferences": []}})
    assert type(refused) is Conflict


@pytest.mark.parametrize("resource", [CLAIMS, LEASES], ids=lambda resource: resource.plural)
def test_an_object_is_deleted_with_its_uid_as_a_precondition(admin: Asking, resource: Resource) -> None:
    created = admin.create_object(resource, claim("a", **ASKED) if resource is CLAIMS else lease("a"))
    assert type(admin.delete_object(resource, "a", "other")) is Conflict
    assert admin.get_object(resource, "a")["metadata"] == created["metadata"]
    assert admin.delete_object(resource, "a", created["metadata"]["uid"]) is None
    left = admin.get_object(resource, "a")  # only a cluster with controllers takes a claim's finalizer away
    assert isinstance(left, NotFound) or "deletionTimestamp" in left["metadata"]
    assert type(admin.delete_object(resource, "b", "other")) is NotFound
