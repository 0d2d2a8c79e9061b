"""What a server answers to those who write: rows of what was asked of a real one, past the `PodApi`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from actors.manifests.executor_pod import ExecutorManifests
from actors.settings import ExecutorSettings, Settings
from tests.contract.asking import manifest

if TYPE_CHECKING:
    from tests.contract.raw import Raw

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
COST = "controller.kubernetes.io/pod-deletion-cost"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def pod(name: str, *, node: str | None = None, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    made = manifest(name, node=node)
    return made | {"metadata": {"name": name} | metadata, "spec": made["spec"] | (spec or {})}


def without_version(obj: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    kept = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return obj | {"metadata": kept | metadata}


# ── POST ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_post_a_pod_that_exists_is_409_already_exists_with_its_name(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    answer = raw.post("pods", pod("a"))
    assert answer.refusal == (409, "AlreadyExists", 'pods "a" already exists')
    assert answer.body["details"] == {"name": "a", "kind": "pods"}
    assert (answer.body["kind"], answer.body["apiVersion"], answer.body["status"]) == ("Status", "v1", "Failure")
    assert answer.body["code"] == 409


def test_post_on_the_name_of_a_pod_that_is_being_deleted_is_409_already_exists(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    raw.delete("pods/a")
    assert raw.post("pods", pod("a")).refusal == (
        409,
        "AlreadyExists",
        'object is being deleted: pods "a" already exists',
    )


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (pod("Not_A_Name"), ("metadata.name", "FieldValueInvalid")),
        (pod("", generateName=""), ("metadata.name", "FieldValueRequired")),
        (pod("a", spec={"containers": []}), ("spec.containers", "FieldValueRequired")),
        (pod("a", spec={"restartPolicy": "Maybe"}), ("spec.restartPolicy", "FieldValueNotSupported")),
        (pod("a", spec={"containers": [{"name": "x"}]}), ("spec.containers[0].image", "FieldValueRequired")),
        (pod("a", labels={"x": "v" * 64}), ("metadata.labels", "FieldValueInvalid")),
        (pod("a", labels={"a b": "x"}), ("metadata.labels", "FieldValueInvalid")),
        (pod("a", annotations={COST: "dear"}), (f"metadata.annotations[{COST}]", "FieldValueInvalid")),
        (pod("a", annotations={COST: "2147483648"}), (f"metadata.annotations[{COST}]", "FieldValueInvalid")),
        (pod("a", finalizers=["keep"]), ("metadata.finalizers[0]", "FieldValueInvalid")),
    ],
)
def test_post_an_invalid_pod_is_422_with_field_and_reason(
    raw: Raw, bad: dict[str, Any], cause: tuple[str, str]
) -> None:
    answer = raw.post("pods", bad)
    assert (answer.status, answer.body["reason"], answer.body["details"]["kind"]) == (422, "Invalid", "Pod")
    assert answer.causes == [cause]


def test_every_problem_of_an_invalid_pod_is_named(raw: Raw) -> None:
    answer = raw.post("pods", pod("A", spec={"containers": []}))
    assert answer.causes == [("metadata.name", "FieldValueInvalid"), ("spec.containers", "FieldValueRequired")]
    assert answer.body["message"].startswith('Pod "A" is invalid: [metadata.name: Invalid value: "A": ')


def test_a_pod_with_all_that_settings_can_say_is_taken_to_the_letter(raw: Raw) -> None:
    executor = ExecutorSettings(
        image="worker:1",
        command=["work"],
        args=["--port", "7077"],
        drain_timeout="60s",
        working_dir="/app",
        env={"LEVEL": "info", "TOKEN": {"secret": "db", "key": "token", "optional": True}, "_.-a": ""},
        env_from=[{"config_map": "site", "prefix": "SITE_"}, {"secret": "db", "optional": True}],
        tolerations=[
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
            {"key": "spot", "value": "yes", "effect": "NoSchedule"},
        ],
        image_pull_secrets=["registry"],
        labels={"example.com/team": "blue"},
        annotations={"example.com/Owner": "etl", "big": "x" * (2**18 - 23)},
    )
    made = ExecutorManifests(Settings(app_id="app", executor=executor), namespace=raw.namespace).pod(1, "default")
    stored = raw.post("pods", made, fieldValidation="Strict").body
    (sent,), (got,) = made["spec"]["containers"], stored["spec"]["containers"]
    assert {name: got.get(name) for name in sent if name != "env"} == {n: v for n, v in sent.items() if n != "env"}
    assert stored["spec"]["terminationGracePeriodSeconds"] == made["spec"]["terminationGracePeriodSeconds"] == 90
    assert [each["name"] for each in got["env"]] == [each["name"] for each in sent["env"]]
    assert stored["spec"]["tolerations"] == made["spec"]["tolerations"]
    assert stored["spec"]["imagePullSecrets"] == made["spec"]["imagePullSecrets"]
    assert stored["metadata"]["annotations"] == made["metadata"]["annotations"]


def hooked(**hooks: Any) -> dict[str, Any]:
    containers = [{"name": "executor", "image": "worker:1", "lifecycle": hooks}]
    return pod("a", spec={"containers": containers, "terminationGracePeriodSeconds": 30})


@pytest.mark.parametrize(
    "hooks",
    [
        {"preStop": {"sleep": {"seconds": 30}}},
        {"preStop": {"exec": {"command": ["sleep", "60"]}}},
        {"postStart": {"sleep": {"seconds": 5}}, "preStop": {"exec": {"command": ["true"]}}},
    ],
)
def test_lifecycle_hooks_are_stored_to_the_letter(raw: Raw, hooks: dict[str, Any]) -> None:
    answer = raw.post("pods", hooked(**hooks), fieldValidation="Strict")
    assert answer.status == 201, answer.body
    assert answer.body["spec"]["containers"][0]["lifecycle"] == hooks


@pytest.mark.parametrize(
    ("hook", "field", "reason"),
    [
        ({"sleep": {"seconds": -1}}, "preStop.sleep", "FieldValueInvalid"),
        ({"sleep": {"seconds": 31}}, "preStop.sleep", "FieldValueInvalid"),
        ({"exec": {"command": []}}, "preStop.exec.command", "FieldValueRequired"),
        ({}, "preStop", "FieldValueRequired"),
        ({"sleep": {"seconds": 1}, "exec": {"command": ["true"]}}, "preStop.sleep", "FieldValueForbidden"),
    ],
)
def test_a_wrong_lifecycle_hook_is_refused(raw: Raw, hook: dict[str, Any], field: str, reason: str) -> None:
    answer = raw.post("pods", hooked(preStop=hook), fieldValidation="Strict")
    assert answer.status == 422, answer.body
    assert answer.causes == [(f"spec.containers[0].lifecycle.{field}", reason)]


def test_a_lifecycle_hook_with_an_unknown_field_is_refused_if_the_client_wants_it_strict(raw: Raw) -> None:
    answer = raw.post("pods", hooked(preStop={"slep": {"seconds": 1}}), fieldValidation="Strict")
    assert answer.status == 400
    assert 'unknown field "spec.containers[0].lifecycle.preStop.slep"' in answer.body["message"]


def test_post_with_an_unknown_field_is_taken_with_a_warning(raw: Raw) -> None:
    answer = raw.post("pods", pod("a", spec={"containerz": []}))
    assert answer.status == 201
    assert answer.warnings == ('299 - "unknown field \\"spec.containerz\\""',)
    assert "containerz" not in answer.body["spec"]


def test_post_with_an_unknown_field_and_strict_validation_is_400(raw: Raw) -> None:
    answer = raw.post("pods", pod("a", spec={"containerz": []}), fieldValidation="Strict")
    why = 'strict decoding error: unknown field "spec.containerz"'
    assert answer.refusal == (400, "BadRequest", f'Pod in version "v1" cannot be handled as a Pod: {why}')
    assert raw.names("pods") == set()


def test_post_with_an_unknown_field_and_no_validation_is_taken_silently(raw: Raw) -> None:
    answer = raw.post("pods", pod("a", spec={"containerz": []}), fieldValidation="Ignore")
    assert (answer.status, answer.warnings) == (201, ())


def test_a_field_validation_that_does_not_exist_is_422(raw: Raw) -> None:
    answer = raw.post("pods", pod("a"), fieldValidation="Perhaps")
    assert answer.status == 422
    assert answer.causes == [("fieldValidation", "FieldValueNotSupported")]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (pod("a", labels={"x": 1}), "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type"),
        (pod("a") | {"kind": "Node"}, "cannot be handled as a Pod: converting (v1.Node) to (core.Pod)"),
        (pod("a") | {"apiVersion": "v2"}, 'no kind "Pod" is registered for version "v2"'),
        (pod("a", namespace="another"), "the namespace of the provided object does not match the namespace sent"),
    ],
)
def test_post_what_is_no_pod_is_400(raw: Raw, body: dict[str, Any], words: str) -> None:
    answer = raw.post("pods", body)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert words in answer.body["message"]


def test_post_into_an_unknown_namespace_is_404_of_kind_namespaces(raw: Raw) -> None:
    answer = raw.post("/api/v1/namespaces/nowhere/pods", pod("a"))
    assert answer.refusal == (404, "NotFound", 'namespaces "nowhere" not found')
    assert answer.body["details"] == {"name": "nowhere", "kind": "namespaces"}


def test_post_with_a_generated_name_gets_five_characters_more(raw: Raw) -> None:
    first, second = (raw.made("pods", pod("", generateName="gen-"))["metadata"] for _ in range(2))
    assert re.fullmatch("gen-[a-z0-9]{5}", first["name"])
    assert first["name"] != second["name"]
    assert first["generateName"] == "gen-"


def test_post_with_a_bad_generated_name_names_both_fields(raw: Raw) -> None:
    answer = raw.post("pods", pod("", generateName="Gen_"))
    assert [field for field, _ in answer.causes] == ["metadata.generateName", "metadata.name"]


def test_post_with_a_version_is_refused(raw: Raw) -> None:
    answer = raw.post("pods", pod("a", resourceVersion="1"))
    assert answer.refusal == (500, "", "resourceVersion should not be set on objects to be created")


def test_what_the_server_itself_sets_cannot_be_posted(raw: Raw) -> None:
    made = raw.made(
        "pods", pod("a", uid="mine", creationTimestamp="2020-01-01T00:00:00Z") | {"status": {"phase": "Failed"}}
    )
    assert made["metadata"]["uid"] != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("2020-")
    assert made["status"]["phase"] == "Pending"


def test_owners_annotations_and_labels_are_kept(raw: Raw) -> None:
    owner = raw.made("pods", pod("driver"))["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": owner["uid"], "controller": True}
    raw.made("pods", pod("a", ownerReferences=[reference], annotations={COST: "-5"}, labels={"executor-pods/x": "Y_1"}))
    kept = raw.get("pods/a").body["metadata"]
    assert kept["ownerReferences"] == [reference]
    assert kept["annotations"] == {COST: "-5"}
    assert kept["labels"] == {"executor-pods/x": "Y_1"}


# ── PUT ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_put_replaces_labels(raw: Raw) -> None:
    made = raw.made("pods", pod("a", labels={"x": "1", "y": "1"}))
    answer = raw.put("pods/a", made | {"metadata": made["metadata"] | {"labels": {"x": "2"}}})
    assert (answer.status, answer.body["metadata"]["labels"]) == (200, {"x": "2"})
    assert int(answer.body["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_put_of_the_same_changes_no_version(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    assert raw.put("pods/a", made).body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_put_with_a_stale_version_is_409_and_without_one_is_not(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    raw.patch("pods/a", {"metadata": {"labels": {"x": "y"}}})
    stale = raw.put("pods/a", made)
    assert stale.refusal == (409, "Conflict", f'Operation cannot be fulfilled on pods "a": {MODIFIED}')
    assert raw.put("pods/a", without_version(made)).status == 200


def test_put_of_another_uid_is_409(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    answer = raw.put("pods/a", without_version(made, uid="other"))
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: other, UID in object meta: " in answer.body["message"]


def test_put_of_another_name_is_400_and_of_none_that_is_there_404(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    other = raw.put("pods/a", without_version(made, name="b"))
    words = "the name of the object (b) does not match the name on the URL (a)"
    assert other.refusal == (400, "BadRequest", words)
    assert raw.put("pods/b", without_version(made, name="b")).status == 404


def test_put_may_change_an_image_but_not_the_restart_policy(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    container = made["spec"]["containers"][0] | {"image": "worker:2"}
    assert raw.put("pods/a", without_version(made) | {"spec": made["spec"] | {"containers": [container]}}).status == 200
    answer = raw.put("pods/a", without_version(made) | {"spec": made["spec"] | {"restartPolicy": "Never"}})
    assert (answer.status, answer.causes) == (422, [("spec", "FieldValueForbidden")])


# ── /status ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_status_through_the_pods_own_path_is_ignored_and_changes_no_version(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    for answer in (
        raw.patch("pods/a", {"status": {"phase": "Running"}}),
        raw.put("pods/a", made | {"status": {"phase": "Running"}}),
    ):
        assert answer.status == 200
        assert answer.body["status"]["phase"] == "Pending"
        assert answer.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_only_status_changes_through_the_status_path(raw: Raw) -> None:
    made = raw.made("pods", pod("a"))
    changed = {"spec": {"restartPolicy": "Never"}, "status": {"phase": "Running"}}
    assert raw.patch("pods/a/status", changed).status == 200
    assert raw.put("pods/a/status", without_version(made) | changed).status == 200
    found = raw.get("pods/a").body
    assert (found["spec"]["restartPolicy"], found["status"]["phase"]) == ("Always", "Running")
    assert raw.get("pods/a/status").body == found


# ── PATCH ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_patch_with_a_stale_version_is_409_and_without_one_never_conflicts(raw: Raw) -> None:
    version = raw.made("pods", pod("a"))["metadata"]["resourceVersion"]
    assert raw.patch("pods/a", {"metadata": {"labels": {"x": "1"}}}).status == 200
    stale = raw.patch("pods/a", {"metadata": {"resourceVersion": version, "labels": {"x": "2"}}})
    assert stale.refusal == (409, "Conflict", f'Operation cannot be fulfilled on pods "a": {MODIFIED}')
    assert raw.patch("pods/a", {"metadata": {"labels": {"x": "3"}}}).status == 200


def test_a_patch_with_a_version_that_is_none_is_500(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    answer = raw.patch("pods/a", {"metadata": {"resourceVersion": "abc"}})
    assert answer.refusal == (500, "", 'strconv.ParseUint: parsing "abc": invalid syntax')


@pytest.mark.parametrize(
    ("patch", "cause"),
    [
        ({"metadata": {"uid": "other"}}, ("metadata.uid", "FieldValueInvalid")),
        ({"spec": {"restartPolicy": "Never"}}, ("spec", "FieldValueForbidden")),
        ({"metadata": {"labels": {"a b": "c"}}}, ("metadata.labels", "FieldValueInvalid")),
    ],
)
def test_a_patch_of_what_cannot_change_is_422(raw: Raw, patch: dict[str, Any], cause: tuple[str, str]) -> None:
    raw.made("pods", pod("a"))
    answer = raw.patch("pods/a", patch)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert set(answer.causes) == {cause}, "a real server names some twice"


@pytest.mark.parametrize("content_type", [None, STRATEGIC])
def test_a_patch_that_gives_a_field_another_type_is_422(raw: Raw, content_type: str | None) -> None:
    raw.made("pods", pod("a"))
    options = {"content_type": content_type} if content_type else {}
    answer = raw.patch("pods/a", {"metadata": {"labels": {"x": 1}}}, **options)
    assert (answer.status, answer.causes) == (422, [("patch", "FieldValueInvalid")])
    assert raw.get("pods/a").body["metadata"].get("labels") is None


def test_a_patch_with_an_unknown_field_and_strict_validation_is_422(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    answer = raw.patch("pods/a", {"spec": {"sideways": 1}}, fieldValidation="Strict")
    assert (answer.status, answer.causes) == (422, [("patch", "FieldValueInvalid")])
    assert answer.body["message"].endswith('strict decoding error: unknown field "spec.sideways"')
    assert raw.patch("pods/a", {"spec": {"sideways": 1}}).warnings == ('299 - "unknown field \\"spec.sideways\\""',)


def test_a_patch_that_renames_is_400(raw: Raw) -> None:
    raw.made("pods", pod("a"))
    assert raw.patch("pods/a", {"metadata": {"name": "b"}}).status == 400


def test_a_json_patch_adds_and_takes_away_or_is_422(raw: Raw) -> None:
    raw.made("pods", pod("a", labels={"x": "1"}))
    added = raw.patch("pods/a", [{"op": "add", "path": "/metadata/labels/y", "value": "2"}], JSON_PATCH)
    assert added.body["metadata"]["labels"] == {"x": "1", "y": "2"}
    removed = raw.patch("pods/a", [{"op": "remove", "path": "/metadata/labels/x"}], JSON_PATCH)
    assert removed.body["metadata"]["labels"] == {"y": "2"}
    tested = raw.patch("pods/a", [{"op": "test", "path": "/metadata/labels/y", "value": "3"}], JSON_PATCH)
    assert tested.refusal == (422, "Invalid", "the server rejected our request due to an error in our request")


def test_a_strategic_patch_merges_conditions_by_type(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    for kind in ("Ready", "PodScheduled"):
        patch = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        assert raw.patch("pods/a/status", patch, STRATEGIC).status == 200
    conditions = raw.get("pods/a").body["status"]["conditions"]
    assert {condition["type"] for condition in conditions} == {"Ready", "PodScheduled"}


def test_a_patch_of_a_pod_that_is_being_deleted_is_taken_but_adds_no_finalizer(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    raw.delete("pods/a")
    assert raw.patch("pods/a", {"metadata": {"labels": {"x": "y"}}}).status == 200
    answer = raw.patch("pods/a", {"metadata": {"finalizers": ["example.com/keep"]}})
    assert (answer.status, set(answer.causes)) == (422, {("metadata.finalizers", "FieldValueForbidden")})


def test_the_deletion_cost_of_a_running_pod_can_be_set(raw: Raw) -> None:
    raw.made("pods", pod("a", node="n"))
    answer = raw.patch("pods/a", {"metadata": {"annotations": {COST: "7"}}})
    assert (answer.status, answer.body["metadata"]["annotations"]) == (200, {COST: "7"})
