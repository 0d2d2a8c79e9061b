"""Which PersistentVolumeClaims of the fleet an executor may reuse, and which of them first.

Pure. A claim as a LIST returns it does not say whether a pod uses it: the caller must know.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from actors.kube.quantities import parse_quantity
from actors.manifests.executor_pod import CLAIM_LABEL, CLASS_ANNOTATION
from actors.pods.pod import PROFILE_LABEL, OwnerReference

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import timedelta

    from actors.kube.api import Manifest
    from actors.settings import ClaimSettings

__all__ = ["Claim", "fitting", "free", "read"]

LOST: Final = "Lost"
"""The phase of a claim whose volume and data are gone."""


class _Json(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of the projections: camelCase on the wire, unknown fields skipped."""


class ClaimMeta(_Json, frozen=True):
    """`metadata`."""

    name: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class ClaimResources(_Json, frozen=True):
    """`spec.resources`."""

    requests: dict[str, Any] | None = None


class ClaimSpec(_Json, frozen=True):
    """`spec`."""

    access_modes: tuple[str, ...] | None = None
    resources: ClaimResources = ClaimResources()
    storage_class_name: str | None = None


class ClaimStatus(_Json, frozen=True):
    """`status`."""

    phase: str | None = None


class Claim(_Json, frozen=True):
    """The fields of a v1 PersistentVolumeClaim that decisions need."""

    metadata: ClaimMeta = ClaimMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def size(self) -> Decimal:
        """The requested size: the volume has at least that."""
        return parse_quantity((self.spec.resources.requests or {}).get("storage")) or Decimal(0)

    def is_owned_by(self, uid: str) -> bool:
        """Whether the object with this UID owns the claim."""
        return any(reference.uid == uid for reference in self.metadata.owner_references or ())


def read(manifest: Manifest) -> Claim | None:
    """Return a claim from a LIST, or None if it is malformed: the other claims stay usable."""
    try:
        return msgspec.convert(manifest, Claim)
    except msgspec.ValidationError:
        return None


def fitting(claims: Iterable[Claim], required: ClaimSettings, profile: str, owner: str) -> list[Claim]:
    """Return the claims that fit one of a profile's `claims`, in use or not; `owner` is the UID of the fleet's owner.

    A claim fits if it was made for the same setting, has the same class, is large enough, has the access modes, and is
    neither lost nor being deleted.
    """
    size = parse_quantity(required.size) or Decimal(0)
    return [
        claim
        for claim in claims
        if (labels := claim.metadata.labels or {}).get(CLAIM_LABEL) == required.name
        and labels.get(PROFILE_LABEL) == profile
        and _is_of_class(claim, required.storage_class)
        and claim.size >= size
        and set(required.access_modes) <= set(claim.spec.access_modes or ())
        and claim.is_owned_by(owner)
        and claim.metadata.deletion_timestamp is None
        and claim.status.phase != LOST
    ]


def free(claims: Iterable[Claim], in_use: Collection[str], *, now: datetime, older_than: timedelta) -> list[Claim]:
    """Return the claims that can be reused, the smallest first, so that large ones remain for executors that need them.

    A younger one may belong to a pod that a crashed driver was creating.
    """
    return sorted(
        (claim for claim in claims if claim.name not in in_use and _is_older(claim, now, older_than)),
        key=lambda claim: (claim.size, claim.metadata.creation_timestamp, claim.name),
    )


def _is_of_class(claim: Claim, required: str | None) -> bool:
    """Whether the claim has the requested class. The default fits a claim that was made with it, whatever it is now."""
    if required is None:
        return CLASS_ANNOTATION not in (claim.metadata.annotations or {})
    return claim.spec.storage_class_name == required


def _is_older(claim: Claim, now: datetime, age: timedelta) -> bool:
    created_at = claim.metadata.creation_timestamp
    return created_at is not None and now - created_at > age
