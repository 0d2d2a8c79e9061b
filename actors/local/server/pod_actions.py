"""What a client posts to a pod's `binding` and `eviction`, and what `DeleteOptions` say wherever they go. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from actors.local.schema.decode import decode_as, decode_delete_options
from actors.local.schema.shapes import BINDING, EVICTION
from actors.local.schema.statuses import Cause, bad_request, internal_error, invalid_kind, not_implemented

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DeleteOptions", "binding_target", "delete_options", "eviction_options", "is_dry_run"]

_VERSIONS: Final = ("policy/v1", "policy/v1beta1")
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_BACKGROUND: Final = "Background"
_ALL: Final = "All"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """`DeleteOptions`, as far as they are honoured."""

    grace_period_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


def delete_options(body: Any, query: Mapping[str, str]) -> DeleteOptions:
    """The options in a DELETE's body, or without one those in its query; 501 for what is not done here."""
    if body is not None:
        return _honoured(decode_delete_options(body))
    sent: dict[str, Any] = {name: query[name] for name in ("propagationPolicy",) if query.get(name)}
    if grace := query.get("gracePeriodSeconds"):
        sent["gracePeriodSeconds"] = int(grace)
    if query.get("dryRun"):
        sent["dryRun"] = [query["dryRun"]]
    return _honoured(sent)


def eviction_options(body: Any, namespace: str, name: str, unknown: list[str]) -> DeleteOptions:
    """The options in an Eviction that is about this pod; fields that nobody knows go into `unknown`."""
    eviction = decode_as(EVICTION, _VERSIONS, body, unknown)
    if eviction["metadata"].get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if eviction["metadata"].get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    return _honoured(eviction.get("deleteOptions", {}))


def binding_target(body: Any, name: str) -> tuple[str, str | None]:
    """The node in a Binding of this pod, and the UID that the pod must have."""
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
    """Whether the request is only to be tried; 422 for a word that means neither."""
    if values and set(values) != {_ALL}:
        shown = ", ".join(f'"{value}"' for value in values)
        cause = Cause("dryRun", "FieldValueNotSupported", f'Unsupported value: [{shown}]: supported values: "{_ALL}"')
        raise invalid_kind(kind, "meta.k8s.io", "", [cause])
    return bool(values)


def _honoured(options: Mapping[str, Any]) -> DeleteOptions:
    policy = options.get("propagationPolicy")
    if policy and policy not in _POLICIES:
        cause = Cause.unsupported("propagationPolicy", policy, (*_POLICIES, "nil"))
        raise invalid_kind("DeleteOptions", "meta.k8s.io", "", [cause])
    if policy and options.get("orphanDependents") is not None:
        words = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_kind("DeleteOptions", "meta.k8s.io", "", [Cause.invalid("propagationPolicy", policy, words)])
    if (policy or _BACKGROUND) != _BACKGROUND or options.get("orphanDependents") is not None:
        raise not_implemented(f"propagationPolicy {policy or 'by orphanDependents'}")
    wanted = options.get("preconditions") or {}
    return DeleteOptions(
        options.get("gracePeriodSeconds"),
        wanted.get("uid"),
        wanted.get("resourceVersion"),
        is_dry_run(options.get("dryRun") or (), "DeleteOptions"),
    )
