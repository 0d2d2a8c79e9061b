"""The manifest of an executor's pod, and what is refused before there is one."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import SettingsError
from actors.executor_pod import LONGEST_ID, build, check_template, name
from actors.pods import Pod, PodStatus, executor_id, malformed

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


def made(**changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "app_id": "app",
        "prefix": "prefix",
        "namespace": "space",
        "template": None,
        "image": "worker:1",
        "command": None,
        "container": "executor",
        "driver_address": None,
        "owner": None,
    }
    return build(7, "big", **{**arguments, **changes})


def refused(template: object, *, prefix: str = "app", container: str = "executor", image: str | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        check_template(template, prefix=prefix, container=container, image=image)  # type: ignore[arg-type]  # a user's
    return str(caught.value)


def changed(**spec: Any) -> dict[str, Any]:
    return {**TEMPLATE, "spec": {**TEMPLATE["spec"], **spec}}


def container(pod: dict[str, Any], wanted: str = "executor") -> dict[str, Any]:
    (found,) = (each for each in pod["spec"]["containers"] if each["name"] == wanted)
    assert isinstance(found, dict)
    return found


# ── what is built ────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_template_the_pod_is_the_least_that_runs_the_image() -> None:
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


def test_what_is_built_is_read_back_as_one_of_the_fleets() -> None:
    subject = msgspec.structs.replace(msgspec.convert(made(), Pod), status=PodStatus())
    subject = msgspec.structs.replace(subject, metadata=msgspec.structs.replace(subject.metadata, uid="u"))

    assert malformed(subject) is None
    assert (executor_id(subject), subject.profile, subject.name) == (7, "big", name("prefix", 7))


def test_a_template_keeps_what_is_its_own_and_is_not_changed() -> None:
    before = copy.deepcopy(TEMPLATE)

    pod = made(template=TEMPLATE, image=None)

    assert before == TEMPLATE
    assert pod["metadata"]["labels"]["team"] == "blue"
    assert pod["metadata"]["annotations"] == {"note": "ours"}
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert container(pod, "sidecar") == {"name": "sidecar", "image": "proxy:1"}
    assert (container(pod)["command"], container(pod)["args"]) == (["work"], ["--hard"])


def test_two_pods_of_one_template_share_nothing() -> None:
    first, second = made(template=TEMPLATE), made(template=TEMPLATE)
    container(first)["env"].append({"name": "X", "value": "1"})
    first["metadata"]["labels"]["x"] = "1"

    assert second == made(template=TEMPLATE)


def test_the_fleets_variables_come_first_so_that_the_templates_can_use_them() -> None:
    names = [variable["name"] for variable in container(made(template=TEMPLATE))["env"]]

    assert names.index("EXECUTOR_ID") < names.index("MODE")


def test_image_and_command_of_the_settings_go_to_the_executors_container_only() -> None:
    pod = made(template=TEMPLATE, image="other:2", command=["run", "it"])

    assert container(pod)["image"] == "other:2"
    assert container(pod)["command"] == ["run", "it"]
    assert "args" not in container(pod), "they were the other command's"
    assert container(pod, "sidecar") == {"name": "sidecar", "image": "proxy:1"}


def test_the_executors_container_is_the_first_if_none_has_its_name() -> None:
    pod = made(template=TEMPLATE, container="worker", image="other:2")

    assert container(pod, "sidecar")["image"] == "other:2"
    assert container(pod)["image"] == "worker:1"


def test_the_drivers_address_is_in_the_environment_when_it_is_set() -> None:
    assert {"name": "DRIVER_ADDRESS", "value": "10.0.0.1:7077"} in container(made(driver_address="10.0.0.1:7077"))[
        "env"
    ]
    assert "DRIVER_ADDRESS" not in {variable["name"] for variable in container(made())["env"]}


def test_the_owner_is_added_to_the_templates_owners() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "u", "controller": True}
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "v"}

    assert made(owner=owner)["metadata"]["ownerReferences"] == [owner]
    owned = {**TEMPLATE, "metadata": {"ownerReferences": [theirs]}}
    assert made(template=owned, owner=owner)["metadata"]["ownerReferences"] == [theirs, owner]
    assert "ownerReferences" not in made()["metadata"]


def test_a_templates_own_termination_message_policy_stays() -> None:
    template = changed(containers=[{"name": "executor", "image": "i", "terminationMessagePolicy": "File"}])

    assert container(made(template=template))["terminationMessagePolicy"] == "File"


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

    pod = made(template=template)

    assert set(pod["metadata"]) == {"name", "namespace", "labels"}
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("prefix-exec-7", "space")
    assert "status" not in pod


def test_parts_of_a_template_that_are_null_are_as_if_left_out() -> None:
    template = {
        "metadata": {"labels": None, "annotations": None},
        "spec": {"containers": [{"name": "executor", "image": "i", "env": None}]},
    }
    check_template(template, prefix="app", container="executor", image=None)

    assert made(template=template)["metadata"]["labels"]["executor-pods/executor-id"] == "7"


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_good_template_and_a_bare_image_are_accepted() -> None:
    check_template(TEMPLATE, prefix="app", container="executor", image=None)
    check_template(None, prefix="app", container="executor", image="worker:1")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({**TEMPLATE, "kind": "Deployment"}, ["kind is 'Deployment'", "'Pod'"]),
        ({**TEMPLATE, "apiVersion": "v2"}, ["apiVersion is 'v2'", "'v1'"]),
        ({**TEMPLATE, "metadata": ["x"]}, ["metadata must be a mapping"]),
        ({**TEMPLATE, "metadata": {"labels": ["x"]}}, ["metadata.labels must be a mapping"]),
        ({**TEMPLATE, "metadata": {"annotations": "x"}}, ["metadata.annotations must be a mapping"]),
        ({**TEMPLATE, "metadata": {"labels": {"n": 1}}}, ["metadata.labels has 'n': 1", "must be text"]),
        (
            {**TEMPLATE, "metadata": {"labels": {"executor-pods/role": "x"}}},
            ["'executor-pods/role'", "set by the fleet"],
        ),
        ({**TEMPLATE, "metadata": {"labels": {"executor-pods/new": "x"}}}, ["'executor-pods/new'"]),
        ({**TEMPLATE, "spec": ["x"]}, ["spec must be a mapping"]),
        ({"apiVersion": "v1", "kind": "Pod"}, ["spec.containers", "at least one container"]),
        (changed(containers=[]), ["spec.containers", "at least one container"]),
        (changed(containers={}), ["spec.containers", "at least one container"]),
        (changed(containers=["x"]), ["each must be a mapping with a name"]),
        (changed(containers=[{"image": "i"}]), ["each must be a mapping with a name"]),
        (changed(containers=[{"name": "a", "image": "i"}] * 2), ["'a' stands twice"]),
        (changed(containers=[{"name": "a"}]), ["'a' has no image"]),
        (changed(restartPolicy="Always"), ["restartPolicy is 'Always'", "'Never'"]),
        (changed(containers=[{"name": "a", "image": "i", "env": {"X": "1"}}]), ["env of 'a'", "list of mappings"]),
        (
            changed(containers=[{"name": "a", "image": "i", "env": [{"name": "EXECUTOR_ID", "value": "1"}]}]),
            ["'EXECUTOR_ID'", "set by the fleet"],
        ),
        (
            changed(containers=[{"name": "a", "image": "i", "env": [{"name": "DRIVER_ADDRESS", "value": "x"}]}]),
            ["'DRIVER_ADDRESS'"],
        ),
    ],
)
def test_a_template_that_no_executor_can_be_made_from_is_refused_with_its_fault(
    template: dict[str, Any], words: list[str]
) -> None:
    message = refused(template)

    assert "executor.pod_template" in message
    for word in words:
        assert word in message
    assert "\n" not in message


def test_every_fault_has_its_line() -> None:
    faulty = {**changed(restartPolicy="Always", containers=[]), "kind": "Job"}

    assert len(refused(faulty, prefix="NO").splitlines()) == 4


def test_the_settings_image_is_enough_for_the_executors_container_but_not_for_others() -> None:
    check_template(changed(containers=[{"name": "executor"}]), prefix="app", container="executor", image="i")

    assert "'b' has no image" in refused(changed(containers=[{"name": "executor"}, {"name": "b"}]), image="i")


def test_an_image_must_come_from_somewhere() -> None:
    assert "executor.image" in refused(None)


@pytest.mark.parametrize("prefix", ["App", "a_b", "-a", "a.b", "", "ä", "a b", "x" * 49, "a\n"])
def test_a_prefix_that_makes_no_dns_label_with_an_id_is_refused(prefix: str) -> None:
    message = refused(TEMPLATE, prefix=prefix)

    assert "DNS label" in message
    assert repr(name(prefix, 1)) in message


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,47})?", fullmatch=True), st.integers(1, LONGEST_ID))
def test_the_name_of_every_executor_of_an_accepted_prefix_is_a_dns_label(prefix: str, number: int) -> None:
    check_template(None, prefix=prefix, container="executor", image="i")

    made_name = name(prefix, number)
    assert len(made_name) <= 63
    assert made_name[0] != "-"
    assert set(made_name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
