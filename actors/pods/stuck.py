"""Why a pod is stuck: reasons of the kubelet and the scheduler, by cause and by whether they can heal. Pure.

A pod is stuck if its own status has such a reason. `does_not_start` is for pods that take long without one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from actors.pods.pod import Pod, container_statuses, init_statuses
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime, timedelta

    from actors.pods.pod import ContainerStatus, WaitingState

__all__ = [
    "Outlook",
    "Stuck",
    "StuckKind",
    "crashes_in_place",
    "does_not_start",
    "is_gated",
    "never_heals",
    "outlook",
    "why_gated",
    "why_stuck",
]


class StuckKind(Enum):
    """The cause. A stuck pod is reported once per cause, even if the message changes."""

    IMAGE = "image"
    """Its image cannot be pulled, or its name is wrong."""
    REFUSED = "refused image"
    """Its image is not there, or whoever has it does not give it."""
    CONFIG = "config"
    """The kubelet cannot create its container: a missing secret, a command that does not exist."""
    INIT = "init container"
    """An init container, which may be a sidecar, fails again and again."""
    CRASHING = "crash loop"
    """A container fails again and again in a pod that runs, as its own restart policy restarts it."""
    UNSCHEDULABLE = "unschedulable"
    """No node fits."""
    SLOW = "slow"
    """It has a node, does not start and has no reason, for example if a volume cannot be mounted."""


class Outlook(Enum):
    """What waiting may help."""

    HEALS = "heals"
    """The kubelet tries again, and may succeed once something else has come: a secret, a registry, a node."""
    REFUSED = "refused"
    """The kubelet tries again, but has got a plain no, which usually a person changes: there is no such image."""
    NEVER = "never"
    """The pod itself is wrong, and so are all that are made like it."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why a pod is stuck."""

    kind: StuckKind
    reason: str
    """The API's reason, such as `ImagePullBackOff`. One line, as the message is."""
    message: str
    """The container's name and the API's message, which may be empty."""
    heals: bool
    """The same pod may still start, once there is an image, a node or a secret. Else only a new one can."""
    since: datetime | None = None
    """Since when, if the API has it."""


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
"""The reason of a container that fails again and again, and is restarted in its pod each time."""

CRASHES: Final = 2
"""A container that was restarted so often and has failed once more is in a crash loop."""

GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"
"""What the API server itself says of a pod with gates; it says no more than the gates do."""

NEVER_PULLED: Final = "ErrImageNeverPull"
"""Its node lacks the image, and the pod forbids to pull it. A new pod may get another node."""

_WRONG: Final = re.compile(r"runAsNonRoot|breaks non-root policy|no command specified")
"""What a kubelet says if the container contradicts itself or its image (`pkg/kubelet/kuberuntime/security_context.go`),
and containerd and CRI-O of an image without a command."""

_NOT_GIVEN: Final = re.compile(
    r"not found|manifest unknown|name unknown|repository does not exist|no match for platform"
    r"|unauthorized|authentication required|authorization failed|no basic auth credentials"
    r"|\bdenied\b|forbidden",
    re.IGNORECASE,
)
"""How registries refuse an image, as containerd and CRI-O pass it on: the codes `MANIFEST_UNKNOWN`, `NAME_UNKNOWN`,
`UNAUTHORIZED` and `DENIED` of the OCI distribution specification, and the words of the HTTP status. A registry that is
away has others: `dial tcp`, `i/o timeout`, `no such host`, `connection refused`, `EOF`, `503 Service Unavailable`."""


def why_stuck(pod: Pod) -> Stuck | None:
    """Return why a live pod does not run, None if its status has no such reason.

    A pod with scheduling gates is not stuck: somebody blocks it on purpose (`why_gated`).
    """
    if is_gated(pod):
        return None
    for container, waiting in _waiting((*init_statuses(pod), *container_statuses(pod))):
        reason = waiting.reason or ""
        if (kind := KINDS.get(reason)) is not None:
            message = f"{container.name}: {waiting.message}" if waiting.message else container.name
            hope = outlook(reason, waiting.message or "")
            if kind is StuckKind.IMAGE and hope is Outlook.REFUSED:
                kind = StuckKind.REFUSED
            heals = hope is not Outlook.NEVER and reason != NEVER_PULLED
            return Stuck(kind, reason, one_line(message), heals=heals)
    return next(_crash_loops(pod), None) or _unschedulable(pod)


def outlook(reason: str, message: str) -> Outlook:
    """Return what waiting may help a pod that is stuck for this reason, in these words of the API.

    What nobody can know heals: an `ImagePullBackOff` of a kubelet that does not repeat the registry's words.
    """
    if reason == "InvalidImageName":
        return Outlook.NEVER
    if reason in {NEVER_PULLED, "SignatureValidationFailed"}:
        return Outlook.REFUSED
    kind = KINDS.get(reason)
    if kind is StuckKind.IMAGE and _NOT_GIVEN.search(message):
        return Outlook.REFUSED
    if kind is StuckKind.CONFIG and _WRONG.search(message):
        return Outlook.NEVER
    return Outlook.HEALS


def crashes_in_place(pod: Pod) -> bool:
    """Return whether a container of the pod is in a crash loop: the kubelet restarts it, more and more seldom.

    The API says that such a pod runs.
    """
    return next(_crash_loops(pod), None) is not None


def _crash_loops(pod: Pod) -> Iterator[Stuck]:
    """Yield the containers that fail again and again.

    The kubelet of 1.34 does not say so of a sidecar among the init containers, if the pod's own restart policy is
    `Never`: between two starts, it shows the last end.
    """
    for container in init_statuses(pod):
        state = container.state
        if state is not None and state.terminated is not None and container.restart_count >= CRASHES:
            code = state.terminated.exit_code
            if code != 0:
                words = f"{container.name}: ended with exit code {code}, restarts: {container.restart_count}"
                yield Stuck(StuckKind.INIT, CRASHING, one_line(words), heals=True)
    for kind, statuses in ((StuckKind.INIT, init_statuses(pod)), (StuckKind.CRASHING, container_statuses(pod))):
        for container, waiting in _waiting(statuses):
            if waiting.reason == CRASHING:
                words = f"{container.name}: {waiting.message}" if waiting.message else container.name
                yield Stuck(kind, CRASHING, one_line(words), heals=True)


def never_heals(pod: Pod) -> bool:
    """Return whether the pod is stuck for good: only a new one can start."""
    stuck = why_stuck(pod)
    return stuck is not None and not stuck.heals


def does_not_start(pod: Pod, waited: timedelta) -> Stuck | None:
    """Return the report about a pod that has been pending for too long.

    None if it waits for a node or a gate, or if its own status has a reason.
    """
    if pod.spec is None or not pod.spec.node_name or is_gated(pod) or why_stuck(pod) is not None:
        return None
    container, waiting = next(iter(_waiting(container_statuses(pod))), (None, None))
    reason = (waiting.reason if waiting is not None else None) or "Pending"
    name = f"{container.name}: " if container is not None else ""
    seconds = f"{waited.total_seconds():.0f} s"
    message = f"{name}not started for {seconds} on node {pod.spec.node_name}; the pod's events may have the reason"
    return Stuck(StuckKind.SLOW, one_line(reason), one_line(message), heals=True)


def is_gated(pod: Pod) -> bool:
    """Return whether the pod has scheduling gates: the scheduler ignores it until somebody removes them."""
    return bool(pod.spec and pod.spec.scheduling_gates)


def why_gated(pod: Pod) -> str | None:
    """Return which scheduling gates a live pod waits for, None if it has none.

    A queue such as Kueue (gate `kueue.x-k8s.io/admission`) removes its gate when it admits the pod. If it says in the
    condition `PodScheduled` what it waits for, its words follow.
    """
    gates = (pod.spec.scheduling_gates if pod.spec else None) or ()
    if not gates:
        return None
    what = "gate" if len(gates) == 1 else "gates"
    text = f"waits for the scheduling {what} {', '.join(gate.name for gate in gates)}"
    for condition in (pod.status.conditions if pod.status else None) or ():
        if condition.type == "PodScheduled" and condition.message not in (None, "", GATED):
            text = f"{text}: {condition.message}"
    return one_line(text)


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
                one_line(condition.message or ""),
                heals=True,
                since=condition.last_transition_time,
            )
    return None
