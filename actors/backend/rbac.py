"""What our account must be allowed to do, and the words for one that is not. Pure.

The Backend asks the server for every right before anything is made: one that is missing would else show itself hours
later, when an executor is to be deleted. Where reviews are refused or not answered the fleet starts all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from actors.errors import ApiError, Forbidden, Unavailable
from actors.kube.api import CLAIMS, LEASES, PODS, Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actors.settings import Settings

__all__ = ["LIST_PODS", "Reviews", "Right", "lacking", "needed"]


@dataclass(frozen=True, slots=True)
class Right:
    """One verb of RBAC on one kind of objects, in the fleet's namespace."""

    verb: str
    resource: Resource = PODS


LIST_PODS: Final = Right("list")

_ALWAYS: Final = (
    LIST_PODS,  # to see the fleet, and at a stop whether it is gone
    Right("watch"),  # to see every change as it happens
    Right("create"),
    Right("get"),  # to see whether a create whose answer was lost made its pod, and what became of one out of sight
    Right("delete"),  # what is in excess, given up or ended
    Right("deletecollection"),  # what the driver kills, and the whole fleet at a stop
)

_TO_CHANGE_PODS: Final = Right("patch")
"""Labels and annotations; the owner of those that are taken over."""

_TO_KEEP_A_LEASE: Final = (Right("get", LEASES), Right("create", LEASES), Right("patch", LEASES))

_TO_MAKE_CLAIMS: Final = Right("create", CLAIMS)


def needed(settings: Settings) -> tuple[Right, ...]:
    """Every right that a fleet of these settings cannot do without.

    It can without a lease that nobody insisted on, and without a list of claims, which it then does not reuse.
    """
    return (
        *_ALWAYS,
        *((_TO_CHANGE_PODS,) if _changes_pods(settings) else ()),
        *(_TO_KEEP_A_LEASE if settings.backend.lease is True else ()),
        *((_TO_MAKE_CLAIMS,) if _makes_claims(settings) else ()),
    )


def _changes_pods(settings: Settings) -> bool:
    executor = settings.executor
    marks = (executor.kill_label, executor.decommission_label, executor.decommission_deletion_cost)
    return (
        not executor.delete_on_termination
        or any(mark is not None for mark in marks)
        or settings.driver_pod_name is not None
    )


def _makes_claims(settings: Settings) -> bool:
    """Those that an executor's own pod owns are made by the cluster."""
    owned = settings.driver_pod_name is not None and settings.executor.own_claims
    return owned and any(settings.profile(name).claims for name in settings.profile_names)


@dataclass(frozen=True, slots=True)
class Reviews:
    """What the server has said of our rights so far."""

    awaited: tuple[Right, ...]
    missing: tuple[Right, ...] = ()
    error: ApiError | None = None
    """Why a right could not be reviewed, the last one said."""

    def answered(self, right: Right, answer: bool | ApiError) -> Reviews:
        """One review is over. One that failed says nothing against the right."""
        if right not in self.awaited:
            return self
        rest = tuple(other for other in self.awaited if other != right)
        match answer:
            case ApiError():
                return replace(self, awaited=rest, error=answer)
            case True:
                return replace(self, awaited=rest)
            case _:
                return replace(self, awaited=rest, missing=(*self.missing, right))

    def abandoned(self) -> Reviews:
        """Nothing more is waited for."""
        if not self.awaited:
            return self
        return replace(self, awaited=(), error=Unavailable("the server has not answered the reviews of our rights"))


def lacking(rights: Iterable[Right], namespace: str, *, said: ApiError | None = None) -> Forbidden:
    """The error of an account without these rights, in one line: what it may not do and what to grant.

    `said` is the server's own refusal, where it came to one.
    """
    verbs: dict[Resource, list[str]] = {}
    for right in sorted(rights, key=_order):
        verbs.setdefault(right.resource, []).append(right.verb)
    may_not = _and([f"{_and(names)} {resource.plural}" for resource, names in verbs.items()])
    grant = _and([f"{_quoted(names)} on {_named(resource)}" for resource, names in verbs.items()])
    words = f'the account may not {may_not} in namespace "{namespace}": grant {grant} (config/rbac.yaml has the rule)'
    if said is not None:
        words += f"; the server says: {said.message}"
    return Forbidden(words, status=403)


def _order(right: Right) -> tuple[str, int]:
    """However the answers came in."""
    known = (*_ALWAYS, _TO_CHANGE_PODS, *_TO_KEEP_A_LEASE, _TO_MAKE_CLAIMS)
    return str(right.resource), known.index(right) if right in known else len(known)


def _quoted(verbs: Sequence[str]) -> str:
    return ("verb " if len(verbs) == 1 else "verbs ") + _and([f'"{verb}"' for verb in verbs])


def _named(resource: Resource) -> str:
    return f'resource "{resource.plural}"' + (f' of group "{resource.group}"' if resource.group else "")


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
