"""The resources of the embedded cluster. Every other is answered with 404, as by a real server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RESOURCES", "Resource", "find_resource"]


@dataclass(frozen=True, slots=True)
class Resource:
    """One row of the API's discovery."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    """Subresources that are served. With `"status"`, the field `status` changes only through it."""
    has_generation: bool = False
    """`metadata.generation` counts changes of `spec`."""
    keep: timedelta | None = None
    """Objects older than this are deleted: a real server keeps events for an hour."""

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The singular name."""
        return self.kind.lower()

    @property
    def qualified_name(self) -> str:
        """The plural as errors spell it: with the group, if there is one."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind as errors spell it: with the group, if there is one."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def has_status(self) -> bool:
        """`status` changes only through its own subresource."""
        return "status" in self.subresources


_ALL: Final = (
    Resource(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=("status", "log", "binding", "eviction"),
        has_generation=True,
    ),
    Resource("nodes", "Node", namespaced=False, short_names=("no",), subresources=("status",)),
    Resource("namespaces", "Namespace", namespaced=False, short_names=("ns",), subresources=("status",)),
    Resource("events", "Event", short_names=("ev",), keep=timedelta(hours=1)),
    Resource("configmaps", "ConfigMap", short_names=("cm",)),
    Resource("services", "Service", short_names=("svc",), categories=("all",), subresources=("status",)),
    Resource("secrets", "Secret"),
    Resource("serviceaccounts", "ServiceAccount", short_names=("sa",)),
    Resource("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=("status",)),
    Resource("resourcequotas", "ResourceQuota", short_names=("quota",), subresources=("status",)),
    Resource("leases", "Lease", group="coordination.k8s.io"),
)

RESOURCES: Final[Mapping[str, Resource]] = MappingProxyType({resource.plural: resource for resource in _ALL})
"""By plural name: no two groups here share one."""


def find_resource(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource that a URL names, None if this cluster does not have it."""
    resource = RESOURCES.get(plural)
    return resource if resource is not None and (resource.group, resource.version) == (group, version) else None
