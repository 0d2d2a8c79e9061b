"""PersistentVolumeClaims: what a real server demands of them, and what keeps one that a pod still uses. Pure.

No volume stands behind a claim here: it is kept, shown and deleted by the rules, and stays Pending unless somebody
writes its status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.kube.names import dns_subdomain_problem
from actors.kube.quantities import parse_quantity
from actors.local.schema.statuses import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from actors.local.store.history import Object

__all__ = ["PROTECTION", "changed", "defaulted_spec", "grows", "is_used", "problems", "used_by"]

PROTECTION: Final = "kubernetes.io/pvc-protection"
"""The finalizer that every claim gets: a controller takes it away once no pod uses a claim that is being deleted."""

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_ALONE: Final = "ReadWriteOncePod"
_VOLUME_MODES: Final = ("Block", "Filesystem")
_IMMUTABLE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def defaulted_spec(spec: Object) -> Object:
    """What is not said means a file system."""
    return {"resources": {}, **spec, "volumeMode": spec.get("volumeMode") or "Filesystem"}


def problems(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """What is wrong with a claim."""
    modes = spec.get("accessModes", ())
    if not modes:
        yield Cause.required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _MODES:
            yield Cause.unsupported("spec.accessModes", mode, _MODES)
    if _ALONE in modes and len(modes) > 1:
        yield Cause.forbidden("spec.accessModes", f"may not use {_ALONE} with other access modes")
    size = _requests(spec).get("storage")
    if size is None:
        yield Cause.required("spec.resources[storage]")
    elif (parse_quantity(size) or 0) <= 0:
        yield Cause.invalid("spec.resources[storage]", size, "must be greater than zero")
    if spec.get("storageClassName") and (problem := dns_subdomain_problem(spec["storageClassName"])):
        yield Cause.invalid("spec.storageClassName", spec["storageClassName"], problem)
    if spec["volumeMode"] not in _VOLUME_MODES:
        yield Cause.unsupported("spec.volumeMode", spec["volumeMode"], _VOLUME_MODES)


def changed(old: Object, new: Object) -> Iterator[Cause]:
    """What an update may not change: all but a volume or class that was not named before, and a bound claim's size."""
    before, after = dict(old["spec"]), dict(new["spec"])
    for late in ("volumeName", "storageClassName"):
        if not before.get(late):
            before.pop(late, None)
            after.pop(late, None)
    if grows(old, new):
        after["resources"] = before["resources"]
    if before != after:
        yield Cause.forbidden("spec", _IMMUTABLE)


def grows(old: Object, new: Object) -> bool:
    """A bound claim asks for another size: that takes a class whose volumes can grow, and there is none here."""
    bound = old.get("status", {}).get("phase") == "Bound"
    return bound and _requests(old["spec"]) != _requests(new["spec"])


def _requests(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    requests: Mapping[str, Any] = spec.get("resources", {}).get("requests", {})
    return requests


def used_by(pod: Mapping[str, Any]) -> set[str]:
    """The claims that a pod keeps: once it is bound to a node, until it is gone."""
    if not pod["spec"].get("nodeName"):
        return set()
    named = (volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod["spec"].get("volumes", ()))
    return {name for name in named if isinstance(name, str)}


def is_used(name: str, pods: Iterable[Mapping[str, Any]]) -> bool:
    """One of these pods keeps the claim of this name."""
    return any(name in used_by(pod) for pod in pods)
