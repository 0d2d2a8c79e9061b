"""PersistentVolumeClaims: validation, and the protection of a claim that a pod still uses. Pure.

Claims have no volumes here. They are stored, listed and deleted by the rules, and stay Pending until a client writes
their status.
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
"""The finalizer of every claim. A controller removes it once no pod uses a claim that is being deleted."""

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_ALONE: Final = "ReadWriteOncePod"
_VOLUME_MODES: Final = ("Block", "Filesystem")
_IMMUTABLE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def defaulted_spec(spec: Object) -> Object:
    """Return the spec with its defaults: the default volume mode is a file system."""
    return {"resources": {}, **spec, "volumeMode": spec.get("volumeMode") or "Filesystem"}


def problems(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Return the problems of a claim's spec."""
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
    """Return the problems of an update: only an unset volume or class, and a bound claim's size, may change."""
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
    """Return whether a bound claim asks for another size. That needs an expandable class; there is none here."""
    bound = old.get("status", {}).get("phase") == "Bound"
    return bound and _requests(old["spec"]) != _requests(new["spec"])


def _requests(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    requests: Mapping[str, Any] = spec.get("resources", {}).get("requests", {})
    return requests


def used_by(pod: Mapping[str, Any]) -> set[str]:
    """Return the claims that a pod uses, from its binding to a node until its object is deleted."""
    if not pod["spec"].get("nodeName"):
        return set()
    named = (volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod["spec"].get("volumes", ()))
    return {name for name in named if isinstance(name, str)}


def is_used(name: str, pods: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one of these pods uses the claim."""
    return any(name in used_by(pod) for pod in pods)
