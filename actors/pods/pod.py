"""`Pod`: the part of a v1 Pod that decisions need, as a typed value, and the labels of the fleet.

What each pod has of its own stands in `Pod` itself. The values beneath it are those of the API, and pods can have them
in common: nearly all running pods of a profile have one spec and one status. `actors.pods.api_pod` has the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from actors.pods.ids import id_in_name, id_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


__all__ = [
    "APP_ID_LABEL",
    "DEFAULT_PROFILE",
    "EXECUTOR_ID_LABEL",
    "INACTIVE_LABEL",
    "IN_NAME",
    "MANAGED_BY_LABEL",
    "MEMORY_STEP_LABEL",
    "NOT_LOCATED",
    "PROFILE_LABEL",
    "RELEVANT_CONDITIONS",
    "ROLE_EXECUTOR",
    "ROLE_LABEL",
    "ClaimVolume",
    "Condition",
    "ContainerSpec",
    "ContainerState",
    "ContainerStatus",
    "EventType",
    "ObjectMeta",
    "OwnerReference",
    "Pod",
    "PodEvent",
    "PodSpec",
    "PodStatus",
    "RestartRule",
    "RunningState",
    "SchedulingGate",
    "TerminatedState",
    "Time",
    "Volume",
    "WaitingState",
    "claims_of",
    "container_statuses",
    "ends",
    "executor_id",
    "fleet_selector",
    "held_since",
    "init_statuses",
    "is_selected",
    "is_telling",
    "node_answers",
    "restarts",
    "time_of",
]

APP_ID_LABEL: Final = "executor-pods/app-id"
ROLE_LABEL: Final = "executor-pods/role"
EXECUTOR_ID_LABEL: Final = "executor-pods/executor-id"
PROFILE_LABEL: Final = "executor-pods/profile"
INACTIVE_LABEL: Final = "executor-pods/inactive"
MEMORY_STEP_LABEL: Final = "executor-pods/memory-step"
"""How often the executor's memory was raised after out-of-memory kills (`on_oom`). Only raised ones have it."""
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
ROLE_EXECUTOR: Final = "executor"

IN_NAME: Final = "\0"
"""Stands in `ObjectMeta.shared_labels` for an executor id that the pod's name has too. So all pods of a profile have
the same labels, kept once. The API allows no such value."""

DEFAULT_PROFILE: Final = "default"
"""The profile that `[executor]` describes, that an int target means, and that a pod without `PROFILE_LABEL` has."""

RELEVANT_CONDITIONS: Final[Mapping[str, str]] = {
    "DisruptionTarget": "False",
    "PodScheduled": "True",
    "Ready": "True",
    "TerminationTarget": "False",
}
"""The conditions that matter for an executor's pod, each with the status in which it has no meaning."""

_READY: Final = "Ready"
"""The condition that matters only without a reason. A kubelet always says why a pod is not ready; the node lifecycle
controller does not, and sets it for all pods of a node that has not answered for 40 to 50 seconds (`MarkPodsNotReady`
in `pkg/controller/util/node/controller_utils.go`)."""

_LONGEST_STEP: Final = 3
"""Digits: no `on_oom` has a thousand steps."""

Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A timestamp that can be compared with others."""

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""The API's own type of exit codes and restart counts."""

Grace: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""Seconds. 68 years are as good as any longer time, and a `timedelta` can have them."""


def time_of(text: str) -> datetime | None:
    """Return the time that a text says (RFC 3339), in UTC if it has no time zone; None if it says none."""
    try:
        time = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


class _Json(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of the JSON values: immutable, camelCase in JSON, unknown fields skipped."""


class OwnerReference(_Json, frozen=True):
    """`metadata.ownerReferences[]`."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class ObjectMeta(_Json, frozen=True):
    """`metadata` without version. `deletion_timestamp` is when the grace period *ends*, not when the deletion began."""

    name: str = ""
    uid: str = ""
    shared_labels: Mapping[str, str] | None = msgspec.field(default=None, name="labels")
    """`labels` as many pods have them in common: the executor id may be `IN_NAME`."""
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Grace | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels, empty if there are none."""
        labels = self.shared_labels or {}
        if labels.get(EXECUTOR_ID_LABEL) == IN_NAME:
            return {**labels, EXECUTOR_ID_LABEL: id_text(self.name)}
        return labels


class RestartRule(_Json, frozen=True):
    """`spec.containers[].restartPolicyRules[]`. Only that there is one matters here."""

    action: str = ""


class ContainerSpec(_Json, frozen=True):
    """`spec.containers[]`."""

    name: str = ""
    restart_policy: str | None = None
    """Whether it is restarted in its pod, whatever the pod's own policy says (KEP-5307). None: as the pod says."""
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class SchedulingGate(_Json, frozen=True):
    """`spec.schedulingGates[]`."""

    name: str = ""


class ClaimVolume(_Json, frozen=True):
    """`spec.volumes[].persistentVolumeClaim`."""

    claim_name: str = ""


class Volume(_Json, frozen=True):
    """`spec.volumes[]`. Only claims matter here."""

    persistent_volume_claim: ClaimVolume | None = None


class PodSpec(_Json, frozen=True):
    """`spec`."""

    node_name: str | None = None
    containers: tuple[ContainerSpec, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    restart_policy: str | None = None


class WaitingState(_Json, frozen=True):
    """`state.waiting` of a container."""

    reason: str | None = None
    message: str | None = None


class RunningState(_Json, frozen=True):
    """`state.running` of a container."""


NOT_LOCATED: Final = "ContainerStatusUnknown"
"""The kubelet's reason for a container that it did not find, and whose end it has not seen."""


class TerminatedState(_Json, frozen=True):
    """`state.terminated` of a container."""

    exit_code: Int32 = -1
    reason: str | None = None
    message: str | None = None
    started_at: Time | None = None
    finished_at: Time | None = None


class ContainerState(_Json, frozen=True):
    """`state` of a container. At most one field is set."""

    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(_Json, frozen=True):
    """`status.containerStatuses[]` and `status.initContainerStatuses[]`."""

    name: str = ""
    restart_count: Int32 = 0
    state: ContainerState | None = None


class Condition(_Json, frozen=True):
    """`status.conditions[]`. Lists and watches deliver only `RELEVANT_CONDITIONS`."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition: str | None = msgspec.field(default=None, name="lastTransitionTime")
    """A time as the server wrote it, because nearly all conditions are dropped before anybody reads it."""

    @property
    def last_transition_time(self) -> datetime | None:
        """When its status changed last, None if the server does not say so."""
        return time_of(self.last_transition or "")


class PodStatus(_Json, frozen=True):
    """`status` without address and start. The API server always sends at least `{}`; a pod without it is malformed."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(msgspec.Struct, frozen=True, gc=False):
    """The part of a v1 Pod that decisions need."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec | None = None
    status: PodStatus | None = None
    resource_version: str = ""
    """`metadata.resourceVersion`."""
    ip: str | None = None
    """`status.podIP`, None before it has one."""
    start_time: datetime | None = None
    """`status.startTime`: when its node took it."""
    named_id: int | None = None
    """`id_in_name` of its name, None also if nobody looked: an event is merged without a look at the name."""
    made_container: str | None = None
    """Which of several containers the fleet made: the one with its variables. Others may come from the template or from
    a webhook. None if there is but one, or if none has them."""

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """`metadata.uid`, which differs from that of a later pod of the same name."""
        return self.metadata.uid

    def at_version(self, version: str) -> Pod:
        """Return the same pod at another version."""
        return replace(self, resource_version=version)

    @property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`, empty if there are none."""
        return self.metadata.labels

    @property
    def profile(self) -> str:
        """The profile from its label, `"default"` if the label is missing."""
        labels = self.metadata.shared_labels
        return labels.get(PROFILE_LABEL, DEFAULT_PROFILE) if labels else DEFAULT_PROFILE

    @property
    def memory_step(self) -> int:
        """How often its memory was raised, 0 if the label is missing or no number."""
        labels = self.metadata.shared_labels
        text = labels.get(MEMORY_STEP_LABEL, "") if labels else ""
        return int(text) if text.isdecimal() and len(text) <= _LONGEST_STEP else 0

    @property
    def node(self) -> str | None:
        """`spec.nodeName`, None before it has a node."""
        return (self.spec.node_name if self.spec is not None else None) or None

    @property
    def terminating(self) -> bool:
        """Whether its deletion has begun."""
        return self.metadata.deletion_timestamp is not None


EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


class PodEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a watch. Bookmarks are not events: they only advance the stream's version."""

    type: EventType
    pod: Pod


def fleet_selector(app_id: str, *, active_only: bool = True) -> str:
    """Return the label selector of every list, watch and bulk delete: this application's executors.

    `active_only` excludes pods with the inactive label.
    """
    selector = f"{APP_ID_LABEL}={app_id},{ROLE_LABEL}={ROLE_EXECUTOR}"
    return f"{selector},{INACTIVE_LABEL}!=true" if active_only else selector


def executor_id(pod: Pod) -> int | None:
    """Return the executor id from the pod's label, None if it is no id, or if the pod's name contains another."""
    found, labels = id_in_name(pod.metadata.name), pod.metadata.shared_labels
    return found if labels and labels.get(EXECUTOR_ID_LABEL) in {IN_NAME, str(found)} else None


def is_selected(labels: Mapping[str, str], app_id: str, *, active_only: bool = True) -> bool:
    """Whether the `fleet_selector` matches these labels: not every server evaluates it."""
    return (
        labels.get(APP_ID_LABEL) == app_id
        and labels.get(ROLE_LABEL) == ROLE_EXECUTOR
        and not (active_only and labels.get(INACTIVE_LABEL) == "true")
    )


def claims_of(pod: Pod) -> Iterator[str]:
    """Yield the names of the PersistentVolumeClaims that a pod uses, without generic ephemeral volumes."""
    for volume in (pod.spec.volumes if pod.spec else None) or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name


def held_since(pod: Pod, at: datetime) -> datetime | None:
    """Return since when finalizers hold a pod whose grace period was over by `at`, None if they do not."""
    grace_ends = pod.metadata.deletion_timestamp
    return grace_ends if pod.metadata.finalizers and grace_ends is not None and grace_ends <= at else None


def container_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    """Return `status.containerStatuses`, empty if it is missing."""
    return (pod.status.container_statuses if pod.status else None) or ()


def init_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    """Return `status.initContainerStatuses`, empty if it is missing. Native sidecars are among them."""
    return (pod.status.init_container_statuses if pod.status else None) or ()


def is_telling(condition: Condition) -> bool:
    """Return whether a condition says something on which a decision depends."""
    kind = condition.type
    return (
        kind in RELEVANT_CONDITIONS
        and RELEVANT_CONDITIONS[kind] != condition.status
        and not (kind == _READY and condition.reason)
    )


def node_answers(pod: Pod) -> bool:
    """Return whether no controller has noticed that the pod's node does not answer."""
    conditions = (pod.status.conditions if pod.status else None) or ()
    return not any(each.type == _READY and is_telling(each) for each in conditions)


def restarts(pod: Pod) -> int:
    """Return how often its containers were restarted, sidecars among the init containers included."""
    count = 0
    for statuses in (container_statuses(pod), init_statuses(pod)):
        for status in statuses:
            count += status.restart_count
    return count


def ends(statuses: Iterable[ContainerStatus]) -> list[TerminatedState]:
    """Return how the ended ones of these containers ended."""
    return [status.state.terminated for status in statuses if status.state and status.state.terminated]
