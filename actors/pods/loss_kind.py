"""What became of an executor, as a kind: decided by what its pod says and by what was observed of it before. Pure.

Two clocks are compared only where nothing was observed: a node's clock may be wrong by minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from actors.pods.pod import (
    NOT_LOCATED,
    Condition,
    ContainerState,
    Pod,
    TerminatedState,
    container_statuses,
    ends,
    init_statuses,
)
from actors.pods.state import PodDeleted, PodFailed, PodRules, PodState, PodSucceeded, executor_container, executor_end

__all__ = [
    "CAUSED_BY_APP",
    "LossKind",
    "RequestedEnd",
    "decide",
    "disruption",
    "first_end",
    "last_alive",
    "was_deleted",
    "was_seen",
]


class LossKind(StrEnum):
    """What became of an executor. Metrics, JSON and the command spell it like this, too."""

    EXITED = "EXITED"
    """It ended by itself and failed: with an exit code other than 0, or because another container of its pod failed."""
    FINISHED = "FINISHED"
    """It ended by itself with exit code 0, and nobody had requested that."""
    OOM_KILLED = "OOM_KILLED"
    """The kernel killed it for using more memory than its limit."""
    STORAGE_EXCEEDED = "STORAGE_EXCEEDED"
    """Its node ended it for using more local storage than a limit of its own pod."""
    EVICTED = "EVICTED"
    """Its node or an eviction ended it: pressure, drain, taint, shutdown, a deadline, a rejection after a restart."""
    PREEMPTED = "PREEMPTED"
    """The scheduler, a node, or a queue such as Kueue, made room for others."""
    NODE_LOST = "NODE_LOST"
    """Its node is gone, does not respond, or was restarted and did not see its end."""
    DELETED = "DELETED"
    """Somebody else deleted its pod while it ran."""
    KILLED_BY_DRIVER = "KILLED_BY_DRIVER"
    """The driver requested its end."""
    NEVER_STARTED = "NEVER_STARTED"
    """It was requested and never ran."""
    MISSING = "MISSING"
    """The cluster has no pod of it and reported no end."""
    DISCONNECTED = "DISCONNECTED"
    """It was disconnected from the driver for too long while its pod was alive, perhaps by the network."""
    HUNG = "HUNG"
    """It was disconnected from the driver for too long while its pod was alive, and the network was not the cause."""
    RELEASED = "RELEASED"
    """Somebody changed its labels: the pod is alive, but no longer part of the fleet."""


CAUSED_BY_APP: Final = frozenset({LossKind.EXITED, LossKind.OOM_KILLED, LossKind.STORAGE_EXCEEDED, LossKind.HUNG})
"""The kinds that the application caused. Only these should count against retries of its work.

A hang is one of them: otherwise work that freezes executors would be given to one after the other, for ever.
"""

BY_KUBELET: Final = "TerminationByKubelet"
"""The reason of a `DisruptionTarget` that a kubelet sets. The pod's own reason says more."""

DISRUPTIONS: Final = {
    "PreemptionByScheduler": LossKind.PREEMPTED,
    "DeletionByPodGC": LossKind.NODE_LOST,
    "DeletionByTaintManager": LossKind.EVICTED,
    "DeletionByDeviceTaintManager": LossKind.EVICTED,
    "EvictionByEvictionAPI": LossKind.EVICTED,
    BY_KUBELET: LossKind.EVICTED,
}
"""Reasons of the `DisruptionTarget` condition (KEP-3329; device taints: KEP-5055).

Drains by kubectl, Karpenter and the descheduler use the eviction API, so they have its reason. Another controller's
reason is a preemption if it names one, else an eviction.
"""

DISRUPTION_CONDITIONS: Final = frozenset({"DisruptionTarget", "TerminationTarget"})
"""Conditions that a controller sets before it ends a pod: Kubernetes' own, and Kueue's.

Kueue's reasons (`pkg/controller/jobs/pod/pod_controller.go`, `pkg/controller/jobframework`): `WorkloadEvictedDueTo` and
the cause, such as `Preempted`, `PodsReadyTimeout`, `AdmissionCheck`, `ClusterQueueStopped`, `NodeFailures`; and
`WorkloadDeleted`, `NoMatchingWorkload`, `NotAdmitted`. Before version 0.7: `StoppedByKueue`.
"""

POD_REASONS: Final = {
    "Evicted": LossKind.EVICTED,
    "Preempting": LossKind.PREEMPTED,
    "Preempted": LossKind.PREEMPTED,
    "NodeLost": LossKind.NODE_LOST,
    "NodeShutdown": LossKind.EVICTED,
    "Shutdown": LossKind.EVICTED,
    "Terminated": LossKind.EVICTED,
    "DeadlineExceeded": LossKind.EVICTED,
}
"""Values of `status.reason` by kubelets and controllers that say who ended the pod.

Three of them mean a graceful shutdown of the node. `DeadlineExceeded` is the end of `spec.activeDeadlineSeconds`: who
wrote the template wanted the pod to end then, whatever it did, so the kubelet ended it, and nothing went wrong.
"""

OWN_LIMITS: Final = re.compile(
    r"Usage of EmptyDir volume |Pod ephemeral local storage usage exceeds |"
    r"Container \S+ exceeded its local ephemeral storage limit "
)
"""How the kubelet's message begins if it evicts a pod for a limit of the pod itself (`pkg/kubelet/eviction/helpers.go`,
the same from 1.34 to 1.37). Such a pod has no `DisruptionTarget`, and its replacement would be evicted as well."""

REJECTED: Final = "Pod was rejected: "
"""How the message of a pod begins that its kubelet does not admit (`rejectPod` in `pkg/kubelet/kubelet.go`). Kubelets
admit running pods again after a restart."""

REJECTIONS: Final = frozenset(
    {
        *("AppArmor", "EmptyPodSharedPoolError", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo"),
        *("NodeAffinity", "NodeName", "NodePorts", "PodFeatureUnsupported", "PodLevelResourcesNotSupported"),
        *("PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "SMTAlignmentError"),
        *("SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TaintToleration", "TopologyAffinityError"),
        *("UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason"),
        "VolumeAttachmentLimitExceeded",
    }
)
"""Values of `status.reason` of a pod that its kubelet does not admit, beside `OutOf` with a resource. (`pkg/kubelet`:
`lifecycle`, `cm`, `sysctl`, `volumemanager`; names of predicates are those of the scheduler's plugins.)"""

_UNKNOWN: Final = ("Unknown", 255)
"""Reason and exit code of a container that containerd finds without its process: the machine was rebooted. A program's
own exit code 255 has the reason `Error`."""


@dataclass(frozen=True, slots=True)
class RequestedEnd:
    """An end that the driver or the Allocator requested."""

    text: str
    """The loss message, after the executor's name."""
    at: datetime | None = None
    """When the executor was told to end by itself; None if its pod was deleted, as then the pod has the time."""
    however: bool = False
    """Whatever ends it after that, the driver requested it: the executor was retired, and nothing is lost with it."""
    was_alive: bool = False
    """It was observed alive after it was told, so it cannot have ended before, whatever its node's clock says."""

    @property
    def since(self) -> datetime | None:
        """`at` in whole seconds, as the API's timestamps have them."""
        return None if self.at is None else self.at.replace(microsecond=0)

    def came_too_late(self, end: TerminatedState | None) -> bool:
        """Whether the executor had ended before it was told to."""
        return not self.was_alive and _ended_before(end, self.since)


def decide(
    state: PodState, rules: PodRules, *, requested: RequestedEnd | None, released: bool, node_lost: bool
) -> LossKind:
    """Return who or what ended an executor. A pod that ended after its deletion or disruption began did not by itself.

    The arguments are those of `explain`.
    """
    if released:
        return LossKind.RELEASED
    # the end of a sidecar does not end a live executor
    end = executor_end(state.pod, rules) if isinstance(state, PodDeleted) else first_end(state.pod, rules)
    if requested is not None and requested.however and not requested.came_too_late(end):
        return LossKind.KILLED_BY_DRIVER
    disrupted = _disrupted(state, end)
    deleted = node_lost or was_deleted(state, end)
    if deleted and requested is not None:
        return LossKind.KILLED_BY_DRIVER
    if disrupted is not None:
        return disrupted
    if node_lost:
        return LossKind.NODE_LOST
    if deleted:
        return LossKind.DELETED if _has_run(state, rules) else LossKind.NEVER_STARTED
    if requested is not None and requested.at is not None and not requested.came_too_late(end):
        return LossKind.KILLED_BY_DRIVER
    return _by_itself(state, rules)


def _by_itself(state: PodState, rules: PodRules) -> LossKind:
    """Return what ended an executor that nobody had requested to end."""
    pod, own = state.pod, executor_end(state.pod, rules)
    if _is_rejected(pod):
        return LossKind.EVICTED if _has_run(state, rules) else LossKind.NEVER_STARTED
    if own is not None and was_seen(own):
        return _by_own_end(pod, own, rules)
    if own is None and any(end.exit_code != 0 for end in _others(pod, rules)):  # a sidecar, or an init container
        return LossKind.EXITED
    if isinstance(state, PodSucceeded):
        return LossKind.FINISHED
    return LossKind.NODE_LOST if _has_run(state, rules) else LossKind.NEVER_STARTED


def _by_own_end(pod: Pod, own: TerminatedState, rules: PodRules) -> LossKind:
    """Return what ended an executor whose own container ended. Memory that another container used is not its own."""
    if own.reason == "OOMKilled":  # with exit code 137, 143 or even 0
        return LossKind.OOM_KILLED
    if own.exit_code != 0:
        return LossKind.EXITED
    neighbours = _others(pod, rules, inits=False) if rules.check_all_containers else []
    failed_first = any(end.exit_code != 0 and not _ended_before(own, end.finished_at) for end in neighbours)
    return LossKind.EXITED if failed_first else LossKind.FINISHED


# ── who ended it ─────────────────────────────────────────────────────────────────────────────────────────────────


def disruption(pod: Pod) -> Condition | None:
    """Return the condition by which a controller said that it ends the pod."""
    conditions = (pod.status.conditions if pod.status else None) or ()
    return next((each for each in conditions if each.type in DISRUPTION_CONDITIONS and each.status == "True"), None)


def _disrupted(state: PodState, end: TerminatedState | None) -> LossKind | None:
    """Return how the cluster disrupted the pod, None if it did not, or if the container had ended before."""
    status, condition, alive = state.pod.status, disruption(state.pod), last_alive(state)
    said = POD_REASONS.get((status.reason if status else None) or "")
    if condition is None:
        return LossKind.STORAGE_EXCEEDED if said is LossKind.EVICTED and _exceeded_own_limit(state.pod) else said
    reason = condition.reason or ""
    if reason == BY_KUBELET and said is not None:  # whatever the times: it ends no pod whose containers have ended
        return said
    was_alive = alive is not None and disruption(alive) is not None
    if not was_alive and _ended_before(end, condition.last_transition_time):
        return None
    return DISRUPTIONS.get(reason, LossKind.PREEMPTED if "preempt" in reason.lower() else LossKind.EVICTED)


def _exceeded_own_limit(pod: Pod) -> bool:
    """Whether the kubelet evicted the pod for a limit of the pod itself, not for what its node lacked."""
    return pod.status is not None and OWN_LIMITS.match(pod.status.message or "") is not None


def was_deleted(state: PodState, end: TerminatedState | None) -> bool:
    """Return whether the pod's deletion ended it: it had not ended before."""
    if isinstance(state, PodSucceeded | PodFailed) and state.ended_first:
        return False
    deadline, alive = state.pod.metadata.deletion_timestamp, last_alive(state)
    if deadline is None:
        return isinstance(state, PodDeleted) and end is None
    if alive is not None and alive.terminating:
        return True
    try:
        began = deadline - timedelta(seconds=state.pod.metadata.deletion_grace_period_seconds or 0)
    except OverflowError:
        began = deadline  # no server sends such numbers
    return not _ended_before(end, began)


def _is_rejected(pod: Pod) -> bool:
    """Whether the pod's kubelet did not admit it: at its start, or again after a restart of the kubelet."""
    status = pod.status
    if status is None:
        return False
    reason = status.reason or ""
    return reason in REJECTIONS or reason.startswith("OutOf") or (status.message or "").startswith(REJECTED)


# ── what was observed ────────────────────────────────────────────────────────────────────────────────────────────


def last_alive(state: PodState) -> Pod | None:
    """Return the last observation in which the pod had not ended, None if none is known."""
    return state.last_alive if isinstance(state, PodSucceeded | PodFailed) else None


def was_seen(end: TerminatedState) -> bool:
    """Return whether anybody saw how the container ended. Otherwise reason and exit code are made up."""
    return end.reason != NOT_LOCATED and (end.reason, end.exit_code) != _UNKNOWN


def first_end(pod: Pod, rules: PodRules) -> TerminatedState | None:
    """Return how the executor's container ended, else the first ended container, else the first failed init one.

    The failure of an init container ends the sidecars among them, after it.
    """
    failed = sorted((end for end in ends(init_statuses(pod)) if end.exit_code != 0), key=_finished)
    return executor_end(pod, rules) or next(iter((*ends(container_statuses(pod)), *failed)), None)


def _finished(end: TerminatedState) -> datetime:
    return end.finished_at or datetime.max.replace(tzinfo=UTC)


def _others(pod: Pod, rules: PodRules, *, inits: bool = True) -> list[TerminatedState]:
    """Return how the other containers ended, as far as somebody saw it."""
    name = executor_container(pod, rules)
    others = [status for status in container_statuses(pod) if status.name != name]
    return [end for end in ends((*others, *(init_statuses(pod) if inits else ()))) if was_seen(end)]


def _has_run(state: PodState, rules: PodRules) -> bool:
    """Return whether the executor's container ever ran.

    When a pod is deleted, its kubelet writes the same made-up end for a container that waits and for one that it lost.
    What was observed before tells them apart. If nothing was, a deleted pod counts as never started.
    """
    own, alive = executor_end(state.pod, rules), last_alive(state)
    if own is not None and own.reason != NOT_LOCATED:
        return True
    if alive is not None:
        return _ran(alive, rules)
    if own is not None:
        return not state.pod.terminating
    return _ran(state.pod, rules)


def _ran(pod: Pod, rules: PodRules) -> bool:
    """Return whether the executor's container ran by the time of this observation."""
    phase = (pod.status.phase or "").lower() if pod.status is not None else "unknown"
    if phase not in {"pending", "succeeded", "failed"}:  # the API says that it runs, or nothing
        return True
    name = executor_container(pod, rules)
    own = next((status for status in container_statuses(pod) if status.name == name), None)
    return own is not None and (own.restart_count > 0 or _has_begun(own.state))


def _has_begun(state: ContainerState | None) -> bool:
    return state is not None and (state.running is not None or state.terminated is not None)


def _ended_before(end: TerminatedState | None, moment: datetime | None) -> bool:
    """Return whether a container ended before a moment. The API's timestamps have whole seconds.

    The time of an end that nobody saw is when it was found.
    """
    finished = end.finished_at if end is not None and was_seen(end) else None
    return finished is not None and moment is not None and finished < moment
