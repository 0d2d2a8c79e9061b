"""A fleet, as its pods, its Lease and its driver's pod show it: who drives it, and how many executors it has. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from actors.inspection.executors import ObservedState
from actors.inspection.fields import items, text, value
from actors.text import age, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from actors.inspection.executors import ObservedExecutor
    from actors.inspection.leases import ObservedLease
    from actors.kube.api import Manifest
    from actors.pods.pod import OwnerReference

__all__ = [
    "Counts",
    "FleetState",
    "ObservedDriver",
    "ObservedFleet",
    "judge",
    "owners_of",
    "pod_lives",
    "with_answer",
]

_ENDED_PHASES = frozenset({"Succeeded", "Failed"})


class FleetState(StrEnum):
    """What an operator may want to do about a fleet."""

    ALIVE = "alive"
    """Its driver renews the Lease; without a Lease: its driver's pod runs."""
    ORPHANED = "orphaned"
    """Nobody drives it, and it has executors that are alive, and cost."""
    ENDED = "ended"
    """Nobody drives it, and no executor is alive."""
    UNKNOWN = "unknown"
    """Nothing says whether a driver is alive: it has no Lease and no owner, or they cannot be read."""


@dataclass(frozen=True, slots=True)
class ObservedDriver:
    """What the API says of a fleet's driver."""

    lives: bool | None
    """None if nothing says so."""
    why: str
    """How we know, or why not: half a sentence for people."""


@dataclass(frozen=True, slots=True)
class Counts:
    """One profile's executors."""

    wanted: int | None = None
    """The target that the driver recorded in the Lease, None if it did not."""
    running: int = 0
    """Running, or in an unknown state."""
    pending: int = 0
    """Not running yet, stuck ones included."""
    stuck: int = 0
    terminating: int = 0
    ended: int = 0
    """Ended ones whose pods are still there."""


@dataclass(frozen=True, slots=True)
class ObservedFleet:
    """One fleet at one moment."""

    app_id: str
    namespace: str
    executors: tuple[ObservedExecutor, ...]
    """By id; pods without an id last."""
    lease: ObservedLease | None
    driver: ObservedDriver
    at: datetime
    """When it was read."""
    unreadable: int = 0
    """Pods without a usable name or UID, which are left out."""
    on_hold: bool | None = None
    """Its driver retires all executors and creates none; None unless the driver was asked."""

    @property
    def state(self) -> FleetState:
        """See `FleetState`."""
        if self.driver.lives is None:
            return FleetState.UNKNOWN
        if self.driver.lives:
            return FleetState.ALIVE
        alive = any(executor.alive for executor in self.executors)
        return FleetState.ORPHANED if alive else FleetState.ENDED

    @property
    def counts(self) -> Mapping[str, Counts]:
        """The executors of each profile, by name; profiles that are wanted included."""
        wanted = (self.lease.targets if self.lease is not None else None) or {}
        counts: dict[str, Counts] = {profile: Counts(target) for profile, target in wanted.items()}
        for executor in self.executors:
            counts[executor.profile] = _counted(counts.get(executor.profile, Counts()), executor.state)
        return dict(sorted(counts.items()))

    def find(self, executor_id: int) -> ObservedExecutor | None:
        """Return the executor with this id, the one that is alive if there are two; None if it has no pod."""
        found = [executor for executor in self.executors if executor.id == executor_id]
        return next((executor for executor in found if executor.alive), next(iter(found), None))


def with_answer(fleet: ObservedFleet, status: Mapping[str, Any], executors: Mapping[str, Any]) -> ObservedFleet:
    """Return a fleet with what its driver's page says of it: `/api/v1/status` and `/api/v1/executors`."""
    told = {text(row, "pod"): row for row in items(executors, "executors")}

    def asked(executor: ObservedExecutor) -> ObservedExecutor:
        row = told.get(executor.pod.name)
        if row is None:
            return executor
        registered, retiring = (value(row, name) is True for name in ("registered", "retiring"))
        return replace(executor, registered=registered, retiring=retiring)

    return replace(
        fleet, on_hold=value(status, "on_hold") is True, executors=tuple(asked(each) for each in fleet.executors)
    )


def owners_of(executors: tuple[ObservedExecutor, ...]) -> tuple[OwnerReference, ...]:
    """Return the pods that own these executors, each once: one driver's, unless a restarted one is adopting them."""
    return tuple({owner.uid: owner for executor in executors for owner in executor.owners}.values())


def pod_lives(pod: Manifest | None, uid: str) -> bool:
    """Whether the pod with this UID, read by its name, can still run a program."""
    return (
        pod is not None and value(pod, "metadata", "uid") == uid and text(pod, "status", "phase") not in _ENDED_PHASES
    )


def judge(
    lease: ObservedLease | None, owners: Mapping[str, bool | None], now: datetime, problem: str | None = None
) -> ObservedDriver:
    """Say whether a driver is alive. The Lease decides if there is one: only its holder may write.

    Args:
        lease: of the fleet.
        owners: the names of the driver's pods that own executors, each with whether it lives; None: unknown.
        now: the current time.
        problem: why the Lease could not be read, if so.
    """
    if lease is not None:
        return _by_lease(lease, now)
    if owners and any(owners.values()):
        return _alive(f"the driver's pod {_first(owners, lives=True)} runs")
    if owners and None not in owners.values():
        return _gone(f"the driver's pod {_first(owners, lives=False)} is gone or has ended")
    if problem is not None:
        return _unknown(f"its Lease cannot be read: {problem}")
    if owners:
        return _unknown(f"it has no Lease, and the driver's pod {_first(owners, lives=None)} cannot be read")
    return _unknown("it has no Lease, and no pod owns its executors")


def _by_lease(lease: ObservedLease, now: datetime) -> ObservedDriver:
    holder, since = one_line(lease.record.holder, 300), lease.age(now)
    if lease.released:
        return _gone("its driver released the Lease")
    held = lease.may_be_held(now)
    if since is None:
        return _unknown(f"the Lease of {holder} does not say when it was renewed")
    if held is not None:
        return (
            _alive(f"{holder} holds the Lease")
            if held
            else _gone(f"{holder} has not renewed the Lease for {age(since)}")
        )
    return _unknown(f"{holder} renewed the Lease {age(-since)} in the future: the clocks disagree")


def _alive(why: str) -> ObservedDriver:
    return ObservedDriver(lives=True, why=why)


def _gone(why: str) -> ObservedDriver:
    return ObservedDriver(lives=False, why=why)


def _unknown(why: str) -> ObservedDriver:
    return ObservedDriver(lives=None, why=why)


def _first(owners: Mapping[str, bool | None], *, lives: bool | None) -> str:
    return one_line(next(name for name, each in owners.items() if each is lives), 253)


def _counted(counts: Counts, state: ObservedState) -> Counts:
    match state:
        case ObservedState.RUNNING | ObservedState.UNKNOWN:
            return replace(counts, running=counts.running + 1)
        case ObservedState.PENDING:
            return replace(counts, pending=counts.pending + 1)
        case ObservedState.STUCK:
            return replace(counts, pending=counts.pending + 1, stuck=counts.stuck + 1)
        case ObservedState.TERMINATING:
            return replace(counts, terminating=counts.terminating + 1)
        case ObservedState.ENDED:
            return replace(counts, ended=counts.ended + 1)
