"""Graceful deletion, as `rest.BeforeDelete` and the pod strategy of the real API server decide it. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypedDict

from actors.local.store.objects import DEFAULT_GRACE_PERIOD, FINAL_PHASES, rfc3339

if TYPE_CHECKING:
    from actors.local.schema.resources import Resource
    from actors.local.store.history import Object

__all__ = ["PROTECTED_NAMESPACES", "DeleteOptions", "begin", "finished"]

PROTECTED_NAMESPACES: Final = frozenset({"default", "kube-public", "kube-system"})
"""A real server refuses to delete these."""


class DeleteOptions(TypedDict, total=False):
    """The part of the API's `DeleteOptions` that is supported."""

    grace_period_seconds: int | None
    uid: str | None
    """A precondition, like `resource_version`."""
    resource_version: str | None


def begin(resource: Resource, obj: Object, grace: int | None, now: datetime) -> Object | None:
    """Return the object with its deletion begun or shortened, None if the request changes nothing.

    An object without graceful deletion and without finalizers is deleted at once: None.
    """
    metadata = obj["metadata"]
    began = "deletionTimestamp" in metadata
    match resource.plural:
        case "pods":
            return _begin_pod(obj, grace, now)
        case "namespaces" if not began:
            status = {**obj.get("status", {}), "phase": "Terminating"}
            return obj | {"metadata": metadata | {"deletionTimestamp": rfc3339(now)}, "status": status}
        case _ if metadata.get("finalizers") and not began:
            return obj | {"metadata": metadata | {"deletionTimestamp": rfc3339(now), "deletionGracePeriodSeconds": 0}}
        case _:
            return None


def _begin_pod(obj: Object, grace: int | None, now: datetime) -> Object | None:
    metadata, spec = obj["metadata"], obj["spec"]
    if "deletionTimestamp" in metadata:
        current = metadata["deletionGracePeriodSeconds"]
        if grace is None or max(grace, 0) >= current:  # a deletion can only be shortened
            return None
        began = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=current)
        return obj | {"metadata": metadata | _deadline(began, max(grace, 0))}
    period = grace if grace is not None else spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD)
    if not spec.get("nodeName") or obj["status"].get("phase") in FINAL_PHASES:
        period = 0  # no kubelet has a process to end
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
    """Return whether an object that is being deleted can be removed now. A namespace's content is not considered."""
    metadata = obj["metadata"]
    if metadata.get("finalizers"):
        return False
    return resource.plural != "pods" or metadata.get("deletionGracePeriodSeconds") == 0
