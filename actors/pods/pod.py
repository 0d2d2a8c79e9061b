"""`Pod`, the typed projection of a v1 Pod that decisions need, and the states a pod can be in.

Unknown JSON fields are skipped while decoding, which is why one pod costs microseconds, and what nothing here asks for
is unknown, which is why one weighs less than a KiB. `classify` is the only place where phases, container statuses and
timestamps become a `PodState`; it is pure and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


__all__ = [
    "APP_ID_LABEL",
    "DEFAULT_PROFILE",
    "EXECUTOR_ID_LABEL",
    "INACTIVE_LABEL",
    "MANAGED_BY_LABEL",
    "MAX_ID_DIGITS",
    "PROFILE_LABEL",
    "ROLE_EXECUTOR",
    "ROLE_LABEL",
    "TELLING",
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
    "RunningState",
    "SchedulingGate",
    "TerminatedState",
    "Volume",
    "WaitingState",
    "claims_of",
    "container_statuses",
    "ends",
    "executor_id",
    "fleet_selector",
    "parse_executor_id",
]

APP_ID_LABEL: Final = "executor-pods/app-id"
ROLE_LABEL: Final = "executor-pods/role"
EXECUTOR_ID_LABEL: Final = "executor-pods/executor-id"
PROFILE_LABEL: Final = "executor-pods/profile"
INACTIVE_LABEL: Final = "executor-pods/inactive"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
ROLE_EXECUTOR: Final = "executor"

DEFAULT_PROFILE: Final = "default"
"""The profile that `[executor]` describes, that an int target means, and that a pod without `PROFILE_LABEL` has."""

MAX_ID_DIGITS: Final = 18
"""Executor ids of more digits are refused: 18 always fit a signed 64-bit integer."""

TELLING: Final[Mapping[str, str]] = {"DisruptionTarget": "False", "PodScheduled": "True"}
"""The conditions of an executor's pod that anybody here looks at, each with the status in which it tells nothing."""


class _Json(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of the JSON projections: immutable, camelCase on the wire, unknown fields skipped."""


class OwnerReference(_Json, frozen=True):
    """`metadata.ownerReferences[]`."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class ObjectMeta(_Json, frozen=True):
    """`metadata`. `deletion_timestamp` is when the grace period *ends*, as the API has it, not when it began."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class ContainerSpec(_Json, frozen=True):
    """`spec.containers[]`: only the name, to find the executor's container."""

    name: str = ""


class SchedulingGate(_Json, frozen=True):
    """`spec.schedulingGates[]`."""

    name: str = ""


class ClaimVolume(_Json, frozen=True):
    """`spec.volumes[].persistentVolumeClaim`."""

    claim_name: str = ""


class Volume(_Json, frozen=True):
    """`spec.volumes[]`: only those that are claims say anything here."""

    persistent_volume_claim: ClaimVolume | None = None


class PodSpec(_Json, frozen=True):
    """`spec`."""

    node_name: str | None = None
    containers: tuple[ContainerSpec, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    volumes: tuple[Volume, ...] | None = None


class WaitingState(_Json, frozen=True):
    """`state.waiting` of a container."""

    reason: str | None = None
    message: str | None = None


class RunningState(_Json, frozen=True):
    """`state.running` of a container: that it runs."""


class TerminatedState(_Json, frozen=True):
    """`state.terminated` of a container."""

    exit_code: int = -1
    reason: str | None = None
    message: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(_Json, frozen=True):
    """`state` of a container: at most one of the three is set."""

    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(_Json, frozen=True):
    """`status.containerStatuses[]` and `status.initContainerStatuses[]`."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState | None = None


class Condition(_Json, frozen=True):
    """`status.conditions[]`. Lists and watches bring only `TELLING` ones."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class PodStatus(_Json, frozen=True):
    """`status`. The API server always sends one, at least `{}`; a stored pod without any is malformed."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    start_time: datetime | None = None


class Pod(_Json, frozen=True):
    """A v1 Pod, as much of it as decisions need."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec | None = None
    status: PodStatus | None = None

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """`metadata.uid`: tells a pod from a later one of the same name."""
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        """`metadata.resourceVersion`."""
        return self.metadata.resource_version

    def at_version(self, version: str) -> Pod:
        """The same pod, as of another version."""
        return replace(self, metadata=replace(self.metadata, resource_version=version))

    @property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`, empty if there are none."""
        return self.metadata.labels or {}

    @property
    def profile(self) -> str:
        """The profile's name from its label, `"default"` if the label is missing."""
        labels = self.metadata.labels
        return labels.get(PROFILE_LABEL, DEFAULT_PROFILE) if labels else DEFAULT_PROFILE

    @property
    def terminating(self) -> bool:
        """Its deletion has begun."""
        return self.metadata.deletion_timestamp is not None


EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]


class PodEvent(msgspec.Struct, frozen=True, gc=False):
    """One watched change, as a line of a watch has it. Bookmarks are none: they only move the stream's version."""

    type: EventType
    pod: Pod = msgspec.field(name="object")


def fleet_selector(app_id: str, *, active_only: bool = True) -> str:
    """The label selector of every list, watch and bulk delete: this application's executors.

    With `active_only`, those that were set aside with the inactive label are left out.
    """
    selector = f"{APP_ID_LABEL}={app_id},{ROLE_LABEL}={ROLE_EXECUTOR}"
    return f"{selector},{INACTIVE_LABEL}!=true" if active_only else selector


def parse_executor_id(text: str) -> int | None:
    """Return the executor id that `text` spells as we write ids: ASCII digits, no leading zero. None if it is no id."""
    is_id = text.isascii() and text.isdecimal() and text[0] != "0" and len(text) <= MAX_ID_DIGITS
    return int(text) if is_id else None


def executor_id(pod: Pod) -> int | None:
    """Return the executor id from the pod's label, None if the label is missing or is no id."""
    labels = pod.metadata.labels
    return parse_executor_id(labels.get(EXECUTOR_ID_LABEL, "")) if labels else None


def claims_of(pod: Pod) -> Iterator[str]:
    """The names of the PersistentVolumeClaims that a pod names. A generic ephemeral volume is not among them."""
    for volume in (pod.spec.volumes if pod.spec else None) or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name


def container_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    """`status.containerStatuses`, empty if there are none."""
    return (pod.status.container_statuses if pod.status else None) or ()


def ends(statuses: Iterable[ContainerStatus]) -> list[TerminatedState]:
    """How those of these containers ended that have."""
    return [status.state.terminated for status in statuses if status.state and status.state.terminated]
