"""The memory of executors that replace those killed for using too much."""

from __future__ import annotations

from typing import Any

import pytest

from actors.errors import SettingsError
from actors.manifests.executor_pod import ExecutorManifests, check_template
from actors.pods.pod import MEMORY_STEP_LABEL, PROFILE_LABEL
from actors.settings.model import Settings

FACTOR = {"factor": 1.5, "max": "16Gi"}


def settings(*, profiles: Any = None, **executor: Any) -> Settings:
    everywhere: Any = {"image": "worker:1", **executor}
    subject = Settings(app_id="app", executor=everywhere, profiles=profiles or {})
    check_template(subject)
    return subject


def memories(subject: Settings, profile: str = "default") -> list[dict[str, dict[str, str]]]:
    """The resources of a profile's executors by memory step."""
    manifests = ExecutorManifests(subject, namespace="default")
    steps = range(manifests.memory_steps(profile) + 1)
    pods = [manifests.pod(1, profile, memory_step=step) for step in steps]
    assert [pod["metadata"]["labels"].get(MEMORY_STEP_LABEL, "0") for pod in pods] == [str(step) for step in steps]
    assert {pod["metadata"]["labels"][PROFILE_LABEL] for pod in pods} == {profile}
    return [pod["spec"]["containers"][0].get("resources", {}) for pod in pods]


def test_memory_grows_by_the_factor_up_to_the_maximum_and_nothing_else_does() -> None:
    both = {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "8Gi"}}
    assert memories(settings(resources=both, on_oom=FACTOR)) == [
        both,
        {"requests": {"cpu": "1", "memory": "6Gi"}, "limits": {"memory": "12Gi"}},
        {"requests": {"cpu": "1", "memory": "9Gi"}, "limits": {"memory": "16Gi"}},
        {"requests": {"cpu": "1", "memory": "13824Mi"}, "limits": {"memory": "16Gi"}},
        {"requests": {"cpu": "1", "memory": "16Gi"}, "limits": {"memory": "16Gi"}},
    ]


def test_memory_is_rounded_up_to_mebibytes_but_not_above_the_maximum() -> None:
    subject = settings(resources={"limits": {"memory": "1G"}}, on_oom={"factor": 1.1, "max": "1150000000"})
    assert [found["limits"]["memory"] for found in memories(subject)] == ["1G", "1050Mi", "1150000000"]


def test_memory_of_the_template_grows_too() -> None:
    container = {"name": "executor", "image": "w", "resources": {"limits": {"memory": "1Gi"}}}
    template = {"spec": {"containers": [container]}}
    found = memories(settings(image=None, pod_template=template, on_oom={"factor": 4, "max": "2Gi"}))
    assert found == [{"limits": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}]


def test_another_profile_gives_its_pod_and_then_what_it_has_itself() -> None:
    large = {"resources": {"limits": {"memory": "8Gi"}}, "node_selector": {"memory": "large"}, "on_oom": FACTOR}
    subject = settings(resources={"limits": {"memory": "1Gi"}}, on_oom={"profile": "large"}, profiles={"large": large})
    assert [found["limits"]["memory"] for found in memories(subject)] == ["1Gi", "8Gi", "12Gi", "16Gi"]
    assert [found["limits"]["memory"] for found in memories(subject, "large")] == ["8Gi", "12Gi", "16Gi"]
    pod = ExecutorManifests(subject, namespace="default").pod(3, "default", memory_step=1)
    assert pod["spec"]["nodeSelector"] == {"memory": "large"}
    assert {"name": "EXECUTOR_PROFILE", "value": "default"} in pod["spec"]["containers"][0]["env"]


def test_a_profile_without_memory_that_inherits_a_factor_is_never_raised() -> None:
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    subject = settings(resources={"limits": {"memory": "1Gi"}}, on_oom=FACTOR, profiles={"gpu": gpu})
    assert memories(subject, "gpu") == [{"limits": {"nvidia.com/gpu": "1"}}]


@pytest.mark.parametrize(
    ("executor", "profiles", "line"),
    [
        (
            {"on_oom": FACTOR},
            {},
            (
                "executor.on_oom.factor: needs a memory request or limit of the executor's container, "
                "in resources or in the template"
            ),
        ),
        (
            {"on_oom": FACTOR, "resources": {"limits": {"memory": "16Gi"}}},
            {},
            "executor.on_oom.max = '16Gi': must be more than the memory of the executor's container ('16Gi')",
        ),
        (
            {"on_oom": {"profile": "big"}},
            {"big": {"claims": [{"name": "data", "mount_path": "/data", "size": "1Gi"}]}},
            "executor.on_oom.profile = 'big': must have the same claims as 'default'",
        ),
    ],
)
def test_a_way_to_more_memory_that_does_not_fit_the_pods_is_refused(executor: Any, profiles: Any, line: str) -> None:
    with pytest.raises(SettingsError) as raised:
        settings(profiles=profiles, **executor)
    assert str(raised.value).splitlines() == [line]
