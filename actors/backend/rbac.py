"""The rights that our account needs, and the error that names missing ones. Pure.

The Backend asks the server to review every right before it creates anything: otherwise a missing right would fail hours
later, at the first deletion. If reviews are refused or not answered, the fleet starts all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from actors.errors import ApiError, Forbidden, Unavailable
from actors.kube.api import CLAIMS, EVENTS, LEASES, LOGS, PODS, Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actors.settings import Settings

__all__ = ["LIST_PODS", "Reviews", "Right", "lacking", "makes_claims", "needed", "used"]


@dataclass(frozen=True, slots=True)
class Right:
    """One RBAC verb on one resource, in the fleet's namespace."""

    verb: str
    resource: Resource = PODS


LIST_PODS: Final = Right("list")

_ALWAYS: Final = (
    LIST_PODS,  # for full syncs, and for a stop to see whether the fleet is gone
    Right("watch"),
    Right("create"),
    Right("get"),  # to check whether a create without an answer succeeded, and whether a pod that left our watch exists
    Right("delete"),  # excess, abandoned and ended executors
    Right("deletecollection"),  # the whole fleet at a stop
)

_TO_CHANGE_PODS: Final = Right("patch")
"""For labels and annotations, and for the owner of adopted pods."""

_TO_KEEP_A_LEASE: Final = (Right("get", LEASES), Right("create", LEASES), Right("patch", LEASES))

_TO_MAKE_CLAIMS: Final = Right("create", CLAIMS)

_TO_RECORD_EVENTS: Final = (Right("create", EVENTS), Right("patch", EVENTS))

_TO_READ_LOGS: Final = Right("get", LOGS)
"""For `Fleet.logs` and `Fleet.follow_logs`, which any program may call."""

_TO_REUSE_CLAIMS: Final = (Right("list", CLAIMS), Right("delete", CLAIMS))


def needed(settings: Settings) -> tuple[Right, ...]:
    """Return every right that a fleet of these settings needs.

    It needs no lease unless `backend.lease` is true. It needs neither to list claims nor to delete them: without these
    rights it reuses none, and a stop leaves them. It never needs Kubernetes Events.
    """
    return (
        *_ALWAYS,
        *((_TO_CHANGE_PODS,) if _changes_pods(settings) else ()),
        *(_TO_KEEP_A_LEASE if settings.backend.lease is True else ()),
        *((_TO_MAKE_CLAIMS,) if makes_claims(settings) else ()),
    )


def used(settings: Settings) -> tuple[Right, ...]:
    """Return every right that a fleet of these settings uses: those that it needs, and those that it does without.

    Without rights to its Lease it does not notice another driver. Without the right to logs, only reading them fails.
    """
    rights = (
        *needed(settings),
        *(_TO_KEEP_A_LEASE if settings.uses_lease else ()),
        *(_TO_REUSE_CLAIMS if makes_claims(settings) else ()),
        *(_TO_RECORD_EVENTS if settings.records_events else ()),
        _TO_READ_LOGS,
    )
    return tuple(dict.fromkeys(rights))


def _changes_pods(settings: Settings) -> bool:
    executor = settings.executor
    labels = (executor.kill_label, executor.decommission_label, executor.decommission_deletion_cost)
    return (
        not executor.delete_on_termination
        or any(label is not None for label in labels)
        or settings.driver_pod_name is not None
    )


def makes_claims(settings: Settings) -> bool:
    """Return whether the driver creates claims. Those that an executor's pod owns are created by the cluster."""
    owned = settings.driver_pod_name is not None and settings.executor.own_claims
    return owned and any(settings.profile(name).claims for name in settings.profile_names)


@dataclass(frozen=True, slots=True)
class Reviews:
    """The server's answers about our rights so far."""

    awaited: tuple[Right, ...]
    missing: tuple[Right, ...] = ()
    error: ApiError | None = None
    """Why a right could not be reviewed: the last such error."""

    def answered(self, right: Right, answer: bool | ApiError) -> Reviews:
        """Add one answer. A review that failed does not count against the right, nor one before it is granted."""
        if right in self.missing and answer is True:
            return replace(self, missing=tuple(other for other in self.missing if other != right))
        if right not in self.awaited:
            return self
        awaited = tuple(other for other in self.awaited if other != right)
        match answer:
            case ApiError():
                return replace(self, awaited=awaited, error=answer)
            case True:
                return replace(self, awaited=awaited)
            case _:
                return replace(self, awaited=awaited, missing=(*self.missing, right))

    def abandoned(self) -> Reviews:
        """Wait for no more answers."""
        if not self.awaited:
            return self
        return replace(self, awaited=(), error=Unavailable("the server has not answered the reviews of our rights"))


def lacking(rights: Iterable[Right], namespace: str, *, said: ApiError | None = None) -> Forbidden:
    """Return the error of an account without these rights, in one line: what it may not do, and what to grant.

    `said` is the server's own refusal, if there was one.
    """
    verbs: dict[Resource, list[str]] = {}
    for right in sorted(rights, key=_order):
        verbs.setdefault(right.resource, []).append(right.verb)
    may_not = _and([f"{_and(names)} {resource.plural}" for resource, names in verbs.items()])
    grant = _and([f"{_quoted(names)} on {_named(resource)}" for resource, names in verbs.items()])
    message = (
        f'the account may not {may_not} in namespace "{namespace}": grant {grant} '
        "(`executor-pods config --rbac` prints the rule)"
    )
    if said is not None:
        message += f"; the server says: {said.message}"
    return Forbidden(message, status=403)


def _order(right: Right) -> tuple[str, int]:
    """Order by resource, then as above."""
    known = (*_ALWAYS, _TO_CHANGE_PODS, *_TO_KEEP_A_LEASE, _TO_MAKE_CLAIMS)
    return str(right.resource), known.index(right) if right in known else len(known)


def _quoted(verbs: Sequence[str]) -> str:
    return ("verb " if len(verbs) == 1 else "verbs ") + _and([f'"{verb}"' for verb in verbs])


def _named(resource: Resource) -> str:
    return f'resource "{resource.plural}"' + (f' of group "{resource.group}"' if resource.group else "")


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
