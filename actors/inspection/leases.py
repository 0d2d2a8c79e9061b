"""A fleet's Lease as an outsider reads it: who holds it, when it was renewed, and what the driver wants. Pure.

Drivers judge by their own clock whether a Lease changes. An outsider that looks once must compare the renewal with the
current time. The renewal is the server's time if possible, which it stamps into `managedFields` at each write: then the
driver's clock does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.errors import ApiError
from actors.inspection.fields import items, text, time, value
from actors.lease.record import read, read_targets
from actors.pods.pod import APP_ID_LABEL
from actors.settings.groups import BackendSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from actors.kube.api import Manifest
    from actors.lease.record import Lease

__all__ = ["ObservedLease", "app_id_of", "observe_lease"]

_USUAL_DURATION: Final = BackendSettings().lease_duration
"""Of a Lease that does not say how long it is valid."""


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A Lease at one moment."""

    record: Lease
    renewed_at: datetime | None
    """When it was last written: by the server's clock if `stamped`, else by its holder's. None if it does not say."""
    stamped: bool
    targets: Mapping[str, int] | None
    """The target of each profile, None if no driver recorded it."""

    @property
    def released(self) -> bool:
        """Nobody holds it: its last holder ended in order."""
        return not self.record.holder

    def age(self, now: datetime) -> timedelta | None:
        """Return how long ago it was renewed, None if that is unknown. Negative: the clocks disagree."""
        return now - self.renewed_at if self.renewed_at is not None else None

    def may_be_held(self, now: datetime) -> bool | None:
        """Whether its holder may still write. None if the clocks disagree, or it does not say when it was renewed."""
        age = self.age(now)
        if self.released:
            return False
        if age is None or age < -self.record.duration:
            return None
        return age < self.record.duration


def observe_lease(manifest: Manifest) -> ObservedLease | None:
    """Return what a Lease, as JSON, says. None if it is unusable."""
    try:
        record = read(manifest, _USUAL_DURATION)
    except ApiError:
        return None
    stamp = _stamp(manifest)
    renewed_at = stamp or time(manifest, "spec", "renewTime")
    return ObservedLease(record, renewed_at, stamp is not None, read_targets(manifest))


def app_id_of(manifest: Manifest) -> str | None:
    """Return the `app_id` in the labels of a pod or a Lease, None if there is none."""
    return text(manifest, "metadata", "labels", APP_ID_LABEL)


def _stamp(manifest: Manifest) -> datetime | None:
    """Return when the server stored the last change of the renewal."""
    writes = (
        time(entry, "time")
        for entry in items(manifest, "metadata", "managedFields")
        if value(entry, "fieldsV1", "f:spec", "f:renewTime") is not None
    )
    return max((write for write in writes if write is not None), default=None)
