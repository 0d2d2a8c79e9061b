"""Graceful deletion, as `rest.BeforeDelete` and the pod strategy of the real API server decide it. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypedDict

from actors.local.store.objects import DEFAULT_GRACE_PERIOD, FINAL_PHASES, rfc3339

if TYPE_CHECKING:
    from actors.local.schema.resources import Resource
    from actors.local.store.history import Object

__all__ = ["PROTECTED_NAMESPACES", "DeleteOptions", "finished", "marked"]

PROTECTED_NAMESPACES: Final = frozenset({"default", "kube-public", "kube-system"})
"""Those that a real server refuses to delete."""


class DeleteOptions(TypedDict, total=False):
    """`DeleteOptions` of the API, as far as they are honoured."""

    grace_period_seconds: int | None
    uid: str | None
    """A precondition, as is the next."""
    resource_version: str | None


def marked(resource: Resource, obj: Object, grace: int | None, now: datetime) -> Object | None:
    """The object with its deletion begun or shortened, None if the request changes nothing about it.

    An object without graceful deletion and without finalizers is never marked: it is removed at once.
    """
    metadata = obj["metadata"]
    began = "deletionTimestamp" in metadata
    match resource.plural:
        case "pods":
            return _marked_pod(obj, grace, now)
        case "namespaces" if not began:
            status = {**obj.get("status", {}), "phase": "Terminating"}
            return obj | {"metadata": metadata | {"deletionTimestamp": rfc3339(now)}, "status": status}
        case _ if metadata.get("finalizers") and not began:
            return obj | {"metadata": metadata | {"deletionTimestamp": rfc3339(now), "deletionGracePeriodSeconds": 0}}
        case _:
            return None


def _marked_pod(obj: Object, grace: int | None, now: datetime) -> Object | None:
    metadata, spec = obj["metadata"], obj["spec"]
    if "deletionTimestamp" in metadata:
        current = metadata["deletionGracePeriodSeconds"]
        if grace is None or max(grace, 0) >= current:  # a deletion can only be made shorter
            return None
        began = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=current)
        return obj | {"metadata": metadata | _deadline(began, max(grace, 0))}
    period = grace if grace is not None else spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD)
    if not spec.get("nodeName") or obj["status"].get("phase") in FINAL_PHASES:
        period = 0  # no kubelet has anything to end
    elif period < 0:
        period = 1
    generation = {"generation": metadata.get("generation", 0) + 1}
    return obj | {"metadata": metadata | generation | _deadline(now, period)}


def _deadline(began: datetime, period: int) -> Object:
    return {
        "deletionTimestamp": rfc3339(began + timedelta(seconds=period)),
        "deletionGracePeriodSeconds": period,
    }


def finished(resource: Resource, obj: Object) -> bool:
    """Nothing keeps an object, whose deletion was asked for, any longer; a namespace's content is not looked at."""
    metadata = obj["metadata"]
    if metadata.get("finalizers"):
        return False
    return resource.plural != "pods" or metadata.get("deletionGracePeriodSeconds") == 0
