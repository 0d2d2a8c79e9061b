"""`pod`: an executor's pod as a value, with only what a test is about.

It has the labels by which a fleet knows its pods, and one container.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from actors.pods import ids
from actors.pods.pod import (
    APP_ID_LABEL,
    DEFAULT_PROFILE,
    EXECUTOR_ID_LABEL,
    PROFILE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    RunningState,
    TerminatedState,
    WaitingState,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["pod"]

CONTAINER: Final = "executor"
DELETION: Final = datetime(2024, 1, 1, tzinfo=UTC)


def pod(
    executor_id: int,
    phase: str | None = None,
    *,
    app_id: str = "test",
    profile: str = DEFAULT_PROFILE,
    node: str | None = None,
    exit_code: int | None = None,
    waiting: str | None = None,
    terminating: bool = False,
    uid: str | None = None,
    version: int = 1,
    labels: Mapping[str, str] | None = None,
) -> Pod:
    """Return an executor's pod.

    Args:
        executor_id: also names the pod.
        phase: by default that of the container: `Failed` or `Succeeded`, `Pending` if it is waiting, else `Running`.
        app_id: the fleet.
        profile: its label.
        node: where it runs; by default `node-1`, or none while it is pending.
        exit_code: its container has ended with it; by default 1 in phase `Failed`, 0 in phase `Succeeded`.
        waiting: the reason why its container does not start, such as `ImagePullBackOff`.
        terminating: its deletion has begun.
        uid: by default `uid-<executor id>`.
        version: the resource version.
        labels: more labels.
    """
    if exit_code is None and phase in {"Failed", "Succeeded"}:
        exit_code = int(phase == "Failed")
    if exit_code is not None:
        state, usual = ContainerState(terminated=TerminatedState(exit_code)), "Failed" if exit_code else "Succeeded"
    elif waiting is not None or phase == "Pending":
        state, usual = ContainerState(waiting=WaitingState(waiting)), "Pending"
    else:
        state, usual = ContainerState(running=RunningState()), "Running"
    phase = phase or usual
    ours = {
        APP_ID_LABEL: app_id,
        ROLE_LABEL: ROLE_EXECUTOR,
        EXECUTOR_ID_LABEL: str(executor_id),
        PROFILE_LABEL: profile,
    }
    return Pod(
        metadata=ObjectMeta(
            name=ids.pod_name(app_id, executor_id),
            uid=uid or f"uid-{executor_id}",
            shared_labels=ours | dict(labels or {}),
            deletion_timestamp=DELETION if terminating else None,
        ),
        spec=PodSpec(
            node_name=node or (None if phase == "Pending" else "node-1"), containers=(ContainerSpec(CONTAINER),)
        ),
        status=PodStatus(phase=phase, container_statuses=(ContainerStatus(CONTAINER, state=state),)),
        resource_version=str(version),
    )
