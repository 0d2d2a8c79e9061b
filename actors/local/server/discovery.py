"""The discovery documents: `/api`, `/apis`, `/version`, and as much OpenAPI as kubectl asks for.

The OpenAPI documents have no schemas, because this server validates. They only declare the `fieldValidation` parameter
of each resource, as a real server's do: kubectl then leaves validation to the server. Without them it refuses to create
anything.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from actors.local.kubelet.nodes import KUBERNETES_VERSION
from actors.local.schema.resources import RESOURCES, Resource
from actors.local.server.reviews import REVIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["DISCOVERY", "HEALTH_PATHS"]

HEALTH_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})

_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SUBRESOURCES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "status": ("", ("get", "patch", "update")),
    "log": ("", ("get",)),
    "binding": ("Binding", ("create",)),
    "eviction": ("Eviction", ("create",)),
}
"""Kind (empty: the resource's own) and verbs."""
_FOREIGN_GROUPS: Final[Mapping[str, tuple[str, str]]] = {"eviction": ("policy", "v1")}
"""Group and version of a subresource's kind, if they are not the resource's: kubectl needs them to evict."""


def _documents() -> Iterator[tuple[str, dict[str, Any]]]:
    groups: dict[str, dict[str, list[Resource]]] = defaultdict(lambda: defaultdict(list))
    for resource in (*RESOURCES.values(), REVIEWS):
        groups[resource.group][resource.version].append(resource)
    yield "/version", _version()
    yield "/api", {"kind": "APIVersions", "versions": list(groups[""]), "serverAddressByClientCIDRs": []}
    named = {group: versions for group, versions in groups.items() if group}
    yield "/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*item) for item in named.items()]}
    openapi: dict[str, Any] = {}
    for group, versions in groups.items():
        if group:
            yield f"/apis/{group}", {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
        for version, resources in versions.items():
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            yield path, _resource_list(path, resources)
            openapi[path.strip("/")] = {"serverRelativeURL": f"/openapi/v3{path}"}
            yield f"/openapi/v3{path}", _openapi(path, resources)
    yield "/openapi/v3", {"paths": openapi}


def _version() -> dict[str, str]:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{KUBERNETES_VERSION}+executor-pods",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def _group(group: str, versions: Mapping[str, Any]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(path: str, resources: list[Resource]) -> dict[str, Any]:
    entries = [entry for resource in resources for entry in _entries(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": path.removeprefix("/apis/").removeprefix("/api/"),
        "resources": entries,
    }


def _entries(resource: Resource) -> Iterator[dict[str, Any]]:
    verbs: Sequence[str] = ("create",) if resource is REVIEWS else _VERBS
    entry = _entry(resource, resource.plural, resource.singular, resource.kind, verbs)
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    for subresource in resource.subresources:
        kind, verbs = _SUBRESOURCES[subresource]
        entry = _entry(resource, f"{resource.plural}/{subresource}", "", kind or resource.kind, verbs)
        yield entry | dict(zip(("group", "version"), _FOREIGN_GROUPS.get(subresource, ()), strict=False))


def _entry(resource: Resource, name: str, singular: str, kind: str, verbs: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name,
        "singularName": singular,
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }


def _openapi(path: str, resources: list[Resource]) -> dict[str, Any]:
    return {
        "openapi": "3.0.0",
        "info": {"title": "executor-pods embedded cluster", "version": KUBERNETES_VERSION},
        "paths": {
            f"{path}/namespaces/{{namespace}}/{each.plural}/{{name}}"
            if each.namespaced
            else f"{path}/{each.plural}/{{name}}": _operation(each)
            for each in resources
            if each is not REVIEWS
        },
        "components": {"schemas": {}},
    }


def _operation(resource: Resource) -> dict[str, Any]:
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    patch = {
        "parameters": [parameter],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }
    return {"patch": patch}


DISCOVERY: Final[Mapping[str, Mapping[str, Any]]] = dict(_documents())
"""Every document by its path."""
