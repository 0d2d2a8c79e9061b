"""Why a pod is stuck."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from actors.pods.pod import ContainerState, ContainerStatus, Pod, PodStatus, TerminatedState
from actors.pods.stuck import (
    Outlook,
    StuckKind,
    crashes_in_place,
    does_not_start,
    never_heals,
    outlook,
    why_gated,
    why_stuck,
)
from tests.unit.views import STARTED, pending, running, unschedulable, waiting

MINUTES = timedelta(minutes=5)


@pytest.mark.parametrize(
    ("reason", "kind", "heals"),
    [
        ("ErrImagePull", StuckKind.IMAGE, True),
        ("ImagePullBackOff", StuckKind.IMAGE, True),
        ("InvalidImageName", StuckKind.IMAGE, False),
        ("ErrImageNeverPull", StuckKind.REFUSED, False),
        ("CreateContainerConfigError", StuckKind.CONFIG, True),
        ("CreateContainerError", StuckKind.CONFIG, True),
        ("RunContainerError", StuckKind.CONFIG, True),
    ],
)
def test_a_waiting_reason_has_a_cause(reason: str, kind: StuckKind, heals: bool) -> None:
    stuck = why_stuck(waiting(1, reason, "the kubelet's message"))
    assert stuck is not None
    assert (stuck.kind, stuck.reason, stuck.heals) == (kind, reason, heals)
    assert stuck.message == "executor: the kubelet's message"


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("InvalidImageName", "", Outlook.NEVER),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", Outlook.NEVER),
        ("CreateContainerConfigError", "container's runAsUser breaks non-root policy", Outlook.NEVER),
        ("CreateContainerConfigError", 'secret "db" not found', Outlook.HEALS),
        ("CreateContainerError", "no command specified", Outlook.NEVER),
        ("CreateContainerError", 'Error response: container name "x" not found', Outlook.HEALS),
        ("RunContainerError", "context deadline exceeded", Outlook.HEALS),
        ("ErrImagePull", "x: not found", Outlook.REFUSED),
        ("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: denied: requested access', Outlook.REFUSED),
        ("ErrImagePull", "requested access to the resource is denied", Outlook.REFUSED),
        ("ErrImagePull", "no basic auth credentials", Outlook.REFUSED),
        ("ErrImagePull", "unexpected status: 403 Forbidden", Outlook.REFUSED),
        ("ErrImagePull", 'failed to resolve image "worker:404": dial tcp: i/o timeout', Outlook.HEALS),
        ("ErrImagePull", "dial tcp: lookup registry.example: no such host", Outlook.HEALS),
        ("ErrImagePull", "toomanyrequests: You have reached your unauthenticated pull rate limit", Outlook.HEALS),
        ("ErrImageNeverPull", "", Outlook.REFUSED),
        ("SignatureValidationFailed", "", Outlook.REFUSED),
        ("ImageInspectError", "", Outlook.HEALS),
        ("CrashLoopBackOff", "not found", Outlook.HEALS),
        ("Unschedulable", "0/3 nodes are available", Outlook.HEALS),
    ],
)
def test_the_words_of_the_api_tell_what_waiting_may_help(reason: str, message: str, expected: Outlook) -> None:
    assert outlook(reason, message) is expected


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_a_pod_that_is_starting_is_not_stuck(reason: str) -> None:
    assert why_stuck(waiting(1, reason)) is None
    assert why_stuck(pending(1)) is None
    assert why_stuck(running(1)) is None


@pytest.mark.parametrize(("init", "kind"), [(True, StuckKind.INIT), (False, StuckKind.CRASHING)])
def test_a_crash_loop_is_that_of_an_init_container_or_of_a_restarted_one(init: bool, kind: StuckKind) -> None:
    stuck = why_stuck(waiting(1, "CrashLoopBackOff", "back-off 40s", init=init))
    assert stuck is not None
    assert (stuck.kind, stuck.heals) == (kind, True)
    assert crashes_in_place(waiting(1, "CrashLoopBackOff", init=init))
    assert not crashes_in_place(waiting(1, "ImagePullBackOff", init=init))
    assert not crashes_in_place(running(1))


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize(("restarts", "code", "crashes"), [(2, 3, True), (1, 3, False), (2, 0, False)])
def test_a_sidecar_that_ended_once_more_is_in_a_crash_loop_though_its_kubelet_does_not_say_so(
    phase: str, restarts: int, code: int, *, crashes: bool
) -> None:
    """Kubernetes 1.34 does so in a pod with the restart policy Never."""
    state = ContainerState(terminated=TerminatedState(exit_code=code, reason="Error"))
    status = PodStatus(phase=phase, init_container_statuses=(ContainerStatus("proxy", restarts, state),))
    subject = msgspec.structs.replace(running(1), status=status)
    assert crashes_in_place(subject) is crashes
    stuck = why_stuck(subject)
    words = None if stuck is None else (stuck.kind, stuck.reason, stuck.message)
    told = (StuckKind.INIT, "CrashLoopBackOff", "proxy: ended with exit code 3, restarts: 2")
    assert words == (told if crashes else None)


def test_a_gated_pod_waits_for_its_gate_with_the_words_of_whoever_holds_it() -> None:
    assert why_gated(unschedulable(1, "Scheduling is blocked due to non-empty scheduling gates", gated=True)) == (
        "waits for the scheduling gate example.com/gate"
    )
    assert why_gated(unschedulable(1, "the queue is\nfull", gated=True)) == (
        "waits for the scheduling gate example.com/gate: the queue is\\nfull"
    )
    assert why_gated(unschedulable(1, "0/5 nodes are available")) is None


def test_an_image_of_an_init_container_counts_as_well() -> None:
    stuck = why_stuck(waiting(1, "InvalidImageName", init=True))
    assert stuck is not None
    assert (stuck.kind, stuck.heals, stuck.message) == (StuckKind.IMAGE, False, "executor")


def test_an_unschedulable_pod_is_stuck_since_its_condition_changed() -> None:
    stuck = why_stuck(unschedulable(1, "0/5 nodes are available: 5 Insufficient cpu."))
    assert stuck is not None
    assert (stuck.kind, stuck.reason, stuck.heals) == (StuckKind.UNSCHEDULABLE, "Unschedulable", True)
    assert (stuck.message, stuck.since) == ("0/5 nodes are available: 5 Insufficient cpu.", STARTED)


def test_a_gated_pod_is_not_stuck() -> None:
    assert why_stuck(unschedulable(1, "Scheduling is blocked", gated=True)) is None
    assert does_not_start(unschedulable(1, "Scheduling is blocked", gated=True), MINUTES) is None


def test_a_pod_with_a_node_that_does_not_start_points_to_its_events() -> None:
    stuck = does_not_start(waiting(1, "ContainerCreating"), MINUTES)
    assert stuck is not None
    assert (stuck.kind, stuck.reason, stuck.heals) == (StuckKind.SLOW, "ContainerCreating", True)
    assert stuck.message == "executor: not started for 300 s on node node; the pod's events may have the reason"


def test_a_pod_without_a_container_status_is_reported_as_pending() -> None:
    assert does_not_start(pending(1), MINUTES) is None
    bare = msgspec.structs.replace(waiting(1, "x"), status=PodStatus(phase="Pending"))
    stuck = does_not_start(bare, MINUTES)
    assert stuck is not None
    assert (stuck.reason, stuck.message) == (
        "Pending",
        "not started for 300 s on node node; the pod's events may have the reason",
    )
    empty = msgspec.structs.replace(bare, status=PodStatus(phase="Pending", container_statuses=(ContainerStatus(),)))
    assert why_stuck(empty) is None


def test_a_pod_with_a_reason_of_its_own_is_not_slow() -> None:
    assert does_not_start(waiting(1, "ImagePullBackOff"), MINUTES) is None


@pytest.mark.parametrize(
    ("pod", "never"),
    [
        (waiting(1, "InvalidImageName"), True),
        (waiting(1, "ImagePullBackOff"), False),
        (waiting(1, "ContainerCreating"), False),
        (unschedulable(1, "no node"), False),
        (running(1), False),
    ],
    ids=["a wrong name", "an image that may come", "starting", "no node", "running"],
)
def test_a_pod_never_heals_if_its_reason_cannot_change(pod: Pod, never: bool) -> None:
    assert never_heals(pod) is never
