"""What the pods of one profile have in common: template, patch and settings put together, once at the start.

Pure. The order is that of precedence: the template, the patch over it, then what stands in settings of its own (image,
command, resources, node selector). The settings are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from actors.kube.strategic_merge import copy_json, strategic_merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.settings import ClaimSettings, ProfileSettings, Settings

__all__ = ["Shape", "executor_of", "patched", "shape_of"]

SERVER_FIELDS: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""What the API server writes: a template that was read from a cluster has them, a new pod must not."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A pod without what tells one executor from another. Never changed: every pod of the profile starts from it."""

    pod: Mapping[str, Any]
    container: str
    """The name of the executor's container, if one has it; else it is the first."""
    claims: tuple[ClaimSettings, ...]

    def copy(self) -> dict[str, Any]:
        """The pod, to be filled in."""
        pod: dict[str, Any] = copy_json(self.pod)
        return pod


def shape_of(settings: Settings, name: str) -> Shape:
    """The shape of one profile. The settings must have passed `check_template`."""
    profile, container = settings.profile(name), settings.executor.container
    pod = patched(profile, container)
    _make_new(pod)
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"  # an executor that ended is replaced under a new id, never revived
    if profile.node_selector is not None:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **profile.node_selector}
    _equip(executor_of(spec["containers"], container), profile)
    return Shape(pod, container, profile.claims)


def patched(profile: ProfileSettings, container: str) -> dict[str, Any]:
    """The profile's template, or the least that runs an image, with the profile's patch over it.

    Raises:
        UnmergeableError: the patch is none for this template.
    """
    template: dict[str, Any] = profile.pod_template if profile.pod_template is not None else _bare(container)
    merged = template if profile.template_patch is None else strategic_merge(template, profile.template_patch)
    pod: dict[str, Any] = copy_json(merged)
    if (first := _first_container(template)) and (containers := _containers(pod)):
        _keep_first(containers, first, container)
    return pod


def _keep_first(containers: list[Any], first: str, container: str) -> None:
    """A merge puts what the patch adds in front: where the executor's container is the first, it shall stay so."""
    names = [each.get("name") if isinstance(each, dict) else None for each in containers]
    if container not in names and first in names:
        containers.insert(0, containers.pop(names.index(first)))


def _first_container(pod: Mapping[str, Any]) -> str | None:
    match _containers(pod):
        case [{"name": str(name)}, *_]:
            return name
        case _:
            return None


def _containers(pod: Mapping[str, Any]) -> list[Any]:
    """They have not been checked yet."""
    match pod:
        case {"spec": {"containers": list(containers)}}:
            return containers
        case _:
            return []


def executor_of(containers: Sequence[dict[str, Any]], container: str) -> dict[str, Any]:
    """The executor's container: the one of this name, else the first."""
    return next((each for each in containers if each.get("name") == container), containers[0])


def _bare(container: str) -> dict[str, Any]:
    """The template of one who gives none."""
    return {"spec": {"containers": [{"name": container}]}}


def _make_new(pod: dict[str, Any]) -> None:
    """Take away what a server wrote, so that a template that was read from a cluster makes new pods."""
    pod["apiVersion"], pod["kind"] = "v1", "Pod"
    pod.pop("status", None)
    pod["metadata"] = {name: value for name, value in (pod.get("metadata") or {}).items() if name not in SERVER_FIELDS}


def _equip(executor: dict[str, Any], profile: ProfileSettings) -> None:
    """Give the executor's container what the settings say of it."""
    if profile.image is not None:
        executor["image"] = profile.image
    if profile.command is not None:
        executor["command"] = list(profile.command)
        executor.pop("args", None)
    if profile.resources is not None:
        resources = executor["resources"] = dict(executor.get("resources") or {})
        for part, quantities in (("requests", profile.resources.requests), ("limits", profile.resources.limits)):
            if quantities:
                resources[part] = {**(resources.get(part) or {}), **quantities}
    executor.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
