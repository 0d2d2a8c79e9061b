"""Merges template, patch and settings into the shape of a profile's pods, once at the start.

Pure. Later ones override earlier ones: the template, its patch, then the settings (`ShapeSettings` says how each is
merged). The settings are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from actors.kube.strategic_merge import copy_json, strategic_merge
from actors.manifests.pause import pre_stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.settings import ClaimSettings, EnvFromSettings, EnvVarSettings, ProfileSettings, Settings

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
"""The API server sets these: a template that was read from a cluster has them, a new pod must not."""


CONTROLLERS_LABELS: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "controller-revision-hash",
        "controller-uid",
        "job-name",
        "pod-template-generation",
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels by which Kubernetes' controllers find their pods. A ReplicaSet adopts every pod that has its hash, and deletes
those that are too many."""

DEFAULT_GRACE: Final = 30
"""Seconds. The API server's `terminationGracePeriodSeconds` of a pod that sets none."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A pod without the fields that differ between executors. Every pod of the profile is made from a copy."""

    pod: Mapping[str, Any]
    container: str
    """The name of the executor's container. If no container has it, the executor's is the first."""
    claims: tuple[ClaimSettings, ...]

    def copy(self) -> dict[str, Any]:
        """Return a copy of the pod, to fill in."""
        pod: dict[str, Any] = copy_json(self.pod)
        return pod


def shape_of(settings: Settings, name: str) -> Shape:
    """Return the shape of a profile. The settings must have passed `check_template`."""
    profile, container = settings.profile(name), settings.executor.container
    pod = patched(profile, container)
    _make_new(pod)
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"  # an executor that ended is replaced under a new id, never restarted
    _mark(pod["metadata"], profile)
    _place(spec, profile)
    executor = executor_of(spec["containers"], container)
    _equip(executor, profile)
    _pause_before_sigterm(spec, executor, profile)
    return Shape(pod, container, profile.claims)


def patched(profile: ProfileSettings, container: str) -> dict[str, Any]:
    """Return the profile's template, or the smallest one that runs an image, with the profile's patch applied.

    Raises:
        UnmergeableError: the patch does not fit the template.
    """
    template: dict[str, Any] = profile.pod_template if profile.pod_template is not None else _bare(container)
    merged = template if profile.template_patch is None else strategic_merge(template, profile.template_patch)
    pod: dict[str, Any] = copy_json(merged)
    if (first := _first_container(template)) and (containers := _containers(pod)):
        _keep_first(containers, first, container)
    return pod


def _keep_first(containers: list[Any], first: str, container: str) -> None:
    """Keep the executor's container first if it was first: a merge puts added containers in front."""
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
    """Return the containers, or nothing if the pod has none: the template is not checked yet."""
    match pod:
        case {"spec": {"containers": list(containers)}}:
            return containers
        case _:
            return []


def executor_of(containers: Sequence[dict[str, Any]], container: str) -> dict[str, Any]:
    """Return the executor's container: the one with this name, or the first."""
    return next((each for each in containers if each.get("name") == container), containers[0])


def _bare(container: str) -> dict[str, Any]:
    """The template if the user gives none."""
    return {"spec": {"containers": [{"name": container}]}}


def _make_new(pod: dict[str, Any]) -> None:
    """Remove the fields that a server set, so that a template from a cluster makes new pods.

    A pod from a cluster, which is one that has a UID, has an owner, the labels by which that finds it, and a node.
    """
    pod["apiVersion"], pod["kind"] = "v1", "Pod"
    pod.pop("status", None)
    found = pod.get("metadata") or {}
    metadata = pod["metadata"] = {name: value for name, value in found.items() if name not in SERVER_FIELDS}
    if found.get("uid"):
        metadata.pop("ownerReferences", None)
        metadata["labels"] = {
            name: value for name, value in (found.get("labels") or {}).items() if name not in CONTROLLERS_LABELS
        }
        pod["spec"].pop("nodeName", None)


def _mark(metadata: dict[str, Any], profile: ProfileSettings) -> None:
    """Apply the settings of the pod's metadata."""
    for part, own in (("labels", profile.labels), ("annotations", profile.annotations)):
        if own:
            metadata[part] = {**(metadata.get(part) or {}), **own}


def _place(spec: dict[str, Any], profile: ProfileSettings) -> None:
    """Apply the settings of the pod's spec."""
    if profile.node_selector is not None:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **profile.node_selector}
    if profile.tolerations:
        _add(spec, "tolerations", [each.model_dump(exclude_none=True) for each in profile.tolerations])
    if profile.image_pull_secrets:
        _add(spec, "imagePullSecrets", [{"name": name} for name in profile.image_pull_secrets])
    if profile.priority_class is not None:
        spec["priorityClassName"] = profile.priority_class
        for decided_by_class in ("priority", "preemptionPolicy"):  # the server refuses any other than the class's
            spec.pop(decided_by_class, None)
    if profile.share_process_namespace is not None:
        spec["shareProcessNamespace"] = profile.share_process_namespace
    if profile.service_account is not None:
        spec["serviceAccountName"] = profile.service_account
        spec.pop("serviceAccount", None)  # its deprecated name, which a pod that was read from a cluster has too


def _add(spec: dict[str, Any], part: str, items: Sequence[dict[str, Any]]) -> None:
    given = spec.get(part) or []
    spec[part] = [*given, *(item for item in items if item not in given)]


def _equip(executor: dict[str, Any], profile: ProfileSettings) -> None:
    """Apply the settings of the executor's container."""
    texts = {"image": profile.image, "workingDir": profile.working_dir}
    executor |= {name: text for name, text in texts.items() if text is not None}
    if profile.command is not None:
        executor["command"] = list(profile.command)
        executor.pop("args", None)
    if profile.args is not None:
        executor["args"] = list(profile.args)
    if profile.env:
        own = {name: _variable(name, value) for name, value in profile.env.items()}
        given = executor.get("env") or []
        named = {each.get("name") for each in given}
        executor["env"] = [
            *(own.get(each.get("name"), each) for each in given),
            *(variable for name, variable in own.items() if name not in named),
        ]
    if profile.env_from:
        executor["envFrom"] = [*(executor.get("envFrom") or ()), *map(_all_of, profile.env_from)]
    if profile.resources is not None:
        resources = executor["resources"] = dict(executor.get("resources") or {})
        for part, quantities in (("requests", profile.resources.requests), ("limits", profile.resources.limits)):
            if quantities:
                resources[part] = {**(resources.get(part) or {}), **quantities}
    executor.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")


def _pause_before_sigterm(spec: dict[str, Any], executor: dict[str, Any], profile: ProfileSettings) -> None:
    """Have the executor drain before SIGTERM. The grace period counts from the begin of the preStop hook.

    https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/#hook-handler-execution
    """
    if profile.drain_timeout is None:
        return
    seconds = ceil(profile.drain_timeout.total_seconds())
    hook = pre_stop(profile.drain_command, seconds)
    executor["lifecycle"] = {**(executor.get("lifecycle") or {}), "preStop": hook}
    grace = spec.get("terminationGracePeriodSeconds")
    spec["terminationGracePeriodSeconds"] = seconds + (DEFAULT_GRACE if grace is None else grace)


def _variable(name: str, value: str | EnvVarSettings) -> dict[str, Any]:
    """Return a v1 EnvVar."""
    if isinstance(value, str):
        return {"name": name, "value": value}
    kind, source = ("secretKeyRef", value.secret) if value.secret is not None else ("configMapKeyRef", value.config_map)
    return {"name": name, "valueFrom": {kind: {"name": source, "key": value.key, **_optional(value)}}}


def _all_of(variables: EnvFromSettings) -> dict[str, Any]:
    """Return a v1 EnvFromSource."""
    secret = variables.secret
    kind, source = ("secretRef", secret) if secret is not None else ("configMapRef", variables.config_map)
    prefix = {} if variables.prefix is None else {"prefix": variables.prefix}
    return {**prefix, kind: {"name": source, **_optional(variables)}}


def _optional(source: EnvVarSettings | EnvFromSettings) -> dict[str, Any]:
    return {"optional": True} if source.optional else {}
