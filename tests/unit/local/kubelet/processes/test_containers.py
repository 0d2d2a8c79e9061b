"""The translation of a container into a process."""

from __future__ import annotations

from typing import Any

import pytest

from actors.local.kubelet.processes.containers import NO_IMAGE, argv, expand, ignored, unsupported


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1y2z"),
        ("$(NOBODY)", "$(NOBODY)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A $ $(A", "$A $ $(A"),
        ("cost: 5$", "cost: 5$"),
        ("$(A)$(A)", "11"),
        ("", ""),
    ],
)
def test_references_to_variables_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expanded


def test_command_and_args_make_the_argument_vector() -> None:
    container = {"command": ["run", "$(A)"], "args": ["--b", "$(B)"]}
    assert argv(container, {"A": "1", "B": "2"}) == ["run", "1", "--b", "2"]


def test_without_a_command_the_built_in_executor_gets_the_args() -> None:
    *_, program, argument = argv({"args": ["x"]}, {})
    assert program.endswith("executor.py")
    assert argument == "x"


def test_only_mounts_other_than_a_service_account_are_listed_as_ignored() -> None:
    def pod(path: str) -> dict[str, Any]:
        mounts = [{"name": "v", "mountPath": path}]
        return {"spec": {"containers": [{"name": "a", "image": NO_IMAGE, "volumeMounts": mounts}]}}

    assert ignored(pod("/var/run/secrets/kubernetes.io/serviceaccount")) == []
    assert ignored(pod("/data")) == ["volumeMounts"]


def test_init_containers_are_supported_with_no_restart_policy_but_that_of_a_sidecar() -> None:
    def pod(policy: str | None) -> dict[str, Any]:
        return {"spec": {"initContainers": [{"name": "a", "restartPolicy": policy}], "containers": []}}

    assert unsupported(pod(None)) is None
    assert unsupported(pod("Always")) is None
    assert "init container a has the restartPolicy OnFailure" in str(unsupported(pod("OnFailure")))
