"""ResourceQuota: refuse objects that exceed a quota, and report the usage.

Enforced are `count/<resource>`, `pods`, and a pod's `requests.` and `limits.` of cpu and memory (`cpu` and `memory`
mean requests). A quota with anything else is refused at its creation, never silently unenforced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from actors.kube.quantities import format_quantity, parse_quantity
from actors.local.schema.resources import RESOURCES, Resource
from actors.local.schema.statuses import Cause, forbidden
from actors.local.store.history import Object, Table
from actors.local.store.objects import FINAL_PHASES

__all__ = ["check", "refreshed", "unsupported"]

Tables: TypeAlias = Mapping[str, Table]

_COUNT: Final = "count/"
_COMPUTE: Final[Mapping[str, tuple[str, str]]] = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}
_SCOPES: Final = ("scopes", "scopeSelector")
_COUNTABLE: Final = {f"{_COUNT}{r.qualified_name}": r.plural for r in RESOURCES.values() if r.namespaced}
_ENFORCED: Final = ("pods", *_COMPUTE, *_COUNTABLE)


def unsupported(quota: Object) -> list[Cause]:
    """Return the fields of a quota that are not enforced here."""
    spec = quota.get("spec", {})
    names = [name for name in _hard(quota) if name not in _ENFORCED]
    return [
        *(Cause.forbidden(f"spec.{key}", "not enforced by this cluster") for key in _SCOPES if spec.get(key)),
        *(Cause.unsupported(f"spec.hard[{name}]", name, _ENFORCED) for name in names),
    ]


def check(resource: Resource, obj: Object, tables: Tables) -> None:
    """Refuse a new object that exceeds a quota of its namespace."""
    metadata = obj["metadata"]
    for quota in _quotas(metadata.get("namespace", ""), tables):
        needed = {name: need for name in _hard(quota) if (need := _needs(name, resource, obj))}
        used = {name: _used(name, metadata["namespace"], tables) for name in needed}
        limits = {name: parse_quantity(_hard(quota)[name]) or Decimal(0) for name in needed}
        over = sorted(name for name, need in needed.items() if used[name] + need > limits[name])
        if over:
            requested, in_use, limited = (
                ",".join(f"{name}={format_quantity(numbers[name])}" for name in over)
                for numbers in (needed, used, limits)
            )
            raise forbidden(
                resource,
                metadata.get("name", ""),
                f"exceeded quota: {quota['metadata']['name']}, requested: {requested}, used: {in_use}, "
                f"limited: {limited}",
            )


def refreshed(namespace: str, tables: Tables) -> Iterator[tuple[tuple[str, str], Object]]:
    """Return the namespace's quotas whose status is outdated, with the current usage in it."""
    for quota in _quotas(namespace, tables):
        hard = _hard(quota)
        status = {"hard": hard, "used": {name: format_quantity(_used(name, namespace, tables)) for name in hard}}
        if quota.get("status") != status:
            yield (namespace, quota["metadata"]["name"]), {**quota, "status": status}


def _hard(quota: Object) -> Mapping[str, str]:
    hard: Mapping[str, str] = quota.get("spec", {}).get("hard", {})
    return hard


def _quotas(namespace: str, tables: Tables) -> list[Object]:
    table = tables["resourcequotas"]
    return [table.objects[key] for key in table.keys(namespace)] if namespace and table.objects else []


def _needs(name: str, resource: Resource, obj: Object) -> Decimal:
    """Return how much this object adds to the quota's value `name`."""
    if name.startswith(_COUNT):
        return Decimal(_COUNTABLE.get(name) == resource.plural)
    if resource.plural != "pods" or obj["status"].get("phase") in FINAL_PHASES:
        return Decimal(0)
    if name == "pods":
        return Decimal(1)
    part, measure = _COMPUTE[name]
    return _pod_total(obj["spec"], part, measure)


def _pod_total(spec: Mapping[str, Any], part: str, measure: str) -> Decimal:
    """Return a pod's total: the sum of its containers, or its largest init container if that is more."""

    def amount(container: Mapping[str, Any]) -> Decimal:
        return parse_quantity(container.get("resources", {}).get(part, {}).get(measure, 0)) or Decimal(0)

    together = sum(map(amount, spec.get("containers", ())), Decimal(0))
    return max([together, *map(amount, spec.get("initContainers", ()))])


def _used(name: str, namespace: str, tables: Tables) -> Decimal:
    table = tables[_COUNTABLE[name] if name.startswith(_COUNT) else "pods"]
    needs = (_needs(name, table.resource, table.objects[key]) for key in table.keys(namespace))
    return sum(needs, Decimal(0))
