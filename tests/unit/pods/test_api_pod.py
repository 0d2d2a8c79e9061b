"""Which container of a pod the fleet made, by its JSON."""

from __future__ import annotations

from typing import Any

import pytest

from actors.pods.api_pod import made_container
from actors.pods.repair import pod_from

OURS = [{"name": "EXECUTOR_ID", "value": "7"}, {"name": "EXECUTOR_APP_ID", "value": "app"}]
FROM_LABEL = [{"name": "EXECUTOR_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['executor-id']"}}}]


def pod(*containers: Any) -> dict[str, Any]:
    return {"metadata": {"name": "app-exec-7", "uid": "u"}, "spec": {"containers": list(containers)}}


@pytest.mark.parametrize(
    ("containers", "name"),
    [
        ([{"name": "proxy"}, {"name": "worker", "env": OURS}], "worker"),
        ([{"name": "worker", "env": OURS}, {"name": "executor"}], "worker"),
        (
            [{"name": "log", "env": FROM_LABEL}, {"name": "worker", "env": [{"name": "A", "value": "b"}, *OURS]}],
            "worker",
        ),
        ([{"name": "a"}, {"name": "b", "env": [{"name": "HOME", "value": "/"}]}], None),
        ([{"name": "worker", "env": OURS}], None),
        ([{"name": 7, "env": OURS}, {"env": OURS}, "text", {"name": "a", "env": "text"}], None),
    ],
    ids=["behind another", "not the one named executor", "beside one with the label", "none", "the only one", "odd"],
)
def test_the_fleet_made_the_container_that_has_the_id_as_a_value(containers: list[Any], name: str | None) -> None:
    assert made_container(pod(*containers)) == name


@pytest.mark.parametrize("manifest", [None, [], {}, {"spec": None}, {"spec": {"containers": None}}])
def test_what_is_no_pod_with_containers_has_none(manifest: object) -> None:
    assert made_container(manifest) is None


def test_a_pod_from_json_knows_the_container() -> None:
    assert pod_from(pod({"name": "proxy"}, {"name": "worker", "env": OURS})).pod().made_container == "worker"
    assert pod_from(pod({"name": "worker", "env": OURS})).pod().made_container is None
