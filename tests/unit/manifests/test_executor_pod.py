"""The manifests of an executor: its pod and its claims."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kube.strategic_merge import strategic_merge
from actors.manifests.executor_pod import (
    ExecutorManifests,
    check_template,
    controller_reference,
    owner_reference,
)
from actors.pods.api_pod import ApiPod
from actors.pods.ids import LAST_BELIEVED_ID, claim_name, pod_name
from actors.pods.pod import ObjectMeta, OwnerReference, Pod, PodStatus, executor_id
from actors.pods.state import PodRules, executor_container, malformed
from actors.settings.model import Settings

TEMPLATE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"team": "blue"}, "annotations": {"note": "ours"}},
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "containers": [
            {"name": "sidecar", "image": "proxy:1"},
            {
                "name": "executor",
                "image": "worker:1",
                "command": ["work"],
                "args": ["--hard"],
                "env": [{"name": "MODE", "value": "$(EXECUTOR_ID)"}],
            },
        ],
    },
}


CLAIM: dict[str, Any] = {"name": "data", "mount_path": "/data", "size": "10Gi"}
OWNER = owner_reference("driver", "u")


def settings(profile: dict[str, Any] | None = None, *, driver_address: str | None = None, **executor: Any) -> Settings:
    """The settings of a fleet with the profile "big"."""
    everywhere: Any = {"image": "worker:1", "prefix": "prefix", **executor}
    profiles: Any = {"big": profile or {}}
    subject = Settings(app_id="app", driver_address=driver_address, executor=everywhere, profiles=profiles)
    check_template(subject)
    return subject


def made(
    *,
    driver_address: str | None = None,
    owners: tuple[dict[str, Any], ...] = (),
    claims: dict[str, str] | None = None,
    profile: dict[str, Any] | None = None,
    name: str = "big",
    **executor: Any,
) -> dict[str, Any]:
    """The pod of executor 7, of the profile "big"."""
    subject = settings(profile, driver_address=driver_address, **executor)
    return ExecutorManifests(subject, namespace="space", owners=owners).pod(7, name, claims or {})


def claimed(*, owners: tuple[dict[str, Any], ...] = (), reused: tuple[str, ...] = (), **executor: Any) -> list[Any]:
    return ExecutorManifests(settings(**executor), namespace="space", owners=owners).claims(7, "big", reused)


def changed(**spec: Any) -> dict[str, Any]:
    return {**TEMPLATE, "spec": {**TEMPLATE["spec"], **spec}}


def container(pod: dict[str, Any], wanted: str = "executor") -> dict[str, Any]:
    (found,) = (each for each in pod["spec"]["containers"] if each["name"] == wanted)
    assert isinstance(found, dict)
    return found


# ── what is built ────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_template_the_pod_is_the_smallest_that_runs_the_image() -> None:
    assert made(command=["python", "-m", "worker"]) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "prefix-exec-7",
            "namespace": "space",
            "labels": {
                "executor-pods/app-id": "app",
                "executor-pods/role": "executor",
                "executor-pods/executor-id": "7",
                "executor-pods/profile": "big",
                "app.kubernetes.io/managed-by": "executor-pods",
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "executor",
                    "image": "worker:1",
                    "command": ["python", "-m", "worker"],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "env": [
                        {"name": "EXECUTOR_ID", "value": "7"},
                        {"name": "EXECUTOR_APP_ID", "value": "app"},
                        {"name": "EXECUTOR_PROFILE", "value": "big"},
                        {"name": "EXECUTOR_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    ],
                }
            ],
        },
    }


def test_a_built_pod_is_read_back_as_one_of_the_fleets() -> None:
    subject = msgspec.structs.replace(msgspec.convert(made(), ApiPod).pod(), status=PodStatus())
    subject = msgspec.structs.replace(subject, metadata=msgspec.structs.replace(subject.metadata, uid="u"))

    assert malformed(subject) is None
    assert (executor_id(subject), subject.profile, subject.name) == (7, "big", pod_name("prefix", 7))


def test_a_template_keeps_what_is_its_own_and_is_not_changed() -> None:
    before = copy.deepcopy(TEMPLATE)

    pod = made(pod_template=TEMPLATE, image=None)

    assert before == TEMPLATE
    assert pod["metadata"]["labels"]["team"] == "blue"
    assert pod["metadata"]["annotations"] == {"note": "ours"}
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert container(pod, "sidecar") == {"name": "sidecar", "image": "proxy:1"}
    assert (container(pod)["command"], container(pod)["args"]) == (["work"], ["--hard"])


def test_two_pods_of_one_template_share_nothing_that_is_from_the_template() -> None:
    make = ExecutorManifests(settings(pod_template=TEMPLATE), namespace="s").pod
    first, second = make(1, "big"), make(2, "big")
    before = copy.deepcopy(second)
    container(first)["env"].append({"name": "X", "value": "1"})
    container(first)["args"].append("--more")
    first["metadata"]["labels"]["x"] = "1"
    first["spec"]["nodeSelector"]["x"] = "1"

    assert second == before == make(2, "big")


def test_the_fleets_variables_come_first_so_that_the_templates_can_use_them() -> None:
    names = [variable["name"] for variable in container(made(pod_template=TEMPLATE))["env"]]

    assert names.index("EXECUTOR_ID") < names.index("MODE")


def test_image_and_command_of_the_settings_go_to_the_executors_container_only() -> None:
    pod = made(pod_template=TEMPLATE, image="other:2", command=["run", "it"])

    assert container(pod)["image"] == "other:2"
    assert container(pod)["command"] == ["run", "it"]
    assert "args" not in container(pod), "they were the other command's"
    assert container(pod, "sidecar") == {"name": "sidecar", "image": "proxy:1"}


def test_the_executors_container_is_the_first_if_none_has_its_name() -> None:
    pod = made(pod_template=TEMPLATE, container="worker", image="other:2")

    assert container(pod, "sidecar")["image"] == "other:2"
    assert container(pod)["image"] == "worker:1"


def test_the_drivers_address_is_in_the_environment_when_it_is_set() -> None:
    assert {"name": "DRIVER_ADDRESS", "value": "10.0.0.1:7077"} in container(made(driver_address="10.0.0.1:7077"))[
        "env"
    ]
    assert "DRIVER_ADDRESS" not in {variable["name"] for variable in container(made())["env"]}


def test_the_owner_is_added_to_the_templates_owners() -> None:
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "v"}

    assert made(owners=(OWNER,))["metadata"]["ownerReferences"] == [OWNER]
    owned = {**TEMPLATE, "metadata": {"ownerReferences": [theirs]}}
    assert made(pod_template=owned, owners=(OWNER,))["metadata"]["ownerReferences"] == [theirs, OWNER]
    assert "ownerReferences" not in made()["metadata"]


def test_a_templates_own_termination_message_policy_stays() -> None:
    template = changed(containers=[{"name": "executor", "image": "i", "terminationMessagePolicy": "File"}])

    assert container(made(pod_template=template))["terminationMessagePolicy"] == "File"


def test_a_template_that_was_read_from_a_cluster_makes_a_new_pod() -> None:
    template = {
        **TEMPLATE,
        "metadata": {
            "name": "old",
            "generateName": "old-",
            "namespace": "elsewhere",
            "uid": "u",
            "resourceVersion": "12",
            "creationTimestamp": "2024-01-01T00:00:00Z",
            "managedFields": [],
        },
        "status": {"phase": "Running"},
    }

    pod = made(pod_template=template)

    assert set(pod["metadata"]) == {"name", "namespace", "labels"}
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("prefix-exec-7", "space")
    assert "status" not in pod


def test_a_template_of_a_controllers_pod_makes_a_pod_that_the_controller_does_not_adopt() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "v", "controller": True}
    labels = {"app": "web", "pod-template-hash": "64c9", "controller-revision-hash": "x", "job-name": "web"}
    metadata = {"name": "web-1", "uid": "u", "labels": labels, "ownerReferences": [owner]}
    template = {**changed(nodeName="node-7"), "metadata": metadata}

    pod = made(pod_template=template)

    assert "ownerReferences" not in pod["metadata"]
    assert {key: value for key, value in pod["metadata"]["labels"].items() if "executor-pods" not in key + value} == {
        "app": "web"
    }
    assert "nodeName" not in pod["spec"]


def test_a_template_that_a_person_wrote_keeps_its_owner_and_node() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "v"}

    pod = made(pod_template={**changed(nodeName="node-7"), "metadata": {"ownerReferences": [owner]}})

    assert pod["metadata"]["ownerReferences"] == [owner]
    assert pod["spec"]["nodeName"] == "node-7"


def test_parts_of_a_template_that_are_null_are_as_if_left_out() -> None:
    template = {
        "metadata": {"labels": None, "annotations": None},
        "spec": {"containers": [{"name": "executor", "image": "i", "env": None}]},
    }

    assert made(pod_template=template)["metadata"]["labels"]["executor-pods/executor-id"] == "7"


def test_an_owner_is_the_controller_and_does_not_block_its_own_deletion() -> None:
    assert owner_reference("etl-driver", "f00") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "etl-driver",
        "uid": "f00",
        "controller": True,
        "blockOwnerDeletion": False,
    }


SET = OwnerReference(kind="ReplicaSet", name="etl-driver-7f", uid="b4", api_version="apps/v1", controller=True)


def owned(*owners: OwnerReference) -> Pod:
    return Pod(ObjectMeta(name="etl-driver-7f-x", uid="f00", owner_references=owners or None))


def test_what_controls_the_drivers_pod_is_an_owner_that_does_not_control_executors() -> None:
    config = OwnerReference(kind="ConfigMap", name="etl", uid="c", api_version="v1")
    assert controller_reference(owned(config, SET)) == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "etl-driver-7f",
        "uid": "b4",
        "controller": False,
        "blockOwnerDeletion": False,
    }
    assert controller_reference(owned(config)) is None
    assert controller_reference(owned()) is None


def test_the_owner_that_lasts_longest_is_the_last_one() -> None:
    beside = controller_reference(owned(SET))
    assert beside is not None
    manifests = ExecutorManifests(settings(), namespace="space", owners=(OWNER, beside))
    assert manifests.owner_uid == "b4"
    assert manifests.pod(7, "big")["metadata"]["ownerReferences"] == [OWNER, beside]
    assert ExecutorManifests(settings(), namespace="space").owner_uid is None


# ── settings over the template ───────────────────────────────────────────────────────────────────────────────────


def test_variables_of_the_settings_override_the_templates_by_name_and_follow_the_fleets() -> None:
    theirs = [{"name": "A", "value": "a"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "b"}}}]
    template = changed(containers=[{"name": "executor", "image": "i", "env": theirs}])
    env = {
        "C": {"config_map": "site", "key": "c", "optional": True},
        "B": "b",
        "D": {"secret": "db", "key": "d"},
        "E": "$(A)",
    }

    variables = container(made(pod_template=template, env=env))["env"]

    assert [each["name"] for each in variables[:2]] == ["EXECUTOR_ID", "EXECUTOR_APP_ID"]
    assert variables[-5:] == [
        {"name": "A", "value": "a"},
        {"name": "B", "value": "b"},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "site", "key": "c", "optional": True}}},
        {"name": "D", "valueFrom": {"secretKeyRef": {"name": "db", "key": "d"}}},
        {"name": "E", "value": "$(A)"},
    ]


def test_sources_of_variables_follow_the_templates_so_that_they_override_those() -> None:
    template = changed(containers=[{"name": "executor", "image": "i", "envFrom": [{"secretRef": {"name": "old"}}]}])
    env_from = [{"config_map": "site", "optional": True}, {"secret": "db", "prefix": "DB_"}]

    assert container(made(pod_template=template, env_from=env_from))["envFrom"] == [
        {"secretRef": {"name": "old"}},
        {"configMapRef": {"name": "site", "optional": True}},
        {"prefix": "DB_", "secretRef": {"name": "db"}},
    ]


def test_arguments_go_with_the_templates_command_or_the_settings() -> None:
    assert container(made(pod_template=TEMPLATE, args=["--soft"])) | {"env": []} == {
        "name": "executor",
        "image": "worker:1",
        "command": ["work"],
        "args": ["--soft"],
        "env": [],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    both = container(made(pod_template=TEMPLATE, command=["run"], args=["it"], working_dir="/app"))
    assert (both["command"], both["args"], both["workingDir"]) == (["run"], ["it"], "/app")


def test_labels_and_annotations_override_the_templates_key_by_key() -> None:
    template = {**TEMPLATE, "metadata": {"labels": {"team": "blue", "a": "b"}, "annotations": {"note": "x", "c": "d"}}}

    metadata = made(pod_template=template, labels={"team": "red"}, annotations={"note": "y"})["metadata"]

    assert {key: value for key, value in metadata["labels"].items() if "/" not in key} == {"team": "red", "a": "b"}
    assert metadata["annotations"] == {"note": "y", "c": "d"}


def test_tolerations_and_pull_secrets_are_added_to_the_templates_once() -> None:
    theirs = {"key": "spot", "operator": "Exists"}
    template = changed(tolerations=[theirs], imagePullSecrets=[{"name": "a"}])
    drained = {"key": "b", "value": "c", "effect": "NoExecute", "tolerationSeconds": 5}

    spec = made(pod_template=template, tolerations=[theirs, drained], image_pull_secrets=["b", "a"])["spec"]

    assert spec["tolerations"] == [theirs, drained]
    assert spec["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_an_account_and_a_priority_class_replace_all_that_the_template_says_of_them() -> None:
    template = changed(
        serviceAccount="old",
        serviceAccountName="old",
        priorityClassName="low",
        priority=5,
        preemptionPolicy="Never",
    )

    spec = made(pod_template=template, service_account="worker", priority_class="high")["spec"]

    decided = ("serviceAccount", "serviceAccountName", "priorityClassName", "priority", "preemptionPolicy")
    assert {name: spec.get(name) for name in decided if name in spec} == {
        "serviceAccountName": "worker",
        "priorityClassName": "high",
    }


def test_settings_that_are_not_given_leave_the_template_as_it_is() -> None:
    bare = made()
    assert set(bare["spec"]) == {"restartPolicy", "containers"}
    emptied = made(profile={"env": {}, "labels": {}, "annotations": {}, "args": []}, pod_template=TEMPLATE)
    assert (container(emptied)["args"], emptied["metadata"]["annotations"]) == ([], {"note": "ours"})


# ── profiles, patches, resources ─────────────────────────────────────────────────────────────────────────────────


def test_each_profile_has_its_own_shape() -> None:
    profile = {"image": "worker:2", "node_selector": {"disk": "hdd"}}

    own, default = (made(profile=profile, name=each, node_selector={"arch": "arm"}) for each in ("big", "default"))

    assert (container(own)["image"], own["spec"]["nodeSelector"]) == ("worker:2", {"disk": "hdd"})
    assert (container(default)["image"], default["spec"]["nodeSelector"]) == ("worker:1", {"arch": "arm"})
    assert [pod["metadata"]["labels"]["executor-pods/profile"] for pod in (own, default)] == ["big", "default"]


def test_a_patch_merges_what_has_one_name_and_replaces_other_lists() -> None:
    template = changed(
        tolerations=[{"key": "old"}],
        volumes=[{"name": "cache", "emptyDir": {}}],
    )
    patch = {
        "metadata": {"labels": {"tier": "one"}},
        "spec": {
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "more", "emptyDir": {}}],
            "nodeSelector": None,
            "containers": [
                {"name": "executor", "env": [{"name": "MODE", "value": "fast"}, {"name": "LEVEL", "value": "1"}]}
            ],
        },
    }

    pod = made(pod_template=template, image=None, template_patch=patch)

    assert {"team": "blue", "tier": "one"}.items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    volumes = {volume["name"]: volume["emptyDir"] for volume in pod["spec"]["volumes"]}
    assert volumes == {"cache": {"sizeLimit": "1Gi"}, "more": {}}
    assert "nodeSelector" not in pod["spec"]
    assert container(pod)["image"] == "worker:1"
    variables = {each["name"]: each.get("value") for each in container(pod)["env"]}
    assert {"MODE": "fast", "LEVEL": "1", "EXECUTOR_ID": "7"}.items() <= variables.items()


def test_a_patch_without_a_template_is_applied_to_the_bare_pod() -> None:
    patch = {"spec": {"priorityClassName": "low", "containers": [{"name": "executor", "tty": True}]}}

    pod = made(template_patch=patch)

    assert pod["spec"]["priorityClassName"] == "low"
    assert (container(pod)["image"], container(pod)["tty"]) == ("worker:1", True)


def test_the_executors_container_stays_the_first_whatever_a_patch_adds() -> None:
    template = {"spec": {"containers": [{"name": "worker", "image": "worker:1"}]}}
    patch = {"spec": {"containers": [{"name": "proxy", "image": "proxy:1"}]}}

    pod = made(pod_template=template, image="worker:2", template_patch=patch)

    assert container(pod, "worker")["image"] == "worker:2"
    assert container(pod, "proxy")["image"] == "proxy:1"
    assert executor_container(msgspec.convert(pod, ApiPod).pod(), PodRules()) == "worker"


def test_settings_override_the_patch() -> None:
    patch = {
        "spec": {
            "nodeSelector": {"disk": "hdd", "arch": "arm"},
            "containers": [{"name": "executor", "image": "patched:1", "command": ["patched"]}],
        }
    }

    pod = made(template_patch=patch, command=["run"], node_selector={"disk": "ssd"})

    assert (container(pod)["image"], container(pod)["command"]) == ("worker:1", ["run"])
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "arch": "arm"}


def test_resources_override_the_templates_one_by_one() -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    template = changed(containers=[{"name": "executor", "image": "i", "resources": resources}])

    pod = made(pod_template=template, resources={"requests": {"cpu": 2}, "limits": {"nvidia.com/gpu": 1}})

    assert container(pod)["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"memory": "1Gi", "nvidia.com/gpu": "1"},
    }
    assert "resources" not in container(made(pod_template=TEMPLATE)), "nothing is asked for unless someone does"


NAMES = st.sampled_from(["executor", "proxy", "log"])
VARIABLES = st.dictionaries(st.sampled_from(["A", "B", "C"]), st.sampled_from(["1", "2"]), max_size=3)
CONTAINERS = st.dictionaries(NAMES, VARIABLES, max_size=3)


def manifest(containers: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {
        "spec": {
            "containers": [
                {"name": each, "image": "i", "env": [{"name": key, "value": value} for key, value in env.items()]}
                for each, env in containers.items()
            ]
        }
    }


def contents(pod: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {
        each["name"]: {
            variable["name"]: variable["value"] for variable in each["env"] if not variable["name"].startswith("EXEC")
        }
        for each in pod["spec"]["containers"]
    }


@given(CONTAINERS.filter(bool), CONTAINERS)
def test_a_merge_has_all_that_both_have_by_name_and_the_patches_value_where_both_have_one(
    template: dict[str, dict[str, str]], patch: dict[str, dict[str, str]]
) -> None:
    pod = made(pod_template=manifest(template), template_patch=manifest(patch), container="log")

    assert contents(pod) == {each: {**template.get(each, {}), **patch.get(each, {})} for each in {**template, **patch}}
    if "log" not in {**template, **patch}:
        assert pod["spec"]["containers"][0]["name"] == next(iter(template)), "it was the executor's"


@given(CONTAINERS, CONTAINERS)
def test_a_patch_that_is_applied_twice_changes_nothing_more_and_harms_no_input(
    template: dict[str, dict[str, str]], patch: dict[str, dict[str, str]]
) -> None:
    document, change = manifest(template), manifest(patch)
    before = copy.deepcopy((document, change))

    once = strategic_merge(document, change)

    assert strategic_merge(once, change) == once
    assert (document, change) == before


# ── claims ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_claims_are_mounted_into_the_executors_container_only() -> None:
    other = {"name": "model", "mount_path": "/model", "size": "1Gi", "read_only": True, "sub_path": "v1"}
    template = changed(
        volumes=[{"name": "cache", "emptyDir": {}}],
        containers=[
            {"name": "executor", "image": "i", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]},
            {"name": "sidecar", "image": "i"},
        ],
    )

    pod = made(pod_template=template, claims={"data": "own", "model": "shared"}, profile={"claims": [CLAIM, other]})

    assert pod["spec"]["volumes"] == [
        {"name": "cache", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "own"}},
        {"name": "model", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}},
    ]
    assert container(pod)["volumeMounts"] == [
        {"name": "cache", "mountPath": "/cache"},
        {"name": "data", "mountPath": "/data"},
        {"name": "model", "mountPath": "/model", "subPath": "v1", "readOnly": True},
    ]
    assert "volumeMounts" not in container(pod, "sidecar")


def test_a_claim_is_made_with_the_fleets_labels_and_owner() -> None:
    (claim,) = claimed(claims=[{**CLAIM, "storage_class": "fast", "access_modes": ["ReadWriteMany"]}], owners=(OWNER,))

    assert claim == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "prefix-exec-7-pvc-0",
            "namespace": "space",
            "labels": {
                "executor-pods/app-id": "app",
                "executor-pods/role": "executor",
                "executor-pods/profile": "big",
                "executor-pods/claim": "data",
                "app.kubernetes.io/managed-by": "executor-pods",
            },
            "annotations": {"executor-pods/storage-class": "fast"},
            "ownerReferences": [OWNER],
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }


def test_without_a_class_a_claim_leaves_the_choice_to_the_cluster() -> None:
    (default,) = claimed(claims=[CLAIM])
    (none,) = claimed(claims=[{**CLAIM, "storage_class": ""}])

    assert "storageClassName" not in default["spec"]
    assert none["spec"]["storageClassName"] == ""
    assert [claim["metadata"].get("annotations") for claim in (default, none)] == [
        None,
        {"executor-pods/storage-class": ""},
    ]
    assert "ownerReferences" not in default["metadata"]


def test_a_claim_that_has_no_name_yet_is_an_ephemeral_volume_which_the_pod_owns() -> None:
    claim = {**CLAIM, "storage_class": "fast", "read_only": True, "sub_path": "v1"}

    pod = made(profile={"claims": [claim]})

    assert pod["spec"]["volumes"] == [
        {
            "name": "data",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "metadata": {
                        "labels": {
                            "executor-pods/app-id": "app",
                            "executor-pods/role": "executor",
                            "executor-pods/profile": "big",
                            "app.kubernetes.io/managed-by": "executor-pods",
                        }
                    },
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "fast",
                        "resources": {"requests": {"storage": "10Gi"}},
                    },
                }
            },
        }
    ]
    assert container(pod)["volumeMounts"] == [{"name": "data", "mountPath": "/data", "subPath": "v1", "readOnly": True}]


@pytest.mark.parametrize(
    ("claim", "executor_id"),
    [
        (claim_name("prefix", 7, 0), 7),
        (claim_name("prefix", 123456789012345678, 12), 123456789012345678),
        (claim_name("prefix", LAST_BELIEVED_ID, 0), LAST_BELIEVED_ID),
        (claim_name("prefix", LAST_BELIEVED_ID + 1, 0), 0),
        ("prefix-exec-07-pvc-0", 0),
        ("prefix-exec-0-pvc-0", 0),
        (claim_name("prefix", 1234567890123456789, 0), 0),
        (claim_name("pre.ix", 7, 0), 0),
        ("prefix-exec-7", 0),
        ("prefix-exec-7-pvc-0-copy", 0),
    ],
)
def test_the_id_that_a_claim_was_made_for_is_read_from_its_name_if_it_is_ours(claim: str, executor_id: int) -> None:
    assert ExecutorManifests(settings(), namespace="space").claimant(claim) == executor_id


def test_a_prefix_is_no_pattern() -> None:
    subject = settings()
    unchecked = subject.model_copy(update={"executor": subject.executor.model_copy(update={"prefix": "pre.ix"})})
    assert ExecutorManifests(unchecked, namespace="space").claimant(claim_name("prefix", 7, 0)) == 0


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.sets(st.sampled_from("abcdef")))
def test_a_pod_mounts_each_claim_once_be_it_reused_or_made_for_it(names: list[str], free: set[str]) -> None:
    claims = [{"name": each, "mount_path": f"/{each}", "size": "1Gi"} for each in names]
    reused = {each: f"old-{each}" for each in names if each in free}
    new = claimed(claims=claims, reused=tuple(reused))
    own = {claim["metadata"]["labels"]["executor-pods/claim"]: claim["metadata"]["name"] for claim in new}

    pod = made(claims={**reused, **own}, profile={"claims": claims})

    mounted = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["spec"].get("volumes", ())]
    assert mounted == [reused.get(each) or own[each] for each in names]
    assert [claim["metadata"]["name"] for claim in new] == [
        claim_name("prefix", 7, index) for index, each in enumerate(names) if each not in free
    ]


# ── the process namespace ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("template", "setting", "shared"),
    [
        ({}, None, None),
        ({}, True, True),
        ({"shareProcessNamespace": True}, None, True),
        ({"shareProcessNamespace": True}, False, False),
    ],
)
def test_the_containers_of_a_pod_share_a_process_namespace_as_the_setting_says_or_else_the_template(
    template: dict[str, Any], setting: bool | None, shared: bool | None
) -> None:
    given = {**TEMPLATE, "spec": {**TEMPLATE["spec"], **template}}
    fleet = settings({"share_process_namespace": setting} if setting is not None else None, pod_template=given)
    pod = ExecutorManifests(fleet, namespace="ns").pod(1, "big")
    assert pod["spec"].get("shareProcessNamespace") is shared


# ── drain ────────────────────────────────────────────────────────────────────────────────────────────────────────


def drained(template: dict[str, Any], profile: dict[str, Any] | None = None, **executor: Any) -> tuple[Any, Any]:
    """The executor's lifecycle and the pod's grace period."""
    fleet = settings(profile, pod_template=template, **executor)
    pod = ExecutorManifests(fleet, namespace="ns").pod(1, "big")
    (container,) = (each for each in pod["spec"]["containers"] if each["name"] == "executor")
    return container.get("lifecycle"), pod["spec"].get("terminationGracePeriodSeconds")


def test_without_a_drain_timeout_a_pod_does_not_pause() -> None:
    assert drained(TEMPLATE) == (None, None)


def test_a_pod_pauses_for_the_drain_timeout_and_then_has_the_grace_period_of_its_template() -> None:
    hooks, grace = drained(TEMPLATE, drain_timeout="60s")
    assert (hooks["preStop"]["exec"]["command"][-1], grace) == ("60", 90)
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "terminationGracePeriodSeconds": 0}}
    hooks, grace = drained(template, drain_timeout="1500ms")
    assert (hooks["preStop"]["exec"]["command"][-1], grace) == ("2", 2)


def test_with_an_empty_command_the_node_itself_sleeps() -> None:
    hooks, grace = drained(TEMPLATE, drain_timeout="1500ms", drain_command=[])
    assert (hooks, grace) == ({"preStop": {"sleep": {"seconds": 2}}}, 32)


def test_an_executor_learns_of_the_file_that_ends_its_pause_before_its_own_variables() -> None:
    env = made(drain_timeout="60s", env={"MINE": "$(EXECUTOR_DRAINED_FILE)"})["spec"]["containers"][0]["env"]
    assert env[-3:] == [
        {"name": "EXECUTOR_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "EXECUTOR_DRAINED_FILE", "value": "/dev/shm/$(EXECUTOR_POD_UID).drained"},
        {"name": "MINE", "value": "$(EXECUTOR_DRAINED_FILE)"},
    ]


@pytest.mark.parametrize("command", [(), ("bye", "now")])
def test_an_executor_whose_pause_no_file_ends_is_told_of_none(command: tuple[str, ...]) -> None:
    env = made(drain_timeout="60s", drain_command=command)["spec"]["containers"][0]["env"]
    assert not {"EXECUTOR_POD_UID", "EXECUTOR_DRAINED_FILE"} & {each["name"] for each in env}


def test_a_profile_has_its_own_pause_and_keeps_the_post_start_hook() -> None:
    start = {"exec": {"command": ["hello"]}}
    template = strategic_merge(
        TEMPLATE, {"spec": {"containers": [{"name": "executor", "lifecycle": {"postStart": start}}]}}
    )
    hooks, grace = drained(template, {"drain_timeout": "5s", "drain_command": ["bye", "now"]}, drain_timeout="60s")
    assert hooks == {"postStart": start, "preStop": {"exec": {"command": ["bye", "now"]}}}
    assert grace == 35
    assert drained(TEMPLATE, {"drain_timeout": None}, drain_timeout="60s") == (None, None)
