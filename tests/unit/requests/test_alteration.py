"""What an admission step has changed in a pod."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.manifests.executor_pod import ExecutorManifests, owner_reference
from actors.pods.api_pod import ApiPod
from actors.requests.alteration import alteration
from actors.settings import Settings

if TYPE_CHECKING:
    from actors.pods.pod import Pod

SETTINGS = Settings(app_id="app", executor={"image": "worker:1"})
REQUESTED = ExecutorManifests(SETTINGS, namespace="space", owners=(owner_reference("driver", "d"),)).pod(7, "default")


def created(**changes: Any) -> Pod:
    made: dict[str, Any] = copy.deepcopy(REQUESTED)
    made["metadata"]["uid"] = "u"
    for part, values in changes.items():
        made[part].update(values)
    return msgspec.convert(made, ApiPod).pod()


def test_what_was_requested_is_not_altered_nor_by_what_the_fleet_does_not_depend_on() -> None:
    assert alteration(REQUESTED, created()) is None
    labels = {**REQUESTED["metadata"]["labels"], "sidecar": "injected"}
    containers = [*REQUESTED["spec"]["containers"], {"name": "proxy"}]
    assert alteration(REQUESTED, created(metadata={"labels": labels}, spec={"containers": containers})) is None
    assert alteration(REQUESTED, msgspec.structs.replace(created(), spec=None)) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metadata": {"name": "other"}}, "its name is 'other'"),
        ({"metadata": {"labels": None}}, "label executor-pods/app-id is missing"),
        (
            {"metadata": {"labels": {**REQUESTED["metadata"]["labels"], "executor-pods/inactive": "true"}}},
            "label executor-pods/inactive is 'true'",
        ),
        ({"metadata": {"ownerReferences": None}}, "its owners are []"),
        ({"metadata": {"ownerReferences": [{"uid": "x"}, {"uid": "d"}]}}, "its owners are ['d', 'x']"),
        ({"spec": {"restartPolicy": "Always"}}, "its restartPolicy is 'Always'"),
    ],
)
def test_the_first_change_that_matters_is_named(changes: dict[str, Any], expected: str) -> None:
    assert alteration(REQUESTED, created(**changes)) == expected
