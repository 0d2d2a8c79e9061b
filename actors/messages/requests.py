"""What the RequestPool is asked to do to the API. Its answers stand with those who get them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from actors.kube.api import DeleteOptions, Manifest
from actors.pods.pod import Pod
from actors.runtime import Address

__all__ = [
    "NOT_DESIRED",
    "AdoptPod",
    "BeginEpoch",
    "ConfirmPod",
    "CreatePod",
    "DeletePod",
    "DeletePods",
    "Drain",
    "LabelPod",
    "ListClaims",
    "PodsObserved",
    "ResumeWrites",
    "SuspendWrites",
    "ToRequestPool",
    "WithdrawPods",
]


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """A new Allocator: drop the queued creates of earlier epochs, resolve those on the wire, then say `EpochBegun`."""

    epoch: int
    reply_to: Address
    requested: frozenset[int] = frozenset()
    """Ids that were requested and that nobody has seen: those that this pool was never asked for are lost."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """POST this pod; `reply_to` gets `PodCreated` or `PodCreateFailed`, once."""

    executor_id: int
    epoch: int
    manifest: Manifest
    reply_to: Address
    claims: tuple[Manifest, ...] = ()
    """PersistentVolumeClaims that the pod mounts and that are made before it. One named after this executor that exists
    already, and that no try of ours can have made, is not ours: `PodCreateFailed` with `AlreadyExists`.
    """
    again: bool = False
    """It was asked of a pool that has crashed: there may be such a pod, and such claims, and they are ours."""


NOT_DESIRED: Final = "it is not wanted any more"
"""Why an executor is withdrawn or given up, where its profile's target is lower."""


@dataclass(frozen=True, slots=True)
class WithdrawPods:
    """These executors are not wanted any more: those whose POST is not on the wire are not made.

    Each is answered as ever: `PodCreateFailed` with `Cancelled`, or `PodCreated`, `withdrawn`, if an earlier try has
    made it.
    """

    executor_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """DELETE one pod. The same pod asked for again while the first request is open is the same request."""

    name: str
    options: DeleteOptions = field(default_factory=DeleteOptions)


@dataclass(frozen=True, slots=True)
class DeletePods:
    """DELETE these executors' pods by label, or all of the application's when `executor_ids` is None.

    Creates of these ids that are still queued are dropped; one that is on the wire is deleted once it is answered.
    """

    executor_ids: frozenset[int] | None
    reply_to: Address | None = None
    """Gets `PodsDeleted`, once."""
    include_inactive: bool = False
    """Of all: those that were set aside, too."""


@dataclass(frozen=True, slots=True)
class LabelPod:
    """Merge-patch labels of one pod, with its UID as precondition."""

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdoptPod:
    """Make `owner` (an ownerReference) the owner of one pod of an earlier life, with its UID as precondition."""

    name: str
    uid: str
    owner: Manifest


@dataclass(frozen=True, slots=True)
class ListClaims:
    """LIST the fleet's PersistentVolumeClaims; `reply_to` gets `ClaimsListed`, once."""

    reply_to: Address


@dataclass(frozen=True, slots=True)
class SuspendWrites:
    """Write nothing from now on, as another driver has the lease: creates are refused, the rest is dropped."""

    reason: str


@dataclass(frozen=True, slots=True)
class ResumeWrites:
    """Write again."""


@dataclass(frozen=True, slots=True)
class ConfirmPod:
    """GET one pod; `reply_to` gets `PodConfirmed`, once."""

    executor_id: int
    name: str
    uid: str
    reply_to: Address


@dataclass(frozen=True, slots=True)
class PodsObserved:
    """A snapshot showed these pods, by executor id, before their POSTs were answered: they are not POSTed again."""

    pods: Mapping[int, Pod]


@dataclass(frozen=True, slots=True)
class Drain:
    """Take no more creates, drop those queued, resolve those on the wire; then `reply_to` gets `Drained`."""

    reply_to: Address


ToRequestPool: TypeAlias = (
    BeginEpoch
    | CreatePod
    | DeletePod
    | DeletePods
    | LabelPod
    | AdoptPod
    | ListClaims
    | ConfirmPod
    | WithdrawPods
    | PodsObserved
    | SuspendWrites
    | ResumeWrites
    | Drain
)
