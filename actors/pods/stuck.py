"""Why a pod that should run does not get on: the kubelet's and the scheduler's own words, sorted by what heals them.

Pure. A pod is stuck when its own status says what it waits for; that it takes long is not enough to say why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from actors.pods.pod import Pod, container_statuses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

    from actors.pods.pod import ContainerStatus, WaitingState

__all__ = ["Stuck", "StuckKind", "does_not_start", "is_gated", "never_heals", "why_stuck"]


class StuckKind(Enum):
    """What a pod waits for. The same kind told once is not told again when the words change."""

    IMAGE = "image"
    """Its image cannot be pulled, or its name is wrong."""
    CONFIG = "config"
    """The kubelet cannot make its container from what the pod says: a missing secret, a command that is not there."""
    INIT = "init container"
    """An init container fails again and again."""
    UNSCHEDULABLE = "unschedulable"
    """No node takes it."""
    SLOW = "slow"
    """It has a node and does not start, and does not say why: a volume that cannot be mounted is such a case."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why a pod does not get on."""

    kind: StuckKind
    reason: str
    """The API's word, such as `ImagePullBackOff`."""
    message: str
    """The pod's own words; may be empty."""
    heals: bool
    """It may get on without being made anew: another image, node or secret may come. The others never do."""
    since: datetime | None = None
    """Since when, where the API says so."""


KINDS: Final[Mapping[str, StuckKind]] = {
    "ErrImageNeverPull": StuckKind.IMAGE,
    "ErrImagePull": StuckKind.IMAGE,
    "ImageInspectError": StuckKind.IMAGE,
    "ImagePullBackOff": StuckKind.IMAGE,
    "InvalidImageName": StuckKind.IMAGE,
    "RegistryUnavailable": StuckKind.IMAGE,
    "SignatureValidationFailed": StuckKind.IMAGE,
    "CreateContainerConfigError": StuckKind.CONFIG,
    "CreateContainerError": StuckKind.CONFIG,
    "PostStartHookError": StuckKind.CONFIG,
    "PreCreateHookError": StuckKind.CONFIG,
    "PreStartHookError": StuckKind.CONFIG,
    "RunContainerError": StuckKind.CONFIG,
}
"""Waiting reasons of the kubelet (`pkg/kubelet/images`, `pkg/kubelet/kuberuntime`, `pkg/kubelet/container`)."""

CRASHING: Final = "CrashLoopBackOff"
"""It counts for an init container only."""

NEVER_HEAL: Final = frozenset({"CreateContainerConfigError", "ErrImageNeverPull", "InvalidImageName"})
"""Those that wait for something in the pod itself, or on its node, which nobody is going to change."""


def why_stuck(pod: Pod) -> Stuck | None:
    """What keeps a live pod from running, None if nothing is known to.

    A pod with scheduling gates is not stuck: somebody holds it back on purpose.
    """
    if is_gated(pod):
        return None
    status = pod.status
    init = (status.init_container_statuses if status else None) or ()
    for container, waiting in _waiting((*init, *container_statuses(pod))):
        reason = waiting.reason or ""
        kind = StuckKind.INIT if reason == CRASHING and container in init else KINDS.get(reason)
        if kind is not None:
            message = f"{container.name}: {waiting.message}" if waiting.message else container.name
            return Stuck(kind, reason, message, heals=reason not in NEVER_HEAL)
    return _unschedulable(pod)


def never_heals(pod: Pod) -> bool:
    """It waits for what nobody is going to change."""
    stuck = why_stuck(pod)
    return stuck is not None and not stuck.heals


def does_not_start(pod: Pod, waited: timedelta) -> Stuck | None:
    """What to say of a pod that has been pending for so long.

    None if it waits for a node or for a gate, or if its own status says why it does not get on.
    """
    if pod.spec is None or not pod.spec.node_name or is_gated(pod) or why_stuck(pod) is not None:
        return None
    container, waiting = next(iter(_waiting(container_statuses(pod))), (None, None))
    reason = (waiting.reason if waiting is not None else None) or "Pending"
    name = f"{container.name}: " if container is not None else ""
    seconds = f"{waited.total_seconds():.0f} s"
    message = f"{name}not started for {seconds} on node {pod.spec.node_name}; its events may say why"
    return Stuck(StuckKind.SLOW, reason, message, heals=True)


def is_gated(pod: Pod) -> bool:
    """Somebody else has to open a gate before the scheduler looks at it."""
    return bool(pod.spec and pod.spec.scheduling_gates)


def _waiting(statuses: Iterable[ContainerStatus]) -> Iterable[tuple[ContainerStatus, WaitingState]]:
    return (
        (status, status.state.waiting)
        for status in statuses
        if status.state is not None and status.state.waiting is not None
    )


def _unschedulable(pod: Pod) -> Stuck | None:
    for condition in (pod.status.conditions if pod.status else None) or ():
        if (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable"):
            return Stuck(
                StuckKind.UNSCHEDULABLE,
                "Unschedulable",
                condition.message or "",
                heals=True,
                since=condition.last_transition_time,
            )
    return None
