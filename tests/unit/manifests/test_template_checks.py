"""Which templates, patches and settings of a profile are refused before anything is started."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import SettingsError
from actors.manifests.executor_pod import check_template
from actors.pods.ids import pod_name
from actors.settings.model import Settings

TEMPLATE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"team": "blue"}},
    "spec": {"containers": [{"name": "sidecar", "image": "proxy:1"}, {"name": "executor", "image": "worker:1"}]},
}


def check(
    template: object = None, *, driver: str | None = None, profiles: dict[str, Any] | None = None, **executor: Any
) -> None:
    everywhere: Any = {"pod_template": template, **executor}
    check_template(Settings(app_id="app", driver_pod_name=driver, executor=everywhere, profiles=profiles or {}))


def refused(template: object = None, **settings: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        check(template, **settings)
    return str(caught.value)


def changed(**spec: Any) -> dict[str, Any]:
    return {**TEMPLATE, "spec": {**TEMPLATE["spec"], **spec}}


def alone(**container: Any) -> dict[str, Any]:
    """A template with one container."""
    return changed(containers=[{"name": "a", "image": "i", **container}])


# ── templates ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_good_template_and_a_bare_image_are_accepted() -> None:
    check(TEMPLATE)
    check(image="worker:1")


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
        (changed(containers=[{"name": "a", "image": "i"}] * 2), ["'a' appears twice"]),
        (changed(containers=[{"name": "a"}]), ["'a' has no image"]),
        (changed(restartPolicy="Always"), ["restartPolicy is 'Always'", "'Never'"]),
        (alone(restartPolicy="Always"), ["'a' has a restartPolicy", "'Never'"]),
        (alone(restartPolicy="OnFailure"), ["'a' has a restartPolicy", "'Never'"]),
        (alone(restartPolicy="Never", restartPolicyRules=[{"action": "Restart"}]), ["restartPolicyRules", "'a'"]),
        (alone(env={"X": "1"}), ["env of 'a'", "list of mappings"]),
        (alone(env=[{"name": "EXECUTOR_ID", "value": "1"}]), ["'EXECUTOR_ID'", "set by the fleet"]),
        (alone(env=[{"name": "DRIVER_ADDRESS", "value": "x"}]), ["'DRIVER_ADDRESS'"]),
        (alone(volumeMounts={"a": "b"}), ["volumeMounts of 'a'", "list of mappings"]),
        (alone(resources=["cpu"]), ["resources of 'a' must be a mapping of mappings"]),
        (alone(resources={"limits": "1"}), ["resources of 'a' must be a mapping of mappings"]),
        (alone(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}), ["resources of 'a'", "'cpu' = 2", "at most"]),
        (alone(resources={"requests": {"x.com/gpu": 2}}), ["'x.com/gpu' = 2: needs the same in limits"]),
        (alone(resources={"limits": {"hugepages-2Mi": "4Mi"}}), ["'hugepages-2Mi' needs cpu or memory beside it"]),
        (changed(nodeSelector=["x"]), ["spec.nodeSelector must be a mapping"]),
        (changed(volumes={"x": {}}), ["spec.volumes must be a list of mappings"]),
        (changed(tolerations={"x": {}}), ["spec.tolerations must be a list of mappings"]),
        (changed(imagePullSecrets=["x"]), ["spec.imagePullSecrets must be a list of mappings"]),
        (alone(envFrom=["x"]), ["envFrom of 'a' must be a list of mappings"]),
        ({**TEMPLATE, "metadata": {"ownerReferences": ["x"]}}, ["metadata.ownerReferences must be a list of mappings"]),
    ],
)
def test_a_template_that_cannot_work_is_refused_with_its_fault(template: dict[str, Any], words: list[str]) -> None:
    message = refused(template)

    assert "executor.pod_template" in message
    for word in words:
        assert word in message
    assert "\n" not in message


def test_every_fault_has_its_line() -> None:
    faulty = {**changed(restartPolicy="Always", containers=[]), "kind": "Job"}

    assert len(refused(faulty).splitlines()) == 3


def test_the_settings_image_is_enough_for_the_executors_container_but_not_for_others() -> None:
    check(changed(containers=[{"name": "executor"}]), image="i")

    assert "'b' has no image" in refused(changed(containers=[{"name": "executor"}, {"name": "b"}]), image="i")


def test_an_image_must_come_from_somewhere() -> None:
    assert refused() == (
        "executor.image: is not set, and there is no executor.pod_template that names one; "
        "local=True and --local need none"
    )
    check(template_patch={"spec": {"containers": [{"name": "executor", "image": "i"}]}})


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?", fullmatch=True), st.integers(1, 999_999_999))
def test_the_name_of_every_executor_of_an_accepted_app_is_a_dns_label(app_id: str, number: int) -> None:
    made = pod_name(Settings(app_id=app_id).pod_prefix, number)

    assert len(made) <= 63
    assert made[0] != "-"
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


# ── patches ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_template_is_checked_with_its_patch_applied() -> None:
    named = "executor.pod_template with executor.template_patch: "
    patch: dict[str, Any] = {"spec": {"restartPolicy": "Always"}}
    assert refused(TEMPLATE, template_patch=patch).startswith(f"{named}spec.restartPolicy is 'Always'")

    patch = {"spec": {"restartPolicy": None, "containers": [{"name": "sidecar", "$patch": "delete"}]}}
    check(
        changed(restartPolicy="Always", containers=[{"name": "sidecar"}, *TEMPLATE["spec"]["containers"][1:]]),
        template_patch=patch,
    )


def test_a_patch_alone_is_named_alone() -> None:
    assert refused(image="i", template_patch={"metadata": {"labels": {"executor-pods/role": "x"}}}).startswith(
        "executor.template_patch: metadata.labels has 'executor-pods/role'"
    )


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"spec": {"containers": [{"image": "i"}]}}, "does not contain declared merge key: name"),
        ({"spec": {"$patch": "improve"}}, "unknown patch type: improve"),
    ],
)
def test_a_patch_that_cannot_be_merged_is_refused(patch: dict[str, Any], words: str) -> None:
    message = refused(TEMPLATE, template_patch=patch)

    assert message.startswith("executor.pod_template with executor.template_patch: cannot be merged: ")
    assert words in message


# ── profiles ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_fault_of_a_profile_is_reported_with_its_name() -> None:
    profiles = {
        "good": {"image": "i"},
        "job": {"pod_template": {**TEMPLATE, "kind": "Job"}},
        "revived": {"template_patch": {"spec": {"restartPolicy": "Always"}}},
    }

    lines = refused(TEMPLATE, profiles=profiles).splitlines()

    assert lines == [
        "profile 'job': profiles.job.pod_template: kind is 'Job', it must be 'Pod'",
        (
            "profile 'revived': executor.pod_template with profiles.revived.template_patch: "
            "spec.restartPolicy is 'Always', it must be 'Never': an executor that ended is replaced under a new id"
        ),
    ]


def test_a_fault_that_all_profiles_share_is_reported_once() -> None:
    assert len(refused({**TEMPLATE, "kind": "Job"}, profiles={"a": {}, "b": {"instances": 2}}).splitlines()) == 1


def test_each_profile_needs_an_image_from_somewhere() -> None:
    check(profiles={"a": {}, "b": {"pod_template": TEMPLATE, "image": None}}, image="i")

    assert refused(image="i", profiles={"a": {"image": None}}) == (
        "profile 'a': profiles.a.image: is not set, and there is no executor.pod_template that names one; "
        "local=True and --local need none"
    )


def test_resources_of_the_settings_must_fit_those_of_the_template() -> None:
    template = alone(resources={"limits": {"memory": "1Gi"}})
    check(template, profiles={"small": {"resources": {"requests": {"memory": "1Gi"}}}})

    assert refused(template, profiles={"big": {"resources": {"requests": {"memory": "2Gi"}}}}) == (
        "profile 'big': executor.pod_template: resources of 'a': "
        "requests has 'memory' = '2Gi': must be at most what limits has ('1Gi')"
    )


def test_annotations_of_template_and_settings_together_must_fit_into_a_pod() -> None:
    half = 2**17
    template = {**TEMPLATE, "metadata": {"annotations": {"a": "x" * half}}}
    check(template, annotations={"a": "y" * half})

    assert refused(template, annotations={"b": "y" * half}) == (
        "executor.pod_template: metadata.annotations, with those of the settings, "
        "must have at most 262144 bytes together, keys and values; has 262146"
    )


def test_a_claim_must_not_replace_a_volume_of_the_template() -> None:
    template = alone(volumeMounts=[{"name": "cache", "mountPath": "/cache"}])
    template["spec"]["volumes"] = [{"name": "cache", "emptyDir": {}}]
    claims = [{"name": "cache", "mount_path": "/cache", "size": "1Gi"}]

    assert refused(template, profiles={"big": {"claims": claims}}).splitlines() == [
        "profile 'big': profiles.big.claims: executor.pod_template has a volume 'cache' already",
        "profile 'big': profiles.big.claims: executor.pod_template mounts something at '/cache' already",
    ]


def test_an_executor_that_the_drivers_pod_is_to_own_has_no_other_controller() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": True}
    template = {**TEMPLATE, "metadata": {"ownerReferences": [owner]}}

    check(template)
    assert "driver_pod_name" in refused(template, driver="driver")
    check({**TEMPLATE, "metadata": {"ownerReferences": [{**owner, "controller": False}]}}, driver="driver")


def test_a_controller_that_adopts_by_any_label_is_refused() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}

    assert refused({**TEMPLATE, "metadata": {"uid": "v", "ownerReferences": [owner]}}) == (
        "executor.pod_template: metadata.ownerReferences has the DaemonSet 'agent', which deletes every pod with its "
        "labels that it does not want: remove it, and those labels"
    )


@pytest.mark.parametrize("grace", ["30", True, -1, 1.5, 10**14])
def test_a_grace_period_that_is_no_number_of_seconds_is_refused(grace: object) -> None:
    told = refused(changed(terminationGracePeriodSeconds=grace))
    assert told == (
        f"executor.pod_template: spec.terminationGracePeriodSeconds is {grace!r}, "
        "it must be a whole number of seconds from 0 to 31536000"
    )


def test_a_pod_cannot_share_a_process_namespace_of_its_own_and_the_nodes() -> None:
    template = changed(hostPID=True)
    check(template)
    check(template, share_process_namespace=False)
    assert refused(template, share_process_namespace=True) == (
        "executor.share_process_namespace: executor.pod_template has hostPID, which has every process of the node: "
        "set one of them"
    )


# ── drain ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_template_with_a_pre_stop_hook_of_its_own_contradicts_drain_timeout() -> None:
    template = alone(lifecycle={"preStop": {"exec": {"command": ["bye"]}}})
    check(template)
    told = refused(template, drain_timeout="60s")
    assert told.startswith("executor.pod_template: spec.containers: 'a' has a lifecycle.preStop")
    assert "drain_command" in told


def test_a_drain_command_needs_a_drain_timeout_which_a_profile_may_inherit() -> None:
    assert refused(TEMPLATE, drain_command=["bye"]).startswith("executor.drain_command: needs executor.drain_timeout")
    assert "profile 'big': profiles.big.drain_command: needs" in refused(
        TEMPLATE, profiles={"big": {"drain_command": ["bye"]}}
    )
    check(TEMPLATE, drain_timeout="1m", profiles={"big": {"drain_command": ["bye"]}})
