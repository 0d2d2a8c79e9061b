"""The answer to `GetFleetStatus`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from actors.text import JsonReady

__all__ = [
    "FleetStatus",
    "HeldPod",
    "ProfileStatus",
    "SourceStatus",
]


@dataclass(frozen=True, slots=True)
class ProfileStatus(JsonReady):
    """One profile's numbers, as of the Allocator's last round (`target` and `registered`: as of the answer)."""

    target: int = 0
    requested: int = 0
    """Executors that are not in a snapshot yet."""
    pending: int = 0
    running: int = 0
    """Running or in an unknown phase."""
    terminating: int = 0
    retiring: int = 0
    """How many of `pending` and `running` retire: they do not count toward the target."""
    registered: int = 0
    blocked: str | None = None
    """Why creation is blocked, None while it is not."""
    blocked_since: datetime | None = None
    start_failures: int = 0
    """Short-lived executors within `executor.failures_validity_interval`."""
    blocked_by: str | None = None
    """The kind of `blocked`, one of a few: the class of the API's error, or the name of another blocker."""
    more_memory: int = 0
    """Executors with more memory than the profile's, as `executor.on_oom` gave it; requested ones included."""
    backoff_until: datetime | None = None
    """Until when creation waits because executors ended early; None while it does not."""


@dataclass(frozen=True, slots=True)
class FleetStatus(JsonReady):
    """What the Backend knows now. Ages are as of the answer."""

    app_id: str
    namespace: str
    profiles: Mapping[str, ProfileStatus]
    sources: Mapping[str, SourceStatus]
    stopping: bool = False
    may_write: bool = True
    """Pods may be created and deleted: the lease is ours, or none is used."""
    lease_held: bool = False
    held: tuple[HeldPod, ...] = ()
    """Pods that finalizers hold, the longest held first. An operator may have to remove the finalizers."""
    on_hold: bool = False
    """All executors retire and none is created, until `ResumeFleet`. The profiles' targets are those from then on."""
    failed: str | None = None
    """Why no executor is created any more until a target is set, as `FleetFailed` says it."""


@dataclass(frozen=True, slots=True)
class HeldPod(JsonReady):
    """A pod that was deleted and whose grace period is over, but that stays until its finalizers are removed."""

    executor_id: int
    pod_name: str
    finalizers: tuple[str, ...]
    since: datetime
    """When its grace period ended."""


@dataclass(frozen=True, slots=True)
class SourceStatus(JsonReady):
    """One source's freshness."""

    synced: bool
    """The source has had a full sync, and its last request or connection did not fail."""
    since_full_sync: timedelta | None
    since_heard: timedelta | None
    """The age of the last page, event or bookmark. May be up to a second too old."""
    error: str | None
