"""What a pod says of its executor, read from outside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors.inspection.executors import ObservedExecutor, ObservedState, is_executor, observe
from actors.pods.loss import LossKind
from tests.unit.hostile import HOSTILE
from tests.unit.inspection.objects import NOW, RUNNING, at, pod


def seen(manifest: dict[str, Any]) -> ObservedExecutor:
    found = observe(manifest, NOW)
    assert found is not None
    return found


def for_(executor: ObservedExecutor) -> timedelta | None:
    """How long it has been in its state."""
    return NOW - executor.since if executor.since is not None else None


def test_a_running_executor_runs_since_its_container_began() -> None:
    found = seen(pod(3, state=RUNNING, podIP="10.0.0.1", spec={"nodeName": "n"}))
    assert (found.id, found.state, found.why, found.loss) == (3, ObservedState.RUNNING, None, None)
    assert for_(found) == timedelta(seconds=60)
    assert (found.restarts, found.pod.ip, found.alive) == (2, "10.0.0.1", True)


def test_the_executors_container_is_the_one_that_has_our_variables() -> None:
    ended = {"terminated": {"exitCode": 3, "finishedAt": at(5)}}
    beside = {"name": "sidecar", "state": RUNNING}
    found = seen(pod(containerStatuses=[beside, {"name": "main", "state": ended}]))
    assert (found.state, found.loss.exit_code if found.loss is not None else None) == (ObservedState.ENDED, 3)


def test_a_running_executor_says_that_it_is_in_a_crash_loop() -> None:
    found = seen(pod(state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}))
    assert (found.state, found.why) == (ObservedState.RUNNING, "CrashLoopBackOff: main: back-off 40s")


def test_a_pending_executor_is_stuck_if_its_pod_says_why_or_takes_too_long() -> None:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    found = seen(pod(phase="Pending", state=waiting))
    assert (found.state, for_(found), found.why) == (ObservedState.PENDING, timedelta(minutes=2), None)
    slow = seen(pod(phase="Pending", state=waiting, spec={"nodeName": "n"}, metadata={"creationTimestamp": at(400)}))
    assert slow.state is ObservedState.STUCK
    assert slow.why is not None
    assert "not started for 400 s on node n" in slow.why
    image = seen(pod(phase="Pending", state={"waiting": {"reason": "InvalidImageName", "message": "no"}}))
    assert (image.state, image.why) == (
        ObservedState.STUCK,
        "InvalidImageName: main: no; only a new pod can start",
    )
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at(30)}
    unscheduled = seen(pod(phase="Pending", conditions=[condition | {"message": "0/3 nodes"}]))
    assert (for_(unscheduled), unscheduled.why) == (timedelta(seconds=30), "Unschedulable: 0/3 nodes")


def test_a_gated_executor_is_pending_and_says_what_it_waits_for() -> None:
    found = seen(pod(phase="Pending", spec={"schedulingGates": [{"name": "kueue"}]}))
    assert (found.state, found.why) == (ObservedState.PENDING, "waits for the scheduling gate kueue")


@pytest.mark.parametrize(
    ("metadata", "conditions", "why"),
    [
        ({"deletionTimestamp": at(-20), "deletionGracePeriodSeconds": 30}, [], None),
        ({"deletionTimestamp": at(5), "finalizers": ["a/b"]}, [], "held by its finalizers: a/b"),
        ({"deletionTimestamp": at(900)}, [], "its grace period is long over: its node may be lost"),
        (
            {"deletionTimestamp": at(-20)},
            [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for b"}],
            "PreemptionByScheduler: for b",
        ),
    ],
)
def test_a_terminating_executor_says_what_ends_or_holds_it(
    metadata: dict[str, Any], conditions: list[Any], why: str | None
) -> None:
    found = seen(pod(state=RUNNING, metadata=metadata, conditions=conditions))
    assert (found.state, found.why) == (ObservedState.TERMINATING, why)
    if why is None:
        assert for_(found) == timedelta(seconds=10)


def test_an_ended_executor_has_the_loss_that_the_driver_would_report() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": at(50), "finishedAt": at(40)}}
    found = seen(pod(4, phase="Failed", state=ended))
    assert (found.state, found.alive, for_(found)) == (ObservedState.ENDED, False, timedelta(seconds=40))
    assert found.loss is not None
    assert (found.loss.kind, found.loss.exit_code, found.loss.caused_by_app) == (LossKind.OOM_KILLED, 137, True)
    assert found.why == found.loss.message
    assert found.running_at is not None


def test_the_pod_of_an_ended_executor_says_which_finalizers_hold_it() -> None:
    ended = {"terminated": {"exitCode": 143, "finishedAt": at(40)}}
    found = seen(pod(phase="Failed", state=ended, metadata={"deletionTimestamp": at(5), "finalizers": ["a/b"]}))
    assert (found.state, found.alive) == (ObservedState.ENDED, False)
    assert found.loss is not None
    assert found.why == f"{found.loss.message}; its pod is held by its finalizers: a/b"


def test_a_pod_that_is_no_executors_says_so() -> None:
    lacks = pod(metadata={"labels": {"executor-pods/role": "executor", "executor-pods/app-id": "etl"}})
    found = seen(lacks)
    assert (found.id, found.profile) == (None, "default")
    assert found.why is not None
    assert "label executor-pods/executor-id is None" in found.why
    assert is_executor(lacks)
    assert not is_executor(pod(metadata={"labels": None}))
    assert observe(pod(metadata={"uid": ""}), NOW) is None
    assert observe({}, NOW) is None


def test_what_strangers_wrote_is_text() -> None:
    text = HOSTILE
    for found in (
        seen(pod(phase="Pending", state={"waiting": {"reason": "ErrImagePull", "message": text}})),
        seen(pod(phase="Failed", message=text, reason=text)),
        seen(pod(phase=text)),
        seen(pod(metadata={"deletionTimestamp": at(5), "finalizers": [text]})),
        seen(pod(metadata={"labels": {"executor-pods/executor-id": text}})),
    ):
        assert found.why is None or found.why.isprintable()


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [7], "2026-03-01T12:00:00", "9999-12-31T23:59:59Z"])
def test_any_field_may_be_anything(odd: Any) -> None:
    states = [{"name": "main", "state": {"running": {"startedAt": odd}}, "restartCount": odd}]
    for manifest in (
        pod(metadata={"creationTimestamp": odd, "deletionTimestamp": odd, "ownerReferences": odd}),
        pod(state={"terminated": {"finishedAt": odd, "exitCode": odd}}),
        pod(containerStatuses=states, conditions=odd),
        {**pod(), "spec": odd},
        {**pod(), "status": odd},
    ):
        found = seen(manifest)
        assert found.id == 1
