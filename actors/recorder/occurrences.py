"""What becomes a Kubernetes Event, and which occurrences one Event counts together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

from actors.messages import AllocationBlocked, AllocationUnblocked, ExecutorRemoved, ExecutorStuck, FleetFailed
from actors.messages.internal import DriverLeaseAcquired, DriverLeaseLost
from actors.pods.loss import LossKind

if TYPE_CHECKING:
    from actors.messages.internal import ToEventRecorder

__all__ = ["Occurrence", "Reason", "occurrence"]

Reason: TypeAlias = Literal[
    "ExecutorLost",
    "ExecutorStuck",
    "CreationBlocked",
    "CreationResumed",
    "FleetFailed",
    "LeaseAcquired",
    "LeaseLost",
]
"""In CamelCase and at most 128 characters, as the API demands."""

_NO_LOSS: Final = frozenset({LossKind.KILLED_BY_DRIVER})
"""The driver requested these ends itself."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that an operator may ask about."""

    reason: Reason
    message: str
    """May hold text from the cluster, of any length."""
    alike: tuple[str, ...] = ()
    """Occurrences of one reason that agree in this are counted together."""
    type: Literal["Normal", "Warning"] = "Warning"


def occurrence(message: ToEventRecorder, instance: str) -> Occurrence | None:
    """Return what is recorded of a message, None if nothing is. `instance` names this driver.

    Losses are counted together by kind and profile: a node that takes a hundred executors with it makes one Event.
    """
    match message:
        case ExecutorRemoved(reason=reason, profile=profile):
            if reason.kind in _NO_LOSS:
                return None
            return Occurrence(
                "ExecutorLost", f"{reason.kind}, {_of(profile)}: {reason.message}", (reason.kind, profile)
            )
        case ExecutorStuck(executor_id, reason, text, profile=profile):
            return Occurrence(
                "ExecutorStuck", f"{_of(profile)}: executor {executor_id} is stuck: {reason}: {text}", (reason, profile)
            )
        case AllocationBlocked(profile, cause, blocked_by):
            return Occurrence("CreationBlocked", f"{_of(profile)}: {cause}", (blocked_by or "", profile))
        case AllocationUnblocked(profile):
            return Occurrence(
                "CreationResumed", f"{_of(profile)}: executors can be created again", (profile,), type="Normal"
            )
        case FleetFailed(cause):
            return Occurrence("FleetFailed", cause)
        case DriverLeaseAcquired():
            return Occurrence("LeaseAcquired", f"driver {instance} acquired the lease", type="Normal")
        case DriverLeaseLost(reason):
            return Occurrence("LeaseLost", f"driver {instance} creates and deletes no executors: {reason}")
        case _:
            assert_never(message)


def _of(profile: str) -> str:
    return f"profile {profile}"
