"""The cells of `kubectl get`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actors.local.schema.resources import RESOURCES
from actors.local.server.tables import pod_status, table

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(phase: str = "Running", *states: dict[str, Any], **status: Any) -> dict[str, Any]:
    containers = [
        {"name": f"c{number}", "ready": "running" in state, "state": state} for number, state in enumerate(states)
    ]
    return {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": each["name"]} for each in containers]},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }


def cell(obj: dict[str, Any], column: str, resource: str = "pods") -> Any:
    shown = table(RESOURCES[resource], [obj], NOW, metadata={})
    names = [each["name"] for each in shown["columnDefinitions"]]
    return shown["rows"][0]["cells"][names.index(column)]


RUNNING: dict[str, Any] = {"running": {}}
TERMINATING = {"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("shown", "word"),
    [
        (pod("Pending"), "Pending"),
        (pod("Running", RUNNING), "Running"),
        (pod("Pending", {"waiting": {"reason": "ImagePullBackOff"}}), "ImagePullBackOff"),
        (pod("Failed", {"terminated": {"exitCode": 3, "reason": "Error"}}), "Error"),
        (pod("Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "OOMKilled"),
        (pod("Failed", {"terminated": {"exitCode": 3}}), "ExitCode:3"),
        (pod("Failed", {"terminated": {"exitCode": 3, "signal": 9}}), "Signal:9"),
        (pod("Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}}), "Completed"),
        (pod("Running", {"terminated": {"exitCode": 0, "reason": "Completed"}}, RUNNING), "NotReady"),
        (pod("Failed", reason="Evicted"), "Evicted"),
        (pod("Running", RUNNING) | TERMINATING, "Terminating"),
        (pod("Failed", {"terminated": {"reason": "Error"}}) | TERMINATING, "Error"),
        (pod("Running", RUNNING, reason="NodeLost") | TERMINATING, "Unknown"),
        (pod("Pending", conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}]), "SchedulingGated"),
        (pod("Pending", initContainerStatuses=[{"state": RUNNING}, {"state": {}}]), "Init:0/2"),
        (
            pod("Failed", initContainerStatuses=[{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]),
            "Init:Error",
        ),
        (
            pod("Pending", initContainerStatuses=[{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]),
            "Init:CrashLoopBackOff",
        ),
    ],
)
def test_a_pods_status_is_its_phase_or_a_more_telling_reason(shown: dict[str, Any], word: str) -> None:
    assert pod_status(shown) == word


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=0), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(seconds=125), "2m5s"),
        (timedelta(minutes=5), "5m"),
        (timedelta(minutes=179), "179m"),
        (timedelta(hours=3, minutes=7), "3h7m"),
        (timedelta(hours=47), "47h"),
        (timedelta(days=2, hours=3), "2d3h"),
        (timedelta(days=400), "400d"),
        (timedelta(days=800), "2y70d"),
        (timedelta(days=9 * 365), "9y"),
        (timedelta(hours=-1), "<invalid>"),
    ],
)
def test_an_age_has_the_units_that_matter(age: timedelta, text: str) -> None:
    shown = pod()
    shown["metadata"]["creationTimestamp"] = (NOW - age).isoformat()
    assert cell(shown, "Age") == text


def test_restarts_say_when_the_last_was() -> None:
    shown = pod("Running", RUNNING)
    container = shown["status"]["containerStatuses"][0]
    container |= {"restartCount": 3, "lastState": {"terminated": {"finishedAt": "2025-12-31T23:58:30Z"}}}
    assert cell(shown, "Restarts") == "3 (90s ago)"
    assert cell(pod("Running", RUNNING), "Restarts") == "0"


def test_ready_counts_containers() -> None:
    assert cell(pod("Running", RUNNING, {"waiting": {}}), "Ready") == "1/2"


def test_readiness_gates_count_true_conditions() -> None:
    shown = pod(conditions=[{"type": "x", "status": "True"}, {"type": "y", "status": "False"}])
    shown["spec"]["readinessGates"] = [{"conditionType": "x"}, {"conditionType": "y"}]
    assert cell(shown, "Readiness Gates") == "1/2"


def test_a_node_and_an_event_have_columns_of_their_own() -> None:
    node = {
        "metadata": {"name": "local", "labels": {"node-role.kubernetes.io/control-plane": ""}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert cell(node, "Status", "nodes") == "Ready,SchedulingDisabled"
    assert cell(node, "Roles", "nodes") == "control-plane"
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "a"},
        "lastTimestamp": "2025-12-31T23:59:00Z",
    }
    assert cell(event, "Object", "events") == "pod/a"
    assert cell(event, "Last Seen", "events") == "60s"
