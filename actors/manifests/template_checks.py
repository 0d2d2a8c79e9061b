"""Refuses pod templates that cannot work, before anything starts: each profile's, with its patch and settings applied.

Pure. One of the fleet's own labels or variables, or a restart policy that restarts an executor under the same id, would
break the fleet. The API server would refuse every pod with a missing image or with a name that appears twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from actors.errors import SettingsError
from actors.kube.strategic_merge import UnmergeableError
from actors.manifests.memory import on_oom_problems
from actors.manifests.pod_template import executor_of, patched, shape_of
from actors.pods.pod import DEFAULT_PROFILE
from actors.settings.durations import LONGEST
from actors.settings.pod_parts import resource_problems
from actors.settings.types import RESERVED_LABELS, annotations_problem, is_reserved_variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.settings.model import Settings

__all__ = ["check_template"]


_ADOPT_BY_ANY_LABEL: Final = frozenset({"DaemonSet", "ReplicationController"})
"""Controllers that adopt pods by the user's own labels. Others have a label of their own, which a new pod loses."""


def check_template(settings: Settings) -> None:
    """Refuse settings with a profile whose template cannot work.

    Raises:
        SettingsError: with one line for each problem: the profile, the field and what is allowed.
    """
    problems = list(_Check.of(settings, DEFAULT_PROFILE).problems())
    for name in settings.profiles:
        own = _Check.of(settings, name).problems()
        problems.extend([f"profile {name!r}: {problem}" for problem in own if problem not in problems])
    if problems:
        raise SettingsError("\n".join(problems))


@dataclass(frozen=True, slots=True)
class _Check:
    """The check of one profile."""

    settings: Settings
    name: str
    where: str
    """The settings that the template and its patch come from."""

    @classmethod
    def of(cls, settings: Settings, name: str) -> _Check:
        profile = settings.profile(name)
        template, patch = (_setting(settings, name, field) for field in ("pod_template", "template_patch"))
        match profile.pod_template, profile.template_patch:
            case _, None:
                return cls(settings, name, template)
            case None, _:
                return cls(settings, name, patch)
            case _:
                return cls(settings, name, f"{template} with {patch}")

    def problems(self) -> Iterator[str]:
        profile, container = self.settings.profile(self.name), self.settings.executor.container
        try:
            pod = patched(profile, container)
        except UnmergeableError as error:
            yield f"{self.where}: cannot be merged: {error.brief}"
            return
        if profile.pod_template is None and profile.image is None and not _has_image(pod, container):
            missing, template = (_setting(self.settings, self.name, field) for field in ("image", "pod_template"))
            yield f"{missing}: is not set, and there is no {template} that names one; local=True and --local need none"
            return
        faults = [
            *_outer_problems(pod),
            *_spec_problems(pod, container, profile.image),
        ]
        if not faults and profile.drain_timeout is not None:
            faults.extend(_drain_problems(pod["spec"], container))
        yield from (f"{self.where}: {fault}" for fault in faults)
        if profile.drain_command is not None and profile.drain_timeout is None:
            command, timeout = (
                _setting(self.settings, self.name, f"drain_{field}") for field in ("command", "timeout")
            )
            yield f"{command}: needs {timeout}, the longest time that the command may take"
        if not faults:
            yield from self._conflicts()

    def _conflicts(self) -> Iterator[str]:
        """Yield where the settings contradict the template."""
        shape = shape_of(self.settings, self.name)
        executor = executor_of(shape.pod["spec"]["containers"], shape.container)
        resources = executor.get("resources") or {}
        for problem in resource_problems(resources.get("requests") or {}, resources.get("limits") or {}):
            yield f"{self.where}: resources of {executor['name']!r}: {problem}"
        on_oom = _setting(self.settings, self.name, "on_oom")
        yield from (f"{on_oom}.{problem}" for problem in on_oom_problems(self.settings, self.name))
        if too_large := annotations_problem(shape.pod["metadata"].get("annotations") or {}):
            yield f"{self.where}: metadata.annotations, with those of the settings, {too_large}"
        if self.settings.driver_pod_name is not None and any(
            owner.get("controller") for owner in shape.pod["metadata"].get("ownerReferences") or ()
        ):
            yield f"{self.where}: metadata.ownerReferences has a controller, which must be the pod of driver_pod_name"
        shares = _setting(self.settings, self.name, "share_process_namespace")
        if self.settings.profile(self.name).share_process_namespace and shape.pod["spec"].get("hostPID"):
            yield f"{shares}: {self.where} has hostPID, which has every process of the node: set one of them"
        claims = _setting(self.settings, self.name, "claims")
        volumes = [volume.get("name") for volume in shape.pod["spec"].get("volumes") or ()]
        mounts = [mount.get("mountPath") for mount in executor.get("volumeMounts") or ()]
        for claim in shape.claims:
            if claim.name in volumes:
                yield f"{claims}: {self.where} has a volume {claim.name!r} already"
            if claim.mount_path in mounts:
                yield f"{claims}: {self.where} mounts something at {claim.mount_path!r} already"


def _setting(settings: Settings, profile: str, field: str) -> str:
    """Return the name of the setting that this profile uses."""
    own = profile in settings.profiles and settings.profiles[profile].sets(field)
    return f"profiles.{profile}.{field}" if own else f"executor.{field}"


def _has_image(pod: Mapping[str, Any], container: str) -> bool:
    """Whether the executor's container has an image. Without a template, the patch may bring it."""
    spec = pod.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    return not _are_mappings(containers) or not containers or bool(executor_of(containers, container).get("image"))


# ── checks of a template ─────────────────────────────────────────────────────────────────────────────────────────


def _outer_problems(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems outside of the spec."""
    for key, allowed in (("apiVersion", "v1"), ("kind", "Pod")):
        if pod.get(key, allowed) != allowed:
            yield f"{key} is {pod[key]!r}, it must be {allowed!r}"
    metadata = pod.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        yield "metadata must be a mapping"
        return
    for part in ("labels", "annotations"):
        values = metadata.get(part) or {}
        if not isinstance(values, Mapping):
            yield f"metadata.{part} must be a mapping"
            continue
        for key, value in values.items():
            if part == "labels" and str(key).startswith(RESERVED_LABELS):
                yield f"metadata.labels has {key!r}; labels that start with {RESERVED_LABELS!r} are set by the fleet"
            if not isinstance(value, str):
                yield f"metadata.{part} has {key!r}: {value!r}, which must be text; put it in quotes"
    yield from _owner_problems(metadata.get("ownerReferences") or [])


def _owner_problems(owners: Any) -> Iterator[str]:
    if not _are_mappings(owners):
        yield "metadata.ownerReferences must be a list of mappings"
        return
    for owner in owners:
        if owner.get("controller") and owner.get("kind") in _ADOPT_BY_ANY_LABEL:
            yield (
                f"metadata.ownerReferences has the {owner['kind']} {owner.get('name')!r}, which deletes every pod with "
                "its labels that it does not want: remove it, and those labels"
            )


def _spec_problems(pod: Mapping[str, Any], container: str, image: str | None) -> Iterator[str]:
    spec = pod.get("spec") or {}
    if not isinstance(spec, Mapping):
        yield "spec must be a mapping"
        return
    if spec.get("restartPolicy", "Never") != "Never":
        yield (
            f"spec.restartPolicy is {spec['restartPolicy']!r}, it must be 'Never': "
            "an executor that ended is replaced under a new id"
        )
    grace, longest = spec.get("terminationGracePeriodSeconds"), int(LONGEST.total_seconds())
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or not 0 <= grace <= longest):
        named = f"spec.terminationGracePeriodSeconds is {grace!r}"
        yield f"{named}, it must be a whole number of seconds from 0 to {longest}"
    if not isinstance(spec.get("nodeSelector") or {}, Mapping):
        yield "spec.nodeSelector must be a mapping"
    for part in ("volumes", "tolerations", "imagePullSecrets"):
        if not _are_mappings(spec.get(part) or []):
            yield f"spec.{part} must be a list of mappings"
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        yield "spec.containers: must list at least one container"
    elif not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in containers):
        yield "spec.containers: each must be a mapping with a name"
    else:
        executor = executor_of(containers, container)
        yield from (f"spec.containers: {fault}" for fault in _naming_problems(containers, executor, image))
        yield from (f"spec.containers: {fault}" for fault in _executor_problems(executor))


def _naming_problems(
    containers: Sequence[dict[str, Any]], executor: dict[str, Any], image: str | None
) -> Iterator[str]:
    names = [each["name"] for each in containers]
    yield from (f"the name {each!r} appears twice" for each in sorted(set(names)) if names.count(each) > 1)
    for each in containers:
        if not each.get("image") and not (each is executor and image is not None):
            yield f"{each['name']!r} has no image"


def _executor_problems(executor: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems in the fields of the executor's container to which the fleet adds."""
    named = executor["name"]
    for part in ("env", "envFrom", "volumeMounts"):
        if not _are_mappings(executor.get(part) or []):
            yield f"{part} of {named!r} must be a list of mappings"
    if (executor.get("restartPolicy") or "Never") != "Never" or executor.get("restartPolicyRules"):
        yield (
            f"{named!r} has a restartPolicy or restartPolicyRules that restart it, allowed is 'Never' without rules: "
            "an executor that ended is replaced under a new id"
        )
    resources = executor.get("resources") or {}
    if not isinstance(resources, Mapping) or not all(
        isinstance(resources.get(part) or {}, Mapping) for part in ("requests", "limits")
    ):
        yield f"resources of {named!r} must be a mapping of mappings"
    environment = executor.get("env") or []
    for each in environment if _are_mappings(environment) else ():
        if is_reserved_variable(str(each.get("name"))):
            yield f"env of {named!r} has {each['name']!r}, which is set by the fleet"


def _drain_problems(spec: Mapping[str, Any], container: str) -> Iterator[str]:
    """Yield what in the template contradicts `drain_timeout`."""
    executor = executor_of(spec["containers"], container)
    lifecycle = executor.get("lifecycle") or {}
    if not isinstance(lifecycle, Mapping):
        yield f"spec.containers: lifecycle of {executor['name']!r} must be a mapping"
    elif lifecycle.get("preStop"):
        yield (
            f"spec.containers: {executor['name']!r} has a lifecycle.preStop, which drain_timeout sets: "
            "remove one of them, or set the command as drain_command"
        )


def _are_mappings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)
