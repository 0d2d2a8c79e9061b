"""Requests to the RequestPool. Its answers are in the modules of those who receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeAlias

from actors.kube.api import DeleteOptions, Manifest
from actors.pods.pod import Pod
from actors.runtime import Address, Moment

__all__ = [
    "NOT_DESIRED",
    "NO_PAUSE",
    "AdoptPod",
    "AllowWrites",
    "BeginEpoch",
    "ConfirmPod",
    "CreatePod",
    "DeleteClaim",
    "DeletePod",
    "DeletePods",
    "Drain",
    "GracePeriods",
    "LabelPod",
    "ListClaims",
    "PodsObserved",
    "SuspendWrites",
    "ToRequestPool",
    "WithdrawPods",
    "WithdrawRequests",
]


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """A new Allocator: drop the queued creates of earlier epochs, resolve those in flight, then send `EpochBegun`."""

    epoch: int
    reply_to: Address
    requested: frozenset[int] = frozenset()
    """Requested ids that are not in a snapshot yet. Those that this pool never received are lost."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """POST this pod; `reply_to` gets `PodCreated` or `PodCreateFailed`, once."""

    executor_id: int
    epoch: int
    manifest: Manifest
    reply_to: Address
    claims: tuple[Manifest, ...] = ()
    """PersistentVolumeClaims that the pod mounts, created before it. A claim named after this executor that exists
    already, and that no try of ours can have created, is not ours: `PodCreateFailed` with `AlreadyExists`.
    """
    again: bool = False
    """A crashed pool had received this request: if the pod or its claims exist, they are ours."""
    rank: int = 0
    """POSTs of a lower rank go first: how many executors the profile has before this one."""


NO_PAUSE: Final = timedelta(seconds=1)
"""The grace period with which the fleet deletes pods that pause before SIGTERM (`executor.drain_timeout`).

A kubelet waits for the preStop hook no longer than the grace period, then sends SIGTERM, and SIGKILL 2 s later. It does
not shorten a pause that it has begun. A DELETE with 0 would remove the pod from the API while its processes still run.
"""

NOT_DESIRED: Final = "it is no longer desired"
"""Why an executor is withdrawn or abandoned when its profile's target was lowered."""


@dataclass(frozen=True, slots=True)
class WithdrawPods:
    """These executors are no longer desired: drop their creates, except those in flight.

    Each create is still answered: `PodCreateFailed` with `Cancelled`, or `PodCreated` with `withdrawn` if an earlier
    try has created the pod.
    """

    executor_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """DELETE one pod. A repeated request for the same pod joins the open one.

    Without a UID it is an executor's pod that was not observed yet: its create is dropped, or the pod deleted once it
    is made. Another's pod of this name is left alone.
    """

    name: str
    options: DeleteOptions = field(default_factory=DeleteOptions)
    observed_at: Moment | None = field(default=None, compare=False)
    """When the pod was last observed. Once carried out, the request is sent again only if it was observed after that;
    None if it is to be sent in any case. The same for labels and adoptions."""
    goes_first: bool = field(default=False, compare=False)
    """The executor counts no longer: its pod is deleted before another is created in its place."""
    reply_to: Address | None = field(default=None, compare=False)
    """Gets `PodsDeleted`, unless the request is dropped."""


@dataclass(frozen=True, slots=True)
class WithdrawRequests:
    """These pods, name → UID, have left the fleet: send no DELETE and no PATCH to them any more."""

    pods: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GracePeriods:
    """The grace periods with which pods are deleted, by profile. None is the pod's own."""

    named: Mapping[str, timedelta | None] = field(default_factory=dict, hash=False)
    others: timedelta | None = None
    """Of pods with a profile that is not named."""

    def of(self, profile: str) -> timedelta | None:
        """Return the grace period of a pod with this profile."""
        return self.named.get(profile, self.others)

    @classmethod
    def without_pause(cls, draining: frozenset[str]) -> GracePeriods:
        """Return each pod's own, but no pause for the profiles that pause before SIGTERM."""
        return cls(dict.fromkeys(draining, NO_PAUSE))


@dataclass(frozen=True, slots=True)
class DeletePods:
    """DELETE, in one call, all that had the fleet's labels and one of these ids at the version of a LIST.

    The sender has seen in that LIST that they are all executors. What else waits to be sent to these pods is dropped.
    """

    pods: Mapping[str, str]
    """Name → UID."""
    executor_ids: frozenset[int]
    at_version: str
    reply_to: Address
    """Gets `PodsDeleted`, unless writes are suspended."""
    grace: timedelta | None = None
    """As in `DeleteOptions`."""
    include_inactive: bool = False
    """The LIST had pods that are labelled inactive, too."""


@dataclass(frozen=True, slots=True)
class LabelPod:
    """Merge-patch labels of one pod, with its UID as precondition."""

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    observed_at: Moment | None = field(default=None, compare=False)
    """When the pod was last observed without the labels, see `DeletePod`."""


@dataclass(frozen=True, slots=True)
class AdoptPod:
    """Make `owners` (ownerReferences) those of one pod of a previous driver, with its UID as precondition."""

    name: str
    uid: str
    owners: tuple[Manifest, ...]
    observed_at: Moment | None = field(default=None, compare=False)
    """When the pod was last observed without one of them, see `DeletePod`."""


@dataclass(frozen=True, slots=True)
class ListClaims:
    """LIST the fleet's PersistentVolumeClaims; `reply_to` gets `ClaimsListed`, once."""

    reply_to: Address


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """DELETE one PersistentVolumeClaim; `reply_to` gets `ClaimDeleted`, once."""

    name: str
    uid: str
    reply_to: Address


@dataclass(frozen=True, slots=True)
class SuspendWrites:
    """Write nothing, because another driver may have the lease: refuse creates, drop other requests."""

    reason: str


@dataclass(frozen=True, slots=True)
class AllowWrites:
    """Write, again or on."""

    until: Moment | None = None
    """Send no write after this moment, unless a later one is allowed. None: no lease is used."""


@dataclass(frozen=True, slots=True)
class ConfirmPod:
    """GET one pod; `reply_to` gets `PodConfirmed`, once."""

    executor_id: int
    name: str
    uid: str
    reply_to: Address


@dataclass(frozen=True, slots=True)
class PodsObserved:
    """These pods, by executor id, were observed for the first time: do not POST one that is not answered again."""

    pods: Mapping[int, Pod]


@dataclass(frozen=True, slots=True)
class Drain:
    """Accept no more creates, drop those queued, wait for those in flight; then `reply_to` gets `Drained`."""

    reply_to: Address


ToRequestPool: TypeAlias = (
    BeginEpoch
    | CreatePod
    | DeletePod
    | DeletePods
    | LabelPod
    | AdoptPod
    | ListClaims
    | DeleteClaim
    | ConfirmPod
    | WithdrawPods
    | WithdrawRequests
    | PodsObserved
    | SuspendWrites
    | AllowWrites
    | Drain
)
