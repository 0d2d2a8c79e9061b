"""The rules of a `coordination.k8s.io` Lease, as in client-go's leader election. Pure.

`holderIdentity` names the holder, which is alive as long as the record changes. Only readings of our own clock are
compared, so that the clocks of two machines need not agree. The lease also records the highest executor id that any
holder allocated: pods and drivers go, and an id is never used again. For outsiders it records the targets, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from actors.errors import ApiError
from actors.lease.marks import MARKS, NO_MARKS, Marks, read_marks, written_marks
from actors.pods.ids import believed, parse_executor_id
from actors.settings.durations import LONGEST

if TYPE_CHECKING:
    from actors.kube.api import Manifest

__all__ = [
    "LAST_ID",
    "TARGETS",
    "Lease",
    "Take",
    "Wait",
    "decide",
    "first_lease",
    "lease_name",
    "read",
    "read_targets",
    "released",
    "taken",
]

LAST_ID: Final = "executor-pods/last-id"
"""The annotation with the highest allocated executor id."""

TARGETS: Final = "executor-pods/targets"
"""The annotation with the target of each profile, as JSON, for those who look from outside. No driver reads it."""

_LONGEST_TARGETS: Final = 32 * 1024
"""Characters: an object's annotations may have 256 KiB in all. A longer text, of hundreds of profiles, is left out."""

_INT32_MAX: Final = 2**31 - 1

_TICK: Final = timedelta(microseconds=1)
"""The smallest step of a MicroTime."""

_STEP: Final = timedelta(minutes=1)
"""A wall clock that was set back further shows new times by itself. Also, a year 9999 is not counted on from."""


NO_TARGETS: Final[Mapping[str, int]] = MappingProxyType({})

_TARGETS: Final = msgspec.json.Decoder(dict[str, Annotated[int, msgspec.Meta(ge=0, le=_INT32_MAX)]])


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a Lease."""

    holder: str
    """Empty after a release."""
    duration: timedelta
    """How long it is valid without renewal."""
    renewed: str
    """The time of the last renewal as the API has it. Another driver's is only compared for equality."""
    transitions: int
    resource_version: str
    last_id: int = 0
    """The highest executor id that any holder allocated, 0 if none."""
    marks: Marks = NO_MARKS
    """What shows that the holder has ended."""


@dataclass(frozen=True, slots=True)
class Take:
    """Acquire or renew the lease."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Another driver holds the lease, and changed the record less than its duration ago."""

    holder: str


Decision: TypeAlias = Take | Wait


def lease_name(app_id: str) -> str:
    """Return the name of the application's Lease."""
    return f"executor-pods-{app_id}"


def read(manifest: Manifest, duration: timedelta) -> Lease:
    """Read a Lease object, whose fields may contain anything.

    Unless it says how long it is valid, and that is a time which a driver may set, it is valid for `duration`.

    Raises:
        ApiError: it has no version: it cannot be changed safely.
    """
    metadata, spec = (part if isinstance(part := manifest.get(key), Mapping) else {} for key in ("metadata", "spec"))
    holder, version = spec.get("holderIdentity"), metadata.get("resourceVersion")
    holder = holder if isinstance(holder, str) else ""
    annotations = metadata.get("annotations")
    annotations = annotations if isinstance(annotations, Mapping) else {}
    if not isinstance(version, str) or not version:
        raise ApiError("the server's answer is not a Lease with a resourceVersion", status=200)
    seconds = _whole_number(spec.get("leaseDurationSeconds"))
    return Lease(
        holder=holder,
        duration=timedelta(seconds=seconds) if 0 < seconds <= LONGEST.total_seconds() else duration,
        renewed=str(spec.get("renewTime")),
        transitions=_whole_number(spec.get("leaseTransitions")),
        resource_version=version,
        last_id=_last_id(annotations.get(LAST_ID)),
        marks=read_marks(holder, annotations.get(MARKS)),
    )


def _whole_number(value: object) -> int:
    """Return a number that the next one fits into an int32 after, as the API has it; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _INT32_MAX else 0


def _last_id(text: object) -> int:
    return believed((parse_executor_id(text) if isinstance(text, str) else None) or 0)


def decide(lease: Lease, identity: str, unchanged_for: timedelta) -> Decision:
    """Decide about a lease whose record has not changed for `unchanged_for`."""
    if lease.holder in {"", identity} or unchanged_for >= lease.duration:
        return Take()
    return Wait(lease.holder)


def first_lease(
    app_id: str,
    identity: str,
    duration: timedelta,
    now: datetime,
    labels: Mapping[str, str],
    *,
    last_id: int,
    marks: Marks = NO_MARKS,
    targets: Mapping[str, int] = NO_TARGETS,
) -> Manifest:
    """Return a new Lease, held by us."""
    annotations = {LAST_ID: str(last_id), **written_marks(identity, marks), **_targets(targets)}
    metadata = {"name": lease_name(app_id), "labels": dict(labels), "annotations": annotations}
    spec = {**_held(identity, duration, now), "acquireTime": _micro(now), "leaseTransitions": 0}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def taken(
    lease: Lease,
    identity: str,
    duration: timedelta,
    now: datetime,
    *,
    last_id: int,
    marks: Marks = NO_MARKS,
    targets: Mapping[str, int] = NO_TARGETS,
) -> Manifest:
    """Return the patch that acquires or renews the lease. It fails if the lease has changed since we read it.

    Each renewal changes the record, though our wall clock may stand still: others judge by that whether we are alive.
    """
    if lease.holder == identity and (last := _parsed(lease.renewed)) is not None and now <= last < now + _STEP:
        now = last + _TICK
    spec = _held(identity, duration, now)
    if lease.holder != identity:
        spec |= {"acquireTime": _micro(now), "leaseTransitions": lease.transitions + 1}
    return _patch(lease, spec, last_id, {**written_marks(identity, marks), **_targets(targets)})


def released(lease: Lease, now: datetime, *, last_id: int) -> Manifest:
    """Return the patch that releases the lease: an empty holder and the shortest duration, as client-go writes."""
    return _patch(lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro(now)}, last_id, {})


def _patch(lease: Lease, spec: Mapping[str, Any], last_id: int, more: Mapping[str, str]) -> Manifest:
    annotations = {LAST_ID: str(max(last_id, lease.last_id)), **more}
    return {"metadata": {"resourceVersion": lease.resource_version, "annotations": annotations}, "spec": spec}


def _targets(targets: Mapping[str, int]) -> dict[str, str]:
    """Return the annotation with the targets, nothing if there are none, or too many."""
    text = json.dumps(dict(sorted(targets.items())), separators=(",", ":"))
    return {TARGETS: text} if targets and len(text) <= _LONGEST_TARGETS else {}


def read_targets(manifest: Manifest) -> Mapping[str, int] | None:
    """Return the targets in a Lease object by profile, None if it has none, or unusable ones."""
    metadata = manifest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = annotations.get(TARGETS) if isinstance(annotations, Mapping) else None
    try:
        return _TARGETS.decode(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _held(identity: str, duration: timedelta, now: datetime) -> dict[str, Any]:
    seconds = max(1, round(duration.total_seconds()))
    return {"holderIdentity": identity, "leaseDurationSeconds": seconds, "renewTime": _micro(now)}


def _parsed(moment: str) -> datetime | None:
    """Parse a MicroTime. None if it is none, as somebody may have edited it."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else None


def _micro(moment: datetime) -> str:
    """Format as Kubernetes' MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
