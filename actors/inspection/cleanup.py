"""Whether an orphaned fleet may be deleted, what belongs to it, and how its Lease is kept from a driver. Pure.

Who cleans up does what a driver does: takes the Lease under the condition that nobody has written it since it was read.
A driver that was only paused finds another holder when it wakes up, and writes nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors import kube
from actors.inspection.fields import items, text
from actors.inspection.fleets import FleetState
from actors.kube.api import LEASES
from actors.lease.record import lease_name, released, taken
from actors.pods.ids import id_in_claim, id_in_name

if TYPE_CHECKING:
    from datetime import datetime

    from actors.inspection.fleets import ObservedFleet
    from actors.inspection.leases import ObservedLease
    from actors.kube.api import Manifest

__all__ = ["HOLD", "is_executors_claim", "must_watch", "refusal", "release_lease", "take_lease"]

HOLD: Final = timedelta(seconds=60)
"""How long the Lease is taken for, without renewal: a driver that starts after a cleanup that crashed waits so long."""


def refusal(fleet: ObservedFleet, *, without_lease: bool = False) -> str | None:
    """Return why the fleet must not be deleted, None if it may be.

    `without_lease`: the user says that no driver is alive, where nothing else does.
    """
    name, why = repr(fleet.app_id), fleet.driver.why
    if fleet.state is FleetState.ALIVE:
        return f"fleet {name} is alive: {why}. Stop its driver, or scale it to 0; nothing was deleted"
    if fleet.state is FleetState.UNKNOWN and fleet.lease is None and not without_lease:
        return (
            f"nothing says whether the driver of fleet {name} is alive: {why}. If you know that it is not, "
            "give --without-lease; nothing was deleted"
        )
    return None


def is_executors_claim(claim: Manifest) -> bool:
    """Whether a claim has the name that a driver, or the cluster for an executor's pod, gives to a claim.

    Others may have the fleet's labels, too, as those of a copied manifest, or claims that people made for executors.
    """
    name = text(claim, "metadata", "name") or ""
    owners = (owner for owner in items(claim, "metadata", "ownerReferences") if text(owner, "kind") == "Pod")
    pods = (pod for owner in owners if id_in_name(pod := text(owner, "name") or "") is not None)
    return id_in_claim(name) is not None or any(name.startswith(f"{pod}-") for pod in pods)


def must_watch(lease: ObservedLease, now: datetime) -> timedelta | None:
    """Return for how long the Lease must stay unchanged before it may be taken; None if it may be now.

    If the server did not stamp the renewal, the clock of its holder did, which may be wrong.
    """
    has_expired = lease.stamped and lease.may_be_held(now) is False
    return None if lease.released or has_expired else lease.record.duration


def take_lease(app_id: str, lease: ObservedLease, identity: str, now: datetime) -> kube.PatchObject:
    """Return the request that takes the Lease, or renews ours. It is a `Conflict` if somebody wrote it meanwhile."""
    patch = taken(lease.record, identity, HOLD, now, last_id=lease.record.last_id)
    return kube.PatchObject(LEASES, lease_name(app_id), patch)


def release_lease(app_id: str, lease: ObservedLease, now: datetime) -> kube.PatchObject:
    """Return the request that releases our Lease. It stays, so that no executor id is used twice."""
    patch = released(lease.record, now, last_id=lease.record.last_id)
    return kube.PatchObject(LEASES, lease_name(app_id), patch)
