"""The rules of a `coordination.k8s.io` Lease, as client-go's leader election has them. Pure.

Whose the lease is says its `holderIdentity`; that it is still theirs, that the record changes: no clock but our own is
compared with anything, so that two machines need not agree on the time. Beside that it remembers the highest executor
id that was given out, by whoever held it: pods and drivers go, and an id is never used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors.pods.pod import parse_executor_id

if TYPE_CHECKING:
    from actors.kube.api import Manifest

__all__ = ["LAST_ID", "Lease", "Take", "Wait", "decide", "first_lease", "lease_name", "read", "released", "taken"]

LAST_ID: Final = "executor-pods/last-id"
"""The annotation with the highest executor id that was given out."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What is in a Lease."""

    holder: str
    """Empty when it was released."""
    duration: timedelta
    renewed: str
    """When it was renewed last, in the API's words: only whether it changes counts."""
    transitions: int
    resource_version: str
    last_id: int = 0
    """The highest executor id that was given out, by all its holders; 0 if none was."""


@dataclass(frozen=True, slots=True)
class Take:
    """It is ours to take, or to renew."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It is somebody else's, who has shown signs of life since less than its duration."""

    holder: str


Decision: TypeAlias = Take | Wait


def lease_name(app_id: str) -> str:
    """One an application."""
    return f"executor-pods-{app_id}"


def read(manifest: Manifest) -> Lease:
    """The record in an object, in which anybody may have written anything."""
    spec = manifest.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    holder, seconds, transitions = (
        spec.get(key) for key in ("holderIdentity", "leaseDurationSeconds", "leaseTransitions")
    )
    return Lease(
        holder=holder if isinstance(holder, str) else "",
        duration=timedelta(seconds=seconds if isinstance(seconds, int) and 0 < seconds < 1_000_000 else 0),
        renewed=str(spec.get("renewTime")),
        transitions=transitions if isinstance(transitions, int) else 0,
        resource_version=str(manifest["metadata"]["resourceVersion"]),
        last_id=_last_id(manifest["metadata"].get("annotations")),
    )


def _last_id(annotations: object) -> int:
    text = annotations.get(LAST_ID) if isinstance(annotations, Mapping) else None
    return (parse_executor_id(text) if isinstance(text, str) else None) or 0


def decide(lease: Lease, identity: str, unchanged_for: timedelta) -> Decision:
    """What to do about a lease whose record we have seen unchanged for so long."""
    if lease.holder in {"", identity} or unchanged_for >= lease.duration:
        return Take()
    return Wait(lease.holder)


def first_lease(
    app_id: str, identity: str, duration: timedelta, now: datetime, labels: Mapping[str, str], *, last_id: int
) -> Manifest:
    """The Lease that did not exist yet, ours."""
    metadata = {"name": lease_name(app_id), "labels": dict(labels), "annotations": {LAST_ID: str(last_id)}}
    spec = {**_held(identity, duration, now), "acquireTime": _micro(now), "leaseTransitions": 0}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def taken(lease: Lease, identity: str, duration: timedelta, now: datetime, *, last_id: int) -> Manifest:
    """The patch that renews it, or takes it over; void if anybody has written since we read it."""
    spec = _held(identity, duration, now)
    if lease.holder != identity:
        spec |= {"acquireTime": _micro(now), "leaseTransitions": lease.transitions + 1}
    return _patch(lease, spec, last_id)


def released(lease: Lease, now: datetime, *, last_id: int) -> Manifest:
    """The patch that lets go of it: client-go writes an empty holder and the shortest duration, too."""
    return _patch(lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro(now)}, last_id)


def _patch(lease: Lease, spec: Mapping[str, Any], last_id: int) -> Manifest:
    annotations = {LAST_ID: str(max(last_id, lease.last_id))}
    return {"metadata": {"resourceVersion": lease.resource_version, "annotations": annotations}, "spec": spec}


def _held(identity: str, duration: timedelta, now: datetime) -> dict[str, Any]:
    seconds = max(1, round(duration.total_seconds()))
    return {"holderIdentity": identity, "leaseDurationSeconds": seconds, "renewTime": _micro(now)}


def _micro(moment: datetime) -> str:
    """Kubernetes' MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
