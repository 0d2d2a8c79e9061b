"""The bodies that clients POST to a pod's `binding` and `eviction`, and `DeleteOptions`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.local.schema.decode import decode_as, decode_delete_options
from actors.local.schema.shapes import BINDING, EVICTION
from actors.local.schema.statuses import Cause, bad_request, internal_error, invalid_kind, not_implemented

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.local.store.deletion import DeleteOptions

__all__ = ["binding_target", "delete_options", "eviction_options", "is_dry_run"]

_VERSIONS: Final = ("policy/v1", "policy/v1beta1")
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_BACKGROUND: Final = "Background"
_ALL: Final = "All"


def delete_options(body: Any, query: Mapping[str, str]) -> tuple[DeleteOptions, bool]:
    """Return the options in a DELETE's body, or else in its query, and whether it is a dry run.

    501 for unsupported ones.
    """
    return _supported(_from_query(query) if body is None else decode_delete_options(body))


def _from_query(query: Mapping[str, str]) -> dict[str, Any]:
    sent: dict[str, Any] = {"propagationPolicy": query.get("propagationPolicy")}
    if grace := query.get("gracePeriodSeconds"):
        sent["gracePeriodSeconds"] = int(grace)
    if query.get("dryRun"):
        sent["dryRun"] = [query["dryRun"]]
    return sent


def eviction_options(body: Any, namespace: str | None, name: str, warnings: list[str]) -> tuple[DeleteOptions, bool]:
    """Return the options in an Eviction of this pod, and whether it is a dry run."""
    eviction = decode_as(EVICTION, _VERSIONS, body, warnings)
    if eviction["metadata"].get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if eviction["metadata"].get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    return _supported(eviction.get("deleteOptions", {}))


def binding_target(body: Any, name: str) -> tuple[str, str | None]:
    """Return the node in a Binding of this pod, and the UID that the pod must have."""
    binding = decode_as(BINDING, ("v1",), body, [])
    if binding["metadata"].get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target", {})
    if target.get("kind", "") not in ("", "Node"):
        kinds = 'supported values: "Node", "<empty>"'
        raise internal_error(f'target.kind: Unsupported value: "{target["kind"]}": {kinds}')
    if not target.get("name"):
        raise internal_error("target.name: Required value")
    return target["name"], binding["metadata"].get("uid")


def is_dry_run(values: Sequence[str], kind: str) -> bool:
    """Return whether the request is a dry run; 422 for an unknown value."""
    if values and set(values) != {_ALL}:
        listed = ", ".join(f'"{value}"' for value in values)
        cause = Cause("dryRun", "FieldValueNotSupported", f'Unsupported value: [{listed}]: supported values: "{_ALL}"')
        raise invalid_kind(kind, "meta.k8s.io", "", [cause])
    return bool(values)


def _supported(options: Mapping[str, Any]) -> tuple[DeleteOptions, bool]:
    policy = options.get("propagationPolicy")
    if policy and policy not in _POLICIES:
        cause = Cause.unsupported("propagationPolicy", policy, (*_POLICIES, "nil"))
        raise invalid_kind("DeleteOptions", "meta.k8s.io", "", [cause])
    if policy and options.get("orphanDependents") is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_kind("DeleteOptions", "meta.k8s.io", "", [Cause.invalid("propagationPolicy", policy, detail)])
    if (policy or _BACKGROUND) != _BACKGROUND or options.get("orphanDependents") is not None:
        raise not_implemented(f"propagationPolicy {policy or 'by orphanDependents'}")
    preconditions = options.get("preconditions") or {}
    supported: DeleteOptions = {
        "grace_period_seconds": options.get("gracePeriodSeconds"),
        "uid": preconditions.get("uid"),
        "resource_version": preconditions.get("resourceVersion"),
    }
    return supported, is_dry_run(options.get("dryRun") or (), "DeleteOptions")
